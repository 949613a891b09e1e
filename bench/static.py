#!/usr/bin/env python3
"""Compares a model compiled once for all its shapes with the same model compiled for one shape, shape by shape.

  python3 -m venv venv && venv/bin/pip install numpy onnx
  venv/bin/python bench/static.py build/bin/tilewright MODEL[:NAME=SIZE,...]... [--threads 1] [--most 1.15]

MODEL is an ONNX file, or a folder with model.onnx and test_data_set_0 (input_0.pb, ...), whose inputs are then used.
NAME=SIZE gives sizes to named dimensions; the same model may be given several times. For each, the script writes a copy
of the model whose inputs have these sizes, and runs `tilewright bench` on both in turns. A line has the lowest median of
each, and their ratio; --kernels N adds the N slowest kernels of both. Exit status 1 if a ratio is above --most.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx


def sizes_of(text):
    return {name: int(size) for name, size in (part.split("=") for part in text.split(",") if part)}


def fixed(path, data, sizes, target):
    """A copy of the model with constant input dimensions."""
    model = onnx.load(str(path))
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    for i, value in enumerate(inputs):
        dims = value.type.tensor_type.shape.dim
        given = []
        if data:
            tensor = onnx.TensorProto()
            tensor.ParseFromString((data / f"input_{i}.pb").read_bytes())
            given = list(tensor.dims)
        for d, dim in enumerate(dims):
            if not dim.HasField("dim_value"):
                dim.dim_value = given[d] if data else sizes.get(dim.dim_param, 1)
    del model.graph.value_info[:]
    onnx.save(model, str(target), save_as_external_data=False)


def bench(o, model, extra, kernels):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [o.tilewright, "bench", str(model), "--threads", str(o.threads), "--iterations", str(o.iterations),
                   "--warmup", "10", "--json", out.name, *extra]
        if kernels:
            command += ["--kernels", str(kernels)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return json.loads(Path(out.name).read_text()), done.stdout


def compare(o, text, folder):
    """The dynamic model's time over the static one's."""
    path, _, rest = text.partition(":")
    path, sizes, data = Path(path), sizes_of(rest), None
    name = path.stem
    if path.is_dir():
        name = path.name
        data = path / "test_data_set_0" if not sizes else None
        path = path / "model.onnx"
    static = Path(folder) / "static.onnx"
    fixed(path, data, sizes, static)
    given = ["--data", str(data)] if data else [a for n, s in sizes.items() for a in ("--dim", f"{n}={s}")]
    times = {"dynamic": [], "static": []}
    shown = {}
    for turn in range(o.turns):
        last = o.kernels if turn == o.turns - 1 else 0
        for kind, model, extra in (("dynamic", path, given), ("static", static, given[:2] if data else [])):
            result, shown[kind] = bench(o, model, extra, last)
            times[kind].append(result["latency_ms"]["median"])
    dynamic, fixed_ms = min(times["dynamic"]), min(times["static"])
    ratio = dynamic / fixed_ms
    print(f"{name + (':' + rest if rest else ''):32} {dynamic:10.4f} {fixed_ms:10.4f} {ratio:7.2f}", flush=True)
    if o.kernels:
        for kind in times:
            print(f"--- {kind}\n{shown[kind]}", flush=True)
    return ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tilewright")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--most", type=float, default=math.inf)
    parser.add_argument("--kernels", type=int, default=0)
    o = parser.parse_args()
    print(f"{'model':32} {'dynamic ms':>10} {'static ms':>10} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        ratios = [compare(o, text, folder) for text in o.models]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean {mean:.2f}, most {max(ratios):.2f}")
    return 1 if max(ratios) > o.most else 0


if __name__ == "__main__":
    sys.exit(main())
