//! The table against real threads, and against the plainest model of a queue.
#![expect(unsafe_code, reason = "queues without their table")]

mod hooks;

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use unherd_sys::Deadline;
use unherd_sys::primitives::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering, thread};

use super::node::NodeRef;
use super::*;

fn table<K: Copy + Eq + Hash>(buckets: usize) -> WaitTable<K> {
    WaitTable::<K>::builder().buckets(buckets).seed(1).build()
}

/// How many nodes wait in the table.
fn queued<K>(table: &WaitTable<K>) -> usize {
    (0..table.buckets.len()).map(|index| size(&table.buckets.lock((index as u64) << 6))).sum()
}

/// The size of a locked bucket's queue, and Q1 to Q3.
fn size<K>(guard: &BucketGuard<'_, K>) -> usize {
    (0..bucket_word::ROOTS).map(|root| size_below(guard.root(root), 0, 0)).sum()
}

/// The size of a subtree whose paths begin with the first `depth` bits of `path`.
fn size_below<K>(at: Option<NodeRef<'_, K>>, path: u64, depth: u32) -> usize {
    let Some(first) = at else { return 0 };
    let differs = queue::path_of(first.hash()) ^ path;
    assert!(differs.leading_zeros() >= depth.min(64), "Q2");
    let links = first.links();
    assert!(links.queued && links.first, "Q1, Q3");
    let (mut list, mut last) = (1, first);
    while last.next().link() != first.link() {
        let equal = last.next();
        assert!(equal.links().queued && !equal.links().first, "Q1, Q3");
        assert_eq!((equal.hash(), equal.links().shared), (first.hash(), links.shared), "Q2, Q1");
        assert!(equal.prev().link() == last.link(), "Q1");
        assert!(equal.links().ticket > last.links().ticket, "Q1");
        (list, last) = (list + 1, equal);
    }
    assert!(first.prev().link() == last.link(), "Q1");
    let below = (0..queue::WAYS).map(|way| {
        let depth = depth + queue::WAY_BITS;
        let bits = (way as u64) << 62 >> (depth - queue::WAY_BITS).min(62);
        size_below(first.child(way), path | bits, depth)
    });
    list + below.sum::<usize>()
}

/// A node for a queue without threads, shared if the tag is odd.
fn node(key: u64, hash: u64, tag: u64) -> Node<u64> {
    let wait = Wait::new(Reason::OTHER).tag(Tag(tag));
    Node::new(key, hash, if tag % 2 == 1 { wait.shared() } else { wait })
}

/// A bucket for nodes of any hashes.
fn bucket() -> Buckets<u64> {
    Buckets::new(1)
}

/// Queues a node of the scene.
fn push(buckets: &Buckets<u64>, node: &Node<u64>, is_key: impl FnMut(&u64) -> bool) {
    // SAFETY: it is in no queue, and leaves before it goes, or goes after its bucket.
    unsafe { buckets.lock(0).push(node, is_key) };
}

