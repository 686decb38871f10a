//! `policy`: what each policy of the page cache would have hit in a block trace.
//!
//! The trace is replayed in caches of 1, 5, 10 and 25 % of the pages that are in it. Nothing is
//! timed and nothing is random: a round gives the same figures on every machine, so one is enough.

mod choosers;
mod trace;

use std::path::Path;

use crate::{
    Better, Description, Impl, Job, Kind, LoadError, Metric, Param, Round, Waits, Workload,
};
use choosers::Chooser;
use trace::Trace;

/// The workload `policy`.
#[derive(Debug, Clone, Copy)]
pub struct Policy;

const IMPLS: &[(Impl, Chooser)] = &[
    (Impl { name: "lru", about: "the page that was not used for longest" }, Chooser::Lru),
    (Impl { name: "clock", about: "a second chance for pages that were used" }, Chooser::Clock),
    (
        Impl { name: "s3fifo", about: "a small queue in front of the main one: the default" },
        Chooser::S3Fifo,
    ),
    (
        Impl { name: "opt", about: "the page that will not be used for longest: the bound" },
        Chooser::Opt,
    ),
];

/// Sizes of the cache, in percent of the pages in the trace.
const SIZES_PCT: [u64; 4] = [1, 5, 10, 25];

impl Workload for Policy {
    fn describe(&self) -> Description {
        let name = |pct| format!("hit_pct_at_{pct}");
        let about = "requests that find their page, where the cache has this part of all pages";
        Description {
            name: "policy",
            about: "hit ratios of eviction policies in a block trace",
            primary: SIZES_PCT.map(name).to_vec(),
            impls: IMPLS.iter().map(|(known, _)| *known).collect(),
            default_impls: IMPLS.iter().map(|(known, _)| known.name).collect(),
            params: vec![Param {
                name: "requests-from",
                about: "a file of lines `FIRST-BLOCK BLOCKS …`; one named .zst is read by zstd(1)",
                default: "",
                kind: Kind::Text,
            }],
            metrics: SIZES_PCT
                .map(|pct| Metric::new(name(pct), Better::Higher, about))
                .into_iter()
                .chain([
                    Metric::new("requests", Better::Neither, "requests of a page in the trace"),
                    Metric::new("pages", Better::Neither, "different pages in it"),
                ])
                .collect(),
            deterministic: true,
            default_threads: 1,
            ..Description::default()
        }
    }

    fn run(&self, job: &Job) -> Result<Round, LoadError> {
        let known = IMPLS.iter().find(|(known, _)| known.name == job.with);
        let (_, chooser) = known.ok_or_else(|| job.unknown_impl(&self.describe()))?;
        if job.threads != 1 {
            return Err(LoadError::usage("a trace is replayed in its order: leave --threads at 1"));
        }
        let path = match job.params.text("requests-from") {
            "" => return Err(LoadError::usage("no trace is given: give --requests-from FILE")),
            path => Path::new(path),
        };
        let trace = Trace::read(path)?;
        let requests = trace.requests.len() as f64;
        let hit_pct = |pct: u64| {
            let frames = (u64::from(trace.pages) * pct / 100).max(1) as u32;
            let hits = chooser.hits(&trace.requests, frames);
            (format!("hit_pct_at_{pct}"), 100.0 * hits as f64 / requests)
        };
        let mut metrics = SIZES_PCT.map(hit_pct).to_vec();
        metrics.push(("requests".to_owned(), requests));
        metrics.push(("pages".to_owned(), f64::from(trace.pages)));
        Ok(Round { check: trace.check(), metrics, waits: Waits::default() })
    }
}
