"""What ONNX Runtime does not have: options as arguments, times, explanations."""

from __future__ import annotations

import html
import json
from typing import Any, Mapping

import numpy as np

from . import _arrays, _tilewright
from ._errors import InvalidArgument
from ._options import SessionOptions
from ._session import InferenceSession, call_with_model, read_model


def _range_text(given: Any) -> str:
    """The text of a range: (1, 512) and (1, None) are 1..512 and 1.., (1, 512, [8, (128, 3)]) is 1..512:8,128@3."""
    if isinstance(given, str):
        return given
    if isinstance(given, range):
        raise InvalidArgument(f"dims has {given}", "write a tuple: (least, most) or (least, most, samples)")
    least, most, *samples = given
    text = f"{least}..{'' if most is None else most}"
    weighted = [s if isinstance(s, tuple) else (s, 1) for s in (samples[0] if samples else [])]
    return text + (":" if weighted else "") + ",".join(f"{s}@{w}" for s, w in weighted)


def _options(options: dict[str, Any]) -> SessionOptions:
    made = SessionOptions()
    options = dict(options)
    made.intra_op_num_threads = options.pop("threads", 0)
    for name, size in options.pop("dims", {}).items():
        if isinstance(size, (str, tuple, range)):
            made.ranges[name] = _range_text(size)
        else:
            made.add_free_dimension_override_by_name(name, size)
    if options.pop("keep_subnormals", False):
        made.add_session_config_entry("session.set_denormal_as_zero", "0")
    for name, value in options.items():
        if name not in ("isa", "numerics", "precision", "keep_f32", "max_error", "check_values", "kv_cache", "orchestrate",
                        "measure", "measure_seconds", "tuned", "layouts", "layout_seconds", "sample_sizes", "cache", "cache_folder", "operators", "functions",
                        "output_file", "copy_weights", "log_severity_level"):
            raise TypeError(f"there is no option '{name}'")
        setattr(made, name, value)
    return made


def compile(model: Any, **options: Any) -> InferenceSession:  # noqa: A001
    """Compiles a model: a path, the bytes of a file, or an onnx.ModelProto.

    Options: threads, dims (by named dimension: a size that fixes it; or the range in which it stays dynamic, (least,
    most), (least, most, samples), "1..512:8,64,128@3" or "32..512/32" of multiples of 32), isa ('avx2',
    'avx512-bf16', ...: `tilewright run --help` lists them), numerics ('default', 'strict', 'fast'), precision ('f32',
    'bf16' for products on AMX or AVX512_BF16, 'f16' on AVX512_FP16, 'auto'), keep_f32 (patterns of names of nodes and tensors whose products stay in f32), max_error (of
    bf16 and f16, relative to each output's largest magnitude), keep_subnormals, check_values, kv_cache (decoders: see
    InferenceSession.new_kv_cache), orchestrate ('greedy', 'optimal'), measure, measure_seconds, tuned (True: use the
    plan of a tuning), layouts ('rule', 'none', 'joint' with loops), layout_seconds (for measurements of 'joint'),
    sample_sizes (typical sizes of dynamic dimensions), cache (True), cache_folder, operators (a list of Operator and of
    paths of shared libraries), functions (paths, bytes or onnx.ModelProto of files whose functions define operators),
    output_file (the compiled model is also written there, for load), log_severity_level.

        session = tilewright.compile("model.onnx", threads=2)
        logits, = session(pixels)
    """
    return InferenceSession(model, _options(options))


def load(path: Any, **options: Any) -> InferenceSession:
    """Loads a file of `tilewright compile` or of the option output_file. Nothing is compiled. Its machine code runs in
    this process: load files of trusted origin only. A model is compiled, as by compile.

    Options: threads, operators (those of the compilation), copy_weights (into memory of the process, on huge pages: faster
    runs, a longer start, and nothing that processes share), log_severity_level.

        tilewright.compile("model.onnx", isa="avx2", output_file="model.so")
        session = tilewright.load("model.so", threads=2)
    """
    return compile(path, **options)


