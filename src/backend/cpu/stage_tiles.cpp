#include "backend/cpu/stage_tiles.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "backend/cpu/optimize.h"
#include "tile/cuts.h"

namespace tilewright::cpu {

void emit_loop(llvm::IRBuilder<>& b, llvm::Value* lo, llvm::Value* hi, int64_t step,
               const std::function<void(llvm::Value*)>& body, const char* name, bool tail) {
    auto* const_lo = llvm::dyn_cast<llvm::ConstantInt>(lo);
    auto* const_hi = llvm::dyn_cast<llvm::ConstantInt>(hi);
    if (const_lo != nullptr && const_hi != nullptr) {
        const int64_t trips = (const_hi->getSExtValue() - const_lo->getSExtValue() + step - 1) / step;
        if (trips <= 0) return;
        if (trips == 1) return body(lo);
    }
    emit_loop(b, lo, hi, b.getInt64(static_cast<uint64_t>(step)), body, name, tail);
}

void emit_loop(llvm::IRBuilder<>& b, llvm::Value* lo, llvm::Value* hi, llvm::Value* step,
               const std::function<void(llvm::Value*)>& body, const char* name, bool tail) {
    llvm::Function* f = b.GetInsertBlock()->getParent();
    llvm::LLVMContext& c = b.getContext();
    auto* loop = llvm::BasicBlock::Create(c, name, f);
    auto* done = llvm::BasicBlock::Create(c, std::string(name) + ".done", f);
    llvm::BasicBlock* before = b.GetInsertBlock();
    llvm::Value* any = b.CreateICmpSLT(lo, hi);
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(any); known != nullptr && known->isOne())
        b.CreateBr(loop);
    else
        b.CreateCondBr(any, loop, done);
    b.SetInsertPoint(loop);
    llvm::PHINode* iv = b.CreatePHI(b.getInt64Ty(), 2, name);
    iv->addIncoming(lo, before);
    body(iv);
    llvm::Value* next = b.CreateNSWAdd(iv, step);
    iv->addIncoming(next, b.GetInsertBlock());
    llvm::Instruction* back = b.CreateCondBr(b.CreateICmpSLT(next, hi), loop, done);
    if (tail) mark_tail_loop(*back);
    b.SetInsertPoint(done);
}

// --- cuts

void StageTiles::find_cuts() {
    const auto& cut = m_.annotations.cut;
    CutQuestion q;
    q.expr = &e_;
    q.ranges = &ranges_;
    for (size_t a = 0; a < e_.spatial; ++a)
        q.may_cut.push_back(cut && std::find(cut->begin(), cut->end(), a) != cut->end());
    for (const Place& place : job_.accesses) q.checked.push_back(place.checked);
    for (size_t a = 0; a < n_axes_; ++a)
        if (m_.registers.size() > a && a != va_) q.tile_points *= static_cast<size_t>(m_.registers[a]);
    if (has_vector_ && va_ < e_.spatial) {
        q.vector_axis = va_;
        q.lanes = lanes_;
    }
    cuts_ = choose_cuts(q);
}

void StageTiles::in_pieces(size_t a, const std::function<void()>& inner) {
    if (cuts_[a].empty()) return inner();
    const AxisRange whole = axis_ranges_[a];
    const Interval known = ranges_.axes[a];
    const Interval known_blocks = ranges_.axes[block_axis_];
    llvm::Value* hi = b_.CreateAdd(whole.lo, whole.extent);
    llvm::Value* start = whole.lo;
    Expr from = 0;
    for (size_t i = 0; i <= cuts_[a].size(); ++i) {
        const bool last = i == cuts_[a].size();
        const Expr to = last ? e_.extents[a] : cuts_[a][i];
        llvm::Value* end = hi;
        if (!last) {
            end = extremum(exprs_.scalar(to), start, true);
            end = extremum(end, hi, false);
        }
        enter_piece(a, whole, {from, to, start, end});
        const AxisRange& r = axis_ranges_[a];
        if (!r.constant_extent || *r.constant_extent > 0) inner();
        start = end;
        from = to;
    }
    axis_ranges_[a] = whole;
    ranges_.axes[a] = known;
    ranges_.axes[block_axis_] = known_blocks;
    exprs_.set_ranges(ranges_);
    if (a == va_) aligned_ = whole.lo_multiple % lanes_ == 0;
}

