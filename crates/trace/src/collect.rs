//! Reads the maps of the programs (`bpf/record.h`) once they have stopped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::ledger::Ledger;
use crate::observation::{
    AsleepIn, Episode, EpisodeClass, FutexKind, FutexRow, GateRow, LedgerRow, LockKind, LockRow,
    Losses, Object, Observation, Outcomes, Process, SampledStack, Stack, StackId, StallKind,
    StallRow, ThreadRow, TimeSpent, Totals, WaitRow, WakeCause, WakeRow, Waking,
};
use crate::programs::{Programs, VARIABLES};
use crate::tracer::{Notice, TraceError, is_in_initial_namespace};
use crate::unwind::{FutexPlace, Pair, Paths, StackCopies, kernel_stack_id};

/// A record of the kernel's, read from its begin on.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => [0; N],
        }
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn i32(&mut self) -> i32 {
        i32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    fn u64s<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.u64())
    }

    /// A C string in `N` bytes.
    fn text<const N: usize>(&mut self) -> String {
        let bytes = self.take::<N>();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// A notice, if it is one that this version knows.
pub(crate) fn notice(bytes: &[u8]) -> Option<Notice> {
    let mut reader = Reader(bytes);
    let (kind, pid, parent, _) = (reader.u32(), reader.u32(), reader.u32(), reader.u32());
    match kind {
        0 => Some(Notice::Began { pid, parent }),
        1 => Some(Notice::Exec { pid, comm: reader.text::<16>() }),
        2 => Some(Notice::Ended { pid }),
        _ => None,
    }
}

/// `struct uh_episode`.
pub(crate) fn episode(bytes: &[u8]) -> Episode {
    let mut reader = Reader(bytes);
    let (about, pid, nr) = (reader.u64(), reader.u32(), reader.i32());
    let (kind, _pad) = (reader.u32(), reader.u32());
    let (woken_for, waker_pid, waker_nr) = (reader.u64(), reader.u32(), reader.i32());
    let (waker_cause, waker_kind) = (reader.u32(), reader.u32());
    let [began_ns, woken_ns, ran_ns] = reader.u64s();
    let (tid, waker_tid, class) = (reader.u32(), reader.u32(), reader.u32());
    let waking = (woken_ns > 0).then(|| Waking {
        woken_ns,
        ran_ns,
        tid: (waker_tid != 0).then_some(waker_tid),
        pid: (waker_pid != 0).then_some(waker_pid),
        cause: cause(waker_cause, waker_nr),
        object: object(waker_kind, woken_for),
    });
    Episode {
        pid,
        tid,
        syscall: u32::try_from(nr).ok(),
        object: object(kind, about),
        class: *EpisodeClass::ALL.get(class as usize).unwrap_or(&EpisodeClass::Unjudged),
        began_ns,
        waking,
    }
}

/// Everything that the maps hold. `give_maps` fills in the mappings of the processes, without
/// which copies of stacks are of no use.
pub(crate) fn observation(
    programs: &Programs,
    copies: StackCopies,
    give_maps: impl FnOnce(&mut [Process]),
) -> Result<Observation, TraceError> {
    let (mut processes, totals) = processes(&programs.map("uh_processes")?)?;
    // First, since those of the living go on, or end.
    let ledgers = ledgers(programs)?;
    give_maps(&mut processes);
    let stack_maps = [programs.map("uh_stacks")?, programs.map("uh_more_stacks")?];
    let late = (copies.lost, copies.lost_bytes);
    let copied = copies.all;
    let walked = copied.iter().filter_map(|copy| kernel_stack_id(copy.user)).collect();
    let paths = Paths::find(copied, &processes, &read_stacks(&stack_maps, &walked)?);
    let stacks = Stacks { pairs: read_pairs(&programs.map("uh_pairs")?)?, paths: &paths };
    let mut seen = Observation {
        cpus: online_cpus(),
        processes,
        waits: waits(&programs.map("uh_waits")?, &stacks)?,
        wakes: wakes(programs, &stacks)?,
        futexes: futexes(&programs.map("uh_futexes")?, &paths)?,
        locks: locks(&programs.map("uh_locks")?)?,
        stalls: stalls(&programs.map("uh_stalls")?)?,
        time: time_spent(programs)?,
        threads: threads(&programs.map("uh_lives")?)?,
        totals,
        losses: Losses { copies_unwound: paths.unwound, ..losses(programs, late)? },
        missing: programs.missing.clone(),
        ledgers: ledgers.rows,
        gates: ledgers.gates,
        gates_hidden: ledgers.gates_hidden,
        ..Observation::default()
    };
    seen.losses.ledgers += ledgers.lost;
    name_descriptors(&mut seen);
    let unwound = paths.stacks();
    let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) =
        named_stacks(&seen).into_iter().partition(|id| unwound.contains_key(id));
    seen.stacks = read_stacks(&stack_maps, &theirs)?;
    seen.stacks.extend(ours.into_iter().map(|id| (id, unwound[&id].clone())));
    Ok(seen)
}

