//! A figure as a table on standard output, as JSON and as a plot under `bench-results/`.

use std::path::PathBuf;

use serde_json::{json, Value};

use crate::figure::{Figure, Limit, Target};
use crate::inside::{self, repository};
use crate::plot;

/// Prints `figure` and writes its files.
pub fn publish(figure: &Figure) -> Result<(), String> {
    print!("{}", table(figure));
    let directory = repository().join("bench-results");
    std::fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    let text = serde_json::to_string_pretty(&json(figure)).map_err(|error| error.to_string())?;
    let file = |ending: &str| -> PathBuf { directory.join(format!("{}.{ending}", figure.name)) };
    std::fs::write(file("json"), text + "\n").map_err(|error| format!("cannot write results: {error}"))?;
    plot::draw(figure, &file("svg"))?;
    println!("  {} and .svg\n", file("json").display());
    Ok(())
}

fn table(figure: &Figure) -> String {
    let width = figure.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("\n{}\n", figure.title);
    for (index, series) in figure.series.iter().enumerate() {
        let (low, high) = extremes(&series.values);
        text += &format!(
            "  {:width$}  {:>12} {unit}  {:>8}  ({} to {} {unit}, {} runs)\n",
            series.name,
            number(series.median()),
            format!("{:.3} x", figure.ratio(index)),
            number(low),
            number(high),
            series.values.len(),
            unit = figure.unit,
        );
    }
    figure.targets.iter().for_each(|target| text += &line(target));
    figure.notes.iter().for_each(|note| text += &format!("  {note}\n"));
    text
}

fn line(target: &Target) -> String {
    let verdict = if target.met() { "met" } else { "MISSED" };
    let limit = match target.limit {
        Limit::AtMost(limit) if limit.is_infinite() => return format!("  {}: {:.3}\n", target.claim, target.measured),
        Limit::AtMost(limit) => format!("at most {limit}"),
        Limit::AtLeast(limit) => format!("at least {limit}"),
    };
    format!("  {}: {:.3}, {limit}: {verdict}\n", target.claim, target.measured)
}

fn number(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.1}")
    }
}

fn extremes(values: &[f64]) -> (f64, f64) {
    (values.iter().copied().fold(f64::NAN, f64::min), values.iter().copied().fold(f64::NAN, f64::max))
}

fn json(figure: &Figure) -> Value {
    let series = figure.series.iter().enumerate().map(|(index, series)| {
        json!({ "name": series.name, "values": series.values, "median": series.median(), "ratio": figure.ratio(index) })
    });
    let targets = figure.targets.iter().map(|target| {
        let (limit, side) = match target.limit {
            Limit::AtMost(limit) => (limit, "at most"),
            Limit::AtLeast(limit) => (limit, "at least"),
        };
        json!({ "claim": target.claim, "measured": target.measured, "side": side, "limit": limit, "met": target.met() })
    });
    json!({
        "name": figure.name,
        "title": figure.title,
        "unit": figure.unit,
        "series": series.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
        "inside": inside::prefix(None).unwrap_or_default(),
        "arguments": std::env::args().skip(1).collect::<Vec<_>>(),
        "notes": figure.notes,
    })
}
