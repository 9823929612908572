//! How every failure ends: one line on stderr and a status.

use std::io::Write;
use std::process::ExitCode;

use external_sync::volume::VolumeError;

use crate::command::CommandError;
use crate::stats::StatsError;

/// The status of our own failures, as env(1) has it.
pub const STATUS_OURS: u8 = 125;

/// Why the command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line cannot be understood.
    #[error("{0}")]
    Usage(String),
    /// A volume.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// COMMAND.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The file for the statistics.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// Standard output.
    #[error("cannot write to standard output: {}; check where it leads", plain(.0))]
    Output(std::io::Error),
    /// What nothing can be done without.
    #[error("cannot work here: /proc is not mounted; mount it (mount -t proc proc /proc)")]
    NoProc,
    /// A speculation of a script's own.
    #[error("cannot {what}: {why}; {advice}")]
    Speculate {
        /// What it wanted.
        what: String,
        /// Why not.
        why: String,
        /// What to do.
        advice: &'static str,
    },
    /// Worlds that are running.
    #[error("cannot show a world: {0}")]
    Top(String),
    /// The world.
    #[error(transparent)]
    Run(#[from] supervisor::RunError),
    /// A run inside a world that would need mounts of its own.
    #[error("cannot mount anything for a run inside a world of speculator run; give --volume and --private-tmp to the outer run")]
    Nested,
    /// A path of `--volatile`.
    #[error(transparent)]
    Volatile(#[from] supervisor::VolatileError),
    /// BlueFS.
    #[error("{0}")]
    Bluefs(String),
    /// A try.
    #[error(transparent)]
    Try(#[from] layer::LayerError),
}

impl Failure {
    /// The exit status that belongs to it.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Command(error) => error.status(),
            Failure::Run(error) => error.status(),
            Failure::Try(error) => error.status(),
            _ => STATUS_OURS,
        }
    }

    /// Tells it on stderr.
    pub fn report(&self) -> ExitCode {
        // Nothing can be done about a stderr that is closed; the status still tells.
        let _ = writeln!(std::io::stderr(), "speculator: {}", one_line(&without_numbers(&self.to_string())));
        ExitCode::from(self.status())
    }
}

/// A fault of our own is one line, too. Where RUST_BACKTRACE asks for more, there is more.
pub fn tell_of_faults() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |fault| {
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            return usual(fault);
        }
        let payload = fault.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let what = one_line(text.unwrap_or("a panic"));
        let place = fault.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        tell!("speculator: a fault of speculator's own at {place}: {what}; report it, with what you have done");
    }));
}

/// A file name may hold a newline or an escape sequence; an error line may not.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What an error says of itself, without the number that Rust puts behind it.
pub fn plain(error: &std::io::Error) -> String {
    without_numbers(&error.to_string())
}

/// Without the numbers that Rust puts behind what the system says: ` (os error 2)`.
pub fn without_numbers(text: &str) -> String {
    const BEGINS: &str = " (os error ";
    let mut rest = text;
    let mut left = String::new();
    while let Some((before, behind)) = rest.split_once(BEGINS) {
        left += before;
        match behind.split_once(')').filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((_, behind)) => rest = behind,
            None => {
                left += BEGINS;
                rest = behind;
            }
        }
    }
    left + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_numbers_of_the_system() {
        let text = "cannot mount at a: No such file or directory (os error 2); look (os error x) twice";
        let plain = "cannot mount at a: No such file or directory; look (os error x) twice";
        assert_eq!(without_numbers(text), plain);
        assert_eq!(plain_of(2), "No such file or directory");
    }

    fn plain_of(number: i32) -> String {
        plain(&std::io::Error::from_raw_os_error(number))
    }

    #[test]
    fn one_line_whatever_the_name() {
        assert_eq!(one_line("a\nb\u{1b}[1m"), "a?b?[1m");
    }
}
