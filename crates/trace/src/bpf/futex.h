/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/* Futex calls by what came of them: each one, with the stack it was made from. */
#ifndef UNHERD_FUTEX_H
#define UNHERD_FUTEX_H

#define UH_FUTEX_COMMAND 0x7f /* without the private and clock flags */
#define UH_PARK_MARK 0x554e4844 /* as unherd_sys::PARK_MARK */
#define UH_ENOSYS 38
#define UH_EINTR 4
#define UH_EAGAIN 11
#define UH_ETIMEDOUT 110
#define UH_ERESTARTSYS 512
#define UH_ERESTART_RESTARTBLOCK 516

/* The commands of futex(2), as enum uh_futex_kind. */
static __always_inline u8 uh_futex_kind_of(u32 op)
{
	switch (op & UH_FUTEX_COMMAND) {
	case 0: /* FUTEX_WAIT */
	case 9: /* FUTEX_WAIT_BITSET */
	case 11: /* FUTEX_WAIT_REQUEUE_PI */
		return UH_F_WAIT;
	case 1: /* FUTEX_WAKE */
	case 5: /* FUTEX_WAKE_OP */
	case 10: /* FUTEX_WAKE_BITSET */
		return UH_F_WAKE;
	case 3: /* FUTEX_REQUEUE */
	case 4: /* FUTEX_CMP_REQUEUE */
	case 12: /* FUTEX_CMP_REQUEUE_PI */
		return UH_F_REQUEUE;
	case 6: /* FUTEX_LOCK_PI */
	case 7: /* FUTEX_UNLOCK_PI */
	case 8: /* FUTEX_TRYLOCK_PI */
	case 13: /* FUTEX_LOCK_PI2 */
		return UH_F_LOCK_PI;
	}
	return UH_F_NONE;
}

/* struct futex_waitv: val, uaddr, flags, reserved. */
static __always_inline u64 uh_first_word(u64 waiters)
{
	u64 word = 0;

	bpf_probe_read_user(&word, sizeof(word), (void *)(waiters + 8));
	return word;
}

/* FUTEX_WAIT_BITSET and FUTEX_WAKE_BITSET. */
static __always_inline bool uh_has_bits(u32 op)
{
	return (op & UH_FUTEX_COMMAND) == 9 || (op & UH_FUTEX_COMMAND) == 10;
}

static __always_inline void uh_look_at_futex(struct uh_thread *t, u8 entry, u64 arg0, u32 op,
					     u32 bits)
{
	u64 word = arg0;

	if (entry == UH_FUTEX_BY_OP) {
		t->futex = uh_futex_kind_of(op);
	} else if (entry == UH_FUTEX_WAITV || entry == UH_FUTEX_REQUEUE) {
		t->futex = entry == UH_FUTEX_WAITV ? UH_F_WAIT_MANY : UH_F_REQUEUE;
		word = uh_first_word(arg0);
	} else {
		t->futex = entry == UH_FUTEX_WAKE ? UH_F_WAKE : UH_F_WAIT;
	}
	t->word = word;
	t->kind = UH_FUTEX;
	if (entry == UH_FUTEX_BY_OP && bits == UH_PARK_MARK && uh_has_bits(op)) {
		t->kind = UH_PARKER;
		t->futex |= UH_F_PARKER;
	}
	t->value = word & ~7ULL;
}

static __always_inline void uh_count_outcome(struct uh_futex_row *row, u8 kind, s64 result,
					     bool slept)
{
	bool waits = kind == UH_F_WAIT || kind == UH_F_WAIT_MANY;

	if (result >= 0 && (kind == UH_F_WAKE || kind == UH_F_REQUEUE)) {
		u32 count = result == 0 ? UH_F_WOKE_NONE :
			    result == 1 ? UH_F_WOKE_ONE :
					  UH_F_WOKE_MANY;

		uh_add(row->counts[count & 7], 1);
		uh_add(row->counts[UH_F_WOKEN], result);
	} else if (result >= 0) {
		if (waits || slept)
			uh_add(row->counts[UH_F_SLEPT], 1);
	} else if (result == -UH_EAGAIN) {
		uh_add(row->counts[UH_F_REFUSED], 1);
	} else if (result == -UH_ETIMEDOUT) {
		uh_add(row->counts[UH_F_TIMED_OUT], 1);
	} else if (result == -UH_EINTR ||
		   (result <= -UH_ERESTARTSYS && result >= -UH_ERESTART_RESTARTBLOCK)) {
		uh_add(row->counts[UH_F_INTERRUPTED], 1);
	} else {
		uh_add(row->counts[UH_F_FAILED], 1);
	}
}

/*
 * The row of this word and stack. Where frame pointers are missing, walking a stack yields ever
 * new ones for one call site; so a quarter of the rows is kept for words without a stack, and the
 * outcomes stay exact by word when the stacks are too many.
 */
static __always_inline struct uh_futex_row *uh_futex_row(struct uh_futex_key *key)
{
	struct uh_futex_row *row = bpf_map_lookup_elem(&uh_futexes, key);
	struct uh_futex_row fresh = {};

	if (row)
		return row;
	if (uh_tally.futex_rows >= uh_settings.futex_rows) {
		if (key->user_stack >= 0)
			uh_add(uh_tally.stacks_lost, 1);
		key->user_stack = -1;
		row = bpf_map_lookup_elem(&uh_futexes, key);
		if (row)
			return row;
	}
	if (!bpf_map_update_elem(&uh_futexes, key, &fresh, BPF_NOEXIST))
		uh_add(uh_tally.futex_rows, 1);
	return bpf_map_lookup_elem(&uh_futexes, key);
}

static __always_inline void uh_count_futex(void *ctx, struct uh_thread *t, s64 result)
{
	struct uh_futex_key key = { .word = t->word, .pid = t->pid, .kind = t->futex };
	struct uh_futex_row *row;

	key.user_stack = uh_user_stack(ctx);
	row = uh_futex_row(&key);
	if (!row) {
		uh_add(uh_tally.lost_futexes, 1);
		return;
	}
	uh_sample_futex_stack(key.word, key.kind, key.user_stack,
			      uh_add(row->counts[UH_F_CALLS], 1) + 1);
	uh_count_outcome(row, t->futex & ~UH_F_PARKER, result, t->flags & UH_SLEPT_IN_CALL);
}

#endif
