//! An observation with something in each table: a server with an accept herd, a condition variable
//! that is broadcast, wake calls without waiters, a poll loop, kernel locks, stalls, samples and a
//! ledger.

use std::collections::BTreeMap;

use crate::observation::*;
use crate::symbols::Symbols;

const SERVER: u32 = 4_000_000_100;
pub(super) const POOL: u32 = 4_000_000_200;
const LISTENER: Object = Object::Socket { port: 8080, listening: true };
pub(super) const CONDITION: u64 = 0x7f00_0000_1000;

pub(super) const KALLSYMS: &str = "\
ffffffff81000000 T __schedule
ffffffff81000400 T schedule
ffffffff81000500 T schedule_hrtimeout_range_clock
ffffffff81000600 t ep_poll
ffffffff81000a00 T do_epoll_wait
ffffffff81000c00 t futex_wait_queue
ffffffff81000d00 T futex_wait
ffffffff81000f00 T futex_wake
ffffffff81001100 T do_nanosleep
ffffffff81001200 T _raw_spin_lock
ffffffff81001280 T rwsem_down_read_slowpath
ffffffff81001400 T do_user_addr_fault
ffffffff81001800 T finish_task_switch
ffffffff81001a00 T do_syscall_64
ffffffff81001b00 T entry_SYSCALL_64_after_hwframe
ffffffff81001c00 T exc_page_fault
ffffffff81001d00 T shrink_node
ffffffff81001f00 T io_schedule
ffffffff81002000 T folio_wait_bit
ffffffff81002400 T sock_def_readable
ffffffff81002600 T asm_exc_page_fault
ffffffff81003000 T the_end
";

pub(super) const PERF_MAP: &str = "\
500000 100 worker_loop
500100 80 main
500200 40 pthread_cond_wait
500300 100 pool::queue::pop
500400 60 pool::queue::push
500500 60 <unherd_sync::wait_table::WaitTable<K>>::wait
500600 80 poll_for_work
";

fn kernel(offset: u64) -> u64 {
    0xffff_ffff_8100_0000 + offset
}

pub(super) fn symbols() -> Symbols {
    let mut symbols = Symbols::new().with_kallsyms(KALLSYMS);
    symbols.add_perf_map(SERVER, PERF_MAP);
    symbols.add_perf_map(POOL, PERF_MAP);
    symbols
}

fn wait(pid: u32, syscall: i64, object: Object, stacks: (u32, u32)) -> WaitRow {
    let (kernel, user) = (Some(StackId(stacks.0)), Some(StackId(stacks.1)));
    WaitRow {
        pid,
        syscall: Some(u32::try_from(syscall).unwrap()),
        object,
        stacks: vec![SampledStack { kernel, user, count: 8 }],
        ..WaitRow::default()
    }
}

fn waits() -> Vec<WaitRow> {
    let worker = |number: i32| WaitRow {
        object_name: Some("anon_inode:[eventpoll]".into()),
        sleeps: 540,
        asleep_ns: 9_000_000_000,
        wakeups: 532,
        needless_in_call: 455,
        needless_again: 6,
        possibly_needless: 2,
        possibly_needless_in_herds: 2,
        possibly_needless_in_herds_cpu_ns: 16_000_000,
        needless_cpu_ns: 75_000_000,
        possibly_needless_cpu_ns: 16_000_000,
        ..wait(SERVER, libc::SYS_epoll_pwait, Object::Descriptor(number), (1, 11))
    };
    let mut rows: Vec<WaitRow> = (5..21).map(worker).collect();
    rows.push(WaitRow {
        sleeps: 4_000,
        asleep_ns: 20_000_000_000,
        wakeups: 4_000,
        redundant_wakes: 12,
        needless_in_call: 0,
        possibly_needless: 3_480,
        possibly_needless_in_herds: 3_480,
        possibly_needless_in_herds_cpu_ns: 90_000_000,
        possibly_needless_cpu_ns: 90_000_000,
        short_sleeps: 25,
        ..wait(POOL, libc::SYS_futex, Object::Futex(CONDITION), (2, 12))
    });
    rows.push(WaitRow {
        sleeps: 900,
        asleep_ns: 9_000_000_000,
        wakeups: 899,
        timer_wakeups: 899,
        timer_polls: 898,
        timer_poll_ns: 8_990_000_000,
        timer_poll_cpu_ns: 8_000_000,
        ..wait(POOL, libc::SYS_clock_nanosleep, Object::None, (3, 13))
    });
    rows.push(WaitRow {
        library: true,
        sleeps: 100,
        asleep_ns: 50_000_000,
        wakeups: 100,
        ..wait(POOL, libc::SYS_futex, Object::Futex(CONDITION + 64), (2, 15))
    });
    rows.push(WaitRow {
        syscall: None,
        uninterruptible_sleeps: 40,
        uninterruptible_ns: 80_000_000,
        ..wait(SERVER, 0, Object::None, (4, 11))
    });
    rows
}