void StageTiles::enter_piece(size_t a, const AxisRange& whole, const Piece& piece) {
    AxisRange& r = axis_ranges_[a];
    r = whole;
    r.lo = piece.start;
    r.extent = b_.CreateSub(piece.end, piece.start);
    r.to_end = false;
    const Expr points = piece.to - piece.from;
    r.most = points.is_constant() ? std::optional(points.constant()) : whole.most;
    r.constant_extent.reset();
    if (const auto* k = llvm::dyn_cast<llvm::ConstantInt>(r.extent)) r.constant_extent = k->getSExtValue();
    const auto* lo = llvm::dyn_cast<llvm::ConstantInt>(piece.start);
    r.lo_multiple = lo != nullptr ? lo->getSExtValue() : 1;
    if (a == va_) aligned_ = r.lo_multiple % lanes_ == 0;
    ranges_.axes[a] = {piece.from, piece.to - 1};
    if (a == va_) ranges_.axes[block_axis_] = {floor_div(piece.from, lanes_), floor_div(piece.to - 1, lanes_)};
    exprs_.set_ranges(ranges_);
}

llvm::Value* StageTiles::extremum(llvm::Value* x, llvm::Value* y, bool larger) {
    const auto *p = llvm::dyn_cast<llvm::ConstantInt>(x), *q = llvm::dyn_cast<llvm::ConstantInt>(y);
    if (p != nullptr && q != nullptr) return (p->getSExtValue() > q->getSExtValue()) == larger ? x : y;
    return b_.CreateBinaryIntrinsic(larger ? llvm::Intrinsic::smax : llvm::Intrinsic::smin, x, y);
}

// --- the register tile

int64_t StageTiles::register_tile(size_t a) const {
    if (a == unrolled_axis_) return accumulators_;
    if (whole_sum_ && a >= e_.spatial) return e_.extents[a].constant();
    const int64_t r = a < m_.registers.size() ? m_.registers[a] : 1;
    return a == va_ ? std::max<int64_t>(r, lanes_) : std::max<int64_t>(r, 1);
}

