//! How much a session has on its way at once. A server keeps no more than some, of what it has not decided and of what
//! its client has not read: behind that it ends the connection. What is beyond waits here, in its order.

use std::collections::BTreeMap;

use bluefs::query::{Query, NAMES_MAX};
use bluefs::session::UNACKNOWLEDGED_MAX;
use bluefs::Interval;
use bluefs_wire::Request;

/// Intervals without an acknowledged outcome.
pub const INTERVALS_MAX: u64 = UNACKNOWLEDGED_MAX as u64;
/// Bytes and messages of intervals without an outcome, with the contents that they take. A larger one goes alone: the
/// server keeps 96 MiB and 4,096 messages behind one that waits.
const SENT_MAX: Cost = Cost { bytes: 64 << 20, messages: 2048 };
/// Bytes of answers that were asked for, at most; the server keeps 128 MiB for a client that does not read.
const ASKED_BYTES_MAX: usize = 32 << 20;
/// The same of what is asked for before it is wanted: whoever wants something waits for all of that.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// About what one name in an answer takes up.
const NAME_BYTES: usize = 256;

/// What something takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    bytes: usize,
    messages: usize,
}

/// Intervals that were given to the connection and have no outcome.
#[derive(Debug, Default)]
pub struct Sent {
    each: BTreeMap<u64, Cost>,
    sum: Cost,
    last: u64,
}

impl Sent {
    /// A new connection.
    pub fn clear(&mut self) {
        *self = Sent::default();
    }

    /// The last one that was sent.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// One more is to be sent, with what it takes. `false`: it has to wait until others have their outcomes.
    pub fn begin(&mut self, interval: &Interval, pieces: &[Request]) -> bool {
        let bytes = interval.bytes() + pieces.iter().map(Request::bytes).sum::<usize>();
        let cost = Cost { bytes, messages: 1 + pieces.len() };
        let sum = Cost { bytes: self.sum.bytes + cost.bytes, messages: self.sum.messages + cost.messages };
        if !self.each.is_empty() && (sum.bytes > SENT_MAX.bytes || sum.messages > SENT_MAX.messages) {
            return false;
        }
        self.sum = sum;
        self.last = interval.number;
        self.each.insert(interval.number, cost);
        true
    }

    /// It has its outcome.
    pub fn end(&mut self, number: u64) {
        if let Some(cost) = self.each.remove(&number) {
            self.sum.bytes -= cost.bytes;
            self.sum.messages -= cost.messages;
        }
    }
}

/// Questions with large answers that were given to the connection and have none.
#[derive(Debug, Default)]
pub struct Asked {
    each: BTreeMap<u64, usize>,
    bytes: usize,
}

impl Asked {
    /// A new connection.
    pub fn clear(&mut self) {
        *self = Asked::default();
    }

    /// One more is to be sent. `false`: it has to wait until others have their answers.
    pub fn begin(&mut self, tag: u64, bytes: usize) -> bool {
        let has_room = self.each.is_empty() || self.bytes + bytes <= ASKED_BYTES_MAX;
        if has_room {
            self.bytes += bytes;
            self.each.insert(tag, bytes);
        }
        has_room
    }

    /// It has its answer.
    pub fn end(&mut self, tag: u64) {
        self.bytes -= self.each.remove(&tag).unwrap_or(0);
    }

    /// How much may be asked for before it is wanted.
    pub fn room_ahead(&self) -> u64 {
        AHEAD_BYTES_MAX.saturating_sub(self.bytes) as u64
    }
}

/// About how many bytes the answer has; 0: few.
pub fn answer_bytes(request: &Request) -> usize {
    match request {
        Request::Ask { query, .. } | Request::AskLeased { query, .. } => match query {
            Query::Read { len, .. } => *len as usize,
            Query::List { max, .. } | Query::ListPlus { max, .. } => (*max as usize).min(NAMES_MAX) * NAME_BYTES,
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bluefs::{Csn, Runs};

    use super::*;

    fn interval(number: u64) -> Interval {
        Interval { number, base: Csn(0), after: Runs::new(), reads: vec![], creds: vec![], steps: vec![] }
    }

    #[test]
    fn what_is_large_goes_alone() {
        let piece = || Request::Stage { id: 0, data: vec![0; 1 << 20] };
        let mut sent = Sent::default();
        let large: Vec<Request> = (0..70).map(|_| piece()).collect();
        assert!(sent.begin(&interval(1), &large));
        assert!(!sent.begin(&interval(2), &[]));
        sent.end(1);
        assert!(sent.begin(&interval(2), &large[..30]) && sent.begin(&interval(3), &large[..30]));
        assert!(!sent.begin(&interval(4), &large[..30]));
        assert_eq!(sent.last(), 3);
        sent.end(3);
        sent.end(3);
        assert!(sent.begin(&interval(4), &large[..30]));
    }

    #[test]
    fn what_is_read_ahead_leaves_room_for_what_is_wanted() {
        let mut asked = Asked::default();
        let mut tags = 1..;
        let mut ask = |asked: &mut Asked| asked.begin(tags.next().expect("a tag"), 1 << 20);
        while asked.room_ahead() > 0 {
            assert!(ask(&mut asked));
        }
        let wanted = std::iter::repeat_with(|| ask(&mut asked)).take_while(|sent| *sent).count();
        assert_eq!(wanted, 16);
        asked.end(1);
        assert!(ask(&mut asked) && !ask(&mut asked));
    }
}
