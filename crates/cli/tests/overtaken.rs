//! What somebody outside notices without being told: that a signal comes, that a device is opened, who a message is
//! from and where it ends. None of it comes before what was done earlier is durable, and before what was written
//! earlier.

use crate::support;

use std::fs;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};
use support::{can_mount, is_root, skipped, Mounted, Scene};

/// COMMAND in the scene's folder, with statistics; nothing asks for a commit before the end but what waits for one.
fn command(scene: &Scene, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
    command.args(["run", "--commit-interval", "60000", "--stats=json:stats", "--"]).args(words);
    command.current_dir(scene.path("."));
    command
}

fn python(scene: &Scene, program: &str) -> Command {
    command(scene, &["/usr/bin/python3", "-c", program])
}

/// How many commits were made because somebody waited for one.
fn commits_waited_for(scene: &Scene) -> u64 {
    scene.stats()["commits"]["output"].as_u64().unwrap_or(0)
}

/// As `kill` does it: `that_command_stops_itself_waits_for_what_it_has_changed`.
#[test]
fn a_thread_that_stops_itself_waits_for_what_it_has_changed() {
    const PROGRAM: &str = r#"
import ctypes, os, signal
open("changed", "w").write("changed")
ctypes.CDLL(None).syscall(200, os.getpid(), int(signal.SIGSTOP))
"#;
    let scene = Scene::new();
    let mut child = python(&scene, PROGRAM).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    kill_process(pid, Signal::CONT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(commits_waited_for(&scene), 1);
}

/// A serial line, a watchdog, a new terminal: others see at once that it was opened.
#[test]
fn who_opens_a_device_has_committed_what_it_has_changed() {
    for (open, commits) in [("3<>/dev/ptmx", 1), (">/dev/ptmx", 1), ("3<>/dev/null", 0), (">/dev/zero", 0)] {
        let scene = Scene::new();
        let script = format!("echo changed > changed; exec {open}; exit 0");
        assert!(command(&scene, &["sh", "-c", &script]).status().unwrap().success());
        assert_eq!(commits_waited_for(&scene), commits, "{open}");
    }
}

/// A message of each write (pipe(2), `O_DIRECT`), also of those that were held.
#[test]
fn packets_stay_packets() {
    let scene = Scene::new();
    let (mut reader, writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, fcntl_getfl(&writer).unwrap() | OFlags::DIRECT).unwrap();
    let script = "echo changed > changed; printf one; printf two";
    let mut program = command(&scene, &["sh", "-c", script]);
    let mut child = program.stdout(writer).spawn().unwrap();
    drop(program);
    assert!(child.wait().unwrap().success());
    let mut packets = Vec::new();
    let mut packet = [0; 100];
    while let Ok(len @ 1..) = reader.read(&mut packet) {
        packets.push(String::from_utf8_lossy(&packet[..len]).into_owned());
    }
    assert_eq!(packets, ["one", "two"]);
    assert!(scene.stats()["output_bytes_held"].as_u64() >= Some(3));
}

/// Text and sender of what a Unix socket brings, as who asks for senders hears it (unix(7), `SO_PASSCRED`).
fn text_and_sender(socket: &UnixStream) -> (String, i32, u32) {
    let mut text = [0; 100];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::empty()).unwrap();
    let sender = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender),
        _ => None,
    });
    let sender = sender.expect("a sender");
    let text = String::from_utf8_lossy(&text[..got.bytes]).trim().to_owned();
    (text, sender.pid.as_raw_pid(), sender.uid.as_raw())
}

/// What was held came from the supervisor, and, if its writer had given up root, as root's.
#[test]
fn what_was_held_is_from_who_has_written_it() {
    const OTHER: u32 = 65534;
    if !is_root() {
        skipped("only root may send as another");
        return;
    }
    let own = "echo changed > changed; echo $$; sleep 1";
    let others = "exec setpriv --reuid=65534 --clear-groups sh -c 'echo changed > changed; echo $$; sleep 1'";
    for (script, user) in [(own, 0), (others, OTHER)] {
        let scene = Scene::new();
        fs::set_permissions(scene.path("."), fs::Permissions::from_mode(0o777)).unwrap();
        let (outside, inside) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_passcred(&outside, true).unwrap();
        let mut program = command(&scene, &["sh", "-c", script]);
        let mut child = program.stdout(OwnedFd::from(inside)).spawn().unwrap();
        drop(program);
        let (text, sender, uid) = text_and_sender(&outside);
        assert!(child.wait().unwrap().success());
        assert_eq!((text, uid), (sender.to_string(), user), "{script}");
        assert!(scene.stats()["output_bytes_held"].as_u64() >= Some(2), "{script}");
    }
}

/// The metadata of a file system is read from its device by somebody who has not looked at a name since.
#[test]
fn what_a_block_device_shows_waits_for_its_file_system() {
    const PROGRAM: &str = r#"
import os, time
device = os.open("device", os.O_RDONLY)
if os.fork() == 0:
    time.sleep(0.2)
    os.mkdir("dir/nobody-else-has-this-name")
    time.sleep(1)
    os._exit(0)
while b"nobody-else-has-this-name" not in os.pread(device, 4 << 20, 0):
    time.sleep(0.01)
os.write(1, b"seen\n")
os.wait()
"#;
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let (image, dir) = (scene.path("image"), scene.path("dir"));
    let must = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    must(Command::new("truncate").args(["-s", "4M"]).arg(&image));
    must(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
    must(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir));
    let _mount = Mounted(dir.clone());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let device = mounts.lines().find(|line| line.contains(dir.to_str().unwrap())).unwrap();
    std::os::unix::fs::symlink(Path::new(device.split(' ').next().unwrap()), scene.path("device")).unwrap();
    let output = python(&scene, PROGRAM).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "seen\n", "{output:?}");
    assert_eq!(scene.stats()["output_bytes_held"].as_u64(), Some(5));
}

/// A pipe that only a thread with a table of descriptors of its own has: its end is that thread's, and waits for what
/// it has changed.
#[test]
fn a_pipe_that_one_thread_has_is_kept_until_its_end_is_durable() {
    const PROGRAM: &str = r#"
import ctypes, os, threading, time
def other():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    has_own.set()
    time.sleep(0.5)
    open("changed", "w").write("changed")
has_own = threading.Event()
thread = threading.Thread(target=other)
thread.start()
has_own.wait()
os.close(1)
thread.join()
time.sleep(1)
"#;
    let scene = Scene::new();
    let mut child = python(&scene, PROGRAM).stdout(Stdio::piped()).spawn().unwrap();
    let mut nothing = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut nothing).unwrap();
    assert_eq!(child.try_wait().unwrap(), None, "the end has come with the end of the process");
    assert!(child.wait().unwrap().success());
    assert_eq!(commits_waited_for(&scene), 1);
}
