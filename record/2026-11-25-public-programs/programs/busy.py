"""SQLite's busy handler: processes that come to write while another holds the database.

python busy.py DIRECTORY WRITERS ROUNDS HOLD_MS
"""
import bisect
import os
import sqlite3
import sys
import struct
import time

directory, writers, rounds, hold_ms = sys.argv[1], *map(int, sys.argv[2:5])
path = os.path.join(directory, "busy.db")


def work(number):
    base = sqlite3.connect(path, timeout=60, isolation_level=None)
    intervals = []  # when each transaction asked, had the lock, and gave it back
    for round_ in range(rounds):
        asked = time.monotonic_ns()
        base.execute("BEGIN IMMEDIATE")
        had = time.monotonic_ns()
        base.execute("INSERT INTO t VALUES (?, ?)", (number, round_))
        time.sleep(hold_ms / 1000)
        base.execute("COMMIT")
        intervals.append((asked, had, time.monotonic_ns()))
        time.sleep(hold_ms / 4000)
    base.close()
    return intervals


base = sqlite3.connect(path)
base.execute("PRAGMA journal_mode=WAL")
base.execute("PRAGMA wal_autocheckpoint=0")
base.execute("CREATE TABLE t (a, b)")
base.close()
pipe = os.pipe()
began = time.monotonic_ns()
for number in range(writers):
    if os.fork() == 0:
        for interval in work(number):
            os.write(pipe[1], struct.pack("qqq", *interval))
        os._exit(0)
os.close(pipe[1])
for _ in range(writers):
    os.wait()
wall = time.monotonic_ns() - began
with os.fdopen(pipe[0], "rb") as read:
    intervals = list(struct.iter_unpack("qqq", read.read()))
given_back = sorted(end for _, _, end in intervals)
over = count = 0
for asked, had, _ in intervals:
    before = bisect.bisect_left(given_back, had) - 1
    # The lock was free from when it was last given back until it was had; half a millisecond of
    # that is what to ask for it takes.
    if before >= 0 and given_back[before] > asked and had - given_back[before] > 500_000:
        over += had - given_back[before]
        count += 1
print(f"truth: {count} waits were overslept by {over / 1e6:.1f} ms, "
      f"{100 * over / (wall * (writers + 1)):.1f} % of the threads' time")
