//! Finds the scenarios.

use std::fs;
use std::path::Path;

use crate::scenario::Scenario;
use crate::settings::Settings;

/// Endings of files that are scenarios.
const ENDINGS: [&str; 6] = ["c", "go", "py", "sh", "js", "pl"];

/// All scenarios that are files: the small programs first, then the real ones, each in order of name.
/// Helpers (`lib_*`, or inside `parts/`) are not scenarios.
pub fn scenarios(settings: &Settings) -> Result<Vec<(&'static str, Scenario)>, String> {
    let mut all = Vec::new();
    for (kind, folder) in [("program", "tests/programs"), ("real", "tests/transparency/scenarios")] {
        all.extend(in_folder(&settings.repository.join(folder))?.into_iter().map(|found| (kind, found)));
    }
    Ok(all)
}

fn in_folder(folder: &Path) -> Result<Vec<Scenario>, String> {
    let failed = |error| format!("cannot read {}: {error}", folder.display());
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_scenario(&path) {
            scenarios.push(Scenario::load(&path)?);
        }
    }
    scenarios.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scenarios)
}

/// Whether a file is one, by its name.
pub fn is_scenario(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ENDINGS.contains(&ending.as_ref()) && !name.starts_with("lib_")
}
