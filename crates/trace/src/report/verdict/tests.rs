use crate::advice::Waste;
use crate::observation::{Object, Observation, SampledStack, StackId, TimeSpent, WaitRow};
use crate::report::fixture::{self, observation, symbols};
use crate::report::{Finding, Report};
use crate::symbols::Symbols;

/// Whether the text has a section of what may be useful.
fn has_open_section(report: &Report) -> bool {
    let mut text = Vec::new();
    report.write_text(&mut text, true, 120, false).expect("memory takes it");
    String::from_utf8(text).expect("it is text").contains("Possible, or useful work")
}

/// The condition's waits alone, with all CPU time of the program in them and some in herds.
fn waits_at_condition(in_herds: u64, in_herds_ns: u64) -> Observation {
    let mut observation = observation();
    observation.wakes.clear();
    observation.locks.clear();
    observation.stalls.clear();
    observation.waits.retain(|row| row.possibly_needless > 1_000);
    let row = &mut observation.waits[0];
    row.possibly_needless_cpu_ns = 3_500_000_000;
    row.possibly_needless_in_herds = in_herds;
    row.possibly_needless_in_herds_cpu_ns = in_herds_ns;
    observation
}

#[test]
fn lead_cure_and_wording_agree() {
    let told = |in_herds, in_herds_ns| {
        let report = Report::new(&waits_at_condition(in_herds, in_herds_ns), &mut symbols());
        let wakes = report.findings.iter().find(|of| of.waste == Waste::NeedlessWakeups).unwrap();
        let lead = &report.verdict[0];
        let leads = lead.contains(" of CPU time (90 %) may go to needless wakeups (")
            && !lead.contains("or to useful work");
        let useful = report.verdict[1].contains("may go to needless wakeups, or to useful work");
        assert!(leads != useful, "{:?}", report.verdict);
        assert_eq!(leads, wakes.advice.is_some(), "{wakes:?}");
        leads
    };
    // All only looked; most only looked, and the others have most of the time; most computed; those
    // that only looked took next to nothing.
    assert!(told(3_480, 3_500_000_000) && told(3_000, 1_000_000_000));
    assert!(!told(1_000, 3_000_000_000) && !told(3_480, 3_000_000));
}

#[test]
fn lost_wakes_are_not_taken_for_wakes_of_one() {
    let mut observation = waits_at_condition(1_000, 3_000_000_000);
    let useful = |observation: &Observation| {
        let verdict = Report::new(observation, &mut symbols()).verdict.join("\n");
        verdict.contains("or to useful work")
    };
    assert!(useful(&observation));
    observation.losses.wakes = 1_500;
    assert!(!useful(&observation));
    // A herd of which hardly any size is left; and one that is too small with all of them.
    let told = |lost| {
        let mut observation = waits_at_condition(300, 1_000_000);
        observation.losses.wakes = lost;
        let report = Report::new(&observation, &mut symbols());
        (report.verdict.join("\n"), has_open_section(&report))
    };
    let (verdict, shown) = told(3_000);
    let unknown = "; of up to 3,000 it was lost whether others were woken, too)";
    assert!(verdict.contains(unknown) && !verdict.contains("useful") && !shown, "{verdict}");
    let (verdict, shown) = told(1_000);
    assert!(verdict.contains("or to useful work") && shown, "{verdict}");
}

#[test]
fn wakeups_at_lock_are_told_as_lock() {
    let mut symbols = Symbols::new();
    let at_lock = fixture::PERF_MAP.replace("pthread_cond_wait", "pthread_mutex_lock");
    symbols.add_perf_map(fixture::POOL, &at_lock);
    let report = Report::new(&waits_at_condition(0, 0), &mut symbols);
    let verdict = report.verdict.join("\n");
    assert!(verdict.contains("goes to waiting for locks"), "{verdict}");
    assert!(!verdict.contains("or to useful work"), "{verdict}");
    assert!(!has_open_section(&report));
    assert_eq!(report.summary.needless_wakeups.unwrap().possible, 3_480, "it remains a bound");
}

