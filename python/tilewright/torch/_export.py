"""Programs of torch.export, compiled ahead of time or written as ONNX models."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ._backend import decompositions, describe, unsupported_nodes
from ._convert import Converted, Converter
from ._errors import Unsupported
from ._session import Binding, compile_model
from ._settings import Settings

_CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _converted(program: ExportedProgram) -> tuple[ExportedProgram, Converted]:
    """The program in core ATen operators, and its model."""
    program = program.run_decompositions(decompositions())
    for spec in program.graph_signature.output_specs:
        if spec.kind != OutputKind.USER_OUTPUT:
            raise Unsupported(
                f"the program writes '{spec.target}'",
                "export a module that returns what changes, such as its cache, and takes it as an input",
            )
    unsupported = unsupported_nodes(program.graph_module)
    if unsupported:
        node, error = next(iter(unsupported.items()))
        raise Unsupported(describe(node, error), error.hint or "write it with other operators, or use torch.compile")
    frozen = {}
    for index, spec in enumerate(program.graph_signature.input_specs):
        if spec.kind in _CONSTANTS:
            frozen[index] = program.state_dict.get(spec.target, program.constants.get(spec.target))
    return program, Converter().convert(program.graph_module, frozen)


class CompiledProgram:
    """An exported program, compiled. It takes and returns what the exported module does."""

    def __init__(self, program: ExportedProgram, settings: Settings) -> None:
        self._program, converted = _converted(program)
        self._binding = Binding(self._program.graph, converted, compile_model(converted.model, settings))
        self._given = [s.kind not in _CONSTANTS for s in self._program.graph_signature.input_specs]
        self._in_spec = self._program.call_spec.in_spec
        self._out_spec = self._program.call_spec.out_spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise TypeError(f"the program takes {self._in_spec}, and was called with {spec}")
        values = iter(flat)
        args = [next(values) if given else None for given in self._given]
        return pytree.tree_unflatten(self._binding(args), self._out_spec)


def compile(program: ExportedProgram, **options: Any) -> CompiledProgram:  # noqa: A001
    """Compiles a program of torch.export. Options: as of tilewright.compile.

        program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
        compiled = tilewright.torch.compile(program, threads=2)
        y = compiled(x)
    """
    return CompiledProgram(program, Settings(options))


def export_onnx(program: ExportedProgram, path: str | os.PathLike) -> None:
    """Writes a program of torch.export as an ONNX model, which `tilewright compile` makes an executable file of.
    Constants of more than 1 GiB go to a second file beside it."""
    _, converted = _converted(program)
    converted.model.write(os.fspath(path))
