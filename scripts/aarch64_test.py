#!/usr/bin/env python3
"""Models compiled for AArch64, run in qemu: conformance cases against their stored outputs, models of the zoo against this
machine's results.

usage: aarch64_test.py --tool tilewright --runner run_arrays [--cases FOLDER] [--every N]

Needs numpy. scripts/aarch64.sh builds the runner.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from onnxruntime_tensors import varint

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT.parent / "shared" / "conformance" / "core"
ZOO = ["mlp", "bert_tiny_dyn", "lstm_tagger"]
# numpy's element types, by ONNX's numbers and by the tool's names.
TYPES = {1: "f4", 2: "u1", 3: "i1", 4: "u2", 5: "i2", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8", 12: "u4", 13: "u8"}
NAMES = {"f32": "f4", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "i32": "i4", "i64": "i8", "bool": "?", "f16": "f2",
         "f64": "f8", "u32": "u4", "u64": "u8"}


def fields(message):
    """(number, value) of a protocol buffer message's fields: an integer, or bytes."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        size = 8 if key & 7 == 1 else 4
        if key & 7 == 2:
            size, at = varint(message, at)
        yield key >> 3, message[at:at + size]
        at += size


def numbers(value):
    """The integers of a repeated field: one, or several in its bytes."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


def tensor(path):
    """An ONNX TensorProto with raw data as an array. None for others: sequences, optional values, strings, 4 bits."""
    dims, kind, raw = [], None, None
    for number, value in fields(path.read_bytes()):
        if number == 1:
            dims += numbers(value)
        elif number == 2:
            kind = value
        elif number == 9:
            raw = value
    if kind not in TYPES or raw is None or len(raw) != np.dtype(TYPES[kind]).itemsize * int(np.prod(dims, dtype=np.int64)):
        return None
    return np.frombuffer(raw, TYPES[kind]).reshape(dims)


def run(command, seconds=120):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1] if done.stderr or done.stdout else
                           f"exit status {done.returncode}")
    return done.stdout


def run_arrays(runner, emulator, model, inputs, folder):
    arguments = []
    for k, array in enumerate(inputs):
        path = folder / f"in{k}.bin"
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        arguments.append(",".join([str(path)] + [str(d) for d in array.shape]))
    lines = run([*emulator, runner, model, folder, *arguments]).splitlines()
    outputs = []
    for k, line in enumerate(lines):
        name, *shape = line.split()
        outputs.append(np.fromfile(folder / f"{k}.bin", NAMES[name]).reshape([int(d) for d in shape]))
    return outputs


def differences(found, wanted, rtol, atol):
    if len(found) != len(wanted):
        return f"{len(found)} outputs, expected {len(wanted)}"
    for k, (f, w) in enumerate(zip(found, wanted)):
        if f.shape != w.shape or f.dtype != w.dtype:
            return f"output {k} is {f.dtype}{f.shape}, expected {w.dtype}{w.shape}"
        if not np.allclose(f.astype("f8"), w.astype("f8"), rtol, atol, equal_nan=True):
            return f"output {k} differs by {np.nanmax(np.abs(f.astype('f8') - w.astype('f8'))):.3g}"
    return None


def check_case(o, case):
    data = case / "test_data_set_0"
    files = {kind: sorted(data.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1])) for kind in ("input", "output")}
    arrays = {kind: [tensor(p) for p in paths] for kind, paths in files.items()}
    if not arrays["output"] or any(a is None for a in arrays["input"] + arrays["output"]):
        return "skipped", "its tensors are not plain arrays"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([o.tool, "compile", case / "model.onnx", "-o", folder / "m.so", "--isa", "neon", "--no-code-cache"])
        found = run_arrays(o.runner, o.emulator, folder / "m.so", arrays["input"], folder)
        wrong = differences(found, arrays["output"], 1e-3, 1e-6)
    return ("failed", wrong) if wrong else ("passed", "")


def check_zoo(o, model):
    """The same inputs give what they give on this machine, but for the roundings of sums in another order."""
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([o.tool, "zoo", model, "-o", folder / "m.onnx"])
        run([o.tool, "compile", folder / "m.onnx", "-o", folder / "m.so", "--isa", "neon", "--no-code-cache"])
        run([o.tool, "compile", folder / "m.onnx", "-o", folder / "host.so", "--no-code-cache", "--json", folder / "c.json"])
        run([o.tool, "inspect", folder / "host.so", "--json", folder / "host.json"])
        inputs, given = [], []
        for k, io in enumerate(json.loads((folder / "host.json").read_text())["inputs"]):
            shape = [int(d) if d.isdigit() else 3 for d in io["shape"].strip("[]").split(", ") if d]
            kind = np.dtype(NAMES[io["dtype"]])
            array = rng.uniform(-1, 1, shape) if kind.kind == "f" else rng.integers(0, 2, shape)
            inputs.append(array.astype(kind))
            np.save(folder / f"x{k}.npy", inputs[-1])
            given += ["--input", f"{io['name']}={folder}/x{k}.npy"]
        run([o.tool, "run", folder / "host.so", "--output-dir", folder / "out", *given])
        outputs = json.loads((folder / "host.json").read_text())["outputs"]
        wanted = [np.load(folder / "out" / f"{io['name']}.npy") for io in outputs]
        found = run_arrays(o.runner, o.emulator, folder / "m.so", inputs, folder)
        wrong = differences(found, wanted, 1e-4, 1e-5)
    return ("failed", wrong) if wrong else ("passed", "")


def check(o, what):
    try:
        return (check_zoo if isinstance(what, str) else check_case)(o, what)
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return "failed", str(e)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True, type=pathlib.Path)
    parser.add_argument("--runner", required=True, type=pathlib.Path)
    parser.add_argument("--emulator", default="qemu-aarch64-static -L /usr/aarch64-linux-gnu")
    parser.add_argument("--cases", type=pathlib.Path, default=CASES)
    parser.add_argument("--every", type=int, default=8, help="each Nth conformance case")
    o = parser.parse_args()
    o.emulator = o.emulator.split()
    cases = sorted(p.parent for p in o.cases.glob("*/model.onnx"))[::o.every]
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for what, (result, why) in zip(ZOO + cases, pool.map(lambda w: check(o, w), ZOO + cases)):
            counts[result] += 1
            if result == "failed":
                print(f"{what if isinstance(what, str) else what.name}: {why}")
    print(", ".join(f"{counts[k]} {k}" for k in ("passed", "failed", "skipped")))
    return 1 if counts["failed"] or counts["passed"] < len(ZOO) else 0


if __name__ == "__main__":
    sys.exit(main())
