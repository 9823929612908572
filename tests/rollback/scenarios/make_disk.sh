# make over small C files in a directory on a disk, with shell redirections, copies and a lock.
# @heavy
# @needs make gcc
# @timeout 120
for i in 1 2; do echo "int f$i(void) { return $i; }" > "f$i.c"; done
echo 'int f1(void), f2(void); int main(void) { return f1() + f2(); }' > main.c
printf 'program: main.o f1.o f2.o\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -c -o $@ $<\n' > Makefile
make -s; ./program; echo "status $?"; make -q; echo "up to date $?"
touch f1.c; make -s; ./program; echo "status $?"; rm -f ./*.o program; ls
