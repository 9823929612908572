//! The crash disk itself, and that it finds what it is there to find. Needs root, FUSE, loop devices and mkfs.ext4;
//! without root there is nothing to test.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use testkit::crash::{
    private_mounts, record, Channel, Configuration, CrashDisk, CutPlan, DiskEvent, Expectation, Mounted, MountedBy,
    Observer, RecordOptions, Replayer,
};
use testkit::table::{measure, MeasureOptions};
use testkit::workload::{Programs, Workload};

const DISK_LEN: usize = 32 << 20;

/// False, and they are left out, where the tests cannot run; in CI that is a failure.
fn ready() -> bool {
    let root = testkit::skipped::has_root_for("the crash disk");
    if root {
        private_mounts().unwrap();
    }
    root
}

fn known(name: &str) -> Configuration {
    let mut known = Configuration::known().into_iter();
    known.find(|known| known.name == name).unwrap()
}

fn workload(name: &str) -> Workload {
    Workload { count: 60, pause_us: 500, ..Workload::parse(name).unwrap() }
}

fn options(interrupted: &AtomicBool) -> MeasureOptions<'_> {
    MeasureOptions { record: RecordOptions::small(interrupted), cuts: 100, seed: 1, jobs: 1, keep_images: None }
}

#[test]
fn every_write_and_flush_is_logged_in_order_and_nothing_is_left_behind() {
    if !ready() {
        return;
    }
    let mut disk = CrashDisk::create(4 << 20).unwrap();
    disk.start_recording();
    let device_path = disk.device().to_owned();
    let name = device_path.file_name().unwrap().to_string_lossy().into_owned();
    let backing = || std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok();
    let own = backing().unwrap();
    let device = OpenOptions::new().write(true).open(&device_path).unwrap();
    for n in 0..3u8 {
        device.write_all_at(&[n + 1; 4096], u64::from(n) * 8192).unwrap();
        device.sync_all().unwrap();
    }
    drop(device);
    let log = disk.stop_recording();
    assert_eq!((log.writes(), log.flushes()), (3, 3));
    let mut last = 0;
    for (n, pair) in log.disk.chunks(2).enumerate() {
        let [DiskEvent::Write { issued, done, offset, data }, DiskEvent::Flush { begin, end }] = pair else {
            panic!("not a write and its flush: {n}");
        };
        assert_eq!((*offset, data), (n as u64 * 8192, &vec![n as u8 + 1; 4096]));
        assert!(last <= *issued && issued < done && done < begin && begin < end);
        last = *end;
    }
    drop(disk);
    // Another test may have got the device since.
    assert_ne!(backing(), Some(own));
}

#[test]
fn a_flush_takes_as_long_as_asked_for() {
    if !ready() {
        return;
    }
    let disk = CrashDisk::create(4 << 20).unwrap();
    disk.set_flush_delay(Duration::from_millis(8));
    let device = OpenOptions::new().write(true).open(disk.device()).unwrap();
    let took = |_| {
        device.write_all_at(&[1; 4096], 0).unwrap();
        let begin = Instant::now();
        device.sync_all().unwrap();
        begin.elapsed()
    };
    // On a busy machine any of them may take longer.
    let fastest = (0..20).map(took).min().unwrap();
    assert!(fastest >= Duration::from_millis(8) && fastest < Duration::from_millis(80), "{fastest:?}");
}

