//! What tracing costs a program, and what a timer poll costs, against the program's own clock of
//! CPU time.
//!
//! Each scene runs bare and traced in turn. A machine that others use spoils single runs, so the
//! medians count, and of more runs while they do not agree.

use unherd_trace::Symbols;
use unherd_trace::report::Summary;

use crate::session::{number, root, scene};
use crate::stacks::report_with;

const RUNS_MIN: usize = 3;
const RUNS_MAX: usize = 12;

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Repeats until the median is within the bounds.
fn assert_median(what: &str, bounds: std::ops::Range<f64>, mut run: impl FnMut() -> f64) {
    let mut found = Vec::new();
    while found.len() < RUNS_MAX {
        found.push(run());
        if found.len() >= RUNS_MIN && bounds.contains(&median(&found)) {
            println!("{what}: {found:.2?}");
            return;
        }
    }
    panic!("{what}: {found:.2?} where {bounds:?} is right");
}

/// What a run without a trace says of itself.
fn bare(arguments: &str, name: &str) -> f64 {
    let output = scene(arguments).output().expect("the truth program is built");
    let truth = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    number(&truth, name) as f64
}

fn traced(arguments: &str, symbols: &mut Symbols) -> Summary {
    report_with(arguments, symbols).1.summary
}

#[test]
fn root_own_cpu_is_that_of_an_untraced_run() {
    let Some(_machine) = root("the price of tracing") else { return };
    let mut symbols = Symbols::new();
    for arguments in ["calls 400000", "wakes 100000", "trips 15000"] {
        // Of what tracing added, the part that is not taken off, or taken off too much.
        assert_median(arguments, -0.6..0.6, || {
            let bare_ns = bare(arguments, "cpu_ns");
            let of = traced(arguments, &mut symbols);
            let added_ns = of.cpu_ns() as f64 - bare_ns;
            println!("{arguments}: bare {bare_ns}, {} of {}", of.own_cpu_ns(), of.cpu_ns());
            (of.own_cpu_ns() as f64 - bare_ns) / added_ns
        });
    }
}

#[test]
fn root_poll_costs_what_it_costs_untraced() {
    let Some(_machine) = root("the price of a poll") else { return };
    let mut symbols = Symbols::new();
    let polls = 300;
    let arguments = format!("naps {polls}");
    assert_median(&arguments, 0.6..1.7, || {
        let bare_ns = bare(&arguments, "loop_cpu_ns") / f64::from(polls);
        let of = traced(&arguments, &mut symbols);
        let (count, cpu_ns) = (of.timer_polls.unwrap(), of.timer_polls_cpu_ns.unwrap());
        let poll_ns = cpu_ns as f64 / count as f64;
        println!("{count} polls, {poll_ns:.0} ns each, {bare_ns:.0} untraced");
        poll_ns / bare_ns
    });
}