/// The processors whose idle time /proc/stat adds up; the kernel may have room for many more.
fn online_cpus() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_one = |line: &&str| line.strip_prefix("cpu").is_some_and(|of| !of.starts_with(' '));
    text.lines().filter(is_one).count().max(1)
}

/// Calls `row` for each entry, key and value.
fn for_each(
    map: &MapHandle,
    mut row: impl FnMut(Reader<'_>, Reader<'_>),
) -> Result<(), TraceError> {
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY).map_err(TraceError::kernel)?;
        if let Some(value) = value {
            row(Reader(&key), Reader(&value));
        }
    }
    Ok(())
}

/// The sampled pairs of each row, what the samples of each stand for, and the sum of the squares of
/// that.
type Pairs = HashMap<u64, Vec<(Pair, u64, u64)>>;

fn read_pairs(map: &MapHandle) -> Result<Pairs, TraceError> {
    let mut pairs = Pairs::new();
    for_each(map, |mut key, mut value| {
        let pair = Pair { row: key.u64(), kernel: key.i32(), user: key.i32() };
        let [weight, _met, squares] = value.u64s();
        pairs.entry(pair.row).or_default().push((pair, weight, squares));
    })?;
    Ok(pairs)
}

/// The sampled pairs, and what their user stacks stand for.
struct Stacks<'a> {
    pairs: Pairs,
    paths: &'a Paths,
}

impl Stacks<'_> {
    /// The stacks of a row, which is of this process.
    fn of(&self, row: u64, pid: Option<u32>) -> Vec<SampledStack> {
        let mut counts = BTreeMap::<_, u64>::new();
        for (pair, count, _) in self.pairs.get(&row).into_iter().flatten() {
            let kernel = kernel_stack_id(pair.kernel);
            for (user, count) in self.paths.share_out(*pair, pid, *count) {
                *counts.entry((kernel, user)).or_default() += count;
            }
        }
        let sampled = |((kernel, user), count)| SampledStack { kernel, user, count };
        let mut stacks: Vec<_> = counts.into_iter().map(sampled).collect();
        stacks.sort_by_key(|pair| (std::cmp::Reverse(pair.count), pair.kernel, pair.user));
        stacks
    }

    /// The number of samples of one weight that say as much as those of this row, which differ.
    fn samples(&self, row: u64) -> u64 {
        let pairs = self.pairs.get(&row).into_iter().flatten();
        let sums =
            pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.1 as f64, sum.1 + pair.2 as f64));
        if sums.1 > 0.0 { (sums.0 * sums.0 / sums.1) as u64 } else { 0 }
    }
}

/// `UH_OF_POLLS`.
const OF_POLLS: u64 = 1 << 63;
/// `UH_PARKER`.
const PARKER: u32 = 5;
/// `UH_F_PARKER`.
const PARKER_CALL: u32 = 0x80;

fn object(kind: u32, value: u64) -> Object {
    match kind {
        1 | PARKER => Object::Futex(value),
        2 => Object::Descriptor(value as u32 as i32),
        3 => Object::Set(value),
        4 => Object::Socket { port: value as u16, listening: value & (1 << 16) != 0 },
        _ => Object::None,
    }
}