/// By hand, without workloads: two files, one synced, one not; what is seen after each of three cuts.
#[test]
fn each_cut_shows_its_own_disk() {
    if !ready() {
        return;
    }
    let mut disk = CrashDisk::create(DISK_LEN).unwrap();
    disk.format(&known("journal").format).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(disk.device(), dir.path(), "ext4", "data=journal").unwrap();
    rustix::fs::syncfs(File::open(dir.path()).unwrap()).unwrap();
    let observer = Observer::new(disk.clock());
    let mut out = File::from(observer.pipe().unwrap());
    disk.start_recording();
    for name in ["one", "two"] {
        let mut file = File::create(dir.path().join(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
        writeln!(out, "{name}").unwrap();
    }
    std::fs::write(dir.path().join("three"), "three").unwrap();
    drop(out);
    observer.wait_for_end(Duration::from_secs(60));
    let mut log = disk.stop_recording();
    log.messages = observer.finish();
    drop(mounted);
    drop(disk);

    let plan = CutPlan::new(&log, 1, 60);
    let mut replayer = Replayer::new(&log, "data=journal").unwrap();
    let mut seen_empty = 0;
    for cut in &plan.cuts {
        let outcome = replayer.replay(cut, |dir, seen| {
            let there = |name: &str| std::fs::read_to_string(dir.join(name)).is_ok_and(|text| text == name);
            for message in seen {
                assert!(there(&message.text), "{} was seen and is gone", message.text);
            }
            assert!(!there("three"));
            assert!(there("one") || !there("two"));
            seen_empty += u32::from(!there("one"));
            // The next cut must not find this.
            std::fs::write(dir.join("three"), "three").unwrap();
            vec![]
        });
        assert_eq!(outcome.unwrap().violations, []);
    }
    assert!(seen_empty > 0 && seen_empty < plan.cuts.len() as u32);
}

#[test]
fn losses_are_found_where_there_are_some_and_only_there() {
    if !ready() {
        return;
    }
    let interrupted = AtomicBool::new(false);
    let programs = Programs::build().unwrap();
    let cases = [
        ("async", "writer"),
        ("async", "writer-fsync"),
        ("async", "files"),
        ("async-nobarrier", "writer-fsync"),
        ("journal", "early-fsync"),
        ("sync-nobarrier", "tcp"),
        ("sync-journal", "writer"),
        ("sync-journal", "pipeline"),
        ("sync-journal", "threads"),
        ("sync-journal", "sqlite"),
        ("eatmydata", "writer-fsync"),
    ];
    for (configuration, name) in cases {
        let configuration = known(configuration);
        let workload = workload(name);
        let report = measure(&options(&interrupted), &configuration, &workload, &programs).unwrap();
        let lossy = workload.expectation(&configuration) == Expectation::Lossy;
        assert_eq!(report.has_violations(), lossy, "{name}: {report:#?}");
        assert!(report.cut_points > 50);
    }
}

/// As `speculator run --volume DEVICE:DIR -- COMMAND` does: the program around the workload mounts, in its own
/// namespace.
#[test]
fn a_program_around_the_workload_may_mount_the_disk() {
    if !ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("mounting");
    let text = "#!/bin/sh\ndevice=$1 dir=$2; shift 2\nmount -o sync,data=journal \"$device\" \"$dir\" && exec \"$@\"\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = format!("unshare -m {} {{device}} {{dir}}", script.display());
    let ours = Configuration::ours(&command, "data=journal", Expectation::Safe);
    assert_eq!(ours.mounted_by, MountedBy::Prefix);
    let interrupted = AtomicBool::new(false);
    let programs = Programs::build().unwrap();
    for channel in [Channel::Pipe, Channel::Terminal, Channel::Udp, Channel::Tcp] {
        let mut options = options(&interrupted);
        options.record.channel = channel;
        let report = measure(&options, &ours, &workload("writer"), &programs).unwrap();
        assert_eq!(report.messages, 61, "{channel:?}: with the exit");
        assert!(!report.has_violations(), "{channel:?}: {report:#?}");
    }
}

#[test]
fn a_workload_that_fails_is_an_error_and_a_checker_that_panics_leaves_nothing() {
    if !ready() {
        return;
    }
    let interrupted = AtomicBool::new(false);
    let options = options(&interrupted);
    let failing = record(&known("journal"), &options.record, |_, _| {
        ["sh", "-c", "echo because >&2; exit 3"].map(Into::into).to_vec()
    });
    let message = failing.err().unwrap().to_string();
    assert!(message.contains("exited with 3") && message.ends_with("because"), "{message}");

    let recording = record(&known("journal"), &options.record, |_, _| vec!["true".into()]).unwrap();
    let plan = CutPlan::new(&recording.log, 1, 1);
    let mut mounted_at = None;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut replayer = Replayer::new(&recording.log, "data=journal").unwrap();
        let _ = replayer.replay(&plan.cuts[0], |dir, _| {
            mounted_at = Some(dir.to_owned());
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err());
    assert!(!mounted_at.unwrap().exists());
}
