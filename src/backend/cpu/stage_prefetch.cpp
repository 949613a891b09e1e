#include "backend/cpu/stage_prefetch.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <map>
#include <set>

#include "program/analysis/access.h"
#include "tile/annotate/prefetch.h"

namespace tilewright::cpu {

void StageValues::prefetch(llvm::Value* pointer, int64_t ahead) {
    llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), pointer, b_.getInt64(static_cast<uint64_t>(ahead)));
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {there->getType()},
                       {there, b_.getInt32(0), b_.getInt32(2), b_.getInt32(1)});
}

const Prefetch* StageValues::prefetch_of(size_t slot, PrefetchKind kind) const {
    if (!m_.annotations.prefetch) return nullptr;
    int64_t results = 1;
    for (size_t a = 0; a < e_.spatial; ++a) results *= regs_[a];
    for (const Prefetch& p : *m_.annotations.prefetch)
        if (p.access == slot && p.kind == kind && results >= p.results) return &p;
    return nullptr;
}

/// Returns the element of the operand that an access reads, over the stage's axes.
Expr StagePrefetch::element_number(size_t slot) const {
    return strided_offset(e_.accesses[slot].index, job_.accesses[slot].strides);
}

void StagePrefetch::prefetch_map(const ConstantTransform& map) {
    if (tile_points_.empty()) return;
    const std::vector<size_t> axes = order(false);
    for (const uint32_t slot : e_.body.slots()) {
        const Prefetch* wanted = prefetch_of(slot, PrefetchKind::Map);
        if (wanted == nullptr) continue;
        const Place& place = job_.accesses[slot];
        const Expr from = element_number(slot);
        std::vector<int64_t> strides(n_axes_, 0);
        bool affine = true;
        for (uint32_t a = 0; a < n_axes_; ++a) {
            const auto linear = linear_in(from, {VarKind::Axis, a});
            affine = affine && linear && linear->coefficient.is_constant();
            if (affine) strides[a] = linear->coefficient.constant();
        }
        const auto next = std::find_if(axes.rbegin(), axes.rend(), [&](size_t a) {
            return a != va_ && strides[a] != 0 && !e_.extents[a].is_constant(regs_[a]);
        });
        if (!affine || next == axes.rend()) continue;
        const int64_t ahead = strides[*next] * register_tile(*next);
        std::map<int64_t, Coords> lines;
        for (size_t c = 0; c < map.column_count(); ++c) {
            Coords at(n_axes_, 0);
            map.to_column(c, at);
            int64_t offset = 0;
            for (const uint32_t a : map.columns) offset += strides[a] * at[a];
            lines.emplace(offset, std::move(at));
        }
        for (const auto& [offset, at] : lines) {
            if (lines.count(offset + ahead) != 0) continue;  // this tile reads it
            const Address here = address(place, offset_of(place, e_.accesses[slot].index, at));
            if (here.per_lane == nullptr) prefetch(here.pointer, wanted->bytes);
        }
    }
}

void StagePrefetch::prefetch_rows() {
    constexpr int64_t kLine = 64;
    const std::vector<size_t> loops = order(true);
    for (const uint32_t slot : e_.body.slots()) {
        const Prefetch* wanted = prefetch_of(slot, PrefetchKind::Rows);
        if (wanted == nullptr) continue;
        const size_t k = loops.back(), rows = order(false).back();
        const int64_t tile = register_tile(rows);
        if (register_tile(k) != 1 || regs_[k] != 1) return;
        if (regs_[rows] != tile || clamp_[rows] || strips_[rows].distance != 0) return;
        const Place& place = job_.accesses[slot];
        const auto bytes = static_cast<int64_t>(byte_size(place.storage));
        const Address here = address(place, offset_of(place, e_.accesses[slot].index, Coords(n_axes_, 0)));
        llvm::Value* skipped = b_.CreateNSWMul(base_[k], b_.getInt64(static_cast<uint64_t>((tile - 1) * bytes)));
        llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), here.pointer, skipped);
        for (int64_t line = 0; line < tile * bytes; line += kLine) prefetch(there, wanted->bytes + line);
    }
}

