/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/* Whom to follow, and what is left of a thread or process that ends. */
#ifndef UNHERD_PROCESS_H
#define UNHERD_PROCESS_H

/* The process's name is its leader's; threads have names of their own. */
static __always_inline void uh_read_comm(char *comm, struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	bpf_probe_read_kernel(comm, sizeof(task->comm), &leader->comm);
}

static __always_inline void uh_notify(u32 kind, u32 pid, u32 parent, struct task_struct *task)
{
	struct uh_notice *notice = bpf_ringbuf_reserve(&uh_notices, sizeof(*notice), 0);

	if (!notice) {
		uh_add(uh_tally.lost_notices, 1);
		return;
	}
	notice->kind = kind;
	notice->pid = pid;
	notice->parent = parent;
	notice->pad = 0;
	uh_read_comm(notice->comm, task);
	bpf_ringbuf_submit(notice, 0);
}

static __always_inline void uh_add_process(struct task_struct *task, u32 parent)
{
	u32 pid = task->tgid;
	struct uh_process fresh = { .parent = parent };

	uh_read_comm(fresh.comm, task);
	/* Another thread of it may have been first. */
	if (!bpf_map_update_elem(&uh_processes, &pid, &fresh, BPF_NOEXIST)) {
		uh_notify(UH_BEGAN, pid, parent, task);
		return;
	}
	if (!bpf_map_lookup_elem(&uh_processes, &pid))
		uh_add(uh_tally.lost_processes, 1);
}

static __always_inline void uh_start_counting(struct uh_thread *t, struct task_struct *task)
{
	u64 now;

	t->followed_ns = t->since_ns = bpf_ktime_get_ns();
	t->user_base_ns = task->utime;
	t->system_base_ns = task->stime;
	t->run_base_ns = task->se.sum_exec_runtime;
	t->counts[UH_P_THREADS] = 1;
	now = uh_add(uh_tally.threads_now, 1) + 1;
	uh_raise(&uh_tally.threads_peak, now);
}

static __always_inline struct uh_thread *uh_add_thread(struct task_struct *task, u32 flags)
{
	struct uh_thread *t;

	t = bpf_task_storage_get(&uh_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		uh_add(uh_tally.lost_threads, 1);
		return 0;
	}
	t->pid = task->tgid;
	t->tid = task->pid;
	t->nr = -1;
	t->slot = UH_SLOTS; /* none yet */
	t->flags = flags;
	return t;
}

/* Adds what the thread has counted since the last time to its process. */
static __always_inline void uh_settle(struct uh_thread *t, struct task_struct *task)
{
	u64 user_ns = task->utime, system_ns = task->stime, run_ns = task->se.sum_exec_runtime;
	struct uh_process *process;
	u32 pid = t->pid;

	t->counts[UH_P_USER_NS] += user_ns - t->user_base_ns;
	t->counts[UH_P_SYSTEM_NS] += system_ns - t->system_base_ns;
	t->counts[UH_P_RUN_NS] += run_ns - t->run_base_ns;
	t->user_base_ns = user_ns;
	t->system_base_ns = system_ns;
	t->run_base_ns = run_ns;
	process = bpf_map_lookup_elem(&uh_processes, &pid);
	if (!process)
		return;
	for (int i = 0; i < UH_PROCESS_COUNTS; i++) {
		if (t->counts[i])
			uh_add(process->counts[i], t->counts[i]);
		t->counts[i] = 0;
	}
}

/* Its time is at an end; the last of it, up to `now`, was spent on `last`. */
static __always_inline void uh_keep_life(struct uh_thread *t, struct task_struct *task, u32 last,
					 u64 now)
{
	struct uh_life_key key = { .pid = t->pid, .tid = task->pid };
	struct uh_life life = {};

	uh_spend(t, last, now);
	bpf_probe_read_kernel(life.comm, sizeof(life.comm), &task->comm);
	life.wall_ns = now - t->followed_ns;
	uh_add(uh_tally.wall_ns, life.wall_ns);
	for (int i = 0; i < UH_TIMES; i++) {
		life.times[i] = t->times[i];
		uh_add(uh_tally.times[i], t->times[i]);
	}
	if (bpf_map_update_elem(&uh_lives, &key, &life, BPF_ANY))
		uh_add(uh_tally.lost_lives, 1);
}

static __always_inline void uh_flush_slots(struct uh_thread *t)
{
	for (u32 i = 0; i <= UH_DEEP_SLOT; i++)
		uh_flush_slot(t, i);
}

#endif
