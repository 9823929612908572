//! Programs that own a terminal: driven by keys through tmux on a socket of its own, compared by what the screen
//! shows at chosen moments. The tmux server runs outside; what runs in its pane runs natively or inside.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::run::{kill_marked, new_mark, set_environment, who_runs};
use crate::settings::Settings;

/// One step of a scenario at the terminal.
#[derive(Clone, Debug)]
pub enum Step {
    /// Keys as `tmux send-keys` names them (`C-c`, `Enter`, `Escape`), or text.
    Keys(&'static [&'static str]),
    /// Wait until the screen shows this text.
    Await(&'static str),
    /// Wait until this is all that the last line shows.
    Prompt(&'static str),
    /// Wait until a command of these words runs.
    Runs(&'static str),
    /// Wait until the program has ended.
    AwaitEnd,
    /// Make the window this wide and high.
    Resize(u16, u16),
    /// Let a program that shows nothing get to where it has to be, ms.
    Pause(u64),
    /// The screen, once it rests, is compared.
    Screen,
}

/// A program and what is done with it.
#[derive(Clone, Debug)]
pub struct TerminalScenario {
    /// Its name.
    pub name: &'static str,
    /// The program in the pane.
    pub command: &'static [&'static str],
    /// Commands without which it is skipped.
    pub needs: &'static [&'static str],
    /// Files in the directory that it starts in.
    pub files: &'static [(&'static str, &'static str)],
    /// What is done.
    pub steps: &'static [Step],
}

/// Longest wait for a text natively, seconds.
const AWAIT_S: u64 = 15;

/// Why there are no screens.
#[derive(Clone, Debug)]
pub enum Problem {
    /// What was waited for did not come.
    OutOfTime(String),
    /// It could not be tried.
    Other(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Problem::OutOfTime(text) | Problem::Other(text)) = self;
        f.write_str(text)
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Problem {
        Problem::Other(text)
    }
}

impl TerminalScenario {
    /// Why it cannot run here, if it cannot.
    pub fn hindrance(&self) -> Option<String> {
        let there = |command: &&str| crate::run::PATH.split(':').any(|path| PathBuf::from(path).join(command).exists());
        let mut needs = self.needs.to_vec();
        needs.push("tmux");
        let missing: Vec<&str> = needs.into_iter().filter(|command| !there(command)).collect();
        (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", ")))
    }
}

/// Runs `scenario` natively and inside, and compares the screens.
pub fn check(scenario: &TerminalScenario, settings: &Settings) -> Result<(), String> {
    if let Some(problem) = &settings.prefix_problem {
        return Err(problem.clone());
    }
    let native = screens(scenario, settings, &[]).map_err(|problem| format!("natively: {problem}"))?;
    let inside = screens(scenario, settings, &settings.prefix).map_err(|problem| format!("inside: {problem}"))?;
    difference(&native, &inside).map_or(Ok(()), Err)
}

/// The first screen that differs.
pub fn difference(native: &[String], inside: &[String]) -> Option<String> {
    let index = native.iter().zip(inside).position(|(a, b)| a != b)?;
    let (a, b) = (&native[index], &inside[index]);
    Some(format!("screen {} differs\n== native\n{a}\n== inside\n{b}", index + 1))
}

/// Runs `scenario` behind `prefix`; its screens.
pub fn screens(scenario: &TerminalScenario, settings: &Settings, prefix: &[String]) -> Result<Vec<String>, Problem> {
    let directory = settings.runs.join(format!("{}-{}", std::process::id(), scenario.name));
    let failed = |error| format!("cannot prepare {}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    for (name, text) in scenario.files {
        fs::write(directory.join(name), text).map_err(failed)?;
    }
    let patience = Duration::from_secs(AWAIT_S) * settings.patience;
    let tmux = Tmux::start(scenario, &directory, prefix, patience);
    let result = tmux.map_err(Problem::from).and_then(|tmux| tmux.perform(scenario.steps));
    fs::remove_dir_all(&directory).map_err(failed)?;
    result
}

/// A tmux server with one pane; dropping it ends the server and all that ran in it.
struct Tmux {
    socket: PathBuf,
    mark: String,
    directory: PathBuf,
    /// Longest wait for a text.
    patience: Duration,
}