StagePrefetch::TilesOfPanel StagePrefetch::tiles_of_panel(size_t slot) {
    TilesOfPanel out;
    const auto number = [this](int64_t n) { return b_.getInt64(static_cast<uint64_t>(n)); };
    for (const size_t a : order(false)) {
        if (a == va_ || moves_along(e_, e_.accesses[slot], a)) continue;
        const AxisRange& r = axis_ranges_[a];
        const int64_t tile = register_tile(a);
        std::optional<int64_t> known;
        if (r.constant_extent) known = (*r.constant_extent + tile - 1) / tile;
        if (known == 1) continue;
        llvm::Value* count =
            known ? number(*known) : b_.CreateUDiv(b_.CreateAdd(r.extent, number(tile - 1)), number(tile));
        llvm::Value* here = b_.CreateUDiv(b_.CreateSub(base_[a], r.lo), number(tile));
        out.number = out.number == nullptr ? here : b_.CreateAdd(b_.CreateMul(out.number, count), here);
        out.count = out.count == nullptr ? count : b_.CreateMul(out.count, count);
        out.known = out.known && known ? std::optional(*out.known * *known) : std::nullopt;
    }
    return out;
}

std::pair<llvm::Value*, int64_t> StagePrefetch::reduction_step() {
    llvm::Value* step = nullptr;
    int64_t steps = 1;
    for (const size_t a : order(true)) {
        const AxisRange& r = axis_ranges_[a];
        if (regs_[a] != 1 || !r.constant_extent) return {nullptr, 0};
        llvm::Value* here = b_.CreateSub(base_[a], r.lo);
        step = step == nullptr
                   ? here
                   : b_.CreateAdd(b_.CreateMul(step, b_.getInt64(static_cast<uint64_t>(*r.constant_extent))), here);
        steps *= *r.constant_extent;
    }
    return {step, steps};
}

void StagePrefetch::prefetch_panels() {
    if (is_clamped()) return;
    for (const uint32_t slot : e_.body.slots()) {
        const Prefetch* wanted = prefetch_of(slot, PrefetchKind::Next);
        if (wanted == nullptr) continue;
        const TilesOfPanel tiles = tiles_of_panel(slot);
        const auto [step, steps] = reduction_step();
        if (tiles.number == nullptr || step == nullptr) continue;
        const Place& place = job_.accesses[slot];
        const Address here = address(place, offset_of(place, e_.accesses[slot].index, Coords(n_axes_, 0)));
        if (here.per_lane == nullptr)
            prefetch_shares({here.pointer, step, steps, wanted->bytes,
                             register_tile(va_) * static_cast<int64_t>(byte_size(place.storage))},
                            tiles);
    }
}

