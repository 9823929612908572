//! The options of mount(8): `speculator mount -o`, and the helper `mount.fuse.bluefs` that mount(8) starts for a line
//! of `fstab` and for `mount -o remount`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::mount::MountFlags;

use super::args::{cache_size, WhenDisconnected};

/// What this command is called where mount(8) starts it (`mount.fuse.bluefs SOURCE DIR [-fnsv] [-N NAMESPACE] [-o
/// OPTIONS] [-t TYPE]`, mount(8), "External helpers").
pub const HELPER: &str = "mount.fuse.bluefs";

/// A list of options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSystemOptions {
    /// What the mount does not allow, and how access times move.
    pub flags: u32,
    /// It is there already: only its flags change.
    pub remount: bool,
    /// As `--invitation`.
    pub invitation: Option<PathBuf>,
    /// As `--plain`.
    pub plain: bool,
    /// As `--on-disconnect`.
    pub on_disconnect: Option<WhenDisconnected>,
    /// As `--ask-names`.
    pub ask_names: bool,
    /// As `--cache`.
    pub cache: Option<PathBuf>,
    /// As `--cache-size`.
    pub cache_size: Option<u64>,
}

/// What changes a flag: the option, the flags that it sets, and those that it clears.
const FLAGS: [(&str, MountFlags, MountFlags); 14] = [
    ("ro", MountFlags::RDONLY, MountFlags::empty()),
    ("rw", MountFlags::empty(), MountFlags::RDONLY),
    ("noexec", MountFlags::NOEXEC, MountFlags::empty()),
    ("exec", MountFlags::empty(), MountFlags::NOEXEC),
    ("nosuid", MountFlags::NOSUID, MountFlags::empty()),
    ("nodev", MountFlags::NODEV, MountFlags::empty()),
    ("noatime", MountFlags::NOATIME, MountFlags::RELATIME.union(MountFlags::STRICTATIME)),
    ("atime", MountFlags::empty(), MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME, MountFlags::empty()),
    ("diratime", MountFlags::empty(), MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME, MountFlags::NOATIME.union(MountFlags::STRICTATIME)),
    ("norelatime", MountFlags::empty(), MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME, MountFlags::NOATIME.union(MountFlags::RELATIME)),
    ("nostrictatime", MountFlags::empty(), MountFlags::STRICTATIME),
];
/// What is for mount(8) and the system's start, what is so anyway, and what the kernel says of a mount that is there.
const WITHOUT_EFFECT: [&str; 20] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "async",
    "sync",
    "dirsync",
    "silent",
    "loud",
    "default_permissions",
    "allow_other",
    "rootmode",
    "user_id",
    "group_id",
];
const BEGINNINGS_WITHOUT_EFFECT: [&str; 6] = ["x-", "X-", "comment=", "user=", "max_read=", "blksize="];

impl FileSystemOptions {
    /// The flags as the kernel takes them; a volume has neither devices nor programs that give rights.
    pub fn flags(&self) -> MountFlags {
        MountFlags::from_bits_truncate(self.flags) | MountFlags::NODEV | MountFlags::NOSUID
    }

    /// Reads a list, its options separated by commas.
    pub fn parse(list: &str) -> Result<FileSystemOptions, String> {
        let mut options = FileSystemOptions::default();
        for option in list.split(',').filter(|option| !option.is_empty()) {
            options.add(option)?;
        }
        Ok(options)
    }

    fn add(&mut self, option: &str) -> Result<(), String> {
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        if let Some(file) = option.strip_prefix("invitation=") {
            self.invitation = Some(file.into());
        } else if let Some(what) = option.strip_prefix("on-disconnect=") {
            self.on_disconnect = Some(WhenDisconnected::from_str(what, false)?);
        } else if let Some(dir) = option.strip_prefix("cache=") {
            self.cache = Some(dir.into());
        } else if let Some(size) = option.strip_prefix("cache-size=") {
            self.cache_size = Some(cache_size(size).map_err(|why| format!("cache-size={size}: {why}"))?);
        } else if option == "plain" {
            self.plain = true;
        } else if option == "ask-names" {
            self.ask_names = true;
        } else if option == "remount" {
            self.remount = true;
        } else if let Some((_, set, cleared)) = FLAGS.iter().find(|(of, ..)| *of == option) {
            self.flags = self.flags & !cleared.bits() | set.bits();
        } else if !WITHOUT_EFFECT.contains(&name) && !BEGINNINGS_WITHOUT_EFFECT.iter().any(|of| option.starts_with(of))
        {
            return Err(format!("{option} is no option of a BlueFS mount"));
        }
        Ok(())
    }
}

