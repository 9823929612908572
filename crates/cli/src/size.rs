//! Sizes as people write them: `512M`, `2G`, `2GiB`, `4096`.

/// Bytes; the units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| hint())?;
    let letter = unit.strip_suffix("iB").unwrap_or(unit);
    let shift = match letter {
        "" if unit.is_empty() => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(hint()),
    };
    number
        .checked_mul(1 << shift)
        .filter(|&size| i64::try_from(size).is_ok())
        .ok_or_else(|| "it is too large".to_owned())
}

fn hint() -> String {
    "use a whole number with K, M, G or T, such as 512M or 2G".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64k"), Ok(64 << 10));
        for bad in
            ["", "M", "1.5G", "-1", "+1", "1GB", "1 G", "iB", "1iB", "99999999999999999999", "9999999999T", "8388608T"]
        {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
