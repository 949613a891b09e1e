"""Whole models for the papers' tables (alt.py, gensor.py, mcfuser.py, dietcode.py): models of the zoo, compiled by the tool
with given options into files, and timed in turns beside other libraries. Needs numpy and onnxruntime, and the Python
package (PYTHONPATH=build/python). A peer that is not installed is named and its column stays empty."""

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tilewright as tw
from suite import PEERS, TOLERANCE, largest_error, times
from tilewright._tools import random_feeds

NEEDS = {"onnxruntime": ["onnxruntime"], "openvino": ["openvino"], "torch": ["torch", "onnx2torch"]}


def parser_of(description):
    """A parser with the options of all papers."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=1, help="at least, for each latency (1), and at least five runs")
    p.add_argument("--peers", nargs="*", choices=list(PEERS), default=["onnxruntime", "openvino"])
    p.add_argument("--tool", default="build/bin/tilewright")
    p.add_argument("--json", type=Path, help="also write the results to this file")
    return p


class Bench:
    """Compiles and times models with the options of parser_of; files lie in `folder`."""

    def __init__(self, options, folder, peers=()):
        self.o, self.folder, self.number = options, Path(folder), 0
        missing = [p for p in peers if not all(map(importlib.util.find_spec, NEEDS[p]))]
        for p in missing:
            print(f"{p} is not installed: its column is left out", file=sys.stderr)
        self.peers = [p for p in peers if p not in missing]

    def tool(self, *arguments):
        """Seconds of a command of the tool, and what it printed on standard error."""
        command = [self.o.tool, *map(str, arguments)]
        begin = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr.strip()}")
        return time.perf_counter() - begin, done.stderr

    def zoo(self, name, **settings):
        """The file of a model of the zoo, written the first time."""
        text = "-".join([name, *(f"{k}{v}" for k, v in settings.items())])
        path = self.folder / f"{text}.onnx"
        if not path.exists():
            self.tool("zoo", name, "-o", path, *[x for k, v in settings.items() for x in ("--set", f"{k}={v}")])
        return path

    def compiled(self, path, options, dims=(), tune=None):
        """A session, the seconds of its compilation and the notes on it, with an empty database and cache. `dims`: texts
        of --dim. `tune`: a budget of `tilewright tune`, which runs before and counts."""
        self.number += 1
        out, database = self.folder / f"{self.number}.so", self.folder / f"{self.number}.db"
        common = ["--threads", self.o.threads, "--no-code-cache", "--database", database, *options]
        common += [x for text in dims for x in ("--dim", text)]
        seconds = 0.0
        if tune is not None:
            seconds, _ = self.tool("tune", path, "--budget", tune, *common)
            common.append("--tuned")
        more, notes = self.tool("compile", path, "-o", out, *common)
        session = tw.load(str(out), threads=self.o.threads, copy_weights=True)
        out.unlink()
        return session, seconds + more, notes

    def peer(self, name, path, feeds):
        """A function that runs the peer; nothing if it refuses the model, which is printed."""
        try:
            session = PEERS[name][1](str(path), self.o.threads)
            session(feeds)
        except Exception as e:  # a peer's error leaves its column empty
            print(f"  {name}: {e}", file=sys.stderr)
            return None
        return lambda: session(feeds)

    def compare(self, path, variants):
        """{column: {"ms", "seconds"}}: latencies in turns, and seconds of compilation, of `variants`, a dict of column to
        the keywords of compiled(), and of the peers (with their first run). Results must agree with the first peer's."""
        runs, out, feeds, expected = {}, {}, None, None
        for name, how in variants.items():
            session, seconds, _ = self.compiled(path, **how)
            feeds = feeds or random_feeds(session)
            runs[name] = lambda s=session: s.run(None, feeds)
            out[name] = {"seconds": seconds}
        for name in self.peers:
            begin = time.perf_counter()
            if session := self.peer(name, path, feeds):
                runs[name], out[name] = session, {"seconds": time.perf_counter() - begin}
                expected = session() if expected is None else expected
        for name in variants if expected is not None else []:
            error = largest_error(runs[name](), expected)
            if not error <= TOLERANCE:
                raise RuntimeError(f"{path.name}: the result of {name} is off by {error:.1e}")
        for name, seconds in zip(runs, times(list(runs.values()), self.o.seconds)):
            out[name]["ms"] = seconds * 1e3
        return out


def mean(values):
    values = [v for v in values if v]
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def over(rows, fast, slow, what="ms"):
    """The geometric mean of how many times `fast` is as fast as `slow`; '-' if they have no row in common."""
    m = mean([r[slow][what] / r[fast][what] for r in rows if fast in r and slow in r])
    return "-" if m is None else f"{m:.2f}"


def print_table(title, columns, rows):
    """Rows of texts; the first column is flush left."""
    print(f"\n{title}")
    widths = [max(len(str(r[k])) for r in [columns, *rows]) for k in range(len(columns))]
    for r in [columns, *rows]:
        print("  ".join(f"{c:<{w}}" if k == 0 else f"{c:>{w}}" for k, (c, w) in enumerate(zip(r, widths))))
    sys.stdout.flush()


def run(options, figures):
    """Runs figures, functions of a Bench that return values for --json, in a temporary folder; the exit status."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder, options.peers)
        for name, figure in figures.items():
            results[name] = figure(bench)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0

