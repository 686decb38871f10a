//! Waits that are kept one by one say what the counts say.

use std::{fs, io};

use unherd_trace::observation::{EpisodeClass, WaitRow};
use unherd_trace::{Report, Symbols, TraceOptions};

use crate::session::{assert_nothing_lost, number, proven, root, sum, trace_with};

fn options(episodes: u32) -> TraceOptions {
    let mut options = TraceOptions::default();
    options.episodes = episodes;
    options
}

#[test]
fn root_episodes_add_up_to_counts() {
    let Some(_machine) = root("episodes") else { return };
    for scene in ["accept 8 200 0 0", "monitor 4 100 0 0", "look 50 0"] {
        let (seen, _) = trace_with(scene, &options(100_000));
        assert_nothing_lost(&seen);
        assert_eq!(seen.losses.episodes, 0, "{scene}");
        let of = |class| seen.episodes.iter().filter(|of| of.class == class).count() as u64;
        let rows = |count: fn(&WaitRow) -> u64| sum(&seen, count);
        assert_eq!(seen.episodes.len() as u64, seen.totals.sleeps, "{scene}");
        let ended = seen.episodes.iter().filter(|of| of.waking.is_some()).count() as u64;
        assert_eq!(ended, seen.totals.wakeups, "{scene}");
        assert_eq!(of(EpisodeClass::ProvenNeedless), proven(&seen), "{scene}");
        assert_eq!(of(EpisodeClass::PossiblyNeedless), rows(|of| of.possibly_needless), "{scene}");
        assert_eq!(of(EpisodeClass::TimerPoll), rows(|of| of.timer_polls), "{scene}");
        let deep = of(EpisodeClass::Uninterruptible);
        assert_eq!(deep, rows(|of| of.uninterruptible_sleeps), "{scene}");
        let mut waits: Vec<_> = seen
            .episodes
            .iter()
            .map(|of| (of.tid, of.began_ns, of.waking.as_ref().map_or(u64::MAX, |to| to.ran_ns)))
            .collect();
        waits.sort_unstable();
        for pair in waits.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            assert!(pair[0].2 <= pair[1].1, "{scene}: {pair:?} overlap");
        }
    }
}

#[test]
fn root_wakers_of_episodes_are_threads() {
    let Some(_machine) = root("wakers of episodes") else { return };
    let (seen, truth) = trace_with("accept 8 100 0 0", &options(100_000));
    let needless = seen.episodes.iter().filter(|of| of.class == EpisodeClass::ProvenNeedless);
    let wakers: Vec<_> = needless.map(|of| of.waking.as_ref().expect("they ended").tid).collect();
    // The scene's first thread connects; what it wakes is woken in its own context.
    let first = seen.processes[0].pid;
    let by_first = wakers.iter().filter(|tid| **tid == Some(first)).count();
    assert!(by_first * 10 >= wakers.len() * 9 && by_first > 0, "{by_first} of {wakers:?} {truth}");
}

#[test]
fn root_thread_that_executes_has_its_new_number() {
    let Some(_machine) = root("the number after exec") else { return };
    let (seen, _) = trace_with("exec", &options(1000));
    let own = seen.episodes.iter().filter(|of| of.pid == seen.processes[0].pid);
    let last = own.max_by_key(|of| of.began_ns).expect("it waits for its child");
    assert_eq!(last.tid, last.pid, "{last:?}");
}

#[test]
fn root_episodes_are_capped_and_counted() {
    let Some(_machine) = root("the cap of episodes") else { return };
    let (seen, truth) = trace_with("threads 100", &options(10));
    assert_eq!(seen.episodes.len(), 10);
    assert_eq!(seen.losses.episodes, seen.totals.sleeps - 10);
    assert!(seen.losses.episodes >= number(&truth, "naps") - 10, "{truth}");
    let (seen, _) = trace_with("threads 10", &options(0));
    assert_eq!((seen.episodes.len(), seen.losses.episodes), (0, 0));
}

/// A line of `/proc/self/status`, in bytes.
fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is in there");
    let kib: u64 = line.trim_matches([':', '\t', ' ', 'k', 'B']).parse().expect("it is a number");
    kib << 10
}

#[test]
fn root_memory_of_an_episode_is_bounded() {
    let Some(_machine) = root("the memory of episodes") else { return };
    let mut symbols = Symbols::new();
    let mut peak_bytes = |episodes| {
        // Resets the peak.
        fs::write("/proc/self/clear_refs", "5").expect("root may");
        let (seen, _) = trace_with("trips 60000", &options(episodes));
        let report = Report::new(&seen, &mut symbols);
        report.write_perfetto(&mut io::sink()).expect("it takes all");
        report.write_firefox(&mut io::sink()).expect("it takes all");
        (seen.episodes.len() as u64, status_bytes("VmHWM"))
    };
    let ((_, without), (kept, with)) = (peak_bytes(0), peak_bytes(TraceOptions::EPISODES_MAX));
    let each = with.saturating_sub(without) / kept;
    println!("{kept} waits took {each} bytes each");
    // As many as the ring holds, which nobody reads meanwhile.
    assert!(kept > 40_000 && each > 100, "{kept} {each}");
    assert!(each <= u64::from(TraceOptions::EPISODE_BYTES), "{each} bytes each");
}
