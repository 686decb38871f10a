//! The engine: memtables, writers and one flusher.

use std::time::Duration;

use unherd::{Deadline, Gate, Reason, SharedCongested, Timestamp};
use unherd_sys::primitives::{Condvar, Mutex};

use crate::congestion::{GateWaits, Latencies, sleep_until};

/// A sleep that went on for less while nothing was pending was about to end.
const WAKING_NS: u64 = 1_000_000;

/// What the engine is to do.
pub(super) struct Plan {
    pub(super) tables: usize,
    /// Of each writer.
    pub(super) fills: usize,
    pub(super) fill: Duration,
    pub(super) flush: Duration,
    pub(super) asks_always: bool,
}

pub(super) struct Engine<'g> {
    gate: &'g Gate,
    plan: Plan,
    throttled: Reason,
    tables: Mutex<Tables<'g>>,
    changed: Condvar,
}

struct Tables<'g> {
    /// Full ones, with the one that is being flushed.
    pending: usize,
    flushed: u64,
    is_over: bool,
    /// While there is no room.
    congested: Option<SharedCongested<'g>>,
    idle: IdleClock,
}

/// How long nothing was pending.
struct IdleClock {
    before_ns: u64,
    since: Option<Timestamp>,
}

impl IdleClock {
    fn read_ns(&self) -> u64 {
        let now = self.since.map_or(0, |since| Timestamp::now().since(since).as_nanos() as u64);
        self.before_ns + now
    }
}

/// What a writer has done.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) waits: GateWaits,
    pub(super) latencies: Latencies,
    pub(super) idle_ns: u64,
    pub(super) idle_ns_max: u64,
}

impl<'g> Engine<'g> {
    pub(super) fn new(gate: &'g Gate, plan: Plan) -> Self {
        let idle = IdleClock { before_ns: 0, since: Some(Timestamp::now()) };
        let tables = Tables { pending: 0, flushed: 0, is_over: false, congested: None, idle };
        Self {
            gate,
            plan,
            throttled: Reason::register("stall-throttle"),
            tables: Mutex::new(tables),
            changed: Condvar::new(),
        }
    }

    /// Fills memtables, and hands them over.
    pub(super) fn write(&self) -> Writer {
        let mut writer = Writer::default();
        for _ in 0..self.plan.fills {
            let began = Timestamp::now();
            if self.plan.asks_always {
                self.wait(&mut writer);
            }
            let full = Timestamp::now().after(self.plan.fill);
            while Timestamp::now() < full {
                std::hint::spin_loop();
            }
            while !self.hand_over() {
                self.wait(&mut writer);
            }
            writer.latencies.end(began);
        }
        writer
    }

    /// Hands a full memtable over, if there is room.
    fn hand_over(&self) -> bool {
        let mut tables = self.tables.lock();
        if tables.pending == self.plan.tables {
            tables.congested.get_or_insert_with(|| self.gate.congest().into_shared());
            return false;
        }
        tables.pending += 1;
        tables.idle.before_ns = tables.idle.read_ns();
        tables.idle.since = None;
        drop(tables);
        self.changed.notify_one();
        true
    }

    fn wait(&self, writer: &mut Writer) {
        let idle_before_ns = self.tables.lock().idle.read_ns();
        let waited = self.gate.wait_iff(self.throttled, Deadline::NEVER);
        writer.waits.note(waited);
        if !waited.slept.is_zero() {
            let idle_ns = self.tables.lock().idle.read_ns() - idle_before_ns;
            writer.idle_ns_max = writer.idle_ns_max.max(idle_ns);
            if idle_ns > WAKING_NS {
                writer.idle_ns += idle_ns;
            }
        }
    }

    /// Flushes what there is, until the writers are done.
    pub(super) fn flush(&self) {
        let _duty = self.gate.duty();
        loop {
            let mut tables = self.tables.lock();
            while tables.pending == 0 {
                if tables.is_over {
                    return;
                }
                tables = self.changed.wait(tables);
            }
            drop(tables);
            sleep_until(Timestamp::now().after(self.plan.flush));
            let mut tables = self.tables.lock();
            tables.pending -= 1;
            tables.flushed += 1;
            if tables.pending == 0 {
                tables.idle.since = Some(Timestamp::now());
            }
            let congested = tables.congested.take();
            drop(tables);
            self.gate.progress(1);
            drop(congested);
        }
    }

    /// The writers are done.
    pub(super) fn end(&self) {
        self.tables.lock().is_over = true;
        self.changed.notify_one();
    }

    pub(super) fn flushed(&self) -> u64 {
        self.tables.lock().flushed
    }
}
