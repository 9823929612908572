# make -j2 over small C files in a directory in memory.
# @memory
# @heavy
# @needs make gcc
# @timeout 120
for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" > "f$i.c"; done
echo 'int f1(void), f2(void), f3(void), f4(void); int main(void) { return f1() + f2() + f3() + f4(); }' > main.c
printf 'program: main.o f1.o f2.o f3.o f4.o\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -c -o $@ $<\n' > Makefile
make -s -j2; ./program; echo "status $?"; make -q; echo "up to date $?"
touch f1.c; make -s; ./program; echo "status $?"; rm -f ./*.o program; ls
