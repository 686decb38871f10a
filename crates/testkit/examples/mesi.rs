//! Prints the tables of `docs/cost.md`: what a wake and a wait cost as waiters and processors grow.

use unherd_testkit::{Cost, Queues, Scenario, empty_wake};

const SEED: u64 = 18;
const WAYS: [(Queues, &str); 3] =
    [(Queues::Herd, "herd"), (Queues::Chain, "chain"), (Queues::Tree, "tree")];

fn main() {
    println!("One bucket, 64 processors, by waiters\n");
    table("waiters", &[1, 10, 100, 1_000, 10_000], |queues, waiters| {
        scenario(queues, waiters, 1, 64).cost()
    });
    println!("\n512 buckets, 64 processors, by waiters\n");
    table("waiters", &[1, 10, 100, 1_000, 10_000], |queues, waiters| {
        scenario(queues, waiters, 512, 64).cost()
    });
    println!("\nOne bucket, 1,000 waiters, by processors\n");
    table("processors", &[1, 4, 16, 64, 256, 1_024], |queues, processors| {
        scenario(queues, 1_000, 1, processors).cost()
    });
    println!("\n512 buckets, 1,000 waiters, by processors\n");
    table("processors", &[1, 4, 16, 64, 256, 1_024], |queues, processors| {
        scenario(queues, 1_000, 512, processors).cost()
    });
    println!("\nA wake of nobody, by processors\n");
    table("processors", &[1, 4, 16, 64, 256, 1_024], |queues, processors| {
        empty_wake(queues, processors, 100_000, SEED)
    });
}

fn scenario(queues: Queues, waiters: usize, buckets: usize, processors: usize) -> Scenario {
    // A herd of thousands takes as many locks a wake.
    let wakes = if queues == Queues::Herd { 20 } else { 2_000 };
    Scenario { queues, waiters, buckets, processors, wakes, seed: SEED }
}

/// A line for each size, and in it for each way: steps, locks, shared writes, transfers.
fn table(name: &str, sizes: &[usize], cost: impl Fn(Queues, usize) -> Cost) {
    println!("| {name} | {} |", WAYS.map(|(_, way)| way).join(" | "));
    println!("|{}", "---|".repeat(1 + WAYS.len()));
    for &size in sizes {
        let cells = WAYS.map(|(queues, _)| {
            let Cost { steps, lock_holds, shared_writes, transfers } = cost(queues, size);
            let figures = [steps, lock_holds, shared_writes, transfers];
            figures.map(|figure| format!("{figure:.1}")).join(" · ")
        });
        println!("| {size} | {} |", cells.join(" | "));
    }
}
