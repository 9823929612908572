//! Names that lead through `/proc`: what is behind them tells what a process does, and not who changed a directory.

/// Longer components are none that matter here.
const COMPONENT_MAX: usize = 16;

/// What the components so far lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Some directory.
    Anywhere,
    /// `/proc`, wherever it is mounted: it is known by its name.
    Proc,
    /// A directory there about the caller.
    Own,
    /// Its descriptors, and one of those.
    OwnDescriptors,
    OwnDescriptor,
}

/// Whether a name may show something of another process because it leads through `/proc`: its working directory,
/// its program, its descriptors, or that it is there. Names that say `self`, and numbers of which `is_own` says
/// that they are the caller's, lead to the caller alone.
pub fn may_lead_to_others(path: impl IntoIterator<Item = u8>, mut is_own: impl FnMut(i32) -> bool) -> bool {
    let mut at = At::Anywhere;
    let (mut component, mut length) = ([0; COMPONENT_MAX], 0);
    for byte in path.into_iter().chain([b'/']) {
        if byte != b'/' {
            if length < COMPONENT_MAX {
                component[length] = byte;
            }
            length += 1;
            continue;
        }
        let name = if length <= COMPONENT_MAX { &component[..length] } else { b"?" };
        if !name.is_empty() && name != b"." {
            match step(at, name, &mut is_own) {
                Some(next) => at = next,
                None => return true,
            }
        }
        length = 0;
    }
    // How many names it has tells how many processes there are.
    at == At::Proc
}

/// Where one more component leads; `None` if that may be another process.
fn step(at: At, name: &[u8], is_own: &mut impl FnMut(i32) -> bool) -> Option<At> {
    match (at, name) {
        (At::Own | At::OwnDescriptors | At::OwnDescriptor, b"..") | (At::OwnDescriptor, _) => None,
        (At::OwnDescriptors, _) => Some(At::OwnDescriptor),
        (At::Own, b"fd" | b"fdinfo") => Some(At::OwnDescriptors),
        // Threads may be on their own, and then what they do is as what processes do.
        (At::Own, b"task") => None,
        (At::Proc, b"self" | b"thread-self") => Some(At::Own),
        (At::Proc, name) => match number(name) {
            Some(id) if !is_own(id) => None,
            Some(_) => Some(At::Own),
            None => Some(At::Anywhere),
        },
        (_, b"proc") => Some(At::Proc),
        _ => Some(At::Anywhere),
    }
}

fn number(name: &[u8]) -> Option<i32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}
