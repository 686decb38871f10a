"""Waiters of which one finds a token each time: python notify_all.py WAITERS TOKENS"""
import sys
import threading
import time

waiters = int(sys.argv[1]) if len(sys.argv) > 1 else 8
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 500
changed = threading.Condition()
count = dict(tokens=0, waiting=0, woken=0, needless=0, taken=0)
over = False


def take():
    with changed:
        while True:
            slept = False
            while count["tokens"] == 0 and not over:
                count["needless"] += slept
                count["waiting"] += 1
                changed.wait()
                count["waiting"] -= 1
                count["woken"] += 1
                slept = True
            if count["tokens"] == 0:
                return
            count["tokens"] -= 1
            count["taken"] += 1


def put():
    with changed:
        count["tokens"] += 1
        changed.notify_all()


def until_all_wait(before):
    # All that were woken before have looked and wait again: only then is the next a herd of all.
    while True:
        with changed:
            if count["waiting"] == waiters and count["woken"] == before * waiters:
                return
        time.sleep(0.001)


all_of_them = [threading.Thread(target=take) for _ in range(waiters)]
for one in all_of_them:
    one.start()
for round_ in range(rounds):
    until_all_wait(round_)
    put()
until_all_wait(rounds)
with changed:
    over = True
    changed.notify_all()
for one in all_of_them:
    one.join()
print("truth: woken {woken}, needless {needless}, taken {taken}".format(**count))