#[test]
fn ledger_is_heard_of_its_waits() {
    let told = |needless| {
        let mut observation = waits_at_condition(0, 0);
        observation.waits[0].library = true;
        let counts = &mut observation.ledgers[0].counts;
        counts.insert("needless_wakeups".to_owned(), needless);
        let report = Report::new(&observation, &mut symbols());
        (report.verdict.join("\n"), has_open_section(&report))
    };
    let (verdict, shown) = told(0);
    assert!(verdict.contains("none proven, 0 in all by the program's own ledger"), "{verdict}");
    assert!(!shown);
    let (verdict, shown) = told(1_200);
    let expected = "(0 to 3,480 of the 4,000 wakeups there, none proven, 1,200 in all by the \
                    program's own ledger; ";
    assert!(verdict.contains(expected) && verdict.contains("may go to"), "{verdict}");
    assert!(!shown, "twelve times as many as it counts wakeups: so it leads");
}

/// Threads that poll one pipe by an array each: one object, which their herds are named by, too.
#[test]
fn arrays_of_one_pipe_are_one_object() {
    let mut observation = observation();
    let server = observation.waits[0].clone();
    observation.waits = [(0x1000, "pipe (fd 4)"), (0x2000, "pipe (fd 4)"), (0x3000, "pipe (fd 5)")]
        .into_iter()
        .map(|(array, name)| WaitRow {
            object: Object::Set(array),
            object_name: Some(name.to_owned()),
            ..server.clone()
        })
        .collect();
    observation.wakes.truncate(1);
    observation.wakes[0].object = Object::Set(0x2000);
    let report = Report::new(&observation, &mut symbols());
    let found = report.findings.iter().find(|of| of.waste == Waste::NeedlessWakeups);
    let object = &found.expect("all three are woken in vain").object;
    assert!(object == "pipe (fd 4) and another" || object == "pipe (fd 5) and another", "{object}");
    assert_eq!(report.herds.expect("they are judged")[0].object, "pipe (fd 4)");
}

/// The library's cache has O_DIRECT already.
#[test]
fn locks_of_inodes_are_told_as_caches_have_them() {
    let advised = |observation: &Observation| {
        let inode = fixture::KALLSYMS.replace("do_user_addr_fault", "ext4_dio_write_iter");
        let report = Report::new(observation, &mut Symbols::new().with_kallsyms(&inode));
        let of = |found: &&Finding| found.site.function == "ext4_dio_write_iter";
        report.findings.iter().find(of).and_then(|found| found.advice).expect("a rule fits").text
    };
    let mut observation = observation();
    assert!(
        advised(&observation).contains("File::allocate") && !advised(&observation).contains("O_D")
    );
    observation.ledgers[0].reason = "queue".to_owned();
    assert!(advised(&observation).contains("O_DIRECT into space already there"));
    observation.ledgers.clear();
    assert!(advised(&observation).contains("O_DIRECT into space already there"));
}

/// Their CPU time is a bound, and what is longer than a look does not count in the ranking.
#[test]
fn polls_rank_by_what_a_look_takes() {
    let told = |count| {
        let mut observation = observation();
        let polls = observation.waits.iter_mut().find(|row| row.timer_polls > 0).unwrap();
        (polls.timer_polls, polls.timer_poll_cpu_ns) = (count, 1_950_000_000);
        let report = Report::new(&observation, &mut symbols());
        let mut text = Vec::new();
        report.write_text(&mut text, false, 200, false).expect("memory takes it");
        let text = String::from_utf8(text).expect("it is text");
        (report.findings[0].waste, serde_json::to_value(&report).unwrap(), text)
    };
    // 13 µs each, then 32, beside needless wakeups of 1.20 to 1.46 s in all.
    let (first, json, text) = told(150_000);
    assert_eq!(first, Waste::TimerPolls);
    let cost = &json["findings"][0]["cost"];
    assert_eq!((cost["ns_low"].as_u64(), cost["ns_high"].as_u64()), (Some(0), Some(1_950_000_000)));
    assert!(json["findings"][0]["likely_share"].as_f64().unwrap() < 0.8);
    assert!(text.starts_with("Up to 1.95 s of the program's"), "{text}");
    assert!(text.contains("150,000, 0 to 50 % of the program's CPU time; clock_nanos"), "{text}");
    let row = text.lines().find(|line| line.starts_with("  timer polls")).unwrap();
    assert!(row.contains("0 to 1.95 s") && row.ends_with("0 to 50 %"), "{row}");
    assert_eq!(told(60_000).0, Waste::NeedlessWakeups);
}

