//! The report as text: the verdict and the summary; in full, all tables and stacks.

mod grid;
mod tables;

use std::io::{self, Write};

use self::grid::{Grid, Side::*};
use super::quantity::{
    bytes, count, counted, digits, duration, durations, interval, percent, percents,
};
use super::share::{self, Interval};
use super::{Finding, LITTLE_PERCENT, Report, verdict};
use crate::observation::TimeClass;

/// CPU time is divided by the kernel's ticks, which are up to 10 ms long: of fewer than 20 a part
/// says nothing.
const SPLIT_MIN_NS: u64 = 200_000_000;

/// How text is laid out.
pub(super) struct Page<'a, W> {
    to: &'a mut W,
    width: usize,
    colour: bool,
}

impl<W: Write> Page<'_, W> {
    fn heading(&mut self, text: &str) -> io::Result<()> {
        if self.colour {
            return writeln!(self.to, "\n\x1b[1m{text}\x1b[0m");
        }
        writeln!(self.to, "\n{text}")
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        for line in grid::wrapped(text, self.width.saturating_sub(2)) {
            writeln!(self.to, "  {line}")?;
        }
        Ok(())
    }

    fn grid(&mut self, grid: &Grid) -> io::Result<()> {
        grid.write(self.to, self.width)
    }
}

