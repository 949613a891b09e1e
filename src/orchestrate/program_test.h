#pragma once
// Programs as text, for the tests of this folder.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "program/program.h"
#include "program/random_program.h"

namespace tilewright::test {

/// Parses a program. Inputs whose names begin with "w" become constants, the model's weights.
inline Program with_weights(const std::string& text) {
    Program p = parse_program(text);
    std::vector<ValueId> inputs;
    for (const ValueId v : p.inputs) {
        if (p.values[v].name.front() != 'w') {
            inputs.push_back(v);
            continue;
        }
        Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>((i * 37) % 19 - 9) * 0.125);
        p.constants.emplace(v, t);
    }
    p.inputs = std::move(inputs);
    return p;
}

/// A convolution with three taps by Winograd's F(2, 3) along rows of 2 * tiles pixels: tiles v, products m, results y.
/// `then` is its epilogue, e.g. "then max(acc, 0.0) ". `more` is inserted before the outputs.
struct TiledConvolution {
    int64_t channels = 32, results = 24, rows = 16, tiles = 16;
    std::string then = {}, more = {}, outputs = "y";

    std::string text() const {
        return fmt::format(R"(program convolution {{
  input x: f32[{0}, {2}, {4}]
  input w: f32[4, {1}, {0}]
  v: f32[4, {0}, {2}, {3}] = [4, {0}, {2}, {3}] sum(i4 < 4) weigh(table{{1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1}}(index(4*i0 + i4)), @0) where @0 = x[i1, i2, 2*i3 + i4]
  m: f32[4, {1}, {2}, {3}] = [4, {1}, {2}, {3}] sum(i4 < {0}) mul(@0, @1) where @0 = w[i0, i1, i4], @1 = v[i0, i4, i2, i3]
  y: f32[{1}, {2}, {5}] = [{1}, {2}, {5}] sum(i3 < 4) weigh(table{{1, 1, 1, 0, 0, 1, -1, -1}}(index(4*(i2 % 2) + i3)), @0) {6}where @0 = m[i3, i0, i1, i2 // 2]
{7}  output {8}
}})",
                           channels, results, rows, tiles, 2 * tiles + 2, 2 * tiles, then, more, outputs);
    }
};

inline ValueId value_of(const Program& p, const std::string& name) {
    for (const ValueId v : p.values.ids())
        if (p.values[v].name == name) return v;
    ADD_FAILURE() << "no value " << name << " in\n" << print(p);
    return {};
}

/// "[2, 14, 14, 256]"
inline std::string shape_of(const Program& p, const std::string& name) {
    return to_string(std::span<const Expr>(p.values[value_of(p, name)].shape));
}

/// "y = [2] neg(@0) where @0 = x[i0]" for each primitive.
inline std::vector<std::string> primitives(const Program& p) {
    std::vector<std::string> out;
    for (const Primitive& q : p.primitives)
        out.push_back(p.values[q.outputs[0]].name + " = " + (q.expr() ? print(p, *q.expr()) : "something else"));
    return out;
}

/// Expects that the pass preserves the program's outputs.
inline void expect_same(const Program& before, const Program& after, uint64_t seed = 1) {
    ASSERT_EQ(verify(after), std::vector<std::string>()) << print(after);
    const std::vector<Tensor> inputs = random_inputs(before, seed);
    EXPECT_LE(largest_difference(interpret(before, inputs), interpret(after, inputs)), 1e-5)
        << "seed " << seed << "\n"
        << print(before) << print(after);
}

}  // namespace tilewright::test
