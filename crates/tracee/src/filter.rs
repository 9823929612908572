//! The seccomp filter, made from the table. Its default is the stop: patching only accelerates (pitfall 1).
//!
//! Order matters. First come numbers that pass whatever their arguments are, wherever they are called: the kernel finds
//! out beforehand for which numbers a filter looks at nothing else, and does not run it for them
//! (`seccomp_cache_prepare`). Nearly every other call comes from a patched site and so from the gate page. Then come
//! mappings that are neither shared nor a file's nor ours.

use agent_abi::{AGENT_BASE, GATE_LEN, OWN_END, REQUEST_NR};
use syscall_table::{Ahead, Op, Row, Shows, ROWS};

const LD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const RET: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const TRACE: u32 = 0x7ff0_0000;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

const NR: u32 = 0;
const ARCH: u32 = 4;
const IP_LO: u32 = 8;
const IP_HI: u32 = 12;
const fn arg_lo(i: u32) -> u32 {
    16 + 8 * i
}
const fn arg_hi(i: u32) -> u32 {
    20 + 8 * i
}

/// A filter program.
pub struct Filter(Vec<libc::sock_filter>);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} instructions)", self.0.len())
    }
}

impl Filter {
    /// The filter of a world whose segments have these numbers.
    pub fn new(agent_id: i32, world_id: i32) -> Self {
        let mut filter = Filter(Vec::new());
        filter.load(ARCH);
        filter.jump(JEQ, AUDIT_ARCH_X86_64, 1, 0);
        filter.ret(TRACE);
        filter.load(NR);
        filter.native_numbers();
        filter.gate();
        filter.load(NR);
        filter.attaching(agent_id, world_id);
        filter.mapping();
        filter.own_pages();
        filter.looks();
        filter.actions();
        filter.ret(TRACE);
        filter
    }

    pub(crate) fn program(&self) -> &[libc::sock_filter] {
        &self.0
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        self.0.push(libc::sock_filter { code, jt, jf, k });
    }
    fn load(&mut self, offset: u32) {
        self.push(LD, 0, 0, offset);
    }
    fn jump(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.push(code, jt, jf, k);
    }
    fn ret(&mut self, action: u32) {
        self.push(RET, 0, 0, action);
    }

    /// A binary search over the numbers: those that always pass return, the others fall through to what follows.
    fn native_numbers(&mut self) {
        let limit = ROWS.iter().map(|row| u32::from(row.nr)).max().unwrap_or(0) + 1;
        let passes =
            |nr: u32| ROWS.binary_search_by_key(&nr, |row| u32::from(row.nr)).is_ok_and(|i| ROWS[i].op == Op::Native);
        // Boundaries at which the answer changes.
        let mut edges = Vec::new();
        let mut last = false;
        for nr in 0..=limit {
            let now = nr < limit && passes(nr);
            if now != last {
                edges.push((nr, now));
                last = now;
            }
        }
        let mut to_end = Vec::new();
        self.search(&edges, false, &mut to_end);
        let end = self.0.len();
        for at in to_end {
            self.0[at].k = (end - at - 1) as u32;
        }
    }

    fn search(&mut self, edges: &[(u32, bool)], below: bool, to_end: &mut Vec<usize>) {
        if edges.is_empty() {
            if below {
                self.ret(ALLOW);
            } else {
                to_end.push(self.0.len());
                self.push(JA, 0, 0, 0);
            }
            return;
        }
        let middle = edges.len() / 2;
        let (nr, above) = edges[middle];
        self.jump(JGE, nr, 0, 1);
        let skip = self.0.len();
        self.push(JA, 0, 0, 0);
        self.search(&edges[..middle], below, to_end);
        self.0[skip].k = (self.0.len() - skip - 1) as u32;
        self.search(&edges[middle + 1..], above, to_end);
    }

    /// Whatever comes from the gate page passes, but for the agent's requests.
    fn gate(&mut self) {
        self.load(IP_HI);
        self.jump(JEQ, (AGENT_BASE >> 32) as u32, 0, 6);
        self.load(IP_LO);
        self.jump(JGT, AGENT_BASE as u32 + GATE_LEN as u32, 4, 0);
        self.load(NR);
        self.jump(JEQ, REQUEST_NR, 0, 1);
        self.ret(TRACE);
        self.ret(ALLOW);
    }

