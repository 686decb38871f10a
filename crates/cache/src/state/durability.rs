//! What a file may promise about its writes.
//!
//! Time is divided into *flush periods*: a flush ends one and begins the next. A page that was
//! written back carries the period in which that came to its end.
//!
//! | page is unstable, its period is | meaning |
//! |---|---|
//! | at most that of the last successful flush before the first that failed | durable |
//! | at most that of the last failed flush, and not the above | must be written again |
//! | later, and at most that of the last successful flush | durable |
//! | later | written, not yet durable |
//!
//! The kernel reports a failed flush once and then takes all pages for clean, so after a failure
//! every write since the last success counts as lost. The pages that are at rest then are dirty at
//! once; one that is being changed, or written, is when it comes to rest. A flush may have
//! succeeded by then, which says nothing about it. Where such a page has left the cache, it cannot
//! be written again: the file has lost durability for good.
//!
//! What the file system zeroes cannot be written again either: the rest of a block where a file is
//! cut or grows, and around a page that is smaller than a block. It does that through the kernel's
//! page cache or with the write itself, and forgets it in a failed flush as well.
//!
//! Errors are counted, and each handle remembers how many it has seen: so each reports each error
//! once. A handle that is opened later begins where the others are; but if none of them has
//! reported the latest error, the new one will. So does Linux's `errseq_t`. Only the latest error
//! is kept, and beside it the loss that an earlier opening has left: that is told first.

use std::time::Duration;

use unherd_sys::{Errno, Timestamp};

use crate::Error;
use crate::error::Operation;
use crate::state::DeviceLen;

/// How long nobody but a sync or close repeats writes of a file after one has failed.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Durability {
    period: u64,
    flushed: u64,
    /// The latest period in which the file was changed on the device.
    changed: u64,
    /// That in which its length was.
    resized: u64,
    /// The periods after `intact`, up to `broken`, are those whose writes may be lost: between two
    /// that failed a flush may have succeeded. Both 0 if none has failed.
    intact: u64,
    broken: u64,
    /// The latest period of what the cache cannot write again, since the last success: an unstable
    /// page that left it, or zeros of the file system.
    evicted: Option<u64>,
    /// Whether pages are smaller than a block.
    is_below_block: bool,
    lost: bool,
    /// Whether a handle has reported that.
    lost_told: bool,
    errors: u64,
    /// How many errors some handle has reported.
    told: u64,
    /// What an earlier opening has lost, if no handle had reported it.
    loss: Option<Failure>,
    last_error: Option<Failure>,
    pub(crate) device_len: DeviceLen,
    /// How many errors there were when the latest sync began.
    sync_began: u64,
    /// Writes fail; the latest error.
    failing: Option<Failing>,
}

/// An error, and how many the file has had then.
pub(crate) type Failure = (Error, u64);

#[derive(Debug)]
struct Failing {
    error: Error,
    retry_at: Timestamp,
    /// How often it was asked for: what decides in a simulation, where no time passes.
    asked: u32,
}

/// What an opening leaves to the next one of the same file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CarriedOver {
    /// Writes were closed with that no flush had covered.
    pub(crate) is_unflushed: bool,
    /// Writes were lost, which no handle has reported, or padding could not be cut off.
    pub(crate) lost: Option<Error>,
}

impl Durability {
    /// Of a file that was just opened, with what an earlier opening by this cache has left: writes
    /// that no flush had covered have left the cache.
    pub(crate) fn new(len_bytes: u64, carried_over: CarriedOver) -> Self {
        Self {
            period: 1,
            // What others wrote before it was opened may not be durable.
            changed: 1,
            resized: 1,
            evicted: carried_over.is_unflushed.then_some(0),
            errors: u64::from(carried_over.lost.is_some()),
            loss: carried_over.lost.map(|error| (error, 1)),
            device_len: DeviceLen::new(len_bytes),
            ..Self::default()
        }
    }

    /// The count of errors at which a new handle starts. One that no handle has reported yet lies
    /// above it.
    pub(crate) fn known_to_new_handle(&self) -> u64 {
        self.told
    }

    /// A handle reports the latest of the first `errors` errors, to somebody who learns of it.
    pub(crate) fn note_reported(&mut self, errors: u64) {
        self.told = self.told.max(errors);
    }

    /// An error, if there was one after the first `before`: the latest, unless a loss was not
    /// reported yet.
    pub(crate) fn outcome_since(&self, before: u64) -> Result<(), Failure> {
        match self.unseen(before) {
            Some(latest) => Err(self.unreported_loss().unwrap_or(latest)),
            None => Ok(()),
        }
    }

    /// What an earlier opening has lost, if no handle has reported it.
    pub(crate) fn unreported_loss(&self) -> Option<Failure> {
        self.loss.clone().filter(|(_, errors)| self.told < *errors)
    }

    /// The file was changed on the device.
    pub(crate) fn note_change(&mut self) {
        self.changed = self.period;
    }

    /// As [`Durability::note_change`], of a change of its length.
    pub(crate) fn note_resize(&mut self) {
        self.resized = self.period;
        self.note_change();
    }

