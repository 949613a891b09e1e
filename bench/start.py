#!/usr/bin/env python3
"""How long a process waits for a session: ONNX Runtime's, a second compilation, and a compiled file.

usage: PYTHONPATH=build/python build/venv/bin/python bench/start.py MODEL.onnx... [--threads 1] [--repeat 5] [--json FILE]

Each time is that of a process of its own, from the imported module to the session, and to the end of its first run; the
three take turns, and files are in the page cache. Prints medians in milliseconds: ONNX Runtime, the second compilation
(kept by the first one in the cache folder), and `tilewright.load` of a compiled file with its size in megabytes. Then the
file is compared with the session that wrote it: results bit for bit, time of a run in turns with that session (weights
mapped, then with copy_weights), and the bytes of a second file. Inputs are random.

Exit status 1 if a second compilation takes longer than ONNX Runtime's session, a file more than half of that, or a file
differs in results or bytes. The reading of a file's bytes is part of its time.
"""

import argparse
import hashlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import tilewright as tw
from tilewright._tools import random_feeds

START = """
import pickle, sys, time
import numpy as np
kind, path, threads, feeds = sys.argv[1], sys.argv[2], int(sys.argv[3]), pickle.load(open(sys.argv[4], "rb"))
if kind == "onnxruntime":
    import onnxruntime as module
    options = module.SessionOptions()
    options.log_severity_level = 3
else:
    import tilewright as module
    options = module.SessionOptions()
options.intra_op_num_threads = threads
start = time.perf_counter()
session = module.InferenceSession(path, options, providers=["CPUExecutionProvider"])
ready = time.perf_counter()
session.run(None, feeds)
print(ready - start, time.perf_counter() - start)
"""


def started(kind, path, threads, feeds):
    """Seconds to the session, and to the end of the first run."""
    command = [sys.executable, "-c", START, kind, path, str(threads), feeds]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(x) for x in out.split()]


def run_ratios(session, others, feeds, rounds=9, seconds=0.1):
    """The median times of a run of each of `others` over that of `session`, in turns."""

    def block(s, calls):
        s.run(None, feeds)  # weights in the caches as this one reads them
        start = time.perf_counter()
        for _ in range(calls):
            s.run(None, feeds)
        return (time.perf_counter() - start) / calls

    calls = max(1, int(seconds / max(block(session, 1), 1e-6)))
    times = zip(*[[block(s, calls) for s in (session, *others)] for _ in range(rounds)])
    first, *rest = [statistics.median(t) for t in times]
    return [t / first for t in rest]


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def equal_bits(a, b):
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b))


def measured(path, arguments, folder):
    file, again = os.path.join(folder, "model.so"), os.path.join(folder, "again.so")
    tw.compile(path, threads=arguments.threads)  # kept in the cache folder
    session = tw.compile(path, threads=arguments.threads, output_file=file)
    tw.compile(path, threads=arguments.threads, output_file=again)
    feeds = random_feeds(session)
    with open(os.path.join(folder, "feeds"), "wb") as out:
        pickle.dump(feeds, out)
    loaded = tw.load(file, threads=arguments.threads)
    row = {
        "file_mb": os.path.getsize(file) / 1e6,
        "equal": equal_bits(session.run(None, feeds), loaded.run(None, feeds)),
        "same_bytes": digest(file) == digest(again),
    }
    copied = tw.load(file, threads=arguments.threads, copy_weights=True)
    row["run_ratio"], row["copied_ratio"] = run_ratios(session, [loaded, copied], feeds)
    del session, loaded, copied
    kinds = {"onnxruntime": path, "second": path, "file": file}
    times = {kind: [] for kind in kinds}
    for _ in range(arguments.repeat):
        for kind, of in kinds.items():
            times[kind].append(started(kind, of, arguments.threads, os.path.join(folder, "feeds")))
    for kind, all_times in times.items():
        row[kind], row[kind + "_first"] = (1e3 * statistics.median(t[k] for t in all_times) for k in (0, 1))
    os.remove(file)
    os.remove(again)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    np.seterr(all="ignore")
    rows, failed = {}, []
    print("| model | ONNX Runtime | second | file | MB | first run: ONNX Runtime | second | file | file's run | with copy_weights | bits, bytes |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for path in arguments.models:
            name = os.path.basename(os.path.dirname(path)) if path.endswith("model.onnx") else os.path.basename(path)[:-5]
            r = rows[name] = measured(path, arguments, folder)
            print(
                f"| {name} | {r['onnxruntime']:.1f} | {r['second']:.1f} | {r['file']:.1f} | {r['file_mb']:.0f} "
                f"| {r['onnxruntime_first']:.1f} | {r['second_first']:.1f} | {r['file_first']:.1f} "
                f"| {r['run_ratio']:.3f} | {r['copied_ratio']:.3f} | {'equal' if r['equal'] else 'DIFFER'}, "
                f"{'equal' if r['same_bytes'] else 'DIFFER'} |",
                flush=True,
            )
            if not (r["equal"] and r["same_bytes"]):
                failed.append(f"{name}: the file differs")
            if r["second"] > r["onnxruntime"]:
                failed.append(f"{name}: the second compilation takes {r['second'] / r['onnxruntime']:.2f} times as long")
            if r["file"] > r["onnxruntime"] / 2:
                failed.append(f"{name}: the file takes {r['file'] / r['onnxruntime']:.2f} times as long")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(rows, out, indent=2)
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
