#!/usr/bin/env python3
"""Compares compiled models with ONNX Runtime and others, over a folder of architectures and all their shapes.

  python3 -m venv venv && venv/bin/pip install numpy onnx onnxruntime
  venv/bin/python bench/suite.py SUITE --models CACHE [--only NAME...] [--time] [--peers onnxruntime openvino torch]

SUITE contains suite.tsv (columns name, skeleton, inputs, dynamic_axes, input_values), the folder skeletons/ and
fill_weights.py, which writes a skeleton with its weights; CACHE stores its output.

Each model is compiled once, with its dynamic dimensions, and then runs every shape that suite.tsv lists for it, and
further ones where it is dynamic, at each number of threads; with --time it is compiled for each number, as the peers'
sessions are. A line has the error of the outputs: the largest
difference relative to the reference's standard deviation, which is independent of the model's scale. The reference
is ONNX Runtime. --listed skips the further shapes. --peak GFLOPS, the multiply-add peak of one thread
(`tilewright info --calibrate`), adds the share of it that the multiply-adds of suite.tsv's column gmacs reach in the
measured time (more than 1 where rewrites save some), and at the end the mean ratio if all lines below the peak ran at that
peak. --time adds the latencies of all --peers, measured in turns, so that a change of the machine's speed affects all; a peer
that does not support a model is omitted. --json FILE writes the times and ratios in the schema of bench/results/ (see
bench/charts.py), from which `make charts` draws docs/charts/. --precision bf16 compares products in bf16 with
OpenVINO's default, --precision f16 with OpenVINO's f16, and both print all errors. `openvino` needs that package;
`torch` needs torch and onnx2torch, and is torch.compile (its default mode) of onnx2torch's conversion of the model.
Exit status 1 if a line fails.
"""
import argparse
import contextlib
import csv
import ctypes
import datetime
import importlib.metadata
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime

TOLERANCE = 1e-3
# The reference itself differs by 6e-4 here when its own optimisations are disabled: the activations cancel.
TOLERANCES = {"yolov4": 5e-3, "yolox_nano": 5e-3}

# Shapes in addition to suite.tsv's, for models with these named dimensions: odd sizes, and several examples.
FURTHER = {("batch", "seq"): [{"batch": 1, "seq": 5}, {"batch": 2, "seq": 50}, {"batch": 3, "seq": 128}],
           ("height", "width"): [{"height": 256, "width": 320}]}

# tilewright_precision.
PRECISIONS = {"f32": 0, "bf16": 1, "f16": 4}
# In 16 bits, errors of the peers are printed beside ours, which may be so many times the largest of them: OpenVINO adds
# up products of f16 in f32.
NARROW_TOLERANCE, OVER_PEERS = 0.5, {"bf16": 1.5, "f16": 5}

# tilewright_dtype, by numpy's name.
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "int8": 4, "int16": 5, "int32": 6, "int64": 7, "uint8": 8,
          "uint16": 9, "uint32": 10, "uint64": 11, "bool": 12}
NAMES = {number: name for name, number in DTYPES.items()}


class CTensor(ctypes.Structure):
    """tilewright_tensor."""
    _fields_ = [("dtype", ctypes.c_int), ("rank", ctypes.c_size_t), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class CIo(ctypes.Structure):
    """tilewright_io."""
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_size_t),
                ("dims", ctypes.POINTER(ctypes.c_int64)), ("dim_names", ctypes.POINTER(ctypes.c_char_p))]


