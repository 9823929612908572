# gcc with its passes as processes (-pipe), a library, a program that fails to compile.
# @memory
# @heavy
# @needs gcc ar
printf '#include <stdio.h>\nint main(void) { printf("hello\\n"); return 3; }\n' > h.c
gcc -pipe -O1 -o h h.c && ./h; echo "status $?"
echo 'int broken(' > b.c; gcc -c b.c 2>/dev/null; echo "status $?"; ls
gcc -c -o h.o h.c; ar rc libh.a h.o; ar t libh.a; rm -f libh.a h
