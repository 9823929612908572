//! In which thread a request is carried out: in the one that has read it, or, if many of these wait, in one of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Threads that read requests.
pub const THREADS: usize = 16;
/// How many of them may be busy before requests have threads of their own.
const BUSY_MAX: usize = THREADS / 2;
/// Requests at once. Further ones wait in the kernel.
const REQUESTS_MAX: usize = 2048;

/// How many requests are being carried out.
#[derive(Default)]
pub struct Threads(Arc<AtomicUsize>);

/// One that is.
pub struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// How many there are, and one more.
    pub fn begin(&self) -> (usize, Busy) {
        (self.0.fetch_add(1, Ordering::Relaxed), Busy(self.0.clone()))
    }

    /// Carries a request out, and tells what has become of it. Who tells is not busy any more: the caller that wakes
    /// may keep this thread from its core, and makes further requests meanwhile, which would all have threads of their
    /// own (docs/decisions/0253).
    pub fn run<T>(&self, work: impl FnOnce() -> T + Send + 'static, tell: impl FnOnce(T) + Send + 'static) {
        let (before, busy) = self.begin();
        if (BUSY_MAX..REQUESTS_MAX).contains(&before) {
            return Threads::run_apart(busy, work, tell);
        }
        let done = work();
        drop(busy);
        tell(done);
    }

    /// The same in a thread of its own.
    pub fn run_apart<T>(busy: Busy, work: impl FnOnce() -> T + Send + 'static, tell: impl FnOnce(T) + Send + 'static) {
        let all = move || {
            let done = work();
            drop(busy);
            tell(done);
        };
        // If there is no thread to be had, the caller gets EIO: fuser answers so for whoever drops a reply.
        let _ = std::thread::Builder::new().name("request".to_owned()).spawn(all);
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
}