impl Tmux {
    fn start(
        scenario: &TerminalScenario,
        directory: &Path,
        prefix: &[String],
        patience: Duration,
    ) -> Result<Tmux, String> {
        let mark = new_mark();
        // In a short directory: a socket's path has at most 107 bytes.
        let socket = Path::new("/tmp").join(format!("speculator-tmux-{mark}"));
        let tmux = Tmux { socket, mark, directory: directory.to_path_buf(), patience };
        let command: Vec<String> =
            prefix.iter().map(String::as_str).chain(scenario.command.iter().copied()).map(quoted).collect();
        let command = command.join(" ");
        tmux.call(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &command])?;
        tmux.call(&["set-option", "-g", "status", "off"])?;
        tmux.call(&["set-option", "-g", "remain-on-exit", "on"])?;
        tmux.call(&["resize-window", "-x", "80", "-y", "24"])?;
        Ok(tmux)
    }

    fn call(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("tmux");
        set_environment(&mut command, &self.directory, &self.mark);
        command.current_dir(&self.directory);
        let output = command.arg("-S").arg(&self.socket).args(arguments).output();
        let output = output.map_err(|error| format!("cannot run tmux: {error}"))?;
        if !output.status.success() {
            return Err(format!("tmux {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn perform(&self, steps: &[Step]) -> Result<Vec<String>, Problem> {
        let mut screens = Vec::new();
        // The screen before the last keys. As long as it is there, the program has not got them, and a prompt is the
        // one before them.
        let mut before = String::new();
        for step in steps {
            match step {
                Step::Keys(keys) => {
                    before = self.screen()?;
                    self.call(&[&["send-keys"], *keys].concat()).map(drop)?;
                }
                Step::Await(text) => self.wait(text, |screen| screen.contains(text))?,
                Step::Prompt(text) => {
                    self.wait(text, |screen| screen != before && screen.trim_end().lines().last() == Some(text))?
                }
                Step::Runs(command) => self.wait(command, |_| self.runs_for_good(command))?,
                Step::AwaitEnd => self.wait_for_end()?,
                Step::Resize(width, height) => {
                    self.call(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]).map(drop)?;
                }
                Step::Pause(ms) => sleep(Duration::from_millis(*ms)),
                Step::Screen => screens.push(self.rested()?),
            }
        }
        Ok(screens)
    }

    fn screen(&self) -> Result<String, String> {
        self.call(&["capture-pane", "-p"])
    }

    fn wait_for_end(&self) -> Result<(), Problem> {
        let end = Instant::now() + self.patience;
        while self.call(&["display-message", "-p", "#{pane_dead}"])?.trim() != "1" {
            if Instant::now() > end {
                let screen = self.screen()?;
                let late = format!("the program has not ended after {:?}:\n{}", self.patience, screen.trim_end());
                return Err(Problem::OutOfTime(late));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn wait(&self, text: &str, shown: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let end = Instant::now() + self.patience;
        loop {
            let screen = self.screen()?;
            if shown(&screen) {
                return Ok(());
            }
            if Instant::now() > end {
                let late = format!("{text:?} is not shown after {:?}:\n{}", self.patience, screen.trim_end());
                return Err(Problem::OutOfTime(late));
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Whether a command runs, and has run for longer than a guess of the tests is open: what a key does to a process
    /// that is taken back happens to nobody.
    fn runs_for_good(&self, command: &str) -> bool {
        let before = who_runs(&self.mark, command);
        if before.is_empty() {
            return false;
        }
        sleep(Duration::from_millis(200));
        who_runs(&self.mark, command).iter().any(|pid| before.contains(pid))
    }

    /// The screen once it has been the same for a while.
    fn rested(&self) -> Result<String, String> {
        let mut last = self.screen()?;
        let mut same = 0;
        for _ in 0..100 {
            sleep(Duration::from_millis(50));
            let now = self.screen()?;
            same = if now == last { same + 1 } else { 0 };
            last = now;
            if same == 5 {
                break;
            }
        }
        Ok(last)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // The server may have ended with its pane.
        let _ = self.call(&["kill-server"]);
        kill_marked(&self.mark);
        // A server that was killed has left it.
        let _ = fs::remove_file(&self.socket);
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