/// `struct uh_file` of a descriptor or a set, in a few words.
fn object_name(reader: &mut Reader<'_>, object: Object) -> Option<String> {
    let name = file_name(reader);
    let (descriptor, others) = (reader.u32(), reader.u32());
    let Object::Set(_) = object else { return name };
    let first = format!("{} (fd {descriptor})", name?);
    Some(match others {
        0 => first,
        1 => format!("{first} and another"),
        _ => format!("{first} and {others} others"),
    })
}

/// What a file is, in a few words.
fn file_name(reader: &mut Reader<'_>) -> Option<String> {
    const TYPE_MASK: u16 = 0o170000;
    const SOCKET: u16 = 0o140000;
    const FIFO: u16 = 0o010000;
    let (mode, port, listening) = (reader.u16(), reader.u16(), reader.u32() != 0);
    let name = reader.text::<32>();
    match mode & TYPE_MASK {
        0 if name.is_empty() => None,
        SOCKET => Some(match (port, listening) {
            (0, false) => "socket".to_owned(),
            (0, true) => "socket, listening".to_owned(),
            (_, false) => format!("socket :{port}"),
            (_, true) => format!("socket :{port}, listening"),
        }),
        FIFO if name.is_empty() => Some("pipe".to_owned()),
        _ => Some(name),
    }
}

/// Names the descriptors of threads that were asleep when they were attached to: the programs look
/// at files in the thread that begins to wait. That is what the descriptor is now.
fn name_descriptors(seen: &mut Observation) {
    // Elsewhere /proc has other numbers.
    if !is_in_initial_namespace() {
        return;
    }
    let running = |pid| seen.processes.iter().any(|of| of.pid == pid && of.running);
    for row in seen.waits.iter_mut().filter(|row| row.object_name.is_none()) {
        if let Object::Descriptor(descriptor) = row.object
            && running(row.pid)
        {
            let link = std::fs::read_link(format!("/proc/{}/fd/{descriptor}", row.pid));
            row.object_name = link.ok().and_then(|link| link_name(link.to_str()?));
        }
    }
}

/// What a link in `/proc/PID/fd` leads to, in the words of [`file_name`].
fn link_name(link: &str) -> Option<String> {
    let name = match link.split_once(':') {
        Some((kind @ ("socket" | "pipe"), _)) => kind,
        Some(("anon_inode", name)) => name,
        _ => link.rsplit('/').next()?,
    };
    (!name.is_empty()).then(|| name.to_owned())
}

fn waits(map: &MapHandle, stacks: &Stacks<'_>) -> Result<Vec<WaitRow>, TraceError> {
    let mut rows = Vec::new();
    for_each(map, |mut key, mut value| {
        let (about, pid, nr, kind) = (key.u64(), key.u32(), key.i32(), key.u32());
        let [id, _sampled, _polls_sampled] = value.u64s();
        let counts: [u64; 20] = value.u64s();
        let object = object(kind, about);
        let object_name = object_name(&mut value, object);
        rows.push(WaitRow {
            pid,
            syscall: u32::try_from(nr).ok(),
            object,
            object_name,
            library: kind == PARKER,
            sleeps: counts[0],
            uninterruptible_sleeps: counts[1],
            asleep_ns: counts[2],
            uninterruptible_ns: counts[3],
            wakeups: counts[4],
            timer_wakeups: counts[5],
            redundant_wakes: counts[6],
            needless_in_call: counts[7],
            needless_again: counts[8],
            possibly_needless: counts[9],
            possibly_needless_in_herds: counts[10],
            needless_cpu_ns: counts[11],
            possibly_needless_cpu_ns: counts[12],
            possibly_needless_in_herds_cpu_ns: counts[13],
            timer_polls: counts[14],
            timer_poll_ns: counts[15],
            timer_poll_cpu_ns: counts[16],
            short_sleeps: counts[17],
            overslept: counts[18],
            overslept_ns: counts[19],
            stacks: stacks.of(id, Some(pid)),
            stack_samples: stacks.samples(id),
            poll_stacks: stacks.of(id | OF_POLLS, Some(pid)),
            poll_stack_samples: stacks.samples(id | OF_POLLS),
        });
    })?;
    rows.sort_by_key(|row| (row.pid, row.syscall, row.object));
    Ok(rows)
}

