//! `setup`: installs what is missing and nothing else; fetches the C package that tests and benchmarks build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::packages::{Package, PACKAGES};
use crate::shell::{find, is_root, job, repository};

/// The source package that is built by tests and benchmarks.
const SOURCE: &str = "hello";

/// Runs it. What cannot be had is told; what needs it is left out later.
pub fn run() -> Result<(), String> {
    install(&missing())?;
    if let Err(problem) = fetch_source() {
        println!("left out: builds of GNU hello ({problem})");
    }
    Ok(())
}

fn missing() -> Vec<&'static Package> {
    let there = |package: &&Package| match package.provides.contains('/') {
        true => Path::new(package.provides).exists(),
        false => find(package.provides).is_some(),
    };
    PACKAGES.iter().filter(|package| !there(package)).collect()
}

fn install(missing: &[&Package]) -> Result<(), String> {
    if missing.is_empty() {
        println!("setup: nothing is missing");
        return Ok(());
    }
    for package in missing {
        println!("setup: {} is missing: {}", package.name, package.why);
    }
    if !is_root() {
        let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
        println!("left out without root: apt-get install {}; what needs them is left out, too", names.join(" "));
        return Ok(());
    }
    install_as_root(missing)
}

const OPTIONS: [&str; 4] = ["--yes", "--no-install-recommends", "--no-upgrade", "--no-remove"];

/// What would change packages that are there is left out. The error names it, unless tests and demo do without it.
fn install_as_root(missing: &[&Package]) -> Result<(), String> {
    let mut chosen = missing.to_vec();
    let mut refused = Vec::new();
    if !changed_by(missing)?.is_empty() {
        chosen.clear();
        for &package in missing {
            let changed = changed_by(&[package])?;
            match changed.is_empty() {
                true => chosen.push(package),
                false => refused.push((package, changed.join(", "))),
            }
        }
    }
    if !chosen.is_empty() {
        let (quiet, before) = (NoServices::new(), enabled_units());
        let install = job("apt-get").args(["--quiet", "install"]).args(OPTIONS);
        let installed = install.args(chosen.iter().map(|package| package.name));
        let installed = installed.env("DEBIAN_FRONTEND", "noninteractive").run();
        drop(quiet);
        disable(enabled_units().difference(&before));
        installed?;
    }
    let mut needed = Vec::new();
    for (package, changed) in refused {
        let what = format!("to install {}, apt-get would also change {changed}", package.name);
        match package.is_optional() {
            true => println!("left out: {} ({what})", package.why),
            false => needed.push(what),
        }
    }
    match needed.is_empty() {
        true => Ok(()),
        false => Err(format!("{}; install them yourself", needed.join("; "))),
    }
}

/// What apt-get would change of what is there, to install these.
fn changed_by(packages: &[&Package]) -> Result<Vec<String>, String> {
    let names = || packages.iter().map(|package| package.name);
    let simulate = || job("apt-get").args(["--simulate", "install"]).args(OPTIONS).args(names()).output();
    let plan = match simulate() {
        Ok(plan) => plan,
        Err(_) => {
            job("apt-get").args(["--quiet", "update"]).run()?;
            simulate()?
        }
    };
    Ok(upgrades(&plan))
}

/// The units that systemd starts at the next boot, as far as the administrator's directory says so.
fn enabled_units() -> BTreeSet<String> {
    let names = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<String>>()
    };
    let root = Path::new("/etc/systemd/system");
    let wanting = names(root).into_iter().filter(|name| name.ends_with(".wants") || name.ends_with(".requires"));
    wanting.flat_map(|name| names(&root.join(name))).collect()
}

/// Debian enables what it installs: nothing that we have installed is started at the next boot either.
fn disable<'a>(units: impl Iterator<Item = &'a String>) {
    let units: Vec<&String> = units.collect();
    if units.is_empty() || find("systemctl").is_none() {
        return;
    }
    if let Err(problem) = job("systemctl").args(["disable"]).args(&units).run() {
        println!("setup: what was installed starts at the next boot ({problem})");
    }
}

