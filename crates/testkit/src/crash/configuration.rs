//! What stands between the workload and the disk: a file system, how it is mounted, and a program around the workload.

use serde::Serialize;

/// What a configuration is known to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// No cut may show a violation.
    Safe,
    /// No cut may show that something seen is lost; order is not promised.
    Durable,
    /// Some cut must: otherwise the crash disk would not have noticed.
    Lossy,
    /// Nothing is claimed.
    Unknown,
}

/// Who mounts the disk for the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedBy {
    /// We do, with these options (as for mount(8) -o).
    Harness(String),
    /// The program around the workload does, at a directory that it is given.
    Prefix,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// What people call it.
    pub name: String,
    /// Makes the file system; `{device}` is replaced.
    pub format: Vec<String>,
    /// How the workload sees it.
    pub mounted_by: MountedBy,
    /// Options to mount with after a cut.
    pub recover_options: String,
    /// What stands before the workload's command line; `{device}` and `{dir}` are replaced.
    pub prefix: Vec<String>,
    /// What it gives a program that only writes (figure 3, "data durable on write").
    pub on_write: Expectation,
    /// What it gives a program that calls fsync after each write (figure 3, "data durable on fsync").
    pub on_fsync: Expectation,
}

const MKFS: &str = "mkfs.ext4 -q -F -b 4096 -m 0 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -O ^orphan_file {device}";

impl Configuration {
    /// ext4 with a 4 MiB journal, mounted with `options`.
    pub fn ext4(name: &str, options: &str, on_write: Expectation, on_fsync: Expectation) -> Configuration {
        // Whether requests are flushed, and when, does not matter to a disk that nobody will cut again.
        let recover = options
            .split(',')
            .filter(|option| !matches!(*option, "sync" | "dirsync") && !option.starts_with("barrier"));
        Configuration {
            name: name.to_owned(),
            format: MKFS.split(' ').map(str::to_owned).collect(),
            mounted_by: MountedBy::Harness(options.to_owned()),
            recover_options: recover.collect::<Vec<_>>().join(","),
            prefix: Vec::new(),
            on_write,
            on_fsync,
        }
    }

    /// The same with a program around the workload.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Configuration {
        self.prefix = prefix.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// 002's figure 3 and its relatives, without "External synchrony": see [`Configuration::ours`].
    pub fn known() -> Vec<Configuration> {
        use Expectation::{Lossy, Safe};
        let ext4 = Configuration::ext4;
        vec![
            ext4("async", "commit=1", Lossy, Safe),
            ext4("async-nobarrier", "commit=1,barrier=0", Lossy, Lossy),
            ext4("journal", "commit=1,data=journal", Lossy, Safe),
            ext4("sync-nobarrier", "sync,data=journal,barrier=0", Lossy, Lossy),
            ext4("sync", "sync,barrier=1", Safe, Safe),
            ext4("sync-journal", "sync,data=journal,barrier=1", Safe, Safe),
            ext4("eatmydata", "commit=1", Lossy, Lossy).with_prefix("eatmydata"),
            ext4("eatmydata-journal", "commit=1,data=journal", Lossy, Lossy).with_prefix("eatmydata"),
        ]
    }

    /// External synchrony: `command` is what stands before the workload, for example `speculator run --` or `speculator
    /// run
    /// --volume {device}:{dir} --`. With `{device}` in it, the command mounts; otherwise we do, with `options`.
    /// `promise` is what holds whether a program syncs or not.
    pub fn ours(command: &str, options: &str, promise: Expectation) -> Configuration {
        let ours = Configuration::ext4("ours", options, promise, promise);
        let mut ours = ours.with_prefix(command);
        if command.contains("{device}") {
            ours.mounted_by = MountedBy::Prefix;
        }
        ours
    }
}
