//! The agent: mapped into every process of a world, entered at every system call that may mean something.
//!
//! It is freestanding: no libc, no heap, no thread-local storage of the program's, no SSE registers, its own stack per
//! thread. It
//! **holds no lock and keeps no state that a signal could catch half done**: until the program's own call has been made
//! everything here can be thrown away and begun again at the program's call site, and the supervisor does just that
//! when a signal arrives (interposition.md, 4). What it knows it writes to shared memory with single atomic operations.
#![no_std]
#![no_main]

mod clocks;
mod controls;
mod cut;
mod descriptors;
mod directories;
mod dispatch;
mod dispositions;
mod entry;
mod exchange;
mod fsync;
mod gate;
mod held;
mod identity;
mod io;
mod kill;
mod kin;
mod links;
mod locked;
mod log;
mod looked;
mod memory;
mod names;
mod opened;
mod opening;
mod own_descriptors;
mod own_names;
mod permits;
mod process;
mod ready;
mod same_core;
mod shown;
mod sockets;
mod start;
mod taking;
mod timed;
mod trace;
mod transfer;
mod volatile;
mod ways;
mod young;

/// There is nobody to tell: stop here, so that the supervisor sees where.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let line = info.location().map_or(0, |l| l.line());
    gate::request(agent_abi::Request::Fatal, u64::from(line), 0, 0);
    gate::trap()
}
