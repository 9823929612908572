//! Where a volume is: `bluefs://HOST[:PORT][/VOLUME]`.

use std::fmt;
use std::str::FromStr;

/// The port of a server that names none.
pub const DEFAULT_PORT: u16 = 7164;
const SCHEME: &str = "bluefs://";

/// The address of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or number of the host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Name of the volume; empty: `default`.
    pub volume: String,
}

/// What is wrong with an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no address of a volume; write bluefs://HOST[:PORT][/VOLUME]")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let rest = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (place, volume) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').or((port.is_empty()).then_some(""))),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, Some("")),
            },
        };
        let port = match port.ok_or_else(wrong)? {
            "" => DEFAULT_PORT,
            port => port.parse().map_err(|_| wrong())?,
        };
        if host.is_empty() || volume.contains('/') || volume.len() > 64 {
            return Err(wrong());
        }
        Ok(Address { host: host.to_owned(), port, volume: volume.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{SCHEME}{open}{}{close}:{}/{}", self.host, self.port, self.volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, u16, &str)>) {
        let parsed = text.parse::<Address>().ok();
        let expected = expected.map(|(host, port, volume)| Address { host: host.into(), port, volume: volume.into() });
        assert_eq!(parsed, expected, "{text}");
    }

    #[test]
    fn addresses() {
        check("bluefs://host", Some(("host", DEFAULT_PORT, "")));
        check("bluefs://host/", Some(("host", DEFAULT_PORT, "")));
        check("bluefs://host:12/work", Some(("host", 12, "work")));
        check("bluefs://[::1]/work", Some(("::1", DEFAULT_PORT, "work")));
        check("bluefs://[::1]:9", Some(("::1", 9, "")));
        for bad in
            ["host", "http://host", "bluefs://", "bluefs://:1", "bluefs://h:x", "bluefs://h/a/b", "bluefs://[::1]9"]
        {
            check(bad, None);
        }
    }
}
