/* A thread waits until all that it asks for has come (MSG_WAITALL), while calls of the first one make checkpoints: it
   gets all of it, though a part is there for some time. (The first guess of all comes before.) */
#include "check.h"
enum { ROUNDS = 6, PART = 4096 };
static int ends[2];
static volatile int left = 2;
static void *receive(void *argument) {
    int by_message = argument != NULL;
    static uint8_t rooms[2][2 * PART];
    uint8_t *room = rooms[by_message];
    for (int round = 0; round < ROUNDS; round++) {
        struct iovec parts[2] = {{room, PART}, {room + PART, PART}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        int fd = by_message ? ends[1] : ends[0];
        long got = by_message ? recvmsg(fd, &message, MSG_WAITALL) : recv(fd, room, 2 * PART, MSG_WAITALL);
        EQUAL(got, 2 * PART);
        for (int i = 0; i < 2 * PART; i++) EQUAL(room[i], (uint8_t)(round * 3 + i / PART));
    }
    __sync_fetch_and_sub(&left, 1);
    return NULL;
}
static int sender(int *own) {
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    *own = pair[0];
    pid_t child = OK(fork());
    if (child == 0) {
        static uint8_t part[PART];
        for (int n = 0; n < 2 * ROUNDS; n++) {
            memset(part, (uint8_t)(n / 2 * 3 + n % 2), PART);
            EQUAL(write(pair[1], part, PART), PART);
            sleep_ms(10);
        }
        _exit(0);
    }
    OK(close(pair[1]));
    return child;
}
int main(void) {
    pthread_t threads[2];
    int children[2] = {sender(&ends[0]), sender(&ends[1])};
    OK(mkdir("first", 0700));
    for (long i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, receive, (void *)i) == 0);
    make_directories_while(&left, 20000);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 2; i++) EQUAL(wait_for(children[i]), 0);
    puts("all");
    return 0;
}
