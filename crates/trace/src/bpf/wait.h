/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * Sleeps, and what became of the wakeup before each.
 *
 * An episode goes from an interruptible sleep over its wakeup to the thread's next interruptible
 * sleep. A thread remembers its last episode at each of four objects, so that a sleep on the
 * mutex of a condition variable does not hide that the thread came back to the condition
 * variable for nothing. When it comes back to an object, the episode there is judged:
 *
 *   begun by its own timer, nothing but looks since,  timer poll
 *     and not woken by anything else
 *   still in the same call, of a kind that looks      needless, proven
 *   no progress, nothing but EAGAIN (at least one),   needless, proven
 *     and it polls for descriptors
 *   still in the same call, which reads               possibly needless
 *   no progress on that object                        possibly needless
 *   anything else                                     nothing
 *
 * The last two need an object that has a name: a thread that waits for "a signal" twice may have
 * got two. Progress on an object is a call that got something done with that descriptor, or with
 * one that is in that set; for poll and select, whose sets are gone by then, with any descriptor
 * that can be polled. What a futex stands for is in memory, and no call is progress on it. So
 * possible is an upper bound; of it, those that made progress on anything at all, or computed, do
 * not count in herds, by which findings are ranked. An episode that is forgotten, since the thread
 * has waited for four other objects meanwhile, is judged as if the thread came back to its object.
 *
 * A thread has computed if its CPU time up to its return is more than a look takes; then it was no
 * timer poll either. Nor was it one if the thread slept meanwhile until it was woken, as a worker
 * does for its next item. A futex may be a queue's or a lock's, which nobody can tell here, so a
 * look that waits for a contended lock is no poll: their number is a lower bound.
 */
#ifndef UNHERD_WAIT_H
#define UNHERD_WAIT_H

/* The running thread's. The bits of select's sets are not searched: it takes the verifier long. */
static __always_inline void uh_describe_set(struct uh_file *description, u64 set, s32 nr)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (nr >= 0 && nr < UH_SYSCALLS && uh_settings.classes[nr].arg == 0)
		uh_describe_poll(description, set, uh_argument(regs, 1));
}

static __always_inline struct uh_wait_row *uh_wait_row(struct uh_wait_key *key, bool of_current)
{
	struct uh_wait_row *row = bpf_map_lookup_elem(&uh_waits, key);

	if (!row) {
		struct uh_wait_row fresh = {};

		fresh.id = uh_add(uh_tally.rows, 1) + 1;
		/* Of another thread nothing is to be seen from here. */
		if (of_current && key->kind == UH_DESCRIPTOR)
			uh_describe_file(&fresh.file, key->value);
		else if (of_current && key->kind == UH_SET)
			uh_describe_set(&fresh.file, key->value, key->nr);
		bpf_map_update_elem(&uh_waits, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&uh_waits, key);
	}
	return row;
}

/* Adds a slot's counts to its row. */
static __noinline int uh_flush_slot(struct uh_thread *t, u32 index)
{
	struct uh_wait_row *row;
	struct uh_wait_key key;
	struct uh_slot *slot;

	if (!t || index > UH_DEEP_SLOT)
		return 0;
	slot = &t->slots[index];
	if (!(slot->flags & UH_USED))
		return 0;
	if (slot->flags & UH_WAS_WOKEN)
		uh_keep_episode(t, slot, slot->began_ns, UH_UNJUDGED);
	uh_wait_key_of(&key, t, slot);
	row = bpf_map_lookup_elem(&uh_waits, &key);
	if (!row) {
		uh_add(uh_tally.lost_waits, slot->counts[UH_SLEEPS] + slot->counts[UH_DEEP_SLEEPS]);
		__builtin_memset(slot->counts, 0, sizeof(slot->counts));
		return 0;
	}
	for (int i = 0; i < UH_WAIT_COUNTS; i++) {
		if (slot->counts[i])
			uh_add(row->counts[i], slot->counts[i]);
		slot->counts[i] = 0;
	}
	return 0;
}

/* By chance one of the next: threads that come and go are sampled as others are. */
static __always_inline void uh_plan_sample(struct uh_sampling *samples, u64 taken)
{
	u32 weight = uh_sample_weight(taken);

	samples->weight = weight;
	samples->in = bpf_get_prandom_u32() % (2 * weight - 1);
}

