#!/bin/sh
# Runs the library tests of unherd-sync on a machine with several NUMA nodes, emulated by qemu in
# software: what the kernel does with our wishes is real, the distances are not; nothing is timed.
#
#   boot.sh [NODES [DIR]]     2 nodes; what is downloaded and unpacked goes to DIR, target/numa
#
# Uses qemu, a kernel and busybox of the host's where they are installed, and takes the others from
# Debian's packages (apt-get download: nothing is installed). Shows the lines of numa_maps; exit 0
# if all tests passed there. Not part of CI. The soak is left out: one processor emulates all.
set -eu

nodes=${1:-2}
cd "$(dirname "$0")/../../../.."
dir=$(realpath -m "${2:-target/numa}")
root=$dir/root
machine=$dir/machine

# The first of these files that is there.
first() {
    for file in "$@"; do
        if [ -r "$file" ]; then
            echo "$file"
            return
        fi
    done
}

# Sets what we need, or what is to be downloaded for it.
look() {
    wanted=
    qemu=$(first "$root/usr/bin/qemu-system-x86_64" "$(command -v qemu-system-x86_64 || :)")
    busybox=$(first "$root/bin/busybox" "$root/usr/bin/busybox" "$(command -v busybox || :)")
    kernel=$(first "$root"/boot/vmlinuz-* /boot/vmlinuz-*)
    [ -n "$qemu" ] || wanted="$wanted qemu-system-x86"
    [ -n "$busybox" ] || wanted="$wanted busybox-static"
    [ -n "$kernel" ] || wanted="$wanted linux-image-cloud-amd64"
}

look
if [ -n "$wanted" ]; then
    mkdir -p "$dir/packages" "$root"
    packages=$(apt-get -s install --no-install-recommends $wanted |
        sed -n 's/^Inst \([^ ]*\).*/\1/p')
    (cd "$dir/packages" && apt-get download -q $packages)
    for package in "$dir"/packages/*.deb; do
        dpkg -x "$package" "$root"
    done
    look
fi

tests=$(cargo test -q -p unherd-sync --lib --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')

rm -rf "$machine"
mkdir -p "$machine/bin" "$machine/proc" "$machine/sys" "$machine/dev" "$machine/tmp"
cp "$busybox" "$machine/bin/busybox"
cp "$tests" "$machine/bin/tests"
# Busybox may need some as well, or be static.
for library in $({ ldd "$tests"; ldd "$busybox" || :; } 2> /dev/null | grep -o '/[^ ]*'); do
    mkdir -p "$machine$(dirname "$library")"
    cp -L "$library" "$machine$library"
done
cat > "$machine/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/tests --nocapture --test-threads=1 && /bin/busybox echo ALL PASSED
/bin/busybox poweroff -f
INIT
chmod +x "$machine/init"
(cd "$machine" && find . | ./bin/busybox cpio -o -H newc) 2> "$dir/cpio.log" |
    gzip -1 > "$dir/machine.gz"

# Of each node 256 MiB and a processor.
set --
node=0
while [ "$node" -lt "$nodes" ]; do
    set -- "$@" -object "memory-backend-ram,id=memory$node,size=256M" \
        -numa "node,nodeid=$node,memdev=memory$node,cpus=$node"
    node=$((node + 1))
done
if [ "$qemu" = "$root/usr/bin/qemu-system-x86_64" ]; then
    set -- -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
    export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu"
fi
timeout 600 "$qemu" -accel tcg -m "$((256 * nodes))M" -smp "$nodes" "$@" \
    -kernel "$kernel" -initrd "$dir/machine.gz" \
    -append "console=ttyS0 quiet panic=-1" -nographic -no-reboot -nic none |
    tee "$dir/console.log"
grep -q '^ALL PASSED' "$dir/console.log"
