#!/usr/bin/env python3
"""Prints src/ops/type_constraints.txt: the element types that ONNX's schemas allow, per operator and version.

  python3 -m venv venv && venv/bin/pip install onnx
  venv/bin/python scripts/onnx_types.py > src/ops/type_constraints.txt

Only inputs are listed: the types of outputs follow from them and from attributes. A line is

  NAME SINCE [INPUT:TYPE ...]

where TYPE is the number of a set of types in the lines "set" at the beginning, after a
type parameter if several inputs must have the same type ("T=3"). A '*' in front of INPUT: any number of inputs of one
type; a '~': any number, each of its own type. Sequences, strings and complex numbers are not in the sets.
"""
import onnx
from onnx import defs

# The names of src/base/dtype.cpp.
NAMES = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16",
         "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
         "bool": "bool", "float8e4m3fn": "f8e4m3fn", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2",
         "float8e5m2fnuz": "f8e5m2fnuz", "float8e8m0": "f8e8m0", "int4": "i4", "uint4": "u4", "float4e2m1": "f4e2m1",
         "int2": "i2", "uint2": "u2"}
ORDER = list(NAMES.values())


def tensor_types(types):
    """Of "tensor(float)", "seq(tensor(float))", ...: the supported element types of the tensors."""
    names = {NAMES.get(t[len("tensor("):-1]) for t in types if t.startswith("tensor(")}
    return tuple(sorted(names - {None}, key=ORDER.index))


def main():
    schemas = sorted((s for s in defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated),
                     key=lambda s: (s.name, s.since_version))
    sets, lines = {}, []
    for s in schemas:
        parameters = {c.type_param_str: tensor_types(c.allowed_type_strs) for c in s.type_constraints}
        fields = [s.name, str(s.since_version)]
        for i in s.inputs:
            parameter = i.type_str if i.type_str in parameters else ""
            types = parameters[parameter] if parameter else tensor_types([i.type_str])
            number = sets.setdefault(types, len(sets))
            variadic = i.option == defs.OpSchema.FormalParameterOption.Variadic
            mark = "" if not variadic else "*" if i.is_homogeneous else "~"
            fields.append(f"{mark}{i.name}:{parameter}={number}" if parameter else f"{mark}{i.name}:{number}")
        lines.append(" ".join(fields))
    print(f"# Element types that the inputs of ONNX's operators may have: the schemas of onnx {onnx.__version__}, opset "
          f"{defs.onnx_opset_version()}.")
    print("# Written by scripts/onnx_types.py, which says what a line means.")
    print(f"opset {defs.onnx_opset_version()}")
    for types, number in sets.items():
        print("set", number, *types)
    print("\n".join(lines))


main()
