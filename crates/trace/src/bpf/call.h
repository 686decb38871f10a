/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * System calls: what a thread waits for, and whether it gets anywhere.
 *
 * Calls are looked at when they return; most of them need no more than that. What a call is about
 * is read from the thread's registers when it sleeps or wakes somebody. That they begin is not
 * looked at: it would cost each call of every program on the machine once more.
 */
#ifndef UNHERD_CALL_H
#define UNHERD_CALL_H

#define UH_TS_COMPAT 2 /* a 32-bit call, whose numbers are others */

/* select's sets are three, and any of them may be absent. */
static __always_inline u64 uh_set(struct pt_regs *regs, u32 arg)
{
	u64 set = uh_argument(regs, arg);

	if (arg != 1)
		return set;
	if (!set)
		set = uh_argument(regs, 2);
	if (!set)
		set = uh_argument(regs, 3);
	return set;
}

static __always_inline bool uh_is_compat(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return task->thread_info.status & UH_TS_COMPAT;
#else
	return 0;
#endif
}

static __always_inline void uh_leave_call(struct uh_thread *t)
{
	t->nr = -1;
	t->kind = UH_NONE;
	t->value = 0;
	t->family = t->class_flags = t->futex = 0;
}

/* Takes down what the call is about. */
static __always_inline void uh_look_at_call(struct uh_thread *t, struct pt_regs *regs, s64 nr)
{
	const volatile struct uh_class *class;
	u8 flags, entry;

	t->flags |= UH_IN_A_CALL;
	if (nr < 0 || nr >= UH_SYSCALLS || uh_is_compat(bpf_get_current_task_btf())) {
		uh_leave_call(t);
		return;
	}
	class = &uh_settings.classes[nr];
	flags = class->flags;
	if (flags & UH_RESTART)
		return; /* Goes on with what was interrupted. */
	t->nr = nr;
	t->futex = 0;
	t->kind = UH_NONE;
	t->value = 0;
	t->family = class->family;
	entry = class->futex;
	if (entry) {
		uh_look_at_futex(t, entry, uh_argument(regs, 0), uh_argument(regs, 1),
				 uh_argument(regs, 5));
	} else if (class->object == UH_DESCRIPTOR) {
		t->kind = UH_DESCRIPTOR;
		t->value = (u32)uh_argument(regs, class->arg);
	} else if (class->object == UH_SET) {
		if (!class->nonempty || uh_argument(regs, class->nonempty - 1)) {
			t->value = uh_set(regs, class->arg);
			t->kind = t->value ? UH_SET : UH_NONE;
		}
	}
	t->class_flags = flags;
}

static __always_inline s64 uh_call_number(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return (s64)regs->orig_ax;
#elif defined(__TARGET_ARCH_arm64)
	return regs->syscallno;
#endif
}

/*
 * Whether the call is over and the thread on its way out, where it may still sleep or wake others.
 * Until then x86 has -ENOSYS in place of the result; the others do not tell.
 */
static __always_inline bool uh_has_returned(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return (s64)regs->ax != -UH_ENOSYS;
#else
	return 0;
#endif
}

/* What the running thread is doing, unless that is known. Faults and interrupts are no calls. */
static __always_inline void uh_look(struct uh_thread *t, struct task_struct *current)
{
	struct pt_regs *regs;
	s64 nr;

	if (uh_settings.sees_calls && (t->flags & UH_IN_A_CALL))
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(current);
	nr = uh_call_number(regs);
	if (nr >= 0 && !uh_has_returned(regs)) {
		uh_look_at_call(t, regs, nr);
	} else if (!uh_settings.sees_calls) {
		t->flags &= ~UH_IN_A_CALL;
		uh_leave_call(t);
	}
}

/*
 * A call got something done. Which slots it was for, and whether it was done for anybody, is looked
 * up while that is not known yet: after most wakeups once.
 */
static __noinline int uh_progress(struct uh_thread *t, struct pt_regs *regs, u32 nr, bool eof)
{
	const volatile struct uh_class *class;
	struct file *file = 0;
	u64 descriptor = 0;
	bool stream = 0, hungry = 0;

	if (!t || !regs || nr >= UH_SYSCALLS)
		return 0;
	class = &uh_settings.classes[nr];
	if (class->object == UH_DESCRIPTOR) {
		descriptor = (u32)uh_argument(regs, class->arg);
		file = uh_file_of(descriptor);
		stream = file && uh_is_stream(file);
	}
	/* What is read from a plain file is a look at it. */
	if (!eof && !(class->flags & UH_FOR_NOBODY) && (stream || !file || !(class->flags & UH_CONSUMES))) {
		t->deeds++;
		t->flags &= ~UH_TICKING;
	}
	if (!(t->flags & UH_HUNGRY))
		return 0;
	for (u32 i = 0; i < UH_SLOTS; i++) {
		struct uh_slot *slot = &t->slots[i];
		bool fed;

		if (!(slot->flags & UH_WAS_WOKEN) || (slot->flags & (UH_FED | UH_BY_OWN_TIMER)))
			continue;
		if (slot->kind == UH_SET)
			fed = stream;
		else if (slot->kind != UH_DESCRIPTOR)
			continue;
		else if (slot->family == UH_EPOLL)
			fed = stream && uh_is_watched((u64)file, slot->value);
		else
			fed = class->object == UH_DESCRIPTOR && slot->value == descriptor;
		if (fed)
			slot->flags |= UH_FED;
		else
			hungry = 1;
	}
	if (!hungry)
		t->flags &= ~UH_HUNGRY;
	return 0;
}

