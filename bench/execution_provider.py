#!/usr/bin/env python3
"""ONNX Runtime with TilewrightExecutionProvider beside our own session and ONNX Runtime alone.

usage: PYTHONPATH=build/python build/venv/bin/python bench/execution_provider.py MODEL.onnx... [--threads 1,2] [--json FILE]
       ... bench/execution_provider.py MODEL.onnx... --check [--tool build/bin/tilewright]

The three run in turns, with random inputs and IO binding. Prints medians in milliseconds, the regions that the provider
takes, the nodes that it leaves, and the largest difference from ONNX Runtime in parts of the output's standard deviation. Exit
status 1 if the provider takes more than 3 % and more than 20 us longer than our own session, as the bar is.

--check takes no times. It compares the provider's results with our own session's, bit for bit, and those of the model's
EPContext model and of the command-line tool (--tool) as well; without ONNX Runtime's optimisations, which change the graph. Exit status 1 if they differ or
a model is not one region. Inputs are those of test_data_set_0 beside model.onnx, which the package onnx reads, or random
ones. Weights that a file lists among its inputs are no constants for a provider: such models may
differ by roundings.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
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


def name_of(path):
    return os.path.basename(os.path.dirname(path)) if path.endswith("model.onnx") else os.path.basename(path)


def assignment(session):
    """The provider's regions, and the nodes that others have."""
    parts = session.get_provider_graph_assignment_info()
    name = execution_provider.get_ep_name()
    return sum(p.ep_name == name for p in parts), sum(len(p.get_nodes()) for p in parts if p.ep_name != name)


def plain_session(path, threads, entries):
    """A session with the provider and without ONNX Runtime's optimisations."""
    o = options(threads)
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in entries.items():
        o.add_session_config_entry(key, value)
    providers = [(execution_provider.get_ep_name(), {"threads": str(threads)}), "CPUExecutionProvider"]
    return ort.InferenceSession(path, o, providers=providers, enable_fallback=0)


def feeds_of(path, session):
    """The inputs of test_data_set_0, or random ones."""
    data = os.path.join(os.path.dirname(path), "test_data_set_0")
    if not os.path.isdir(data):
        return random_feeds(session)
    import onnx

    feeds = {}
    for i, io in enumerate(session.get_inputs()):
        with open(os.path.join(data, f"input_{i}.pb"), "rb") as f:
            feeds[io.name] = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))
    return feeds


def results_of_tool(tool, path, threads, feeds):
    """What `tilewright run` writes for these inputs, by output."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = os.path.join(folder, "in.npz"), os.path.join(folder, "out.npz")
        np.savez(given, **feeds)
        command = [tool, "run", path, "--input", given, "--output-npz", made, "--threads", str(threads)]
        subprocess.run(command, check=True, capture_output=True)
        with np.load(made) as archive:
            return dict(archive)


def check(path, threads, tool):
    """Whether the provider does as our own session; prints a line."""
    own = tw.compile(path, threads=threads)
    feeds = feeds_of(path, own)
    expected = own.run(None, feeds)
    with tempfile.TemporaryDirectory() as folder:
        context = os.path.join(folder, "context.onnx")
        session = plain_session(path, threads, {"ep.context_enable": "1", "ep.context_file_path": context})
        exact = not session.get_overridable_initializers()
        regions, left = assignment(session)
        results = {"provider": session.run(None, feeds)}
        del session
        results["EPContext"] = plain_session(context, threads, {}).run(None, feeds)
    if tool:
        outputs = results_of_tool(tool, path, threads, feeds)
        results["tool"] = [outputs[o.name] for o in own.get_outputs()]
    good, words = (regions, left) == (1, 0), []
    for name, outputs in results.items():
        same = all((a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes()) for a, b in zip(outputs, expected))
        by = difference(outputs, expected)
        good &= same or (not exact and name != "tool" and by < 1e-4)
        words.append(f"{name} {'equal' if same else f'differs by {by:.1e}'}")
    note = "" if exact else " (weights are inputs)"
    print(f"{name_of(path)[:24]:24} {threads:7} {regions:8} {left:5}  {', '.join(words)}{note}", flush=True)
    return good


def bound(session, feeds):
    """A run with bound inputs and outputs: without the conversions of `run`, which take ONNX Runtime's Python package
    30 to 60 us where the model's work has displaced its code from the caches."""
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return lambda: session.run_with_iobinding(binding)


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
    calls = {k: bound(s, feeds) for k, s in runs.items()}
    for _ in range(ROUNDS):
        for k, run in calls.items():
            run()
            block, end = [], time.perf_counter() + SECONDS
            while not block or time.perf_counter() < end:
                start = time.perf_counter()
                run()
                block.append(1e3 * (time.perf_counter() - start))
            times[k].append(statistics.median(block))
    result = {k: statistics.median(t) for k, t in times.items()}
    result["regions"], result["left"] = assignment(runs["provider"])
    result["difference"] = difference(outputs["provider"], outputs["onnxruntime"])
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--json")
    p.add_argument("--check", action="store_true", help="compare results, and take no times")
    p.add_argument("--tool", help="of --check: compare with the results of this command-line tool as well")
    a = p.parse_args()
    execution_provider.register()
    print(f"ONNX Runtime {ort.__version__}, Tilewright {tw.__version__}")
    thread_counts = [int(t) for t in a.threads.split(",")]
    if a.check:
        print(f"{'model':24} threads  regions  left  results")
        return 0 if all([check(path, threads, a.tool) for path in a.models for threads in thread_counts]) else 1
    print(f"{'model':24} threads  own ms  provider  onnxruntime  regions  left  difference")
    rows, slow = [], False
    for path in a.models:
        for threads in thread_counts:
            r = measure(path, threads)
            name = name_of(path)
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
