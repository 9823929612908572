//! `speculator mount --cache`: contents are kept on the client's disk across restarts, and used only where the server
//! says that nobody has changed them. Mounts need root.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bluefs_support as support;

use support::{shown, speculator, succeeds, text, Foreground, Mount, Scene, Server};

const PATIENCE: Duration = Duration::from_secs(60);
/// A cache to which nothing was added for so long has all.
const SETTLES: Duration = Duration::from_millis(1_500);

/// A server whose leases end soon: who is killed keeps others from writing for so long. Mappings need 2 s more.
fn serve(scene: &Scene) -> Server {
    let (term, pause) = (["--lease-term", "4000"], ["--lease-pause", "50"]);
    let options = [["--plain", "--listen"], ["127.0.0.1:0", term[0]], [term[1], pause[0]], [pause[1], "--log=text"]];
    let mut command = speculator();
    command.arg("serve").arg(scene.path("store")).args(options.concat()).stderr(Stdio::null());
    Server::by(command)
}

/// Files of all sorts of sizes, on the disk of this machine: what a mount has to show.
fn make_natively(dir: &Path) -> u64 {
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    let sizes = [0, 1, 4095, 4096, 16_384, 16_385, 100_000, 1 << 20, (3 << 20) + 77];
    let mut total = 0;
    for (i, size) in sizes.into_iter().chain((0..40).map(|i| i * 700)).enumerate() {
        let bytes: Vec<u8> = (0..size as u64).map(|at| (at * 7 + at / 251 + i as u64 * 13) as u8).collect();
        let place = if i % 2 == 0 { dir.to_owned() } else { dir.join("sub") };
        fs::write(place.join(format!("f{i}")), bytes).expect("written");
        total += size as u64;
    }
    total
}

/// All files below a directory.
fn read_all(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(
                read_all(&path)
                    .into_iter()
                    .map(|(below, bytes)| (Path::new(path.file_name().unwrap()).join(below), bytes)),
            );
        } else {
            all.insert(path.file_name().expect("a name").into(), fs::read(&path).expect("read"));
        }
    }
    all
}

fn number(dir: &Path, pointer: &str) -> u64 {
    let shown = shown(dir).expect("a mount is shown");
    shown.pointer(pointer).and_then(|value| value.as_u64()).unwrap_or_else(|| panic!("{pointer}: {shown}"))
}

