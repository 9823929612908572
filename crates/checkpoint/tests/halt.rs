//! Stopping a process wherever it is. Alone in its program: `halt` takes what is told of any process.

mod common;
use common::{compile, Program};
use std::time::Duration;

/// Who stops it at the moment of an exec gets it as well.
#[test]
fn a_process_that_executes_all_the_time_is_stopped_each_time() {
    let path = compile(
        "executes",
        r#"
        int main(int n, char **words) {
            int left = n == 1 ? 300 : atoi(words[1]);
            char word[20];
            if (n == 1) begin();
            snprintf(word, sizeof word, "%d", left - 1);
            if (left) execl("/proc/self/exe", words[0], word, (char *)0);
            SAY("over");
            return 0;
        }
        "#,
        &[],
    );
    let program = Program::start(&path, &[]);
    let pid = program.pid();
    let mut stops = 0;
    while let Some(stopped) = tracee::halt(pid.leader()).unwrap() {
        stops += 1;
        stopped.resume(0).unwrap();
        // It gets on, by another piece each time: an exec takes some of them. On a busy machine it would be stopped
        // again before it has run at all, thousands of times.
        std::thread::sleep(Duration::from_micros(stops % 8 * 40));
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    assert!(stat.map_or(true, |stat| stat.contains(") Z ")), "it has not ended, after {stops} stops");
    assert!(stops > 300, "{stops}");
}
