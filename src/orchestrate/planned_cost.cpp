#include "orchestrate/planned_cost.h"

#include <algorithm>

#include "base/error.h"
#include "program/transform/dead_code.h"

namespace tilewright {

namespace {

/// The program with what folds as constants, whose contents are anything.
Program folded(const RewriteContext& context) {
    Program p = context.program();
    IndexVector<PrimitiveId, Primitive> kept;
    for (Primitive& q : p.primitives) {
        const ValueId v = q.outputs.empty() ? ValueId() : q.outputs[0];
        if (q.expr() != nullptr && context.foldable(v) && !context.is_output(v))
            p.constants.emplace(v, Tensor(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()), false));
        else
            kept.push_back(std::move(q));
    }
    p.primitives = std::move(kept);
    return eliminate_dead_code(std::move(p));
}

}  // namespace

RewriteCost planned_cost(OrchestrateOptions options) {
    TW_CHECK(options.scheduling.machine, "estimates need a machine");
    Scheduling how = options.scheduling;
    how.rule = options.target;
    how.measure = nullptr;
    return [options, schedules = std::make_shared<Schedules>(std::move(how))](const RewriteContext& context) {
        Program p = folded(context);
        if (options.fuse) p = fuse_greedily(p);
        if (options.layouts) {
            const ChosenLayouts chosen = choose_layouts(p, options.target, Boundary::Free);
            p = lay_out(chosen.program, chosen.values, options.target, Contents::Anything);
        }
        std::vector<KernelGroup> groups = group_rows(p, options.fuse);
        if (options.fuse && schedules->how().chains()) groups = group_chains(p, std::move(groups), *schedules);
        double seconds = 0;
        for (const KernelGroup& g : groups) {  // what is no expression costs the same in all
            const KernelBody body = extract(p, g);
            seconds += (g.chain ? schedules->chain(body)->seconds : schedules->kernel(body).seconds) + kKernelSeconds;
        }
        return seconds;
    };
}

}  // namespace tilewright
