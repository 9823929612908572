//! Names of what `ptrace`, `prctl` and `arch_prctl` are asked for, for people.

use syscall_table::nr;

/// The name of a call's first argument, if it has one.
pub(crate) fn name_of_request(nr: u64, request: u64) -> Option<&'static str> {
    let names = match nr {
        nr::ptrace => PTRACE,
        nr::prctl => PRCTL,
        nr::arch_prctl => ARCH_PRCTL,
        _ => return None,
    };
    names.iter().find(|(number, _)| *number == request).map(|(_, name)| *name)
}

/// linux/ptrace.h, asm/ptrace-abi.h.
const PTRACE: &[(u64, &str)] = &[
    (0, "PTRACE_TRACEME"),
    (1, "PTRACE_PEEKTEXT"),
    (2, "PTRACE_PEEKDATA"),
    (3, "PTRACE_PEEKUSER"),
    (4, "PTRACE_POKETEXT"),
    (5, "PTRACE_POKEDATA"),
    (6, "PTRACE_POKEUSER"),
    (7, "PTRACE_CONT"),
    (8, "PTRACE_KILL"),
    (9, "PTRACE_SINGLESTEP"),
    (12, "PTRACE_GETREGS"),
    (13, "PTRACE_SETREGS"),
    (14, "PTRACE_GETFPREGS"),
    (15, "PTRACE_SETFPREGS"),
    (16, "PTRACE_ATTACH"),
    (17, "PTRACE_DETACH"),
    (24, "PTRACE_SYSCALL"),
    (25, "PTRACE_GET_THREAD_AREA"),
    (26, "PTRACE_SET_THREAD_AREA"),
    (30, "PTRACE_ARCH_PRCTL"),
    (31, "PTRACE_SYSEMU"),
    (32, "PTRACE_SYSEMU_SINGLESTEP"),
    (33, "PTRACE_SINGLEBLOCK"),
    (0x4200, "PTRACE_SETOPTIONS"),
    (0x4201, "PTRACE_GETEVENTMSG"),
    (0x4202, "PTRACE_GETSIGINFO"),
    (0x4203, "PTRACE_SETSIGINFO"),
    (0x4204, "PTRACE_GETREGSET"),
    (0x4205, "PTRACE_SETREGSET"),
    (0x4206, "PTRACE_SEIZE"),
    (0x4207, "PTRACE_INTERRUPT"),
    (0x4208, "PTRACE_LISTEN"),
    (0x4209, "PTRACE_PEEKSIGINFO"),
    (0x420a, "PTRACE_GETSIGMASK"),
    (0x420b, "PTRACE_SETSIGMASK"),
    (0x420c, "PTRACE_SECCOMP_GET_FILTER"),
    (0x420d, "PTRACE_SECCOMP_GET_METADATA"),
    (0x420e, "PTRACE_GET_SYSCALL_INFO"),
    (0x420f, "PTRACE_GET_RSEQ_CONFIGURATION"),
    (0x4210, "PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG"),
    (0x4211, "PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG"),
    (0x4212, "PTRACE_SET_SYSCALL_INFO"),
];

