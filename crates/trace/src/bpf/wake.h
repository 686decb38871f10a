/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * Wakeups, by who caused them, and the events that cause several.
 *
 * An event is one call or one interrupt and all that it wakes for one object. In a thread it
 * lasts as long as the call; but to wake all by one futex call each, as Python's
 * `Condition.notify_all` does, is one event too. That lasts while the thread does not sleep, calls
 * for the same object or from the same site, is not late, and wakes others each time. In an
 * interrupt, and in a thread whose calls nobody looks at, an event ends when the next wake is late;
 * in an interrupt also when a timer or a socket may have been the cause of the next: a network
 * interrupt handles many packets in a row, and two threads that get one each are no herd.
 */
#ifndef UNHERD_WAKE_H
#define UNHERD_WAKE_H

#define UH_EVENT_GAP_NS 200000

enum uh_context {
	UH_TASK = 0,
	UH_SOFT = 1,
	UH_HARD = 2,
};

static __always_inline struct uh_cpu *uh_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&uh_cpus, &zero);
}

/*
 * What the processor is doing: a thread's work, a soft interrupt's, a hard one's. The kernel's own
 * count (preempt_count) cannot be had by name on every kernel. The tracepoints of hard interrupts
 * and of timers tell; those of soft interrupts would cost every packet two programs, so what else
 * a soft interrupt wakes is taken for the work of the thread that it runs in. On the loopback
 * device that is the sender, who is the cause indeed.
 */
static __always_inline u32 uh_context(struct uh_cpu *cpu)
{
	if (cpu->hard || (cpu->in_timer & 1))
		return UH_HARD;
	if (cpu->in_timer)
		return UH_SOFT;
	return UH_TASK;
}

static __always_inline struct uh_wake_row *uh_wake_row(struct uh_wake_key *key)
{
	struct uh_wake_row *row = bpf_map_lookup_elem(&uh_wakes, key);

	if (!row) {
		struct uh_wake_row fresh = {};

		fresh.id = uh_add(uh_tally.rows, 1) + 1;
		bpf_map_update_elem(&uh_wakes, key, &fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&uh_wakes, key);
	}
	return row;
}

/* What an event of several has woken is known when it is over. User space does the last ones. */
static __always_inline void uh_close_event(struct uh_event *event)
{
	struct uh_wake_key key;
	struct uh_wake_row *row;

	if (event->woken < 2)
		return;
	key = event->key;
	row = bpf_map_lookup_elem(&uh_wakes, &key);
	if (!row)
		return;
	uh_add(row->counts[UH_WOKEN], event->woken - 1);
	uh_add(row->counts[UH_HERDS], 1);
	uh_add(row->counts[UH_HERD_WOKEN], event->woken);
	uh_raise(&row->counts[UH_LARGEST], event->woken);
}

/* The call as the kernel sees it at once: a loop calls from one depth of the stack. */
static __always_inline u64 uh_call_site(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return regs->ip + (regs->sp << 16);
#elif defined(__TARGET_ARCH_arm64)
	return regs->user_regs.pc + (regs->user_regs.sp << 16);
#endif
}

/* What a timer interrupts has no part in the wake. */
static __always_inline void uh_sample_waker(void *ctx, struct uh_wake_row *row, u64 events,
					    u32 cause, bool followed)
{
	u32 first = uh_settings.first_stacks, weight = 1;

	if (cause == UH_BY_TIMER)
		return;
	for (u32 i = 0; i < UH_STACK_SHIFT && events >= first && weight < events / UH_STACK_STEP; i++)
		weight <<= 1;
	if (!(bpf_get_prandom_u32() & (weight - 1)))
		uh_sample_stacks(ctx, row->id, UH_COPY_WAKE, followed, weight, 0);
}

/*
 * All sleep of the giver before it got the lock: up to the end of its own wait for it, or up to
 * when it gave it back last, if nobody else has had it since. Not known: 0.
 */
static __always_inline u64 uh_asleep_before(struct uh_thread *by, u64 word, struct uh_lock *lock)
{
	u64 before_ns = lock->giver == by->tid ? lock->giver_asleep_ns : 0;

	for (u32 i = 0; i < UH_SLOTS; i++) {
		struct uh_slot *slot = &by->slots[i];

		if ((slot->flags & UH_USED) && slot->kind == UH_FUTEX && slot->value == word &&
		    slot->asleep_ns > before_ns)
			before_ns = slot->asleep_ns;
	}
	return before_ns;
}

/*
 * The futex word that `t` waits for may be a lock, which `by` gives back. Others have held it while
 * `t` waited, so the sleep of all holders is summed up by word: of each from the last time it was
 * given back, or from when `t`, which has waited longest, began to. Where sleep and work alternate
 * and it is not known since when the thread holds the lock, that is an upper bound.
 */
