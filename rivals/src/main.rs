//! A runner with other people's implementations of unherd's workloads.
//!
//! `unherd-rivals load …` takes what `unherd load …` takes and prints the same JSON, with the
//! implementations of this crate only. They stand behind the same trait, are driven by the same
//! code and are compiled by the same profile as unherd's own.

mod hit;
mod mutex;
mod pagewait;
mod rwlock;
mod wake;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    args.next_if(|first| first == "load");
    unherd_load::main_with(
        &[
            &pagewait::PageWait,
            &wake::Wake,
            &hit::Hit,
            &hit::HitCost,
            &mutex::Mutexes,
            &rwlock::RwLocks,
        ],
        args,
    )
}