/* What a sample stands for that is due now; 0: none is. */
static __always_inline u32 uh_sample_due(struct uh_sampling *samples)
{
	if (!samples->weight || !samples->in)
		return samples->weight;
	samples->in--;
	return 0;
}

/* Makes the slot the present call's. The slot of deep sleeps keeps no episode. */
static __noinline int uh_bind_slot(struct uh_thread *t, u32 index, bool of_current)
{
	struct uh_wait_row *row;
	struct uh_wait_key key;
	struct uh_slot *slot;

	uh_flush_slot(t, index);
	if (!t || index > UH_DEEP_SLOT)
		return 0;
	slot = &t->slots[index];
	slot->value = t->value;
	slot->kind = t->kind;
	slot->family = t->family;
	slot->nr = t->nr;
	slot->flags = UH_USED;
	slot->sleep_samples.weight = slot->poll_samples.weight = 0;
	slot->row = 0;
	uh_wait_key_of(&key, t, slot);
	row = uh_wait_row(&key, of_current);
	if (!row)
		return 0;
	slot->row = row->id;
	uh_plan_sample(&slot->sleep_samples, row->stacks);
	uh_plan_sample(&slot->poll_samples, row->poll_stacks);
	return 0;
}

/* Calls without a family are like themselves only. */
static __always_inline bool uh_slot_is_here(struct uh_thread *t, struct uh_slot *slot)
{
	return (slot->flags & UH_USED) && slot->kind == t->kind && slot->value == t->value &&
	       slot->family == t->family && (t->family || slot->nr == t->nr);
}

static __always_inline u32 uh_find_slot(struct uh_thread *t)
{
	u64 oldest_ns = ~0ULL;
	u32 found = 0;

	for (u32 i = 0; i < UH_SLOTS; i++) {
		u64 began_ns = t->slots[i].flags & UH_USED ? t->slots[i].began_ns : 0;

		if (uh_slot_is_here(t, &t->slots[i]))
			return i;
		if (began_ns < oldest_ns) {
			oldest_ns = began_ns;
			found = i;
		}
	}
	return found;
}

/* Tells the row of the waker what became of its herd's member. */
static __always_inline bool uh_count_in_herd(struct uh_slot *slot, u32 count)
{
	struct uh_event_size *size;
	struct uh_wake_key key;
	struct uh_wake_row *row;

	if (!(slot->flags & UH_HAS_EVENT))
		return 0;
	size = bpf_map_lookup_elem(&uh_events, &slot->event_index);
	if (!size || size->id != slot->event_id) {
		/* So long ago that the ring has forgotten how many it were. */
		uh_add(uh_tally.lost_wakes, 1);
		return 0;
	}
	if (size->woken < 2)
		return 0;
	key = slot->waker;
	if (size->mixed)
		key.value = 0;
	row = bpf_map_lookup_elem(&uh_wakes, &key);
	if (row) {
		uh_add(row->counts[count], 1);
		uh_add(row->counts[UH_HERD_NS], slot->cpu_ns);
	}
	return 1;
}

/* Where the thread did something, whatever it was, the wakeup was hardly one of a herd's. */
static __always_inline u32 uh_count_possible(struct uh_slot *slot, bool did_something)
{
	slot->counts[UH_POSSIBLE]++;
	slot->counts[UH_POSSIBLE_NS] += slot->cpu_ns;
	if (!did_something && uh_count_in_herd(slot, UH_HERD_POSSIBLE)) {
		slot->counts[UH_POSSIBLE_HERD]++;
		slot->counts[UH_POSSIBLE_HERD_NS] += slot->cpu_ns;
	}
	return UH_POSSIBLY_NEEDLESS;
}

/* The CPU time of a look: so much to wake up and sleep, and so much for each call. */
#define UH_LOOK_NS 50000
#define UH_LOOK_CALLS 16

/* Whether the thread has computed since it was woken, or only had a look. */
static __always_inline bool uh_computed(struct uh_thread *t, struct uh_slot *slot, u64 run_ns)
{
	u64 calls = t->instance - slot->instance;

	if (calls > UH_LOOK_CALLS)
		calls = UH_LOOK_CALLS;
	return run_ns - slot->run_ns >= (calls + 1) * UH_LOOK_NS;
}