/// Tests start the servers that they need themselves: while this lives, installing a package starts none.
struct NoServices(bool);

impl NoServices {
    /// What Debian's scripts ask before they start a service; 101 forbids it.
    const POLICY: &str = "/usr/sbin/policy-rc.d";
    /// By this line one of ours is known, and by the process that has made it whether somebody still needs it.
    const MARK: &str = "# made by cargo xtask setup, process ";

    fn new() -> NoServices {
        use std::os::unix::fs::OpenOptionsExt;
        // An interrupt has left it. Any other one that is there is somebody's own.
        if std::fs::read_to_string(Self::POLICY).is_ok_and(|text| Self::is_stale(&text)) {
            let _ = std::fs::remove_file(Self::POLICY);
        }
        let text = format!("#!/bin/sh\n{}{}\nexit 101\n", Self::MARK, std::process::id());
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(Self::POLICY);
        NoServices(file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes())).is_ok())
    }

    fn is_stale(text: &str) -> bool {
        let process = text.lines().find_map(|line| line.strip_prefix(Self::MARK));
        process.is_some_and(|process| !Path::new("/proc").join(process).exists())
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.0 {
            let _ = std::fs::remove_file(Self::POLICY);
        }
    }
}

/// The packages that a simulated run would change, not add: `Inst NAME [OLD VERSION] (NEW …`.
fn upgrades(plan: &str) -> Vec<String> {
    let installed = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
    let changed = installed.filter(|rest| rest.split_whitespace().nth(1).is_some_and(|word| word.starts_with('[')));
    changed.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
}

/// Where the source package is kept.
pub fn sources() -> PathBuf {
    repository().join("target/sources")
}

/// Fetches the source package that tests and benchmarks build.
pub fn fetch_source() -> Result<(), String> {
    fetch(SOURCE)
}

/// Fetches a source package with lists and sources of our own: the system's stay as they are.
pub fn fetch(package: &str) -> Result<(), String> {
    let sources = sources();
    if is_fetched(&sources, package) {
        return Ok(());
    }
    let apt = sources.join("apt");
    for folder in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(apt.join(folder)).map_err(|error| format!("cannot make {}: {error}", apt.display()))?;
    }
    let line = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n";
    std::fs::write(apt.join("sources.list"), line).map_err(|error| format!("cannot write sources.list: {error}"))?;
    let options = private_options(&apt);
    job("apt-get").args(&options).args(["--quiet", "update"]).run()?;
    job("apt-get").args(&options).args(["--quiet", "source", "--download-only", package]).within(&sources).run()
}

/// Whether the archive of what its authors have written is there.
fn is_fetched(sources: &Path, package: &str) -> bool {
    let names = std::fs::read_dir(sources).into_iter().flatten();
    let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.any(|name| name.starts_with(&format!("{package}_")) && name.contains(".orig.tar."))
}

fn private_options(apt: &Path) -> Vec<String> {
    let at = apt.display();
    [
        format!("Dir::Etc::SourceList={at}/sources.list"),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={at}/lists"),
        format!("Dir::Cache={at}/cache"),
        // Lists are read and written where only we may.
        "APT::Sandbox::User=".to_owned(),
    ]
    .into_iter()
    .flat_map(|option| ["-o".to_owned(), option])
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_ended_setup_has_left_is_removed() {
        let made_by = |process: u32| format!("#!/bin/sh\n{}{process}\nexit 101\n", NoServices::MARK);
        assert!(!NoServices::is_stale("#!/bin/sh\nexit 101\n"));
        assert!(!NoServices::is_stale(&made_by(std::process::id())));
        assert!(NoServices::is_stale(&made_by(u32::MAX)));
    }

    #[test]
    fn only_changed_packages_are_upgrades() {
        let plan = "Inst new (1.0 Debian [amd64])\nInst old [1.0] (2.0 Debian [amd64])\nConf new (1.0)\n";
        assert_eq!(upgrades(plan), ["old"]);
    }
}
