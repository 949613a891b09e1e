#!/usr/bin/env python3
"""Times operators against other libraries: one table for each batch file.

  bench/ops.py bench/ops/mcfuser_attention.txt
  bench/ops.py bench/ops/*.txt --every 4 --seconds 0.05 --threads 2 --json out.jsonl

Each operator is measured in ROUNDS rounds, in each once by `tilewright op` (for each of --schedulers and of --layouts,
or of --variants, which are names and further options of it), then by each peer, so that a change of the machine's speed affects all; a figure is the median of its rounds' medians.
The first round checks Tilewright's result against the interpreter. A ratio is a column's time over the first column's.
The last line has the geometric means.

Peers: onednn and openblas are programs that are built if their Debian packages are installed; onnxruntime runs
the same model in this Python if it has onnxruntime and numpy (`python3 -m venv venv && venv/bin/pip install numpy
onnxruntime`, then venv/bin/python bench/ops.py ...), and so does openvino. A missing peer or operator has '-' in its
column.

Exit status 1 if an operator failed in Tilewright.
"""
import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import numpy as np
    import onnxruntime
except ImportError:
    onnxruntime = None
try:
    import numpy as np
    import openvino
except ImportError:
    openvino = None

ROOT = Path(__file__).resolve().parent.parent
PEERS = ["onednn", "openblas", "onnxruntime", "openvino"]
DTYPES = {"f32": "float32", "i64": "int64"}


def read_ops(path):
    """The operators of a batch file, one per line; '#' begins a comment."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def environment(threads):
    """Some libraries read their number of threads from the environment at load time."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def layout_options(name):
    """`joint:fp` and `ppo:2`: options of the tool for an ablation, or for levels of tiles."""
    search, _, variant = name.partition(":")
    if not variant:
        return ["--layouts", search]
    return ["--layouts", search, "--layout-levels" if variant.isdigit() else "--layout-ablation", variant]


class Tilewright:
    """`tilewright op` with these further options."""

    def __init__(self, options, name, more):
        self.options, self.name, self.more = options, name, more

    def turn(self, op, folder, first):
        """The command's JSON object; with 'error' if it failed."""
        out = folder / "tilewright.json"
        out.unlink(missing_ok=True)
        command = [self.options.build / "bin/tilewright", "op", op, "--calibrate", *self.more, "--json", out, "--time", str(self.options.seconds), "--threads", str(self.options.threads)]
        if first:
            command += ["--save", folder / "model.onnx"]
        else:
            command += ["--no-check"]
        done = subprocess.run(command, capture_output=True, text=True)
        if not out.exists():
            return {"error": done.stderr.strip() or f"exit status {done.returncode}"}
        return json.loads(out.read_text())


class Program:
    """A peer in a separate program, with the output of `peers/peer.h`."""

    def __init__(self, options, name):
        self.options, self.name = options, name
        self.path = options.build / "bin" / f"bench_{name}"

    def there(self):
        return self.path.exists()

    def prepare(self, op, folder, inputs):
        self.op = op

    def turn(self):
        done = subprocess.run([self.path, self.op, "--time", str(self.options.seconds),
                               "--threads", str(self.options.threads)],
                              capture_output=True, text=True, env=environment(self.options.threads))
        if done.returncode != 0:
            print(f"  {self.name}: {done.stderr.strip()}", file=sys.stderr)
            return None
        result = json.loads(done.stdout)
        if "error" in result:
            print(f"  {self.name}: {result['error']}", file=sys.stderr)
        return result.get("measured_ms")


def columns_of(options):
    """Tilewright's columns: the variants, else every scheduler with every choice of layouts."""
    if options.variants:
        return [Tilewright(options, name, shlex.split(more))
                for name, _, more in (variant.partition("=") for variant in options.variants)]
    out = []
    for scheduler in options.schedulers:
        for layouts in options.layouts:
            named = [scheduler] * (len(options.schedulers) > 1) + [layouts] * (len(options.layouts) > 1)
            out.append(Tilewright(options, " ".join(named) or scheduler,
                                  ["--scheduler", scheduler, *layout_options(layouts)]))
    return out


def random_inputs(inputs):
    """Arrays by name, as `tilewright op` draws them in kind."""
    rng = np.random.default_rng(1)
    return {i["name"]: (rng.integers(0, i["limit"], i["shape"]) if i["limit"] > 0
                        else rng.standard_normal(i["shape"])).astype(DTYPES[i["dtype"]]) for i in inputs}


class Library:
    """A library in this process: `run` computes once."""

    def __init__(self, options):
        self.options = options

    def time_of(self, runs):
        start = time.perf_counter()
        for _ in range(runs):
            self.run()
        return (time.perf_counter() - start) / runs * 1e3

    def turn(self):
        """As in `tilewright op`: short runs are timed several at once."""
        self.time_of(1)
        together = min(1000, max(1, int(0.05 / max(self.time_of(1), 1e-6))))
        times, spent = [], 0.0
        while len(times) < 3 or spent < self.options.seconds * 1e3:
            times.append(self.time_of(together))
            spent += times[-1] * together
        return statistics.median(times)


