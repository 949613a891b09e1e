#!/usr/bin/env python3
"""Prints src/ops/type_constraints.txt: the element types that ONNX's schemas allow, per operator and version; with
--contrib, src/ops/contrib_type_constraints.txt: those of ONNX Runtime's schemas for operators of com.microsoft.

  python3 -m venv venv && venv/bin/pip install onnx onnxruntime
  venv/bin/python scripts/onnx_types.py > src/ops/type_constraints.txt
  venv/bin/python scripts/onnx_types.py --contrib > src/ops/contrib_type_constraints.txt

Only inputs are listed: the types of outputs follow from them and from attributes. A line is

  NAME SINCE [INPUT:TYPE ...]

where TYPE is the number of a set of types in the lines "set" at the beginning, after a
type parameter if several inputs must have the same type ("T=3"). A '*' in front of INPUT: any number of inputs of one
type; a '~': any number, each of its own type. NAME begins with the domain unless that is ONNX's. Sequences,
strings and complex numbers are not in the sets.
"""
import sys

import onnx
from onnx import defs

# Operators of com.microsoft (and of ONNX Runtime in the default domain) that are lowered and do not check their types.
CONTRIB = """
    Attention BiasDropout BiasGelu BiasSoftmax BitmaskDropout DequantizeLinear EmbedLayerNormalization FastGelu
    FusedConv FusedGemm FusedMatMul GatherBlockQuantized Gelu GroupQueryAttention MatMulBnb4 MatMulNBits
    MultiHeadAttention NhwcConv NhwcFusedConv QAttention QGemm QuantizeLinear QuickGelu RotaryEmbedding
    SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul""".split()

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


def table(schemas, variadic_option):
    """The sets and the lines of operators: (name, schema) in order."""
    sets, lines = {}, []
    for name, s in schemas:
        parameters = {c.type_param_str: tensor_types(c.allowed_type_strs) for c in s.type_constraints}
        fields = [name, str(s.since_version)]
        for i in s.inputs:
            # ONNX Runtime's schemas spell it otherwise
            type_str = i.type_str if hasattr(i, "type_str") else i.typeStr
            homogeneous = i.is_homogeneous if hasattr(i, "is_homogeneous") else i.isHomogeneous
            parameter = type_str if type_str in parameters else ""
            types = parameters[parameter] if parameter else tensor_types([type_str])
            number = sets.setdefault(types, len(sets))
            mark = "" if i.option != variadic_option else "*" if homogeneous else "~"
            fields.append(f"{mark}{i.name}:{parameter}={number}" if parameter else f"{mark}{i.name}:{number}")
        lines.append(" ".join(fields))
    for types, number in sets.items():
        print("set", number, *types)
    print("\n".join(lines))


def contrib():
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state
    schemas = [("com.microsoft." + s.name, s) for s in state.get_all_operator_schema()
               if s.domain == "com.microsoft" and s.name in CONTRIB]
    schemas += [(s.name, s) for s in state.get_all_operator_schema()
                if s.domain == "" and s.name == "SimplifiedLayerNormalization"]
    print(f"# Element types that the inputs of operators of com.microsoft may have: the schemas of ONNX Runtime "
          f"{onnxruntime.__version__}.")
    print("# Written by scripts/onnx_types.py --contrib, which says what a line means.")
    table(sorted(schemas, key=lambda s: s[0]), state.schemadef.OpSchema.FormalParameterOption.Variadic)


def main():
    if sys.argv[1:] == ["--contrib"]:
        return contrib()
    schemas = sorted((s for s in defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated),
                     key=lambda s: (s.name, s.since_version))
    print(f"# Element types that the inputs of ONNX's operators may have: the schemas of onnx {onnx.__version__}, opset"
          f" {defs.onnx_opset_version()}.")
    print("# Written by scripts/onnx_types.py, which says what a line means.")
    print(f"opset {defs.onnx_opset_version()}")
    table([(s.name, s) for s in schemas], defs.OpSchema.FormalParameterOption.Variadic)


main()
