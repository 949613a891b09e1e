#pragma once
// Faults that are planted in compilations.

#include <algorithm>
#include <memory>
#include <vector>

#include "compile/pipeline.h"
#include "compile/unit.h"
#include "driver/bisect/kernels.h"
#include "program/program.h"

namespace tilewright::bisect {

/// The primitives of a program that add up, in order.
inline std::vector<Primitive*> sums(Program& p) {
    std::vector<Primitive*> out;
    for (Primitive& q : p.primitives)
        if (q.expr() != nullptr && q.expr()->reducer == Reducer::Sum) out.push_back(&q);
    return out;
}

/// The sum number `which`, or the last one, becomes a maximum. False: there is none.
inline bool break_sum(Program& p, size_t which) {
    const std::vector<Primitive*> all = sums(p);
    if (!all.empty()) all[std::min(which, all.size() - 1)]->expr()->reducer = Reducer::Max;
    return !all.empty();
}

/// What the first sum of a kernel's stages stores becomes `f(body, it)`. False: there is none.
template <class F>
bool change_result(TileProgram& kernel, const F& f) {
    const std::vector<Primitive*> all = sums(kernel.stages);
    if (all.empty()) return false;
    const DType stored = kernel.stages.values[all[0]->outputs[0]].dtype;
    ScalarBody& body = all[0]->expr()->epilogue;
    if (body.empty()) body.set_root(body.acc(stored));
    body.set_root(f(body, body.root()));
    return true;
}
inline bool scale_result(TileProgram& kernel) {
    return change_result(kernel, [](ScalarBody& body, ScalarId r) {
        return body.binary(ScalarOp::Mul, r, body.constant(body[r].dtype, 1.5));
    });
}
inline bool round_to_bf16(TileProgram& kernel) {
    return change_result(
        kernel, [](ScalarBody& body, ScalarId r) { return body.cast(body[r].dtype, body.cast(DType::BF16, r)); });
}

/// A compilation in which the machine code of one kernel is that of another tile program.
inline Compilation with_code_of(const Compilation& c, size_t kernel, const TileProgram& other) {
    auto impl = copy_of(c.model->impl());
    impl->code.at(kernel) = cpu::compile(other, c.model->target());
    Compilation out = c;
    out.model = std::make_shared<CompiledModel>(std::move(impl));
    return out;
}

/// The first read of a tensor that is laid out has its last index mirrored. False: nothing is laid out.
inline bool mirror_last_index(Unit& unit) {
    Program& p = unit.grouped.program;
    for (Primitive& q : p.primitives) {
        if (q.expr() == nullptr) continue;
        for (Access& a : q.expr()->accesses) {
            if (p.is_constant(a.value) || unit.layouts.count(a.value) == 0) continue;
            a.index.back() = p.values[a.value].shape.back() - 1 - a.index.back();
            return true;
        }
    }
    return false;
}

}  // namespace tilewright::bisect
