//! What is wrong with a command line, and what the other commands print.

use crate::support;

use std::fs;
use std::process::Command;

use support::{can_mount, is_root, skipped, Outcome, Scene};

#[track_caller]
fn check(line: &str, status: i32, stderr: &str) {
    let scene = Scene::new();
    scene.run(line).expect(status, stderr);
    scene.left_behind(&["dir"]);
}

#[test]
fn usage_errors_are_one_line_and_125() {
    check("", 125, "requires a subcommand");
    check("frobnicate", 125, "unrecognized subcommand 'frobnicate'");
    check("run", 125, "COMMAND");
    check("run --", 125, "COMMAND");
    check("run --bogus true", 125, "unexpected argument '--bogus'");
    check("run --commit=never true", 125, "'never'");
    check("run --commit-interval 0 true", 125, "0.001 to 86400");
    check("run --volume image true", 125, "no colon");
    check("run --stats=xml true", 125, "text or json:FILE");
    check("doctor --bogus", 125, "--bogus");
    check("man bogus", 125, "no man page 'bogus'");
}

#[test]
fn a_command_that_cannot_be_run_is_told_as_env_does() {
    check("run no-such-command", 127, "cannot run no-such-command: not found");
    check("run ./no-such-command", 127, "not found");
    check("run /etc/passwd", 126, "Permission denied");
    check("run /etc", 126, "is a directory");
}

#[test]
fn a_statistics_file_that_cannot_be_written_is_found_before_command_starts() {
    let scene = Scene::new();
    scene.run("run --stats=json:none/file touch started").expect(125, "cannot write statistics to none/file");
    scene.run("run --stats=json:dir touch started").expect(125, "cannot write statistics to dir");
    if let Some(outcome) = scene.run_as_nobody("run --stats=json:file touch started") {
        if is_root() {
            outcome.expect(125, "cannot write statistics to file");
        }
    }
    scene.left_behind(&["dir"]);
}

#[test]
fn a_statistics_file_is_not_left_behind_when_command_is_not_started() {
    let scene = Scene::new();
    scene.run("run --stats=json:file no-such-command").expect(127, "not found");
    fs::write(scene.path("old"), "old").unwrap();
    scene.run("run --stats=json:old no-such-command").expect(127, "not found");
    assert_eq!(fs::read_to_string(scene.path("old")).unwrap(), "old");
    scene.left_behind(&["dir", "old"]);
}

#[test]
fn doctor_tells_what_there_is() {
    let scene = Scene::new();
    let report = scene.run("doctor --json");
    let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
    let works = report["run_works"].as_bool().unwrap();
    assert!(report["findings"].as_array().unwrap().iter().any(|finding| finding["name"] == "ptrace"));
    let needs = report["mount"].as_array().unwrap();
    assert!(needs.iter().any(|need| need["name"] == "FUSE" && need["is_there"].is_boolean()), "{needs:?}");
    let layer = &report["try"][0];
    assert!(layer["name"] == "a layer over /" && layer["is_there"].is_boolean(), "{layer}");
    let text = scene.run("doctor");
    text.expect(if works { 0 } else { 1 }, "");
    for part in ["durable before observed", "For speculator mount (BlueFS)", "/dev/fuse", "For speculator try"] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
}

/// Where the user stands comes first, and what to do there.
#[test]
fn doctor_begins_with_the_working_directory() {
    let scene = Scene::new();
    let text = scene.run("doctor").stdout;
    let lines: Vec<&str> = text.lines().collect();
    let here = fs::canonicalize(scene.path("")).unwrap();
    assert_eq!(lines[0], format!("Here ({})", here.display()));
    assert!(lines[2].starts_with("  -> "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&scene.run("doctor --json").stdout).unwrap();
    assert!(lines[1].starts_with(&format!("  {} (", json["here"]["class"].as_str().unwrap())), "{text}");
}

/// Root of a user namespace has a user id of 0 and may mount no ext4.
#[test]
fn doctor_tells_root_of_a_user_namespace_from_root() {
    let scene = Scene::new();
    let mut command = Command::new("unshare");
    let command = command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_speculator"), "doctor", "--json"]);
    let output = command.current_dir(scene.path("")).output().unwrap();
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return skipped(&format!("no user namespaces here: {why}"));
    };
    let findings = json["findings"].as_array().unwrap();
    let user = findings.iter().find(|finding| finding["name"] == "user").unwrap();
    assert_eq!(user["status"], "limited", "{user}");
    assert!(user["detail"].as_str().unwrap().contains("user namespace"), "{user}");
}

