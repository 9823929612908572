//! `speculator try`: COMMAND is run in a layer, what it did is shown, and it is decided.
//!
//! The exit status is 0 only if COMMAND succeeded and what it did was kept, or if `--no` asked for it to be undone.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use layer::{Attempt, LayerError, Left, Ran, Reached, Whereabouts};
use rustix::event::{poll, PollFd, PollFlags};

use crate::args::{Network, TryOptions};
use crate::command;
use crate::error::{one_line, plain, Failure};
use crate::stats::StatsFile;
use crate::try_report::{self, Decision, ReportTarget};

/// COMMAND succeeded, and was undone although nobody said so beforehand.
const STATUS_UNDONE: u8 = 123;

/// `speculator try`.
pub fn try_run(options: TryOptions) -> Result<u8, Failure> {
    if options.resume {
        return resume(&options);
    }
    if options.list {
        return list(&options);
    }
    if let Some(layer) = &options.give_up {
        return give_up(layer, &options);
    }
    let file = match &options.report {
        Some(ReportTarget::Json(path)) => Some(StatsFile::open(path, "the report")?),
        _ => None,
    };
    // INVARIANT: clap requires COMMAND.
    let program = command::resolve(options.command.first().expect("COMMAND is required"))?;
    let decided_beforehand = options.yes || options.no || options.keep_if.is_some();
    let can_ask = Terminal::open().is_some();
    if options.terminal && !(can_ask && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        let why = "--terminal needs stdin, stdout and stderr to be a terminal; without it COMMAND's output is held";
        return Err(Failure::Usage(why.to_owned()));
    }
    let network = match options.network {
        Some(Network::Yes) => layer::Network::Yes,
        Some(Network::No) => layer::Network::No,
        Some(Network::Ask) if can_ask => layer::Network::Ask,
        Some(Network::Ask) => return Err(nobody_to_ask()),
        None if can_ask && !decided_beforehand => layer::Network::Ask,
        None => layer::Network::No,
    };
    tell_of_left_behind(&options);
    let (attempt, ran) = Attempt::run(layer::TryOptions {
        program,
        args: options.command.clone(),
        network,
        asker: Some(Box::new(ask_about_network)),
        layer_dir: options.layer_dir.clone(),
        wait: options.wait,
        keep_if: options.keep_if.clone(),
        terminal: options.terminal,
        ignored: supervisor::ignored_at_start().collect(),
        closed: supervisor::closed_at_start().collect(),
    })?;
    if options.report != Some(ReportTarget::None) {
        try_report::tell(&ran, options.diff, options.verbose);
    }
    let decision = decide(&options, &ran);
    let json = file.as_ref().map(|_| try_report::json(&ran, decision));
    let result = carry_out(&options, attempt, &ran, decision);
    // The report is of what was decided; an error says what came of it.
    if let (Some(file), Some(json)) = (file, json) {
        file.write(&(json + "\n"))?;
    }
    result
}

fn nobody_to_ask() -> Failure {
    Failure::Usage("there is no terminal to ask on; use --network=no or --network=yes".to_owned())
}

fn decide(options: &TryOptions, ran: &Ran) -> Decision {
    if options.yes {
        return Decision::Kept;
    }
    if options.no {
        return Decision::Undone("as --no says");
    }
    if options.keep_if.is_some() {
        return match ran.decided {
            Some(0) => Decision::Kept,
            _ => Decision::Undone("--keep-if failed"),
        };
    }
    let Some(mut terminal) = Terminal::open() else {
        return Decision::Undone("there is no terminal to ask on, and no --yes, --no or --keep-if");
    };
    loop {
        match terminal.ask("Keep this? [y]es, [n]o, [d]iff, [l]ist everything, [o]utput: ").as_deref() {
            Some("y" | "yes") => return Decision::Kept,
            Some("n" | "no") => return Decision::Undone("you said so"),
            Some("d" | "diff") => try_report::tell_diff(&ran.changes),
            Some("l" | "list") => try_report::tell_files(&ran.changes, true),
            Some("o" | "output") => try_report::tell_output(ran),
            Some(_) => {}
            None => return Decision::Undone("nobody answered"),
        }
    }
}

