/* Servers that begin and end again: one port, bound and given up in each round; clients that send before they are
 * accepted, leave at once, are answered by a child of the server, by a thread, or by nobody; calls between that may
 * become guesses. Every byte arrives once and in its order. */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>

static struct sockaddr_in at = {.sin_family = AF_INET};

/* A port that nobody else takes between two rounds: the kernel gives none of these to clients. */
static void choose_port(void) {
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0;; i++) {
        at.sin_port = htons(10000 + (getpid() + 7 * i) % 20000);
        int s = OK(socket(AF_INET, SOCK_STREAM, 0)), answer = bind(s, (void *)&at, sizeof at);
        OK(close(s));
        if (answer == 0) return;
        EQUAL(errno, EADDRINUSE);
    }
}

static int served(void) {
    int s = OK(socket(AF_INET, SOCK_STREAM, 0)), one = 1;
    OK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    OK(bind(s, (void *)&at, sizeof at));
    OK(listen(s, 16));
    return s;
}

static int connected(void) {
    int s = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(connect(s, (void *)&at, sizeof at));
    return s;
}

/* Calls that may become guesses. */
static void guess(void) {
    char name[32];
    sprintf(name, "made%ld", (long)getpid());
    OK(mkdir(name, 0700));
    OK(rmdir(name));
}

static void give(int s, const char *text) {
    for (size_t done = 0; done < strlen(text);) done += OK(send(s, text + done, strlen(text) - done, MSG_NOSIGNAL));
}

/* All that comes until the end. */
static char *taken(int s) {
    static char all[4096];
    ssize_t n, len = 0;
    while ((n = OK(recv(s, all + len, sizeof all - 1 - len, 0))) > 0) len += n;
    all[len] = 0;
    return all;
}

static void expect(int s, const char *text) {
    char *got = taken(s);
    if (strcmp(got, text)) FAIL("'%s' came, not '%s'", got, text);
}

static void *answer(void *socket) {
    int s = (int)(intptr_t)socket;
    char word[4] = {0};
    EQUAL(recv(s, word, 3, MSG_WAITALL), 3);
    guess();
    give(s, word);
    OK(close(s));
    return NULL;
}

/* The server is the parent, its client a child that speaks first. */
static void early(int round) {
    int s = served();
    pid_t child = OK(fork());
    if (child == 0) {
        close(s);
        int c = connected();
        guess();
        give(c, "early");
        OK(shutdown(c, SHUT_WR));
        expect(c, "answer");
        _exit(round & 63);
    }
    if (round & 1) guess();
    int c = OK(accept(s, NULL, NULL));
    expect(c, "early");
    guess();
    give(c, "ans");
    give(c, "wer");
    OK(close(c));
    OK(close(s));
    EQUAL(wait_for(child), round & 63);
}

/* The server is a child that has a child, or a thread, for each client. */
static void served_by_children(int with_threads) {
    int s = served();
    pid_t server = OK(fork());
    if (server == 0) {
        for (int i = 0; i < 2; i++) {
            int c = OK(accept(s, NULL, NULL));
            if (with_threads) {
                pthread_t thread;
                CHECK(pthread_create(&thread, NULL, answer, (void *)(intptr_t)c) == 0);
                CHECK(pthread_join(thread, NULL) == 0);
                continue;
            }
            pid_t child = OK(fork());
            if (child == 0) { answer((void *)(intptr_t)c); _exit(3); }
            OK(close(c));
            EQUAL(wait_for(child), 3);
        }
        _exit(7);
    }
    OK(close(s));
    for (int i = 0; i < 2; i++) {
        int c = connected();
        give(c, "wo");
        guess();
        give(c, "r");
        expect(c, "wor");
        OK(close(c));
    }
    EQUAL(wait_for(server), 7);
}

/* Clients that are never accepted, and one that leaves before it is. */
static void left_alone(void) {
    int s = served(), a = connected(), b = connected();
    give(a, "left");
    OK(close(a));
    guess();
    int c = OK(accept(s, NULL, NULL));
    expect(c, "left");
    OK(close(c));
    OK(close(s));
    char one;
    FAILS(recv(b, &one, 1, 0), ECONNRESET);
    OK(close(b));
    a = OK(socket(AF_INET, SOCK_STREAM, 0));
    FAILS(connect(a, (void *)&at, sizeof at), ECONNREFUSED);
    OK(close(a));
}

int main(void) {
    choose_port();
    for (int i = 0; i < rounds(20); i++) {
        early(i);
        served_by_children(0);
        guess();
        served_by_children(1);
        left_alone();
    }
    puts("all right");
    return 0;
}
