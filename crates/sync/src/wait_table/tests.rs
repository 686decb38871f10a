//! The table against real threads, and against the plainest model of a queue.
#![expect(unsafe_code, reason = "queues without their table")]

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, thread};

use super::*;

fn table<K>(buckets: usize) -> WaitTable<K> {
    WaitTable::<K>::builder().buckets(buckets).seed(1).build()
}

/// How many nodes wait in the table.
fn queued<K>(table: &WaitTable<K>) -> usize {
    (0..table.buckets.len()).map(|index| size(&table.buckets.lock((index as u64) << 6))).sum()
}

/// The size of a queue that nobody else uses.
fn queue_size<K>(queue: &queue::Queue<K>) -> usize {
    queue.roots().map(|root| size_below(root, 0, 0)).into_iter().sum()
}

/// The size of a locked bucket's queue.
fn size<K>(guard: &bucket::BucketGuard<'_, K>) -> usize {
    guard.roots().map(|root| size_below(root, 0, 0)).sum()
}

/// The size of a subtree whose paths begin with the first `depth` bits of `path`, and Q1 to Q3.
fn size_below<K>(at: *const Waiter<K>, path: u64, depth: u32) -> usize {
    // SAFETY: null or queued, and the caller holds the lock.
    let Some(first) = (unsafe { at.as_ref() }) else { return 0 };
    let differs = queue::path_of(hash_of(first)) ^ path;
    assert!(differs.leading_zeros() >= depth.min(64), "Q3");
    // SAFETY: the lock is held.
    let links = unsafe { first.look(|links| *links) };
    assert!(links.queued && links.prev.is_null(), "Q2");
    let (mut list, mut last, mut next) = (1, at, links.next);
    let (mut counts, number) = (waiter::Counts::NONE, links.list);
    *counts.of(links.shared) += 1;
    // SAFETY: null or queued, under the lock.
    while let Some(equal) = unsafe { next.as_ref() } {
        // SAFETY: the lock is held.
        let links = unsafe { equal.look(|links| *links) };
        assert!(links.queued && links.prev == last, "Q2");
        assert_eq!((hash_of(equal), links.list), (hash_of(first), number), "Q3");
        *counts.of(links.shared) += 1;
        (list, last, next) = (list + 1, equal, links.next);
    }
    // SAFETY: no list is left closed by these tests.
    let end = unsafe { links.end.last };
    assert_eq!((links.closed, end, links.counts), (false, last, counts), "Q4");
    let children = links.children.iter().enumerate().filter(|(_, child)| !child.is_null());
    let below = children.map(|(way, child)| {
        let depth = depth + queue::WAY_BITS;
        size_below(*child, path | (way as u64) << 62 >> (depth - queue::WAY_BITS).min(62), depth)
    });
    list + below.sum::<usize>()
}

/// The hash of a node that nobody else changes.
fn hash_of<K>(node: &Waiter<K>) -> u64 {
    // SAFETY: see above.
    unsafe { node.hash() }
}

/// The tag of a node that nobody has claimed.
fn tag_of<K>(node: &Waiter<K>) -> u64 {
    // SAFETY: see above.
    unsafe { node.tag() }.0
}

/// A node for a queue without threads, shared if the tag is odd.
fn node(key: u64, hash: u64, tag: u64) -> Waiter<u64> {
    let wait = Wait::new(Reason::OTHER).tag(Tag(tag));
    Waiter::new(key, hash, if tag % 2 == 1 { wait.shared() } else { wait })
}

fn until_queued<K>(table: &WaitTable<K>, n: usize) {
    while queued(table) < n {
        thread::yield_now();
    }
}

/// Threads that wait for keys, and how they ended.
struct Waiters<K> {
    table: Arc<WaitTable<K>>,
    threads: Vec<thread::JoinHandle<Outcome>>,
}

impl<K: Copy + Eq + Hash + Send + Sync + 'static> Waiters<K> {
    fn new(table: WaitTable<K>) -> Self {
        Self { table: Arc::new(table), threads: Vec::new() }
    }

    /// Starts one more, and returns when it is in the queue.
    fn add(&mut self, key: K, tag: u64) {
        self.add_as(key, Wait::new(Reason::OTHER).tag(Tag(tag)));
    }

    fn add_as(&mut self, key: K, wait: Wait) {
        let table = Arc::clone(&self.table);
        self.threads.push(thread::spawn(move || table.wait(&key, || true, wait)));
        until_queued(&self.table, self.threads.len());
    }

    fn join(self) -> Vec<Outcome> {
        self.threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    }
}

