//! `speculator top`: the worlds that are running, the volumes that are mounted and the servers that serve some, as a
//! view that is refreshed, as text, or as JSON.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use supervisor::{AheadStatus, ProcessStatus, WorldStatus};

use crate::args::TopOptions;
use crate::bluefs::{self, MountStatus, ServerStatus};
use crate::error::{one_line, plain, Failure};
use crate::generate::print;
use crate::tell::counted;

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
    let seen = Seen::now(options.pid)?;
    if seen.is_empty() {
        return Err(Failure::Top(nothing_to_show(options.pid)));
    }
    if options.json {
        return print(&seen.json()).map(|()| 0);
    }
    if options.once || !termios::isatty(std::io::stdout()) {
        return print(&seen.view(&Before::default())).map(|()| 0);
    }
    watch(seen, options)
}

/// What is shown.
struct Seen {
    worlds: Vec<WorldStatus>,
    mounts: Vec<MountStatus>,
    servers: Vec<ServerStatus>,
}

/// What was seen when it was last looked at.
#[derive(Default)]
struct Before {
    /// The age of a world and its commits, by its supervisor.
    worlds: HashMap<i32, (u64, u64)>,
    /// Mounts, by their processes.
    mounts: HashMap<i32, MountStatus>,
}

impl Seen {
    fn now(pid: Option<i32>) -> Result<Seen, Failure> {
        let unreadable =
            |error: std::io::Error| Failure::Top(format!("{}; /proc/net/unix has to be readable", plain(&error)));
        let (mut worlds, _) = supervisor::worlds().map_err(unreadable)?;
        worlds.retain(|world| pid.is_none_or(|pid| has(world, pid)));
        let mut mounts = bluefs::mounts().map_err(unreadable)?;
        mounts.retain(|mount| pid.is_none_or(|pid| mount.process == pid));
        let mut servers = bluefs::servers().map_err(unreadable)?;
        servers.retain(|server| pid.is_none_or(|pid| server.process == pid));
        Ok(Seen { worlds, mounts, servers })
    }

    fn is_empty(&self) -> bool {
        self.worlds.is_empty() && self.mounts.is_empty() && self.servers.is_empty()
    }

    fn json(&self) -> String {
        let worlds = self.worlds.iter().map(serde_json::to_string);
        let lines = worlds.chain(self.mounts.iter().map(serde_json::to_string));
        let lines = lines.chain(self.servers.iter().map(serde_json::to_string));
        lines.map(|line| line.expect("numbers and strings") + "\n").collect()
    }

    fn view(&self, before: &Before) -> String {
        let worlds = self.worlds.iter().map(|world| view(world, before.worlds.get(&world.supervisor).copied()));
        let mounts = self.mounts.iter().map(|mount| mount_view(mount, before.mounts.get(&mount.process)));
        let mounts = worlds.chain(mounts);
        mounts.chain(self.servers.iter().map(server_view)).collect::<Vec<_>>().join("\n")
    }

    fn before(&self) -> Before {
        let worlds = self.worlds.iter().map(|world| (world.supervisor, (world.age_us, commits(world))));
        let mounts = self.mounts.iter().map(|mount| (mount.process, mount.clone()));
        Before { worlds: worlds.collect(), mounts: mounts.collect() }
    }
}

