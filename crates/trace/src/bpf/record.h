/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * What passes between the programs and user space: keys and values of the maps. `collect.rs` reads
 * the same bytes field by field, and a test in `programs.rs` has the sizes. All fields are aligned
 * by hand: a key may have no padding, which would be compared.
 */
#ifndef UNHERD_RECORD_H
#define UNHERD_RECORD_H

#define UH_SYSCALLS 512

/* What an object is. */
enum uh_kind {
	UH_NONE = 0,
	UH_FUTEX = 1,      /* value: the word's address, rounded down to 8 bytes */
	UH_DESCRIPTOR = 2, /* value: the descriptor */
	UH_SET = 3,        /* value: the array's address */
	UH_PARKER = 5,     /* as UH_FUTEX, of our library: the call bears its mark */
	UH_SOCKET = 4,     /* value: the local port, and UH_LISTENING */
};
#define UH_LISTENING (1ULL << 16)

/* What a system call is, as `syscalls.rs` has it. */
struct uh_class {
	u8 object; /* enum uh_kind: what to take for its object */
	u8 arg;    /* from which argument */
	u8 family; /* calls that wait for the same in other words have one family */
	u8 flags;  /* enum uh_class_flag */
	u8 futex;  /* enum uh_futex_entry */
	u8 nonempty; /* 1 + the argument that must not be 0 for there to be an object */
	u8 pad[2];
};
enum uh_class_flag {
	UH_LOOKS_AGAIN = 1, /* it sleeps again only if a look found nothing */
	UH_NEUTRAL = 2,     /* never progress */
	UH_CONSUMES = 4,    /* progress if it returns more than 0; others: at least 0 */
	UH_RESTART = 8,     /* goes on with the interrupted call */
	UH_POLLS = 16,      /* waits for any of several descriptors */
	UH_LOOKS = 64,      /* neutral, but not a failure where it succeeds */
	UH_FOR_NOBODY = 128, /* progress, but nothing is done for anybody by it */
	UH_LEDGER = 32,     /* a ledger may be noticed by it; the family says which it is */
};
/* Families that the programs know by name. */
enum uh_family {
	UH_EPOLL = 2,
	UH_MEMORY_FILE = 32,
	UH_MAP = 33,
	UH_FILE_LOCK = 34,
	UH_CHILD = 35,
};
enum uh_futex_entry {
	UH_FUTEX_BY_OP = 1,
	UH_FUTEX_WAITV = 2,
	UH_FUTEX_WAKE = 3,
	UH_FUTEX_WAIT = 4,
	UH_FUTEX_REQUEUE = 5,
};

struct uh_settings {
	struct uh_class classes[UH_SYSCALLS];
	u64 round_trip_ns; /* sleeps that are shorter count as short */
	u32 first_stacks;  /* so often a row is sampled each time, before it is by chance */
	u32 next_child;    /* follow what the loading thread forks next */
	u64 futex_rows;    /* rows by stack; what comes later is counted by word alone */
	u64 episodes;      /* the number that is kept one by one */
	u32 exit_has_memory; /* sched_process_exit comes before the memory goes */
	u32 sees_calls; /* sys_exit is listened to; else no call is known to end, nothing is judged */
	s64 exit_group; /* the number of that call */
	u64 untold; /* for tests: of this many switches to threads one is passed over; 0: none */
};

/* Waits: one row for each process, call and object. */
struct uh_wait_key {
	u64 value;
	u32 pid;
	s32 nr; /* -1: outside of any call */
	u32 kind;
	u32 pad;
};
enum uh_wait_count {
	UH_SLEEPS,
	UH_DEEP_SLEEPS, /* uninterruptible */
	UH_ASLEEP_NS,
	UH_DEEP_NS,
	UH_WAKEUPS,
	UH_TIMER_WAKEUPS,
	UH_REDUNDANT,
	UH_IN_CALL,
	UH_AGAIN,
	UH_POSSIBLE,
	UH_POSSIBLE_HERD,
	UH_NEEDLESS_NS,
	UH_POSSIBLE_NS,
	UH_POSSIBLE_HERD_NS,
	UH_TIMER_POLLS,
	UH_TIMER_POLL_NS,
	UH_TIMER_POLL_CPU_NS,
	UH_SHORT,
	UH_OVERSLEPT,    /* the file lock that is then had was free before the timer ended */
	UH_OVERSLEPT_NS, /* for so long */
	UH_WAIT_COUNTS,
};
/* What a descriptor, or the first of a set, was when it was first waited for. */
struct uh_file {
	u16 mode; /* its inode's; 0: not known */
	u16 port; /* a socket's */
	u32 listening;
	char name[32];
	u32 descriptor; /* of a set */
	u32 others;     /* in it */
};
struct uh_wait_row {
	u64 id;
	u64 stacks; /* samples taken */
	u64 poll_stacks; /* and of timer polls */
	u64 counts[UH_WAIT_COUNTS];
	struct uh_file file;
};

