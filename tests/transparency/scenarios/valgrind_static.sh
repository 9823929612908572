#!/bin/bash
# A static program under valgrind, which maps its text itself and translates it.
# @needs valgrind gcc
cat > hello.c <<'C'
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("%d\n", getppid() > 0); fflush(stdout); return write(1, "written\n", 8) == 8 ? 3 : 4; }
C
gcc -static -O1 -o hello hello.c || exit 1
valgrind -q ./hello 2>said
echo "status $?"
grep -c 'Bad permissions\|Invalid read\|SIGSEGV' said
rm said
exit 0
