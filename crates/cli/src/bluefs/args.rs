//! What the command line says about BlueFS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bluefs_client::{Address, BYTES_MAX_MIN};
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::access::ClientAccess;
use super::invite::parse_duration;
use crate::number::{parse_address, parse_invitation};
use crate::size::parse_size;

/// `speculator serve`.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// The directory of the store; it is made if it is not there
    #[arg(value_hint = ValueHint::DirPath)]
    pub store: PathBuf,

    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address, default_value = "127.0.0.1:7164")]
    pub listen: SocketAddr,

    /// Serve without encryption and without invitations: whoever reaches the port may do everything
    ///
    /// Only addresses of this machine (127.0.0.1, ::1) can be served so.
    #[arg(long)]
    pub plain: bool,

    /// Make this volume if it is not there; may be repeated. A store has one called `default` from the beginning
    #[arg(long = "volume", value_name = "NAME", value_parser = volume_name)]
    pub volumes: Vec<String>,

    /// How much a volume may hold: a number of bytes with K, M, G or T (of 1024), or `none`; may be repeated
    ///
    /// Without NAME it is about the volume `default`. It lasts until another one is given. What a volume holds already
    /// stays, also if it is more.
    #[arg(long = "quota", value_name = "[NAME=]SIZE", value_parser = Quota::parse, allow_negative_numbers = true)]
    pub quotas: Vec<Quota>,

    /// Answer GET /metrics here, as text that Prometheus reads; whoever reaches the port may ask
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address)]
    pub metrics: Option<SocketAddr>,

    /// Tell on standard error, a line each, who connects, leaves and is refused
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log: Option<LogFormat>,

    /// How long a lease lasts, ms; the same each time that this store is served. For tests, which cannot wait
    #[arg(long, value_name = "MS", hide = true)]
    pub lease_term: Option<u64>,

    /// How long after a change nobody else gets a lease, ms. For tests
    #[arg(long, value_name = "MS", hide = true)]
    pub lease_pause: Option<u64>,
}

/// `--log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Words of the form name=value
    Text,
    /// One JSON object a line
    Json,
}

/// `--quota`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The volume.
    pub volume: String,
    /// How much it may hold.
    pub bytes: u64,
}

impl Quota {
    fn parse(text: &str) -> Result<Quota, String> {
        let (volume, size) = text.split_once('=').unwrap_or(("default", text));
        let volume = volume_name(volume)?;
        let bytes = match size {
            "none" => u64::MAX,
            size => parse_size(size).map_err(|why| format!("{why}, or none"))?,
        };
        Ok(Quota { volume, bytes })
    }
}

/// Options of `speculator invite` that are about a new invitation.
const OF_NEW: [&str; 3] = ["volume", "read_only", "expires"];

/// `speculator invite`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("instead").args(["list", "withdraw"]).conflicts_with_all(OF_NEW))]
pub struct InviteOptions {
    /// The directory of the store; a server may run on it
    #[arg(value_hint = ValueHint::DirPath)]
    pub store: PathBuf,

    /// The volume
    #[arg(long, value_name = "NAME", value_parser = volume_name, default_value = "default")]
    pub volume: String,

    /// Let nothing be changed
    #[arg(long)]
    pub read_only: bool,

    /// For how long it is good: a number with s, m, h or d; without end when left out
    #[arg(long, value_name = "WHEN", value_parser = parse_duration)]
    pub expires: Option<Duration>,

    /// Print numbers, volumes and rights of all invitations instead
    #[arg(long)]
    pub list: bool,

    /// Withdraw the invitation of this number instead; who uses it is disconnected
    #[arg(long, value_name = "NUMBER", value_parser = parse_invitation, allow_negative_numbers = true)]
    pub withdraw: Option<u64>,
}

/// `speculator fsck`.
#[derive(Debug, Args)]
pub struct FsckOptions {
    /// The directory of the store
    #[arg(value_hint = ValueHint::DirPath)]
    pub store: PathBuf,
}