#[test]
fn a_bucket_is_one_cache_line() {
    assert_eq!(size_of::<bucket::Bucket<WaitKey>>(), 64);
    assert_eq!(align_of::<WaitTable<WaitKey>>(), 64);
    let table = WaitTable::<WaitKey>::builder().buckets(9).build();
    assert_eq!((table.buckets(), table.memory_bytes()), (16, 64 + 16 * 64));
}

#[test]
fn a_wake_takes_its_key_alone_and_the_oldest_first() {
    let mut waiters = Waiters::new(table(1));
    for (key, tag) in [("a", 0), ("b", 1), ("a", 2), ("a", 3)] {
        waiters.add(key, tag);
    }
    let table = Arc::clone(&waiters.table);
    assert_eq!(table.wake_with(&"c", 9, Token(1)), 0);
    assert_eq!(table.wake_with(&"a", 2, Token(2)), 2);
    assert_eq!(queued(&table), 2);
    assert_eq!(table.wake_with(&"a", 2, Token(3)), 1);
    assert_eq!(table.wake_with(&"b", 0, Token(4)), 0);
    assert_eq!(table.wake_with(&"b", 1, Token(5)), 1);
    let tokens = [2, 5, 2, 3].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

#[test]
fn a_filter_chooses_by_tag() {
    let mut waiters = Waiters::new(table(4));
    (0..4).for_each(|tag| waiters.add(7_u64, tag));
    let table = Arc::clone(&waiters.table);
    let mut seen = Vec::new();
    let choose = |tag: Tag| {
        seen.push(tag.0);
        [Verdict::Skip, Verdict::Wake, Verdict::WakeAndStop, Verdict::Wake][tag.0 as usize]
    };
    assert_eq!(table.wake_where(&7, choose, Token(1)), 2);
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(table.wake_where(&7, |_| Verdict::Stop, Token(2)), 0);
    assert_eq!(table.wake_all(&7), 2);
    let tokens = [0, 1, 1, 0].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

#[test]
fn a_wake_takes_all_who_share_and_so_many_others() {
    let mut waiters = Waiters::new(table(1));
    for (n, kind) in "esesees".chars().enumerate() {
        let wait = Wait::new(Reason::OTHER).tag(Tag(n as u64));
        waiters.add_as(1_u64, if kind == 's' { wait.shared() } else { wait });
    }
    let table = Arc::clone(&waiters.table);
    assert_eq!(table.wake_with(&1, 1, Token(1)), Woken { shared: 3, exclusive: 1 });
    assert_eq!(table.wake_with(&1, 0, Token(2)), 0);
    assert_eq!(table.wake_with(&1, 2, Token(3)), Woken { shared: 0, exclusive: 2 });
    assert_eq!(table.wake_with(&1, 2, Token(4)), Woken { shared: 0, exclusive: 1 });
    let tokens = [1, 1, 3, 1, 3, 4, 1].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

/// More than a wake can carry, of each way to choose them.
#[test]
fn a_wake_comes_back_for_those_that_it_left_behind() {
    let mut waiters = Waiters::new(table(1));
    for n in 0..200 {
        let wait = Wait::new(Reason::OTHER).tag(Tag(n));
        waiters.add_as(7_u64, if n % 5 == 0 { wait.shared() } else { wait });
    }
    let table = Arc::clone(&waiters.table);
    let even = |tag: Tag| if tag.0.is_multiple_of(2) { Verdict::Wake } else { Verdict::Skip };
    // 200: 40 are shared, 20 of them even.
    assert_eq!(table.wake_where(&7, even, Token(1)), Woken { shared: 20, exclusive: 80 });
    assert_eq!(table.wake_with(&7, 40, Token(2)), Woken { shared: 20, exclusive: 40 });
    assert_eq!(table.wake_with(&7, 90, Token(3)), Woken { shared: 0, exclusive: 40 });
    assert_eq!(queued(&table), 0);
    for (n, outcome) in waiters.join().into_iter().enumerate() {
        let token = if n % 2 == 0 {
            1
        } else if n % 5 == 0 || n < 100 {
            2
        } else {
            3
        };
        assert_eq!(outcome, Outcome::Woken(Token(token)), "{n}");
    }
}

#[test]
fn a_requeue_wakes_moves_and_keeps_the_order() {
    let mut waiters = Waiters::new(table(1));
    for (n, kind) in "beseeb".chars().enumerate() {
        let wait = Wait::new(Reason::OTHER).tag(Tag(n as u64));
        let wait = if kind == 's' { wait.shared() } else { wait };
        waiters.add_as(u64::from(kind == 'b'), wait);
    }
    let table = Arc::clone(&waiters.table);
    let requeued =
        |shared, exclusive, moved| Requeued { woken: Woken { shared, exclusive }, moved };
    assert_eq!(table.requeue_if(&0, &1, 1, 1, || false), None);
    assert_eq!(table.requeue(&7, &1, 1, 1), Requeued::default());
    assert_eq!(table.requeue(&1, &1, 0, usize::MAX), Requeued::default());
    // Even of nobody else it wakes those who share.
    assert_eq!(table.requeue(&0, &1, 0, 0), requeued(1, 0, 0));
    assert_eq!(table.requeue_if(&0, &1, 1, usize::MAX, || true), Some(requeued(0, 1, 2)));
    assert_eq!((table.wake_all(&0).total(), queued(&table)), (0, 4));
    (1..5).for_each(|token| assert_eq!(table.wake_with(&1, 1, Token(token)), 1));
    let tokens = [1, 0, 0, 3, 4, 2].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

/// A wake of one passes by as many nodes, whoever else waits in the bucket: about the logarithm.
#[test]
fn a_wake_among_ten_thousand_takes_few_steps() {
    let mut queue = queue::Queue::new();
    let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let nodes: Vec<_> = (0..10_000).map(|key| node(key, hash(key), 0)).collect();
    for node in &nodes {
        // SAFETY: this test alone uses the queue; the nodes outlive it.
        unsafe { queue.push(std::ptr::null(), node) };
    }
    let deepest = queue.roots().into_iter().map(depth_below).max();
    // log₄(10,000 / 7) is 5.2.
    assert!(deepest.is_some_and(|steps| steps <= 12), "{deepest:?}");
}

/// How many nodes the longest way down passes.
fn depth_below(at: *const Waiter<u64>) -> usize {
    // SAFETY: null or queued, and nobody else uses the queue.
    let Some(first) = (unsafe { at.as_ref() }) else { return 0 };
    // SAFETY: as above.
    let children = unsafe { first.look(|links| links.children) };
    1 + children.into_iter().map(depth_below).max().unwrap_or(0)
}

#[test]
fn without_a_filter_a_wake_takes_the_whole_bucket() {
    let mut waiters = Waiters::new(WaitTable::<u64>::builder().buckets(1).filtered(false).build());
    (0..4).for_each(|key| waiters.add(key, 0));
    assert_eq!(waiters.table.wake_with(&2, 1, Token(9)), 4);
    let tokens = [0, 0, 9, 0].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

/// More than a wake can carry, and two of those that it has left behind give up meanwhile.
#[test]
fn without_a_filter_whoever_gives_up_meanwhile_was_woken() {
    struct Late {
        table: Arc<WaitTable<u64>>,
        nodes: [Waiter<u64>; 2],
        removed: Mutex<Vec<bucket::Removed>>,
    }
    // SAFETY: the bucket lock guards the nodes.
    unsafe impl Send for Late {}
    // SAFETY: as above.
    unsafe impl Sync for Late {}
    impl Wake for Late {
        fn wake(self: Arc<Self>) {
            let removed = self.nodes.iter().map(|node| self.table.leave_queue(node));
            self.removed.lock().extend(removed);
        }
    }
    let table = Arc::new(WaitTable::<u64>::builder().buckets(1).filtered(false).build());
    let late = Arc::new(Late {
        table: Arc::clone(&table),
        nodes: [1, 2].map(|key| node(key, 0, 0)),
        removed: Mutex::new(Vec::new()),
    });
    let waker = Waker::from(Arc::clone(&late));
    let wait = |key| Box::pin(table.wait_async(&key, || true, Reason::OTHER));
    let mut tasks: Vec<_> = (0..40).map(|n| wait(1 + n % 2)).collect();
    for (n, task) in tasks.iter_mut().enumerate() {
        if n == 36 {
            for node in &late.nodes {
                // SAFETY: they leave before this test does.
                unsafe { table.buckets.lock(0).push(node, |_| true) };
            }
        }
        let waker = if n == 0 { &waker } else { Waker::noop() };
        assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(table.wake_with(&1, usize::MAX, Token(9)), 42);
    assert_eq!(queued(&table), 0);
    let chosen = [9, 0].map(|token| bucket::Removed::Chosen(Token(token)));
    assert_eq!(*late.removed.lock(), chosen);
    for (task, token) in tasks.iter_mut().zip([9, 0].into_iter().cycle()) {
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Outcome::Woken(Token(token))));
    }
}

#[test]
fn keys_of_three_lengths_share_a_table() {
    let keys = [
        WaitKey::Page { file: 1, page: 2 },
        WaitKey::Buffer { file: 1, page: 2, block: 0 },
        WaitKey::Address(2),
    ];
    let mut waiters = Waiters::new(table(1));
    keys.iter().for_each(|key| waiters.add(*key, 0));
    for (token, key) in keys.iter().enumerate() {
        assert_eq!(waiters.table.wake_with(key, 9, Token(token as u64)), 1);
    }
    assert_eq!(waiters.join(), [0, 1, 2].map(|token| Outcome::Woken(Token(token))));
}

#[test]
fn a_refused_wait_does_not_sleep() {
    let table = table::<u64>(1);
    assert_eq!(table.wait(&1, || false, Reason::OTHER), Outcome::Invalid);
    assert_eq!(table.wake_all(&1), 0);
}

#[test]
fn deadlines_in_the_past_validate_once_and_time_out() {
    let table = table::<u64>(1);
    let mut validated = 0;
    let validate = || {
        validated += 1;
        true
    };
    assert_eq!(
        table.wait(&1, validate, Deadline::at(unherd_sys::Timestamp::from_ns(0))),
        Outcome::TimedOut
    );
    assert_eq!(validated, 1);
    assert_eq!(queued(&table), 0);
    let soon = Deadline::after(Duration::from_millis(1));
    assert_eq!(table.wait_until(&1, || false, soon), Err(TimedOut));
    assert_eq!(table.wait_until(&1, || true, soon), Ok(()));
}

#[test]
fn a_panic_in_validate_leaves_the_table_whole() {
    let table = table::<u64>(1);
    let panics = catch_unwind(|| table.wait(&1, || panic!("no"), Reason::OTHER));
    assert!(panics.is_err());
    assert_eq!(table.wake_all(&1), 0);
    assert_eq!(table.wait(&1, || false, Reason::OTHER), Outcome::Invalid);
}

/// Comparing it panics while `TOUCHED` says so.
#[derive(Debug, Clone, Copy)]
struct Touchy {
    key: u64,
    touchy: bool,
}

static TOUCHED: AtomicBool = AtomicBool::new(false);

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        let touchy = self.touchy || other.touchy;
        assert!(!(touchy && TOUCHED.load(Ordering::Relaxed)), "touched");
        self.key == other.key
    }
}
impl Eq for Touchy {}
impl Hash for Touchy {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        assert!(self.key != 666, "unhashable");
        state.write_u64(self.key);
    }
}

#[test]
fn a_panic_in_eq_or_a_filter_wakes_the_chosen_and_keeps_the_rest() {
    let mut waiters = Waiters::new(table::<Touchy>(1));
    for touchy in [true, false, false] {
        waiters.add(Touchy { key: 1, touchy }, 0);
    }
    let table = Arc::clone(&waiters.table);
    let key = |key| Touchy { key, touchy: false };
    let wake = |n| catch_unwind(|| table.wake_with(&key(n), usize::MAX, Token(7)));
    TOUCHED.store(true, Ordering::Relaxed);
    assert!(wake(1).is_err());
    assert!(catch_unwind(|| table.wait(&key(1), || true, Reason::OTHER)).is_err());
    assert!(wake(666).is_err());
    assert_eq!(queued(&table), 3);
    TOUCHED.store(false, Ordering::Relaxed);
    // The first was chosen before the panic, and returns with its token.
    let mut seen = 0;
    let filter = |_| {
        seen += 1;
        assert!(seen < 2, "the filter is tired");
        Verdict::Wake
    };
    assert!(
        catch_unwind(AssertUnwindSafe(|| table.wake_where(&key(1), filter, Token(7)))).is_err()
    );
    assert_eq!(queued(&table), 2);
    assert_eq!(wake(1).unwrap(), 2);
    assert_eq!(waiters.join(), [Outcome::Woken(Token(7)); 3]);
}

#[test]
fn the_ledger_counts_what_happened() {
    let reason = Reason::register("test-table");
    let table =
        Arc::new(WaitTable::<u64>::builder().buckets(1).reason(reason).filtered(false).build());
    let before = Ledger::snapshot();
    table.wake(&1, 0);
    let go = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (table, go) = (Arc::clone(&table), Arc::clone(&go));
        thread::spawn(move || table.wait_until(&1, || go.load(Ordering::Relaxed), reason))
    };
    until_queued(&table, 1);
    table.wake(&2, 1);
    until_queued(&table, 1);
    go.store(true, Ordering::Relaxed);
    table.wake_all(&1);
    waiter.join().unwrap().unwrap();
    table.wake_all(&1);
    let past = Wait::new(reason).deadline(Deadline::at(unherd_sys::Timestamp::from_ns(1)));
    assert_eq!(table.wait(&1, || true, past), Outcome::TimedOut);
    let counts = Ledger::snapshot().since(&before).reason(reason);
    assert!(counts.asleep_ns > 0);
    assert_eq!(
        (counts.waits, counts.wakeups, counts.needless_wakeups, counts.timeouts),
        (3, 2, 1, 1)
    );
    assert_eq!((counts.wakes, counts.empty_wakes), (2, 2));
    // Each wait takes the lock once, the timeout once more, each wake that found somebody once.
    assert_eq!(counts.locks, 3 + 1 + 2);
}

