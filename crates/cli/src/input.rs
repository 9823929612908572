//! Text that people give in a file, or on standard input: all of it, if it is no longer than it may be.

use std::io::{self, Read};

/// Reads text to its end.
pub fn read_text(from: impl Read, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_no_more_than_so_many_bytes() {
        assert_eq!(read_text(&b"abc"[..], 3).expect("text"), "abc");
        assert!(read_text(&b"abcd"[..], 3).is_err() && read_text(io::repeat(b'a'), 1000).is_err());
        assert!(read_text(&b"\xff"[..], 3).is_err());
    }
}
