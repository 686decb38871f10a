//! The tables of the full report.

use std::io::{self, Write};

use super::grid::{Grid, Side::*};
use super::{Page, per_byte};
use crate::report::callers::Caller;
use crate::report::ledgers::{Gate, Seen};
use crate::report::quantity::{count, digits, duration, interval, percent};
use crate::report::{Report, share, verdict};

/// Rows of the tables that the reports call "top 10".
const TOP: usize = 10;
/// Rows of the profile.
const FUNCTIONS: usize = 20;

const UNKNOWN: &str = "unknown: this could not be seen here";
const NONE: &str = "none";

impl Report {
    /// A program's name, if there are several to tell apart.
    fn whose(&self, comm: &str) -> String {
        let same = self.waits.lines.iter().all(|line| line.comm == comm);
        if same { String::new() } else { format!(", {comm}") }
    }

    pub(super) fn write_threads<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let Some(time) = &self.time else { return Ok(()) };
        page.heading("Threads: what each did with its time, in percent")?;
        let heads = [
            "time",
            "running",
            "woken",
            "preempted",
            "timer",
            "futex",
            "descriptors",
            "child",
            "other",
            "uninterruptible",
            "thread",
        ];
        let mut sides = [Right; 11];
        sides[10] = Left;
        let mut grid = Grid::new(&heads, &sides);
        for thread in time.threads.iter().take(FUNCTIONS) {
            let mut cells = vec![duration(thread.wall_ns)];
            cells.extend(thread.classes.iter().map(|of| percent(of.percent)));
            cells.push(format!("{} {}", thread.tid, thread.comm));
            grid.row(cells.iter().map(String::as_str));
        }
        page.grid(&grid)?;
        rest(page, time.threads.len(), FUNCTIONS)
    }

    pub(super) fn write_herds<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        page.heading("Herds: events that woke two or more")?;
        let Some(herds) = &self.herds else { return page.line(UNKNOWN) };
        if herds.is_empty() {
            return page.line(NONE);
        }
        let heads =
            ["herds", "of events", "woken", "each", "most", "needless", "CPU ≤", "woken by; for"];
        let sides = [Right, Right, Right, Right, Right, Right, Right, Left];
        let mut grid = Grid::new(&heads, &sides);
        for herd in herds.iter().take(TOP) {
            let by = match &herd.comm {
                Some(comm) => {
                    let whose = self.whose(comm);
                    format!("{} from {}{whose}; {}", herd.by, herd.site.function, herd.object)
                }
                None => format!("{}; {}", herd.by, herd.object),
            };
            grid.row([
                &*count(herd.herds),
                &count(herd.events),
                &count(herd.herd_woken),
                &digits(herd.woken_per_herd),
                &count(herd.largest),
                &interval(herd.needless),
                &duration(herd.needless_cpu_ns),
                &by,
            ]);
        }
        page.grid(&grid)?;
        rest(page, herds.len(), TOP)
    }

    pub(super) fn write_futexes<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        page.heading("Futexes: calls that wake, by outcome")?;
        let Some(futexes) = &self.futexes else { return page.line(UNKNOWN) };
        let wakes = |kind: &str| matches!(kind, "wake" | "requeue");
        let mut grid = Grid::new(
            &["calls", "nobody", "%", "one", "many", "woken", "kind", "site; word"],
            &[Right, Right, Right, Right, Right, Right, Left, Left],
        );
        let totals = futexes.totals.iter().map(|(kind, of)| (*kind, of, "all".to_owned()));
        let lines = futexes.lines.iter().map(|line| {
            let place = format!("{}{}", line.site.function, self.whose(&line.comm));
            (line.kind, &line.outcomes, format!("{place}; {:#x}", line.word))
        });
        let all: Vec<_> = totals.chain(lines).collect();
        let rows = |of_wakes: bool| all.iter().filter(move |row| wakes(row.0) == of_wakes);
        for (kind, of, place) in rows(true).take(TOP + 2) {
            let nobody = share::percent(of.woke_none, of.calls).unwrap_or_default();
            grid.row([
                &*count(of.calls),
                &count(of.woke_none),
                &percent(nobody),
                &count(of.woke_one),
                &count(of.woke_many),
                &count(of.woken),
                kind,
                place,
            ]);
        }
        if rows(true).next().is_some() {
            page.grid(&grid)?
        } else {
            page.line(NONE)?
        }
        page.heading("Futexes: calls that wait, by outcome")?;
        let mut grid = Grid::new(
            &["calls", "slept", "refused", "%", "timed out", "other", "kind", "site; word"],
            &[Right, Right, Right, Right, Right, Right, Left, Left],
        );
        for (kind, of, place) in rows(false).take(TOP + 2) {
            let refused = share::percent(of.refused, of.calls).unwrap_or_default();
            grid.row([
                &*count(of.calls),
                &count(of.slept),
                &count(of.refused),
                &percent(refused),
                &count(of.timed_out),
                &count(of.interrupted.saturating_add(of.failed)),
                kind,
                place,
            ]);
        }
        if rows(false).next().is_some() { page.grid(&grid) } else { page.line(NONE) }
    }

    pub(super) fn write_callers<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let callers = &self.callers;
        page.heading("Top 10 callers of scheduling functions, in the kernel")?;
        self.write_caller_list(page, &callers.kernel, "per byte")?;
        page.line(&format!("apart from these: preempted {} times", count(callers.preemptions)))?;
        page.line(&format!("idle, all processors: {}", duration(callers.machine_idle_ns)))?;
        page.heading("Top 10 callers of scheduling functions, in programs")?;
        self.write_caller_list(page, &callers.user, "")
    }

    fn write_caller_list<W: Write>(
        &self,
        page: &mut Page<'_, W>,
        callers: &[Caller],
        per: &str,
    ) -> io::Result<()> {
        if callers.is_empty() {
            return page.line(NONE);
        }
        let sides = [Right, Right, Right, Right, Left];
        let mut grid = Grid::new(&["sleeps", "asleep", "on average", per, "caller"], &sides);
        for caller in callers.iter().take(TOP) {
            grid.row([
                &*count(caller.sleeps),
                &duration(caller.asleep_ns),
                &duration(caller.asleep_ns / caller.sleeps.max(1)),
                &per_byte(caller.sleeps_per_byte),
                &caller.function,
            ]);
        }
        page.grid(&grid)?;
        rest(page, callers.len(), TOP)
    }

    pub(super) fn write_consumers<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        page.heading("Top CPU consumers")?;
        let Some(of) = &self.consumers else { return page.line(UNKNOWN) };
        let all = [Some(of.user_ticks), of.kernel_ticks, of.idle_ticks];
        let sum = all.iter().flatten().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        for (name, ticks) in ["user", "kernel", "idle"].iter().zip(all) {
            let Some(ticks) = ticks else {
                page.line(&format!("{name} ticks: unknown"))?;
                continue;
            };
            let share = share::percent(ticks, sum).unwrap_or_default();
            page.line(&format!("{name} ticks: {} {share:.2} %", count(ticks)))?;
        }
        let heads = ["ticks", "percent", "cumulative", "per byte", "side", "function"];
        let mut grid = Grid::new(&heads, &[Right, Right, Right, Right, Left, Left]);
        for function in of.functions.iter().take(FUNCTIONS) {
            let side = match function.side {
                crate::symbols::Side::Kernel => "kernel",
                crate::symbols::Side::User => &function.module,
            };
            grid.row([
                &*count(function.ticks),
                &format!("{:.2}", function.percent),
                &format!("{:.2}", function.cumulative_percent),
                &per_byte(function.ticks_per_byte),
                side,
                &function.function,
            ]);
        }
        page.grid(&grid)?;
        rest(page, of.functions.len(), FUNCTIONS)
    }

    pub(super) fn write_locks<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        page.heading("Contended kernel locks")?;
        let Some(locks) = &self.kernel_locks else { return page.line(UNKNOWN) };
        if locks.is_empty() {
            return page.line(NONE);
        }
        let heads = ["count", "waited", "longest", "lock", "caller"];
        let mut grid = Grid::new(&heads, &[Right, Right, Right, Left, Left]);
        for lock in locks.iter().take(TOP) {
            let mut caller = lock.caller.clone();
            for name in &lock.below {
                caller.push_str(" < ");
                caller.push_str(name);
            }
            grid.row([
                &*count(lock.count),
                &duration(lock.total_ns),
                &duration(lock.longest_ns),
                lock.kind,
                &format!(
                    "{caller}{}",
                    if lock.of_scheduler { " (the scheduler's own)" } else { "" }
                ),
            ]);
        }
        page.grid(&grid)?;
        rest(page, locks.len(), TOP)
    }

    pub(super) fn write_needless_sleeps<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        page.heading("Needless sleeps: timer polls, and sleeps shorter than a switch")?;
        if !self.judged {
            return page.line(UNKNOWN);
        }
        let lines = self.waits.lines.iter();
        let mut lines: Vec<_> =
            lines.filter(|line| line.timer_polls > 0 || line.short_sleeps > 0).collect();
        if lines.is_empty() {
            return page.line(NONE);
        }
        lines.sort_by_key(|line| std::cmp::Reverse((line.timer_polls, line.short_sleeps)));
        let heads = ["timer polls", "period", "short sleeps", "of sleeps", "site; object"];
        let mut grid = Grid::new(&heads, &[Right, Right, Right, Right, Left]);
        for line in lines.iter().take(TOP) {
            let polls_at = line.poll_site.as_ref().filter(|_| line.timer_polls > 0);
            let place = format!(
                "{} from {}{}; {}",
                line.call,
                polls_at.map_or(&line.site, |at| &at.site).function,
                self.whose(&line.comm),
                line.object
            );
            grid.row([
                &*count(line.timer_polls),
                &line.timer_poll_period_ns.map_or_else(String::new, duration),
                &count(line.short_sleeps),
                &count(line.sleeps),
                &place,
            ]);
        }
        page.grid(&grid)?;
        rest(page, lines.len(), TOP)
    }

    pub(super) fn write_stalls<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        page.heading("Stalls in reclaim and write-back")?;
        let Some(stalls) = &self.stalls else { return page.line(UNKNOWN) };
        if stalls.is_empty() {
            return page.line(NONE);
        }
        let heads = ["count", "in all", "longest", "kind", "reason"];
        let mut grid = Grid::new(&heads, &[Right, Right, Right, Left, Left]);
        for stall in stalls {
            grid.row([
                &*count(stall.count),
                &duration(stall.total_ns),
                &duration(stall.longest_ns),
                stall.kind,
                stall.reason.as_deref().unwrap_or_default(),
            ]);
        }
        page.grid(&grid)
    }

    pub(super) fn write_ledgers<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        for ledger in &self.ledgers {
            let end = if ledger.at_end { "at its end" } else { "shortly before its end" };
            page.heading(&format!(
                "What {} ({}) says of its waits, {end}, and what was seen",
                ledger.comm, ledger.pid
            ))?;
            let heads = ["waits", "asleep", "wakeups", "needless", ""];
            let mut grid = Grid::new(&heads, &[Right, Right, Right, Right, Left]);
            let mut said = |counts: &std::collections::BTreeMap<String, u64>, name: &str| {
                let number = |key: &str| counts.get(key).copied();
                let text = |key| number(key).map_or_else(|| "-".into(), count);
                let asleep = number("asleep_ns").map_or_else(|| "-".into(), duration);
                let needless = text("needless_wakeups");
                grid.row([&*text("waits"), &asleep, &text("wakeups"), &needless, name]);
            };
            for reason in &ledger.says {
                said(&reason.counts, &format!("the program says: {}", reason.reason));
            }
            if ledger.says.len() > 1 {
                said(&ledger.says_in_all, "the program says: all");
            }
            let mut saw = |seen: Seen, name: &str| {
                grid.row([
                    &*count(seen.waits),
                    &duration(seen.asleep_ns),
                    &seen.wakeups.map_or_else(|| "unknown".into(), count),
                    &seen.needless_wakeups.map_or_else(|| "unknown".into(), interval),
                    name,
                ]);
            };
            saw(ledger.saw, "the trace saw: sleeps of the library");
            saw(ledger.saw_elsewhere, "the trace saw: elsewhere in the process");
            let calls = ledger.saw_wake_calls.map_or_else(|| "unknown".into(), count);
            grid.row(["", "", &*calls, "", "the trace saw: wake calls of the library"]);
            page.grid(&grid)?;
            ledger.gates.iter().try_for_each(|gate| write_gate(page, gate))?;
            if ledger.gates_hidden > 0 {
                let more = count(ledger.gates_hidden);
                page.line(&format!("{more} more gates are not shown: the ledger has no room"))?;
            }
        }
        Ok(())
    }

    pub(super) fn write_stacks<W: Write>(&self, page: &mut Page<'_, W>) -> io::Result<()> {
        let with_stacks = self.findings.iter().filter(|of| of.stacks.is_some() && of.is_notable());
        let top: Vec<_> = with_stacks.take(TOP).collect();
        if top.is_empty() {
            return Ok(());
        }
        page.heading("Stacks of the top findings, the innermost frame first")?;
        for finding in top {
            page.line(&format!("{}: {}", verdict::what(finding.waste), verdict::site(finding)))?;
            let Some(pair) = finding.stacks else { continue };
            self.write_stack(page, "kernel", pair.kernel)?;
            self.write_stack(page, "user", pair.user)?;
            let waker = finding.waker_stacks.and_then(|pair| pair.user);
            self.write_stack(page, "woken by", waker)?;
        }
        Ok(())
    }

    fn write_stack<W: Write>(
        &self,
        page: &mut Page<'_, W>,
        side: &str,
        index: Option<usize>,
    ) -> io::Result<()> {
        let Some(stack) = index.and_then(|index| self.stacks.get(index)) else { return Ok(()) };
        for (depth, frame) in stack.frames.iter().enumerate() {
            let side = if depth == 0 { side } else { "" };
            let inlined = if frame.inlined { " (inlined)" } else { "" };
            let room = page.width.saturating_sub(14);
            let text = super::grid::shortened(&format!("{frame}{inlined}"), room);
            writeln!(page.to, "    {side:<8}  {text}")?;
        }
        if stack.truncated {
            writeln!(page.to, "    {:<8}  … and on from here, which is not known", "")?;
        }
        Ok(())
    }
}

