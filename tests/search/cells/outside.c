// What A and a B outside have together: it is made outside, and A inherits it over the start of the world.
#include "cells.h"

// What outlives an exec, and leads to somebody else.
static const uint64_t INHERITED = PIPE | FULL | FIFO | UNIX | UNIXFULL | DGRAM | TCP | TCPFULL | UDP | LISTENER
    | UNIXLISTENER | PENDING | SOCKET | PTY | COUNTER | TIMER | SEMAPHORE | MESSAGES | QUEUE;
static const uint64_t RESOURCES_ALL = (1ull << RESOURCES_MAX) - 1;

uint64_t inherited(uint64_t needs) { return needs & INHERITED; }
int may_be_outside(uint64_t needs) {
    uint64_t resources = needs & RESOURCES_ALL;
    return (needs & OUTSIDE || resources) && !(resources & ~INHERITED) && !needs_kin(needs) && !(needs & CHANGES);
}
int needs_kin(uint64_t needs) { return !!(needs & (B_IS_CHILD | ONE_TABLE | ONE_DIRECTORY | REAPED | CHILD)); }

static int first_end, last_end = ENDS; // The caller's are from the one to below the other.
static int *const DESCRIPTORS[] = {
    &line[0], &line[1], &full[0], &full[1], &fifo[0], &fifo[1], &wire[0], &wire[1], &wirefull[0], &wirefull[1],
    &dgram[0], &dgram[1], &tcp[0], &tcp[1], &tcpfull[0], &tcpfull[1], &udp[0], &udp[1], &terminal[0], &terminal[1],
    &listener, &unix_listener, &loose, &counter, &counterfull, &timer, &queue,
};
static int *const NUMBERS[] = {&listener_port, &semaphore, &messages, &pid_b, &first_end, &last_end};
enum { DESCRIPTORS_LEN = sizeof DESCRIPTORS / sizeof *DESCRIPTORS, NUMBERS_LEN = sizeof NUMBERS / sizeof *NUMBERS };

// In the folder of a cell: makes what both have.
void set_up_outside(uint64_t needs) {
    for (int i = 0; i < DESCRIPTORS_LEN; i++) *DESCRIPTORS[i] = 0;
    for (int i = 0; i < NUMBERS_LEN - 2; i++) *NUMBERS[i] = 0;
    set_up(inherited(needs));
    first_end = last_end;
    for (int i = 0; i < DESCRIPTORS_LEN; i++) {
        if (!*DESCRIPTORS[i]) continue;
        int moved = ck(fcntl(*DESCRIPTORS[i], F_DUPFD, ENDS));
        close(*DESCRIPTORS[i]), *DESCRIPTORS[i] = moved, last_end = moved + 1;
    }
}
// Writes down what A inherits, and whom it may signal.
void leave_ends(void) {
    FILE *file = fopen("ends", "w");
    ck(file ? 0 : -1);
    for (int i = 0; i < DESCRIPTORS_LEN; i++) fprintf(file, "%d ", *DESCRIPTORS[i]);
    for (int i = 0; i < NUMBERS_LEN; i++) fprintf(file, "%d ", *NUMBERS[i]);
    fwrite(&unix_name_length, sizeof unix_name_length, 1, file), fwrite(&unix_name, sizeof unix_name, 1, file);
    ck(fclose(file));
}
void take_ends(void) {
    FILE *file = fopen("ends", "r");
    ck(file ? 0 : -1);
    int read = 0;
    for (int i = 0; i < DESCRIPTORS_LEN; i++) read += fscanf(file, "%d ", DESCRIPTORS[i]);
    for (int i = 0; i < NUMBERS_LEN; i++) read += fscanf(file, i < NUMBERS_LEN - 1 ? "%d " : "%d", NUMBERS[i]);
    read += fgetc(file) == ' ';
    read += fread(&unix_name_length, sizeof unix_name_length, 1, file) + fread(&unix_name, sizeof unix_name, 1, file);
    ck(read == DESCRIPTORS_LEN + NUMBERS_LEN + 3 ? 0 : -1), fclose(file);
}
// Of the ends of all cells only the caller's stay open.
void close_ends_of_others(void) {
    if (first_end > ENDS) ck(close_range(ENDS, first_end - 1, 0));
    ck(close_range(last_end, ~0u, 0));
}
void close_all_ends(void) { ck(close_range(ENDS, ~0u, 0)); }
