/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * What is remembered of each followed thread, and the maps that the counts end in.
 *
 * A thread counts for itself, in its own storage, and adds that to the shared rows when it goes
 * on to other objects, exits, or tracing ends: no hash table is touched while it waits for the
 * same thing again and again.
 *
 * Who may write: all fields of `struct uh_thread` belong to the thread's own processor (system
 * calls of the thread itself; its switches, under the run queue's lock), except those of
 * `struct uh_waking` and `redundant`, which a waker writes. Wakers of one thread exclude each
 * other by its pi_lock, and the scheduler's locks order a waking before the switch-in. Only with
 * the switch-out can a waking overlap; `state` settles that:
 *
 *   state      meaning                                   left by
 *   UNKNOWN    not seen going to sleep (new, adopted)     switch-in -> RUNNING
 *   RUNNING    on a queue or a processor                  switch-out -> ASLEEP, waker -> EARLY
 *   EARLY      woken before its switch-out was seen       switch-out -> WOKEN
 *   ASLEEP     blocked                                    waker -> WOKEN
 *   WOKEN      woken, not running yet                     switch-in -> RUNNING
 */
#ifndef UNHERD_THREAD_H
#define UNHERD_THREAD_H

enum uh_state {
	UH_UNKNOWN = 0,
	UH_RUNNING = 1,
	UH_EARLY = 2,
	UH_ASLEEP = 3,
	UH_WOKEN_UP = 4,
};

enum uh_thread_flag {
	UH_PENDING = 1, /* the command before its exec: not counted yet */
	UH_LEAVING = 2, /* it has begun to exit */
	UH_IN_A_CALL = 4,
	UH_DEEP = 8, /* the present sleep is transparent to episodes */
	UH_SLEPT_IN_CALL = 16,
	UH_SIGNPOST = 64,    /* its next mapping is a ledger's */
	UH_DIRTY_PAUSE = 32, /* the next sleep is balance_dirty_pages' */
	UH_TICKING = 128, /* its own timer has woken it, and it has done nothing since */
	UH_HUNGRY = 256,  /* woken for a descriptor, and some slot is not fed */
	UH_TOOK_LOCK = 512, /* the last that it did with file locks was to get one */
};

enum uh_slot_flag {
	UH_USED = 1,
	UH_WAS_WOKEN = 2,
	UH_BY_OWN_TIMER = 4,
	UH_HAS_EVENT = 8,
	UH_FED = 16, /* a call made progress on what was waited for */
};

/* Sampling of stacks: how many come before the next sample, and what that stands for; 0: none. */
struct uh_sampling {
	u32 in;
	u32 weight;
};

/* An object that the thread has waited for: its counts, and the last episode there. */
struct uh_slot {
	u64 value;
	u32 kind;
	u32 family;
	s32 nr;
	u32 flags;
	u64 row;
	/* The episode. */
	u64 instance;
	u64 progress;
	u64 eagains;
	u64 others;
	u64 deeds;
	u64 began_ns;
	u64 run_ns; /* the thread's CPU time when it went to sleep */
	u64 cpu_ns; /* what the episode took, once the next sleep has begun */
	u64 asleep_ns; /* all the thread's sleep up to its waking */
	u64 holders_asleep_ns; /* of a futex: as in struct uh_lock, when the sleep began */
	u64 event_id;
	struct uh_wake_key waker;
	u32 event_index;
	struct uh_sampling sleep_samples;
	struct uh_sampling poll_samples; /* by themselves, so that rare polls are met too */
	u32 waker_tid; /* and when it was woken, and ran again: where episodes are kept */
	u64 woken_ns;
	u64 ran_ns;
	u64 counts[UH_WAIT_COUNTS];
};
#define UH_SLOTS 4
#define UH_DEEP_SLOT UH_SLOTS

/* What a waker leaves for the thread. */
struct uh_waking {
	u64 at_ns;
	u64 event_id;
	struct uh_wake_key key;
	u32 event_index;
	u32 flags; /* enum uh_slot_flag */
	u32 tid;   /* the waker's; 0: not followed */
	u32 pad;
};

struct uh_contended {
	u64 lock;
	u64 began_ns;
	u32 flags;
	s32 stack;
};

