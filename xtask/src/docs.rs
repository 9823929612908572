//! `docs`: writes `docs/SYSCALLS.md`, and checks that what the documents name exists: files behind links, decisions,
//! paths, modules with their items, and the folders of full speculation; and that no merge has left a conflict. A unit
//! test makes the same check.
//!
//! A name is what stands between backticks outside of blocks of code. `a::{b, c::d}` and `dir/{x, y}_*.c` are several.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::shell::{cargo, repository};

/// Files that are not of this project.
const FOREIGN_FILES: [&str; 4] = ["asm/unistd_64.h", "conftest.c", "fs/fuse/readdir.c", "ipc/shm.c"];
/// Words of others: of the kernel, of libc, and of programs.
const FOREIGN_WORDS: [&str; 3] = ["data_err", "io_uring", "nfs_export"];
/// Types of others.
const FOREIGN_TYPES: [&str; 1] = ["Durability"];
/// Endings of names that claim to be a file of this project.
const ENDINGS: [&str; 6] = ["rs", "c", "go", "sh", "md", "h"];
/// Documents that say how it is now. Each word of them with `_` is one of the sources.
const CURRENT: [&str; 4] = ["README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/PITFALLS.md"];
const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
/// What has a row for each of its folders.
const AHEAD: &str = "crates/supervisor/src/ahead";

/// Writes the table of system calls, and checks all documents.
pub fn run() -> Result<(), String> {
    let text = cargo(&["run", "--quiet", "-p", "syscall-table", "--example", "syscalls_md"]).output()?;
    let file = repository().join("docs/SYSCALLS.md");
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    println!("wrote {}", file.display());
    let problems = problems(&repository()).map_err(|error| format!("cannot read the documents: {error}"))?;
    match problems.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("these documents have something wrong, or name what is not there:\n{}", problems.join("\n")))
        }
    }
}

/// What is named and not there, a line each.
fn problems(root: &Path) -> io::Result<Vec<String>> {
    let sources = Sources::read(root)?;
    let mut problems = Vec::new();
    for name in sources.files.iter().filter(|name| is_document(name)) {
        let text = fs::read_to_string(root.join(name))?;
        let mut tell = |line: usize, what: String| problems.push(format!("{name}:{line}: {what}"));
        conflicts(&text).into_iter().for_each(|line| tell(line, "a conflict of a merge".to_owned()));
        links(&text, name, &sources, &mut tell);
        for (line, span) in spans(&text) {
            if let Some(missing) = sources.misses(&span, CURRENT.contains(&name.as_str())) {
                tell(line, format!("`{span}`: there is no {missing}"));
            }
        }
        if name == ARCHITECTURE {
            code_map(&text, &sources, &mut tell);
        }
        if let Some(number) = name.strip_prefix("docs/decisions/").and_then(|name| name.get(..4)) {
            if !text.starts_with(&format!("# {number}: ")) {
                tell(1, format!("it does not begin with its number, {number}"));
            }
        }
    }
    Ok(problems)
}

/// Lines at which git has left a conflict.
fn conflicts(text: &str) -> Vec<usize> {
    let is_mark = |line: &str| line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ");
    text.lines().zip(1..).filter(|(line, _)| is_mark(line)).map(|(_, number)| number).collect()
}

fn is_document(name: &str) -> bool {
    name.ends_with(".md") && (!name.contains('/') || name.starts_with("docs/")) && name != "docs/SYSCALLS.md"
}