/// Of a gate at which nobody waits there is nothing to tell.
fn write_gate<W: Write>(page: &mut Page<'_, W>, gate: &Gate) -> io::Result<()> {
    if gate.waiting == 0 && gate.trusted {
        return Ok(());
    }
    let ago = |of: Option<u64>| of.map_or_else(|| "never".into(), |ns| duration(ns) + " ago");
    page.line(&format!(
        "gate {}: waiting: {}; stalled for {}; progress: {}; {}; overdue: {}",
        gate.reason,
        count(gate.waiting),
        duration(gate.stalled_ns),
        ago(gate.progress_ago_ns),
        if gate.trusted { "trusted" } else { "untrusted" },
        count(gate.overdue),
    ))?;
    for waiter in gate.waiters.iter().take(TOP) {
        let thread = waiter.thread.map_or_else(String::new, |thread| format!(" {thread}"));
        let waited = duration(waiter.waited_ns);
        page.line(&format!("  thread{thread} for {waited} at {}", waiter.reason))?;
    }
    // Tasks, and of an ended process many threads, are counted only.
    rest(page, gate.waiting as usize, gate.waiters.len().min(TOP))
}

/// What the table has no room for is in the JSON.
fn rest<W: Write>(page: &mut Page<'_, W>, rows: usize, shown: usize) -> io::Result<()> {
    match rows.saturating_sub(shown) {
        0 => Ok(()),
        more => page.line(&format!("… and {} more", count(more as u64))),
    }
}
