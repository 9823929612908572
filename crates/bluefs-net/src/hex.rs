//! Numbers as text: fingerprints and secrets.

/// As text.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// From text, as [`to_hex`] writes it: there is one way to write each number, and what was damaged is none.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok();
    (0..N).map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `u8::from_str_radix` also reads signs and capitals: `cargo xtask fuzz` found a line that was damaged and stood.
    #[test]
    fn a_secret_is_written_in_one_way() {
        assert_eq!(from_hex("0f00ff"), Some([15, 0, 255]));
        for bad in ["+f00ff", "0F00ff", "0f00f", "0f00fff", "0f00f ", "0f00\u{e9}", ""] {
            assert_eq!(from_hex::<3>(bad), None, "{bad}");
        }
    }
}
