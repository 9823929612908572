//! Differences whose reason is known.

use crate::places::Place;
use crate::suite::Script;

/// One: of which suite and place, in which script, what the difference begins with (any if it is empty), and why.
struct Known(&'static str, Place, &'static str, &'static str, &'static str);

const SHARED: &str = "it maps memory shared, which a mount refuses (docs/BLUEFS.md)";

const KNOWN: &[Known] =
    &[Known("sqlite", Place::Mount, "shmlock", "", SHARED), Known("sqlite", Place::Mount, "wal7", "", SHARED)];

/// Why a script differs in this way, if that is known.
pub fn why(script: &Script, place: Place, difference: &str) -> Option<&'static str> {
    let is_it = |Known(suite, at, name, begins, _): &&Known| {
        *suite == script.suite.name() && *at == place && *name == script.name && difference.starts_with(begins)
    };
    KNOWN.iter().find(is_it).map(|Known(.., why)| *why)
}
