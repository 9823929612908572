//! Programs in Perl that guess, with the calls of `speculator.h`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program.
#[allow(dead_code)] // Some tests run other interpreters.
pub const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// The calls of `speculator.h`, for Perl, and how the tests end a guess. Children that ended on a guess end for good a moment after it was
/// resolved, and there are no figures while somebody is left.
const PRELUDE: &str = r#"
use strict; use Socket; $| = 1;
my ($end, $first) = ($ARGV[0], $$);
END { select(undef, undef, undef, 0.5) if $$ == $first }
sub begin { return syscall(0x5bed, 1, 0, 0) }
sub finish { return syscall(0x5bed, $end eq 'fail' ? 3 : 2, $_[0], 0) }
sub depth { return syscall(0x5bed, 4, 0, 0) }
sub event { my $fd = syscall(290, $_[0], $_[1]); open(my $handle, '+<&=', $fd) or die; return $handle }
sub take { my $value; sysread($_[0], $value, 8) == 8 or die; return unpack 'Q', $value }
sub give { syswrite($_[0], pack 'Q', $_[1]) == 8 or die }
"#;

fn run(dir: &Path, program: &str, end: &str) -> Output {
    Command::new("timeout")
        .args(["-s", "KILL", "60", SPECULATOR, "run", "--stats=json:stats", "--", "perl", "-e", program, end])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("timeout(1)")
}

/// Run a program whose guess ends so. Barriers it may meet: none of those named.
#[track_caller]
pub fn check(program: &str, end: &str, stdout: &str, never_waits_at: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &format!("{PRELUDE}{program}"), end);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((text.as_ref(), output.status.code()), (stdout, Some(0)), "{end}: {errors}");
    let stats = std::fs::read_to_string(dir.path().join("stats")).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let barriers = &stats["ahead"]["barriers"];
    for call in never_waits_at {
        assert!(barriers[call].is_null(), "{call}: {barriers}");
    }
}
