//! One scenario: a command that runs natively first and inside second.

use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::compare::{differences, Remains, Tolerance};
use crate::compile;
use crate::directives::Directives;
use crate::run::{run, Job};
use crate::settings::Settings;
use crate::tree;

/// The user that scenarios run as that are not to run as root: `nobody`.
pub const ORDINARY_USER: u32 = 65534;

/// Seconds that a run may take if its scenario does not say otherwise.
const TIMEOUT_S: u64 = 30;

/// A file with directives: a C or Go program, or a script.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// The file.
    pub source: PathBuf,
    /// What it says about itself.
    pub directives: Directives,
}

impl Scenario {
    /// Reads the scenario in `source`.
    pub fn load(source: &Path) -> Result<Scenario, String> {
        let text = fs::read_to_string(source).map_err(|error| format!("cannot read {}: {error}", source.display()))?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Scenario { name, source: source.to_path_buf(), directives: Directives::parse(&text) })
    }

    /// Why it cannot run here, if it cannot.
    pub fn hindrance(&self, settings: &Settings) -> Option<String> {
        let root = rustix::process::geteuid().is_root();
        if (self.directives.has("root") || self.directives.has("setuid")) && !root {
            return Some("needs root".to_owned());
        }
        let fetched = |file: &String| settings.sources.join(file).exists();
        if let Some(file) = self.directives.words("source").iter().find(|file| !fetched(file)) {
            return Some(format!("{file} is not fetched: cargo xtask setup"));
        }
        let missing: Vec<String> = self.needs().into_iter().filter(|command| !is_there(command)).collect();
        (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", ")))
    }

    fn needs(&self) -> Vec<String> {
        let mut needs = self.directives.words("needs");
        match extension(&self.source).as_str() {
            "c" => needs.push("cc".to_owned()),
            "go" => needs.push("go".to_owned()),
            "py" => needs.push("python3".to_owned()),
            _ => {}
        }
        needs
    }

    fn user(&self) -> Option<u32> {
        let ordinary = self.directives.has("user") || self.directives.has("setuid");
        (ordinary && rustix::process::geteuid().is_root()).then_some(ORDINARY_USER)
    }

    /// How long a run may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.directives.number("timeout").unwrap_or(TIMEOUT_S))
    }

    /// What may differ.
    pub fn tolerance(&self) -> Tolerance {
        Tolerance { numbers: self.directives.has("numbers"), order: self.directives.has("unsorted") }
    }
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_there(command: &str) -> bool {
    if command.starts_with('/') {
        return Path::new(command).exists();
    }
    crate::run::PATH.split(':').any(|directory| Path::new(directory).join(command).exists())
}

/// Runs `scenario` natively and inside; an error says how they differ.
pub fn check(scenario: &Scenario, settings: &Settings) -> Result<(), String> {
    if let Some(problem) = &settings.prefix_problem {
        return Err(problem.clone());
    }
    let place = Place::new(settings, &scenario.name)?;
    let native = run_once(scenario, settings, &place, &[])?;
    expect_sane(scenario, &native)?;
    place.set_aside("native")?;
    let inside = run_once(scenario, settings, &place, &settings.prefix)?;
    if inside.outcome.timed_out {
        let shown = [&inside.outcome.stdout[..], &inside.outcome.stderr[..]].concat();
        return Err(format!("inside it did not end within {:?}; so far:\n{}", scenario.timeout(), tail(&shown)));
    }
    let found = differences(&native, &inside, &scenario.tolerance());
    if found.is_empty() {
        place.set_aside("inside")?;
        return place.remove();
    }
    let said = tail(&inside.outcome.stderr);
    Err(format!("native and inside differ:\n  {}\n  inside, end of stderr:\n{said}", found.join("\n  ")))
}

/// A scenario that fails natively proves nothing; one that means to fail says so by `@status`.
pub fn expect_sane(scenario: &Scenario, native: &Remains) -> Result<(), String> {
    let expected = scenario.directives.number("status").unwrap_or(0);
    let outcome = &native.outcome;
    if outcome.timed_out || outcome.status != i32::try_from(expected).unwrap_or(0) {
        let said = tail(&[&outcome.stdout[..], &outcome.stderr[..]].concat());
        return Err(format!("natively: status {} (timed out: {}):\n{said}", outcome.status, outcome.timed_out));
    }
    Ok(())
}

