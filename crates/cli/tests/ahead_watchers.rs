//! Whoever watches from outside never sees a byte that a failed guess produced (000, 3.1 and 6.4): not in a pipe, not
//! on a terminal, not at the other end of a connection, and not on the disk, every write of which is logged.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use testkit::crash::{
    private_mounts, record, Channel, Configuration, DiskEvent, Expectation, RecordOptions, Recording,
};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ahead_watchers/tells.c");
/// How often the program tells something.
const TELLS: usize = 40;
const CHANNELS: [Channel; 4] = [Channel::Pipe, Channel::Terminal, Channel::Udp, Channel::Tcp];

/// The program that tells, compiled into `folder`.
fn compile(folder: &Path) -> PathBuf {
    let program = folder.join("tells");
    let compiled = Command::new("cc").args(["-O1", "-Wall", "-Wextra", "-o"]).arg(&program).arg(SOURCE).status();
    assert!(compiled.unwrap().success());
    program
}

/// Runs the program behind `prefix`, on a logged disk.
fn watch(program: &Path, channel: Channel, prefix: &str) -> Recording {
    let configuration = Configuration::ext4("watched", "", Expectation::Lossy, Expectation::Safe).with_prefix(prefix);
    let interrupted = AtomicBool::new(false);
    let options = RecordOptions { channel, ..RecordOptions::small(&interrupted) };
    let command = |dir: &Path, target: &str| vec![program.into(), dir.into(), target.into()];
    record(&configuration, &options, command).unwrap()
}

/// What was seen in the channel.
fn lines(recording: &Recording, channel: Channel) -> Vec<String> {
    let messages = recording.log.messages.iter().filter(|message| message.channel == channel);
    messages.map(|message| message.text.trim_end().to_owned()).collect()
}

/// Whether any write to the disk ever held this text.
fn was_on_disk(recording: &Recording, text: &str) -> bool {
    recording.log.disk.iter().any(|event| match event {
        DiskEvent::Write { data, .. } => data.windows(text.len()).any(|window| window == text.as_bytes()),
        DiskEvent::Flush { .. } => false,
    })
}

fn told(word: &str) -> Vec<String> {
    (0..TELLS).map(|i| format!("{word} {i}")).collect()
}

fn stats_of(folder: &Path, channel: Channel) -> PathBuf {
    folder.join(format!("{channel:?}"))
}

#[test]
fn no_watcher_ever_sees_what_a_failed_guess_produced() {
    if !support::has_root_for("a logged disk") {
        return;
    }
    private_mounts().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    for (seed, channel) in CHANNELS.into_iter().enumerate() {
        let stats = stats_of(folder.path(), channel);
        let inject = "--inject=stat:50%:3,read:20%:3,write:10%:2";
        let prefix = format!(
            "{} run {inject} --seed={seed} --stats=json:{} --",
            env!("CARGO_BIN_EXE_speculator"),
            stats.display()
        );
        let recording = watch(&program, channel, &prefix);
        assert_eq!(lines(&recording, channel), told("right"), "{channel:?}, seed {seed}");
        assert!(!was_on_disk(&recording, "WRONG"), "{channel:?}, seed {seed}: a failed guess reached the disk");
        assert!(was_on_disk(&recording, &format!("right {}", TELLS - 1)), "{channel:?}: nothing reached the disk");
        let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
        let ahead = &stats["ahead"];
        assert!(ahead["failed"].as_u64() > Some(5), "{channel:?}: hardly any guess failed: {ahead}");
        assert!(ahead["output_dropped"].as_u64() > Some(0), "{channel:?}: nothing was held back: {ahead}");
    }
}

#[test]
fn every_watcher_notices_what_is_wrong() {
    if !support::has_root_for("a logged disk") {
        return;
    }
    private_mounts().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path());
    for channel in CHANNELS {
        let recording = watch(&program, channel, "env MISSING=1");
        assert_eq!(lines(&recording, channel), told("WRONG"), "{channel:?}");
        assert!(was_on_disk(&recording, "WRONG 0"), "{channel:?}");
    }
}
