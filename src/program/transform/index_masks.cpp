#include "program/transform/index_masks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "program/analysis/access.h"
#include "program/analysis/masks.h"
#include "program/transform/dead_code.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

/// t[..., i, ..., j, ...] = i - j + diagonal >= 0 ? below : above
struct Triangle {
    size_t rows = 0, columns = 0;  ///< dimensions
    int64_t diagonal = 0;
    double below = 0, above = 0;
};

std::optional<Triangle> triangle_of(const Tensor& t) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < t.shape().size(); ++d)
        if (t.shape()[d] > 1) dims.push_back(d);
    if (dims.size() != 2 || !(t.dtype() == DType::Bool || is_float(t.dtype()))) return std::nullopt;
    const int64_t rows = t.shape()[dims[0]], columns = t.shape()[dims[1]];
    if (t.count() != rows * columns) return std::nullopt;  // another dimension is empty
    const auto at = [&](int64_t i, int64_t j) { return t.get(i * columns + j); };
    Triangle out{dims[0], dims[1], 0, at(rows - 1, 0), at(0, columns - 1)};
    if (std::isnan(out.below) || out.below == out.above) return std::nullopt;
    if (is_float(t.dtype()) && !(out.below <= kMasked) && !(out.above <= kMasked)) return std::nullopt;
    if (at(0, 0) == out.below) {
        while (at(0, out.diagonal + 1) == out.below) ++out.diagonal;  // the row's last element is another
    } else {
        while (at(-out.diagonal, 0) != out.below) --out.diagonal;  // the column's last element is it
    }
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
            if (at(i, j) != (i - j + out.diagonal >= 0 ? out.below : out.above)) return std::nullopt;
    return out;
}

class IndexMasks {
  public:
    explicit IndexMasks(Program program) : p_(std::move(program)) {}

    Program run() {
        bool changed = false;
        for (Primitive& q : p_.primitives) {
            TensorExpr* e = q.expr();
            if (e == nullptr || !reads_triangle(*e)) continue;
            e->body = replaced(*e, e->body);
            if (!e->epilogue.empty()) e->epilogue = replaced(*e, e->epilogue);
            *e = tidy(*e);
            changed = true;
        }
        return changed ? eliminate_dead_code(std::move(p_)) : std::move(p_);
    }

  private:
    const std::optional<Triangle>& triangle(ValueId v) {
        const auto [it, fresh] = known_.try_emplace(v);
        if (fresh && p_.unread.count(v) == 0)
            if (const auto constant = p_.constants.find(v); constant != p_.constants.end())
                it->second = triangle_of(constant->second);
        return it->second;
    }

    const std::optional<Triangle>& triangle(const Access& a) {
        static const std::optional<Triangle> kNone;
        return a.valid.empty() && !uses_load(a.index) ? triangle(a.value) : kNone;
    }

    bool reads_triangle(const TensorExpr& e) {
        return std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) { return triangle(a); });
    }

    ScalarBody replaced(const TensorExpr& e, const ScalarBody& from) {
        ScalarBody out;
        out.set_root(out.inline_body(from, [&](ScalarBody& b, const ScalarNode& leaf) {
            if (leaf.op != ScalarOp::Access) return ScalarId();
            const Access& a = e.accesses[leaf.slot];
            const std::optional<Triangle>& t = triangle(a);
            if (!t) return ScalarId();
            const ScalarId distance = b.index(a.index[t->rows] - a.index[t->columns] + t->diagonal);
            const bool real = leaf.dtype != DType::Bool;
            const ScalarId below =
                b.binary(real || t->below != 0 ? ScalarOp::Ge : ScalarOp::Lt, distance, b.int_constant(DType::I64, 0));
            return real ? b.select(below, b.constant(leaf.dtype, t->below), b.constant(leaf.dtype, t->above)) : below;
        }));
        return out;
    }

    Program p_;
    std::map<ValueId, std::optional<Triangle>> known_;
};

}  // namespace

Program index_masks(Program program) { return IndexMasks(std::move(program)).run(); }

}  // namespace tilewright
