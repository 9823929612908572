//! The C program that plays pairs, and what it tells.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The C files.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cells");
/// The action that does nothing.
pub const NOTHING: &str = "nothing";
/// A play takes no longer, if pauses are not longer than usual.
const LIMIT: Duration = Duration::from_secs(150);

/// An action of A and an observation of B.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    pub action: String,
    pub observation: String,
}

/// A pair to be played, or its observation alone: A only makes its change.
#[derive(Clone, Debug)]
pub struct Cell {
    pub pair: Pair,
    pub acts: bool,
}

/// What B said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Before anything could be committed.
    pub is_early: bool,
    /// What B saw. `None` if B ended without a word.
    pub seen: Option<String>,
}

/// Where cells run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Natively,
    Inside,
}

/// The program, and where it runs.
pub struct Cells {
    folder: tempfile::TempDir,
    program: PathBuf,
    world: Vec<String>,
    pub actions: Vec<String>,
    /// Those of them that prepare something, which they may undo.
    pub prepared: Vec<String>,
    /// Those of them that are about a relative.
    pub of_kin: Vec<String>,
    pub observations: Vec<String>,
    /// Those of them that change something themselves.
    pub changing: Vec<String>,
    /// A acts in another thread than the one that has changed the file.
    pub in_thread: bool,
    /// The world has `--hold-input`.
    pub holds_input: bool,
}

impl Cells {
    /// Whether an action, or one of two, prepares something that it may undo.
    pub fn prepares(&self, action: &str) -> bool {
        action.split('+').any(|one| self.prepared.iter().any(|name| name == one))
    }

    /// Whether there is such a pair: somebody outside is no relative.
    pub fn can_be_played(&self, Pair { action, observation }: &Pair) -> bool {
        !is_outside(observation) || !action.split('+').any(|one| self.of_kin.iter().any(|name| name == one))
    }

    /// Compiles the program into a folder below `into`, which goes with this.
    pub fn build(into: &Path, speculator: &Path, options: &[String]) -> Result<Cells, String> {
        fs::create_dir_all(into).map_err(|error| format!("{}: {error}", into.display()))?;
        let folder = tempfile::tempdir_in(into).map_err(|error| format!("{}: {error}", into.display()))?;
        let program = folder.path().join("cells");
        let sources = fs::read_dir(SOURCES).map_err(|error| format!("{SOURCES}: {error}"))?;
        let sources = sources.flatten().map(|entry| entry.path());
        let sources = sources.filter(|path| path.extension().is_some_and(|ending| ending == "c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).args(sources);
        if !compiler.status().map_err(|error| format!("cc: {error}"))?.success() {
            return Err("the cells cannot be compiled".to_owned());
        }
        let list = Command::new(&program).arg("list").output().map_err(|error| format!("cells: {error}"))?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let of = |kind: &str| list.lines().filter_map(|line| line.strip_prefix(kind)).map(str::to_owned).collect();
        let speculator = fs::canonicalize(speculator).map_err(|error| format!("{}: {error}", speculator.display()))?;
        let mut world = vec![speculator.display().to_string(), "run".to_owned()];
        world.extend(options.iter().cloned());
        world.push("--".to_owned());
        let (actions, changing): (_, Vec<String>) = (of("action "), of("changing "));
        let observations = [of("observation "), changing.clone()].concat();
        Ok(Cells {
            program,
            world,
            actions,
            prepared: of("prepared "),
            of_kin: of("of_kin "),
            observations,
            changing,
            in_thread: false,
            holds_input: options.iter().any(|option| option == "--hold-input"),
            folder,
        })
    }

    /// Plays `cells` side by side, with all pauses so many times as long; what each said.
    pub fn play(&self, cells: &[Cell], place: Place, slowness: u32) -> Result<Vec<Said>, String> {
        let problem = |error: std::io::Error| format!("cells: {error}");
        let folder = tempfile::tempdir_in(self.folder.path()).map_err(problem)?;
        let list = folder.path().join("list");
        let lines = cells.iter().map(|cell| {
            let Pair { action, observation } = &cell.pair;
            let acts = u32::from(cell.acts) * if self.in_thread { 2 } else { 1 };
            format!("{action} {observation} {acts}\n")
        });
        fs::write(&list, lines.collect::<String>()).map_err(problem)?;
        let mut command = Command::new(&self.program);
        command.arg("gate").arg(folder.path()).arg(&list).arg(slowness.to_string());
        if place == Place::Inside {
            command.args(&self.world);
        }
        // Files, whose end nobody has to wait for who outlives the play.
        let (told, problems) = (folder.path().join("told"), folder.path().join("problems"));
        command.stdin(Stdio::null());
        command.stdout(File::create(&told).map_err(problem)?).stderr(File::create(&problems).map_err(problem)?);
        let status = end_of(command.spawn().map_err(problem)?, LIMIT * slowness).map_err(problem)?;
        let text = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let said: Vec<Said> = text(&told).map_err(problem)?.lines().filter_map(Said::parse).collect();
        if said.len() == cells.len() {
            return Ok(said);
        }
        Err(format!("cells ended with {status}: {}", text(&problems).map_err(problem)?.trim()))
    }
}

/// How a play ended. After `limit` it is killed; it gives up by itself long before.
fn end_of(mut gate: Child, limit: Duration) -> std::io::Result<ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = gate.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > until {
            gate.kill()?;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the one who makes this observation is outside the world.
pub fn is_outside(observation: &str) -> bool {
    observation.starts_with("outside:")
}

impl Said {
    fn parse(line: &str) -> Option<Said> {
        let (when, seen) = line.split_once(' ')?;
        let seen = (when != "none").then(|| seen.trim().to_owned());
        Some(Said { is_early: when == "early", seen })
    }
}