/* The thread comes back to the slot's object: what was the wakeup there good for? */
static __always_inline u32 uh_judge(struct uh_thread *t, struct uh_slot *slot, u64 now, u64 run_ns)
{
	bool same_call, progress, computed;

	if (!uh_settings.sees_calls)
		return UH_UNJUDGED;
	same_call = (t->flags & UH_IN_A_CALL) && slot->instance == t->instance;
	progress = slot->progress != t->progress;
	computed = uh_computed(t, slot, run_ns);
	if (slot->flags & UH_BY_OWN_TIMER) {
		if (!same_call && !computed && slot->deeds == t->deeds) {
			slot->counts[UH_TIMER_POLLS]++;
			slot->counts[UH_TIMER_POLL_NS] += now - slot->began_ns;
			slot->counts[UH_TIMER_POLL_CPU_NS] += run_ns - slot->run_ns;
			return UH_TIMER_POLL;
		}
	} else if (same_call) {
		if (t->class_flags & UH_LOOKS_AGAIN) {
			slot->counts[UH_IN_CALL]++;
			slot->counts[UH_NEEDLESS_NS] += slot->cpu_ns;
			uh_count_in_herd(slot, UH_HERD_NEEDLESS);
			return UH_PROVEN_NEEDLESS;
		}
		if (t->class_flags & UH_CONSUMES) {
			/* A terminal's line, a socket's low-water mark: there may have been a part. */
			return uh_count_possible(slot, 0);
		}
	} else if (slot->kind != UH_NONE && !(slot->flags & UH_FED)) {
		/* What fails with EAGAIN is one of those that were polled for, or nothing to do with it. */
		if (!progress && (t->class_flags & UH_POLLS) && slot->eagains != t->eagains &&
		    slot->others == t->others) {
			slot->counts[UH_AGAIN]++;
			slot->counts[UH_NEEDLESS_NS] += slot->cpu_ns;
			uh_count_in_herd(slot, UH_HERD_NEEDLESS);
			return UH_PROVEN_NEEDLESS;
		}
		return uh_count_possible(slot, progress || computed);
	}
	return UH_NOT_NEEDLESS;
}

/* The slot is wanted for another object. */
static __always_inline u32 uh_forget(struct uh_thread *t, struct uh_slot *slot, u64 run_ns)
{
	if (!uh_settings.sees_calls)
		return UH_UNJUDGED;
	if ((slot->flags & (UH_FED | UH_BY_OWN_TIMER)) || slot->kind == UH_NONE)
		return UH_NOT_NEEDLESS;
	return uh_count_possible(slot,
				 slot->progress != t->progress || uh_computed(t, slot, run_ns));
}

/* The sleep that begins goes on with a timer poll, if `polls`: one stack is that of both. */
static __always_inline void uh_sample(void *ctx, struct uh_thread *t, struct uh_slot *slot,
				      bool polls)
{
	u32 of_sleeps = uh_sample_due(&slot->sleep_samples);
	u32 of_polls = polls ? uh_sample_due(&slot->poll_samples) : 0;
	struct uh_wait_key key;
	struct uh_wait_row *row;

	if (!of_sleeps && !of_polls)
		return;
	uh_wait_key_of(&key, t, slot);
	row = bpf_map_lookup_elem(&uh_waits, &key);
	if (!row)
		return;
	uh_sample_stacks(ctx, slot->row, UH_COPY_SLEEP, 1, of_sleeps, of_polls);
	if (of_sleeps)
		uh_plan_sample(&slot->sleep_samples, uh_add(row->stacks, 1) + 1);
	if (of_polls)
		uh_plan_sample(&slot->poll_samples, uh_add(row->poll_stacks, 1) + 1);
}

/* How long the holders of the word that the thread waits for have slept so far. */
static __always_inline u64 uh_holders_asleep_ns(struct uh_thread *t)
{
	struct uh_lock_word key = { .word = t->value, .pid = t->pid };
	struct uh_lock *lock;

	if (!uh_settings.sees_calls || t->kind != UH_FUTEX)
		return 0;
	lock = bpf_map_lookup_elem(&uh_lock_words, &key);
	return lock ? lock->holders_asleep_ns : 0;
}

#define UH_TASK_INTERRUPTIBLE 1
#define UH_TASK_UNINTERRUPTIBLE 2

