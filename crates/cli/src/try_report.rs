//! What a try did, for people on stderr and for programs as JSON.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use layer::{Aspect, Change, Changes, Kind, LeftRunning, Ran, Reached, Stream, Verdict, What};
use serde::Serialize;
use similar::TextDiff;

use crate::error::one_line;

/// The value of `--report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportTarget {
    /// Nothing but what was decided.
    None,
    /// For programs, into a file, and for people on stderr.
    Json(PathBuf),
}

impl FromStr for ReportTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ReportTarget, &'static str> {
        match text.split_once(':') {
            None if text == "none" => Ok(ReportTarget::None),
            Some(("json", file)) if !file.is_empty() => Ok(ReportTarget::Json(file.into())),
            _ => Err("use none or json:FILE"),
        }
    }
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything stays.
    Kept,
    /// Everything is as it was, for this reason.
    Undone(&'static str),
}

const FILES_MAX: usize = 40;
const PRINTED_MAX: usize = 2000;
const DIFF_BYTES_MAX: u64 = 1 << 20;

/// Everything, on stderr.
pub fn tell(ran: &Ran, with_diff: bool, every_file: bool) {
    eprintln!("speculator: COMMAND ended with status {}; {}", ran.status, count(&ran.changes));
    if with_diff {
        tell_diff(&ran.changes);
    } else {
        tell_files(&ran.changes, every_file);
    }
    for (path, why) in &ran.changes.conflicts {
        eprintln!("  ! {}: {why} meanwhile", shown(path));
    }
    for process in &ran.left {
        eprintln!("  left running, and ended: {} ({})", one_line(&process.command), process.pid);
    }
    for reached in &ran.reached {
        eprintln!("  {}", told(reached));
    }
    for (path, why) in &ran.read_only {
        eprintln!("  {} could only be read: {why}", shown(path));
    }
    tell_printed(ran);
}

fn told(reached: &Reached) -> String {
    let came = match reached.verdict {
        Verdict::Refused => "was refused",
        Verdict::Allowed => "did, which cannot be undone:",
    };
    let times = if reached.times > 1 { format!(" ({} times)", reached.times) } else { String::new() };
    match reached.verdict {
        Verdict::Refused => {
            format!("{} tried to {} and {came}{times}", one_line(&reached.program), one_line(&reached.what))
        }
        Verdict::Allowed => format!("{} {came} {}{times}", one_line(&reached.program), one_line(&reached.what)),
    }
}

fn tell_printed(ran: &Ran) {
    let (out, err) = (ran.printed.len(Stream::Out), ran.printed.len(Stream::Err));
    if out + err == 0 {
        return;
    }
    eprintln!("  it printed {out} bytes on stdout and {err} on stderr:");
    let beginning = ran.printed.beginning(PRINTED_MAX).unwrap_or_default();
    for line in String::from_utf8_lossy(&beginning).lines() {
        eprintln!("  | {}", one_line(&line.replace('\t', "    ")));
    }
    if out + err > PRINTED_MAX as u64 {
        eprintln!("  | (and {} bytes more)", out + err - PRINTED_MAX as u64);
    }
}

/// `3 files created, 1 changed, none removed`.
pub fn count(changes: &Changes) -> String {
    let of = |matches: fn(&What) -> bool| changes.list.iter().filter(|change| matches(&change.what)).count();
    let counts = [
        (of(|what| *what == What::Created), "created"),
        (of(|what| *what == What::Changed), "changed"),
        (of(|what| *what == What::Removed), "removed"),
        (of(|what| matches!(what, What::Renamed(_))), "renamed"),
    ];
    let told: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if told.is_empty() {
        "no file changed".to_owned()
    } else {
        told.join(", ")
    }
}

/// One line for each file; of a directory that was made or removed with all that is in it, one line, unless every file is wanted.
pub fn tell_files(changes: &Changes, every: bool) {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(change) = changes.list.get(at) {
        at += 1;
        let mut line = line_of(change);
        if !every && change.kind == Kind::Directory && matches!(change.what, What::Created | What::Removed) {
            let inside = changes.list[at..]
                .iter()
                .take_while(|other| other.path.starts_with(&change.path) && other.what == change.what)
                .collect::<Vec<_>>();
            if !inside.is_empty() {
                let bytes: u64 = inside.iter().filter_map(|other| other.size_after.or(other.size_before)).sum();
                let _ = write!(line, " with {} in it, {}", inside.len(), size(bytes));
                at += inside.len();
            }
        }
        lines.push(line);
    }
    let shown = if every { lines.len() } else { lines.len().min(FILES_MAX) };
    for line in &lines[..shown] {
        eprintln!("  {line}");
    }
    if shown < lines.len() {
        eprintln!("  … and {} more; -v lists everything", lines.len() - shown);
    }
}

