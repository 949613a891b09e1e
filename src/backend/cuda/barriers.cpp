#include "backend/cuda/barriers.h"

#include <algorithm>

#include "tile/online.h"

namespace tilewright::cuda {

namespace {

/// Bytes of the block's scratch, or a whole tensor.
struct Touched {
    ValueId tensor;  ///< none: scratch
    int64_t begin = 0, end = 0;
    bool write = false;
    auto operator<=>(const Touched&) const = default;

    bool conflicts(const Touched& other) const {
        return (write || other.write) && tensor == other.tensor && begin < other.end && other.begin < end;
    }
};
using Pending = std::set<Touched>;

class Analysis {
  public:
    Analysis(const TileProgram& p, const BufferPlan& plan, const std::set<ValueId>& in_memory)
        : p_(p),
          plan_(plan),
          in_memory_(in_memory),
          tree_(walk(p)),
          online_(online_maxima(p)),
          scales_(online_scales(p.stages, online_)) {}

    std::set<TreePath> run() {
        flow(p_.body, {}, {});
        return std::move(out_);
    }

  private:
    /// What may be pending behind the statements from number `from` on, given what may be in front.
    Pending flow(const std::vector<Stmt>& body, const TreePath& path, Pending pending, size_t from = 0) {
        for (size_t i = from; i < body.size(); ++i) {
            TreePath here = path;
            here.push_back(i);
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
                if (loop->parallel) {  // one step a block
                    pending = flow(loop->body, here, std::move(pending));
                    continue;
                }
                if (loop->stages > 1 && !tree_.runs_once(here)) {
                    pending = pipelined(*loop, here, std::move(pending));
                    continue;
                }
                for (size_t before = pending.size() + 1; before != pending.size();) {
                    before = pending.size();
                    const Pending behind = flow(loop->body, here, pending);
                    pending.insert(behind.begin(), behind.end());
                }
                continue;
            }
            touch(touched_by(body[i]), here, pending);
        }
        return pending;
    }

    void touch(const std::vector<Touched>& touched, const TreePath& here, Pending& pending) {
        const bool meets = std::any_of(touched.begin(), touched.end(), [&](const Touched& t) {
            return std::any_of(pending.begin(), pending.end(), [&](const Touched& x) { return t.conflicts(x); });
        });
        if (meets) {
            out_.insert(here);
            pending.clear();
        }
        pending.insert(touched.begin(), touched.end());
    }

    /// The first copies are begun in front of the loop. Each step begins with a barrier of its own, behind which it
    /// writes to other copies of its buffers than it reads.
    Pending pipelined(const TileLoop& loop, const TreePath& path, Pending pending) {
        std::vector<Touched> ahead;
        size_t loads = 0;
        for (const Stmt& s : loop.body) {
            if (!std::holds_alternative<Load>(s.kind)) continue;
            for (const Touched& t : touched_by(s)) ahead.push_back(t);
            ++loads;
        }
        touch(ahead, path, pending);
        for (const Touched& t : ahead) pending.erase(t);
        const Pending behind = flow(loop.body, path, {}, loads);
        pending.insert(behind.begin(), behind.end());
        return pending;
    }

    Touched scratch(const Buffer& b, bool write) const {
        if (in_memory_.count(b.value) != 0) return {b.value, 0, 1, write};
        return {ValueId(), b.offset, b.elsewhere ? b.offset : b.offset + b.bytes, write};
    }

    const Buffer* copy_of(PrimitiveId stage, size_t access) const {
        for (const Buffer& b : plan_.buffers)
            if (b.access && *b.access == std::pair(stage, access)) return &b;
        return nullptr;
    }
    Touched value(ValueId v, bool write) const {
        for (const Buffer& b : plan_.buffers)
            if (!b.access && !b.correction && b.value == v) return scratch(b, write);
        return {v, 0, 1, write};
    }
    void add_correction(ValueId v, bool write, std::vector<Touched>& out) const {
        for (const Buffer& b : plan_.buffers)
            if (b.correction && b.value == v) out.push_back(scratch(b, write));
    }

    std::vector<Touched> touched_by(const Stmt& s) const {
        std::vector<Touched> out;
        if (const auto* load = std::get_if<Load>(&s.kind)) {
            const Access& a = p_.stages.primitives[load->stage].expr()->accesses[load->access];
            out.push_back(value(a.value, false));
            out.push_back(scratch(*copy_of(load->stage, load->access), true));
        } else if (const auto* store = std::get_if<Store>(&s.kind)) {
            out.push_back(value(store->value, false));
            out.push_back({store->value, 0, 1, true});
        } else {
            const auto& compute = std::get<Compute>(s.kind);
            const Primitive& stage = p_.stages.primitives[compute.stage];
            const auto& accesses = stage.expr()->accesses;
            for (size_t k = 0; k < accesses.size(); ++k) {
                const Buffer* copy = copy_of(compute.stage, k);
                out.push_back(copy != nullptr ? scratch(*copy, false) : value(accesses[k].value, false));
            }
            // A partial sum is read as well, but by the thread that wrote it, in this statement.
            out.push_back(value(stage.outputs[0], true));
            if (compute.online) add_correction(stage.outputs[0], true, out);
            if (const auto& scale = scales_[compute.stage]; scale) add_correction(scale->maximum, false, out);
        }
        return out;
    }

    const TileProgram& p_;
    const BufferPlan& plan_;
    const std::set<ValueId>& in_memory_;
    const Walk tree_;
    const std::set<ValueId> online_;
    const IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    std::set<TreePath> out_;
};

}  // namespace

std::set<TreePath> barriers(const TileProgram& program, const BufferPlan& plan, const std::set<ValueId>& in_memory) {
    return Analysis(program, plan, in_memory).run();
}

}  // namespace tilewright::cuda
