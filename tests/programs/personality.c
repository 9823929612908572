/* personality: read, and set without address-space randomisation for a child, whose addresses are then equal. */
#include "check.h"
#include <sys/personality.h>
int main(int count, char **arguments) {
    if (count > 1) { printf("%d\n", !!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)); return 0; }
    printf("at first %x\n", personality(0xffffffff));
    OK(personality(ADDR_NO_RANDOMIZE));
    fflush(stdout);
    execl("/proc/self/exe", "x", "again", NULL);
    return 1;
}
