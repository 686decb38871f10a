//! Concurrent operations: *drivers* wake, requeue, and poll and drop hundreds of tasks each;
//! *sleepers* only wait, some without a deadline. What is checked:
//!
//! - **S1** When the drivers have ended, a last wake of each key wakes as many as are left there:
//!   those tasks that are still pending, and those sleepers that it ended. After it, nobody is
//!   left. A sleeper that was lost sleeps for ever, and the watchdog tells.
//! - **S2** Who was woken waited for the key of the wake whose token it got. Requeues go among the
//!   keys of a *family* only, so that this is known of each family.
//! - **S3** Unless futures are dropped in the epoch, every wake was received by as many of each
//!   kind as it said, and by nobody who came after it had returned; every task that was woken had
//!   its last waker called, once.
//! - **S4** If they are, exclusive wakes are received or dropped, never doubled.

use std::ops::AddAssign;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use unherd_sync::{AnyOutcome, Deadline, Outcome, Requeued, Token, Wait, Woken};
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, Ordering, thread};
use unherd_testkit::Seed;

use super::{Future, Key, Table};
use super::{future, how, of_any_size, past, poll, table, verdict, wake_n};

const DRIVERS: usize = 4;
const SLEEPERS: usize = 4;
/// The number of the last wakes, beside those of drivers.
const LAST: usize = DRIVERS;

/// Steps of a driver until it has another number of tasks.
const SWING: u64 = 500;

/// The token of a driver's wake: which of its wakes, and of which key.
fn token(serial: u64, driver: usize, key: Key) -> Token {
    Token(serial << 24 | (driver as u64) << 16 | u64::from(key.0))
}

/// Half of the keys are requeued, among four of two hashes; each of the others is by itself.
fn family(key: Key) -> Key {
    if is_requeued(key) { Key(key.0 / 8 * 8) } else { key }
}

fn is_requeued(key: Key) -> bool {
    key.0 % 8 < 4
}

/// What stands for a wake that was received: sums of these are equal if the wakes are.
fn print_of(token: Token, shared: bool) -> u64 {
    Seed::new(token.0 << 1 | u64::from(shared)).next_u64()
}

/// What a thread did and saw. Sums wrap.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    operations: u64,
    /// Prints of the wakes that wakers counted, and of those that waiters received.
    sent: u64,
    received: u64,
    exclusive_sent: u64,
    exclusive_received: u64,
    exclusive_dropped: u64,
    dropped: u64,
    /// Tasks woken, by which waker each had last.
    woken: [u64; 2],
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.sent = self.sent.wrapping_add(other.sent);
        self.received = self.received.wrapping_add(other.received);
        self.exclusive_sent += other.exclusive_sent;
        self.exclusive_received += other.exclusive_received;
        self.exclusive_dropped += other.exclusive_dropped;
        self.dropped += other.dropped;
        self.woken[0] += other.woken[0];
        self.woken[1] += other.woken[1];
    }
}

impl Account {
    fn sent(&mut self, woken: Woken, token: Token) {
        for (count, shared) in [(woken.shared, true), (woken.exclusive, false)] {
            let prints = print_of(token, shared).wrapping_mul(count as u64);
            self.sent = self.sent.wrapping_add(prints);
        }
        self.exclusive_sent += woken.exclusive as u64;
    }
}

/// A waker that counts.
struct Calls(AtomicU64);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many wakes of each driver had returned. Relaxed is enough: that a waiter sees one which
/// nevertheless finds it later would be a cycle of what happens before what.
type Returned = [u64; DRIVERS + 1];

struct Task<'t> {
    future: Future<'t>,
    key: Key,
    shared: bool,
    waker: usize,
    before: Returned,
}

/// What the threads of an epoch share.
struct Scene {
    table: Table,
    keys: u32,
    steps: u64,
    /// Whether futures are dropped.
    drops: bool,
    stop: AtomicBool,
    returned: [AtomicU64; DRIVERS + 1],
    calls: [Arc<Calls>; 2],
}

