//! What was read from outside by executions that were taken back, in front of the source that it came from: whoever
//! reads there next gets it again (000, 5.3: input is an object).
//!
//! A *chunk* is what one call read. One that is shorter than what the call asked for was all that there was: a later
//! call sees that border, too, as it would have if it had been made at that time. One that filled its call has no
//! border of its own: what follows joins it.

use std::collections::VecDeque;

/// What one call read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub bytes: Vec<u8>,
    /// The call asked for more than there was: it ends here for everybody.
    pub ends: bool,
    /// It failed, with what the kernel tells of a connection once. There are no bytes then.
    pub error: Option<i32>,
}

impl Chunk {
    /// Of a call that asked for `len_max` bytes.
    pub fn of(bytes: Vec<u8>, len_max: usize) -> Self {
        let ends = bytes.len() < len_max;
        Self { bytes, ends, error: None }
    }

    /// Of a call that failed.
    pub fn of_error(error: i32) -> Self {
        Self { bytes: Vec::new(), ends: true, error: Some(error) }
    }
}

/// What is given again, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pushback(VecDeque<Chunk>);

impl Pushback {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How much there is, bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// In their order.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.0.iter()
    }

    /// The youngest call that is undone: what it read came before all that is here.
    pub fn give_back(&mut self, chunk: Chunk) {
        if !chunk.bytes.is_empty() || chunk.ends {
            self.0.push_front(chunk);
        }
    }

    /// What a call that asks for `len_max` bytes reads, at least one, from here. If it `ends`, that is all that it
    /// gets; otherwise what the source has now joins it, as far as there is room.
    pub fn take(&mut self, len_max: usize) -> Chunk {
        let mut taken = Chunk { bytes: Vec::new(), ends: false, error: None };
        while let Some(chunk) = self.0.front_mut() {
            if chunk.error.is_some() && !taken.bytes.is_empty() {
                taken.ends = taken.bytes.len() < len_max;
                return taken;
            }
            taken.error = chunk.error;
            let room = len_max - taken.bytes.len();
            if chunk.bytes.len() > room {
                taken.bytes.extend(chunk.bytes.drain(..room));
                return taken;
            }
            taken.bytes.append(&mut chunk.bytes);
            taken.ends = chunk.ends;
            self.0.pop_front();
            if taken.ends {
                // Of a call that it fills nobody knows that there was no more.
                taken.ends = taken.bytes.len() < len_max;
                return taken;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str, ends: bool) -> Chunk {
        Chunk { bytes: text.as_bytes().to_vec(), ends, error: None }
    }

    #[test]
    fn an_error_comes_once_and_behind_what_was_before_it() {
        let mut pushback = pushback(&[chunk("abc", false), Chunk::of_error(104)]);
        assert_eq!(pushback.take(2), chunk("ab", false));
        assert_eq!(pushback.take(9), chunk("c", true));
        assert_eq!(pushback.take(9), Chunk::of_error(104));
        assert!(pushback.is_empty());
    }

    /// Chunks in the order in which they were read: undone from the youngest on.
    fn pushback(chunks: &[Chunk]) -> Pushback {
        let mut pushback = Pushback::default();
        for chunk in chunks.iter().rev() {
            pushback.give_back(chunk.clone());
        }
        pushback
    }

    #[test]
    fn calls_that_ask_for_the_same_get_the_same() {
        let read = [chunk("abc", true), chunk("de", false), chunk("f", true)];
        let mut pushback = pushback(&read);
        assert_eq!(pushback.len(), 6);
        for (chunk, len_max) in read.iter().zip([10, 2, 2]) {
            assert_eq!(pushback.take(len_max), *chunk);
        }
        assert!(pushback.is_empty());
    }

    #[test]
    fn a_border_is_seen_by_a_call_that_asks_for_more() {
        let mut pushback = pushback(&[chunk("ab", true), chunk("cd", true)]);
        assert_eq!(pushback.take(100), chunk("ab", true));
        assert_eq!(pushback.take(100), chunk("cd", true));
    }

    #[test]
    fn a_call_that_was_filled_leaves_no_border() {
        let mut pushback = pushback(&[chunk("a", false), chunk("b", false), chunk("c", true), chunk("d", false)]);
        assert_eq!(pushback.take(100), chunk("abc", true));
        assert_eq!(pushback.take(100), chunk("d", false), "what the source has joins it");
    }

    #[test]
    fn what_does_not_fit_stays() {
        let mut pushback = pushback(&[chunk("abcdef", true)]);
        assert_eq!(pushback.take(2), chunk("ab", false));
        assert_eq!(pushback.take(4), chunk("cdef", false));
        assert!(pushback.is_empty());
    }

    #[test]
    fn an_end_of_file_at_a_terminal_is_given_again() {
        let mut pushback = pushback(&[chunk("a", true), chunk("", true)]);
        assert_eq!(pushback.take(10), chunk("a", true));
        assert_eq!(pushback.take(10), chunk("", true));
        pushback.give_back(chunk("", false));
        assert!(pushback.is_empty(), "a call that asks for nothing reads nothing");
    }

    /// However it was read, and however it is read again: nothing is lost, nothing changes its place.
    #[test]
    fn the_stream_stays_as_it_is() {
        let text: Vec<u8> = (0..=255).collect();
        for seed in 1..200usize {
            let mut at = 0;
            let mut chunks = Vec::new();
            while at < text.len() {
                let len = 1 + (seed * 31 + at * 7) % 40;
                let end = text.len().min(at + len);
                chunks.push(Chunk::of(text[at..end].to_vec(), len + at % 2));
                at = end;
            }
            let mut pushback = pushback(&chunks);
            let mut again = Vec::new();
            while !pushback.is_empty() {
                let taken = pushback.take(1 + (seed * 17 + again.len() * 5) % 60);
                assert!(!taken.bytes.is_empty());
                again.extend(taken.bytes);
            }
            assert_eq!(again, text, "seed {seed}");
        }
    }
}
