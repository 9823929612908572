/* What a child of vfork maps shared, its parent has as well, and shares it with its next children. */
#include "check.h"

static char *volatile left;

int main(void) {
    for (volatile int round = 0; round < 3; round++) {
        pid_t child = OK(vfork());
        if (child == 0) {
            left = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (left == MAP_FAILED) _exit(1);
            left[4096] = 's';
            if (round == 1) execl("/bin/true", "true", NULL);
            if (round == 2) raise(SIGKILL);
            _exit(0);
        }
        EQUAL(wait_for(child), round == 2 ? 128 + SIGKILL : 0);
        CHECK(left[4096] == 's');
        child = OK(fork());
        if (child == 0) {
            left[1] = 't';
            _exit(0);
        }
        EQUAL(wait_for(child), 0);
        CHECK(left[1] == 't');
        OK(munmap(left, 8192));
        printf("%d\n", round);
    }
    return 0;
}
