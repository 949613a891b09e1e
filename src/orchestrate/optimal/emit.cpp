#include "orchestrate/optimal/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/optimal/piece_report.h"
#include "program/transform/dead_code.h"

namespace tilewright::optimal {

namespace {

class Emission {
  public:
    Emission(const PieceChoice& choice, const OrchestrateOptions& options, Schedules& schedules,
             OrchestrationReport& report)
        : choice_(choice),
          p_(choice.program()),
          layouts_(choice.layouts()),
          options_(options),
          schedules_(schedules),
          report_(choice, options, report),
          result_(p_),
          written_(p_.values.size(), false),
          kernel_of_(p_.values.size(), SIZE_MAX) {
        result_.primitives = {};
        for (const Value& v : p_.values) names_.insert(v.name);
        for (const ValueId v : p_.values.ids())
            if (layouts_[v].at_boundary) laid_.emplace(v, layouts_[v].other());
    }

    Emitted run() {
        Emitted out;
        for (const PieceStep& step : choice_.steps()) {
            if (step.alone) {
                result_.primitives.push_back(p_.primitives[step.alone]);
                continue;
            }
            report_.add(step);
            for (const PieceKernel& k : choice_.searched()[step.search].kernels()) {
                add(k, step.piece);
                out.search_of[report_.last_kernel()] = step.search;
            }
        }
        out.grouped = finish();
        return out;
    }

  private:
    ValueId another(ValueId v, bool second) {
        Value copy = result_.values[v];
        for (size_t n = 2; !names_.insert(copy.name).second; ++n)
            copy.name = fmt::format("{}.{}", result_.values[v].name, n);
        written_.push_back(false);
        kernel_of_.push_back(SIZE_MAX);
        const ValueId made = result_.values.push_back(std::move(copy));
        if (second) laid_.emplace(made, layouts_[v].other());
        return made;
    }

    /// The value in the given layout: the value itself in its boundary layout, else another value of the same name.
    ValueId in_layout(ValueId v, bool second) {
        if (!layouts_[v].second.has_value() || second == layouts_[v].at_boundary) return v;
        const auto it = other_.find(v);
        return it != other_.end() ? it->second : other_.emplace(v, another(v, second)).first->second;
    }

    void wrote(ValueId v) {
        written_[v.index()] = true;
        kernel_of_[v.index()] = report_.last_kernel();
    }

    /// Appends the fused stages of a kernel. A value that stays inside it, or that another kernel wrote before, gets a
    /// new name.
    void add(const PieceKernel& k, const Piece& piece) {
        const std::vector<PrimitiveId> members = in_program(piece, k.candidate.covers);
        const std::vector<PlacedValue> reads = in_program(piece, k.candidate.inputs),
                                       writes = in_program(piece, k.candidate.outputs);
        report_.add(k, members, reads, writes);
        if (members.empty()) {
            const ValueId to = in_layout(writes[0].value, writes[0].second);
            Primitive copy = layout_copy(result_, in_layout(reads[0].value, reads[0].second), to);
            result_.primitives.push_back(std::move(copy));
            wrote(to);
            return;
        }
        std::vector<ValueId> outputs;
        outputs.reserve(writes.size());
        for (const PlacedValue& v : writes) outputs.push_back(v.value);
        Part part = part_of(p_, members, outputs, true);
        const Program stages = with_copies(part, fuse_greedily(part.program));
        const std::vector<bool> second = placed(part, layouts_, reads, writes);
        std::map<ValueId, ValueId> made;
        for (const Primitive& stage : stages.primitives) {
            Primitive copy = stage;
            for (Access& a : copy.expr()->accesses) {
                const auto it = made.find(a.value);
                a.value =
                    it != made.end() ? it->second : in_layout(part.whole[a.value.index()], second[a.value.index()]);
            }
            const ValueId local = stage.outputs[0], original = part.whole[local.index()];
            ValueId mine;
            if (std::find(outputs.begin(), outputs.end(), original) != outputs.end())
                mine = in_layout(original, second[local.index()]);
            if (!mine || written_[mine.index()]) mine = another(original, second[local.index()]);
            wrote(mine);
            made[local] = mine;
            copy.outputs = {mine};
            result_.primitives.push_back(std::move(copy));
        }
    }

    Grouped finish() {
        Grouped out;
        out.program = eliminate_dead_code(result_);
        if (options_.layouts)
            out.program =
                lay_out(out.program, laid_, options_.scheduling.target, lay_out_options(options_, Contents::Moved));
        std::vector<KernelGroup> kernels;
        size_t last = SIZE_MAX;
        for (const PrimitiveId id : out.program.primitives.ids()) {
            const Primitive& q = out.program.primitives[id];
            if (q.expr() == nullptr) {
                last = SIZE_MAX;
                continue;
            }
            const size_t kernel = kernel_of_[q.outputs[0].index()];
            if (kernel != last) kernels.emplace_back().chosen = kernel;
            last = kernel;
            kernels.back().primitives.push_back(id);
        }
        const KernelExtractor extracted(out.program);
        for (const KernelGroup& kernel : kernels) append(out, kernel, extracted);
        return out;
    }

    /// Appends the kernel with the rows that its stages share, as a chain, or as several kernels with shared rows: in
    /// the whole program, other readers may require that a value is written that was internal to the candidate.
    void append(Grouped& out, KernelGroup kernel, const KernelExtractor& extracted) {
        kernel.row_axes.resize(kernel.primitives.size());
        const KernelBody body = extracted(kernel);
        const std::vector<KernelGroup> groups = fuse_rows(body.stages);
        if (groups.size() > 1 && schedules_.how().chains()) {
            kernel.chain = true;
            if (schedules_.chain(extracted(kernel))) {
                out.groups.push_back(std::move(kernel));
                return;
            }
        }
        if (groups.size() > 1) report_.add_taken_apart();
        for (KernelGroup group : groups) {
            for (PrimitiveId& id : group.primitives) id = kernel.primitives[id.index()];
            group.chosen = kernel.chosen;
            out.groups.push_back(std::move(group));
        }
    }

    const PieceChoice& choice_;
    const Program& p_;
    const ValueLayouts& layouts_;
    const OrchestrateOptions& options_;
    Schedules& schedules_;
    PlanReport report_;
    Program result_;
    std::vector<bool> written_;      ///< per value of result_
    std::vector<size_t> kernel_of_;  ///< per value: the kernel of the report that computes it
    std::set<std::string> names_;
    std::map<ValueId, Layout> laid_;    ///< of result_
    std::map<ValueId, ValueId> other_;  ///< value of p_ -> its value in the other layout
};

}  // namespace

Emitted emit(const PieceChoice& choice, const OrchestrateOptions& options, Schedules& schedules,
             OrchestrationReport& report) {
    return Emission(choice, options, schedules, report).run();
}

}  // namespace tilewright::optimal
