"""torch.compile(backend="tilewright")."""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from typing import Any, Callable, Collection, Mapping, Sequence

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ._convert import Converter, tensors_of
from ._errors import Unsupported
from ._operators import OPERATORS
from ._session import CompiledGraph, statistics
from ._settings import Settings, log_once

left_to_torch: Counter[str] = Counter()  # operator -> nodes

# Operators whose results share memory with their operand. They are not worth a partition of their own.
_VIEWS = {
    operator.getitem,
    torch.ops.aten.as_strided.default,
    torch.ops.aten.diagonal.default,
    torch.ops.aten.view.default,
    torch.ops.aten.permute.default,
    torch.ops.aten.expand.default,
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.squeeze.dim,
    torch.ops.aten.squeeze.dims,
    torch.ops.aten.slice.Tensor,
    torch.ops.aten.select.int,
    torch.ops.aten.split_with_sizes.default,
    torch.ops.aten.alias.default,
    torch.ops.aten.detach.default,
}


# Composite operators that the table has as a whole. torch decomposes them before it reads a table of decompositions.
_COMPOSITE = [
    torch.ops.aten.linear.default,
    torch.ops.aten.matmul.default,
    torch.ops.aten.scaled_dot_product_attention.default,
    torch.ops.aten.gru.input,
    torch.ops.aten._fused_rms_norm.default,  # composite from torch 2.15 on
    torch.ops.aten.upsample_nearest1d.vec,
    torch.ops.aten.upsample_nearest2d.vec,
    torch.ops.aten.upsample_nearest3d.vec,
    torch.ops.aten.upsample_linear1d.vec,
    torch.ops.aten.upsample_bilinear2d.vec,
    torch.ops.aten.upsample_trilinear3d.vec,
    torch.ops.aten.upsample_bicubic2d.vec,
]


def keep_composites(needs_gradients: bool) -> Any:
    """A context in which composite operators are traced as a whole; they have no gradients then. torch.export uses the
    same function; a torch that lacks it decomposes them."""
    if needs_gradients:
        return contextlib.nullcontext()
    try:
        from torch.export.exported_program import _override_composite_implicit_decomp
    except ImportError:
        return contextlib.nullcontext()
    composite = [
        target
        for target in _COMPOSITE
        if torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")
    ]
    return _override_composite_implicit_decomp({target: lambda *_, **__: NotImplemented for target in composite})


def decompositions() -> dict[Any, Callable]:
    """torch's decompositions into core ATen operators, but of those that the table has as a whole."""
    table = core_aten_decompositions()
    return {target: f for target, f in table.items() if target not in OPERATORS}


def unsupported_nodes(graph_module: fx.GraphModule) -> dict[fx.Node, Unsupported]:
    """The nodes that cannot be converted, and why. Numbers and checks of sizes are not among them."""
    found = {}
    for node in graph_module.graph.nodes:
        if node.op not in ("call_function", "call_module", "call_method"):
            continue
        try:
            if node.op != "call_function":
                raise Unsupported(f"'{node.target}' is called as a module or method")
            Converter().try_node(node)
        except Unsupported as error:
            found[node] = error
    return found


def separate_views(graph: fx.Graph) -> set[fx.Node]:
    """The views that torch must make, as nodes that nothing else reads: results that share memory with an argument or
    another result, and results with a stride of 0. Adds copies of nodes to the graph.

        y = exp(x); return y, y[0]   ->   the model returns y, torch makes y[0] of it
    """
    output = next(n for n in graph.nodes if n.op == "output")
    results = [r for r in output.args[0] if isinstance(r, fx.Node)] if isinstance(output.args[0], (list, tuple)) else []
    chains = {}
    for result in results:
        chain, root = [], result
        while root.op == "call_function" and root.target in _VIEWS:
            chain.append(root)
            root = root.args[0]
        chains[result] = (root, chain)
    of_root = Counter(root for root, _ in chains.values())
    separate: set[fx.Node] = set()
    copies: dict[fx.Node, fx.Node] = {}
    for result, (root, chain) in chains.items():
        overlaps = any(0 in t.stride() for t in tensors_of(result.meta["val"]))
        if not chain or not (root.op == "placeholder" or of_root[root] > 1 or overlaps):
            continue
        for node in reversed(chain):
            if node not in copies:
                with graph.inserting_before(output):
                    copies[node] = graph.node_copy(node, lambda n: copies.get(n, n))
                separate.add(copies[node])
    output.args = (fx.map_arg(output.args[0], lambda n: copies.get(n, n)),)
    for _, chain in chains.values():
        for node in chain:  # the last one first
            if node.graph is graph and not node.users and node not in separate and not node._erased:
                graph.erase_node(node)
    return separate


class _Support(OperatorSupportBase):
    def __init__(self, unsupported: Collection[fx.Node]) -> None:
        self._unsupported = unsupported

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        is_number = isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))
        return node.op == "call_function" and node not in self._unsupported and not is_number


