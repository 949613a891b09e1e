#pragma once
// Programs with the loops that recurrences are, and their inputs.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "program/builder.h"

namespace tilewright::test {

struct Recurrences {
    int loops = 2;             ///< every second one from the last slice to the first
    int64_t hidden = 20;       ///< slices of [batch, hidden]
    bool chained = false;      ///< each begins with the state that the one before ends with
    bool different = false;    ///< each computes something else
    bool conditional = false;  ///< whether a loop goes on is the body's word, which is always yes
};

/// For loop k, x [steps, batch, hidden] (sizes open), h [batch, hidden], weights W:
///     x_k = x * (k + 1) / 4;   for slices t of x_k: h = tanh(t + h W), y = -h;   outputs: the last h, the ys stacked
inline Program recurrences(const Recurrences& options) {
    const int64_t n = options.hidden;
    Program p;
    p.name = "recurrences";
    Builder b(p);
    const Expr steps = symbol("steps"), batch = symbol("batch");
    const ValueId x = b.input("x", DType::F32, {steps, batch, n});
    const ValueId h = b.input("h", DType::F32, {batch, n});
    std::vector<ValueId> outputs;
    for (int k = 0; k < options.loops; ++k) {
        b.set_source(fmt::format("input{}", k), "Mul");
        const ValueId scaled = b.binary(ScalarOp::Mul, x, 0.25 * (k + 1));
        auto step = std::make_shared<Program>();
        Builder s(*step);
        s.input("iteration", DType::I64, {});
        const ValueId go = options.conditional ? s.input("go", DType::Bool, {}) : ValueId();
        const ValueId before = s.input("before", DType::F32, {batch, n});
        const ValueId slice = s.input("slice", DType::F32, {batch, n});
        Tensor w(DType::F32, {n, n});
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>((i * 37 + k) % 19 - 9) / (3.0 * n));
        ValueId sum = s.binary(ScalarOp::Add, slice, s.matmul(before, s.constant(w)));
        if (options.different) sum = s.binary(ScalarOp::Add, sum, 0.125 * k);
        const ValueId after = s.unary(ScalarOp::Tanh, sum);
        const ValueId y = s.unary(ScalarOp::Neg, after);
        if (options.conditional)
            s.set_outputs({s.copy(go), after, y});
        else
            s.set_outputs({after, y});
        Loop loop;
        loop.trip_count = steps;
        loop.has_condition = options.conditional;
        if (options.conditional) loop.condition = b.constant(Tensor::of<int>(DType::Bool, {}, {1}));
        loop.carried = {options.chained && k > 0 ? outputs[outputs.size() - 2] : h};
        loop.scan_inputs = {{scaled, 0, k % 2 == 1}};
        loop.scan_outputs = {{0, k % 2 == 1}};
        loop.body = step;
        b.set_source(fmt::format("loop{}", k), "Loop");
        const Expr trips = options.conditional ? b.fresh_symbol("trips") : steps;
        const std::vector<ValueId> out =
            b.emit_control(std::move(loop), {{DType::F32, {batch, n}}, {DType::F32, {trips, batch, n}}}, "steps");
        outputs.insert(outputs.end(), out.begin(), out.end());
    }
    // A reader of everything.
    b.set_source("join", "Add");
    ValueId join = outputs[0];
    for (size_t i = 2; i < outputs.size(); i += 2) join = b.binary(ScalarOp::Add, join, outputs[i]);
    outputs.push_back(join);
    b.set_outputs(outputs);
    return p;
}

inline std::vector<Tensor> recurrence_inputs(int64_t steps, int64_t batch, int64_t hidden) {
    std::vector<Tensor> out;
    for (const Shape& shape : {Shape{steps, batch, hidden}, Shape{batch, hidden}}) {
        out.emplace_back(DType::F32, shape);
        for (int64_t i = 0; i < out.back().count(); ++i)
            out.back().set(i, static_cast<double>((i * 7919 + batch) % 101 - 50) * 0.02);
    }
    return out;
}

}  // namespace tilewright::test
