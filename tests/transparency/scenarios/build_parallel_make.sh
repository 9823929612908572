# make -j4 with the job server over 60 generated C files, a partial rebuild, a failing rule, make -k.
# @needs make gcc
# @timeout 120
# @unsorted
for i in $(seq 60); do echo "int f$i(void) { return $i; }" > "f$i.c"; done
{ echo 'int main(void) { int s = 0;'; for i in $(seq 60); do echo "extern int f$i(void); s += f$i();"; done; echo 'return s != 1830; }'; } > main.c
printf 'objects := $(patsubst %%.c,%%.o,$(sort $(wildcard *.c)))\nall: program\nprogram: $(objects)\n\tgcc -o $@ $^\n%%.o: %%.c\n\t@gcc -c -o $@ $<\nbroken: fail other\nfail:\n\tfalse\nother:\n\t@echo other\n' > Makefile
make -s -j4 && ./program && echo "sum is right"
sleep 1; touch f7.c; make -j4 | grep -c gcc
make -s -k -j2 broken 2>/dev/null; echo "status $?"
