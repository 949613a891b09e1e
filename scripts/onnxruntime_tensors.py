#!/usr/bin/env python3
"""Runs a model by ONNX Runtime and keeps every tensor of its main graph.

    onnxruntime_tensors.py MODEL FOLDER

FOLDER has inputs.npz, arrays called "0", "1", ..., and inputs.json, a list of their names in the model; outputs.npz and
outputs.json are written in the same form. `tilewright bisect --against onnxruntime` runs it; the tool has its text. Needs onnxruntime alone, and numpy, which that
needs: results of nodes become outputs of the model by appending to its bytes, as protobuf merges what follows.
"""
import json
import os
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """Number and content of each length-delimited field of a protobuf message; other fields are skipped."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            _, at = varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            size, at = varint(data, at)
            yield key >> 3, data[at:at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind}")


def message(number, content):
    """A length-delimited field."""
    size, head = len(content), bytearray([number << 3 | 2])
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + content


def node_results(model):
    """Results of the main graph's nodes that are no outputs yet. ModelProto.graph is field 7; GraphProto has node = 1
    and output = 12; NodeProto has output = 2; ValueInfoProto has name = 1."""
    results, outputs = [], set()
    for number, graph in fields(memoryview(model)):
        if number != 7:
            continue
        for part, content in fields(graph):
            if part == 1:
                results += [bytes(name) for field, name in fields(content) if field == 2]
            elif part == 12:
                outputs.update(bytes(name) for field, name in fields(content) if field == 1)
    return [name for name in dict.fromkeys(results) if name and name not in outputs]


def session_with(onnxruntime, path, added):
    with open(path, "rb") as file:
        model = file.read()
    model += message(7, b"".join(message(12, message(1, name)) for name in added))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path",
                                     os.path.dirname(os.path.abspath(path)))
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def main():
    try:
        import numpy
        import onnxruntime
    except ImportError as error:
        sys.exit(f"{sys.executable} lacks {error.name}")
    path, folder = sys.argv[1:]
    with open(path, "rb") as file:
        added = node_results(file.read())
    session = session_with(onnxruntime, path, added)
    with open(folder + "/inputs.json", encoding="utf-8") as file:
        given = json.load(file)
    with numpy.load(folder + "/inputs.npz") as arrays:
        given = {name: arrays[str(k)] for k, name in enumerate(given)}
    names = [output.name for output in session.get_outputs() if output.type.startswith("tensor(")
             and output.type != "tensor(string)"]
    results = session.run(names, given)
    numpy.savez(folder + "/outputs.npz", **{str(k): result for k, result in enumerate(results)})
    with open(folder + "/outputs.json", "w", encoding="utf-8") as file:
        json.dump(names, file)


if __name__ == "__main__":
    main()
