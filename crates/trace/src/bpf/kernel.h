/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * Just the kernel's types that the programs look into, and of these just the fields. Offsets are
 * the running kernel's: libbpf relocates every access when it loads the programs (CO-RE), so this
 * file need not match any one kernel, and a field may be missing where bpf_core_field_exists()
 * is asked first.
 */
#ifndef UNHERD_KERNEL_H
#define UNHERD_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;

/* include/uapi/linux/bpf.h: what bpf_helper_defs.h and the maps below take from it. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_USER_STACK = 256,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};
enum {
	BPF_RB_AVAIL_DATA = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The registers of a thread in the kernel, by the names of each architecture. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
	u64 orig_x0;
	s32 syscallno;
};
#endif

typedef struct {
	int counter;
} atomic_t;

struct thread_info {
	unsigned long flags;
	u32 status; /* x86 */
};

struct sched_entity {
	u64 sum_exec_runtime;
	unsigned char sched_delayed; /* since 6.12: asleep, and still on the queue */
};

struct signal_struct {
	atomic_t live;
};

struct sock_common {
	u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
};
struct sock {
	struct sock_common __sk_common;
};
struct socket {
	struct sock *sk;
};

struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct qstr d_name;
};
struct path {
	struct dentry *dentry;
};
struct super_block {
	unsigned long s_magic;
};
struct inode {
	u16 i_mode;
	struct super_block *i_sb;
};
struct hlist_node {
	struct hlist_node *next;
};
struct hlist_head {
	struct hlist_node *first;
};
struct eventpoll;
struct epitem {
	struct eventpoll *ep;
	struct hlist_node fllink;
};
struct file {
	struct path f_path;
	struct inode *f_inode;
	void *private_data;
	struct hlist_head *f_ep; /* the sets that it is in; since 5.11 */
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_rq;
	unsigned sched_contributes_to_load : 1;
	struct sched_entity se;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u64 utime;
	u64 stime;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	void *bpf_storage;
	unsigned long nvcsw;
};

struct linux_binprm {
	int argc;
};

struct hrtimer {
	u8 is_soft;
};
struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};
struct timer_list {
	unsigned long expires;
};
struct process_timer {
	struct timer_list timer;
	struct task_struct *task;
};

struct bpf_iter_meta {
	u64 seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
