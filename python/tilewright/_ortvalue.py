"""OrtValue: a tensor in host memory."""

from __future__ import annotations

import math
from typing import Any, Sequence

import numpy as np

from . import _arrays, _tilewright
from ._errors import InvalidArgument, NotImplemented


def check_device(device_type: str) -> None:
    """Raises NotImplemented unless the device is the CPU."""
    if device_type.lower() != "cpu":
        raise NotImplemented(f"device '{device_type}': tensors are in host memory", "use device 'cpu'")


class OrtValue:
    """A dense tensor. `numpy()` and DLPack share its memory."""

    __slots__ = ("_array", "_code")

    def __init__(self, array: np.ndarray, code: int) -> None:
        """For the package's own use: call one of the class methods."""
        self._array = array  # under a type that NumPy has itself
        self._code = code

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Shares the memory of the array; an array that is not dense is copied."""
        check_device(device_type)
        array, code = _arrays.as_array(np.asarray(numpy_obj))
        return cls(np.ascontiguousarray(array).reshape(array.shape), code)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """Takes the bytes of the array for elements of another type of the same size."""
        code = _arrays.code_of_onnx_number(onnx_element_type)
        stored = _arrays.storage_dtype(code)
        if stored.itemsize != data.dtype.itemsize:
            raise InvalidArgument(
                f"elements of {data.dtype.itemsize} bytes cannot be taken for {_arrays.onnx_type(code)}"
            )
        return cls(np.ascontiguousarray(data).reshape(data.shape).view(stored), code)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any = None,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Uninitialised memory, aligned so that runs write to it directly. `element_type`: a NumPy type, or the number
        of one in onnx.TensorProto."""
        check_device(device_type)
        is_number = isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool)
        code = _arrays.code_of_onnx_number(int(element_type)) if is_number else _arrays.code_of_dtype(element_type)
        return cls(_tilewright.empty_array([int(d) for d in shape], code), code)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Shares the memory of an array with DLPack, or of a DLPack capsule."""
        array, code = (
            _arrays.as_array(data) if hasattr(data, "__dlpack__") else _tilewright.import_array(data)
        )
        if not array.flags.c_contiguous:
            raise InvalidArgument("the array is not dense and row-major", "copy it first")
        return cls(array, code)

    def numpy(self) -> np.ndarray:
        """The tensor as a NumPy array that shares its memory. Types that NumPy lacks need the package ml_dtypes;
        without it, their bytes are unsigned integers."""
        return _arrays.named(self._array, self._code)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if copy:
            return np.array(array, dtype=dtype, copy=True)
        if copy is False and dtype is not None and np.dtype(dtype) != array.dtype:
            raise ValueError(f"a change of type from {array.dtype} to {np.dtype(dtype)} needs a copy")
        return array if dtype is None else np.asarray(array, dtype=dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """A DLPack capsule that shares the memory."""
        if not _arrays.has_numpy_type(self._code):
            raise BufferError(f"{self.data_type()} has no DLPack type here")
        if kwargs.get("stream", 0) is None:
            del kwargs["stream"]
        return self._array.__dlpack__(**kwargs)

    def to_dlpack(self) -> Any:
        """As __dlpack__."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.ctypes.data

    def device_name(self) -> str:
        return "cpu"

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        """'tensor(float)'"""
        return _arrays.onnx_type(self._code)

    def element_type(self) -> int:
        """The type's number in onnx.TensorProto."""
        return _arrays.onnx_number(self._code)

    def tensor_size_in_bytes(self) -> int:
        return math.prod(self._array.shape) * self._array.dtype.itemsize

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def update_inplace(self, data: Any) -> None:
        """Copies an array or OrtValue of the same type and size into this memory."""
        array, code = (data._array, data._code) if isinstance(data, OrtValue) else _arrays.as_array(data)
        if code != self._code or array.size != self._array.size:
            raise InvalidArgument(
                f"{_arrays.onnx_type(code)} of shape {list(array.shape)} does not fit {self.data_type()} of shape "
                f"{self.shape()}"
            )
        np.copyto(self._array, array.reshape(self._array.shape))

    def __repr__(self) -> str:
        return f"OrtValue({self.data_type()}, shape={self.shape()})"