class Explanation:
    """A plan: its kernels, their primitives and times. Notebooks show the page."""

    def __init__(self, text: str, report: str, page: str) -> None:
        self.text, self.json, self.html = text, report, page

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:800px;border:0"></iframe>'


def explain(model: Any, seconds: float = 0, **options: Any) -> Explanation:
    """What `tilewright explain` prints of a model or session. `seconds`: run the plan and the two it is compared with
    for this long each; 0: times are estimates. `options`: as of compile."""
    if isinstance(model, InferenceSession):
        if options:
            raise InvalidArgument("a session has its options already")
        source, given = model._model, model._options
    else:
        source, given = read_model(model), _options(options)
    return Explanation(
        *call_with_model(
            source, _tilewright.explain_file, _tilewright.explain_memory, given._compile_options(), float(seconds)
        )
    )


class Tuning:
    """What a tuning has found: `default_ms` and `tuned_ms` are medians of whole runs (None where they were not compared),
    `kept` says whether the option `tuned` uses the plan, and `report` has a dictionary for each kernel."""

    def __init__(self, default_ms: float, tuned_ms: float, kept: bool, text: str, report: str) -> None:
        self.default_ms, self.tuned_ms = default_ms or None, tuned_ms or None
        self.kept, self.text, self.report = kept, text, json.loads(report)

    def __repr__(self) -> str:
        return self.text


def tune(model: Any, budget: str | int = "60s", **options: Any) -> Tuning:
    """Measures schedules of a model's kernels, as `tilewright tune` (docs/tuning.md). `budget`: a time ("90s", "10m"), or
    a number of candidates. `options`: as of compile; `sample_sizes` are the dimensions of whole runs. Results are kept: a
    plan that is faster is used by compilations with these options and `tuned=True`, and an interrupt loses nothing.

        tilewright.tune("model.onnx", "5m", threads=2)
        session = tilewright.compile("model.onnx", threads=2, tuned=True)
    """
    return Tuning(
        *call_with_model(
            read_model(model), _tilewright.tune_file, _tilewright.tune_memory, _options(options)._compile_options(),
            str(budget),
        )
    )  # fmt: skip


def random_feeds(session: InferenceSession, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """An array per input: uniform in [0, 1), integers and booleans 0 or 1. Dynamic dimensions are those of `sizes`, by
    name, else 1."""
    sizes = dict(sizes or {})
    random = np.random.default_rng(seed)
    feeds = {}
    used = set()
    for io in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(str(d), 1) for d in io.shape]
        used.update(d for d in io.shape if isinstance(d, str))
        code = session._types[io.name]
        dtype = _arrays.named(np.zeros(0, _arrays.storage_dtype(code)), code).dtype
        values = random.random(shape) if "float" in dtype.name else random.integers(0, 2, shape)
        feeds[io.name] = np.asarray(values).astype(dtype)
    unknown = set(sizes) - used
    if unknown:
        raise InvalidArgument(
            f"no input has a dimension '{sorted(unknown)[0]}'", f"the named dimensions: {', '.join(sorted(used))}"
        )
    return feeds


def bench(
    model: Any,
    feeds: Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    iterations: int = 100,
    warmup: int = 3,
    seed: int = 0,
    **options: Any,
) -> dict[str, float]:
    """Times runs of a model or session on `feeds`, or on random inputs with these sizes of dynamic dimensions. Returns
    min, median, mean, p90, p99 and max in milliseconds."""
    if iterations < 1 or warmup < 0:
        raise InvalidArgument(f"{iterations} iterations after {warmup}: expected at least 1 after at least 0")
    session = model if isinstance(model, InferenceSession) else compile(model, **options)
    given = dict(feeds) if feeds is not None else random_feeds(session, sizes, seed)
    ms = 1e3 * np.array(session._runner.time(given, warmup, iterations))
    return {
        "min": float(ms.min()),
        "median": float(np.median(ms)),
        "mean": float(ms.mean()),
        "p90": float(np.percentile(ms, 90)),
        "p99": float(np.percentile(ms, 99)),
        "max": float(ms.max()),
    }
