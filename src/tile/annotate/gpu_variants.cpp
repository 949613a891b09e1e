#include <algorithm>

#include "tile/annotate/gpu.h"

namespace tilewright::gpu {

namespace {

class Variants {
  public:
    Variants(const TileProgram& given, const TreePath& path, const BlockLimits& limits)
        : given_(given), derived_(annotate(given, limits)), path_(path), limits_(limits), text_(print(derived_)) {}

    std::vector<TileProgram> take() && {
        const Stmt& s = at(derived_);
        if (const auto* compute = std::get_if<Compute>(&s.kind))
            vary(compute->micro.annotations);
        else if (const auto* load = std::get_if<Load>(&s.kind))
            vary(
                *load->copy, [](Stmt & to) -> auto& { return std::get<Load>(to.kind).copy; });
        else if (const auto* store = std::get_if<Store>(&s.kind))
            vary(
                *store->copy, [](Stmt & to) -> auto& { return std::get<Store>(to.kind).copy; });
        return std::move(out_);
    }

  private:
    Stmt& at(TileProgram& program) const {
        std::vector<Stmt>* body = &program.body;
        for (size_t k = 0; k + 1 < path_.size(); ++k) body = &std::get<TileLoop>(body->at(path_[k]).kind).body;
        return body->at(path_.back());
    }

    /// Adds the program with the statement as `set` makes it, unless the code would be the same, or cannot follow it.
    template <class F>
    void add(const F& set) {
        TileProgram variant = given_;
        set(at(variant));
        const TileProgram complete = annotate(variant, limits_);
        if (print(complete) != text_ && annotation_faults(complete, limits_).empty())
            out_.push_back(std::move(variant));
    }

    void vary(const Annotations& a) {
        const auto annotations = [](Stmt& s) -> Annotations& { return std::get<Compute>(s.kind).micro.annotations; };
        for (size_t k = 0; a.unroll && k < a.unroll->size(); ++k)
            for (const int64_t steps : {1, 2, 4, 8}) {
                std::vector<int64_t> unroll = *a.unroll;
                unroll[k] = steps;
                if (unroll != *a.unroll) add([&](Stmt& s) { annotations(s).unroll = unroll; });
            }
        // Narrower vectors: of one operand, or of the result and all that is read beside it.
        for (size_t r = 0; r < a.access->reads.size(); ++r)
            for (int64_t width = a.access->reads[r].width / 2; width >= 1; width /= 2) {
                ThreadAccess access = *a.access;
                access.reads[r].width = width;
                add([&](Stmt& s) { annotations(s).access = access; });
            }
        for (int64_t width = a.access->write / 2; width >= 1; width /= 2) {
            ThreadAccess access = *a.access;
            access.write = width;
            for (OperandRead& read : access.reads)
                if (read.width == a.access->write) read.width = width;
            if (width == 1) access.reads.clear();
            add([&](Stmt& s) { annotations(s).access = access; });
        }
        if (a.overlap) add([&](Stmt& s) { annotations(s).overlap = !*a.overlap; });
    }

    template <class F>
    void vary(const BlockCopy& copy, const F& annotation) {
        for (const int64_t width : {1, 2, 4, 8, 16})
            if (width != copy.width) add([&](Stmt& s) { annotation(s) = BlockCopy{copy.by, width, copy.order}; });
        if (copy.by == BlockCopy::By::Async)
            add([&](Stmt& s) { annotation(s) = BlockCopy{BlockCopy::By::Threads, copy.width, copy.order}; });
        if (copy.width == 1 && copy.order.size() > 1)
            for (const size_t last : copy.order) {
                BlockCopy other = copy;
                other.order.erase(std::find(other.order.begin(), other.order.end(), last));
                other.order.push_back(last);
                add([&](Stmt& s) { annotation(s) = other; });
            }
    }

    const TileProgram& given_;
    TileProgram derived_;
    const TreePath& path_;
    const BlockLimits& limits_;
    const std::string text_;
    std::vector<TileProgram> out_;
};

}  // namespace

std::vector<TileProgram> annotation_variants(const TileProgram& given, const TreePath& statement,
                                             const BlockLimits& limits) {
    return Variants(given, statement, limits).take();
}

}  // namespace tilewright::gpu