/// How many locks a wake of each of 64 keys takes while only key 0 waits in the one bucket.
fn locks_of_foreign_wakes(name: &'static str, signature: bool) -> u64 {
    let reason = Reason::register(name);
    let builder = WaitTable::<u64>::builder().buckets(1).seed(1).reason(reason);
    let mut waiters = Waiters::new(builder.signature(signature).build());
    waiters.add(0, 0);
    let table = Arc::clone(&waiters.table);
    let before = Ledger::snapshot();
    assert_eq!((1..=64).map(|key| table.wake_all(&key).total()).sum::<usize>(), 0);
    let counts = Ledger::snapshot().since(&before).reason(reason);
    assert_eq!(counts.empty_wakes, 64);
    assert_eq!(table.wake_all(&0), 1);
    assert_eq!(waiters.join(), [Outcome::Woken(Token(0))]);
    counts.locks
}

#[test]
fn a_wake_of_another_class_takes_no_lock() {
    let same_class = locks_of_foreign_wakes("test-signature", true);
    // One in sixteen, give or take.
    assert!((1..=12).contains(&same_class), "{same_class} of 64");
    assert_eq!(locks_of_foreign_wakes("test-no-signature", false), 64);
}

/// B2: the signature of an unlocked bucket is that of who waits there, but for classes of trees
/// that are not empty.
#[test]
fn the_signature_follows_the_queue() {
    let buckets = Buckets::<u64>::new(1, false);
    let nodes: Vec<_> = (0..16_u64).map(|n| node(n, n << 28, n)).collect();
    for node in &nodes {
        // SAFETY: the nodes outlive the queue, and this one is in none.
        unsafe { buckets.lock(0).push(node, |_| false) };
    }
    assert_eq!(buckets.at(0).word(), bucket_word::SIGNATURE);
    // Classes 0, 1 and 2 share a tree.
    for (leaves, signature) in [(0, 0xffff), (2, 0xffff), (1, 0xfff8), (15, 0xfff8), (14, 0x3ff8)] {
        assert_eq!(buckets.lock(0).remove(&nodes[leaves]), bucket::Removed::Waiting);
        assert_eq!(buckets.at(0).word(), signature);
    }
    for node in &nodes {
        let queued = !buckets.is_empty(hash_of(node));
        let removed = buckets.lock(0).remove(node);
        assert_eq!(removed == bucket::Removed::Waiting, queued);
    }
    assert_eq!(buckets.at(0).word(), 0);
}

