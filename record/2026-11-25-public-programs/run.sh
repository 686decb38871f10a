#!/bin/sh
# Builds the programs in a temporary directory, traces each, and prints what is true, what the report
# says, and whether the threads' time adds up. Needs root, cargo, gcc, a JDK, go, python3 with venv,
# and the network for tokio, gunicorn and gevent.
#
#   run.sh UNHERD [DIRECTORY FOR THE REPORTS]
set -eu
unherd=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
out=$(realpath "${2:-.}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/programs/* "$work"
cd "$work"
python3 -m venv venv
venv/bin/pip install -q gunicorn==27.0.1 gevent==26.9.0
PATH=$work/venv/bin:$PATH
gcc -O1 -g -pthread poll100.c -o poll100
javac NotifyAll.java
go build -o broadcast broadcast.go
for minor in 50 51; do
    mkdir "tokio-1.$minor"
    cat > "tokio-1.$minor/Cargo.toml" <<EOF
[package]
name = "handover-1-$minor"
edition = "2021"
[[bin]]
name = "handover-1-$minor"
path = "../handover.rs"
[dependencies]
tokio = { version = "=1.$minor.0", features = ["full"] }
[profile.release]
debug = 1
[workspace]
EOF
    # Unstable are tokio's own counts, which are the truth here.
    (cd "tokio-1.$minor" && RUSTFLAGS='--cfg tokio_unstable' \
        cargo build -q --release --target-dir "$work/target-$minor")
    mv "target-$minor/release/handover-1-$minor" .
done

trace() {
    name=$1
    shift
    echo "== $name"
    "$unherd" trace --full --json "$work/$name.json" -o "$out/$name.txt" -- "$@"
    python3 "$work/judge.py" "$work/$name.json"
}
trace tokio-1.50 ./handover-1-50 3000
trace tokio-1.51 ./handover-1-51 3000
trace poll ./poll100 16 30
trace java java NotifyAll 8 500
trace java-named java -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit \
    -XX:+PreserveFramePointer -Xcomp -XX:CompileCommand=quiet \
    '-XX:CompileCommand=compileonly,NotifyAll::*' NotifyAll 8 500
trace python python notify_all.py 8 500
trace go ./broadcast 8 500
mkdir db
trace sqlite python busy.py db 4 20 30
export COUNTS="$work/counts"
trace gunicorn ./serve.sh gunicorn 18081
trace gevent ./serve.sh gevent 18082

echo "== tokio 1.50 and 1.51, told apart by --max needless_wakeups.possible=6000"
for run in 1 2 3 4 5 6 7 8 9 10; do
    for minor in 50 51; do
        if "$unherd" trace --max needless_wakeups.possible=6000 -o report -- \
            "./handover-1-$minor" 3000 > /dev/null 2> excess; then
            echo "$run: 1.$minor is within"
        else
            echo "$run: 1.$minor: $(cat excess)"
        fi
    done
done
