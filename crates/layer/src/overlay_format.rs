//! What an overlay writes into its upper directory (Documentation/filesystems/overlayfs.rst, and ovl_entry.h for file
//! handles): a removed name is a character device 0:0, a directory that hides the one below it is `opaque`, one that
//! was renamed has a `redirect`, and what was copied up names its `origin` by file handle.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::object;

/// Names an object of the file system below, whatever it is called by now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handle {
    /// What open_by_handle_at(2) calls the handle's type.
    pub kind: i32,
    /// The handle.
    pub bytes: Vec<u8>,
}

/// A name that was removed.
pub fn is_whiteout(found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == 0
}

/// Whether a directory of the upper layer hides what is below.
pub fn is_opaque(object: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(value(object, "trusted.overlay.opaque")?.is_some_and(|value| value == b"y"))
}

/// Where the lower directory of a renamed one is: absolute in the layer, or beside it.
pub fn redirect(object: BorrowedFd<'_>) -> io::Result<Option<PathBuf>> {
    Ok(value(object, "trusted.overlay.redirect")?.map(|value| PathBuf::from(OsString::from_vec(value))))
}

/// Of which lower object this is a copy.
pub fn origin(object: BorrowedFd<'_>) -> io::Result<Option<Handle>> {
    Ok(value(object, "trusted.overlay.origin")?.and_then(|value| parse_handle(&value)))
}

/// Version, magic, length, flags, type, uuid of the file system (16 bytes), handle.
fn parse_handle(value: &[u8]) -> Option<Handle> {
    const MAGIC: u8 = 0xfb;
    let &[0, MAGIC, len, _flags, kind, ref rest @ ..] = value else { return None };
    let bytes = rest.get(16..usize::from(len).checked_sub(5)?)?;
    Some(Handle { kind: i32::from(kind), bytes: bytes.to_owned() })
}

fn value(object: BorrowedFd<'_>, attribute: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = Vec::with_capacity(64 << 10);
    match rustix::fs::getxattr(object::name_of(object), attribute, rustix::buffer::spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_as_the_kernel_writes_it() {
        let mut value = vec![0, 0xfb, 0x1d, 0, 1];
        value.extend([0; 16]);
        value.extend([0x0d, 0xe0, 0x9c, 0, 0x23, 0x58, 0x85, 0x83]);
        let handle = parse_handle(&value).unwrap();
        assert_eq!((handle.kind, handle.bytes.len(), handle.bytes[0]), (1, 8, 0x0d));
        assert_eq!(parse_handle(&value[..20]), None);
        assert_eq!(parse_handle(&[]), None);
    }
}
