//! What a try did, for people on stderr and for programs as JSON.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use layer::{Aspect, Change, Changes, Kind, LeftRunning, Ran, Reached, Stream, Verdict, What};
use serde::Serialize;
use similar::TextDiff;

use crate::error::one_line;
use crate::stats::form_and_file;

/// The value of `--report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportTarget {
    /// Nothing but what was decided.
    None,
    /// For programs, into a file, and for people on stderr.
    Json(PathBuf),
}

impl ReportTarget {
    /// Reads the value.
    pub fn parse(text: OsString) -> Result<ReportTarget, &'static str> {
        match form_and_file(&text) {
            ("none", None) => Ok(ReportTarget::None),
            ("json", Some(file)) => Ok(ReportTarget::Json(file)),
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

/// Most lines about files, and about file systems that could only be read, unless all are wanted.
const FILES_MAX: usize = 40;
const READ_ONLY_MAX: usize = 3;
/// The last lines of what was printed that are shown, and how long they may be together.
const LINES_MAX: usize = 20;
const LINES_BYTES_MAX: usize = 8000;
/// Most of what was printed that the report for programs has: the last of it.
const PRINTED_MAX: u64 = 64 << 20;
const DIFF_BYTES_MAX: u64 = 1 << 20;

/// Everything, on stderr.
pub fn tell(ran: &Ran, with_diff: bool, every_file: bool) {
    tell!("speculator: COMMAND ended with status {}; {}", ran.status, count(&ran.changes));
    tell_printed(ran);
    if with_diff {
        tell_diff(&ran.changes);
    } else {
        tell_files(&ran.changes, every_file);
    }
    for (path, why) in &ran.changes.conflicts {
        tell!("  ! {}: {why} meanwhile", shown(path));
    }
    for process in &ran.left {
        tell!("  left running, and ended: {} ({})", one_line(&process.command), process.pid);
    }
    for reached in &ran.reached {
        tell!("  {}", told(reached));
    }
    for line in read_only_lines(&ran.read_only, every_file) {
        tell!("  {line}");
    }
}

/// Most of them have nothing to do with COMMAND: many are told of in one line.
fn read_only_lines(read_only: &[(PathBuf, &str)], every: bool) -> Vec<String> {
    if !every && read_only.len() > READ_ONLY_MAX {
        return vec![format!("{} file systems could only be read; -v lists them", read_only.len())];
    }
    read_only.iter().map(|(path, why)| format!("{} could only be read: {why}", shown(path))).collect()
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

/// How it ended is mostly what matters: the last lines.
fn tell_printed(ran: &Ran) {
    let (out, err) = (ran.printed.len(Stream::Out), ran.printed.len(Stream::Err));
    if out + err == 0 {
        return;
    }
    let lines = last_lines(ran);
    let which = if shows_all(ran) { String::new() } else { format!(", the last {} lines", lines.len()) };
    tell!("  it printed {out} bytes on stdout and {err} on stderr{which}:");
    lines.iter().for_each(|line| tell_line(line));
}

fn tell_line(line: &str) {
    tell!("  | {}", one_line(&line.replace('\t', "    ")));
}

fn last_lines(ran: &Ran) -> Vec<String> {
    let ending = ran.printed.ending(LINES_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&ending);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].iter().map(|&line| line.to_owned()).collect()
}

/// Whether the report shows everything that was printed.
pub fn shows_all(ran: &Ran) -> bool {
    let bytes = ran.printed.len(Stream::Out) + ran.printed.len(Stream::Err);
    let ending = ran.printed.ending(LINES_BYTES_MAX).unwrap_or_default();
    ran.printed.failed().is_none()
        && bytes <= LINES_BYTES_MAX as u64
        && String::from_utf8_lossy(&ending).lines().count() <= LINES_MAX
}

/// Everything that was printed.
pub fn tell_output(ran: &Ran) {
    let pieces = ran.printed.pieces(0).unwrap_or_default();
    let text: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
    String::from_utf8_lossy(&text).lines().for_each(tell_line);
}

/// `3 created, 1 changed`.
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

/// One line for each file, those of the working directory first; of a directory that was made or removed with all
/// that is in it, and of a cache, one line, unless every file is wanted.
pub fn tell_files(changes: &Changes, every: bool) {
    let lines = lines_of(&changes.list, &std::env::current_dir().unwrap_or_default(), every);
    let shown = if every { lines.len() } else { lines.len().min(FILES_MAX) };
    for line in &lines[..shown] {
        tell!("  {line}");
    }
    if shown < lines.len() {
        tell!("  … and {} more; -v lists everything", lines.len() - shown);
    }
}

fn lines_of(list: &[Change], here: &Path, every: bool) -> Vec<String> {
    let (near, far): (Vec<&Change>, Vec<&Change>) = list.iter().partition(|change| change.path.starts_with(here));
    [near, far].iter().flat_map(|part| if every { each_line(part) } else { folded_lines(part) }).collect()
}

fn each_line(list: &[&Change]) -> Vec<String> {
    list.iter().map(|change| line_of(change)).collect()
}

fn folded_lines(list: &[&Change]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(change) = list.get(at) {
        let (line, len) = folded(change, &list[at..]);
        lines.push(line);
        at += len;
    }
    lines
}

/// The line that begins with `change`, and of how many changes it tells.
fn folded(change: &Change, list: &[&Change]) -> (String, usize) {
    if let Some(cache) = cache_of(&change.path) {
        let inside = list.iter().take_while(|other| other.path.starts_with(cache)).count();
        if inside > 1 {
            let bytes: u64 = list[..inside].iter().filter_map(|other| other.size_after).sum();
            return (format!("~ {}/  a cache, {inside} changes, {}", shown(cache), size(bytes)), inside);
        }
    }
    let mut line = line_of(change);
    let mut inside = 0;
    if change.kind == Kind::Directory && matches!(change.what, What::Created | What::Removed) {
        let is_inside = |other: &&&Change| other.path.starts_with(&change.path) && other.what == change.what;
        let others: Vec<_> = list[1..].iter().take_while(is_inside).collect();
        inside = others.len();
        if inside > 0 {
            let bytes: u64 = others.iter().filter_map(|other| other.size_after.or(other.size_before)).sum();
            let _ = write!(line, " with {inside} in it, {}", size(bytes));
        }
    }
    (line, inside + 1)
}

/// Directories that hold only what can be made or fetched again, wherever they are.
const CACHES: &[&str] = &[".cache", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".npm", ".ccache"];
/// The same, by their whole path.
const CACHES_AT: &[&str] = &["/var/cache", "/var/lib/apt/lists"];

/// The outermost cache that a path is, or is in.
fn cache_of(path: &Path) -> Option<&Path> {
    let is_cache = |dir: &&Path| {
        CACHES_AT.iter().any(|cache| *dir == Path::new(cache))
            || dir.file_name().is_some_and(|name| CACHES.iter().any(|cache| name == *cache))
    };
    path.ancestors().filter(is_cache).last()
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
        tell!("  {}", line_of(change));
        if let Some(text) = diff_of(change) {
            crate::tell::text(&text);
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
    printed: Vec<PrintedReport>,
}

/// A piece of what was printed.
#[derive(Serialize)]
struct PrintedReport {
    stream: &'static str,
    text: String,
    /// Only where that is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    from_bytes: Option<Vec<u8>>,
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
        printed: printed_report(ran),
    };
    serde_json::to_string_pretty(&report).expect("numbers and strings")
}

fn printed_report(ran: &Ran) -> Vec<PrintedReport> {
    let total = ran.printed.len(Stream::Out) + ran.printed.len(Stream::Err);
    let pieces = ran.printed.pieces(total.saturating_sub(PRINTED_MAX)).unwrap_or_default();
    let piece = |(stream, bytes): (Stream, Vec<u8>)| PrintedReport {
        stream: if stream == Stream::Out { "stdout" } else { "stderr" },
        text: String::from_utf8_lossy(&bytes).into_owned(),
        bytes: std::str::from_utf8(&bytes).is_err().then_some(bytes),
    };
    pieces.into_iter().map(piece).collect()
}

fn change_report(change: &Change) -> ChangeReport<'_> {
    let (word, from) = match &change.what {
        What::Created => ("created", None),
        What::Changed => ("changed", None),
        What::Removed => ("removed", None),
        What::Renamed(from) => ("renamed", Some(from)),
    };
    ChangeReport {
        path: change.path.to_string_lossy().into_owned(),
        path_bytes: bytes_of(&change.path),
        change: word,
        from: from.map(|from| from.to_string_lossy().into_owned()),
        from_bytes: from.and_then(|from| bytes_of(from)),
        kind: change.kind,
        size_before: change.size_before,
        size_after: change.size_after,
        aspects: &change.aspects,
    }
}

/// Of a path that is not text.
fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    path.to_str().is_none().then(|| path.as_os_str().as_bytes().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_file_systems_that_could_only_be_read_are_one_line_unless_all_are_wanted() {
        let found = |count: usize| vec![(PathBuf::from("/m\n"), "why"); count];
        assert_eq!(read_only_lines(&found(1), false), ["/m? could only be read: why"]);
        assert_eq!(read_only_lines(&found(READ_ONLY_MAX), false).len(), READ_ONLY_MAX);
        let many = READ_ONLY_MAX + 1;
        assert_eq!(read_only_lines(&found(many), false), ["4 file systems could only be read; -v lists them"]);
        assert_eq!(read_only_lines(&found(many), true).len(), many);
    }

    #[test]
    fn targets() {
        assert_eq!(ReportTarget::parse("none".into()), Ok(ReportTarget::None));
        assert_eq!(ReportTarget::parse("json:a:b".into()), Ok(ReportTarget::Json("a:b".into())));
        for bad in ["", "text", "json", "json:"] {
            assert!(ReportTarget::parse(bad.into()).is_err(), "{bad}");
        }
    }

    fn created(path: &str, kind: Kind) -> Change {
        Change {
            path: path.into(),
            what: What::Created,
            kind,
            size_before: None,
            size_after: Some(10),
            aspects: Vec::new(),
            before: None,
            after: None,
        }
    }

    #[test]
    fn the_working_directory_comes_first_and_caches_are_one_line() {
        let list = [
            created("/etc/new", Kind::File),
            created("/home/a/.cache/pip/x/y", Kind::File),
            created("/home/a/.cache/pip/z", Kind::File),
            created("/home/a/work/dir", Kind::Directory),
            created("/home/a/work/dir/f", Kind::File),
            created("/home/a/work/lib/__pycache__/m.pyc", Kind::File),
        ];
        let lines = lines_of(&list, Path::new("/home/a/work"), false);
        let expected = [
            "+ /home/a/work/dir/ with 1 in it, 10B",
            "+ /home/a/work/lib/__pycache__/m.pyc  10B",
            "+ /etc/new  10B",
            "~ /home/a/.cache/  a cache, 2 changes, 20B",
        ];
        assert_eq!(lines, expected);
        assert_eq!(lines_of(&list, Path::new("/home/a/work"), true).len(), list.len());
    }

    #[test]
    fn caches() {
        assert_eq!(cache_of(Path::new("/a/.cache/b/__pycache__/c")), Some(Path::new("/a/.cache")));
        assert_eq!(cache_of(Path::new("/var/cache/apt/x")), Some(Path::new("/var/cache")));
        assert_eq!(cache_of(Path::new("/a/cache/x")), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(size(0), "0B");
        assert_eq!(size(1023), "1023B");
        assert_eq!(size(1536), "1.5K");
        assert_eq!(size(5 << 30), "5.0G");
    }
}
