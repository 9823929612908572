/* Begin speculations until one is refused, then fail the first. Says "again" when that has taken it back, and status 3 if more were begun than there
   can be processes. */
#include <errno.h>
#include <stdio.h>
#include "speculate.h"

int main(void) {
    long first = speculate_begin();
    if (first < 0) {
        puts(errno == ECANCELED ? "again" : "none");
        return errno != ECANCELED;
    }
    puts("WRONG");
    fflush(stdout);
    long count = 1;
    while (count < 500 && speculate_begin() > 0) count++;
    if (count == 500) return 3;
    speculate_fail(first);
    puts("WRONG: it goes on");
    return 1;
}
