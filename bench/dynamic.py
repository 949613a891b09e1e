#!/usr/bin/env python3
"""Compares a model compiled once for a range of sizes with the same model compiled for each size, and with ONNX Runtime.

  python3 -m venv venv && venv/bin/pip install numpy onnx onnxruntime
  venv/bin/python bench/dynamic.py MODEL[:NAME=RANGE,...]... [--threads 1 2] [--shapes 20] [--library FILE]

MODEL is an ONNX file. NAME=RANGE declares the range of a dimension (seq=1..512, or height=32..640/32 of multiples of 32),
NAME=SIZE a size that all shapes have; other dynamic dimensions stay undeclared and go to 128 (to 4 where they are the
first of all inputs). Shapes are 1, primes, powers of two and their neighbours (or as many steps), up to the largest, in a
random order; with several dimensions each is drawn.
A line has the latency of the model compiled once, of the one compiled for the shape, and of ONNX Runtime, medians in
turns, the loss against the second, the ratio over the third, and the first run of the shape over its second. The error
is that of the outputs against ONNX Runtime's. At the end: means, the worst, and the counters of the session.
--json FILE keeps all lines.
"""
import argparse
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from suite import CompiledModel, Library, Session, largest_error, onnx_runtime, this_machine, times

SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 23, 31, 32, 47, 64, 77, 97, 100, 127, 128, 191, 200, 256, 311, 384, 500, 512, 777,
         1024, 2048, 4096]


def parse_model(text):
    """The path, {name: range} and {name: size} of MODEL:NAME=RANGE,NAME=SIZE."""
    path, _, rest = text.partition(":")
    ranges, fixed = {}, {}
    for part in filter(None, rest.split(",")):
        name, value = part.split("=")
        if ".." in value:
            ranges[name] = value
        else:
            fixed[name] = int(value)
    return Path(path), ranges, fixed


def shapes_of(declared, ranges, fixed, count, rng):
    """[{name: size}]: the least, the largest, then drawn ones."""
    names = []
    for _, _, dims in declared:
        names += [d for d in dims if isinstance(d, str) and d not in names]
    choices = {}
    for name in names:
        if name in fixed:
            choices[name] = [fixed[name]]
            continue
        bounds, _, step = ranges.get(name, "1..").split(":")[0].partition("/")
        bounds, step = bounds.split(".."), int(step or 1)
        first = all(name not in dims[1:] for _, _, dims in declared)
        least, most = int(bounds[0]), int(bounds[1]) if bounds[1] else (4 if first else 128)
        choices[name] = sorted({s * step for s in SIZES if least <= s * step <= most} | {least, most})
    shapes = [{n: c[0] for n, c in choices.items()}, {n: c[-1] for n, c in choices.items()}]
    possible = math.prod(len(c) for c in choices.values())
    while len(shapes) < min(count, possible):
        shape = {n: rng.choice(c) for n, c in choices.items()}
        if shape not in shapes:
            shapes.append(shape)
    rng.shuffle(shapes)
    return shapes


def make_inputs(declared, shape, rng):
    out = {}
    for name, dtype, dims in declared:
        sizes = [shape[d] if isinstance(d, str) else d for d in dims]
        out[name] = rng.standard_normal(sizes).astype(dtype) if dtype.startswith("float") else np.ones(sizes, dtype)
    return out


def seconds_of(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(o, library, text, threads):
    path, ranges, fixed = parse_model(text)
    dynamic = CompiledModel(library, path, threads, ranges=ranges)
    rng = random.Random(o.seed)
    shapes = shapes_of(dynamic.declared, ranges, fixed, o.shapes, rng)
    numbers = np.random.default_rng(o.seed)
    session = Session(dynamic, threads)
    peer = onnx_runtime(path, threads) if o.peer else None
    lines = []
    print(f"{path.stem}, {threads} thread{'s' if threads > 1 else ''}, compiled once in {dynamic.seconds:.1f} s")
    for shape in shapes:
        inputs = make_inputs(dynamic.declared, shape, numbers)
        given = session.prepare(inputs)
        first, second = (seconds_of(lambda: session.run(given)) for _ in range(2))
        functions, names = [lambda: session.run(given)], ["dynamic"]
        line = {"model": path.stem, "threads": threads, "shape": shape, "first": first / second}
        if o.static:
            static = CompiledModel(library, path, threads, dims=shape)
            static_session = Session(static, threads)
            static_given = static_session.prepare(inputs)
            functions.append(lambda: static_session.run(static_given))
            names.append("static")
            line["static_compile_s"] = static.seconds
        if peer:
            want = peer(inputs)
            session.run(given)
            line["error"] = largest_error(session.results(), want)
            functions.append(lambda: peer(inputs))
            names.append("peer")
        line.update(zip(names, times(functions, o.seconds)))
        if o.static:
            static_session.close()
            static.close()
        lines.append(line)
        ms = "  ".join(f"{name} {1e3 * line[name]:9.3f}" for name in names)
        loss = f"  loss {100 * (line['dynamic'] / line['static'] - 1):6.1f} %" if o.static else ""
        ratio = f"  ratio {line['peer'] / line['dynamic']:5.2f}  error {line['error']:.0e}" if peer else ""
        print(f"  {','.join(f'{n}={s}' for n, s in shape.items()):24} {ms} ms{loss}{ratio}  first {line['first']:.2f}",
              flush=True)
    counts = session.counts()
    session.close()
    dynamic.close()
    summary = []
    if o.static:
        losses = [line["dynamic"] / line["static"] - 1 for line in lines]
        summary.append(f"loss mean {100 * statistics.mean(losses):.1f} %, worst {100 * max(losses):.1f} %")
    if peer:
        ratios = [line["peer"] / line["dynamic"] for line in lines]
        summary.append(f"over ONNX Runtime {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.2f}")
    firsts = sorted(line["first"] for line in lines)
    summary.append(f"first run of a shape over its second: median {statistics.median(firsts):.2f}, most {firsts[-1]:.2f}")
    print("  " + "; ".join(summary))
    print("  " + ", ".join(f"{name} {n}" for name, n in counts.items()), flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    built = Path(__file__).resolve().parent.parent / "build/cmake/install/libtilewright.so"
    parser.add_argument("--library", type=Path, default=built, help="libtilewright.so; default: the one in build/")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each, a shape")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-static", dest="static", action="store_false")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    parser.add_argument("--json")
    o = parser.parse_args()
    library = Library(o.library)
    lines = [line for threads in o.threads for text in o.models for line in compare(o, library, text, threads)]
    if o.json:
        Path(o.json).write_text(json.dumps({"machine": this_machine(), "lines": lines}, indent=1) + "\n")
    return 1 if any(line.get("error", 0) > 1e-3 for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
