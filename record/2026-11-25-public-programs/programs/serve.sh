#!/bin/sh
# A herd of 8 processes at one listening socket, 500 requests one after another; ends by itself.
# serve.sh gunicorn|gevent PORT, with COUNTS a file for what the workers count.
set -eu
here=$(dirname "$0")
port=$2
: > "$COUNTS"
case $1 in
gunicorn)
    gunicorn --log-level error --workers 8 --bind "127.0.0.1:$port" --worker-class counting.CountingWorker \
        --chdir "$here" counting:app & ;;
gevent) python "$here/gevent_herd.py" "$port" 8 8 & ;;
esac
server=$!
sleep 2
python "$here/client.py" "$port" 500 2
[ "$1" = gevent ] || kill -TERM $server
wait $server || true
awk -v kind="$1" '{s += $1; v += $2} END {print "truth: served " s ", accepts in vain after a wait " v}' "$COUNTS"
