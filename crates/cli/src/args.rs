//! The command line, from which the help, the completions and the man pages are made.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use external_sync::volume::{VolumeError, VolumeSpec};
use supervisor::Injection;

use crate::bluefs::args::{BluefsAction, FsckOptions, InviteOptions, MountOptions, ServeOptions};
use crate::number::{parse_number, parse_pid, parse_speculation};
use crate::report::ReportForm;
use crate::size::parse_size;
use crate::stats::StatsTarget;
use crate::try_report::ReportTarget;

/// Programs run ahead of slow operations, and nobody outside sees what could still be lost
#[derive(Debug, Parser)]
#[command(name = "speculator", version, subcommand_required = true, arg_required_else_help = false)]
#[command(after_long_help = EXIT_STATUS)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub action: Action,
}

const EXIT_STATUS: &str = "Exit status:\n  \
    0      success\n  \
    1      begin: the speculation has failed; doctor: run would not work here;\n         \
           fsck, volume check: it is damaged\n  \
    123    try: COMMAND succeeded, and was undone (with --no: 0)\n  \
    125    speculator failed; one line on stderr says what, where, why, and what to do\n  \
    126    run, try: COMMAND was found but cannot be executed\n  \
    127    run, try: COMMAND was not found\n  \
    128+N  run, try: COMMAND was ended by signal N\n  \
    other  run, try: the exit status of COMMAND";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Run COMMAND: its writes are as safe, for whoever watches, as if each were synchronous, and almost as fast as if
    /// none were
    ///
    /// Whatever leaves the world of COMMAND (terminal, pipes, network, exit status) leaves only after everything that
    /// it depends on is on stable storage. On an ordered file system (a volume) fsync returns at once; elsewhere it
    /// stays a real fsync.
    Run(RunOptions),
    /// Inside a world: begin a speculation and print its number
    ///
    /// Returns twice: with the number, and again, from the same moment, with "failed" and status 1 if it fails. Between
    /// the two everything that depends on it is taken back: the script that called it, its children, and what they did.
    Begin {
        /// Somebody outside of the world resolves it (speculator guesses), and is told of this number
        #[arg(long, value_name = "TAG", value_parser = parse_number, allow_negative_numbers = true)]
        outside: Option<u64>,
    },
    /// A guess was right, and what depends on it may leave
    Commit {
        /// What `begin` printed
        #[arg(value_name = "SPECULATION", value_parser = parse_speculation, allow_negative_numbers = true)]
        speculation: u64,
        /// From outside: the process id of the `speculator run` whose guess it is
        #[arg(long, value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
        world: Option<i32>,
    },
    /// A guess was wrong, and what depends on it is taken back
    Fail {
        /// What `begin` printed
        #[arg(value_name = "SPECULATION", value_parser = parse_speculation, allow_negative_numbers = true)]
        speculation: u64,
        /// From outside: the process id of the `speculator run` whose guess it is
        #[arg(long, value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
        world: Option<i32>,
    },
    /// From outside: tell of the guesses of a world that were begun with --outside, as they come and go
    ///
    /// One JSON object a line, until the world has ended: {"begun":{"guess":3,"tag":7,…}}, {"committed":3},
    /// {"failed":3}, {"undone":3}. Begins with those that are open. What it tells may turn out wrong.
    Guesses {
        /// The process id of the `speculator run`
        #[arg(value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
        world: i32,
    },
    /// Show the worlds that are running: their open guesses, checkpoints, rollbacks and their causes, and what each
    /// process waits for
    ///
    /// Mounts of BlueFS are shown behind them: what waits for the server, and what was answered without it.
    /// On a terminal the view is refreshed until the last one has ended, or you press q. An ordinary user sees
    /// what is their own.
    Top(TopOptions),
    /// Run COMMAND ahead, show what it did, then keep everything or undo everything
    ///
    /// What COMMAND changes lives in a layer that only COMMAND sees. When it has ended, you see which files it made,
    /// changed and removed, what it printed, whom it tried to reach, and which processes it left; then everything is
    /// kept, or everything is as it was. Without a terminal and without --yes, --no or --keep-if, it is undone.
    /// Processes that COMMAND leaves running are ended either way. COMMAND has no terminal: its input, where that is a
    /// terminal, is empty.
    Try(TryOptions),
    /// Make, mount and check volumes: file systems that commit in order
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Volume {
        /// What to do with a volume
        #[command(subcommand)]
        action: VolumeAction,
    },
    /// Serve the volumes of a BlueFS store, until SIGINT or SIGTERM
    Serve(ServeOptions),
    /// Invite somebody to a volume of a BlueFS store: print what they need to reach it, encrypted
    ///
    /// The line names the server's key and a secret: give it to one person, by a way that you trust.
    Invite(InviteOptions),
    /// Mount a volume of a BlueFS server, for everybody; umount(8) unmounts it
    ///
    /// Every change is asked of the server, and returns when it is on the server's disk. Needs root.
    Mount(MountOptions),
    /// Check a BlueFS store that no server uses; the exit status is 1 if it is damaged
    ///
    /// What a crash has interrupted is finished first, as a server would at its start.
    Fsck(FsckOptions),
    /// Work on the volumes of a BlueFS server
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Bluefs {
        /// What to do
        #[command(subcommand)]
        action: BluefsAction,
    },
    /// Tell what this machine allows and which promises each mounted file system can keep
    ///
    /// The exit status is 0 if `speculator run` would work here, else 1.
    Doctor(DoctorOptions),
    /// Print a shell's completions for speculator
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a man page
    Man {
        /// Of which command: for example run, or volume-create; of speculator itself when left out
        page: Option<String>,
    },
}

