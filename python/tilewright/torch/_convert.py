"""FX graphs of ATen operators to ONNX."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple, Sequence

import torch
from torch import fx

from ._errors import Unsupported
from ._onnx import ELEMENT_TYPES, OnnxModel
from ._operators import OPERATORS
from ._symbols import Sizes, dimension, expression, is_symbolic

_CHECKS = {  # statements about sizes and values
    torch.ops.aten._assert_async.msg,
    torch.ops.aten._assert_async.default,
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
    torch.ops.aten._assert_tensor_metadata.default,
}
_SCALARS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


class Input(NamedTuple):
    """An input of the model: argument `index` of the graph, whose elements lie in the order of the dimensions `order`.
    `shape` and `dtype` are the argument's; of a SymInt, ()."""

    index: int
    shape: tuple[Any, ...]
    order: tuple[int, ...]
    dtype: torch.dtype
    is_size: bool


class Output(NamedTuple):
    """An output of the model, as `Input`. `strides` are those that torch expects, without gaps and overlaps if `dense`."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    order: tuple[int, ...]
    dtype: torch.dtype
    dense: bool


class Converted(NamedTuple):
    """A model, and how the graph's results are made of it. A result is ('output', k), ('argument', i), ('size', SymInt)
    or ('value', object)."""

    model: OnnxModel
    inputs: list[Input]
    outputs: list[Output]
    results: list[tuple[str, Any]]


def hint(size: Any) -> int:
    """A number for a size: of a symbol, its value in the example."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    known = size.node.hint
    return 2 if known is None else int(known)