/// The last lines.
pub fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Runs it in a directory that is made for it, behind `prefix`.
pub fn run_once(scenario: &Scenario, settings: &Settings, place: &Place, prefix: &[String]) -> Result<Remains, String> {
    place.make(scenario.user())?;
    let mut words = prefix.to_vec();
    words.extend(command(scenario, settings, &place.run)?);
    let mut environment = vec![("SOURCES".to_owned(), settings.sources.display().to_string())];
    if let Some(divisor) = settings.rounds_divisor {
        environment.push(("ROUNDS_DIVIDED_BY".to_owned(), divisor.to_string()));
    }
    if let Some(compiler) = &settings.rustc {
        environment.push(("TEST_RUSTC".to_owned(), compiler.display().to_string()));
    }
    if let Some(library) = scenario.directives.words("library").first() {
        let path = compile::library(&scenario.source.with_file_name(library), &settings.cache)?;
        environment.push(("TEST_LIBRARY".to_owned(), path.display().to_string()));
    }
    let job = Job {
        words,
        directory: place.run.clone(),
        environment,
        stdin: scenario.directives.words("stdin").join(" ").into_bytes(),
        user: scenario.user(),
        timeout: scenario.timeout() * if prefix.is_empty() { settings.patience.max(1) } else { settings.patience },
    };
    let outcome = run(&job)?;
    let tree = tree::read(&place.run, &scenario.directives.words("ignore"));
    let tree = tree.map_err(|error| format!("cannot read what it left: {error}"))?;
    Ok(Remains { outcome, tree })
}

/// The scenario's command.
pub fn command(scenario: &Scenario, settings: &Settings, run: &Path) -> Result<Vec<String>, String> {
    let source = scenario.source.display().to_string();
    let mut words = match extension(&scenario.source).as_str() {
        "c" => {
            let program = compile::program(&scenario.source, &scenario.directives, &settings.cache)?;
            vec![placed(scenario, &program, run)?]
        }
        "go" => vec![compile::go_program(&scenario.source, &settings.cache)?.display().to_string()],
        "py" => vec!["python3".to_owned(), source],
        "js" => vec!["node".to_owned(), source],
        "pl" => vec!["perl".to_owned(), source],
        _ => vec!["bash".to_owned(), source],
    };
    words.extend(scenario.directives.words("args"));
    Ok(words)
}

/// A setuid program is a copy in the run directory; all others run where they are kept.
fn placed(scenario: &Scenario, program: &Path, run: &Path) -> Result<String, String> {
    if !scenario.directives.has("setuid") {
        return Ok(program.display().to_string());
    }
    let copy = run.join("setuid-program");
    let failed = |error| format!("cannot make {} setuid: {error}", copy.display());
    fs::copy(program, &copy).map_err(failed)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).map_err(failed)?;
    Ok(copy.display().to_string())
}

/// Most bytes of a Unix socket's path (`unix(7)`; the byte at its end is not counted).
const SOCKET_PATH: usize = 107;

/// What Python's `multiprocessing` adds to its directory for a socket: `/pymp-xxxxxxxx/listener-xxxxxxxx`.
const SOCKET_BELOW: usize = 32;

/// Where a scenario runs: both runs see the same path, and the first run's remains are moved out of the way.
#[derive(Debug)]
pub struct Place {
    home: PathBuf,
    /// The directory that it runs in.
    pub run: PathBuf,
}

impl Place {
    /// A place for the scenario of this name.
    pub fn new(settings: &Settings, name: &str) -> Result<Place, String> {
        // Of one length, however many digits the number of this process has.
        let home = settings.runs.join(format!("{:06x}-{name}", std::process::id()));
        let place = Place { run: home.join("run"), home };
        let longest = SOCKET_PATH - SOCKET_BELOW;
        if place.run.as_os_str().len() > longest {
            let run = place.run.display();
            return Err(format!(
                "{run} has more than {longest} bytes, too many for sockets that programs make there; set \
                 TRANSPARENCY_DIR to a shorter path"
            ));
        }
        let failed = |error| format!("cannot make {}: {error}", place.home.display());
        fs::create_dir_all(&place.home).map_err(failed)?;
        Ok(place)
    }

    fn make(&self, user: Option<u32>) -> Result<(), String> {
        let failed = |error| format!("cannot make {}: {error}", self.run.display());
        fs::create_dir(&self.run).map_err(failed)?;
        match user {
            Some(user) => chown(&self.run, Some(user), Some(user)).map_err(failed),
            None => Ok(()),
        }
    }

    /// Keeps what a run has left.
    pub fn set_aside(&self, name: &str) -> Result<(), String> {
        fs::rename(&self.run, self.home.join(name)).map_err(|error| format!("cannot set {name} aside: {error}"))
    }

    /// Removes what a run has left.
    pub fn clear(&self) -> Result<(), String> {
        fs::remove_dir_all(&self.run).map_err(|error| format!("cannot remove {}: {error}", self.run.display()))
    }

    /// Removes everything.
    pub fn remove(self) -> Result<(), String> {
        fs::remove_dir_all(&self.home).map_err(|error| format!("cannot remove {}: {error}", self.home.display()))
    }
}
