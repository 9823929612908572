//! `setup`: installs what is missing and nothing else; fetches the C package that tests and benchmarks build.

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
        let _quiet = NoServices::new();
        let install = job("apt-get").args(["--quiet", "install"]).args(OPTIONS);
        install.args(chosen.iter().map(|package| package.name)).env("DEBIAN_FRONTEND", "noninteractive").run()?;
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

/// Tests start the servers that they need themselves: while this lives, installing a package starts none.
struct NoServices(bool);

impl NoServices {
    /// What Debian's scripts ask before they start a service; 101 forbids it.
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn new() -> NoServices {
        use std::os::unix::fs::OpenOptionsExt;
        // One that is there is somebody's own.
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(Self::POLICY);
        NoServices(file.and_then(|mut file| std::io::Write::write_all(&mut file, b"#!/bin/sh\nexit 101\n")).is_ok())
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
    fn only_changed_packages_are_upgrades() {
        let plan = "Inst new (1.0 Debian [amd64])\nInst old [1.0] (2.0 Debian [amd64])\nConf new (1.0)\n";
        assert_eq!(upgrades(plan), ["old"]);
    }
}
