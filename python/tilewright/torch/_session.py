"""Graphs as compiled models that run on torch's tensors."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from typing import Any, Callable, Sequence

import sympy
import torch
from torch import fx

from .. import _tilewright
from .._errors import Error
from .._session import call_with_model
from .._tools import _options
from ._convert import Converted, Converter, Input
from ._onnx import OnnxModel
from ._settings import Settings, log_once
from ._symbols import expression, is_symbolic, shape_function

# A graph of whose frozen tensors one changed more often than this takes that tensor as an input from then on; one that
# is called with more sets of them takes all of them as inputs.
_MOST_CHANGES = 1
_MOST_VARIANTS = 16

_CPU = torch.device("cpu")

statistics: Counter[str] = Counter()  # graphs, compilations, fallbacks


def compile_model(model: OnnxModel, settings: Settings) -> _tilewright.Runner:
    """Compiles a converted graph."""
    options = _options(settings.compile_options())._compile_options()
    statistics["compilations"] += 1
    if model.fits_in_memory():
        return _tilewright.compile_memory(model.bytes(), options, options.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        model.write(path)
        return call_with_model(path, _tilewright.compile_file, _tilewright.compile_memory, options, options.threads)


def _sources(graph: fx.Graph) -> tuple[dict[sympy.Symbol, str], list[tuple[int, int | None]], list[str]]:
    """Python code for the symbols of a graph's sizes; the arguments that it reads, each as (argument, dimension) or
    (argument, None) of a number; and their names."""
    names: dict[sympy.Symbol, str] = {}
    reads: list[tuple[int, int | None]] = []
    arguments: list[str] = []

    def add(e: sympy.Expr, index: int, axis: int | None) -> None:
        for symbol in e.free_symbols - set(names):
            slope = sympy.diff(e, symbol)
            if len(e.free_symbols) != 1 or not slope.is_Integer:
                continue
            reads.append((index, axis))
            arguments.append(f"a{len(arguments)}")
            offset = int(e.subs(symbol, 0))
            names[symbol] = arguments[-1] if e == symbol else f"(({arguments[-1]} - {offset}) // {int(slope)})"

    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for plain in (True, False):  # a dimension that is a symbol is simpler than one that is an expression
        for index, node in enumerate(placeholders):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and is_symbolic(value) and expression(value).is_Symbol == plain:
                add(expression(value), index, None)
            for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if is_symbolic(size) and expression(size).is_Symbol == plain:
                    add(expression(size), index, axis)
    return names, reads, arguments


class Binding:
    """A compiled model with the arguments and results of its graph."""

    def __init__(self, graph: fx.Graph, converted: Converted, runner: _tilewright.Runner) -> None:
        self._runner = runner
        self._results = converted.results
        self._inputs = [(i.index, _order_or_none(i), i.is_size) for i in converted.inputs]
        self._plain = all(order is None and not is_size for _, order, is_size in self._inputs)
        self._indices = [i.index for i in converted.inputs]
        self._dtypes = [o.dtype for o in converted.outputs]
        self._dynamic_inputs = any(is_symbolic(s) for i in converted.inputs for s in i.shape)
        self._bind_outputs(graph, converted)

    def _bind_outputs(self, graph: fx.Graph, converted: Converted) -> None:
        outputs = converted.outputs
        stored = [[o.shape[d] for d in o.order] for o in outputs]
        strides = [o.strides if o.dense else _row_major(o.shape) for o in outputs]
        sizes = [v for kind, v in converted.results if kind == "size"]
        wanted = [shape for o, s, t in zip(outputs, stored, strides) for shape in (o.shape, t, s)] + [[s] for s in sizes]
        self._shapes: Callable | None = None
        self._reads: list[tuple[int, int | None]] = []
        if any(is_symbolic(s) for shape in wanted for s in shape):
            names, self._reads, arguments = _sources(graph)
            self._shapes = shape_function(wanted, names, arguments)
        else:
            self._constant_shapes = shape_function(wanted, {}, [])()

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Runs the model on the graph's arguments; returns the graph's results."""
        tensors = [args[i] for i in self._indices] if self._plain else self._physical(args)
        for k, t in enumerate(tensors):
            if not t.is_contiguous():
                tensors[k] = t.contiguous()
        if self._shapes is None:
            shapes = self._constant_shapes
        else:
            shapes = self._shapes(*[args[i] if axis is None else args[i].shape[axis] for i, axis in self._reads])
        empty = torch.empty_strided
        outputs = [empty(shapes[3 * k], shapes[3 * k + 1], dtype=d, device=_CPU) for k, d in enumerate(self._dtypes)]
        self._runner.run_addresses(
            [t.data_ptr() for t in tensors],
            [t.shape for t in tensors] if self._dynamic_inputs else None,
            [t.data_ptr() for t in outputs],
            shapes[2 : 3 * len(outputs) : 3],
        )
        return self._collect(args, outputs, shapes)

    def _physical(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The inputs of the model: tensors with dimensions in the order of storage, and sizes as tensors."""
        return [
            torch.tensor(args[i], dtype=torch.int64) if is_size else args[i] if order is None else args[i].permute(order)
            for i, order, is_size in self._inputs
        ]

    def _collect(self, args: Sequence[Any], outputs: list[torch.Tensor], shapes: Any) -> list[Any]:
        results, size = [], 3 * len(outputs)
        for kind, value in self._results:
            if kind == "output":
                results.append(outputs[value])
            elif kind == "argument":
                results.append(args[value])
            elif kind == "size":
                results.append(shapes[size][0])
                size += 1
            else:
                results.append(value)
        return results


def _order_or_none(i: Input) -> tuple[int, ...] | None:
    return None if i.order == tuple(range(len(i.order))) else i.order


def _row_major(shape: Sequence[Any]) -> list[Any]:
    strides: list[Any] = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return strides


def is_static(value: Any) -> bool:
    """Whether an argument is a parameter or buffer of a module."""
    return isinstance(value, torch.Tensor) and (
        isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None
    )


def _version(t: torch.Tensor) -> int | None:
    """How often a tensor was written; None if torch does not count that."""
    return None if t.is_inference() else t._version


class _Variant:
    """A binding for one set of frozen tensors."""

    def __init__(self, binding: Binding | None, frozen: dict[int, torch.Tensor]) -> None:
        self.binding = binding
        self.frozen = [(i, t, _version(t)) for i, t in frozen.items()]
        self._counted = [(i, t, v) for i, t, v in self.frozen if v is not None]
        self._uncounted = [(i, t) for i, t, v in self.frozen if v is None]

    def suits(self, args: Sequence[Any]) -> bool:
        for i, t, v in self._counted:
            if args[i] is not t or t._version != v:
                return False
        return all(args[i] is t for i, t in self._uncounted)

    def changed(self) -> list[int]:
        """The frozen tensors that were written since."""
        return [i for i, t, v in self._counted if t._version != v]


class CompiledGraph:
    """A graph that is compiled when it is called first: then its parameters are known, and become constants."""

    def __init__(self, graph_module: fx.GraphModule, settings: Settings, freeze: bool, mutated: Sequence[int] = ()) -> None:
        self._graph_module = graph_module
        self._settings = settings
        self._inputs = set(mutated) if freeze else None  # arguments that are not frozen; None: all
        self._changes: Counter[int] = Counter()
        self._variants: dict[tuple[int, ...], _Variant] = {}
        self._last: _Variant | None = None
        self._lock = threading.Lock()

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        variant = self._last
        if variant is None or not variant.suits(args):
            variant = self._variant(args)
        if variant.binding is None:
            return list(self._graph_module.forward(*args))
        return variant.binding(args)

    def _variant(self, args: Sequence[Any]) -> _Variant:
        with self._lock:
            found = self._variants.get(self._key(args))
            if found is not None and not found.suits(args):
                for i in found.changed():
                    self._changes[i] += 1
                    if self._changes[i] > _MOST_CHANGES and self._inputs is not None:
                        self._inputs.add(i)
                found = None
            if found is None and len(self._variants) >= _MOST_VARIANTS:
                self._inputs = None
                self._variants.clear()
            if found is None:
                found = self._variants[self._key(args)] = self._compile(args)
            self._last = found
            return found

    def _frozen(self, args: Sequence[Any]) -> dict[int, torch.Tensor]:
        if self._inputs is None:
            return {}
        return {i: a for i, a in enumerate(args) if i not in self._inputs and is_static(a)}

    def _key(self, args: Sequence[Any]) -> tuple[int, ...]:
        return tuple(id(a) for a in self._frozen(args).values())

    def _compile(self, args: Sequence[Any]) -> _Variant:
        frozen = self._frozen(args)
        try:
            converted = Converter().convert(self._graph_module, frozen)
            binding = Binding(self._graph_module.graph, converted, compile_model(converted.model, self._settings))
            return _Variant(binding, frozen)
        except Error as error:
            if not self._settings.fallback:
                raise
            statistics["fallbacks"] += 1
            log_once(f"a graph of {len(self._graph_module.graph.nodes)} nodes is left to torch: {error}")
            return _Variant(None, {})