fn carry_out(options: &TryOptions, attempt: Attempt, ran: &Ran, decision: Decision) -> Result<u8, Failure> {
    match decision {
        Decision::Kept => {
            if let Err(error) = attempt.keep(options.force, options.crash_after) {
                save_what_was_to_be_shown(options, ran);
                return Err(error.into());
            }
            if let Err(error) = ran.printed.release() {
                save_output(options, ran);
                return Err(LayerError::Release(error).into());
            }
            tell!("speculator: kept: {}", try_report::count(&ran.changes));
            Ok(ran.status)
        }
        Decision::Undone(why) => {
            drop(attempt);
            keep_output(options, ran);
            tell!("speculator: undone: {why}; nothing has changed");
            Ok(match ran.status {
                0 if !options.no => STATUS_UNDONE,
                status => status,
            })
        }
    }
}

/// What was printed is worth as much when everything else is undone: into a file, unless the report has shown all
/// of it.
fn keep_output(options: &TryOptions, ran: &Ran) {
    if options.report != Some(ReportTarget::None) {
        save_what_was_to_be_shown(options, ran);
    }
}

/// Nobody asked for it not to be shown.
fn save_what_was_to_be_shown(options: &TryOptions, ran: &Ran) {
    let was_told = options.report != Some(ReportTarget::None) && try_report::shows_all(ran);
    if !options.terminal && !was_told && ran.printed.total() > 0 {
        save_output(options, ran);
    }
}

fn save_output(options: &TryOptions, ran: &Ran) {
    let path = options.layer_dir.join(format!("speculator-try-{}.output", std::process::id()));
    match ran.printed.save(&path) {
        Ok(()) => match ran.printed.failed() {
            None => tell!("speculator: all that it printed is in {}", path.display()),
            Some(error) => {
                let why = plain(error);
                tell!("speculator: what it printed at first is in {}, the rest is lost: {why}", path.display());
            }
        },
        Err(error) => tell!("speculator: cannot write what it printed to {}: {}", path.display(), plain(&error)),
    }
}

/// Whoever comes back after a crash may not know.
fn tell_of_left_behind(options: &TryOptions) {
    for layer in layer::left_behind(&options.layer_dir).unwrap_or_default() {
        let (layer, dir) = (layer.display(), options.layer_dir.display());
        tell!("speculator: keeping {layer} was interrupted; speculator try --resume --layer-dir {dir} finishes it");
    }
}

/// The layers that --resume would finish; with none there, that is told.
fn interrupted(options: &TryOptions) -> Result<Vec<PathBuf>, Failure> {
    let dir = &options.layer_dir;
    let found = layer::interrupted(dir).map_err(|error| {
        Failure::Usage(format!("cannot look into {}: {}; see --layer-dir", dir.display(), plain(&error)))
    })?;
    if found.is_empty() {
        tell!("speculator: nothing was interrupted in {}", dir.display());
    }
    Ok(found)
}

fn list(options: &TryOptions) -> Result<u8, Failure> {
    let found = interrupted(options)?;
    if found.is_empty() {
        return Ok(0);
    }
    let mut out = std::io::stdout();
    let mut failures = Vec::new();
    for (layer, parts) in found.iter().zip(layer::progress(&found)?) {
        match parts {
            Ok(Whereabouts::Gone) => {}
            Ok(found) => {
                let line = format!("{}: {}", layer.display(), told(&found));
                writeln!(out, "{}", one_line(&line)).map_err(Failure::Output)?;
            }
            Err(error) => failures.push(error.into()),
        }
    }
    all_told(failures)
}