/// `speculator run`.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// Mount the volume IMAGE at DIR, inside the world of COMMAND only; may be repeated
    #[arg(long = "volume", value_name = "IMAGE:DIR", value_hint = ValueHint::AnyPath)]
    #[arg(value_parser = OsStringValueParser::new().try_map(parse_volume))]
    pub volumes: Vec<VolumeSpec>,

    /// Mount a fresh tmpfs at DIR, inside the world of COMMAND only; may be repeated
    ///
    /// It is empty at the start and gone at the end. Changes of files there can be taken back, so that programs run
    /// ahead of them; changes of files in memory that others see as well wait until they are certain.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "/tmp")]
    #[arg(value_hint = ValueHint::DirPath)]
    pub private_tmp: Vec<PathBuf>,

    /// Do not wait for what is written to files below PATH, or to the file PATH, before output is shown; may be
    /// repeated
    ///
    /// For logs, caches, and what you would make again. A crash may lose what was written there though somebody has
    /// seen what came after it; an fsync of a file there returns at once. What is written elsewhere stays
    /// guaranteed, and so does what is moved or linked elsewhere. Making, removing and renaming files there is
    /// waited for. --stats tells how much was not waited for.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub volatile: Vec<PathBuf>,

    /// Let fsync return at once on unordered file systems, too: a crash may then show later changes without earlier
    /// ones
    ///
    /// What was shown to anybody outside is still durable; but databases and package managers rely on order and may be
    /// corrupt after a crash. Use it for what you would rebuild anyway, or use a volume, which keeps order.
    #[arg(long)]
    pub elide_fsync: bool,

    /// When to commit: when output waits for it, or after every change (for comparison)
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Commit::Output, require_equals = true)]
    pub commit: Commit,

    /// Age at which changes are committed even if no output waits for them
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "5")]
    pub commit_interval: Duration,

    /// Whether a thread depends on everything that its process saw, or only on what it saw itself
    ///
    /// `independent` is faster and wrong for threads that pass data through memory: only for programs that are known
    /// not to.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Threads::Shared, require_equals = true)]
    pub threads: Threads,

    /// Take nothing from outside while something that COMMAND changed is not durable
    ///
    /// Whoever fills a pipe or a connection that COMMAND reads learns from the room in it how far COMMAND has come, and
    /// nothing else. Reading is no output, so it waits for nothing by default. With this option it does: a stream from
    /// outside then takes a commit for each read that follows a change.
    #[arg(long)]
    pub hold_input: bool,

    /// Tell at the end what was held and committed, on stderr or as JSON in a file
    #[arg(long, value_name = "text|json:FILE", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    #[arg(value_parser = OsStringValueParser::new().try_map(StatsTarget::parse))]
    pub stats: Option<StatsTarget>,

    /// Tell at the start what each file system promises, and then which system calls are refused; twice: each time
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// How system calls are seen: by an agent in each process, or by stopping at each (slow, the reference)
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Interpose::Agent, require_equals = true)]
    pub interpose: Interpose,

    #[command(flatten)]
    pub ahead: AheadArgs,

    /// Show output before it is durable: the guarantee is broken on purpose, so that tests of it can fail
    #[arg(long, hide = true)]
    pub release_early: bool,

    /// The command to run, and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Full speculation of `speculator run`.
#[derive(Clone, Debug, Args)]
pub struct AheadArgs {
    /// Turn calls of a family into speculations: their result is guessed, the guess is wrong with PROBABILITY, and that
    /// is known after a delay
    ///
    /// CALL is open, stat, read, write, readdir, rename, unlink, mkdir, exec, fork, wait, close, or all. When a guess
    /// was wrong, everything that depends on it is taken back: the run ends as if nothing had been guessed.
    #[arg(long, value_name = "CALL:PROBABILITY[:DELAY_MS][,…]", value_parser = Injection::parse)]
    pub inject: Option<Injection>,

