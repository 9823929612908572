//! In which thread a request is carried out: in the one that has read it, or, if many of these wait, in one of its own.
//!
//! **Invariant:** the threads that read requests never all wait: what others wait for is read and carried out, however
//! many requests there are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that read requests.
pub const THREADS: usize = 16;
/// How many of them may be busy before requests have threads of their own.
const BUSY_MAX: usize = THREADS / 2;
/// Requests at once that have threads of their own. Further ones wait, each as long as its caller does.
const REQUESTS_MAX: usize = 2048;

type Job = Box<dyn FnOnce() + Send>;

/// Requests that are being carried out.
pub struct Threads {
    busy: Arc<AtomicUsize>,
    apart: Arc<Apart>,
}

/// One that is.
struct Busy(Arc<AtomicUsize>);

/// Those that have threads of their own.
struct Apart {
    max: usize,
    state: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    threads: usize,
    jobs: VecDeque<Job>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Threads {
    fn default() -> Threads {
        Threads::with(REQUESTS_MAX)
    }
}

impl Threads {
    fn with(max: usize) -> Threads {
        Threads { busy: Arc::default(), apart: Arc::new(Apart { max, state: Mutex::default() }) }
    }

    /// How many there are, and one more.
    fn begin(&self) -> (usize, Busy) {
        (self.busy.fetch_add(1, Ordering::Relaxed), Busy(self.busy.clone()))
    }

    /// Carries a request out, and tells what has become of it. Who tells is not busy any more: the caller that wakes
    /// may keep this thread from its core, and makes further requests meanwhile, which would all have threads of their
    /// own (docs/decisions/0253).
    pub fn run<T: 'static>(&self, work: impl FnOnce() -> T + Send + 'static, tell: impl FnOnce(T) + Send + 'static) {
        let (before, busy) = self.begin();
        let all = whole(busy, work, tell);
        match before < BUSY_MAX {
            true => all(),
            false => self.apart.run(Box::new(all)),
        }
    }

    /// The same of a request for which others may wait: it waits for none.
    pub fn run_first<T: 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) {
        let (before, busy) = self.begin();
        let all = whole(busy, work, tell);
        match before < BUSY_MAX {
            true => all(),
            false => Threads::run_apart(all),
        }
    }

    /// The same in a thread of its own. It counts for nothing: it may wait for another request.
    pub fn run_apart(work: impl FnOnce() + Send + 'static) {
        // If there is no thread to be had, the caller gets EIO: fuser answers so for whoever drops a reply.
        let _ = std::thread::Builder::new().name("request".to_owned()).spawn(work);
    }
}

fn whole<T>(busy: Busy, work: impl FnOnce() -> T, tell: impl FnOnce(T)) -> impl FnOnce() {
    move || {
        let done = work();
        drop(busy);
        tell(done);
    }
}

impl Apart {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: &Arc<Apart>, job: Job) {
        {
            let mut state = self.lock();
            if state.threads >= self.max {
                return state.jobs.push_back(job);
            }
            state.threads += 1;
        }
        let apart = self.clone();
        let work = move || {
            let mut next = Some(job);
            while let Some(job) = next {
                job();
                next = apart.next();
            }
        };
        // As above. Those that wait are taken by another thread.
        if std::thread::Builder::new().name("request".to_owned()).spawn(work).is_err() {
            self.lock().threads -= 1;
        }
    }

    /// What a thread goes on with; `None`: it ends.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        let next = state.jobs.pop_front();
        if next.is_none() {
            state.threads -= 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

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
            threads.run(next, |()| {});
        } else {
            threads.run(|| (), move |()| next());
        }
        told.recv().expect("it is run")
    }

    #[test]
    fn only_if_many_are_busy_requests_have_threads_of_their_own() {
        assert!(is_here(Arc::default(), BUSY_MAX, true));
        assert!(!is_here(Arc::default(), BUSY_MAX + 1, true));
    }

    #[test]
    fn who_tells_is_not_busy() {
        assert!(is_here(Arc::default(), 3 * THREADS, false));
    }

    #[test]
    fn what_is_one_too_many_waits_and_neither_who_reads_nor_what_others_wait_for_does() {
        const APART_MAX: usize = 2;
        let threads = Threads::with(APART_MAX);
        let (_busy, (tell, told)) = ([(); BUSY_MAX].map(|()| threads.begin()), channel());
        let gates: Vec<_> = (0..APART_MAX + 1)
            .map(|number| {
                let (tell, (open, gate)) = (tell.clone(), channel::<()>());
                threads.run(
                    move || {
                        let _ = tell.send(number);
                        let _ = gate.recv();
                    },
                    |()| {},
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
}