class OpenVino(Library):
    """OpenVINO, inputs set once, in f32."""
    name = "openvino"

    def there(self):
        return openvino is not None

    def prepare(self, op, folder, inputs):
        config = {"INFERENCE_NUM_THREADS": self.options.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                  "INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Core().compile_model(str(folder / "model.onnx"), "CPU", config)
        request = model.create_infer_request()
        for name, values in random_inputs(inputs).items():
            request.set_tensor(name, openvino.Tensor(values))
        self.run = request.infer


class OnnxRuntime(Library):
    """ONNX Runtime, inputs and outputs bound once."""
    name = "onnxruntime"

    def there(self):
        return onnxruntime is not None

    def prepare(self, op, folder, inputs):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.options.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options,
                                                    providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        for name, values in random_inputs(inputs).items():
            self.binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(values))
        for out in self.session.get_outputs():
            value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(out.shape, np.float32)
            self.binding.bind_ortvalue_output(out.name, value)

    def run(self):
        self.session.run_with_iobinding(self.binding)


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def measure(op, own, peers, options):
    """One operator: {"op", "share", "error", "ms": {column: milliseconds or None}}."""
    taken = {column.name: [] for column in own + peers}
    result = {"op": op, "share": None, "error": None}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs, limit, prepared = [], None, []
        for turn in range(options.rounds):
            for column in own:
                r = column.turn(op, folder, turn == 0)
                if r.get("error") and result["error"] is None:
                    result["error"] = r["error"]
                taken[column.name].append(r.get("measured_ms"))
                if column is own[0] and r.get("limit_ms") is not None:
                    inputs, limit = r["inputs"], r["limit_ms"]
            if turn == 0:
                for peer in peers if inputs or not result["error"] else []:
                    try:
                        peer.prepare(op, folder, inputs)
                        prepared.append(peer)
                    except Exception as e:  # a peer's error leaves its column empty
                        print(f"  {peer.name}: {e}", file=sys.stderr)
            for peer in prepared:
                taken[peer.name].append(peer.turn())
    result["ms"] = {column: median(times) for column, times in taken.items()}
    first = result["ms"][own[0].name]
    if first and limit:
        result["share"] = limit / first
    return result


def text(ms):
    return "-" if ms is None else f"{ms:.4g}"


def ratio(result, own, column):
    a, b = result["ms"][own], result["ms"][column]
    return b / a if a and b else None


def print_table(path, results, own, columns, options):
    """The first column of times is Tilewright's; each other time is followed by its ratio."""
    width = max(len(r["op"]) for r in results)
    print(f"\n{path.stem}: {len(results)} operators, {options.threads} thread{'s' if options.threads > 1 else ''}, "
          f"median of {options.rounds} rounds, ms")
    print(f"{'':{width}}  {own:>10} {'limit':>6}" + "".join(f"  {c:>11} {'ratio':>6}" for c in columns))
    for r in results:
        line = f"{r['op']:{width}}  {text(r['ms'][own]):>10} "
        line += f"{r['share']:6.0%}" if r["share"] else f"{'-':>6}"
        for c in columns:
            q = ratio(r, own, c)
            line += f"  {text(r['ms'][c]):>11} " + (f"{q:6.2f}" if q else f"{'-':>6}")
        print(line + (f"  FAILED: {r['error']}" if r["error"] else ""))
    line = f"{'geometric mean':{width}}  {'':>10} "
    shares = [r["share"] for r in results if r["share"]]
    line += f"{statistics.geometric_mean(shares):6.0%}" if shares else f"{'-':>6}"
    for c in columns:
        ratios = [q for q in (ratio(r, own, c) for r in results) if q]
        line += f"  {f'of {len(ratios)}':>11} "
        line += f"{math.exp(statistics.fmean(map(math.log, ratios))):6.2f}" if ratios else f"{'-':>6}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="batch files, in the format of `tilewright op --batch`")
    parser.add_argument("--schedulers", nargs="+", default=["default"], help="ratios are to the first one's time")
    parser.add_argument("--layouts", nargs="+", default=["rule"], metavar="LAYOUTS",
                        help="likewise: none, rule, joint, ppo (both measure kernels), joint:fp (an ablation), joint:2 (levels)")
    parser.add_argument("--variants", nargs="+", metavar="NAME=OPTIONS",
                        help="in place of both: 'deep=--scheduler mcfuser --chain-ablation deep'")
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="rounds per operator (3)")
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds per round (0.1)")
    parser.add_argument("--match", default="", help="only operators whose text has this")
    parser.add_argument("--every", type=int, default=1, help="only every Nth operator of a file")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where bin/tilewright is")
    parser.add_argument("--json", type=Path, help="also write the results to this file, one object per line")
    options = parser.parse_args()
    if not (options.build / "bin/tilewright").exists():
        parser.error(f"there is no {options.build / 'bin/tilewright'}: build first, or give --build")
    if min(options.rounds, options.every, options.threads) < 1:
        parser.error("--rounds, --every and --threads take 1 or more")

    own = columns_of(options)
    in_process = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}
    all_peers = [in_process[p](options) if p in in_process else Program(options, p) for p in options.peers]
    peers = [p for p in all_peers if p.there()]
    for p in all_peers:
        if p not in peers:
            print(f"{p.name} is missing: its column stays empty (see --help)", file=sys.stderr)
    columns = [c.name for c in own[1:]] + [p.name for p in all_peers]
    failed, lines = 0, []
    for path in options.files:
        results = []
        for op in [op for op in read_ops(path) if options.match in op][::options.every]:
            result = measure(op, own, peers, options)
            result["ms"] = {c: result["ms"].get(c) for c in [own[0].name] + columns}
            results.append(result)
            failed += result["error"] is not None
            lines.append(json.dumps({"file": path.stem, "threads": options.threads, **result}))
            if options.json:
                options.json.write_text("\n".join(lines) + "\n")
        if results:
            print_table(path, results, own[0].name, columns, options)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
