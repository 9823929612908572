//! Calls that go on though their thread was stopped for us: natively nothing would have stopped it, and what is
//! transferred would not end with a part
//! ([0322](../../../../../docs/decisions/0322-calls-that-a-guess-must-not-cut.md)).

use crate::ahead::calls::under_way::UnderWay;
use crate::ahead::objects::descriptor::FileDescription;
use crate::ahead::rollback::undo::position_of;
use crate::ahead::{Call, Object};
use crate::event_loop::Supervisor;
use crate::signals;
use agent_abi::Frame;
use syscall_table::nr;
use tracee::{Result, Stop, Stopped};

impl Supervisor {
    /// The call that a thread is in the middle of, and is to finish.
    pub(in crate::ahead) fn call_to_finish(&self, stopped: &Stopped) -> Result<Option<Frame>> {
        match stopped.stop() {
            Stop::Trap => signals::call_to_finish(stopped, &self.image, self.segment.world),
            _ => Ok(None),
        }
    }

    /// A thread was asked to stop, and has to finish its call: from here on that is under way, as if it had been asked
    /// about and allowed. Nothing that it touches depends on a guess: nobody who does gives anything to an object as
    /// long as a thread is unsettled, nor where a call is under way.
    pub(in crate::ahead) fn let_finish(&mut self, stopped: Stopped, frame: Frame) -> Result<()> {
        let tid = stopped.tid();
        self.ahead.trace(|| format!("{tid} goes on in its call"));
        match self.ahead.under_way.get_mut(tid) {
            // It has a part of its effect by now.
            Some(call) => call.can_be_repeated = false,
            None => {
                let objects = self.objects_of(&stopped, frame)?;
                signals::tell_when_made(&stopped)?;
                self.ahead.under_way.begin(tid, UnderWay { objects, ..UnderWay::default() });
            }
        }
        self.ahead.unsettled.remove(&tid);
        self.may_leave_work(tid);
        stopped.resume(0)?;
        self.settle_calls();
        Ok(())
    }
    /// What a call may observe or modify: what its plan names, and whatever stands behind its descriptors.
    fn objects_of(&mut self, stopped: &Stopped, frame: Frame) -> Result<Vec<Object>> {
        let tid = stopped.tid();
        let Ok(pid) = self.pid_of(tid) else { return Ok(Vec::new()) };
        let mut call = Call::new(tid, pid, frame, 0);
        self.ahead.walks.begin(&mut call);
        let plan = self.plan(&call);
        self.ahead.walks.end();
        let mut objects = self.looks_at(&plan.observes);
        objects.extend(plan.modifies.into_iter().map(|(object, _)| object));
        let fds = if frame.nr == nr::sendfile { 2 } else { 1 };
        for &fd in &frame.args[..fds] {
            match self.file_description(tid, fd as i32) {
                FileDescription::Pipe { dev, ino, .. } => objects.push(Object::Pipe(dev, ino)),
                FileDescription::Socket { ino, copy } => {
                    objects.push(Object::Socket(ino));
                    objects.push(self.peer_inside(&copy).map_or(Object::SOME_SOCKET, Object::Socket));
                }
                FileDescription::File { dev, ino, .. } => {
                    objects.extend([Object::File(dev, ino), position_of(dev, ino)])
                }
                _ => {}
            }
        }
        Ok(objects)
    }
}