/// Where others sleep in the same call, the verdict is about the polls alone.
#[test]
fn polls_are_told_where_they_are_made() {
    let mut observation = observation();
    observation.waits.retain(|row| row.timer_polls > 0);
    observation.wakes.clear();
    observation.futexes.clear();
    observation.locks.clear();
    observation.stalls.clear();
    let row = &mut observation.waits[0];
    row.timer_poll_cpu_ns = 16_000_000;
    (observation.totals.user_ns, observation.totals.system_ns) = (0, 200_000_000);
    let verdict = |observation: &Observation| Report::new(observation, &mut symbols()).verdict;
    assert!(verdict(&observation)[1].contains("from poll_for_work [jit]"));
    let row = &mut observation.waits[0];
    row.poll_stacks = vec![SampledStack { kernel: None, user: Some(StackId(12)), count: 898 }];
    row.poll_stack_samples = 40;
    let [first, second, ..] = &verdict(&observation)[..] else { panic!("two lines") };
    let meant =
        "may go to polling by timer, or to short work in memory (898 of 899 wakeups in that call).";
    assert!(first.ends_with(meant), "{first}");
    assert!(!second.contains("poll_for_work"), "{second}");
    assert!(second.ends_with("; by samples, 91 to 100 % of the polls are there."), "{second}");
    let row = &mut observation.waits[0];
    let other = SampledStack { kernel: None, user: Some(StackId(13)), count: 298 };
    (row.poll_stacks[0].count, row.poll_stack_samples) = (600, 898);
    row.poll_stacks.push(other);
    let second = &verdict(&observation)[1];
    assert!(second.ends_with("; 67 % of the polls are there."), "each was looked at: {second}");
}

/// Waits of one call and site poll at two places, and one of these is that of a third wait.
#[test]
fn polls_are_put_together_by_their_place() {
    let mut observation = observation();
    let poll = observation.waits.iter().find(|row| row.timer_polls > 0).unwrap().clone();
    let stack = |id| vec![SampledStack { kernel: None, user: Some(StackId(id)), count: 8 }];
    let row = |descriptor, sleeps_at, polls_at, polls: u64| WaitRow {
        object: Object::Descriptor(descriptor),
        stacks: stack(sleeps_at),
        poll_stacks: stack(polls_at),
        poll_stack_samples: polls,
        timer_polls: polls,
        timer_poll_ns: polls * 1_000_000,
        ..poll.clone()
    };
    observation.waits = vec![row(5, 13, 12, 300), row(6, 13, 14, 200), row(7, 11, 14, 100)];
    let report = Report::new(&observation, &mut symbols());
    let polls = report.findings.iter().filter(|of| of.waste == Waste::TimerPolls);
    let mut polls: Vec<_> =
        polls.map(|of| (&*of.site.function, of.count.possible, &*of.object)).collect();
    polls.sort_unstable();
    let expected =
        [("pool::queue::pop", 300, "fd 5"), ("pool::queue::push", 300, "fd 6 and another")];
    assert_eq!(polls, expected);
}

/// A program with fewer threads than there are processors waits for other programs.
#[test]
fn processors_that_others_have_are_told() {
    let advised = |threads| {
        let mut observation = observation();
        let by_class_ns = [40, 60, 0, 0, 0, 0, 0, 0, 0];
        observation.time = TimeSpent { wall_ns: 100, by_class_ns };
        observation.totals.threads = threads;
        let report = Report::new(&observation, &mut symbols());
        let found = report.findings.iter().find(|of| of.waste == Waste::NoProcessor);
        found.and_then(|of| of.advice).expect("it is most of the time").pattern
    };
    assert_eq!(advised(3), "more threads than processors");
    assert_eq!(advised(2), "busy machine");
}

#[test]
fn small_gains_are_left_out_beside_larger() {
    let told = |observation: &Observation| {
        let mut text = Vec::new();
        let report = Report::new(observation, &mut symbols());
        report.write_text(&mut text, true, 0, false).expect("memory takes it");
        let text = String::from_utf8(text).expect("it is text");
        text[text.find("What to try").expect("there is a cure")..].to_owned()
    };
    let mut observation = observation();
    let all = told(&observation);
    assert!(all.contains("\n  … and 3 that cost less than 1 % each\n"), "{all}");
    assert!(!all.contains(". polling by timer"), "{all}");
    observation.waits.retain(|row| row.timer_polls > 0);
    observation.wakes.clear();
    observation.locks.clear();
    observation.stalls.clear();
    let alone = told(&observation);
    assert!(alone.contains("\n  1. polling by timer: 898"), "{alone}");
    assert!(!alone.contains("that cost less than"), "{alone}");
}
