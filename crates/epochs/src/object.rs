//! An object's slot.

use crate::planted::{planted, Fault};
use crate::{look_after, AtomicU64, Epoch, Ordering};

/// Somebody changes the object's epoch: whoever meets this asks.
const CHANGING: u64 = 1;
/// A call that touches the object has to ask: it is waited for, watched, or held under a name.
const ASK: u64 = 2;
/// Who changes it stands above the marks: a thread's number and 1, or 0 for the supervisor.
const OWNER: u64 = 4;
const OWNER_BITS: u64 = 0x3fff_fffc;
/// Versions are counted above that.
const VERSION: u64 = 0x4000_0000;

/// Who marks an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Supervisor,
    Thread(usize),
}

impl Owner {
    #[inline(always)]
    fn bits(self) -> u64 {
        match self {
            Owner::Supervisor => 0,
            Owner::Thread(number) => ((number as u64 + 1) * OWNER) & OWNER_BITS,
        }
    }
}

/// The slot of an object that carries state between processes.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Object {
    /// Which object has the slot now; 0 while none has.
    key: AtomicU64,
    state: AtomicU64,
    epoch: AtomicU64,
}

impl Object {
    /// A slot of the object with this key, which depends on nothing. Keys are exact and not 0.
    pub fn new(key: u64) -> Self {
        Self { key: AtomicU64::new(key), state: AtomicU64::new(0), epoch: AtomicU64::new(0) }
    }

    /// Which object has the slot.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    /// The newest epoch that it depends on, unless somebody changes that or wants to be asked.
    #[inline(always)]
    pub(crate) fn settled(&self) -> Option<Epoch> {
        // Sequentially consistent: after the reader's publication, before or after the mark of whoever changes.
        let state = self.state.load(Ordering::SeqCst);
        (state & (CHANGING | ASK) == 0 || planted(Fault::MarkIgnored)).then(|| self.epoch.load(Ordering::Acquire))
    }

    /// The newest epoch that it depends on, for whoever has marked it.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Acquire)
    }

    /// Marks it as changing. False if somebody else has, or if a thread would have to ask about it.
    #[inline(always)]
    pub(crate) fn mark(&self, owner: Owner) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let refused = if owner == Owner::Supervisor { CHANGING } else { CHANGING | ASK };
            if state & refused != 0 {
                return false;
            }
            let marked = state | CHANGING | owner.bits();
            // Sequentially consistent: before the look at what others have published.
            match self.state.compare_exchange(state, marked, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    look_after();
                    return true;
                }
                Err(now) => state = now,
            }
        }
    }

    /// Takes the mark of `owner` away, with a new epoch if there is one.
    #[inline(always)]
    pub(crate) fn unmark(&self, owner: Owner, epoch: Option<Epoch>) {
        if let Some(epoch) = epoch {
            self.epoch.store(epoch, Ordering::Release);
        }
        // Only ASK may have changed meanwhile, which an addition leaves alone.
        self.state.fetch_add(VERSION - CHANGING - owner.bits(), Ordering::SeqCst);
    }

    /// Whether this owner has marked it.
    pub(crate) fn is_marked_by(&self, owner: Owner) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        state & CHANGING != 0 && state & OWNER_BITS == owner.bits()
    }

    /// From now on each call that touches it asks.
    pub fn ask_about(&self) {
        self.state.fetch_or(ASK, Ordering::SeqCst);
    }

    /// Calls that touch it need not ask any more.
    pub fn do_not_ask_about(&self) {
        self.state.fetch_and(!ASK, Ordering::SeqCst);
    }

    /// How often its epoch was changed or was about to be: what has the same version twice did not change in between.
    pub fn version(&self) -> u64 {
        self.state.load(Ordering::SeqCst) / VERSION
    }

    /// The slot is another object's from now on. Only for whoever has marked it.
    pub(crate) fn reset(&self, key: u64) {
        self.key.store(key, Ordering::Release);
        self.epoch.store(0, Ordering::Release);
    }
}
