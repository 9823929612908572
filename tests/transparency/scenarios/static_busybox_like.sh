# A static program and a shell in a pipeline with dynamic ones; a chain of exec through all kinds.
# @needs gcc
printf '#include <stdio.h>\n#include <unistd.h>\nint main(int c, char **a) { int n = 0, k; while ((k = getchar()) != EOF) n += k == 10; printf("%%d lines\\n", n); fflush(stdout); if (c > 1) execvp(a[1], a + 1); return 4; }\n' > count.c
gcc -static -o count count.c && gcc -o count-dynamic count.c && gcc -static-pie -o count-pie count.c
for p in ./count ./count-dynamic ./count-pie; do seq 12345 | $p; echo "status $?"; seq 5 | $p sh -c 'echo then a shell; exec ./count ./count-dynamic echo end' < /dev/null; done; rm count count-*