/// `enum uh_cause`, with the call's number.
fn cause(cause: u32, nr: i32) -> WakeCause {
    match (cause, u32::try_from(nr)) {
        (0, Ok(nr)) => WakeCause::Call(nr),
        (1, _) => WakeCause::Timer,
        (2, _) => WakeCause::Interrupt,
        _ => WakeCause::Other,
    }
}

/// `struct uh_wake_key`.
type WakeKey = [u8; 24];

fn wakes(programs: &Programs, stacks: &Stacks<'_>) -> Result<Vec<WakeRow>, TraceError> {
    let open = open_events(programs)?;
    let mut rows = Vec::new();
    for_each(&programs.map("uh_wakes")?, |mut key, mut value| {
        let raw: WakeKey = Reader(key.0).take();
        let (about, pid, nr) = (key.u64(), key.u32(), key.i32());
        let (of, kind) = (key.u32(), key.u32());
        let id = value.u64();
        let counts: [u64; 10] = value.u64s();
        let pid = (pid != 0).then_some(pid);
        let [longest_ns, longest_row] = value.u64s();
        let asleep_in = (longest_ns > 0).then(|| AsleepIn {
            syscall: u32::try_from(value.i32()).ok(),
            stacks: stacks.of(longest_row, pid),
        });
        let mut row = WakeRow {
            pid,
            cause: cause(of, nr),
            object: object(kind, about),
            events: counts[0],
            woken: counts[1],
            herds: counts[2],
            herd_woken: counts[3],
            largest: counts[4].max(u64::from(counts[1] > 0)),
            herd_needless: counts[5],
            herd_possibly: counts[6],
            herd_needless_cpu_ns: counts[7],
            waited_ns: counts[8],
            holders_asleep_ns: counts[9],
            asleep_in,
            stacks: stacks.of(id, pid),
        };
        for woken in open.iter().filter(|(of, _)| *of == raw).map(|(_, woken)| *woken) {
            row.woken += woken - 1;
            row.herds += 1;
            row.herd_woken += woken;
            row.largest = row.largest.max(woken);
        }
        rows.push(row);
    })?;
    rows.sort_by_key(|row| (row.pid, row.object, row.cause_order()));
    Ok(rows)
}

impl WakeRow {
    fn cause_order(&self) -> (u8, u32) {
        match self.cause {
            WakeCause::Call(nr) => (0, nr),
            WakeCause::Timer => (1, 0),
            WakeCause::Interrupt => (2, 0),
            WakeCause::Other => (3, 0),
        }
    }
}

/// The last event of each processor and context that no followed thread caused: its row, and how
/// many it woke, where it was more than the one that its row has from the start.
fn open_events(programs: &Programs) -> Result<Vec<(WakeKey, u64)>, TraceError> {
    let map = programs.map("uh_cpus")?;
    let cpus = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let mut events = Vec::new();
    for cpu in cpus.map_err(TraceError::kernel)?.into_iter().flatten() {
        let mut reader = Reader(&cpu);
        for _ in 0..3 {
            let _task_instance_cause_last_id: [u64; 5] = reader.u64s();
            let (_index, woken, _polls, _mixed) =
                (reader.u32(), reader.u32(), reader.u32(), reader.u32());
            let _site_run: [u64; 2] = reader.u64s();
            let key = reader.take();
            if woken >= 2 {
                events.push((key, u64::from(woken)));
            }
        }
    }
    Ok(events)
}

