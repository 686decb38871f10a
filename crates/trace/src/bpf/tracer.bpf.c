// SPDX-License-Identifier: (MIT OR GPL-2.0)
/*
 * The programs, one for each tracepoint. They look at nothing but followed threads: for any other
 * they end after one look at its storage. `thread.h` says what is kept and who may write it.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "record.h"
#include "thread.h"
#include "stack.h"
#include "file.h"
#include "episode.h"
#include "wait.h"
#include "futex.h"
#include "ledger.h"
#include "call.h"
#include "wake.h"
#include "process.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define UH_TASK_DEAD 0x80
#define UH_TASK_WAKING 0x200
#define UH_PF_IO_WORKER 0x10
#define UH_PF_USER_WORKER 0x4000

static __always_inline bool uh_left_queue(struct task_struct *task)
{
	if (!task->on_rq)
		return 1;
	return bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed;
}

/*
 * Of a thread that has just left the queue. One who wakes it on another processor may have written
 * TASK_WAKING there already. Whether the sleep could be interrupted is then known by what the
 * scheduler has noted for the machine's load.
 */
static __always_inline unsigned int uh_state_of(struct task_struct *task)
{
	unsigned int state = task->__state;

	if (state != UH_TASK_WAKING)
		return state;
	return BPF_CORE_READ_BITFIELD(task, sched_contributes_to_load) ? UH_TASK_UNINTERRUPTIBLE :
									  UH_TASK_INTERRUPTIBLE;
}

/* As kernels pass over switches (`uh_resume_late`); the verifier removes it outside of tests. */
static __always_inline bool uh_is_untold(void)
{
	return uh_settings.untold && !(uh_add(uh_tally.switches, 1) % uh_settings.untold);
}

/* The run queue's lock is held, so whether `prev` is on the queue does not change meanwhile. */
static __always_inline int uh_switched(void *ctx, bool preempt, struct task_struct *prev,
				       struct task_struct *next, unsigned int prev_state)
{
	struct uh_thread *t = uh_thread_of(prev);

	if (t && !(t->flags & UH_PENDING)) {
		if (t->flags & UH_LEAVING) {
			/* What it took to exit. */
			if (prev_state & UH_TASK_DEAD)
				uh_settle(t, prev);
		} else {
			uh_resume_late(t);
			if (!preempt && prev_state && uh_left_queue(prev)) {
				uh_look(t, prev);
				uh_sleep(ctx, t, prev_state, prev->se.sum_exec_runtime);
			} else {
				uh_spend(t, UH_ON_PROCESSOR, bpf_ktime_get_ns());
				t->counts[UH_P_PREEMPTIONS]++;
			}
		}
	}
	t = uh_thread_of(next);
	if (t && !(t->flags & (UH_PENDING | UH_LEAVING)) && !uh_is_untold())
		uh_resume(t);
	return 0;
}

/* KERNEL: since 5.18. */
SEC("tp_btf/sched_switch")
int BPF_PROG(uh_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	return uh_switched(ctx, preempt, prev, next, prev_state);
}

/* KERNEL: before 5.18. */
SEC("tp_btf/sched_switch")
int BPF_PROG(uh_switch_of_3, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return uh_switched(ctx, preempt, prev, next, uh_state_of(prev));
}

SEC("tp_btf/sched_waking")
int BPF_PROG(uh_waking, struct task_struct *task)
{
	struct uh_thread *t = uh_thread_of(task);

	if (!t || (t->flags & (UH_PENDING | UH_LEAVING)))
		return 0;
	if (uh_left_queue(task))
		uh_wake(ctx, task, t);
	else
		uh_add(t->redundant, 1);
	return 0;
}

/*
 * Reads a process's ledger while its memory is still there. Where an exit is announced before the
 * memory goes, `uh_leave` does it, and this one, for which each call of every program pays, is not
 * loaded.
 */
