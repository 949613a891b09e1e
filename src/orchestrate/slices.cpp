#include "orchestrate/slices.h"

#include <algorithm>
#include <set>

#include "orchestrate/elements.h"

namespace tilewright {

namespace {

constexpr int64_t kSlicesPerThread = 4, kRereadPerSlice = 4;

/// The spatial axes along which `index` into a tensor of `shape` moves from slice to slice, outermost first. Nothing
/// where one point of them touches several slices.
///     [56, 36, 56, 64] at [i0, i1, i2, i3]: 56 slices along i0
std::optional<std::vector<size_t>> slice_axes(const TensorExpr& e, const std::vector<Expr>& index,
                                              const std::vector<Expr>& shape, int64_t slices) {
    const auto elements = known_elements(shape);
    if (!elements || *elements % slices != 0) return std::nullopt;
    const int64_t size = *elements / slices;
    Expr flat = 0;
    for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d].constant() + index[d];
    struct Step {
        int64_t by;
        size_t axis;
    };
    std::vector<Step> outer;
    int64_t last = 0;  // offset inside a slice
    for (size_t a = 0; a < e.extents.size(); ++a) {
        const auto linear = linear_in(flat, {VarKind::Axis, static_cast<uint32_t>(a)});
        if (!linear || !linear->coefficient.is_constant() || !e.extents[a].is_constant()) return std::nullopt;
        const int64_t by = linear->coefficient.constant(), extent = e.extents[a].constant();
        flat = linear->rest;
        if (by == 0 || extent == 1) continue;
        if (by < 0) return std::nullopt;
        if (by % size == 0 && a < e.spatial)
            outer.push_back({by, a});
        else
            last += by * (extent - 1);
    }
    if (!flat.is_constant() || flat.constant() < 0 || flat.constant() + last >= size) return std::nullopt;
    std::sort(outer.begin(), outer.end(), [](const Step& a, const Step& b) { return a.by > b.by; });
    int64_t expected = size;
    for (size_t k = outer.size(); k-- > 0;) {
        if (outer[k].by != expected) return std::nullopt;
        expected *= e.extents[outer[k].axis].constant();
    }
    if (expected != *elements) return std::nullopt;
    std::vector<size_t> axes;
    for (const Step& s : outer) axes.push_back(s.axis);
    return axes;
}

/// Removes the loops over these axes. False where one of the statements is not just a loop.
bool without_loops(std::vector<Stmt>& body, const std::set<size_t>& axes) {
    std::vector<Stmt> out;
    for (Stmt& s : body) {
        auto* loop = std::get_if<TileLoop>(&s.kind);
        if (loop != nullptr && !without_loops(loop->body, axes)) return false;
        if (loop == nullptr || axes.count(loop->axis) == 0) {
            out.push_back(std::move(s));
            continue;
        }
        if (loop->stages != 1) return false;
        std::vector<Stmt> inner = std::move(loop->body);
        std::move(inner.begin(), inner.end(), std::back_inserter(out));
    }
    body = std::move(out);
    return true;
}

/// The kernel with these axes of its only stage as outermost parallel loops of step 1.
std::optional<TileProgram> along(TileProgram kernel, const std::vector<size_t>& stage_axes) {
    const PrimitiveId stage(0);
    std::vector<size_t> axes;
    for (const size_t a : stage_axes) axes.push_back(kernel.stage_axes[stage][a]);
    const auto computed = [&](const auto& self, const std::vector<Stmt>& body) -> bool {
        return std::all_of(body.begin(), body.end(), [&](const Stmt& s) {
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) return self(self, loop->body);
            const auto* compute = std::get_if<Compute>(&s.kind);
            return compute == nullptr || std::all_of(stage_axes.begin(), stage_axes.end(), [&](size_t a) {
                       const Micro& m = compute->micro;
                       return m.vector_axis != a && m.registers[a] == 1 && m.virtual_threads[a] == 1;
                   });
        });
    };
    if (!computed(computed, kernel.body) || !without_loops(kernel.body, {axes.begin(), axes.end()}))
        return std::nullopt;
    for (size_t k = axes.size(); k-- > 0;) {
        TileLoop loop;
        loop.axis = axes[k];
        loop.parallel = true;
        loop.body = std::move(kernel.body);
        kernel.body.clear();
        kernel.body.push_back(Stmt{std::move(loop)});
    }
    return verify(kernel).empty() ? std::optional(std::move(kernel)) : std::nullopt;
}

class Slicer {
  public:
    Slicer(const Plan& plan, std::vector<std::optional<TileProgram>>& kernels, const Target& target)
        : plan_(plan), kernels_(kernels), target_(target), readers_(plan.program.consumers()) {}

    std::vector<Slices> run() {
        std::vector<Slices> out;
        for (size_t first = 0; first + 1 < plan_.steps.size(); ++first) {
            size_t count = 1;
            while (handed_on(first + count - 1)) ++count;
            for (; count > 1; --count)
                if (const auto found = taken(first, count)) {
                    out.push_back(*found);
                    first += count - 1;
                    break;
                }
        }
        return out;
    }

  private:
    const KernelCall* call(size_t step) const {
        if (step >= plan_.steps.size()) return nullptr;
        const auto* c = std::get_if<KernelCall>(&plan_.steps[step].what);
        const bool generated = c != nullptr && c->provider.empty() && kernels_[step] &&
                               kernels_[step]->stages.primitives.size() == 1 &&
                               kernels_[step]->stages.outputs.size() == 1;
        return generated ? c : nullptr;
    }

