//! The integration tests of the command, in one program: the linker runs once, and tests that wait do so beside others.
//! `channels` is a program of its own: its cases run several at a time already.
//!
//! `cargo test -p cli --test all -- NAME::` runs the tests of one file.

#[path = "support/bluefs.rs"]
mod bluefs_support;
mod support;

mod ahead_burial;
mod ahead_changes;
mod ahead_channels;
mod ahead_connections;
mod ahead_contents;
mod ahead_directories;
mod ahead_ends;
mod ahead_epoll;
mod ahead_faults;
mod ahead_fifos;
mod ahead_files;
mod ahead_heard;
mod ahead_input;
mod ahead_interrupted;
mod ahead_kept;
mod ahead_known_directories;
mod ahead_known_ways;
mod ahead_limits;
mod ahead_locks;
mod ahead_looked;
mod ahead_mapped;
mod ahead_new_files;
mod ahead_numbers;
mod ahead_objects;
mod ahead_pairs;
mod ahead_permits;
mod ahead_processes;
mod ahead_programs;
mod ahead_progress;
mod ahead_refused;
mod ahead_servers;
mod ahead_streams;
mod ahead_tcp;
mod ahead_threads;
mod ahead_timers;
mod ahead_waits;
mod ahead_watchers;
mod ahead_young;
mod answers;
mod appended;
mod as_started;
mod bad_input;
mod bad_input_run;
mod bluefs;
mod bluefs_c;
mod bluefs_cache;
mod bluefs_contention;
mod bluefs_fstab;
mod bluefs_full;
mod bluefs_hostile;
mod bluefs_invitations;
mod bluefs_listings;
mod bluefs_locks;
mod bluefs_names;
mod bluefs_pages;
mod bluefs_programs;
mod bluefs_rights;
mod bluefs_serve;
mod bluefs_shared;
mod bluefs_stores;
mod bluefs_stuck;
mod command_line;
mod cores;
mod disk_faults;
mod eager;
mod flush_error;
mod flushes;
mod inherited;
mod mounts;
mod not_executed;
mod outside;
mod outside_guesses;
mod overtaken;
mod quotas;
mod refused_programs;
mod signals;
mod slow_readers;
mod sockets;
mod speculate;
mod storms;
mod subvolumes;
mod top;
mod try_afterwards;
mod try_command;
mod try_keeping;
mod try_packages;
mod try_realms;
mod try_terminal;
mod try_trees;
mod volatile;
mod volume;

/// A file that is not named above would not be tried.
#[test]
fn every_file_of_tests_is_part_of_this_program() {
    const PROGRAMS: [&str; 2] = ["all", "channels"];
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for file in std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        if file.extension().is_some_and(|ending| ending == "rs") && !PROGRAMS.contains(&name) {
            assert!(include_str!("all.rs").contains(&format!("\nmod {name};\n")), "{name} is not named in all.rs");
        }
    }
}
