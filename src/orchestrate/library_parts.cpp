#include "orchestrate/library_parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "cost/annotate_options.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/kernel_group.h"
#include "program/transform/substitute.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

namespace {

/// Makes kernels of a cut: of what depends on constants alone, of each sum, and of what runs between the same sums,
/// grouped by rows.
class Parts {
  public:
    Parts(const Program& kernel, const KernelCut& cut, const Target& target, Precision precision, KernelSet& kernels,
          const std::vector<bool>& constant)
        : cut_(cut), target_(target), precision_(precision), kernels_(kernels) {
        for (size_t k = 0; k < constant.size(); ++k)
            if (constant[k]) constant_.insert(kernel.inputs[k]);
        for (const ValueId v : kernel.inputs) numbers_.emplace(v, numbers_.size());
        for (const ValueId v : kernel.outputs) numbers_.emplace(v, numbers_.size());
        out_.given = numbers_.size();
    }

    LibraryParts run() {
        const std::vector<size_t> levels = levels_of_primitives();
        const size_t last = *std::max_element(levels.begin(), levels.end());
        const KernelGroup once = of_constants();
        if (!once.primitives.empty()) generate(once, true);
        for (size_t level = 0; level <= last; ++level) {
            KernelGroup rest;
            for (const PrimitiveId id : cut_.stages.primitives.ids())
                if (levels[id.index()] == level && !is_sum(id) && !is_in(once.primitives, id))
                    rest.primitives.push_back(id);
            if (!rest.primitives.empty()) generate(rest, false);
            for (const PrimitiveId id : cut_.sums)
                if (levels[id.index()] == level) {
                    KernelBody sum = extract(cut_.stages, {{id}, {{}}});
                    out_.parts.push_back({std::move(sum.stages), numbers(sum.tensors), std::nullopt, false});
                }
        }
        return std::move(out_);
    }

  private:
    static bool is_in(const std::vector<PrimitiveId>& all, PrimitiveId id) {
        return std::find(all.begin(), all.end(), id) != all.end();
    }
    bool is_sum(PrimitiveId id) const { return is_in(cut_.sums, id); }

    /// Primitives in front of the sums that are the same in every run.
    KernelGroup of_constants() const {
        KernelGroup out;
        std::set<ValueId> known = constant_;
        for (const PrimitiveId id : cut_.stages.primitives.ids()) {
            const Primitive& p = cut_.stages.primitives[id];
            const ValueId result = p.outputs[0];
            const std::vector<ValueId> inputs = p.inputs();
            if (is_sum(id) || inputs.empty() || numbers_.count(result) != 0 ||
                !std::ranges::all_of(inputs, [&](ValueId v) { return known.count(v) != 0; }) ||
                !names_of(alone(cut_.stages, id)).empty())
                continue;
            known.insert(result);
            out.primitives.push_back(id);
        }
        return out;
    }

    /// Per primitive: the sums on the longest way to it.
    std::vector<size_t> levels_of_primitives() const {
        const auto producers = cut_.stages.producers();
        std::vector<size_t> out(cut_.stages.primitives.size());
        for (const PrimitiveId id : cut_.stages.primitives.ids())
            for (const ValueId v : cut_.stages.primitives[id].inputs())
                if (const PrimitiveId from = producers[v])
                    out[id.index()] = std::max(out[id.index()], out[from.index()] + (is_sum(from) ? 1 : 0));
        return out;
    }

    /// Kernels of the primitives, of those together that share rows.
    void generate(const KernelGroup& all, bool once) {
        const KernelBody body = extract(cut_.stages, all);
        std::map<ValueId, ValueId> outside;  // of values of the body
        for (size_t k = 0; k < body.stages.inputs.size(); ++k) outside[body.stages.inputs[k]] = body.tensors[k];
        for (size_t k = 0; k < all.primitives.size(); ++k)
            outside[body.stages.primitives[PrimitiveId(k)].outputs[0]] =
                cut_.stages.primitives[all.primitives[k]].outputs[0];
        for (const KernelGroup& group : fuse_rows(body.stages)) {
            KernelBody part = extract(body.stages, group);
            for (ValueId& v : part.tensors) v = outside.at(v);
            TileProgram tiles =
                annotate(gpu_schedule(part.stages, part.row_axes, target_, precision_), annotate_options(target_));
            tiles.name = cut_.stages.name + " (part)";
            const size_t kernel = kernels_.add(std::move(tiles));
            out_.parts.push_back({std::move(part.stages), numbers(part.tensors), kernel, once});
        }
    }

    std::vector<size_t> numbers(const std::vector<ValueId>& values) {
        std::vector<size_t> out;
        for (const ValueId v : values) {
            const auto [it, fresh] = numbers_.try_emplace(v, out_.given + out_.between.size());
            if (fresh) out_.between.push_back(cut_.stages.values[v]);
            out.push_back(it->second);
        }
        return out;
    }

    const KernelCut& cut_;
    const Target& target_;
    const Precision precision_;
    KernelSet& kernels_;
    std::set<ValueId> constant_;         ///< inputs
    std::map<ValueId, size_t> numbers_;  ///< of tensors
    LibraryParts out_;
};

}  // namespace

size_t LibraryParts::library_kernels() const {
    return static_cast<size_t>(std::count_if(parts.begin(), parts.end(), [](const Part& p) { return !p.kernel; }));
}

size_t LibraryParts::kernels_once() const {
    return static_cast<size_t>(std::count_if(parts.begin(), parts.end(), [](const Part& p) { return p.once; }));
}

std::optional<LibraryParts> library_parts(const Program& stages, const Target& target, Precision precision,
                                          const LibraryRefusal& refusal, KernelSet& kernels,
                                          const std::vector<bool>& constant) {
    const auto found = cut_at_sums(stages, precision, refusal);
    const auto* cut = std::get_if<KernelCut>(&found);
    if (cut == nullptr) return std::nullopt;
    return Parts(stages, *cut, target, precision, kernels, constant).run();
}

}  // namespace tilewright
