//! Guesses that somebody outside of the world resolves: `speculator begin --outside`, `guesses`, `commit --world`.

use crate::support;

use std::collections::BTreeSet;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use supervisor::completions::{News, Outcome, Resolver};
use support::places::{PATIENCE, PAUSE};

const SPECULATOR: &str = env!("CARGO_BIN_EXE_speculator");

/// Two guesses, of which the second depends on the first. What is between cannot be undone: it waits.
const TWO: &str = r#"
    echo start
    one=$($S begin --outside 7); if [ "$one" = failed ]; then echo again; exit 7; fi
    two=$($S begin --outside 8); if [ "$two" = failed ]; then echo again 2; exit 8; fi
    echo ahead > f
    setsid true
    echo after"#;

/// A bash script in a world.
struct World {
    /// Until it has ended.
    run: Option<Child>,
    dir: tempfile::TempDir,
}

impl World {
    fn start(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = Command::new(SPECULATOR)
            .args(["run", "--", "bash", "-c", script])
            .current_dir(dir.path())
            .env("S", SPECULATOR)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { run: Some(run), dir }
    }

    fn pid(&self) -> i32 {
        self.run.as_ref().map_or(0, |run| run.id() as i32)
    }

    fn resolver(&self) -> Resolver {
        let end = Instant::now() + PATIENCE;
        loop {
            match Resolver::connect(self.pid()) {
                Ok(resolver) => return resolver,
                // Its world is being set up.
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("f")).unwrap_or_default()
    }

    /// What it printed, its status, and what was said on stderr.
    fn end(mut self) -> (String, Option<i32>, String) {
        let output = self.run.take().unwrap().wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), output.status.code(), text(output.stderr))
    }
}

/// Nothing goes on where a test has failed.
impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut run) = self.run.take() {
            let _ = run.kill().and_then(|()| run.wait());
        }
    }
}

/// Until so many guesses were begun: their numbers and tags, and on which others they depend.
fn begun(resolver: &mut Resolver, count: usize) -> Vec<(u64, u64, Vec<u64>)> {
    let mut all = Vec::new();
    while all.len() < count {
        match resolver.hear().unwrap().expect("the world runs") {
            News::Begun { guess, tag, depends_on, others: 0, .. } => all.push((guess, tag, depends_on)),
            other => panic!("{other:?}"),
        }
    }
    all
}

fn next(resolver: &mut Resolver) -> News {
    resolver.hear().unwrap().expect("the world runs")
}

