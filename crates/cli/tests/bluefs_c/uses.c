/* What a program in C does with bluefs.h: `uses WHAT ADDRESS INVITATION` (empty: NULL). It prints what it is told. */
#include <bluefs.h>
#include <stdio.h>
#include <string.h>

static bluefs_client *client;

static void show(bluefs_interval *interval)
{
    static const char *const NAMES[] = {"done", "conflict", "failed", "unknown"};
    enum bluefs_outcome outcome = bluefs_close(interval);
    if (outcome == BLUEFS_DONE)
        printf("done, commit %s\n", bluefs_commit(interval) > 0 ? "given" : "missing");
    else
        printf("%s: %s\n", NAMES[outcome], bluefs_error());
    if (bluefs_close(interval) != outcome)
        puts("the second time it says something else");
    if (outcome != BLUEFS_DONE && bluefs_commit(interval) != 0)
        puts("a commit");
    bluefs_free(interval);
}

static bluefs_interval *begin(void)
{
    bluefs_interval *interval = bluefs_begin(client);
    if (!interval)
        printf("no interval: %s\n", bluefs_error());
    return interval;
}

static void is(int expected, int told)
{
    if (told != expected)
        printf("%d, not %d: %s\n", told, expected, bluefs_error());
}

/* All operations. */
static void batch(const char *file)
{
    bluefs_interval *interval = begin();
    is(0, bluefs_mkdir(interval, "/dir"));
    is(0, bluefs_write(interval, "dir/a", "one\0two", 7));
    is(0, bluefs_append(interval, "dir/a", "!", 1));
    is(0, bluefs_put(interval, file, "dir/put"));
    is(0, bluefs_chmod(interval, 0600, "dir/put"));
    is(0, bluefs_link(interval, "dir/put", "dir/link"));
    is(0, bluefs_symlink(interval, "dir/a", "soft"));
    is(0, bluefs_write(interval, "dir/empty", NULL, 0));
    is(0, bluefs_truncate(interval, 5, "dir/empty"));
    is(0, bluefs_mkdir(interval, "brief"));
    is(0, bluefs_rmdir(interval, "brief"));
    is(0, bluefs_write(interval, "gone", "x", 1));
    is(0, bluefs_remove(interval, "gone"));
    is(0, bluefs_rename(interval, "dir", "moved"));
    show(interval);
    interval = begin();
    is(0, bluefs_write(interval, "never", "x", 1));
    bluefs_free(interval);
}

/* Another client renames what this interval is about. */
static void conflict(const char *address)
{
    bluefs_client *other = bluefs_connect(address, NULL, BLUEFS_ERROR);
    bluefs_interval *first = begin(), *second = bluefs_begin(other);
    is(0, bluefs_append(first, "moved/a", "?", 1));
    is(0, bluefs_mkdir(first, "made"));
    is(0, bluefs_rename(second, "moved/a", "moved/b"));
    bluefs_disconnect(other);
    show(second);
    show(first);
}

static void refused(void)
{
    bluefs_interval *interval = begin();
    is(0, bluefs_mkdir(interval, "other"));
    is(-1, bluefs_append(interval, "none", "x", 1));
    printf("append: %s\n", bluefs_error());
    is(-1, bluefs_mkdir(interval, "third"));
    show(interval);
    /* Only the server knows that it is there. */
    interval = begin();
    is(0, bluefs_mkdir(interval, "other"));
    is(0, bluefs_mkdir(interval, "moved"));
    show(interval);
}

static void arguments(void)
{
    bluefs_interval *interval = begin();
    is(-1, bluefs_mkdir(interval, NULL));
    printf("NULL: %s\n", bluefs_error());
    is(-1, bluefs_mkdir(interval, "a/../b"));
    printf("path: %s\n", bluefs_error());
    is(-1, bluefs_write(interval, "x", NULL, 1));
    printf("contents: %s\n", bluefs_error());
    is(-1, bluefs_chmod(interval, 0100600, "moved"));
    printf("mode: %s\n", bluefs_error());
    is(-1, bluefs_put(interval, "/no/such/file", "x"));
    is(-1, bluefs_mkdir(NULL, "x"));
    is(BLUEFS_FAILED, bluefs_close(NULL));
    if (bluefs_begin(NULL) || bluefs_connect(NULL, NULL, BLUEFS_BLOCK) || bluefs_connect("bluefs://h", NULL, 7))
        puts("something came of nothing");
    show(interval); /* Without an operation. */
    bluefs_free(NULL);
    bluefs_disconnect(NULL);
}

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    client = bluefs_connect(words[2], *words[3] ? words[3] : NULL, BLUEFS_ERROR);
    if (!client) {
        printf("not connected: %s\n", bluefs_error());
        return 1;
    }
    if (!strcmp(words[1], "batch"))
        batch(words[0]);
    else if (!strcmp(words[1], "conflict"))
        conflict(words[2]);
    else if (!strcmp(words[1], "refused"))
        refused();
    else if (!strcmp(words[1], "arguments"))
        arguments();
    else if (!strcmp(words[1], "connect"))
        puts("connected");
    else
        return 2;
    bluefs_disconnect(client);
    return 0;
}
