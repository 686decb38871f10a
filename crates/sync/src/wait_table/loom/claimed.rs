//! A wake of more than it can carry, and owners that do not wait for it. Nodes are queued by the
//! scene before anybody races, and a wake carries one at a time.

use super::*;

/// Three wait for key 1, and one of them gives up while a wake of `n` goes on.
fn one_of_three_gives_up(table: &Arc<Table>, hurries: usize, n: usize, resize: Option<u32>) {
    one_of_three_for(table, 1, hurries, n, resize);
}

/// The same for another key.
fn one_of_three_for(table: &Arc<Table>, key: u32, hurries: usize, n: usize, resize: Option<u32>) {
    let nodes: Vec<_> = (0..3).map(|_| Node::queue(table, key, false)).collect();
    let owner = {
        let (table, node) = (Arc::clone(table), Arc::clone(&nodes[hurries]));
        thread::spawn(move || node.give_up(&table))
    };
    let resizer = resize.map(|level| {
        let table = Arc::clone(table);
        thread::spawn(move || table.buckets.drive_to(level))
    });
    let woken = table.wake_with(&key, n, Token(7));
    let hurried = owner.join().unwrap();
    if let Some(resizer) = resizer {
        resizer.join().unwrap();
    }
    // Whoever is chosen is woken; so who gave up before frees a wake for another.
    let gave_up = usize::from(hurried.is_none());
    assert_eq!(woken, n.min(3 - gave_up));
    let others = (0..3).filter(|other| *other != hurries);
    let tokens = others.filter_map(|other| nodes[other].give_up(table)).chain(hurried);
    assert_eq!(tokens.map(|token| assert_eq!(token, Token(7))).count(), woken.total());
    assert!(quiet(table, key));
}

#[test]
fn a_wake_of_all_meets_a_timeout() {
    for hurries in 0..3 {
        check(FOUR_PREEMPTIONS, move || one_of_three_gives_up(&table(), hurries, usize::MAX, None));
    }
}

#[test]
fn a_wake_of_two_meets_a_timeout() {
    for hurries in 0..3 {
        check(FOUR_PREEMPTIONS, move || one_of_three_gives_up(&table(), hurries, 2, None));
    }
}

#[test]
fn a_wake_of_all_meets_a_timeout_and_growth() {
    check(growth::TWO_PREEMPTIONS, || {
        one_of_three_gives_up(&growth::growing(0), 1, usize::MAX, Some(1))
    });
}

#[test]
fn a_wake_of_all_meets_a_timeout_and_shrinking() {
    check(growth::ONE_PREEMPTION, || {
        let table = growth::growing(1);
        one_of_three_for(&table, growth::key(&table, true), 1, usize::MAX, Some(0));
    });
}

/// A closed list whose bucket is divided, or united with another, is found by its closer, whether
/// it moves or stays.
fn a_wake_of_all_meets_a_resize(from: u32, to: u32) {
    for moves in [true, false] {
        check(FOUR_PREEMPTIONS, move || {
            let table = growth::growing(from);
            let key = growth::key(&table, moves);
            let nodes = [(); 3].map(|()| Node::queue(&table, key, false));
            // It stays in the same bucket, until it is divided.
            let other = Node::queue(&table, growth::key(&table, !moves), false);
            let resizer = {
                let table = Arc::clone(&table);
                thread::spawn(move || table.buckets.drive_to(to))
            };
            assert_eq!(table.wake_with(&key, usize::MAX, Token(7)), 3);
            resizer.join().unwrap();
            assert!(nodes.iter().all(|node| node.give_up(&table) == Some(Token(7))));
            assert!(quiet(&table, key));
            assert_eq!(other.give_up(&table), None);
        });
    }
}

#[test]
fn a_wake_of_all_meets_growth() {
    a_wake_of_all_meets_a_resize(0, 1);
}

#[test]
fn a_wake_of_all_meets_shrinking() {
    a_wake_of_all_meets_a_resize(1, 0);
}
