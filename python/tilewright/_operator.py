"""Operators whose functions are Python's."""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from . import _arrays, _tilewright
from ._errors import InvalidArgument


class Size:
    """A dynamic size: it can be compared, and +, -, * and // give sizes."""

    def __init__(self, call: _tilewright.Call, code: int) -> None:
        self._call, self._code = call, code

    def __eq__(self, other: Any) -> bool:
        return _code(other) == self._code

    def __hash__(self) -> int:
        return hash(self._code)

    def __repr__(self) -> str:
        return "Size()"

    def __add__(self, other: int | Size) -> int | Size:
        return _size(self._call, self._call.add(self._code, _code(other)))

    def __sub__(self, other: int | Size) -> int | Size:
        return _size(self._call, self._call.sub(self._code, _code(other)))

    def __rsub__(self, other: int | Size) -> int | Size:
        return _size(self._call, self._call.sub(_code(other), self._code))

    def __mul__(self, other: int | Size) -> int | Size:
        return _size(self._call, self._call.mul(self._code, _code(other)))

    def __floordiv__(self, other: int | Size) -> int | Size:
        return _size(self._call, self._call.div(self._code, _code(other)))

    __radd__, __rmul__ = __add__, __mul__


def _code(size: Any) -> Any:
    """The number of a size; None is one that only the data gives."""
    return -1 if size is None else getattr(size, "_code", size)


def _size(call: _tilewright.Call, code: int) -> int | Size:
    return code if code >= 0 else Size(call, code)


class Node:
    """The node of a call."""

    def __init__(self, call: _tilewright.Call) -> None:
        self._call = call

    @property
    def name(self) -> str:
        return self._call.node

    @property
    def output_count(self) -> int:
        return self._call.output_count

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute: an int, float, str, a list of ints or floats, or an array."""
        value = self._call.attribute(name)
        if isinstance(value, bytes):
            return value.decode(errors="surrogateescape")
        if isinstance(value, tuple):
            return _arrays.named(value[1], value[0])
        return default if value is None else value


class TensorType(NamedTuple):
    """Of an input, for `infer`. Sizes are ints, or Size where they are dynamic; `value` is its array where it is
    known, else None."""

    dtype: np.dtype
    shape: tuple[int | Size, ...]
    value: np.ndarray | None


class Operator:
    """An operator of the domain `domain` that Python functions compute (docs/custom-operators.md).

        def infer(node, x):
            return x.dtype, (x.shape[0] * node.attribute("times", 1),)

        def compute(node, x):
            return np.tile(x, node.attribute("times", 1))

        session = tilewright.compile(model, operators=[tilewright.Operator("com.example", "Tile", compute, infer)])

    `compute(node, *inputs)` takes arrays, None for an input that the node leaves out, and returns an array, or a sequence
    with one for each output. `infer(node, *inputs)` takes TensorTypes and returns (dtype, shape), or a list of such
    pairs, with None for a size that only the data gives; without it all outputs have the type and shape of input 0.
    What they raise is the error of the compilation or run. Runs of several threads call them at the same time, as the GIL
    allows. `varies`: equal inputs may give different outputs."""

    def __init__(
        self,
        domain: str,
        name: str,
        compute: Callable[..., Any],
        infer: Callable[..., Any] | None = None,
        *,
        version: int = 1,
        least_inputs: int = 0,
        most_inputs: int = 0,
        most_outputs: int = 0,
        varies: bool = False,
    ) -> None:
        self.domain, self.name = domain, name

        def computed(call: _tilewright.Call, inputs: list[Any], types: list[Any]) -> list[tuple[int, np.ndarray]]:
            arrays = [None if i is None else _arrays.named(i[2], i[0]) for i in inputs]
            outputs = _sequence(compute(Node(call), *arrays))
            return [_result(a, types[k] if k < len(types) else None) for k, a in enumerate(outputs)]

        def inferred(call: _tilewright.Call, inputs: list[Any]) -> list[tuple[int, list[int]]]:
            outputs = infer(Node(call), *[_type(call, i) for i in inputs])
            pairs = outputs if isinstance(outputs, list) else [outputs]
            return [(_arrays.code_of_dtype(dtype), [_code(size) for size in shape]) for dtype, shape in pairs]

        self._made = _tilewright.make_operator(
            domain, name, version, least_inputs, most_inputs, most_outputs, varies,
            inferred if infer is not None else None, computed,
        )  # fmt: skip


def _sequence(arrays: Any) -> Sequence[Any]:
    return arrays if isinstance(arrays, (list, tuple)) else [arrays]


def _result(value: Any, expected: int | None) -> tuple[int, np.ndarray]:
    value = value if hasattr(value, "dtype") else np.asarray(value)
    if expected is not None:
        array, code = _arrays.as_input(value, expected)
        return code, array
    array, code = _arrays.as_array(value)
    return code, np.ascontiguousarray(array).reshape(array.shape)


def _type(call: _tilewright.Call, given: Any) -> TensorType | None:
    if given is None:
        return None
    code, sizes, value = given
    value = None if value is None else _arrays.named(value, code)
    dtype = _arrays.named(np.zeros(0, _arrays.storage_dtype(code)), code).dtype
    return TensorType(dtype, tuple(_size(call, s) for s in sizes), value)


def made(operators: Any) -> tuple[list[_tilewright.Operator], list[str]]:
    """The operators as the module has them, and the paths of shared libraries."""
    own = [op for op in operators if isinstance(op, Operator)]
    paths = [op for op in operators if not isinstance(op, Operator)]
    for path in paths:
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidArgument(
                f"operators has a value of type {type(path).__name__}",
                "expected tilewright.Operator, or the path of a shared library",
            )
    return [op._made for op in own], [os.fspath(path) for path in paths]