fn futexes(map: &MapHandle, paths: &Paths) -> Result<Vec<FutexRow>, TraceError> {
    // A walk by frame pointers may yield many stacks for one path.
    let mut calls = BTreeMap::<_, [u64; 10]>::new();
    for_each(map, |mut key, mut value| {
        let (word, pid, stack, kind) = (key.u64(), key.u32(), key.i32(), key.u32());
        let stack = paths.of_futex(pid, FutexPlace { word, kind }, stack);
        let sums = calls.entry((pid, word, stack, kind)).or_default();
        sums.iter_mut().zip(value.u64s::<10>()).for_each(|(sum, count)| *sum += count);
    })?;
    let row = |((pid, word, user_stack, kind), counts): ((_, _, _, u32), [u64; 10])| FutexRow {
        pid,
        kind: match kind & !PARKER_CALL {
            1 => FutexKind::Wait,
            2 => FutexKind::WaitMany,
            3 => FutexKind::Wake,
            4 => FutexKind::Requeue,
            _ => FutexKind::LockPi,
        },
        word,
        user_stack,
        library: kind & PARKER_CALL != 0,
        outcomes: Outcomes {
            calls: counts[0],
            woke_none: counts[1],
            woke_one: counts[2],
            woke_many: counts[3],
            woken: counts[4],
            slept: counts[5],
            refused: counts[6],
            timed_out: counts[7],
            interrupted: counts[8],
            failed: counts[9],
        },
    };
    let mut rows: Vec<FutexRow> = calls.into_iter().map(row).collect();
    rows.sort_by_key(|row| (row.pid, row.word, row.user_stack, row.outcomes.calls));
    Ok(rows)
}

/// The flags of `contention_begin`, as far as they tell kinds apart.
fn lock_kind(flags: u32) -> LockKind {
    const SPIN: u32 = 1;
    const READ: u32 = 2;
    const WRITE: u32 = 4;
    match flags {
        SPIN => LockKind::Spin,
        f if f == SPIN | READ => LockKind::SpinRead,
        f if f == SPIN | WRITE => LockKind::SpinWrite,
        READ => LockKind::SemaphoreRead,
        WRITE => LockKind::SemaphoreWrite,
        8.. if flags & 8 != 0 => LockKind::RealTime,
        16.. if flags & 16 != 0 => LockKind::PerCpu,
        32.. if flags & 32 != 0 => LockKind::Mutex,
        _ => LockKind::Other,
    }
}

fn locks(map: &MapHandle) -> Result<Vec<LockRow>, TraceError> {
    let mut rows = Vec::new();
    for_each(map, |mut key, mut value| {
        let (flags, stack) = (key.u32(), key.i32());
        let [count, total_ns, longest_ns] = value.u64s();
        let (kind, kernel_stack) = (lock_kind(flags), kernel_stack_id(stack));
        rows.push(LockRow { kind, kernel_stack, count, total_ns, longest_ns });
    })?;
    rows.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.kernel_stack));
    Ok(rows)
}

fn stalls(map: &MapHandle) -> Result<Vec<StallRow>, TraceError> {
    let mut rows = Vec::new();
    for_each(map, |mut key, mut value| {
        let (kind, reason) = (key.u32(), key.u32());
        let [count, total_ns, longest_ns] = value.u64s();
        let kind = match kind {
            0 => StallKind::Throttled(reason),
            1 => StallKind::DirectReclaim,
            _ => StallKind::DirtyPages,
        };
        let kernel_stack = kernel_stack_id(value.i32());
        rows.push(StallRow { kind, count, total_ns, longest_ns, kernel_stack });
    })?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    Ok(rows)
}

/// Divides the exact run time as the ticks say: what the kernel does for getrusage(2) too.
fn split_run_time(run_ns: u64, user_ns: u64, system_ns: u64) -> (u64, u64) {
    let ticks = u128::from(user_ns) + u128::from(system_ns);
    if ticks == 0 {
        return (run_ns, 0);
    }
    let user = u128::from(run_ns) * u128::from(user_ns) / ticks;
    (user as u64, run_ns - user as u64)
}

fn processes(map: &MapHandle) -> Result<(Vec<Process>, Totals), TraceError> {
    let mut rows = Vec::new();
    let mut totals = Totals::default();
    for_each(map, |mut key, mut value| {
        let pid = key.u32();
        let (parent, ended, comm) = (value.u32(), value.u32(), value.text::<16>());
        let counts: [u64; 8] = value.u64s();
        let (cpu_ns, running) = (Some(counts[7]), ended == 0);
        rows.push(Process { pid, parent, comm, cpu_ns, running, ..Process::default() });
        let (user_ns, system_ns) = split_run_time(counts[7], counts[5], counts[6]);
        totals.threads += counts[0];
        totals.sleeps += counts[1];
        totals.preemptions += counts[2];
        totals.wakeups += counts[3];
        totals.calls += counts[4];
        totals.user_ns += user_ns;
        totals.system_ns += system_ns;
    })?;
    rows.sort_by_key(|process| process.pid);
    Ok((rows, totals))
}

