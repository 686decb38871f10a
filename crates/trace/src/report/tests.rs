use super::fixture::{CONDITION, futex, observation, symbols};
use super::*;
use crate::advice::Waste;
use crate::observation::{FutexKind, FutexRow, Totals};

fn report() -> Report {
    Report::new(&observation(), &mut symbols())
}

fn text(report: &Report, full: bool, width: usize, colour: bool) -> String {
    let mut bytes = Vec::new();
    report.write_text(&mut bytes, full, width, colour).expect("memory takes it");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn look_at_it() {
    println!("{}", text(&report(), true, 100, false));
}