/* Wakes: one row for each waking process, context and object. */
enum uh_cause {
	UH_BY_CALL = 0,
	UH_BY_TIMER = 1,
	UH_BY_INTERRUPT = 2,
	UH_BY_OTHER = 3,
};
struct uh_wake_key {
	u64 value;
	u32 pid; /* 0: not followed */
	s32 nr;
	u32 cause;
	u32 kind;
};
enum uh_wake_count {
	UH_EVENTS,
	UH_WOKEN,
	UH_HERDS,
	UH_HERD_WOKEN,
	UH_LARGEST, /* a maximum; two processors at once may lose the smaller of two records */
	UH_HERD_NEEDLESS,
	UH_HERD_POSSIBLE,
	UH_HERD_NS,
	UH_WAITED_NS,         /* of a futex: how long the first that each event woke had slept */
	UH_HOLDERS_ASLEEP_NS, /* and for how much of that its holders had */
	UH_WAKE_COUNTS,
};
struct uh_wake_row {
	u64 id;
	u64 counts[UH_WAKE_COUNTS];
	/* Where a holder slept longest before it gave back: for how long, the id of that row. */
	u64 longest_ns;
	u64 longest_row;
	s32 longest_nr;
	u32 pad;
};

/* What became of an episode. */
enum uh_episode_class {
	UH_UNJUDGED = 0, /* it was not over, or calls were not seen */
	UH_NOT_NEEDLESS = 1,
	UH_POSSIBLY_NEEDLESS = 2,
	UH_PROVEN_NEEDLESS = 3,
	UH_TIMER_POLL = 4,
	UH_UNINTERRUPTIBLE = 5,
};
/* One episode, from its sleep on. */
struct uh_episode {
	struct uh_wait_key at;
	struct uh_wake_key waker;
	u64 began_ns;
	u64 woken_ns; /* 0: not yet */
	u64 ran_ns;   /* and ran again */
	u32 tid;
	u32 waker_tid; /* 0: not followed */
	u32 class;
	u32 pad;
};

/* In the id of a stack: it is in the second map. */
#define UH_IN_MORE_STACKS (1 << 30)

/* In the id of a row: its timer polls alone. */
#define UH_OF_POLLS (1ULL << 63)

/* A pair of stacks that was met at the row with this id. Below 0: not known. */
struct uh_pair_key {
	u64 row;
	s32 kernel;
	s32 user;
};
struct uh_pair {
	u64 weight;  /* what its samples stand for */
	u64 met;     /* their number */
	u64 squares; /* and the sum of the squares of what each stands for */
};

/* The top of a user stack with the registers to unwind it. */
#define UH_COPY_BYTES 16384
enum uh_copy_kind {
	UH_COPY_SLEEP = 0,
	UH_COPY_WAKE = 1,
	UH_COPY_FUTEX = 2,
	UH_COPY_KINDS = 3,
};
struct uh_copy {
	/* Of a futex call: the word in place of a row, the kind in place of a kernel stack. */
	struct uh_pair_key pair;
	u32 pid;
	u32 kind;
	u32 stands_for; /* what this sample of the pair stands for, and those up to the next copy */
	u32 bytes;      /* of the stack, from sp on */
	u64 ip;
	u64 sp;
	u64 fp;
	u64 lr;
	u8 stack[UH_COPY_BYTES];
};
/* How many of each kind a processor has made in this second, and of all kinds ever. */
struct uh_copying {
	u64 began_ns[UH_COPY_KINDS];
	u64 taken[UH_COPY_KINDS];
	u64 copies;
	u64 bytes;
	u64 lost;
};

/* Futex calls. */
enum uh_futex_kind {
	UH_F_NONE = 0,
	UH_F_WAIT = 1,
	UH_F_WAIT_MANY = 2,
	UH_F_WAKE = 3,
	UH_F_REQUEUE = 4,
	UH_F_LOCK_PI = 5,
	UH_F_PARKER = 0x80, /* or'ed to these: our library's */
};
struct uh_futex_key {
	u64 word;
	u32 pid;
	s32 user_stack;
	u32 kind;
	u32 pad;
};
enum uh_futex_count {
	UH_F_CALLS,
	UH_F_WOKE_NONE,
	UH_F_WOKE_ONE,
	UH_F_WOKE_MANY,
	UH_F_WOKEN,
	UH_F_SLEPT,
	UH_F_REFUSED,
	UH_F_TIMED_OUT,
	UH_F_INTERRUPTED,
	UH_F_FAILED,
	UH_FUTEX_COUNTS,
};
struct uh_futex_row {
	u64 counts[UH_FUTEX_COUNTS];
};

