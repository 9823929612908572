//! What bounds the cost of running ahead (000, 5.2).

/// Limits of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Age above which a checkpoint is no longer shared, ms (000, 5.2: 500).
    pub checkpoint_age_ms_max: u64,
    /// Full speculations that may be open at the same time (000, 5.2: 2,000). Lightweight ones cost no checkpoint and
    /// are not counted.
    pub open_speculations_max: usize,
    /// Whether read-only speculations share a checkpoint at all.
    pub share_checkpoints: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { checkpoint_age_ms_max: 500, open_speculations_max: 2000, share_checkpoints: true }
    }
}
