//! What a process has used, from `/proc`: a process whose exit is held has not ended, so that the kernel would not tell
//! its parent yet.

use procfs::ProcessId;

/// Length of a `struct rusage`.
const LEN: usize = 144;
/// `USER_HZ`, the unit of times in `/proc/PID/stat`, a second.
const TICKS: u64 = 100;

/// The `struct rusage` of a process and its children that it has waited for (getrusage(2)); what cannot be known is 0.
pub(in crate::ahead) fn of(pid: ProcessId) -> [u8; LEN] {
    let read = |name: &str| procfs::text(pid, name).unwrap_or_default();
    Usage::of(&read("stat"), &read("schedstat"), &read("status"), &read("io")).to_bytes()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    user_us: u64,
    system_us: u64,
    /// Most memory that was resident, KiB.
    resident_max: u64,
    minor_faults: u64,
    major_faults: u64,
    blocks_in: u64,
    blocks_out: u64,
    switches: u64,
    preemptions: u64,
}

impl Usage {
    fn of(stat: &str, schedstat: &str, status: &str, io: &str) -> Self {
        // The name, in parentheses, may hold anything; proc_pid_stat(5) counts fields from 1.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse().ok()).unwrap_or(0u64);
        let run_ns: u64 = schedstat.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (user, system) = (field(14), field(15));
        let user_us = (run_ns / 1000) * user / (user + system).max(1);
        let tick_us = 1_000_000 / TICKS;
        Self {
            user_us: user_us + field(16) * tick_us,
            system_us: run_ns / 1000 - user_us + field(17) * tick_us,
            resident_max: labelled(status, "VmHWM:"),
            minor_faults: field(10) + field(11),
            major_faults: field(12) + field(13),
            blocks_in: labelled(io, "read_bytes:") / 512,
            blocks_out: labelled(io, "write_bytes:") / 512,
            switches: labelled(status, "voluntary_ctxt_switches:"),
            preemptions: labelled(status, "nonvoluntary_ctxt_switches:"),
        }
    }

    fn to_bytes(&self) -> [u8; LEN] {
        const MILLION: u64 = 1_000_000;
        let (user, system) = (self.user_us, self.system_us);
        let words: [u64; LEN / 8] = [
            user / MILLION,
            user % MILLION,
            system / MILLION,
            system % MILLION,
            self.resident_max,
            0,
            0,
            0,
            self.minor_faults,
            self.major_faults,
            0,
            self.blocks_in,
            self.blocks_out,
            0,
            0,
            0,
            self.switches,
            self.preemptions,
        ];
        let mut bytes = [0; LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

fn labelled(text: &str, label: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(label));
    found.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_put_in_its_places() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 20 3 4 30 10 5 6 20 0 1 0 12345 0 0";
        let status = "VmHWM:\t    3456 kB\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t2\n";
        let usage = Usage::of(stat, "400000000 1 2", status, "read_bytes: 1024\nwrite_bytes: 512\n");
        assert_eq!(
            (usage.user_us, usage.system_us),
            (300_000 + 50_000, 100_000 + 60_000),
            "its own and its children's"
        );
        assert_eq!((usage.minor_faults, usage.major_faults, usage.resident_max), (120, 7, 3456));
        assert_eq!((usage.blocks_in, usage.blocks_out, usage.switches, usage.preemptions), (2, 1, 9, 2));
        let bytes = usage.to_bytes();
        assert_eq!(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()), 350_000);
        assert_eq!(u64::from_ne_bytes(bytes[136..].try_into().unwrap()), 2);
    }

    #[test]
    fn of_a_process_that_is_gone_nothing_is_known() {
        assert_eq!(Usage::of("", "", "", ""), Usage::default());
    }

    #[test]
    fn this_process_has_used_something() {
        let bytes = of(ProcessId::own());
        assert!(bytes[32..40] != [0; 8], "its memory");
    }
}