/// linux/prctl.h.
const PRCTL: &[(u64, &str)] = &[
    (1, "PR_SET_PDEATHSIG"),
    (2, "PR_GET_PDEATHSIG"),
    (3, "PR_GET_DUMPABLE"),
    (4, "PR_SET_DUMPABLE"),
    (5, "PR_GET_UNALIGN"),
    (6, "PR_SET_UNALIGN"),
    (7, "PR_GET_KEEPCAPS"),
    (8, "PR_SET_KEEPCAPS"),
    (9, "PR_GET_FPEMU"),
    (10, "PR_SET_FPEMU"),
    (11, "PR_GET_FPEXC"),
    (12, "PR_SET_FPEXC"),
    (13, "PR_GET_TIMING"),
    (14, "PR_SET_TIMING"),
    (15, "PR_SET_NAME"),
    (16, "PR_GET_NAME"),
    (19, "PR_GET_ENDIAN"),
    (20, "PR_SET_ENDIAN"),
    (21, "PR_GET_SECCOMP"),
    (22, "PR_SET_SECCOMP"),
    (23, "PR_CAPBSET_READ"),
    (24, "PR_CAPBSET_DROP"),
    (25, "PR_GET_TSC"),
    (26, "PR_SET_TSC"),
    (27, "PR_GET_SECUREBITS"),
    (28, "PR_SET_SECUREBITS"),
    (29, "PR_SET_TIMERSLACK"),
    (30, "PR_GET_TIMERSLACK"),
    (31, "PR_TASK_PERF_EVENTS_DISABLE"),
    (32, "PR_TASK_PERF_EVENTS_ENABLE"),
    (33, "PR_MCE_KILL"),
    (34, "PR_MCE_KILL_GET"),
    (35, "PR_SET_MM"),
    (36, "PR_SET_CHILD_SUBREAPER"),
    (37, "PR_GET_CHILD_SUBREAPER"),
    (38, "PR_SET_NO_NEW_PRIVS"),
    (39, "PR_GET_NO_NEW_PRIVS"),
    (40, "PR_GET_TID_ADDRESS"),
    (41, "PR_SET_THP_DISABLE"),
    (42, "PR_GET_THP_DISABLE"),
    (43, "PR_MPX_ENABLE_MANAGEMENT"),
    (44, "PR_MPX_DISABLE_MANAGEMENT"),
    (45, "PR_SET_FP_MODE"),
    (46, "PR_GET_FP_MODE"),
    (47, "PR_CAP_AMBIENT"),
    (50, "PR_SVE_SET_VL"),
    (51, "PR_SVE_GET_VL"),
    (52, "PR_GET_SPECULATION_CTRL"),
    (53, "PR_SET_SPECULATION_CTRL"),
    (54, "PR_PAC_RESET_KEYS"),
    (55, "PR_SET_TAGGED_ADDR_CTRL"),
    (56, "PR_GET_TAGGED_ADDR_CTRL"),
    (57, "PR_SET_IO_FLUSHER"),
    (58, "PR_GET_IO_FLUSHER"),
    (59, "PR_SET_SYSCALL_USER_DISPATCH"),
    (60, "PR_PAC_SET_ENABLED_KEYS"),
    (61, "PR_PAC_GET_ENABLED_KEYS"),
    (62, "PR_SCHED_CORE"),
    (63, "PR_SME_SET_VL"),
    (64, "PR_SME_GET_VL"),
    (65, "PR_SET_MDWE"),
    (66, "PR_GET_MDWE"),
    (67, "PR_SET_MEMORY_MERGE"),
    (68, "PR_GET_MEMORY_MERGE"),
    (74, "PR_GET_SHADOW_STACK_STATUS"),
    (75, "PR_SET_SHADOW_STACK_STATUS"),
    (76, "PR_LOCK_SHADOW_STACK_STATUS"),
    (77, "PR_TIMER_CREATE_RESTORE_IDS"),
    (78, "PR_FUTEX_HASH"),
    (0x53564d41, "PR_SET_VMA"),
    (0x41555856, "PR_GET_AUXV"),
    (0x59616d61, "PR_SET_PTRACER"),
];

/// asm/prctl.h.
const ARCH_PRCTL: &[(u64, &str)] = &[
    (0x1001, "ARCH_SET_GS"),
    (0x1002, "ARCH_SET_FS"),
    (0x1003, "ARCH_GET_FS"),
    (0x1004, "ARCH_GET_GS"),
    (0x1011, "ARCH_GET_CPUID"),
    (0x1012, "ARCH_SET_CPUID"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_headers() {
        for (nr, request, name) in [
            (nr::ptrace, libc::PTRACE_TRACEME.into(), "PTRACE_TRACEME"),
            (nr::ptrace, libc::PTRACE_SEIZE.into(), "PTRACE_SEIZE"),
            (nr::prctl, libc::PR_SET_SECCOMP as u64, "PR_SET_SECCOMP"),
            (nr::prctl, libc::PR_SET_MM as u64, "PR_SET_MM"),
        ] {
            assert_eq!(name_of_request(nr, request), Some(name));
        }
        assert_eq!(name_of_request(nr::ptrace, 9999), None);
        assert_eq!(name_of_request(nr::write, 1), None);
    }
}
