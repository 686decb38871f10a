"""The verdict of a report, its counts, and whether each thread's time adds up: judge.py REPORT.json"""
import json
import sys

report = json.load(open(sys.argv[1]))
for line in report["verdict"]:
    print("  " + line)
needless = report["summary"]["needless_wakeups"]
print(f"  needless: {needless['proven']} to {needless['possible']} of "
      f"{report['summary']['wakeups']} wakeups; timer polls: {report['summary']['timer_polls']}; "
      f"herds: {report['summary']['herds']}")
over = report["time"]["over_sleep_ns"]
if over:
    print(f"  asleep after a file lock was free: {over / 1e6:.1f} ms")
for finding in report["findings"][:8]:
    if finding.get("waker") and finding["waste"] == "needless_wakeups":
        waker, call = finding["waker"], finding["call"]
        count = finding["count"]
        print(f"  {count['proven']} to {count['possible']} at {call}: woken by {waker['function']} "
              f"({waker.get('place') or waker.get('module')})")
threads = report["time"]["threads"]
share = [100 * sum(of["ns"] for of in thread["classes"]) / thread["wall_ns"]
         for thread in threads if thread["wall_ns"]]
other = [of["percent"] for of in report["time"]["classes"] if of["class"] == "asleep_other"]
print(f"  {len(share)} threads: {min(share):.2f} to {max(share):.2f} % of each one's time is in a "
      f"class; asleep for anything else: {other[0]:.1f} %")