fn nothing_to_show(pid: Option<i32>) -> String {
    match pid {
        Some(pid) => format!("no world of yours has a process {pid}; see speculator top without it"),
        None => "none of yours is running; start one with speculator run".to_owned(),
    }
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
        // Our group is 0 where its leader is outside of our pid namespace.
        let ours = procfs::Stat::of(procfs::ProcessId::own()).and_then(|stat| stat.group());
        let foreground = termios::tcgetpgrp(&input).map(|group| group.as_raw_nonzero().get());
        let is_ours = foreground.is_ok_and(|group| ours.is_ok_and(|ours| group == ours));
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
fn watch(mut seen: Seen, options: &TopOptions) -> Result<u8, Failure> {
    let mut before = Before::default();
    let keys = Keys::new();
    while !seen.is_empty() {
        print(&format!("{CLEAR}{}", fitted(&seen.view(&before))))?;
        before = seen.before();
        match keys.pause(options.interval) {
            Pressed::Nothing => {}
            Pressed::Quit => return Ok(0),
            Pressed::Interrupt => {
                drop(keys);
                supervisor::end_by(SIGINT);
                return Ok(128 + SIGINT as u8);
            }
        }
        let chosen = |of: &Seen| -> Vec<i32> {
            let worlds = of.worlds.iter().map(|world| world.supervisor);
            let mounts = worlds.chain(of.mounts.iter().map(|mount| mount.process));
            mounts.chain(of.servers.iter().map(|server| server.process)).collect()
        };
        let chosen = chosen(&seen);
        seen = Seen::now(None)?;
        if options.pid.is_some() {
            seen.worlds.retain(|world| chosen.contains(&world.supervisor));
            seen.mounts.retain(|mount| chosen.contains(&mount.process));
            seen.servers.retain(|server| chosen.contains(&server.process));
        }
    }
    print("the last one has ended\n").map(|()| 0)
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

/// One world. `before`: its age and its commits when it was last looked at; the rate is that since then, or else since
/// the world began.
fn view(world: &WorldStatus, before: Option<(u64, u64)>) -> String {
    let (then, committed) = before.unwrap_or((0, 0));
    let passed_s = world.age_us.saturating_sub(then).max(1) as f64 / 1e6;
    let rate = commits(world).saturating_sub(committed) as f64 / passed_s;
    let mut text = format!("world {}: {}\n", world.front, one_line(&world.command_line));
    let age = seconds(world.age_us);
    let (commits, causes) = (counted(commits(world), "commit"), list(&world.commits));
    // INVARIANT: writing to a string does not fail.
    writeln!(text, "  up           {age}, {commits} ({causes}), {rate:.1} a second").expect("a string");
    text + &counts(&world.ahead) + &guesses(&world.ahead) + &processes(&world.ahead.processes)
}

/// A mount of a BlueFS volume. Rates are those since it was last looked at, or else since it was mounted.
fn mount_view(mount: &MountStatus, before: Option<&MountStatus>) -> String {
    let MountStatus { process, in_flight, hits, leases, .. } = mount;
    let (changes, questions) = (counted(mount.changes, "change"), counted(mount.asked, "question"));
    let is_connected = if mount.is_connected { "connected" } else { "the server cannot be reached" };
    let passed_us = mount.age_us - before.map_or(0, |before| before.age_us.min(mount.age_us));
    let rate = |of: fn(&MountStatus) -> u64| of(mount).saturating_sub(before.map_or(0, of));
    let progress = |of: fn(&MountStatus) -> u64| Progress { done: of(mount), lately: rate(of), passed_us };
    let [came, sent] = [progress(|mount| mount.received_bytes), progress(|mount| mount.sent_bytes)].map(|of| of.text());
    let written = progress(|mount| mount.written_bytes);
    let left = match mount.unwritten_bytes {
        0 => String::new(),
        left => format!("; {} not yet, whose writers wait{}", mebibytes(left), written.time_for(left)),
    };
    let written = written.text();
    let cache = mount.cache.as_ref().map_or_else(String::new, |cache| {
        let what = if cache.is_off { "off: its disk is full or fails".to_owned() } else { mebibytes(cache.bytes) };
        format!(
            "  disk cache   {what}; {}, {}, came from it\n",
            counted(cache.hits, "block"),
            mebibytes(cache.hit_bytes)
        )
    });
    format!(
        "mount {}: {}, process {process}\n  up           {}, {is_connected}\n  \
         operations   {in_flight} wait for the server; {changes}, {questions}, {hits} answered here\n  \
         leases       {leases}\n  bytes        {came} came, {sent} were sent\n  \
         written      {written} are on the server's disk{left}\n{cache}  \
         safe         all that has returned is on the server's disk\n",
        one_line(&mount.mount),
        one_line(&mount.volume),
        seconds(mount.age_us)
    )
}

/// Bytes, and how fast they get more.
#[derive(Clone, Copy)]
struct Progress {
    done: u64,
    /// How many of them since the last look, and how long ago that was.
    lately: u64,
    passed_us: u64,
}

impl Progress {
    fn text(self) -> String {
        format!("{} ({} a second)", mebibytes(self.done), mebibytes(self.rate() as u64))
    }

    /// Bytes in a second.
    fn rate(self) -> f64 {
        self.lately as f64 * 1e6 / self.passed_us.max(1) as f64
    }

    /// How long so many take at this rate, if that can be said.
    fn time_for(self, bytes: u64) -> String {
        match self.lately {
            0 => String::new(),
            _ => format!(", {:.1} s by this rate", bytes as f64 / self.rate()),
        }
    }
}

/// A server of BlueFS.
fn server_view(server: &ServerStatus) -> String {
    let ServerStatus { process, turns, .. } = server;
    let (clients, messages) = (counted(server.connections, "client"), counted(server.messages, "message"));
    let [received, sent] = [server.received_bytes, server.sent_bytes].map(mebibytes);
    let each = server.turns_us.checked_div(*turns).unwrap_or(0);
    let mut text = format!(
        "server {}: {}, process {process}\n  up           {}, {clients}, {messages}\n  \
         bytes        {received} came, {sent} were sent\n  turns        {turns}, {each} µs each\n",
        one_line(&server.server),
        one_line(&server.store),
        seconds(server.age_us)
    );
    for volume in &server.volumes {
        let (name, used) = (one_line(&volume.name), mebibytes(volume.used_bytes));
        let (commits, clients) = (counted(volume.commits, "commit"), counted(volume.connected, "client"));
        let (leases, locks) = (counted(volume.leases, "lease"), counted(volume.locks, "lock"));
        // INVARIANT: writing to a string does not fail.
        writeln!(
            text,
            "  volume       {name}: {used}, {commits}, {clients}, {leases}, {locks}, {} wait",
            volume.waiting
        )
        .expect("a string");
    }
    text + "  safe         all that was acknowledged is on this server's disk\n"
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
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
    use crate::bluefs::CacheStatus;
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
    fn a_mount_tells_how_far_it_is() {
        let mount = |age_s: u64, written: u64, unwritten: u64| MountStatus {
            mount: "/mnt/wo\nrk".to_owned(),
            process: 20,
            volume: "bluefs://host:7164/".to_owned(),
            age_us: age_s * 1_000_000,
            is_connected: true,
            in_flight: 1,
            hits: 0,
            asked: 0,
            changes: 0,
            leases: 0,
            sent_bytes: written << 21,
            received_bytes: 1 << 20,
            written_bytes: written << 20,
            unwritten_bytes: unwritten << 20,
            cache: None,
        };
        let since_it_was_mounted = mount_view(&mount(10, 20, 0), None);
        for part in [
            "1.0 MiB (0.1 MiB a second) came, 40.0 MiB (4.0 MiB a second) were sent\n",
            "written      20.0 MiB (2.0 MiB a second) are on the server's disk\n",
            "mount /mnt/wo?rk: ",
        ] {
            assert!(since_it_was_mounted.contains(part), "{part}: {since_it_was_mounted}");
        }
        let since_the_last_look = mount_view(&mount(12, 30, 8), Some(&mount(10, 20, 0)));
        let written = "30.0 MiB (5.0 MiB a second) are on the server's disk; 8.0 MiB not yet, whose writers wait, \
            1.6 s by this rate\n";
        assert!(since_the_last_look.contains(written), "{since_the_last_look}");
        let cache = |is_off| Some(CacheStatus { hits: 3, hit_bytes: 1 << 20, bytes: 7 << 20, is_off });
        let with_cache = mount_view(&MountStatus { cache: cache(false), ..mount(10, 20, 0) }, None);
        assert!(with_cache.contains("\n  disk cache   7.0 MiB; 3 blocks, 1.0 MiB, came from it\n"), "{with_cache}");
        let off = mount_view(&MountStatus { cache: cache(true), ..mount(10, 20, 0) }, None);
        assert!(off.contains("\n  disk cache   off: its disk is full or fails; "), "{off}");
        // Nothing has moved: when it will be over is not known.
        let stuck = mount_view(&mount(12, 30, 8), Some(&mount(11, 30, 8)));
        assert!(stuck.contains("8.0 MiB not yet, whose writers wait\n"), "{stuck}");
    }

    #[test]
    fn a_world_is_named_by_any_of_its_processes() {
        for pid in [10, 11, 12, 13] {
            assert!(has(&world(), pid), "{pid}");
        }
        assert!(!has(&world(), 14));
    }
}
