/* SPDX-License-Identifier: (MIT OR GPL-2.0) */
/*
 * What a descriptor of the running thread is: looked up once for each row, in the thread itself,
 * because the process may be gone when somebody asks /proc.
 */
#ifndef UNHERD_FILE_H
#define UNHERD_FILE_H

#define UH_TYPE_MASK 0170000 /* S_IFMT */
#define UH_TYPE_SOCKET 0140000 /* S_IFSOCK */
#define UH_AF_INET 2
#define UH_AF_INET6 10
#define UH_TCP_LISTEN 10

/* Only the families of IP have ports. */
static __always_inline u16 uh_port(const struct sock *sk)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (family != UH_AF_INET && family != UH_AF_INET6)
		return 0;
	return BPF_CORE_READ(sk, __sk_common.skc_num);
}

static __noinline int uh_describe_file(struct uh_file *description, u64 descriptor)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(current, files, fdt);
	struct file *file = 0;
	struct file **slot;
	const unsigned char *name;

	if (!description || !table || descriptor >= BPF_CORE_READ(table, max_fds))
		return 0;
	slot = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), slot + descriptor);
	if (!file)
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

#endif