static __always_inline void uh_give_back(struct uh_wake_row *row, struct uh_thread *t,
					 struct uh_thread *by, u64 now)
{
	struct uh_lock_word key = { .word = t->value, .pid = t->pid };
	struct uh_lock *lock = bpf_map_lookup_elem(&uh_lock_words, &key), fresh = {};
	u64 since_ns = t->slept_ns, waited_ns = now - t->slept_ns, slept_ns = 0, sum_ns;
	u64 from_ns = t->slots[t->slot & 3].holders_asleep_ns, before_ns, asleep_ns;

	if (t->state != UH_ASLEEP || (t->flags & UH_DEEP))
		return;
	uh_resume_late(by);
	if (!lock) {
		bpf_map_update_elem(&uh_lock_words, &key, &fresh, BPF_NOEXIST);
		lock = bpf_map_lookup_elem(&uh_lock_words, &key);
		if (!lock)
			return;
	}
	if (lock->given_ns > since_ns)
		since_ns = lock->given_ns;
	if (by->waking.at_ns > since_ns) {
		before_ns = uh_asleep_before(by, key.word, lock);
		/* Another thread may have had its number. */
		slept_ns = by->asleep_ns > before_ns ? by->asleep_ns - before_ns : 0;
		if (slept_ns > by->waking.at_ns - since_ns)
			slept_ns = by->waking.at_ns - since_ns;
	}
	lock->given_ns = now;
	lock->giver = by->tid;
	lock->giver_asleep_ns = by->asleep_ns;
	sum_ns = uh_add(lock->holders_asleep_ns, slept_ns) + slept_ns;
	/* The map may have forgotten the word meanwhile. */
	asleep_ns = sum_ns > from_ns ? sum_ns - from_ns : slept_ns;
	uh_add(row->counts[UH_WAITED_NS], waited_ns);
	uh_add(row->counts[UH_HOLDERS_ASLEEP_NS], asleep_ns < waited_ns ? asleep_ns : waited_ns);
	if (slept_ns > row->longest_ns) {
		struct uh_slot *last = &by->slots[by->flags & UH_DEEP ? UH_DEEP_SLOT : by->slot & 3];

		row->longest_ns = slept_ns;
		row->longest_row = last->row;
		row->longest_nr = last->nr;
	}
}

static __always_inline void uh_open_event(void *ctx, struct uh_cpu *cpu, struct uh_event *event,
					  struct uh_thread *t, struct uh_thread *by, u64 now)
{
	struct uh_event_size *size;
	struct uh_wake_key key = event->key;
	struct uh_wake_row *row;
	u64 before;

	event->woken = 1;
	event->id = uh_add(cpu->event_seq, 1) + 1;
	event->index = bpf_get_smp_processor_id() * UH_EVENT_RING + event->id % UH_EVENT_RING;
	size = bpf_map_lookup_elem(&uh_events, &event->index);
	if (size) {
		size->woken = 1;
		size->mixed = 0;
		size->id = event->id;
	}
	row = uh_wake_row(&key);
	if (!row) {
		uh_add(uh_tally.lost_wakes, 1);
		return;
	}
	before = uh_add(row->counts[UH_EVENTS], 1);
	uh_add(row->counts[UH_WOKEN], 1);
	if (by && key.kind == UH_FUTEX)
		uh_give_back(row, t, by, now);
	uh_sample_waker(ctx, row, before, key.cause, by != 0);
}

/* The woken are found to have waited at several futexes: the event goes on to another row. */
static __always_inline void uh_mix_event(void *ctx, struct uh_event *event)
{
	struct uh_wake_key key = event->key;
	struct uh_wake_row *row = uh_wake_row(&key);
	u64 before;

	if (row) {
		uh_add(row->counts[UH_EVENTS], -1);
		uh_add(row->counts[UH_WOKEN], -1);
	}
	event->mixed = 1;
	event->key.value = key.value = 0;
	row = uh_wake_row(&key);
	if (!row) {
		uh_add(uh_tally.lost_wakes, 1);
		return;
	}
	before = uh_add(row->counts[UH_EVENTS], 1);
	uh_add(row->counts[UH_WOKEN], 1);
	uh_sample_waker(ctx, row, before, key.cause, 1);
}

/*
 * Whether a futex call goes on with what the thread's last one began. Whom our own library wakes
 * it has chosen one by one, so what one thread wakes there in a row is no burst.
 */
static __always_inline bool uh_is_burst(struct uh_event *event, struct uh_wake_key *key,
					struct uh_thread *t, struct uh_thread *by,
					struct task_struct *current, u64 now, u64 site)
{
	/* Who is woken again has come back meanwhile: a lock that is handed to and fro, say. */
	return by->futex && event->run == current->nvcsw && now - event->last_ns < UH_EVENT_GAP_NS &&
	       key->kind == UH_FUTEX && event->key.kind == UH_FUTEX &&
	       (event->key.value == key->value || event->site == site) &&
	       !(t->waking.event_id == event->id && t->waking.event_index == event->index);
}