/* The commands of fcntl(2) that lock without waiting, and struct flock. */
#define UH_SETLK 6
#define UH_OFD_SETLK 37
#define UH_UNLCK 2
#define UH_EACCES 13
struct uh_flock {
	u16 type;
	u16 whence;
	u32 pad;
	u64 start;
	u64 length;
};

/*
 * Who is refused a file lock, sleeps for a fixed time and then gets it may have slept on after it
 * was free: since the last unlock by another of what begins at the same byte, or of all.
 */
static __noinline int uh_file_lock(struct uh_thread *t, u64 descriptor, u64 address, s64 result)
{
	u64 now = bpf_ktime_get_ns(), since, *free_ns;
	struct uh_range range = {};
	struct uh_flock lock = {};
	struct uh_slot *slot;

	if (!t || bpf_probe_read_user(&lock, sizeof(lock), (void *)address))
		return 0;
	range.inode = uh_inode_of(descriptor);
	range.start = lock.start;
	if (result == -UH_EAGAIN || result == -UH_EACCES) {
		t->flags &= ~UH_TOOK_LOCK;
		t->refused_inode = range.inode;
		t->refused_start = range.start;
		t->refused_ns = now;
		return 0;
	}
	if (result || !range.inode)
		return 0;
	if (lock.type == UH_UNLCK) {
		t->flags &= ~UH_TOOK_LOCK;
		/* Who is refused takes back what it had got on the way. */
		if (t->refused_inode == range.inode)
			return 0;
		if (!lock.start && !lock.length)
			range.start = ~0ULL;
		bpf_map_update_elem(&uh_unlocked, &range, &now, BPF_ANY);
		return 0;
	}
	t->flags |= UH_TOOK_LOCK;
	if (t->refused_inode != range.inode || t->refused_start != range.start)
		return 0;
	t->refused_inode = 0;
	if (t->slept_ns < t->refused_ns || !(t->waking.flags & UH_BY_OWN_TIMER) || t->slot >= UH_SLOTS)
		return 0;
	since = t->slept_ns;
	free_ns = bpf_map_lookup_elem(&uh_unlocked, &range);
	if (free_ns && *free_ns > since)
		since = *free_ns;
	range.start = ~0ULL;
	free_ns = bpf_map_lookup_elem(&uh_unlocked, &range);
	if (free_ns && *free_ns > since)
		since = *free_ns;
	if (since == t->slept_ns || t->waking.at_ns <= since)
		return 0;
	slot = &t->slots[t->slot & 3];
	slot->counts[UH_OVERSLEPT]++;
	slot->counts[UH_OVERSLEPT_NS] += t->waking.at_ns - since;
	return 0;
}

static __always_inline void uh_return(void *ctx, struct uh_thread *t, struct pt_regs *regs,
				      s64 result)
{
	s64 nr = uh_call_number(regs);
	u8 flags = UH_NEUTRAL, entry = 0;

	t->counts[UH_P_CALLS]++;
	if (nr >= 0 && nr < UH_SYSCALLS && !uh_is_compat(bpf_get_current_task_btf())) {
		flags = uh_settings.classes[nr].flags;
		entry = uh_settings.classes[nr].futex;
		if (flags & UH_LEDGER)
			uh_notice_ledger(t, uh_settings.classes[nr].family, uh_argument(regs, 0),
					 result);
		if (uh_settings.classes[nr].family == UH_FILE_LOCK &&
		    (uh_argument(regs, 1) == UH_SETLK || uh_argument(regs, 1) == UH_OFD_SETLK))
			uh_file_lock(t, uh_argument(regs, 0), uh_argument(regs, 2), result);
	}
	if (entry || (!(t->flags & UH_IN_A_CALL) && ((flags & UH_RESTART) || t->redundant)))
		uh_look_at_call(t, regs, nr);
	if (flags & UH_RESTART)
		flags = t->class_flags;
	if (flags & UH_NEUTRAL) {
		/* Says nothing of progress; but a look that succeeds is no EAGAIN either. */
		if ((flags & UH_LOOKS) && result >= 0)
			t->others++;
	} else if (result >= 0) {
		bool eof = !result && (flags & UH_CONSUMES);

		if (eof)
			t->others++;
		else
			t->progress++;
		/* The end of a stream is what its reader was woken for, but nothing that it did. */
		if (t->flags & (UH_TICKING | UH_HUNGRY))
			uh_progress(t, regs, nr, eof);
	} else if (result == -UH_EAGAIN) {
		t->eagains++;
	} else if (result != -UH_EINTR &&
		   !(result <= -UH_ERESTARTSYS && result >= -UH_ERESTART_RESTARTBLOCK)) {
		t->others++;
	}
	t->instance++;
	if (!(t->flags & UH_IN_A_CALL))
		return;
	if (t->futex) {
		u8 kind = t->futex & ~UH_F_PARKER;

		uh_count_futex(ctx, t, result);
		if (result > 0 && (kind == UH_F_WAKE || kind == UH_F_REQUEUE))
			t->deeds++;
	}
	uh_count_redundant(t);
	t->sleeping_lock.lock = 0; /* if its end was missed */
	t->flags &= ~(UH_IN_A_CALL | UH_SLEPT_IN_CALL);
	/* What blocks until the next call, a page fault say, does not wait for this one's object. */
	if (result != -UH_ERESTART_RESTARTBLOCK)
		uh_leave_call(t);
}

#endif
