//! Numbers on the command line. What is wrong with one is told by what is wanted, not in the words of Rust's parser.

use std::net::SocketAddr;

/// Any whole number.
pub fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "use a whole number".to_owned())
}

/// What `begin` prints.
pub fn parse_speculation(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "use the number that begin has printed".to_owned())
}

/// What `invite --list` begins its lines with.
pub fn parse_invitation(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "use a number that speculator invite --list shows".to_owned())
}

/// The number of a process.
pub fn parse_pid(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| "use a process id".to_owned())
}

/// Where to listen.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "use an address and a port, such as 127.0.0.1:7164".to_owned())
}
