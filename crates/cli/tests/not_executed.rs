//! What cannot be executed, and what is executed in an odd way. The exit status is that of env(1). One line says why.

use crate::support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use support::{skipped, Outcome, Scene};

/// Everything is made by a shell: a file that this process has open to write could not be executed.
const MADE: &str = r#"
made() { cat >"$1"; chmod 755 "$1"; }
printf '#!/bin/sh\necho ran "$@"; exit 5\n' | made script
printf 'echo ran $0; exit 4\n' | made plain
printf '' | made empty
printf '#!\n' | made no-interpreter
printf '#!/no/such/interpreter\n' | made missing-interpreter
printf '#!/bin/sh\r\necho\r\n' | made carriage-return
printf '#!%s/script a\n' "$PWD" | made script-of-a-script
printf '#!%s/itself\n' "$PWD" | made itself
printf '#!%s/dir\n' "$PWD" | made directory-interprets
printf '#!/etc/passwd\n' | made text-interprets
printf '\0\1\2binary' | made binary
head -c 64 /bin/true | made cut-short
{ head -c 18 /bin/true; printf '\267'; tail -c +20 /bin/true; } | made other-machine
sed 's,/lib64/ld-linux,/lib99/ld-linux,' /bin/true | made no-loader
cp script not-executable; chmod 644 not-executable
cp script busy
mkdir only good bad bad/script; cp not-executable only/cmd; cp script good/cmd
mkfifo -m 755 fifo
ln -s loop loop; ln -s nowhere dangling; ln -s script link
"#;

/// With where PATH leads, or the usual one.
const CASES: &[(&str, &str)] = &[
    ("", "./script"),
    ("", "./link"),
    ("", "./plain"),
    ("", "./empty"),
    ("", "./no-interpreter"),
    ("", "./missing-interpreter"),
    ("", "./carriage-return"),
    ("", "./script-of-a-script"),
    ("", "./itself"),
    ("", "./directory-interprets"),
    ("", "./text-interprets"),
    ("", "./binary"),
    ("", "./cut-short"),
    ("", "./other-machine"),
    ("", "./no-loader"),
    ("", "./not-executable"),
    ("", "./busy"),
    ("", "./dir"),
    ("", "./dir/"),
    ("", "./script/"),
    ("", "./link/"),
    ("", "./script/below"),
    ("", "./fifo"),
    ("", "./loop"),
    ("", "./dangling"),
    ("", "./missing"),
    ("", "."),
    ("", ""),
    ("", "no-such-command"),
    ("", "/dev/null"),
    ("only:good", "cmd"),
    ("bad:.", "script"),
    ("only", "cmd"),
    ("bad", "script"),
    (":only", "script"),
    ("nowhere:good", "cmd"),
    ("/etc/passwd:good", "cmd"),
    ("good", "missing"),
    (".", "missing-interpreter"),
];

fn outcome(scene: &Scene, path: &str, command: &[&str]) -> Outcome {
    let path = if path.is_empty() { "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" } else { path };
    let mut started = Command::new(command[0]);
    started.args(&command[1..]).current_dir(scene.path("")).env("PATH", path).env("LC_ALL", "C");
    Outcome::of(started.stdin(Stdio::null()).output().unwrap())
}

fn made() -> (Scene, fs::File) {
    let scene = Scene::new();
    let mut shell = Command::new("sh").arg("-e").current_dir(scene.path("")).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(MADE.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    let busy = fs::OpenOptions::new().append(true).open(scene.path("busy")).unwrap();
    (scene, busy)
}

/// Of env and of ours: the same status and output; if it was not executed, one line that names it.
#[track_caller]
fn check(scene: &Scene, path: &str, name: &str) {
    let natively = outcome(scene, path, &["/usr/bin/env", "--", name]);
    let inside = outcome(scene, path, &[env!("CARGO_BIN_EXE_speculator"), "run", "--", name]);
    let told = (&inside.stdout, &inside.stderr);
    assert_eq!(inside.status, natively.status, "{name} in {path:?}: {told:?}, env: {}", natively.stderr);
    assert_eq!(inside.stdout, natively.stdout, "{name} in {path:?}");
    if !natively.stderr.contains("env: ") {
        return assert_eq!(inside.stderr, natively.stderr, "{name} in {path:?}");
    }
    assert_eq!(inside.stderr.lines().count(), 1, "{name} in {path:?}: {told:?}");
    assert!(inside.stderr.starts_with("speculator: cannot run "), "{name} in {path:?}: {told:?}");
    // Permissions are not to be blamed for what has none to give.
    let is_denied = natively.stderr.ends_with("Permission denied\n");
    assert!(is_denied || !inside.stderr.contains("make it executable"), "{name} in {path:?}: {told:?}");
}

#[test]
fn what_cannot_be_executed_ends_as_under_env() {
    let (scene, _busy) = made();
    for (path, name) in CASES {
        check(&scene, path, name);
    }
    for name in ["a".repeat(300), "./long/".repeat(700)] {
        check(&scene, "", &name);
    }
    let directory = outcome(&scene, "", &[env!("CARGO_BIN_EXE_speculator"), "run", "./dir"]);
    directory.expect(126, "cannot run ./dir: is a directory; name another file\n");
}

/// One world for all of them: what a program inside hears of each.
#[test]
fn inside_each_ends_as_natively() {
    let (scene, _busy) = made();
    let tried = |(path, name): &(&str, &str)| match *path {
        "" => format!("env -- '{name}' 2>&1; echo \"{name} $?\"\n"),
        path => format!("PATH={path} /usr/bin/env -- '{name}' 2>&1; echo \"{name} $?\"\n"),
    };
    let script: String = CASES.iter().map(tried).collect();
    let natively = outcome(&scene, "", &["/bin/sh", "-c", &script]);
    let inside = outcome(&scene, "", &[env!("CARGO_BIN_EXE_speculator"), "run", "--", "/bin/sh", "-c", &script]);
    assert!(natively.stdout.matches(" 126\n").count() > 10, "{}", natively.stdout);
    assert_eq!((inside.status, &inside.stdout, &inside.stderr), (0, &natively.stdout, &natively.stderr));
}

#[test]
fn a_file_where_nothing_may_be_executed_ends_as_under_env() {
    if !support::has_root_for("a mount without the right to execute") {
        return;
    }
    let (scene, _busy) = made();
    let script = "mount -t tmpfs -o noexec none dir || exit 99; cp script dir; \"$@\" dir/script";
    let among =
        |command: &[&str]| outcome(&scene, "", &[&["unshare", "-m", "sh", "-c", script, "sh"], command].concat());
    let natively = among(&["env", "--"]);
    if natively.status != 126 {
        return skipped(&format!("no mount of our own: {}", natively.stderr));
    }
    among(&[env!("CARGO_BIN_EXE_speculator"), "run", "--"]).expect(126, "cannot run dir/script: Permission denied");
}