struct uh_thread {
	u32 state;
	u32 flags;
	u32 pid;
	u32 slot; /* of the last episode */
	/* The system call it is in, as far as anybody has looked (UH_IN_A_CALL). */
	s32 nr;
	u32 kind;
	u64 value;
	u64 instance; /* counts calls that have returned */
	u8 family;
	u8 class_flags;
	u8 futex; /* enum uh_futex_kind */
	u8 pad[5];
	u64 word;
	/* Calls so far: that made progress, failed with EAGAIN, or were neither. */
	u64 progress;
	u64 eagains;
	u64 others;
	/*
	 * What it did for somebody since its own timer woke it: calls, wakes. Looks are none. And
	 * how often something else than that timer woke it.
	 */
	u64 deeds;
	u64 slept_ns;
	u64 asleep_ns; /* all sleeps that are over */
	struct uh_waking waking;
	u64 redundant;
	u64 reclaim_ns;
	s32 dirty_stack; /* where UH_DIRTY_PAUSE was set */
	u32 tid;
	struct uh_contended sleeping_lock;
	struct uh_contended spinning_lock;
	/* Not yet added to the process. */
	u64 counts[UH_PROCESS_COUNTS];
	struct uh_event open; /* the last that it caused */
	u64 user_base_ns;
	u64 system_base_ns;
	u64 run_base_ns;
	/* Its time: since when it is followed, since when it does what it does now, what it did. */
	u64 followed_ns;
	u64 since_ns;
	u64 times[UH_TIMES];
	/* The file lock that it was refused last: of which inode, from which byte on, when. */
	u64 refused_inode;
	u64 refused_start;
	u64 refused_ns;
	struct uh_slot slots[UH_SLOTS + 1];
};

#define UH_HASH(name, key_type, value_type)                                                        \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, 1);                                                            \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
	} name SEC(".maps")

/* Sizes are set when the programs are loaded. */
UH_HASH(uh_waits, struct uh_wait_key, struct uh_wait_row);
UH_HASH(uh_wakes, struct uh_wake_key, struct uh_wake_row);
UH_HASH(uh_futexes, struct uh_futex_key, struct uh_futex_row);
UH_HASH(uh_locks, struct uh_lock_key, struct uh_spell_row);
UH_HASH(uh_stalls, struct uh_stall_key, struct uh_spell_row);
UH_HASH(uh_pairs, struct uh_pair_key, struct uh_pair);
UH_HASH(uh_processes, u32, struct uh_process);
UH_HASH(uh_lives, struct uh_life_key, struct uh_life);

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct uh_thread);
} uh_threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct uh_cpu);
} uh_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct uh_event_size);
} uh_events SEC(".maps");

#define UH_STACK_MAP(name)                                                                         \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_STACK_TRACE);                                            \
		__uint(max_entries, 1);                                                            \
		__uint(key_size, sizeof(u32));                                                     \
		__uint(value_size, 64 * sizeof(u64));                                              \
	} name SEC(".maps")

/* The kernel keeps a stack where its hash says or not at all; the second takes what collides. */
UH_STACK_MAP(uh_stacks);
UH_STACK_MAP(uh_more_stacks);

/*
 * To walk to the callers of a lock takes some 4 us, often while others wait for what the thread
 * holds. So callers are looked up where a lock is met for the first time in a kind of call, and
 * now and then again.
 */
struct uh_lock_place {
	u64 lock;
	u32 flags;
	s32 call;
};
struct uh_lock_callers {
	s32 stack;
	u32 uses;
};
#define UH_LOCK_USES 63 /* a mask */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct uh_lock_place);
	__type(value, struct uh_lock_callers);
} uh_lock_places SEC(".maps");

/* When a range of a file was last unlocked that begins at this byte; ~0: the whole file. */
struct uh_range {
	u64 inode;
	u64 start;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct uh_range);
	__type(value, u64);
} uh_unlocked SEC(".maps");

/* A futex word as a lock: who gives it back to a waiter has held it. */
struct uh_lock_word {
	u64 word;
	u32 pid;
	u32 pad;
};
struct uh_lock {
	u64 holders_asleep_ns; /* their sleep while others waited, so far */
	u64 given_ns;          /* when it was given back last */
	u64 giver_asleep_ns;   /* by whom: all that thread's sleep up to then */
	u32 giver;
	u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct uh_lock_word);
	__type(value, struct uh_lock);
} uh_lock_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17); /* some 2,700 notices that nobody has read yet */
} uh_notices SEC(".maps");

