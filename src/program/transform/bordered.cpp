#include "program/transform/bordered.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tilewright {

namespace {

/// The least and the largest value of a linear expression over the axes; nothing for others.
std::optional<std::pair<int64_t, int64_t>> bounds(const TensorExpr& e, Expr index) {
    int64_t least = index.constant(), most = least;
    Expr rest = index - least;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        const auto linear = linear_in(rest, {VarKind::Axis, static_cast<uint32_t>(a)});
        if (!linear || !linear->coefficient.is_constant() || !e.extents[a].is_constant()) return std::nullopt;
        const int64_t end = linear->coefficient.constant() * (e.extents[a].constant() - 1);
        (end < 0 ? least : most) += end;
        rest = linear->rest;
    }
    return rest.is_constant(0) ? std::optional(std::pair(least, most)) : std::nullopt;
}

/// Whether every condition says that an index is not below 0, or not beyond its dimension.
bool conditions_are_bounds(const Access& read, const std::vector<Expr>& shape) {
    return std::all_of(read.valid.begin(), read.valid.end(), [&](Expr condition) {
        for (size_t d = 0; d < shape.size(); ++d)
            if (condition == read.index[d] || condition == shape[d] - 1 - read.index[d]) return true;
        return false;
    });
}

}  // namespace

std::optional<Bordered> bordered(const Program& program, const TensorExpr& e, const Access& read, const Access& fill) {
    const std::vector<Expr>& shape = program.values[read.value].shape;
    const DType t = program.values[read.value].dtype;
    const auto constant = [](Expr i) { return i.is_constant(); };
    if (!std::all_of(shape.begin(), shape.end(), constant) || !fill.valid.empty() ||
        !std::all_of(fill.index.begin(), fill.index.end(), constant) || program.values[fill.value].dtype != t ||
        !conditions_are_bounds(read, shape))
        return std::nullopt;
    Bordered out;
    out.read = read;
    out.read.valid.clear();
    std::vector<Expr> from;
    for (size_t d = 0; d < shape.size(); ++d) {
        const auto range = bounds(e, read.index[d]);
        if (!range) return std::nullopt;
        const int64_t before = std::max<int64_t>(0, -range->first);
        out.tensor.extents.emplace_back(before + std::max(shape[d].constant(), range->second + 1));
        out.read.index[d] = read.index[d] + before;
        from.push_back(axis(d) - before);
    }
    out.tensor.spatial = out.tensor.extents.size();
    out.tensor.accesses = {{read.value, from, {}, 0}, fill};
    ScalarBody& b = out.tensor.body;
    const ScalarId number = b.access(1, t);
    ScalarId value = b.access(0, t);
    const auto require = [&](Expr inside) {
        out.tensor.accesses[0].valid.push_back(inside);
        value = b.select(b.binary(ScalarOp::Ge, b.index(inside), b.int_constant(DType::I64, 0)), value, number);
    };
    for (size_t d = 0; d < shape.size(); ++d) {
        if (from[d].constant() < 0) require(from[d]);
        if (!(out.tensor.extents[d] == shape[d] - from[d].constant())) require(shape[d] - 1 - from[d]);
    }
    b.set_root(value);
    return out;
}

}  // namespace tilewright