pub(super) fn run(seed: Seed, operations: u64) {
    super::run("concurrently", seed, operations, |seed| Scene::new(seed.clone()).run(seed));
}

impl Scene {
    fn new(mut seed: Seed) -> Self {
        Self {
            table: table(seed.next_u64()),
            keys: [8, 64, 1024][seed.below(3) as usize],
            steps: 500 + of_any_size(&mut seed, 14),
            drops: seed.coin(),
            stop: AtomicBool::new(false),
            returned: Default::default(),
            calls: [0; 2].map(|_| Arc::new(Calls(AtomicU64::new(0)))),
        }
    }

    /// Runs the epoch; says how many operations it had.
    fn run(&self, mut seed: Seed) -> u64 {
        let mut account = Account::default();
        // Who was found by the last wakes, and who ought to have been.
        let (mut found, mut left) = (vec![0; self.keys as usize], vec![0; self.keys as usize]);
        let mut tasks = Vec::new();
        thread::scope(|scope| {
            let _released = ReleasedByPanic(self);
            let sleepers = [0; SLEEPERS].map(|_| {
                let seed = seed.fork();
                scope.spawn(|| Thread::new(self, seed, LAST).sleep())
            });
            let drivers: Vec<_> = (0..DRIVERS)
                .map(|number| {
                    let seed = seed.fork();
                    scope.spawn(move || Driver::new(self, seed, number).drive())
                })
                .collect();
            for driver in drivers {
                let driver = driver.join().expect("no panic");
                account += driver.thread.account;
                tasks.extend(driver.tasks);
            }
            // Polled by another thread than before, with the wakers that they have.
            let mut thread = Thread::new(self, seed.fork(), LAST);
            tasks.retain_mut(|task| thread.poll(task, task.waker).is_pending());
            self.stop.store(true, Ordering::Relaxed);
            for key in (0..self.keys).map(Key) {
                found[family(key).0 as usize] += thread.wake(key, usize::MAX).total();
            }
            account += thread.account;
            for sleeper in sleepers {
                let thread = sleeper.join().expect("no panic");
                account += thread.account;
                for key in thread.ended_last {
                    left[family(key).0 as usize] += 1;
                }
            }
        });
        let mut thread = Thread::new(self, seed, LAST);
        for task in &mut tasks {
            left[family(task.key).0 as usize] += 1;
            assert!(thread.poll(task, 0).is_ready(), "the last wake has found it");
        }
        account += thread.account;
        assert_eq!(found, left, "S1: of each family");
        self.check(account);
        account.operations
    }

    /// All waits have ended.
    fn check(&self, account: Account) {
        for key in (0..self.keys).map(Key) {
            assert_eq!(self.table.wake_all(&key), 0, "S1");
        }
        let calls = self.calls.each_ref().map(|calls| calls.0.load(Ordering::Relaxed));
        let Account { sent, received, woken, .. } = account;
        if self.drops {
            let known =
                account.exclusive_received..=account.exclusive_received + account.exclusive_dropped;
            assert!(known.contains(&account.exclusive_sent), "S4: {account:?}");
            let known = woken[0] + woken[1]..=woken[0] + woken[1] + account.dropped;
            assert!(known.contains(&(calls[0] + calls[1])), "S4: {calls:?}, {account:?}");
        } else {
            assert_eq!((sent, calls), (received, woken), "S3: {account:?}");
        }
    }
}

/// Ends the sleepers' waits if a check fails: the test is to say so, and not to wait for them.
struct ReleasedByPanic<'t>(&'t Scene);

impl Drop for ReleasedByPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
            for key in (0..self.0.keys).map(Key) {
                self.0.table.wake_with(&key, usize::MAX, token(u64::from(u32::MAX), LAST, key));
            }
        }
    }
}

