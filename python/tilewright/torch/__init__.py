"""Tilewright for PyTorch: the backend "tilewright" of torch.compile, and exported programs as models.

    model = torch.compile(model, backend="tilewright")
    with torch.inference_mode():
        logits = model(pixels)

docs/torch.md describes it.
"""

from . import _operators_nn, _operators_shape  # noqa: F401  (they add to the table)
from ._backend import backend, left_to_torch
from ._errors import Unsupported
from ._export import CompiledProgram, compile, export_onnx  # noqa: A004
from ._session import statistics

__all__ = ["CompiledProgram", "Unsupported", "backend", "compile", "export_onnx", "left_to_torch", "statistics"]
