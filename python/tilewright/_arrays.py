"""Element types, and arrays of types that NumPy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _tilewright
from ._errors import InvalidArgument

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

# (name in the C interface, name in ONNX's type strings, number in onnx.TensorProto, NumPy's or ml_dtypes' name), by
# tilewright_dtype.
_TYPES = [
    ("f32", "float", 1, "float32"),
    ("f64", "double", 11, "float64"),
    ("f16", "float16", 10, "float16"),
    ("bf16", "bfloat16", 16, "bfloat16"),
    ("i8", "int8", 3, "int8"),
    ("i16", "int16", 5, "int16"),
    ("i32", "int32", 6, "int32"),
    ("i64", "int64", 7, "int64"),
    ("u8", "uint8", 2, "uint8"),
    ("u16", "uint16", 4, "uint16"),
    ("u32", "uint32", 12, "uint32"),
    ("u64", "uint64", 13, "uint64"),
    ("bool", "bool", 9, "bool"),
    ("f8e4m3fn", "float8e4m3fn", 17, "float8_e4m3fn"),
    ("f8e4m3fnuz", "float8e4m3fnuz", 18, "float8_e4m3fnuz"),
    ("f8e5m2", "float8e5m2", 19, "float8_e5m2"),
    ("f8e5m2fnuz", "float8e5m2fnuz", 20, "float8_e5m2fnuz"),
    ("f8e8m0", "float8e8m0", 24, "float8_e8m0fnu"),
    ("i4", "int4", 22, "int4"),
    ("u4", "uint4", 21, "uint4"),
    ("f4e2m1", "float4e2m1", 23, "float4_e2m1fn"),
    ("i2", "int2", 26, "int2"),
    ("u2", "uint2", 25, "uint2"),
]
BF16 = 3
BOOL = 12
_FIRST_EXOTIC = 13
_PACKED_SIGNED = (18, 21)  # int4, int2
_PACKED_UNSIGNED = (19, 22)
_BY_NUMPY_NAME = {entry[3]: code for code, entry in enumerate(_TYPES)}
_BY_ONNX_NUMBER = {entry[2]: code for code, entry in enumerate(_TYPES)}


def has_numpy_type(code: int) -> bool:
    """Whether NumPy itself has the element type."""
    return code != BF16 and code < _FIRST_EXOTIC


def onnx_type(code: int) -> str:
    """'tensor(float)'"""
    return f"tensor({_TYPES[code][1]})"


def onnx_number(code: int) -> int:
    """The type's number in onnx.TensorProto."""
    return _TYPES[code][2]


def code_of_onnx_number(number: int) -> int:
    """The inverse of onnx_number."""
    if number not in _BY_ONNX_NUMBER:
        raise InvalidArgument(f"{number} is not the number of an element type of ONNX that Tilewright has")
    return _BY_ONNX_NUMBER[number]


def code_of_dtype(dtype: Any) -> int:
    """The element type of a NumPy dtype, those of ml_dtypes included."""
    name = np.dtype(dtype).name
    if name not in _BY_NUMPY_NAME:
        raise InvalidArgument(f"elements of type {name} are not supported")
    return _BY_NUMPY_NAME[name]


def storage_dtype(code: int) -> np.dtype:
    """The dtype in which NumPy holds the elements' bytes."""
    if has_numpy_type(code):
        return np.dtype(_TYPES[code][3])
    return np.dtype(np.uint16 if code == BF16 else np.uint8)


def named(array: np.ndarray, code: int) -> np.ndarray:
    """The array under ml_dtypes' type if NumPy lacks its own and ml_dtypes is installed; the bytes are shared."""
    if has_numpy_type(code) or ml_dtypes is None or not hasattr(ml_dtypes, _TYPES[code][3]):
        return array
    return array.view(getattr(ml_dtypes, _TYPES[code][3]))


def bytes_view(array: np.ndarray, code: int) -> np.ndarray:
    """The array under a type that NumPy has itself; the bytes are shared."""
    return array if has_numpy_type(code) else array.view(storage_dtype(code))


def as_array(value: Any) -> tuple[np.ndarray, int]:
    """A NumPy array under a type of NumPy's own, and its element type; shares the memory where that is possible."""
    if isinstance(value, np.ndarray):
        code = code_of_dtype(value.dtype)
        if code in _PACKED_SIGNED:
            return value.astype(np.int8).view(np.uint8), code
        if code in _PACKED_UNSIGNED:
            return value.astype(np.uint8), code
        return bytes_view(value, code), code
    if hasattr(value, "detach") and getattr(value, "requires_grad", False):  # DLPack refuses such tensors of torch
        value = value.detach()
    if hasattr(value, "resolve_conj"):
        value = value.resolve_conj().resolve_neg()
    if hasattr(value, "__dlpack__"):
        return _tilewright.import_array(value)
    array = np.asarray(value)
    return array, code_of_dtype(array.dtype)


def as_input(value: Any, expected: int) -> tuple[np.ndarray, int]:
    """A dense array for an input of type `expected`, and its element type. Lists become arrays of that type."""
    value = getattr(value, "_array", value)  # OrtValue
    if isinstance(value, (list, tuple, int, float, bool)):
        value = np.asarray(value, dtype=named(np.zeros(0, storage_dtype(expected)), expected).dtype)
    if not any(hasattr(value, name) for name in ("__dlpack__", "__array__", "__array_interface__")):
        raise InvalidArgument(
            f"an input is of type {type(value).__name__}", "give a NumPy array, or an array with DLPack"
        )
    array, code = as_array(value)
    # Unsigned integers stand for types that NumPy lacks.
    if not has_numpy_type(expected) and has_numpy_type(code) and array.dtype == storage_dtype(expected):
        code = expected
    return np.ascontiguousarray(array).reshape(array.shape), code
