//! `include/bluefs.h` of `bluefs-c`: a program in C that is compiled against it carries intervals out at a server.
//! Mounts need root.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bluefs_support as support;

use support::{speculator, succeeds, text, Mount, Scene, Server};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bluefs-c/include");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bluefs_c/uses.c");

/// The archive that was built with these tests: it is beside them.
fn archive() -> PathBuf {
    let tests = std::env::current_exe().expect("a program");
    let files = std::fs::read_dir(tests.parent().expect("a directory")).expect("a directory");
    let files = files.map(|entry| entry.expect("an entry").path());
    let archives = files.filter(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("libbluefs_c") && name.ends_with(".a")
    });
    archives.max_by_key(|path| path.metadata().expect("there").modified().expect("a time")).expect("an archive")
}

fn compiled(scene: &Scene) -> PathBuf {
    let program = scene.path("uses");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", HEADER, "-o"]).arg(&program);
    succeeds(compiler.arg(SOURCE).arg(archive()).args(["-lpthread", "-ldl", "-lm"]));
    program
}

/// What it prints, and its status.
fn told(program: &Path, what: &str, address: &str, invitation: &str) -> (String, Option<i32>) {
    let output = Command::new(program).args([what, address, invitation]).output().expect("it starts");
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

#[test]
fn a_program_in_c_carries_out_intervals() {
    let scene = Scene::new();
    let (server, program) = (scene.serve(), compiled(&scene));
    let run = |what: &str| {
        let (told, status) = told(&program, what, &server.address, "");
        assert_eq!(status, Some(0), "{what}: {told}");
        told
    };
    assert_eq!(run("batch"), "done, commit given\n");
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    let at = |name: &str| mount.0.join(name);
    assert_eq!(std::fs::read(at("moved/a")).expect("read"), b"one\0two!");
    assert_eq!(std::fs::read(at("moved/put")).expect("read"), std::fs::read(&program).expect("read"));
    let linked = at("moved/link").metadata().expect("there");
    assert_eq!((linked.mode() & 0o7777, linked.nlink()), (0o600, 2));
    assert_eq!(std::fs::read_link(at("soft")).expect("a link"), Path::new("dir/a"));
    assert_eq!(std::fs::read(at("moved/empty")).expect("read"), [0; 5]);
    assert!(["dir", "brief", "gone", "never"].iter().all(|name| !at(name).exists()));

    let conflict = "conflict: others have changed what it is about; nothing was changed; begin anew\n";
    assert_eq!(run("conflict"), "done, commit given\n".to_owned() + conflict);
    assert_eq!(std::fs::read(at("moved/b")).expect("read"), b"one\0two!");
    assert!(!at("made").exists() && !at("moved/a").exists());

    let refused = "append: No such file or directory\n\
        failed: operation 2: No such file or directory; nothing was changed\n\
        failed: operation 2: File exists; nothing was changed\n";
    assert_eq!(run("refused"), refused);
    assert!(!at("other").exists() && !at("third").exists());

    let arguments = "NULL: the path is NULL\npath: a/../b is no path in a volume\ncontents: the contents are NULL\n\
        mode: the mode has bits beyond 07777\ndone, commit given\n";
    assert_eq!(run("arguments"), arguments);
}

#[test]
fn a_program_in_c_needs_the_right_invitation() {
    let scene = Scene::new();
    let (store, program) = (scene.path("store"), compiled(&scene));
    let server = Server::with(&store, &["--listen", "127.0.0.1:0", "--volume", "work"]);
    let invitation = succeeds(speculator().args(["invite", "--volume", "work"]).arg(&store));
    let connect = |address: &str, invitation: &str| told(&program, "connect", address, invitation);
    assert_eq!(connect(&server.address, &invitation), ("connected\n".to_owned(), Some(0)));
    let refuses = |address: &str, invitation: &str, says: &str| {
        let (told, status) = connect(address, invitation);
        assert!(status == Some(1) && told.starts_with("not connected: ") && told.contains(says), "{told}");
    };
    let (kept, secret) = invitation.trim().rsplit_once(' ').expect("words");
    let wrong = format!("{kept} {}", secret.chars().rev().collect::<String>());
    refuses(&server.address, &wrong, "no right to it");
    refuses(&server.address, kept, "the invitation is not a line of speculator invite");
    refuses(&format!("{}/default", server.address), &invitation, "no right to it");
    refuses(&server.address, "", "cannot connect");
    refuses("bluefs://192.0.2.1/", "", "192.0.2.1 is not a loopback address");
    refuses("nowhere", "", "no address of a volume");
}
