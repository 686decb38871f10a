/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * What a descriptor of the running thread is: looked up once for each row, in the thread itself,
 * because the process may be gone when somebody asks /proc.
 */
#ifndef UNHERD_FILE_H
#define UNHERD_FILE_H

#define UH_TYPE_MASK 0170000 /* S_IFMT */
#define UH_TYPE_SOCKET 0140000 /* S_IFSOCK */
#define UH_TYPE_REGULAR 0100000
#define UH_TYPE_BLOCK 0060000
#define UH_TYPE_DIRECTORY 0040000
#define UH_ANON_INODES 0x09041934 /* ANON_INODE_FS_MAGIC */
#define UH_AF_INET 2
#define UH_AF_INET6 10
#define UH_TCP_LISTEN 10

static __always_inline u64 uh_argument(struct pt_regs *regs, u32 n)
{
#if defined(__TARGET_ARCH_x86)
	switch (n) {
	case 0:
		return regs->di;
	case 1:
		return regs->si;
	case 2:
		return regs->dx;
	case 3:
		return regs->r10;
	case 4:
		return regs->r8;
	}
	return regs->r9;
#elif defined(__TARGET_ARCH_arm64)
	switch (n) {
	case 0:
		return regs->orig_x0;
	case 1:
		return regs->user_regs.regs[1];
	case 2:
		return regs->user_regs.regs[2];
	case 3:
		return regs->user_regs.regs[3];
	case 4:
		return regs->user_regs.regs[4];
	}
	return regs->user_regs.regs[5];
#endif
}

/* Only the families of IP have ports. */
static __always_inline u16 uh_port(const struct sock *sk)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family != UH_AF_INET && family != UH_AF_INET6)
		return 0;
	return BPF_CORE_READ(sk, __sk_common.skc_num);
}

static __always_inline struct file *uh_file_of(u64 descriptor)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(current, files, fdt);
	struct file *file = 0;
	struct file **slot;

	if (!table || descriptor >= BPF_CORE_READ(table, max_fds))
		return 0;
	slot = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), slot + descriptor);
	return file;
}

/* Whether something comes out of it only if somebody put it in: no plain file, directory or disk. */
static __always_inline bool uh_is_stream(struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	u16 type = BPF_CORE_READ(inode, i_mode) & UH_TYPE_MASK;

	if (type == UH_TYPE_REGULAR) /* as eventfds and their kin are, since 6.16 */
		return BPF_CORE_READ(inode, i_sb, s_magic) == UH_ANON_INODES;
	return type != UH_TYPE_DIRECTORY && type != UH_TYPE_BLOCK;
}

#define UH_SETS_OF_FILE 64

/*
 * Whether the epoll set watches the file, whose address this is; also if that cannot be known. Not
 * static, so that the kernel checks it once and not for each way that leads to it.
 */
__noinline int uh_is_watched(u64 address, u64 set)
{
	struct file *file = (void *)address, *epoll = uh_file_of(set);
	struct hlist_head *sets;
	struct hlist_node *node;
	void *ep;

	if (!file || !epoll || !bpf_core_field_exists(file->f_ep))
		return 1;
	ep = BPF_CORE_READ(epoll, private_data);
	sets = BPF_CORE_READ(file, f_ep);
	node = sets ? BPF_CORE_READ(sets, first) : 0;
	for (u32 i = 0; i < UH_SETS_OF_FILE && node; i++) {
		struct epitem *item = (void *)node - bpf_core_field_offset(struct epitem, fllink);

		if (BPF_CORE_READ(item, ep) == ep)
			return 1;
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

static __noinline int uh_describe_file(struct uh_file *description, u64 descriptor)
{
	struct file *file = uh_file_of(descriptor);
	const unsigned char *name;

	if (!description || !file)
		return 0;
	description->mode = BPF_CORE_READ(file, f_inode, i_mode);
	if ((description->mode & UH_TYPE_MASK) == UH_TYPE_SOCKET) {
		struct socket *socket = BPF_CORE_READ(file, private_data);
		struct sock *sk = BPF_CORE_READ(socket, sk);

		description->port = uh_port(sk);
		description->listening =
			BPF_CORE_READ(sk, __sk_common.skc_state) == UH_TCP_LISTEN;
		return 0;
	}
	name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	bpf_probe_read_kernel_str(&description->name, sizeof(description->name), name);
	return 0;
}

static __always_inline u64 uh_inode_of(u64 descriptor)
{
	struct file *file = uh_file_of(descriptor);

	return file ? (u64)BPF_CORE_READ(file, f_inode) : 0;
}

/* The first descriptor of the array of poll, and how many there are. */
static __noinline int uh_describe_poll(struct uh_file *description, u64 array, u64 count)
{
	s32 descriptor = -1;

	if (!description || bpf_probe_read_user(&descriptor, sizeof(descriptor), (void *)array) ||
	    descriptor < 0)
		return 0;
	uh_describe_file(description, descriptor);
	description->descriptor = descriptor;
	description->others = count - 1;
	return 0;
}

#endif
