"""ONNX models as bytes, written node by node without the package onnx."""

from __future__ import annotations

import os
import struct
from typing import Any, Iterable, Sequence

import torch

OPSET = 23
_IR_VERSION = 10
# A protobuf message has less than 2 GiB. Constants of larger models are in a file beside the model.
_MOST_BYTES_WITHIN = 1 << 30

# Element types that torch and Tilewright share -> their numbers in onnx.TensorProto.
ELEMENT_TYPES = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.uint16: 4,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.uint32: 12,
    torch.uint64: 13,
    torch.bfloat16: 16,
}


def _varint(n: int) -> bytes:
    out = bytearray()
    n &= (1 << 64) - 1
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


class _Message:
    """A protobuf message: fields in the order in which they were added. The bytes of a tensor are not copied until the
    whole model is joined."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.size = 0

    def _append(self, part: Any) -> None:
        self.parts.append(part)
        self.size += len(part)

    def integer(self, number: int, value: int) -> _Message:
        self._append(_varint(number << 3) + _varint(value))
        return self

    def real(self, number: int, value: float) -> _Message:
        self._append(_varint(number << 3 | 5) + struct.pack("<f", value))
        return self

    def data(self, number: int, value: Any) -> _Message:
        """Text, bytes, a buffer of bytes or another message."""
        if isinstance(value, str):
            value = value.encode()
        length = value.size if isinstance(value, _Message) else len(value)
        self._append(_varint(number << 3 | 2) + _varint(length))
        if isinstance(value, _Message):
            self.parts += value.parts
            self.size += value.size
        else:
            self._append(value)
        return self

    def repeated(self, number: int, values: Iterable[Any]) -> _Message:
        for value in values:
            self.data(number, value)
        return self

    def join(self) -> bytes:
        return b"".join(self.parts)


def _attribute(name: str, value: Any) -> _Message:
    message = _Message().data(1, name)
    if isinstance(value, (bool, int)):
        return message.integer(3, int(value)).integer(20, 2)
    if isinstance(value, float):
        return message.real(2, value).integer(20, 1)
    if isinstance(value, str):
        return message.data(4, value).integer(20, 3)
    if all(isinstance(v, int) for v in value):
        for v in value:
            message.integer(8, v)
        return message.integer(20, 7)
    if all(isinstance(v, str) for v in value):
        return message.repeated(9, value).integer(20, 8)
    for v in value:
        message.real(7, v)
    return message.integer(20, 6)


def _declaration(name: str, dtype: torch.dtype, shape: Sequence[int | str]) -> _Message:
    dims = _Message()
    for d in shape:
        dims.data(1, _Message().integer(1, d) if isinstance(d, int) else _Message().data(2, d))
    tensor = _Message().integer(1, ELEMENT_TYPES[dtype]).data(2, dims)
    return _Message().data(1, name).data(2, _Message().data(1, tensor))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The elements of a dense tensor, row-major; shares the tensor's memory."""
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


class OnnxModel:
    """A model with one graph. Values are named by the caller or numbered."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[_Message] = []
        self._constants: list[tuple[str, torch.Tensor]] = []
        self._inputs: list[_Message] = []
        self._outputs: list[_Message] = []
        self._used: dict[str, int] = {}
        self.operators: dict[str, int] = {}  # how many nodes of each

    def new_name(self, stem: str) -> str:
        """A name that no other value has."""
        count = self._used.get(stem, -1) + 1
        self._used[stem] = count
        return stem if count == 0 else self.new_name(f"{stem}_{count}")

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any]) -> None:
        """Adds a node; attributes that are None are left out."""
        message = _Message().repeated(1, inputs).repeated(2, outputs)
        message.data(3, next(name for name in outputs if name)).data(4, operator)
        for key, value in attributes.items():
            if value is not None:
                message.data(5, _attribute(key, value))
        self._nodes.append(message)
        self.operators[operator] = self.operators.get(operator, 0) + 1

    def constant(self, name: str, value: torch.Tensor) -> None:
        """Adds a constant, which shares the memory of the tensor if this is dense."""
        self._constants.append((name, value.detach().contiguous()))

    def input(self, name: str, dtype: torch.dtype, shape: Sequence[int | str]) -> None:
        self._inputs.append(_declaration(name, dtype, shape))

    def output(self, name: str, dtype: torch.dtype, shape: Sequence[int | str]) -> None:
        self._outputs.append(_declaration(name, dtype, shape))

    def constant_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for _, t in self._constants)

    def fits_in_memory(self) -> bool:
        """Whether `bytes` may be called: protobuf limits the size of a message."""
        return self.constant_bytes() <= _MOST_BYTES_WITHIN

    def bytes(self) -> bytes:
        """The model as a file's contents."""
        return self._serialise([_Message().data(9, _bytes_of(t)) for _, t in self._constants])

    def write(self, path: str) -> None:
        """Writes a file. Large constants go to another file beside it, which has the suffix .data."""
        if self.fits_in_memory():
            with open(path, "wb") as file:
                file.write(self.bytes())
            return
        places, at = [], 0
        with open(path + ".data", "wb") as file:
            for _, tensor in self._constants:
                data = _bytes_of(tensor)
                file.write(data)
                entries = {"location": os.path.basename(path) + ".data", "offset": str(at), "length": str(len(data))}
                message = _Message().integer(14, 1)
                for key, text in entries.items():
                    message.data(13, _Message().data(1, key).data(2, text))
                places.append(message)
                at += len(data)
        with open(path, "wb") as file:
            file.write(self._serialise(places))

    def _serialise(self, contents: Sequence[_Message]) -> bytes:
        graph = _Message().repeated(1, self._nodes).data(2, self._name)
        for (name, tensor), content in zip(self._constants, contents):
            message = _Message()
            for d in tensor.shape:
                message.integer(1, d)
            message.integer(2, ELEMENT_TYPES[tensor.dtype]).data(8, name)
            message.parts += content.parts
            message.size += content.size
            graph.data(5, message)
        graph.repeated(11, self._inputs).repeated(12, self._outputs)
        opset = _Message().data(1, "").integer(2, OPSET)
        return _Message().integer(1, _IR_VERSION).data(2, "tilewright.torch").data(7, graph).data(8, opset).join()
