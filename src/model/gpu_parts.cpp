#include "model/gpu_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/numbers.h"
#include "program/transform/substitute.h"
#include "runtime/arena.h"

namespace tilewright {

namespace {

class PartsPlan : public cuda::LibraryPlan {
  public:
    PartsPlan(const LibraryParts& parts, const Bindings& sizes,
              const std::vector<std::shared_ptr<const cuda::LibraryPlan>>& libraries,
              const GeneratedKernels& generated) {
        size_t library = 0;
        for (const LibraryParts::Part& p : parts.parts) {
            Part part;
            part.tensors = p.tensors;
            if (p.kernel) {
                const GpuGenerated g = generated(*p.kernel);
                if (g.text->counters) throw RuntimeError("a part splits sums, and shares counters with other sessions");
                part.kernel = g.kernel;
                for (const Expr& x : g.text->grid) part.blocks *= evaluate(x, sizes);
                for (const Var v : g.text->names) part.names.push_back(sizes.at(v));
                part.own_bytes = g.text->scratch_bytes * part.blocks;
            } else {
                part.library = libraries.at(library++);
                part.own_bytes = part.library->workspace_bytes();
            }
            part.once = p.once;
            parts_.push_back(std::move(part));
        }
        place(parts, sizes);
    }

    int64_t workspace_bytes() const override { return bytes_; }
    int64_t prepared_bytes() const override { return prepared_bytes_; }
    void prepare(const cuda::Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const override {
        launch(true, stream, tensors, workspace);
    }
    void run(const cuda::Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const override {
        launch(false, stream, tensors, workspace);
    }

  private:
    void launch(bool once, const cuda::Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const {
        const auto at = [&](int64_t offset) { return static_cast<std::byte*>(workspace) + offset; };
        const auto pointer = [&](size_t t) -> void* {
            if (t < given_) return tensors[t];
            const Between& b = between_.at(t - given_);
            return b.once ? static_cast<std::byte*>(tensors.at(given_)) + b.offset : at(b.offset);
        };
        for (const Part& part : parts_) {
            if (part.once != once) continue;
            std::vector<void*> pointers;
            for (const size_t t : part.tensors) pointers.push_back(pointer(t));
            if (part.library) {
                part.library->run(stream, pointers, at(part.own));
                continue;
            }
            if (part.own_bytes > 0) pointers.push_back(at(part.own));
            std::vector<void*> arguments;
            for (void*& p : pointers) arguments.push_back(static_cast<void*>(&p));
            std::vector<long long> names = part.names;
            for (long long& n : names) arguments.push_back(&n);
            stream.launch(part.kernel, part.blocks, arguments);
        }
    }

    struct Part {
        std::vector<size_t> tensors;
        std::shared_ptr<const cuda::LibraryPlan> library;  ///< null: generated
        cuda::Gpu::Kernel kernel;
        std::vector<long long> names;  ///< its arguments behind pointers
        int64_t blocks = 1;
        int64_t own = 0, own_bytes = 0;  ///< its workspace
        bool once = false;
    };
    struct Between {
        int64_t offset = 0;
        bool once = false;  ///< in the prepared memory, in place of the workspace
    };

    /// Places what lies between parts, and their workspaces.
    void place(const LibraryParts& parts, const Bindings& sizes) {
        given_ = parts.given;
        between_.resize(parts.between.size());
        for (const Part& p : parts_)
            for (const size_t t : p.tensors)
                if (p.once && t >= given_) between_[t - given_].once = true;
        std::vector<BufferLife> lives;
        for (size_t b = 0; b < parts.between.size(); ++b) {
            const Value& v = parts.between[b];
            const auto bytes = static_cast<int64_t>(byte_size(v.dtype)) * element_count(evaluate(v.shape, sizes));
            lives.push_back({between_[b].once ? 0 : bytes, -1, -1});
            if (!between_[b].once) continue;
            between_[b].offset = prepared_bytes_;
            prepared_bytes_ += ceil_of(std::max<int64_t>(1, bytes), cuda::kTensorAlignment) * cuda::kTensorAlignment;
        }
        for (size_t p = 0; p < parts_.size(); ++p) {
            const auto step = static_cast<int64_t>(p);
            for (const size_t t : parts_[p].tensors) {
                if (t < parts.given) continue;
                BufferLife& life = lives[t - parts.given];
                if (life.first_step < 0) life.first_step = step;
                life.last_step = step;
            }
        }
        for (size_t p = 0; p < parts_.size(); ++p)
            lives.push_back({parts_[p].own_bytes, static_cast<int64_t>(p), static_cast<int64_t>(p)});
        const MemoryPlan plan = plan_memory(lives, cuda::kTensorAlignment);
        for (size_t b = 0; b < between_.size(); ++b)
            if (!between_[b].once) between_[b].offset = plan.offsets[b];
        for (size_t p = 0; p < parts_.size(); ++p) parts_[p].own = plan.offsets[parts.between.size() + p];
        bytes_ = plan.total;
    }

    std::vector<Part> parts_;
    size_t given_ = 0;  ///< tensors of the kernel
    std::vector<Between> between_;
    int64_t bytes_ = 0, prepared_bytes_ = 0;
};

}  // namespace

std::optional<GpuPartCandidates> part_candidates(
    const LibraryParts& parts, const Bindings& sizes, Precision precision, const GpuLibraries& libraries,
    const std::function<void(const std::string& library, const std::string& why)>& refused, size_t most) {
    GpuPartCandidates out;
    for (const LibraryParts::Part& p : parts.parts) {
        if (p.kernel) continue;
        const auto stages = at_sizes(p.stages, sizes);
        if (!stages) return std::nullopt;
        out.push_back(library_candidates(*stages, precision, libraries, refused, most));
        if (out.back().empty()) return std::nullopt;
    }
    return out;
}

std::shared_ptr<const cuda::LibraryPlan> plan_of_parts(
    const LibraryParts& parts, const Bindings& sizes,
    const std::vector<std::shared_ptr<const cuda::LibraryPlan>>& libraries, const GeneratedKernels& generated) {
    return std::make_shared<const PartsPlan>(parts, sizes, libraries, generated);
}

std::optional<GpuChosenParts> fastest_parts(
    const LibraryParts& parts, const Bindings& sizes, const GpuPartCandidates& candidates,
    const GeneratedKernels& generated,
    const std::function<std::optional<double>(const GpuChosenParts& made)>& seconds) {
    const size_t others = parts.parts.size() - parts.library_kernels() - parts.kernels_once();
    std::vector<size_t> chosen(candidates.size(), 0);
    std::optional<GpuChosenParts> best;
    std::set<std::vector<size_t>> tried;
    const auto attempt = [&](const std::vector<size_t>& choice) {
        if (!tried.insert(choice).second) return;
        std::vector<std::shared_ptr<const cuda::LibraryPlan>> plans;
        std::vector<std::string> names;
        for (size_t s = 0; s < choice.size(); ++s) {
            plans.push_back(candidates[s][choice[s]].plan);
            names.push_back(candidates[s][choice[s]].name);
        }
        GpuChosenParts made{
            fmt::format("{}, and {} generated kernel{}", fmt::join(names, " and "), others, others == 1 ? "" : "s"),
            plan_of_parts(parts, sizes, plans, generated), choice};
        const auto took = seconds(made);
        if (!took || (best && *took >= best->seconds)) return;
        made.seconds = *took;
        best = std::move(made);
        chosen = choice;
    };
    for (size_t s = 0; s < candidates.size(); ++s)
        for (size_t c = 0; c < candidates[s].size(); ++c) {
            std::vector<size_t> choice = chosen;
            choice[s] = c;
            attempt(choice);
        }
    return best;
}

}  // namespace tilewright