fn told(found: &Whereabouts) -> String {
    match found {
        Whereabouts::Parts(parts) => parts.iter().map(told_part).collect::<Vec<_>>().join(", "),
        Whereabouts::BeingKept => "is being kept now".to_owned(),
        Whereabouts::Gone => "is gone".to_owned(),
    }
}

fn told_part(part: &layer::Part) -> String {
    let how_far = match part.progress {
        layer::Progress::Begun => "begun",
        layer::Progress::ContentsDone => "done but for attributes of directories",
        layer::Progress::AllDone => "done",
        layer::Progress::GivenUp => "given up, but not removed yet",
    };
    format!("{} ({} steps, {how_far})", part.mount_point.display(), part.steps)
}

fn give_up(layer: &Path, options: &TryOptions) -> Result<u8, Failure> {
    let given_up = layer::give_up(layer, options.force, options.crash_after)?;
    tell!("speculator: {} is given up; what was carried out stays", layer.display());
    let Some(left) = given_up.left else {
        tell!("speculator: what it held cannot be read; see .speculator-try-* at the roots of file systems");
        return Ok(0);
    };
    for left in &left {
        match left {
            Left::At(stage) => tell!("speculator: what had to make room for it is in {}", stage.display()),
            Left::Away { name, mount_point, fs_type } => tell!(
                "speculator: what had to make room for it may be in {name}, at the root of the {fs_type} that was \
                 mounted at {}",
                mount_point.display()
            ),
        }
    }
    Ok(0)
}

/// All but the last are told.
fn all_told(mut failures: Vec<Failure>) -> Result<u8, Failure> {
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        failure.report();
    }
    Err(last)
}

fn resume(options: &TryOptions) -> Result<u8, Failure> {
    let found = interrupted(options)?;
    if found.is_empty() {
        return Ok(0);
    }
    let layer::Resumed { kept, failures } = layer::resume(&found, options.force)?;
    if kept > 0 {
        tell!("speculator: kept: what {kept} interrupted tries had decided");
    }
    all_told(failures.into_iter().map(Failure::from).collect())
}

fn ask_about_network(reached: &Reached, over: BorrowedFd<'_>) -> bool {
    let Some(mut terminal) = Terminal::open() else { return false };
    let question = format!(
        "{} wants to {}. What it sends cannot be undone. Allow the network? [y/n]: ",
        one_line(&reached.program),
        one_line(&reached.what)
    );
    loop {
        match terminal.ask_until(over, &question).as_deref() {
            Some("y" | "yes") => return true,
            Some("n" | "no") | None => return false,
            Some(_) => {}
        }
    }
}

/// Somebody who can be asked: there is a terminal, and stderr, where the report goes, is one.
struct Terminal {
    input: BufReader<File>,
    output: File,
}

impl Terminal {
    fn open() -> Option<Terminal> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let output = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Terminal { input: BufReader::new(output.try_clone().ok()?), output })
    }

    /// The answer in small letters; `None` at the end of the input.
    fn ask(&mut self, question: &str) -> Option<String> {
        write!(self.output, "{question}").ok()?;
        self.answer()
    }

    /// The same; `None` also when `over` can be read: somebody else reads what is typed then.
    fn ask_until(&mut self, over: BorrowedFd<'_>, question: &str) -> Option<String> {
        write!(self.output, "{question}").ok()?;
        while self.input.buffer().is_empty() {
            let mut polls = [PollFd::new(&self.output, PollFlags::IN), PollFd::new(&over, PollFlags::IN)];
            match poll(&mut polls, None) {
                Ok(_) if !polls[1].revents().is_empty() => {
                    let _ = writeln!(self.output);
                    return None;
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        self.answer()
    }

    fn answer(&mut self) -> Option<String> {
        let mut answer = String::new();
        match self.input.read_line(&mut answer) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(answer.trim().to_lowercase()),
        }
    }
}