/// What drivers and sleepers have in common, which is to wait.
struct Thread<'t> {
    scene: &'t Scene,
    seed: Seed,
    /// Whose wakes its own are.
    number: usize,
    serial: u64,
    account: Account,
    /// The keys of its waits that the last wakes ended.
    ended_last: Vec<Key>,
}

impl<'t> Thread<'t> {
    fn new(scene: &'t Scene, seed: Seed, number: usize) -> Self {
        let (account, ended_last) = (Account::default(), Vec::new());
        Self { scene, seed, number, serial: 0, account, ended_last }
    }

    fn key(&mut self) -> Key {
        Key::any(&mut self.seed, self.scene.keys)
    }

    fn before(&self) -> Returned {
        self.scene.returned.each_ref().map(|returned| returned.load(Ordering::Relaxed))
    }

    fn wake(&mut self, key: Key, n: usize) -> Woken {
        self.count_wake(key, |table, token| table.wake_with(&key, n, token))
    }

    /// Any wake that has a token.
    fn count_wake(&mut self, key: Key, wake: impl FnOnce(&Table, Token) -> Woken) -> Woken {
        self.serial += 1;
        let token = token(self.serial, self.number, key);
        let woken = wake(&self.scene.table, token);
        self.scene.returned[self.number].store(self.serial, Ordering::Relaxed);
        self.account.sent(woken, token);
        self.account.operations += 1;
        woken
    }

    /// A wait for `key`, which began after `before`, was woken.
    fn received(&mut self, key: Key, shared: bool, token: Token, before: &Returned) {
        self.account.received = self.account.received.wrapping_add(print_of(token, shared));
        self.account.exclusive_received += u64::from(!shared);
        if token == Token(0) {
            assert!(is_requeued(key), "S2: requeued from another key");
            return;
        }
        let woken_for = Key((token.0 & 0xffff) as u32);
        let (driver, serial) = ((token.0 >> 16 & 0xff) as usize, token.0 >> 24);
        assert_eq!(family(woken_for), family(key), "S2");
        assert!(self.scene.drops || serial > before[driver], "S3: that wake had returned");
        if driver == LAST {
            self.ended_last.push(key);
        }
    }

    fn poll(&mut self, task: &mut Task<'_>, waker: usize) -> Poll<Outcome> {
        self.account.operations += 1;
        let calls = &self.scene.calls[waker];
        let polled = poll(&mut task.future, &Waker::from(Arc::clone(calls)));
        match polled {
            Poll::Pending => task.waker = waker,
            Poll::Ready(Outcome::Woken(token)) => {
                self.account.woken[task.waker] += 1;
                self.received(task.key, task.shared, token, &task.before);
            }
            Poll::Ready(outcome) => panic!("a task that was not refused: {outcome:?}"),
        }
        polled
    }

    /// Waits for one key or for any of some, once.
    fn wait(&mut self, deadline: Deadline, stops: bool) {
        self.account.operations += 1;
        let shared = self.seed.below(4) == 0;
        let how = how(self.seed.next_u64(), shared).deadline(deadline);
        let keys: Vec<Key> = (0..=self.seed.below(4)).map(|_| self.key()).collect();
        let before = self.before();
        if let Some((key, token)) = self.wait_for(&keys, how, stops) {
            self.received(key, shared, token, &before);
        }
    }

    fn wait_for(&mut self, keys: &[Key], how: Wait, stops: bool) -> Option<(Key, Token)> {
        let Scene { table, stop, .. } = self.scene;
        let validate = || !(stops && stop.load(Ordering::Relaxed));
        if let [key, _] = keys {
            return match table.wait(key, validate, how) {
                Outcome::Woken(token) => Some((*key, token)),
                Outcome::TimedOut | Outcome::Invalid => None,
            };
        }
        match table.wait_any(keys, |_| validate(), how).expect("one to five keys") {
            AnyOutcome::Woken { index, token } => Some((keys[index], token)),
            AnyOutcome::TimedOut | AnyOutcome::Invalid { .. } => None,
        }
    }

