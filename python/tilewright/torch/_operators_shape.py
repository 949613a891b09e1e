"""The table, continued: shapes, indices, constants."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ._errors import Unsupported
from ._operators import aten, axes_of, is_float, operator
from ._symbols import expression, is_symbolic

_LAST = 2**63 - 1


@operator("Reshape", aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def _view(c, x, shape):
    return c.op("Reshape", c(x), c.ints(list(c.val.shape)), allowzero=1)


@operator("Transpose", aten.permute.default)
def _permute(c, x, dims):
    rank = len(c.shape(x))
    return c.op("Transpose", c(x), perm=[d % rank for d in dims]) if rank else c(x)


@operator("Expand", aten.expand.default)
def _expand(c, x, sizes, implicit=False):
    return c.op("Expand", c(x), c.ints(list(c.val.shape)))


@operator("Unsqueeze", aten.unsqueeze.default)
def _unsqueeze(c, x, dim):
    return c.op("Unsqueeze", c(x), c.ints([dim % (len(c.shape(x)) + 1)]))


@operator("Squeeze", aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(c, x, dims):
    shape = c.shape(x)
    axes = [a for a in axes_of(c, x, dims) if shape and expression(shape[a]) == 1] if dims != [] else []
    return c.op("Squeeze", c(x), c.ints(axes)) if axes else c(x)


def slice_of(c, name, dim, start, end, step=1):
    return c.op("Slice", name, c.ints([start]), c.ints([end]), c.ints([dim]), c.ints([step]))


@operator("Slice", aten.slice.Tensor)
def _slice(c, x, dim=0, start=None, end=None, step=1):
    return slice_of(c, c(x), dim, 0 if start is None else start, _LAST if end is None else end, step)


@operator("Gather", aten.select.int)
def _select(c, x, dim, index):
    return c.op("Gather", c(x), c.scalar_of(index, torch.int64), axis=dim % len(c.shape(x)))


@operator("Concat", aten.cat.default)
def _cat(c, tensors, dim=0):
    # torch leaves out empty vectors whatever the rank of the others
    rank = len(c.val.shape)
    parts = [c(t, c.dtype) for t in tensors if len(c.shape(t)) == rank]
    return c.op("Concat", *parts, axis=dim % rank) if len(parts) > 1 else parts[0]


@operator("Split", aten.split_with_sizes.default)
def _split(c, x, sizes, dim=0):
    if len(sizes) == 1:
        return (c(x),)
    return c.op("Split", c(x), c.ints(sizes), outputs=len(sizes), axis=dim % len(c.shape(x)))


@operator("Slice", aten.flip.default)
def _flip(c, x, dims):
    axes = axes_of(c, x, dims)
    if not axes or dims == []:
        return c(x)
    n = len(axes)
    return c.op("Slice", c(x), c.ints([-1] * n), c.ints([-_LAST] * n), c.ints(axes), c.ints([-1] * n))


@operator("Tile", aten.repeat.default)
def _repeat(c, x, repeats):
    name = c(x)
    new = len(repeats) - len(c.shape(x))
    if new:
        name = c.op("Unsqueeze", name, c.ints(range(new)))
    return c.op("Tile", name, c.ints(repeats)) if len(repeats) else name


@operator("Trilu", aten.tril.default, aten.triu.default)
def _trilu(c, x, diagonal=0):
    upper = int(c.node.target is aten.triu.default)
    if c.dtype != torch.bool:
        return c.op("Trilu", c(x), c.scalar_of(diagonal, torch.int64), upper=upper)
    return c.cast(c.op("Trilu", c(x, torch.uint8), c.scalar_of(diagonal, torch.int64), upper=upper), torch.bool)


@operator("Pad", aten.constant_pad_nd.default)
def _pad(c, x, pads, value=0):
    rank, n = len(c.shape(x)), len(pads) // 2
    begins, ends = [0] * rank, [0] * rank
    for k in range(n):
        begins[rank - 1 - k], ends[rank - 1 - k] = pads[2 * k], pads[2 * k + 1]
    if c.dtype != torch.bool:
        return c.op("Pad", c(x), c.ints(begins + ends), c.scalar_of(value, c.dtype), mode="constant")
    padded = c.op("Pad", c(x, torch.uint8), c.ints(begins + ends), c.scalar_of(int(value), torch.uint8), mode="constant")
    return c.cast(padded, torch.bool)


def _pad_mode(c, x, pads):
    rank, n = len(c.shape(x)), len(pads) // 2
    begins, ends = [0] * rank, [0] * rank
    for k in range(n):
        begins[rank - 1 - k], ends[rank - 1 - k] = pads[2 * k], pads[2 * k + 1]
    mode = "reflect" if "reflection" in str(c.node.target) else "edge"
    return c.op("Pad", c(x), c.ints(begins + ends), mode=mode)


_PADS = [getattr(aten, f"{kind}_pad{n}d").default for kind in ("reflection", "replication") for n in (1, 2, 3)]
operator("Pad", *_PADS)(_pad_mode)


# Constants.


@operator("Expand", aten.full.default)
def _full(c, size, value, **kwargs):
    return _filled(c, value)


def _filled(c, value):
    """A tensor of equal numbers."""
    return c.op("Expand", c.scalar_of(value, c.dtype), c.ints(list(c.val.shape)))


@operator("Expand", aten.full_like.default)
def _full_like(c, x, value, **kwargs):
    return _filled(c, value)


@operator("Expand", aten.fill.Scalar)
def _fill(c, x, value):
    return _filled(c, value)


@operator("Expand", aten.zeros.default, aten.zeros_like.default, aten.empty.memory_format)
def _zeros(c, *args, **kwargs):
    return _filled(c, 0)


@operator("Expand", aten.ones.default, aten.ones_like.default)
def _ones(c, *args, **kwargs):
    return _filled(c, 1)


@operator("a constant", aten.scalar_tensor.default)
def _scalar_tensor(c, value, **kwargs):
    return c.scalar_of(value, c.dtype)


@operator("Range", aten.arange.start_step, aten.arange.start, aten.arange.default)
def _arange(c, *args, **kwargs):
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    values = [v.meta["val"] if hasattr(v, "meta") else v for v in (start, end, step)]
    if not any(isinstance(v, torch.SymInt) for v in values):
        return c.constant(torch.arange(*values, dtype=c.dtype))
    # Indices are integers; the numbers follow from them.
    if all(isinstance(v, (int, torch.SymInt)) for v in values):
        indices = c.op("Range", *[c.scalar_of(v, torch.int64) for v in values])
        return indices if c.dtype == torch.int64 else c.cast(indices, c.dtype)
    zero, one = c.scalar_of(0, torch.int64), c.scalar_of(1, torch.int64)
    index = c.cast(c.op("Range", zero, c.scalar_of(c.val.shape[0], torch.int64), one), c.dtype)
    scaled = c.op("Mul", index, c.scalar_of(step, c.dtype))
    return c.op("Add", scaled, c.scalar_of(start, c.dtype))


@operator("Expand", aten.copy.default)
def _copy(c, x, source, non_blocking=False):
    name = c(source, c.dtype)
    return name if _same(c.shape(x), c.shape(source)) else c.op("Expand", name, c.ints(c.shape(x)))


# Indices.


@operator("Gather", aten.embedding.default)
def _embedding(c, weight, indices, *unused):
    return c.op("Gather", c(weight), c(indices), axis=0)


@operator("Gather", aten.index_select.default)
def _index_select(c, x, dim, index):
    if not c.shape(x):
        return c(x)
    index = c(index) if c.shape(index) else c.op("Unsqueeze", c(index), c.ints([0]))
    return c.op("Gather", c(x), index, axis=dim % len(c.shape(x)))


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return [expression(s) for s in a] == [expression(s) for s in b]


def _cut_to(c, name, shape, wanted, but=None):
    """The first elements in every dimension but one."""
    for d, (have, want) in enumerate(zip(shape, wanted)):
        if d != but and expression(have) != expression(want):
            name = slice_of(c, name, d, 0, want)
    return name


@operator("GatherElements", aten.gather.default)
def _gather(c, x, dim, index, sparse_grad=False):
    if not c.shape(x):
        return c(x)
    axis = dim % len(c.shape(x))
    data = _cut_to(c, c(x), c.shape(x), c.shape(index), axis)
    return c.op("GatherElements", data, c(index, torch.int64), axis=axis)


def _scatter(c, x, dim, index, source, reduction=None):
    if not c.shape(x) or not c.shape(index):
        raise Unsupported("a scatter of a scalar is not supported")
    return c.op("ScatterElements", c(x), c(index, torch.int64), source, axis=dim % len(c.shape(x)), reduction=reduction)


@operator("ScatterElements", aten.scatter.src, aten.scatter_add.default)
def _scatter_source(c, x, dim, index, source):
    reduction = "add" if c.node.target is aten.scatter_add.default else None
    return _scatter(c, x, dim, index, _cut_to(c, c(source), c.shape(source), c.shape(index)), reduction)


@operator("ScatterElements", aten.scatter.value)
def _scatter_value(c, x, dim, index, value):
    return _scatter(c, x, dim, index, c.op("Expand", c.scalar_of(value, c.dtype), c.ints(c.shape(index))))


@operator("ScatterElements", aten.scatter_reduce.two)
def _scatter_reduce(c, x, dim, index, source, reduce, include_self=True):
    kinds = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in kinds or not include_self:
        raise Unsupported(f"scatter_reduce with reduce='{reduce}', include_self={include_self} is not supported")
    return _scatter(c, x, dim, index, _cut_to(c, c(source), c.shape(source), c.shape(index)), kinds[reduce])


def _index_arguments(c, indices):
    """The dimensions with indices, and the indices as int64 of one shape. Raises for masks."""
    places = [d for d, i in enumerate(indices) if i is not None]
    for d in places:
        if c.dtype_of(indices[d]) in (torch.bool, torch.uint8):
            raise Unsupported("the size of what a mask selects depends on data", "use torch.where")
    shape = torch.broadcast_shapes(*[tuple(c.shape(indices[d])) for d in places])
    names = []
    for d in places:
        name = c(indices[d], torch.int64)
        names.append(name if _same(c.shape(indices[d]), shape) else c.op("Expand", name, c.ints(list(shape))))
    return places, names, list(shape)


@operator("Gather, GatherND", aten.index.Tensor)
def _index(c, x, indices):
    places, names, shape = _index_arguments(c, indices)
    if len(places) == 1:
        return c.op("Gather", c(x), names[0], axis=places[0])
    rank = len(c.shape(x))
    order = places + [d for d in range(rank) if d not in places]
    data = c(x) if order == list(range(rank)) else c.op("Transpose", c(x), perm=order)
    parts = [c.op("Unsqueeze", n, c.ints([len(shape)])) for n in names]
    found = c.op("GatherND", data, c.op("Concat", *parts, axis=len(shape)))
    if places != list(range(places[0], places[-1] + 1)) or places[0] == 0:
        return found  # the new dimensions are in front
    before, n = places[0], len(shape)
    total = n + rank - len(places)
    return c.op("Transpose", found, perm=[*range(n, n + before), *range(n), *range(n + before, total)])


@operator("ScatterND, Where", aten.index_put.default)
def _index_put(c, x, indices, values, accumulate=False):
    given = [i for i in indices if i is not None]
    if len(given) == 1 and c.dtype_of(given[0]) == torch.bool:
        return _masked_put(c, x, indices, values, accumulate)
    places, names, shape = _index_arguments(c, indices)
    rank = len(c.shape(x))
    order = places + [d for d in range(rank) if d not in places]
    ordered = order == list(range(rank))
    data = c(x) if ordered else c.op("Transpose", c(x), perm=order)
    parts = [c.op("Unsqueeze", n, c.ints([len(shape)])) for n in names]
    where = parts[0] if len(parts) == 1 else c.op("Concat", *parts, axis=len(shape))
    kept = [c.shape(x)[d] for d in order[len(places):]]
    before = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    target = kept[:before] + shape + kept[before:]
    updates = c(values, c.dtype)
    if not _same(c.shape(values), target):
        updates = c.op("Expand", updates, c.ints(target))
    if before:
        n = len(shape)
        perm = [*range(before, before + n), *range(before), *range(before + n, len(target))]
        updates = c.op("Transpose", updates, perm=perm)
    result = c.op("ScatterND", data, where, updates, reduction="add" if accumulate else None)
    return result if ordered else c.op("Transpose", result, perm=[order.index(d) for d in range(rank)])


def _masked_put(c, x, indices, values, accumulate):
    """x[mask] = one number."""
    mask = next(i for i in indices if i is not None)
    before = list(indices).index(mask)
    if any(expression(s) != 1 for s in c.shape(values)) or accumulate:
        raise Unsupported("an assignment of several numbers where a mask is true is not supported", "use torch.where")
    after = len(c.shape(x)) - before - len(c.shape(mask))
    name = c(mask)
    if after:
        rank = len(c.shape(mask))
        name = c.op("Unsqueeze", name, c.ints(range(rank, rank + after)))
    value = c(values, c.dtype)
    if c.shape(values):
        value = c.op("Squeeze", value, c.ints(range(len(c.shape(values)))))
    return c.op("Where", name, value, c(x))


def _replaced(c, x, dim, start, length, part):
    """x with `part` at start : start + length of a dimension."""
    size = c.shape(x)[dim]
    if isinstance(start, torch.fx.Node):
        start = start.meta["val"]
    if not is_symbolic(start) and int(start) < 0:
        start = size + start
    end = start + length
    pieces = []
    if is_symbolic(start) or int(start) > 0:
        pieces.append(slice_of(c, c(x), dim, 0, start))
    pieces.append(part)
    if expression(end) != expression(size):
        pieces.append(slice_of(c, c(x), dim, end, _LAST))
    return c.op("Concat", *pieces, axis=dim) if len(pieces) > 1 else part


@operator("Slice, Concat", aten.slice_scatter.default)
def _slice_scatter(c, x, source, dim=0, start=None, end=None, step=1):
    if step != 1:
        raise Unsupported("an assignment to a slice with steps is not supported")
    dim = dim % len(c.shape(x))
    return _replaced(c, x, dim, 0 if start is None else start, c.shape(source)[dim], c(source, c.dtype))


@operator("Slice, Concat", aten.select_scatter.default)
def _select_scatter(c, x, source, dim, index):
    dim = dim % len(c.shape(x))
    return _replaced(c, x, dim, index, 1, c.op("Unsqueeze", c(source, c.dtype), c.ints([dim])))


@operator("TopK", aten.topk.default)
def _topk(c, x, k, dim=-1, largest=True, sorted=True):
    if not c.shape(x):
        raise Unsupported("topk of a scalar is not supported")
    k = c.scalar_of(k, torch.int64, 1)
    return c.op("TopK", c(x), k, outputs=2, axis=dim % len(c.shape(x)), largest=int(largest), sorted=1)


@operator("TopK", aten.sort.default, aten.sort.stable)
def _sort(c, x, *args, **kwargs):
    # sort(x, dim, descending), sort.stable(x, *, stable, dim, descending): equal elements keep their order
    names = ("dim", "descending") if c.node.target is aten.sort.default else ("stable", "dim", "descending")
    given = {**dict(zip(names, args)), **kwargs}
    if not c.shape(x):
        raise Unsupported("sort of a scalar is not supported")
    dim = given.get("dim", -1) % len(c.shape(x))
    k = c.scalar_of(c.shape(x)[dim], torch.int64, 1)
    return c.op("TopK", c(x), k, outputs=2, axis=dim, largest=int(given.get("descending", False)), sorted=1)


@operator("Transpose, Gather", aten.diagonal.default)
def _diagonal(c, x, offset=0, dim1=0, dim2=1):
    shape = c.shape(x)
    rank = len(shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    if is_symbolic(shape[dim1]) or is_symbolic(shape[dim2]):
        raise Unsupported("the diagonal of a matrix of dynamic size is not supported")
    rest = [d for d in range(rank) if d not in (dim1, dim2)]
    data = c.op("Transpose", c(x), perm=[dim1, dim2, *rest])
    count = int(c.val.shape[-1])
    rows = torch.arange(count) + max(-offset, 0)
    columns = torch.arange(count) + max(offset, 0)
    found = c.op("GatherND", data, c.constant(torch.stack([rows, columns], 1)))
    return c.op("Transpose", found, perm=[*range(1, rank - 1), 0]) if rest else found
