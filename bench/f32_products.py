#!/usr/bin/env python3
"""Compares products of f32 as multiply-adds with those on tile registers of bf16, three or two terms per operand.

  python3 -m venv venv && venv/bin/pip install numpy onnx
  venv/bin/python bench/f32_products.py build/bin/tilewright [MxKxN...] [--threads 1] [--rounds 3] [--spread 1]

For each size, the script writes a model of one product with bias and constant weights, normally distributed (--spread:
the standard deviation of their binary exponents), and runs `tilewright bench` and `tilewright verify` in turns with

  strict    --numerics strict      multiply-adds
  f32       the default            three terms where they are estimated to be faster
  fast      --precision f32-fast   two terms, likewise

A line has the lowest of the medians in milliseconds, the speed of the last two over the first, GFLOP/s of f32 (2 per
multiply-add), and errors against float64 relative to the largest output: root mean square, and largest.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WAYS = {"strict": ["--numerics", "strict"], "f32": [], "fast": ["--precision", "f32-fast"]}
SIZES = ["128x768x768", "128x768x3072", "128x3072x768", "128x4096x1024", "768x768x768", "1024x1024x1024",
         "197x768x3072", "784x512x128", "196x1024x256"]


def write_model(path, m, k, n, spread):
    rng = np.random.default_rng(1)
    scales = np.exp2(rng.normal(0, spread, (k, n)))
    weights = (rng.standard_normal((k, n)) * scales / np.sqrt(k)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])], "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))


def run(o, command, model, way):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        arguments = [o.tilewright, command, str(model), "--threads", str(o.threads), "--json", out.name, *WAYS[way]]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(arguments)}\n{done.stderr.strip()}")
        return json.loads(Path(out.name).read_text())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tilewright")
    p.add_argument("sizes", nargs="*", default=SIZES)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--spread", type=float, default=1)
    o = p.parse_args()
    print("| product | strict ms | f32 ms | fast ms | f32 | fast | GFLOP/s, f32 | error strict | f32 | fast |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for size in o.sizes:
            m, k, n = (int(x) for x in size.split("x"))
            model = Path(folder) / f"{size}.onnx"
            write_model(model, m, k, n, o.spread)
            times = {way: [] for way in WAYS}
            for _ in range(o.rounds):
                for way in WAYS:
                    times[way].append(run(o, "bench", model, way)["latency_ms"]["median"])
            best = {way: min(t) for way, t in times.items()}
            errors = {way: run(o, "verify", model, way)["error"] for way in WAYS}
            rate = 2 * m * k * n / best["f32"] / 1e6
            print(f"| {size} | " + " | ".join(f"{best[w]:.3f}" for w in WAYS) +
                  f" | {best['strict'] / best['f32']:.2f} | {best['strict'] / best['fast']:.2f} | {rate:.0f} | " +
                  " | ".join(f"{errors[w]['rms']:.1e}, {errors[w]['largest']:.1e}" for w in WAYS) + " |", flush=True)


if __name__ == "__main__":
    main()
