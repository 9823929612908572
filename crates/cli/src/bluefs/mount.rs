//! `speculator mount`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bluefs_client::{Disk, OnDisconnect, DEFAULT_BYTES_MAX};
use bluefs_mount::Mounted;
use clap::ValueEnum;
use rustix::mount::{mount_remount, MountFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::access::ClientAccess;
use super::args::{MountOptions, WhenDisconnected};
use super::mount_options::FileSystemOptions;
use super::{advice, status};
use crate::error::{plain, Failure, STATUS_OURS};

/// What the process behind a mount says when it is mounted.
const MOUNTED: &str = "mounted";

/// Mounts a volume; returns when it is mounted, or with `--foreground` when it is unmounted.
pub fn mount(options: &MountOptions) -> Result<u8, Failure> {
    let listed = FileSystemOptions::parse(&options.options.join(","))
        .map_err(|error| Failure::Usage(format!("{error}; see speculator mount --help")))?;
    if listed.remount {
        return remount(&options.dir, listed.flags());
    }
    if options.cache_size.or(listed.cache_size).is_some() && options.cache.is_none() && listed.cache.is_none() {
        let advice = "give --cache DIR, too, or leave --cache-size out";
        return Err(Failure::Usage(format!("the size of a cache is given, and no directory for it; {advice}")));
    }
    if !options.foreground {
        return in_background(options);
    }
    let on_disconnect = match options.on_disconnect.or(listed.on_disconnect) {
        Some(WhenDisconnected::Error) => OnDisconnect::Error,
        Some(WhenDisconnected::Block) | None => OnDisconnect::Block,
    };
    let access = ClientAccess {
        invitation: options.access.invitation.clone().or_else(|| listed.invitation.clone()),
        plain: options.access.plain || listed.plain,
    };
    bluefs_mount::check(&options.dir).map_err(|error| advice::mounting(&error))?;
    let disk = options.cache.as_ref().or(listed.cache.as_ref()).map(|dir| {
        // Its files are opened later, from another working directory.
        let dir = &std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        let size = options.cache_size.or(listed.cache_size).unwrap_or(DEFAULT_BYTES_MAX);
        Disk::open(dir, size).map_err(|error| advice::caching(&error))
    });
    let client = access.connect_with(options.address.clone(), on_disconnect, disk.transpose()?)?;
    let watch = client.watch();
    let keeps_names = !(options.ask_names || listed.ask_names);
    let dir = std::path::absolute(&options.dir).unwrap_or_else(|_| options.dir.clone());
    if options.detached {
        // What whoever has started it had open, and where they were, is not kept busy as long as the mount is there. An
        // invitation may have been such a descriptor (`<(…)` of a shell); it is read by now.
        supervisor::close_inherited();
        let _ = std::env::set_current_dir("/");
    }
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let gone = |what: &str, error: std::io::Error| {
        advice::failed(&format!("mount at {}: cannot {what}", dir.display()), &error, "see the kernel log (dmesg)")
    };
    let mut signals = signals.map_err(|error| gone("wait for signals", error))?;
    let mounted = Mounted::new(client, &options.address.to_string(), &dir, listed.flags(), keeps_names);
    let mounted = mounted.map_err(|error| advice::mounting(&error))?;
    let unmounter = mounted.unmounter();
    let unmount = move || {
        signals.forever().next();
        unmounter.unmount();
    };
    let waits = std::thread::Builder::new().name("signals".to_owned()).spawn(unmount);
    waits.map_err(|error| gone("start a thread", error))?;
    // Without it the mount is only not shown.
    let _ = status::serve(watch, options.address.to_string(), &dir);
    if options.detached {
        // Who has started this process waits for this line, and may be gone behind it.
        let _ = rustix::process::setsid();
        let _ = writeln!(std::io::stdout(), "{MOUNTED}");
    }
    mounted.run().map_err(|error| advice::mounting(&error))?;
    Ok(0)
}

/// The process behind a mount that has the kernel ask about names again.
pub fn forget_names() -> Result<u8, Failure> {
    let why = |error| Failure::Usage(format!("forget-names is started by speculator mount: {}", plain(&error)));
    bluefs_mount::forgetter::serve().map_err(why)?;
    Ok(0)
}

/// Changes the flags of a mount that is there.
fn remount(dir: &Path, flags: MountFlags) -> Result<u8, Failure> {
    mount_remount(dir, flags, "").map_err(|errno| {
        let why = plain(&errno.into());
        Failure::Bluefs(format!(
            "cannot mount {} with other options: {why}; is it mounted, and are you root?",
            dir.display()
        ))
    })?;
    Ok(0)
}

/// Starts this command again as a process of its own, and waits until it has mounted the volume.
fn in_background(options: &MountOptions) -> Result<u8, Failure> {
    let at = format!("mount at {}: cannot start a process", options.dir.display());
    let failed = |error: std::io::Error| advice::failed(&at, &error, "is /proc mounted?");
    let mut command = Command::new("/proc/self/exe");
    command.args(["mount", "--foreground", "--detached"]);
    if let Some(file) = &options.access.invitation {
        command.arg("--invitation").arg(file);
    }
    if options.access.plain {
        command.arg("--plain");
    }
    if let Some(what) = options.on_disconnect.and_then(|what| what.to_possible_value()) {
        command.arg(format!("--on-disconnect={}", what.get_name()));
    }
    if options.ask_names {
        command.arg("--ask-names");
    }
    if let Some(dir) = &options.cache {
        command.arg("--cache").arg(dir);
    }
    if let Some(size) = options.cache_size {
        command.args(["--cache-size", &size.to_string()]);
    }
    for list in &options.options {
        command.args(["-o", list]);
    }
    let mut child = command
        .arg("--")
        .arg(options.address.to_string())
        .arg(&options.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else { return Ok(STATUS_OURS) };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    if line.trim_end() == MOUNTED {
        return Ok(0);
    }
    let mut told = Vec::new();
    stderr.read_to_end(&mut told).map_err(failed)?;
    // The line that it has told is this command's.
    let _ = std::io::stderr().write_all(&told);
    let status = child.wait().map_err(failed)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(STATUS_OURS))
}