class COptions(ctypes.Structure):
    """tilewright_options."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("isa", ctypes.c_char_p),
                ("dim_count", ctypes.c_size_t), ("dim_names", ctypes.POINTER(ctypes.c_char_p)),
                ("dim_sizes", ctypes.POINTER(ctypes.c_int64)), ("keep_subnormals", ctypes.c_int32),
                ("numerics", ctypes.c_int32), ("check_values", ctypes.c_int32), ("orchestrator", ctypes.c_int32),
                ("measure", ctypes.c_int32), ("measure_seconds", ctypes.c_double), ("sample_count", ctypes.c_size_t),
                ("sample_names", ctypes.POINTER(ctypes.c_char_p)), ("sample_sizes", ctypes.POINTER(ctypes.c_int64)),
                ("cache_folder", ctypes.c_char_p), ("user", ctypes.c_void_p), ("log", ctypes.c_void_p),
                ("cancelled", ctypes.c_void_p), ("precision", ctypes.c_int32), ("range_count", ctypes.c_size_t),
                ("range_names", ctypes.POINTER(ctypes.c_char_p)), ("ranges", ctypes.POINTER(ctypes.c_char_p))]


class CCounts(ctypes.Structure):
    """tilewright_counts."""
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint64) for name in ("runs", "compilations", "preparations", "recalled", "memory_plans",
                                             "dispatches", "bytes_copied")]


def c_strings(texts):
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


class Library:
    """The C interface, include/tilewright/tilewright.h."""

    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        self.c.tilewright_error_message.restype = ctypes.c_char_p
        self.c.tilewright_input_count.restype = ctypes.c_size_t
        self.c.tilewright_output_count.restype = ctypes.c_size_t

    def call(self, name, *arguments):
        error = ctypes.c_void_p()
        if getattr(self.c, "tilewright_" + name)(*arguments, ctypes.byref(error)) != 0:
            message = self.c.tilewright_error_message(error).decode(errors="replace")
            self.c.tilewright_error_free(error)
            raise RuntimeError(message)


class CompiledModel:
    """threads: the number that the code is planned for; 0: all CPUs. It runs on any number. dims: sizes by name, which
    fix dimensions; ranges: texts by name ("1..512")."""

    def __init__(self, library, path, threads=0, precision="f32", dims=None, ranges=None):
        self.library, self.handle = library, ctypes.c_void_p()
        start = time.perf_counter()
        options = COptions(struct_size=ctypes.sizeof(COptions), threads=threads,
                           precision=PRECISIONS[precision])
        dims, ranges = dims or {}, ranges or {}
        options.dim_count, options.dim_names = len(dims), c_strings(list(dims))
        options.dim_sizes = (ctypes.c_int64 * len(dims))(*dims.values())
        options.range_count, options.range_names = len(ranges), c_strings(list(ranges))
        options.ranges = c_strings(list(ranges.values()))
        library.call("compile_file", str(path).encode(), ctypes.byref(options),
                     ctypes.byref(self.handle))
        self.seconds = time.perf_counter() - start
        io = CIo()
        self.inputs, self.declared = [], []  # declared: (name, numpy's type, [size or name])
        for k in range(library.c.tilewright_input_count(self.handle)):
            library.call("input", self.handle, ctypes.c_size_t(k), ctypes.byref(io))
            self.inputs.append(io.name.decode())
            self.declared.append((io.name.decode(), NAMES[io.dtype],
                                  [io.dims[d] if io.dims[d] >= 0 else io.dim_names[d].decode()
                                   for d in range(io.rank)]))
        self.outputs = library.c.tilewright_output_count(self.handle)

    def close(self):
        self.library.c.tilewright_model_free(self.handle)


class Session:
    def __init__(self, model, threads):
        self.model, self.handle = model, ctypes.c_void_p()
        model.library.call("session_create", model.handle, ctypes.c_int32(threads), ctypes.byref(self.handle))

    def close(self):
        self.model.library.c.tilewright_session_free(self.handle)

    def prepare(self, inputs):
        """Inputs as the library's structures. They point into the arrays, which must outlive them."""
        tensors = (CTensor * len(inputs))()
        self.shapes = []
        for k, name in enumerate(self.model.inputs):
            a = inputs[name]
            self.shapes.append((ctypes.c_int64 * a.ndim)(*a.shape))
            tensors[k] = CTensor(DTYPES[a.dtype.name], a.ndim, self.shapes[k], a.ctypes.data, a.nbytes)
        return tensors

    def run(self, tensors):
        self.model.library.call("run", self.handle, tensors, ctypes.c_size_t(len(tensors)))

    def counts(self):
        counts = CCounts(struct_size=ctypes.sizeof(CCounts))
        self.model.library.call("session_counts", self.handle, ctypes.byref(counts))
        return {name: getattr(counts, name) for name, _ in CCounts._fields_[1:]}

    def results(self):
        out = []
        for k in range(self.model.outputs):
            t = CTensor()
            self.model.library.call("session_output", self.handle, ctypes.c_size_t(k), ctypes.byref(t))
            shape = [t.shape[d] for d in range(t.rank)]
            data = ctypes.string_at(t.data, t.bytes) if t.bytes else b""
            out.append(np.frombuffer(data, NAMES[t.dtype]).reshape(shape))
        return out


