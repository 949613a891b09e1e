"""Models for tests: small ones, written here without the package onnx, and those of `tilewright zoo`."""

import functools
import os
import subprocess
import tempfile

FLOAT, INT64, BOOL, BFLOAT16 = 1, 7, 9, 16
TOOL = os.environ.get("TILEWRIGHT_TOOL", "tilewright")


def _varint(n):
    out = b""
    n &= (1 << 64) - 1
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def _field(number, value):
    """A field of a protobuf message: an integer, bytes or text."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def value(name, dtype, shape):
    """A declaration; dimensions are numbers, names or None."""
    dims = b""
    for d in shape:
        dims += _field(1, b"" if d is None else _field(1, d) if isinstance(d, int) else _field(2, d))
    return _field(1, name) + _field(2, _field(1, _field(1, dtype) + _field(2, dims)))


def node(op, inputs, outputs, domain="", **attributes):
    """A node; attributes are integers, texts or (as bytes) graphs."""
    text = b"".join(_field(1, i) for i in inputs) + b"".join(_field(2, o) for o in outputs)
    text += _field(3, f"{op}_{outputs[0]}") + _field(4, op) + _field(7, domain)
    for name, a in attributes.items():
        number, kind = (3, 2) if isinstance(a, int) else (4, 3) if isinstance(a, str) else (6, 5)
        body = _field(number, a) + _field(20, kind)
        text += _field(5, _field(1, name) + body)
    return text


def graph(nodes, inputs, outputs, name="g"):
    """A GraphProto."""
    return (
        b"".join(_field(1, n) for n in nodes)
        + _field(2, name)
        + b"".join(_field(11, i) for i in inputs)
        + b"".join(_field(12, o) for o in outputs)
    )


def model(main, **info):
    """The bytes of a file. `info`: opset, domains, producer, domain, version, doc, metadata."""
    text = _field(1, 10 if info.get("opset", 17) > 20 else 8) + _field(2, info.get("producer", "test")) + _field(4, info.get("domain", ""))
    text += _field(5, info.get("version", 0)) + _field(6, info.get("doc", "")) + _field(7, main)
    for name, version in {"": info.get("opset", 17), **info.get("domains", {})}.items():
        text += _field(8, _field(1, name) + _field(2, version))
    for key, entry in info.get("metadata", {}).items():
        text += _field(14, _field(1, key) + _field(2, entry))
    return text


def sum_and_relu():
    """sum = x + y, positive = relu(sum); x is [N, 3], y is [?, 3]."""
    main = graph(
        [node("Add", ["x", "y"], ["sum"]), node("Relu", ["sum"], ["positive"])],
        [value("x", FLOAT, ["N", 3]), value("y", FLOAT, [None, 3])],
        [value("sum", FLOAT, ["N", 3]), value("positive", FLOAT, ["N", 3])],
    )
    return model(
        main, producer="me", domain="org.example", version=3, doc="about", metadata={"author": "them", "k": "v"}
    )


def transposed():
    """y = transpose(x), [64, 64]."""
    return model(
        graph([node("Transpose", ["x"], ["y"])], [value("x", FLOAT, [64, 64])], [value("y", FLOAT, [64, 64])])
    )


def negated(dtype, size="N"):
    """y = -x."""
    return model(graph([node("Neg", ["x"], ["y"])], [value("x", dtype, [size])], [value("y", dtype, [size])]))


def nonzero():
    """y = NonZero(x): a shape that depends on the data."""
    return model(graph([node("NonZero", ["x"], ["y"])], [value("x", FLOAT, ["N"])], [value("y", INT64, [1, None])]))


def long_loop():
    """y = x negated `count` times."""
    body = graph(
        [node("Identity", ["go"], ["go_out"]), node("Neg", ["v"], ["v_out"])],
        [value("i", INT64, []), value("go", BOOL, []), value("v", FLOAT, [4])],
        [value("go_out", BOOL, []), value("v_out", FLOAT, [4])],
        "body",
    )
    return model(
        graph(
            [node("Loop", ["count", "", "x"], ["y"], body=body)],
            [value("count", INT64, []), value("x", FLOAT, [4])],
            [value("y", FLOAT, [4])],
        )
    )


@functools.lru_cache(maxsize=None)
def _folder():
    return tempfile.TemporaryDirectory(prefix="tilewright-python-test-")


def folder():
    """A folder that is removed when the tests end."""
    return _folder().name


@functools.lru_cache(maxsize=None)
def zoo(name, *settings):
    """The path of a model of `tilewright zoo`. `settings`: as "batch=0"."""
    path = os.path.join(folder(), "_".join((name, *settings)) + ".onnx")
    command = [TOOL, "zoo", name, "-o", path]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True)
    return path


def of_caller(inputs=("x",), dtype=FLOAT, then=None, **attributes):
    """y = com.example.Own(inputs...), all of one type and the dynamic size N; with `then`, y is that of its result."""
    nodes = [node("Own", inputs, ["t" if then else "y"], "com.example", **attributes)]
    if then:
        nodes.append(node(then, ["t"], ["y"]))
    declared = [value(name, dtype, ["N"]) for name in sorted({name for name in inputs if name})]
    return model(graph(nodes, declared, [value("y", dtype, [None])]), domains={"com.example": 1})


def function_library(name="Own"):
    """A file whose function com.example.NAME(v) is v + v."""
    function = _field(1, name) + _field(4, "v") + _field(5, "r") + _field(7, node("Add", ["v", "v"], ["r"]))
    function += _field(9, _field(1, "") + _field(2, 17)) + _field(10, "com.example")
    return _field(1, 8) + _field(25, function)
