//! The verdict: at most five lines that say what was found, where, and what to try.
//!
//! It leads with the finding of the highest rank and never hides a larger bound: where another
//! finding may cost more than the first does at most, a line names it. It calls waste little only
//! if the summary does so too.

use super::Report;
use super::findings::{Cost, CostKind, Finding, LITTLE_PERCENT};
use super::quantity::{count, duration, interval, percents};
use super::share::percent;
use crate::advice::Waste;

pub(super) fn verdict(report: &Report) -> Vec<String> {
    let Some(top) = report.findings.first() else {
        return std::iter::once(nothing(report)).chain(scheduler_locks(report)).collect();
    };
    if !report.judged && top.weight() < LITTLE_PERCENT {
        // That what was looked at costs little says nothing of the rest.
        return vec![
            nothing(report),
            format!("Of what was: {}; {}.", headline(top).trim_end_matches('.'), site(top)),
        ];
    }
    let mut lines = Vec::new();
    if top.weight() < LITTLE_PERCENT {
        let may = largest_possible(report).filter(|may| most(may) >= LITTLE_PERCENT);
        let headline = headline(may.unwrap_or(top));
        let (headline, place) = (headline.trim_end_matches('.'), site(may.unwrap_or(top)));
        let (all_low, all_high) = all_needless(report);
        let many_sites = all_low >= LITTLE_PERCENT || may.is_none() && all_high >= LITTLE_PERCENT;
        lines.push(match may {
            _ if many_sites => format!(
                "No one site is likely to waste {LITTLE_PERCENT} % or more, but needless wakeups \
                 at all sites take {} of {}.",
                percents(all_low, all_high),
                CostKind::Cpu.whole()
            ),
            Some(_) => {
                format!("Nothing was found that is likely to waste {LITTLE_PERCENT} % or more.")
            }
            None => format!("Little to gain: no waste costs {LITTLE_PERCENT} % or more."),
        });
        lines.push(format!(
            "{}: {headline}; {place}.",
            if may.is_some() { "Possible" } else { "The most" }
        ));
        lines.extend(scheduler_locks(report));
        return lines;
    }
    lines.push(headline(top));
    lines.push(format!("Site: {}{}.", site(top), by_samples(top)));
    if !top.object.is_empty() {
        let detail = top.detail.as_ref().map_or_else(String::new, |detail| format!("; {detail}"));
        lines.push(format!("Object: {}{detail}.", top.object));
    }
    if let Some(advice) = top.advice {
        lines.push(format!("Try: {}.", advice.text));
    }
    if !report.judged {
        lines.push("Wakeups, polls and futex calls were not looked at.".to_owned());
    }
    let larger =
        largest_possible(report).filter(|other| most(other) > most(top).max(LITTLE_PERCENT));
    let second = report.findings.get(1).filter(|other| other.weight() >= LITTLE_PERCENT);
    let other = larger.map(|of| ("Possible", of)).or_else(|| second.map(|of| ("Next", of)));
    if let Some(line) = scheduler_locks(report).filter(|_| larger.is_none() && lines.len() < 5) {
        lines.push(line);
    }
    if let Some((label, other)) = other.filter(|_| lines.len() < 5) {
        let headline = headline(other);
        lines.push(format!("{label}: {}: {}.", headline.trim_end_matches('.'), site(other)));
    }
    lines
}

/// The upper end of what it costs, in percent.
fn most(finding: &Finding) -> f64 {
    finding.cost.map_or(0.0, |cost| cost.percent_high)
}

/// The finding that may cost most; of equals the one that ranks first.
fn largest_possible(report: &Report) -> Option<&Finding> {
    report.findings.iter().rev().max_by(|a, b| most(a).total_cmp(&most(b)))
}

/// Both ends of what all needless wakeups of the summary take, in percent of the CPU.
fn all_needless(report: &Report) -> (f64, f64) {
    let all_ns = report.summary.needless_wakeups_cpu_ns.unwrap_or_default();
    let share = |ns| percent(ns, report.summary.cpu_ns()).unwrap_or_default();
    (share(all_ns.proven), share(all_ns.possible))
}

