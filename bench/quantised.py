#!/usr/bin/env python3
"""Compares models in 8-bit integers with ONNX Runtime, OpenVINO, and with Tilewright's f32.

  python3 -m venv venv && venv/bin/pip install numpy onnx onnxruntime openvino
  venv/bin/python bench/quantised.py SUITE --models CACHE [--only NAME...] [--threads 1 2] [--peers onnxruntime openvino]

SUITE is that of bench/suite.py. ONNX Runtime's own tool quantises each model into CACHE, once: `qdq` and `qop` by
static calibration on random inputs (QuantizeLinear and DequantizeLinear around the operators, or QLinearConv and its
kin; weights per channel), `dynamic` with scales computed while it runs (MatMulInteger). A line has the latencies of
all, measured in turns, the ratios to Tilewright's, and the largest difference from ONNX Runtime's outputs for the same
file, relative to their standard deviation. The weights are random: the error says that both compute the same, not that a
trained model would lose as little.
"""
import csv
import math
import statistics
import sys

import numpy as np
import suite

FORMS = {"resnet50": ["qdq", "qop"], "mobilenet_v2": ["qdq", "qop"], "efficientnet_b0": ["qdq", "qop"],
         "bert_base": ["qdq", "dynamic"]}
CALIBRATION_INPUTS = 4


def quantised_file(path, form, declared):
    """The file of the model in this form, written on first use."""
    from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quant_pre_process,
                                          quantize_dynamic, quantize_static)
    out = path.with_name(f"{path.stem}_{form}.onnx")
    if out.exists():
        return out
    unfinished, prepared = out.with_suffix(".part.onnx"), path.with_suffix(".prepared.onnx")
    if form == "dynamic":
        quantize_dynamic(path, unfinished, weight_type=QuantType.QInt8)
    else:
        class Reader(CalibrationDataReader):
            def __init__(self):
                self.inputs = iter([suite.make_inputs(declared, {}, seed) for seed in range(CALIBRATION_INPUTS)])

            def get_next(self):
                return next(self.inputs, None)

        quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        quantize_static(str(prepared), str(unfinished), Reader(), per_channel=True,
                        quant_format=QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        prepared.unlink()
    unfinished.rename(out)
    return out


def run_model(library, path, form, declared, options, ratios):
    """Prints a line per number of threads; adds to ratios, {(name, threads): [ratio]}. Returns the failures."""
    file = quantised_file(path, form, declared)
    inputs = suite.make_inputs(declared, {}, options.seed)
    failures = 0
    for threads in options.threads:
        line = f"{file.stem:24} {threads} thread{'s' if threads > 1 else ' '}"
        try:
            models = [suite.CompiledModel(library, f, threads) for f in (file, path)]
            sessions = [suite.Session(m, threads) for m in models]
            tensors = [s.prepare(inputs) for s in sessions]
            sessions[0].run(tensors[0])
        except RuntimeError as e:
            print(f"{line}  FAIL  {e}", flush=True)
            failures += 1
            continue
        names, runs = ["f32"], [lambda: sessions[1].run(tensors[1])]
        error = None
        for peer in options.peers:
            try:
                run = suite.PEERS[peer][1](file, threads, "default")
                results = [np.array(r) for r in run(inputs)]
            except Exception as e:  # any exception of a peer
                print(f"{line}  {suite.PEERS[peer][0]} does not run it: {str(e).strip().splitlines()[:1]}", flush=True)
                continue
            if peer == "onnxruntime":
                error = suite.largest_error(sessions[0].results(), results)
            names.append(peer)
            runs.append(lambda run=run: run(inputs))
        own, *others = suite.times([lambda: sessions[0].run(tensors[0]), *runs], options.seconds)
        line += f"  {own * 1e3:8.3f} ms  compiled in {models[0].seconds:4.1f} s"
        line += "" if error is None else f"  error {error:.1e}"
        for name, seconds in zip(names, others):
            ratios.setdefault((name, threads), []).append(seconds / own)
            label = "our f32" if name == "f32" else suite.PEERS[name][0]
            line += f"  {label} {seconds * 1e3:8.3f} ms, ratio {seconds / own:.2f}"
        print(line, flush=True)
        for s in sessions:
            s.close()
        for m in models:
            m.close()
    return failures


def main():
    parser = suite.parser_of_suite(__doc__)
    parser.add_argument("--only", nargs="+", choices=FORMS, default=list(FORMS), help="models to run, by name")
    parser.add_argument("--peers", nargs="*", choices=["onnxruntime", "openvino"], default=["onnxruntime", "openvino"])
    parser.add_argument("--seconds", type=float, default=1, help="at least, for each latency")
    options = parser.parse_args()
    if not options.library.exists():
        parser.error(f"there is no {options.library}: build first, or give --library")
    library = suite.Library(options.library.resolve())
    with open(options.suite / "suite.tsv", newline="") as f:
        rows = {row["name"]: row for row in csv.DictReader(f, delimiter="\t")}
    machine = suite.this_machine()
    print(f"{machine['cpu']}, {' '.join(machine['flags'])}; "
          + ", ".join(f"{suite.PEERS[p][0]} {suite.version(p)}" for p in options.peers))
    failures, ratios = 0, {}
    for name in options.only:
        path = suite.model_file(options.suite, options.models, rows[name]["skeleton"])
        for form in FORMS[name]:
            failures += run_model(library, path, form, suite.parse_inputs(rows[name]), options, ratios)
    for (name, threads), some in sorted(ratios.items()):
        label = "our f32" if name == "f32" else suite.PEERS[name][0]
        print(f"{label}'s time / Tilewright's, {threads} thread{'s' if threads > 1 else ''}: geometric mean of "
              f"{len(some)}: {math.exp(statistics.fmean(map(math.log, some))):.3f}, least {min(some):.2f}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
