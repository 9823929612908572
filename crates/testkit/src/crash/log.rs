//! What is recorded of a run.

use serde::Serialize;

use super::observer::Channel;

/// Something that reached the disk. Values are clock values; a value of `u64::MAX` means: not by the end of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// Data sent to the disk's cache.
    Write {
        /// When the disk received it.
        issued: u64,
        /// When the disk said that it has it (not that it is on the platter).
        done: u64,
        /// Where, bytes.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// A request to bring everything in the cache to the platter.
    Flush {
        /// When the disk received it.
        begin: u64,
        /// When the disk said that it has done so.
        end: u64,
    },
}

/// A line that an observer outside has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// When it was seen, at the latest.
    pub clock: u64,
    /// How it got out.
    pub channel: Channel,
    /// What it says, without the end of line.
    pub text: String,
}

/// A recorded run: the disk at its beginning, and everything that happened, in the order of the clock.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The disk when the recording began.
    pub base: Vec<u8>,
    /// Writes and flushes, in the order in which the disk received them.
    pub disk: Vec<DiskEvent>,
    /// What was seen.
    pub messages: Vec<Message>,
    /// The clock when the recording ended.
    pub end: u64,
}

impl Log {
    /// How many writes reached the disk.
    pub fn writes(&self) -> usize {
        self.disk.len() - self.flushes()
    }

    /// How many flushes reached the disk.
    pub fn flushes(&self) -> usize {
        let is_flush = |event: &&DiskEvent| matches!(event, DiskEvent::Flush { .. });
        self.disk.iter().filter(is_flush).count()
    }

    /// What has been seen by the moment `at`.
    pub fn observed(&self, at: u64) -> &[Message] {
        let len = self.messages.partition_point(|message| message.clock < at);
        &self.messages[..len]
    }

    /// The writes at the moment `at`: how many events of [`Log::disk`] are on the platter for certain (all writes among
    /// the first so many events), and which later writes had been issued.
    pub fn on_platter(&self, at: u64) -> (usize, Vec<usize>) {
        let flushed = |event: &&DiskEvent| matches!(event, DiskEvent::Flush { end, .. } if *end < at);
        let since = match self.disk.iter().rfind(flushed) {
            Some(DiskEvent::Flush { begin, .. }) => *begin,
            _ => 0,
        };
        // The disk serves one request at a time: what was done before a flush began comes before it in the log.
        let certain = self.disk.partition_point(|event| match event {
            DiskEvent::Write { done, .. } => *done < since,
            DiskEvent::Flush { begin, .. } => *begin < since,
        });
        let pending = |index: &usize| matches!(&self.disk[*index], DiskEvent::Write { issued, .. } if *issued < at);
        let pending = (certain..self.disk.len()).filter(pending).collect();
        (certain, pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(issued: u64, done: u64) -> DiskEvent {
        DiskEvent::Write { issued, done, offset: 0, data: vec![1; 512] }
    }

    #[test]
    fn a_flush_in_progress_promises_nothing_and_a_done_one_only_what_came_before_it() {
        let log = Log {
            disk: vec![write(0, 1), DiskEvent::Flush { begin: 2, end: 4 }, write(5, 6), write(7, 8)],
            end: 9,
            ..Log::default()
        };
        assert_eq!(log.on_platter(0), (0, vec![]));
        assert_eq!(log.on_platter(1), (0, vec![0]));
        assert_eq!(log.on_platter(4), (0, vec![0]), "the flush has not ended");
        assert_eq!(log.on_platter(5), (1, vec![]));
        assert_eq!(log.on_platter(8), (1, vec![2, 3]), "in flight counts as perhaps");
    }
}
