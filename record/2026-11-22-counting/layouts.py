#!/usr/bin/env python3
"""What counting hits costs, with the placing of the code taken out.

Two builds that differ in a few instructions also differ in where the linker puts each function, and
that alone makes a hit some per cent faster or slower. So both are linked many times, with their
functions in another order each time (lld, --shuffle-sections), and the layouts of one build are
compared with those of the other.

From the root of the repository, with lld installed: layouts.py [LAYOUTS] [ROUNDS]
"""
import json, math, os, random, re, statistics, subprocess, sys, tempfile

LAYOUTS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
OUT = "target/layouts"
BUILDS = {"unherd": [], "uncounted": ["--features", "uncounted"]}
SHUFFLE = "-Wl,--shuffle-sections=.text*="


def link_arguments(build, features):
    """Builds, keeps the objects, and gives the arguments that the linker was called with."""
    command = ["cargo", "rustc", "--release", "-p", "unherd-cli", "--bin", "unherd", *features]
    command += ["--target-dir", f"{OUT}/{build}", "--", "-C", "link-arg=-fuse-ld=lld"]
    command += ["-C", f"link-arg={SHUFFLE}1", "-C", "save-temps", "--print", "link-args"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if '"cc"' not in printed:
        sys.exit(f"{build} was built before; remove {OUT}/{build} and start again")
    arguments = re.findall(r'"((?:[^"\\]|\\.)*)"', printed[printed.index('"cc"'):].splitlines()[0])
    # What the compiler made for this one call only is gone; it names symbols that are kept anyway.
    return [a for a in arguments if not a.endswith("symbols.o")]


def link(build, arguments, layout):
    arguments = [f"{SHUFFLE}{layout}" if a.startswith(SHUFFLE) else a for a in arguments]
    arguments[arguments.index("-o") + 1] = f"{OUT}/{build}.{layout}"
    subprocess.run(arguments, check=True)


def ns_per_hit(build, layout, way, words):
    with tempfile.TemporaryDirectory(dir=OUT) as files:
        command = ["taskset", "-c", "1", f"{OUT}/{build}.{layout}", "load", "hit"]
        command += ["--with", f"{build}-{way}", "--threads", "1", "--seed", "1", "--dir", files]
        params = {"set": "l2", "pattern": "uniform", "words": words, "chain": "true", "writes": 0}
        for name, value in {**params, "ops": "auto", "budget-ms": 100}.items():
            command += ["--param", f"{name}={value}"]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])["metrics"]["ns_per_hit"]


def interval(counted, uncounted):
    """The difference of two means, with what is about its 95 % interval."""
    difference = statistics.mean(counted) - statistics.mean(uncounted)
    squares = statistics.variance(counted) + statistics.variance(uncounted)
    half = 2.0 * math.sqrt(squares / len(counted))
    return difference, difference - half, difference + half


os.makedirs(OUT, exist_ok=True)
for build, features in BUILDS.items():
    arguments = link_arguments(build, features)
    for layout in range(1, LAYOUTS + 1):
        link(build, arguments, layout)
cells = [(build, layout) for build in BUILDS for layout in range(1, LAYOUTS + 1)]
for way, words in [("pin", 1), ("peek", 1), ("copy", 0)]:
    times = {cell: [] for cell in cells}
    for _ in range(ROUNDS):
        random.shuffle(cells)
        for cell in cells:
            times[cell].append(ns_per_hit(*cell, way, words))
    for name, of in [("least", min), ("median", statistics.median)]:
        ns = {build: [of(times[build, n]) for n in range(1, LAYOUTS + 1)] for build in BUILDS}
        logs = {build: [math.log(value) for value in ns[build]] for build in BUILDS}
        ratio = " ".join(f"{math.exp(x):.3f}" for x in interval(*logs.values()))
        difference = " ".join(f"{x:+.2f}" for x in interval(*ns.values()))
        print(f"{way}, {name} of {ROUNDS} rounds, {LAYOUTS} layouts each: counted / uncounted "
              f"{ratio}; difference {difference} ns", flush=True)
