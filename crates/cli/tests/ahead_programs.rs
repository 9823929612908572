//! Programs that a guess has made on a disk, and that it executes (decision 0123): what one finds out about itself is
//! what it finds natively, also when its file has got its name; nothing of it is left if the guess was wrong.

use crate::support;
use crate::support::guess::{check_failure, check_success, staged};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");

fn has_root() -> bool {
    support::has_root_for("making files on a guess")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A disk, not the machine's `/tmp`, which may be memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300", program]).stdin(Stdio::null()).env("S", SPECULATOR);
    command
}

/// Run a script inside, in a directory.
fn run(script: &str, dir: &Path, stats: &Path) -> Output {
    let mut command = limited(SPECULATOR);
    let stats = format!("--stats=json:{}", stats.display());
    command.args(["run", &stats, "--", "bash", "-c", script]).current_dir(dir);
    command.output().unwrap()
}

/// What a script leaves: all files but its own, and what is in them.
fn left(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    let contents = |path: &PathBuf| if path.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    found.into_iter().map(|path| (path.file_name().unwrap().into(), contents(&path))).collect()
}

/// Nobody waits for the guess, and each program hears the name and the arguments that it was executed with.
#[test]
fn what_is_made_on_a_guess_is_executed_as_natively() {
    if !has_root() {
        return;
    }
    let other = folder();
    let program = other.path().join("exec_new");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread"]).arg(format!("{PROGRAMS}/exec_new.c")).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success());
    let native = folder();
    let expected = limited(program.to_str().unwrap()).current_dir(native.path()).output().unwrap();
    assert_eq!(expected.status.code(), Some(0), "{}", text(&expected.stderr));
    for end in ["commit", "fail"] {
        let (inside, stats) = (folder(), other.path().join(format!("stats-{end}")));
        let script = format!(
            "id=$($S begin); [ $id = failed ] && exit 7; {}; status=$?; $S {end} $id; exit $status",
            program.display()
        );
        let output = run(&script, inside.path(), &stats);
        let (status, shown) = if end == "commit" { (0, text(&expected.stdout)) } else { (7, String::new()) };
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(status), shown), "{}", text(&output.stderr));
        let is_left = left(inside.path());
        assert!(if end == "commit" { is_left == left(native.path()) } else { is_left.is_empty() }, "{is_left:?}");
        let stats: serde_json::Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
        for call in ["execve", "openat", "readlink", "newfstatat"] {
            assert!(stats["ahead"]["barriers"][call].is_null(), "{end}: {}", stats["ahead"]["barriers"]);
        }
    }
}

/// A program that still runs when its file gets its name is known by it from then on, as natively.
#[test]
fn a_program_is_known_by_the_name_of_its_file_when_it_has_one() {
    if !has_root() {
        return;
    }
    let (dir, other) = (folder(), folder());
    let script = "id=$($S begin); [ $id = failed ] && exit 7
        mkdir new; cp $(command -v bash) new/prog; mv new/prog new/name
        new/name -c 'while read -r line; do echo \"$line\" >> maps; done < /proc/self/maps
                     readlink /proc/self/exe; \"$S\" commit '$id'; readlink /proc/$$/exe; stat -c %h new/name
                     grep -c \"$PWD/new/name\" /proc/$$/maps > count; test $(cat count) -gt 1 && echo mapped'";
    let output = run(script, dir.path(), &other.path().join("stats"));
    let expected = format!("{}/new/name\n1\nmapped\n", dir.path().display());
    let shown = text(&output.stdout);
    let rest = shown.split_once('\n').map_or("", |(_, rest)| rest);
    assert_eq!((output.status.code(), rest), (Some(0), expected.as_str()), "{shown}{}", text(&output.stderr));
    // On the guess, too.
    let maps = fs::read_to_string(dir.path().join("maps")).unwrap();
    let own = format!("{}/new/name", dir.path().display());
    assert!(maps.lines().filter(|line| line.ends_with(&own)).count() > 1, "{maps}");
    assert!(!maps.contains("lost+found"), "{maps}");
    assert!(staged().is_empty(), "{:?}", staged());
}

