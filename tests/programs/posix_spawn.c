/* posix_spawn with file actions and attributes; errors are reported to the caller. */
#include "check.h"
#include <spawn.h>
extern char **environ;
int main(void) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    char *arguments[] = {"sh", "-c", "echo spawned; echo error >&2; exit 4", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments, environ) == 0);
    int status = wait_for(pid);
    printf("status %d\n%s", status, contents("out"));
    EQUAL(posix_spawn(&pid, "/nonexistent", NULL, NULL, arguments, environ), ENOENT);
    EQUAL(posix_spawnp(&pid, "true", NULL, NULL, (char *[]){"true", NULL}, environ), 0);
    printf("true %d\n", wait_for(pid));
    for (int i = 0; i < 100; i++) {
        CHECK(posix_spawnp(&pid, "true", NULL, NULL, (char *[]){"true", NULL}, environ) == 0);
        EQUAL(wait_for(pid), 0);
    }
    return 0;
}
