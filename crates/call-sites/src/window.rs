//! Which bytes make room for the jump, and what may be moved out of the way.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::boundary::Context;
use crate::targets::Targets;
use crate::{Reason, Shape, JUMP_LEN};

/// Length of `syscall`, bytes.
const SYSCALL_LEN: u64 = 2;

/// Instructions around a site that a jump can replace.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub range: Range<u64>,
    pub before: Vec<Instruction>,
    pub after: Vec<Instruction>,
}

impl Window {
    pub fn shape(&self) -> Shape {
        match (self.before.is_empty(), self.after.is_empty()) {
            (true, _) => Shape::After,
            (false, true) => Shape::Before,
            (false, false) => Shape::Both,
        }
    }

    /// Does the jump end before the call, which can stay in its place behind it?
    pub fn keeps_call(&self) -> bool {
        self.after.is_empty() && self.range.end - self.range.start >= JUMP_LEN + SYSCALL_LEN
    }

    /// Sites patched count most, then whether a thread in a call can be shown at its own address, then how simple the
    /// stubs are.
    fn worth(&self) -> u64 {
        1000 + match self.shape() {
            _ if self.keeps_call() => 3,
            Shape::After => 2,
            Shape::Before => 1,
            Shape::Both => 0,
        }
    }
}

/// Every smallest window at a site that can be moved, with and without the call in its place, or why there is none.
pub(crate) fn windows(context: &Context, targets: &Targets, reachable: &Range<i64>) -> Result<Vec<Window>, Reason> {
    let mut reason = Reason::NoWindow;
    let mut found = Vec::new();
    for window in smallest_windows(context) {
        match check(&window, context, targets, reachable) {
            Ok(()) => found.push(window),
            Err(why) => reason = why,
        }
    }
    if found.is_empty() {
        Err(reason)
    } else {
        Ok(found)
    }
}

fn smallest_windows(context: &Context) -> Vec<Window> {
    let mut found = Vec::new();
    for before_count in 0..=context.before.len() {
        let before = &context.before[context.before.len() - before_count..];
        let start = before.first().map_or(context.site, Instruction::ip);
        // The fewest instructions after the site that make it long enough.
        let enough = (0..=context.after.len()).find_map(|count| {
            let end = context.after[..count].last().map_or(context.site + SYSCALL_LEN, Instruction::next_ip);
            (end - start >= JUMP_LEN).then_some((count, end))
        });
        if let Some((count, end)) = enough {
            let window = Window { range: start..end, before: before.to_vec(), after: context.after[..count].to_vec() };
            let is_last = window.keeps_call();
            found.push(window);
            if is_last {
                break;
            }
        }
    }
    found
}

fn check(window: &Window, context: &Context, targets: &Targets, reachable: &Range<i64>) -> Result<(), Reason> {
    let Range { start, end } = window.range;
    if start < context.bounds.start || end > context.bounds.end {
        return Err(Reason::NoWindow);
    }
    if targets.any_in(start + 1..end) {
        return Err(Reason::BranchTarget);
    }
    let leaves_early = window.after.iter().rev().skip(1).any(ends_path) || window.before.iter().any(ends_path);
    let mut moved = window.before.iter().chain(&window.after);
    if leaves_early || !moved.clone().all(is_movable) {
        return Err(Reason::NoWindow);
    }
    if !moved.all(|instruction| stays_in_reach(instruction, reachable)) {
        return Err(Reason::OutOfReach);
    }
    Ok(())
}

/// Control never goes on to the next instruction: so something else must jump there.
pub(crate) fn ends_path(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}

/// Does the instruction do the same at another address, once its displacement is adjusted?
pub(crate) fn is_movable(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        // Not to be moved: `endbr64` is what indirect branches look for; `hlt` is a trap whose address tells.
        FlowControl::Next => {
            !matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Endbr32 | Mnemonic::Hlt)
                && instruction.memory_base() != Register::EIP
        }
        FlowControl::ConditionalBranch => instruction.is_jcc_short_or_near() && matches!(instruction.len(), 2 | 6),
        FlowControl::UnconditionalBranch => instruction.is_jmp_short_or_near() && matches!(instruction.len(), 2 | 5),
        FlowControl::IndirectBranch => instruction.is_jmp_near_indirect() && instruction.memory_base() != Register::EIP,
        FlowControl::Return => matches!(instruction.mnemonic(), Mnemonic::Ret),
        // Calls push their own address; traps and aborts report it. `syscall` counts as a call.
        _ => false,
    }
}

/// The address that an instruction names relative to itself.
pub(crate) fn relative_target(instruction: &Instruction) -> Option<u64> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let branch = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    branch.then(|| instruction.near_branch_target())
}

fn stays_in_reach(instruction: &Instruction, reachable: &Range<i64>) -> bool {
    relative_target(instruction).is_none_or(|target| reachable.contains(&(target as i64)))
}

/// A choice for all sites up to one of them.
#[derive(Clone, Copy)]
struct Choice {
    /// Where the last window ends.
    end: u64,
    worth: u64,
    previous: usize,
    window: Option<usize>,
}

/// Picks at most one window a site so that none overlap and their worth is greatest. `sites` are sorted by address.
pub(crate) fn choose(sites: &[(u64, Vec<Window>)]) -> Vec<Option<Window>> {
    let mut layers = vec![vec![Choice { end: 0, worth: 0, previous: 0, window: None }]];
    for (site, windows) in sites {
        let last = layers.last().map(Vec::as_slice).unwrap_or_default();
        let next = extend(last, *site, windows);
        layers.push(next);
    }
    let best = |layer: &[Choice]| (0..layer.len()).max_by_key(|&index| layer[index].worth).unwrap_or(0);
    let mut index = layers.last().map_or(0, |layer| best(layer));
    let mut picked = vec![None; sites.len()];
    for (position, (_, windows)) in sites.iter().enumerate().rev() {
        let choice = layers[position + 1][index];
        picked[position] = choice.window.map(|window| windows[window].clone());
        index = choice.previous;
    }
    picked
}

fn extend(last: &[Choice], site: u64, windows: &[Window]) -> Vec<Choice> {
    // Ends that no window of this site or a later one can touch are all the same.
    let untouchable = site.saturating_sub(crate::targets::REACH);
    let mut next = Vec::new();
    for (previous, choice) in last.iter().enumerate() {
        let end = choice.end.max(untouchable);
        next.push(Choice { end, worth: choice.worth, previous, window: None });
        for (window, option) in windows.iter().enumerate().filter(|(_, option)| option.range.start >= choice.end) {
            let worth = choice.worth + option.worth();
            next.push(Choice { end: option.range.end, worth, previous, window: Some(window) });
        }
    }
    next.sort_by_key(|choice| (choice.end, std::cmp::Reverse(choice.worth)));
    let mut kept: Vec<Choice> = Vec::new();
    for choice in next {
        if kept.last().is_none_or(|best| choice.worth > best.worth) {
            kept.push(choice);
        }
    }
    kept
}
