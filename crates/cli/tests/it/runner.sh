#!/bin/sh
# A runner that measures nothing: what it prints depends on the implementation's name, the seed and
# the threads alone.
here=$(dirname "$0")
if [ "$2" = --describe ]; then
    cat "$here/catalogue.json"
    exit
fi
workload=$2
shift 2
buckets=16 plant=0 dir=
while [ $# -gt 0 ]; do
    case $1 in
    --with) impl=$2 ;;
    --threads) threads=$2 ;;
    --seed) seed=$2 ;;
    --plant) plant=$2 ;;
    --dir) dir=$2 ;;
    --param) eval "${2%%=*}=${2#*=}" ;;
    esac
    shift 2
done
check=c0ffee
case $impl in
before) cost=100 ;;
unherd) cost=25 ;;
idle) cost=25 ;;
slow) sleep 0.05; cost=25 ;;
odd) cost=25 check=decaf ;;
crash) echo "out of cheese" >&2; exit 3 ;;
refuse) echo "the disk is too small; need 5 GiB, have 1 GiB" >&2; exit 2 ;;
nonsense) echo "all is well"; exit 0 ;;
late) # Fails at one call, the third unless told.
    echo x >>"$here/late"
    at=$(cat "$here/fails-at" 2>/dev/null || echo 3)
    [ "$(wc -l <"$here/late")" -ne "$at" ] || { echo "too late" >&2; exit 1; }
    cost=50 ;;
fickle) # Is refused at its third call.
    echo x >>"$here/fickle"
    [ "$(wc -l <"$here/fickle")" -ne 3 ] || { echo "the disk is full; make room" >&2; exit 2; }
    cost=50 ;;
painter) printf '\033[2Jall is well\n' >&2; exit 5 ;;
leaver) # Leaves somebody behind, in a session of its own, who holds the outputs open.
    mkfifo "$here/fifo.$$"
    setsid sh -c 'echo $$ >>"$0/left"; echo >"$0/fifo.$1"; exec sleep 1000' "$here" $$ &
    read -r _ <"$here/fifo.$$"
    cost=25 ;;
debtor) # Costs less than nothing at the ninth call.
    echo x >>"$here/debtor"
    cost=50
    [ "$(wc -l <"$here/debtor")" -ne 9 ] || cost=-1 ;;
untraceable) # Fails under the tracer.
    if tr '\0' ' ' <"/proc/$PPID/cmdline" | grep -q " trace "; then
        echo "somebody looks" >&2
        exit 4
    fi
    cost=50 ;;
sluggish) # Takes a second at its first call.
    [ -e "$here/sluggish" ] || sleep 1
    echo x >"$here/sluggish"
    cost=25 ;;
halting) # Is as `stuck` at its third call.
    echo x >>"$here/halting"
    [ "$(wc -l <"$here/halting")" -ne 3 ] || {
        echo "$$" >"$here/alive"
        exec sleep 1000
    }
    cost=50 ;;
stuck) # Tells the test that it runs, and holds the pipe open until it dies.
    [ -n "$dir" ] && echo data >"$dir/data"
    exec 9>"$here/alive"
    echo "$$" >&9
    # In place of the shell: a runner has no children of its own.
    exec sleep 1000 ;;
caged)
    grep -q unherd- /proc/self/cgroup || { echo "not in a cgroup" >&2; exit 1; }
    cost=10 ;;
esac
wakeups=5
[ "$impl" = idle ] && wakeups=0
awk -v impl="$impl" -v workload="$workload" -v cost="$cost" -v threads="$threads" -v seed="$seed" \
    -v plant="$plant" -v check="$check" -v buckets="$buckets" -v wakeups="$wakeups" 'BEGIN {
    noise = 1 + (seed % 97) / 97000 + (length(impl) % 3) * (seed % 13) / 13000
    cost = cost * noise * (1 + plant)
    printf "{\"workload\":\"%s\",\"impl\":\"%s\",\"threads\":%d,", workload, impl, threads
    printf "\"params\":{\"buckets\":\"%s\"},\"seed\":%s,\"check\":\"%s\",", buckets, seed, check
    printf "\"metrics\":{\"cost_us\":%.6f,\"size_bytes\":64},", cost
    printf "\"waits\":{\"schema\":\"unherd.waits/1\",\"reasons\":[{\"reason\":\"page\","
    printf "\"wakeups\":%d}]}}\n", wakeups
}'