#[test]
fn no_wakeup_is_lost_or_swallowed_under_load() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 3000;
    let table = Arc::new(table::<u64>(2));
    let turns: Arc<Vec<AtomicU64>> = Arc::new((0..THREADS).map(|_| AtomicU64::new(0)).collect());
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let (table, turns) = (Arc::clone(&table), Arc::clone(&turns));
            thread::spawn(move || {
                let next = (me + 1) % THREADS;
                for round in 1..=ROUNDS {
                    let mine = &turns[me as usize];
                    let passed = || me == 0 || mine.load(Ordering::Relaxed) >= round;
                    // Some waits give up early, so that timeouts meet wakes.
                    let hurry = Deadline::after(Duration::from_micros(round % 50));
                    if table.wait_until(&me, passed, hurry).is_err() {
                        table.wait_until(&me, passed, Reason::OTHER).unwrap();
                    }
                    turns[next as usize].store(round, Ordering::Relaxed);
                    table.wake(&next, 1);
                    if me == 0 {
                        let back = || mine.load(Ordering::Relaxed) >= round;
                        table.wait_until(&me, back, Reason::OTHER).unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(queued(&table), 0);
}

#[test]
fn a_contended_bucket_lock_sleeps_and_comes_back() {
    let table = Arc::new(table::<u64>(1));
    let held = table.buckets.lock(0);
    let arrived = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (table, arrived) = (Arc::clone(&table), Arc::clone(&arrived));
            thread::spawn(move || {
                arrived.fetch_add(1, Ordering::Relaxed);
                table.wait(&1, || false, Reason::OTHER)
            })
        })
        .collect();
    while arrived.load(Ordering::Relaxed) < 4 {
        thread::yield_now();
    }
    drop(held);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Outcome::Invalid);
    }
}

