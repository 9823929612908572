//! Parsing, and what is wrong with a command line told in one line (clap's own text takes five, and its status is 2).

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Action, Cli};
use crate::error::Failure;
use crate::generate::stdout;

/// Parses the command line. `--help` and `--version` are answered here.
pub fn parse(line: Vec<OsString>) -> Result<Cli, Failure> {
    let cli = on_enough_stack(|| {
        Cli::command().try_get_matches_from(&line).and_then(|matches| Cli::from_arg_matches(&matches))
    })
    .map_err(|error| explain(&error, &line))?;
    match &cli.action {
        Action::Run(options) => check_command(&line, "run", &options.command)?,
        Action::Try(options) => check_command(&line, "try", &options.command)?,
        _ => {}
    }
    Ok(cli)
}

/// What clap's derived code makes of the command line takes up more stack than all that comes behind it: more than
/// `ulimit -s 256` has. There it has a thread, which is over when this returns.
fn on_enough_stack<T: Send>(work: impl Fn() -> T + Send + Sync) -> T {
    use rustix::process::{getrlimit, Resource};
    const ENOUGH: usize = 4 << 20;
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= ENOUGH as u64) {
        return work();
    }
    let in_thread = std::thread::scope(|scope| {
        let started = std::thread::Builder::new().stack_size(ENOUGH).spawn_scoped(scope, &work);
        started.ok().and_then(|thread| thread.join().ok())
    });
    in_thread.unwrap_or_else(work)
}

/// Hyphen values are allowed for the sake of COMMAND's own options; so a misspelt option of ours arrives as COMMAND.
fn check_command(line: &[OsString], word: &str, command: &[OsString]) -> Result<(), Failure> {
    let Some(first) = command.first().map(|first| first.to_string_lossy()) else { return Ok(()) };
    let before = line.len().checked_sub(command.len() + 1).map(|at| line[at].as_os_str());
    if first.starts_with('-') && before != Some("--".as_ref()) {
        return Err(Failure::Usage(format!(
            "unexpected argument '{first}' found; see speculator {word} --help, or write -- before a COMMAND of this name"
        )));
    }
    Ok(())
}

fn explain(error: &clap::Error, line: &[OsString]) -> Failure {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match stdout().and_then(|_| error.print().map_err(Failure::Output)) {
            Ok(()) => std::process::exit(0),
            // Who reads it has seen enough (`| head`).
            Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
            Err(failure) => failure,
        };
    }
    let what = match error.kind() {
        ErrorKind::InvalidUtf8 => not_utf8(line),
        _ => shorten(&error.render().to_string()),
    };
    Failure::Usage(format!("{what}; see {}", help_for(line)))
}

/// clap does not say which argument it is.
fn not_utf8(line: &[OsString]) -> String {
    let which = line.iter().find(|word| word.to_str().is_none()).map(|word| word.to_string_lossy().into_owned());
    format!("the argument '{}' is not UTF-8", which.unwrap_or_default())
}

/// The help of the command that the line names, as far as it names one.
fn help_for(line: &[OsString]) -> String {
    let mut command = &Cli::command();
    let mut names = vec!["speculator"];
    for word in line.iter().skip(1) {
        let Some(found) = word.to_str().and_then(|word| command.find_subcommand(word)) else { break };
        names.push(found.get_name());
        command = found;
    }
    names.join(" ") + " --help"
}

