//! Invitations that nobody could use are not made, a server that is not root reads what root has written, and a server
//! that cannot serve leaves no store behind.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::bluefs_support as support;
use crate::support::{has_root_for, skipped};
use support::{speculator, succeeds, text, Mount, Scene, Server};

const NOBODY: u32 = 65_534;

fn serve(scene: &Scene, options: &[&str]) -> Command {
    let mut command = speculator();
    command.arg("serve").arg(scene.path("home/store")).args(["--listen", "127.0.0.1:0"]).args(options);
    command
}

fn invite(scene: &Scene, options: &[&str]) -> Command {
    let mut command = speculator();
    command.arg("invite").arg(scene.path("home/store")).args(options);
    command
}

/// Makes a directory with an invitation.
fn batch(server: &Server, invitation: &Path, name: &str) -> Output {
    let mut command = speculator();
    command.args(["bluefs", "batch", &server.address, "--invitation"]).arg(invitation);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("mkdir {name}\n").as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn who_is_invited_by_root_to_a_server_of_somebody_else_comes_in() {
    if !has_root_for("a server of another user") {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(scene.path("home")).unwrap();
    chown(scene.path("home"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = serve(&scene, &[]);
    command.uid(NOBODY).gid(NOBODY);
    if let Err(error) = speculator().arg("--version").uid(NOBODY).gid(NOBODY).output() {
        return skipped(&format!("nobody cannot run speculator: {error}"));
    }
    let server = Server::by(command);
    let files = ["invitations", "invitations.lock", "identity", "identity.lock"];
    for (name, options) in [("first", &[][..]), ("second", &["--expires", "1h"])] {
        fs::write(scene.path(name), succeeds(&mut invite(&scene, options))).unwrap();
        for file in files {
            let meta = fs::metadata(scene.path("home/store").join(file)).unwrap();
            assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o077), (NOBODY, NOBODY, 0), "{file}");
        }
        let done = batch(&server, &scene.path(name), name);
        assert!(done.status.success(), "{name}: {}", text(&done.stderr));
    }
}

/// Each mount was over for good, and had to be made anew.
#[test]
fn invitations_that_cannot_be_read_for_a_moment_end_no_mount() {
    if !has_root_for("a mount") {
        return;
    }
    let scene = Scene::new();
    let (server, invitation) = (Server::by(serve(&scene, &[])), scene.path("invitation"));
    fs::write(&invitation, succeeds(&mut invite(&scene, &[]))).unwrap();
    let options = ["--invitation", invitation.to_str().expect("a path of ours")];
    let mount = Mount::new(&server.address, &scene.path("mount"), &options);
    fs::write(mount.0.join("file"), "text").unwrap();
    let (file, aside) = (scene.path("home/store/invitations"), scene.path("home/store/aside"));
    fs::rename(&file, &aside).and_then(|()| fs::create_dir(&file)).unwrap();
    // The server looks at them once a second.
    std::thread::sleep(Duration::from_secs(3));
    let refused = batch(&server, &invitation, "nothing");
    let told = text(&refused.stderr);
    assert!(!refused.status.success() && told.contains("cannot read its invitations now"), "{told}");
    fs::remove_dir(&file).and_then(|()| fs::rename(&aside, &file)).unwrap();
    assert_eq!(fs::read_to_string(mount.0.join("file")).unwrap(), "text");
    assert!(batch(&server, &invitation, "something").status.success());
}

#[test]
fn nobody_is_invited_to_a_volume_that_is_not_there() {
    let scene = Scene::new();
    let _server = Server::by(serve(&scene, &["--volume", "work"]));
    let output = invite(&scene, &["--volume", "wrok"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""));
    let told = text(&output.stderr);
    for part in ["cannot invite to the volume wrok: there are ", "default", "work", "; speculator serve --volume wrok"]
    {
        assert!(told.contains(part), "{told}");
    }
    assert!(succeeds(&mut invite(&scene, &["--volume", "work"])).starts_with("bluefs-invitation-"));
}

#[test]
fn an_invitation_that_nobody_could_read_is_withdrawn() {
    let scene = Scene::new();
    let _server = Server::by(serve(&scene, &[]));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = invite(&scene, &[]).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(invite(&scene, &[]).stdout(full).stderr(Stdio::null()).status().unwrap().code(), Some(125));
    assert_eq!(succeeds(&mut invite(&scene, &["--list"])), "");
}

#[test]
fn who_cannot_serve_makes_no_store() {
    let scene = Scene::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    for (options, why) in [
        (["--listen", taken.as_str()], "cannot listen at"),
        (["--metrics", taken.as_str()], "cannot listen at"),
        (["--quota", "other=1M"], "there is no volume other"),
    ] {
        let mut command = speculator();
        command.arg("serve").arg(scene.path("home/store"));
        if options[0] != "--listen" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let output = command.args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
        assert!(!scene.path("home").exists(), "{options:?}");
    }
    drop(Server::by(serve(&scene, &["--volume", "other", "--quota", "other=1M"])));
}
