//! A process changes its user, groups or capabilities.

use crate::clocks::Call;
use crate::gate;
use agent_abi::PROCESS_PRIVILEGES;
use core::sync::atomic::Ordering;
use syscall_table::nr;

/// In the place of an id: it stays.
const STAYS: u32 = u32::MAX;

impl Call<'_> {
    /// Also where the call fails: whoever wants to know exactly looks.
    pub fn change_identity(&mut self) {
        if !self.keeps_identity() {
            self.process.flags.fetch_or(PROCESS_PRIVILEGES, Ordering::Relaxed);
        }
        self.proceed_observing();
    }

    /// Whether the call sets the ids that the thread has. GNU make does that when it starts.
    fn keeps_identity(&self) -> bool {
        let (get, of_files) = match self.frame.nr {
            nr::setresuid => (nr::getresuid, nr::setfsuid),
            nr::setresgid => (nr::getresgid, nr::setfsgid),
            _ => return false,
        };
        let mut now = [STAYS; 3];
        let at = |id: &mut u32| core::ptr::from_mut(id) as u64;
        let [real, effective, saved] = &mut now;
        // SAFETY: three ids are written.
        if unsafe { gate::call(get, [at(real), at(effective), at(saved), 0, 0, 0]) } != 0 {
            return false;
        }
        // A call that sets the effective id sets the id for file systems to the same.
        // SAFETY: no pointers. An id that is none changes nothing: the call answers with the id that is set.
        let files = unsafe { gate::call(of_files, [u64::from(STAYS), 0, 0, 0, 0, 0]) };
        files == i64::from(now[1])
            && now.iter().zip(self.frame.args).all(|(&id, asked)| [STAYS, id].contains(&(asked as u32)))
    }
}