fn nothing(report: &Report) -> String {
    let summary = &report.summary;
    let (threads, time) = (count(summary.threads), duration(summary.duration_ns));
    match summary.wakeups {
        None => format!(
            "Nothing can be said of needless wakeups: calls or wakeups were not looked at ({} \
             context switches of {} threads in {}).",
            count(summary.context_switches),
            threads,
            time
        ),
        Some(wakeups) if report.trust.lost_events > 0 => format!(
            "Nothing needless was seen in {} wakeups of {threads} threads in {time}, but events \
             were lost.",
            count(wakeups)
        ),
        Some(wakeups) => format!(
            "Nothing needless was found: {} wakeups of {threads} threads in {time}, none of them \
             needless.",
            count(wakeups)
        ),
    }
}

/// What is wasted and how much of it there is.
fn headline(finding: &Finding) -> String {
    let what = what(finding.waste);
    let number = interval(finding.count);
    let of = finding.of.filter(|of| *of >= finding.count.possible);
    let of = of.map_or_else(String::new, |of| format!(" of {}", count(of)));
    let number = format!("{number}{of}");
    let unproven = finding.is_of_wakeups() && finding.count.proven == 0;
    let each = finding.cost.and_then(|cost| cost.ns_high.checked_div(finding.count.possible));
    let proof = match each {
        _ if !unproven => String::new(),
        Some(ns) => format!(", none proven; {} of CPU each", duration(ns)),
        None => ", none proven".to_owned(),
    };
    let Some(cost) = finding.cost else { return format!("{number} {what}{proof}.") };
    let (share, whole) = (cost_share(cost), cost.kind.whole());
    match cost.kind {
        CostKind::Cpu => {
            let share = if unproven {
                let most = percents(cost.percent_high, cost.percent_high);
                let or = if finding.may_be_useful() { ", or to useful work" } else { "" };
                format!("up to {most} of {whole} may go to {what}{or}")
            } else {
                format!("{share} of {whole} is spent on {what}")
            };
            capitalised(&format!("{share} ({number}{proof})."))
        }
        CostKind::Waiting => capitalised(&format!("{share} of {whole} goes to {what} ({number}).")),
    }
}

/// `31 to 38 %`, or `about 5 %` where that is an estimate.
pub(super) fn cost_share(cost: Cost) -> String {
    let share = percents(cost.percent_low, cost.percent_high);
    if cost.estimated { format!("about {share}") } else { share }
}

fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// What the scheduler's own locks take, if that is more than little, and where most sleeps are:
/// they are a consequence of these.
fn scheduler_locks(report: &Report) -> Option<String> {
    let ns = report.summary.scheduler_locks_cpu_ns?;
    let share = percent(ns, report.summary.cpu_ns()).filter(|share| *share >= LITTLE_PERCENT)?;
    let most = report.waits.lines.iter().max_by_key(|line| line.sleeps)?;
    let of = percent(most.sleeps, report.summary.sleeps)?;
    Some(format!(
        "Switches: about {} of {} goes to the scheduler's own locks; {} of all sleeps are {} from \
         {}, {}.",
        percents(share, share),
        CostKind::Cpu.whole(),
        percents(of, of),
        most.call,
        most.site,
        most.comm,
    ))
}

/// Where the site is known by a sample of the stacks alone: how much of it is there.
fn by_samples(finding: &Finding) -> String {
    finding.site_percent_interval.map_or_else(String::new, |[low, high]| {
        format!("; by samples, {} of its sleeps are there", percents(low, high))
    })
}

/// A kind of waste in words.
pub(super) fn what(waste: Waste) -> &'static str {
    match waste {
        Waste::NeedlessWakeups => "needless wakeups",
        Waste::Herd => "needless wakeups in herds",
        Waste::EmptyWakes => "wake calls that find nobody",
        Waste::RefusedWaits => "wait calls that return at once",
        Waste::RedundantWakes => "wakes of threads that are not asleep",
        Waste::TimerPolls => "polling by timer",
        Waste::ShortSleeps => "sleeps shorter than a switch",
        Waste::KernelLocks => "contended kernel locks",
        Waste::Stalls => "stalls",
    }
}

/// `epoll_wait from worker_loop (server.c:120), server (8 processes)`
pub(super) fn site(finding: &Finding) -> String {
    let processes = match finding.processes {
        0 | 1 => String::new(),
        several => format!(" ({several} processes)"),
    };
    let comm = if finding.comm.is_empty() { "" } else { ", " };
    match finding.waste {
        Waste::Stalls => finding.call.clone(),
        Waste::KernelLocks => format!("{} in {}", finding.call, finding.site),
        _ => format!("{} from {}{comm}{}{processes}", finding.call, finding.site, finding.comm),
    }
}
