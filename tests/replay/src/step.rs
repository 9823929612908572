//! What a replayed program does, as far as dependencies are concerned.

/// An object that carries state between processes. Numbers are given in the order in which objects are met.
pub type Object = u32;

/// A process. Threads of one process have its number.
pub type Process = u32;

/// How an object is modified, which decides what is kept to undo that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Contents of a file: so many bytes that stood there before are overwritten.
    Contents {
        /// Bytes that have to be kept.
        kept: u64,
    },
    /// Bytes into a pipe or socket or out of it, a lock, a position.
    Queue,
    /// A name that was there before.
    OldName,
    /// A name that was not there, made by a call that fails if it is.
    NewName,
}

/// What a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Its result tells of the object.
    Observe(Object),
    /// It changes the object.
    Modify(Object, Change),
}

/// What else a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call like any other.
    Call,
    /// It makes this process.
    Birth(Process),
    /// It takes the end of this process.
    Reap(Process),
    /// It sends this process a signal, or ends it.
    Signal(Process),
    /// It leaves the world.
    Output,
    /// Nobody knows what it means: its process must depend on nothing.
    Barrier,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, in seconds since the beginning of the log.
    pub time: f64,
    /// Who.
    pub process: Process,
    /// What it is.
    pub kind: Kind,
    /// What it touches, in this order.
    pub touches: Vec<Touch>,
    /// Whether a client of a distributed file system would guess at its answer.
    pub guesses: bool,
}