fn wakes() -> Vec<WakeRow> {
    let herd = |pid, cause, object, herds, largest| WakeRow {
        pid,
        cause,
        object,
        events: herds + 4,
        woken: herds * largest + 4,
        herds,
        herd_woken: herds * largest,
        largest,
        herd_needless: 0,
        herd_possibly: 0,
        herd_needless_cpu_ns: 0,
        waited_ns: 0,
        holders_asleep_ns: 0,
        asleep_in: None,
        stacks: Vec::new(),
    };
    let stack = SampledStack { kernel: None, user: Some(StackId(14)), count: 5 };
    vec![
        WakeRow {
            herd_needless: 7_300,
            herd_possibly: 32,
            herd_needless_cpu_ns: 1_400_000_000,
            ..herd(None, WakeCause::Interrupt, LISTENER, 500, 16)
        },
        WakeRow {
            herd_possibly: 3_480,
            herd_needless_cpu_ns: 90_000_000,
            stacks: vec![stack],
            ..herd(
                Some(POOL),
                WakeCause::Call(u32::try_from(libc::SYS_futex).unwrap()),
                Object::Futex(CONDITION),
                500,
                8,
            )
        },
        herd(None, WakeCause::Timer, Object::None, 3, 2),
    ]
}

pub(super) fn futex(kind: FutexKind, word: u64, stack: u32) -> FutexRow {
    FutexRow {
        pid: POOL,
        kind,
        word,
        user_stack: Some(StackId(stack)),
        library: false,
        outcomes: Outcomes::default(),
    }
}

fn futexes() -> Vec<FutexRow> {
    let told = Outcomes {
        calls: 10_000,
        woke_none: 9_000,
        woke_one: 500,
        woke_many: 500,
        woken: 4_500,
        ..Outcomes::default()
    };
    let untold = Outcomes { calls: 2_000, woke_none: 2_000, ..Outcomes::default() };
    let waits = Outcomes {
        calls: 4_700,
        slept: 4_000,
        refused: 650,
        timed_out: 49,
        interrupted: 1,
        ..Outcomes::default()
    };
    vec![
        FutexRow { outcomes: told, ..futex(FutexKind::Wake, CONDITION, 14) },
        FutexRow { outcomes: untold, ..futex(FutexKind::Wake, CONDITION + 128, 14) },
        FutexRow { outcomes: waits, ..futex(FutexKind::Wait, CONDITION, 12) },
    ]
}

fn stacks() -> BTreeMap<StackId, Stack> {
    let entry = [kernel(0x1a20), kernel(0x1b10)];
    let kernel_stacks: [(u32, Vec<u64>); 8] = [
        (1, vec![kernel(0x10), kernel(0x410), kernel(0x510), kernel(0x610), kernel(0xa10)]),
        (2, vec![kernel(0x10), kernel(0x410), kernel(0xc10), kernel(0xd10)]),
        (3, vec![kernel(0x10), kernel(0x410), kernel(0x1110)]),
        (4, vec![kernel(0x10), kernel(0x1f10), kernel(0x2010), kernel(0x1410), kernel(0x1c10)]),
        (5, vec![kernel(0x1210), kernel(0xf10)]),
        (6, vec![kernel(0x1290), kernel(0x1410), kernel(0x1c10), kernel(0x2610)]),
        (7, vec![kernel(0x1d10), kernel(0x1410), kernel(0x1c10)]),
        (8, vec![kernel(0x1810), kernel(0x10), kernel(0x410)]),
    ];
    let user_stacks: [(u32, Vec<u64>); 6] = [
        (11, vec![0x50_0010, 0x50_0110]),
        (12, vec![0x50_0210, 0x50_0310, 0x50_0110]),
        (13, vec![0x50_0610, 0x50_0110]),
        (14, vec![0x50_0410, 0x50_0110]),
        (15, vec![0x50_0510, 0x50_0310]),
        (16, vec![0x66_6666]),
    ];
    let kernel_side = kernel_stacks.into_iter().map(|(id, mut frames)| {
        frames.extend(entry.iter().filter(|_| id != 6 && id != 7 && id != 4));
        (StackId(id), Stack { frames, truncated: false })
    });
    let user_side = user_stacks
        .into_iter()
        .map(|(id, frames)| (StackId(id), Stack { frames, truncated: id == 12 }));
    kernel_side.chain(user_side).collect()
}

fn samples() -> Samples {
    let user = |pid, id, count| SampleRow {
        pid,
        kernel: None,
        user: Some(StackId(id)),
        in_kernel: false,
        count,
    };
    let kernel = |id, count| SampleRow {
        pid: SERVER,
        kernel: Some(StackId(id)),
        user: Some(StackId(11)),
        in_kernel: true,
        count,
    };
    let rows = vec![user(SERVER, 11, 210), user(POOL, 16, 5), kernel(8, 320), kernel(5, 88)];
    Samples { rows, hertz: 199, delivered: 3_423, expected: 3_980, idle: 2_800 }
}

fn locks() -> Vec<LockRow> {
    let lock = |kind, stack, count, total_ns, longest_ns| LockRow {
        kind,
        kernel_stack: Some(StackId(stack)),
        count,
        total_ns,
        longest_ns,
    };
    vec![
        lock(LockKind::Spin, 5, 1_200, 3_000_000, 40_000),
        lock(LockKind::SemaphoreRead, 6, 310, 450_000_000, 12_000_000),
    ]
}