/* Kernel locks, by the flags of their tracepoint. */
struct uh_lock_key {
	u32 flags;
	s32 kernel_stack;
};
/* Stalls. */
enum uh_stall_kind {
	UH_THROTTLED = 0,
	UH_DIRECT_RECLAIM = 1,
	UH_DIRTY_PAGES = 2,
};
struct uh_stall_key {
	u32 kind;
	u32 reason;
};
/* Both. */
struct uh_spell_row {
	u64 count;
	u64 total_ns;
	u64 longest_ns; /* as UH_LARGEST */
	s32 kernel_stack;
	u32 pad;
};

/* What a thread does with its time: it is always one of these. */
enum uh_time {
	UH_ON_PROCESSOR,
	UH_WOKEN_RUNNABLE, /* woken, or new, and not running yet */
	UH_PREEMPTED,
	UH_ASLEEP_TIMER, /* ended by its own timer */
	UH_ASLEEP_FUTEX,
	UH_ASLEEP_DESCRIPTOR,
	UH_ASLEEP_CHILD,
	UH_ASLEEP_OTHER,
	UH_ASLEEP_DEEP,
	UH_TIMES,
};
struct uh_life_key {
	u32 pid;
	u32 tid;
};
/* A thread's time from when it was first followed until it began to exit. */
struct uh_life {
	char comm[16];
	u64 wall_ns;
	u64 times[UH_TIMES];
};

/* Processes. */
enum uh_process_count {
	UH_P_THREADS,
	UH_P_SLEEPS,
	UH_P_PREEMPTIONS,
	UH_P_WAKEUPS,
	UH_P_CALLS,
	UH_P_USER_NS,
	UH_P_SYSTEM_NS,
	UH_P_RUN_NS,
	UH_PROCESS_COUNTS,
};
struct uh_process {
	u32 parent;
	u32 ended;
	char comm[16];
	u64 counts[UH_PROCESS_COUNTS];
};

/* One call or interrupt that wakes, while it may still wake more. */
struct uh_event {
	u64 task;
	u64 instance;
	u64 cause_seq;
	u64 last_ns;
	u64 id;
	u32 index;
	u32 woken;
	u32 polls;
	u32 mixed; /* the woken waited at several futexes, and the key names none */
	u64 site;  /* of a futex call: from where it was made */
	u64 run;   /* and how often the thread had slept before */
	struct uh_wake_key key;
};
/*
 * How many an event woke; the ring of a processor remembers its last UH_EVENT_RING. The threads of
 * a herd that then take one lock are woken for it one by one, each by an event of its own, before
 * the last comes back: the ring must hold more than a herd.
 */
#define UH_EVENT_RING 4096
struct uh_event_size {
	u64 id;
	u32 woken;
	u32 mixed;
};
#define UH_CONTEXTS 3 /* task, soft interrupt, hard interrupt */
struct uh_cpu {
	struct uh_event open[UH_CONTEXTS];
	u64 timer_task[3]; /* whose sleep the timer would end that runs now */
	u64 cause_seq;     /* counts what may be the cause of wakes: timers, sockets made ready */
	u64 event_seq;
	u64 ready_socket[UH_CONTEXTS];
	u64 ready_task[UH_CONTEXTS];
	u64 ready_ns[UH_CONTEXTS];
	u32 in_timer; /* bit i: timer_task[i] holds; 0: hard, 1: soft, 2: of the coarse kind */
	u32 hard;     /* it handles a hard interrupt; Linux nests none */
};

enum uh_notice_kind {
	UH_BEGAN = 0,
	UH_EXEC = 1,
	UH_ENDED = 2,
};
struct uh_notice {
	u32 kind;
	u32 pid;
	u32 parent;
	u32 pad;
	char comm[16];
};

/* Counts that have no row. */
struct uh_tally {
	u64 rows; /* ids given so far */
	u64 threads_now;
	u64 threads_peak;
	u64 lost_waits;
	u64 lost_wakes;
	u64 lost_futexes;
	u64 lost_locks;
	u64 lost_threads;
	u64 lost_processes;
	u64 lost_notices;
	u64 lost_pairs;
	u64 stacks_wanted;
	u64 stacks_lost;
	u64 open_episodes;
	u64 futex_rows;
	u64 lost_ledgers;
	u64 lost_lives;
	u64 episodes; /* all, where some are kept one by one */
	u64 lost_episodes; /* not kept for want of room in the ring */
	u64 wall_ns; /* of all threads */
	u64 times[UH_TIMES];
	u32 follower; /* the thread that loaded the programs, by the kernel's own number */
	u32 child;    /* the child that was chosen */
	u64 switches; /* to followed threads, where some are passed over */
};

#endif
