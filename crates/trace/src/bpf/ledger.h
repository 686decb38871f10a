/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * What programs that use unherd's library say of themselves. Where their ledger lies in memory is
 * said in `unherd_sys::ledger_layout`; a test compares the numbers. A process is known by the memory
 * file that it maps as a signpost, and its rows are added up when its last thread ends, while its
 * memory is still there.
 */
#ifndef UNHERD_LEDGER_H
#define UNHERD_LEDGER_H

#define UH_LEDGER_REASONS 64
#define UH_LEDGER_SLOTS 32
#define UH_LEDGER_ROW_BYTES 128
#define UH_LEDGER_FIELDS 9
#define UH_LEDGER_ROW_WAITING 9 /* the words of a row */
#define UH_LEDGER_ROOT_BYTES 7232
#define UH_LEDGER_LINE_BYTES 64
#define UH_LEDGER_WAITERS 64
#define UH_LEDGER_BLOCK_BYTES (UH_LEDGER_SLOTS * UH_LEDGER_ROW_BYTES)
#define UH_LEDGER_SLAB_NEXT ((u64)UH_LEDGER_REASONS * UH_LEDGER_BLOCK_BYTES)
/* As many as are followed from one to the next: 2,048 threads at a time. */
#define UH_LEDGER_SLABS 64

/* As `ledger.rs` reads it. */
struct uh_ledger {
	char root[UH_LEDGER_ROOT_BYTES];
	u64 sums[UH_LEDGER_REASONS * UH_LEDGER_FIELDS];
	u64 read_ns;
	/* Threads that wait at gates, those that have waited longest, in no order. */
	u64 waiters;
	struct {
		u64 since_ns;
		u64 at; /* the gate's number, and the thread's */
		u64 reason;
	} waiter[UH_LEDGER_WAITERS];
};

/* One reason's rows in one slab. */
struct uh_ledger_block {
	u64 numbers[UH_LEDGER_BLOCK_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u64);
} uh_ledger_roots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct uh_ledger);
} uh_ledgers SEC(".maps");

/* Never written: what a new ledger begins with is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct uh_ledger);
} uh_ledger_zero SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct uh_ledger_block);
} uh_ledger_blocks SEC(".maps");

static __always_inline u64 uh_read_number(u64 at)
{
	u64 number = 0;

	bpf_probe_read_user(&number, sizeof(number), (void *)at);
	return number;
}

struct uh_ledger_walk {
	u32 pid;
	u32 pad;
	u64 root;
	u64 slab;
	u64 reason; /* whose block was read last */
};

/*
 * Names and gates, line by line: a root begins at a line, and of a page that was never written
 * nothing can be read here. It holds zeros, as does what is not read.
 */
static long uh_add_line(u64 line, struct uh_ledger_walk *walk)
{
	struct uh_ledger *ledger = bpf_map_lookup_elem(&uh_ledgers, &walk->pid);

	if (!ledger || line >= UH_LEDGER_ROOT_BYTES / UH_LEDGER_LINE_BYTES)
		return 1;
	bpf_probe_read_user(ledger->root + line * UH_LEDGER_LINE_BYTES, UH_LEDGER_LINE_BYTES,
			    (void *)(walk->root + line * UH_LEDGER_LINE_BYTES));
	return 0;
}

/* The slab for threads that are nearly gone uses the first slot alone, and may share its pages. */
static long uh_add_orphans(u64 reason, struct uh_ledger_walk *walk)
{
	u64 row[UH_LEDGER_FIELDS] = {};
	struct uh_ledger *ledger = bpf_map_lookup_elem(&uh_ledgers, &walk->pid);

	if (!ledger || reason >= UH_LEDGER_REASONS)
		return 1;
	if (bpf_probe_read_user(row, sizeof(row),
				(void *)(walk->slab + reason * UH_LEDGER_BLOCK_BYTES)))
		return 0;
	for (u32 field = 0; field < UH_LEDGER_FIELDS; field++)
		ledger->sums[reason * UH_LEDGER_FIELDS + field] += row[field];
	return 0;
}

/*
 * The place of the waiter that came last. Not static, nor is `uh_add_sums`: the verifier takes such a
 * function by itself, once, and not again in each round of the loops around it.
 */
__noinline u32 uh_last_waiter(u32 pid)
{
	struct uh_ledger *ledger = bpf_map_lookup_elem(&uh_ledgers, &pid);
	u32 place = 0;
	u64 last = 0;

	if (!ledger)
		return 0;
	for (u32 n = 0; n < UH_LEDGER_WAITERS; n++)
		if (ledger->waiter[n].since_ns > last) {
			last = ledger->waiter[n].since_ns;
			place = n;
		}
	return place;
}

/*
 * Of the block that was read last: in the place of the one that came last, if there is no other. A
 * loop of its own: the verifier takes one round of it.
 */
static long uh_add_waiter(u64 slot, struct uh_ledger_walk *walk)
{
	struct uh_ledger *ledger = bpf_map_lookup_elem(&uh_ledgers, &walk->pid);
	struct uh_ledger_block *block;
	u64 place, *words;
	u32 zero = 0;

	block = bpf_map_lookup_elem(&uh_ledger_blocks, &zero);
	if (!ledger || !block || slot >= UH_LEDGER_SLOTS)
		return 1;
	words = &block->numbers[slot * (UH_LEDGER_ROW_BYTES / 8) + UH_LEDGER_ROW_WAITING];
	if (!words[0])
		return 0;
	place = ledger->waiters;
	if (place < UH_LEDGER_WAITERS) {
		ledger->waiters = place + 1;
	} else {
		place = uh_last_waiter(walk->pid);
		if (place >= UH_LEDGER_WAITERS || ledger->waiter[place].since_ns <= words[0])
			return 0;
	}
	ledger->waiter[place].since_ns = words[0];
	ledger->waiter[place].at = words[1];
	ledger->waiter[place].reason = walk->reason;
	return 0;
}