fn stalls() -> Vec<StallRow> {
    let stall = |kind, count, total_ns, longest_ns| StallRow {
        kind,
        count,
        total_ns,
        longest_ns,
        kernel_stack: Some(StackId(7)),
    };
    vec![
        stall(StallKind::DirectReclaim, 12, 230_000_000, 60_000_000),
        stall(StallKind::Throttled(2), 3, 300_000_000, 100_000_000),
    ]
}

/// A gate at which nothing has happened for a second.
fn gate() -> GateRow {
    let waiter = GateWaiter { thread: 203, reason: "page-read".into(), since_ns: 9_700_000_000 };
    GateRow {
        pid: POOL,
        reason: "writeback".into(),
        waiters: vec![waiter],
        waiting: 1,
        changed_ns: 4_000_000_000,
        progressed_ns: Some(9_000_000_000),
        untrusted: 2,
        is_trusted: true,
        overdue: 5,
        read_ns: 10_000_000_000,
    }
}

/// A wait of two threads of a herd, a broadcast, a poll, a page fault, and a wait that goes on.
fn episodes() -> Vec<Episode> {
    let call = |number: i64| u32::try_from(number).ok();
    let episode = |(pid, tid), syscall, object, class, began_ns| Episode {
        pid,
        tid,
        syscall,
        object,
        class,
        began_ns,
        waking: None,
    };
    let by = |cause, object, woken_ns| {
        Some(Waking { woken_ns, ran_ns: woken_ns + 20_000, tid: None, pid: None, cause, object })
    };
    let worker = |tid: i32, class| Episode {
        waking: by(WakeCause::Interrupt, LISTENER, 3_000_000_000),
        ..episode(
            (SERVER, 100 + tid as u32),
            call(libc::SYS_epoll_pwait),
            Object::Descriptor(tid),
            class,
            2_000_000_000,
        )
    };
    let condition = Object::Futex(CONDITION);
    let futex = call(libc::SYS_futex);
    let (pushed, napped) = ((POOL, 201), (POOL, 202));
    let by_push = by(WakeCause::Call(futex.unwrap()), condition, 2_500_000_000);
    let by_push = by_push.map(|of| Waking { tid: Some(202), pid: Some(POOL), ..of });
    vec![
        worker(5, EpisodeClass::ProvenNeedless),
        worker(6, EpisodeClass::NotNeedless),
        Episode {
            waking: by_push,
            ..episode(pushed, futex, condition, EpisodeClass::PossiblyNeedless, 2_400_000_000)
        },
        Episode {
            waking: by(WakeCause::Timer, Object::None, 2_450_000_000),
            ..episode(
                napped,
                call(libc::SYS_clock_nanosleep),
                Object::None,
                EpisodeClass::TimerPoll,
                2_440_000_000,
            )
        },
        Episode {
            waking: by(WakeCause::Interrupt, Object::None, 4_000_000_000),
            ..episode(
                (SERVER, 105),
                None,
                Object::None,
                EpisodeClass::Uninterruptible,
                3_900_000_000,
            )
        },
        // As it came just before its end: it began where the last one of its thread ended.
        episode(pushed, futex, condition, EpisodeClass::Unjudged, 2_500_020_000),
    ]
}

/// See the top of the file.
pub(super) fn observation() -> Observation {
    let process = |pid, comm: &str| Process { pid, comm: comm.into(), ..Process::default() };
    let counts =
        [("waits", 100), ("wakeups", 100), ("needless_wakeups", 0), ("asleep_ns", 49_000_000)];
    let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    Observation {
        began_ns: 1_000_000_000,
        ended_ns: 11_000_000_000,
        cpus: 2,
        processes: vec![process(SERVER, "server"), process(POOL, "pool")],
        waits: waits(),
        wakes: wakes(),
        futexes: futexes(),
        locks: locks(),
        stalls: stalls(),
        stacks: stacks(),
        time: TimeSpent::default(),
        threads: Vec::new(),
        totals: Totals {
            added: AddedPrices::default(),
            user_ns: 1_390_000_000,
            system_ns: 2_500_000_000,
            sleeps: 13_680,
            preemptions: 812,
            wakeups: 13_511,
            threads: 26,
            calls: 91_234,
            switch_round_trip_ns: 5_100,
            futex_call_ns: 300,
            machine_idle_ns: 15_700_000_000,
        },
        losses: Losses {
            waits: 3,
            stacks_wanted: 5_000,
            stacks_lost: 12,
            open_episodes: 26,
            map_bytes: 38 << 20,
            ..Losses::default()
        },
        missing: vec![Missing {
            tracepoint: "mm_vmscan_throttled".into(),
            consequence: "throttling in reclaim is not seen".into(),
        }],
        samples: Some(samples()),
        ledgers: vec![LedgerRow { pid: POOL, reason: "page-read".into(), counts, at_end: true }],
        gates: vec![gate()],
        gates_hidden: BTreeMap::new(),
        episodes: episodes(),
    }
}
