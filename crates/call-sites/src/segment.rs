//! From one executable segment to its plan.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use memchr::memmem;

use crate::boundary::{self, Context, Text};
use crate::elf::{Elf, Load};
use crate::functions::{symbols, Function, Functions};
use crate::place::{reachable_from, Placer};
use crate::stub::{area_len_max, window_bytes, StubArea};
use crate::targets::{Targets, SHORT};
use crate::window::{choose, windows, Window};
use crate::{ElfKind, Fate, FilePlan, Options, Patch, PlanError, Reason, SegmentPlan, Site, PAGE};

const SYSCALL: &[u8] = &[0x0f, 0x05];

/// Plans every executable segment that has a site to patch.
pub(crate) fn plan_segments(elf: &Elf, options: &Options) -> Result<FilePlan, PlanError> {
    let candidates: Vec<(&Load, Vec<u64>)> = elf
        .loads
        .iter()
        .filter(|load| load.executable && !load.writable)
        .map(|load| (load, candidates(text_of(elf, load))))
        .filter(|(_, sites)| !sites.is_empty())
        .collect();
    let total = candidates.iter().map(|(_, sites)| area_len_max(sites.len())).sum();
    let mut placer = Placer::new(elf, options, total)?;
    let functions = Functions::new(elf);
    let mut plan = FilePlan { kind: elf.kind, segments: Vec::new(), left: Vec::new() };
    for (load, sites) in candidates {
        let area = placer.place(load.page_vaddr(), area_len_max(sites.len()));
        let planner = Planner { elf, functions: &functions, text: text_of(elf, load) };
        let mut fates = BTreeMap::new();
        let windows = planner.choose_windows(&sites, area, &mut fates);
        if windows.is_empty() {
            plan.left.extend(sites_of(fates));
        } else {
            let area = StubArea::new(area, options.agent_entry);
            let segment = planner.plan(load, windows, area, fates)?;
            // In a damaged file all windows may be out of reach.
            match segment.sites.iter().any(Site::is_patched) {
                true => plan.segments.push(segment),
                false => plan.left.extend(segment.sites),
            }
        }
    }
    Ok(plan)
}

fn sites_of(fates: BTreeMap<u64, Fate>) -> Vec<Site> {
    fates.into_iter().map(|(vaddr, fate)| Site { vaddr, fate }).collect()
}

fn text_of<'a>(elf: &Elf<'a>, load: &Load) -> Text<'a> {
    Text { vaddr: load.vaddr, bytes: elf.load_bytes(load) }
}

fn candidates(text: Text) -> Vec<u64> {
    memmem::find_iter(text.bytes, SYSCALL).map(|at| text.vaddr + at as u64).collect()
}

struct Planner<'p, 'a> {
    elf: &'p Elf<'a>,
    functions: &'p Functions<'p, 'a>,
    text: Text<'a>,
}

impl Planner<'_, '_> {
    fn plan(
        &self,
        load: &Load,
        windows: Vec<(u64, Window)>,
        mut area: StubArea,
        mut fates: BTreeMap<u64, Fate>,
    ) -> Result<SegmentPlan, PlanError> {
        let mut text = self.elf.load_pages(load).ok_or(PlanError::BadProgramHeaders)?;
        let stub_distance = area.vaddr().wrapping_sub(load.page_vaddr()) as i64;
        for (site, window) in windows {
            let fate = match self.patch(&window, &mut area, load, &mut text) {
                Some(patch) => Fate::Patched(patch),
                None => Fate::Unpatched(Reason::OutOfReach),
            };
            fates.insert(site, fate);
        }
        Ok(SegmentPlan {
            file_offset: load.page_offset(),
            vaddr: load.page_vaddr(),
            len: load.page_len(),
            text,
            stubs: area.finish(),
            stub_distance,
            sites: sites_of(fates),
        })
    }

    /// Writes one stub and the jump to it.
    fn patch(&self, window: &Window, area: &mut StubArea, load: &Load, text: &mut [u8]) -> Option<Patch> {
        let placed = area.add(window, self.text)?;
        let bytes = window_bytes(window, area.vaddr().wrapping_add(u64::from(placed.entry)))?;
        let at = usize::try_from(window.range.start - load.page_vaddr()).ok()?;
        text.get_mut(at..at + bytes.len())?.copy_from_slice(&bytes);
        Some(Patch {
            window: window.range.start,
            window_len: window.range.end - window.range.start,
            shape: window.shape(),
            restart: placed.restart,
            entry: placed.entry,
            end: placed.end,
        })
    }

    /// The windows to patch, by site. Every candidate without one gets its fate here.
    fn choose_windows(&self, candidates: &[u64], area: u64, fates: &mut BTreeMap<u64, Fate>) -> Vec<(u64, Window)> {
        let contexts = self.contexts(candidates, fates);
        if contexts.is_empty() {
            return Vec::new();
        }
        let (targets, puzzling) = self.targets(&contexts);
        let reachable = reachable_from(area);
        let mut options = Vec::new();
        for context in &contexts {
            let known = !context.function.is_some_and(|function| puzzling.contains(&function));
            let found = if known { windows(context, &targets, &reachable) } else { Err(Reason::UnknownSwitch) };
            match found {
                Ok(windows) => options.push((context.site, windows)),
                Err(reason) => drop(fates.insert(context.site, Fate::Unpatched(reason))),
            }
        }
        let chosen = choose(&options);
        let mut picked = Vec::new();
        for ((site, _), window) in options.into_iter().zip(chosen) {
            match window {
                Some(window) => picked.push((site, window)),
                None => drop(fates.insert(site, Fate::Unpatched(Reason::Crowded))),
            }
        }
        picked
    }

