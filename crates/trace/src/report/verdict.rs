//! The verdict: at most five lines that say what was found, where, and what to try.
//!
//! It leads with the finding of the highest rank and never hides a larger bound: where another
//! finding may cost more than the first does at most, a line names it. It calls waste little only
//! if the summary does so too.

use std::collections::BTreeMap;

use super::findings::{Cost, CostKind, Finding, LITTLE_PERCENT};
use super::quantity::{count, counted, duration, durations, interval, percents};
use super::share::{Interval, percent};
use super::{Report, Summary};
use crate::advice::Waste;

pub(super) fn verdict(report: &Report) -> Vec<String> {
    if !report.privileged {
        return without_privilege(report);
    }
    let Some(top) = report.findings.first() else {
        return std::iter::once(nothing(report)).chain(scheduler_locks(report)).collect();
    };
    let Some(lead) = lead(report) else { return little(report, top) };
    let mut lines = vec![headline(lead, Some(&report.summary))];
    let detail = lead.detail.as_ref().map(|detail| format!("; {detail}")).unwrap_or_default();
    match lead.object.is_empty() {
        true => lines.push(format!("Site: {}{detail}{}.", site(lead), by_samples(lead))),
        false => {
            lines.push(format!("Site: {}{}.", site(lead), by_samples(lead)));
            lines.push(format!("Object: {}{detail}.", lead.object));
        }
    }
    if let Some(advice) = lead.advice {
        lines.push(format!("Try: {}.", advice.text));
    }
    if !report.judged {
        lines.push("Wakeups, polls and futex calls were not looked at.".to_owned());
    }
    let others = report.findings.iter().filter(|of| !of.is_explained());
    let larger = largest(others).filter(|other| most(other) > most(lead).max(LITTLE_PERCENT));
    let second = report.findings.get(1).filter(|other| other.weight() >= LITTLE_PERCENT);
    let other = larger.map(|of| ("Possible", of)).or_else(|| second.map(|of| ("Next", of)));
    if let Some(line) = scheduler_locks(report).filter(|_| larger.is_none() && lines.len() < 5) {
        lines.push(line);
    }
    if let Some((label, other)) = other.filter(|_| lines.len() < 5) {
        lines.push(labelled(label, other));
    }
    lines
}

/// The finding that the verdict leads with; `None` if there is little to gain by any.
pub(super) fn lead(report: &Report) -> Option<&Finding> {
    let top = report.findings.first().filter(|top| top.weight() >= LITTLE_PERCENT)?;
    let of_cpu = top.cost.is_some_and(|cost| cost.kind == CostKind::Cpu);
    (!of_cpu || !is_idle(&report.summary)).then_some(top)
}

/// The whole program takes less than a hundredth of one processor.
fn is_idle(summary: &Summary) -> bool {
    percent(summary.own_cpu_ns(), summary.duration_ns).is_some_and(|share| share < LITTLE_PERCENT)
}

/// What is said where nothing leads; `top` is of the highest rank all the same.
fn little(report: &Report, top: &Finding) -> Vec<String> {
    let summary = &report.summary;
    if !report.judged {
        // That what was looked at costs little says nothing of the rest.
        return vec![nothing(report), labelled("Of what was", top)];
    }
    let may = largest(report.findings.iter()).filter(|may| most(may) >= LITTLE_PERCENT);
    let mut lines = Vec::new();
    if is_idle(summary) {
        let (cpu, time) = (duration(summary.own_cpu_ns()), duration(summary.duration_ns));
        lines.push(format!("The program used {cpu} of CPU in {time}: there is little to gain."));
        lines.extend(the_most(top));
        let may = may.filter(|may| !std::ptr::eq(*may, top));
        lines.extend(may.map(|may| labelled("Possible", may)));
        return lines;
    }
    let (all_low, all_high) = all_needless(report);
    let many_sites = all_low >= LITTLE_PERCENT || may.is_none() && all_high >= LITTLE_PERCENT;
    lines.push(match may {
        _ if many_sites => format!(
            "No one site is likely to waste {LITTLE_PERCENT} % or more, but needless wakeups at \
             all sites take {} of {}.",
            percents(all_low, all_high),
            CostKind::Cpu.whole()
        ),
        Some(_) => format!("Nothing was found that is likely to waste {LITTLE_PERCENT} % or more."),
        None => format!("Little to gain: no waste costs {LITTLE_PERCENT} % or more."),
    });
    lines.extend(match may {
        Some(may) => Some(labelled("Possible", may)),
        None => the_most(top),
    });
    lines.extend(scheduler_locks(report));
    lines
}

