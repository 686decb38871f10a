//! The runner as the lab sees it: a command line in, one JSON object or one error line out.
#![cfg(test)]

mod command;
mod commit;
mod futexes;
mod highalloc;
mod hit;
mod mix;
mod mutex;
mod order;
mod pagewait;
mod policy;
mod poll;
mod pressure;
mod randread;
mod rwlock;
mod slices;
mod stall;
mod tiotest;
mod traced;
mod wake;
mod web;

use std::ffi::OsString;

use serde_json::Value;
use unherd_load::{
    LoadError, highalloc::HighAlloc, mix::Mix, order::Order, pagewait::PageWait,
    randread::RandRead, slices::Slices, tiotest::TioTest,
};

/// What a runner with this crate's workloads prints for a command line of words.
fn run(words: &str) -> Result<Value, LoadError> {
    run_args(words.split_whitespace().map(OsString::from).collect())
}

fn run_args(args: Vec<OsString>) -> Result<Value, LoadError> {
    let line = unherd_load::run(
        &[&PageWait, &Slices, &RandRead, &Order, &TioTest, &Mix, &HighAlloc],
        args.into_iter(),
    )?;
    assert!(!line.contains('\n'), "{line}");
    Ok(serde_json::from_str(&line).unwrap())
}

fn metric(round: &Value, name: &str) -> f64 {
    round["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {round}"))
}
