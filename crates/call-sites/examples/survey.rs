//! Prints, for each file named, how many call sites it has, how many are patched, and why others are not.
//!
//! With `-v`, also their addresses.
//!
//! `cargo run --release -p call-sites --example survey -- /lib/x86_64-linux-gnu/libc.so.6`

use std::collections::BTreeMap;
use std::time::Instant;

use call_sites::{plan, FilePlan, Options, Site};

fn main() {
    let verbose = std::env::args().any(|arg| arg == "-v");
    for path in std::env::args().skip(1).filter(|arg| arg != "-v") {
        match std::fs::read(&path) {
            Ok(file) => survey(&path, &file, verbose),
            Err(error) => println!("{path}: cannot read: {error}"),
        }
    }
}

fn survey(path: &str, file: &[u8], verbose: bool) {
    let options = Options { agent_entry: 0x7fff_0000_0000, ..Options::default() };
    let start = Instant::now();
    let planned = plan(file, &options);
    let taken = start.elapsed();
    match planned {
        Ok(plan) => print_plan(path, &plan, taken.as_secs_f64() * 1e3, verbose),
        Err(error) => println!("{path}: {error}"),
    }
}

fn print_plan(path: &str, plan: &FilePlan, ms: f64, verbose: bool) {
    let sites: Vec<&Site> = plan.segments.iter().flat_map(|segment| &segment.sites).chain(&plan.left).collect();
    let patched = sites.iter().filter(|site| site.is_patched()).count();
    let stubs: usize = plan.segments.iter().map(|segment| segment.stubs.len()).sum();
    println!("{path}: {} candidates, {patched} patched, {stubs} bytes of stubs, {ms:.1} ms", sites.len());
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for site in sites {
        let what = match site.patch() {
            Some(patch) => format!("patched, {:?}", patch.shape),
            None => site.reason().map(|reason| reason.to_string()).unwrap_or_default(),
        };
        counts.entry(what).or_default().push(site.vaddr);
    }
    for (what, sites) in counts {
        println!("  {:5}  {what}", sites.len());
        if verbose {
            println!("         {sites:x?}");
        }
    }
}
