#pragma once
// Random kernels with random schedules, for the tests of all executors of tile programs.

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "layout/propagate.h"
#include "layout/random_layout_test.h"
#include "program/random_program.h"
#include "program/transform/inline.h"
#include "tile/random_schedule.h"

namespace tilewright {

/// An unscheduled kernel and its inputs.
struct Case {
    Program stages;
    std::vector<Tensor> inputs;
};

/// Turns some elementwise primitives into epilogues of the reductions that they read.
inline Program with_epilogues(Program p) {
    const auto producers = p.producers();
    const auto consumers = p.consumers();
    std::set<PrimitiveId> gone;
    for (const PrimitiveId id : p.primitives.ids()) {
        TensorExpr* e = p.primitives[id].expr();
        for (size_t k = 0; k < e->accesses.size(); ++k) {
            const ValueId v = e->accesses[k].value;
            const PrimitiveId from = producers[v];
            if (!from || consumers[v].size() != 1 || gone.count(from) != 0 ||
                std::find(p.outputs.begin(), p.outputs.end(), v) != p.outputs.end())
                continue;
            auto fused = fuse_epilogue(*p.primitives[from].expr(), *e, k, p.values[v]);
            if (!fused) continue;
            *e = std::move(*fused);
            gone.insert(from);
            break;
        }
    }
    IndexVector<PrimitiveId, Primitive> kept;
    for (const PrimitiveId id : p.primitives.ids())
        if (gone.count(id) == 0) kept.push_back(p.primitives[id]);
    p.primitives = std::move(kept);
    return p;
}

/// Stores some values in other layouts: stages get output indices.
inline Program with_layouts(const Program& p, uint64_t seed) {
    LayoutChoice choice(seed);
    LayoutRequests requests;
    for (const Primitive& primitive : p.primitives)
        if (choice.upto(0, 1) == 0)
            requests.written[primitive.outputs[0]] = choice.layout(p.values[primitive.outputs[0]].shape.size(), true);
    PropagateOptions options;
    options.fixed = row_major_values(p);
    return apply_layouts(p, plan_layouts(p, requests, options));
}

/// A random program as a kernel: constants become inputs, and some intermediate values become outputs too (all of them
/// if `all_given`, so that no value needs a buffer).
inline Case random_case(uint64_t seed, int size, bool all_given, const RandomProgramOptions& options = {}) {
    Case c;
    c.stages = random_program(seed, size, options);
    if (seed % 2 == 0) c.stages = with_epilogues(std::move(c.stages));
    if (seed % 3 == 0) c.stages = with_layouts(c.stages, seed);
    c.inputs = random_inputs(c.stages, seed);
    for (const auto& [v, tensor] : c.stages.constants) {
        c.stages.inputs.push_back(v);
        c.inputs.push_back(tensor);
    }
    c.stages.constants.clear();
    std::mt19937_64 rng(seed);
    for (const Primitive& p : c.stages.primitives) {
        const ValueId v = p.outputs[0];
        const auto& outputs = c.stages.outputs;
        if (std::find(outputs.begin(), outputs.end(), v) == outputs.end() && (all_given || rng() % 4 == 0))
            c.stages.outputs.push_back(v);
    }
    return c;
}

struct ScheduledCase {
    Case given;
    TileProgram program;
};

/// A random case and a random schedule of it whose buffers have constant bounds.
inline ScheduledCase random_scheduled_case(uint64_t seed, int size, const RandomScheduleOptions& schedule = {},
                                           const RandomProgramOptions& options = {}) {
    ScheduledCase out;
    out.given = random_case(seed, size, false, options);
    try {
        out.program = random_schedule(out.given.stages, seed, schedule);
        plan_buffers(out.program);
    } catch (const InternalError&) {  // a value between stages has a dynamic size
        out.given = random_case(seed, size, true, options);
        out.program = random_schedule(out.given.stages, seed, schedule);
    }
    return out;
}

}  // namespace tilewright
