//! The I/O thread: completes the runs that the engine has moved, and looks after tasks and dirty
//! pages when their time has come.

use unherd_sys::{Completion, Deadline, Timestamp};

use crate::file::runs::{Engine, RunPages};
use crate::file::{Core, Expired};
use crate::frames::Alarm;
use crate::io::TransferError;

mod completing;
pub(crate) use completing::Completing;

impl Core {
    /// The body of the I/O thread, until [`Engine::stop`].
    pub(crate) fn run_io(&self, engine: &Engine, completing: &mut Completing) {
        let (mut completions, mut expired) = (Vec::new(), Expired::default());
        let alarm = self.supply().alarm.as_ref();
        while !engine.is_stopping() {
            engine.device().reap(&mut completions, alarm.map_or(Deadline::NEVER, Alarm::next));
            for completion in completions.drain(..) {
                self.complete(engine, completion, completing);
            }
            completing.end_group(self);
            alarm.into_iter().for_each(|alarm| self.look_after(alarm, &mut expired));
        }
    }

    fn complete(&self, engine: &Engine, completion: Completion, completing: &mut Completing) {
        let at = completion.tag as usize;
        let Some((pages, moved)) = engine.complete(self.memory(), completion) else { return };
        completing.begin(self, at, &pages);
        match pages {
            RunPages::Fill(fill) => {
                // The pin lies in the slot before anybody is woken.
                let deliver = |filled| {
                    self.fill_slot(engine, at, filled);
                    #[cfg(test)]
                    tests::reach(self, tests::Step::Filled);
                };
                let ahead = fill.is_ahead.then(|| fill.ahead());
                let again = self.end_fill(fill, moved, deliver);
                completing.end(self);
                if let Some(again) = again {
                    engine.go_on(self.memory(), at, again);
                } else if let Some(pages) = ahead {
                    engine.end_ahead(at, pages);
                }
            }
            RunPages::WriteBack(mut pages) => {
                engine.free(at);
                self.end_write_back(&mut pages, moved);
                completing.end(self);
                completing.note_ended(self.leave_write_back(pages));
            }
        }
    }

    /// The I/O thread dies of a panic: all operations under way fail, and so will all to come, and
    /// the one that it was `completing`. What the device was given is its own for ever: those
    /// frames are lost, or stay pinned.
    pub(crate) fn give_up_io(&self, engine: &Engine, mut completing: Completing) {
        let (given_up, is_unfilled) = engine.give_up(completing.slot());
        for (at, pages) in given_up {
            match pages {
                RunPages::Fill(fill) => {
                    self.lose_fill(&fill, |filled| self.fill_slot(engine, at, filled));
                }
                RunPages::WriteBack(mut pages) => {
                    // The device may read them at any time.
                    let pin = |lent| self.frames().pin_lent_for_ever(lent);
                    pages.buffer.frames.iter().for_each(pin);
                    self.end_write_back(&mut pages, Err(TransferError::IO));
                    completing.note_ended(self.leave_write_back(pages));
                }
            }
        }
        completing.give_up(self, engine, is_unfilled);
        completing.end_group(self);
        self.pages.notify_idle(usize::MAX);
        self.supply().room.tell_all(self.waits());
    }

    /// If it is time, wakes the tasks whose deadline has come, gives others the frames of those
    /// that were told and have not come, and writes back pages that are dirty for too long.
    fn look_after(&self, alarm: &Alarm, expired: &mut Expired) {
        let [deadline, polled, expiry, goes_on] = alarm.take_due();
        let waiters = &self.supply().waiters;
        if deadline && let Some(next) = waiters.expire(self.waits(), Timestamp::now()) {
            alarm.set_deadline(next);
        }
        if polled {
            self.pages.hand_out_frames();
        }
        if expiry {
            expired.ring();
        }
        if !expired.is_over() {
            alarm.go_on_after(self.write_expired(expired, expiry || goes_on));
        }
    }
}

#[cfg(test)]
mod tests;
