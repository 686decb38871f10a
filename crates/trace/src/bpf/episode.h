/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * Episodes one by one, for timelines: the first `uh_settings.episodes` of all threads. That is 0
 * unless somebody wants a timeline; the verifier then removes what is here.
 */
#ifndef UNHERD_EPISODE_H
#define UNHERD_EPISODE_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} uh_episodes SEC(".maps");

/* When so much waits to be read, the reader is woken; else it comes by itself. */
#define UH_EPISODES_UNREAD (1 << 18)

/* What ended the sleep that began at this slot; the thread runs again since `now`. */
static __always_inline void uh_end_sleep(struct uh_thread *t, struct uh_slot *slot, u64 now)
{
	slot->woken_ns = t->waking.at_ns;
	slot->ran_ns = now;
	slot->waker = t->waking.key;
	slot->waker_tid = t->waking.tid;
}

static __always_inline void uh_keep_episode(struct uh_thread *t, struct uh_slot *slot,
					    u64 began_ns, u32 class)
{
	struct uh_episode *episode;

	if (!uh_settings.episodes ||
	    uh_add(uh_tally.episodes, 1) >= uh_settings.episodes)
		return;
	episode = bpf_ringbuf_reserve(&uh_episodes, sizeof(*episode), 0);
	if (!episode) {
		uh_add(uh_tally.lost_episodes, 1);
		return;
	}
	uh_wait_key_of(&episode->at, t, slot);
	episode->waker = slot->waker;
	episode->began_ns = began_ns;
	episode->woken_ns = slot->woken_ns;
	episode->ran_ns = slot->ran_ns;
	episode->tid = t->tid;
	episode->waker_tid = slot->waker_tid;
	episode->class = class;
	episode->pad = 0;
	bpf_ringbuf_submit(episode, bpf_ringbuf_query(&uh_episodes, BPF_RB_AVAIL_DATA) >=
					    UH_EPISODES_UNREAD ?
				    BPF_RB_FORCE_WAKEUP :
				    BPF_RB_NO_WAKEUP);
}

#endif