type Model = std::collections::BTreeMap<u64, Vec<u64>>;

/// Adds `node`, or takes it out if it `waits`, in the queue and in the model: says which.
fn toggle(queue: &mut queue::Queue<u64>, model: &mut Model, node: &Waiter<u64>, waits: bool) {
    // SAFETY: the caller alone uses the queue and its nodes.
    let key = unsafe { node.with_key(|key| *key) };
    let list = model.entry(key).or_default();
    if waits {
        list.retain(|other| *other != tag_of(node));
        // SAFETY: as above; it is in this queue.
        unsafe { queue.unlink(node) };
    } else {
        list.push(tag_of(node));
        // SAFETY: as above.
        let first = unsafe { queue.open_list(hash_of(node), |other| *other == key) };
        // SAFETY: as above; the nodes outlive the queue, and it is in none.
        unsafe { queue.push(first, node) };
    }
}

/// That `queue` holds what `model` says of the keys that are `its`, and nothing else.
fn assert_holds(
    queue: &queue::Queue<u64>,
    model: &Model,
    hash: &dyn Fn(u64) -> u64,
    its: impl Fn(u64) -> bool,
) {
    let mut total = 0;
    for (key, expected) in model.iter().filter(|(key, _)| its(hash(**key))) {
        let mut listed = Vec::new();
        // SAFETY: the caller alone uses the queue, as below.
        let mut next = unsafe { queue.open_list(hash(*key), |other| other == key) };
        // SAFETY: null or queued.
        while let Some(waiter) = unsafe { next.as_ref() } {
            listed.push(tag_of(waiter));
            // SAFETY: as above.
            next = unsafe { waiter.look(|links| links.next) };
        }
        assert_eq!(&listed, expected);
        total += expected.len();
    }
    assert_eq!(queue_size(queue), total);
}

/// Hashes of keys: apart, close together (the tree is as deep as it can be), equal for two keys
/// each, equal for all.
const HASHES: [&dyn Fn(u64) -> u64; 4] =
    [&|key| key.wrapping_mul(!0 / 1001), &|key| key << 6, &|key| (key / 2) << 40, &|_| 1 << 6];

/// The queue alone, without threads: random pushes and removals over few keys and over many.
#[test]
fn the_queue_is_a_tree_of_lists_after_every_step() {
    let mut seed = unherd_testkit::Seed::of_test(11);
    for (keys, hash) in [1, 4, 300].into_iter().flat_map(|keys| HASHES.map(|hash| (keys, hash))) {
        let keys: Vec<_> = (0..300).map(|_| seed.below(keys)).collect();
        let nodes: Vec<_> = (0..).zip(keys).map(|(n, key)| node(key, hash(key), n)).collect();
        let (mut queue, mut model) = (queue::Queue::new(), Model::new());
        let mut waits = vec![false; nodes.len()];
        for _ in 0..1000 {
            let n = seed.below(300) as usize;
            toggle(&mut queue, &mut model, &nodes[n], waits[n]);
            waits[n] ^= true;
            assert_holds(&queue, &model, hash, |_| true);
        }
    }
}
