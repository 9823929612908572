/* BlueFS from a program of one's own: operations that take effect together, or not at all. Link with -lbluefs_c
 * (libbluefs_c.a needs -lpthread -ldl -lm as well).
 *
 *     bluefs_client *client = bluefs_connect("bluefs://server/", invitation, BLUEFS_BLOCK);
 *     bluefs_interval *interval = bluefs_begin(client);
 *     bluefs_mkdir(interval, "new");
 *     bluefs_write(interval, "new/file", "text", 4);
 *     switch (bluefs_close(interval)) {
 *     case BLUEFS_DONE: break;
 *     case BLUEFS_CONFLICT: begin anew; break;
 *     default: fprintf(stderr, "%s\n", bluefs_error());
 *     }
 *     bluefs_free(interval);
 *     bluefs_disconnect(client);
 *
 * Whatever fails here says why by bluefs_error(). A client may be used by several threads at once, an interval by one
 * at a time. A conflict is one with other clients: what one client does has an order, and who begins several intervals
 * with it at once knows of them all. Who wants them checked against each other connects once for each. After fork, only
 * the process that has connected may use a client, or what belongs to it. */
#ifndef BLUEFS_H
#define BLUEFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A session with a server. It outlives its connections: what has no answer when one ends is sent again on the next
 * one, and takes effect once. */
typedef struct bluefs_client bluefs_client;

/* Operations that take effect together. */
typedef struct bluefs_interval bluefs_interval;

/* What calls get while the server cannot be reached. */
enum bluefs_on_disconnect {
    BLUEFS_BLOCK = 0, /* they wait until it is back */
    BLUEFS_ERROR = 1  /* they fail; bluefs_close says BLUEFS_UNKNOWN if it was on its way */
};

/* What became of an interval. */
enum bluefs_outcome {
    BLUEFS_DONE = 0,     /* all of it is on the server's disk */
    BLUEFS_CONFLICT = 1, /* other clients have changed what its paths meant; nothing was changed; begin anew */
    BLUEFS_FAILED = 2,   /* an operation is refused, or the server was not reached; nothing was changed */
    BLUEFS_UNKNOWN = 3   /* it was sent, and no answer came */
};

/* Connect to a volume (bluefs://HOST[:PORT][/VOLUME]). `invitation` is the line that `speculator invite` prints. NULL:
 * without encryption, to a server on a loopback address that was started with --plain. NULL if it fails. */
bluefs_client *bluefs_connect(const char *address, const char *invitation, int on_disconnect);

/* The client is used no more. Intervals that were begun with it may still be closed. NULL is none. */
void bluefs_disconnect(bluefs_client *client);

/* Begin an interval, as the user and with the groups that this process has. NULL if it fails. */
bluefs_interval *bluefs_begin(bluefs_client *client);

/* Operations. Paths begin at the root of the volume; symbolic links in them are not followed. What a path means when
 * its operation is added is what it has to mean when the interval is closed. 0, or -1: it is refused, and so is the
 * interval; bluefs_close then says BLUEFS_FAILED, or BLUEFS_CONFLICT if the reason does not hold any more. Also -1:
 * an argument cannot be (no path, NULL), or a file cannot be read; then nothing is added, and the interval goes on. */
int bluefs_mkdir(bluefs_interval *interval, const char *path);
/* The contents of a file, which is made if it is not there. */
int bluefs_write(bluefs_interval *interval, const char *path, const void *data, size_t size);
/* As bluefs_write, with the contents of `file` of this machine. */
int bluefs_put(bluefs_interval *interval, const char *file, const char *path);
int bluefs_append(bluefs_interval *interval, const char *path, const void *data, size_t size);
int bluefs_remove(bluefs_interval *interval, const char *path);
int bluefs_rmdir(bluefs_interval *interval, const char *path);
int bluefs_rename(bluefs_interval *interval, const char *from, const char *to);
int bluefs_link(bluefs_interval *interval, const char *old_path, const char *new_path);
int bluefs_symlink(bluefs_interval *interval, const char *target, const char *path);
int bluefs_chmod(bluefs_interval *interval, unsigned int mode, const char *path);
int bluefs_truncate(bluefs_interval *interval, uint64_t size, const char *path);

/* Send the interval, and wait for its outcome. A second time it says the same. */
enum bluefs_outcome bluefs_close(bluefs_interval *interval);

/* The number of its commit; 0 unless its outcome is BLUEFS_DONE. */
uint64_t bluefs_commit(const bluefs_interval *interval);

/* The interval is used no more. One that was not closed changes nothing. NULL is none. */
void bluefs_free(bluefs_interval *interval);

/* Why this thread's last call failed, or what its last outcome was other than BLUEFS_DONE: one line, never NULL. It
 * stays until the thread's next call that fails. */
const char *bluefs_error(void);

#ifdef __cplusplus
}
#endif

#endif