void StagePrefetch::prefetch_shares(const PanelStep& s, const TilesOfPanel& tiles) {
    constexpr int64_t kLine = 64;
    const auto number = [this](int64_t n) { return b_.getInt64(static_cast<uint64_t>(n)); };
    // Of the line that this step reads, the share of a tile: a power of two.
    int64_t most = s.width;
    for (int64_t n = 2; n <= tiles.known.value_or(2) && most % 2 == 0; n *= 2) most /= 2;
    // From a step's line, the first line of this panel, and behind it the shares of earlier tiles and steps: a number
    // that does not change in the loop, and a multiple of the step.
    llvm::Value* share = number(most);
    llvm::Value *alone = nullptr, *nothing = nullptr;
    if (!tiles.known) {
        llvm::Value* many = b_.CreateICmpUGE(tiles.count, number(4));
        share = b_.CreateSelect(many, number(most / 2), share);
        // A tile that has the panel to itself prefetches the panel itself. Tiles behind those with a share prefetch a
        // line that they read, which takes no time.
        alone = b_.CreateICmpULE(tiles.count, number(1));
        nothing = b_.CreateICmpUGE(tiles.number, b_.CreateSelect(many, number(4), number(2)));
    }
    llvm::Value* first =
        b_.CreateAdd(b_.CreateMul(tiles.number, b_.CreateMul(share, number(s.steps))), number(s.bytes));
    llvm::Value* each = b_.CreateSub(share, number(s.width));
    if (!tiles.known) {
        first = b_.CreateSelect(alone, number(kPanelAhead), b_.CreateSelect(nothing, number(0), first));
        each = b_.CreateSelect(b_.CreateOr(alone, nothing), number(0), each);
    }
    llvm::Value* ahead = b_.CreateAdd(first, b_.CreateNSWMul(s.step, each));
    llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), s.line, ahead);
    for (int64_t line = 0; line < most; line += kLine) prefetch(there, line);
    const std::vector<size_t> spatial = order(false);
    const bool tail =
        std::any_of(spatial.begin(), spatial.end(), [&](size_t a) { return a != va_ && regs_[a] != register_tile(a); });
    if (alone == nullptr || !tail) return;
    llvm::Value* rest = b_.CreateSelect(alone, there, s.line);
    for (int64_t line = most; line < s.width; line += kLine) prefetch(rest, line);
}

void StagePrefetch::prefetch_epilogue() {
    if (is_clamped()) return;
    for (const uint32_t slot : e_.epilogue.slots()) {
        const Prefetch* wanted = prefetch_of(slot, PrefetchKind::Epilogue);
        if (wanted == nullptr) continue;
        const Place& place = job_.accesses[slot];
        for (const Coords& p : tile_points_) {
            const Address here = address(place, offset_of(place, e_.accesses[slot].index, p));
            if (here.per_lane == nullptr && here.lane_stride == 1) prefetch(here.pointer, wanted->bytes);
        }
    }
}

void StagePrefetch::prefetch_windows() {
    if (is_clamped()) return;
    for (const uint32_t slot : e_.body.slots()) {
        const Prefetch* wanted = prefetch_of(slot, PrefetchKind::Window);
        if (wanted == nullptr) continue;
        const Place& place = job_.accesses[slot];
        std::set<std::vector<int64_t>> fetched;
        for (const Coords& s : points(true))
            for (Coords p : tile_points_) {
                for (size_t a = e_.spatial; a < n_axes_; ++a) p[a] = s[a];
                const auto where = first_read(e_.accesses[slot], p);
                if (!where || !fetched.insert(*where).second) continue;
                const Address here = address(place, offset_of(place, e_.accesses[slot].index, p));
                if (here.per_lane == nullptr) prefetch(here.pointer, wanted->bytes);
            }
    }
}

std::optional<std::vector<int64_t>> StagePrefetch::first_read(const Access& access, const Coords& p) const {
    std::vector<int64_t> where;
    for (const Expr& index : access.index) {
        int64_t offset = 0, known = 0;  // earlier tiles have read up to `known`
        bool slides = false;
        for (const Var v : variables(index)) {
            const auto linear = linear_in(index, v);
            if (v.kind != VarKind::Axis || !linear || !linear->coefficient.is_constant()) return std::nullopt;
            if (v.id == va_) continue;
            const int64_t step = linear->coefficient.constant();
            offset += step * p[v.id];
            slides = slides || v.id >= e_.spatial;
            if (v.id < e_.spatial)
                known -= step;
            else if (e_.extents[v.id].is_constant(regs_[v.id]))
                known += step * (regs_[v.id] - 1);
            else  // in a loop, where the last row of windows covers all new elements
                for (size_t a = 0; a < e_.spatial; ++a)
                    if (a != va_ && p[a] + 1 < regs_[a] && uses(index, {VarKind::Axis, static_cast<uint32_t>(a)}))
                        return std::nullopt;
        }
        if (slides && offset <= known) return std::nullopt;
        where.push_back(offset);
    }
    return where;
}

}  // namespace tilewright::cpu