    /// Says whether pages are smaller than a block of the file system.
    pub(crate) fn with_pages_below_block(self, is_below_block: bool) -> Self {
        Self { is_below_block, ..self }
    }

    /// The file system has zeroed the rest of a block, in a call that was begun in the period
    /// `began`.
    pub(crate) fn note_zeroed(&mut self, began: u64) {
        self.note_resize();
        self.lost |= self.has_failed_since(began);
        self.evicted = self.evicted.max(Some(self.period));
    }

    /// Whether a flush has covered the length, and whatever was written to pages that are not in
    /// the cache.
    pub(crate) fn covers_absent_pages(&self) -> bool {
        self.resized <= self.flushed && self.evicted.is_none()
    }

    /// Whether the file was changed since the latest successful flush began, or there was none.
    pub(crate) fn needs_flush(&self) -> bool {
        self.changed > self.flushed
    }

    /// The flush period now.
    pub(crate) fn period(&self) -> u64 {
        self.period
    }

    /// Whether a flush has failed since a write began, in `period`: that may have been about it.
    /// One that has succeeded meanwhile was not, as the write was under way.
    pub(crate) fn has_failed_since(&self, period: u64) -> bool {
        period <= self.broken
    }

    /// Whether a write that came to its end in `period` must count as lost.
    pub(crate) fn is_broken(&self, period: u64) -> bool {
        period > self.intact && period <= self.broken
    }

    /// Ends the period, and gives it: writes that came to their end in it are covered by a flush
    /// that begins now.
    pub(crate) fn begin_flush(&mut self) -> u64 {
        self.period += 1;
        self.period - 1
    }

    pub(crate) fn flush_succeeded(&mut self, period: u64) {
        self.flushed = self.flushed.max(period);
        if self.evicted.is_some_and(|evicted| evicted <= period) {
            self.evicted = None;
        }
    }

    /// Writes that came to their end while the flush was under way count as lost too.
    pub(crate) fn flush_failed(&mut self, error: Error) {
        if self.broken == 0 {
            self.intact = self.flushed;
        }
        self.broken = self.period;
        self.period += 1;
        self.note_change();
        self.lost |= self.evicted.is_some() || self.is_below_block;
        self.record(error);
    }

    /// An unstable page of `period` is to leave the cache. False if its write is lost: then it is
    /// dirty, and stays.
    pub(crate) fn evict(&mut self, period: u64) -> bool {
        let is_broken = self.is_broken(period);
        if !is_broken && period > self.flushed {
            self.evicted = self.evicted.max(Some(period));
        }
        !is_broken
    }

    pub(crate) fn record(&mut self, error: Error) {
        // Of the writes that fail in one sync the first in the file is told.
        let is_first = |latest: &Error| match (latest, &error) {
            (
                Error::Io { operation: Operation::Write, offset: first, .. },
                Error::Io { operation: Operation::Write, offset, .. },
            ) => offset < first,
            _ => true,
        };
        let latest = self.last_error.take().map(|(latest, _)| latest);
        let kept = latest.filter(|latest| self.errors > self.sync_began && !is_first(latest));
        self.errors += 1;
        self.last_error = Some((kept.unwrap_or(error), self.errors));
    }

    /// A sync begins. Gives how many errors there were before.
    pub(crate) fn begin_sync(&mut self) -> u64 {
        self.sync_began = self.errors;
        self.errors
    }

    /// A write-back has succeeded.
    pub(crate) fn write_succeeded(&mut self) {
        self.failing = None;
    }

    /// A write-back has failed. Whether the file's writes did not fail before.
    pub(crate) fn write_failed(&mut self, error: Error) -> bool {
        let retry_at = Timestamp::now().after(RETRY_AFTER);
        let failing = Failing { error: error.clone(), retry_at, asked: 0 };
        self.record(error);
        self.failing.replace(failing).is_none()
    }

    /// The error of the file's writes, if they fail, and it is too early to try again.
    pub(crate) fn refusal(&mut self) -> Option<Error> {
        let failing = self.failing.as_mut()?;
        failing.asked += 1;
        let is_due = if cfg!(shuttle) {
            failing.asked.is_multiple_of(8)
        } else {
            failing.retry_at <= Timestamp::now()
        };
        (!is_due).then(|| failing.error.clone())
    }

    /// How many errors there were.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }

    /// What a handle that has seen `seen` errors does not know: a loss, or the latest error.
    pub(crate) fn unseen(&self, seen: u64) -> Option<Failure> {
        let mut errors = [&self.loss, &self.last_error].into_iter().flatten();
        errors.find(|(_, errors)| seen < *errors).cloned()
    }

    /// The device's reason for the latest error, if that was one of its own.
    pub(crate) fn last_errno(&self) -> Option<Errno> {
        match self.last_error {
            Some((Error::Io { errno, .. }, _)) => Some(errno),
            _ => None,
        }
    }

