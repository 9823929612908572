//! Who waits for a word that a guess keeps from him does not wait for ever
//! ([0302](../../../docs/decisions/0302-what-the-kernel-throws-away.md)).

use crate::support;

use support::guess::check_both_ends;

/// A child that was born before the guess ends, or sends a signal that is held until the guess is resolved. Its parent
/// waits for that.
#[test]
fn who_waits_for_a_signal_that_is_held_goes_on() {
    let program = |signal: &str, sends: &str, waits: &str| {
        format!(
            r#"
static volatile int heard; static int word[2];
static void hear(int signal) {{ (void)signal; heard++; OK(write(word[1], "x", 1)); }}
int main(int argc, char **argv) {{
    sigset_t mask, open; int status; char line[32];
    OK(pipe(word)); on_signal({signal}, hear, 0);
    sigemptyset(&mask); sigaddset(&mask, {signal});
    OK(sigprocmask(SIG_BLOCK, &mask, &open));
    pid_t parent = getpid(), child = OK(fork());
    if (child == 0) {{ sleep_ms(300); {sends}; _exit(3); }}
    (void)parent;
    say("start\n");
    long id = begin();
    {waits};
    if (id >= 0) finish(id, argv[1]);
    EQUAL(waitpid(child, &status, 0), child);
    snprintf(line, 32, "heard %d, status %d\n", heard > 0, status >> 8); say(line);
    return 0;
}}"#
        )
    };
    let suspends = "while (!heard) sigsuspend(&open)";
    let polls = "struct pollfd fd = {word[0], POLLIN, 0}; OK(sigprocmask(SIG_SETMASK, &open, NULL)); \
        while (poll(&fd, 1, -1) < 0) {}";
    let pauses = "OK(sigprocmask(SIG_SETMASK, &open, NULL)); while (!heard) pause()";
    let said = "start\nheard 1, status 3\n";
    std::thread::scope(|scope| {
        for (name, waits) in [("suspends", suspends), ("polls", polls), ("pauses", pauses)] {
            scope.spawn(move || check_both_ends(name, &program("SIGCHLD", "", waits), said, said, &[]));
        }
        let real_time = program("SIGRTMIN", "OK(kill(parent, SIGRTMIN))", suspends);
        scope.spawn(move || check_both_ends("real_time", &real_time, said, said, &[]));
    });
}

/// A process changes a file in a directory, and somebody waits for the word of that.
fn watching(directory: &str, change: &str) -> String {
    format!(
        r#"
#include <sys/inotify.h>
int main(int argc, char **argv) {{
    char line[32];
    OK(mkdir("watched", 0700)); OK(mkdir("other", 0700)); write_file("watched/old", "a"); write_file("other/old", "a");
    int file = OK(open("watched/old", O_RDWR)), heard = OK(inotify_init1(IN_NONBLOCK));
    (void)file;
    OK(inotify_add_watch(heard, "{directory}", IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVE | IN_ATTRIB));
    say("start\n");
    long id = begin();
    {change};
    struct pollfd fd = {{heard, POLLIN, 0}};
    snprintf(line, 32, "told %d\n", poll(&fd, 1, 300)); say(line);
    if (id >= 0) finish(id, argv[1]);
    return 0;
}}"#
    )
}

const CHANGES: [(&str, &str); 8] = [
    ("creates", r#"OK(close(OK(open("watched/new", O_CREAT | O_WRONLY, 0644))))"#),
    ("writes", r#"OK(write(file, "b", 1))"#),
    ("removes", r#"OK(unlink("watched/old"))"#),
    ("moves_away", r#"OK(rename("watched/old", "elsewhere"))"#),
    ("moves_in", r#"OK(rename("other/old", "watched/new"))"#),
    ("links", r#"OK(link("other/old", "watched/new"))"#),
    ("changes_mode", r#"OK(chmod("watched/old", 0600))"#),
    ("empties", r#"OK(close(OK(open("watched/old", O_WRONLY | O_TRUNC))))"#),
];

#[test]
fn who_watches_hears_of_what_it_has_changed() {
    let said = "start\ntold 1\n";
    std::thread::scope(|scope| {
        for pair in CHANGES.chunks(2) {
            scope.spawn(move || {
                for (name, change) in pair {
                    check_both_ends(name, &watching("watched", change), said, said, &[]);
                }
            });
        }
    });
    check_both_ends("writes_itself", &watching("watched/old", CHANGES[1].1), said, said, &[]);
}

/// Nothing waits for those who watch something else.
#[test]
fn who_watches_elsewhere_is_no_hindrance() {
    if !support::has_root_for("changing a disk on a guess") {
        return;
    }
    let changes = [CHANGES[0], CHANGES[1], CHANGES[6], CHANGES[2]].map(|(_, change)| change).join("; ");
    let never = ["open", "openat", "write", "chmod", "unlink"];
    let said = "start\ntold 0\n";
    check_both_ends("elsewhere", &watching("other", &changes), said, said, &never);
}