std::vector<size_t> StageTiles::order(bool reductions) const {
    std::vector<size_t> out;
    for (const size_t a : m_.order)
        if ((a >= e_.spatial) == reductions) out.push_back(a);
    for (size_t a = 0; a < n_axes_; ++a)
        if ((a >= e_.spatial) == reductions && std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
    return out;
}

std::vector<StageTiles::Coords> StageTiles::points(bool reductions) const {
    std::vector<Coords> out{Coords(n_axes_, 0)};
    std::vector<size_t> axes;
    for (size_t a = 0; a < n_axes_; ++a)
        if (a != va_) axes.push_back(a);
    if (has_vector_) axes.push_back(va_);
    for (const size_t a : axes) {
        if ((a >= e_.spatial) != reductions || regs_[a] == 1) continue;
        std::vector<Coords> next;
        for (const Coords& c : out)
            for (int64_t i = 0; i < regs_[a]; ++i) {
                next.push_back(c);
                next.back()[a] = i;
            }
        out = std::move(next);
    }
    return out;
}

bool StageTiles::is_clamped() const { return std::find(clamp_.begin(), clamp_.end(), true) != clamp_.end(); }

// --- loops over register tiles

std::vector<int64_t> StageTiles::tail_sizes(size_t a, int64_t tile, int64_t most) const {
    if (most <= 1) return {1};
    std::vector<int64_t> sizes{tile};
    for (const Tail& t : m_.annotations.tails)
        if (t.axis == a) sizes = t.sizes;
    const auto last = std::lower_bound(sizes.begin(), sizes.end(), most);
    if (last != sizes.end()) sizes.erase(last + 1, sizes.end());
    return sizes;
}

StageTiles::Tiles StageTiles::tiles_in(size_t a) {
    const AxisRange& r = axis_ranges_[a];
    Tiles t;
    t.a = a;
    t.tile = register_tile(a);
    t.hi = b_.CreateAdd(r.lo, r.extent);
    const auto& tails = m_.annotations.tails;
    const auto tail = std::find_if(tails.begin(), tails.end(), [&](const Tail& known) { return known.axis == a; });
    if (tail != tails.end() && !r.constant_extent && r.most && *r.most <= tail->border) t.tile = 1;
    if (t.tile == 1) return t;
    if (r.constant_extent)
        t.rest = *r.constant_extent % t.tile;
    else if (r.to_end && r.lo_multiple % t.tile == 0 && r.total.is_constant())
        t.rest = r.total.constant() % t.tile;
    llvm::Value* whole = nullptr;
    if (r.constant_extent) {
        whole = b_.getInt64(static_cast<uint64_t>(*r.constant_extent / t.tile * t.tile));
    } else {
        llvm::Value* points = b_.getInt64(static_cast<uint64_t>(t.tile));
        whole = b_.CreateMul(b_.CreateUDiv(r.extent, points), points);
    }
    t.whole_hi = b_.CreateAdd(r.lo, whole);
    // Code for tiles of more points than there are would be most of the code of a padded convolution with dynamic
    // sizes.
    t.fills = !r.most || *r.most >= t.tile;
    if (!t.fills) t.whole_hi = r.lo;
    t.longest = std::min(t.tile - 1, r.most.value_or(t.tile));
    t.sizes = tail_sizes(a, t.tile, t.longest);
    if (tail != tails.end()) t.shift = tail->shift;
    return t;
}

void StageTiles::one_tile(const Tiles& t, llvm::Value* at, const TileCode& code, const std::function<void()>& inner) {
    const size_t a = t.a;
    const bool lanes_here = a == va_;
    bind_axis(a, at);
    regs_[a] = lanes_here ? (code.points + lanes_ - 1) / lanes_ : code.points;
    clamp_[a] = code.clamp;
    if (code.clamp) clamp_hi_[a] = t.hi;
    if (lanes_here) tail_mask_ = code.mask;
    // A tile of n points starts at least n before the end, so that the padding after it needs no check.
    const auto ranges = std::pair(ranges_.axes[a], ranges_.axes[block_axis_]);
    if (!code.clamp && (code.mask == nullptr || code.tail_known)) {
        const int64_t threads = strips_[a].distance == 0 ? 1 : code.points / strips_[a].points;
        const Expr last =
            *ranges_.axes[a].hi + 1 - code.points - (threads - 1) * (strips_[a].distance - strips_[a].points);
        ranges_.axes[a].hi = last;
        if (lanes_here) ranges_.axes[block_axis_].hi = floor_div(last, lanes_);
    }
    exprs_.set_ranges(ranges_);
    inner();
    std::tie(ranges_.axes[a], ranges_.axes[block_axis_]) = ranges;
    exprs_.set_ranges(ranges_);
    clamp_[a] = false;
    regs_[a] = 1;
    if (lanes_here) tail_mask_ = nullptr;
}

void StageTiles::full_tiles(Tiles& t, const std::function<void()>& inner) {
    const AxisRange& r = axis_ranges_[t.a];
    const int64_t threads = t.a < m_.virtual_threads.size() ? m_.virtual_threads[t.a] : 1;
    if (threads > 1 && r.constant_extent && *r.constant_extent >= 2 * t.tile) {
        // Sub-tiles that are contiguous in registers, but a part of the range apart in memory.
        const int64_t points = t.tile / threads;
        strips_[t.a] = {points, *r.constant_extent / t.tile * points};
        emit_loop(
            b_, r.lo, b_.CreateAdd(r.lo, b_.getInt64(static_cast<uint64_t>(strips_[t.a].distance))), points,
            [&](llvm::Value* at) { one_tile(t, at, {t.tile}, inner); }, "strip");
        strips_[t.a] = {};
    } else if (!t.rest && t.fills && t.sizes.back() == t.tile && t.shift) {
        // Clamped rows need a pointer each: a tile of 11 of 13 rows took twice the time of a full tile.
        const int64_t specialised = t.sizes.size() > 1 ? t.sizes.rbegin()[1] : 0;
        llvm::Value* left = b_.CreateSub(t.hi, t.whole_hi);
        llvm::Value* again = b_.CreateAnd(b_.CreateICmpSGE(r.extent, b_.getInt64(static_cast<uint64_t>(t.tile))),
                                          b_.CreateICmpSGT(left, b_.getInt64(static_cast<uint64_t>(specialised))));
        llvm::Value* last = b_.CreateSub(t.hi, b_.getInt64(static_cast<uint64_t>(t.tile)));
        t.whole_hi = b_.CreateSelect(again, t.hi, t.whole_hi);
        emit_loop(
            b_, r.lo, t.whole_hi, t.tile,
            [&](llvm::Value* at) { one_tile(t, extremum(at, last, false), {t.tile}, inner); }, "tile");
    } else if (r.constant_extent ? *r.constant_extent >= t.tile : t.fills) {
        emit_loop(
            b_, r.lo, t.whole_hi, t.tile, [&](llvm::Value* at) { one_tile(t, at, {t.tile}, inner); }, "tile");
    }
}

void StageTiles::tail(const Tiles& t, llvm::Value* at, const std::function<void()>& inner) {
    if (t.a == va_ && t.rest) {
        const int64_t in_last = *t.rest % lanes_;
        one_tile(t, at, {*t.rest, in_last == 0 ? nullptr : constant_mask(in_last), false, true}, inner);
    } else if (t.a == va_) {
        one_tile(t, at, {lanes_, runtime_mask(at, t.hi)}, inner);
    } else if (t.rest) {
        one_tile(t, at, {*t.rest}, inner);
    } else {
        tail_specialised(t, at, b_.CreateSub(t.hi, at), inner);
    }
}

void StageTiles::tail_of_tiles(const Tiles& t, bool dynamic, const std::function<void()>& inner) {
    // See tail_step.
    const int64_t largest = t.sizes.back();
    llvm::Value* step = b_.getInt64(static_cast<uint64_t>(largest));
    if (t.longest <= 2 * largest) {
        llvm::Value* points = b_.CreateSub(t.hi, t.whole_hi);
        llvm::Value* half = b_.CreateLShr(b_.CreateAdd(points, b_.getInt64(1)), 1);
        step = b_.CreateSelect(b_.CreateICmpSGT(points, step), half, step);
    }
    emit_loop(
        b_, t.whole_hi, t.hi, step,
        [&](llvm::Value* at) { tail_specialised(t, at, extremum(b_.CreateSub(t.hi, at), step, false), inner); }, "rest",
        dynamic);
}

void StageTiles::tail_specialised(const Tiles& t, llvm::Value* at, llvm::Value* left,
                                  const std::function<void()>& inner) {
    const std::vector<int64_t>& sizes = t.sizes;
    if (sizes.size() == 1) return one_tile(t, at, {sizes[0], nullptr, sizes[0] > 1}, inner);
    const auto bound = [&](size_t i) { return b_.getInt64(static_cast<uint64_t>(sizes[i])); };
    for (size_t i = 0; i < sizes.size(); ++i) {
        llvm::Value* this_one = b_.getTrue();
        if (i > 0) this_one = b_.CreateICmpSGT(left, bound(i - 1));
        if (i + 1 < sizes.size()) this_one = b_.CreateAnd(this_one, b_.CreateICmpSLE(left, bound(i)));
        const bool exact = sizes[i] == (i > 0 ? sizes[i - 1] : 0) + 1;
        branch(this_one, [&] { one_tile(t, at, {sizes[i], nullptr, !exact}, inner); });
    }
}

void StageTiles::tiles_of(size_t a, const std::function<void()>& inner) {
    const AxisRange& r = axis_ranges_[a];
    Tiles t = tiles_in(a);
    if (t.tile == 1) {
        emit_loop(
            b_, r.lo, t.hi, 1, [&](llvm::Value* at) { one_tile(t, at, {}, inner); }, "at");
        return;
    }
    full_tiles(t, inner);
    if (t.rest && *t.rest == 0) return;
    if (r.constant_extent) return tail(t, t.whole_hi, inner);
    const bool dynamic =
        std::any_of(e_.extents.begin(), e_.extents.end(), [](const Expr& x) { return !x.is_constant(); });
    if (!t.rest && (a == va_ || a >= e_.spatial)) {
        // Dynamic tail: single vectors under a mask; reduction axes point by point.
        emit_loop(
            b_, t.whole_hi, t.hi, a == va_ ? lanes_ : 1,
            [&](llvm::Value* at) { a == va_ ? tail(t, at, inner) : one_tile(t, at, {}, inner); }, "rest", dynamic);
        return;
    }
    if (!t.rest && t.sizes.back() < t.longest) return tail_of_tiles(t, dynamic, inner);
    emit_loop(
        b_, t.whole_hi, t.hi, t.tile, [&](llvm::Value* at) { tail(t, at, inner); }, "rest", dynamic);
}

llvm::Value* StageTiles::constant_mask(int64_t active) {
    std::vector<llvm::Constant*> bits;
    bits.reserve(static_cast<size_t>(lanes_));
    for (int i = 0; i < lanes_; ++i) bits.push_back(b_.getInt1(i < active));
    return llvm::ConstantVector::get(bits);
}

llvm::Value* StageTiles::runtime_mask(llvm::Value* at, llvm::Value* hi) {
    llvm::Value* left = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.CreateSub(hi, at));
    llvm::Value* lane = exprs_.binding({VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
    return b_.CreateICmpSLT(lane, left);
}

}  // namespace tilewright::cpu
