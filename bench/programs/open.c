/* open COUNT: begin COUNT speculations and keep them open until there is a file `go`; then commit them. The status is 0 if all of that worked. */
#include <stdlib.h>
#include <time.h>
#include "speculate.h"

int main(int count, char **arguments) {
    if (count != 2) return 2;
    long wanted = atol(arguments[1]), begun = 0;
    long *guesses = calloc(wanted + 1, sizeof *guesses);
    while (begun < wanted && (guesses[begun] = speculate_begin()) > 0) begun++;
    struct timespec pause = {0, 20 * 1000 * 1000};
    while (access("go", F_OK) != 0) nanosleep(&pause, NULL);
    for (long i = 0; i < begun; i++) {
        if (speculate_commit(guesses[i]) != 0) return 1;
    }
    return begun != wanted;
}