/* The process to adopt, for the iterator. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} uh_wanted SEC(".maps");

/* Alone in .rodata: set before loading. */
const volatile struct uh_settings uh_settings;

/* Alone in .bss. */
struct uh_tally uh_tally;

/*
 * A sample takes some 10 us. So past the first of a row they are taken by chance, and the more
 * there are the fewer: after UH_STACK_STEP samples half as often, down to one in 2^10. A sample's
 * weight is the number that it is one of, so shares are those of all, whenever these came.
 */
#define UH_STACK_STEP 8
#define UH_STACK_SHIFT 10

#define UH_EEXIST 17
#define uh_add(counter, n) __sync_fetch_and_add(&(counter), (n))

static __always_inline struct uh_thread *uh_thread_of(struct task_struct *task)
{
	/* Threads that nobody follows have none: they get away with one load. */
	if (!task->bpf_storage)
		return 0;
	return bpf_task_storage_get(&uh_threads, task, 0, 0);
}

/* The running thread, if it is followed and counted. */
static __always_inline struct uh_thread *uh_current(void)
{
	struct uh_thread *t = uh_thread_of(bpf_get_current_task_btf());

	if (!t || (t->flags & (UH_PENDING | UH_LEAVING)))
		return 0;
	return t;
}

/* The thread has done this since the last change, up to `at_ns`. */
static __always_inline void uh_spend(struct uh_thread *t, u32 time, u64 at_ns)
{
	if (at_ns <= t->since_ns || time >= UH_TIMES)
		return;
	t->times[time] += at_ns - t->since_ns;
	t->since_ns = at_ns;
}

static __always_inline s32 uh_stack(void *ctx, u64 flags)
{
	s64 id = bpf_get_stackid(ctx, &uh_stacks, flags);

	uh_add(uh_tally.stacks_wanted, 1);
	if (id == -UH_EEXIST) {
		id = bpf_get_stackid(ctx, &uh_more_stacks, flags);
		if (id >= 0)
			id |= UH_IN_MORE_STACKS;
	}
	if (id < 0) {
		uh_add(uh_tally.stacks_lost, 1);
		id = -1;
	}
	return id;
}

/* Skips the frames of the programs themselves. */
static __always_inline s32 uh_kernel_stack(void *ctx)
{
	return uh_stack(ctx, 3);
}

static __always_inline s32 uh_user_stack(void *ctx)
{
	return uh_stack(ctx, BPF_F_USER_STACK);
}

/* The weight of the next sample of a row that has `taken` samples now. */
static __always_inline u32 uh_sample_weight(u64 taken)
{
	u32 first = uh_settings.first_stacks;
	u64 shift = taken < first ? 0 : (taken - first) / UH_STACK_STEP + 1;

	return 1 << (shift > UH_STACK_SHIFT ? UH_STACK_SHIFT : shift);
}

/* Says how often the pair was met so far; 0 if there is no room to count it. */
static __always_inline u64 uh_count_pair(struct uh_pair_key *key, u64 weight)
{
	struct uh_pair fresh = { .weight = weight, .met = 1, .squares = weight * weight };
	struct uh_pair *pair = bpf_map_lookup_elem(&uh_pairs, key);

	if (!pair) {
		if (!bpf_map_update_elem(&uh_pairs, key, &fresh, BPF_NOEXIST))
			return 1;
		/* Full, or another processor was first. */
		pair = bpf_map_lookup_elem(&uh_pairs, key);
	}
	if (pair) {
		uh_add(pair->weight, weight);
		uh_add(pair->squares, weight * weight);
		return uh_add(pair->met, 1) + 1;
	}
	uh_add(uh_tally.lost_pairs, 1);
	return 0;
}

static __always_inline void uh_raise(u64 *most, u64 n)
{
	if (n > *most)
		*most = n;
}

static __always_inline void uh_wait_key_of(struct uh_wait_key *key, struct uh_thread *t,
					   struct uh_slot *slot)
{
	key->value = slot->value;
	key->pid = t->pid;
	key->nr = slot->nr;
	key->kind = slot->kind;
	key->pad = 0;
}

#endif