/// Links inside the repository, and decisions that are named by their number.
fn links(text: &str, document: &str, sources: &Sources, tell: &mut impl FnMut(usize, String)) {
    let dir = Path::new(document).parent().unwrap_or(Path::new(""));
    for (at, _) in text.match_indices("](") {
        let target = &text[at + 2..];
        let target: String = target[..target.find(')').unwrap_or(0)].split_whitespace().collect();
        let line = line_of(text, at);
        let file = target.split('#').next().unwrap_or_default();
        if target.contains("://") || file.is_empty() {
            continue;
        }
        if !sources.has(&normal(&dir.join(file))) {
            tell(line, format!("a link leads to {target}, which is not there"));
        }
        let label = &text[text[..at].rfind('[').map_or(at, |begin| begin + 1)..at];
        let number = Path::new(file).file_name().and_then(|name| name.to_str()?.get(..4)).unwrap_or_default();
        if is_number(label) && label != number {
            tell(line, format!("the link {label} leads to {target}"));
        }
    }
    for (at, word) in text.match_indices("decisions/") {
        let number = text.get(at + word.len()..).and_then(|rest| rest.get(..4)).unwrap_or_default();
        if is_number(number) && !sources.has_decision(number) {
            tell(line_of(text, at), format!("there is no decision {number}"));
        }
    }
}

fn is_number(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Without `.` and `..`.
fn normal(path: &Path) -> String {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal.to_string_lossy().into_owned()
}

/// What stands between backticks, in one line each, with the line where it begins.
fn spans(text: &str) -> Vec<(usize, String)> {
    let (mut spans, mut is_block, mut open) = (Vec::new(), false, None::<(usize, String)>);
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
            continue;
        }
        // A paragraph ends what was never closed.
        if is_block || line.trim().is_empty() {
            open = None;
            continue;
        }
        for (part, piece) in line.split('`').enumerate() {
            if part > 0 {
                match open.take() {
                    Some(span) => spans.push(span),
                    None => open = Some((at + 1, String::new())),
                }
            }
            if let Some((_, span)) = &mut open {
                span.push_str(piece.trim_start_matches(' '));
            }
        }
        if let Some((_, span)) = &mut open {
            span.push(' ');
        }
    }
    spans.into_iter().map(|(line, span)| (line, span.trim().to_owned())).collect()
}