/// `speculator mount`.
#[derive(Debug, Args)]
pub struct MountOptions {
    /// The volume
    #[arg(value_name = "bluefs://HOST[:PORT][/VOLUME]")]
    pub address: Address,

    /// The directory to mount it on
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// By what right.
    #[command(flatten)]
    pub access: ClientAccess,

    /// Stay in the foreground; SIGINT, SIGTERM and SIGHUP unmount
    #[arg(short, long)]
    pub foreground: bool,

    /// What programs get while the server cannot be reached: they wait, or they get EIO
    ///
    /// With `block` a signal that ends the program ends its wait. With `error` it is not known whether what was on its
    /// way is done.
    #[arg(long, value_name = "WHAT", value_enum, require_equals = true)]
    pub on_disconnect: Option<WhenDisconnected>,

    /// Have the kernel ask about each name of each path again, also while a lease lasts
    ///
    /// Looking at many files takes many times as long. Who changes a directory in which somebody of another mount is
    /// changing something, too, never waits for the end of a lease then.
    #[arg(long)]
    pub ask_names: bool,

    /// Keep contents in this directory, too, so that they are not transferred again after a restart
    ///
    /// It is made if it is not there, has to be empty otherwise, and serves one mount at a time. What is in it is
    /// used only where the server says that nobody has changed it. Only its owner can read it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache: Option<PathBuf>,

    /// How much the directory may take up, such as 512M or 20G; 1G when left out
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub cache_size: Option<u64>,

    /// Options of mount(8), separated by commas
    ///
    /// ro, noexec, noatime and what belongs to them; invitation=FILE, plain, on-disconnect=WHAT, ask-names, cache=DIR
    /// and cache-size=SIZE; remount changes the mount that is there. What is for mount(8) and the system's start
    /// (_netdev, nofail, x-…) has no effect.
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub options: Vec<String>,

    /// Say when it is mounted, and leave the terminal's session
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// `--on-disconnect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenDisconnected {
    /// They wait until the server is back; so it is when nothing is said
    Block,
    /// They get EIO
    Error,
}

/// `speculator bluefs`.
#[derive(Debug, Subcommand)]
pub enum BluefsAction {
    /// Carry out a list of operations as one transaction: all of them, or none
    ///
    /// One operation a line: mkdir PATH, write PATH TEXT, put FILE PATH, append PATH TEXT, remove PATH, rmdir PATH,
    /// rename FROM TO, link OLD NEW, symlink TARGET PATH, chmod MODE PATH, truncate SIZE PATH. Words are separated as
    /// in a shell, with quotes and backslashes; # begins a comment. Paths begin at the root of the volume; symbolic
    /// links in them are not followed. When it returns with status 0, everything is on the server's disk.
    Batch {
        /// The volume
        #[arg(value_name = "bluefs://HOST[:PORT][/VOLUME]")]
        address: Address,
        /// By what right.
        #[command(flatten)]
        access: ClientAccess,
        /// The list; standard input when left out
        #[arg(value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
}

/// How much a cache on disk may take up.
pub fn cache_size(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if size < BYTES_MAX_MIN {
        return Err("a cache has 1M at least".to_owned());
    }
    Ok(size)
}

fn volume_name(text: &str) -> Result<String, String> {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain && (1..=64).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err("use 1 to 64 letters, digits, and - _ .".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        let quota = |volume: &str, bytes| Ok(Quota { volume: volume.to_owned(), bytes });
        assert_eq!(Quota::parse("10G"), quota("default", 10 << 30));
        assert_eq!(Quota::parse("work=512K"), quota("work", 512 << 10));
        assert_eq!(Quota::parse("work=none"), quota("work", u64::MAX));
        assert_eq!(Quota::parse("7"), quota("default", 7));
        for bad in ["", "G", "1KK", "1X", "=1G", "a/b=1G", "work=", "-1", "99999999T"] {
            assert!(Quota::parse(bad).is_err(), "{bad}");
        }
    }
}