fn line_of(change: &Change) -> String {
    let path = shown(&change.path) + if change.kind == Kind::Directory { "/" } else { "" };
    let sizes = match (change.size_before, change.size_after) {
        _ if change.kind != Kind::File => String::new(),
        (Some(before), Some(after)) if before != after => format!("  {} → {}", size(before), size(after)),
        (_, Some(bytes)) | (Some(bytes), None) => format!("  {}", size(bytes)),
        (None, None) => String::new(),
    };
    let aspects = || {
        let names: Vec<&str> = change.aspects.iter().map(|aspect| name_of(*aspect)).collect();
        if names.is_empty() || names == ["contents", "time"] {
            String::new()
        } else {
            format!("  ({})", names.join(", "))
        }
    };
    match &change.what {
        What::Created => format!("+ {path}{sizes}{}", kind_name(change.kind)),
        What::Removed => format!("- {path}{sizes}{}", kind_name(change.kind)),
        What::Changed => format!("~ {path}{sizes}{}", aspects()),
        What::Renamed(from) => format!("~ {} → {path}{}", shown(from), aspects()),
    }
}

fn name_of(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Contents => "contents",
        Aspect::Mode => "mode",
        Aspect::Owner => "owner",
        Aspect::Times => "time",
        Aspect::Attributes => "attributes",
        Aspect::Links => "hard link",
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File | Kind::Directory => "",
        Kind::Symlink => "  (symbolic link)",
        Kind::Fifo => "  (FIFO)",
        Kind::Socket => "  (socket)",
        Kind::Device => "  (device)",
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes}B"),
        _ => format!("{amount:.1}{}", UNITS[unit]),
    }
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// A unified diff of all text files that were made, changed or removed; a line for everything else.
pub fn tell_diff(changes: &Changes) {
    for change in &changes.list {
        eprintln!("  {}", line_of(change));
        if let Some(text) = diff_of(change) {
            eprint!("{text}");
        }
    }
}

fn diff_of(change: &Change) -> Option<String> {
    if change.kind != Kind::File {
        return None;
    }
    let before = if change.what == What::Created { None } else { change.before.as_deref() };
    let (Some(old), Some(new)) = (text_of(before), text_of(change.after.as_deref())) else {
        return Some("    (not text, or too long)\n".to_owned());
    };
    if old == new {
        return None;
    }
    let name = shown(&change.path);
    let old_name = if before.is_some() { name.as_str() } else { "/dev/null" };
    let new_name = if change.after.is_some() { name.as_str() } else { "/dev/null" };
    let diff = TextDiff::from_lines(&old, &new);
    let text = diff.unified_diff().header(old_name, new_name).to_string();
    // A file can hold escape sequences; a report cannot.
    Some(text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '?' } else { c }).collect())
}

/// What a file holds, if it is text; of no file, nothing.
fn text_of(path: Option<&Path>) -> Option<String> {
    let Some(path) = path else { return Some(String::new()) };
    if path.metadata().ok()?.len() > DIFF_BYTES_MAX {
        return None;
    }
    String::from_utf8(std::fs::read(path).ok()?).ok().filter(|text| !text.contains('\0'))
}

#[derive(Serialize)]
struct Report<'a> {
    decision: &'static str,
    reason: Option<&'static str>,
    status: u8,
    keep_if_status: Option<u8>,
    changes: Vec<ChangeReport<'a>>,
    conflicts: Vec<String>,
    left_running: &'a [LeftRunning],
    reached: &'a [Reached],
    read_only: Vec<String>,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

#[derive(Serialize)]
struct ChangeReport<'a> {
    path: String,
    /// Only where the path is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<Vec<u8>>,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    kind: Kind,
    size_before: Option<u64>,
    size_after: Option<u64>,
    aspects: &'a [Aspect],
}

/// Everything, for programs.
pub fn json(ran: &Ran, decision: Decision) -> String {
    let (decision, reason) = match decision {
        Decision::Kept => ("kept", None),
        Decision::Undone(why) => ("undone", Some(why)),
    };
    let report = Report {
        decision,
        reason,
        status: ran.status,
        keep_if_status: ran.decided,
        changes: ran.changes.list.iter().map(change_report).collect(),
        conflicts: ran.changes.conflicts.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect(),
        left_running: &ran.left,
        reached: &ran.reached,
        read_only: ran.read_only.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect(),
        stdout_bytes: ran.printed.len(Stream::Out),
        stderr_bytes: ran.printed.len(Stream::Err),
    };
    serde_json::to_string_pretty(&report).expect("numbers and strings")
}

fn change_report(change: &Change) -> ChangeReport<'_> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = change.path.as_os_str().as_bytes();
    let (word, from) = match &change.what {
        What::Created => ("created", None),
        What::Changed => ("changed", None),
        What::Removed => ("removed", None),
        What::Renamed(from) => ("renamed", Some(from.to_string_lossy().into_owned())),
    };
    ChangeReport {
        path: change.path.to_string_lossy().into_owned(),
        path_bytes: std::str::from_utf8(bytes).is_err().then(|| bytes.to_owned()),
        change: word,
        from,
        kind: change.kind,
        size_before: change.size_before,
        size_after: change.size_after,
        aspects: &change.aspects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!("none".parse(), Ok(ReportTarget::None));
        assert_eq!("json:a:b".parse(), Ok(ReportTarget::Json("a:b".into())));
        for bad in ["", "text", "json", "json:"] {
            assert!(bad.parse::<ReportTarget>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size(0), "0B");
        assert_eq!(size(1023), "1023B");
        assert_eq!(size(1536), "1.5K");
        assert_eq!(size(5 << 30), "5.0G");
    }
}
