#!/usr/bin/env python3
"""Writes src/ops/contrib_quant_cases.txt and contrib_quant_layer_cases.txt (convolutions, recurrences): outputs of ONNX
Runtime's quantised operators of com.microsoft.

Needs the packages numpy, onnx and onnxruntime (the file names the version). For each case a line `case OPERATOR`,
`attr NAME KIND VALUES...`, then `input TYPE SHAPE VALUES...` (or `input none`) and `output K TYPE SHAPE VALUES...`.

    python3 scripts/contrib_quant_cases.py [--cases N] [--seed N] [--folder FOLDER]
"""
import argparse
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import helper

TYPES = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "i8", np.dtype(np.float32): "f32", np.dtype(np.float16): "f16",
         np.dtype(np.int32): "i32", np.dtype(np.int16): "i16", np.dtype(np.uint16): "u16",
         np.dtype(np.int64): "i64", np.dtype(bool): "bool"}


class Draw:
    """Random operands of one case."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.type = self.rng.choice([np.uint8, np.int8])

    def shape(self, rank, most=6):
        return tuple(int(d) for d in self.rng.randint(1, most + 1, rank))

    def numbers(self, shape, dtype=None):
        info = np.iinfo(dtype or self.type)
        return self.rng.randint(info.min, info.max + 1, shape).astype(dtype or self.type)

    def scale(self, low=0.01, high=0.1, shape=()):
        return self.rng.uniform(low, high, shape).astype(np.float32)

    def zero(self):
        return self.numbers(())

    def quantised(self, shape):
        return [self.numbers(shape), self.scale(), self.zero()]


def binary(op):
    def case(d):
        a = d.shape(3)
        b = tuple(1 if d.rng.rand() < 0.3 else n for n in a)
        return op, {}, d.quantised(a) + d.quantised(b) + [d.scale(0.02, 0.3), d.zero()]
    return case


def unary(op, attributes=lambda d: {}):
    def case(d):
        return op, attributes(d), d.quantised(d.shape(3)) + [d.scale(0.003, 0.1), d.zero()]
    return case


def softmax(d):
    x = d.quantised(d.shape(3))
    return "QLinearSoftmax", {"axis": int(d.rng.randint(0, 3)), "opset": int(d.rng.choice([11, 13]))}, \
        x + [np.float32(1 / 256), d.type(0 if d.type == np.uint8 else -128)]


def average_pool(d):
    last = int(d.rng.randint(0, 2))
    n, c, h, w = d.shape(2) + tuple(int(x) for x in d.rng.randint(4, 9, 2))
    shape = (n, h, w, c) if last else (n, c, h, w)
    kernel = [int(k) for k in d.rng.randint(1, 4, 2)]
    attributes = {"channels_last": last, "kernel_shape": kernel, "strides": [int(s) for s in d.rng.randint(1, 3, 2)],
                  "pads": [int(d.rng.randint(0, k)) for k in kernel + kernel],
                  "count_include_pad": int(d.rng.randint(0, 2))}
    return "QLinearAveragePool", attributes, d.quantised(shape) + [d.scale(), d.zero()]


def global_average_pool(d):
    return "QLinearGlobalAveragePool", {"channels_last": int(d.rng.randint(0, 2))}, \
        d.quantised(d.shape(4)) + [d.scale(), d.zero()]


def concat(d):
    shape, axis = list(d.shape(3)), int(d.rng.randint(0, 3))
    inputs = [d.scale(), d.zero()]
    for _ in range(d.rng.randint(1, 4)):
        shape[axis] = int(d.rng.randint(1, 5))
        inputs += d.quantised(tuple(shape))
    return "QLinearConcat", {"axis": axis}, inputs


def column_operand(d, k, n):
    each = d.rng.rand() < 0.5
    kind = d.rng.choice([np.uint8, np.int8])
    return d.numbers((k, n), kind), d.scale(shape=(n,) if each else ()), d.numbers((n,) if each else (), kind)


def dynamic_matmul(d):
    m, k, n = d.shape(3)
    b, scale, zero = column_operand(d, k, n)
    inputs = [d.rng.randn(m, k).astype(np.float32), b, scale, zero]
    return "DynamicQuantizeMatMul", {}, inputs + ([d.rng.randn(n).astype(np.float32)] if d.rng.rand() < 0.5 else [])


def integer_to_float(d):
    m, k, n = d.shape(3)
    b, scale, zero = column_operand(d, k, n)
    inputs = [d.numbers((m, k)), b, d.scale(), scale, d.zero(), zero]
    return "MatMulIntegerToFloat", {}, inputs + ([d.rng.randn(n).astype(np.float32)] if d.rng.rand() < 0.5 else [])


def gemm(d):
    m, k, n = d.shape(3)
    turn = [int(t) for t in d.rng.randint(0, 2, 2)]
    kind, each = d.rng.choice([np.uint8, np.int8]), d.rng.rand() < 0.5
    a, b = d.quantised((k, m) if turn[0] else (m, k)), d.numbers((n, k) if turn[1] else (k, n), kind)
    columns = (n,) if each else ()
    inputs = a + [b, d.scale(shape=columns), d.numbers(columns, kind)]
    inputs.append(d.rng.randint(-1000, 1000, (n,)).astype(np.int32) if d.rng.rand() < 0.5 else None)
    inputs += [d.scale(1, 3), d.zero()] if d.rng.rand() < 0.5 else []
    while inputs[-1] is None:
        inputs.pop()
    return "QGemm", {"transA": turn[0], "transB": turn[1], "alpha": float(d.rng.choice([1, 0.5]))}, inputs


def quantize(d):
    kind = d.rng.choice([np.uint16, np.int16])
    x = d.rng.randn(*d.shape(2)).astype(np.float32)
    return "QuantizeLinear", {"axis": 0}, [x, d.scale(1e-4, 1e-3, x.shape[:1]), d.numbers(x.shape[:1], kind)]


def dequantize(d):
    kind = d.rng.choice([np.uint16, np.int16])
    x = d.numbers(d.shape(2), kind)
    return "DequantizeLinear", {"axis": 1}, [x, d.scale(1e-4, 1e-3, x.shape[1:]), d.numbers(x.shape[1:], kind)]


def conv(d):
    last, group = int(d.rng.randint(0, 2)), int(d.rng.choice([1, 2]))
    n, h, w = 1, int(d.rng.randint(4, 7)), int(d.rng.randint(4, 7))
    c, m = group * int(d.rng.randint(1, 4)), group * int(d.rng.randint(1, 4))
    each, kind = d.rng.rand() < 0.5, d.rng.choice([np.uint8, np.int8])
    x = d.quantised((n, h, w, c) if last else (n, c, h, w))
    zero = kind(0 if kind == np.int8 else 128)
    weights = [d.numbers((m, c // group, 3, 3), kind), d.scale(shape=(m,) if each else ()),
               np.full((m,), zero) if each else zero]
    bias = [d.rng.randint(-1000, 1000, (m,)).astype(np.int32)] if d.rng.rand() < 0.5 else []
    return "QLinearConv", {"channels_last": last, "group": group, "pads": [int(p) for p in d.rng.randint(0, 2, 4)],
                           "strides": [int(s) for s in d.rng.randint(1, 3, 2)]}, \
        x + weights + [d.scale(1, 3), d.zero()] + bias


def where(d):
    shape = d.shape(3)
    return "QLinearWhere", {}, [d.rng.rand(*shape) < 0.5] + d.quantised(shape) + d.quantised(shape) + [d.scale(), d.zero()]


def dynamic_lstm(d):
    length, batch, inputs, hidden = 3, int(d.rng.randint(1, 3)), int(d.rng.randint(1, 6)), int(d.rng.randint(1, 5))
    direction = str(d.rng.choice(["forward", "reverse", "bidirectional"]))
    count, kind, each = 2 if direction == "bidirectional" else 1, d.rng.choice([np.uint8, np.int8]), d.rng.rand() < 0.5
    columns = (count, 4 * hidden) if each else (count,)

    def scale_and_zero():
        zero = np.full(columns, 0 if kind == np.int8 else 120).astype(kind)
        return [d.scale(0.002, 0.01, columns), zero]

    def floats(*shape):
        return d.rng.randn(*shape).astype(np.float32) if d.rng.rand() < 0.5 else None

    return "DynamicQuantizeLSTM", {"hidden_size": hidden, "direction": direction}, \
        [d.rng.randn(length, batch, inputs).astype(np.float32), d.numbers((count, inputs, 4 * hidden), kind),
         d.numbers((count, hidden, 4 * hidden), kind), floats(count, 8 * hidden), None, floats(count, batch, hidden),
         floats(count, batch, hidden), floats(count, 3 * hidden)] + scale_and_zero() + scale_and_zero()


CASES = [binary("QLinearAdd"), binary("QLinearMul"), unary("QLinearSigmoid"),
         unary("QLinearLeakyRelu", lambda d: {"alpha": float(d.rng.choice([0.01, 0.2]))}), softmax, average_pool,
         global_average_pool, concat, dynamic_matmul, integer_to_float, gemm,
         quantize, dequantize]
LAYERS = [conv, where, dynamic_lstm]


def typed(name):
    """An output; its type is inferred, except for "qk" of attention."""
    if name == "qk":
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    return onnx.ValueInfoProto(name=name)


def run(op, attributes, inputs, outputs=("y",), domain="com.microsoft"):
    """The outputs that are named. Inputs that are None are missing."""
    names = ["" if x is None else "x%d" % k for k, x in enumerate(inputs)]
    given = {name: np.asarray(x) for name, x in zip(names, inputs) if name}
    node = helper.make_node(op, names, list(outputs), domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "case",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for name, x in given.items()], [typed(name) for name in outputs if name])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17),
                                                                  helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # a thread of LSTM's quantises the states of its own examples
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, given)


def line(word, x, digits=9):
    """With digits=None as many as the type needs."""
    if x is None:
        return word + " none"
    x = np.asarray(x)
    floats = np.format_float_positional if digits is None else lambda v, trim: "%.*g" % (digits, v)
    numbers = [floats(v, trim="-") if x.dtype.kind == "f" else str(int(v)) for v in x.ravel()]
    return " ".join([word, TYPES[x.dtype], ",".join(map(str, x.shape)) or "scalar"] + numbers)


def attribute(name, value):
    if isinstance(value, list):
        kind = "floats" if isinstance(value[0], float) else "ints"
        return "attr %s %s %s" % (name, kind, " ".join(map(str, value)))
    kind = {float: "float", int: "int", str: "string"}[type(value)]
    return "attr %s %s %s" % (name, kind, value)


FILES = {"contrib_quant_cases.txt": CASES, "contrib_quant_layer_cases.txt": LAYERS}


def lines_of(cases, options):
    lines = ["# What ONNX Runtime %s computes; written by scripts/contrib_quant_cases.py." % onnxruntime.__version__]
    refused = 0
    for k, make in enumerate(cases):
        made = seed = 0
        while made < options.cases and seed < 50 * options.cases:
            op, attributes, inputs = make(Draw(options.seed * 1000003 + k * 1009 + seed))
            seed += 1
            try:
                y = run(op, attributes, inputs)[0]
            except Exception:  # unsupported by ONNX Runtime
                refused += 1
                continue
            made += 1
            lines.append("case " + op)
            lines += [attribute(*item) for item in attributes.items()]
            lines += [line("input", x) for x in inputs] + [line("output 0", y)]
    print("%d cases, %d refused" % (len(cases) * options.cases, refused))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=8, help="cases per operator (8)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "src" / "ops")
    options = parser.parse_args()
    for name, cases in FILES.items():
        (options.folder / name).write_text("\n".join(lines_of(cases, options)) + "\n")


if __name__ == "__main__":
    main()
