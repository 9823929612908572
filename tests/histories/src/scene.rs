//! The server, the clients, and the lines between them.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};

use crate::call::{Answer, Op};
use crate::link::Link;
use crate::plan::{Kind, Plan};
use crate::planted::Planted;

/// How long something may take that has to come about.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where a history takes place.
pub struct Scene {
    dir: tempfile::TempDir,
    speculator: PathBuf,
    plan: Plan,
    planted: Option<Planted>,
    server: Mutex<Option<Child>>,
    port: Mutex<u16>,
    pub members: Vec<Member>,
}

/// A client of the server.
pub struct Member {
    pub link: Link,
    kind: Kind,
    dir: PathBuf,
    /// Whether its kernel asks about each name again: of some it does.
    asks_names: bool,
    /// Where it keeps contents across restarts, if it does.
    cache: Option<PathBuf>,
    mount: Mutex<Option<Child>>,
    /// Processes that use it.
    workers: Mutex<Vec<Pid>>,
}

/// A process that carries operations out.
pub struct Worker {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Answer>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The process is gone.
    Gone,
    /// It takes too long.
    Late,
}

impl Scene {
    /// A server with clients.
    pub fn new(speculator: &Path, plan: &Plan, planted: Option<Planted>) -> io::Result<Scene> {
        let dir = tempfile::TempDir::with_prefix("histories-")?;
        let members = plan.members.iter().enumerate().map(|(i, kind)| {
            let (link, dir) = (Link::new(planted)?, dir.path().join(format!("mount{i}")));
            let (asks_names, mount, workers) = (i % 2 == 1, Mutex::new(None), Mutex::new(Vec::new()));
            let cache = matches!(i % 4, 0 | 3).then(|| dir.with_extension("cache"));
            Ok(Member { link, kind: *kind, dir, asks_names, cache, mount, workers })
        });
        let members = members.collect::<io::Result<_>>()?;
        let (speculator, plan) = (speculator.to_owned(), plan.clone());
        let scene = Scene { dir, speculator, plan, planted, server: Mutex::new(None), port: Mutex::new(0), members };
        scene.start_server()?;
        Ok(scene)
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn start_server(&self) -> io::Result<()> {
        let millis = |time: Duration| time.as_millis().to_string();
        let mut command = Command::new(&self.speculator);
        command.arg("serve").arg(self.store()).args(["--plain", "--listen", "127.0.0.1:0"]);
        command.args(["--lease-term", &millis(self.plan.term), "--lease-pause", &millis(self.plan.pause)]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        child.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line))?;
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| io::Error::other(format!("the server says {line:?}")))?;
        *lock(&self.server) = Some(child);
        *lock(&self.port) = port;
        self.members.iter().for_each(|member| member.link.set_server(port));
        Ok(())
    }

    /// Where the server is.
    pub fn address(&self) -> String {
        format!("bluefs://127.0.0.1:{}", lock(&self.port))
    }

    /// Kills the server, and starts it again after a while.
    pub fn restart_server(&self, after: Duration) -> io::Result<()> {
        let Some(mut server) = lock(&self.server).take() else { return Ok(()) };
        let copy = match self.planted {
            Some(Planted::LostCommits) => Some(self.copy_store(&server)?),
            _ => None,
        };
        server.kill()?;
        server.wait()?;
        if let Some(copy) = copy {
            std::fs::remove_dir_all(self.store())?;
            std::fs::rename(copy, self.store())?;
        }
        std::thread::sleep(after);
        self.start_server()
    }

    /// The store as it is now; for a while others are told what is not in the copy.
    fn copy_store(&self, server: &Child) -> io::Result<PathBuf> {
        let copy = self.dir.path().join("copy");
        signal(Pid::from_child(server), Signal::STOP);
        let status = Command::new("cp").arg("-a").arg(self.store()).arg(&copy).status();
        signal(Pid::from_child(server), Signal::CONT);
        if !status?.success() {
            return Err(io::Error::other("cannot copy the store"));
        }
        std::thread::sleep(self.plan.pace * 8);
        Ok(copy)
    }

    /// Starts a process of a client, and its mount if there is none.
    pub fn worker(&self, member: &Member) -> io::Result<Worker> {
        let begun = Instant::now();
        loop {
            match self.try_worker(member) {
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                // The server may be away, and a client stopped.
                Err(_) => std::thread::sleep(LOOK_EVERY * 10),
                worker => return worker,
            }
        }
    }

    fn try_worker(&self, member: &Member) -> io::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("work").arg(member.link.address());
        match member.kind {
            Kind::Session { waits } => {
                command.args(waits.then_some("--waits"));
                let planted = self.planted.map(|planted| format!("--planted={}", planted.word()));
                command.args(planted);
            }
            Kind::Mount { .. } => {
                let mount = member.mounted(&self.speculator)?;
                command.arg("--files").arg(&member.dir).arg("--speculator").arg(&self.speculator);
                let worker = Worker::start(command, member)?;
                if member.is_still(mount) {
                    return Ok(worker);
                }
                // It may have opened the directory below, between one mount and the next one.
                worker.end(member);
                return Err(io::ErrorKind::NotConnected.into());
            }
        }
        Worker::start(command, member)
    }

    /// Ends everything. Says whether the store is as it should be.
    pub fn end(self) -> io::Result<Option<String>> {
        self.members.iter().for_each(Member::unmount);
        if let Some(mut server) = lock(&self.server).take() {
            signal(Pid::from_child(&server), Signal::TERM);
            server.wait()?;
        }
        let output = Command::new(&self.speculator).arg("fsck").arg(self.store()).output()?;
        Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.members.iter().for_each(Member::unmount);
        if let Some(mut server) = lock(&self.server).take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Member {
    /// How many processes it has.
    pub fn process_count(&self) -> usize {
        match self.kind {
            Kind::Session { .. } => 1,
            Kind::Mount { processes } => processes,
        }
    }

    /// Mounts it, unless it is mounted: the process of the mount.
    fn mounted(&self, speculator: &Path) -> io::Result<Pid> {
        let mut mount = lock(&self.mount);
        if let Some(child) = mount.as_mut() {
            if child.try_wait()?.is_none() {
                return Ok(Pid::from_child(child));
            }
        }
        self.take_off();
        std::fs::create_dir_all(&self.dir)?;
        let mut command = Command::new(speculator);
        command.args(["mount", "--plain"]).arg(self.link.address()).arg(&self.dir).arg("--foreground");
        if self.asks_names {
            command.arg("--ask-names");
        }
        if let Some(cache) = &self.cache {
            command.arg("--cache").arg(cache);
        }
        let child = mount.insert(command.stderr(Stdio::null()).spawn()?);
        while !self.is_mounted() {
            if child.try_wait()?.is_some() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Pid::from_child(child))
    }

    /// Whether this process has not ended, so that nobody has taken its mount off.
    fn is_still(&self, mount: Pid) -> bool {
        let mut now = lock(&self.mount);
        now.as_mut().is_some_and(|child| Pid::from_child(child) == mount && matches!(child.try_wait(), Ok(None)))
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.dir.to_str())
    }

    fn take_off(&self) {
        if self.is_mounted() {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }

    fn unmount(&self) {
        if let Some(mut child) = lock(&self.mount).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.take_off();
    }

    /// Kills it, as a machine would fail.
    pub fn kill(&self) {
        if let Some(mount) = lock(&self.mount).as_mut() {
            let _ = mount.kill();
        }
        lock(&self.workers).iter().for_each(|pid| signal(*pid, Signal::KILL));
    }

    /// Stops what is the client: of a mount its process, and not those that use it.
    pub fn stop(&self) {
        self.send(Signal::STOP);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.send(Signal::CONT);
    }

    fn send(&self, what: Signal) {
        if let Kind::Session { .. } = self.kind {
            return lock(&self.workers).iter().for_each(|pid| signal(*pid, what));
        }
        if let Some(child) = lock(&self.mount).as_mut() {
            // One that was waited for is not there any more.
            if matches!(child.try_wait(), Ok(None)) {
                signal(Pid::from_child(child), what);
            }
        }
    }
}

impl Worker {
    fn start(mut command: Command, member: &Member) -> io::Result<Worker> {
        // Whoever stops or kills sees all processes that are there, or waits until this one is known.
        let mut workers = lock(&member.workers);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        workers.push(Pid::from_child(&child));
        drop(workers);
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let mut lines = BufReader::new(output).lines();
        let is_ready = lines.next().is_some_and(|line| line.is_ok());
        let (told, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str(&line) else { break };
                let _ = told.send(answer);
            }
        });
        let worker = Worker { child, input, answers };
        if is_ready {
            return Ok(worker);
        }
        worker.end(member);
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    /// Has an operation carried out.
    pub fn ask(&mut self, op: &Op) -> Result<Answer, NoAnswer> {
        let line = serde_json::to_string(op).expect("an operation");
        writeln!(self.input, "{line}").map_err(|_| NoAnswer::Gone)?;
        self.answers.recv_timeout(PATIENCE).map_err(|why| match why {
            mpsc::RecvTimeoutError::Timeout => NoAnswer::Late,
            mpsc::RecvTimeoutError::Disconnected => NoAnswer::Gone,
        })
    }

    /// Ends it.
    pub fn end(mut self, member: &Member) {
        let mut workers = lock(&member.workers);
        workers.retain(|pid| *pid != Pid::from_child(&self.child));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: Pid, what: Signal) {
    // It may have ended.
    let _ = kill_process(pid, what);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