impl Report {
    /// Writes the report for people to read: verdict, summary and what to try; with `full` all
    /// tables and the stacks of the findings too.
    ///
    /// Lines are at most `width` characters long, as far as names can be shortened; 0 is without
    /// bound. Escape sequences for colour are written only if told.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_text(
        &self,
        to: &mut impl Write,
        full: bool,
        width: usize,
        colour: bool,
    ) -> io::Result<()> {
        let width = if width == 0 { usize::MAX } else { width.max(40) };
        let mut page = Page { to, width, colour };
        self.write_verdict(&mut page)?;
        self.write_summary(&mut page)?;
        self.write_time(&mut page)?;
        if full {
            self.write_threads(&mut page)?;
            self.write_herds(&mut page)?;
            self.write_futexes(&mut page)?;
            self.write_callers(&mut page)?;
            self.write_consumers(&mut page)?;
            self.write_locks(&mut page)?;
            self.write_needless_sleeps(&mut page)?;
            self.write_stalls(&mut page)?;
        }
        self.write_ledgers(&mut page)?;
        self.write_findings(&mut page, if full { 10 } else { 3 })?;
        if full {
            self.write_stacks(&mut page)?;
        }
        self.write_trust(&mut page)
    }

    fn write_verdict<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let wasteful = !self.privileged || verdict::lead(self).is_some();
        let colours = if wasteful { "\x1b[1;33m" } else { "\x1b[1;32m" };
        for (index, line) in self.verdict.iter().enumerate() {
            for line in grid::wrapped(line, page.width) {
                match page.colour && index == 0 {
                    true => writeln!(page.to, "{colours}{line}\x1b[0m")?,
                    false => writeln!(page.to, "{line}")?,
                }
            }
        }
        Ok(())
    }

    fn write_summary<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let of = &self.summary;
        page.heading("Summary")?;
        let machine_ns = of.duration_ns.saturating_mul(of.cpus as u64);
        let idle = share::percent(of.machine_idle_ns, machine_ns).filter(|idle| *idle > 0.0);
        let split = format!(": user {}, system {}", duration(of.user_ns), duration(of.system_ns));
        page.line(&format!(
            "{} on {} CPUs; processes: {}, threads: {}; CPU {}{}{}",
            duration(of.duration_ns),
            of.cpus,
            count(of.processes as u64),
            count(of.threads),
            duration(of.cpu_ns()),
            if of.cpu_ns() < SPLIT_MIN_NS { "" } else { &split },
            idle.map_or_else(String::new, |idle| format!("; machine idle {} %", percent(idle))),
        ))?;
        page.line(&format!(
            "{}: {}, {}; {}; {}",
            counted(of.context_switches, "context switch"),
            counted(of.sleeps, "sleep"),
            counted(of.preemptions, "preemption"),
            of.wakeups.map_or_else(|| "unknown wakeups".into(), |n| counted(n, "wakeup")),
            of.calls.map_or_else(|| "unknown system calls".into(), |n| counted(n, "system call")),
        ))?;
        if let Some((ns, of_each)) = of.tracing_cpu_ns.zip(of.tracing_prices) {
            page.line(&format!(
                "of that CPU time about {} ({} %) is tracing's, and left out of all shares: {} a \
                 call, {} a futex call, {} a context switch",
                duration(ns),
                percent(share::percent(ns, of.cpu_ns()).unwrap_or_default()),
                duration(of_each.call_ns),
                duration(of_each.futex_call_ns),
                duration(of_each.sleep_ns),
            ))?;
        }
        if !self.privileged {
            return page.line(
                "needless wakeups, herds, futex calls, polls, kernel locks, stalls: unknown",
            );
        }
        let heads = ["", "count", "CPU time", "of all", ""];
        let mut grid = Grid::new(&heads, &[Left, Right, Right, Right, Left]);
        self.summary_rows(&mut grid);
        page.grid(&grid)
    }

    fn summary_rows(&self, grid: &mut Grid) {
        let of = &self.summary;
        let cpu_ns = of.own_cpu_ns();
        let mut row = |name: &str, number: Option<String>, cpu: Option<Interval>, note: String| {
            let Some(number) = number else {
                return grid.row([name, "unknown", "", "", &note]);
            };
            let share = |cpu: Interval| {
                let low = share::percent(cpu.proven, cpu_ns)?;
                Some(percents(low, share::percent(cpu.possible, cpu_ns)?))
            };
            let cpu = cpu.filter(|cpu| !cpu.is_zero());
            let time = cpu.map_or_else(String::new, durations);
            let share = cpu.and_then(share).unwrap_or_default();
            grid.row([name, &number, &time, &share, &note]);
        };
        let exactly = |ns: Option<u64>| ns.map(|ns| Interval::new(ns, 0));
        let proof = match of.needless_wakeups {
            Some(of) if of.is_zero() => String::new(),
            Some(of) if of.proven == of.possible => "all proven".into(),
            Some(of) if of.proven == 0 => "none proven".into(),
            Some(_) => "proven to possible".into(),
            None => String::new(),
        };
        row(
            "needless wakeups",
            of.needless_wakeups.map(interval),
            of.needless_wakeups_cpu_ns,
            proof,
        );
        row("herds", of.herds.map(count), None, String::new());
        let about = |ns: Option<u64>| match ns {
            Some(ns) if ns > 0 => "about".to_owned(),
            _ => String::new(),
        };
        let (empty_ns, refused_ns) = (of.empty_wakes_cpu_ns, of.refused_waits_cpu_ns);
        row("empty wakes", of.empty_wakes.map(count), exactly(empty_ns), about(empty_ns));
        row("refused waits", of.refused_waits.map(count), exactly(refused_ns), about(refused_ns));
        row("redundant wakes", of.redundant_wakes.map(count), None, String::new());
        let polls_ns = of.timer_polls_cpu_ns.map(|ns| Interval::new(0, ns));
        row("timer polls", of.timer_polls.map(count), polls_ns, String::new());
        let bound = of.switch_round_trip_ns.map(|ns| format!("shorter than {}", duration(ns)));
        row("short sleeps", of.short_sleeps.map(count), None, bound.unwrap_or_default());
        let waited = match (of.contended_locks_ns, of.contended_locks_cpu_ns) {
            (None | Some(0), _) => String::new(),
            // All of them spin.
            (waited, spun) if waited == spun => "about".to_owned(),
            (Some(waited), Some(1..)) => format!("about; {} waited in all", duration(waited)),
            (Some(waited), _) => format!("{} waited in all", duration(waited)),
        };
        let spun = exactly(of.contended_locks_cpu_ns);
        row("contended kernel locks", of.contended_locks.map(count), spun, waited);
        if let Some(own_ns @ 1..) = of.scheduler_locks_cpu_ns {
            let own = exactly(Some(own_ns));
            row("  the scheduler's own", Some(String::new()), own, "about".to_owned());
        }
        let stalled = of.stalls_ns.filter(|ns| *ns > 0);
        let stalled = stalled.map(|ns| format!("{} in all", duration(ns)));
        row("stalls", of.stalls.map(count), None, stalled.unwrap_or_default());
    }

    fn write_time<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let Some(time) = &self.time else { return Ok(()) };
        page.heading(&format!("Time of the threads: {} in all", duration(time.wall_ns)))?;
        let mut grid = Grid::new(&["", "time", "of all", ""], &[Left, Right, Right, Left]);
        for of in time.classes.iter().filter(|of| of.ns > 0) {
            let part = |what: &str, ns: Option<u64>| {
                let ns = ns.filter(|ns| *ns > 0);
                ns.map(|ns| format!("of that {} {what}", duration(ns))).unwrap_or_default()
            };
            let note = match of.class {
                TimeClass::AsleepFutex => part("for locks", time.lock_waits_ns),
                TimeClass::AsleepTimer => part("after the file lock was free", time.over_sleep_ns),
                _ => String::new(),
            };
            let share = format!("{} %", percent(of.percent));
            grid.row([class_name(of.class), &duration(of.ns), &share, &note]);
        }
        page.grid(&grid)
    }

    fn write_findings<W: Write>(&self, page: &mut Page<'_, W>, most: usize) -> io::Result<()> {
        let notable = || self.findings.iter().filter(|of| of.is_notable());
        let known = notable().filter(|of| of.advice.is_some());
        let (mut known, mut little): (Vec<_>, Vec<_>) = known.partition(|of| !of.is_little());
        if known.is_empty() {
            std::mem::swap(&mut known, &mut little);
        }
        if !known.is_empty() {
            page.heading("What to try")?;
        }
        for (index, finding) in known.into_iter().take(most).enumerate() {
            page.line(&format!("{}. {}", index + 1, in_short(finding)))?;
            if let Some(advice) = finding.advice {
                page.line(&format!("   → {}", advice.text))?;
            }
        }
        if !little.is_empty() {
            let little = count(little.len() as u64);
            page.line(&format!("… and {little} that cost less than {LITTLE_PERCENT} % each"))?;
        }
        let open = notable().filter(|of| of.may_be_useful() && !of.is_explained());
        let open: Vec<_> = open.take(most).collect();
        if !open.is_empty() {
            let is_unknown = open.iter().any(|of| of.sizes_lost > 0);
            page.heading(match is_unknown {
                true => "Possible; unknown whether useful work, as events were lost",
                false => "Possible, or useful work",
            })?;
        }
        open.into_iter().try_for_each(|finding| page.line(&in_short(finding)))
    }

    fn write_trust<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let of = &self.trust;
        page.heading("What is not in the counts")?;
        page.line(&format!(
            "lost events: {} ({} %); episodes open at the end: {}; maps: {} of kernel memory",
            count(of.lost_events),
            percent(of.lost_percent),
            count(of.open_episodes),
            bytes(of.map_bytes),
        ))?;
        let lost = [
            ("waits", of.lost_waits),
            ("wakes", of.lost_wakes),
            ("futex calls", of.lost_futexes),
            ("kernel locks", of.lost_locks),
            ("threads", of.lost_threads),
            ("threads that ended as tracing did", of.lost_ending_threads),
            ("notices of processes", of.lost_notices),
            ("ledgers", of.lost_ledgers),
            ("runs skipped by recursion", of.recursion_misses),
        ];
        let lost: Vec<String> = lost
            .iter()
            .filter(|(_, lost)| *lost > 0)
            .map(|(name, lost)| format!("{name} {}", count(*lost)))
            .collect();
        if !lost.is_empty() {
            page.line(&format!("of these: {}", lost.join(", ")))?;
        }
        let frames = of.unknown_frames;
        let stacks = of.stacks_lost_percent.map_or_else(
            || "stacks".into(),
            |lost| format!("stacks lost: {} % of {},", percent(lost), count(of.stacks_wanted)),
        );
        page.line(&format!(
            "{stacks} cut short: {}; addresses without a name: {} of {} in programs, {} of {} in \
             the kernel",
            count(of.stacks_truncated),
            count(frames.user_unknown),
            count(frames.user_asked),
            count(frames.kernel_unknown),
            count(frames.kernel_asked),
        ))?;
        if of.stacks_copied + of.stack_copies_lost > 0 {
            page.line(&format!(
                "user stacks copied for unwinding: {} ({}), of these unwound further than by frame \
                 pointers: {}; not copied: {}",
                count(of.stacks_copied),
                bytes(of.stacks_copied_bytes),
                count(of.stacks_unwound),
                count(of.stack_copies_lost),
            ))?;
        }
        if of.episodes_left_out > 0 {
            page.line(&format!(
                "waits that the timeline leaves out, as it has the first only: {}",
                count(of.episodes_left_out)
            ))?;
        }
        if of.episodes_without_room > 0 {
            page.line(&format!(
                "waits that the timeline lacks, as too many ended at a time: {}",
                count(of.episodes_without_room)
            ))?;
        }
        if of.maps_lost > 0 {
            let lost = count(of.maps_lost);
            page.line(&format!(
                "processes that ended before their mappings could be read: {lost}"
            ))?;
        }
        if of.reused_pids > 0 {
            let reused = count(of.reused_pids);
            page.line(&format!(
                "processes with the number of an earlier one, their counts together: at least \
                 {reused}"
            ))?;
        }
        if let Some(running) = of.processes_running.filter(|running| *running > 0) {
            let running = count(running);
            page.line(&format!("processes that still ran when tracing ended: {running}"))?;
        }
        match of.samples_delivered_percent.zip(of.samples_expected) {
            Some((share, expected)) => {
                let (share, expected) = (percent(share), count(expected));
                let lost = [
                    ("records lost", of.lost_sampler_records),
                    ("without room for their stacks", of.samples_without_room),
                ];
                let lost = lost.iter().filter(|(_, lost)| *lost > 0);
                let lost: String =
                    lost.map(|(name, lost)| format!("; {name}: {}", count(*lost))).collect();
                page.line(&format!("CPU samples delivered: {share} % of {expected}{lost}"))?;
            }
            None => page.line("CPU samples: none were taken")?,
        }
        for missing in &self.missing {
            let (name, consequence) = (&missing.tracepoint, &missing.consequence);
            page.line(&format!("without {name}: {consequence}"))?;
        }
        if !self.privileged {
            page.line("without privilege only context switches are seen; all else is unknown")?;
        }
        Ok(())
    }
}

