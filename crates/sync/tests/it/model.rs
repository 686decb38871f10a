//! Random operations, one after the other, against a `VecDeque`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use unherd_sync::Reason;
use unherd_sync::{Outcome, Tag, Token, Verdict, Wait, WaitTable};
use unherd_sys::primitives::{Arc, thread};
use unherd_testkit::QueueModel;

#[derive(Debug, Clone)]
enum Operation {
    Wait {
        key: u8,
        shared: bool,
        task: bool,
    },
    /// Of the oldest task.
    Drop,
    Wake {
        key: u8,
        n: usize,
    },
    WakeAll {
        key: u8,
    },
    WakeEven {
        key: u8,
    },
    Requeue {
        from: u8,
        to: u8,
        wake_n: usize,
        move_n: usize,
    },
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let key = 0..3_u8;
    let few = prop_oneof![3 => 0..4_usize, 1 => Just(usize::MAX)];
    let operation = prop_oneof![
        4 => (key.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(key, shared, task)| Operation::Wait { key, shared, task }),
        1 => Just(Operation::Drop),
        2 => (key.clone(), 0..4_usize).prop_map(|(key, n)| Operation::Wake { key, n }),
        1 => key.clone().prop_map(|key| Operation::WakeAll { key }),
        1 => key.clone().prop_map(|key| Operation::WakeEven { key }),
        2 => (key.clone(), key, few.clone(), few).prop_map(|(from, to, wake_n, move_n)| {
            Operation::Requeue { from, to, wake_n, move_n }
        }),
    ];
    prop::collection::vec(operation, 1..40)
}

type Task = Pin<Box<dyn Future<Output = Outcome>>>;

enum Sleeper {
    Thread(thread::JoinHandle<Outcome>),
    Task(Task),
}

fn poll(task: &mut Task) -> Poll<Outcome> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// The table, driven one operation at a time; each waiter is a thread or a task with a number.
struct Driven {
    table: Arc<WaitTable<u8>>,
    sleepers: BTreeMap<u64, Sleeper>,
}

impl Driven {
    /// Starts a waiter and returns when it is in the queue.
    fn wait(&mut self, key: u8, id: u64, shared: bool, task: bool) {
        let table = Arc::clone(&self.table);
        let how = Wait::new(Reason::OTHER).tag(Tag(id));
        let how = if shared { how.shared() } else { how };
        if task {
            let mut task: Task =
                Box::pin(async move { table.wait_async(&key, || true, how).await });
            assert!(poll(&mut task).is_pending());
            self.sleepers.insert(id, Sleeper::Task(task));
            return;
        }
        let thread = thread::spawn(move || table.wait(&key, || true, how));
        self.sleepers.insert(id, Sleeper::Thread(thread));
        let mut queued = false;
        while !queued {
            let look = |tag: Tag| {
                queued |= tag == Tag(id);
                Verdict::Skip
            };
            self.table.wake_where(&key, look, Token(0));
            thread::yield_now();
        }
    }

    /// The waiters that ended with `token`; asks only those that the model says should have.
    fn ended(&mut self, expected: &[u64], token: u64) {
        for id in expected {
            let outcome = match self.sleepers.remove(id).expect("the model knows only waiters") {
                Sleeper::Thread(thread) => Poll::Ready(thread.join().expect("no panic")),
                Sleeper::Task(mut task) => poll(&mut task),
            };
            assert_eq!(outcome, Poll::Ready(Outcome::Woken(Token(token))));
        }
        // Nobody else.
        for sleeper in self.sleepers.values_mut() {
            if let Sleeper::Task(task) = sleeper {
                assert!(poll(task).is_pending());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn the_table_is_a_queue_for_each_key(operations in operations(), buckets in 1..4_usize) {
        let table = Arc::new(WaitTable::<u8>::builder().buckets(buckets).build());
        let mut driven = Driven { table, sleepers: BTreeMap::new() };
        let mut model = QueueModel::new();
        for (step, operation) in (1_u64..).zip(operations) {
            let mut token = step;
            let (expected, woken) = match operation {
                Operation::Drop => {
                    let is_task = |(_, one): &(&u64, &Sleeper)| matches!(one, Sleeper::Task(_));
                    let oldest = driven.sleepers.iter().find(is_task).map(|(id, _)| *id);
                    if let Some(id) = oldest {
                        prop_assert!(model.timeout(id));
                        driven.sleepers.remove(&id);
                    }
                    continue;
                }
                Operation::Wait { key, shared, task } => {
                    if shared {
                        model.wait_shared(key, step);
                    } else {
                        model.wait(key, step);
                    }
                    driven.wait(key, step, shared, task);
                    continue;
                }
                Operation::Wake { key, n } => {
                    (model.wake(&key, n), driven.table.wake_with(&key, n, Token(step)))
                }
                Operation::WakeAll { key } => {
                    let woken = driven.table.wake_with(&key, usize::MAX, Token(step));
                    (model.wake_all(&key), woken)
                }
                Operation::Requeue { from, to, wake_n, move_n } => {
                    token = 0;
                    let (expected, moved) = model.requeue(&from, &to, wake_n, move_n);
                    let requeued = driven.table.requeue(&from, &to, wake_n, move_n);
                    prop_assert_eq!(requeued.moved, moved);
                    (expected, requeued.woken)
                }
                Operation::WakeEven { key } => {
                    let even = |tag: Tag| {
                        if tag.0.is_multiple_of(2) { Verdict::Wake } else { Verdict::Skip }
                    };
                    let expected = model.wake_where(&key, |id| id.is_multiple_of(2));
                    (expected, driven.table.wake_where(&key, even, Token(step)))
                }
            };
            prop_assert_eq!(woken, expected.len());
            driven.ended(&expected, token);
        }
        prop_assert_eq!(driven.sleepers.len(), model.waiting());
        for key in 0..3 {
            let expected = model.wake_all(&key);
            driven.table.wake_with(&key, usize::MAX, Token(0));
            driven.ended(&expected, 0);
        }
        prop_assert!(driven.sleepers.is_empty());
    }
}
