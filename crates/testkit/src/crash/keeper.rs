//! Last aid after SIGKILL: a thread of ours that waits in the kernel for the disk cannot die before the disk answers,
//! and the thread that would answer is dead. A small process, told of that by the kernel, then aborts the FUSE
//! connection.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;

use super::error::CrashError;

/// Watches this process until dropped.
pub struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// `dir` is where the FUSE file system is mounted.
    pub fn start(dir: &Path) -> Result<Keeper, CrashError> {
        let (stop, stopped) = channel::<()>();
        let (started, outcome) = channel();
        let dir = dir.to_owned();
        // The signal tells of the death of the thread that started the child: this one waits for nothing that we serve.
        let thread = std::thread::spawn(move || match start_child(&dir) {
            Ok(mut child) => {
                let _ = started.send(Ok(()));
                let _ = stopped.recv();
                drop(child.stdin.take());
                let _ = child.wait();
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        });
        let outcome = outcome.recv();
        outcome.unwrap_or_else(|gone| Err(io::Error::other(gone))).map_err(CrashError::system("start setpriv(1)"))?;
        Ok(Keeper { stop: Some(stop), thread: Some(thread) })
    }
}

fn start_child(dir: &Path) -> io::Result<Child> {
    // `umount -f` aborts the connection, even when the mount is busy and stays. The end of the input means: not needed
    // any more.
    let script = r#"trap 'umount -f "$1"; umount -l "$1"; rmdir "$1"; exit' TERM; read -r line"#;
    Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "sh", "-c", script, "keeper"])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
