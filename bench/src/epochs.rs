//! What a call pays to decide by itself that it depends on nothing new (crate `epochs`, decisions/0057): the same calls
//! with and without that, and a first modification with few and many threads to look at.

use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::time::Instant;

use epochs::{Asker, Epochs, Object, Process, Thread, Want};

use crate::figure::{Base, Figure, Limit, Series, Target};
use crate::inside::machine;
use crate::Options;

/// At most so many nanoseconds may a call pay.
const CALL_MAX: f64 = 60.0;
/// Threads that a first modification looks at.
const THREADS: [usize; 3] = [1, 16, 256];
/// The pipe's slot, and the two that a look at a name needs.
const PIPE: Want = Want { slot: 0, key: 1, modifies: true };
const NAME: [Want; 2] = [Want { slot: 1, key: 2, modifies: false }, Want { slot: 2, key: 3, modifies: false }];

/// What the processes of a world share. Each of two processes has one thread; the others make no calls.
struct Shared {
    epochs: Epochs,
    processes: [Process; 2],
    threads: Vec<Thread>,
    objects: Vec<Object>,
}

impl Shared {
    /// Both processes depend on an open guess, as do the objects that they modify.
    fn ahead(threads: usize) -> Result<Shared, String> {
        let shared = Shared {
            epochs: Epochs::new(),
            processes: [Process::new(0), Process::new(0)],
            threads: (0..threads.max(2)).map(|_| Thread::new()).collect(),
            objects: (0..3).map(|slot| Object::new(slot + 1)).collect(),
        };
        for process in 0..2 {
            let asker = Asker { process: &shared.processes[process], thread: process, siblings: &[] };
            let guess = shared.epochs.guess(asker, &shared.threads, || ());
            guess.map_err(|busy| format!("nobody works on anything, and a guess says {busy:?}"))?;
        }
        // From now on its calls are no first ones.
        shared.call(0, &[PIPE], || ())?;
        Ok(shared)
    }

    /// A call that is decided alone.
    #[inline(always)]
    fn call<R>(&self, process: usize, wanted: &[Want], effect: impl FnOnce() -> R) -> Result<R, String> {
        self.epochs
            .enter(&self.processes[process], &self.threads, process, &self.objects, wanted, |_| true)
            .map_err(|ask| format!("a call in steady state asks: {ask:?}"))?;
        let result = effect();
        self.threads[process].clear();
        Ok(result)
    }
}

/// Runs it.
pub fn run(options: &Options) -> Result<Vec<Figure>, String> {
    Ok(vec![calls(options)?, first_touches(options)?])
}

fn calls(options: &Options) -> Result<Figure, String> {
    let rounds: u32 = if options.quick { 20_000 } else { 200_000 };
    let ways = ["stat", "stat, decided alone", "pipe write+read", "pipe write+read, decided alone"];
    let ping = ["pipe ping-pong of two threads", "pipe ping-pong of two threads, decided alone"];
    let mut series: Vec<Series> = ways.iter().chain(&ping).map(|name| Series::new(*name)).collect();
    let shared = Shared::ahead(2)?;
    for _ in 0..options.runs {
        let plain = |_: usize, _: &[Want], effect: &mut dyn FnMut()| -> Result<(), String> {
            effect();
            Ok(())
        };
        let decided = |process: usize, wanted: &[Want], effect: &mut dyn FnMut()| shared.call(process, wanted, effect);
        series[0].values.push(stats(rounds, &plain)?);
        series[1].values.push(stats(rounds, &decided)?);
        series[2].values.push(pipe(rounds, &plain)?);
        series[3].values.push(pipe(rounds, &decided)?);
        series[4].values.push(ping_pong(rounds / 20, &plain)?);
        series[5].values.push(ping_pong(rounds / 20, &decided)?);
    }
    let more = |at: usize| series[at + 1].median() - series[at].median();
    let targets = vec![
        Target { claim: "stat: ns more".into(), measured: more(0), limit: Limit::AtMost(CALL_MAX) },
        Target { claim: "pipe: ns more a call".into(), measured: more(2) / 2.0, limit: Limit::AtMost(CALL_MAX) },
        Target { claim: "ping-pong: ns more a call".into(), measured: more(4) / 4.0, limit: Limit::AtMost(CALL_MAX) },
    ];
    Ok(Figure {
        name: "epochs",
        title: "A call that decides alone that it depends on nothing new".to_owned(),
        unit: "ns",
        series,
        base: Base::Pairs,
        targets,
        notes: vec![
            machine(),
            "in one process: the protocol's cost without the agent's; reads of the ping-pong sleep".to_owned(),
        ],
    })
}

