/* System V shared memory, semaphores and message queues between parent and child. */
#include "check.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
int main(void) {
    int shm = OK(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600)), sem = OK(semget(IPC_PRIVATE, 1, IPC_CREAT | 0600)), msg = OK(msgget(IPC_PRIVATE, IPC_CREAT | 0600));
    int *memory = shmat(shm, NULL, 0);
    CHECK(memory != (void *)-1);
    pid_t pid = OK(fork());
    if (pid == 0) {
        int *again = shmat(shm, NULL, 0);
        again[1] = 23;
        struct { long type; char text[8]; } m = {7, "message"};
        OK(msgsnd(msg, &m, sizeof m.text, 0));
        struct sembuf up = {0, 1, 0};
        OK(semop(sem, &up, 1));
        _exit(0);
    }
    struct sembuf down = {0, -1, 0};
    OK(semop(sem, &down, 1));
    struct { long type; char text[8]; } m;
    EQUAL(msgrcv(msg, &m, sizeof m.text, 7, 0), 8);
    printf("memory %d message %s status %d\n", memory[1], m.text, wait_for(pid));
    FAILS(msgrcv(msg, &m, sizeof m.text, 0, IPC_NOWAIT), ENOMSG);
    OK(shmdt(memory));
    OK(shmctl(shm, IPC_RMID, NULL)); OK(semctl(sem, 0, IPC_RMID)); OK(msgctl(msg, IPC_RMID, NULL));
    FAILS(shmat(shm, NULL, 0), EINVAL);
    return 0;
}