/// A class of time in words.
pub(super) fn class_name(class: TimeClass) -> &'static str {
    match class {
        TimeClass::Running => "running",
        TimeClass::Woken => "woken or new, no processor yet",
        TimeClass::Preempted => "preempted, no processor",
        TimeClass::AsleepTimer => "asleep until a timer",
        TimeClass::AsleepFutex => "asleep at a futex",
        TimeClass::AsleepDescriptor => "asleep for descriptors",
        TimeClass::AsleepChild => "asleep until a child ends",
        TimeClass::AsleepOther => "asleep for anything else",
        TimeClass::Uninterruptible => "uninterruptible",
    }
}

/// What, how often, at what cost, where and for what.
fn in_short(finding: &Finding) -> String {
    let share = finding.cost.map_or_else(String::new, |cost| {
        format!(", {} of {}", verdict::cost_share(cost), cost.kind.whole())
    });
    let (what, number) = (verdict::what(finding.waste), interval(finding.count));
    let object = match finding.object.is_empty() {
        true => String::new(),
        false => format!("; {}", finding.object),
    };
    format!("{what}: {number}{share}; {}{object}", verdict::site(finding))
}

/// A figure per byte, or nothing.
fn per_byte(figure: Option<f64>) -> String {
    figure.map_or_else(String::new, digits)
}
