"""Compiles ONNX models to machine code for the host CPU, and runs them.

Takes ONNX Runtime's calls: ``import tilewright as ort``. docs/python.md lists the differences.
"""

from ._errors import (
    Busy,
    Cancelled,
    EPFail,
    Error,
    Fail,
    InternalError,
    InvalidArgument,
    InvalidGraph,
    InvalidModel,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,  # noqa: A004
    RuntimeException,
)
from ._operator import Operator, Size, TensorType
from ._options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    get_all_providers,
    get_available_providers,
    get_device,
)
from ._ortvalue import OrtValue
from ._session import InferenceSession, IOBinding, KvCache, ModelMetadata, NodeArg
from ._tilewright import version as _version
from ._tools import Explanation, Tuning, bench, compile, explain, load, tune  # noqa: A004

__version__: str = _version()


def get_version_string() -> str:
    """The version of the library."""
    return __version__


__all__ = [
    "Busy",
    "Cancelled",
    "EPFail",
    "Error",
    "ExecutionMode",
    "ExecutionOrder",
    "Explanation",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InternalError",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidModel",
    "InvalidProtobuf",
    "KvCache",
    "ModelMetadata",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "Operator",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "Size",
    "TensorType",
    "Tuning",
    "__version__",
    "bench",
    "compile",
    "explain",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "load",
    "tune",
]