/// How a call is made: who makes it, what it touches, and its effect.
type Way<'a> = dyn Fn(usize, &[Want], &mut dyn FnMut()) -> Result<(), String> + Sync + 'a;

/// Nanoseconds for one of `rounds`.
fn timed(rounds: u32, mut round: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let start = Instant::now();
    for _ in 0..rounds {
        round()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(rounds))
}

fn stats(rounds: u32, way: &Way) -> Result<f64, String> {
    timed(rounds, || {
        way(0, &NAME, &mut || {
            black_box(std::fs::metadata("/")).ok();
        })
    })
}

fn problem(error: std::io::Error) -> String {
    format!("a pipe: {error}")
}

fn pass_on(way: &Way, process: usize, mut into: &PipeWriter, mut from: &PipeReader) -> Result<(), String> {
    let mut byte = [0];
    let mut written = Ok(());
    let mut read = Ok(());
    way(process, &[PIPE], &mut || written = into.write_all(&[1]))?;
    way(process, &[PIPE], &mut || read = from.read_exact(&mut byte))?;
    written.and(read).map_err(problem)
}

fn pipe(rounds: u32, way: &Way) -> Result<f64, String> {
    let (reader, writer) = std::io::pipe().map_err(problem)?;
    timed(rounds, || pass_on(way, 0, &writer, &reader))
}

fn ping_pong(rounds: u32, way: &Way) -> Result<f64, String> {
    let (near_reader, far_writer) = std::io::pipe().map_err(problem)?;
    let (far_reader, near_writer) = std::io::pipe().map_err(problem)?;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || -> Result<(), String> {
            let (mut from, mut into) = (far_reader, far_writer);
            let mut byte = [0];
            for _ in 0..rounds {
                let mut done = Ok(());
                way(1, &[PIPE], &mut || done = from.read_exact(&mut byte).and_then(|()| into.write_all(&byte)))?;
                done.map_err(problem)?;
            }
            Ok(())
        });
        let time = timed(rounds, || pass_on(way, 0, &near_writer, &near_reader));
        drop(near_writer);
        other.join().map_err(|_| "the other thread failed".to_owned())??;
        time
    })
}

/// An object is modified for the first time in an epoch: its modifier looks at all other threads.
fn first_touches(options: &Options) -> Result<Figure, String> {
    let rounds: u32 = if options.quick { 20_000 } else { 200_000 };
    let mut series: Vec<Series> = THREADS.iter().map(|count| Series::new(format!("{count} threads"))).collect();
    for _ in 0..options.runs {
        for (&count, series) in THREADS.iter().zip(&mut series) {
            let shared = Shared::ahead(count)?;
            let asker = Asker { process: &shared.processes[0], thread: 0, siblings: &[] };
            series.values.push(timed(rounds, || {
                // The next guess opens a new epoch, in which the next call is the first.
                shared.epochs.seal();
                let guess = shared.epochs.guess(asker, &shared.threads, || ());
                guess.map_err(|busy| format!("a guess says {busy:?}"))?;
                shared.call(0, &[PIPE], || ())
            })?);
        }
    }
    Ok(Figure {
        name: "epochs-first",
        title: "A guess, and an object's first modification in its epoch".to_owned(),
        unit: "ns",
        series,
        base: Base::One(0),
        targets: Vec::new(),
        notes: vec![machine(), "without a checkpoint, and without what is kept".to_owned()],
    })
}
