//! Transfers that an ignored signal cut short. Without a tracer the kernel drops such a signal before it can end
//! anything: a send that waits for room sends all of it, within the socket's limit of time (`SO_SNDTIMEO`), and a
//! receiver that asked for all of it (`MSG_WAITALL`) gets that. Here the rest follows in further calls.

use crate::clocks::Call;
use crate::gate::{self, EAGAIN, EINTR};
use crate::memory::{read_program, write_program};
use crate::timed::{now_ns, socket_limit_ns, MILLISECOND_NS, SECOND_NS};
use agent_abi::{
    option, AFTER_MUST_FINISH, AFTER_OBSERVES, AFTER_REPEATS, AFTER_REPEATS_AND_FINISHES, AFTER_WAITS, PHASE_AFTER,
    PHASE_BEFORE, PHASE_PARTIAL, REPEATS,
};
use syscall_table::nr;

const MSG_PEEK: u64 = 2;
const MSG_DONTWAIT: u64 = 0x40;
const MSG_WAITALL: u64 = 0x100;
const MSG_NOSIGNAL: u64 = 0x4000;
const ENOTSOCK: i64 = -88;

/// Where the header of a message says what comes beside the data: where it goes to, and how much room is there.
const CONTROL_AT: u64 = 32;
const CONTROL_LEN_AT: u64 = 40;
/// In the place of the room for that: something has come.
const CONTROL_HAS_COME: u64 = u64::MAX;

/// So many parts of what is left are given to the kernel at once.
const PARTS: usize = 16;
/// A sender's socket is ready for `poll` later than for the sender itself.
const SLICE_NS: u64 = 10 * MILLISECOND_NS;

/// When a call began, and how long it may wait in all, if there is a limit.
type Limit = Option<(u64, u64)>;

