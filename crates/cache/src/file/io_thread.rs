//! The I/O thread: completes the runs that the engine has moved, and looks after tasks and dirty
//! pages when their time has come.

use unherd_sys::{Completion, Deadline, Timestamp};

use crate::file::queued_read::put_slot_result;
use crate::file::{Core, Expired};
use crate::frames::Alarm;
use crate::io::TransferError;
use crate::state::runs::{Engine, RunPages};

mod completing;
use completing::Completing;

/// The I/O thread's own.
pub(crate) struct IoThread<'a> {
    core: &'a Core,
    engine: &'a Engine,
    completing: Completing,
    expired: Expired,
}

impl<'a> IoThread<'a> {
    pub(crate) fn new(core: &'a Core, engine: &'a Engine) -> Self {
        Self { core, engine, completing: Completing::default(), expired: Expired::default() }
    }

    /// What it does until [`Engine::stop`].
    pub(crate) fn run(&mut self) {
        let mut completions = Vec::new();
        let alarm = self.core.supply().alarm.as_ref();
        while !self.engine.is_stopping() {
            let until = alarm.map_or(Deadline::NEVER, Alarm::next);
            self.core.io.device.reap(&mut completions, until);
            for completion in completions.drain(..) {
                self.complete(completion);
            }
            self.completing.end_group(self.core);
            alarm.into_iter().for_each(|alarm| self.look_after(alarm));
        }
    }

    fn complete(&mut self, completion: Completion) {
        let (core, engine, completing) = (self.core, self.engine, &mut self.completing);
        let at = completion.tag as usize;
        let Some((pages, moved)) = engine.complete(core.memory(), completion) else { return };
        completing.begin(core, at, &pages);
        match pages {
            RunPages::Fill(fill) => {
                // The pin lies in the slot before anybody is woken.
                let deliver = |result| {
                    put_slot_result(&core.pages, engine, at, result);
                    #[cfg(test)]
                    tests::reach(core, tests::Step::Filled);
                };
                let ahead = fill.is_ahead.then(|| fill.ahead());
                let again = fill.end(&core.pages, moved, deliver);
                completing.end(core);
                if let Some(again) = again {
                    engine.resubmit(core.memory(), at, again);
                } else if let Some(pages) = ahead {
                    engine.end_ahead(at, pages);
                }
            }
            RunPages::WriteBack(mut pages) => {
                engine.free(at);
                core.end_write_back(&mut pages, moved);
                completing.end(core);
                completing.note_ended(core.leave_write_back(pages));
            }
        }
    }

    /// The thread dies of a panic: all operations under way fail, and so will all to come, and the
    /// one that it was completing. What the device was given is its own for ever: those frames are
    /// lost, or stay pinned.
    pub(crate) fn give_up(self) {
        let Self { core, engine, mut completing, .. } = self;
        let (given_up, lacks_result) = engine.give_up(completing.slot());
        for (at, pages) in given_up {
            match pages {
                RunPages::Fill(fill) => {
                    fill.lose(&core.pages, |result| {
                        put_slot_result(&core.pages, engine, at, result)
                    });
                }
                RunPages::WriteBack(mut pages) => {
                    // The device may read them at any time.
                    let pin = |lent| core.frames().pin_lent_for_ever(lent);
                    pages.buffer.frames.iter().for_each(pin);
                    core.end_write_back(&mut pages, Err(TransferError::IO));
                    completing.note_ended(core.leave_write_back(pages));
                }
            }
        }
        completing.give_up(core, engine, lacks_result);
        completing.end_group(core);
        core.pages.notify_frame_waiters(usize::MAX);
        core.supply().dirty_waiters.notify_all(core.waits());
    }

    /// If it is time, wakes the tasks whose deadline has come, gives others the frames of those
    /// that were told and have not come, and writes back pages that are dirty for too long.
    fn look_after(&mut self, alarm: &Alarm) {
        let (core, expired) = (self.core, &mut self.expired);
        let [deadline, polled, expiry, goes_on] = alarm.take_due();
        let waiters = &core.supply().waiters;
        if deadline && let Some(next) = waiters.expire(core.waits(), Timestamp::now()) {
            alarm.set_deadline(next);
        }
        if polled {
            core.pages.hand_out_frames();
        }
        if expiry {
            expired.ring();
        }
        if !expired.is_over() {
            alarm.go_on_after(expired.resume(core, expiry || goes_on));
        }
    }
}

#[cfg(test)]
mod tests;