/// One that has several names is known by the one that it was executed by, and so is its neighbour, before and after
/// these are given: `cargo` links what it builds to where it is run.
#[test]
fn a_program_with_several_names_is_known_by_its_own() {
    if !has_root() {
        return;
    }
    let (dir, other) = (folder(), folder());
    let tell = "readlink /proc/self/exe; readlink /proc/$$/exe; stat -Lc %h /proc/$$/exe
        grep -o \"$PWD/.*\" /proc/$$/maps | sort -u";
    let script = format!(
        "mkdir new there; id=$($S begin); [ $id = failed ] && exit 7
        cp $(command -v bash) new/first; ln new/first there/linked; mv there/linked there/second
        new/first -c 'while read -r line; do echo \"${{line##* }}\"; done < /proc/self/maps > first.maps
                      echo > ready; until [ -e told ]; do sleep 0.01; done; readlink /proc/$$/exe; true' &
        until [ -e ready ]; do sleep 0.01; done
        there/second -c 'while read -r line; do echo \"${{line##* }}\"; done < /proc/self/maps > second.maps
                         \"$S\" commit '$id'; {tell}'
        echo > told; wait"
    );
    let output = run(&script, dir.path(), &other.path().join("stats"));
    let at = dir.path().display();
    let expected = format!("/usr/bin/readlink\n{at}/there/second\n2\n{at}/there/second\n{at}/new/first\n");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), expected), "{}", text(&output.stderr));
    for (name, own) in [("first", "new/first"), ("second", "there/second")] {
        let maps = fs::read_to_string(dir.path().join(format!("{name}.maps"))).unwrap();
        let names: std::collections::BTreeSet<&str> =
            maps.lines().filter(|line| line.starts_with(&at.to_string())).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), [format!("{at}/{own}")], "{maps}");
        assert!(!maps.contains("lost+found"), "{maps}");
    }
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(other.path().join("stats")).unwrap()).unwrap();
    assert!(stats["ahead"]["barriers"]["openat"].is_null(), "{}", stats["ahead"]["barriers"]);
    assert!(staged().is_empty(), "{:?}", staged());
}

/// A script's interpreter that may be executed since a guess is not executed as it was.
#[test]
fn who_executes_a_script_waits_for_what_is_held_of_its_interpreter() {
    if !has_root() {
        return;
    }
    let (dir, other) = (folder(), folder());
    let script = "printf '#!/bin/sh\\necho inner\\n' > inner; printf '#!./inner\\n' > outer; chmod +x outer
        id=$($S begin); [ $id = failed ] && exit 7; (sleep 0.5; $S commit $id) & chmod +x inner; ./outer; wait";
    let output = run(script, dir.path(), &other.path().join("stats"));
    let expected = (Some(0), "inner\n".to_owned());
    assert_eq!((output.status.code(), text(&output.stdout)), expected, "{}", text(&output.stderr));
}

/// What is mapped private is what those inside see in the file; what is stored there is nobody else's.
#[test]
fn a_private_mapping_shows_what_is_held() {
    let program = r#"
import mmap
open('file', 'w').write('old contents')
guess = begin()
f = os.open('file', os.O_RDWR)
os.pwrite(f, b'NEW', 0)
os.lseek(f, 0, 2)
os.write(f, b', and more')
m = mmap.mmap(f, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
show(m[:])
m[0:3] = b'abc'
show(m[:5], os.pread(f, 5, 0))
page = mmap.mmap(os.open('file', os.O_RDONLY), 22, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
show(page[4:12], len(page))
if guess >= 0: finish(guess)
show(m[:5], open('file').read())
"#;
    let expected = "b'NEW contents, and more'\nb'abc c' b'NEW c'\nb'contents' 22\nb'abc c' NEW contents, and more\n";
    check_failure(program, expected, &["mmap"]);
    check_success(program, expected, &["mmap"]);
}

/// A program that only what undoes a close keeps open for writing is not busy natively: who executes it waits. One that
/// is open for writing anyway is busy at once.
#[test]
fn a_program_is_busy_as_natively() {
    if !has_root() {
        return;
    }
    let program = |closes: &str| {
        format!(
            r#"
import shutil
shutil.copy('/bin/true', 'program')
held = os.open('program', os.O_WRONLY | os.O_APPEND)
guess = begin()
{closes}
child = os.fork()
if child == 0:
    try: os.execv('program', ['program'])
    except OSError as error: os._exit(error.errno)
show('ended with', status(child))
finish(guess)
"#
        )
    };
    check_failure(&program("os.close(held)"), "ended with 0\n", &[]);
    check_success(&program("os.close(held)"), "ended with 0\n", &[]);
    check_failure(&program("os.fstat(held)"), "ended with 26\n", &["execve"]);
    check_success(&program("os.fstat(held)"), "ended with 26\n", &["execve"]);
}
