#!/bin/sh
# Runs the wait table's placement tests on a machine with several NUMA nodes, emulated by qemu in
# software: what the kernel does with our wishes is real, the distances are not; nothing is timed.
#
#   boot.sh [NODES [DIR]]     2 nodes; what is downloaded and unpacked goes to DIR, target/numa
#
# Takes qemu, a kernel and busybox from Debian's packages (apt-get download: nothing is installed).
# Shows the lines of numa_maps; exit 0 if all tests passed there. Not part of CI.
set -eu

nodes=${1:-2}
cd "$(dirname "$0")/../../../.."
dir=$(realpath -m "${2:-target/numa}")
root=$dir/root
machine=$dir/machine

if ! [ -x "$root/usr/bin/qemu-system-x86_64" ]; then
    mkdir -p "$dir/packages" "$root"
    packages=$(apt-get -s install --no-install-recommends \
        qemu-system-x86 busybox-static linux-image-cloud-amd64 | sed -n 's/^Inst \([^ ]*\).*/\1/p')
    (cd "$dir/packages" && apt-get download -q $packages)
    for package in "$dir"/packages/*.deb; do
        dpkg -x "$package" "$root"
    done
fi

tests=$(cargo test -q -p unherd-sync --lib --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')

rm -rf "$machine"
mkdir -p "$machine/bin" "$machine/proc" "$machine/sys" "$machine/dev" "$machine/tmp"
cp "$root/bin/busybox" "$machine/bin/"
cp "$tests" "$machine/bin/tests"
for library in $(ldd "$tests" | grep -o '/[^ ]*'); do
    mkdir -p "$machine$(dirname "$library")"
    cp -L "$library" "$machine$library"
done
cat > "$machine/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/tests wait_table::placement --nocapture --test-threads=1 && /bin/busybox echo ALL PASSED
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
libraries=$root/usr/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries:$root/lib/x86_64-linux-gnu timeout 300 \
    "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" \
    -accel tcg -m "$((256 * nodes))M" -smp "$nodes" "$@" \
    -kernel "$root"/boot/vmlinuz-* -initrd "$dir/machine.gz" \
    -append "console=ttyS0 quiet panic=-1" -nographic -no-reboot -nic none |
    tee "$dir/console.log"
grep -q '^ALL PASSED' "$dir/console.log"