/// What a command of ours prints, and its status.
fn ask(arguments: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(SPECULATOR).args(arguments).output().unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

#[test]
fn a_right_guess_is_kept_and_waiting_for_it_is_no_dead_end() {
    let world = World::start(TWO);
    let mut resolver = world.resolver();
    assert_eq!(begun(&mut resolver, 2), [(1, 7, vec![]), (2, 8, vec![1])]);
    // Longer than guesses of programs stay open for which everything inside waits.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(world.file(), "");
    let pid = world.pid().to_string();
    assert_eq!(ask(&["commit", "1", "--world", &pid]), (String::new(), Some(0)));
    assert_eq!(next(&mut resolver), News::Committed(1));
    assert_eq!(world.file(), "");
    resolver.say(Outcome::Commit(2)).unwrap();
    assert_eq!(next(&mut resolver), News::Committed(2));
    assert_eq!(resolver.hear().unwrap(), None);
    assert_eq!(world.file(), "ahead\n");
    assert_eq!(world.end(), ("start\nafter\n".into(), Some(0), String::new()));
}

#[test]
fn a_wrong_guess_takes_back_what_depends_on_it() {
    let world = World::start(TWO);
    let mut resolver = world.resolver();
    begun(&mut resolver, 2);
    resolver.say(Outcome::Fail(2)).unwrap();
    assert_eq!(next(&mut resolver), News::Failed(2));
    // The first is still open, and everything waits for it.
    resolver.say(Outcome::Fail(1)).unwrap();
    assert_eq!(next(&mut resolver), News::Failed(1));
    assert_eq!(world.file(), "");
    assert_eq!(world.end(), ("start\nagain\n".into(), Some(7), String::new()));
}

#[test]
fn a_guess_that_depends_on_a_wrong_one_is_undone() {
    let world = World::start(TWO);
    let mut resolver = world.resolver();
    begun(&mut resolver, 2);
    resolver.say(Outcome::Fail(1)).unwrap();
    assert_eq!([next(&mut resolver), next(&mut resolver)], [News::Failed(1), News::Undone(2)]);
    // The world may have ended meanwhile: then nobody hears this.
    let _ = resolver.say(Outcome::Commit(2));
    let last: Vec<News> = std::iter::from_fn(|| resolver.hear().unwrap()).collect();
    assert!(last.is_empty() || last == [News::Unknown(2)], "{last:?}");
    assert_eq!(world.end(), ("start\nagain\n".into(), Some(7), String::new()));
}

#[test]
fn whoever_comes_later_is_told_of_what_is_open() {
    let world = World::start(TWO);
    begun(&mut world.resolver(), 2);
    let mut later = world.resolver();
    assert_eq!(begun(&mut later, 2).len(), 2);
    let pid = world.pid().to_string();
    let (errors, status) = ask(&["fail", "9", "--world", &pid]);
    assert!(status == Some(125) && errors.contains("no such open speculation"), "{errors}");
    later.say(Outcome::Fail(9)).unwrap();
    assert_eq!(next(&mut later), News::Unknown(9));
    assert_eq!(ask(&["fail", "1", "--world", &pid]), (String::new(), Some(0)));
    assert_eq!(world.end().1, Some(7));
}

/// Several resolvers, each with guesses of its own, at random moments.
#[test]
fn outcomes_come_from_many_threads() {
    const GUESSES: u64 = 24;
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("SEED={seed}");
    let is_right = |tag: u64| !tag.is_multiple_of(5);
    let script = format!(
        "for i in $(seq {GUESSES}); do \
             case $($S begin --outside $i) in failed) echo $i wrong;; *) echo $i right;; esac \
         done"
    );
    let world = World::start(&script);
    let resolve = |mine: u64, mut resolver: Resolver| {
        let mut dice = fastrand::Rng::with_seed(seed + mine);
        while let Some(news) = resolver.hear().unwrap() {
            let News::Begun { guess, tag, .. } = news else { continue };
            if guess % 4 == mine {
                std::thread::sleep(Duration::from_millis(dice.u64(..60)));
                // The world may have ended without it: it has been undone meanwhile.
                let _ = resolver.say(if is_right(tag) { Outcome::Commit(guess) } else { Outcome::Fail(guess) });
            }
        }
    };
    std::thread::scope(|scope| {
        for mine in 0..4 {
            let resolver = world.resolver();
            scope.spawn(move || resolve(mine, resolver));
        }
    });
    let expected: String =
        (1..=GUESSES).map(|tag| format!("{tag} {}\n", if is_right(tag) { "right" } else { "wrong" })).collect();
    assert_eq!(world.end(), (expected, Some(0), String::new()));
}

#[test]
fn a_guess_of_a_program_inside_can_be_resolved_from_outside() {
    let world = World::start("$S begin > id; if [ \"$(cat id)\" = failed ]; then exit 9; fi; sleep 300");
    let pid = world.pid().to_string();
    let end = Instant::now() + PATIENCE;
    while ask(&["fail", "1", "--world", &pid]).1 != Some(0) {
        assert!(Instant::now() < end);
        std::thread::sleep(PAUSE);
    }
    assert_eq!(world.end(), (String::new(), Some(9), String::new()));
}

#[test]
fn a_signal_ends_a_world_that_nobody_resolves() {
    let world = World::start("id=$($S begin --outside 1); sleep 300");
    begun(&mut world.resolver(), 1);
    let status = Command::new("kill").arg(world.pid().to_string()).status().unwrap();
    assert!(status.success());
    let (output, status, _) = world.end();
    assert_eq!((output.as_str(), status), ("", None), "ended by the signal, as natively");
}

#[test]
fn what_is_no_outcome_ends_the_connection() {
    let world = World::start(TWO);
    begun(&mut world.resolver(), 2);
    let name = format!("speculator-guesses-{}", world.pid());
    let long = "9".repeat(100_000);
    for line in ["hello\n", "{\"commit\":-1}\n", "{\"commit\":1,\"fail\":1}\n", "\n", long.as_str()] {
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        // It may be closed before all of that is written.
        let _ = std::io::Write::write_all(&mut stream, line.as_bytes());
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        let lines: BTreeSet<&str> = said.lines().map(|line| line.split(':').next().unwrap_or_default()).collect();
        assert_eq!(lines, BTreeSet::from(["{\"begun\"", "{\"invalid\""]), "{line:.20}: {said}");
    }
    let pid = world.pid().to_string();
    assert_eq!(ask(&["fail", "1", "--world", &pid]).1, Some(0));
    assert_eq!(world.end().1, Some(7));
}

#[test]
fn who_may_not_speak_to_a_world_is_told_so() {
    let (errors, status) = ask(&["commit", "1", "--world", "1"]);
    assert!(status == Some(125) && errors.contains("process 1 is no running speculator run"), "{errors}");
    if !support::is_root() {
        return;
    }
    let world = World::start(TWO);
    begun(&mut world.resolver(), 2);
    let pid = world.pid().to_string();
    // Where an ordinary user may execute it.
    let dir = tempfile::Builder::new().prefix("outside").tempdir_in("/tmp").unwrap();
    let copy = copy_for_all(dir.path());
    for arguments in [["guesses", &pid].as_slice(), &["fail", "1", "--world", &pid]] {
        let output = Command::new(&copy).args(arguments).uid(65534).gid(65534).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && errors.contains("another user's"), "{errors}");
    }
    assert_eq!(ask(&["fail", "1", "--world", &pid]).1, Some(0));
    assert_eq!(world.end().1, Some(7));
}

fn copy_for_all(dir: &Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let copy = dir.join("speculator");
    support::copy_program(SPECULATOR, &copy);
    for path in [dir, &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}