    /// The candidates that are `syscall` instructions and may be patched, by address.
    fn contexts(&self, candidates: &[u64], fates: &mut BTreeMap<u64, Fate>) -> Vec<Context> {
        let mut by_function: HashMap<Function, Vec<u64>> = HashMap::new();
        let mut found = Vec::new();
        for &site in candidates {
            if let Some(reason) = self.never_patched(site) {
                fates.insert(site, Fate::Unpatched(reason));
            } else if let Some(function) = self.functions.containing(site) {
                by_function.entry(function).or_default().push(site);
            } else if let Some(context) = self.run_on(site) {
                found.push(Ok(context));
            } else {
                found.push(self.by_consensus(site).map_err(|reason| (site, reason)));
            }
        }
        for (function, sites) in by_function {
            found.extend(boundary::in_function(self.text, function, &sites));
        }
        let mut contexts = Vec::new();
        for result in found {
            match result {
                Ok(context) => contexts.push(context),
                Err((site, reason)) => drop(fates.insert(site, Fate::Unpatched(reason))),
            }
        }
        contexts.sort_by_key(|context| context.site);
        contexts
    }

    /// Data agrees with itself now and then: a section has to say that this is code.
    fn by_consensus(&self, site: u64) -> Result<Context, Reason> {
        if self.elf.sections_say_code(site) != Some(true) {
            return Err(Reason::UnknownFunction);
        }
        boundary::by_consensus(self.text, site, self.gap_around(site))
    }

    fn run_on(&self, site: u64) -> Option<Context> {
        let (drawn_out, end) = self.functions.drawn_out_to(site)?;
        boundary::run_on(self.text, drawn_out, end, site)
    }

    fn never_patched(&self, site: u64) -> Option<Reason> {
        if self.elf.kind == ElfKind::Dyn && self.elf.text_relocations {
            return Some(Reason::TextRelocations);
        }
        if self.elf.sections_say_code(site) == Some(false) {
            return Some(Reason::NotAnInstruction);
        }
        // mov eax, 15; mov rax, 15; push 15 + pop rax. The frame of glibc's restorer begins a byte too early (for
        // unwinders), so this looks at bytes and not at instructions.
        const LOADS: [&[u8]; 3] = [&[0xb8, 15, 0, 0, 0], &[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[0x6a, 15, 0x58]];
        let before = self.text.slice(site.saturating_sub(8)..site);
        LOADS.iter().any(|load| before.ends_with(load)).then_some(Reason::SigreturnIsNative)
    }

    /// What lies around a site and belongs to no known function.
    fn gap_around(&self, site: u64) -> Range<u64> {
        let range = site.saturating_sub(SHORT).max(self.text.vaddr)..(site + SHORT).min(self.text.end());
        let around = self.functions.around(range.clone(), |_| false);
        around.unknown.into_iter().find(|gap| gap.contains(&site)).unwrap_or(site..site)
    }

    /// Everything that can be jumped to near the sites, and the functions where that is not known.
    fn targets(&self, contexts: &[Context]) -> (Targets, HashSet<Function>) {
        let mut targets = Targets::new(self.text, contexts.iter().map(|context| context.site));
        for load in &self.elf.loads {
            let bytes = self.elf.load_bytes(load);
            if load.executable {
                targets.note_far_branches(text_of(self.elf, load));
            } else {
                targets.note_address_words(bytes, load.vaddr);
            }
        }
        symbols(self.elf).for_each(|symbol| targets.note(symbol.vaddr));
        let own: HashSet<Function> = contexts.iter().filter_map(|context| context.function).collect();
        self.note_near_branches(contexts, &own, &mut targets);
        let puzzling =
            own.into_iter().filter(|&f| !targets.note_function_with_switches(self.elf, self.text, f)).collect();
        (targets, puzzling)
    }

    /// What jumps from near a site, but for the functions that have one themselves.
    fn note_near_branches(&self, contexts: &[Context], own: &HashSet<Function>, targets: &mut Targets) {
        let mut seen = HashSet::new();
        for range in self.ranges_around(contexts) {
            let around = self.functions.around(range, |gap| self.text.is_padding(gap));
            for function in around.functions {
                if !own.contains(&function) && seen.insert(function) {
                    targets.note_function(self.text, function);
                }
            }
            for gap in around.unknown {
                targets.note_short_branches(self.text, gap);
            }
        }
    }

    /// From where a short branch can reach a site's window; one range for sites that are near to each other. `contexts`
    /// are sorted by address.
    fn ranges_around(&self, contexts: &[Context]) -> Vec<Range<u64>> {
        const FAR: u64 = SHORT + PAGE / 64;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for context in contexts {
            let range =
                context.site.saturating_sub(FAR).max(self.text.vaddr)..(context.site + FAR).min(self.text.end());
            match ranges.last_mut() {
                Some(last) if last.end >= range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }
}