    /// Whether writes have left the cache that no flush has covered.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.evicted.is_some()
    }

    /// Whether it has lost durability for good, which a handle reports then.
    pub(crate) fn report_lost(&mut self) -> bool {
        self.lost_told |= self.lost;
        self.lost
    }

    /// Whether it has, and no handle has reported that.
    pub(crate) fn has_unreported_loss(&self) -> bool {
        self.lost && !self.lost_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_ended_before_it_began() {
        let mut file = Durability::new(0, CarriedOver::default());
        let written = file.period();
        assert!(file.evict(written));
        let flush = file.begin_flush();
        let during = file.period();
        assert!(during > flush);
        file.flush_succeeded(flush);
        // The page that left the cache is durable: a later failure does not concern it.
        file.flush_failed(Error::TooManyFiles);
        assert!(!file.report_lost());
        assert!(!file.is_broken(written));
        assert!(file.is_broken(during));
        assert!(!file.evict(during));
    }

    #[test]
    fn a_flush_that_succeeds_does_not_mend_one_that_failed() {
        let mut file = Durability::new(0, CarriedOver::default());
        let before = file.period();
        for _ in 0..2 {
            file.begin_flush();
            file.flush_failed(Error::TooManyFiles);
            let flush = file.begin_flush();
            file.flush_succeeded(flush);
            assert!(file.is_broken(before));
            assert!(!file.evict(before));
            assert!(!file.is_broken(file.period()));
        }
    }

    #[test]
    fn a_write_under_way_is_covered_by_no_flush() {
        let mut file = Durability::new(0, CarriedOver::default());
        let began = file.period();
        let flush = file.begin_flush();
        file.flush_succeeded(flush);
        assert!(!file.has_failed_since(began));
        file.begin_flush();
        file.flush_failed(Error::TooManyFiles);
        assert!(file.has_failed_since(began));
        assert!(!file.has_failed_since(file.period()));
    }

    #[test]
    fn an_evicted_page_of_a_failed_flush_is_lost_for_good() {
        let mut file = Durability::new(0, CarriedOver::default());
        file.evict(file.period());
        file.begin_flush();
        file.flush_failed(Error::TooManyFiles);
        assert!(file.has_unreported_loss());
        assert!(file.report_lost());
        assert!(!file.has_unreported_loss());
        let flush = file.begin_flush();
        file.flush_succeeded(flush);
        assert!(file.report_lost());
    }

    #[test]
    fn a_cut_during_a_failed_flush_is_lost_for_good() {
        for flush_ends_first in [false, true] {
            let mut file = Durability::new(0, CarriedOver::default());
            let began = file.period();
            file.begin_flush();
            if flush_ends_first {
                file.flush_failed(Error::TooManyFiles);
            }
            file.note_zeroed(began);
            if !flush_ends_first {
                file.flush_failed(Error::TooManyFiles);
            }
            assert!(file.report_lost(), "{flush_ends_first}");
        }
        let mut file = Durability::new(0, CarriedOver::default());
        file.begin_flush();
        file.flush_failed(Error::TooManyFiles);
        file.note_zeroed(file.period());
        let flush = file.begin_flush();
        file.flush_succeeded(flush);
        assert!(!file.report_lost(), "it came after the flush that failed");
    }

    #[test]
    fn a_failed_flush_is_final_for_pages_below_a_block() {
        for is_below in [false, true] {
            let file = Durability::new(0, CarriedOver::default());
            let mut file = file.with_pages_below_block(is_below);
            file.begin_flush();
            file.flush_failed(Error::TooManyFiles);
            assert_eq!(file.report_lost(), is_below);
        }
    }

    #[test]
    fn a_new_handle_knows_what_another_has_reported() {
        let mut file = Durability::new(0, CarriedOver::default());
        file.record(Error::TooManyFiles);
        assert_eq!(file.outcome_since(0), Err((Error::TooManyFiles, 1)));
        assert_eq!(file.known_to_new_handle(), 0, "nobody has got it yet");
        file.note_reported(1);
        assert_eq!(file.known_to_new_handle(), 1);
    }

    /// Neither hides the other, whatever comes between a sync's end and its caller's return.
    #[test]
    fn a_loss_is_told_once_and_then_the_latest_error() {
        let loss = Error::Forked;
        let carried_over = CarriedOver { lost: Some(loss.clone()), ..CarriedOver::default() };
        let mut file = Durability::new(0, carried_over);
        let before = file.begin_sync();
        file.record(Error::TooManyFiles);
        assert_eq!(file.outcome_since(before), Err((loss.clone(), 1)));
        file.record(Error::TooManyFiles);
        assert_eq!(file.unreported_loss(), Some((loss, 1)));
        file.note_reported(1);
        assert_eq!(file.unreported_loss(), None);
        assert_eq!(file.unseen(1), Some((Error::TooManyFiles, 3)));
    }

    #[test]
    fn each_handle_sees_each_error_once() {
        let mut file = Durability::new(0, CarriedOver::default());
        assert_eq!(file.unseen(0), None);
        file.record(Error::TooManyFiles);
        assert_eq!(file.unseen(0), Some((Error::TooManyFiles, 1)));
        assert_eq!(file.unseen(file.errors()), None);
    }
}
