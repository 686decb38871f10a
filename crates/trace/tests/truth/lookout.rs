//! Waiting for a flag by looking now and then, and by an eventfd.

use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use unherd_sys::primitives::{Arc, thread};
use unherd_sys::primitives::{AtomicUsize, Ordering};

use crate::count::{self, Looks};

/// Looks at a flag `looks` times, asleep for `period_ms` between.
pub(crate) fn by_timer(looks: usize, period_ms: usize) -> Value {
    let flag = AtomicUsize::new(0);
    let mut counted = Looks::default();
    let mut looked = 0;
    while looked < looks && flag.load(Ordering::Relaxed) == 0 {
        count::pause(Duration::from_millis(period_ms as u64));
        counted.pause_ended();
        looked += 1;
    }
    json!({ "looks": looked, "certain": counted.certain() })
}

/// Is told `times` times, each `period_ms` after the last, and sleeps until then.
pub(crate) fn by_eventfd(times: usize, period_ms: usize) -> Value {
    let event = Arc::new(eventfd(0, EventfdFlags::empty()).expect("a descriptor is left"));
    let teller = Arc::clone(&event);
    let telling = thread::spawn(move || {
        for _ in 0..times {
            count::pause(Duration::from_millis(period_ms as u64));
            rustix::io::write(&*teller, &1u64.to_ne_bytes()).expect("the counter has room");
        }
    });
    let mut told = 0;
    while told < times as u64 {
        let mut bytes = [0; 8];
        rustix::io::read(&*event, &mut bytes).expect("an eventfd can be read");
        told += u64::from_ne_bytes(bytes);
    }
    telling.join().expect("the teller does not panic");
    json!({ "told": told })
}