class _Part(torch.nn.Module):
    """A compiled part of a graph, as a module that the rest of the graph calls."""

    def __init__(self, graph_module: fx.GraphModule, settings: Settings, freeze: bool) -> None:
        super().__init__()
        self._compiled = [CompiledGraph(graph_module, settings, freeze)]  # not a submodule
        (given,) = next(n for n in graph_module.graph.nodes if n.op == "output").args
        self._single = not isinstance(given, (list, tuple))

    def forward(self, *args: Any) -> Any:
        results = self._compiled[0](args)
        return results[0] if self._single else tuple(results)


def describe(node: fx.Node, error: Unsupported) -> str:
    """What an error says about a node: the operator, the node, and where the user's code calls it."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    place = next((line.strip() for line in reversed(trace) if line.strip().startswith("File ")), "")
    return f"{node.target} (node '{node.name}'{', ' + place if place else ''}): {error.message}"


def _report(unsupported: Mapping[fx.Node, Unsupported], settings: Settings) -> None:
    if not settings.fallback:
        node, error = next(iter(unsupported.items()))
        rest = f" ({len(unsupported) - 1} more nodes)" if len(unsupported) > 1 else ""
        raise Unsupported(
            describe(node, error) + rest,
            error.hint or "remove the option fallback=False to leave such operators to torch, or write them otherwise",
        )
    counts = Counter(str(node.target) for node in unsupported)
    left_to_torch.update(counts)
    reasons: dict[str, str] = {}
    for node, error in unsupported.items():
        reasons.setdefault(str(node.target), error.message)
    for target, count in counts.items():
        log_once(f"{target} is left to torch: {reasons[target]}", f" ({count} node{'s' if count > 1 else ''})")


def _partition(graph_module: fx.GraphModule, left: Collection[fx.Node], settings: Settings, freeze: bool) -> fx.GraphModule:
    """The graph with calls of compiled parts in place of all nodes but those of `left`."""
    partitioner = CapabilityBasedPartitioner(
        graph_module, _Support(left), allows_single_node_partition=False, non_compute_ops=_VIEWS
    )
    partitions = partitioner.propose_partitions()
    partitioner.remove_bookend_non_compute_ops(partitions)
    graph_module = partitioner.fuse_partitions([p for p in partitions if p.nodes], prefix="tilewright_")
    for name, part in list(graph_module.named_children()):
        if name.startswith("tilewright_"):
            setattr(graph_module, name, _Part(part, settings, freeze))
    graph_module.recompile()
    return graph_module


def compile_graph(graph_module: fx.GraphModule, settings: Settings, freeze: bool, mutated: Sequence[int] = ()) -> Callable:
    """A function of a list of arguments, which it empties, that computes what the graph does."""
    unsupported = unsupported_nodes(graph_module)
    statistics["graphs"] += 1
    computes = any(n.op == "call_function" for n in graph_module.graph.nodes)
    if unsupported:
        _report(unsupported, settings)
    views = separate_views(graph_module.graph)
    if unsupported or views:
        graph_module = _partition(graph_module, {*unsupported, *views}, settings, freeze)
    if unsupported or views or not computes:
        forward = graph_module.forward

        def run(args: list[Any]) -> Any:
            values = list(args)
            args.clear()
            return forward(*values)

    else:
        compiled = CompiledGraph(graph_module, settings, freeze, mutated)

        def run(args: list[Any]) -> Any:
            values = list(args)
            args.clear()
            return compiled(values)

    run._boxed_call = True
    return run


def _mutated_arguments() -> list[int]:
    """The arguments that the graph's caller writes after the graph has run."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    return list(getattr(metadata, "mutated_inp_runtime_indices", ()))


def backend(graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
            options: Mapping[str, Any] | None = None) -> Callable:
    """The backend that torch.compile calls: `options` are those of Settings."""
    settings = Settings(options)

    def inference(gm: fx.GraphModule, _: Sequence[Any]) -> Callable:
        return compile_graph(gm, settings, settings.freeze, _mutated_arguments())

    def forward(gm: fx.GraphModule, _: Sequence[Any]) -> Callable:
        log_once(
            "gradients are required: parameters stay inputs, and torch computes the backward pass; "
            "use torch.no_grad() or torch.inference_mode() for inference"
        )
        return compile_graph(gm, settings, False)

    def backward(gm: fx.GraphModule, _: Sequence[Any]) -> Callable:
        run = gm.forward

        def boxed(args: list[Any]) -> Any:
            values = list(args)
            args.clear()
            return run(*values)

        boxed._boxed_call = True
        return boxed

    tensors = [t for t in example_inputs if isinstance(t, torch.Tensor)]
    with keep_composites(torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return aot_module_simplified(
            graph_module,
            example_inputs,
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=inference,
            partition_fn=min_cut_rematerialization_partition,
            decompositions=decompositions(),
        )