def parse_inputs(row):
    """[(name, type, shape, values, {dimension: its name})], from the columns of a line."""
    named = {}
    for part in filter(None, row["dynamic_axes"].replace("-", "").split(";")):
        name, axes = part[:-1].split("[")
        named[name] = {int(axis.split("=")[0]): axis.split("=")[1] for axis in axes.split(",")}
    out = []
    for part, values in zip(row["inputs"].split(";"), row["input_values"].split(";"), strict=True):
        name, spec = part.split(":")
        dtype, dims = spec[:-1].split("[")
        out.append((name, dtype, [int(d) for d in dims.split(",")], values, named.get(name, {})))
    return out


def make_inputs(declared, sizes, seed):
    """Arrays by name. `sizes` overrides the line's sizes of named dimensions."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, dtype, dims, values, named in declared:
        shape = [sizes.get(named.get(d), n) for d, n in enumerate(dims)]
        if values == "randn":
            a = rng.standard_normal(shape)
        elif values == "mask":  # the last quarter of each line is padding
            a = np.ones(shape)
            a[..., shape[-1] - shape[-1] // 4:] = 0
        else:
            kind, low, high = values.split(":")
            if kind != "randint":
                raise ValueError(f"input_values has '{values}', expected randn, mask or randint:LOW:HIGH")
            a = rng.integers(int(low), int(high), shape)
        out[name] = np.ascontiguousarray(a.astype(dtype))
    return out


def shapes_of(rows, listed):
    """[(text, {dimension's name: size}, inputs, multiply-adds in 1e9 or None)]: the lines' own shapes, then further
    ones, each once."""
    cases, seen = [], set()
    for row in rows:
        declared = parse_inputs(row)
        names = tuple(sorted({n for *_, named in declared for n in named.values()}))
        for sizes in [{}] + FURTHER.get(names, []):
            shape = [sizes.get(declared[0][4].get(d), n) for d, n in enumerate(declared[0][2])]
            text = "x".join(map(str, shape))
            if text not in seen:
                seen.add(text)
                gmacs = None if sizes or not row.get("gmacs") else float(row["gmacs"])
                cases.append((bool(sizes), text, sizes, declared, gmacs))
    cases.sort(key=lambda case: case[0])
    return [case[1:] for case in cases if not listed or not case[0]]


def largest_error(got, want):
    """Of all outputs: largest |difference| / standard deviation of the reference; infinite where shapes differ."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape or g.dtype != w.dtype:
            return math.inf
        if w.size == 0:
            continue
        w64 = w.astype(np.float64)
        difference = float(np.max(np.abs(g.astype(np.float64) - w64)))
        # Comparisons with NaN are false: it counts as an error.
        worst = max(worst, difference / (float(np.std(w64)) or 1.0)) if math.isfinite(difference) else math.inf
    return worst


def wait_until_idle(limit=0.5):
    """Waits until no other thread of this process runs, at most `limit` seconds. A peer's threads spin after their run:
    ONNX Runtime's for up to 50 ms, which doubled the next turn's times on two CPUs."""
    me, end = str(threading.get_native_id()), time.perf_counter() + limit
    while time.perf_counter() < end:
        running = False
        for task in Path("/proc/self/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # the thread has ended
                running |= task.parent.name != me and task.read_text().rpartition(")")[2].split()[0] == "R"
        if not running:
            return
        time.sleep(0.001)


def times(functions, seconds):
    """Median seconds of each, run in turns of a tenth of a second until each has run for `seconds`. Other threads are
    idle when a turn begins, and its first run, which finds the other's data in the caches, is not counted."""
    taken = [[] for _ in functions]
    while any(sum(t) < seconds or len(t) < 5 for t in taken):
        for f, t in zip(functions, taken):
            wait_until_idle()
            f()
            turn = 0.0
            while turn < 0.1:
                start = time.perf_counter()
                f()
                t.append(time.perf_counter() - start)
                turn += t[-1]
    return [statistics.median(t) for t in taken]


def onnx_runtime(path, threads, precision="f32"):
    """A function from inputs by name to the list of outputs; so are the next."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def open_vino(path, threads, precision="f32"):
    import openvino
    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    if precision not in ("bf16", "default"):  # on some CPUs bfloat16 is its default
        config["INFERENCE_PRECISION_HINT"] = precision
    model = core.compile_model(str(path), "CPU", config)
    request = model.create_infer_request()

    def run(inputs):
        request.infer(inputs, share_inputs=True)
        return [request.get_output_tensor(k).data for k in range(len(model.outputs))]
    return run


def torch_compiled(path, threads, precision="f32"):
    import onnx
    import onnx2torch
    import torch
    torch.set_num_threads(threads)
    model = torch.compile(onnx2torch.convert(onnx.load(str(path))).eval())
    names = [i.name for i in onnx.load(str(path), load_external_data=False).graph.input]

    def run(inputs):
        with torch.inference_mode():
            out = model(*[torch.from_numpy(inputs[name]) for name in names if name in inputs])
        return [t.numpy() for t in (out if isinstance(out, (tuple, list)) else [out])]
    return run


PEERS = {"onnxruntime": ("ONNX Runtime", onnx_runtime), "openvino": ("OpenVINO", open_vino),
         "torch": ("torch.compile", torch_compiled)}


def timed_peers(path, threads, inputs, want, options):
    """{name: (function without arguments, error)} of the peers that support the model."""
    out = {}
    for name in options.peers:
        try:
            run = PEERS[name][1](path, threads, options.precision)
            error = largest_error([np.array(r) for r in run(inputs)], want)
            out[name] = (lambda run=run: run(inputs), error)
        except Exception as e:  # any exception of a peer
            print(f"{path.stem:20} {PEERS[name][0]} does not run it: {str(e).strip().splitlines()[:1]}", flush=True)
    return out


def model_file(suite, cache, skeleton):
    path = cache / skeleton
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        subprocess.run([sys.executable, suite / "fill_weights.py", suite / "skeletons" / skeleton, unfinished],
                       check=True)
        os.replace(unfinished, path)
    return path


def this_machine():
    """The processor, as Linux describes it."""
    cpu = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            cpu.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    known = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
    flags = cpu.get("flags", "").split()
    return {"cpu": cpu.get("model name", "unknown"),
            "cpu_id": "{} {}/{}".format(*(cpu.get(k, "?") for k in ("vendor_id", "cpu family", "model"))),
            "flags": [flag for flag in known if flag in flags],
            "cores": len(os.sched_getaffinity(0)), "date": datetime.date.today().isoformat()}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def repeatable(arguments, options):
    """The command line with the folders of this machine replaced: bench/suite.py SUITE --models CACHE --time."""
    names = {str(options.suite): "SUITE", str(options.models): "CACHE", str(options.library): "LIBRARY",
             str(options.json): "FILE"}
    return shlex.join(["bench/suite.py", *(names.get(a.rstrip("/"), a) for a in arguments)])


def written_results(lines, peers, command):
    """The file of --json as a value; `lines` as run_model gives them."""
    summary = []
    for peer in peers:
        for threads in sorted({line["threads"] for line in lines}):
            some = [line["ratios"][peer] for line in lines if line["threads"] == threads and peer in line["ratios"]]
            if some:
                summary.append({"peer": peer, "threads": threads, "lines": len(some),
                                "geometric_mean": round(math.exp(statistics.fmean(map(math.log, some))), 3),
                                "least": min(some), "most": max(some)})
    return {"machine": this_machine(), "peers": {peer: version(peer) for peer in peers}, "command": command,
            "summary": summary, "lines": lines}


def run_model(library, path, rows, options, lines):
    """Prints a line per shape and number of threads, and adds its times to `lines`; returns (failures, {(peer, threads):
    [(ratio of the latencies, the same at the peak)]})."""
    tolerance = TOLERANCES.get(path.stem, TOLERANCE)
    failures, ratios = 0, {}
    models = {}
    try:
        for threads in options.threads if options.time else [0]:
            models[threads] = CompiledModel(library, path, threads, options.precision)
    except RuntimeError as e:
        print(f"{path.stem:20} FAIL  not compiled: {e}", flush=True)
        return 1, {}
    reference = onnx_runtime(path, options.threads[0])
    sessions = {n: Session(models[n if options.time else 0], n) for n in options.threads}
    for text, sizes, declared, gmacs in shapes_of(rows, options.listed):
        inputs = make_inputs(declared, sizes, options.seed)
        want = reference(inputs)
        for threads in options.threads:
            line = f"{path.stem:20} {text:16} {threads} thread{'s' if threads > 1 else ' '}"
            try:
                session = sessions[threads]
                tensors = session.prepare(inputs)
                session.run(tensors)
                error = largest_error(session.results(), want)
            except RuntimeError as e:
                print(f"{line}  FAIL  {e}", flush=True)
                failures += 1
                continue
            peers = timed_peers(path, threads, inputs, want, options) if options.time else {}
            if options.precision != "f32":
                off = max([e for _, e in peers.values()], default=0)
                tolerance = max(NARROW_TOLERANCE, OVER_PEERS[options.precision] * off)
            good = error <= tolerance
            failures += not good
            line += f"  {'ok  ' if good else 'FAIL'}  {error:.1e}  compiled in {session.model.seconds:4.1f} s"
            if options.time and good:
                own, *others = times([lambda: session.run(tensors), *(run for run, _ in peers.values())],
                                     options.seconds)
                line += f"  {own * 1e3:9.3f} ms"
                lines.append({"model": path.stem, "shape": text, "threads": threads, "ours_ms": round(own * 1e3, 4),
                              "ratios": {name: round(t / own, 4) for name, t in zip(peers, others)}})
                at_peak = own
                if options.peak and gmacs:
                    at_peak = 2 * gmacs / (options.peak * threads)
                    line += f" {100 * at_peak / own:4.0f} % of the peak"
                for name, seconds in zip(peers, others):
                    ratios.setdefault((name, threads), []).append((seconds / own, seconds / min(own, at_peak)))
                    line += f"  {PEERS[name][0]} {seconds * 1e3:9.3f} ms, ratio {seconds / own:.2f}"
                    if options.precision != "f32":
                        line += f", error {peers[name][1]:.1e}"
            print(line, flush=True)
    for session in sessions.values():
        session.close()
    for model in models.values():
        model.close()
    return failures, ratios


def parser_of_suite(description):
    """A parser with the options of all programs that run the suite's models."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, help="folder with suite.tsv")
    parser.add_argument("--models", type=Path, required=True, help="folder of the models with weights")
    built = Path(__file__).resolve().parent.parent / "build/cmake/install/libtilewright.so"
    parser.add_argument("--library", type=Path, default=built, help="libtilewright.so; default: the one in build/")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main():
    parser = parser_of_suite(__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="models to run, by name")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32",
                        help="tilewright_options.precision; OpenVINO has f32 or f16, or is as it comes (bf16)")
    parser.add_argument("--time", action="store_true", help="measure latencies too")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=["onnxruntime"], help="the peers to time")
    parser.add_argument("--listed", action="store_true", help="suite.tsv's shapes only")
    parser.add_argument("--peak", type=float, metavar="GFLOPS", help="of one thread")
    parser.add_argument("--seconds", type=float, default=2, help="at least, for each latency")
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --time: write the results to this file")
    options = parser.parse_args()

    if options.json and not options.time:
        parser.error("--json writes latencies: give --time as well")
    if not options.library.exists():
        parser.error(f"there is no {options.library}: build first, or give --library")
    library = Library(options.library.resolve())
    models = {}
    with open(options.suite / "suite.tsv", newline="") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            models.setdefault(row["skeleton"], []).append(row)
    names = {Path(skeleton).stem for skeleton in models}
    for name in options.only:
        if name not in names:
            parser.error(f"suite.tsv has no model '{name}'")

    failures, ratios, lines = 0, {}, []
    for skeleton, rows in models.items():
        if options.only and Path(skeleton).stem not in options.only:
            continue
        failed, measured = run_model(library, model_file(options.suite, options.models, skeleton), rows, options,
                                     lines)
        failures += failed
        for key, some in measured.items():
            ratios.setdefault(key, []).extend(some)
    if options.json:
        result = written_results(lines, options.peers, repeatable(sys.argv[1:], options))
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{failures} failed")
    for (name, threads), some in sorted(ratios.items()):
        mean, at_peak = (math.exp(statistics.fmean(map(math.log, r))) for r in zip(*some))
        print(f"{PEERS[name][0]}'s time / Tilewright's, {threads} thread{'s' if threads > 1 else ''}: geometric mean of "
              f"{len(some)}: {mean:.3f}, least {min(some)[0]:.2f}"
              + (f"; {at_peak:.3f} if every line below the peak ran at it" if options.peak else ""))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
