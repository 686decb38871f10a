//! Requeues against timeouts, wakes, growth and each other. Nodes are queued by the scene before
//! anybody races.

use super::*;

/// Keys whose homes are bucket 0 and bucket 1 of two, and one more for bucket 0.
fn keys(table: &Table) -> [u32; 3] {
    let index = |key: &u32| word::index_at(1, table.hash_of(key));
    let stays: Vec<_> = (0..).filter(|key| index(key) == 0).take(2).collect();
    [stays[0], (0..).find(|key| index(key) == 1).unwrap(), stays[1]]
}

fn two_buckets() -> Arc<Table> {
    Arc::new(WaitTable::<u32>::builder().buckets(2).seed(1).build())
}

/// One waits for the first of `keys` and gives up, while it is moved to the second.
fn gives_up(table: &Arc<Table>, [from, to]: [u32; 2], resize: Option<u32>) {
    let node = Node::queue(table, from, false);
    let owner = {
        let (table, node) = (Arc::clone(table), Arc::clone(&node));
        thread::spawn(move || assert_eq!(node.give_up(&table), None))
    };
    let resizer = resize.map(|level| {
        let table = Arc::clone(table);
        thread::spawn(move || table.buckets.drive_to(level))
    });
    assert_eq!(table.requeue(&from, &to, 0, 1).woken, 0);
    owner.join().unwrap();
    if let Some(resizer) = resizer {
        resizer.join().unwrap();
    }
    for key in [from, to] {
        assert!(table.buckets.is_quiet(table.hash_of(&key)));
    }
}

#[test]
fn requeue_meets_timeout() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        gives_up(&table, [from, to], None);
    });
}

#[test]
fn requeue_backwards_meets_timeout() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        gives_up(&table, [to, from], None);
    });
}

#[test]
fn requeue_in_one_bucket_meets_timeout() {
    check(ALL, || {
        let table = two_buckets();
        let [from, _, to] = keys(&table);
        gives_up(&table, [from, to], None);
    });
}

#[test]
fn requeue_meets_timeout_and_growth() {
    check(growth::TWO_PREEMPTIONS, || {
        let table = growth::growing(0);
        let [from, to, _] = keys(&table);
        gives_up(&table, [from, to], Some(1));
    });
}

#[test]
fn requeue_meets_timeout_and_shrinking() {
    check(growth::TWO_PREEMPTIONS, || {
        let table = growth::growing(1);
        let [from, to, _] = keys(&table);
        gives_up(&table, [from, to], Some(0));
    });
}

/// Whoever is moved although the condition was met already is found by the wake that met it.
#[test]
fn requeue_meets_wake_of_target() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        let node = Node::queue(&table, from, false);
        let met = Arc::new(AtomicU32::new(0));
        let requeuer = {
            let (table, met) = (Arc::clone(&table), Arc::clone(&met));
            thread::spawn(move || {
                table.requeue_if(&from, &to, 0, 1, || met.load(Ordering::Relaxed) == 0)
            })
        };
        met.store(1, Ordering::Relaxed);
        let woken = table.wake(&to, 1).total();
        let moved = requeuer.join().unwrap().map_or(0, |requeued| requeued.moved);
        assert_eq!(woken, moved);
        assert_eq!(node.give_up(&table).is_some(), woken == 1);
    });
}

/// Two requeues in opposite directions lock in one order, and nobody is lost on the way.
#[test]
fn requeues_cross() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        let nodes = [from, to].map(|key| Node::queue(&table, key, false));
        let requeuer = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.requeue(&from, &to, 0, 1).moved)
        };
        assert_eq!(table.requeue(&to, &from, 0, 1).moved, 1);
        assert_eq!(requeuer.join().unwrap(), 1);
        assert_eq!(table.wake_all(&from).total() + table.wake_all(&to).total(), 2);
        assert!(nodes.iter().all(|node| node.give_up(&table).is_some()));
    });
}
