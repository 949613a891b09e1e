#!/usr/bin/env python3
"""ONNX Runtime with TilewrightExecutionProvider beside our own session and ONNX Runtime alone.

usage: PYTHONPATH=build/python build/venv/bin/python bench/execution_provider.py MODEL.onnx... [--threads 1,2] [--json FILE]

The three run in turns, with random inputs. Prints medians in milliseconds, the regions that the provider takes, the nodes that it leaves, and the largest difference from ONNX Runtime
in parts of the output's standard deviation. Exit status 1 if the provider takes more than 3 % and more than 20 us longer
than our own session, as the bar is.
"""

import argparse
import json
import os
import statistics
import sys
import time

import numpy as np
import onnxruntime as ort

import tilewright as tw
from tilewright import execution_provider
from tilewright._tools import random_feeds

ROUNDS, SECONDS = 9, 0.15


def options(threads):
    o = ort.SessionOptions()
    o.intra_op_num_threads = threads
    o.log_severity_level = 3
    o.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return o


def difference(ours, theirs):
    worst = 0.0
    for a, b in zip(ours, theirs):
        if b.dtype.kind == "f" and b.size > 0:
            scale = np.std(b.astype(np.float64)) or np.max(np.abs(b)) or 1
            worst = max(worst, float(np.max(np.abs(a.astype(np.float64) - b)) / scale))
    return worst


def measure(path, threads):
    name = execution_provider.get_ep_name()
    own = tw.compile(path, threads=threads)
    runs = {
        "own": own,
        "provider": ort.InferenceSession(
            path, options(threads), providers=[(name, {"threads": str(threads)}), "CPUExecutionProvider"]
        ),
        "onnxruntime": ort.InferenceSession(path, options(threads), providers=["CPUExecutionProvider"]),
    }
    feeds = random_feeds(own)
    outputs = {k: s.run(None, feeds) for k, s in runs.items()}
    times = {k: [] for k in runs}
    for _ in range(ROUNDS):
        for k, s in runs.items():
            s.run(None, feeds)
            block, end = [], time.perf_counter() + SECONDS
            while not block or time.perf_counter() < end:
                start = time.perf_counter()
                s.run(None, feeds)
                block.append(1e3 * (time.perf_counter() - start))
            times[k].append(statistics.median(block))
    parts = runs["provider"].get_provider_graph_assignment_info()
    result = {k: statistics.median(t) for k, t in times.items()}
    result["regions"] = sum(p.ep_name == name for p in parts)
    result["left"] = sum(len(p.get_nodes()) for p in parts if p.ep_name != name)
    result["difference"] = difference(outputs["provider"], outputs["onnxruntime"])
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--json")
    a = p.parse_args()
    execution_provider.register()
    print(f"ONNX Runtime {ort.__version__}, Tilewright {tw.__version__}")
    print(f"{'model':24} threads  own ms  provider  onnxruntime  regions  left  difference")
    rows, slow = [], False
    for path in a.models:
        for threads in (int(t) for t in a.threads.split(",")):
            r = measure(path, threads)
            name = os.path.basename(os.path.dirname(path)) if path.endswith("model.onnx") else os.path.basename(path)
            late = r["provider"] - r["own"]
            slow |= late > 0.02 and late > 0.03 * r["own"]
            print(
                f"{name[:24]:24} {threads:7} {r['own']:7.3f} {r['provider']:9.3f} {r['onnxruntime']:12.3f} "
                f"{r['regions']:8} {r['left']:5} {r['difference']:11.1e}",
                flush=True,
            )
            rows.append({"model": name, "threads": threads, **r})
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=2)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
