//! What `strace -f -yy -ttt` writes, as calls: one for each that ended, in the order in which they ended.

use std::collections::HashMap;

/// A system call that ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// When it ended, in seconds since the epoch.
    pub time: f64,
    /// The thread that made it.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its arguments as strace writes them.
    pub arguments: Vec<String>,
    /// What it returned; a negative number is an error.
    pub result: i64,
    /// What strace writes after the number: the descriptor's object, or the error's name.
    pub note: String,
}

/// Reads a log. Lines that are no calls (signals, ends of processes) are left out.
pub fn parse(log: &str) -> Vec<Call> {
    let mut begun: HashMap<u32, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let Some((thread, time, rest)) = head(line) else { continue };
        if let Some(first) = rest.strip_suffix("<unfinished ...>") {
            begun.insert(thread, first.trim_end().to_owned());
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((_, tail)) = resumed.split_once(" resumed>") else { continue };
            let Some(first) = begun.remove(&thread) else { continue };
            calls.extend(whole(thread, time, &format!("{first}{tail}")));
        } else {
            calls.extend(whole(thread, time, rest));
        }
    }
    calls
}

/// Thread, time and the rest of a line.
fn head(line: &str) -> Option<(u32, f64, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(' ')?;
    Some((thread.parse().ok()?, time.parse().ok()?, rest))
}

/// `name(arguments) = result note`.
fn whole(thread: u32, time: f64, text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (arguments, end) = arguments(rest);
    let answer = rest.get(end..)?.trim_start().strip_prefix('=')?.trim_start();
    let (number, note) = answer.split_once([' ', '<']).unwrap_or((answer, ""));
    let result = match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()? as i64,
        None => number.parse().ok()?,
    };
    Some(Call { time, thread, name: name.to_owned(), arguments, result, note: note.trim_end_matches('>').to_owned() })
}

/// The arguments up to the closing parenthesis, and where the text after it begins.
fn arguments(text: &str) -> (Vec<String>, usize) {
    let mut found = Vec::new();
    let mut depth = 0_u32;
    let mut quoted = false;
    let mut from = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            _ if quoted => (),
            // The arrow of "123->124", and "=> " before what a call has changed.
            b'>' if at > 0 && matches!(bytes[at - 1], b'-' | b'=') => (),
            b'<' if bytes.get(at + 1) == Some(&b'<') => at += 1,
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' if depth == 0 => {
                push(&mut found, &text[from..at]);
                return (found, at + 1);
            }
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                push(&mut found, &text[from..at]);
                from = at + 1;
            }
            _ => (),
        }
        at += 1;
    }
    (found, bytes.len())
}

fn push(into: &mut Vec<String>, argument: &str) {
    let argument = argument.trim();
    if !argument.is_empty() {
        into.push(argument.to_owned());
    }
}

/// A descriptor as strace writes it: its number, and the object behind it if strace knows one.
pub fn descriptor(argument: &str) -> Option<(i32, Option<&str>)> {
    let (number, object) = match argument.split_once('<') {
        Some((number, object)) => (number, object.rsplit_once('>').map(|(object, _)| object)),
        None => (argument, None),
    };
    Some((number.parse().ok()?, object))
}

/// A quoted string, as it is: strace never shortens names.
pub fn string(argument: &str) -> Option<&str> {
    argument.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Call {
        let calls = parse(line);
        assert_eq!(calls.len(), 1, "{line}: {calls:?}");
        calls.into_iter().next().unwrap()
    }

    #[test]
    fn a_call_on_a_descriptor() {
        let call = one("12 1.500000 write(1</tmp/a, b>, \"x) = 3\\\"\", 3) = 3");
        assert_eq!((call.thread, call.name.as_str(), call.result), (12, "write", 3));
        assert_eq!(call.arguments, ["1</tmp/a, b>", "\"x) = 3\\\"\"", "3"]);
        assert_eq!(descriptor(&call.arguments[0]), Some((1, Some("/tmp/a, b"))));
    }

    #[test]
    fn an_error_has_its_name() {
        let call = one("3 2.0 openat(AT_FDCWD</w>, \"a\", O_RDONLY) = -1 ENOENT (No such file or directory)");
        assert_eq!(call.result, -1);
        assert!(call.note.starts_with("ENOENT"), "{}", call.note);
    }

    #[test]
    fn what_a_call_returned_names_its_object() {
        let call = one("3 2.0 openat(AT_FDCWD</w>, \"a\", O_RDONLY) = 5</w/a>");
        assert_eq!((call.result, call.note.as_str()), (5, "/w/a"));
    }

    #[test]
    fn a_call_that_was_interrupted_by_others_is_one() {
        let log = "1 1.0 read(0<pipe:[7]>,  <unfinished ...>\n2 1.1 getpid() = 2\n1 1.2 <... read resumed>\"\", 1) = 0";
        let calls = parse(log);
        assert_eq!(calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["getpid", "read"]);
        assert_eq!(calls[1].arguments[0], "0<pipe:[7]>");
        assert!((calls[1].time - 1.2).abs() < 1e-9);
    }

    #[test]
    fn ends_connected_by_an_arrow_are_one_argument() {
        let call = one("1 1.0 write(4<UNIX-STREAM:[10->11]>, \"\", 1) = 1");
        assert_eq!(descriptor(&call.arguments[0]), Some((4, Some("UNIX-STREAM:[10->11]"))));
    }

    #[test]
    fn a_shift_in_a_flag_is_no_bracket() {
        let call = one("1 1.0 clone(child_stack=NULL, flags=1<<3|SIGCHLD) = 9");
        assert_eq!((call.arguments.len(), call.result), (2, 9));
    }

    #[test]
    fn signals_and_ends_are_left_out() {
        assert!(parse("1 1.0 --- SIGCHLD {si_signo=SIGCHLD} ---\n1 1.0 +++ exited with 0 +++").is_empty());
    }
}