/// Waits until the cache of a mount takes up so many bytes, and no more come: what was read twice is there twice.
#[track_caller]
fn wait_for_cache(dir: &Path, bytes: u64) {
    let begun = Instant::now();
    let (mut last, mut since) = (0, begun);
    while last < bytes || since.elapsed() < SETTLES {
        assert!(begun.elapsed() < PATIENCE, "{:?}", shown(dir));
        std::thread::sleep(Duration::from_millis(20));
        let now = number(dir, "/cache/bytes");
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

fn mounted(scene: &Scene, server: &Server) -> Foreground {
    let cache = scene.path("cache");
    let options = ["--cache", cache.to_str().expect("text")];
    Foreground::by(speculator(), &options, &server.address, &scene.path("cached"))
}

/// Ends the mount as a crash would.
fn killed(mount: Foreground) {
    mount.signal(Signal::KILL);
    drop(mount);
}

/// Files on a server, which a mount with a cache has read: the scene, the server, the bytes, and what they are.
fn warm() -> (Scene, Server, u64, BTreeMap<PathBuf, Vec<u8>>) {
    let scene = Scene::new();
    let native = scene.path("native");
    let total = make_natively(&native);
    let server = serve(&scene);
    {
        let other = Mount::new(&server.address, &scene.path("other"), &[]);
        succeeds(Command::new("cp").arg("-r").arg(native.join(".")).arg(&other.0));
    }
    let expected = read_all(&native);
    let mount = mounted(&scene, &server);
    assert_eq!(read_all(&mount.mount.0), expected);
    wait_for_cache(&mount.mount.0, total);
    killed(mount);
    (scene, server, total, expected)
}

/// Reads everything through a mount that is begun anew. Says how many bytes came from the server.
#[track_caller]
fn read_again(scene: &Scene, server: &Server, expected: &BTreeMap<PathBuf, Vec<u8>>) -> u64 {
    let mount = mounted(scene, server);
    assert!(read_all(&mount.mount.0) == *expected, "other contents");
    let came = number(&mount.mount.0, "/received_bytes");
    killed(mount);
    came
}

fn write_elsewhere(scene: &Scene, server: &Server, name: &str, contents: &str) {
    let other = Mount::new(&server.address, &scene.path("other"), &[]);
    fs::write(other.0.join(name), contents).expect("written");
}

#[test]
fn after_a_restart_no_contents_are_transferred_again() {
    let (scene, server, total, expected) = warm();
    for _ in 0..2 {
        let mount = mounted(&scene, &server);
        assert!(read_all(&mount.mount.0) == expected);
        let came = number(&mount.mount.0, "/received_bytes");
        assert!(came < total / 50, "{came} of {total} bytes came");
        assert_eq!(number(&mount.mount.0, "/cache/hit_bytes"), total);
        // A mapping shows the same: it is read in pages of the kernel.
        let script = "import mmap, sys; f = open(sys.argv[1], 'rb'); \
                      print(sum(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE)[:]))";
        let sum = |dir: &Path| succeeds(Command::new("python3").args(["-c", script]).arg(dir.join("f8")));
        assert_eq!(sum(&mount.mount.0), sum(&scene.path("native")));
        killed(mount);
    }
}

#[test]
fn what_was_changed_meanwhile_is_seen_and_the_rest_is_not_transferred() {
    let (scene, server, total, mut expected) = warm();
    // Nobody has it mounted.
    write_elsewhere(&scene, &server, "f0", "not empty");
    write_elsewhere(&scene, &server, "f6", "shorter");
    expected.insert("f0".into(), b"not empty".to_vec());
    expected.insert("f6".into(), b"shorter".to_vec());
    let came = read_again(&scene, &server, &expected);
    assert!(came < total / 50, "{came} of {total} bytes came");
    // While it is mounted, and read.
    let mount = mounted(&scene, &server);
    assert!(read_all(&mount.mount.0) == expected);
    write_elsewhere(&scene, &server, "f6", "another");
    expected.insert("f6".into(), b"another".to_vec());
    assert!(read_all(&mount.mount.0) == expected);
    // By the mount itself: a part in the middle of a file.
    let path = mount.mount.0.join("f8");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 2_000_000).expect("written");
    expected.get_mut(Path::new("f8")).expect("there")[2_000_000..2_000_013].copy_from_slice(b"in the middle");
    assert!(read_all(&mount.mount.0) == expected);
    killed(mount);
    read_again(&scene, &server, &expected);
    // Cut and made longer again: zeros are there where something was.
    {
        let other = Mount::new(&server.address, &scene.path("other"), &[]);
        let file = fs::OpenOptions::new().write(true).open(other.0.join("f8")).expect("open");
        file.set_len(1000).expect("cut");
        file.set_len(50_000).expect("longer");
    }
    let cut = expected.get_mut(Path::new("f8")).expect("there");
    cut.truncate(1000);
    cut.resize(50_000, 0);
    read_again(&scene, &server, &expected);
}

#[test]
fn times_and_names_change_nothing_of_what_is_kept() {
    let (scene, server, total, mut expected) = warm();
    {
        let other = Mount::new(&server.address, &scene.path("other"), &[]);
        succeeds(Command::new("touch").args(["-d", "2001-01-01"]).arg(other.0.join("f8")));
        fs::rename(other.0.join("f6"), other.0.join("moved")).expect("renamed");
        fs::remove_file(other.0.join("f2")).expect("removed");
    }
    let moved = expected.remove(Path::new("f6")).expect("there");
    expected.insert("moved".into(), moved);
    expected.remove(Path::new("f2"));
    let came = read_again(&scene, &server, &expected);
    assert!(came < total / 50, "{came} of {total} bytes came");
}

#[test]
fn a_restart_of_the_server_changes_nothing() {
    let (scene, server, total, mut expected) = warm();
    write_elsewhere(&scene, &server, "f6", "before");
    drop(server);
    let server = serve(&scene);
    write_elsewhere(&scene, &server, "f4", "behind");
    expected.insert("f6".into(), b"before".to_vec());
    expected.insert("f4".into(), b"behind".to_vec());
    let came = read_again(&scene, &server, &expected);
    assert!(came < total / 50, "{came} of {total} bytes came");
    // It is started again while it is mounted.
    let mount = mounted(&scene, &server);
    assert!(read_all(&mount.mount.0) == expected);
    let port = format!("127.0.0.1:{}", server.port());
    drop(server);
    let server = Server::start(&scene.path("store"), &port);
    assert!(read_all(&mount.mount.0) == expected);
    write_elsewhere(&scene, &server, "f4", "once more");
    expected.insert("f4".into(), b"once more".to_vec());
    assert!(read_all(&mount.mount.0) == expected);
}

/// The store is put back, and goes on in another way: the same commits are other changes then.
#[test]
fn what_a_backup_has_taken_back_is_not_shown() {
    let (scene, server, total, mut expected) = warm();
    drop(server);
    let (store, backup) = (scene.path("store"), scene.path("backup"));
    succeeds(Command::new("cp").arg("-a").arg(&store).arg(&backup));
    let server = serve(&scene);
    write_elsewhere(&scene, &server, "f6", "taken back");
    expected.insert("f6".into(), b"taken back".to_vec());
    let mount = mounted(&scene, &server);
    let before = number(&mount.mount.0, "/cache/bytes");
    assert!(read_all(&mount.mount.0) == expected);
    wait_for_cache(&mount.mount.0, before + 10);
    killed(mount);
    drop(server);
    fs::remove_dir_all(&store).expect("removed");
    fs::rename(&backup, &store).expect("put back");
    let server = serve(&scene);
    write_elsewhere(&scene, &server, "f6", "instead of");
    expected.insert("f6".into(), b"instead of".to_vec());
    let came = read_again(&scene, &server, &expected);
    // What was read before the back-up was made is still good.
    assert!(came < total / 50, "{came} of {total} bytes came");
}

#[test]
fn another_servers_contents_are_not_shown() {
    let (scene, server, _, expected) = warm();
    drop(server);
    fs::remove_dir_all(scene.path("store")).expect("removed");
    let server = serve(&scene);
    {
        // The same numbers of inodes, the same sizes, and more commits.
        let other = Mount::new(&server.address, &scene.path("other"), &[]);
        succeeds(Command::new("cp").arg("-r").arg(scene.path("native").join(".")).arg(&other.0));
        for (name, bytes) in &expected {
            fs::write(other.0.join(name), vec![b'x'; bytes.len()]).expect("written");
        }
    }
    let other = expected.iter().map(|(name, bytes)| (name.clone(), vec![b'x'; bytes.len()])).collect();
    read_again(&scene, &server, &other);
}

#[test]
fn a_damaged_cache_shows_nothing_wrong() {
    let (scene, server, total, expected) = warm();
    for round in 0..4 {
        for entry in fs::read_dir(scene.path("cache")).expect("a cache") {
            let path = entry.expect("an entry").path();
            let mut bytes = fs::read(&path).expect("read");
            let len = bytes.len();
            match round {
                0 => (50_000..len).step_by(100_000).for_each(|at| bytes[at] ^= 1),
                1 => bytes.truncate(len * 2 / 3),
                2 => bytes[len / 2..].fill(0),
                _ => bytes[..len.min(10)].fill(7),
            }
            fs::write(&path, bytes).expect("written");
        }
        read_again(&scene, &server, &expected);
        let mount = mounted(&scene, &server);
        assert!(read_all(&mount.mount.0) == expected);
        wait_for_cache(&mount.mount.0, total);
        killed(mount);
    }
}

#[test]
fn a_directory_has_one_mount_and_nothing_else_in_it() {
    let scene = Scene::new();
    let server = serve(&scene);
    let cache = scene.path("cache");
    let listed = format!("cache={},cache-size=64M", cache.display());
    let first = Mount::new(&server.address, &scene.path("first"), &["-o", &listed]);
    assert!(shown(&first.0).expect("shown")["cache"].is_object());
    fs::write(scene.path("file"), "x").expect("written");
    for (dir, why) in [
        (&cache, "another mount uses it; give each mount its own"),
        (&scene.dir.path().to_owned(), "something else is in it; name an empty directory, or none that is there"),
    ] {
        let mut command = speculator();
        fs::create_dir_all(scene.path("second")).expect("a directory");
        command.args(["mount", "--plain", &server.address]).arg(scene.path("second")).arg("--cache").arg(dir);
        let output = command.output().expect("it starts");
        assert_eq!(output.status.code(), Some(125));
        let line = format!("speculator: cannot use {} as a cache: {why}\n", dir.display());
        assert_eq!(text(&output.stderr), line);
    }
    let mode = |path: PathBuf| fs::metadata(path).expect("there").mode() & 0o777;
    assert_eq!(mode(cache.clone()), 0o700);
    fs::write(first.0.join("file"), "contents").expect("written");
    let begun = Instant::now();
    while fs::read_dir(&cache).expect("a cache").count() < 2 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fs::read_dir(&cache).expect("a cache").all(|entry| mode(entry.expect("an entry").path()) == 0o600));
}

/// A file system of its own, taken away at the end.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_turns_the_cache_off_and_nothing_fails() {
    let (scene, server, _, expected) = warm();
    let small = scene.path("small");
    fs::create_dir(&small).expect("a directory");
    succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1M", "none"]).arg(&small));
    let small = Small(small);
    let dir = scene.path("full");
    let mut command = speculator();
    command.stderr(Stdio::piped());
    let options = ["--cache", small.0.to_str().expect("text")];
    let mut mount = Foreground::by(command, &options, &server.address, &dir);
    assert!(read_all(&dir) == expected);
    let begun = Instant::now();
    while shown(&dir).expect("shown")["cache"]["is_off"] != true {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::File::create(dir.join("new")).and_then(|mut file| file.write_all(b"x")).expect("written");
    fs::remove_file(dir.join("new")).expect("removed");
    assert!(read_all(&dir) == expected);
    let mut stderr = mount.child.stderr.take().expect("piped");
    killed(mount);
    let mut told = String::new();
    stderr.read_to_string(&mut told).expect("text");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.starts_with(&format!("speculator: the cache in {} is off: No space left", small.0.display())),
        "{told}"
    );
}
