"""The table, continued: products, convolutions, normalisations, pooling, attention, recurrences."""

from __future__ import annotations

import math
from typing import Any

import torch

from ._errors import Unsupported
from ._operators import aten, operator
from ._symbols import expression, is_symbolic


def matmul(c, a, b):
    return c.op("MatMul", a, b)


@operator("MatMul", aten.mm.default, aten.bmm.default, aten.matmul.default)
def _mm(c, x, y):
    return matmul(c, c(x), c(y))


@operator("MatMul, Add", aten.linear.default)
def _linear_operator(c, x, weight, bias=None):
    weight = c.op("Transpose", c(weight), perm=[1, 0]) if len(c.shape(weight)) == 2 else c(weight)
    product = matmul(c, c(x), weight)
    return product if bias is None else c.op("Add", product, c(bias))


@operator("MatMul, Add", aten.addmm.default, aten.baddbmm.default)
def _addmm(c, bias, x, y, beta=1, alpha=1):
    product = matmul(c, c(x), c(y))
    if alpha != 1:
        product = c.op("Mul", product, c.scalar_of(alpha, c.dtype))
    if beta == 0:
        return product
    bias = c(bias) if beta == 1 else c.op("Mul", c(bias), c.scalar_of(beta, c.dtype))
    return c.op("Add", product, bias)