/// What all threads did with their time, which follows the losses in `struct uh_tally`.
fn time_spent(programs: &Programs) -> Result<TimeSpent, TraceError> {
    let bss = programs.map(VARIABLES)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let bss = bss.map_err(TraceError::kernel)?.unwrap_or_default();
    let mut reader = Reader(&bss);
    let _losses_episodes: [u64; 19] = reader.u64s();
    Ok(TimeSpent { wall_ns: reader.u64(), by_class_ns: reader.u64s() })
}

/// `struct uh_life` of each thread.
fn threads(map: &MapHandle) -> Result<Vec<ThreadRow>, TraceError> {
    let mut rows = Vec::new();
    for_each(map, |mut key, mut value| {
        let (pid, tid, comm) = (key.u32(), key.u32(), value.text::<16>());
        let time = TimeSpent { wall_ns: value.u64(), by_class_ns: value.u64s() };
        rows.push(ThreadRow { pid, tid, comm, time });
    })?;
    rows.sort_by_key(|row| (row.pid, row.tid));
    Ok(rows)
}

/// `struct uh_tally`, which is all of `.bss`, and copies of stacks, of which `late` came when there
/// was no room for them any more.
fn losses(programs: &Programs, (late, late_bytes): (u64, u64)) -> Result<Losses, TraceError> {
    let bss = programs.map(VARIABLES)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let bss = bss.map_err(TraceError::kernel)?.unwrap_or_default();
    let tally: [u64; 19] = Reader(&bss).u64s();
    let threads_peak = tally[2];
    let [copies, copied_bytes, copies_lost] = copying(&programs.map("uh_copying")?)?;
    Ok(Losses {
        waits: tally[3],
        wakes: tally[4],
        futexes: tally[5],
        locks: tally[6],
        threads: tally[7] + tally[8],
        notices: tally[9],
        stacks_wanted: tally[11],
        stacks_lost: tally[12] + tally[10],
        copies: copies.saturating_sub(late),
        copied_bytes: copied_bytes.saturating_sub(late_bytes),
        copies_lost: copies_lost + late,
        copies_unwound: 0,
        recursion_misses: programs.recursion_misses(),
        open_episodes: tally[13],
        ledgers: tally[15],
        lives: tally[16],
        episodes: tally[17],
        episodes_without_room: tally[18],
        // Those that neither their end nor the last walk has taken off.
        ending_threads: tally[1],
        map_bytes: programs.map_bytes() + threads_peak * programs.value_bytes("uh_threads"),
        ..Losses::default()
    })
}

/// Copies, their bytes, and those that were not made, of all processors: `struct uh_copying`.
fn copying(map: &MapHandle) -> Result<[u64; 3], TraceError> {
    let cpus = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let mut sums = [0; 3];
    for cpu in cpus.map_err(TraceError::kernel)?.into_iter().flatten() {
        let mut reader = Reader(&cpu);
        let _budgets: [u64; 6] = reader.u64s();
        for (sum, count) in sums.iter_mut().zip(reader.u64s::<3>()) {
            *sum += count;
        }
    }
    Ok(sums)
}

/// The ledgers of processes that have ended, as the programs kept them, and of those that live.
fn ledgers(programs: &Programs) -> Result<Ledgers, TraceError> {
    let mut all = Ledgers::default();
    for_each(&programs.map("uh_ledgers")?, |mut key, value| {
        all.add(key.u32(), &Ledger::from_bytes(value.0), true);
    })?;
    for_each(&programs.map("uh_ledger_roots")?, |mut key, mut root| {
        let pid = key.u32();
        match Ledger::read(pid, root.u64()) {
            Ok(ledger) => all.add(pid, &ledger, false),
            // It ended a moment ago, and has left nothing to read.
            Err(_) => all.lost += 1,
        }
    })?;
    all.rows.sort_by(|a, b| (a.pid, &a.reason).cmp(&(b.pid, &b.reason)));
    all.gates.sort_by(|a, b| (a.pid, &a.reason).cmp(&(b.pid, &b.reason)));
    Ok(all)
}