SEC("tp_btf/sys_enter")
int BPF_PROG(uh_sys_enter, struct pt_regs *regs, long call)
{
	if (call == uh_settings.exit_group)
		uh_keep_ledger(bpf_get_current_pid_tgid() >> 32);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(uh_sys_exit, struct pt_regs *regs, long result)
{
	struct uh_thread *t = uh_current();

	if (!t)
		return 0;
	uh_resume_late(t);
	uh_return(ctx, t, regs, result);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(uh_fork, struct task_struct *parent, struct task_struct *child)
{
	struct uh_thread *t = uh_thread_of(parent);

	if (uh_settings.next_child && (u32)parent->pid == uh_tally.follower && child->tgid == child->pid &&
	    !__sync_val_compare_and_swap(&uh_tally.child, 0, child->pid)) {
		uh_add_thread(child, UH_PENDING);
		return 0;
	}
	if (!t || (t->flags & UH_PENDING))
		return 0;
	if (child->tgid == child->pid)
		uh_add_process(child, parent->tgid);
	t = uh_add_thread(child, 0);
	if (t)
		uh_start_counting(t, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(uh_exec, struct task_struct *task, int old_pid, struct linux_binprm *binprm)
{
	struct uh_thread *t = uh_thread_of(task);
	struct uh_process *process;
	u32 pid = task->tgid;

	if (!t || (t->flags & UH_LEAVING))
		return 0;
	if (t->flags & UH_PENDING) {
		uh_add_process(task, task->real_parent->tgid);
		uh_start_counting(t, task);
		t->state = UH_RUNNING;
		t->flags = 0;
	}
	/* It has the number of the first thread now, if it was another. */
	t->tid = task->pid;
	/* Addresses and most descriptors mean others from here on. */
	uh_flush_slots(t);
	for (u32 i = 0; i <= UH_DEEP_SLOT; i++)
		t->slots[i].flags = 0;
	t->slot = UH_SLOTS;
	bpf_map_delete_elem(&uh_ledger_roots, &pid);
	process = bpf_map_lookup_elem(&uh_processes, &pid);
	if (process)
		uh_read_comm(process->comm, task);
	uh_notify(UH_EXEC, pid, task->real_parent->tgid, task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(uh_leave, struct task_struct *task)
{
	struct uh_thread *t = uh_thread_of(task);
	struct uh_process *process;
	u32 pid = task->tgid;

	if (!t || (t->flags & (UH_PENDING | UH_LEAVING)))
		return 0;
	uh_resume_late(t);
	uh_count_redundant(t);
	uh_flush_slots(t);
	uh_close_event(&t->open);
	uh_settle(t, task);
	uh_keep_life(t, task, UH_ON_PROCESSOR, bpf_ktime_get_ns());
	t->flags |= UH_LEAVING;
	uh_add(uh_tally.threads_now, -1);
	if (task->signal->live.counter > 0)
		return 0;
	if (uh_settings.exit_has_memory)
		uh_keep_ledger(pid);
	process = bpf_map_lookup_elem(&uh_processes, &pid);
	if (process) {
		process->ended = 1;
		uh_read_comm(process->comm, task);
	}
	uh_notify(UH_ENDED, pid, 0, task);
	return 0;
}

/* Reads the timer as what it most often is, the end of a thread's sleep; else nothing matches. */
static __always_inline void uh_timer_begins(u32 slot, u64 task)
{
	struct uh_cpu *cpu = uh_cpu();

	if (!cpu)
		return;
	cpu->timer_task[slot] = task;
	cpu->in_timer |= 1 << slot;
	cpu->cause_seq++;
}

static __always_inline void uh_timer_ends(u32 slot)
{
	struct uh_cpu *cpu = uh_cpu();

	if (cpu)
		cpu->in_timer &= ~(1 << slot);
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(uh_hrtimer_on, struct hrtimer *timer)
{
	struct hrtimer_sleeper *sleeper = (void *)timer;

	uh_timer_begins(timer->is_soft ? 1 : 0, (u64)BPF_CORE_READ(sleeper, task));
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(uh_hrtimer_off, struct hrtimer *timer)
{
	struct uh_cpu *cpu = uh_cpu();

	/* The timer may be gone. A hard one may interrupt a soft one, never the reverse. */
	uh_timer_ends(cpu && (cpu->in_timer & 1) ? 0 : 1);
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(uh_timer_on, struct timer_list *timer)
{
	struct process_timer *sleeper = (void *)timer;

	uh_timer_begins(2, (u64)BPF_CORE_READ(sleeper, task));
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(uh_timer_off, struct timer_list *timer)
{
	uh_timer_ends(2);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int uh_hard_on(void *ctx)
{
	struct uh_cpu *cpu = uh_cpu();

	if (cpu)
		cpu->hard = 1;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int uh_hard_off(void *ctx)
{
	struct uh_cpu *cpu = uh_cpu();

	if (cpu)
		cpu->hard = 0;
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(uh_ready, const struct sock *sk)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct uh_cpu *cpu = uh_cpu();
	u32 context;

	if (!cpu)
		return 0;
	cpu->cause_seq++;
	/* This runs for every packet; a connection has one reader, and he has a descriptor to name. */
	if (sk->__sk_common.skc_state != UH_TCP_LISTEN)
		return 0;
	context = uh_context(cpu);
	cpu->ready_socket[context] = uh_port(sk) | UH_LISTENING;
	cpu->ready_task[context] = (u64)current;
	cpu->ready_ns[context] = bpf_ktime_get_ns();
	return 0;
}

/* Which kind of call: its number, and for futex(2) what it is to do. -1: none. */
static __always_inline s32 uh_kind_of_call(struct pt_regs *regs)
{
	s64 nr = uh_call_number(regs);

	if (nr < 0 || nr >= UH_SYSCALLS)
		return -1;
	if (uh_settings.classes[nr].futex == UH_FUTEX_BY_OP)
		nr |= (uh_argument(regs, 1) & UH_FUTEX_COMMAND) << 16;
	return nr;
}

/* The waiters of this lock: as it was when last looked up in the same kind of call. */
static __always_inline s32 uh_lock_stack(void *ctx, u64 lock, u32 flags)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct uh_lock_place place = { .lock = lock, .flags = flags };
	struct uh_lock_callers *known, fresh = {};

	place.call = uh_kind_of_call(regs);
	known = bpf_map_lookup_elem(&uh_lock_places, &place);
	if (known && (++known->uses & UH_LOCK_USES))
		return known->stack;
	fresh.stack = uh_kernel_stack(ctx);
	if (fresh.stack < 0)
		return -1;
	if (known)
		known->stack = fresh.stack;
	else
		bpf_map_update_elem(&uh_lock_places, &place, &fresh, BPF_ANY);
	return fresh.stack;
}

#define UH_LOCK_SPINS 1 /* LCB_F_SPIN */
#define UH_LOCK_MUTEX 32 /* LCB_F_MUTEX */

SEC("tp_btf/contention_begin")
int BPF_PROG(uh_lock_on, void *lock, unsigned int flags)
{
	struct uh_thread *t = uh_current();
	struct uh_contended *contended;

	if (!t)
		return 0;
	/* A mutex spins before it sleeps, and says so; it is one wait. */
	contended = (flags & UH_LOCK_SPINS) && !(flags & UH_LOCK_MUTEX) ? &t->spinning_lock :
									  &t->sleeping_lock;
	if (contended->lock == (u64)lock)
		return 0;
	contended->lock = (u64)lock;
	contended->flags = flags & UH_LOCK_MUTEX ? UH_LOCK_MUTEX : flags;
	contended->stack = uh_lock_stack(ctx, (u64)lock, contended->flags);
	contended->began_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(uh_lock_off, void *lock, int result)
{
	struct uh_thread *t = uh_current();
	struct uh_contended *contended;
	struct uh_lock_key key;

	if (!t)
		return 0;
	if (t->spinning_lock.lock == (u64)lock)
		contended = &t->spinning_lock;
	else if (t->sleeping_lock.lock == (u64)lock)
		contended = &t->sleeping_lock;
	else
		return 0;
	key.flags = contended->flags;
	key.kernel_stack = contended->stack;
	uh_count_period(&uh_locks, &key, bpf_ktime_get_ns() - contended->began_ns, contended->stack,
		       &uh_tally.lost_locks);
	contended->lock = 0;
	return 0;
}

SEC("tp_btf/mm_vmscan_throttled")
int BPF_PROG(uh_throttled, int node, int usec_timeout, int usec_delayed, int reason)
{
	struct uh_stall_key key = { .kind = UH_THROTTLED, .reason = reason };

	if (uh_current())
		uh_count_period(&uh_stalls, &key, usec_delayed * 1000ULL, uh_kernel_stack(ctx),
			       &uh_tally.lost_locks);
	return 0;
}

static __always_inline void uh_reclaim_begins(void)
{
	struct uh_thread *t = uh_current();

	if (t)
		t->reclaim_ns = bpf_ktime_get_ns();
}

static __always_inline void uh_reclaim_ends(void *ctx)
{
	struct uh_stall_key key = { .kind = UH_DIRECT_RECLAIM };
	struct uh_thread *t = uh_current();

	if (!t || !t->reclaim_ns)
		return;
	uh_count_period(&uh_stalls, &key, bpf_ktime_get_ns() - t->reclaim_ns, uh_kernel_stack(ctx),
		       &uh_tally.lost_locks);
	t->reclaim_ns = 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int uh_reclaim_on(void *ctx)
{
	uh_reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int uh_reclaim_off(void *ctx)
{
	uh_reclaim_ends(ctx);
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int uh_memcg_on(void *ctx)
{
	uh_reclaim_begins();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int uh_memcg_off(void *ctx)
{
	uh_reclaim_ends(ctx);
	return 0;
}

/* The pause is announced in ticks; the sleep that follows tells how long it was. */
static __always_inline int uh_dirty_pause(void *ctx, s64 ticks)
{
	struct uh_thread *t;

	if (ticks <= 0)
		return 0;
	t = uh_current();
	if (t) {
		t->flags |= UH_DIRTY_PAUSE;
		t->dirty_stack = uh_kernel_stack(ctx);
	}
	return 0;
}

SEC("tp_btf/balance_dirty_pages")
int uh_dirty(u64 *ctx)
{
	return uh_dirty_pause(ctx, ctx[6]);
}

/* Where it still has twelve arguments; one of the two is loaded. */
SEC("tp_btf/balance_dirty_pages")
int uh_dirty_of_12(u64 *ctx)
{
	return uh_dirty_pause(ctx, ctx[10]);
}

/* Follows all threads of a process that lives already. */
SEC("iter/task")
int uh_adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct uh_thread *t;
	u32 zero = 0, *wanted;

	/* The reader is the follower: it knows its number in its own namespace only. */
	uh_tally.follower = (u32)bpf_get_current_pid_tgid();
	wanted = bpf_map_lookup_elem(&uh_wanted, &zero);
	if (!task || !wanted || !*wanted || (u32)task->tgid != *wanted)
		return 0;
	/* Workers of the kernel's in a process: their registers are copies, and mean nothing. */
	if (uh_thread_of(task) || (task->flags & (UH_PF_IO_WORKER | UH_PF_USER_WORKER)))
		return 0;
	uh_add_process(task, task->real_parent->tgid);
	t = uh_add_thread(task, 0);
	if (!t)
		return 0;
	uh_start_counting(t, task);
	/* Its present sleep is none of those that are counted, but has its time. */
	if (!task->on_rq && !__sync_val_compare_and_swap(&t->state, UH_UNKNOWN, UH_ASLEEP)) {
		uh_look(t, task);
		t->slept_ns = t->since_ns;
		t->slot = 0;
		uh_bind_slot(t, 0, 0);
		t->slots[0].began_ns = t->since_ns;
		t->slots[0].run_ns = task->se.sum_exec_runtime;
	}
	return 0;
}

/* Once nothing else runs: adds what the living have counted for themselves. */
SEC("iter/task")
int uh_flush(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct uh_thread *t;

	if (!task)
		return 0;
	t = bpf_task_storage_get(&uh_threads, task, 0, 0);
	if (!t || (t->flags & UH_PENDING))
		return 0;
	if (!(t->flags & UH_LEAVING)) {
		u64 now = bpf_ktime_get_ns();
		u32 last = UH_ON_PROCESSOR;

		uh_add(uh_tally.threads_now, -1);
		if (t->state == UH_WOKEN_UP)
			uh_resume(t);
		if (t->state == UH_ASLEEP)
			last = uh_kind_of_sleep(t, 0);
		else if (t->state == UH_UNKNOWN)
			last = UH_WOKEN_RUNNABLE;
		if (t->state == UH_ASLEEP || (t->slot < UH_SLOTS &&
					      (t->slots[t->slot & 3].flags & UH_WAS_WOKEN)))
			uh_tally.open_episodes++;
		if (t->state == UH_ASLEEP) {
			u64 asleep_ns = now - t->slept_ns;

			u32 index = t->flags & UH_DEEP ? UH_DEEP_SLOT : t->slot & 3;
			struct uh_slot *slot = &t->slots[index];

			slot->woken_ns = 0;
			if (t->flags & UH_DEEP) {
				slot->counts[UH_DEEP_NS] += asleep_ns;
				uh_keep_episode(t, slot, t->slept_ns, UH_UNINTERRUPTIBLE);
			} else if (t->slot < UH_SLOTS) {
				slot->counts[UH_ASLEEP_NS] += asleep_ns;
				slot->flags |= UH_WAS_WOKEN;
			}
		}
		uh_keep_life(t, task, last, now);
		uh_count_redundant(t);
		uh_flush_slots(t);
		uh_close_event(&t->open);
	}
	uh_settle(t, task);
	return 0;
}
