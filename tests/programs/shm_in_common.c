/* Memory by a name: a semaphore and a counter that parent and children share, made, opened again, and removed by name,
 * as sem_open and multiprocessing do; groups and sessions of the children's own. */
#include "check.h"
#include <semaphore.h>
#include <sys/mman.h>
struct common { sem_t turn; int count; };
int main(void) {
    char name[64], other[64];
    snprintf(name, sizeof name, "/dev/shm/speculator-test-%d", getpid());
    snprintf(other, sizeof other, "%s-other", name);
    int fd = OK(open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    FAILS(open(name, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    OK(ftruncate(fd, sizeof(struct common)));
    struct common *common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(common != MAP_FAILED);
    OK(sem_init(&common->turn, 1, 1));
    OK(link(name, other));
    OK(unlink(name));
    OK(close(fd));
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            if (i == 1) EQUAL(setsid(), getpid());
            if (i == 2) {
                OK(setsid());
                pid_t own = OK(fork());
                if (own == 0) { OK(setpgid(0, 0)); _exit(getpgrp() == getpid()); }
                EQUAL(wait_for(own), 1);
            }
            int again = OK(open(other, O_RDWR));
            struct common *mine = mmap(NULL, sizeof *mine, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
            CHECK(mine != MAP_FAILED);
            for (int n = 0; n < 50; n++) { OK(sem_wait(&mine->turn)); mine->count += i + 1; OK(sem_post(&mine->turn)); }
            _exit(i);
        }
    }
    int ended = 0;
    for (int i = 0; i < 3; i++) { int status; OK(wait(&status)); ended += WEXITSTATUS(status); }
    printf("%d children, %d\n", ended, common->count);
    OK(unlink(other));
    FAILS(open(other, O_RDWR), ENOENT);
    return 0;
}