    /// `block` is run, and returns, where the number is `nr`. The number is in the accumulator before and, if it is
    /// another, after.
    fn if_number(&mut self, nr: u32, block: impl FnOnce(&mut Self)) {
        let mut inner = Filter(Vec::new());
        block(&mut inner);
        self.jump(JEQ, nr, 0, u8::try_from(inner.0.len()).expect("blocks are short"));
        self.0.append(&mut inner.0);
    }

    /// The bootstrap attaches the two segments before there is a gate page.
    fn attaching(&mut self, agent_id: i32, world_id: i32) {
        self.if_number(libc::SYS_shmat as u32, |block| {
            block.load(arg_lo(0));
            block.jump(JEQ, agent_id as u32, 1, 0);
            block.jump(JEQ, world_id as u32, 0, 1);
            block.ret(ALLOW);
            block.ret(TRACE);
        });
    }

    /// `mmap`: private and anonymous, and not fixed where our pages are.
    fn mapping(&mut self) {
        const PRIVATE_ANONYMOUS: u32 = 0x22;
        const DROPPABLE_ANONYMOUS: u32 = 0x28;
        const TYPE_AND_ANONYMOUS: u32 = 0x2f;
        const FIXED: u32 = 0x10;
        const FIXED_NOREPLACE: u32 = 0x10_0000;
        self.if_number(libc::SYS_mmap as u32, |block| {
            block.load(arg_lo(3));
            block.push(AND, 0, 0, TYPE_AND_ANONYMOUS);
            block.jump(JEQ, PRIVATE_ANONYMOUS, 2, 0);
            block.jump(JEQ, DROPPABLE_ANONYMOUS, 1, 0);
            block.ret(TRACE);
            block.load(arg_lo(3));
            block.jump(JSET, FIXED | FIXED_NOREPLACE, 1, 0);
            block.ret(ALLOW);
            block.outside_ours(0, 1);
        });
    }

    /// Returns ALLOW if the range at (arg `address`, arg `length`) surely does not touch our pages, else TRACE.
    fn outside_ours(&mut self, address: u32, length: u32) {
        self.load(arg_hi(length));
        self.jump(JGE, LENGTH_HI_MAX, 4, 0);
        self.load(arg_hi(address));
        self.jump(JGT, ABOVE_HI, 1, 0);
        self.jump(JGE, BELOW_HI, 1, 0);
        self.ret(ALLOW);
        self.ret(TRACE);
    }

    /// What may be about another process passes where it is about the caller.
    fn looks(&mut self) {
        for row in ROWS {
            let Some((argument, below)) = own_argument(row) else { continue };
            self.if_number(u32::from(row.nr), |block| {
                block.load(arg_lo(argument));
                block.jump(JGE, below, 1, 0);
                block.ret(ALLOW);
                block.ret(TRACE);
            });
        }
    }

    /// `rt_sigaction` passes for every signal but the one with which a step ends, and the one of children.
    fn actions(&mut self) {
        for row in ROWS.iter().filter(|row| row.op == Op::Action) {
            self.if_number(u32::from(row.nr), |block| {
                block.load(arg_lo(0));
                block.jump(JEQ, libc::SIGTRAP as u32, 2, 0);
                block.jump(JEQ, libc::SIGCHLD as u32, 1, 0);
                block.ret(ALLOW);
                block.ret(TRACE);
            });
        }
    }

    /// `munmap`, `mprotect` and the like pass unless they touch our pages, or last longer than a rollback.
    fn own_pages(&mut self) {
        for row in ROWS.iter().filter(|row| row.op == Op::OwnPages && row.ahead == Ahead::Own) {
            self.if_number(u32::from(row.nr), |block| {
                if i64::from(row.nr) == libc::SYS_mremap {
                    // The new address counts, too.
                    block.load(arg_hi(4));
                    block.jump(JGT, ABOVE_HI, 2, 0);
                    block.jump(JGE, BELOW_HI, 0, 1);
                    block.ret(TRACE);
                }
                if i64::from(row.nr) == libc::SYS_madvise {
                    block.load(arg_lo(2));
                    for advice in NOTED_ADVICE {
                        block.jump(JEQ, advice as u32, 0, 1);
                        block.ret(TRACE);
                    }
                }
                block.outside_ours(0, 1);
            });
        }
    }
}

/// Advice on memory of which the agent has to know: what children do not get of it, and guards, which nobody may
/// install.
const NOTED_ADVICE: [i32; 3] = [libc::MADV_DONTFORK, libc::MADV_WIPEONFORK, MADV_GUARD_INSTALL];
const MADV_GUARD_INSTALL: i32 = 102;