    /// Where the chance of --inject begins: the same seed makes the same guesses wrong
    #[arg(long, value_name = "N", value_parser = parse_number, default_value = "1")]
    pub seed: u64,

    /// Run ahead of the calls of --inject, or wait for each (for comparison)
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t = Speculate::Yes, require_equals = true)]
    pub speculate: Speculate,

    /// Which calls are asked about while something is speculative: each one (for comparison), or only those that may
    /// change something
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Ahead::Permits, require_equals = true)]
    pub ahead: Ahead,

    /// Which checkpoints are taken: those that cost less than the wait that they hide, or all (for tests)
    ///
    /// The cost is measured for each process. Where a checkpoint is not worth it, the process waits.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Checkpoints::Worthwhile, require_equals = true)]
    pub checkpoints: Checkpoints,

    /// How long a guess of a program's own (speculator begin) is thought to stay open, to be compared with the cost of
    /// a checkpoint
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    pub expected_wait: Duration,

    /// Be killed after so many steps of rollbacks, so that a test can look at what is left
    #[arg(long, value_name = "STEPS", hide = true)]
    pub crash_in_rollback: Option<u64>,

    /// Tell at the end what was speculated, committed and rolled back, on stderr or as JSON; or draw who depended on
    /// whom, over time (svg) or as a graph (dot); may be repeated
    #[arg(long = "report", value_name = "text|json:FILE|dot:FILE|svg:FILE", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "text")]
    #[arg(value_parser = OsStringValueParser::new().try_map(ReportForm::parse))]
    pub reports: Vec<ReportForm>,
}

/// `--checkpoints`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Checkpoints {
    /// Those that cost less than the wait that they hide
    Worthwhile,
    /// All
    Always,
}

/// `--ahead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ahead {
    /// Each one
    Ask,
    /// None that looks at files, as long as nothing changes
    Permits,
}

/// `--speculate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Speculate {
    /// Run ahead
    Yes,
    /// Wait
    No,
}

impl AheadArgs {
    /// For the supervisor.
    pub fn into_options(self) -> supervisor::AheadOptions {
        let mut injection = self.inject.unwrap_or_default();
        injection.seed = self.seed;
        supervisor::AheadOptions {
            injection,
            waits: self.speculate == Speculate::No,
            asks_always: self.ahead == Ahead::Ask,
            always_checkpoints: self.checkpoints == Checkpoints::Always,
            crash_in_rollback: self.crash_in_rollback,
            keeps_history: self.reports.iter().any(ReportForm::needs_history),
            limits: supervisor::Limits { expected_wait: self.expected_wait, ..Default::default() },
            trace: None,
        }
    }
}

/// Options of `speculator try` that are about COMMAND.
const OF_COMMAND: [&str; 7] = ["decision", "diff", "network", "report", "wait", "terminal", "command"];

/// `speculator try`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("decision").args(["keep_if", "yes", "no"]))]
#[command(group = clap::ArgGroup::new("afterwards").args(["resume", "list", "give_up"]).conflicts_with_all(OF_COMMAND))]
pub struct TryOptions {
    /// Keep if this shell command succeeds; it is run when COMMAND has ended, where COMMAND was, and sees what COMMAND
    /// did
    ///
    /// What CMD itself changes belongs to what is kept or undone. It finds COMMAND's exit status in SPECULATOR_STATUS.
    #[arg(long, value_name = "CMD", value_hint = ValueHint::CommandString)]
    pub keep_if: Option<OsString>,

    /// Keep without asking, whatever COMMAND's exit status is
    #[arg(short, long)]
    pub yes: bool,

    /// Undo without asking
    #[arg(short, long)]
    pub no: bool,

    /// Show what changed in text files
    #[arg(short, long)]
    pub diff: bool,

    /// Whether COMMAND may speak to anybody outside: what it sends cannot be undone
    ///
    /// With `no` COMMAND has a network of its own, with a loopback interface only. With `ask` you are asked at the
    /// first attempt. The default is `ask` where there is a terminal and none of --yes, --no and --keep-if is given,
    /// else `no`. Unix sockets of others cannot be reached in any case.
    #[arg(long, value_name = "ANSWER", value_enum, require_equals = true)]
    pub network: Option<Network>,

    /// Give COMMAND a terminal of its own, joined to yours: it can ask you, and you see at once what it shows there
    ///
    /// What it shows is seen also if everything is undone afterwards. Without this option COMMAND has no terminal, and
    /// its output is held.
    #[arg(short, long)]
    pub terminal: bool,

