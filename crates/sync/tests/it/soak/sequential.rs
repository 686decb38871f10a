//! Operations in sequence: after each, the table agrees with the model in who was woken, in which
//! order, by which of its wakers, and in every count.
//!
//! All waiters are tasks, which one thread can drive. Threads take part with waits that end at
//! once: refused, past their deadline, or by a panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Poll, Wake, Waker};

use unherd_sync::{AnyOutcome, Outcome, Requeued, Tag, Token, Verdict, Woken};
use unherd_sys::primitives::{Arc, Mutex};
use unherd_testkit::{QueueModel, Seed};

use super::{Future, Key, Table};
use super::{future, how, of_any_size, past, poll, table, verdict, wake_n};

/// Steps of an epoch, and of one swing of the number of waiters.
const EPOCH: u64 = 100_000;
const SWING: u64 = 1_000;

/// A call of a waker: the task's slot, and which of its wakers.
type Call = (usize, usize);

/// Writes down that it was called.
struct Note {
    call: Call,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.calls.lock().push(self.call);
    }
}

struct Task<'t> {
    future: Future<'t>,
    key: Key,
    shared: bool,
    /// The waker that it was polled with last.
    waker: usize,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Fresh,
    Waiting,
    /// By a wake of `key`, which may not be the one that it began to wait for.
    Chosen {
        key: Key,
        token: Token,
        heir: Heir,
    },
}

/// Whom a wake goes on to from a task that is dropped.
#[derive(Clone, Copy, PartialEq)]
enum Heir {
    Nobody,
    Exclusive,
    Anybody,
}

impl Heir {
    /// Of a wake of up to `n` exclusive waiters.
    fn of(n: usize) -> Self {
        if n == usize::MAX { Self::Nobody } else { Self::Exclusive }
    }
}

/// A place for a task, with wakers of its own.
struct Slot<'t> {
    task: Option<Task<'t>>,
    wakers: [Waker; 2],
}

struct Driven<'t> {
    table: &'t Table,
    seed: Seed,
    keys: u32,
    /// How many are to wait.
    aim: usize,
    model: QueueModel<Key>,
    slots: Vec<Slot<'t>>,
    free: Vec<usize>,
    calls: Arc<Mutex<Vec<Call>>>,
    expected: Vec<Call>,
    /// Chosen, and not polled since.
    chosen: usize,
    token: u64,
}

pub(super) fn run(seed: Seed, operations: u64) {
    super::run("in sequence", seed, operations, |mut seed| {
        let table = table(seed.next_u64());
        let keys = [2, 8, 64, 1024][seed.below(4) as usize];
        let mut driven = Driven::new(&table, seed, keys);
        let mut operations = 0;
        for step in 0..EPOCH {
            if step % SWING == 0 {
                driven.aim = of_any_size(&mut driven.seed, 11) as usize;
            }
            operations += u64::from(driven.step());
            driven.check_calls();
        }
        driven.finish();
        operations
    });
}

impl<'t> Driven<'t> {
    fn new(table: &'t Table, seed: Seed, keys: u32) -> Self {
        Self {
            table,
            seed,
            keys,
            aim: 0,
            model: QueueModel::new(),
            slots: Vec::new(),
            free: Vec::new(),
            calls: Arc::default(),
            expected: Vec::new(),
            chosen: 0,
            token: 0,
        }
    }

    /// Says whether there was anything to do.
    fn step(&mut self) -> bool {
        let key = Key::any(&mut self.seed, self.keys);
        if self.model.waiting() < self.aim && self.seed.below(16) < 10 {
            self.begin(key);
            return true;
        }
        let n = wake_n(&mut self.seed);
        match self.seed.below(32) {
            0..2 => self.begin(key),
            2..16 => return self.touch(),
            16..22 => self.wake(key, n),
            22..24 => self.wake_where(key),
            24..28 => self.requeue(key, n),
            28 => self.requeue_not(key, n),
            29 => self.wait_past(key),
            30 => self.wait_any_past(),
            _ => self.wait_refused(key),
        }
        true
    }

