//! Where scripts are run.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;

use crate::cases::Told;
use crate::failed;
use crate::suite::Script;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// The disk, natively.
    Disk,
    /// A directory of a BlueFS mount.
    Mount,
    /// The disk, inside `speculator run`.
    Run,
    /// The disk, inside one open guess that is right.
    Ahead,
}

/// Runs a script inside one open guess. What the script says and its status are what this one says and its status.
const AHEAD: &str =
    r#"id=$("$SPECULATOR" begin); "$@"; status=$?; [ "$id" = failed ] || "$SPECULATOR" commit "$id"; exit $status"#;

impl Place {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Place::Disk => "disk",
            Place::Mount => "mount",
            Place::Run => "run",
            Place::Ahead => "ahead",
        }
    }
}

/// Everything that scripts need: the directory below which they work, and a volume that is served and mounted.
pub struct Workshop {
    speculator: PathBuf,
    root: PathBuf,
    server: Option<Child>,
}

/// Where one script after the other is run.
pub struct Places<'w> {
    workshop: &'w Workshop,
    job: usize,
}

impl Workshop {
    /// Makes the directory, and the mount if one of the places is there.
    pub fn new(speculator: &Path, root: &Path, places: &[Place]) -> Result<Workshop, String> {
        let speculator = fs::canonicalize(speculator).map_err(|error| failed("find", speculator, &error))?;
        fs::create_dir_all(root).map_err(|error| failed("make", root, &error))?;
        let root = fs::canonicalize(root).map_err(|error| failed("find", root, &error))?;
        let mut workshop = Workshop { speculator, root, server: None };
        if places.contains(&Place::Mount) {
            workshop.mount()?;
        }
        Ok(workshop)
    }

    fn mount(&mut self) -> Result<(), String> {
        let dir = self.root.join("mount");
        fs::create_dir_all(&dir).map_err(|error| failed("make", &dir, &error))?;
        let mut serve = Command::new(&self.speculator);
        serve.arg("serve").arg(self.root.join("store")).args(["--plain", "--listen", "127.0.0.1:0"]);
        let server = serve.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let server = self.server.insert(server.map_err(|error| format!("cannot start the server: {error}"))?);
        let said = server.stdout.take().ok_or("the server says nothing")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).map_err(|error| format!("the server says nothing: {error}"))?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        let mount = Command::new(&self.speculator).args(["mount", "--plain", address]).arg(&dir).status();
        match mount {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("speculator mount {address} {}: {other:?}", dir.display())),
        }
    }

    /// The places of one of those who run scripts side by side.
    pub fn places(&self, job: usize) -> Places<'_> {
        Places { workshop: self, job }
    }

    /// Removes what scripts have left. What differs is kept for whoever looks into it.
    pub fn remove(mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.root);
    }

    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            // What cannot be ended was never there.
            let _ = Command::new("umount").arg(self.root.join("mount")).status();
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        self.end();
    }
}

impl Places<'_> {
    /// Runs a script.
    pub fn run(&self, place: Place, script: &Script, patience: Duration) -> Result<Told, String> {
        let folder = |name: &str| -> Result<PathBuf, String> {
            let folder = self.workshop.root.join(name).join(format!("job-{}", self.job));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, &error))?;
            Ok(folder)
        };
        let work = folder(if place == Place::Mount { "mount" } else { "disk" })?;
        let logs = folder(&format!("logs-{}-{}", place.name(), script.name))?;
        let (words, within) = script.command(&work, &logs, self.job);
        let (said, other) = (logs.join("stdout"), logs.join("stderr"));
        let file = |path: &Path| File::create(path).map_err(|error| failed("make", path, &error));
        let mut run = Command::new("timeout");
        run.args(["-k", "5", &patience.as_secs().to_string()]);
        match place {
            Place::Disk | Place::Mount => {}
            Place::Run => {
                run.arg(&self.workshop.speculator).args(["run", "--"]);
            }
            Place::Ahead => {
                run.arg(&self.workshop.speculator).args(["run", "--", "bash", "-c", AHEAD, "bash"]);
            }
        }
        run.args(words).current_dir(within).env("SPECULATOR", &self.workshop.speculator).env("HOME", &work);
        run.stdin(Stdio::null()).stdout(file(&said)?).stderr(file(&other)?);
        let status = run.status().map_err(|error| format!("cannot start timeout: {error}"))?;
        let is_late = status.code().is_none_or(|code| [124, 137].contains(&code));
        let why = is_late.then(|| format!("did not end within {} s", patience.as_secs()));
        let said = fs::read(&said).map_err(|error| failed("read", &said, &error))?;
        let told = script.read(&String::from_utf8_lossy(&said)).unfinished(why);
        let _ = fs::remove_dir_all(&work);
        Ok(told)
    }
}
