#include "layout/layout.h"

#include "base/error.h"

namespace tilewright {

namespace {

using layout::Fuse;
using layout::Pad;
using layout::Reorder;
using layout::Split;
using layout::StoreAt;
using layout::Unfold;

void require(bool ok, const char* what, std::span<const Expr> shape) {
    if (!ok) model_error("layout: {} does not fit a tensor of shape {}", what, to_string(shape));
}

Expr unfold_tiles(const Unfold& u, Expr extent) { return ceil_div(max(extent - u.tile, 0), u.stride) + 1; }

std::vector<Expr> shape_after(const layout::Primitive& primitive, std::vector<Expr> shape) {
    const auto at = [&](size_t d) { return shape.begin() + static_cast<std::ptrdiff_t>(d); };
    if (const auto* split = std::get_if<Split>(&primitive)) {
        require(split->dim < shape.size() && split->factor > 0, "split", shape);
        const Expr outer = ceil_div(shape[split->dim], split->factor);
        shape[split->dim] = split->factor;
        shape.insert(at(split->dim), outer);
    } else if (const auto* reorder = std::get_if<Reorder>(&primitive)) {
        require(reorder->permutation.size() == shape.size(), "reorder", shape);
        std::vector<Expr> out(shape.size());
        std::vector<bool> seen(shape.size(), false);
        for (size_t k = 0; k < shape.size(); ++k) {
            const size_t from = reorder->permutation[k];
            require(from < shape.size() && !seen[from], "reorder", shape);
            seen[from] = true;
            out[k] = shape[from];
        }
        shape = std::move(out);
    } else if (const auto* fuse = std::get_if<Fuse>(&primitive)) {
        require(fuse->count >= 1 && fuse->dim + fuse->count <= shape.size(), "fuse", shape);
        Expr whole = 1;
        for (size_t k = 0; k < fuse->count; ++k) whole = whole * shape[fuse->dim + k];
        shape.erase(at(fuse->dim), at(fuse->dim + fuse->count));
        shape.insert(at(fuse->dim), whole);
    } else if (const auto* unfold = std::get_if<Unfold>(&primitive)) {
        require(unfold->dim < shape.size() && unfold->tile > 0 && unfold->stride > 0, "unfold", shape);
        const Expr tiles = unfold_tiles(*unfold, shape[unfold->dim]);
        shape[unfold->dim] = unfold->tile;
        shape.insert(at(unfold->dim), tiles);
    } else if (const auto* pad = std::get_if<Pad>(&primitive)) {
        require(pad->dim < shape.size() && pad->before >= 0 && pad->after >= 0, "pad", shape);
        shape[pad->dim] += pad->before + pad->after;
    } else {
        const auto& store = std::get<StoreAt>(primitive);
        require(store.dim < shape.size() && store.offset >= 0 && store.size >= 0, "store_at", shape);
        shape[store.dim] = store.size;
    }
    return shape;
}

}  // namespace

std::vector<Expr> physical_shape(const Layout& layout, std::span<const Expr> shape) {
    std::vector<Expr> s(shape.begin(), shape.end());
    for (const layout::Primitive& p : layout.primitives) s = shape_after(p, std::move(s));
    return s;
}

namespace {

/// Applies a primitive with the shapes `shape` before and after to an index. `tile_of` selects the tile of an Unfold.
void move_index(const layout::Primitive& p, std::span<const Expr> before, std::span<const Expr> after,
                std::vector<Expr>& i, std::span<const Expr> tile_of) {
    const auto at = [&](size_t d) { return i.begin() + static_cast<std::ptrdiff_t>(d); };
    if (const auto* split = std::get_if<Split>(&p)) {
        const Expr whole = i[split->dim];
        i[split->dim] = mod(whole, split->factor);
        i.insert(at(split->dim), floor_div(whole, split->factor));
    } else if (const auto* reorder = std::get_if<Reorder>(&p)) {
        std::vector<Expr> out;
        out.reserve(i.size());
        for (const size_t from : reorder->permutation) out.push_back(i[from]);
        i = std::move(out);
    } else if (const auto* fuse = std::get_if<Fuse>(&p)) {
        Expr whole = 0;
        for (size_t k = 0; k < fuse->count; ++k) whole = whole * before[fuse->dim + k] + i[fuse->dim + k];
        i.erase(at(fuse->dim), at(fuse->dim + fuse->count));
        i.insert(at(fuse->dim), whole);
    } else if (const auto* unfold = std::get_if<Unfold>(&p)) {
        const Expr whole = i[unfold->dim];
        const Expr tile = min(floor_div(tile_of[unfold->dim], unfold->stride), after[unfold->dim] - 1);
        i[unfold->dim] = whole - tile * unfold->stride;
        i.insert(at(unfold->dim), tile);
    } else if (const auto* pad = std::get_if<Pad>(&p)) {
        i[pad->dim] += pad->before;
    } else {
        i[std::get<StoreAt>(p).dim] += std::get<StoreAt>(p).offset;
    }
}

}  // namespace

std::vector<Expr> physical_index(const Layout& layout, std::span<const Expr> shape, std::span<const Expr> index,
                                 std::span<const Expr> window) {
    std::vector<Expr> s(shape.begin(), shape.end());
    std::vector<Expr> i(index.begin(), index.end());
    std::vector<Expr> first(window.begin(), window.end());
    require(i.size() == s.size() && (first.empty() || first.size() == s.size()), "an index of another rank", shape);
    for (const layout::Primitive& p : layout.primitives) {
        std::vector<Expr> after = shape_after(p, s);
        move_index(p, s, after, i, first.empty() ? i : first);
        if (!first.empty()) move_index(p, s, after, first, std::vector<Expr>(first));
        s = std::move(after);
    }
    return i;
}

LogicalIndex logical_index(const Layout& layout, std::span<const Expr> shape, std::span<const Expr> index) {
    std::vector<std::vector<Expr>> shapes{std::vector<Expr>(shape.begin(), shape.end())};
    for (const layout::Primitive& p : layout.primitives) shapes.push_back(shape_after(p, shapes.back()));
    LogicalIndex out;
    out.index.assign(index.begin(), index.end());
    std::vector<Expr>& i = out.index;
    require(i.size() == shapes.back().size(), "an index of another rank", shape);
    for (size_t k = layout.primitives.size(); k-- > 0;) {
        const layout::Primitive& p = layout.primitives[k];
        const std::vector<Expr>& before = shapes[k];
        const auto at = [&](size_t d) { return i.begin() + static_cast<std::ptrdiff_t>(d); };
        const auto check = [&](size_t d, bool low, bool high) {
            if (low) out.valid.push_back(i[d]);
            if (high) out.valid.push_back(before[d] - 1 - i[d]);
        };
        if (const auto* split = std::get_if<Split>(&p)) {
            const Expr whole = i[split->dim] * split->factor + i[split->dim + 1];
            i.erase(at(split->dim));
            i[split->dim] = whole;
            const Expr remainder = mod(before[split->dim], split->factor);
            if (!remainder.is_constant(0)) check(split->dim, false, true);
        } else if (const auto* reorder = std::get_if<Reorder>(&p)) {
            std::vector<Expr> old(i.size());
            for (size_t d = 0; d < i.size(); ++d) old[reorder->permutation[d]] = i[d];
            i = std::move(old);
        } else if (const auto* fuse = std::get_if<Fuse>(&p)) {
            Expr whole = i[fuse->dim];
            std::vector<Expr> parts(fuse->count);
            for (size_t d = fuse->count; d-- > 0;) {
                parts[d] = d == 0 ? whole : mod(whole, before[fuse->dim + d]);
                whole = floor_div(whole, before[fuse->dim + d]);
            }
            i.erase(at(fuse->dim));
            i.insert(at(fuse->dim), parts.begin(), parts.end());
        } else if (const auto* unfold = std::get_if<Unfold>(&p)) {
            const Expr whole = i[unfold->dim] * unfold->stride + i[unfold->dim + 1];
            i.erase(at(unfold->dim));
            i[unfold->dim] = whole;
            check(unfold->dim, false, true);
        } else if (const auto* pad = std::get_if<Pad>(&p)) {
            i[pad->dim] = i[pad->dim] - pad->before;
            check(pad->dim, pad->before > 0, pad->after > 0);
        } else {
            const auto& store = std::get<StoreAt>(p);
            i[store.dim] = i[store.dim] - store.offset;
            check(store.dim, true, true);
        }
    }
    return out;
}

}  // namespace tilewright
