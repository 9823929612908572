//! Holes that are known, and why they are left. One that is no hole any more has to go from here.

use crate::cells::{Cells, Pair};

const ACCESS_TIME: &str =
    "access times are no state that anybody depends on (000, 5.3): if who reads a file gave to it, \
    all later readers would wait";
const ROOM: &str = "what is taken from outside waits only with `--hold-input` (decisions/0138)";

/// Action, observation, reason.
const KNOWN: &[(&str, &str, &str)] = &[
    ("read_file", "times_of_other", ACCESS_TIME),
    ("read_part", "times_of_other", ACCESS_TIME),
    ("sendfile_to_pipe", "times_of_other", ACCESS_TIME),
    ("splice_to_pipe", "times_of_other", ACCESS_TIME),
    ("drain_by_splice", "outside:room_pipe", ROOM),
    ("drain_by_splice", "outside:poll_room_pipe", ROOM),
    ("drain_by_splice", "outside:await_room", ROOM),
    ("drain_pipe", "outside:room_pipe", ROOM),
    ("drain_pipe", "outside:poll_room_pipe", ROOM),
    ("drain_pipe", "outside:await_room", ROOM),
    ("drain_tcp", "outside:queued_tcp", ROOM),
    ("drain_tcp", "outside:poll_room_tcp", ROOM),
    ("drain_unix", "outside:queued_unix", ROOM),
    ("drain_unix", "outside:room_unix", ROOM),
    ("drain_unix", "outside:poll_room_unix", ROOM),
    ("read_counter", "outside:write_counter", ROOM),
];

/// Why this pair is left as it is, if it is known. `holds_input`: the world has `--hold-input`.
pub fn reason(pair: &Pair, holds_input: bool) -> Option<&'static str> {
    let acts = |name: &str| pair.action.split('+').any(|one| one == name);
    let is_it = |known: &&(&str, &str, &str)| acts(known.0) && known.1 == pair.observation;
    KNOWN.iter().find(is_it).map(|known| known.2).filter(|reason| *reason != ROOM || !holds_input)
}

/// A pair that is listed and does not exist.
pub fn unknown(cells: &Cells) -> Option<(&'static str, &'static str)> {
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    let exists = |action: &str, observation: &str| has(&cells.actions, action) && has(&cells.observations, observation);
    KNOWN.iter().map(|known| (known.0, known.1)).find(|(action, observation)| !exists(action, observation))
}