    /// Where to report what COMMAND did, beside stderr: json:FILE; or `none`: only what was decided is told
    #[arg(long, value_name = "none|json:FILE", require_equals = true)]
    #[arg(value_parser = OsStringValueParser::new().try_map(ReportTarget::parse))]
    pub report: Option<ReportTarget>,

    /// List every file, not only the first of many, and every file system that could only be read
    #[arg(short, long)]
    pub verbose: bool,

    /// Wait until all processes that COMMAND started have ended
    #[arg(short, long)]
    pub wait: bool,

    /// Keep even what somebody else changed as well in the meantime, also with --resume; with --give-up: remove LAYER
    /// also where it cannot be known what was put aside for it
    #[arg(long, conflicts_with = "list")]
    pub force: bool,

    /// Directory for the layer: changes take room there until they are kept or undone
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", value_hint = ValueHint::DirPath)]
    pub layer_dir: PathBuf,

    /// End after so many operations of keeping, as a crash would, so that a test has something to resume
    #[arg(long, value_name = "N", hide = true)]
    pub crash_after: Option<u64>,

    /// Finish keeping what a crash, or want of room, interrupted
    #[arg(long)]
    pub resume: bool,

    /// List what --resume would finish: each layer, and how far keeping it is on each file system
    #[arg(long)]
    pub list: bool,

    /// Remove LAYER, one of those that --list names, in the place of finishing it
    ///
    /// What was carried out stays. If something had been put aside by then, the directory that holds it is named. If
    /// LAYER cannot be read just now, or a file system of it is not mounted, it stays, unless --force is given.
    #[arg(long, value_name = "LAYER", value_hint = ValueHint::FilePath)]
    pub give_up: Option<PathBuf>,

    /// The command to run, and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present_any = ["resume", "list", "give_up"],
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// `--network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Ask at the first attempt
    Ask,
    /// It has a network of its own
    No,
    /// It may
    Yes,
}

/// `--commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Commit {
    /// When output waits for it
    Output,
    /// After every change
    Eager,
}

/// `--threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Threads {
    /// Threads of a process share everything
    Shared,
    /// Threads do not pass data through memory
    Independent,
}

/// `--interpose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Interpose {
    /// An agent in each process
    Agent,
    /// A stop at each system call
    Stops,
}

/// `speculator volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeAction {
    /// Make a volume in a new image file
    Create {
        /// The file to make; it must not exist
        #[arg(value_hint = ValueHint::FilePath)]
        image: PathBuf,
        /// Length of the volume: bytes, or with K, M, G, T
        #[arg(long, value_parser = parse_size, allow_negative_numbers = true)]
        size: u64,
        /// Length of its journal; a quarter of the volume, at most 1G, when left out
        #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_negative_numbers = true)]
        journal: Option<u64>,
        /// Take only the room that is used. If it runs out under the volume, what was committed before can be lost
        #[arg(long)]
        sparse: bool,
    },
    /// Mount a volume for everybody
    Mount {
        /// The image, or a block device
        #[arg(value_hint = ValueHint::FilePath)]
        image: PathBuf,
        /// The directory to mount it on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Write everything to the disk and unmount a volume
    Umount {
        /// The directory that it is mounted on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Check a volume without changing it; the exit status is 1 if it is damaged
    Check {
        /// The image, or a block device
        #[arg(value_hint = ValueHint::FilePath)]
        image: PathBuf,
    },
}

/// `speculator top`.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// Show only the world that has this process: speculator itself, COMMAND, or any other inside; all worlds when left
    /// out
    #[arg(value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
    pub pid: Option<i32>,
    /// Show them once, and end: as it is done where standard output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object for each world and each mount, once
    #[arg(long)]
    pub json: bool,
    /// How often the view is refreshed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "1")]
    pub interval: Duration,
}

/// `speculator doctor`.
#[derive(Debug, Args)]
pub struct DoctorOptions {
    /// Print instead what is done about each system call, and why
    #[arg(long)]
    pub syscalls: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_volume(text: OsString) -> Result<VolumeSpec, String> {
    VolumeSpec::parse(&text).map_err(|error| match error {
        VolumeError::Spec { why, .. } => format!("{why}; write IMAGE:DIR"),
        other => other.to_string(),
    })
}

/// Longest `--commit-interval`: a day.
const INTERVAL_MAX_S: f64 = 86_400.0;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=INTERVAL_MAX_S).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("use 0.001 to 86400 seconds".to_owned()),
        Err(_) => Err("use a number of seconds, such as 5 or 0.25".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds() {
        assert_eq!(parse_seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["0", "-1", "nan", "inf", "1e9", "five", ""] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
