//! Whose stop comes first. Alone in its program: `wait` takes what is told of any process.

mod common;
use common::{compile, Program};
use std::time::Duration;
use tracee::Event;

/// The kernel goes through its list of tracees from the front: two that stop all the time, and stand before a third in
/// that list, must not be all that is told. Of its own children (those of the supervisor are others') it tells of the
/// oldest first.
#[test]
fn a_stop_is_told_though_others_stop_all_the_time() {
    const PATIENCE: u32 = 1_000;
    let waits = compile("waits", "int main(void) { begin(); for (;;) pause(); }", &[]);
    let stops = compile("stops", "int main(void) { begin(); for (;;) kill(getpid(), SIGCONT); }", &[]);
    let restless = [Program::start(&stops, &[]), Program::start(&stops, &[])];
    let last = Program::start(&waits, &[]);
    last.await_call(&[libc::SYS_pause]);
    tracee::interrupt(last.pid().leader()).unwrap();
    for _ in 0..PATIENCE {
        let Some(Some(Event::Stopped(stopped))) = tracee::wait().unwrap() else { panic!("one has ended") };
        if stopped.tid() == last.pid().leader() {
            return;
        }
        assert!(restless.iter().any(|program| program.pid().leader() == stopped.tid()));
        stopped.resume(0).unwrap();
        // It stops once more before the next wait.
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{PATIENCE} stops of others came before it");
}