    /// A task; most are polled at once.
    fn begin(&mut self, key: Key) {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.slots.len();
            let note = |waker| Note { call: (slot, waker), calls: Arc::clone(&self.calls) };
            let wakers = [0, 1].map(|waker| Waker::from(Arc::new(note(waker))));
            self.slots.push(Slot { task: None, wakers });
            slot
        });
        let shared = self.seed.below(4) == 0;
        let future = future(self.table, key, how(slot as u64, shared), || true);
        let task = Task { future, key, shared, waker: 0, stage: Stage::Fresh };
        self.slots[slot].task = Some(task);
        if self.seed.below(8) > 0 {
            self.poll(slot);
        }
    }

    fn poll(&mut self, slot: usize) {
        let Slot { task, wakers } = &mut self.slots[slot];
        let task = task.as_mut().expect("it is there");
        let waker = self.seed.below(2) as usize;
        let polled = poll(&mut task.future, &wakers[waker]);
        match task.stage {
            Stage::Fresh => {
                if task.shared {
                    self.model.wait_shared(task.key, slot as u64);
                } else {
                    self.model.wait(task.key, slot as u64);
                }
                (task.stage, task.waker) = (Stage::Waiting, waker);
                assert_eq!(polled, Poll::Pending);
            }
            Stage::Waiting => {
                task.waker = waker;
                assert_eq!(polled, Poll::Pending, "nobody woke it");
            }
            Stage::Chosen { token, .. } => {
                assert_eq!(polled, Poll::Ready(Outcome::Woken(token)));
                self.chosen -= 1;
                self.slots[slot].task = None;
                self.free.push(slot);
            }
        }
    }

    /// Polls a task, or drops it, if there is one in a slot that it chooses.
    fn touch(&mut self) -> bool {
        let slot = self.seed.below(self.slots.len() as u64) as usize;
        let Some(stage) = self.slots.get(slot).and_then(|slot| Some(slot.task.as_ref()?.stage))
        else {
            return false;
        };
        let end_it = self.model.waiting() > self.aim || self.seed.below(8) == 0;
        if !matches!(stage, Stage::Chosen { .. }) && !end_it || self.seed.coin() {
            self.poll(slot);
            return true;
        }
        let task = self.slots[slot].task.take().expect("it is there");
        let shared = task.shared;
        drop(task);
        self.free.push(slot);
        match stage {
            Stage::Fresh => {}
            Stage::Waiting => assert!(self.model.timeout(slot as u64)),
            Stage::Chosen { key, token, heir } => {
                self.chosen -= 1;
                let next = match heir {
                    Heir::Anybody => {
                        let mut is_first = true;
                        self.model.wake_where(&key, |_| std::mem::take(&mut is_first))
                    }
                    Heir::Exclusive if !shared => self.model.wake_exclusive(&key),
                    Heir::Exclusive | Heir::Nobody => Vec::new(),
                };
                self.choose(&next, key, token, heir);
            }
        }
        true
    }

    /// Notes whom the model says that a wake chose, and says how many.
    fn choose(&mut self, ids: &[u64], key: Key, token: Token, heir: Heir) -> Woken {
        let mut woken = Woken::default();
        for id in ids {
            let slot = *id as usize;
            let task = self.slots[slot].task.as_mut().expect("the model knows only waiters");
            task.stage = Stage::Chosen { key, token, heir };
            *(if task.shared { &mut woken.shared } else { &mut woken.exclusive }) += 1;
            self.expected.push((slot, task.waker));
        }
        self.chosen += ids.len();
        woken
    }

    fn next_token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    fn wake(&mut self, key: Key, n: usize) {
        let token = self.next_token();
        let woken = self.table.wake_with(&key, n, token);
        let ids = self.model.wake(&key, n);
        assert_eq!(woken, self.choose(&ids, key, token, Heir::of(n)));
    }

    /// With a filter that may stop, or panic.
    fn wake_where(&mut self, key: Key) {
        let (token, salt) = (self.next_token(), self.seed.next_u64());
        let panics = self.seed.below(8) == 0;
        let filter = |tag: Tag| match verdict(salt, tag) {
            Verdict::Stop if panics => resume_unwind(Box::new(())),
            verdict => verdict,
        };
        let wake = AssertUnwindSafe(|| self.table.wake_where(&key, filter, token));
        let woken = catch_unwind(wake).ok();
        let (mut stopped, mut panicked) = (false, false);
        let ids = self.model.wake_where(&key, |id| {
            let verdict = if stopped { Verdict::Skip } else { verdict(salt, Tag(id)) };
            stopped |= matches!(verdict, Verdict::Stop | Verdict::WakeAndStop);
            panicked |= panics && verdict == Verdict::Stop;
            matches!(verdict, Verdict::Wake | Verdict::WakeAndStop)
        });
        let mut expected = Woken::default();
        for id in ids {
            let heir = match verdict(salt, Tag(id)) {
                Verdict::WakeAndStop => Heir::Anybody,
                _ => Heir::Exclusive,
            };
            let woken = self.choose(&[id], key, token, heir);
            expected.shared += woken.shared;
            expected.exclusive += woken.exclusive;
        }
        assert_eq!(woken, (!panicked).then_some(expected));
    }

    fn requeue(&mut self, from: Key, n: usize) {
        let (to, move_n) = (Key::any(&mut self.seed, self.keys), wake_n(&mut self.seed));
        let requeued = self.table.requeue(&from, &to, n, move_n);
        let (ids, moved) = self.model.requeue(&from, &to, n, move_n);
        let woken = self.choose(&ids, from, Token(0), Heir::of(n));
        assert_eq!((requeued.woken, requeued.moved), (woken, moved));
    }

    fn requeue_not(&mut self, from: Key, n: usize) {
        let to = Key::any(&mut self.seed, self.keys);
        let requeued = self.table.requeue_if(&from, &to, n, n, || false);
        // It does not ask if there is nobody.
        assert_eq!(requeued.unwrap_or_default(), Requeued::default());
    }

    fn wait_past(&mut self, key: Key) {
        let how = how(u64::MAX, self.seed.coin()).deadline(past());
        assert_eq!(self.table.wait(&key, || true, how), Outcome::TimedOut);
    }

    /// Past its deadline, or refused at one of the keys, or by a panic there.
    fn wait_any_past(&mut self) {
        let keys: Vec<Key> =
            (0..=self.seed.below(8)).map(|_| Key::any(&mut self.seed, self.keys)).collect();
        let how = how(u64::MAX, self.seed.coin()).deadline(past());
        let (no, panics) = (self.seed.below(16) as usize, self.seed.below(4) == 0);
        let validate = |index| {
            if panics && index == no {
                resume_unwind(Box::new(()));
            }
            index != no
        };
        let wait = AssertUnwindSafe(|| self.table.wait_any(&keys, validate, how).expect("keys"));
        let expected = match (no < keys.len(), panics) {
            (true, true) => None,
            (true, false) => Some(AnyOutcome::Invalid { index: no }),
            _ => Some(AnyOutcome::TimedOut),
        };
        assert_eq!(catch_unwind(wait).ok(), expected);
    }

    /// By a no, or by a panic, to a thread or a task.
    fn wait_refused(&mut self, key: Key) {
        let how = how(u64::MAX, self.seed.coin());
        if self.seed.coin() {
            assert_eq!(self.table.wait(&key, || false, how), Outcome::Invalid);
            let mut refused = future(self.table, key, how, || false);
            assert_eq!(poll(&mut refused, Waker::noop()), Poll::Ready(Outcome::Invalid));
        } else {
            let mut panics = future(self.table, key, how, || resume_unwind(Box::new(())));
            let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut panics, Waker::noop())));
            assert!(polled.is_err());
        }
    }

    /// The wakers that were called since the last time are those of the model, in its order.
    fn check_calls(&mut self) {
        let mut calls = self.calls.lock();
        assert_eq!(*calls, self.expected);
        calls.clear();
        self.expected.clear();
    }

    /// Each waiter that is left is found where the model has it.
    fn finish(mut self) {
        for key in (0..self.keys).map(Key) {
            self.wake(key, usize::MAX);
            self.check_calls();
        }
        assert_eq!(self.model.waiting(), 0);
        for slot in 0..self.slots.len() {
            match self.slots[slot].task.as_ref().map(|task| task.stage) {
                Some(Stage::Chosen { .. }) => self.poll(slot),
                Some(Stage::Waiting) => panic!("the model has nobody"),
                Some(Stage::Fresh) | None => {}
            }
        }
    }
}
