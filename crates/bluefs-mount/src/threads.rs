//! In which thread a request is carried out: in the one that has read it, or, if many of these wait, in one of its own.
//!
//! **Invariants:** the threads that read requests never all wait: what others wait for is read and carried out, however
//! many requests there are. What is to be carried out is, also while no thread can be made: by those that read, as many
//! of them as may be busy. A request whose caller is killed ends, whatever is before it (docs/decisions/0304, 0309).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Threads that read requests.
pub const THREADS: usize = 16;
/// How many of them may be busy before requests have threads of their own.
const BUSY_MAX: usize = THREADS / 2;
/// Requests at once that have threads of their own. Further ones wait, each as long as its caller does.
const REQUESTS_MAX: usize = 2048;
/// How often it is looked whether callers of those have given up, and at how many of them in a second: each look takes
/// some 30 µs.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_PER_SECOND: u32 = 1000;

type Work = Box<dyn FnOnce(Busy) + Send>;
type GivesUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// Requests that are being carried out. What waits is not among them.
pub struct Threads {
    apart: Arc<Apart>,
}

/// One that is.
struct Busy(Arc<AtomicUsize>);

/// One that waits for a thread.
struct Job {
    work: Work,
    gives_up: GivesUp,
}

/// Those that have threads of their own.
struct Apart {
    max: usize,
    busy: Arc<AtomicUsize>,
    /// How many jobs wait. Who finds none need not look.
    waiting: AtomicUsize,
    state: Mutex<Waiting>,
    /// Something waits, or the mount is over.
    changed: Condvar,
    #[cfg(test)]
    has_no_threads: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Waiting {
    threads: usize,
    /// Those of them that have not come to their first job yet.
    starting: usize,
    /// For these others wait.
    first: VecDeque<Work>,
    /// The others, in the order of their numbers.
    jobs: BTreeMap<u64, Job>,
    last: u64,
    is_over: bool,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.apart.lock().is_over = true;
        self.apart.changed.notify_all();
    }
}

impl Threads {
    /// None is carried out yet.
    ///
    /// # Errors
    /// The threads that are always there cannot be made.
    pub fn start() -> io::Result<Threads> {
        Threads::with(REQUESTS_MAX)
    }

    fn with(max: usize) -> io::Result<Threads> {
        let apart = Arc::new(Apart {
            max,
            busy: Arc::default(),
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
            #[cfg(test)]
            has_no_threads: false.into(),
        });
        let threads = Threads { apart };
        let (looks, carries_out) = (threads.apart.clone(), threads.apart.clone());
        Builder::new().name("waiting".to_owned()).spawn(move || looks.look())?;
        Builder::new().name("first".to_owned()).spawn(move || carries_out.carry_out_first())?;
        Ok(threads)
    }

    /// Carries a request out, and tells what has become of it. Who tells is not busy any more: the caller that wakes
    /// may keep this thread from its core, and makes further requests meanwhile, which would all have threads of their
    /// own (docs/decisions/0253). If it has to wait for a thread it is carried out as soon as its caller gives up: then
    /// it takes no time.
    pub fn run<T: 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
        gives_up: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        let all = whole(work, tell);
        match self.apart.begin() {
            Some(busy) => all(busy),
            None => self.apart.run(Job { work: Box::new(all), gives_up: Arc::new(gives_up) }),
        }
        self.apart.help();
    }

    /// The same of a request for which others may wait: it waits for none.
    pub fn run_first<T: 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) {
        let all = whole(work, tell);
        match self.apart.begin() {
            Some(busy) => all(busy),
            None => self.apart.run_first(Box::new(all)),
        }
        self.apart.help();
    }

    /// The same in a thread of its own. It counts for nothing: it may wait for another request.
    pub fn run_apart(work: impl FnOnce() + Send + 'static) {
        // If there is no thread to be had, the caller gets EIO: fuser answers so for whoever drops a reply.
        let _ = Builder::new().name("request".to_owned()).spawn(work);
    }
}

/// Does this in a thread of its own, and in this one if there is none to be had.
pub fn apart_or_here(name: &str, work: impl FnOnce() + Send + 'static) {
    by_or_here(Builder::new().name(name.to_owned()), work);
}

fn by_or_here(builder: Builder, work: impl FnOnce() + Send + 'static) {
    let here = Arc::new(Mutex::new(Some(work)));
    let there = here.clone();
    let take = |place: &Mutex<Option<_>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let spawned = builder.spawn(move || take(&there).into_iter().for_each(|work| work()));
    if spawned.is_err() {
        take(&here).into_iter().for_each(|work| work());
    }
}