    /// A deadline that is near.
    fn soon(&mut self) -> Deadline {
        Deadline::after(Duration::from_micros(self.seed.below(64)))
    }

    /// The whole life of a sleeper.
    fn sleep(mut self) -> Self {
        while !self.scene.stop.load(Ordering::Relaxed) {
            let deadline = match self.seed.below(8) {
                0 => past(),
                1..4 => self.soon(),
                _ => Deadline::NEVER,
            };
            self.wait(deadline, true);
        }
        self
    }
}

struct Driver<'t> {
    thread: Thread<'t>,
    tasks: Vec<Task<'t>>,
    /// How many tasks it is to have.
    aim: usize,
}

impl<'t> Driver<'t> {
    fn new(scene: &'t Scene, seed: Seed, number: usize) -> Self {
        Self { thread: Thread::new(scene, seed, number), tasks: Vec::new(), aim: 0 }
    }

    fn drive(mut self) -> Self {
        for step in 0..self.thread.scene.steps {
            if step.is_multiple_of(SWING) {
                self.aim = of_any_size(&mut self.thread.seed, 10) as usize;
            }
            self.step();
        }
        self
    }

    fn step(&mut self) {
        let key = self.thread.key();
        if self.tasks.len() < self.aim && self.thread.seed.below(16) < 10 {
            return self.begin(key);
        }
        let n = wake_n(&mut self.thread.seed);
        match self.thread.seed.below(64) {
            0..4 => self.begin(key),
            4..32 => self.touch(),
            32..46 => {
                let woken = self.thread.wake(key, n);
                assert!(woken.exclusive <= n, "{woken:?} of {n}");
            }
            46..50 => {
                let salt = self.thread.seed.next_u64();
                let filter = |tag| verdict(salt, tag);
                let wake = |table: &Table, token| table.wake_where(&key, filter, token);
                self.thread.count_wake(key, wake);
            }
            50..60 => self.requeue(Key(key.0 & !4), n),
            60..63 => self.thread.wait(past(), false),
            _ => {
                let soon = self.thread.soon();
                self.thread.wait(soon, false);
            }
        }
    }

    fn begin(&mut self, key: Key) {
        let seed = &mut self.thread.seed;
        let (shared, waker, tag) = (seed.below(4) == 0, seed.below(2) as usize, seed.next_u64());
        let before = self.thread.before();
        let future = future(&self.thread.scene.table, key, how(tag, shared), || true);
        let mut task = Task { future, key, shared, waker, before };
        assert!(self.thread.poll(&mut task, waker).is_pending());
        self.tasks.push(task);
    }

    /// Polls a task, or drops it.
    fn touch(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let index = self.thread.seed.below(self.tasks.len() as u64) as usize;
        if self.thread.scene.drops && self.thread.seed.below(4) == 0 {
            let task = self.tasks.swap_remove(index);
            self.thread.account.operations += 1;
            self.thread.account.dropped += 1;
            self.thread.account.exclusive_dropped += u64::from(!task.shared);
            return;
        }
        let waker = self.thread.seed.below(2) as usize;
        if self.thread.poll(&mut self.tasks[index], waker).is_ready() {
            self.tasks.swap_remove(index);
        }
    }

    /// Among the family of `from`.
    fn requeue(&mut self, from: Key, n: usize) {
        let seed = &mut self.thread.seed;
        let to = Key(from.0 & !3 | seed.below(4) as u32);
        let (move_n, valid) = (wake_n(seed), seed.below(4) > 0);
        let table = &self.thread.scene.table;
        let requeued = table.requeue_if(&from, &to, n, move_n, || valid).unwrap_or_default();
        let Requeued { woken, moved } = requeued;
        let most = if valid && from != to { move_n } else { 0 };
        assert!(woken.exclusive <= n && moved <= most, "{requeued:?} of {n}, {move_n}");
        assert!(valid || woken.total() == 0, "{requeued:?}");
        self.thread.account.sent(woken, Token(0));
        self.thread.account.operations += 1;
    }
}