/// A cost that is next to nothing is no news.
fn the_most(top: &Finding) -> Option<String> {
    top.is_notable().then(|| labelled("The most", top))
}

/// The programs that sleep most, where nothing can be judged.
fn without_privilege(report: &Report) -> Vec<String> {
    let mut lines = vec![
        "Not judged, for want of privilege: run as root, or grant CAP_BPF and CAP_PERFMON, to see \
         needless wakeups, locks and polls."
            .to_owned(),
    ];
    let mut asleep: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in &report.waits.lines {
        let sum = asleep.entry(&line.comm).or_default();
        *sum = (sum.0.saturating_add(line.sleeps), sum.1.saturating_add(line.asleep_ns));
    }
    let mut asleep: Vec<_> = asleep.into_iter().filter(|(_, (sleeps, _))| *sleeps > 0).collect();
    asleep.sort_by_key(|(_, (sleeps, ns))| std::cmp::Reverse((*sleeps, *ns)));
    lines.extend(asleep.into_iter().take(3).map(|(comm, (sleeps, ns))| {
        format!(
            "{comm}: {}, {} in all, {} on average.",
            counted(sleeps, "sleep"),
            duration(ns),
            duration(ns / sleeps)
        )
    }));
    lines
}

/// A further finding in one line.
fn labelled(label: &str, finding: &Finding) -> String {
    let detail = finding.detail.as_ref().filter(|_| finding.waker.is_some());
    let detail = detail.map_or_else(String::new, |detail| format!("; {detail}"));
    let headline = headline(finding, None);
    format!("{label}: {}: {}{detail}.", headline.trim_end_matches('.'), site(finding))
}

/// The upper end of what it costs, in percent.
fn most(finding: &Finding) -> f64 {
    finding.cost.map_or(0.0, |cost| cost.percent_high)
}

/// The finding that may cost most; of equals the one that ranks first.
fn largest<'a>(findings: impl DoubleEndedIterator<Item = &'a Finding>) -> Option<&'a Finding> {
    findings.rev().max_by(|a, b| most(a).total_cmp(&most(b)))
}

/// Both ends of what all needless wakeups of the summary take, in percent of the CPU.
fn all_needless(report: &Report) -> (f64, f64) {
    let all_ns = report.summary.needless_wakeups_cpu_ns.unwrap_or_default();
    let share = |ns| percent(ns, report.summary.own_cpu_ns()).unwrap_or_default();
    (share(all_ns.proven), share(all_ns.possible))
}

fn nothing(report: &Report) -> String {
    let summary = &report.summary;
    let (threads, time) = (counted(summary.threads, "thread"), duration(summary.duration_ns));
    match summary.wakeups {
        None => format!(
            "Nothing can be said of needless wakeups: calls or wakeups were not looked at ({} of \
             {threads} in {time}).",
            counted(summary.context_switches, "context switch"),
        ),
        Some(wakeups) if report.trust.lost_events > 0 => format!(
            "Nothing needless was seen in {} of {threads} in {time}, but events were lost.",
            counted(wakeups, "wakeup")
        ),
        Some(0) => format!("Nothing needless was found: no wakeup of {threads} in {time}."),
        Some(wakeups) => format!(
            "Nothing needless was found: {} of {threads} in {time}, none of them needless.",
            counted(wakeups, "wakeup")
        ),
    }
}