/// All that a name with braces stands for.
fn expanded(name: &str) -> Vec<String> {
    let Some(begin) = name.find('{') else { return vec![name.to_owned()] };
    let (mut depth, mut parts, mut from) = (0, Vec::new(), begin + 1);
    for (at, byte) in name.bytes().enumerate().skip(begin) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 1 => {
                parts.push(&name[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            parts.push(&name[from..at]);
            let all = parts.iter().map(|part| format!("{}{}{}", &name[..begin], part.trim(), &name[at + 1..]));
            return all.flat_map(|one| expanded(&one)).collect();
        }
    }
    vec![name.to_owned()]
}

/// The crates that the code map tells of, and the modules in its table.
fn code_map(text: &str, sources: &Sources, tell: &mut impl FnMut(usize, String)) {
    for dir in sources.crates.values().filter(|dir| dir.starts_with("crates/") || dir.starts_with("tests/")) {
        let name = dir.rsplit('/').next().unwrap_or_default();
        if !text.contains(&format!("**`{name}`**")) && !text.contains(&format!("**`{dir}`**")) {
            tell(1, format!("it does not tell of {dir}"));
        }
    }
    let mut folders: BTreeSet<String> = sources.children(AHEAD);
    for (at, line) in text.lines().enumerate() {
        let Some((folder, told)) = line.strip_prefix("| `").and_then(|rest| rest.split_once("` | ")) else { continue };
        if !folders.remove(folder) {
            continue;
        }
        let told: BTreeSet<String> = spans(told).into_iter().map(|(_, span)| span).collect();
        let is_there = |name: &String| sources.has_below(&format!("{AHEAD}/{folder}"), name);
        for name in told.iter().filter(|name| !is_there(name)) {
            tell(at + 1, format!("there is no {name} in {folder}"));
        }
        for name in sources.children(&format!("{AHEAD}/{folder}")).difference(&told) {
            tell(at + 1, format!("the row of {folder} does not tell of {name}"));
        }
    }
    for folder in folders {
        tell(1, format!("no row tells of {AHEAD}/{folder}"));
    }
}

/// All files of the repository, and what the sources define.
struct Sources {
    files: BTreeSet<String>,
    dirs: BTreeSet<String>,
    /// By their names as Rust has them, the directories of the crates.
    crates: BTreeMap<String, String>,
    /// Those that are sources.
    sources: Vec<String>,
    /// What they define, each with the sources that do, by their place in the list.
    definitions: HashMap<String, Vec<usize>>,
    /// All their words, each with the sources that have it.
    words: HashMap<String, Vec<usize>>,
    /// Crates of others.
    foreign: BTreeSet<String>,
}

impl Sources {
    fn read(root: &Path) -> io::Result<Sources> {
        let (mut files, mut dirs) = (BTreeSet::new(), BTreeSet::new());
        list(root, "", &mut files, &mut dirs)?;
        let name_of = |dir: &str| dir.rsplit('/').next().unwrap_or_default().replace('-', "_");
        let crates = files.iter().filter_map(|file| file.strip_suffix("/Cargo.toml"));
        let crates = crates.map(|dir| (name_of(dir), dir.to_owned())).collect();
        let lock = fs::read_to_string(root.join("Cargo.lock"))?;
        let names = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let foreign = names.map(|name| name.replace('-', "_")).chain(["std", "core"].map(str::to_owned)).collect();
        let mut sources = Sources {
            files,
            dirs,
            crates,
            sources: Vec::new(),
            definitions: HashMap::new(),
            words: HashMap::new(),
            foreign,
        };
        let is_source =
            |file: &&String| [".rs", ".c", ".h", ".go", ".toml", ".txt"].iter().any(|end| file.ends_with(end));
        let read: Vec<String> = sources.files.iter().filter(is_source).cloned().collect();
        for (at, file) in read.iter().enumerate() {
            sources.note(at, &fs::read_to_string(root.join(file))?);
        }
        sources.sources = read;
        Ok(sources)
    }

    fn note(&mut self, source: usize, text: &str) {
        const DEFINE: [&str; 10] =
            ["fn", "struct", "enum", "union", "trait", "const", "static", "type", "mod", "macro_rules"];
        let (mut before, mut seen) = ("", HashSet::new());
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()) {
            if DEFINE.contains(&before) {
                self.definitions.entry(word.to_owned()).or_default().push(source);
            }
            seen.insert(word);
            before = word;
        }
        for word in seen {
            self.words.entry(word.to_owned()).or_default().push(source);
        }
    }

    fn has(&self, path: &str) -> bool {
        self.files.contains(path) || self.dirs.contains(path)
    }

    fn has_decision(&self, number: &str) -> bool {
        let prefix = format!("docs/decisions/{number}-");
        self.files.range(prefix.clone()..).next().is_some_and(|file| file.starts_with(&prefix))
    }

    /// Modules of a directory, without those that every one has.
    fn children(&self, dir: &str) -> BTreeSet<String> {
        let below = format!("{dir}/");
        let paths = self.files.iter().filter_map(|file| file.strip_prefix(&below)?.strip_suffix(".rs"));
        let names = paths.filter_map(|path| path.split('/').next());
        names.filter(|name| !["mod", "tests"].contains(name)).map(str::to_owned).collect()
    }

    /// Whether a module of this name is anywhere in a directory.
    fn has_below(&self, dir: &str, name: &str) -> bool {
        let is_it = |path: &String| {
            let path = path.strip_suffix(".rs").unwrap_or(path);
            path == format!("{dir}/{name}") || path.starts_with(dir) && path.ends_with(&format!("/{name}"))
        };
        self.files.iter().chain(&self.dirs).any(is_it) || self.files.contains(&format!("{dir}.rs"))
    }

    /// What of a name is not there, if it claims to be something of this project.
    fn misses(&self, span: &str, is_current: bool) -> Option<String> {
        let is_name = |extra: &str| span.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c));
        let has_spaces = expanded(span).iter().any(|one| one.contains(' '));
        if is_name("_:{}, ") && span.contains("::") && !has_spaces {
            return expanded(span).into_iter().find(|one| !self.has_item(one));
        }
        if is_name("_-./{}, *") && !has_spaces && (span.contains('/') || span.contains('.')) {
            return expanded(span).into_iter().find(|one| self.is_claimed(one) && !self.has_path(one));
        }
        let is_word = is_current && is_name("_") && span.trim_matches('_').contains('_');
        (is_word && !self.has_word(span)).then(|| span.to_owned())
    }

    /// A name of a crate or of a folder of the repository is claimed to have what is named behind it.
    fn is_claimed(&self, path: &str) -> bool {
        let first = path.split('/').next().unwrap_or_default();
        let is_folder =
            path.contains('/') && (self.dirs.contains(first) || self.crates.contains_key(&first.replace('-', "_")));
        let has_ending = path.rsplit_once('.').is_some_and(|(name, end)| !name.is_empty() && ENDINGS.contains(&end));
        (is_folder || has_ending)
            // What is made is not there before.
            && !["/", "target/", "bench-results/"].iter().any(|begin| path.starts_with(begin))
            && !FOREIGN_FILES.contains(&path)
    }

    /// A path of the repository, or the end of one.
    fn has_path(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let end = format!("/{path}");
        self.files.iter().chain(&self.dirs).any(|found| match path.contains('*') {
            false => found == path || found.ends_with(&end),
            true => (0..found.len())
                .filter(|at| *at == 0 || found.as_bytes()[at - 1] == b'/')
                .any(|at| fits(&found[at..], path)),
        })
    }

    fn has_word(&self, word: &str) -> bool {
        let stem = |file: &String| Path::new(file).file_stem().is_some_and(|stem| stem == word);
        self.words.contains_key(word) || FOREIGN_WORDS.contains(&word) || self.files.iter().any(stem)
    }

    /// `crate::module::Item::Variant`, or the end of that.
    fn has_item(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
        let Some((first, rest)) = parts.split_first() else { return true };
        if FOREIGN_TYPES.contains(first) || self.foreign.contains(*first) && !self.crates.contains_key(*first) {
            return true;
        }
        if let Some(dir) = self.crates.get(*first) {
            if self.in_module(&format!("{dir}/src"), rest) || self.in_module(&format!("{dir}/tests"), rest) {
                return true;
            }
        }
        let named = |path: &String| {
            let path = path.strip_suffix(".rs").unwrap_or(path);
            path.ends_with(&format!("/{first}")).then(|| path.to_owned())
        };
        let modules: BTreeSet<String> = self.files.iter().chain(&self.dirs).filter_map(named).collect();
        let is_place = !modules.is_empty() || self.crates.contains_key(*first);
        // A module may stand within a file, beside one of that name elsewhere.
        let is_item = !is_place || rest.first().is_some_and(|next| next.starts_with(|c: char| c.is_ascii_uppercase()));
        modules.iter().any(|module| self.in_module(module, rest)) || is_item && self.in_item(&parts, |_| true)
    }

    /// Whether a module, given by its path without an ending, has this.
    fn in_module(&self, module: &str, parts: &[&str]) -> bool {
        let Some((first, rest)) = parts.split_first() else { return true };
        let child = format!("{module}/{first}");
        if self.files.contains(&format!("{child}.rs")) || self.dirs.contains(&child) {
            return self.in_module(&child, rest);
        }
        // What it has may stand in a file below and be shown here, and a macro may define it.
        let (below, own) = (format!("{module}/"), format!("{module}.rs"));
        let roots = ["lib.rs", "mod.rs", "main.rs"].map(|root| format!("{below}{root}"));
        let is_type = first.starts_with(|c: char| c.is_ascii_uppercase()) && rest.is_empty();
        let is_shown = |file: &String| self.with(&self.words, first).any(|found| found == file);
        is_type && roots.iter().chain([&own]).any(is_shown)
            || self.in_item(parts, |file| file.starts_with(&below) || *file == own)
    }

    /// The sources that have a word.
    fn with<'a>(&'a self, of: &'a HashMap<String, Vec<usize>>, word: &str) -> impl Iterator<Item = &'a String> {
        of.get(word).into_iter().flatten().map(|at| &self.sources[*at])
    }

    /// Something that is defined in one of these files, with what its crate has of that name: methods may stand apart.
    fn in_item(&self, parts: &[&str], is_one: impl Fn(&String) -> bool) -> bool {
        let Some((item, rest)) = parts.split_first() else { return false };
        // `crates/NAME/`, or `xtask/`.
        let crate_of = |file: &String| {
            let depth = if file.starts_with("crates/") || file.starts_with("tests/") { 2 } else { 1 };
            file.split_inclusive('/').take(depth).collect::<String>()
        };
        let has = |crate_of: &str, word: &str| self.with(&self.words, word).any(|file| file.starts_with(crate_of));
        let files = self.with(&self.definitions, item).filter(|file| is_one(file));
        files.map(crate_of).any(|of| rest.iter().all(|word| has(&of, word)))
    }
}