/// The command line that the helper's stands for. `None`: this command was not started as the helper. A dry run of
/// mount(8) (`-f`) is `Some(Ok(None))`.
pub fn line_of_helper(line: &[OsString]) -> Option<Result<Option<Vec<OsString>>, String>> {
    let (name, rest) = line.split_first()?;
    (Path::new(name).file_name() == Some(OsStr::new(HELPER))).then(|| translate(rest))
}

fn translate(words: &[OsString]) -> Result<Option<Vec<OsString>>, String> {
    let mut line: Vec<OsString> = ["speculator", "mount"].map(OsString::from).into();
    let (mut places, mut is_dry) = (0, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.to_str().and_then(|word| word.strip_prefix('-')).filter(|word| !word.is_empty())
        else {
            line.push(word.clone());
            places += 1;
            continue;
        };
        let takes = letters.find(['o', 't', 'N']);
        let (plain, last) = letters.split_at(takes.unwrap_or(letters.len()));
        if let Some(unknown) = plain.chars().find(|letter| !"fnsv".contains(*letter)) {
            return Err(format!("unexpected argument '-{unknown}' found; this is started by mount(8)"));
        }
        is_dry |= plain.contains('f');
        let Some(letter) = last.chars().next() else { continue };
        let value = match &last[1..] {
            "" => words.next().cloned().ok_or_else(|| format!("-{letter} needs a value"))?,
            value => value.into(),
        };
        match letter {
            'o' => line.extend(["-o".into(), value]),
            'N' => return Err("a mount in another namespace is not possible; use nsenter(1)".to_owned()),
            _ => {}
        }
    }
    if places != 2 {
        return Err("a volume and a directory are needed; this is started by mount(8)".to_owned());
    }
    Ok((!is_dry).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn later_options_win() {
        let options = FileSystemOptions::parse("ro,noexec,rw,noatime,relatime,nofail,x-systemd.automount").unwrap();
        let always = MountFlags::NODEV | MountFlags::NOSUID;
        assert_eq!(options.flags(), always | MountFlags::NOEXEC | MountFlags::RELATIME);
        assert!(!options.remount && options.invitation.is_none());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for option in
            ["suid", "dev", "mand", "roo", "invite=a", "plain=no", "on-disconnect=perhaps", "cache", "cache-size=1K"]
        {
            assert!(FileSystemOptions::parse(&format!("ro,{option}")).is_err(), "{option}");
        }
    }

    #[test]
    fn our_own_options() {
        let options = FileSystemOptions::parse("_netdev,invitation=/etc/work,on-disconnect=error,remount").unwrap();
        assert_eq!(options.invitation, Some(PathBuf::from("/etc/work")));
        assert_eq!((options.on_disconnect, options.remount), (Some(WhenDisconnected::Error), true));
        assert!(!options.plain && FileSystemOptions::parse("nofail,plain").unwrap().plain);
        assert!(!options.ask_names && FileSystemOptions::parse("ask-names").unwrap().ask_names);
        assert_eq!((options.cache, options.cache_size), (None, None));
        let options = FileSystemOptions::parse("cache=/var/cache/work,cache-size=2G").unwrap();
        assert_eq!((options.cache, options.cache_size), (Some("/var/cache/work".into()), Some(2 << 30)));
    }

    #[test]
    fn what_mount_8_says_becomes_a_command() {
        let helper = |line: &str| line_of_helper(&words(line));
        let said = helper("/sbin/mount.fuse.bluefs bluefs://a/ /mnt -sv -o rw,_netdev -t fuse.bluefs");
        assert_eq!(said, Some(Ok(Some(words("speculator mount bluefs://a/ /mnt -o rw,_netdev")))));
        assert_eq!(helper("mount.fuse.bluefs bluefs://a/ /mnt -fo ro"), Some(Ok(None)));
        assert_eq!(helper("speculator mount bluefs://a/ /mnt"), None);
        for line in ["bluefs://a/", "bluefs://a/ /mnt -o", "bluefs://a/ /mnt -x", "bluefs://a/ /mnt -N 1", "a b c"] {
            assert!(matches!(helper(&format!("mount.fuse.bluefs {line}")), Some(Err(_))), "{line}");
        }
    }
}
