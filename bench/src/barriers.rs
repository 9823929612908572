//! What jobs of every day wait for: the barriers that they meet in `run`, by system call, how many of them found
//! something to wait for, and how many come in a second. Beside figures there is a table for
//! `docs/MEASUREMENTS.md`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::figure::{median, Base, Figure, Series};
use crate::inside::{command, machine, output_of, prefix_of, prefix_with, repository, Workshop};
use crate::servers::{as_postgres, find, POSTGRESQL};
use crate::Options;

/// A job: shell scripts that end at the first command that fails, in a directory of its own.
struct Job {
    name: &'static str,
    needs: &'static [&'static str],
    /// Not measured.
    prepare: &'static str,
    script: &'static str,
    /// PostgreSQL does not run as root.
    as_postgres: bool,
}

const JOBS: [Job; 6] = [
    Job {
        name: "dpkg",
        needs: &["dpkg", "dpkg-deb"],
        prepare: "
mkdir -p probe/DEBIAN probe/usr/share/probe root/var/lib/dpkg/info root/var/lib/dpkg/updates
touch root/var/lib/dpkg/status
for n in $(seq 100); do echo $n > probe/usr/share/probe/$n; done
printf '%s\\n' 'Package: probe' 'Version: 1' 'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \\
    'Description: a hundred files' > probe/DEBIAN/control
dpkg-deb --build probe probe.deb",
        script: "dpkg --root=\"$PWD/root\" --install probe.deb",
        as_postgres: false,
    },
    Job {
        name: "mmdebstrap",
        needs: &["mmdebstrap", "apt-get"],
        prepare: "",
        script: "
mmdebstrap --mode=root --variant=extract --include=base-files bookworm root.tar",
        as_postgres: false,
    },
    Job {
        name: "pip",
        needs: &["python3"],
        prepare: "
python3 -m pip --version
python3 -c '
import zipfile
about = {\"METADATA\": \"Metadata-Version: 2.1\\nName: probe\\nVersion: 1\\n\",
         \"WHEEL\": \"Wheel-Version: 1.0\\nGenerator: sh\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n\"}
files = {f\"probe/m{n}.py\": f\"value = {n}\\n\" for n in range(100)}
files.update({f\"probe-1.dist-info/{name}\": text for name, text in about.items()})
files[\"probe-1.dist-info/RECORD\"] = \"\".join(f\"{name},,\\n\" for name in files)
with zipfile.ZipFile(\"probe-1-py3-none-any.whl\", \"w\") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
'",
        script: "python3 -m pip install --no-index --no-deps --disable-pip-version-check --target site \\
    ./probe-1-py3-none-any.whl",
        as_postgres: false,
    },
    Job {
        name: "npm",
        needs: &["npm"],
        prepare: "
mkdir -p probe project
for n in $(seq 100); do echo \"module.exports = $n\" > probe/m$n.js; done
echo '{\"name\": \"probe\", \"version\": \"1.0.0\"}' > probe/package.json
echo '{\"name\": \"project\", \"version\": \"1.0.0\"}' > project/package.json
npm pack --offline ./probe",
        script: "cd project && npm install --offline --no-audit --no-fund --no-update-notifier ../probe-1.0.0.tgz",
        as_postgres: false,
    },
    Job {
        name: "git",
        needs: &["git"],
        prepare: "mkdir one && for n in $(seq 100); do echo $n > one/$n; done",
        script: "
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=n GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=n
cd one && git init && git add . && git commit -m first
for n in 1 2 3 4 5; do echo more >> $n; git commit -a -m $n; done
git clone . ../two",
        as_postgres: false,
    },
    Job {
        name: "PostgreSQL",
        needs: &["pgbench"],
        prepare: "",
        script: "
PATH=$PATH:/usr/lib/postgresql/15/bin
initdb -D data -A trust -U postgres
postgres -D data -k \"$PWD\" -c listen_addresses= &
until pg_isready -h \"$PWD\"; do sleep 0.1; done
pgbench -h \"$PWD\" -U postgres -i -q postgres
pgbench -h \"$PWD\" -U postgres -c 4 -j 2 -T 3 postgres
kill -INT $! && wait",
        as_postgres: true,
    },
];

type Counts = BTreeMap<String, f64>;

/// One run.
struct Found {
    seconds: f64,
    commits: f64,
    barriers: Counts,
    /// Barriers that had something to wait for, if the binary counts them.
    waits: Option<Counts>,
}

/// Runs of one job with one binary.
struct Runs(Vec<Found>);

impl Runs {
    fn median(&self, what: impl Fn(&Found) -> f64) -> f64 {
        median(&self.0.iter().map(what).collect::<Vec<_>>())
    }

    fn count(&self, call: &str) -> f64 {
        self.median(|run| run.barriers.get(call).copied().unwrap_or_default())
    }

    fn cell(&self, call: &str) -> String {
        let counted = self.0.iter().all(|run| run.waits.is_some());
        let waits = |run: &Found| run.waits.as_ref()?.get(call).copied();
        match self.count(call) {
            0.0 => "0".to_owned(),
            count if counted => format!("{count} ({})", self.median(|run| waits(run).unwrap_or_default())),
            count => count.to_string(),
        }
    }
}

/// Runs it.
pub fn run(options: &Options) -> Result<Figure, String> {
    let mut notes = vec![machine()];
    let mut measured = Vec::new();
    for job in &JOBS {
        match job.needs.iter().find(|need| find(need, &POSTGRESQL).is_none()) {
            Some(missing) => notes.push(format!("left out: {}, for there is no {missing}", job.name)),
            None => match measure(job, options) {
                Ok(ways) => measured.push((job.name, ways)),
                Err(why) => notes.push(format!("left out: {}: {why}", job.name)),
            },
        }
    }
    let calls = by_frequency(&measured);
    let table = table(&measured, &calls);
    println!("\n{table}");
    let file = repository().join("bench-results/barriers.md");
    let made = std::fs::create_dir_all(repository().join("bench-results"));
    made.and_then(|()| std::fs::write(&file, table)).map_err(|error| format!("cannot write {file:?}: {error}"))?;
    Ok(Figure {
        name: "barriers",
        title: "Barriers in a second, by job and call".to_owned(),
        unit: "1/s",
        series: series(&measured, &calls),
        base: if options.before.is_some() { Base::Pairs } else { Base::One(0) },
        targets: Vec::new(),
        notes,
    })
}

/// With the older binary, if there is one, and with this one.
fn measure(job: &Job, options: &Options) -> Result<Vec<Runs>, String> {
    let ways: Vec<Option<&Path>> = options.before.as_deref().map(Some).into_iter().chain([None]).collect();
    let mut measured: Vec<Runs> = ways.iter().map(|_| Runs(Vec::new())).collect();
    for _ in 0..options.runs {
        for (way, runs) in ways.iter().zip(&mut measured) {
            runs.0.push(run_once(job, *way)?);
        }
    }
    let now = &measured[measured.len() - 1];
    eprintln!("{}: {:.2} s, {} commits", job.name, now.median(|run| run.seconds), now.median(|run| run.commits));
    Ok(measured)
}

fn run_once(job: &Job, binary: Option<&Path>) -> Result<Found, String> {
    let workshop = Workshop::open()?;
    let (dir, stats) = (workshop.file("job"), workshop.file("stats.json"));
    std::fs::create_dir(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    shell(&["sh", "-ec", job.prepare].map(str::to_owned), &dir)?;
    let mut words = binary.map_or_else(|| prefix_with(&[], &stats), |binary| Ok(prefix_of(binary, Some(&stats))))?;
    let script = ["sh", "-ec", job.script];
    if job.as_postgres && !as_postgres(&[]).is_empty() {
        shell(&["chown", "postgres", "."].map(str::to_owned), &dir)?;
        words.extend(as_postgres(&script));
    } else {
        words.extend(script.map(str::to_owned));
    }
    shell(&words, &dir)?;
    found(&stats)
}

/// With a home that is empty: nobody's settings, and no cache.
fn shell(words: &[String], dir: &Path) -> Result<(), String> {
    let mut job = command(words);
    job.current_dir(dir).env("HOME", dir).env("npm_config_cache", dir.join("cache"));
    output_of(job).map(drop)
}

fn found(stats: &Path) -> Result<Found, String> {
    let text = std::fs::read_to_string(stats).map_err(|error| format!("cannot read {}: {error}", stats.display()))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let counts = |field: &str| -> Counts {
        let all = value[field].as_object().into_iter().flatten();
        all.map(|(call, count)| (call.clone(), count.as_f64().unwrap_or_default())).collect()
    };
    let seconds = value["wall_us"].as_f64().unwrap_or(f64::NAN) / 1e6;
    let commits = counts("commits").values().sum();
    let waits = value["waits"].is_object().then(|| counts("waits"));
    Ok(Found { seconds, commits, barriers: counts("barriers"), waits })
}

/// Each call that was a barrier in some job, the most frequent one first.
fn by_frequency(measured: &[(&str, Vec<Runs>)]) -> Vec<String> {
    let mut totals = Counts::new();
    for runs in measured.iter().flat_map(|(_, ways)| ways) {
        let calls: std::collections::BTreeSet<&String> = runs.0.iter().flat_map(|run| run.barriers.keys()).collect();
        calls.into_iter().for_each(|call| *totals.entry(call.clone()).or_default() += runs.count(call));
    }
    let mut calls: Vec<(String, f64)> = totals.into_iter().filter(|(_, total)| *total > 0.0).collect();
    calls.sort_by(|one, other| other.1.total_cmp(&one.1));
    calls.into_iter().map(|(call, _)| call).collect()
}

/// A table in Markdown: barriers, and in brackets those that had something to wait for.
fn table(measured: &[(&str, Vec<Runs>)], calls: &[String]) -> String {
    let row = |name: &str, cell: &dyn Fn(&Runs) -> String| {
        let cells = measured.iter().map(|(_, ways)| ways.iter().map(cell).collect::<Vec<_>>().join(" → "));
        format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let names: Vec<&str> = measured.iter().map(|(name, _)| *name).collect();
    let mut text = format!("| call | {} |\n|{}\n", names.join(" | "), "---|".repeat(names.len() + 1));
    calls.iter().for_each(|call| text += &row(&format!("`{call}`"), &|runs| runs.cell(call)));
    // The sum of nothing is -0.
    let in_a_second = |run: &Found| (run.barriers.values().sum::<f64>() + 0.0) / run.seconds;
    text += &row("barriers in a second", &|runs| format!("{:.1}", runs.median(in_a_second)));
    text += &row("commits in all", &|runs| runs.median(|run| run.commits).to_string());
    text += &row("seconds", &|runs| format!("{:.2}", runs.median(|run| run.seconds)));
    text
}

fn series(measured: &[(&str, Vec<Runs>)], calls: &[String]) -> Vec<Series> {
    let mut all = Vec::new();
    for call in calls {
        for (job, ways) in measured.iter().filter(|(_, ways)| ways.iter().any(|runs| runs.count(call) > 0.0)) {
            for (way, runs) in ways.iter().enumerate() {
                let before = if way + 1 < ways.len() { ", before" } else { "" };
                let mut series = Series::new(format!("{job}: {call}{before}"));
                let rate = |run: &Found| run.barriers.get(call).copied().unwrap_or_default() / run.seconds;
                series.values.extend(runs.0.iter().map(rate));
                all.push(series);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(barriers: &[(&str, f64)], waits: &[(&str, f64)]) -> Runs {
        let counts = |all: &[(&str, f64)]| all.iter().map(|(call, count)| ((*call).to_owned(), *count)).collect();
        Runs(vec![Found { seconds: 2.0, commits: 3.0, barriers: counts(barriers), waits: Some(counts(waits)) }])
    }

    #[test]
    fn the_table_begins_with_the_most_frequent_call() {
        let git = runs(&[("bind", 1.0), ("connect", 4.0)], &[("connect", 3.0), ("fsync", 2.0)]);
        let measured = [("git", vec![git]), ("pip", vec![runs(&[], &[])])];
        let calls = by_frequency(&measured);
        assert_eq!(calls, ["connect", "bind"]);
        let expected = "| call | git | pip |\n|---|---|---|\n| `connect` | 4 (3) | 0 |\n| `bind` | 1 (0) | 0 |\n\
                        | barriers in a second | 2.5 | 0.0 |\n| commits in all | 3 | 3 |\n| seconds | 2.00 | 2.00 |\n";
        assert_eq!(table(&measured, &calls), expected);
    }

    #[test]
    fn the_older_binary_comes_first() {
        let mut before = runs(&[("connect", 9.0)], &[]);
        // It does not say which of them waited.
        before.0[0].waits = None;
        let measured = [("npm", vec![before, runs(&[("connect", 2.0)], &[])])];
        let calls = by_frequency(&measured);
        assert!(table(&measured, &calls).contains("| `connect` | 9 → 2 (0) |"));
        let names: Vec<String> = series(&measured, &calls).into_iter().map(|series| series.name).collect();
        assert_eq!(names, ["npm: connect, before", "npm: connect"]);
    }
}