#[test]
fn doctor_serves_ordinary_users() {
    let scene = Scene::new();
    if let Some(outcome) = scene.run_as_nobody("doctor") {
        assert!(outcome.stdout.contains("limited  user"), "{}", outcome.stdout);
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn doctor_prints_the_table_of_system_calls() {
    let scene = Scene::new();
    let text = scene.run("doctor --syscalls");
    assert!(text.expect(0, "").stdout.lines().count() > 300);
    let json = scene.run("doctor --syscalls --json");
    let rows: serde_json::Value = serde_json::from_str(&json.expect(0, "").stdout).unwrap();
    assert!(rows.as_array().unwrap().iter().any(|row| row["name"] == "openat"));
}

#[test]
fn completions_and_man_pages_come_from_the_same_definition() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = scene.run(&format!("completions {shell}"));
        assert!(text.expect(0, "").stdout.contains("elide-fsync"), "{shell}");
        assert!(!text.stdout.contains("forget-names"), "{shell}: nobody but a mount uses it");
    }
    assert!(scene.run("man").expect(0, "").stdout.contains(".SH SUBCOMMANDS"));
    let page = scene.run("man run").expect(0, "").stdout.clone();
    assert!(page.contains("commit\\-interval") && page.contains("\"speculator 0."), "{page}");
    assert!(scene.run("man volume-create").expect(0, "").stdout.contains("journal"));
    assert!(scene.run("--version").expect(0, "").stdout.starts_with("speculator "));
    assert!(scene.run("run --help").expect(0, "").stdout.contains("--elide-fsync"));
}

/// Whoever reads our standard error may have left (`speculator … 2>&1 | head -1`): the status is COMMAND's all the
/// same, and what was decided is done.
#[test]
fn what_we_tell_and_nobody_reads_changes_nothing() {
    let told = |options: &str| {
        let scene = Scene::new();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(options.split(' ')).args(["--", "sh", "-c", "echo new > new; exit 7"]);
        let status = command.current_dir(scene.path("dir")).stderr(writer).status();
        assert_eq!(status.unwrap().code(), Some(7), "{options}");
        scene.path("dir").join("new").exists()
    };
    assert!(told("run --stats=text --report=text"));
    assert!(told("run -v"));
    if is_root() {
        assert!(told("try --yes --diff"));
        assert!(!told("try --no"));
    }
}

/// `speculator run --help | head -1`: whoever has read enough is no failure.
#[test]
fn help_that_nobody_reads_to_its_end_is_no_failure() {
    for line in ["run --help", "--version", "doctor", "man run"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        let output = command.args(line.split(' ')).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    }
}

#[test]
fn what_is_resumed_takes_no_command() {
    Scene::new().run("try --resume true").expect(125, "cannot be used with");
}

/// The supervisor has a working directory of its own.
#[test]
fn a_trace_is_where_it_was_named_or_is_refused() {
    let scene = Scene::new();
    let run = |trace: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_speculator"));
        command.args(["run", "--", "true"]).current_dir(scene.path("")).env("SPECULATOR_TRACE", trace);
        Outcome::of(command.output().unwrap())
    };
    run("trace").expect(0, "");
    assert!(scene.path("trace").is_file());
    run("no/trace").expect(125, "cannot write the trace that SPECULATOR_TRACE names to ");
    scene.left_behind(&["dir", "trace"]);
}

/// The file is opened before COMMAND starts; COMMAND may have filled the disk since.
#[test]
fn statistics_for_which_there_is_no_room_leave_what_was_there() {
    const SCRIPT: &str = "mount -t tmpfs -o size=64k none dir && truncate -s 8192 dir/old || exit 2
        for file in old new; do
            \"$0\" run --stats=json:dir/$file -- sh -c 'cat /dev/zero > dir/full' 2>told; echo $?
            grep -c 'cannot write statistics' told; rm dir/full
        done
        stat -c %s dir/old; ls dir; \"$0\" run --stats=json:dir/old -- true; head -c 1 dir/old";
    if !can_mount() {
        return;
    }
    let scene = Scene::new();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_speculator")]);
    let outcome = Outcome::of(command.current_dir(scene.path("")).output().unwrap());
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("125\n1\n125\n1\n8192\nold\n{", ""));
}