/// Takes a node of the scene out.
fn unlink(buckets: &Buckets<u64>, node: &Node<u64>) {
    let guard = buckets.lock(0);
    // SAFETY: the lock of its bucket is held.
    guard.unlink(unsafe { NodeRef::new(node) });
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

/// The first is claimed by a wake of its other key when it has just been chosen.
#[test]
fn a_waiter_that_another_key_wakes_is_none_of_those_that_were_asked_for() {
    let table = Arc::new(WaitTable::<u64>::builder().buckets(1024).seed(1).build());
    let any = Arc::clone(&table);
    let any = thread::spawn(move || any.wait_any(&[1, 2], |_| true, Reason::OTHER));
    until_queued(&table, 2);
    let mut waiters = Waiters { table: Arc::clone(&table), threads: Vec::new() };
    for tag in 0..2 {
        let table = Arc::clone(&table);
        let how = Wait::new(Reason::OTHER).tag(Tag(tag));
        waiters.threads.push(thread::spawn(move || table.wait(&2, || true, how)));
        until_queued(&waiters.table, 3 + tag as usize);
    }
    let mut shown = 0;
    let is_chosen = |_| {
        shown += 1;
        if shown == 1 {
            assert_eq!(table.wake(&1, 1), 1);
        }
        true
    };
    assert_eq!(table.wake_chosen(&2, 1, is_chosen), 1);
    assert_eq!((shown, table.wake(&2, 9).total()), (2, 1));
    assert!(any.join().unwrap().is_ok());
    assert_eq!(waiters.join(), [Outcome::Woken(Token(0)); 2]);
}

#[test]
fn a_bucket_is_one_cache_line() {
    assert_eq!(size_of::<bucket::Bucket<WaitKey>>(), 64);
    assert_eq!(size_of::<Node<WaitKey>>(), 128);
    assert_eq!(align_of::<WaitTable<WaitKey>>(), 64);
    let table = WaitTable::<WaitKey>::builder().buckets(9).build();
    assert_eq!((table.buckets(), table.memory_bytes()), (16, 64 + 16 * 64));
}

#[test]
fn wakes_match_the_key_oldest_first() {
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
fn a_wake_takes_all_shared_waiters() {
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

/// More than a wake takes at a time, of each way to choose them.
#[test]
fn a_large_wake_comes_back() {
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

/// A wake that comes back shows its filter nobody twice.
#[test]
fn a_filter_sees_each_once() {
    let mut waiters = Waiters::new(table(1));
    (0..100).for_each(|tag| waiters.add(7_u64, tag));
    let table = Arc::clone(&waiters.table);
    let mut seen = Vec::new();
    let odd = |tag: Tag| {
        seen.push(tag.0);
        if tag.0 % 2 == 1 { Verdict::Wake } else { Verdict::Skip }
    };
    assert_eq!(table.wake_where(&7, odd, Token(0)), 50);
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert_eq!(table.wake_all(&7), 50);
    waiters.join();
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
    // Even a wake of 0 exclusive waiters wakes the shared ones.
    assert_eq!(table.requeue(&0, &1, 0, 0), requeued(1, 0, 0));
    assert_eq!(table.requeue_if(&0, &1, 1, usize::MAX, || true), Some(requeued(0, 1, 2)));
    assert_eq!((table.wake_all(&0).total(), queued(&table)), (0, 4));
    (1..5).for_each(|token| assert_eq!(table.wake_with(&1, 1, Token(token)), 1));
    let tokens = [1, 0, 0, 3, 4, 2].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

/// How many nodes a wake of one passes grows with the logarithm of the other waiters in the bucket.
#[test]
fn a_wake_among_ten_thousand_takes_few_steps() {
    let buckets = bucket();
    let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let nodes: Vec<_> = (0..10_000).map(|key| node(key, hash(key), 0)).collect();
    nodes.iter().for_each(|node| push(&buckets, node, |_| false));
    let guard = buckets.lock(0);
    let deepest = (0..bucket_word::ROOTS).map(|root| depth_below(guard.root(root))).max();
    // log₄(10,000 / 6) is 5.3.
    assert!(deepest.is_some_and(|steps| steps <= 12), "{deepest:?}");
}

/// How many nodes the longest way down passes.
fn depth_below(at: Option<NodeRef<'_, u64>>) -> usize {
    let Some(first) = at else { return 0 };
    1 + (0..queue::WAYS).map(|way| depth_below(first.child(way))).max().unwrap_or(0)
}

#[test]
fn an_unfiltered_wake_takes_the_bucket() {
    let mut waiters = Waiters::new(WaitTable::<u64>::builder().buckets(1).filtered(false).build());
    (0..4).for_each(|key| waiters.add(key, 0));
    assert_eq!(waiters.table.wake_with(&2, 1, Token(9)), 4);
    let tokens = [0, 0, 9, 0].map(|token| Outcome::Woken(Token(token)));
    assert_eq!(waiters.join(), tokens);
}

/// A wake is for the waiters that were there when it began: a task's waker brings another one, and
/// takes one out whose turn has not come.
#[test]
fn later_comers_are_not_woken() {
    struct Comes {
        table: Arc<WaitTable<u64>>,
        late: Node<u64>,
        leaves: Rc<Node<u64>>,
    }
    // SAFETY: the bucket lock guards the nodes.
    unsafe impl Send for Comes {}
    // SAFETY: as above.
    unsafe impl Sync for Comes {}
    impl Wake for Comes {
        fn wake(self: Arc<Self>) {
            // SAFETY: it leaves before this test ends.
            unsafe { self.table.buckets.lock(self.late.hash_hint()).push(&self.late, |_| true) };
            assert!(self.table.unlink(&self.leaves), "not chosen yet");
        }
    }
    let table = Arc::new(table::<u64>(1));
    let hash = table.hash_of(&1);
    let leaves = Rc::new(node(1, hash, 0));
    let (late, table_too) = (node(1, hash, 0), Arc::clone(&table));
    let comes = Arc::new(Comes { table: table_too, late, leaves: Rc::clone(&leaves) });
    let waker = Waker::from(Arc::clone(&comes));
    let mut tasks: Vec<_> =
        (0..40).map(|_| Box::pin(table.wait_async(&1, || true, Reason::OTHER))).collect();
    for (n, task) in tasks.iter_mut().enumerate() {
        if n == 36 {
            // SAFETY: the waker takes it out.
            unsafe { table.buckets.lock(hash).push(&leaves, |_| true) };
        }
        let waker = if n == 0 { &waker } else { Waker::noop() };
        assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(table.wake_all(&1), 40);
    assert_eq!(queued(&table), 1);
    assert!(table.unlink(&comes.late));
    for task in &mut tasks {
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Outcome::Woken(Token(0))));
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
fn past_deadlines_validate_once() {
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
fn panics_in_callbacks_wake_the_chosen() {
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

/// B2: the signature of an unlocked bucket is that of its waiters, except for classes of trees
/// that are not empty.
#[test]
fn the_signature_follows_the_queue() {
    let buckets = bucket();
    let nodes: Vec<_> = (0..16_u64).map(|n| node(n, n << 28, n)).collect();
    nodes.iter().for_each(|node| push(&buckets, node, |_| false));
    assert_eq!(buckets.at(0).word(), bucket_word::SIGNATURE);
    // Classes 0, 1 and 2 share a tree.
    for (leaves, signature) in [(0, 0xffff), (2, 0xffff), (1, 0xfff8), (15, 0xfff8), (14, 0x3ff8)] {
        unlink(&buckets, &nodes[leaves]);
        assert_eq!(buckets.at(0).word(), signature);
    }
    for node in &nodes[3..14] {
        assert!(!buckets.is_empty(node.hash_hint()));
        unlink(&buckets, node);
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

/// Adds `node`, or takes it out if it `waits`, in the queue and in the model.
fn toggle(buckets: &Buckets<u64>, model: &mut Model, (node, key): (&Node<u64>, u64), waits: bool) {
    // SAFETY: nobody has claimed it.
    let tag = unsafe { NodeRef::new(node) }.tag().0;
    let list = model.entry(key).or_default();
    if waits {
        list.retain(|other| *other != tag);
        unlink(buckets, node);
    } else {
        list.push(tag);
        push(buckets, node, |other| *other == key);
    }
}

/// That the bucket holds what `model` says, and nothing else.
fn assert_holds(buckets: &Buckets<u64>, model: &Model, hash: &dyn Fn(u64) -> u64) {
    let guard = buckets.lock(0);
    let mut total = 0;
    for (key, expected) in model {
        let listed = guard.lists(hash(*key), |other| other == key).map(|node| node.tag().0);
        assert_eq!(&listed.collect::<Vec<_>>(), expected);
        total += expected.len();
    }
    assert_eq!(size(&guard), total);
}

/// Hashes of keys: apart, close together (the tree is as deep as it can be), equal for two keys
/// each, equal for all.
const HASHES: [&dyn Fn(u64) -> u64; 4] =
    [&|key| key.wrapping_mul(!0 / 1001), &|key| key << 6, &|key| (key / 2) << 40, &|_| 1 << 6];

/// The queue alone, without threads: random pushes and removals over few keys and over many.
#[test]
fn queue_invariants_hold_after_every_step() {
    let mut seed = unherd_testkit::Seed::of_test(11);
    for (keys, hash) in [1, 4, 300].into_iter().flat_map(|keys| HASHES.map(|hash| (keys, hash))) {
        let keys: Vec<_> = (0..300).map(|_| seed.below(keys)).collect();
        let nodes: Vec<_> = (0..).zip(&keys).map(|(n, key)| node(*key, hash(*key), n)).collect();
        let (buckets, mut model) = (bucket(), Model::new());
        let mut waits = vec![false; nodes.len()];
        for _ in 0..1000 {
            let n = seed.below(300) as usize;
            toggle(&buckets, &mut model, (&nodes[n], keys[n]), waits[n]);
            waits[n] ^= true;
            assert_holds(&buckets, &model, hash);
        }
    }
}
