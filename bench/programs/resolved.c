/* resolved COMMAND…: begin a speculation, commit it, and become COMMAND: nothing is speculative any more. */
#include <stdio.h>
#include "speculate.h"

int main(int count, char **arguments) {
    long guess = speculate_begin();
    if (count < 2 || guess <= 0 || speculate_commit(guess) != 0) {
        perror("speculate");
        return 1;
    }
    execvp(arguments[1], arguments + 1);
    perror(arguments[1]);
    return 1;
}
