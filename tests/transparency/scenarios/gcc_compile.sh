# gcc through all its stages: preprocess, assemble, static and shared libraries, link-time errors, warnings.
# @needs gcc ar nm
# @timeout 60
printf '#include <stdio.h>\nint helper(int);\nint main(void) { printf("%%d\\n", helper(20)); return 0; }\n' > main.c
printf 'int helper(int x) { return x * 2 + 2; }\n' > helper.c
gcc -E main.c | grep -c 'int main'
gcc -S -O2 helper.c && grep -c helper: helper.s
gcc -c main.c helper.c && ar rcD libhelper.a helper.o && gcc -o linked main.o -L. -lhelper && ./linked
gcc -shared -fPIC -o libhelper.so helper.c && gcc -o dynamic main.o ./libhelper.so && ./dynamic
gcc -static -o static main.o helper.o && ./static
gcc -o bad main.o 2>/dev/null; echo "link error $?"
echo 'int f( {' | gcc -x c -c - 2>/dev/null; echo "syntax error $?"
gcc -save-temps=obj -pipe -O3 -flto -o lto main.c helper.c 2>/dev/null && ./lto
nm helper.o | grep -c helper
rm -f lto-* ./*.ltrans* ./*.res ./*.o lto
