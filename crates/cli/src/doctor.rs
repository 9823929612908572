//! `speculator doctor`.

use std::fmt::{self, Write};

use external_sync::doctor::{examine, Finding, Promises, Report, Status};
use external_sync::domain::{Class, Promise};

use crate::args::DoctorOptions;
use crate::bluefs::{self, Need};
use crate::error::{plain, Failure};
use crate::generate::print;

const STATUS_RUN_FAILS: u8 = 1;

/// Tells what this machine allows; the status is 0 if `run` would work.
pub fn doctor(options: &DoctorOptions) -> Result<u8, Failure> {
    if options.syscalls {
        return syscalls(options.json);
    }
    let (report, needs, layer) = (examine(), bluefs::needs(), layer_over_root());
    let text = match options.json {
        true => {
            let mut all = serde_json::json!(report);
            all["mount"] = serde_json::json!(needs);
            all["try"] = serde_json::json!([layer]);
            json(&all)
        }
        false => text(&report, &needs, &layer),
    };
    print(&text)?;
    Ok(if report.run_works { 0 } else { STATUS_RUN_FAILS })
}

fn syscalls(as_json: bool) -> Result<u8, Failure> {
    let text = match as_json {
        true => json(&syscalls_json()),
        false => written(|text| syscall_table::write_text(text)),
    };
    print(&text)?;
    Ok(0)
}

fn syscalls_json() -> serde_json::Value {
    let rows = syscall_table::ROWS.iter().map(|row| {
        let class = format!("{:?}", row.class).to_lowercase();
        serde_json::json!({ "nr": row.nr, "name": row.name, "class": class, "op": format!("{:?}", row.op), "why": row.why })
    });
    rows.collect()
}

fn json(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// Writing to a string does not fail.
fn written(write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    let _ = write(&mut text);
    text
}

/// What only `speculator try` needs.
fn layer_over_root() -> Need {
    let found = match rustix::process::geteuid().is_root() {
        true => layer::root_can_have_a_layer().map_err(|error| plain(&error)),
        false => Err("you are not root".to_owned()),
    };
    let advice = "try as root, with overlayfs in the kernel; a container's root needs file handles (nfs_export=on)";
    Need {
        name: "a layer over /",
        is_there: found.is_ok(),
        only_limits: false,
        advice: found.is_err().then_some(advice),
        detail: found.err().unwrap_or_else(|| "works (tried)".to_owned()),
    }
}

fn text(report: &Report, needs: &[Need], layer: &Need) -> String {
    written(|text| {
        report.here.iter().try_for_each(|here| write_here(text, here))?;
        writeln!(text, "This machine")?;
        report.findings.iter().try_for_each(|finding| write_finding(text, finding))?;
        writeln!(text, "\nFile systems (durable before observed / ordered)")?;
        report
            .file_systems
            .iter()
            .filter(|found| is_worth_telling(found))
            .try_for_each(|found| write_promises(text, found))?;
        write_hidden(text, report)?;
        write_advice(text, report)?;
        writeln!(text, "\nFor speculator try (and loop devices, e2fsprogs)")?;
        write_need(text, layer)?;
        writeln!(text, "\nFor speculator mount (BlueFS)")?;
        needs.iter().try_for_each(|need| write_need(text, need))?;
        writeln!(text, "\nspeculator run {} here.", if report.run_works { "works" } else { "does not work" })
    })
}

/// Where the user stands, and what to do about it.
fn write_here(text: &mut String, here: &Promises) -> fmt::Result {
    let of = &here.file_system;
    let directory = std::env::current_dir().unwrap_or_default();
    writeln!(text, "Here ({})", directory.display())?;
    writeln!(text, "  {} ({} on {}): {}", of.class.name(), of.fs_type, of.mount_point.display(), of.reason)?;
    let advice = here.advice.unwrap_or(match of.class {
        Class::Ordered => "nothing to do: fsync returns at once, and what is shown is durable",
        _ => "nothing is stored here; work on a volume (speculator volume create, run --volume)",
    });
    writeln!(text, "  -> {advice}\n")
}

fn write_finding(text: &mut String, finding: &Finding) -> fmt::Result {
    let status = match finding.status {
        Status::Ok => "ok",
        Status::Limited => "limited",
        Status::Missing => "missing",
    };
    writeln!(text, "  {status:<8} {:<24} {}", finding.name, finding.detail)?;
    match finding.advice {
        Some(advice) => writeln!(text, "  {:8} {:<24} -> {advice}", "", ""),
        None => Ok(()),
    }
}

fn write_need(text: &mut String, need: &Need) -> fmt::Result {
    let status = match (need.is_there, need.only_limits) {
        (true, _) => "ok",
        (false, true) => "limited",
        (false, false) => "missing",
    };
    writeln!(text, "  {status:<8} {:<24} {}", need.name, need.detail)?;
    match need.advice {
        Some(advice) => writeln!(text, "  {:8} {:<24} -> {advice}", "", ""),
        None => Ok(()),
    }
}

/// Interfaces to the kernel are many and promise nothing.
fn is_worth_telling(found: &Promises) -> bool {
    found.file_system.class != Class::Pseudo
}

fn write_promises(text: &mut String, found: &Promises) -> fmt::Result {
    let promise = |promise| match promise {
        Promise::Kept => "yes",
        Promise::NotKept => "no",
        Promise::NothingToKeep => "-",
    };
    let both = format!("{}/{}", promise(found.durable_before_observed), promise(found.ordered));
    let of = &found.file_system;
    writeln!(text, "  {both:<8} {:<9} {:<8} {}: {}", of.class.name(), of.fs_type, of.mount_point.display(), of.reason)
}

fn write_hidden(text: &mut String, report: &Report) -> fmt::Result {
    match report.file_systems.iter().filter(|found| !is_worth_telling(found)).count() {
        0 => Ok(()),
        count => writeln!(text, "  and {count} interfaces to the kernel (--json tells them all)"),
    }
}

/// What to do, once for each class that is there.
fn write_advice(text: &mut String, report: &Report) -> fmt::Result {
    let classes = [Class::Durable, Class::Memory, Class::Outside];
    let there = |class: &Class| report.file_systems.iter().any(|found| found.file_system.class == *class);
    for class in classes.iter().filter(|class| there(class)) {
        if let Some(advice) = class.what_to_do() {
            writeln!(text, "  {} -> {advice}", class.name())?;
        }
    }
    Ok(())
}
