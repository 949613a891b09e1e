"""InferenceSession and IOBinding."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from . import _arrays, _tilewright
from ._errors import InvalidArgument, NoSuchFile, RuntimeException
from ._options import RunOptions, SessionOptions, check_providers
from ._ortvalue import OrtValue, check_device
from ._tilewright import KvCache


class NodeArg(NamedTuple):
    """An input or output. Dimensions are numbers, names, or None if they have neither."""

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """What the file says about the model."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def read_model(model: Any) -> str | bytes:
    """A path, or the bytes of a model: of a file's contents or an onnx.ModelProto."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if hasattr(model, "SerializeToString"):
        return model.SerializeToString()
    raise TypeError(f"Unable to load from type '{type(model)}': expected a path, bytes or an onnx.ModelProto")


def call_with_model(model: str | bytes, of_file: Any, of_memory: Any, *args: Any) -> Any:
    """Calls one of the module's two functions; names a missing file."""
    if isinstance(model, bytes):
        return of_memory(model, *args)
    try:
        return of_file(model, *args)
    except RuntimeException as error:
        if os.path.exists(model):
            raise
        raise NoSuchFile(error.message, error.hint) from None


def is_compiled_file(model: str | bytes) -> bool:
    """Whether it is the path of a file of `tilewright compile`: of any ELF file, which no model is."""
    if isinstance(model, bytes) or not os.path.isfile(model):
        return False
    with open(model, "rb") as file:
        return file.read(4) == b"\x7fELF"


