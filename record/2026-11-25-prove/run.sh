#!/bin/sh
# Applies cures to unmodified programs and prints what each gains. Needs root for the traces, gcc,
# python3 with venv, and the network for gevent.
#
#   run.sh UNHERD
set -eu
unherd=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
gcc -O1 -g -pthread "$root/crates/cli/tests/it/prove/scenes.c" -o scenes
cp "$root"/record/2026-11-25-public-programs/programs/*.py .
python3 -m venv venv
venv/bin/pip install -q gevent==26.9.0
# Eight processes of gevent at one listening socket, and a client that makes one request at a time.
cat > herd.sh <<'END'
COUNTS=/dev/null venv/bin/python gevent_herd.py 18083 8 2 &
sleep 0.7
venv/bin/python client.py 18083 200 2
wait
END

prove() {
    echo "\$ unherd prove $*"
    "$unherd" prove "$@" 2>&1 || echo "exit code $?"
    echo
}
prove -- ./scenes accept 8 500
prove -- ./scenes broadcast 16 500
prove -- ./scenes poll 300 1000
prove --cure wake-in-turn -- ./scenes broadcast 64 200
prove -- ./scenes hand-over 100 10
prove --cure epoll-exclusive -- sh herd.sh
prove --cure wake-one --timeout 5 -- ./scenes keyed 8 20
prove --cure wake-in-turn -- ./scenes keyed 8 20
