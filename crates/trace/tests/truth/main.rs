//! Programs with known truth: each scene waits in a way of which it is known what is needless,
//! counts that by its own means (return values, and the switches that getrusage(2) tells of a
//! thread), and prints the counts as one line of JSON.

mod accept;
mod count;
mod crew;
mod crowd;
mod depths;
mod futexes;
mod ladder;
mod ledger;
mod lookout;
mod monitor;
mod pauses;
mod price;
mod roll;

use std::process::ExitCode;

use serde_json::Value;

use crate::count::Between;

/// A scene takes numbers and says what it has seen.
type Scene = fn(&[usize]) -> Value;

const SCENES: [(&str, usize, Scene); 27] = [
    ("accept", 4, |n| accept::herd(n[0], n[1], n[2] != 0, Between::of(n[3]))),
    ("monitor", 4, |n| monitor::tokens(n[0], n[1], n[2], Between::of(n[3]))),
    ("roll", 3, |n| roll::tokens(n[0], n[1], n[2] != 0)),
    ("barrier", 2, |n| crew::meet(n[0], n[1])),
    ("pool", 2, |n| crew::share_work(n[0], n[1])),
    ("lookout", 2, |n| lookout::by_timer(n[0], n[1])),
    ("produce", 1, |n| pauses::produce(n[0])),
    ("serve", 2, |n| pauses::serve(n[0], n[1])),
    ("peek", 1, |n| pauses::peek(n[0])),
    ("guard", 1, |n| pauses::guard(n[0])),
    ("hold", 3, |n| pauses::hold(n[0], n[1], n[2])),
    ("compute", 1, |n| pauses::compute(n[0])),
    ("look", 2, |n| pauses::look(n[0], n[1] != 0)),
    ("beside", 2, |n| pauses::beside(n[0], n[1])),
    ("sites", 2, |n| pauses::sites(n[0], n[1])),
    ("calls", 1, |n| price::calls(n[0])),
    ("wakes", 1, |n| price::wakes(n[0])),
    ("trips", 1, |n| price::trips(n[0])),
    ("naps", 1, |n| price::naps(n[0])),
    ("ladder", 1, |n| ladder::climb(n[0])),
    ("eventfd", 2, |n| lookout::by_eventfd(n[0], n[1])),
    ("futexes", 2, |n| futexes::wakes(n[0], n[1])),
    ("threads", 1, |n| crowd::threads(n[0])),
    ("depths", 1, |n| depths::by_two_paths(n[0])),
    ("ledger", 4, |n| ledger::keep(n[0], n[1], n[2], n[3] != 0)),
    ("exec", 0, |_| crowd::exec_by_another()),
    ("forks", 1, |n| crowd::forks(n[0])),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().skip(1).filter_map(|n| n.parse().ok()).collect();
    let name = arguments.first().map_or("", String::as_str);
    match SCENES.iter().find(|(scene, count, _)| *scene == name && *count == numbers.len()) {
        Some((_, _, scene)) => {
            println!("{}", scene(&numbers));
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: unherd-truth SCENE NUMBER…; scenes and how many numbers:");
            SCENES.iter().for_each(|(scene, count, _)| eprintln!("  {scene} {count}"));
            ExitCode::from(2)
        }
    }
}
