//! The scenarios: those of `tests/rollback/scenarios`, and most of the real programs and some of the small ones of the
//! transparency tests.

use std::path::PathBuf;

use transparency::{Scenario, Settings};

/// Small programs of `tests/programs` that are about several processes.
const PROGRAMS: &[&str] = &[
    "asks_of_its_own.c",
    "child_signal_once.c",
    "children_threaded.c",
    "children_tree.c",
    "children_waited.c",
    "clone_raw.c",
    "daemon_double_fork.c",
    "directory_races.c",
    "exec_failures.c",
    "exec_storm_threads.c",
    "exit_ways.c",
    "fd_close_range.c",
    "fd_dup2_everywhere.c",
    "fd_lowest.c",
    "fd_reuse_threads.c",
    "fifo.c",
    "fifo_made.c",
    "file_append.c",
    "file_lease_closed.c",
    "file_locks.c",
    "flock_again.c",
    "fork_status.c",
    "futex_between_processes.c",
    "go_goroutines.go",
    "kept_by_no_checkpoint.c",
    "killed_inside.c",
    "mapped_older.c",
    "mmap_shared_anonymous.c",
    "namespace_first_process_faults.c",
    "orphan_reparenting.c",
    "pair_hang_up.c",
    "pipe_partial.c",
    "pipe_spliced_guess.c",
    "pipes_inherited.c",
    "ends_unasked.c",
    "pipeline_long.c",
    "posix_spawn.c",
    "process_groups.c",
    "process_probes.c",
    "pty_master_after_write.c",
    "pty_shell.c",
    "shm_in_common.c",
    "signal_child_sent.c",
    "signal_info.c",
    "signal_kill_status.c",
    "signal_nested.c",
    "signal_restart.c",
    "signal_stop_busy.c",
    "signal_stop_continue.c",
    "signal_trap_ignored.c",
    "signal_trap_pending.c",
    "signal_trap_threads.c",
    "stdin_shared.c",
    "tcp_servers.c",
    "thread_cancel.c",
    "thread_cancel_site.c",
    "thread_exec.c",
    "thread_exec_busy.c",
    "thread_exit_group.c",
    "thread_first_ends_early.c",
    "thread_fork_mix.c",
    "thread_killed_in_read.c",
    "thread_kills_its_process.c",
    "thread_outlives_main.c",
    "thread_receives_all.c",
    "thread_signals.c",
    "threads_epoll.c",
    "threads_files.c",
    "threads_many.c",
    "threads_mix.c",
    "threads_open.c",
    "threads_reopen.c",
    "threads_together.c",
    "threads_transfer.c",
    "tree_output_order.c",
    "unix_sockets.c",
    "unwind_in_handlers.c",
    "vfork_exec.c",
    "clone_pidfd.c",
    "vfork_layout.c",
    "vfork_maps_shared.c",
    "vfork_memory.c",
    "vfork_signals.c",
    "wait_spellings.c",
    "young_open.c",
];

/// What the short form runs: a little of everything, in little time.
pub const SHORT: &[&str] = &[
    "awk_pipes",
    "bash_substitution",
    "bash_traps",
    "clone_raw",
    "coreutils_statuses",
    "dash_script",
    "directory_races",
    "exec_failures",
    "exit_ways",
    "fd_dup2_everywhere",
    "fifo",
    "file_lease_closed",
    "fork_status",
    "gave_up_root",
    "kept_by_no_checkpoint",
    "marker_perl",
    "marker_python",
    "many_processes",
    "orphan_reparenting",
    "perl_pipes",
    "perl_signals",
    "pidfd_wait",
    "pipe_partial",
    "pipe_spliced_guess",
    "process_groups",
    "pty_master_after_write",
    "shell_heredocs",
    "shell_marker_children",
    "shell_marker_files",
    "shell_marker_pipes",
    "shell_marker_stat",
    "shell_set_e",
    "shell_trees",
    "signal_stop_busy",
    "sockets_and_counters",
    "tar_roundtrip",
    "text_tools",
    "threads_epoll",
    "threads_files",
    "threads_mix",
    "threads_open",
    "threads_reopen",
    "threads_shell",
    "threads_together",
    "unix_select",
    "vfork_signals",
    "wait_spellings",
];

/// Real programs that take long.
const HEAVY: &[&str] = &[
    "build_hello",
    "build_parallel_make",
    "compress_pipelines",
    "dpkg_package",
    "find_xargs",
    "gcc_compile",
    "git_clone_gc",
    "go_build",
    "java_class",
    "http_loopback",
    "node_children",
    "pipeline_long",
    "python_multiprocessing",
    "sort_big",
    "static_busybox_like",
    "threads_node",
    "valgrind_static",
];

/// All of them, in order of name.
pub fn all(settings: &Settings) -> Result<Vec<Scenario>, String> {
    let mut files = Vec::new();
    for folder in ["tests/rollback/scenarios", "tests/transparency/scenarios"] {
        let folder = settings.repository.join(folder);
        let failed = |error| format!("cannot read {}: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            files.push(entry.map_err(failed)?.path());
        }
    }
    files.retain(|path: &PathBuf| transparency::discover::is_scenario(path));
    files.extend(PROGRAMS.iter().map(|name| settings.repository.join("tests/programs").join(name)));
    let mut scenarios = files.iter().map(|path| Scenario::load(path)).collect::<Result<Vec<_>, _>>()?;
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

/// Whether it takes so long that the short form runs it once.
pub fn is_heavy(scenario: &Scenario) -> bool {
    scenario.directives.has("heavy") || HEAVY.contains(&scenario.name.as_str())
}
