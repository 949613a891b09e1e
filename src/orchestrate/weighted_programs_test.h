#pragma once
// Programs whose weights are constants, for tests of what happens to products with weights.

#include <cmath>
#include <string>

#include "program/program.h"

namespace tilewright::test {

/// Values of both signs between -scale and scale; bytes have all of theirs.
inline Tensor numbers(const Program& p, ValueId v, double scale) {
    Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
    const bool byte = t.dtype() == DType::U8 || t.dtype() == DType::I8;
    for (int64_t i = 0; i < t.count(); ++i)
        t.set(i, byte ? static_cast<double>(i * 37 % 251 - (t.dtype() == DType::I8 ? 128 : 0))
                      : std::sin(static_cast<double>(i) * 1.7) * scale);
    return t;
}

/// The program, whose inputs with names that start with "w" become constants.
inline Program parsed(const std::string& text) {
    Program p = parse_program("program p {\n" + text + "}\n");
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs)
        if (p.values[v].name.starts_with('w'))
            p.constants.emplace(v, numbers(p, v, 0.25));
        else
            inputs.push_back(v);
    p.inputs = std::move(inputs);
    return p;
}

}  // namespace tilewright::test
