use super::*;

const LISTENER: Object = Object::Socket { port: 80, listening: true };
const STREAM: Object = Object::Socket { port: 80, listening: false };
const WORD: Object = Object::Futex(0x1000);

fn pattern(
    waste: Waste,
    call: &str,
    (comm, function): (&str, &str),
    object: Object,
    herd: Option<Object>,
) -> &'static str {
    let symptom = Symptom { waste, call, comm, function, object, herd, through: None };
    advice(&symptom).map_or("none", |advice| advice.pattern)
}

/// Of a futex that a library's primitive uses.
fn through(waste: Waste, primitive: Primitive) -> &'static str {
    let (comm, function, object) = ("server", "worker", WORD);
    let through = Some(primitive);
    let symptom =
        Symptom { waste, call: "futex", comm, function, object, herd: Some(WORD), through };
    advice(&symptom).map_or("none", |advice| advice.pattern)
}

#[test]
fn every_rule_is_reached() {
    use Waste::*;
    let descriptor = Object::Descriptor(4);
    let nobody = ("server", "worker");
    let cases: [(&str, &str); 32] = [
        ("lock that is waited for", pattern(LockWaits, "futex", nobody, WORD, None)),
        (
            "sleep after the lock was free",
            pattern(OverSleeps, "nanosleep", nobody, Object::None, None),
        ),
        ("more threads than processors", pattern(NoProcessor, "", nobody, Object::None, None)),
        ("shared listener", pattern(KernelLocks, "", ("", "inet_csk_accept"), Object::None, None)),
        (
            "accept herd of nginx",
            pattern(
                NeedlessWakeups,
                "epoll_wait",
                ("nginx", "ngx_epoll"),
                descriptor,
                Some(STREAM),
            ),
        ),
        (
            "accept herd in epoll",
            pattern(NeedlessWakeups, "epoll_pwait", nobody, descriptor, Some(LISTENER)),
        ),
        (
            "accept herd in poll",
            pattern(NeedlessWakeups, "select", nobody, Object::Set(1), Some(LISTENER)),
        ),
        ("herd in epoll", pattern(NeedlessWakeups, "epoll_wait", nobody, descriptor, Some(STREAM))),
        ("herd in poll", pattern(NeedlessWakeups, "poll", nobody, Object::Set(1), Some(STREAM))),
        ("broadcast", pattern(NeedlessWakeups, "futex", nobody, WORD, Some(WORD))),
        ("broadcast", pattern(Herd, "futex", nobody, WORD, None)),
        ("several readers", pattern(NeedlessWakeups, "recvfrom", nobody, descriptor, None)),
        ("wakeups for another key", pattern(NeedlessWakeups, "futex", nobody, WORD, None)),
        ("events for nobody", pattern(NeedlessWakeups, "epoll_wait", nobody, descriptor, None)),
        ("children of others", pattern(NeedlessWakeups, "wait4", nobody, Object::None, None)),
        ("herd", pattern(Herd, "write", nobody, descriptor, None)),
        ("interpreter lock", through(TimerPolls, Primitive::InterpreterLock)),
        ("contended lock", through(RefusedWaits, Primitive::Lock)),
        ("frequent hand-over", through(EmptyWakes, Primitive::Condition)),
        ("wake without a waiter", pattern(EmptyWakes, "futex", nobody, WORD, None)),
        ("value changed before the wait", pattern(RefusedWaits, "futex", nobody, WORD, None)),
        ("wake after wake", pattern(RedundantWakes, "write", nobody, descriptor, None)),
        ("event loop with a tick", pattern(TimerPolls, "epoll_wait", nobody, descriptor, None)),
        ("condition with a tick", pattern(TimerPolls, "futex", nobody, WORD, None)),
        ("sleep and look", pattern(TimerPolls, "clock_nanosleep", nobody, Object::None, None)),
        ("short sleeps", pattern(ShortSleeps, "futex", nobody, WORD, None)),
        ("address space", pattern(KernelLocks, "", ("", "vm_mmap_pgoff"), Object::None, None)),
        ("futex buckets", pattern(KernelLocks, "", ("", "futex_wake"), Object::None, None)),
        ("shared epoll", pattern(KernelLocks, "", ("", "ep_poll_callback"), Object::None, None)),
        (
            "writers of one file",
            pattern(KernelLocks, "", ("", "ext4_file_write_iter"), Object::None, None),
        ),
        ("kernel lock", pattern(KernelLocks, "", ("", "pipe_write"), Object::None, None)),
        ("dirty pages", pattern(Stalls, "", ("", "write-back of dirty pages"), Object::None, None)),
    ];
    for (expected, found) in cases {
        assert_eq!(found, expected);
    }
    let memory = pattern(Stalls, "", ("", "direct reclaim"), Object::None, None);
    assert_eq!(memory, "short of memory");
    let reached = |rule: &Rule| {
        rule.pattern == memory || cases.iter().any(|(pattern, _)| *pattern == rule.pattern)
    };
    assert!(LIBRARIES.iter().chain(WAKEUPS).chain(CALLS).chain(SLEEPS).chain(KERNEL).all(reached));
}

#[test]
fn what_has_no_known_cure_gets_none() {
    assert_eq!(pattern(Waste::NeedlessWakeups, "semop", ("", ""), Object::None, None), "none");
}

#[test]
fn barriers_need_no_cure() {
    assert_eq!(through(Waste::NeedlessWakeups, Primitive::Barrier), "none");
    assert_eq!(through(Waste::NeedlessWakeups, Primitive::Condition), "broadcast");
}