/// What stands before the usage, in one line.
fn shorten(text: &str) -> String {
    let paragraphs = text.split("\n\n").take_while(|part| !part.starts_with("Usage") && !part.starts_with("For more"));
    let is_of_use = |part: &&str| {
        let Some(tip) = part.trim_start().strip_prefix("tip: ") else { return true };
        // A number that is out of place is no name with a hyphen; and all values have been named.
        let number = tip.strip_prefix("to pass '-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        !number && !tip.starts_with("a similar value exists")
    };
    let lines = paragraphs.filter(is_of_use).map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let joined = lines.collect::<Vec<_>>().join("; ");
    joined.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<OsString>, String> {
        let line = std::iter::once("speculator").chain(line.split_whitespace()).map(OsString::from).collect();
        match parse(line) {
            Ok(Cli { action: Action::Run(options) }) => Ok(options.command),
            Ok(Cli { action: Action::Try(options) }) => Ok(options.command),
            Ok(_) => Ok(Vec::new()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    #[track_caller]
    fn check(line: &str, command: &[&str]) {
        assert_eq!(parsed(line), Ok(command.iter().map(OsString::from).collect()), "{line}");
    }

    #[test]
    fn options_before_command_are_ours_and_all_after_it_are_its_own() {
        check("run ls", &["ls"]);
        check("run ls -v --stats --help", &["ls", "-v", "--stats", "--help"]);
        check("run -v ls -l", &["ls", "-l"]);
        check("run -v -- ls -- -l", &["ls", "--", "-l"]);
        check("run -- -strange x", &["-strange", "x"]);
        check("run --stats ls", &["ls"]);
        check("try --yes --diff ls --no", &["ls", "--no"]);
        check("try --network=yes --keep-if true -- ls", &["ls"]);
        check("try --resume", &[]);
        check("try --list --layer-dir x", &[]);
        check("try --give-up x", &[]);
        check("run --stats=json:x --commit=eager --commit-interval 0.5 ls", &["ls"]);
    }

    #[test]
    fn a_misspelt_option_is_not_a_command() {
        for line in [
            "run --bogus ls",
            "run -x ls",
            "run --statz -- ls",
            "run --commit eager",
            "try --bogus ls",
            "try --yes --no ls",
            "try --network=maybe ls",
            "try",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    /// Not that of `speculator`, which lists the commands only.
    #[test]
    fn an_error_names_the_help_of_the_command_that_was_meant() {
        for (line, help) in [
            ("begin x", "speculator begin --help"),
            ("commit x", "speculator commit --help"),
            ("volume create", "speculator volume create --help"),
            ("volume nonsense", "speculator volume --help"),
            ("bluefs batch x", "speculator bluefs batch --help"),
            ("nonsense run", "speculator --help"),
            ("--nonsense", "speculator --help"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.ends_with(&format!("; see {help}")), "{line}: {error}");
        }
    }

    #[test]
    fn values_that_are_none_are_told_in_words() {
        for (line, says) in [
            ("commit -1", "'-1'"),
            ("commit 99999999999999999999", "use the number that begin has printed"),
            ("fail 1 --world -5", "use a process id"),
            ("guesses 99999999999", "use a process id"),
            ("top x", "use a process id"),
            ("begin --outside -1", "use a whole number"),
            ("run --seed -1 ls", "use a whole number"),
            ("invite s --withdraw x", "use a number that speculator invite --list shows"),
            ("serve s --listen 127.0.0.1", "use an address and a port, such as 127.0.0.1:7164"),
            ("run --commit=never ls", "[possible values: output, eager]"),
            ("serve s --quota x", "such as 512M or 2G, or none"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(says) && !error.contains("tip:"), "{line}: {error}");
        }
    }

    #[test]
    fn errors_are_one_line() {
        for (line, help) in [
            ("", "speculator"),
            ("run", "speculator run"),
            ("volume", "speculator volume"),
            ("volume create x", "speculator volume create"),
            ("volume create x --size 5Q", "speculator volume create"),
            ("frobnicate", "speculator"),
            ("run --stats=xml ls", "speculator run"),
            ("commit x", "speculator commit"),
            ("begin --bogus", "speculator begin"),
            ("try --list --resume", "speculator try"),
            ("invite s --list --read-only", "speculator invite"),
            ("invite s --withdraw 1 --expires 1h", "speculator invite"),
            ("invite s --list --volume default", "speculator invite"),
            ("try --give-up x ls", "speculator try"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(!error.contains('\n') && error.ends_with(&format!("; see {help} --help")), "{line}: {error}");
        }
    }
}