/// Whether a path is one that a pattern with `*` stands for; `*` is anything but a slash.
fn fits(path: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => path == pattern,
        Some((before, behind)) => path.strip_prefix(before).is_some_and(|rest| {
            let end = rest.find('/').unwrap_or(rest.len());
            (0..=end).filter(|at| rest.is_char_boundary(*at)).any(|at| fits(&rest[at..], behind))
        }),
    }
}

/// What is in the repository, but for what is made.
fn list(root: &Path, below: &str, files: &mut BTreeSet<String>, dirs: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            if !["target", ".git", "bench-results"].contains(&name.as_str()) {
                dirs.insert(path.clone());
                list(root, &path, files, dirs)?;
            }
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_documents_name_is_there() {
        let problems = problems(&repository()).expect("the documents");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// A merge was committed with them, in two documents.
    #[test]
    fn conflicts_are_found() {
        assert_eq!(conflicts("a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> d\n"), [2, 6]);
        assert!(conflicts("a heading\n=======\n").is_empty());
    }

    #[test]
    fn names_with_braces() {
        assert_eq!(expanded("a::{b, c::{d, e}}::f"), ["a::b::f", "a::c::d::f", "a::c::e::f"]);
        assert_eq!(expanded("x/{a,b}_*.c"), ["x/a_*.c", "x/b_*.c"]);
        assert_eq!(expanded("{"), ["{"]);
    }

    #[test]
    fn spans_of_code() {
        let text = "`a` and `b\nc`\n```\n`d`\n```\nnever `closed\n\n`e`";
        let expected = [(1, "a"), (1, "b c"), (8, "e")].map(|(line, span)| (line, span.to_owned()));
        assert_eq!(spans(text), expected);
    }

    #[test]
    fn what_is_not_there_is_found() {
        let sources = Sources::read(&repository()).expect("the repository");
        for there in [
            "xtask::docs::problems",
            "docs::{spans, expanded}",
            "Sources::files",
            "crates/{agent, cli}/src",
            "tests/programs/exec_*.c",
            "main.rs",
            "std::env::Nothing",
            "/nowhere/x.rs",
            "a sentence of words",
        ] {
            assert_eq!(sources.misses(there, true), None, "{there}");
        }
        // The words of this test are those of a source.
        let word = ["word", "of", "no", "source"].join("_");
        for (not_there, missing) in [
            ("xtask::docs::nothing", "xtask::docs::nothing"),
            ("xtask::{docs, no_docs}", "xtask::no_docs"),
            (&format!("Sources::{word}"), &format!("Sources::{word}")),
            ("crates/{agent, no-crate}/src", "crates/no-crate/src"),
            ("tests/programs/exec_of_none_*.c", "tests/programs/exec_of_none_*.c"),
            ("nothing-of-it.rs", "nothing-of-it.rs"),
            (&word, &word),
        ] {
            assert_eq!(sources.misses(not_there, true).as_deref(), Some(missing), "{not_there}");
        }
        assert_eq!(sources.misses(&word, false), None, "a word of an old record");
    }
}