    int64_t bytes(ValueId v) const {
        const auto count = known_elements(plan_.program.values[v].shape);
        return count ? *count * static_cast<int64_t>(byte_size(plan_.program.values[v].dtype)) : 0;
    }

    /// The value that the kernel of a step computes only for the next one, if it exceeds L2.
    std::optional<ValueId> handed_on(size_t step) const {
        const KernelCall *from = call(step), *to = call(step + 1);
        if (from == nullptr || to == nullptr) return std::nullopt;
        const ValueId v = from->tensors.back();
        const std::vector<PrimitiveId>& readers = readers_[v];
        const bool alone = !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](PrimitiveId p) {
            return std::find(to->primitives.begin(), to->primitives.end(), p) != to->primitives.end();
        });
        const auto& outputs = plan_.program.outputs;
        if (!alone || std::find(outputs.begin(), outputs.end(), v) != outputs.end() || bytes(v) <= target_.task_bytes())
            return std::nullopt;
        return v;
    }

    /// The axes of a single-stage kernel that move from slice to slice of its input or output `v`.
    std::optional<std::vector<size_t>> axes_of(size_t step, ValueId v, int64_t slices) const {
        const TileProgram& kernel = *kernels_[step];
        const TensorExpr& e = *kernel.stages.primitives[PrimitiveId(0)].expr();
        const ValueId own = own_name(step, v);
        const std::vector<Expr>& shape = kernel.stages.values[own].shape;
        if (own == kernel.stages.outputs[0]) return slice_axes(e, result_index(e), shape, slices);
        std::optional<std::vector<size_t>> out;
        for (const Access& a : e.accesses) {
            if (a.value != own) continue;
            const auto axes = a.valid.empty() ? slice_axes(e, a.index, shape, slices) : std::nullopt;
            if (!axes || (out && out != axes)) return std::nullopt;
            out = axes;
        }
        return out;
    }

    /// The id of the value in the kernel's stages.
    ValueId own_name(size_t step, ValueId v) const {
        const KernelCall& c = *call(step);
        const Program& stages = kernels_[step]->stages;
        const auto at = static_cast<size_t>(std::find(c.tensors.begin(), c.tensors.end(), v) - c.tensors.begin());
        return at < stages.inputs.size() ? stages.inputs[at] : stages.outputs.at(at - stages.inputs.size());
    }

    /// Bytes of operands that do not vary along the axes.
    int64_t read_anew(size_t step, const std::vector<size_t>& axes) const {
        const TileProgram& kernel = *kernels_[step];
        const TensorExpr& e = *kernel.stages.primitives[PrimitiveId(0)].expr();
        int64_t sum = 0;
        for (size_t i = 0; i < kernel.stages.inputs.size(); ++i) {
            const bool moves = std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) {
                return a.value == kernel.stages.inputs[i] && std::any_of(axes.begin(), axes.end(), [&](size_t axis) {
                           return std::any_of(a.index.begin(), a.index.end(), [&](Expr x) {
                               return uses(x, {VarKind::Axis, static_cast<uint32_t>(axis)});
                           });
                       });
            });
            if (!moves) sum += bytes(call(step)->tensors[i]);
        }
        return sum;
    }

    std::optional<Slices> taken(size_t first, size_t count) {
        Slices out{first, count, 1, {}};
        for (size_t k = 0; k + 1 < count; ++k) out.kept.push_back(*handed_on(first + k));
        for (const Expr d : plan_.program.values[out.kept[0]].shape) {
            if (const auto done = taken(out)) return done;
            out.slices *= d.constant();
        }
        return std::nullopt;
    }

    std::optional<Slices> taken(const Slices& as) {
        if (as.slices < kSlicesPerThread * target_.tasks_at_a_time()) return std::nullopt;
        int64_t handed = 0, anew = 0;
        for (const ValueId v : as.kept) {
            if (bytes(v) % as.slices != 0 || bytes(v) / as.slices > target_.task_bytes() / 2) return std::nullopt;
            handed += bytes(v) / as.slices;
        }
        std::vector<TileProgram> kernels;
        for (size_t k = 0; k < as.count; ++k) {
            std::optional<std::vector<size_t>> axes;
            for (const size_t kept : {k, k + 1}) {  // read, written
                if (kept == 0 || kept == as.count) continue;
                const auto these = axes_of(as.first + k, as.kept[kept - 1], as.slices);
                if (!these || (axes && axes != these)) return std::nullopt;
                axes = these;
            }
            anew = std::max(anew, read_anew(as.first + k, *axes));
            auto kernel = along(*kernels_[as.first + k], *axes);
            if (!kernel) return std::nullopt;
            for (const size_t kept : {k, k + 1})
                if (kept != 0 && kept != as.count) kernel->near.insert(own_name(as.first + k, as.kept[kept - 1]));
            kernels.push_back(std::move(*kernel));
        }
        if (anew > kRereadPerSlice * handed) return std::nullopt;
        for (size_t k = 0; k < as.count; ++k) kernels_[as.first + k] = std::move(kernels[k]);
        return as;
    }

    const Plan& plan_;
    std::vector<std::optional<TileProgram>>& kernels_;
    const Target& target_;
    IndexVector<ValueId, std::vector<PrimitiveId>> readers_;
};

}  // namespace

std::vector<Slices> slice(const Plan& plan, std::vector<std::optional<TileProgram>>& kernels, const Target& target) {
    return Slicer(plan, kernels, target).run();
}

}  // namespace tilewright
