//! `speculator top`: the worlds that are running, as a view that is refreshed, as text, or as JSON.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use supervisor::{AheadStatus, ProcessStatus, WorldStatus};

use crate::args::TopOptions;
use crate::error::{one_line, plain, Failure};
use crate::generate::print;

/// Guesses that are listed for each world.
const GUESSES_MAX: usize = 8;
/// What ^C sends.
const INTERRUPT: u8 = 3;
/// Its signal.
const SIGINT: i32 = 2;
/// Cursor to the first place, and nothing on the screen.
const CLEAR: &str = "\x1b[H\x1b[J";

/// `speculator top`.
pub fn top(options: &TopOptions) -> Result<u8, Failure> {
    let worlds = wanted(options.pid)?;
    if worlds.is_empty() {
        return Err(Failure::Top(nothing_to_show(options.pid)));
    }
    if options.json {
        let lines = worlds.iter().map(|world| serde_json::to_string(world).expect("numbers and strings") + "\n");
        return print(&lines.collect::<String>()).map(|()| 0);
    }
    if options.once || !termios::isatty(std::io::stdout()) {
        let views: Vec<String> = worlds.iter().map(|world| view(world, None)).collect();
        return print(&views.join("\n")).map(|()| 0);
    }
    watch(worlds, options)
}

fn nothing_to_show(pid: Option<i32>) -> String {
    match pid {
        Some(pid) => format!("no world of yours has a process {pid}; see speculator top without it"),
        None => "none of yours is running; start one with speculator run".to_owned(),
    }
}

fn wanted(pid: Option<i32>) -> Result<Vec<WorldStatus>, Failure> {
    let (mut worlds, _) = supervisor::worlds()
        .map_err(|error| Failure::Top(format!("{}; /proc/net/unix has to be readable", plain(&error))))?;
    worlds.retain(|world| pid.is_none_or(|pid| has(world, pid)));
    Ok(worlds)
}

fn has(world: &WorldStatus, pid: i32) -> bool {
    [world.front, world.supervisor, world.command].contains(&pid)
        || world.ahead.processes.iter().any(|process| process.pid == pid)
}

/// Why a pause ended.
enum Pressed {
    Nothing,
    Quit,
    Interrupt,
}

/// The keys of the terminal, one by one, while this lives.
struct Keys {
    before: Option<Termios>,
}

impl Keys {
    /// Only where keys are ours: there is a terminal, and we are in its foreground.
    fn new() -> Keys {
        let input = std::io::stdin();
        let is_ours = termios::tcgetpgrp(&input).is_ok_and(|group| group == rustix::process::getpgrp());
        let before = is_ours.then(|| termios::tcgetattr(&input).ok()).flatten();
        if let Some(before) = &before {
            let mut one_by_one = before.clone();
            // Without ISIG ^C is a key: the terminal can be put back before we end by it.
            one_by_one.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            let _ = termios::tcsetattr(&input, OptionalActions::Now, &one_by_one);
        }
        Keys { before }
    }

