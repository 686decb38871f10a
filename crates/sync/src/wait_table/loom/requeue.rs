//! Requeues against timeouts, wakes and each other. Nodes are queued by the scene before
//! anybody races.

use super::*;

/// Keys whose homes are bucket 0 and bucket 1 of two, and one more for bucket 0.
pub(super) fn keys(table: &Table) -> [u32; 3] {
    let index = |key: &u32| offset(2, table.hash_of(key)) / BUCKET_BYTES;
    let stays: Vec<_> = (0..).filter(|key| index(key) == 0).take(2).collect();
    [stays[0], (0..).find(|key| index(key) == 1).unwrap(), stays[1]]
}

pub(super) fn two_buckets() -> Arc<Table> {
    Arc::new(WaitTable::<u32>::builder().buckets(2).seed(1).build())
}

/// One waits for the first of `keys` and gives up, while it is moved to the second.
fn gives_up(table: &Arc<Table>, [from, to]: [u32; 2]) {
    let node = Queued::queue(table, from, false);
    let owner = {
        let (table, node) = (Arc::clone(table), Arc::clone(&node));
        thread::spawn(move || assert_eq!(node.give_up(&table), None))
    };
    assert_eq!(table.requeue(&from, &to, 0, 1).woken, 0);
    owner.join().unwrap();
    for key in [from, to] {
        assert!(table.buckets.is_empty(table.hash_of(&key)));
    }
}

#[test]
fn requeue_meets_timeout() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        gives_up(&table, [from, to]);
    });
}

#[test]
fn requeue_backwards_meets_timeout() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        gives_up(&table, [to, from]);
    });
}

#[test]
fn requeue_in_one_bucket_meets_timeout() {
    check(ALL, || {
        let table = two_buckets();
        let [from, _, to] = keys(&table);
        gives_up(&table, [from, to]);
    });
}

/// A waiter that is moved although the condition was met already is found by the wake that met it.
#[test]
fn requeue_meets_wake_of_target() {
    check(ALL, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        let node = Queued::queue(&table, from, false);
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
fn cross(table: &Arc<Table>) {
    let [from, to, _] = keys(table);
    let nodes = [from, to].map(|key| Queued::queue(table, key, false));
    let requeuer = {
        let table = Arc::clone(table);
        thread::spawn(move || table.requeue(&from, &to, 0, 1).moved)
    };
    assert_eq!(table.requeue(&to, &from, 0, 1).moved, 1);
    assert_eq!(requeuer.join().unwrap(), 1);
    assert_eq!(table.wake_all(&from).total() + table.wake_all(&to).total(), 2);
    assert!(nodes.iter().all(|node| node.give_up(table).is_some()));
}

#[test]
fn requeues_cross() {
    check(ALL, || cross(&two_buckets()));
}

/// A wake of all, which takes one at a time: those that it has not come to may be moved; nobody is
/// lost, or woken twice.
#[test]
fn requeue_meets_wake_of_all() {
    check(FOUR_PREEMPTIONS, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        let nodes = [(); 2].map(|()| Queued::queue(&table, from, false));
        let waker = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.wake_with(&from, usize::MAX, Token(7)).total())
        };
        let late = Queued::queue(&table, from, false);
        let moved = table.requeue(&from, &to, 0, usize::MAX).moved;
        let woken = waker.join().unwrap();
        assert!(woken + moved == 3, "{woken} {moved}");
        assert_eq!(table.wake_with(&to, usize::MAX, Token(8)), moved);
        let tokens = nodes.iter().chain([&late]).map(|node| node.give_up(&table).unwrap());
        assert_eq!(tokens.filter(|token| *token == Token(7)).count(), woken);
        assert!(quiet(&table, from) && quiet(&table, to));
    });
}