/* A blocking switch-out; `run_ns` is the thread's CPU time so far. */
static __always_inline void uh_sleep(void *ctx, struct uh_thread *t, u32 task_state, u64 run_ns)
{
	u64 now = bpf_ktime_get_ns();
	struct uh_slot *slot;
	u32 index, before;
	bool polls = 0;

	t->counts[UH_P_SLEEPS]++;
	uh_spend(t, UH_ON_PROCESSOR, now);
	t->slept_ns = now;
	t->flags |= UH_SLEPT_IN_CALL;
	if (!(task_state & UH_TASK_INTERRUPTIBLE) || t->sleeping_lock.lock) {
		slot = &t->slots[UH_DEEP_SLOT];
		t->flags |= UH_DEEP;
		if (!uh_slot_is_here(t, slot) || slot->nr != t->nr)
			uh_bind_slot(t, UH_DEEP_SLOT, 1);
		slot->counts[UH_DEEP_SLEEPS]++;
	} else {
		t->flags &= ~UH_DEEP;
		/* Here the last episode ends. */
		index = t->slot;
		if (index < UH_SLOTS) {
			slot = &t->slots[index];
			slot->cpu_ns = run_ns - slot->run_ns;
		}
		index = uh_find_slot(t);
		if (index >= UH_SLOTS)
			return;
		slot = &t->slots[index];
		/* What it gave back again on being refused another was nothing done. */
		if (t->flags & UH_TOOK_LOCK)
			t->deeds++;
		t->flags &= ~UH_TOOK_LOCK;
		if (slot->flags & UH_WAS_WOKEN) {
			u32 class = uh_slot_is_here(t, slot) ? uh_judge(t, slot, now, run_ns) :
							       uh_forget(t, slot, run_ns);

			uh_keep_episode(t, slot, slot->began_ns, class);
			slot->flags &= ~UH_WAS_WOKEN;
			polls = class == UH_TIMER_POLL && slot->nr == t->nr;
		}
		if (!uh_slot_is_here(t, slot) || slot->nr != t->nr)
			uh_bind_slot(t, index, 1);
		t->slot = index;
		slot->flags = UH_USED;
		slot->instance = t->instance;
		slot->progress = t->progress;
		slot->eagains = t->eagains;
		slot->others = t->others;
		slot->deeds = t->deeds;
		slot->began_ns = now;
		slot->run_ns = run_ns;
		slot->holders_asleep_ns = uh_holders_asleep_ns(t);
		slot->counts[UH_SLEEPS]++;
	}
	uh_sample(ctx, t, slot, polls);
	before = __sync_lock_test_and_set(&t->state, UH_ASLEEP);
	/*
	 * An early waking is of this sleep, and moments old, or even later than `now`. An older one
	 * is of a sleep that ended before the processor was given away, which no switch tells.
	 */
	if (before == UH_EARLY && (s64)(now - t->waking.at_ns) < 100000)
		__sync_val_compare_and_swap(&t->state, UH_ASLEEP, UH_WOKEN_UP);
}