    /// Wait so long, or until a key ends the view.
    fn pause(&self, interval: Duration) -> Pressed {
        if self.before.is_none() {
            std::thread::sleep(interval);
            return Pressed::Nothing;
        }
        let end = Instant::now() + interval;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let input = std::io::stdin();
            match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Pressed::Nothing,
                Ok(_) => match key(&input) {
                    None | Some(b'q' | b'Q') => return Pressed::Quit,
                    Some(INTERRUPT) => return Pressed::Interrupt,
                    Some(_) => {}
                },
                Err(_) => {}
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// The next key; `None` if the terminal is gone.
fn key(input: &std::io::Stdin) -> Option<u8> {
    let mut key = [0];
    matches!(rustix::io::read(input, &mut key), Ok(1)).then_some(key[0])
}

/// Until the last of them has ended, or the user has seen enough.
fn watch(mut worlds: Vec<WorldStatus>, options: &TopOptions) -> Result<u8, Failure> {
    let mut before: HashMap<i32, (u64, u64)> = HashMap::new();
    let keys = Keys::new();
    while !worlds.is_empty() {
        let views: Vec<String> =
            worlds.iter().map(|world| view(world, before.get(&world.supervisor).copied())).collect();
        print(&format!("{CLEAR}{}", fitted(&views.join("\n"))))?;
        before = worlds.iter().map(|world| (world.supervisor, (world.age_us, commits(world)))).collect();
        match keys.pause(options.interval) {
            Pressed::Nothing => {}
            Pressed::Quit => return Ok(0),
            Pressed::Interrupt => {
                drop(keys);
                supervisor::end_by(SIGINT);
                return Ok(128 + SIGINT as u8);
            }
        }
        let chosen: Vec<i32> = worlds.iter().map(|world| world.supervisor).collect();
        worlds = wanted(None)?;
        worlds.retain(|world| options.pid.is_none() || chosen.contains(&world.supervisor));
    }
    print("the last world has ended\n").map(|()| 0)
}

/// As much of the text as the terminal has room for.
fn fitted(text: &str) -> String {
    let (columns, rows) = termios::tcgetwinsize(std::io::stdout())
        .map_or((80, 24), |size| (usize::from(size.ws_col).max(20), usize::from(size.ws_row).max(4)));
    let lines = text.lines().take(rows - 1).map(|line| line.chars().take(columns).collect::<String>() + "\n");
    lines.collect()
}

fn commits(world: &WorldStatus) -> u64 {
    world.commits.values().sum()
}

/// One world. `before`: its age and its commits when it was last looked at; the rate is that since then, or else since the world began.
fn view(world: &WorldStatus, before: Option<(u64, u64)>) -> String {
    let (then, committed) = before.unwrap_or((0, 0));
    let passed_s = world.age_us.saturating_sub(then).max(1) as f64 / 1e6;
    let rate = commits(world).saturating_sub(committed) as f64 / passed_s;
    let mut text = format!("world {}: {}\n", world.front, one_line(&world.command_line));
    let age = seconds(world.age_us);
    let causes = list(&world.commits);
    // INVARIANT: writing to a string does not fail.
    writeln!(text, "  up           {age}, {} commits ({causes}), {rate:.1} a second", commits(world))
        .expect("a string");
    text + &counts(&world.ahead) + &guesses(&world.ahead) + &processes(&world.ahead.processes)
}

fn counts(ahead: &AheadStatus) -> String {
    let [right, wrong, unmade] = ahead.resolved;
    let each = ahead.checkpoint_us.checked_div(ahead.checkpoints).unwrap_or(0);
    let rollbacks: u64 = ahead.rollbacks.values().sum();
    format!(
        "  speculations {} open; {right} right, {wrong} wrong, {unmade} undone before they were known\n  \
         checkpoints  {} kept; {} taken, {each} µs each\n  rollbacks    {rollbacks} ({})\n",
        ahead.open,
        ahead.kept,
        ahead.checkpoints,
        list(&ahead.rollbacks)
    )
}

fn guesses(ahead: &AheadStatus) -> String {
    let mut text = String::new();
    for guess in ahead.oldest.iter().take(GUESSES_MAX) {
        let number = guess.number.map_or(String::new(), |number| format!(" {number}"));
        let (why, age) = (one_line(&guess.why), seconds(guess.age_us));
        writeln!(text, "  open         {why}{number} of {}, for {age}", guess.pid).expect("a string");
    }
    match ahead.open.saturating_sub(GUESSES_MAX) {
        0 => text,
        more => text + &format!("  open         {more} more\n"),
    }
}

fn processes(processes: &[ProcessStatus]) -> String {
    let mut text =
        format!("  {:>8} {:16} {:>9} {:>7} {:>11}  STATE\n", "PID", "PROGRAM", "AHEAD", "GUESSES", "CHECKPOINTS");
    for process in processes {
        let ahead = process.ahead_us.map_or("-".to_owned(), seconds);
        let state = process.waits_for.as_ref().map_or("runs".to_owned(), |what| format!("waits for {what}"));
        let (pid, program, guesses) = (process.pid, one_line(&process.program), process.guesses);
        let kept = process.checkpoints;
        writeln!(text, "  {pid:>8} {program:16} {ahead:>9} {guesses:>7} {kept:>11}  {state}").expect("a string");
    }
    text
}

fn list(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let words: Vec<String> = counts.iter().map(|(name, count)| format!("{} {count}", one_line(name))).collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

fn seconds(us: u64) -> String {
    format!("{:.1} s", Duration::from_micros(us).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervisor::OpenGuess;

    fn world() -> WorldStatus {
        let process = |pid, guesses, waits_for: Option<&str>| ProcessStatus {
            pid,
            program: "ba\x1bsh".to_owned(),
            ahead_us: (guesses > 0).then_some(1_500_000),
            guesses,
            checkpoints: guesses,
            waits_for: waits_for.map(str::to_owned),
        };
        let guess = OpenGuess { number: Some(1), pid: 12, why: "begin".to_owned(), age_us: 1_500_000 };
        WorldStatus {
            front: 10,
            supervisor: 11,
            command: 12,
            command_line: "bash script\n".to_owned(),
            age_us: 10_000_000,
            commits: [("output".to_owned(), 30)].into(),
            ahead: AheadStatus {
                open: 1,
                oldest: vec![guess],
                resolved: [5, 2, 1],
                kept: 1,
                checkpoints: 4,
                checkpoint_us: 400,
                rollbacks: [("open".to_owned(), 2)].into(),
                processes: vec![
                    process(12, 1, Some("the outcome of its guesses, to call openat")),
                    process(13, 0, None),
                ],
            },
        }
    }

    #[test]
    fn a_view_tells_all_that_is_known() {
        let text = view(&world(), None);
        for part in [
            "world 10: bash script?\n",
            "10.0 s, 30 commits (output 30), 3.0 a second\n",
            "1 open; 5 right, 2 wrong, 1 undone",
            "1 kept; 4 taken, 100 µs each",
            "2 (open 2)",
            "begin 1 of 12, for 1.5 s",
            "ba?sh",
            "waits for the outcome of its guesses, to call openat\n",
            "runs\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(view(&world(), Some((8_000_000, 20))).contains("5.0 a second"), "since the last look");
    }

    #[test]
    fn a_world_is_named_by_any_of_its_processes() {
        for pid in [10, 11, 12, 13] {
            assert!(has(&world(), pid), "{pid}");
        }
        assert!(!has(&world(), 14));
    }
}