/// Where the low half of an argument says that a call is about its caller: 0, or for a clock one that is not a
/// process's.
fn own_argument(row: &Row) -> Option<(u32, u32)> {
    const PROCESS_CLOCKS: u32 = 1 << 31;
    match (row.op, row.shows) {
        (Op::Look, Shows::Process { pid }) => Some((u32::from(pid), 1)),
        (Op::Look, Shows::Clock { id }) => Some((u32::from(id), PROCESS_CLOCKS)),
        _ => None,
    }
}

/// Upper halves of addresses: a range shorter than `LENGTH_HI_MAX` that begins below `BELOW_HI` cannot reach us.
const LENGTH_HI_MAX: u32 = 0x100;
const BELOW_HI: u32 = (AGENT_BASE >> 32) as u32 - LENGTH_HI_MAX;
const ABOVE_HI: u32 = (OWN_END >> 32) as u32;

#[cfg(test)]
mod tests {
    use super::*;

    /// A classic BPF machine, enough for our own programs.
    fn run(filter: &Filter, nr: u64, ip: u64, args: [u64; 6]) -> u32 {
        let mut data = [0u8; 64];
        data[0..4].copy_from_slice(&(nr as u32).to_le_bytes());
        data[4..8].copy_from_slice(&AUDIT_ARCH_X86_64.to_le_bytes());
        data[8..16].copy_from_slice(&ip.to_le_bytes());
        for (i, arg) in args.iter().enumerate() {
            data[16 + 8 * i..24 + 8 * i].copy_from_slice(&arg.to_le_bytes());
        }
        let (mut a, mut pc) = (0u32, 0usize);
        loop {
            let i = &filter.0[pc];
            pc += 1;
            let branch = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                LD => a = u32::from_le_bytes(data[i.k as usize..i.k as usize + 4].try_into().unwrap()),
                JA => pc += i.k as usize,
                JEQ => pc += branch(a == i.k),
                JGT => pc += branch(a > i.k),
                JGE => pc += branch(a >= i.k),
                JSET => pc += branch(a & i.k != 0),
                AND => a &= i.k,
                RET => return i.k,
                other => panic!("no such instruction {other:#x}"),
            }
        }
    }

    const PROGRAM: u64 = 0x5555_5555_0000;

    #[test]
    fn numbers_pass_as_the_table_says() {
        let filter = Filter::new(7, 8);
        for row in ROWS {
            let passes = row.op == Op::Native;
            let by_arguments = matches!(row.op, Op::OwnPages | Op::Mmap | Op::Action) || own_argument(row).is_some();
            if !by_arguments {
                assert_eq!(run(&filter, u64::from(row.nr), PROGRAM, [0; 6]) == ALLOW, passes, "{}", row.name);
            }
        }
    }

    #[test]
    fn what_is_about_another_process_stops() {
        let filter = Filter::new(7, 8);
        for row in ROWS.iter().filter(|row| own_argument(row).is_some()) {
            let about = |who: i64| run(&filter, u64::from(row.nr), PROGRAM, [who as u64, 1, 1, 1, 1, 1]);
            assert_eq!(about(0), ALLOW, "{}", row.name);
            assert_eq!(about(i64::from(-4242 << 3 | 2)), TRACE, "{}", row.name);
            let is_clock = matches!(row.shows, Shows::Clock { .. });
            assert_eq!(about(7), if is_clock { ALLOW } else { TRACE }, "{}", row.name);
        }
    }

    #[test]
    fn an_action_stops_only_for_the_signals_of_steps_and_children() {
        let filter = Filter::new(7, 8);
        let of = |signal: i32| run(&filter, libc::SYS_rt_sigaction as u64, PROGRAM, [signal as u64, 1, 1, 8, 0, 0]);
        assert_eq!((of(libc::SIGTRAP), of(libc::SIGCHLD)), (TRACE, TRACE));
        assert_eq!((of(libc::SIGUSR1), of(0), of(64)), (ALLOW, ALLOW, ALLOW));
    }

    /// What the kernel needs to let a number pass without running the filter: nothing but number and architecture was
    /// looked at.
    #[test]
    fn numbers_that_pass_are_found_before_anything_else_is_looked_at() {
        let filter = Filter::new(7, 8);
        let others = filter.0.iter().position(|i| i.code == LD && i.k != NR && i.k != ARCH).expect("it has a gate");
        let numbers = Filter(filter.0[..others].to_vec());
        for row in ROWS.iter().filter(|row| row.op == Op::Native) {
            assert_eq!(run(&numbers, u64::from(row.nr), PROGRAM, [0; 6]), ALLOW, "{}", row.name);
        }
    }

    #[test]
    fn unknown_numbers_stop() {
        let filter = Filter::new(7, 8);
        for nr in [337, 400, 423, 600, 0xffff_ffff, 0x4000_0000] {
            assert_eq!(run(&filter, nr, PROGRAM, [0; 6]), TRACE, "{nr}");
        }
    }

    #[test]
    fn the_gate_passes_everything_but_requests() {
        let filter = Filter::new(7, 8);
        for nr in [0, 1, 59, 600] {
            assert_eq!(run(&filter, nr, AGENT_BASE + 0x36, [0; 6]), ALLOW);
            assert_eq!(run(&filter, nr, AGENT_BASE + GATE_LEN + 8, [0; 6]), TRACE);
        }
        assert_eq!(run(&filter, u64::from(REQUEST_NR), AGENT_BASE + 0x36, [0; 6]), TRACE);
    }

    #[test]
    fn only_our_segments_attach_without_a_stop() {
        let filter = Filter::new(7, 8);
        for (id, action) in [(7, ALLOW), (8, ALLOW), (9, TRACE)] {
            assert_eq!(run(&filter, libc::SYS_shmat as u64, PROGRAM, [id, 0, 0, 0, 0, 0]), action);
        }
    }

    #[test]
    fn mappings_stop_when_shared_or_of_a_file_or_over_ours() {
        let filter = Filter::new(7, 8);
        let mmap = |addr, len, flags| run(&filter, libc::SYS_mmap as u64, PROGRAM, [addr, len, 3, flags, u64::MAX, 0]);
        assert_eq!(mmap(0, 4096, 0x22), ALLOW);
        assert_eq!(mmap(0, 4096, 0x28), ALLOW);
        assert_eq!(mmap(0, 4096, 0x4022), ALLOW);
        assert_eq!(mmap(0, 4096, 0x21), TRACE);
        assert_eq!(mmap(0, 4096, 0x02), TRACE);
        assert_eq!(mmap(0x1000, 4096, 0x32), ALLOW);
        assert_eq!(mmap(0x7fff_0000_0000, 4096, 0x32), ALLOW);
        assert_eq!(mmap(AGENT_BASE, 4096, 0x32), TRACE);
        assert_eq!(mmap(AGENT_BASE - 4096, 8192, 0x32), TRACE);
        assert_eq!(mmap(0x1000, 1 << 46, 0x32), TRACE);
        assert_eq!(mmap(0x1000, 4096, 0x12), TRACE);
    }

    #[test]
    fn own_pages_are_guarded() {
        let filter = Filter::new(7, 8);
        for row in ROWS.iter().filter(|row| row.op == Op::OwnPages) {
            let call = |addr, len, new| run(&filter, u64::from(row.nr), PROGRAM, [addr, len, len, 2, new, 0]);
            let elsewhere = if row.ahead == Ahead::Own { ALLOW } else { TRACE };
            assert_eq!(call(0x7fff_0000_0000, 4096, 0), elsewhere, "{}", row.name);
            assert_eq!(call(AGENT_BASE, 4096, 0), TRACE, "{}", row.name);
            assert_eq!(call(OWN_END - 4096, 4096, 0), TRACE, "{}", row.name);
            assert_eq!(call(0, 1 << 46, 0), TRACE, "{}", row.name);
            if i64::from(row.nr) == libc::SYS_mremap {
                assert_eq!(call(0x7fff_0000_0000, 4096, AGENT_BASE), TRACE);
            }
        }
    }

    #[test]
    fn what_children_do_not_get_is_noted() {
        let filter = Filter::new(7, 8);
        let advise = |advice: i32| {
            run(&filter, libc::SYS_madvise as u64, PROGRAM, [0x7fff_0000_0000, 4096, advice as u64, 0, 0, 0])
        };
        assert!(NOTED_ADVICE.iter().all(|&advice| advise(advice) == TRACE));
        let others = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_DOFORK, libc::MADV_KEEPONFORK];
        assert!(others.iter().all(|&advice| advise(advice) == ALLOW));
    }
}
