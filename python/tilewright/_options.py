"""ONNX Runtime's options, and what they mean to Tilewright."""

from __future__ import annotations

import difflib
import enum
import logging
import os
import warnings
from typing import Any, Iterable

from . import _tilewright
from ._errors import InvalidArgument, NotImplemented
from ._operator import Operator, made

_NUMERICS = {"default": 0, "strict": 1, "fast": 2}
_PRECISIONS = {"f32": 0, "bf16": 1, "auto": 2, "f32-fast": 3, "f16": 4}
_ORCHESTRATORS = {"greedy": 0, "optimal": 1}
_LAYOUTS = {"rule": 0, "none": 1, "joint": 2}
_DENORMALS = "session.set_denormal_as_zero"


class GraphOptimizationLevel(enum.IntEnum):
    """ORT_DISABLE_ALL means strict numerics; the others make no difference."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted without effect: kernels are parallel themselves."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Fields:
    """An object whose assignable attributes are those of `_defaults`."""

    _defaults: dict[str, Any] = {}
    _private: tuple[str, ...] = ()

    def __init__(self) -> None:
        for name, value in self._defaults.items():
            object.__setattr__(self, name, value.copy() if isinstance(value, (dict, list)) else value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults and name not in self._private:
            near = difflib.get_close_matches(name, self._defaults, 1)
            raise AttributeError(
                f"{type(self).__name__} has no field '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")
            )
        object.__setattr__(self, name, value)


class SessionOptions(_Fields):
    """Options of a compilation and its sessions. docs/python.md says what each field does."""

    intra_op_num_threads: int
    inter_op_num_threads: int
    graph_optimization_level: GraphOptimizationLevel
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    enable_profiling: bool
    profile_file_prefix: str
    optimized_model_filepath: str
    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    use_deterministic_compute: bool
    use_per_session_threads: bool
    # Tilewright's own.
    isa: str
    numerics: str
    precision: str
    keep_f32: list[str]
    max_error: float
    check_values: bool
    kv_cache: bool
    orchestrate: str
    measure: bool
    measure_seconds: float
    tuned: bool
    layouts: str
    layout_seconds: float
    sample_sizes: dict[str, int]
    ranges: dict[str, str]
    cache: bool
    cache_folder: str
    operators: list[Operator | str | os.PathLike]
    functions: list[Any]
    output_file: str
    copy_weights: bool

    _defaults = {
        "intra_op_num_threads": 0,
        "inter_op_num_threads": 0,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "enable_profiling": False,
        "profile_file_prefix": "onnxruntime_profile_",
        "optimized_model_filepath": "",
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
        "isa": "",
        "numerics": "default",
        "precision": "f32",
        "keep_f32": [],
        "max_error": 0.0,
        "check_values": False,
        "kv_cache": False,
        "orchestrate": "greedy",
        "measure": False,
        "measure_seconds": 60.0,
        "tuned": False,
        "layouts": "rule",
        "layout_seconds": 0.0,
        "sample_sizes": {},
        "ranges": {},
        "cache": True,
        "cache_folder": "",
        "operators": [],
        "functions": [],
        "output_file": "",
        "copy_weights": False,
        "_dims": {},
        "_entries": {},
    }

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a named dimension of the inputs."""
        self._dims[name] = int(size)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """'session.set_denormal_as_zero' is honoured; other entries have no effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise InvalidArgument(f"SessionOptions has no configuration entry '{key}'")
        return self._entries[key]

    def _refuse(self, what: str, hint: str = "") -> None:
        raise NotImplemented(f"SessionOptions.{what} is not supported", hint)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        self._refuse("add_free_dimension_override_by_denotation", "use add_free_dimension_override_by_name")

    def register_custom_ops_library(self, path: str) -> None:
        """Adds the operators of a shared library (docs/custom-operators.md); those for ONNX Runtime are refused."""
        self.operators = [*self.operators, path]

    def add_initializer(self, name: str, value: Any) -> None:
        self._refuse("add_initializer")

    def add_external_initializers(self, names: Any, values: Any) -> None:
        self._refuse("add_external_initializers")

    def _load_options(self) -> _tilewright.CompileOptions:
        """The options for a file that is compiled already. Refuses those that would have to be known before."""
        for name in ("isa", "numerics", "precision", "keep_f32", "max_error", "check_values", "kv_cache", "orchestrate",
                     "measure", "tuned", "layouts", "sample_sizes", "ranges", "functions", "output_file"):  # fmt: skip
            if getattr(self, name) != self._defaults[name]:
                raise InvalidArgument(f"the model is compiled already, and '{name}' is an option of its compilation")
        if self._dims:
            raise InvalidArgument("the model is compiled already: its dimensions cannot be fixed")
        return self._compile_options()

    def _severity(self) -> int:
        return 2 if self.log_severity_level < 0 else int(self.log_severity_level)

    def _compile_options(self) -> _tilewright.CompileOptions:
        """The options of the C++ interface."""
        if self.optimized_model_filepath:
            self._refuse("optimized_model_filepath", "models are compiled to machine code, not to ONNX")
        o = _tilewright.CompileOptions()
        o.threads = int(self.intra_op_num_threads)
        o.isa = self.isa
        o.dims = dict(self._dims)
        o.ranges = {name: str(text) for name, text in self.ranges.items()}
        o.check_values = bool(self.check_values)
        o.kv_cache = bool(self.kv_cache)
        o.measure = bool(self.measure)
        o.measure_seconds = float(self.measure_seconds)
        o.tuned = bool(self.tuned)
        o.layouts = _choice("layouts", self.layouts, _LAYOUTS)
        o.layout_seconds = float(self.layout_seconds)
        o.sample_sizes = {k: int(v) for k, v in self.sample_sizes.items()}
        o.cache = bool(self.cache)
        o.cache_folder = os.fspath(self.cache_folder)
        o.keep_subnormals = self._entries.get(_DENORMALS) == "0"
        o.numerics = _choice("numerics", self.numerics, _NUMERICS)
        o.precision = _choice("precision", self.precision, _PRECISIONS)
        o.keep_f32 = [self.keep_f32] if isinstance(self.keep_f32, str) else list(self.keep_f32)
        o.max_error = float(self.max_error)
        own, o.operator_libraries = made(self.operators)
        o.set_operators(own)
        o.output_file = os.fspath(self.output_file)
        for functions in self.functions:
            content = _bytes_of(functions)
            o.add_functions("" if content is not None else os.fspath(functions), content or b"")
        o.orchestrator = _choice("orchestrate", self.orchestrate, _ORCHESTRATORS)
        if int(self.graph_optimization_level) == GraphOptimizationLevel.ORT_DISABLE_ALL:
            o.numerics = _NUMERICS["strict"]
        severity = self._severity()
        logger = logging.getLogger("tilewright")
        levels = {1: logging.INFO, 2: logging.WARNING}

        def log(level: int, text: str) -> None:
            if level >= severity:
                logger.log(levels.get(level, logging.ERROR), "%s", text)

        o.log = log
        return o


def _bytes_of(functions: Any) -> bytes | None:
    """The bytes of a function library; None for a path."""
    if hasattr(functions, "SerializeToString"):
        return functions.SerializeToString()
    return bytes(functions) if isinstance(functions, (bytes, bytearray, memoryview)) else None


def _choice(field: str, value: Any, values: dict[str, int]) -> int:
    if value not in values:
        raise InvalidArgument(f"{field} is {value!r}", f"expected one of {', '.join(map(repr, values))}")
    return values[value]


class RunOptions(_Fields):
    """Options of a run. Setting `terminate`, from any thread, ends the runs that use these options."""

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool

    _defaults = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "_entries": {},
    }
    _private = ("terminate", "_flag")

    def __init__(self) -> None:
        super().__init__()
        self._flag = _tilewright.Flag()

    @property
    def terminate(self) -> bool:
        return self._flag.value

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._flag.value = bool(value)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Accepted without effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        if key not in self._entries:
            raise InvalidArgument(f"RunOptions has no configuration entry '{key}'")
        return self._entries[key]


_PROVIDERS = [
    "TensorrtExecutionProvider",
    "NvTensorRTRTXExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "ROCMExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
    "ArmNNExecutionProvider",
    "ACLExecutionProvider",
    "RknpuExecutionProvider",
    "CANNExecutionProvider",
    "XnnpackExecutionProvider",
    "TvmExecutionProvider",
    "AzureExecutionProvider",
    "CPUExecutionProvider",
]


def get_all_providers() -> list[str]:
    """The names that are accepted."""
    return list(_PROVIDERS)


def get_available_providers() -> list[str]:
    """['CPUExecutionProvider']"""
    return ["CPUExecutionProvider"]


def get_device() -> str:
    """'CPU'"""
    return "CPU"


def check_providers(providers: Iterable[Any] | None) -> None:
    """Accepts ONNX Runtime's names with a warning if they are not the CPU's. Raises InvalidArgument for others."""
    for entry in providers or []:
        name = entry[0] if isinstance(entry, (tuple, list)) else entry
        if name not in _PROVIDERS:
            near = difflib.get_close_matches(str(name), _PROVIDERS, 1)
            raise InvalidArgument(
                f"there is no execution provider {name!r}", f"did you mean '{near[0]}'?" if near else ""
            )
        if name != "CPUExecutionProvider":
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: 'CPUExecutionProvider'",
                stacklevel=4,
            )
