#include "backend/cpu/stage_prefetch.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <map>
#include <set>

#include "program/analysis/access.h"

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

std::pair<llvm::Value*, int64_t> StagePrefetch::tile_number(size_t slot) {
    constexpr int64_t kAssumed = 4;  // tiles of a dynamic number of rows; a power of two
    llvm::Value* number = nullptr;
    int64_t tiles = 1;
    for (const size_t a : order(false)) {
        if (a == va_ || moves_along(e_, e_.accesses[slot], a)) continue;
        const AxisRange& r = axis_ranges_[a];
        const int64_t tile = register_tile(a);
        const int64_t count = r.constant_extent ? (*r.constant_extent + tile - 1) / tile : kAssumed;
        if (count == 1) continue;
        llvm::Value* here = b_.CreateUDiv(b_.CreateSub(base_[a], r.lo), b_.getInt64(static_cast<uint64_t>(tile)));
        if (!r.constant_extent) here = b_.CreateAnd(here, b_.getInt64(kAssumed - 1));
        number = number == nullptr
                     ? here
                     : b_.CreateAdd(b_.CreateMul(number, b_.getInt64(static_cast<uint64_t>(count))), here);
        tiles *= count;
    }
    return {number, tiles};
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
    constexpr int64_t kLine = 64;
    if (is_clamped()) return;
    for (const uint32_t slot : e_.body.slots()) {
        const Prefetch* wanted = prefetch_of(slot, PrefetchKind::Next);
        if (wanted == nullptr) continue;
        const auto [number, tiles] = tile_number(slot);
        const auto [step, steps] = reduction_step();
        if (number == nullptr || step == nullptr) continue;
        const Place& place = job_.accesses[slot];
        const int64_t width = register_tile(va_) * static_cast<int64_t>(byte_size(place.storage));
        int64_t share = width;  // bytes of a step
        for (int64_t n = 2; n <= tiles && share % 2 == 0; n *= 2) share /= 2;
        // The first line of this panel, and the steps of earlier tiles and of this one.
        const Address here = address(place, offset_of(place, e_.accesses[slot].index, Coords(n_axes_, 0)));
        if (here.per_lane != nullptr) continue;
        llvm::Value* before = b_.CreateMul(number, b_.getInt64(static_cast<uint64_t>(steps * share)));
        llvm::Value* moved = b_.CreateNSWMul(step, b_.getInt64(static_cast<uint64_t>(share - width)));
        llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), here.pointer, b_.CreateAdd(before, moved));
        for (int64_t line = 0; line < share; line += kLine) prefetch(there, wanted->bytes + line);
    }
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