/// What the ledgers of all processes hold.
#[derive(Default)]
struct Ledgers {
    rows: Vec<LedgerRow>,
    gates: Vec<GateRow>,
    gates_hidden: BTreeMap<u32, u64>,
    /// Those of which anything could not be read.
    lost: u64,
}

impl Ledgers {
    fn add(&mut self, pid: u32, ledger: &Ledger, at_end: bool) {
        self.rows.extend(ledger.rows(pid, at_end));
        self.gates.extend(ledger.gates(pid));
        self.gates_hidden.insert(pid, ledger.gates_hidden());
        self.lost += u64::from(ledger.is_torn());
    }
}

/// All stacks that any row names.
fn named_stacks(seen: &Observation) -> BTreeSet<StackId> {
    let sampled = seen.waits.iter().flat_map(|row| row.stacks.iter().chain(&row.poll_stacks));
    let sampled = sampled.chain(seen.wakes.iter().flat_map(|row| &row.stacks));
    let mut ids: BTreeSet<_> =
        sampled.flat_map(|pair| [pair.kernel, pair.user]).flatten().collect();
    ids.extend(seen.futexes.iter().filter_map(|row| row.user_stack));
    ids.extend(seen.locks.iter().filter_map(|row| row.kernel_stack));
    ids.extend(seen.stalls.iter().filter_map(|row| row.kernel_stack));
    ids
}

fn read_stacks(
    [first, second]: &[MapHandle; 2],
    ids: &BTreeSet<StackId>,
) -> Result<BTreeMap<StackId, Stack>, TraceError> {
    /// As `UH_IN_MORE_STACKS`.
    const IN_SECOND: u32 = 1 << 30;
    let depth = first.value_size() as usize / 8;
    let mut stacks = BTreeMap::new();
    for id in ids {
        let map = if id.0 & IN_SECOND == 0 { first } else { second };
        let key = (id.0 & !IN_SECOND).to_ne_bytes();
        let bytes = map.lookup(&key, MapFlags::ANY).map_err(TraceError::kernel)?;
        let Some(bytes) = bytes else { continue };
        let mut reader = Reader(&bytes);
        let frames: Vec<u64> =
            (0..depth).map(|_| reader.u64()).take_while(|address| *address != 0).collect();
        let truncated = frames.len() == depth;
        stacks.insert(*id, Stack { frames, truncated });
    }
    Ok(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_records_end_in_zeros() {
        let mut reader = Reader(&[1, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!((reader.u32(), reader.i32(), reader.u64()), (1, 2, 0));
    }

    #[test]
    fn run_time_is_divided_like_ticks() {
        assert_eq!(split_run_time(1000, 3, 1), (750, 250));
        assert_eq!(split_run_time(1000, 0, 0), (1000, 0));
        assert_eq!(split_run_time(u64::MAX, u64::MAX, 0), (u64::MAX, 0));
    }

    #[test]
    fn locks_are_told_by_their_flags() {
        let kinds = [1, 3, 5, 2, 4, 8, 16 | 2, 16 | 4, 32, 0].map(lock_kind);
        use LockKind as K;
        let expected = [
            K::Spin,
            K::SpinRead,
            K::SpinWrite,
            K::SemaphoreRead,
            K::SemaphoreWrite,
            K::RealTime,
            K::PerCpu,
            K::PerCpu,
            K::Mutex,
            K::Other,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn links_of_descriptors_have_short_names() {
        let links = ["socket:[12]", "pipe:[3]", "anon_inode:[eventpoll]", "/tmp/a file", ""];
        let names = ["socket", "pipe", "[eventpoll]", "a file"].map(|name| Some(name.to_owned()));
        assert_eq!(links.map(link_name), [&names[..], &[None]].concat()[..]);
    }

    #[test]
    fn objects_keep_their_values() {
        assert_eq!(object(2, u64::from(u32::MAX)), Object::Descriptor(-1));
        let listener = Object::Socket { port: 8080, listening: true };
        assert_eq!(object(4, 8080 | 1 << 16), listener);
    }
}
