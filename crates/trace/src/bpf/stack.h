/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * Copies of user stacks, for code without frame pointers.
 *
 * The kernel walks user stacks by frame pointers, which few distributions' libraries have: the
 * walk ends in the C library, and its id stands for all the paths that lead there. User space can
 * do better with the unwind tables of the mapped files, if it has the registers and the top of the
 * stack. So of some of the samples it gets a copy.
 *
 * A copy costs some microseconds, so there are few: of each pair of stacks the first 128 samples,
 * which are few already, then 64 each time their number doubles; of each row of futex calls the first, the
 * second, the fourth and so on; and in no case more than UH_COPIES_A_SECOND of a kind on each
 * processor.
 */
#ifndef UNHERD_STACK_H
#define UNHERD_STACK_H

#define UH_COPIES_A_SECOND 512
#define UH_COPY_WINDOW_NS 1000000000ULL
/* Reading stops at the first piece that cannot be read, such as the one behind the stack's end. */
#define UH_COPY_PIECE 1024
#define UH_COPY_PIECES (UH_COPY_BYTES / UH_COPY_PIECE)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22); /* 254 copies that nobody has read yet */
} uh_copies SEC(".maps");

/* When so much waits to be read, the reader is woken; else it comes by itself. */
#define UH_COPIES_UNREAD (1 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct uh_copying);
} uh_copying SEC(".maps");

static __always_inline void uh_take_registers(struct uh_copy *copy, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	copy->ip = regs->ip;
	copy->sp = regs->sp;
	copy->fp = regs->bp;
	copy->lr = 0;
#elif defined(__TARGET_ARCH_arm64)
	copy->ip = regs->user_regs.pc;
	copy->sp = regs->user_regs.sp;
	copy->fp = regs->user_regs.regs[29];
	copy->lr = regs->user_regs.regs[30];
#endif
}

/* Copies the stack of the running thread, which is met as `pair` says, if there is room. */
static __noinline int uh_copy_stack(struct uh_pair_key *pair, u32 kind, u32 stands_for)
{
	u64 now = bpf_ktime_get_ns(), unread;
	struct uh_copying *copying;
	struct uh_copy *copy;
	u32 zero = 0, pieces;

	copying = bpf_map_lookup_elem(&uh_copying, &zero);
	if (!pair || !copying || kind >= UH_COPY_KINDS)
		return 0;
	if (now - copying->began_ns[kind] >= UH_COPY_WINDOW_NS) {
		copying->began_ns[kind] = now;
		copying->taken[kind] = 0;
	}
	if (copying->taken[kind] >= UH_COPIES_A_SECOND) {
		copying->lost++;
		return 0;
	}
	copy = bpf_ringbuf_reserve(&uh_copies, sizeof(*copy), 0);
	if (!copy) {
		copying->lost++;
		return 0;
	}
	copy->pair = *pair;
	copy->pid = bpf_get_current_pid_tgid() >> 32;
	copy->kind = kind;
	copy->stands_for = stands_for;
	uh_take_registers(copy, (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()));
	for (pieces = 0; pieces < UH_COPY_PIECES; pieces++) {
		u32 at = pieces * UH_COPY_PIECE;

		if (bpf_probe_read_user(copy->stack + at, UH_COPY_PIECE, (void *)(copy->sp + at)))
			break;
	}
	copy->bytes = pieces * UH_COPY_PIECE;
	copying->taken[kind]++;
	copying->copies++;
	copying->bytes += copy->bytes;
	unread = bpf_ringbuf_query(&uh_copies, BPF_RB_AVAIL_DATA);
	bpf_ringbuf_submit(copy,
			   unread >= UH_COPIES_UNREAD ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	return 0;
}

/* A sample of a pair, one of `weight`. */
static __noinline int uh_keep_sample(struct uh_pair_key *pair, u32 kind, bool has_user, u32 weight)
{
	u64 met, step = 1;

	if (!pair)
		return 0;
	met = uh_count_pair(pair, weight);
	if (!has_user || !met)
		return 0;
	for (u32 i = 0; i < 20 && step <= met >> 7; i++)
		step <<= 1;
	if (!(met & (step - 1)))
		uh_copy_stack(pair, kind, step * weight);
	return 0;
}

/*
 * A sample of both stacks for the row with this id, one of `weight`, and for its timer polls, one
 * of `polls_weight`; either may be 0: none. The user's is the running thread's.
 */
static __always_inline void uh_sample_stacks(void *ctx, u64 row, u32 kind, bool has_user,
					     u32 weight, u32 polls_weight)
{
	struct uh_pair_key pair = { .row = row };

	pair.kernel = uh_kernel_stack(ctx);
	pair.user = has_user ? uh_user_stack(ctx) : -1;
	if (weight)
		uh_keep_sample(&pair, kind, has_user, weight);
	if (polls_weight) {
		pair.row |= UH_OF_POLLS;
		uh_keep_sample(&pair, kind, has_user, polls_weight);
	}
}

/* A futex call; the row of this word, kind and stack has `calls` of them now. */
static __always_inline void uh_sample_futex_stack(u64 word, u32 kind, s32 user, u64 calls)
{
	struct uh_pair_key pair = { .row = word, .kernel = kind, .user = user };

	if (!(calls & (calls - 1)))
		uh_copy_stack(&pair, UH_COPY_FUTEX, 1);
}

#endif