class InferenceSession:
    """A compiled model. Any number of threads may run it at the same time: each has its own buffers."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """`path_or_bytes`: a path, the file's bytes, or an onnx.ModelProto; or the path of a compiled file, for which
        options of the compilation are refused. Models run on the CPU whatever `providers` says."""
        self._model = read_model(path_or_bytes)
        for name in kwargs:
            if name not in ("enable_fallback", "disabled_optimizers", "read_config_from_model"):
                raise TypeError(f"InferenceSession has no argument '{name}'")
        check_providers(providers)
        self._options = sess_options if sess_options is not None else SessionOptions()
        if is_compiled_file(self._model):
            options = self._options._load_options()
            self._runner = _tilewright.load_file(
                self._model, options, options.threads, bool(self._options.copy_weights)
            )
        else:
            options = self._options._compile_options()
            self._runner = call_with_model(
                self._model, _tilewright.compile_file, _tilewright.compile_memory, options, options.threads
            )
        self._run = self._runner.run
        if self._options.enable_profiling:
            self._runner.record()
        inputs, outputs = self._runner.inputs(), self._runner.outputs()
        unnamed = {f"{name}_d{k}" for name, _, dims, _ in inputs for k in range(len(dims))}
        names = {n for _, _, _, dim_names in inputs for n in dim_names} - unnamed - {""}
        self._inputs = [_node_arg(io, names) for io in inputs]
        self._outputs = [_node_arg(io, names) for io in outputs]
        self._types = {name: code for name, code, _, _ in inputs + outputs}
        self._held = frozenset(self._runner.cached_outputs())
        # Outputs of types that NumPy lacks.
        self._exotic = {name: code for name, code, _, _ in outputs if not _arrays.has_numpy_type(code)}

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
        kv_cache: KvCache | None = None,
    ) -> list[np.ndarray]:
        """Runs on arrays by input name. Returns the named outputs; all of them for None or an empty list.

        `kv_cache`: of new_kv_cache. The inputs that it holds need no arrays, and their outputs go to it."""
        feeds = input_feed if type(input_feed) is dict else dict(input_feed)
        arrays = self._run(output_names, feeds, None if run_options is None else run_options._flag, kv_cache)
        if self._exotic:
            held = self._held if kv_cache is not None else ()
            names = output_names or [o.name for o in self._outputs if o.name not in held]
            arrays = [_arrays.named(a, self._types[n]) for a, n in zip(arrays, names)]
        return arrays

    def new_kv_cache(self, rows: int = 0) -> KvCache:
        """An empty cache for the inputs that outputs extend, of a session with the option `kv_cache`.

        `rows`: how many to reserve memory for; more make it grow.

            session = tilewright.compile("decoder.onnx", kv_cache=True)
            cache = session.new_kv_cache(2048)
            logits, = session.run(["logits"], {"input_ids": prompt, "attention_mask": ones}, kv_cache=cache)
        """
        return self._runner.new_kv_cache(rows)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As run, with OrtValues."""
        flag = None if run_options is None else run_options._flag
        arrays = self._run(output_names, dict(input_dict_ort_values), flag)
        names = output_names or [o.name for o in self._outputs]
        return [OrtValue(a, self._types[n]) for a, n in zip(arrays, names)]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs with the bound inputs and outputs."""
        iobinding._execute(None if run_options is None else run_options._flag)

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def get_inputs(self) -> list[NodeArg]:
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Empty: initialisers are constants."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(**self._runner.info())

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {"CPUExecutionProvider": {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """Checks the names; the model stays on the CPU."""
        check_providers(providers)

    def get_session_options(self) -> SessionOptions:
        return self._options

    def disable_fallback(self) -> None:
        """Accepted without effect."""

    def enable_fallback(self) -> None:
        """Accepted without effect."""

    def end_profiling(self) -> str:
        """Writes a Chrome trace of the runs since the session was created, and ends recording. Returns the path:
        SessionOptions.profile_file_prefix, the time, '.json'; '' without SessionOptions.enable_profiling. The file is a
        list of events, a thread for each session that ran at the same time as others."""
        traces = self._runner.recorded()
        if not traces:
            return ""
        events = []
        for thread, text in enumerate(traces):
            for event in json.loads(text)["traceEvents"]:
                events.append({**event, "cat": "Session" if event["name"] == "run" else "Node", "tid": thread})
        path = f"{self._options.profile_file_prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(events, file, indent=0)
        return path

    def __call__(self, *args: Any, **feeds: Any) -> list[np.ndarray]:
        """session(x, y) or session(x=x, y=y): all outputs."""
        if len(args) > len(self._inputs):
            raise InvalidArgument(f"the model has {len(self._inputs)} inputs, and {len(args)} were given")
        for io, value in zip(self._inputs, args):
            if io.name in feeds:
                raise InvalidArgument(f"input '{io.name}' is given twice")
            feeds[io.name] = value
        return self.run(None, feeds)


def _node_arg(io: tuple[str, int, list[int], list[str]], names: set[str]) -> NodeArg:
    name, code, dims, dim_names = io
    shape = [d if d >= 0 else n if n in names else None for d, n in zip(dims, dim_names)]
    return NodeArg(name, _arrays.onnx_type(code), shape)


class _Pointer:
    """Memory of the caller, by address, for NumPy."""

    def __init__(self, address: int, shape: Sequence[int], dtype: np.dtype) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype.str,
            "shape": tuple(int(d) for d in shape),
            "data": (int(address), False),
        }


class IOBinding:
    """Inputs and outputs of runs, bound by name. Bound outputs are written to directly where their memory is aligned to
    64 bytes, as that of ortvalue_from_shape_and_type is."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._input_names = [i.name for i in session._inputs]
        self._output_names = [o.name for o in session._outputs]
        self._inputs: dict[str, Any] = {}
        self._targets: dict[str, Any] = {}  # True: a new array in each run
        self._results: dict[str, OrtValue] = {}

    def _check(self, name: str, names: list[str], what: str) -> None:
        if name not in names:
            raise InvalidArgument(f"the model has no {what} '{name}'", f"the {what}s: {', '.join(names)}")

    def _memory(self, name: str, element_type: Any, shape: Sequence[int], address: int) -> OrtValue:
        is_number = isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool)
        code = (
            _arrays.code_of_onnx_number(int(element_type))
            if is_number
            else _arrays.code_of_dtype(element_type)
        )
        self._check_type(name, code)
        return OrtValue(np.asarray(_Pointer(address, shape, _arrays.storage_dtype(code))), code)

    def _check_type(self, name: str, code: int) -> None:
        expected = self._session._types[name]
        if code != expected:
            raise InvalidArgument(
                f"'{name}' is bound to {_arrays.onnx_type(code)}, and is {_arrays.onnx_type(expected)}"
            )

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array; its memory is read in every run."""
        self._check(name, self._input_names, "input")
        array, code = _arrays.as_input(arr_on_cpu, self._session._types[name])
        self._check_type(name, code)
        self._inputs[name] = OrtValue(array, code)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Binds memory by address; the caller keeps it alive."""
        self._check(name, self._input_names, "input")
        check_device(device_type)
        self._inputs[name] = self._memory(name, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._check(name, self._input_names, "input")
        self._check_type(name, ortvalue._code)
        self._inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Requests an output: in new memory, or in memory of the given address and shape."""
        self._check(name, self._output_names, "output")
        check_device(device_type)
        if buffer_ptr is None:
            self._targets[name] = True
            return
        if element_type is None or shape is None:
            raise InvalidArgument(f"output '{name}' is bound to an address without a type and a shape")
        self._targets[name] = self._memory(name, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._check(name, self._output_names, "output")
        self._check_type(name, ortvalue._code)
        self._targets[name] = ortvalue

    def _execute(self, flag: Any) -> None:
        if not self._targets:
            raise InvalidArgument("no output is bound", "call bind_output")
        targets = [self._targets.get(name) for name in self._output_names]
        arrays = self._session._runner.run_bound(
            [self._inputs.get(name) for name in self._input_names],
            [t._array if isinstance(t, OrtValue) else t for t in targets],
            flag,
        )
        types = self._session._types
        self._results = {
            name: target if isinstance(target, OrtValue) else OrtValue(array, types[name])
            for name, target, array in zip(self._output_names, targets, arrays)
            if target is not None
        }

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs of the last run, in the order in which they were bound."""
        return [self._results[name] for name in self._targets if name in self._results]

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """As arrays; without a copy, since they are in host memory."""
        return [value.numpy() for value in self.get_outputs()]

    def synchronize_inputs(self) -> None:
        """Without effect: runs are synchronous."""

    def synchronize_outputs(self) -> None:
        """Without effect: runs are synchronous."""

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._targets.clear()
        self._results.clear()
