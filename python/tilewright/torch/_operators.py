"""The table: ATen operators and what they become in ONNX. The converters of larger operators are in
_operators_shape.py and _operators_nn.py, which add to the same table."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from ._errors import Unsupported

aten = torch.ops.aten


class Operator(NamedTuple):
    """`onnx`: the operators that it becomes, for the documentation. `convert(c, *args, **kwargs)`: adds them through a
    Converter; returns the name of the result, or a tuple of names."""

    onnx: str
    convert: Callable[..., Any]


OPERATORS: dict[Any, Operator] = {}


def operator(onnx: str, *targets: Any) -> Callable[[Callable], Callable]:
    """Adds a converter to the table."""

    def add(convert: Callable) -> Callable:
        for target in targets:
            assert target not in OPERATORS, target
            OPERATORS[target] = Operator(onnx, convert)
        return convert

    return add


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


# Functions of one element. An operand of another type is converted to the result's.

_UNARY = {
    aten.relu.default: "Relu",
    aten.neg.default: "Neg",
    aten.abs.default: "Abs",
    aten.sign.default: "Sign",
    aten.sqrt.default: "Sqrt",
    aten.reciprocal.default: "Reciprocal",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.sin.default: "Sin",
    aten.cos.default: "Cos",
    aten.tan.default: "Tan",
    aten.asin.default: "Asin",
    aten.acos.default: "Acos",
    aten.atan.default: "Atan",
    aten.sinh.default: "Sinh",
    aten.cosh.default: "Cosh",
    aten.asinh.default: "Asinh",
    aten.acosh.default: "Acosh",
    aten.atanh.default: "Atanh",
    aten.erf.default: "Erf",
    aten.sigmoid.default: "Sigmoid",
    aten.tanh.default: "Tanh",
    aten.hardswish.default: "HardSwish",
    aten.mish.default: "Mish",
}
for _target, _kind in _UNARY.items():
    operator(_kind, _target)(lambda c, x, kind=_kind: c.op(kind, c(x, c.dtype)))

# Integers are their own rounded values.
for _target, _kind in {aten.ceil.default: "Ceil", aten.floor.default: "Floor", aten.round.default: "Round"}.items():
    operator(_kind, _target)(lambda c, x, kind=_kind: c.op(kind, c(x)) if is_float(c.dtype) else c(x))


@operator("Ceil, Floor, Where", aten.trunc.default)
def _trunc(c, x):
    return truncated(c, c(x), c.dtype)


def truncated(c, x, dtype):
    """Rounded towards zero."""
    if not is_float(dtype):
        return x
    return c.op("Where", c.op("Less", x, c.scalar_of(0, dtype)), c.op("Ceil", x), c.op("Floor", x))


@operator("Sqrt, Reciprocal", aten.rsqrt.default)
def _rsqrt(c, x):
    return c.op("Reciprocal", c.op("Sqrt", c(x, c.dtype)))


@operator("Log, Mul", aten.log2.default, aten.log10.default)
def _log_of_base(c, x):
    base = 2 if c.node.target is aten.log2.default else 10
    return c.op("Mul", c.op("Log", c(x, c.dtype)), c.scalar_of(1 / math.log(base), c.dtype))


@operator("Pow", aten.exp2.default)
def _exp2(c, x):
    return c.op("Pow", c.scalar_of(2, c.dtype), c(x, c.dtype))


@operator("Tanh, Exp, Mul", aten.expm1.default)
def _expm1(c, x):
    # exp(x) - 1 = tanh(x / 2) * (exp(x) + 1), without cancellation near 0
    x = c(x, c.dtype)
    half = c.op("Tanh", c.op("Mul", x, c.scalar_of(0.5, c.dtype)))
    return c.op("Mul", half, c.op("Add", c.op("Exp", x), c.scalar_of(1, c.dtype)))


@operator("Log, Where", aten.log1p.default)
def _log1p(c, x):
    # log(u) * x / (u - 1) with u = 1 + x, without cancellation near 0
    x, one = c(x, c.dtype), c.scalar_of(1, c.dtype)
    u = c.op("Add", x, one)
    log = c.op("Log", u)
    accurate = c.op("Div", c.op("Mul", log, x), c.op("Sub", u, one))
    near = c.op("Less", c.op("Abs", x), c.scalar_of(0.5, c.dtype))
    return c.op("Where", near, c.op("Where", c.op("Equal", u, one), x, accurate), log)


@operator("Erf, Sub", aten.erfc.default, aten.special_erfc.default)
def _erfc(c, x):
    return c.op("Sub", c.scalar_of(1, c.dtype), c.op("Erf", c(x, c.dtype)))


@operator("Not", aten.logical_not.default)
def _logical_not(c, x):
    return c.op("Not", c(x, torch.bool))


@operator("Not, BitwiseNot", aten.bitwise_not.default)
def _bitwise_not(c, x):
    return c.op("Not" if c.dtype == torch.bool else "BitwiseNot", c(x))


@operator("IsNaN, IsInf", aten.isnan.default, aten.isinf.default)
def _is_special(c, x):
    if not is_float(c.dtype_of(x)):
        return c.op("And", c(x, torch.bool), c.scalar_of(False))
    return c.op("IsNaN" if c.node.target is aten.isnan.default else "IsInf", c(x))


@operator("Sigmoid, Mul", aten.silu.default)
def _silu(c, x):
    x = c(x, c.dtype)
    return c.op("Mul", x, c.op("Sigmoid", x))


@operator("Gelu", aten.gelu.default)
def _gelu(c, x, approximate="none"):
    return c.op("Gelu", c(x, c.dtype), approximate=approximate)


@operator("HardSigmoid", aten.hardsigmoid.default)
def _hardsigmoid(c, x):
    return c.op("HardSigmoid", c(x, c.dtype), alpha=1 / 6, beta=0.5)


@operator("LeakyRelu", aten.leaky_relu.default)
def _leaky_relu(c, x, slope=0.01):
    return c.op("LeakyRelu", c(x, c.dtype), alpha=float(slope))


@operator("Elu, Mul", aten.elu.default)
def _elu(c, x, alpha=1, scale=1, input_scale=1):
    x = c(x, c.dtype)
    if input_scale == 1:
        y = c.op("Elu", x, alpha=float(alpha))
    else:
        y = c.op("Elu", c.op("Mul", x, c.scalar_of(input_scale, c.dtype)), alpha=float(alpha))
        y = c.op("Where", c.op("Greater", x, c.scalar_of(0, c.dtype)), x, y)
    return y if scale == 1 else c.op("Mul", y, c.scalar_of(scale, c.dtype))


@operator("Softplus", aten.softplus.default)
def _softplus(c, x, beta=1, threshold=20):
    x = c(x, c.dtype)
    scaled = x if beta == 1 else c.op("Mul", x, c.scalar_of(beta, c.dtype))
    y = c.op("Softplus", scaled)
    y = y if beta == 1 else c.op("Mul", y, c.scalar_of(1 / beta, c.dtype))
    return c.op("Where", c.op("Greater", scaled, c.scalar_of(threshold, c.dtype)), x, y)


@operator("Softplus, Neg", aten.log_sigmoid_forward.default)
def _log_sigmoid(c, x):
    x = c(x, c.dtype)
    y = c.op("Neg", c.op("Softplus", c.op("Neg", x)))
    return y, y  # the second result is a buffer of the backward pass


@operator("PRelu", aten._prelu_kernel.default)
def _prelu(c, x, weight):
    return c.op("PRelu", c(x), c(weight))


@operator("Where", aten.threshold.default)
def _threshold(c, x, threshold, value):
    x = c(x)
    above = c.op("Greater", x, c.scalar_of(threshold, c.dtype))
    return c.op("Where", above, x, c.scalar_of(value, c.dtype))


@operator("Max, Min", aten.clamp.default, aten.clamp.Tensor, aten.hardtanh.default)
def _clamp(c, x, least=None, most=None):
    if c.node.target is aten.hardtanh.default:
        least, most = -1.0 if least is None else least, 1.0 if most is None else most
    y = c(x, c.dtype)
    y = y if least is None else c.op("Max", y, c(least, c.dtype))
    return y if most is None else c.op("Min", y, c(most, c.dtype))


@operator("Max", aten.clamp_min.default, aten.clamp_min.Tensor)
def _clamp_min(c, x, least):
    return c.op("Max", c(x, c.dtype), c(least, c.dtype))


@operator("Min", aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(c, x, most):
    return c.op("Min", c(x, c.dtype), c(most, c.dtype))


# Functions of two elements.


def _scaled(c, y, alpha):
    y = c(y, c.dtype)
    return y if alpha == 1 else c.op("Mul", y, c.scalar_of(alpha, c.dtype))


@operator("Add", aten.add.Tensor, aten.add.Scalar)
def _add(c, x, y, alpha=1):
    if c.dtype == torch.bool:
        return c.op("Or", c(x, torch.bool), c(y, torch.bool))
    return c.op("Add", c(x, c.dtype), _scaled(c, y, alpha))


@operator("Sub", aten.sub.Tensor, aten.sub.Scalar)
def _sub(c, x, y, alpha=1):
    return c.op("Sub", c(x, c.dtype), _scaled(c, y, alpha))


@operator("Sub", aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(c, x, y, alpha=1):
    return c.op("Sub", c(y, c.dtype), _scaled(c, x, alpha))


@operator("Mul", aten.mul.Tensor, aten.mul.Scalar)
def _mul(c, x, y):
    return c.op("And" if c.dtype == torch.bool else "Mul", c(x, c.dtype), c(y, c.dtype))


@operator("Div, Floor", aten.div.Tensor, aten.div.Scalar, aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div(c, x, y, rounding_mode=None):
    x, y = c(x, c.dtype), c(y, c.dtype)
    quotient = c.op("Div", x, y)
    if rounding_mode is None:
        return quotient
    if rounding_mode == "trunc":
        return truncated(c, quotient, c.dtype)
    return _floored(c, x, y, quotient)


@operator("Div, Floor", aten.floor_divide.default)
def _floor_divide(c, x, y):
    x, y = c(x, c.dtype), c(y, c.dtype)
    return _floored(c, x, y, c.op("Div", x, y))


def _floored(c, x, y, quotient):
    """x / y rounded down; Div of integers rounds towards zero."""
    if is_float(c.dtype):
        return c.op("Floor", quotient)
    if not c.dtype.is_signed:
        return quotient
    zero = c.scalar_of(0, c.dtype)
    inexact = c.op("Not", c.op("Equal", c.op("Mul", quotient, y), x))
    negative = c.op("Xor", c.op("Less", x, zero), c.op("Less", y, zero))
    return c.op("Sub", quotient, c.cast(c.op("And", inexact, negative), c.dtype))


@operator("Mod", aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def _remainder(c, x, y):
    x, y = c(x, c.dtype), c(y, c.dtype)
    if not is_float(c.dtype):
        return c.op("Mod", x, y)  # of the divisor's sign
    rest = c.op("Mod", x, y, fmod=1)
    zero = c.scalar_of(0, c.dtype)
    other = c.op("Less", c.op("Mul", c.op("Sign", rest), c.op("Sign", y)), zero)
    return c.op("Where", other, c.op("Add", rest, y), rest)


@operator("Mod", aten.fmod.Tensor, aten.fmod.Scalar)
def _fmod(c, x, y):
    return c.op("Mod", c(x, c.dtype), c(y, c.dtype), fmod=1)


@operator("Pow", aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def _pow(c, x, y):
    if not hasattr(y, "meta") and is_float(c.dtype) and y in (0.5, 2, 3):
        x = c(x, c.dtype)
        if y == 0.5:
            return c.op("Sqrt", x)
        square = c.op("Mul", x, x)
        return square if y == 2 else c.op("Mul", square, x)
    return c.op("Pow", c(x, c.dtype), c(y, c.dtype))


@operator("Max", aten.maximum.default)
def _maximum(c, x, y):
    return c.op("Or" if c.dtype == torch.bool else "Max", c(x, c.dtype), c(y, c.dtype))


@operator("Min", aten.minimum.default)
def _minimum(c, x, y):
    return c.op("And" if c.dtype == torch.bool else "Min", c(x, c.dtype), c(y, c.dtype))


@operator("Atan, Where", aten.atan2.default)
def _atan2(c, y, x):
    y, x, zero = c(y, c.dtype), c(x, c.dtype), c.scalar_of(0, c.dtype)
    pi = c.scalar_of(math.pi, c.dtype)
    angle = c.op("Atan", c.op("Div", y, x))
    signed = c.op("Where", c.op("Less", y, zero), c.op("Neg", pi), pi)
    beside = c.op("Where", c.op("Less", x, zero), c.op("Add", angle, signed), angle)
    upright = c.op("Mul", c.op("Sign", y), c.scalar_of(math.pi / 2, c.dtype))
    return c.op("Where", c.op("Equal", x, zero), upright, beside)


def _compared(x: Any, y: Any) -> torch.dtype:
    """The type in which two operands are compared."""
    values = [v.meta["val"] if hasattr(v, "meta") else v for v in (x, y)]
    values = [v.node.hint if isinstance(v, (torch.SymInt, torch.SymFloat)) else v for v in values]
    return elementwise_dtypes(*values, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)[0]


_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "ne": "Equal, Not"}


def _compare(c, x, y):
    name = c.node.target.overloadpacket.__name__
    dtype = _compared(x, y)
    if dtype == torch.bool and name not in ("eq", "ne"):
        dtype = torch.uint8
    kind = _COMPARISONS[name].split(",")[0]
    result = c.op(kind, c(x, dtype), c(y, dtype))
    return c.op("Not", result) if name == "ne" else result


for _name, _kind in _COMPARISONS.items():
    operator(_kind, getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(_compare)

_LOGICAL = {aten.logical_and.default: "And", aten.logical_or.default: "Or", aten.logical_xor.default: "Xor"}
for _target, _kind in _LOGICAL.items():
    operator(_kind, _target)(lambda c, x, y, kind=_kind: c.op(kind, c(x, torch.bool), c(y, torch.bool)))


def _bitwise(c, x, y):
    kind = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}[c.node.target.overloadpacket.__name__]
    return c.op(kind if c.dtype == torch.bool else f"Bitwise{kind}", c(x, c.dtype), c(y, c.dtype))


for _name in ("and", "or", "xor"):
    _packet = getattr(aten, f"bitwise_{_name}")
    operator(f"{_name.capitalize()}, Bitwise{_name.capitalize()}", _packet.Tensor, _packet.Scalar)(_bitwise)


@operator("Where", aten.where.self)
def _where(c, condition, x, y):
    return c.op("Where", c(condition, torch.bool), c(x, c.dtype), c(y, c.dtype))


@operator("Where", aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(c, x, mask, value):
    return c.op("Where", c(mask), c(value, c.dtype), c(x))


# Types and copies.


@operator("Cast", torch.ops.prims.convert_element_type.default)
def _convert_element_type(c, x, dtype):
    return c(x, c.dtype)


@operator("Cast", aten._to_copy.default)
def _to_copy(c, x, **kwargs):
    if kwargs.get("pin_memory"):
        raise Unsupported("pinned memory is not supported")
    return c(x, c.dtype)


@operator("the operand", aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default)
def _identity(c, x, **kwargs):
    return c(x)


# Reductions.


def axes_of(c, x, dims) -> list[int]:
    """Dimensions from 0; all of them for None or []."""
    rank = len(c.shape(x))
    if dims is None or dims == []:
        return list(range(rank))
    return [d % rank if rank else 0 for d in (dims if isinstance(dims, (list, tuple)) else [dims])]


def reduce(c, kind, name, axes, keepdim=False):
    """A reduction of the value `name`, or the value if it has no axes."""
    if not axes:
        return name
    return c.op(kind, name, c.ints(axes), keepdims=int(keepdim))


def _axes_of_reduction(c, x, dims) -> list[int]:
    return axes_of(c, x, dims) if c.shape(x) else []


@operator("ReduceSum", aten.sum.dim_IntList, aten.sum.default)
def _sum(c, x, dims=None, keepdim=False, dtype=None):
    return reduce(c, "ReduceSum", c(x, c.dtype), _axes_of_reduction(c, x, dims), keepdim)


@operator("ReduceMean", aten.mean.dim, aten.mean.default)
def _mean(c, x, dims=None, keepdim=False, dtype=None):
    return reduce(c, "ReduceMean", c(x, c.dtype), _axes_of_reduction(c, x, dims), keepdim)


@operator("ReduceProd", aten.prod.dim_int, aten.prod.default)
def _prod(c, x, dims=None, keepdim=False, dtype=None):
    return reduce(c, "ReduceProd", c(x, c.dtype), _axes_of_reduction(c, x, dims), keepdim)


def _extreme(c, kind, x, dims, keepdim):
    if c.dtype != torch.bool:
        return reduce(c, kind, c(x), _axes_of_reduction(c, x, dims), keepdim)
    return c.cast(reduce(c, kind, c(x, torch.uint8), _axes_of_reduction(c, x, dims), keepdim), torch.bool)


@operator("ReduceMax", aten.amax.default, aten.max.default)
def _amax(c, x, dims=None, keepdim=False):
    return _extreme(c, "ReduceMax", x, dims, keepdim)


@operator("ReduceMin", aten.amin.default, aten.min.default)
def _amin(c, x, dims=None, keepdim=False):
    return _extreme(c, "ReduceMin", x, dims, keepdim)


def _truths(c, x):
    return c.cast(c(x, torch.bool), torch.uint8)


@operator("ReduceMax", aten.any.default, aten.any.dim, aten.any.dims)
def _any(c, x, dims=None, keepdim=False):
    return c.cast(reduce(c, "ReduceMax", _truths(c, x), _axes_of_reduction(c, x, dims), keepdim), torch.bool)


@operator("ReduceMin", aten.all.default, aten.all.dim, aten.all.dims)
def _all(c, x, dims=None, keepdim=False):
    return c.cast(reduce(c, "ReduceMin", _truths(c, x), _axes_of_reduction(c, x, dims), keepdim), torch.bool)


def _indices(c, kind, x, dim, keepdim):
    if not c.shape(x):
        return c.scalar_of(0, torch.int64)
    if dim is None:
        flat = c.op("Reshape", c(x), c.ints([-1]))
        return c.op(kind, flat, axis=0, keepdims=0)
    return c.op(kind, c(x), axis=dim % len(c.shape(x)), keepdims=int(keepdim))


@operator("ArgMax", aten.argmax.default)
def _argmax(c, x, dim=None, keepdim=False):
    return _indices(c, "ArgMax", x, dim, keepdim)


@operator("ArgMin", aten.argmin.default)
def _argmin(c, x, dim=None, keepdim=False):
    return _indices(c, "ArgMin", x, dim, keepdim)


@operator("ReduceMax, ArgMax", aten.max.dim)
def _max_dim(c, x, dim, keepdim=False):
    return _extreme(c, "ReduceMax", x, [dim], keepdim), _indices(c, "ArgMax", x, dim, keepdim)


@operator("ReduceMin, ArgMin", aten.min.dim)
def _min_dim(c, x, dim, keepdim=False):
    return _extreme(c, "ReduceMin", x, [dim], keepdim), _indices(c, "ArgMin", x, dim, keepdim)


@operator("ReduceLogSumExp", aten.logsumexp.default)
def _logsumexp(c, x, dims, keepdim=False):
    return reduce(c, "ReduceLogSumExp", c(x, c.dtype), _axes_of_reduction(c, x, dims), keepdim)


def _moments(c, x, dims, correction, keepdim):
    """Mean and variance."""
    axes, dtype = axes_of(c, x, dims), c.dtype
    name = c(x)
    mean = reduce(c, "ReduceMean", name, axes, True)
    centred = c.op("Sub", name, mean)
    squares = c.op("Mul", centred, centred)
    correction = 1 if correction is None else correction
    if correction == 0:
        variance = reduce(c, "ReduceMean", squares, axes, keepdim)
    else:
        count = math.prod(c.shape(x)[a] for a in axes)
        divisor = c.op("Max", c.op("Sub", c.scalar_of(count, dtype), c.scalar_of(correction, dtype)), c.scalar_of(0, dtype))
        variance = c.op("Div", reduce(c, "ReduceSum", squares, axes, keepdim), divisor)
    return variance, mean if keepdim or not axes else c.op("Squeeze", mean, c.ints(axes))


@operator("ReduceMean, Sub, Mul, ReduceSum, Div", aten.var.correction)
def _var(c, x, dims=None, correction=None, keepdim=False):
    return _moments(c, x, dims, correction, keepdim)[0]


@operator("ReduceMean, Sub, Mul, ReduceSum, Div", aten.var_mean.correction)
def _var_mean(c, x, dims=None, correction=None, keepdim=False):
    return _moments(c, x, dims, correction, keepdim)


@operator("CumSum", aten.cumsum.default)
def _cumsum(c, x, dim, dtype=None):
    return c.op("CumSum", c(x, c.dtype), c.scalar_of(dim, torch.int64)) if c.shape(x) else c(x, c.dtype)
