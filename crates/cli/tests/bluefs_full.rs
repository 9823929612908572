//! A BlueFS server on a small disk that others fill.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::bluefs_support::{speculator, succeeds, Mount, Scene, Server};
use crate::support::{can_mount, Mounted};

const PATIENCE: Duration = Duration::from_secs(60);
/// How old what the server knows of its disk may be, and more.
const LOOKED: Duration = Duration::from_millis(300);

fn disk(scene: &Scene) -> Mounted {
    let (image, dir) = (scene.path("image"), scene.path("disk"));
    File::create(&image).and_then(|file| file.set_len(96 << 20)).expect("an image");
    succeeds(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
    fs::create_dir(&dir).expect("a directory");
    succeeds(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&dir));
    Mounted(dir)
}

/// Takes all that there is.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file");
    let mut piece = vec![b'x'; 1 << 20];
    while !piece.is_empty() {
        if file.write_all(&piece).and_then(|()| file.sync_all()).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
}

fn write_over(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.write_all_at(b"over", 0).and_then(|()| file.sync_all())
}

/// The server ended, and could not be started again.
#[test]
fn a_server_whose_disk_others_fill_refuses_what_takes_room_and_goes_on() {
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let disk = disk(&scene);
    let mut command = speculator();
    command.arg("serve").arg(disk.0.join("store")).args(["--plain", "--listen", "127.0.0.1:0"]);
    command.stderr(Stdio::piped());
    let mut server = Server::by(command);
    let stderr = BufReader::new(server.child.stderr.take().expect("piped"));
    let (tell, told) = channel();
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    let dir = scene.path("dir");
    let _mount = Mount::new(&server.address, &dir, &[]);
    let (old, large, others) = (dir.join("old"), dir.join("large"), disk.0.join("others"));
    fs::write(&old, vec![b'o'; 100_000]).expect("written");
    fs::write(&large, vec![b'l'; 4 << 20]).expect("written");

    fill(&others);
    std::thread::sleep(LOOKED);
    let is_no_space = |result: io::Result<()>| result.is_err_and(|error| error.raw_os_error() == Some(libc::ENOSPC));
    assert!(is_no_space(fs::write(dir.join("new"), "new")));
    assert!(is_no_space(write_over(&old)));
    fs::remove_file(&large).expect("removed");

    // Until not even that has room in the log.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let modes = [0o600, 0o644].into_iter().cycle().map(Permissions::from_mode);
            modes.take_while(|_| !is_over.load(Ordering::Relaxed)).try_for_each(|mode| fs::set_permissions(&old, mode))
        });
        let line = told.recv_timeout(PATIENCE);
        is_over.store(true, Ordering::Relaxed);
        fs::remove_file(&others).expect("removed");
        let changed = changes.join().expect("no panic");
        assert!(line.as_ref().is_ok_and(|line| line.contains("is full: changes are refused")), "{line:?}");
        changed.expect("it has waited for room");
    });
    let begun = Instant::now();
    while is_no_space(write_over(&old)) {
        assert!(begun.elapsed() < PATIENCE, "there is room");
        std::thread::sleep(LOOKED);
    }
    fs::write(dir.join("new"), "new").expect("written");
    assert_eq!(&fs::read(&old).expect("read")[..5], b"overo");
    assert!(server.child.try_wait().expect("a child").is_none(), "it serves");
    assert!(told.try_recv().is_err(), "it says it once");
}
