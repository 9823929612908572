//! Messages in a stream of bytes: length, checksum, bytes.

use crate::codec::{decode, encode, Wire, WireError};

/// Bytes of one message, at most: an interval at its bounds, with room for its names and reads.
pub const FRAME_BYTES_MAX: usize = 48 << 20;
/// Room that is kept for the next messages. A large one takes more only until it is there: a server has many ends.
const KEPT_BYTES: usize = 4 << 20;
/// Bytes in front of a message: its length and its CRC-32 (of ISO 3309), four bytes each.
pub const HEADER_BYTES: usize = 8;

/// A message with its header.
pub fn frame<T: Wire>(message: &T) -> Vec<u8> {
    let body = encode(message);
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    (body.len() as u32).put(&mut out);
    crc32fast::hash(&body).put(&mut out);
    out.extend(body);
    out
}

/// Takes messages out of what arrives.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
    bytes_max: usize,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { bytes: Vec::new(), at: 0, bytes_max: FRAME_BYTES_MAX }
    }
}

impl Frames {
    /// Nothing has arrived.
    pub fn new() -> Frames {
        Frames::default()
    }

    /// Another bound for a message: less than [`FRAME_BYTES_MAX`] is taken from somebody who is not known yet.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// These bytes have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
            // What is gone was a large one, and this did not come alone.
            if self.bytes.len() <= KEPT_BYTES {
                self.bytes.shrink_to(KEPT_BYTES);
            }
        }
        self.bytes.extend(bytes);
    }

    /// The next message, if all of it is there. After an error the stream cannot be read any further.
    pub fn next_message<T: Wire>(&mut self) -> Result<Option<T>, WireError> {
        let rest = &self.bytes[self.at..];
        let Some((header, rest)) = rest.split_at_checked(HEADER_BYTES) else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let len = word(0) as usize;
        if len > self.bytes_max {
            return Err(WireError::TooLong { what: "message", len });
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        if crc32fast::hash(body) != word(4) {
            return Err(WireError::Checksum);
        }
        let message = decode(body)?;
        self.at += HEADER_BYTES + len;
        if self.at == self.bytes.len() && self.bytes.capacity() > KEPT_BYTES {
            (self.bytes, self.at) = (Vec::new(), 0);
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Request;

    #[test]
    fn the_room_of_a_large_message_is_given_back_also_if_the_next_one_came_with_it() {
        let (large, small) = (vec![7_u8; KEPT_BYTES + KEPT_BYTES / 2], Request::Goodbye {});
        let (bytes, next) = (frame(&large), frame(&small));
        let mut frames = Frames::new();
        bytes.chunks(1 << 16).for_each(|bytes| frames.push(bytes));
        frames.push(&next[..1]);
        assert_eq!(frames.next_message().expect("it is whole"), Some(large));
        frames.push(&next[1..]);
        assert!(frames.bytes.capacity() <= KEPT_BYTES, "{}", frames.bytes.capacity());
        assert_eq!(frames.next_message().expect("it is whole"), Some(small));
    }
}
