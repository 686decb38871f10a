//! Requeues against timeouts, wakes and each other. Nodes are queued by the scene before
//! anybody races.

use super::*;

/// Keys whose homes are bucket 0 and bucket 1 of two, and one more for bucket 0.
pub(super) fn keys(table: &Table) -> [u32; 3] {
    let index = |key: &u32| table.buckets.index_bits(table.hash_of(key)) / 64;
    let stays: Vec<_> = (0..).filter(|key| index(key) == 0).take(2).collect();
    [stays[0], (0..).find(|key| index(key) == 1).unwrap(), stays[1]]
}

pub(super) fn two_buckets() -> Arc<Table> {
    Arc::new(WaitTable::<u32>::builder().buckets(2).seed(1).build())
}

/// One waits for the first of `keys` and gives up, while it is moved to the second.
fn gives_up(table: &Arc<Table>, [from, to]: [u32; 2]) {
    let node = Node::queue(table, from, false);
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
fn cross(table: &Arc<Table>) {
    let [from, to, _] = keys(table);
    let nodes = [from, to].map(|key| Node::queue(table, key, false));
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

/// Whom a wake of all has chosen and not yet taken is not moved; who came later is.
#[test]
fn requeue_meets_wake_of_all() {
    check(FOUR_PREEMPTIONS, || {
        let table = two_buckets();
        let [from, to, _] = keys(&table);
        let nodes = [(); 2].map(|()| Node::queue(&table, from, false));
        let waker = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.wake_with(&from, usize::MAX, Token(7)).total())
        };
        let late = Node::queue(&table, from, false);
        let moved = table.requeue(&from, &to, 0, usize::MAX).moved;
        let woken = waker.join().unwrap();
        assert!([[0, 3], [2, 1], [3, 0]].contains(&[woken, moved]), "{woken} {moved}");
        assert_eq!(table.wake_with(&to, usize::MAX, Token(8)), moved);
        let token = |by_first| Some(Token(if by_first { 7 } else { 8 }));
        assert!(nodes.iter().all(|node| node.give_up(&table) == token(woken > 0)));
        assert_eq!(late.give_up(&table), token(woken == 3));
        assert!(quiet(&table, from) && quiet(&table, to));
    });
}
