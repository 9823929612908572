//! Calls on streams that look as if they could not be taken back, and change no more than what can: nobody waits for
//! the guess with them.

use crate::ahead_new_files::{folder, has_never_been, has_root, is_as_natively};

const CALLS: &[&str] = &[
    // `grep` moves what it has no use for from a pipe into the null device.
    "os.system('seq 100000 | grep 5 > /dev/null; echo $?; \
     (seq 9; exec sleep 0.1) | (read -r x; cat > /dev/null); echo x')",
    "r, w = os.pipe(); n = os.open('/dev/null', os.O_WRONLY); os.write(w, b'x' * 5000); \
     seen.append(os.splice(r, n, 3000)); seen.append(len(os.read(r, 9999))); os.close(w); \
     seen.append(os.splice(r, n, 9)); os.close(r); os.close(n)",
    // Flags of a stream of outside are set as they are.
    "import fcntl; seen.append(fcntl.ioctl(2, 0x5421, bytes(4)))",
];

#[test]
fn they_are_as_natively_on_a_right_guess() {
    if !has_root() {
        return;
    }
    CALLS.iter().for_each(|what| is_as_natively(folder, what));
}

#[test]
fn they_have_never_been_on_a_wrong_one() {
    if !has_root() {
        return;
    }
    CALLS.iter().for_each(|what| has_never_been(folder, what));
}
