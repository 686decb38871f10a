//! A wake of more than it can carry, and owners that do not wait for it. Nodes are queued by the
//! scene before anybody races, and a wake carries one at a time.

use super::*;

/// Three wait for key 1, and one of them gives up while a wake of `n` goes on.
fn one_of_three_gives_up(table: &Arc<Table>, hurries: usize, n: usize) {
    let key = 1;
    let nodes: Vec<_> = (0..3).map(|_| Queued::queue(table, key, false)).collect();
    let owner = {
        let (table, node) = (Arc::clone(table), Arc::clone(&nodes[hurries]));
        thread::spawn(move || node.give_up(&table))
    };
    let woken = table.wake_with(&key, n, Token(7));
    let hurried = owner.join().unwrap();
    // A chosen waiter is woken; so one that gave up before leaves a wake for another.
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
        check(FOUR_PREEMPTIONS, move || one_of_three_gives_up(&table(), hurries, usize::MAX));
    }
}

#[test]
fn a_wake_of_two_meets_a_timeout() {
    for hurries in 0..3 {
        check(FOUR_PREEMPTIONS, move || one_of_three_gives_up(&table(), hurries, 2));
    }
}
