//! What is held for guesses is made when it cannot be taken back any more, or dropped (000, 5.3).

use crate::ahead::Written;
use crate::event_loop::Supervisor;
use crate::outputs::Taken;

impl Supervisor {
    /// Unless something that was held has not been made yet.
    pub(in crate::ahead) fn settle_locks(&mut self) {
        if self.ahead.overflow.is_empty() {
            self.ahead.file_locks.let_go();
            self.settle_record_locks();
        }
    }

    pub(super) fn release_output(&mut self, output: Written) {
        let output = match output {
            Written::Sent(sent) => {
                self.ahead.shown_bytes -= sent.bytes.len() as u64;
                return self.release_sent(sent);
            }
            output => output,
        };
        if !self.ahead.overflow.is_empty() {
            return self.ahead.overflow.push(output);
        }
        self.ahead.crash.step();
        match &output {
            Written::Sent(_) => {}
            Written::File(write) => self.make_write(write),
            Written::Names(change) => self.make_name_change(change),
            Written::Attributes(change) => self.make_attributes(change),
            Written::Sync(sync) => self.make_sync(sync),
            Written::Unlock(release) => release.make(),
            Written::Stream { target, writer, clock, bytes } => {
                // Writes that were held before it went into younger transactions than it knew of.
                let mut clock = *clock;
                clock.merge(&self.ahead.written);
                if self.outputs.take(target, *writer, clock, bytes.clone()) == Taken::Full {
                    self.ahead.overflow.push(output);
                } else {
                    self.ahead.shown_bytes -= bytes.len() as u64;
                    self.world().transactions.request(&clock);
                    external_sync::engine::ring(self.world());
                }
            }
        }
    }

    /// What did not fit into the queues when it became free.
    pub(in crate::ahead) fn release_overflow(&mut self) {
        for output in std::mem::take(&mut self.ahead.overflow) {
            self.release_output(output);
        }
        self.settle_locks();
    }

    /// A guess was wrong.
    pub(super) fn drop_output(&mut self, output: &Written) {
        let len = match output {
            Written::Sent(sent) => {
                self.ahead.sends.is_held_no_more(sent);
                self.ahead.shown_bytes -= sent.bytes.len() as u64;
                sent.bytes.len()
            }
            Written::Stream { bytes, .. } => {
                self.ahead.shown_bytes -= bytes.len() as u64;
                bytes.len()
            }
            Written::File(write) => {
                self.forget_write(write);
                write.len()
            }
            Written::Names(change) => {
                self.forget_name_change(change);
                0
            }
            Written::Attributes(change) => {
                self.forget_attributes(change);
                0
            }
            Written::Sync(_) | Written::Unlock(_) => 0,
        };
        self.ahead.report.output_dropped += len as u64;
    }
}
