//! Unsafe code of timer descriptors.

use rustix::io::Result;
use std::os::fd::{AsFd, OwnedFd};

/// Make so many expirations wait to be read (`TFD_IOC_SET_TICKS`, timerfd_create(2)). Zero is refused.
pub fn set_ticks(timer: &OwnedFd, ticks: u64) -> Result<()> {
    const SET_TICKS: rustix::ioctl::Opcode = 0x4008_5400;
    // SAFETY: the request reads one number of 64 bits, and nothing else is done.
    unsafe { rustix::ioctl::ioctl(timer.as_fd(), rustix::ioctl::Setter::<SET_TICKS, u64>::new(ticks)) }
}

/// Whether this kernel knows the request (`CONFIG_CHECKPOINT_RESTORE`).
pub fn can_set_ticks() -> bool {
    use rustix::time::{timerfd_create, TimerfdClockId, TimerfdFlags};
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
    timer.and_then(|timer| set_ticks(&timer, 1)).is_ok()
}