static __always_inline void uh_count_period(void *rows, void *key, u64 ns, s32 stack, u64 *lost)
{
	struct uh_spell_row *row = bpf_map_lookup_elem(rows, key);

	if (!row) {
		struct uh_spell_row fresh = { .kernel_stack = stack };

		bpf_map_update_elem(rows, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(rows, key);
	}
	if (!row) {
		uh_add(*lost, 1);
		return;
	}
	uh_add(row->count, 1);
	uh_add(row->total_ns, ns);
	uh_raise(&row->longest_ns, ns);
}

/* Asleep for what: as the thread's last sleep began, and ended, if it has. */
static __always_inline u32 uh_kind_of_sleep(struct uh_thread *t, u32 waking_flags)
{
	struct uh_slot *slot = &t->slots[t->slot & 3];
	u32 kind = slot->kind;

	if (t->flags & UH_DEEP)
		return UH_ASLEEP_DEEP;
	if (waking_flags & UH_BY_OWN_TIMER)
		return UH_ASLEEP_TIMER;
	if (kind == UH_FUTEX || kind == UH_PARKER)
		return UH_ASLEEP_FUTEX;
	if (kind == UH_DESCRIPTOR || kind == UH_SET)
		return UH_ASLEEP_DESCRIPTOR;
	return slot->family == UH_CHILD ? UH_ASLEEP_CHILD : UH_ASLEEP_OTHER;
}

/* The switch-in. */
static __always_inline void uh_resume(struct uh_thread *t)
{
	u64 asleep_ns, now = bpf_ktime_get_ns();
	struct uh_slot *slot;
	u32 index;

	if (t->state == UH_RUNNING) {
		uh_spend(t, UH_PREEMPTED, now);
		return;
	}
	if (t->state == UH_ASLEEP) {
		/*
		 * Its waking was taken for redundant: the thread was still on its queue when it
		 * came, and had left it a moment later.
		 */
		t->waking.at_ns = now;
		t->waking.flags = t->waking.tid = 0;
		/* Whose it was is not known any more. */
		t->waking.key = (struct uh_wake_key){ .cause = UH_BY_OTHER, .nr = -1 };
		if (t->redundant)
			uh_add(t->redundant, -1);
	} else if (t->state != UH_WOKEN_UP) {
		uh_spend(t, t->state == UH_UNKNOWN ? UH_WOKEN_RUNNABLE : UH_PREEMPTED, now);
		t->state = UH_RUNNING;
		return;
	}
	t->state = UH_RUNNING;
	uh_spend(t, uh_kind_of_sleep(t, t->waking.flags), t->waking.at_ns);
	uh_spend(t, UH_WOKEN_RUNNABLE, now);
	t->counts[UH_P_WAKEUPS]++;
	asleep_ns = t->waking.at_ns > t->slept_ns ? t->waking.at_ns - t->slept_ns : 0;
	t->asleep_ns += asleep_ns;
	if (t->flags & UH_DEEP) {
		slot = &t->slots[UH_DEEP_SLOT];
		slot->counts[UH_DEEP_NS] += asleep_ns;
		uh_end_sleep(t, slot, now);
		uh_keep_episode(t, slot, t->slept_ns, UH_UNINTERRUPTIBLE);
		if (t->flags & UH_DIRTY_PAUSE) {
			struct uh_stall_key key = { .kind = UH_DIRTY_PAGES };

			t->flags &= ~UH_DIRTY_PAUSE;
			uh_count_period(&uh_stalls, &key, asleep_ns, t->dirty_stack,
				       &uh_tally.lost_locks);
		}
		return;
	}
	index = t->slot;
	if (index >= UH_SLOTS)
		return;
	slot = &t->slots[index];
	slot->counts[UH_WAKEUPS]++;
	slot->counts[UH_ASLEEP_NS] += asleep_ns;
	slot->asleep_ns = t->asleep_ns;
	if (asleep_ns < uh_settings.round_trip_ns)
		slot->counts[UH_SHORT]++;
	if (t->waking.flags & UH_BY_OWN_TIMER) {
		slot->counts[UH_TIMER_WAKEUPS]++;
		t->flags |= UH_TICKING;
	} else {
		/* It slept until something happened, so it does not go by its timer alone. */
		t->deeds++;
		t->flags &= ~UH_TICKING;
		if (slot->kind == UH_DESCRIPTOR || slot->kind == UH_SET)
			t->flags |= UH_HUNGRY;
	}
	slot->flags |= UH_WAS_WOKEN | t->waking.flags;
	uh_end_sleep(t, slot, now);
	slot->event_id = t->waking.event_id;
	slot->event_index = t->waking.event_index;
}

/*
 * The thread runs; that it came back to the processor was perhaps not told. Kernels of virtual
 * machines were met that skip the tracepoint of some switches away from threads of the machine's
 * own. This is asked before anything that the thread does is judged: at the latest when the call
 * returns in which it slept, so all that it did since it was woken is known. A pause for dirty
 * pages, of the sleep before or of the one that begins, is not counted; and if the sleep that
 * begins now is ended at the same moment, its waker is not known.
 */
static __noinline int uh_resume_late(struct uh_thread *t)
{
	if (!t || (t->state != UH_ASLEEP && t->state != UH_WOKEN_UP))
		return 0;
	t->flags &= ~UH_DIRTY_PAUSE;
	uh_resume(t);
	return 0;
}

/* Wakes that found the thread awake are counted where it was about to sleep. */
static __always_inline void uh_count_redundant(struct uh_thread *t)
{
	struct uh_wait_key key = { .value = t->value, .pid = t->pid, .nr = t->nr, .kind = t->kind };
	struct uh_wait_row *row;
	u64 n = t->redundant;

	if (!n)
		return;
	uh_add(t->redundant, -n);
	row = uh_wait_row(&key, 1);
	if (row)
		uh_add(row->counts[UH_REDUNDANT], n);
	else
		uh_add(uh_tally.lost_waits, n);
}

#endif