@operator("Conv, ConvTranspose", aten.convolution.default)
def _convolution(c, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    rank = len(c.shape(weight)) - 2

    def each(values):
        return [int(v) for v in values] * (rank if len(values) == 1 else 1)

    name = c(x)
    batched = len(c.shape(x)) == rank + 2
    if not batched:
        name = c.op("Unsqueeze", name, c.ints([0]))
    attributes = {"strides": each(stride), "pads": each(padding) * 2, "dilations": each(dilation), "group": groups}
    inputs = [name, c(weight)] + ([c(bias)] if bias is not None else [])
    if transposed:
        y = c.op("ConvTranspose", *inputs, output_padding=each(output_padding), **attributes)
    else:
        y = c.op("Conv", *inputs, **attributes)
    return y if batched else c.op("Squeeze", y, c.ints([0]))


# Normalisations.


def _ones_or(c, weight, shape, value, dtype):
    return c(weight, dtype) if weight is not None else c.op("Expand", c.scalar_of(value, dtype), c.ints(shape))


def layer_norm(c, x, shape, weight, bias, eps, outputs=1):
    """Of a value by name; `weight`, `bias`: names."""
    inputs = [x, weight] + ([bias] if bias is not None else [])
    return c.op("LayerNormalization", *inputs, outputs=outputs, axis=-len(shape), epsilon=float(eps))


@operator("LayerNormalization", aten.native_layer_norm.default)
def _layer_norm(c, x, shape, weight, bias, eps):
    scale = _ones_or(c, weight, shape, 1, c.dtype)
    shift = c(bias, c.dtype) if bias is not None else None
    if not (c.is_used(1) or c.is_used(2)):
        return layer_norm(c, c(x), shape, scale, shift, eps), None, None
    results = layer_norm(c, c(x), shape, scale, shift, eps, 3)
    return (results[0], *[c.cast(r, v.dtype) if v.dtype != torch.float32 else r for r, v in zip(results[1:], c.val[1:])])


@operator("RMSNormalization", aten._fused_rms_norm.default)
def _rms_norm(c, x, shape, weight, eps):
    if c.is_used(1):
        raise Unsupported("the standard deviations of rms_norm are not supported", "run under torch.no_grad()")
    eps = torch.finfo(c.dtype).eps if eps is None else eps
    scale = _ones_or(c, weight, shape, 1, c.dtype)
    return c.op("RMSNormalization", c(x), scale, axis=-len(shape), epsilon=float(eps)), None


@operator("GroupNormalization", aten.native_group_norm.default)
def _group_norm(c, x, weight, bias, batch, channels, area, groups, eps):
    if c.is_used(1) or c.is_used(2):
        raise Unsupported("the moments of group_norm are not supported", "run under torch.no_grad()")
    scale = _ones_or(c, weight, [channels], 1, c.dtype)
    shift = _ones_or(c, bias, [channels], 0, c.dtype)
    y = c.op("GroupNormalization", c(x), scale, shift, epsilon=float(eps), num_groups=groups)
    return y, None, None


@operator("BatchNormalization", aten._native_batch_norm_legit_no_training.default)
def _batch_norm(c, x, weight, bias, mean, variance, momentum, eps):
    channels = [c.shape(x)[1]]
    scale = _ones_or(c, weight, channels, 1, c.dtype)
    shift = _ones_or(c, bias, channels, 0, c.dtype)
    y = c.op("BatchNormalization", c(x), scale, shift, c(mean), c(variance), epsilon=float(eps))
    empty = c.constant(torch.zeros(0, dtype=c.dtype)) if c.is_used(1) or c.is_used(2) else None
    return y, empty, empty


@operator("ReduceMean, Sub, Mul, Add, Sqrt, Div", aten._native_batch_norm_legit.no_stats)
def _batch_norm_of_batch(c, x, weight, bias, training, momentum, eps):
    if c.is_used(1) or c.is_used(2):
        raise Unsupported("the moments of a normalisation of the batch are not supported", "run under torch.no_grad()")
    rank, name = len(c.shape(x)), c(x)
    axes = c.ints([d for d in range(rank) if d != 1])
    centred = c.op("Sub", name, c.op("ReduceMean", name, axes, keepdims=1))
    variance = c.op("ReduceMean", c.op("Mul", centred, centred), axes, keepdims=1)
    y = c.op("Div", centred, c.op("Sqrt", c.op("Add", variance, c.scalar_of(eps, c.dtype))))
    for kind, given in (("Mul", weight), ("Add", bias)):
        if given is not None:
            y = c.op(kind, y, c.op("Unsqueeze", c(given, c.dtype), c.ints(range(1, rank - 1))))
    return y, None, None


@operator("Softmax", aten._softmax.default)
def _softmax(c, x, dim, half_to_float):
    return c.op("Softmax", c(x, c.dtype), axis=dim) if c.shape(x) else c.scalar_of(1, c.dtype)


@operator("LogSoftmax", aten._log_softmax.default)
def _log_softmax(c, x, dim, half_to_float):
    return c.op("LogSoftmax", c(x, c.dtype), axis=dim) if c.shape(x) else c.scalar_of(0, c.dtype)


@operator("Softmax, Where", aten._safe_softmax.default)
def _safe_softmax(c, x, dim, dtype=None):
    return _zero_where_masked(c, c(x, c.dtype), dim, c.dtype)


def _zero_where_masked(c, scores, dim, dtype):
    """softmax, and 0 in rows that are -inf everywhere."""
    most = c.op("ReduceMax", scores, c.ints([dim]), keepdims=1)
    empty = c.op("Equal", most, c.scalar_of(-math.inf, dtype))
    return c.op("Where", empty, c.scalar_of(0, dtype), c.op("Softmax", scores, axis=dim))


# Pooling.


def _window(values, rank, default=None):
    values = list(values) if values else list(default)
    return [int(v) for v in values] * (rank if len(values) == 1 else 1)


def _batched(c, x, rank):
    """The operand with a batch dimension, and whether it had one."""
    if len(c.shape(x)) == rank + 2:
        return c(x), True
    return c.op("Unsqueeze", c(x), c.ints([0])), False


def _max_pool(c, x, kernel, stride=(), padding=(0,), dilation=(1,), ceil_mode=False):
    rank = 3 if "3d" in str(c.node.target) else 2
    name, batched = _batched(c, x, rank)
    kernel = _window(kernel, rank)
    attributes = {
        "kernel_shape": kernel,
        "strides": _window(stride, rank, kernel),
        "pads": _window(padding, rank, [0]) * 2,
        "dilations": _window(dilation, rank, [1]),
        "ceil_mode": int(ceil_mode),
    }

    def result(y):
        return y if batched else c.op("Squeeze", y, c.ints([0]))

    if not c.is_used(1):
        return result(c.op("MaxPool", name, **attributes)), None
    y, places = c.op("MaxPool", name, outputs=2, **attributes)
    # ONNX counts from the tensor's first element, torch from the channel's
    area = math.prod(c.shape(x)[-rank:])
    return result(y), result(c.op("Mod", places, c.scalar_of(area, torch.int64)))


operator("MaxPool, Mod", aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)(_max_pool)


def _avg_pool(c, x, kernel, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None):
    if divisor_override is not None:
        raise Unsupported("avg_pool with divisor_override is not supported")
    rank = int(c.node.target.overloadpacket.__name__[-2])
    name, batched = _batched(c, x, rank)
    kernel = _window(kernel, rank)
    y = c.op(
        "AveragePool",
        name,
        kernel_shape=kernel,
        strides=_window(stride, rank, kernel),
        pads=_window(padding, rank, [0]) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )
    return y if batched else c.op("Squeeze", y, c.ints([0]))


operator("AveragePool", aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)(_avg_pool)


@operator("AveragePool, MatMul", aten._adaptive_avg_pool2d.default)
def _adaptive_avg_pool(c, x, sizes):
    inner = c.shape(x)[-2:]
    if all(expression(s) == 1 for s in sizes):
        return c.op("ReduceMean", c(x), c.ints([-2, -1]), keepdims=1)
    if any(is_symbolic(s) for s in [*inner, *sizes]):
        raise Unsupported("adaptive pooling between dynamic sizes is not supported")
    inner, sizes = [int(s) for s in inner], [int(s) for s in sizes]
    if all(n % m == 0 for n, m in zip(inner, sizes)):
        name, batched = _batched(c, x, 2)
        window = [n // m for n, m in zip(inner, sizes)]
        y = c.op("AveragePool", name, kernel_shape=window, strides=window)
        return y if batched else c.op("Squeeze", y, c.ints([0]))
    # windows of different lengths: rows and columns are weighted
    rows, columns = (_windows(n, m).to(c.dtype) for n, m in zip(inner, sizes))
    return matmul(c, matmul(c, c.constant(rows), c(x)), c.constant(columns.t()))


def _windows(size: int, count: int) -> torch.Tensor:
    """[count, size]: the weights of the elements in each window of adaptive pooling."""
    weights = torch.zeros(count, size, dtype=torch.float64)
    for i in range(count):
        begin, end = i * size // count, -((-(i + 1) * size) // count)
        weights[i, begin:end] = 1 / (end - begin)
    return weights


# Resizing.


def _resize(c, x, mode, corners, nearest="floor"):
    sizes = list(c.val.shape)
    transform = "align_corners" if corners else "asymmetric" if mode == "nearest" else "half_pixel"
    attributes = {"nearest_mode": nearest} if mode == "nearest" else {}
    if mode == "cubic":
        attributes["cubic_coeff_a"] = -0.75
    return c.op("Resize", c(x), "", "", c.ints(sizes), mode=mode, coordinate_transformation_mode=transform, **attributes)


def _has_own_scales(c, x, size, scales) -> bool:
    """Whether given scales differ from the ratio of the sizes: torch computes with the given ones."""
    if not scales:
        return False
    before, after = c.shape(x)[2:], list(c.val.shape)[2:]
    if any(is_symbolic(s) for s in [*before, *after]):
        return any(s != int(s) for s in scales)
    return any(abs(s * int(a) - int(b)) > 1e-9 for s, a, b in zip(scales, before, after))


@operator("Resize", aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec)
def _nearest(c, x, size, scales=None):
    if _has_own_scales(c, x, size, scales):
        raise Unsupported("nearest upsampling by a scale that does not divide the size is not supported")
    return _resize(c, x, "nearest", False)


@operator("Resize", aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)
def _linear(c, x, size, align_corners, scales=None):
    if _has_own_scales(c, x, size, scales) and not align_corners:
        raise Unsupported("linear upsampling by a scale that does not divide the size is not supported")
    return _resize(c, x, "linear", align_corners)


@operator("Resize", aten.upsample_bicubic2d.vec)
def _cubic(c, x, size, align_corners, scales=None):
    if _has_own_scales(c, x, size, scales) and not align_corners:
        raise Unsupported("cubic upsampling by a scale that does not divide the size is not supported")
    return _resize(c, x, "cubic", align_corners)


@operator("GridSample", aten.grid_sampler_2d.default)
def _grid_sample(c, x, grid, mode, padding, align_corners):
    kinds, paddings = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    return c.op("GridSample", c(x), c(grid), mode=kinds[mode], padding_mode=paddings[padding],
                align_corners=int(align_corners))


# Attention.


@operator("MatMul, Softmax", aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention(c, q, k, v, dropout=0.0, causal=False, attn_mask=None, scale=None):
    y, scores = _attention(c, q, k, v, attn_mask, dropout, causal, scale)
    sums = c.cast(c.op("ReduceLogSumExp", scores, c.ints([3]), keepdims=0), torch.float32) if c.is_used(1) else None
    return y, sums


@operator("MatMul, Softmax", aten.scaled_dot_product_attention.default)
def _attention_operator(c, q, k, v, attn_mask=None, dropout=0.0, causal=False, scale=None, enable_gqa=False):
    return _attention(c, q, k, v, attn_mask, dropout, causal, scale)[0]


def _attention(c, q, k, v, mask, dropout, causal, scale):
    """The result, and the scores before softmax."""
    if dropout:
        raise Unsupported("dropout is not supported", "call eval() on the module")
    rank, width = len(c.shape(q)), c.shape(q)[-1]
    if is_symbolic(width):
        raise Unsupported("attention with heads of dynamic width is not supported")
    factor = 1 / math.sqrt(int(width)) if scale is None else scale
    keys, values = (_heads_as(c, t, c.shape(q)) for t in (k, v))
    scores = matmul(c, c(q), c.op("Transpose", keys, perm=[*range(rank - 2), rank - 1, rank - 2]))
    scores = c.op("Mul", scores, c.scalar_of(factor, c.dtype))
    if causal:
        scores = c.op("Where", _causal(c, c.shape(q)[-2], c.shape(k)[-2]), scores, c.scalar_of(-math.inf, c.dtype))
    if mask is None:
        return matmul(c, c.op("Softmax", scores, axis=rank - 1), values), scores
    if c.dtype_of(mask) == torch.bool:
        scores = c.op("Where", c(mask), scores, c.scalar_of(-math.inf, c.dtype))
    else:
        scores = c.op("Add", scores, c(mask, c.dtype))
    return matmul(c, _zero_where_masked(c, scores, rank - 1, c.dtype), values), scores


def _heads_as(c, x, shape):
    """Keys or values with as many heads as the queries: each is repeated for the queries of its group."""
    have = c.shape(x)
    if len(have) < 3 or expression(have[-3]) == expression(shape[-3]) or expression(have[-3]) == 1:
        return c(x)
    if is_symbolic(have[-3]) or is_symbolic(shape[-3]):
        raise Unsupported("attention of grouped queries with dynamic numbers of heads is not supported")
    repeats = int(shape[-3]) // int(have[-3])
    wide = c.op("Unsqueeze", c(x), c.ints([len(have) - 2]))
    wide = c.op("Expand", wide, c.ints([*have[:-2], repeats, *have[-2:]]))
    return c.op("Reshape", wide, c.ints([*have[:-3], int(shape[-3]), *have[-2:]]))


def _causal(c, rows, columns):
    """A mask [rows, columns] that is true up to the diagonal."""
    zero, one = c.scalar_of(0, torch.int64), c.scalar_of(1, torch.int64)
    i = c.op("Unsqueeze", c.op("Range", zero, c.scalar_of(rows, torch.int64), one), c.ints([1]))
    j = c.op("Range", zero, c.scalar_of(columns, torch.int64), one)
    return c.op("GreaterOrEqual", i, j)


def _linear_layer(c, x, weight, bias):
    return c.op("Add", matmul(c, x, c.op("Transpose", c(weight), perm=[1, 0])), c(bias))


def _self_attention(c, x, batch, length, width, heads, qkv_weight, qkv_bias, mask, mask_type):
    """x: the name of [batch, length, width]. Returns the same before the projection, and the weights."""
    size = width // heads
    qkv = _linear_layer(c, x, qkv_weight, qkv_bias)
    parts = c.op("Split", qkv, c.ints([width] * 3), outputs=3, axis=2)
    q, k, v = (c.op("Reshape", p, c.ints([batch, length, heads, size])) for p in parts)
    q = c.op("Mul", c.op("Transpose", q, perm=[0, 2, 1, 3]), c.scalar_of(1 / math.sqrt(size), c.dtype))
    scores = matmul(c, q, c.op("Transpose", k, perm=[0, 2, 3, 1]))
    if mask is not None:
        scores = c.op("Where", _mask_of_heads(c, mask, mask_type), c.scalar_of(-math.inf, c.dtype), scores)
    weights = c.op("Softmax", scores, axis=3)
    y = c.op("Transpose", matmul(c, weights, c.op("Transpose", v, perm=[0, 2, 1, 3])), perm=[0, 2, 1, 3])
    return c.op("Reshape", y, c.ints([batch, length, width])), weights


def _mask_of_heads(c, mask, mask_type):
    """True where a score is left out: mask types of nn.MultiheadAttention are 0 [L, L], 1 [B, L] and 2 [B, H, L, L].
    torch takes any number but 0 for true."""
    return c.op("Unsqueeze", c(mask, torch.bool), c.ints([1, 2])) if mask_type == 1 else c(mask, torch.bool)


@operator("MatMul, Softmax", aten._native_multi_head_attention.default)
def _native_attention(c, query, key, value, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None,
                      need_weights=True, average_attn_weights=True, mask_type=None):
    if key is not query or value is not query:
        raise Unsupported("the fused attention of different query, key and value is not supported")
    batch, length, _ = c.shape(query)
    y, weights = _self_attention(c, c(query), batch, length, width, heads, qkv_weight, qkv_bias, mask, mask_type)
    y = _linear_layer(c, y, proj_weight, proj_bias)
    if not need_weights:
        return y, None
    return y, c.op("ReduceMean", weights, c.ints([1]), keepdims=0) if average_attn_weights else weights


@operator("MatMul, Softmax, LayerNormalization", aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(c, x, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps,
                   weight1, bias1, weight2, bias2, ffn_weight1, ffn_bias1, ffn_weight2, ffn_bias2, mask=None,
                   mask_type=None):
    batch, length, _ = c.shape(x)

    def norm(name, weight, bias):
        return layer_norm(c, name, [width], c(weight), c(bias), eps)

    def attention(name):
        y, _ = _self_attention(c, name, batch, length, width, heads, qkv_weight, qkv_bias, mask, mask_type)
        return _linear_layer(c, y, proj_weight, proj_bias)

    def feed_forward(name):
        inner = _linear_layer(c, name, ffn_weight1, ffn_bias1)
        inner = c.op("Gelu", inner) if use_gelu else c.op("Relu", inner)
        return _linear_layer(c, inner, ffn_weight2, ffn_bias2)

    x = c(x)
    if norm_first:
        x = c.op("Add", x, attention(norm(x, weight1, bias1)))
        return c.op("Add", x, feed_forward(norm(x, weight2, bias2)))
    x = norm(c.op("Add", x, attention(x)), weight1, bias1)
    return norm(c.op("Add", x, feed_forward(x)), weight2, bias2)


# Recurrences.


@operator("LSTM", aten.mkldnn_rnn_layer.default)
def _rnn_layer(c, x, w_input, w_hidden, b_input, b_hidden, h0, c0, reverse, batch_sizes, mode, size, layers, has_biases,
               bidirectional, batch_first, train):
    if mode != 2 or layers != 1 or bidirectional or batch_first or batch_sizes or train:
        raise Unsupported("a fused recurrent layer other than one direction of an LSTM is not supported")

    def gates(name, axis):
        # torch has the gates in the order i, f, c, o; ONNX i, o, f, c
        i, f, g, o = c.op("Split", name, c.ints([size] * 4), outputs=4, axis=axis)
        return c.op("Concat", i, o, f, g, axis=axis)

    def direction(name):
        return c.op("Unsqueeze", name, c.ints([0]))

    biases = [direction(c.op("Concat", gates(c(b_input), 0), gates(c(b_hidden), 0), axis=0))] if has_biases else [""]
    inputs = [c(x), direction(gates(c(w_input), 0)), direction(gates(c(w_hidden), 0)), *biases, "", c(h0), c(c0)]
    y, h, state = c.op("LSTM", *inputs, outputs=3, hidden_size=size, direction="reverse" if reverse else "forward")
    return c.op("Squeeze", y, c.ints([1])), h, state, None


@operator("GRU", aten.gru.input)
def _gru(c, x, h0, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    if train and dropout:
        raise Unsupported("dropout is not supported", "call eval() on the module")
    directions, size = 2 if bidirectional else 1, int(c.shape(h0)[-1])
    per_layer = len(weights) // layers
    y = c.op("Transpose", c(x), perm=[1, 0, 2]) if batch_first else c(x)
    states = c.op("Split", c(h0), c.ints([directions] * layers), outputs=layers, axis=0) if layers > 1 else (c(h0),)
    finals = []

    def gates(name):
        # torch has the gates in the order r, z, n; ONNX z, r, n
        r, z, n = c.op("Split", name, c.ints([size] * 3), outputs=3, axis=0)
        return c.op("Concat", z, r, n, axis=0)

    for layer in range(layers):
        given = weights[layer * per_layer : (layer + 1) * per_layer]
        per_direction = per_layer // directions
        sets = [[gates(c(w)) for w in given[d * per_direction : (d + 1) * per_direction]] for d in range(directions)]
        if has_biases:
            sets = [[wi, wh, c.op("Concat", bi, bh, axis=0)] for wi, wh, bi, bh in sets]
        stacked = []
        for parts in zip(*sets):
            each = [c.op("Unsqueeze", p, c.ints([0])) for p in parts]
            stacked.append(each[0] if directions == 1 else c.op("Concat", *each, axis=0))
        inputs = [y, *stacked, *([] if has_biases else [""]), "", states[layer]]
        y, h = c.op("GRU", *inputs, outputs=2, hidden_size=size, linear_before_reset=1,
                    direction="bidirectional" if bidirectional else "forward")
        finals.append(h)
        if directions == 1:
            y = c.op("Squeeze", y, c.ints([1]))
        else:
            y = c.op("Reshape", c.op("Transpose", y, perm=[0, 2, 1, 3]), c.ints([*_sequence(c, x, batch_first), 2 * size]))
    y = c.op("Transpose", y, perm=[1, 0, 2]) if batch_first else y
    return y, finals[0] if layers == 1 else c.op("Concat", *finals, axis=0)


def _sequence(c, x, batch_first):
    """Length and batch."""
    first, second, _ = c.shape(x)
    return [second, first] if batch_first else [first, second]