/// What is wasted and how much of it there is; in time, too, where the whole is given.
fn headline(finding: &Finding, summary: Option<&Summary>) -> String {
    let what = what(finding.waste);
    let number = interval(finding.count);
    let of = finding.of.filter(|of| *of >= finding.count.possible);
    let of = of.zip(unit(finding.waste));
    let number = match of {
        // Others may sleep in the same call elsewhere, and not poll.
        Some((of, unit)) if finding.waste == Waste::TimerPolls => {
            format!("{number} of {} in that call", counted(of, unit))
        }
        Some((of, unit)) => format!("{number} of the {} there", counted(of, unit)),
        None => number,
    };
    let unproven = finding.is_of_wakeups() && finding.count.proven == 0;
    let each = finding.cost.and_then(|cost| cost.ns_high.checked_div(finding.count.possible));
    let ledger = finding.ledger_needless.map_or_else(String::new, |needless| {
        format!(", {} in all by the program's own ledger", count(needless))
    });
    let each = each.map_or_else(String::new, |ns| format!("; {} of CPU each", duration(ns)));
    let lost = match finding.sizes_lost {
        0 => String::new(),
        lost => format!("; of up to {} it was lost whether others were woken, too", count(lost)),
    };
    let proof = if unproven { format!(", none proven{ledger}{each}{lost}") } else { String::new() };
    let Some(cost) = finding.cost else { return capitalised(&format!("{what}: {number}{proof}.")) };
    let whole = cost.kind.whole();
    let is_poll = finding.waste == Waste::TimerPolls;
    let is_bound = unproven || is_poll;
    let share = match is_bound {
        true => percents(cost.percent_high, cost.percent_high),
        false => cost_share(cost),
    };
    let may = if is_bound { "may go to" } else { "goes to" };
    let or = match finding.may_be_useful() {
        true if finding.sizes_lost > 0 => "",
        true => ", or to useful work",
        false if is_poll => ", or to short work in memory",
        false => "",
    };
    let goes = match (cost.kind, summary) {
        (CostKind::Cpu, Some(of)) => {
            let (part, may) = (cost_time(cost, is_bound), may.replace("goes", "go"));
            let of = duration(of.own_cpu_ns());
            let share = share.trim_start_matches("about ");
            format!("{part} of the program's {of} of CPU time ({share}) {may} {what}{or}")
        }
        (CostKind::Cpu, None) if is_bound => format!("up to {share} of {whole} {may} {what}{or}"),
        (CostKind::Cpu, None) => format!("{share} of {whole} {may} {what}"),
        (CostKind::Waiting, _) => {
            let waits = match (of, finding.count.possible) {
                (Some(_), _) => "",
                (None, 1) => " wait",
                (None, _) => " waits",
            };
            return capitalised(&format!("{share} of {whole} {may} {what} ({number}{waits})."));
        }
    };
    capitalised(&format!("{goes} ({number}{proof})."))
}

/// The CPU time that it takes: `1.20 to 1.46 s`, `up to 2.50 s`, `about 255 ms`.
fn cost_time(cost: Cost, unproven: bool) -> String {
    match (unproven, cost.estimated) {
        (true, _) => format!("up to {}", duration(cost.ns_high)),
        (false, true) => format!("about {}", duration(cost.ns_high)),
        (false, false) => durations(Interval { proven: cost.ns_low, possible: cost.ns_high }),
    }
}

/// What [`Finding::of`] counts. Wakes that find a thread awake are no part of the wakeups.
fn unit(waste: Waste) -> Option<&'static str> {
    match waste {
        Waste::NeedlessWakeups | Waste::Herd | Waste::TimerPolls => Some("wakeup"),
        Waste::EmptyWakes | Waste::RefusedWaits => Some("call"),
        Waste::ShortSleeps | Waste::OverSleeps => Some("sleep"),
        Waste::RedundantWakes
        | Waste::KernelLocks
        | Waste::Stalls
        | Waste::LockWaits
        | Waste::NoProcessor => None,
    }
}

/// `31 to 38 %`, or `about 5 %` where that is an estimate.
pub(super) fn cost_share(cost: Cost) -> String {
    let share = percents(cost.percent_low, cost.percent_high);
    match share.strip_prefix('<') {
        Some(share) => format!("less than {share}"),
        None if cost.estimated => format!("about {share}"),
        None => share,
    }
}

fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// What the scheduler's own locks take, if that is more than little, and where most sleeps are:
/// they are a consequence of these.
fn scheduler_locks(report: &Report) -> Option<String> {
    let ns = report.summary.scheduler_locks_cpu_ns?;
    let share =
        percent(ns, report.summary.own_cpu_ns()).filter(|share| *share >= LITTLE_PERCENT)?;
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

/// Where the site is known by a sample of the stacks alone, or is not the only one: how much of it
/// is there.
fn by_samples(finding: &Finding) -> String {
    finding.site_percent_interval.map_or_else(String::new, |[low, high]| {
        let what = if finding.waste == Waste::TimerPolls { "the polls" } else { "its sleeps" };
        let by_samples = if low < high { " by samples," } else { "" };
        format!(";{by_samples} {} of {what} are there", percents(low, high))
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
        Waste::LockWaits => "waiting for locks",
        Waste::OverSleeps => "sleep after the file lock was free",
        Waste::NoProcessor => "waiting for a processor",
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
        Waste::Stalls | Waste::NoProcessor => finding.call.clone(),
        Waste::KernelLocks => format!("{} in {}", finding.call, finding.site),
        _ => format!("{} from {}{comm}{}{processes}", finding.call, finding.site, finding.comm),
    }
}

#[cfg(test)]
mod tests;