/* Adds the block that was read last. */
__noinline int uh_add_sums(u32 pid, u64 reason)
{
	struct uh_ledger_block *block;
	struct uh_ledger *ledger;
	u32 zero = 0;

	ledger = bpf_map_lookup_elem(&uh_ledgers, &pid);
	block = bpf_map_lookup_elem(&uh_ledger_blocks, &zero);
	if (!ledger || !block || reason >= UH_LEDGER_REASONS)
		return 0;
	for (u32 field = 0; field < UH_LEDGER_FIELDS; field++) {
		u64 sum = 0;

		for (u32 slot = 0; slot < UH_LEDGER_SLOTS; slot++)
			sum += block->numbers[slot * (UH_LEDGER_ROW_BYTES / 8) + field];
		ledger->sums[reason * UH_LEDGER_FIELDS + field] += sum;
	}
	return 0;
}

static long uh_add_reason(u64 reason, struct uh_ledger_walk *walk)
{
	struct uh_ledger_block *block;
	u32 zero = 0;

	block = bpf_map_lookup_elem(&uh_ledger_blocks, &zero);
	if (!block || reason >= UH_LEDGER_REASONS)
		return 1;
	/* A page that was never written is not there, and cannot be read here: it holds zeros. */
	if (bpf_probe_read_user(block, UH_LEDGER_BLOCK_BYTES,
				(void *)(walk->slab + reason * UH_LEDGER_BLOCK_BYTES)))
		return 0;
	uh_add_sums(walk->pid, reason);
	walk->reason = reason;
	bpf_loop(UH_LEDGER_SLOTS, uh_add_waiter, walk, 0);
	return 0;
}

static long uh_add_slab(u64 n, struct uh_ledger_walk *walk)
{
	if (!walk->slab)
		return 1;
	bpf_loop(UH_LEDGER_REASONS, uh_add_reason, walk, 0);
	walk->slab = uh_read_number(walk->slab + UH_LEDGER_SLAB_NEXT);
	return 0;
}

static __always_inline bool uh_is(u64 at, const char *text, u32 len)
{
	char read[16] = {};

	if (bpf_probe_read_user(read, len, (void *)at))
		return 0;
	for (u32 i = 0; i < len; i++)
		if (read[i] != text[i])
			return 0;
	return 1;
}

/* The process ends: adds its ledger up, if it has one. */
static __noinline int uh_keep_ledger(u32 pid)
{
	struct uh_ledger_walk walk = { .pid = pid };
	struct uh_ledger *ledger, *fresh;
	u32 zero = 0;
	u64 *root, at;

	root = bpf_map_lookup_elem(&uh_ledger_roots, &pid);
	fresh = bpf_map_lookup_elem(&uh_ledger_zero, &zero);
	if (!root || !fresh)
		return 0;
	at = *root;
	/* Of threads that end at once any may take itself for the last: one of them has it. */
	if (bpf_map_delete_elem(&uh_ledger_roots, &pid))
		return 0;
	if (!uh_is(at, "unherd.ledger/2", 16) || bpf_map_update_elem(&uh_ledgers, &pid, fresh, BPF_ANY)) {
		uh_add(uh_tally.lost_ledgers, 1);
		return 0;
	}
	ledger = bpf_map_lookup_elem(&uh_ledgers, &pid);
	if (!ledger)
		return 0;
	ledger->read_ns = bpf_ktime_get_ns();
	walk.root = at;
	bpf_loop(UH_LEDGER_ROOT_BYTES / UH_LEDGER_LINE_BYTES, uh_add_line, &walk, 0);
	walk.slab = uh_read_number(at + 24);
	if (walk.slab)
		bpf_loop(UH_LEDGER_REASONS, uh_add_orphans, &walk, 0);
	walk.slab = uh_read_number(at + 16);
	bpf_loop(UH_LEDGER_SLABS, uh_add_slab, &walk, 0);
	if (walk.slab)
		uh_add(uh_tally.lost_ledgers, 1);
	return 0;
}

/* What a ledger is noticed by: a memory file with its name, and the thread's next mapping. */
static __noinline int uh_notice_ledger(struct uh_thread *t, u32 family, u64 name, s64 result)
{
	u64 root;
	u32 pid;

	if (!t || result <= 0)
		return 0;
	if (family == UH_MEMORY_FILE) {
		if (uh_is(name, "unherd-ledger", 14))
			t->flags |= UH_SIGNPOST;
		return 0;
	}
	if (!(t->flags & UH_SIGNPOST))
		return 0;
	t->flags &= ~UH_SIGNPOST;
	if (!uh_is(result, "unherd.ledger/2", 16))
		return 0;
	pid = t->pid;
	root = uh_read_number(result + 16);
	if (bpf_map_update_elem(&uh_ledger_roots, &pid, &root, BPF_ANY))
		uh_add(uh_tally.lost_ledgers, 1);
	return 0;
}

#endif
