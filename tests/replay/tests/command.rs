//! The command, on a real program.

use std::path::Path;
use std::process::Command;

#[test]
fn a_database_is_logged_and_replayed() {
    let sources = tempfile::tempdir().unwrap();
    let json = sources.path().join("figures");
    let output = Command::new(env!("CARGO_BIN_EXE_replay"))
        .args(["--runs", "1", "SQLite", "--repository"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .arg("--sources")
        .arg(sources.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = figures.as_array().unwrap();
    assert_eq!(rows.len(), 9, "three intervals with three kinds of lanes");
    let mut of_several_intervals = 0;
    for row in rows {
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
        // 300 transactions make thousands of calls, and show a count. They overwrite what was there before an interval
        // began, if they take several of them.
        assert!(figure("calls") > 3000.0 && figure("outputs_held") >= 1.0, "{row}");
        let are_several = figure("seconds") * 1000.0 > 2.0 * figure("interval_ms");
        of_several_intervals += u32::from(are_several);
        assert!(figure("bytes_kept") > 0.0 || !are_several, "{row}");
        assert!(figure("asks_percent") > figure("asks_percent_all_kept"), "{row}");
        assert!(figure("asks_percent_all_kept") > 0.0, "{row}");
    }
    assert!(of_several_intervals >= 3, "{figures}");
}

#[test]
fn an_unknown_program_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_replay"))
        .args(["--repository", "/", "--sources", "/", "nothing-has-this-name"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are: make"));
}
