//! The functions of `include/bluefs.h`. Each checks for NULL; for the rest it has to believe its caller, who has read
//! there what a pointer has to be. A panic ends the process: nothing unwinds into C.
//!
//! What is behind the pointers that C gets is made by [`Box::into_raw`] here, and goes by [`Box::from_raw`] in
//! `bluefs_disconnect` and `bluefs_free`.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};

use bluefs_client::{path, Client, Operation};

use crate::{chmod, connect, put, tell, with_last_error, Interval, Outcome};

/// The bytes of a string of C's.
///
/// # Safety
/// NULL, or a string with its NUL that stays as it is for `'t`: the call, as the header asks of every argument.
unsafe fn bytes<'t>(text: *const c_char, what: &str) -> Result<&'t [u8], String> {
    if text.is_null() {
        return Err(format!("the {what} is NULL"));
    }
    // SAFETY: not NULL; the rest is what this function asks for.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Contents.
///
/// # Safety
/// NULL, or `size` bytes that stay as they are for `'t`: the call.
unsafe fn contents<'t>(data: *const c_void, size: usize) -> Result<&'t [u8], String> {
    match (size, isize::try_from(size)) {
        (0, _) => Ok(&[]),
        (_, Err(_)) => Err("the size is larger than memory can be".to_owned()),
        _ if data.is_null() => Err("the contents are NULL".to_owned()),
        // SAFETY: not NULL, within what a slice may be; the rest is what this function asks for. Bytes have no
        // alignment.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// Adds what is made of the arguments.
///
/// # Safety
/// NULL, or what `bluefs_begin` has returned, which `bluefs_free` has not got, and no other thread uses meanwhile.
unsafe fn add(interval: *mut Interval, operation: impl FnOnce() -> Result<Operation, String>) -> c_int {
    let added = if interval.is_null() {
        Err("the interval is NULL".to_owned())
    } else {
        // SAFETY: not NULL; from `Box::into_raw`, alive, and used by nobody else, which this function asks for.
        let interval = unsafe { &mut *interval };
        operation().and_then(|operation| interval.add(operation))
    };
    added.map_or_else(
        |why| {
            tell(&why);
            -1
        },
        |()| 0,
    )
}

#[no_mangle]
unsafe extern "C" fn bluefs_connect(
    address: *const c_char,
    invitation: *const c_char,
    on_disconnect: c_int,
) -> *mut Client {
    let connected = (|| {
        // SAFETY: what the header asks of `address`.
        let address = unsafe { bytes(address, "address") }?;
        // SAFETY: what the header asks of `invitation`.
        let invitation = (!invitation.is_null()).then(|| unsafe { bytes(invitation, "invitation") }).transpose()?;
        connect(address, invitation, on_disconnect)
    })();
    given(connected)
}

/// What C gets.
fn given<T>(made: Result<T, String>) -> *mut T {
    match made {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(why) => {
            tell(&why);
            std::ptr::null_mut()
        }
    }
}

#[no_mangle]
unsafe extern "C" fn bluefs_disconnect(client: *mut Client) {
    if !client.is_null() {
        // SAFETY: from `Box::into_raw` in `bluefs_connect`; the header asks for it once, and behind all other uses.
        drop(unsafe { Box::from_raw(client) });
    }
}

#[no_mangle]
unsafe extern "C" fn bluefs_begin(client: *mut Client) -> *mut Interval {
    // SAFETY: NULL, or from `Box::into_raw` in `bluefs_connect` and still there, as the header asks. Shared: other
    // threads may use the client, which is `Sync`.
    let client = unsafe { client.as_ref() };
    given(client.ok_or_else(|| "the client is NULL".to_owned()).and_then(Interval::begin))
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Client>();
    moved::<Interval>();
};

/// Functions of the header that add an operation.
macro_rules! operations {
    ($($name:ident($($argument:ident: $kind:ty),*) $make:expr;)*) => {$(
        #[no_mangle]
        unsafe extern "C" fn $name(interval: *mut Interval, $($argument: $kind),*) -> c_int {
            // SAFETY: what the header asks of the arguments.
            unsafe { add(interval, || $make) }
        }
    )*};
}

operations! {
    bluefs_mkdir(at: *const c_char) Ok(Operation::Mkdir(path(bytes(at, "path")?)?));
    bluefs_write(at: *const c_char, data: *const c_void, size: usize)
        Ok(Operation::Write(path(bytes(at, "path")?)?, contents(data, size)?.to_vec()));
    bluefs_put(file: *const c_char, at: *const c_char)
        put(bytes(file, "file")?, path(bytes(at, "path")?)?);
    bluefs_append(at: *const c_char, data: *const c_void, size: usize)
        Ok(Operation::Append(path(bytes(at, "path")?)?, contents(data, size)?.to_vec()));
    bluefs_remove(at: *const c_char) Ok(Operation::Remove(path(bytes(at, "path")?)?));
    bluefs_rmdir(at: *const c_char) Ok(Operation::Rmdir(path(bytes(at, "path")?)?));
    bluefs_rename(from: *const c_char, to: *const c_char)
        Ok(Operation::Rename(path(bytes(from, "path")?)?, path(bytes(to, "path")?)?));
    bluefs_link(old: *const c_char, new: *const c_char)
        Ok(Operation::Link(path(bytes(old, "path")?)?, path(bytes(new, "path")?)?));
    bluefs_symlink(target: *const c_char, at: *const c_char)
        Ok(Operation::Symlink(bytes(target, "target")?.to_vec(), path(bytes(at, "path")?)?));
    bluefs_chmod(mode: c_uint, at: *const c_char) chmod(mode, path(bytes(at, "path")?)?);
    bluefs_truncate(size: u64, at: *const c_char) Ok(Operation::Truncate(size, path(bytes(at, "path")?)?));
}

#[no_mangle]
unsafe extern "C" fn bluefs_close(interval: *mut Interval) -> Outcome {
    // SAFETY: NULL, or from `Box::into_raw` in `bluefs_begin`, still there and used by nobody else, as the header asks.
    match unsafe { interval.as_mut() } {
        Some(interval) => interval.close(),
        None => {
            tell("the interval is NULL");
            Outcome::Failed
        }
    }
}

#[no_mangle]
unsafe extern "C" fn bluefs_commit(interval: *const Interval) -> u64 {
    // SAFETY: as in `bluefs_close`.
    unsafe { interval.as_ref() }.map_or(0, Interval::commit)
}

#[no_mangle]
unsafe extern "C" fn bluefs_free(interval: *mut Interval) {
    if !interval.is_null() {
        // SAFETY: from `Box::into_raw` in `bluefs_begin`; the header asks for it once, and behind all other uses.
        drop(unsafe { Box::from_raw(interval) });
    }
}

/// The text is this thread's, and stays where it is until this crate's `tell` replaces it.
#[no_mangle]
extern "C" fn bluefs_error() -> *const c_char {
    with_last_error(CStr::as_ptr)
}
