#!/usr/bin/env python3
"""What a call from Python takes beyond the same call of the C interface.

usage: PYTHONPATH=build/python build/venv/bin/python bench/python_overhead.py [--tool build/bin/tilewright]
                                                                             [--models mlp,mlp:batch=0 ...] [--json FILE]

For each model, in turns so that both see the same machine: blocks of InferenceSession.run(None, {name: array}) with
new output arrays; of run_with_iobinding with bound outputs; and of runs in a loop in C++ (the C interface, with outputs
in the session's memory). Prints the medians over all blocks of a block's mean, and their differences. The bar is 20 us a
call; exit status 1 if a difference is above it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import tilewright as tw

BAR_US = 20.0
BLOCKS = 30


def feeds_of(session):
    from tilewright._tools import random_feeds

    return random_feeds(session)


def block(f, calls):
    f()  # as the loop in C++ does: the first run after another kind of run plans its memory again
    start = time.perf_counter()
    for _ in range(calls):
        f()
    return 1e6 * (time.perf_counter() - start) / calls


def measure(path, threads):
    """{"c": us, "run": us, "binding": us} of a call."""
    session = tw.compile(path, threads=threads)
    feeds = feeds_of(session)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output, array in zip(session.get_outputs(), session.run(None, feeds)):
        value = tw.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype)
        binding.bind_ortvalue_output(output.name, value)
    run = {
        "run": lambda: session.run(None, feeds),
        "binding": lambda: session.run_with_iobinding(binding),
    }
    for f in run.values():
        block(f, 20)
    once = statistics.median(session._runner.time(feeds, 20, 50))
    calls = max(5, min(2000, int(0.02 / once)))
    times = {"c": [], "run": [], "binding": []}
    for _ in range(BLOCKS):
        times["c"].append(1e6 * statistics.fmean(session._runner.time(feeds, 1, calls)))
        for name, f in run.items():
            times[name].append(block(f, calls))
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="build/bin/tilewright")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["mlp", "mlp:batch=0", "matmul:m=16,n=16,k=16"])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    results = {}
    print(f"{'model':<26} {'C us':>9} {'run us':>9} {'more':>7} {'binding us':>11} {'more':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for text in arguments.models:
            name, _, settings = text.partition(":")
            path = os.path.join(folder, "model.onnx")
            command = [arguments.tool, "zoo", name, "-o", path]
            for setting in filter(None, settings.split(",")):
                command += ["--set", setting]
            subprocess.run(command, check=True, capture_output=True)
            r = results[text] = measure(path, arguments.threads)
            more = {k: r[k] - r["c"] for k in ("run", "binding")}
            print(
                f"{text:<26} {r['c']:>9.2f} {r['run']:>9.2f} {more['run']:>7.2f} "
                f"{r['binding']:>11.2f} {more['binding']:>7.2f}"
            )
    worst = max(r[k] - r["c"] for r in results.values() for k in ("run", "binding"))
    print(f"at most {worst:.2f} us more; the bar is {BAR_US:.0f} us")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    return 0 if worst <= BAR_US else 1


if __name__ == "__main__":
    sys.exit(main())