impl Call<'_> {
    /// Make the program's call, which may send through the descriptor that is its first argument. `after`: what is
    /// left to be done then.
    #[inline(always)]
    pub fn proceed_sending(&mut self, after: u64) -> i64 {
        self.clear_cut();
        if self.has_option(option::SEND_LIMITS) && sends(self.frame.nr) {
            const SO_SNDTIMEO: u64 = 21;
            if let Some(whole) = socket_limit_ns(self.arg(0), SO_SNDTIMEO) {
                return self.send_within(whole, after);
            }
        }
        self.page.after = after;
        let result = self.make();
        if self.is_cut() && result > 0 {
            return self.send_rest(result, after, None);
        }
        result
    }

    #[cold]
    #[inline(never)]
    fn send_within(&mut self, whole: u64, after: u64) -> i64 {
        let (begin, is_again) = self.begin_wait();
        if is_again {
            return self.send_rest(0, after, Some((begin, whole)));
        }
        self.page.after = if after == AFTER_OBSERVES { AFTER_REPEATS } else { AFTER_REPEATS_AND_FINISHES };
        let result = self.make();
        match result {
            REPEATS => self.send_rest(0, after, Some((begin, whole))),
            1.. if self.is_cut() => self.send_rest(result, after, Some((begin, whole))),
            _ => result,
        }
    }

    /// So much of the call has been sent.
    #[cold]
    #[inline(never)]
    fn send_rest(&mut self, sent: i64, after: u64, limit: Limit) -> i64 {
        const POLLOUT: u64 = 4;
        // Of several messages the number of those that were sent is no number of bytes.
        match sends(self.frame.nr) && (sent == 0 || self.frame.nr != nr::sendmmsg) {
            true => self.go_on(sent, after, limit, POLLOUT),
            false => sent,
        }
    }

    /// So much was received by a call that asked for all of it, before a signal that is ignored ended it.
    #[cold]
    #[inline(never)]
    pub fn receive_rest(&mut self, received: i64, after: u64, limit: Limit) -> i64 {
        const POLLIN: u64 = 1;
        const SO_TYPE: u64 = 3;
        const SOCK_STREAM: u64 = 1;
        let flags = match self.frame.nr {
            nr::recvfrom => self.arg(3),
            nr::recvmsg => self.arg(2),
            _ => 0,
        };
        // What comes beside the data ends the call.
        let is_plain =
            || self.frame.nr != nr::recvmsg || self.told_control().is_some_and(|[_, has_come]| has_come == 0);
        let wants_all = flags & (MSG_WAITALL | MSG_PEEK | MSG_DONTWAIT) == MSG_WAITALL && is_plain();
        match wants_all && crate::sockets::socket_option(self.arg(0), SO_TYPE) == Some(SOCK_STREAM) {
            true => self.go_on(received, after, limit, POLLIN),
            false => received,
        }
    }

    /// A message is about to be received: the kernel writes over what its header says of the room beside the data.
    #[inline(always)]
    pub fn note_control_room(&mut self) {
        if self.frame.nr == nr::recvmsg && self.arg(2) & MSG_WAITALL != 0 {
            self.control_room = self.told_control().map_or(0, |[at, room]| if at == 0 { 0 } else { room });
        }
    }

    /// What the header of the program's message says of what comes beside the data.
    fn told_control(&self) -> Option<[u64; 2]> {
        let mut control = [0; 2];
        read_program(self.arg(1).wrapping_add(CONTROL_AT), &mut control).then_some(control)
    }

    /// Receive what is left, and what comes beside it.
    fn receive_piece(&mut self, parts: &[[u64; 2]], flags: u64) -> i64 {
        let at = match self.told_control() {
            Some([at, _]) if self.control_room != 0 => at,
            _ => 0,
        };
        let room = if at == 0 { 0 } else { self.control_room };
        let mut header = [0, 0, parts.as_ptr() as u64, parts.len() as u64, at, room, 0];
        let result = gate::instead(&[self.arg(0), header.as_mut_ptr() as u64, flags, 0, 0, 0], nr::recvmsg);
        let [.., came, message_flags] = header;
        if result > 0 && at != 0 && came != 0 {
            self.control_room = CONTROL_HAS_COME;
            write_program(self.arg(1).wrapping_add(CONTROL_LEN_AT), &[came, message_flags]);
        }
        result
    }

    /// Transfer the rest, and answer with all of it. `events`: what is waited for.
    fn go_on(&mut self, done: i64, after: u64, limit: Limit, events: u64) -> i64 {
        let mut done = done.max(0) as u64;
        let mut last = 0;
        let again = if after == AFTER_OBSERVES { AFTER_REPEATS } else { AFTER_REPEATS_AND_FINISHES };
        loop {
            // Before a look at what waits: a signal that comes later finds the thread where it can be taken out.
            self.show(done);
            let mut parts = [[0u64; 2]; PARTS];
            let count = self.rest(done, &mut parts);
            let left_ns = limit.map(|(begin, whole)| whole.saturating_sub(now_ns().saturating_sub(begin)));
            if self.must_leave() && done == 0 {
                self.begin_again();
                return -EINTR;
            }
            if self.must_leave() || done != 0 && count == 0 {
                break;
            }
            self.page.after = if done == 0 { again } else { AFTER_MUST_FINISH };
            self.clear_cut();
            last = self.next_piece(done, &parts[..count], left_ns.is_some());
            match last {
                1.. if self.frame.nr == nr::sendmmsg => {
                    done = last as u64;
                    break;
                }
                1.. => {
                    done += last as u64;
                    if self.control_room == CONTROL_HAS_COME {
                        break;
                    }
                }
                REPEATS => {}
                error if error == -EAGAIN && left_ns.is_some_and(|left| left > 0) => {
                    self.show(done);
                    if !self.must_leave() {
                        self.page.after = if done == 0 { AFTER_WAITS } else { AFTER_MUST_FINISH };
                        self.await_slice(left_ns.unwrap_or(0).min(SLICE_NS), events);
                    }
                }
                _ => break,
            }
        }
        let result = if done > 0 { done as i64 } else { last };
        self.clear_cut();
        self.set_phase(PHASE_AFTER);
        self.answer(result);
        result
    }

    /// What a signal finds: nothing has happened yet, or a call that ends with what was transferred.
    fn show(&mut self, done: u64) {
        if done == 0 {
            self.set_phase(PHASE_BEFORE);
        } else {
            self.answer(done as i64);
            self.set_phase(PHASE_PARTIAL);
        }
    }

    /// Let the kernel transfer what is left. It waits, unless the time is limited.
    fn next_piece(&mut self, done: u64, parts: &[[u64; 2]], is_limited: bool) -> i64 {
        let [fd, second, third, fourth, fifth, sixth] = self.frame.args;
        let waits = if is_limited { MSG_DONTWAIT } else { 0 };
        let (vector, vector_len) = match self.frame.nr {
            nr::writev if done == 0 => (second, third),
            _ => (parts.as_ptr() as u64, parts.len() as u64),
        };
        let mut header = [0, 0, vector, vector_len, 0, 0, 0];
        let header_at = header.as_mut_ptr() as u64;
        match self.frame.nr {
            // Nothing of it has happened: the same call again.
            nr::write if done == 0 => gate::instead(&[fd, second, third, waits, 0, 0], nr::sendto),
            nr::writev if done == 0 => gate::instead(&[fd, header_at, waits, 0, 0, 0], nr::sendmsg),
            nr::sendto if done == 0 => gate::instead(&[fd, second, third, fourth | waits, fifth, sixth], nr::sendto),
            nr::sendmsg if done == 0 => gate::instead(&[fd, second, third | waits, 0, 0, 0], nr::sendmsg),
            nr::sendmmsg => gate::instead(&[fd, second, third, fourth | waits, 0, 0], nr::sendmmsg),
            nr::recvfrom => self.receive_piece(parts, fourth | waits),
            nr::recvmsg => self.receive_piece(parts, third | waits),
            nr => {
                let flags = match nr {
                    nr::sendto => fourth,
                    nr::sendmsg => third,
                    _ => 0,
                };
                // Who has sent a part is told of that, and not that the reader is gone.
                let result = gate::instead(&[fd, header_at, flags | waits | MSG_NOSIGNAL, 0, 0, 0], nr::sendmsg);
                if result != ENOTSOCK {
                    return result;
                }
                if !self.may_begin_more(false) {
                    return result;
                }
                gate::instead(&[fd, vector, vector_len, 0, 0, 0], nr::writev)
            }
        }
    }

    fn await_slice(&mut self, slice_ns: u64, events: u64) {
        const MASK_LEN: u64 = 8;
        let left = [slice_ns / SECOND_NS, slice_ns % SECOND_NS];
        let mut one = [u64::from(self.arg(0) as u32) | events << 32];
        gate::instead(&[one.as_mut_ptr() as u64, 1, left.as_ptr() as u64, 0, MASK_LEN, 0], nr::ppoll);
    }

    /// What is left of the program's buffers behind so many bytes; how many parts.
    fn rest(&self, mut done: u64, parts: &mut [[u64; 2]; PARTS]) -> usize {
        const PARTS_AT: u64 = 16;
        let [_, second, third, ..] = self.frame.args;
        let own = [second, third];
        let (mut vector, mut left) = match self.frame.nr {
            nr::write | nr::sendto | nr::recvfrom => (own.as_ptr() as u64, 1),
            nr::writev => (second, third),
            nr::sendmsg | nr::recvmsg => {
                let mut header = [0u64; 2];
                read_program(second.wrapping_add(PARTS_AT), &mut header);
                (header[0], header[1])
            }
            _ => (0, 0),
        };
        let mut count = 0;
        while left > 0 && count < PARTS {
            let mut part = [0u64; 2];
            if !read_program(vector, &mut part) {
                break;
            }
            (vector, left) = (vector + 16, left - 1);
            let passed = done.min(part[1]);
            done -= passed;
            if part[1] > passed {
                parts[count] = [part[0] + passed, part[1] - passed];
                count += 1;
            }
        }
        count
    }

    #[inline(always)]
    pub fn clear_cut(&mut self) {
        // SAFETY: one aligned word of this thread's page; the supervisor stores it while the thread is stopped.
        unsafe { (&raw mut self.page.cut).write_volatile(0) };
    }

    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        // SAFETY: as above.
        unsafe { (&raw const self.page.cut).read_volatile() != 0 }
    }
}

fn sends(nr: u64) -> bool {
    matches!(nr, nr::write | nr::writev | nr::sendto | nr::sendmsg | nr::sendmmsg)
}
