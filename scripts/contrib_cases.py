#!/usr/bin/env python3
"""Writes src/ops/contrib_cases.txt and src/ops/contrib_attention_cases.txt: outputs of ONNX Runtime's operators of
com.microsoft other than the quantised ones.

Needs the packages numpy, onnx and onnxruntime (the file names the version). A case has the lines of
scripts/contrib_quant_cases.py, `domain onnx` for an operator in the default domain, `outputs N` (how many the node has)
and one line `output K TYPE SHAPE VALUES...` for each that is compared.

    python3 scripts/contrib_cases.py [--folder FOLDER] [--verbose]
"""
import argparse
import pathlib

import numpy as np
import onnxruntime

from contrib_quant_cases import attribute, line, run


class Draw:
    """Random tensors; numbers have one decimal, so that the file is short."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def floats(self, *shape, scale=1.0, dtype=np.float32):
        return (np.round(self.rng.uniform(-1, 1, shape) * 10) / 10 * scale).astype(dtype)

    def positive(self, *shape, dtype=np.float32):
        return (self.rng.randint(1, 10, shape) / 10).astype(dtype)

    def ints(self, low, high, *shape, dtype=np.int32):
        return self.rng.randint(low, high, shape).astype(dtype)


def activation_cases(d):
    x = d.floats(2, 3, 4, scale=4)
    yield "Gelu", {}, [x]
    yield "BiasGelu", {}, [x, d.floats(4)]
    yield "FastGelu", {}, [x, d.floats(4)]
    yield "FastGelu", {}, [x]
    yield "QuickGelu", {}, [x]
    yield "QuickGelu", {"alpha": 1.0}, [x]


def norm_cases(d):
    x, skip, gamma, beta, bias = d.floats(2, 3, 8), d.floats(2, 3, 8), d.floats(8), d.floats(8), d.floats(8)
    yield "SkipLayerNormalization", {"epsilon": 1e-5}, [x, skip, gamma, beta, bias], ("y", "", "", "s")
    yield "SkipLayerNormalization", {}, [x, skip[:1], gamma, beta], ("y",)
    yield "SkipLayerNormalization", {"epsilon": 0.1}, [x, skip[0], gamma, None, bias], ("y", "", "", "s")
    yield "SkipLayerNormalization", {}, [x[0], skip[0], gamma, beta], ("y",)
    half = np.float16
    yield "SkipLayerNormalization", {"epsilon": 1e-3}, [v.astype(half) for v in (x, skip, gamma, beta)], \
        ("y", "", "", "s")
    yield "SkipSimplifiedLayerNormalization", {"epsilon": 1e-5}, [x, skip, gamma], ("y", "", "", "s")
    yield "SkipSimplifiedLayerNormalization", {"epsilon": 0.1}, [x, skip, gamma, bias], ("y", "", "", "s")
    yield "SkipSimplifiedLayerNormalization", {}, [x[0], skip[0], gamma], ("y",)
    yield ":SimplifiedLayerNormalization", {"epsilon": 1e-5}, [x, gamma], ("y", "i")
    yield ":SimplifiedLayerNormalization", {"axis": 1, "stash_type": 1}, [x, d.floats(3, 8)], ("y", "i")
    words, places, kinds = d.floats(7, 8), d.floats(6, 8), d.floats(2, 8)
    ids, segments = d.ints(0, 7, 2, 4), d.ints(0, 2, 2, 4)
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.int32)
    yield "EmbedLayerNormalization", {}, [ids, segments, words, places, kinds, gamma, beta, mask], ("y", "m", "s")
    yield "EmbedLayerNormalization", {"epsilon": 0.1}, [ids, None, words, places, None, gamma, beta], ("y", "m")
    yield "EmbedLayerNormalization", {}, [ids, None, words, places, None, gamma, beta, None, d.ints(0, 6, 1, 4)], \
        ("y", "m")
    yield "EmbedLayerNormalization", {}, [ids, segments, words, places, kinds, gamma, beta, mask, d.ints(0, 6, 2, 4)], \
        ("y", "m")


def matmul_cases(d):
    a, b = d.floats(3, 4), d.floats(4, 5)
    yield "FusedMatMul", {"alpha": 0.5}, [a, b]
    yield "FusedMatMul", {"alpha": 2.0, "transA": 1, "transB": 1}, [d.floats(2, 4, 3), d.floats(2, 5, 4)]
    yield "FusedMatMul", {"transBatchA": 1}, [d.floats(3, 2, 2, 4), d.floats(2, 2, 4, 5)]
    yield "FusedMatMul", {"transBatchA": 1, "transA": 1}, [d.floats(4, 2, 3), d.floats(2, 4, 5)]
    yield "FusedMatMul", {"transBatchB": 1, "transB": 1}, [d.floats(2, 3, 4), d.floats(5, 2, 4)]
    yield "FusedMatMul", {"transBatchB": 1}, [d.floats(2, 3, 4), d.floats(4, 2, 5)]
    yield "FusedMatMul", {"transA": 1}, [d.floats(4), d.floats(4, 5)]
    yield "FusedMatMul", {"transB": 1}, [d.floats(3, 4), d.floats(4)]
    for name, extra in [("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2}),
                        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
                        ("Elu", {"activation_alpha": 0.7}), ("Softplus", {}), ("Softsign", {}),
                        ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.2}),
                        ("ThresholdedRelu", {"activation_alpha": 0.3})]:
        yield "FusedGemm", {"activation": name, "alpha": 1.5, "beta": 0.5, **extra}, [a, b, d.floats(5)]
    yield "FusedGemm", {"activation": "Relu", "transA": 1, "transB": 1}, [d.floats(4, 3), d.floats(5, 4)]


def nbits(d, bits, block, k, n, zero=None, a=None, dtype=np.float32, g_idx=False, bias=False):
    blocks = -(-k // block)
    a = d.floats(2, 2, k, dtype=dtype) if a is None else a
    inputs = [a, d.ints(0, 256, n, blocks, block * bits // 8, dtype=np.uint8), d.positive(n, blocks, dtype=dtype)]
    if zero == "packed":
        inputs.append(d.ints(0, 256, n, -(-blocks * bits // 8), dtype=np.uint8))
    elif zero == "floats":
        inputs.append(np.round(d.positive(n, blocks) * 2 ** bits, 1).astype(dtype))
    else:
        inputs.append(None)
    inputs.append(d.ints(0, blocks, k) if g_idx else None)
    inputs.append(d.floats(n, dtype=dtype) if bias else None)
    while inputs[-1] is None:
        inputs.pop()
    return "MatMulNBits", {"bits": bits, "block_size": block, "K": k, "N": n}, inputs


def weights_cases(d):
    yield nbits(d, 4, 16, 32, 3)
    yield nbits(d, 4, 16, 40, 3, zero="packed", bias=True)
    yield nbits(d, 4, 32, 32, 2, zero="floats")
    yield nbits(d, 4, 16, 48, 3, zero="floats", g_idx=True)  # packed ones are ignored with g_idx
    yield nbits(d, 4, 16, 48, 2, g_idx=True)
    yield nbits(d, 8, 16, 32, 3)
    yield nbits(d, 8, 16, 24, 3, zero="packed")
    yield nbits(d, 8, 16, 32, 2, bias=True)
    yield nbits(d, 2, 16, 32, 3)
    yield nbits(d, 2, 16, 80, 3, zero="packed")
    yield nbits(d, 4, 16, 32, 3, dtype=np.float16, zero="packed", bias=True)
    for kind in 0, 1:  # with transB = 0, columns behind N are 0
        k, n = 20, 3
        yield "MatMulBnb4", {"K": k, "N": n, "block_size": 16, "quant_type": kind}, [
            d.floats(2, k), d.ints(0, 256, n * k // 2, dtype=np.uint8), d.positive(-(-n * k // 16))]
    for bits, zero in [(4, True), (4, False), (8, True), (8, False), (2, True), (2, False)]:
        packed = 32 * bits // 8
        inputs = [d.ints(0, 256, 5, packed, dtype=np.uint8), d.ints(-5, 5, 2, 2, dtype=np.int64), d.positive(5, 2)]
        if zero:
            inputs.append(d.ints(0, 256, 5, -(-2 * bits // 8), dtype=np.uint8))
        yield "GatherBlockQuantized", {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}, inputs
    yield "GatherBlockQuantized", {"bits": 8, "block_size": 16, "quantize_axis": 1}, [
        d.ints(0, 256, 3, 20, dtype=np.uint8), np.array([2, -4, 0], np.int32), d.positive(3, 2)]


def conv_cases(d):
    x, w, b = d.floats(1, 3, 5, 5), d.floats(4, 3, 3, 3), d.floats(4)
    z = d.floats(1, 4, 5, 5)
    same = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    yield "FusedConv", {"activation": "Relu", **same}, [x, w, b]
    yield "FusedConv", {"activation": "Relu", **same}, [x, w, b, z]
    yield "FusedConv", {"activation": "Sigmoid", "strides": [2, 2]}, [x, w]
    yield "FusedConv", {"activation": "Tanh", "strides": [2, 2]}, [x, w, b]
    yield "FusedConv", {"activation": "LeakyRelu", "activation_params": [0.2], **same}, [x, w, b]
    yield "FusedConv", {"activation": "Clip", "activation_params": [-0.5, 0.5], **same}, [x, w, b]
    yield "FusedConv", {"activation": "HardSigmoid", "activation_params": [0.3, 0.4], **same}, [x, w, b]
    yield "FusedConv", {"group": 3, "activation": "Relu"}, [x, d.floats(3, 1, 3, 3)]


def attention_cases(d):
    def packed(heads=2, v=None, bias=True, **attributes):
        hidden = 8
        sizes = hidden * 2 + (v or hidden)
        if v:
            attributes["qkv_hidden_sizes"] = [hidden, hidden, v]
        inputs = [d.floats(2, 3, 6), d.floats(6, sizes), d.floats(sizes) if bias else None]
        return {"num_heads": heads, **attributes}, inputs

    def case(extra=(), outputs=("y",), **kw):
        attributes, inputs = packed(**kw)
        inputs = inputs + list(extra)
        while inputs[-1] is None:
            inputs.pop()
        return "Attention", attributes, inputs, outputs

    yield case()
    yield case(bias=False, scale=0.3)
    yield case(v=4)
    yield case(unidirectional=1)
    yield case([np.array([2, 3], np.int32)], mask_filter_value=-30.0)
    yield case([np.array([3, 2, 1, 0], np.int32)])
    yield case([np.array([[1, 0, 1], [0, 1, 1]], np.int32)])
    yield case([np.array([[1, 0, 1], [0, 1, 1]], np.int32)], unidirectional=1, mask_filter_value=-5.0)
    yield case([d.ints(0, 2, 2, 3, 3)], mask_filter_value=-3.0)
    yield case([d.ints(0, 2, 2, 3, 3)], unidirectional=1, mask_filter_value=-3.0)
    yield case([np.array([[1], [1]], np.int32)])
    yield case([None, d.floats(2, 2, 2, 4, 4)], ("y", "p"))
    yield case([None, d.floats(2, 2, 2, 4, 4)], ("y", "p"), unidirectional=1)
    yield case([d.ints(0, 2, 2, 7), d.floats(2, 2, 2, 4, 4)], ("y", "p"), unidirectional=1, mask_filter_value=-3.0)
    yield case([None, None, d.floats(2, 2, 3, 3)])
    yield case([None, None, d.floats(1, 1, 3, 3)])
    yield case([np.array([2, 3], np.int32), None, d.floats(1, 2, 3, 3)], mask_filter_value=-3.0)
    yield case([], ("y", "p"))
    for extra in ([], [np.array([2, 3], np.int32)], [d.ints(0, 2, 2, 3)]):
        yield "QAttention", {"num_heads": 2, "unidirectional": len(extra) - 1 if extra else 0}, [
            d.ints(0, 256, 2, 3, 6, dtype=np.uint8), d.ints(-50, 50, 6, 24, dtype=np.int8), d.floats(24),
            np.float32(0.02), np.float32(0.01), extra[0] if extra else None, np.uint8(120), np.int8(0)]
    yield "QAttention", {"num_heads": 2, "unidirectional": 1}, [
        d.ints(0, 256, 2, 3, 6, dtype=np.uint8), d.ints(-50, 50, 6, 24, dtype=np.int8), d.floats(24), np.float32(0.02),
        d.positive(24) * np.float32(0.1), None, np.uint8(120), np.int8(3), d.floats(2, 2, 2, 4, 4)], ("y", "p")


def multi_head_cases(d):
    q, k, v = d.floats(2, 3, 8), d.floats(2, 5, 8), d.floats(2, 5, 8)
    past = [d.floats(2, 2, 4, 4), d.floats(2, 2, 4, 4)]
    base = {"num_heads": 2}
    same = [q, d.floats(2, 3, 8), d.floats(2, 3, 8)]
    yield "MultiHeadAttention", base, [q, k, v]
    yield "MultiHeadAttention", base, [q, k, d.floats(2, 5, 4)]
    yield "MultiHeadAttention", {"scale": 0.2, **base}, [q, k, v, d.floats(24)]
    yield "MultiHeadAttention", {"unidirectional": 1, **base}, same, ("y", "pk", "pv")
    yield "MultiHeadAttention", {"unidirectional": 1, **base}, [q, k, v]
    yield "MultiHeadAttention", {"unidirectional": 1, **base}, [q[:, :1], k, v]
    yield "MultiHeadAttention", base, [q, k, v, None, np.array([4, 2], np.int32)]
    yield "MultiHeadAttention", {"mask_filter_value": -2.0, **base}, [q, k, v, None, d.ints(0, 2, 2, 5)]
    yield "MultiHeadAttention", {"mask_filter_value": -2.0, **base}, [q, k, v, d.floats(24), d.ints(0, 2, 2, 3, 5)]
    yield "MultiHeadAttention", base, [q, k, v, None, None, d.floats(1, 1, 3, 5)]
    yield "MultiHeadAttention", {"mask_filter_value": -2.0, **base}, [
        q, k, v, None, d.ints(0, 2, 2, 5), d.floats(2, 2, 3, 5)]
    yield "MultiHeadAttention", base, same + [None, None, None] + past, ("y", "pk", "pv")
    yield "MultiHeadAttention", {"unidirectional": 1, "mask_filter_value": -2.0, **base}, \
        same + [d.floats(24), d.ints(0, 2, 2, 7), d.floats(1, 2, 3, 7)] + past, ("y", "pk", "pv")
    yield "MultiHeadAttention", base, [q, d.floats(2, 2, 5, 4), d.floats(2, 2, 5, 4)]
    yield "MultiHeadAttention", base, [q, d.floats(2, 2, 5, 4), d.floats(2, 2, 5, 4), d.floats(24)]
    yield "MultiHeadAttention", base, [q, k, v, None, None, d.floats(1, 1, 3, 5)], ("y", "", "", "qk")
    cosines, sines = d.floats(6, 4), d.floats(6, 4)
    yield "RotaryEmbedding", {}, [d.floats(2, 3, 16), d.ints(0, 6, 2, 3, dtype=np.int64), cosines, sines]
    yield "RotaryEmbedding", {"interleaved": 1}, [d.floats(2, 3, 16), np.array([2], np.int64), cosines, sines]
    yield "RotaryEmbedding", {}, [d.floats(2, 2, 3, 8), np.array([1], np.int64), cosines, sines]
    yield "RotaryEmbedding", {"num_heads": 2, "rotary_embedding_dim": 4}, [
        d.floats(2, 3, 16), d.ints(0, 6, 2, 3, dtype=np.int64), cosines[:, :2], sines[:, :2]]
    yield "RotaryEmbedding", {"num_heads": 2, "rotary_embedding_dim": 4, "interleaved": 1}, [
        d.floats(2, 2, 3, 8), d.ints(0, 6, 2, 3, dtype=np.int64), cosines[:, :2], sines[:, :2]]
    yield "RotaryEmbedding", {"scale": 2.0}, [d.floats(2, 3, 16), d.ints(0, 6, 2, 3, dtype=np.int64), cosines, sines]


def grouped_cases(d):
    heads, kv = 2, 1

    def case(batch, length, past, lengths, total, packed=False, rotary=False, extra=(), heads=heads, kv=kv,
             **attributes):
        size = 16 if rotary else 8  # the least that ONNX Runtime takes
        widths = [heads + 2 * kv] if packed else [heads, kv, kv]
        inputs = [d.floats(batch, length, n * size) for n in widths] + [None, None] * packed
        inputs += [None, None] if past is None else [d.floats(batch, kv, past, size), d.floats(batch, kv, past, size)]
        inputs += [np.array([n - 1 for n in lengths], np.int32), np.array([total], np.int32).reshape(())]
        if rotary:
            attributes["do_rotary"] = 1
            inputs += [d.floats(8, rotary), d.floats(8, rotary)]
        elif extra:
            inputs += [None, None]
        inputs += list(extra)
        attributes.update(num_heads=heads, kv_num_heads=kv)
        # without outputs for keys and values ONNX Runtime does not read the past
        return "GroupQueryAttention", attributes, inputs, ("y", "k", "v") if past else ("y",)

    yield case(1, 3, None, [3], 3)
    yield case(1, 3, 0, [3], 3, packed=True, rotary=8)
    yield case(1, 1, 3, [4], 4, packed=True, rotary=8, rotary_interleaved=1)
    yield case(1, 2, 3, [5], 5, rotary=8, scale=0.5)
    yield case(2, 1, 4, [3, 5], 5, packed=True, rotary=8, heads=4, kv=2)
    yield case(1, 1, 7, [4], 4, packed=True, rotary=8)
    yield case(2, 3, 6, [3, 3], 3, rotary=8)
    yield case(1, 4, None, [4], 4, local_window_size=2)
    yield case(1, 1, 5, [6], 6, local_window_size=3, softcap=2.0)
    yield case(1, 3, 2, [5], 5, local_window_size=2, packed=True)
    yield case(1, 3, 2, [5], 5, smooth_softmax=1)
    yield case(1, 3, 2, [5], 5, extra=[None, d.floats(1, 1, 3, 5)])
    yield case(1, 3, 2, [5], 5, extra=[None, d.floats(1, 2, 3, 5)], softcap=1.0)
    yield case(1, 2, 2, [4], 4, extra=[None, None, d.floats(2)])
    yield case(1, 2, 2, [4], 4, extra=[None, None, d.floats(4)], heads=4, kv=2)
    yield case(1, 2, 2, [4], 4, rotary=8, extra=[np.array([[1, 4]], np.int64)])
    yield case(1, 1, 3, [4], 4, packed=True, rotary=8, heads=3, kv=3)
    yield case(1, 3, 2, [5], 5, causal=0)
    yield case(2, 3, None, [3, 2], 3, causal=0)

    def of_bytes(kind, scales, **more):
        op, attributes, inputs, outputs = case(1, 2, 3, [5], 5, extra=[None] * 3, heads=4, kv=2, **more)
        inputs[3:5] = [d.rng.randint(-100, 101, (1, 2, 3, 8)).astype(np.int8) for _ in range(2)]
        attributes.update(k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=8)
        return op, attributes, inputs + [np.abs(d.floats(scales)) / 30 + np.float32(0.01) for _ in range(2)], outputs

    yield of_bytes("PER_TENSOR", 1)
    yield of_bytes("PER_CHANNEL", 16)


FILES = {"contrib_cases.txt": [activation_cases, norm_cases, matmul_cases, weights_cases, conv_cases],
         "contrib_attention_cases.txt": [attention_cases, multi_head_cases, grouped_cases]}


def lines_of(families, verbose):
    lines = ["# What ONNX Runtime %s computes; written by scripts/contrib_cases.py." % onnxruntime.__version__]
    made = refused = 0
    for number, family in enumerate(families):
        for name, attributes, inputs, *rest in family(Draw(number)):
            outputs = rest[0] if rest else ("y",)
            domain, op = ("", name[1:]) if name.startswith(":") else ("com.microsoft", name)
            try:
                results = run(op, attributes, inputs, outputs, domain)
            except Exception as e:  # unsupported by ONNX Runtime
                refused += 1
                if verbose:
                    print(op, attributes, [None if x is None else np.shape(x) for x in inputs], str(e)[:300])
                continue
            made += 1
            lines += ["case " + op] + ([] if domain else ["domain onnx"]) + ["outputs %d" % len(outputs)]
            lines += [attribute(*item) for item in attributes.items()] + [line("input", x, None) for x in inputs]
            named = [k for k, output in enumerate(outputs) if output]
            lines += [line("output %d" % k, y, 6) for k, y in zip(named, results)]
    print("%d cases, %d refused" % (made, refused))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = pathlib.Path(__file__).resolve().parent.parent / "src" / "ops"
    parser.add_argument("--folder", type=pathlib.Path, default=folder)
    parser.add_argument("--verbose", action="store_true", help="print what ONNX Runtime refuses")
    options = parser.parse_args()
    for name, families in FILES.items():
        (options.folder / name).write_text("\n".join(lines_of(families, options.verbose)) + "\n")


if __name__ == "__main__":
    main()
