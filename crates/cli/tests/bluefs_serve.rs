//! A BlueFS server as a service: figures for Prometheus, a log, a service manager, quotas, and `speculator top`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;

use crate::bluefs_support as support;
use support::{shown, speculator, succeeds, text, Line, Mount, Scene, Server};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and what it says on standard error.
fn with_stderr(mut command: Command) -> (Server, BufReader<ChildStderr>) {
    command.stderr(Stdio::piped());
    let mut server = Server::by(command);
    let stderr = server.child.stderr.take().expect("piped");
    (server, BufReader::new(stderr))
}

fn serve(scene: &Scene, options: &[&str]) -> Command {
    let mut command = speculator();
    command.arg("serve").arg(scene.path("store")).args(["--listen", "127.0.0.1:0"]).args(options);
    command
}

/// Carries out one line.
fn batch(server: &Server, line: &str) -> std::process::Output {
    let mut command = speculator();
    command.args(["bluefs", "batch", "--plain", &server.address]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a batch");
    child.stdin.take().expect("piped").write_all(line.as_bytes()).expect("written");
    child.wait_with_output().expect("a batch")
}

fn get(at: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(at).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn prometheus_reads_what_a_server_does() {
    let scene = Scene::new();
    let (server, mut stderr) = with_stderr(serve(&scene, &["--plain", "--metrics", "127.0.0.1:0", "--quota", "5M"]));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    let at = line.trim().trim_start_matches("speculator: metrics at http://").trim_end_matches("/metrics").to_owned();
    assert!(batch(&server, "write file text").status.success());
    // The figures may be a second old.
    let begun = Instant::now();
    let answer = loop {
        let answer = get(&at, "/metrics");
        if answer.lines().any(|line| line == r#"bluefs_volume_commits_total{volume="default"} 1"#) {
            break answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let value = |name: &str| {
        let line = answer.lines().find(|line| line.starts_with(&format!("{name} ")));
        let value: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect(name);
        value
    };
    for name in ["messages_total", "received_bytes_total", "sent_bytes_total", "turn_seconds_count", "log_bytes"] {
        assert!(value(&format!("bluefs_{name}")) > 0.0, "{name}: {answer}");
    }
    assert!(value("process_resident_memory_bytes") > 1e6, "{answer}");
    assert!(answer.contains("bluefs_volume_inodes{volume=\"default\"} 2\n"), "{answer}");
    assert!(answer.contains("bluefs_volume_quota_bytes{volume=\"default\"} 5242880\n"), "{answer}");
    assert!(get(&at, "/other").starts_with("HTTP/1.1 404 "));
    // One that says nothing keeps the next one waiting for a moment only.
    let _silent = TcpStream::connect(&at).expect("connected");
    assert!(get(&at, "/metrics").starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn the_log_says_who_comes_and_goes_and_who_is_refused() {
    let scene = Scene::new();
    let (server, mut stderr) = with_stderr(serve(&scene, &["--log=json"]));
    let mut next = || {
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    };
    let invitation = succeeds(speculator().arg("invite").arg(scene.path("store")));
    let file = scene.path("invitation");
    std::fs::write(&file, invitation.replace(' ', "  ")).expect("written");
    let wrong = scene.path("wrong");
    let (kept, secret) = invitation.trim().rsplit_once(' ').expect("words");
    std::fs::write(&wrong, format!("{kept} {}", secret.chars().rev().collect::<String>())).expect("written");
    let as_invited = |file: &std::path::Path| {
        let mut command = speculator();
        command.args(["bluefs", "batch", &server.address, "--invitation"]).arg(file).stdin(Stdio::null());
        command.output().expect("a batch").status.success()
    };
    let list = succeeds(speculator().arg("invite").arg(scene.path("store")).arg("--list"));
    let number: u64 = list.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(as_invited(&file));
    let come = next();
    assert_eq!((&come["event"], &come["volume"]), (&"connected".into(), &"default".into()), "{come}");
    assert_eq!(come["invitation"], number, "{come}");
    assert!(come["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{come}");
    assert_eq!((&come["session_goes_on"], &come["read_only"]), (&false.into(), &false.into()), "{come}");
    let gone = next();
    assert_eq!((&gone["event"], &gone["peer"]), (&"disconnected".into(), &come["peer"]), "{gone}");
    assert!(!as_invited(&wrong));
    let refused = next();
    assert_eq!((&refused["event"], &refused["why"]), (&"refused".into(), &"volume".into()), "{refused}");
    // Neither secrets nor what a session is known by.
    assert!(!format!("{come}{gone}{refused}").contains(&secret[..16]));
    kill_process(Pid::from_child(&server.child), Signal::TERM).expect("sent");
    assert_eq!(next()["event"], "stopping");
}

#[test]
fn a_service_manager_hears_when_it_serves_and_stops_and_nothing_is_left_to_do() {
    let scene = Scene::new();
    let at = scene.path("notify");
    let manager = UnixDatagram::bind(&at).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let hears = || {
        let mut bytes = [0; 64];
        let len = manager.recv(&mut bytes).expect("a word");
        text(&bytes[..len])
    };
    let mut command = serve(&scene, &["--plain"]);
    command.env("NOTIFY_SOCKET", &at);
    let mut server = Server::by(command);
    assert_eq!(hears(), "READY=1");
    assert!(batch(&server, "write file text").status.success());
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    kill_process(Pid::from_child(&server.child), Signal::TERM).expect("sent");
    assert_eq!(hears(), "STOPPING=1");
    assert!(server.child.wait().expect("a child").success());
    // The store is up to date: a log begins with zeros, and the last one has no record that would be carried out again.
    let entries = std::fs::read_dir(scene.path("store")).expect("a store").map(|entry| entry.expect("an entry").path());
    let logs = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-")));
    let last = std::fs::read(logs.max().expect("a log")).expect("read");
    assert!(last.iter().all(|byte| *byte == 0), "{} bytes", last.len());
    assert!(succeeds(speculator().arg("fsck").arg(scene.path("store"))).ends_with(": clean\n"));
    // The mount goes on with the next one.
    let port = server.port().to_owned();
    let _next = Server::start(&scene.path("store"), &format!("127.0.0.1:{port}"));
    assert_eq!(std::fs::read_to_string(mount.0.join("file")).expect("read"), "text");
}

#[test]
fn a_quota_is_set_shown_and_taken_away() {
    let scene = Scene::new();
    let big = scene.path("big");
    std::fs::write(&big, vec![b'x'; 3 << 20]).expect("written");
    let put = format!("put {} file", big.display());
    let server = Server::by(serve(&scene, &["--plain", "--quota", "1M"]));
    let refused = batch(&server, &put);
    assert!(!refused.status.success() && text(&refused.stderr).contains("quota"), "{}", text(&refused.stderr));
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    let space = rustix::fs::statvfs(&mount.0).expect("a file system");
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 20);
    let error = std::fs::write(mount.0.join("file"), vec![b'x'; 3 << 20]).expect_err("too much");
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT");
    drop((mount, server));
    // It lasts.
    let server = Server::by(serve(&scene, &["--plain"]));
    assert!(!batch(&server, &put).status.success());
    drop(server);
    let server = Server::by(serve(&scene, &["--plain", "--quota", "default=none"]));
    let done = batch(&server, &put);
    assert!(done.status.success(), "{}", text(&done.stderr));
    drop(server);
    let output = serve(&scene, &["--plain", "--quota", "other=1M"]).output().expect("it starts");
    assert!(!output.status.success() && text(&output.stderr).contains("there is no volume other"));
}

#[test]
fn an_invitation_may_be_in_the_environment() {
    let scene = Scene::new();
    let server = Server::by(serve(&scene, &[]));
    let invitation = succeeds(speculator().arg("invite").arg(scene.path("store")));
    let by = |invitation: &str| {
        let mut command = speculator();
        command.args(["bluefs", "batch", &server.address]).env("SPECULATOR_INVITATION", invitation);
        command.stdin(Stdio::null()).output().expect("a batch")
    };
    assert!(by(&invitation).status.success());
    let bad = by("bluefs-invitation-1 default secret");
    assert!(text(&bad.stderr).contains("SPECULATOR_INVITATION is no invitation"), "{}", text(&bad.stderr));
    assert!(!text(&bad.stderr).contains("secret"), "{}", text(&bad.stderr));
    // Empty is as if it were not there.
    let plain = by("");
    assert!(text(&plain.stderr).contains("an invitation is needed"), "{}", text(&plain.stderr));
    let dir = scene.path("mount");
    std::fs::create_dir(&dir).expect("a directory");
    let mut mount = speculator();
    succeeds(mount.arg("mount").arg(&server.address).arg(&dir).env("SPECULATOR_INVITATION", &invitation));
    let mount = Mount(dir);
    std::fs::write(mount.0.join("file"), "text").expect("written");
}

#[test]
fn top_shows_a_server() {
    let scene = Scene::new();
    let server = Server::by(serve(&scene, &["--plain"]));
    let mount = Mount::new(&server.address, &scene.path("mount"), &[]);
    std::fs::write(mount.0.join("file"), "text").expect("written");
    let pid = server.child.id().to_string();
    let begun = Instant::now();
    let shown = loop {
        let line = succeeds(speculator().args(["top", "--json", &pid]));
        let shown: Value = serde_json::from_str(&line).expect("JSON");
        if shown["volumes"][0]["commits"] == 2 {
            break shown;
        }
        assert!(begun.elapsed() < PATIENCE, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(shown["server"], server.address.as_str());
    assert!(shown["connections"] == 1 && shown["volumes"][0]["connected"] == 1, "{shown}");
    assert!(shown["received_bytes"].as_u64() > Some(0) && shown["sent_bytes"].as_u64() > Some(0), "{shown}");
    let view = succeeds(speculator().args(["top", "--once", &pid]));
    for part in [&format!("server {}: ", server.address), "1 client, ", "volume       default: ", "2 commits"] {
        assert!(view.contains(part), "{part}: {view}");
    }
}

/// The command of the unit is one that this version understands.
#[test]
fn the_unit_of_systemd_starts_a_server() {
    let scene = Scene::new();
    let unit = include_str!("../../../docs/speculator-serve.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("/usr/local/bin/speculator"));
    let store = scene.path("store");
    // Ports of other tests and of services are not to be in the way.
    let replaced = words.map(|word| match word {
        "/var/lib/bluefs" => store.to_str().expect("text").to_owned(),
        "0.0.0.0:7164" | "127.0.0.1:9164" => "127.0.0.1:0".to_owned(),
        word => word.to_owned(),
    });
    let mut command = speculator();
    command.args(replaced);
    let (server, mut stderr) = with_stderr(command);
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    assert!(line.contains("metrics at http://127.0.0.1:"), "{line}");
    drop(server);
}

/// While nothing gets through to the server, what a program writes is not on its disk.
#[test]
fn top_shows_what_of_a_mount_is_not_on_the_servers_disk() {
    let scene = Scene::new();
    let server = Server::by(serve(&scene, &["--plain"]));
    let line = Line::new(&server.address);
    let mount = Mount::new(&line.address, &scene.path("mount"), &[]);
    let file = std::fs::File::create(mount.0.join("file")).expect("made");
    let until = |is_so: &dyn Fn(&Value) -> bool| {
        let begun = Instant::now();
        loop {
            let status = shown(&mount.0);
            if let Some(status) = status.as_ref().filter(|status| is_so(status)) {
                return status.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "{status:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let number = |status: &Value, name: &str| status[name].as_u64().expect("a number");
    let before = until(&|_| true);
    assert_eq!((number(&before, "written_bytes"), number(&before, "unwritten_bytes")), (0, 0), "{before}");
    line.hold(true);
    const BYTES: u64 = 100_000;
    std::thread::scope(|scope| {
        scope.spawn(|| (&file).write_all(&[7; BYTES as usize]).expect("written"));
        let held = until(&|status| number(status, "unwritten_bytes") > 0);
        assert_eq!((number(&held, "unwritten_bytes"), number(&held, "written_bytes")), (BYTES, 0), "{held}");
        let view = succeeds(speculator().args(["top", "--once", &held["process"].to_string()]));
        assert!(view.contains("are on the server's disk; 0.1 MiB not yet, whose writers wait\n"), "{view}");
        line.hold(false);
    });
    let after = until(&|status| number(status, "unwritten_bytes") == 0);
    assert_eq!(number(&after, "written_bytes"), BYTES, "{after}");
    assert!(number(&after, "sent_bytes") >= number(&before, "sent_bytes") + BYTES, "{after}");
    // Another mount has to ask for it.
    let other = Mount::new(&server.address, &scene.path("other"), &[]);
    assert_eq!(std::fs::read(other.0.join("file")).expect("read"), [7; BYTES as usize]);
    let read = shown(&other.0).expect("it is shown");
    assert!(number(&read, "received_bytes") >= BYTES && number(&read, "written_bytes") == 0, "{read}");
}

#[test]
fn a_long_batch_says_how_far_it_is_on_a_terminal_only() {
    let scene = Scene::new();
    let server = Server::by(serve(&scene, &["--plain"]));
    let line = Line::new(&server.address);
    let (list, file) = (scene.path("list"), scene.path("file"));
    std::fs::write(&file, vec![7; 8 << 20]).expect("written");
    std::fs::write(&list, format!("put {} file\n", file.display())).expect("written");
    let command =
        format!("{} bluefs batch --plain {} {}", env!("CARGO_BIN_EXE_speculator"), line.address, list.display());
    line.hold_behind(1 << 20);
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &command, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = terminal.spawn().expect("script(1)");
    let mut output = child.stdout.take().expect("piped");
    let (mut told, mut bytes) = (Vec::new(), [0; 4096]);
    while !text(&told).contains("MiB of 8.0 MiB sent; ") {
        let len = output.read(&mut bytes).expect("read");
        assert!(len > 0, "{}", text(&told));
        told.extend_from_slice(&bytes[..len]);
    }
    line.hold(false);
    output.read_to_end(&mut told).expect("read");
    assert!(child.wait().expect("script(1)").success(), "{}", text(&told));
    // Nothing of it stays.
    assert!(text(&told).ends_with("\r\x1b[K1 operation is on the server's disk, as commit 1\r\n"), "{}", text(&told));
    // In a file there would be nothing to write over.
    line.hold_behind(1 << 20);
    let mut quiet = Command::new("sh");
    quiet.args(["-c", &command]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let quiet = quiet.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(1500));
    line.hold(false);
    let quiet = quiet.wait_with_output().expect("it ends");
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
}
