//! Is `0f 05` an instruction here, and which instructions stand around it?
//!
//! Compiled code is decoded from the start of its function. Where no function is known, code is decoded from many
//! places before the bytes: x86 decoding falls into step soon, so most of them must arrive, over the same instructions.
//! (Of 64 starts, 29 to 64 arrive at the calls of a static glibc; 39 are asked for. At other bytes of node's code none
//! arrive, but for one place with 23.) Data can agree like that too: a section must say that it is code, and a system
//! call number must be loaded just before. Of 512 MB of random bytes, three places would still pass.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::functions::Function;
use crate::window::{ends_path, is_movable};
use crate::Reason;

/// How many instructions are kept on each side: three always suffice for the missing three bytes.
const KEPT: usize = 6;

/// A `syscall` instruction among its neighbours.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub site: u64,
    /// What runs into the site, in order; the last one ends at it.
    pub before: Vec<Instruction>,
    /// What follows it, in order.
    pub after: Vec<Instruction>,
    /// Bounds that a window may not leave.
    pub bounds: Range<u64>,
    /// The function, if one is known.
    pub function: Option<Function>,
}

/// Executable bytes at an address.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub vaddr: u64,
    pub bytes: &'a [u8],
}

impl<'a> Text<'a> {
    pub fn end(&self) -> u64 {
        self.vaddr + self.bytes.len() as u64
    }

    /// The bytes of `range`, as far as they are here.
    pub fn slice(&self, range: Range<u64>) -> &'a [u8] {
        let at = |vaddr: u64| (vaddr.clamp(self.vaddr, self.end()) - self.vaddr) as usize;
        self.bytes.get(at(range.start)..at(range.end)).unwrap_or_default()
    }

    pub fn decode(&self, range: Range<u64>) -> Decoder<'a> {
        let start = range.start.clamp(self.vaddr, self.end());
        Decoder::with_ip(64, self.slice(range), start, DecoderOptions::NONE)
    }

    /// Nothing but no-operations, traps and zeros.
    pub fn is_padding(&self, range: Range<u64>) -> bool {
        let bytes = self.slice(range.clone());
        bytes.iter().all(|&b| matches!(b, 0 | 0x90 | 0xcc))
            || self.decode(range).into_iter().all(|i| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
    }
}

/// The contexts of `sites` (sorted), all inside `function`.
pub(crate) fn in_function(text: Text, function: Function, sites: &[u64]) -> Vec<Result<Context, (u64, Reason)>> {
    let mut found = Vec::with_capacity(sites.len());
    let mut waiting = sites.iter().copied().peekable();
    let mut recent: Vec<Instruction> = Vec::with_capacity(2 * KEPT);
    let mut rest = Reason::NotAnInstruction;
    for instruction in &mut text.decode(function.start..function.end) {
        // What cannot be decoded may be data: nothing after it is sure.
        if instruction.is_invalid() {
            rest = Reason::Undecodable;
            break;
        }
        if waiting.peek().is_none() {
            break;
        }
        while let Some(missed) = waiting.next_if(|&site| site < instruction.ip()) {
            found.push(Err((missed, Reason::NotAnInstruction)));
        }
        if is_bare_syscall(&instruction) && waiting.next_if_eq(&instruction.ip()).is_some() {
            let before = recent[recent.len().saturating_sub(KEPT)..].to_vec();
            found.push(Ok(Context {
                site: instruction.ip(),
                before,
                after: following(text, instruction.next_ip()..function.end),
                bounds: function.start..function.end,
                function: Some(function),
            }));
        }
        remember(&mut recent, instruction);
    }
    found.extend(waiting.map(|site| Err((site, rest))));
    found
}

fn remember(recent: &mut Vec<Instruction>, instruction: Instruction) {
    if recent.len() == 2 * KEPT {
        recent.drain(..KEPT);
    }
    recent.push(instruction);
}

fn is_bare_syscall(instruction: &Instruction) -> bool {
    instruction.code() == Code::Syscall && instruction.len() == 2
}

fn following(text: Text, range: Range<u64>) -> Vec<Instruction> {
    text.decode(range).into_iter().take(KEPT).take_while(|i| !i.is_invalid()).collect()
}

/// The context of a site behind the known `end` of a function, if plain instructions lead on from there to it.
pub(crate) fn run_on(text: Text, drawn_out: Function, end: u64, site: u64) -> Option<Context> {
    let context = in_function(text, drawn_out, &[site]).pop()?.ok()?;
    let from_inside = context.before.first().is_some_and(|first| first.ip() < end);
    let runs_on = context.before.iter().all(|i| is_movable(i) && !ends_path(i));
    (from_inside && runs_on).then_some(context)
}

/// The context of a site that belongs to no known function; `bounds` lie between the neighbouring functions.
pub(crate) fn by_consensus(text: Text, site: u64, bounds: Range<u64>) -> Result<Context, Reason> {
    const FARTHEST: u64 = 96;
    const NEAREST: u64 = 32;
    const STARTS_MIN: usize = 8;
    let first = bounds.start.max(site.saturating_sub(FARTHEST));
    let last = site.saturating_sub(NEAREST).max((first + STARTS_MIN as u64).min(site));
    let runs: Vec<Vec<Instruction>> = (first..last).filter_map(|start| run_into(text, start, site)).collect();
    let starts = (last - first) as usize;
    if starts < STARTS_MIN || runs.len() * 5 < starts * 3 {
        return Err(Reason::NoAgreement);
    }
    let before = agreed_tail(&runs);
    if !before.iter().any(loads_call_number) {
        return Err(Reason::NoCallNumber);
    }
    let after = following(text, site + 2..bounds.end);
    Ok(Context { site, before, after, bounds, function: None })
}

/// Decodes from `start`; the instructions, if they arrive exactly at `site`.
fn run_into(text: Text, start: u64, site: u64) -> Option<Vec<Instruction>> {
    let mut run = Vec::new();
    for instruction in &mut text.decode(start..site + 2) {
        if instruction.is_invalid() || instruction.ip() > site {
            return None;
        }
        if instruction.ip() == site {
            return is_bare_syscall(&instruction).then_some(run);
        }
        run.push(instruction);
    }
    None
}

/// The last instructions that all runs have in common.
fn agreed_tail(runs: &[Vec<Instruction>]) -> Vec<Instruction> {
    let Some((model, others)) = runs.split_first() else {
        return Vec::new();
    };
    let agreed = |back: usize| {
        let expected = model.len().checked_sub(back).map(|index| model[index].ip());
        // Runs that began later are shorter; most have to reach this far back, and none may contradict.
        let reaching = others.iter().filter(|run| run.len() >= back);
        let reached = reaching.clone().count();
        expected.is_some()
            && reached * 4 >= others.len() * 3
            && reaching.clone().all(|run| Some(run[run.len() - back].ip()) == expected)
    };
    let count = (1..=KEPT).take_while(|&back| agreed(back)).count();
    model[model.len() - count..].to_vec()
}

/// Does this put a plausible system call number into eax?
fn loads_call_number(instruction: &Instruction) -> bool {
    const NUMBER_MAX: u64 = 1023;
    let to_rax = instruction.op0_kind() == OpKind::Register
        && matches!(instruction.op0_register(), Register::EAX | Register::RAX);
    let immediate =
        matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
    to_rax
        && match instruction.mnemonic() {
            Mnemonic::Mov if immediate => instruction.immediate(1) <= NUMBER_MAX,
            Mnemonic::Xor => instruction.op0_register() == instruction.op1_register(),
            Mnemonic::Mov => true,
            _ => false,
        }
}
