#!/usr/bin/env python3
"""DietCode's tables: one joint search for all sizes beside a search for each size, the default plan and ONNX Runtime.

usage: PYTHONPATH=build/python python bench/dietcode.py [--workloads tokens hidden batch] [--trials 200] [--threads 1]
           [--tool build/bin/tilewright] [--form relative published] [--each] [--json FILE]

Workloads: `tokens` is a dense layer of BERT-base (768 to 2304) on 16 T rows, T = 5, 24, ..., 128 (figures 15 and 18);
`hidden` is a product of 256 rows whose two other sizes are hidden sizes of BERT (figure 16); `batch` is a convolution of
ResNet-50 (56 x 56, 64 to 64 channels, 3 x 3) with a batch of 16 to 32 (figures 17 and 19). Weights of the dense layers are
constants; those of `hidden` are an input, since their size is dynamic.

Compiles each workload once by `--scheduler dietcode` with --trials measurements for all sizes, once by estimates alone, and
with --each once for each size by `--scheduler search` with as many measurements; all with an empty database and cache.
Prints the seconds of each compilation, what the search says of itself, and for each size, medians in turns, GFLOP/s, and
the loss against the search for the size, or the gain over the default plan. `--form`: the options of --joint-search.
"""

import argparse
import json
import os
import statistics
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from papers import Bench
from suite import onnx_runtime, times

SECONDS = 0.5


def model(nodes, inputs, output, constants):
    graph = helper.make_graph(
        nodes,
        "dietcode",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def values(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def tokens():
    sizes = [16 * t for t in (5, 24, 43, 62, 81, 100, 119, 128)]
    m = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["m", 768])], ["m", 2304], {"w": values(768, 2304)})
    return m, {"m": sizes}, [{"m": s} for s in sizes], lambda s: 2e-9 * s["m"] * 768 * 2304


def hidden():
    sizes = [(768, 768), (768, 3072), (3072, 768), (1024, 1024), (1024, 4096), (512, 2048)]
    m = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", [256, "k"]), ("w", ["k", "n"])], [256, "n"], {})
    ranges = {"k": sorted({k for k, _ in sizes}), "n": sorted({n for _, n in sizes})}
    return m, ranges, [{"k": k, "n": n} for k, n in sizes], lambda s: 2e-9 * 256 * s["k"] * s["n"]


def batch():
    sizes = [16, 20, 24, 28, 32]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    m = model([node], [("x", ["b", 64, 56, 56])], ["b", 64, 56, 56], {"w": values(64, 64, 3, 3)})
    return m, {"b": sizes}, [{"b": s} for s in sizes], lambda s: 2e-9 * s["b"] * 64 * 64 * 9 * 56 * 56


WORKLOADS = {"tokens": tokens, "hidden": hidden, "batch": batch}


def compiled(o, path, dims, options):
    """A function of the inputs, the seconds of its compilation, and the notes of the search."""
    with tempfile.TemporaryDirectory() as folder:
        session, seconds, notes = Bench(o, folder).compiled(path, options, [f"{n}={text}" for n, text in dims.items()])
        return lambda feeds: session.run(None, feeds), seconds, [n for n in notes.splitlines() if "micro-kernels" in n]


def compare(o, name, folder):
    proto, ranges, shapes, gflop = WORKLOADS[name]()
    path = os.path.join(folder, f"{name}.onnx")
    onnx.save(proto, path)
    dims = {n: f"{min(sizes)}..{max(sizes)}:{','.join(map(str, sizes))}" for n, sizes in ranges.items()}
    trials = ["--trials", str(o.trials)]
    inputs = {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in proto.graph.input}
    every = {}
    for form in o.form:
        session, seconds, notes = compiled(o, path, dims, ["--scheduler", "dietcode", "--joint-search", form, *trials])
        every[form] = session
        print(f"{name}: one joint search, {form}: {seconds:.1f} s", *notes, sep="\n  ", flush=True)
    every["default"], seconds, _ = compiled(o, path, dims, [])
    print(f"{name}: by estimates: {seconds:.1f} s", flush=True)
    every["onnxruntime"] = onnx_runtime(path, o.threads)
    rows, alone_seconds = [], 0.0
    print(f"{'sizes':20}" + "".join(f"{n[:12]:>13}" for n in every) + ("  each size" if o.each else "") + "   GFLOP/s")
    for shape in shapes:
        sessions = dict(every)
        if o.each:
            sessions["each"], seconds, _ = compiled(o, path, shape, ["--scheduler", "search", *trials])
            alone_seconds += seconds
        feeds = {n: values(*[shape.get(d, d) for d in sizes]) for n, sizes in inputs.items()}
        t = dict(zip(sessions, times([lambda f=f: f(feeds) for f in sessions.values()], SECONDS)))
        rows.append({"shape": shape, **t})
        text = "x".join(map(str, shape.values()))
        print(f"{text:20}" + "".join(f"{gflop(shape) / t[n]:13.1f}" for n in sessions), flush=True)
    mean = lambda a, b: statistics.geometric_mean([r[a] / r[b] for r in rows])  # noqa: E731
    for form in o.form:
        for other in [n for n in rows[0] if n not in (form, "shape")]:
            ratios = [r[other] / r[form] for r in rows]
            print(f"{name}: {form} over {other}: {mean(other, form):.3f} (least {min(ratios):.3f})")
    if o.each:
        print(f"{name}: the searches for each size took {alone_seconds:.1f} s")
    return {"rows": rows, "each_seconds": alone_seconds}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    p.add_argument("--trials", type=int, default=200)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--tool", default="build/bin/tilewright")
    p.add_argument("--form", nargs="+", choices=["relative", "published"], default=["relative"])
    p.add_argument("--each", action="store_true", help="search for each size as well")
    p.add_argument("--json")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = {name: compare(o, name, folder) for name in o.workloads}
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