fn whole<T>(work: impl FnOnce() -> T, tell: impl FnOnce(T)) -> impl FnOnce(Busy) {
    move |busy| {
        let done = work();
        drop(busy);
        tell(done);
    }
}

impl Apart {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, Waiting>, so_long: Duration) -> MutexGuard<'s, Waiting> {
        self.changed.wait_timeout(state, so_long).unwrap_or_else(PoisonError::into_inner).0
    }

    /// One more is carried out, by a thread that is not one of those that read.
    fn one_more(&self) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(self.busy.clone())
    }

    /// One by the thread that is always there: it is none of those that read, and looks at nothing behind it.
    fn one_beside() -> Busy {
        let nobodys = Arc::new(AtomicUsize::new(1));
        Busy(nobodys)
    }

    /// The same by one that reads, if few are. Who is refused was never counted: nobody is refused for it.
    fn begin(&self) -> Option<Busy> {
        let one_more = |busy| (busy < BUSY_MAX).then_some(busy + 1);
        self.busy.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        Some(Busy(self.busy.clone()))
    }

    /// What waits and has no thread on its way is carried out here while few requests are. Else all would wait where no
    /// thread can be made, and those that read have nothing to do. Who puts something there looks behind that, and who
    /// is busy no more behind that: one of them sees it.
    fn help(&self) {
        while self.waiting.load(Ordering::SeqCst) > 0 {
            let mut state = self.lock();
            if state.jobs.len() <= state.starting {
                return;
            }
            let Some(busy) = self.begin() else { return };
            let job = self.take(&mut state);
            drop(state);
            if let Some(work) = job {
                work(busy);
            }
        }
    }

    fn take(&self, state: &mut Waiting) -> Option<Work> {
        let (_, job) = state.jobs.pop_first()?;
        self.waiting.store(state.jobs.len(), Ordering::SeqCst);
        Some(job.work)
    }

    /// Whether there is a thread that does this.
    fn spawn(&self, work: impl FnOnce() + Send + 'static) -> bool {
        #[cfg(test)]
        if self.has_no_threads.load(Ordering::Relaxed) {
            return false;
        }
        Builder::new().name("request".to_owned()).spawn(work).is_ok()
    }

    fn run(self: &Arc<Apart>, job: Job) {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.jobs.insert(number, job);
        self.waiting.store(state.jobs.len(), Ordering::SeqCst);
        if !self.start(&mut state) {
            self.changed.notify_all();
        }
    }

    /// One more thread for what waits. `false`: there are as many as may be, or none can be made.
    fn start(self: &Arc<Apart>, state: &mut Waiting) -> bool {
        let apart = self.clone();
        let work = move || {
            let mut next = apart.next(true);
            while let Some(work) = next {
                work(apart.one_more());
                next = apart.next(false);
            }
        };
        let is_started = state.threads < self.max && self.spawn(work);
        state.threads += usize::from(is_started);
        state.starting += usize::from(is_started);
        is_started
    }

    /// What a thread goes on with; `None`: it ends. A thread takes nothing from `first`, which has threads of its own:
    /// the request that this thread was started for would have none, and would wait for as long as the other one does.
    fn next(&self, is_new: bool) -> Option<Work> {
        let mut state = self.lock();
        state.starting -= usize::from(is_new);
        let next = self.take(&mut state);
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }

    fn run_first(self: &Arc<Apart>, work: Work) {
        self.lock().first.push_back(work);
        let apart = self.clone();
        let carry_out = move || {
            let next = apart.lock().first.pop_front();
            if let Some(work) = next {
                work(apart.one_more());
            }
            apart.help();
        };
        if !self.spawn(carry_out) {
            self.changed.notify_all();
        }
    }

    /// What the thread does that is always there for what others wait for, if none can be made.
    fn carry_out_first(&self) {
        let mut state = self.lock();
        while !state.is_over {
            match state.first.pop_front() {
                Some(work) => {
                    drop(state);
                    work(Apart::one_beside());
                    state = self.lock();
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let left = std::mem::take(&mut state.first);
        drop(state);
        // The kernel has answered for them.
        drop(left);
    }

    /// What the thread does that looks at those that wait: whose caller has given up goes on, and if threads can be
    /// made again they are.
    fn look(self: &Arc<Apart>) {
        let mut state = self.lock();
        while !state.is_over {
            if state.jobs.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let all = Duration::from_secs(1) * state.jobs.len() as u32 / LOOKS_PER_SECOND;
            let until = Instant::now() + all.max(LOOK_EVERY);
            while !state.is_over && Instant::now() < until {
                state = self.wait(state, until.saturating_duration_since(Instant::now()));
            }
            for _ in 0..state.jobs.len() {
                if !self.start(&mut state) {
                    break;
                }
            }
            let waiting: Vec<(u64, GivesUp)> =
                state.jobs.iter().map(|(number, job)| (*number, job.gives_up.clone())).collect();
            drop(state);
            for (number, gives_up) in waiting {
                if gives_up() {
                    let mut state = self.lock();
                    let job = state.jobs.remove(&number);
                    self.waiting.store(state.jobs.len(), Ordering::SeqCst);
                    drop(state);
                    job.into_iter().for_each(|job| self.run_first(job.work));
                }
            }
            state = self.lock();
        }
        let left = std::mem::take(&mut state.jobs);
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    fn threads(max: usize) -> Arc<Threads> {
        Arc::new(Threads::with(max).expect("threads"))
    }

    /// Runs one inside the other, in their work or while they tell, and says whether the last one was in this thread.
    fn is_here(threads: Arc<Threads>, depth: usize, in_work: bool) -> bool {
        let (here, (tell, told)) = (thread::current().id(), channel());
        let inner = threads.clone();
        let next = move || {
            let is_last = depth == 1;
            let _ = tell.send(match is_last {
                true => thread::current().id() == here,
                false => thread::current().id() == here && is_here(inner, depth - 1, in_work),
            });
        };
        if in_work {
            threads.run(next, |()| {}, || false);
        } else {
            threads.run(|| (), move |()| next(), || false);
        }
        told.recv().expect("it is run")
    }

    #[test]
    fn only_if_many_are_busy_requests_have_threads_of_their_own() {
        assert!(is_here(threads(REQUESTS_MAX), BUSY_MAX, true));
        assert!(!is_here(threads(REQUESTS_MAX), BUSY_MAX + 1, true));
    }

    #[test]
    fn who_tells_is_not_busy() {
        assert!(is_here(threads(REQUESTS_MAX), 3 * THREADS, false));
    }

    #[test]
    fn what_is_one_too_many_waits_and_neither_who_reads_nor_what_others_wait_for_does() {
        const APART_MAX: usize = 2;
        let threads = threads(APART_MAX);
        let (_busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.apart.one_more()), channel());
        let gates: Vec<_> = (0..APART_MAX + 1)
            .map(|number| {
                let (tell, (open, gate)) = (tell.clone(), channel::<()>());
                threads.run(
                    move || {
                        let _ = tell.send(number);
                        let _ = gate.recv();
                    },
                    |()| {},
                    || false,
                );
                open
            })
            .collect();
        let mut begun = [0, 1].map(|_| told.recv().expect("it is run"));
        begun.sort_unstable();
        assert_eq!(begun, [0, 1]);
        let (tell_first, first) = (tell.clone(), || 99);
        threads.run_first(first, move |number| _ = tell_first.send(number));
        assert_eq!(told.recv(), Ok(99), "in front of the third");
        drop(gates.into_iter().next());
        assert_eq!(told.recv(), Ok(2));
    }
    #[test]
    fn who_gives_up_does_not_wait_for_a_thread() {
        let threads = threads(1);
        let (_busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.apart.one_more()), channel());
        let ((open, gate), is_killed) = (channel::<()>(), Arc::new(AtomicBool::new(false)));
        threads.run(move || _ = gate.recv(), |()| {}, || false);
        for number in 0..3 {
            let (tell, is_killed) = (tell.clone(), is_killed.clone());
            let gives_up = move || number == 1 && is_killed.load(Ordering::Relaxed);
            threads.run(move || number, move |number| _ = tell.send(number), gives_up);
        }
        assert!(told.recv_timeout(3 * LOOK_EVERY).is_err(), "all of them wait");
        is_killed.store(true, Ordering::Relaxed);
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(1));
        drop(open);
        assert_eq!([told.recv(), told.recv()], [Ok(0), Ok(2)]);
    }

    #[test]
    fn what_gives_something_back_is_done_without_a_new_thread_and_the_others_as_soon_as_there_is_one() {
        let threads = threads(2);
        let (_busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.apart.one_more()), channel());
        threads.apart.has_no_threads.store(true, Ordering::Relaxed);
        let told_later = tell.clone();
        threads.run(|| 7, move |number| _ = told_later.send(number), || false);
        for number in 0..3 {
            let tell = tell.clone();
            threads.run_first(move || number, move |number| _ = tell.send(number));
        }
        let first: Vec<_> = (0..3).map(|_| told.recv_timeout(Duration::from_secs(10))).collect();
        assert_eq!(first, [Ok(0), Ok(1), Ok(2)]);
        threads.apart.has_no_threads.store(false, Ordering::Relaxed);
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(7));
    }

    /// Found by reading: what waited counted as busy, so that all further ones waited, too.
    #[test]
    fn those_that_read_carry_out_what_waits_where_no_thread_can_be_made() {
        let threads = threads(REQUESTS_MAX);
        let (busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.apart.one_more()), channel());
        threads.apart.has_no_threads.store(true, Ordering::Relaxed);
        let run = |number| {
            let tell = tell.clone();
            threads.run(move || number, move |number| _ = tell.send(number), || false);
        };
        (0..BUSY_MAX + 1).for_each(run);
        assert!(told.try_recv().is_err(), "as many are busy as may be");
        drop(busy);
        run(99);
        let done: Vec<_> = told.try_iter().collect();
        assert_eq!(done, [99].into_iter().chain(0..BUSY_MAX + 1).collect::<Vec<_>>());
    }

    /// The last one that waits is carried out, also if nothing is read behind it.
    #[test]
    fn who_becomes_idle_carries_out_what_came_meanwhile() {
        let threads = threads(0);
        let (open, opened) = channel::<()>();
        let opened = Arc::new(Mutex::new(opened));
        let (tell, told) = channel();
        let (begun, has_begun) = channel();
        thread::scope(|scope| {
            for _ in 0..BUSY_MAX {
                let (opened, begun, threads) = (opened.clone(), begun.clone(), &threads);
                scope.spawn(move || {
                    let wait = move || {
                        let _ = begun.send(());
                        let _ = opened.lock().expect("no panic").recv();
                    };
                    threads.run(wait, |()| {}, || false);
                });
            }
            (0..BUSY_MAX).for_each(|_| has_begun.recv().expect("it is run"));
            threads.run(|| (), move |()| _ = tell.send(()), || false);
            assert!(told.try_recv().is_err(), "as many are busy as may be");
            let _ = open.send(());
            assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(()));
            drop(open);
        });
    }

    /// It counted as one of those that read, and did not look behind that: what was put there meanwhile waited.
    #[test]
    fn the_thread_that_is_always_there_is_none_of_those_that_read() {
        let threads = threads(0);
        let (mut busy, (tell, told)) = (Vec::from([(); BUSY_MAX].map(|()| threads.apart.one_more())), channel());
        threads.apart.has_no_threads.store(true, Ordering::Relaxed);
        let ((open, opened), (begun, has_begun)) = (channel::<()>(), channel());
        let wait = move || {
            let _ = begun.send(());
            let _ = opened.recv();
        };
        threads.run_first(wait, |()| {});
        has_begun.recv().expect("it is run");
        drop(busy.pop());
        threads.run(|| (), move |()| _ = tell.send(()), || false);
        assert_eq!(told.try_recv(), Ok(()), "one more may be busy");
        drop(open);
    }

    #[test]
    fn what_others_wait_for_takes_no_thread_from_a_request() {
        let threads = threads(REQUESTS_MAX);
        let (_busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.apart.one_more()), channel());
        let (open, opened) = channel::<()>();
        // As in `run_first`, before its thread begins.
        threads.apart.lock().first.push_back(Box::new(move |_| _ = opened.recv()));
        threads.run(|| (), move |()| _ = tell.send(()), || false);
        let carried_out = told.recv_timeout(Duration::from_secs(10));
        drop(open);
        assert_eq!(carried_out, Ok(()));
    }

    #[test]
    fn what_waits_goes_with_the_mount() {
        let threads = threads(0);
        let (_busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.apart.one_more()), channel::<()>());
        threads.run(move || drop(tell), |()| {}, || false);
        drop(threads);
        assert!(told.recv().is_err());
    }

    #[test]
    fn what_has_no_thread_is_done_here() {
        // No address space has room for the second one's stack.
        for (builder, is_here) in [(Builder::new(), false), (Builder::new().stack_size(1 << 60), true)] {
            let (here, (tell, told)) = (thread::current().id(), channel());
            by_or_here(builder, move || _ = tell.send(thread::current().id() == here));
            assert_eq!(told.recv(), Ok(is_here));
        }
    }
}