def storage_order(t: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of a dense tensor from the slowest to the fastest; None if elements overlap or lie apart."""
    sizes, strides = [hint(s) for s in t.shape], [hint(s) for s in t.stride()]
    everything = list(range(len(sizes)))
    moving = [d for d in everything if sizes[d] != 1]
    if 0 in sizes:
        return tuple(everything)
    ordered = sorted(moving, key=lambda d: -strides[d])
    expected = 1
    for d in reversed(ordered):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    return tuple(everything if ordered == moving else [d for d in everything if sizes[d] == 1] + ordered)


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(d) for d in range(len(order))]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a node's value."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors_of(v)] if isinstance(value, (list, tuple)) else []


def check_types(node: fx.Node) -> None:
    """Raises Unsupported if a tensor of the node has elements, a layout or a device that Tilewright lacks."""
    for t in tensors_of(node.meta.get("val")):
        if t.dtype not in ELEMENT_TYPES:
            raise Unsupported(f"elements of type {t.dtype} are not supported")
        if t.device.type != "cpu":
            raise Unsupported(f"a tensor is on device '{t.device}'", "move the module and its inputs to the CPU")
        if t.layout != torch.strided:
            raise Unsupported(f"a tensor has layout {t.layout}", "use dense tensors")


class Converter:
    """Converts one graph. `c` in _operators*.py: what a converter of an operator uses."""

    def __init__(self, name: str = "torch") -> None:
        self.model = OnnxModel(name)
        self.sizes = Sizes(self)
        self.node: fx.Node | None = None  # the one that is converted
        self._values: dict[fx.Node, Any] = {}  # node -> name, or a tuple of names
        self._casts: dict[tuple[str, torch.dtype], str] = {}
        self._scalars: dict[tuple[Any, torch.dtype, int], str] = {}

    # What converters of operators call.

    @property
    def val(self) -> Any:
        """The value of the node that is converted: fake tensors, with types and shapes."""
        return self.node.meta["val"]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the (first) result."""
        return tensors_of(self.val)[0].dtype

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node; returns the name of its output, or a tuple of names."""
        stem = self.node.name if self.node is not None else kind.lower()
        names = [self.model.new_name(stem) for _ in range(outputs)]
        self.model.node(kind, inputs, names, attributes)
        return names[0] if outputs == 1 else tuple(names)

    def __call__(self, x: Any, dtype: torch.dtype | None = None) -> str:
        """A tensor argument, or a number as a scalar; converted to `dtype`."""
        if not isinstance(x, fx.Node):
            return self.scalar_of(x, dtype)
        value = x.meta["val"]
        if isinstance(value, _SCALARS):
            return self.scalar_of(value, dtype)
        name = self._values[x]
        return name if dtype in (None, value.dtype) else self.cast(name, dtype)

    def cast(self, name: str, dtype: torch.dtype) -> str:
        key = (name, dtype)
        if key not in self._casts:
            self._casts[key] = self.op("Cast", name, to=ELEMENT_TYPES[dtype])
        return self._casts[key]

    def scalar_of(self, value: Any, dtype: torch.dtype | None = None, rank: int = 0) -> str:
        """A number as a tensor of one element."""
        if isinstance(value, fx.Node):
            value = value.meta["val"]
        if isinstance(value, torch.SymFloat):
            if not value.node.expr.is_number:
                raise Unsupported(f"the number {value.node.expr} depends on a size")
            value = float(value.node.expr)
        if isinstance(value, torch.SymInt) and is_symbolic(value):
            name = self.sizes.scalar(value)
            name = name if dtype in (None, torch.int64) else self.cast(name, dtype)
            return name if rank == 0 else self.op("Reshape", name, self.constant(torch.ones(rank, dtype=torch.int64)))
        if isinstance(value, torch.SymInt):
            value = int(value)
        if dtype is None:
            dtype = torch.tensor(value).dtype
        key = (repr(value), dtype, rank)
        if key not in self._scalars:
            self._scalars[key] = self.constant(torch.tensor(value).to(dtype).reshape([1] * rank))
        return self._scalars[key]

    def constant(self, value: torch.Tensor, stem: str = "constant") -> str:
        name = self.model.new_name(stem)
        self.model.constant(name, value)
        return name

    def ints(self, values: Sequence[Any]) -> str:
        """Sizes or indices as a vector of int64."""
        values = [v.meta["val"] if isinstance(v, fx.Node) else v for v in values]
        if not any(isinstance(v, torch.SymInt) and is_symbolic(v) for v in values):
            return self.constant(torch.tensor([int(v) for v in values], dtype=torch.int64))
        parts = [self.scalar_of(v, torch.int64, 1) for v in values]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def shape(self, x: Any) -> list[Any]:
        """The sizes of a tensor argument."""
        return list(x.meta["val"].shape) if isinstance(x, fx.Node) and hasattr(x.meta["val"], "shape") else []

    def dtype_of(self, x: Any) -> torch.dtype:
        return x.meta["val"].dtype

    def is_used(self, result: int) -> bool:
        """Whether a result of the node is read."""
        return any(u.target is not operator.getitem or u.args[1] == result for u in self.node.users)

    # Graphs.

    def _convert_node(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if node.target is operator.getitem and not isinstance(value, _SCALARS):
            self._values[node] = self._values[node.args[0]][node.args[1]]
            return
        if isinstance(value, _SCALARS) or node.target in _CHECKS:
            return  # expressions of sizes are computed where they are used
        found = OPERATORS.get(node.target)
        if found is None:
            raise Unsupported(f"operator {node.target} has no conversion")
        check_types(node)
        self.node = node
        self._values[node] = found.convert(self, *node.args, **node.kwargs)
        self.node = None

    def try_node(self, node: fx.Node) -> None:
        """Converts one node alone; raises Unsupported if that is impossible."""
        for n in node.all_input_nodes:
            check_types(n)
            value = n.meta.get("val")
            if value is None:
                raise Unsupported(f"'{n.name}' has no known type")
            for t in tensors_of(value):
                for size in t.shape:
                    self._assume(size)
            if isinstance(value, torch.SymInt):
                self._assume(value)
            count = len(value) if isinstance(value, (list, tuple)) else 0
            self._values[n] = tuple(f"{n.name}_{k}" for k in range(count)) if count else n.name
        for t in tensors_of(node.meta.get("val")):
            for size in t.shape:
                if any(str(s).startswith("u") for s in expression(size).free_symbols):
                    raise Unsupported(f"the size {size} depends on data")
        if node.target is not operator.getitem:
            self._convert_node(node)

    def _assume(self, size: Any) -> None:
        for symbol in expression(size).free_symbols:
            if not str(symbol).startswith("u"):
                self.sizes.add_scalar(symbol, str(symbol))

    def convert(self, graph_module: fx.GraphModule, frozen: dict[int, torch.Tensor]) -> Converted:
        """The model of a graph. `frozen`: arguments that become constants, by position."""
        graph = graph_module.graph
        inputs, arguments = self._convert_inputs([n for n in graph.nodes if n.op == "placeholder"], frozen)
        for node in graph.nodes:
            if node.op == "get_attr":
                self._values[node] = self.constant(getattr(graph_module, node.target), node.name)
            elif node.op == "call_function":
                self._convert_node(node)
            elif node.op == "call_module":
                raise Unsupported(f"'{node.name}' calls a module")
        return self._finish(next(n for n in graph.nodes if n.op == "output"), inputs, arguments)

    def _convert_inputs(self, nodes: Sequence[fx.Node], frozen: dict[int, torch.Tensor]) -> tuple[list[Input], dict]:
        inputs = []
        for index, node in enumerate(nodes):
            value = node.meta.get("val")
            if index in frozen:
                self._values[node] = self.constant(frozen[index], node.name)
            elif isinstance(value, torch.Tensor) and node.users:
                check_types(node)
                order = storage_order(value) or tuple(range(value.ndim))
                self.model.new_name(node.name)
                self.model.input(node.name, value.dtype, [dimension(value.shape[d]) for d in order])
                inputs.append(Input(index, tuple(value.shape), order, value.dtype, False))
        for i in inputs:  # behind all inputs: a symbol is read from the simplest place
            node = nodes[i.index]
            self.sizes.add_shape(node.name, [i.shape[d] for d in i.order])
            self._values[node] = node.name
            if i.order != tuple(range(len(i.order))):
                self._values[node] = self.op("Transpose", node.name, perm=_inverse(i.order))
        for index, node in enumerate(nodes):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and node.users and not self.sizes.known(expression(value)):
                name = self.model.new_name(node.name)
                self.model.input(name, torch.int64, [])
                inputs.append(Input(index, (), (), torch.int64, True))
                self.sizes.add_scalar(expression(value), name)
        return inputs, {node: index for index, node in enumerate(nodes)}

    def _finish(self, output: fx.Node, inputs: list[Input], arguments: dict) -> Converted:
        outputs: list[Output] = []
        places: dict[fx.Node, int] = {}

        def place(node: fx.Node) -> int:
            if node not in places:
                places[node] = len(outputs)
                outputs.append(self._add_output(node))
            return places[node]

        results: list[tuple[str, Any]] = []
        (given,) = output.args
        for item in given if isinstance(given, (list, tuple)) else [given]:
            if not isinstance(item, fx.Node):
                results.append(("value", item))
            elif isinstance(item.meta.get("val"), _SCALARS):
                results.append(("size", item.meta["val"]))
            elif item in arguments:
                results.append(("argument", arguments[item]))
            else:
                results.append(("output", place(item)))
        return Converted(self.model, inputs, outputs, results)

    def _add_output(self, node: fx.Node) -> Output:
        value = node.meta["val"]
        check_types(node)
        found = storage_order(value)
        order = tuple(range(value.ndim)) if found is None else found
        self.node = node
        name = self._values[node]
        ordered = order == tuple(range(value.ndim))
        name = self.op("Identity", name) if ordered else self.op("Transpose", name, perm=list(order))
        self.node = None
        self.model.output(name, value.dtype, [dimension(value.shape[d]) for d in order])
        return Output(tuple(value.shape), tuple(value.stride()), order, value.dtype, found is not None)