/* The timer that runs now, if any, and whether it is the thread's own. */
static __always_inline bool uh_in_timer(struct uh_cpu *cpu, u32 context, u64 task, bool *own)
{
	u32 bits = cpu->in_timer & (context == UH_HARD ? 1 : context == UH_SOFT ? 6 : 0);

	*own = ((bits & 1) && cpu->timer_task[0] == task) ||
	       ((bits & 2) && cpu->timer_task[1] == task) ||
	       ((bits & 4) && cpu->timer_task[2] == task);
	return bits;
}

static __always_inline void uh_describe_wake(struct uh_wake_key *key, struct uh_cpu *cpu,
					     struct uh_thread *t, struct uh_thread *by, u64 task,
					     u32 context, u64 now)
{
	bool socket = (t->class_flags & UH_POLLS) || t->kind == UH_DESCRIPTOR;

	key->value = t->value;
	key->kind = t->kind;
	/* A socket without a port is better named by the descriptor of its waiter. */
	if (socket && (u16)cpu->ready_socket[context] && cpu->ready_task[context] == task &&
	    now - cpu->ready_ns[context] < UH_EVENT_GAP_NS) {
		key->kind = UH_SOCKET;
		key->value = cpu->ready_socket[context];
	}
	key->pid = 0;
	key->nr = -1;
	if (context != UH_TASK) {
		key->cause = UH_BY_INTERRUPT;
	} else if (by) {
		key->pid = by->pid;
		key->cause = UH_BY_OTHER;
		if (by->flags & UH_IN_A_CALL) {
			key->cause = UH_BY_CALL;
			key->nr = by->nr;
		}
	} else {
		key->cause = UH_BY_OTHER;
	}
}

/* A wakeup that does wake the followed thread. */
static __always_inline void uh_wake(void *ctx, struct task_struct *task, struct uh_thread *t)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 context, polls = t->class_flags & UH_POLLS;
	u64 now = bpf_ktime_get_ns(), instance = 0;
	struct uh_thread *by = 0;
	struct uh_event_size *size;
	struct uh_wake_key key = {};
	struct uh_cpu *cpu = uh_cpu();
	struct uh_event *event;
	u64 site = 0;
	bool own, same;

	if (!cpu)
		return;
	context = uh_context(cpu);
	if (context == UH_TASK) {
		by = uh_current();
		if (by) {
			uh_look(by, current);
			instance = by->instance;
			by->deeds += by->flags & UH_IN_A_CALL ? 1 : 0;
		}
	}
	uh_describe_wake(&key, cpu, t, by, (u64)current, context, now);
	if (uh_in_timer(cpu, context, (u64)task, &own))
		key.cause = UH_BY_TIMER;
	event = by ? &by->open : &cpu->open[context];
	same = event->task == (u64)current && event->instance == instance &&
	       event->cause_seq == cpu->cause_seq && event->key.cause == key.cause &&
	       event->key.nr == key.nr &&
	       (by && uh_settings.sees_calls ? by->flags & UH_IN_A_CALL :
					       now - event->last_ns < UH_EVENT_GAP_NS) &&
	       ((event->key.kind == key.kind && event->key.value == key.value) ||
		(polls && event->polls));
	if (by && key.cause == UH_BY_CALL && by->futex) {
		site = uh_call_site((struct pt_regs *)bpf_task_pt_regs(current));
		if (!same && event->key.cause == key.cause && event->key.nr == key.nr)
			same = uh_is_burst(event, &key, t, by, current, now, site);
	}
	if (same && event->woken) {
		if (site && !event->mixed && event->key.value != key.value)
			uh_mix_event(ctx, event);
		event->woken++;
		size = bpf_map_lookup_elem(&uh_events, &event->index);
		if (size && size->id == event->id) {
			size->woken = event->woken;
			size->mixed = event->mixed;
		}
	} else {
		uh_close_event(event);
		event->task = (u64)current;
		event->instance = instance;
		event->cause_seq = cpu->cause_seq;
		event->polls = polls;
		event->mixed = 0;
		event->site = site;
		event->run = current->nvcsw;
		event->key = key;
		uh_open_event(ctx, cpu, event, t, by, now);
	}
	event->last_ns = now;
	t->waking.at_ns = now;
	t->waking.tid = by ? by->tid : 0;
	t->waking.key = event->key;
	t->waking.event_id = event->id;
	t->waking.event_index = event->index;
	t->waking.flags = UH_HAS_EVENT | (own ? UH_BY_OWN_TIMER : 0);
	/* The switch-out may come between the two; then it has seen no waking yet. */
	if (__sync_val_compare_and_swap(&t->state, UH_ASLEEP, UH_WOKEN_UP) == UH_RUNNING &&
	    __sync_val_compare_and_swap(&t->state, UH_RUNNING, UH_EARLY) == UH_ASLEEP)
		__sync_val_compare_and_swap(&t->state, UH_ASLEEP, UH_WOKEN_UP);
}

#endif
