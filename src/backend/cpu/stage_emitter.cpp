#include "backend/cpu/stage_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/cpu/cuts.h"
#include "backend/cpu/scalar_emitter.h"
#include "backend/cpu/vectors.h"
#include "base/error.h"

namespace tilewright::cpu {

void emit_loop(llvm::IRBuilder<>& b, llvm::Value* lo, llvm::Value* hi, int64_t step,
               const std::function<void(llvm::Value*)>& body, const char* name) {
    auto* const_lo = llvm::dyn_cast<llvm::ConstantInt>(lo);
    auto* const_hi = llvm::dyn_cast<llvm::ConstantInt>(hi);
    if (const_lo != nullptr && const_hi != nullptr) {
        const int64_t trips = (const_hi->getSExtValue() - const_lo->getSExtValue() + step - 1) / step;
        if (trips <= 0) return;
        if (trips == 1) return body(lo);
    }
    llvm::Function* f = b.GetInsertBlock()->getParent();
    llvm::LLVMContext& c = b.getContext();
    auto* loop = llvm::BasicBlock::Create(c, name, f);
    auto* done = llvm::BasicBlock::Create(c, std::string(name) + ".done", f);
    llvm::BasicBlock* before = b.GetInsertBlock();
    if (const_lo != nullptr && const_hi != nullptr)
        b.CreateBr(loop);
    else
        b.CreateCondBr(b.CreateICmpSLT(lo, hi), loop, done);
    b.SetInsertPoint(loop);
    llvm::PHINode* iv = b.CreatePHI(b.getInt64Ty(), 2, name);
    iv->addIncoming(lo, before);
    body(iv);
    llvm::Value* next = b.CreateNSWAdd(iv, b.getInt64(static_cast<uint64_t>(step)));
    iv->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpSLT(next, hi), loop, done);
    b.SetInsertPoint(done);
}

namespace {

/// A value at one combination of register coordinates: a scalar where it does not depend on the vector axis.
struct Val {
    llvm::Value* v = nullptr;
    bool is_vector = false;
};

class StageEmitter {
  public:
    StageEmitter(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job)
        : b_(builder),
          c_(builder.getContext()),
          exprs_(vars),
          job_(job),
          e_(*job.expr),
          m_(*job.micro),
          axis_ranges_(job.ranges) {
        n_axes_ = e_.extents.size();
        has_vector_ = m_.vector_axis.has_value() && m_.lanes > 1;
        va_ = has_vector_ ? *m_.vector_axis : n_axes_;
        lanes_ = has_vector_ ? static_cast<int>(m_.lanes) : 0;
        vector_reduces_ = has_vector_ && va_ >= e_.spatial;
        acc_type_ = e_.body.dtype();
        regs_.assign(n_axes_, 1);
        clamp_.assign(n_axes_, false);
        base_.assign(n_axes_, nullptr);
        lane_axis_ = n_axes_;  // extra axis variables: the lane, and the vector axis in units of lanes
        block_axis_ = n_axes_ + 1;
        setup_ranges();
        setup_dependences();
        if (has_vector_) {
            std::vector<llvm::Constant*> lane_numbers;
            for (int i = 0; i < lanes_; ++i) lane_numbers.push_back(b_.getInt64(static_cast<uint64_t>(i)));
            exprs_.bind({VarKind::Axis, static_cast<uint32_t>(lane_axis_)}, llvm::ConstantVector::get(lane_numbers));
            aligned_ = axis_ranges_[va_].lo_multiple % lanes_ == 0;
        }
        for (size_t a = 0; a < n_axes_; ++a)
            if (a != va_) bind_axis(a, axis_ranges_[a].lo);
    }

    void run() {
        decide_first_last();
        choose_cuts();
        segments(0);
    }

  private:
    // --- what is known

    void setup_ranges() {
        Ranges r;
        for (size_t a = 0; a < n_axes_; ++a) r.axes.push_back({Expr(0), e_.extents[a] - 1});
        r.axes.push_back({Expr(0), Expr(std::max(1, lanes_) - 1)});
        Interval block{Expr(0), std::nullopt};
        if (has_vector_) block.hi = floor_div(e_.extents[va_] - 1, lanes_);
        r.axes.push_back(block);
        for (const Access& a : e_.accesses) {
            (void)a;
            r.loads.push_back({});
        }
        // A load used as an index lies inside the dimension it indexes, wherever the element is read.
        for (size_t i = 0; i < e_.accesses.size(); ++i)
            for (size_t d = 0; d < e_.accesses[i].index.size() && e_.accesses[i].valid.empty(); ++d)
                if (auto v = e_.accesses[i].index[d].as_var(); v && v->kind == VarKind::Load && v->id < r.loads.size())
                    r.loads[v->id] = {Expr(0), std::nullopt};
        ranges_ = r;
        exprs_.set_ranges(r);
    }

    using Mask = uint64_t;  // which axes a value depends on

    Mask mask_of(Expr e) const {
        Mask m = 0;
        for (const Var v : variables(e)) {
            if (v.kind == VarKind::Axis) m |= Mask{1} << v.id;
            if (v.kind == VarKind::Load) m |= access_mask_.at(v.id);
        }
        return m;
    }

    void setup_dependences() {
        TW_CHECK(n_axes_ < 60);
        for (const Access& a : e_.accesses) {
            Mask m = 0;
            for (const Expr& i : a.index) m |= mask_of(i);
            for (const Expr& i : a.valid) m |= mask_of(i);
            access_mask_.push_back(m);
        }
        body_mask_ = node_masks(e_.body);
        epilogue_mask_ = node_masks(e_.epilogue);
    }

    std::vector<Mask> node_masks(const ScalarBody& body) const {
        std::vector<Mask> masks;
        for (const ScalarNode& n : body.nodes()) {
            Mask m = 0;
            if (n.op == ScalarOp::Access) m = access_mask_[n.slot];
            if (n.op == ScalarOp::Index) m = mask_of(n.index);
            if (n.op == ScalarOp::Acc) m = (Mask{1} << e_.spatial) - 1;
            for (const ScalarId k : {n.a, n.b, n.c})
                if (k) m |= masks[k.index()];
            masks.push_back(m);
        }
        return masks;
    }

    bool on_vector(Mask m) const { return has_vector_ && ((m >> va_) & 1) != 0; }

    void decide_first_last() {
        llvm::Value* first = b_.getTrue();
        llvm::Value* last = b_.getTrue();
        for (size_t a = e_.spatial; a < n_axes_; ++a) {
            const AxisRange& r = axis_ranges_[a];
            if (r.full) continue;
            first = b_.CreateAnd(first, b_.CreateICmpEQ(r.lo, b_.getInt64(0)));
            last = b_.CreateAnd(last, b_.CreateICmpEQ(b_.CreateAdd(r.lo, r.extent), exprs_.scalar(r.total)));
            partial_ = true;
        }
        first_ = first;
        last_ = last;
        if (partial_)
            TW_CHECK(compute_type(job_.out_dtype) == job_.out_dtype && job_.out_dtype == acc_type_,
                     "partial reductions are kept in the result, which has another type");
    }

    // --- segments

    void choose_cuts() {
        CutQuestion q;
        q.expr = &e_;
        q.ranges = &ranges_;
        for (size_t a = 0; a < e_.spatial; ++a) q.may_cut.push_back(a != va_ || axis_ranges_[a].full);
        for (const Place& place : job_.accesses) q.checked.push_back(place.checked);
        for (size_t a = 0; a < n_axes_; ++a)
            if (m_.registers.size() > a && a != va_) q.tile_points *= static_cast<size_t>(m_.registers[a]);
        cuts_ = cpu::choose_cuts(q);
    }

    /// Runs the loops once for each box that the cuts make.
    void segments(size_t a) {
        if (a == n_axes_) return spatial_loops(0);
        if (cuts_[a].empty()) return segments(a + 1);
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
                end = exprs_.scalar(to);
                end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, end, start);
                end = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, hi);
            }
            AxisRange& r = axis_ranges_[a];
            r = whole;
            r.lo = start;
            r.extent = b_.CreateSub(end, start);
            r.to_end = false;
            r.constant_extent.reset();
            if (const auto* k = llvm::dyn_cast<llvm::ConstantInt>(r.extent)) r.constant_extent = k->getSExtValue();
            if (const auto* k = llvm::dyn_cast<llvm::ConstantInt>(start))
                r.lo_multiple = k->getSExtValue();
            else
                r.lo_multiple = 1;
            if (a == va_) aligned_ = r.lo_multiple % lanes_ == 0;
            ranges_.axes[a] = {from, to - 1};
            if (a == va_) ranges_.axes[block_axis_] = {Expr(0), floor_div(to - 1, lanes_)};
            exprs_.set_ranges(ranges_);
            if (!r.constant_extent || *r.constant_extent > 0) segments(a + 1);
            start = end;
            from = to;
        }
        axis_ranges_[a] = whole;
        ranges_.axes[a] = known;
        ranges_.axes[block_axis_] = known_blocks;
        exprs_.set_ranges(ranges_);
        if (a == va_) aligned_ = whole.lo_multiple % lanes_ == 0;
    }

    // --- loops

    void bind_axis(size_t a, llvm::Value* value) {
        base_[a] = value;
        if (a == va_) {
            if (aligned_)
                exprs_.bind({VarKind::Axis, static_cast<uint32_t>(block_axis_)},
                            b_.CreateUDiv(value, b_.getInt64(static_cast<uint64_t>(lanes_)), "", true));
            exprs_.bind({VarKind::Axis, static_cast<uint32_t>(a)}, value);
            return;
        }
        exprs_.bind({VarKind::Axis, static_cast<uint32_t>(a)}, value);
    }

    int64_t register_tile(size_t a) const {
        const int64_t r = a < m_.registers.size() ? m_.registers[a] : 1;
        return a == va_ ? std::max<int64_t>(r, lanes_) : std::max<int64_t>(r, 1);
    }

    std::vector<size_t> order(bool reductions) const {
        std::vector<size_t> out;
        for (const size_t a : m_.order)
            if ((a >= e_.spatial) == reductions) out.push_back(a);
        for (size_t a = 0; a < n_axes_; ++a)
            if ((a >= e_.spatial) == reductions && std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
        return out;
    }

    /// Runs `inner` once for every register tile of axis a; full tiles in a loop, the rest as its own code.
    void tiles_of(size_t a, const std::function<void()>& inner) {
        const AxisRange& r = axis_ranges_[a];
        const int64_t tile = register_tile(a);
        const bool lanes_here = a == va_;
        llvm::Value* hi = b_.CreateAdd(r.lo, r.extent);
        const auto with = [&](llvm::Value* at, int64_t points, llvm::Value* mask, bool clamp, bool rest_known = false) {
            bind_axis(a, at);
            regs_[a] = lanes_here ? (points + lanes_ - 1) / lanes_ : points;
            clamp_[a] = clamp;
            if (clamp) clamp_hi_[a] = hi;
            if (lanes_here) tail_mask_ = mask;
            // A tile of that many points starts so many before the end: padding it cannot touch needs no check.
            const auto ranges = std::pair(ranges_.axes[a], ranges_.axes[block_axis_]);
            if (!clamp && (mask == nullptr || rest_known)) {
                const Expr last = *ranges_.axes[a].hi + 1 - points;
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
        };
        if (tile == 1) {
            emit_loop(
                b_, r.lo, hi, 1, [&](llvm::Value* at) { with(at, 1, nullptr, false); }, "at");
            return;
        }
        // The number of points behind the full tiles, where it is known.
        std::optional<int64_t> rest;
        if (r.constant_extent)
            rest = *r.constant_extent % tile;
        else if (r.to_end && r.lo_multiple % tile == 0 && r.total.is_constant())
            rest = r.total.constant() % tile;
        llvm::Value* whole = nullptr;
        if (r.constant_extent) {
            whole = b_.getInt64(static_cast<uint64_t>(*r.constant_extent / tile * tile));
        } else {
            llvm::Value* t = b_.getInt64(static_cast<uint64_t>(tile));
            whole = b_.CreateMul(b_.CreateUDiv(r.extent, t), t);
        }
        llvm::Value* whole_hi = b_.CreateAdd(r.lo, whole);
        if (!r.constant_extent || *r.constant_extent >= tile)
            emit_loop(
                b_, r.lo, whole_hi, tile, [&](llvm::Value* at) { with(at, tile, nullptr, false); }, "tile");
        if (rest && *rest == 0) return;
        const auto tail = [&](llvm::Value* at) {
            if (lanes_here) {
                const int64_t points = rest ? *rest : tile;
                if (rest) {
                    const int64_t in_last = *rest % lanes_;
                    with(at, points, in_last == 0 ? nullptr : constant_mask(in_last), false, true);
                } else {
                    with(at, lanes_, runtime_mask(at, hi), false);
                }
            } else if (rest) {
                with(at, *rest, nullptr, false);
            } else if (tile < 4) {
                with(at, tile, nullptr, true);
            } else {
                // A rest that only the run knows: all of the tile, half of it, or one row, whichever is least.
                const int64_t half = (tile + 1) / 2;
                llvm::Value* left = b_.CreateSub(hi, at);
                llvm::Value* few = b_.CreateICmpSLE(left, b_.getInt64(static_cast<uint64_t>(half)));
                llvm::Value* one = b_.CreateICmpEQ(left, b_.getInt64(1));
                branch(b_.CreateNot(few), [&] { with(at, tile, nullptr, true); });
                branch(b_.CreateAnd(few, b_.CreateNot(one)), [&] { with(at, half, nullptr, true); });
                branch(one, [&] { with(at, 1, nullptr, false); });
            }
        };
        if (r.constant_extent) return tail(whole_hi);
        if (!rest && (lanes_here || a >= e_.spatial)) {
            // Unknown rest: vectors one at a time under a mask; reduction axes one point at a time.
            emit_loop(
                b_, whole_hi, hi, lanes_here ? lanes_ : 1,
                [&](llvm::Value* at) { lanes_here ? tail(at) : with(at, 1, nullptr, false); }, "rest");
            return;
        }
        emit_loop(b_, whole_hi, hi, tile, tail, "rest");
    }

    llvm::Value* constant_mask(int64_t active) {
        std::vector<llvm::Constant*> bits;
        for (int i = 0; i < lanes_; ++i) bits.push_back(b_.getInt1(i < active));
        return llvm::ConstantVector::get(bits);
    }
    llvm::Value* runtime_mask(llvm::Value* at, llvm::Value* hi) {
        llvm::Value* left = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.CreateSub(hi, at));
        llvm::Value* lane = exprs_.binding({VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
        return b_.CreateICmpSLT(lane, left);
    }

    void spatial_loops(size_t k) {
        const std::vector<size_t> axes = order(false);
        if (k == axes.size()) return tile_body();
        tiles_of(axes[k], [&] { spatial_loops(k + 1); });
    }

    void reduction_loops(size_t k) {
        const std::vector<size_t> axes = order(true);
        if (k == axes.size()) return accumulate();
        tiles_of(axes[k], [&] { reduction_loops(k + 1); });
    }

    // --- one register tile

    using Coords = std::vector<int64_t>;

    /// Every combination of register coordinates of the spatial (or reduction) axes; the vector axis varies fastest, so
    /// that a row's broadcast operand meets all its vectors and is done with: two tiles of rows do not fit registers.
    std::vector<Coords> points(bool reductions) const {
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

    void tile_body() {
        forget();
        const std::vector<Coords> tile = points(false);
        if (e_.reducer == Reducer::None) {
            for (const Coords& p : tile) store(p, evaluate(e_.body, body_mask_, e_.body.root(), p, {}));
            return;
        }
        const bool acc_vector = has_vector_;
        const int64_t partials = vector_reduces_ ? std::max<int64_t>(1, register_tile(va_) / lanes_) : 1;
        llvm::Type* type = register_type(c_, acc_type_, acc_vector ? lanes_ : 0);
        const auto saved = std::pair(acc_, acc_partials_);
        acc_.clear();
        acc_partials_ = partials;
        llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
        for (size_t i = 0; i < tile.size() * static_cast<size_t>(partials); ++i) {
            llvm::IRBuilder<> at_entry(&entry, entry.begin());
            acc_.push_back(at_entry.CreateAlloca(type, nullptr, "acc"));
        }
        llvm::Value* identity = identity_of(c_, e_.reducer, acc_type_, acc_vector ? lanes_ : 0);
        for (llvm::AllocaInst* a : acc_) b_.CreateStore(identity, a);
        if (partial_ && !vector_reduces_) {
            branch(b_.CreateNot(first_), [&] {
                for (size_t i = 0; i < tile.size(); ++i)
                    b_.CreateStore(before(tile[i]), acc_[i * static_cast<size_t>(partials)]);
            });
        }
        tile_points_ = tile;
        reduction_loops(0);
        forget();
        // Finish: partial accumulators and lanes together.
        std::vector<Val> done;
        for (size_t i = 0; i < tile.size(); ++i) {
            llvm::Value* v = b_.CreateLoad(type, acc_[i * static_cast<size_t>(partials)]);
            for (int64_t p = 1; p < partials; ++p)
                v = emit_combine(b_, e_.reducer, acc_type_, v,
                                 b_.CreateLoad(type, acc_[i * static_cast<size_t>(partials) + static_cast<size_t>(p)]));
            if (vector_reduces_) {
                v = across_lanes(v);
                if (partial_) {
                    llvm::Value* identity_lane = identity_of(c_, e_.reducer, acc_type_, 0);
                    v = emit_combine(b_, e_.reducer, acc_type_, b_.CreateSelect(first_, identity_lane, before(tile[i])),
                                     v);
                }
            }
            done.push_back({v, acc_vector && !vector_reduces_});
        }
        const auto finish = [&] {
            forget();
            for (size_t i = 0; i < tile.size(); ++i) {
                if (job_.correction) store_correction(tile[i], done[i]);
                if (e_.epilogue.empty())
                    store(tile[i], done[i]);
                else
                    store(tile[i], evaluate(e_.epilogue, epilogue_mask_, e_.epilogue.root(), tile[i], done[i]));
            }
        };
        if (!partial_ || e_.epilogue.empty()) {
            finish();
        } else {
            branch(b_.CreateNot(last_), [&] {
                forget();
                for (size_t i = 0; i < tile.size(); ++i) store(tile[i], done[i]);
            });
            branch(last_, finish);
        }
        std::tie(acc_, acc_partials_) = saved;
        forget();
    }

    /// What was reduced so far, as it counts now.
    llvm::Value* before(const Coords& p) {
        llvm::Value* v = load_out(p);
        if (!job_.rescale) return v;
        const Val factor = access(*job_.rescale, p);
        return b_.CreateFMul(v, vector_reduces_ ? factor.v : widen(factor));
    }

    /// exp(old - new) of a maximum; 1 where both are the same infinity.
    void store_correction(const Coords& p, const Val& now) {
        llvm::Value* then = load_out(p);
        llvm::Value* same = b_.CreateFCmpOEQ(then, now.v);
        llvm::Value* factor =
            emit_scalar_op(b_, ScalarOp::Exp, acc_type_, acc_type_, b_.CreateFSub(then, now.v), nullptr, nullptr);
        factor = b_.CreateSelect(same, llvm::ConstantFP::get(factor->getType(), 1), factor);
        store_inside(p, {factor, now.is_vector}, *job_.correction);
    }

    void branch(llvm::Value* condition, const std::function<void()>& then) {
        if (auto* k = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
            if (k->isOne()) then();
            return;
        }
        llvm::Function* f = b_.GetInsertBlock()->getParent();
        auto* yes = llvm::BasicBlock::Create(c_, "then", f);
        auto* done = llvm::BasicBlock::Create(c_, "then.done", f);
        b_.CreateCondBr(condition, yes, done);
        b_.SetInsertPoint(yes);
        then();
        b_.CreateBr(done);
        b_.SetInsertPoint(done);
    }

    /// One step of the reduction for the whole register tile.
    void accumulate() {
        forget();
        const std::vector<Coords> steps = points(true);
        for (const Coords& s : steps) {
            for (size_t i = 0; i < tile_points_.size(); ++i) {
                Coords p = tile_points_[i];
                for (size_t a = e_.spatial; a < n_axes_; ++a) p[a] = s[a];
                const int64_t partial = vector_reduces_ ? s[va_] % acc_partials_ : 0;
                llvm::AllocaInst* slot = acc_[i * static_cast<size_t>(acc_partials_) + static_cast<size_t>(partial)];
                llvm::Value* acc = b_.CreateLoad(slot->getAllocatedType(), slot);
                b_.CreateStore(step(acc, p), slot);
            }
        }
    }

    llvm::Value* step(llvm::Value* acc, const Coords& p) {
        const ScalarNode& root = e_.body[e_.body.root()];
        llvm::Value* next = nullptr;
        if (e_.reducer == Reducer::Sum && root.op == ScalarOp::Mul && is_float(acc_type_)) {
            const Val x = evaluate(e_.body, body_mask_, root.a, p, {});
            const Val y = evaluate(e_.body, body_mask_, root.b, p, {});
            next = b_.CreateIntrinsic(llvm::Intrinsic::fma, {acc->getType()}, {widen(x), widen(y), acc});
        } else {
            next = emit_combine(b_, e_.reducer, acc_type_, acc,
                                widen(evaluate(e_.body, body_mask_, e_.body.root(), p, {})));
        }
        // Lanes beyond the end of a vectorised reduction keep what they had.
        if (vector_reduces_ && tail_mask_ != nullptr && p[va_] == regs_[va_] - 1)
            next = b_.CreateSelect(tail_mask_, next, acc);
        return next;
    }

    llvm::Value* across_lanes(llvm::Value* v) {
        for (int half = lanes_ / 2; half >= 1; half /= 2) {
            std::vector<int> low, high;
            for (int i = 0; i < half; ++i) {
                low.push_back(i);
                high.push_back(i + half);
            }
            v = emit_combine(b_, e_.reducer, acc_type_, b_.CreateShuffleVector(v, low),
                             b_.CreateShuffleVector(v, high));
        }
        return b_.CreateExtractElement(v, uint64_t{0});
    }

    // --- values

    void forget() {
        memo_.clear();
        blocks_.clear();
        load_binding_.clear();
    }

    llvm::Value* widen(const Val& v) {
        if (v.is_vector || !has_vector_) return v.v;
        return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), v.v);
    }

    Val evaluate(const ScalarBody& body, const std::vector<Mask>& masks, ScalarId id, const Coords& p, const Val& acc) {
        const Mask mask = masks[id.index()];
        const ScalarNode& n = body[id];
        if (n.op == ScalarOp::Acc) return acc;
        Coords key_coords = p;
        for (size_t a = 0; a < n_axes_; ++a)
            if (((mask >> a) & 1) == 0) key_coords[a] = 0;
        const bool has_acc = &body == &e_.epilogue;
        const auto key = std::tuple(&body, id.value, has_acc ? p : key_coords);
        if (auto it = memo_.find(key); it != memo_.end()) return it->second;
        Val result;
        switch (n.op) {
            case ScalarOp::Const:
                result = {constant_of(c_, n.dtype, n.value, n.int_value, 0), false};
                break;
            case ScalarOp::Access:
                result = access(n.slot, key_coords);
                break;
            case ScalarOp::Index: {
                const Expr e = at(n.index, p);
                bind_loads(n.index, p);
                if (lane_dependent(e))
                    result = {exprs_.vector(e, lanes_), true};
                else
                    result = {exprs_.scalar(e), false};
                break;
            }
            case ScalarOp::Select:
                if (const auto choice = decided(body, n.a, p)) {
                    result = evaluate(body, masks, *choice ? n.b : n.c, p, acc);
                    break;
                }
                [[fallthrough]];
            default: {
                std::vector<Val> args;
                bool any_vector = false;
                for (const ScalarId k : {n.a, n.b, n.c}) {
                    if (!k) break;
                    args.push_back(evaluate(body, masks, k, p, acc));
                    any_vector = any_vector || args.back().is_vector;
                }
                std::array<llvm::Value*, 3> v{};
                for (size_t i = 0; i < args.size(); ++i) v[i] = any_vector ? widen(args[i]) : args[i].v;
                const DType operand = body[n.op == ScalarOp::Select ? n.b : n.a].dtype;
                result = {emit_scalar_op(b_, n.op, n.dtype, operand, v[0], v[1], v[2]), any_vector};
            }
        }
        memo_[key] = result;
        return result;
    }

    /// What a comparison of indices gives at every lane of p, where that is known.
    std::optional<bool> decided(const ScalarBody& body, ScalarId condition, const Coords& p) {
        const auto c = index_condition(body, condition);
        if (!c) return std::nullopt;
        const Expr e = at(c->expression, p);
        if (prove_nonnegative(e, ranges_)) return !c->negated;
        if (prove_nonnegative(-e - 1, ranges_)) return c->negated;
        return std::nullopt;
    }

    /// The expression at register coordinates p: axis a becomes its base plus the coordinate; the vector axis becomes
    /// lanes * block + lanes * coordinate + lane where its base is known to be a multiple of the lanes.
    Expr at(Expr e, const Coords& p) {
        const Expr s = substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Axis || v.id >= n_axes_) return std::nullopt;
            const size_t a = v.id;
            if (a == va_) {
                const Expr lane = axis(lane_axis_);
                if (aligned_) return axis(block_axis_) * lanes_ + lane + p[a] * lanes_;
                return axis(a) + lane + p[a] * lanes_;
            }
            if (clamp_[a]) return min(axis(a) + p[a], scalar(clamp_name(a)) - 1);
            if (p[a] != 0) return axis(a) + p[a];
            return std::nullopt;
        });
        for (size_t a = 0; a < n_axes_; ++a)
            if (clamp_[a]) exprs_bind_once({VarKind::Scalar, scalar(clamp_name(a)).as_var()->id}, clamp_hi_[a]);
        return simplify(s, ranges_);
    }
    static std::string clamp_name(size_t a) { return "codegen.hi" + std::to_string(a); }
    void exprs_bind_once(Var v, llvm::Value* value) {
        auto it = clamp_bound_.find(v);
        if (it != clamp_bound_.end() && it->second == value) return;
        clamp_bound_[v] = value;
        exprs_.bind(v, value);
    }

    bool lane_dependent(Expr e) const {
        for (const Var v : variables(e))
            if ((v.kind == VarKind::Axis && v.id == lane_axis_) || exprs_.is_vector(v)) return true;
        return false;
    }

    /// Emits the loads an index uses and binds them.
    void bind_loads(Expr e, const Coords& p) {
        for (const Var v : variables(e)) {
            if (v.kind != VarKind::Load) continue;
            Coords q = p;
            for (size_t a = 0; a < n_axes_; ++a)
                if (((access_mask_[v.id] >> a) & 1) == 0) q[a] = 0;
            Val x = access(v.id, q);
            llvm::Type* i64 = b_.getInt64Ty();
            llvm::Type* t =
                x.is_vector ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(i64, static_cast<unsigned>(lanes_)))
                            : i64;
            const DType storage = job_.accesses[v.id].storage;
            llvm::Value* wide = b_.CreateIntCast(x.v, t, is_signed(storage));
            auto it = load_binding_.find(v.id);
            if (it != load_binding_.end() && it->second == wide) continue;
            load_binding_[v.id] = wide;
            exprs_.bind(v, wide);
        }
    }

    Expr offset_of(const Place& place, const std::vector<Expr>& index, const Coords& p) {
        std::vector<Expr> where;
        for (size_t d = 0; d < index.size(); ++d) {
            Expr i = at(index[d], p);
            if (!place.origin.empty()) i = i - place.origin[d];
            where.push_back(i);
        }
        if (place.layout) where = physical_index(*place.layout, place.box, where);
        Expr offset = 0;
        for (size_t d = 0; d < where.size(); ++d) offset += where[d] * place.strides[d];
        return simplify(offset, ranges_);
    }

    struct Address {
        llvm::Value* pointer = nullptr;   ///< of lane 0 (or of the scalar)
        int64_t lane_stride = 0;          ///< elements between lanes; unused when `lanes` is set
        llvm::Value* per_lane = nullptr;  ///< vector of pointers, for a gather
    };

    Address address(const Place& place, Expr offset) {
        llvm::Type* type = storage_type(c_, place.storage, 0);
        Address out;
        bool irregular = false;
        if (has_vector_) {
            for (const Var v : variables(offset)) irregular = irregular || exprs_.is_vector(v);
            const Var lane{VarKind::Axis, static_cast<uint32_t>(lane_axis_)};
            if (uses(offset, lane)) {
                const auto linear = linear_in(offset, lane);
                bool loads = false;
                for (const Var v : variables(offset)) loads = loads || (v.kind == VarKind::Load && exprs_.is_vector(v));
                if (linear && linear->coefficient.is_constant() && !loads) {
                    out.lane_stride = linear->coefficient.constant();
                    out.pointer = element(type, place.base, linear->rest);
                    return out;
                }
                irregular = true;
            }
        }
        if (irregular) {
            llvm::Value* offsets = exprs_.vector(offset, lanes_);
            out.per_lane = b_.CreateGEP(type, place.base, offsets);
            return out;
        }
        out.pointer = element(type, place.base, offset);
        return out;
    }

    llvm::Value* element(llvm::Type* type, llvm::Value* base, Expr offset) {
        const int64_t constant = offset.constant();
        llvm::Value* p = base;
        if (!offset.is_constant()) p = b_.CreateGEP(type, p, exprs_.scalar(offset - constant));
        if (constant != 0) p = b_.CreateGEP(type, p, b_.getInt64(static_cast<uint64_t>(constant)));
        return p;
    }

    template <class I>
    I* annotate(I* instruction, const Place& place) {
        if (place.scope != nullptr) instruction->setMetadata(llvm::LLVMContext::MD_alias_scope, place.scope);
        if (place.others != nullptr) instruction->setMetadata(llvm::LLVMContext::MD_noalias, place.others);
        return instruction;
    }

    llvm::Value* masked_load(const Place& place, llvm::Value* pointer, llvm::Value* mask) {
        return emit_masked_load(b_, vector_memory(place), pointer, mask,
                                [&](llvm::Instruction* i) { annotate(i, place); });
    }
    void masked_store(const Place& place, llvm::Value* pointer, llvm::Value* mask, llvm::Value* v) {
        emit_masked_store(b_, vector_memory(place), pointer, mask, v,
                          [&](llvm::Instruction* i) { annotate(i, place); });
    }
    VectorMemory vector_memory(const Place& place) const {
        return {storage_type(c_, place.storage, 0), static_cast<int>(byte_size(place.storage)), lanes_,
                job_.vector_bits};
    }

    /// The lanes of this register coordinate that are inside the axis; null: all.
    llvm::Value* lane_mask(const Coords& p) const {
        return tail_mask_ != nullptr && p[va_] == regs_[va_] - 1 ? tail_mask_ : nullptr;
    }

    Val access(size_t slot, const Coords& p) {
        Val x = read(slot, p);
        llvm::Value* final = job_.accesses[slot].final;
        if (final == nullptr) return x;
        llvm::Value* lowest = b_.CreateFCmpOEQ(x.v, llvm::ConstantFP::getInfinity(x.v->getType(), true));
        llvm::Value* open = b_.CreateNot(final);
        if (x.is_vector) open = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), open);
        x.v = b_.CreateSelect(b_.CreateAnd(lowest, open), llvm::Constant::getNullValue(x.v->getType()), x.v);
        return x;
    }

    Val read(size_t slot, const Coords& p) {
        const Access& a = e_.accesses[slot];
        const Place& place = job_.accesses[slot];
        for (const Expr& i : a.index) bind_loads(i, p);
        const bool vector_index = on_vector(access_mask_[slot]);
        llvm::Value* scalar_ok = nullptr;
        llvm::Value* lanes_ok = nullptr;
        if (!place.checked) {
            for (const Expr& condition : a.valid) {
                bind_loads(condition, p);
                const Expr e = at(condition, p);
                if (prove_nonnegative(e, ranges_)) continue;
                if (prove_nonnegative(-e - 1, ranges_)) {
                    const DType t = compute_type(place.storage);
                    return {constant_of(c_, t, a.fill, fill_int(a.fill), 0), false};
                }
                if (lane_dependent(e)) {
                    llvm::Value* ok = b_.CreateICmpSGE(exprs_.vector(e, lanes_), splat_int(0));
                    lanes_ok = lanes_ok == nullptr ? ok : b_.CreateAnd(lanes_ok, ok);
                } else {
                    llvm::Value* ok = b_.CreateICmpSGE(exprs_.scalar(e), b_.getInt64(0));
                    scalar_ok = scalar_ok == nullptr ? ok : b_.CreateAnd(scalar_ok, ok);
                }
            }
        }
        const Expr offset = offset_of(place, a.index, p);
        const DType t = compute_type(place.storage);
        bool is_vector = vector_index && (lane_dependent(offset) || lanes_ok != nullptr);
        if (!vector_index) is_vector = false;
        llvm::Type* element_type = storage_type(c_, place.storage, 0);
        const auto align = llvm::Align(byte_size(place.storage));
        if (!is_vector) {
            Address where = address(place, offset);
            llvm::Value* pointer = where.pointer;
            if (scalar_ok != nullptr) pointer = b_.CreateSelect(scalar_ok, pointer, place.base);
            llvm::Value* v =
                from_storage(b_, place.storage, annotate(b_.CreateAlignedLoad(element_type, pointer, align), place));
            if (scalar_ok != nullptr)
                v = b_.CreateSelect(scalar_ok, v,
                                    constant_of(c_, t, a.fill, static_cast<int64_t>(fill_int(a.fill)), 0));
            return {v, false};
        }
        llvm::Value* mask = lane_mask(p);
        if (lanes_ok != nullptr) mask = mask == nullptr ? lanes_ok : b_.CreateAnd(mask, lanes_ok);
        if (scalar_ok != nullptr) {
            llvm::Value* all = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar_ok);
            mask = mask == nullptr ? all : b_.CreateAnd(mask, all);
        }
        llvm::Type* vector_type = storage_type(c_, place.storage, lanes_);
        Address where = address(place, offset);
        llvm::Value* v = nullptr;
        if (where.per_lane == nullptr && where.lane_stride == 1) {
            if (mask == nullptr) {
                v = annotate(b_.CreateAlignedLoad(vector_type, where.pointer, align), place);
            } else {
                v = masked_load(place, where.pointer, mask);
            }
        } else if (where.per_lane == nullptr && where.lane_stride == 0) {
            llvm::Value* pointer = where.pointer;
            if (scalar_ok != nullptr)
                pointer = b_.CreateSelect(scalar_ok, pointer, place.base);
            else if (lanes_ok != nullptr)
                pointer = b_.CreateSelect(b_.CreateOrReduce(mask), pointer, place.base);
            llvm::Value* s = annotate(b_.CreateAlignedLoad(element_type, pointer, align), place);
            v = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), s);
        } else if (const auto across = transposing_axis(slot, p)) {
            v = transposed(slot, p, *across, mask);
        } else {
            llvm::Value* pointers = where.per_lane;
            if (pointers == nullptr) {
                llvm::Value* lane = exprs_.binding({VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
                pointers = b_.CreateGEP(element_type, where.pointer, b_.CreateMul(lane, splat_int(where.lane_stride)));
            }
            llvm::Value* m = mask != nullptr ? mask
                                             : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(
                                                   b_.getInt1Ty(), static_cast<unsigned>(lanes_)));
            v = annotate(
                b_.CreateMaskedGather(vector_type, pointers, align, m, llvm::Constant::getNullValue(vector_type)),
                place);
        }
        v = from_storage(b_, place.storage, v);
        if (lanes_ok != nullptr || scalar_ok != nullptr)
            v = b_.CreateSelect(mask, v, constant_of(c_, t, a.fill, fill_int(a.fill), lanes_));
        return {v, true};
    }

    /// An axis along which the register tile holds a vector's worth of neighbours in this access's memory, while lanes
    /// are a constant stride apart: then `lanes` contiguous loads and a transposition in registers replace as many
    /// gathers. Conditions may depend on the lane, not on that axis.
    std::optional<size_t> transposing_axis(size_t slot, const Coords& p) {
        const Access& a = e_.accesses[slot];
        const Place& place = job_.accesses[slot];
        if (tail_mask_ != nullptr) return std::nullopt;
        for (size_t u = 0; u < n_axes_; ++u) {
            if (u == va_ || regs_[u] == 1 || regs_[u] % lanes_ != 0 || clamp_[u]) continue;
            if (((access_mask_[slot] >> u) & 1) == 0) continue;
            Coords q = p;
            q[u] = p[u] / lanes_ * lanes_;
            const Expr start = offset_of(place, a.index, q);
            bool contiguous = true;
            for (int i = 1; i < lanes_ && contiguous; ++i) {
                Coords next = q;
                next[u] += i;
                contiguous = simplify(offset_of(place, a.index, next) - start, ranges_).is_constant(i);
            }
            if (!contiguous) continue;
            const Address where = address(place, start);
            if (where.per_lane != nullptr) continue;
            bool decided = true;
            if (!place.checked)
                for (const Expr& condition : a.valid) {
                    if (((mask_of(condition) >> u) & 1) == 0) continue;
                    for (int i = 0; i < lanes_ && decided; ++i) {
                        Coords next = q;
                        next[u] += i;
                        decided = prove_nonnegative(at(condition, next), ranges_);
                    }
                }
            if (decided) return u;
        }
        return std::nullopt;
    }

    /// Element p of the block that transposing_axis found. The block is loaded once:
    ///     row i = load [pointer + i * stride], lanes neighbours along u;   the block transposed = vectors along the
    ///     lanes
    llvm::Value* transposed(size_t slot, const Coords& p, size_t u, llvm::Value* mask) {
        const Place& place = job_.accesses[slot];
        Coords q = p;
        q[u] = p[u] / lanes_ * lanes_;
        std::vector<llvm::Value*>& rows = blocks_[{slot, q}];
        if (rows.empty()) {
            llvm::Type* type = storage_type(c_, place.storage, lanes_);
            const auto align = llvm::Align(byte_size(place.storage));
            const Address where = address(place, offset_of(place, e_.accesses[slot].index, q));
            for (int i = 0; i < lanes_; ++i) {
                llvm::Value* pointer = b_.CreateGEP(storage_type(c_, place.storage, 0), where.pointer,
                                                    b_.getInt64(static_cast<uint64_t>(where.lane_stride * i)));
                if (mask == nullptr) {
                    rows.push_back(annotate(b_.CreateAlignedLoad(type, pointer, align), place));
                    continue;
                }
                llvm::Value* inside = b_.CreateVectorSplat(static_cast<unsigned>(lanes_),
                                                           b_.CreateExtractElement(mask, static_cast<uint64_t>(i)));
                rows.push_back(masked_load(place, pointer, inside));
            }
            transpose_registers(b_, rows);
        }
        return rows[static_cast<size_t>(p[u] - q[u])];
    }

    static int64_t fill_int(double f) {
        if (f >= 9223372036854775807.0) return INT64_MAX;
        if (f <= -9223372036854775808.0) return INT64_MIN;
        return f != f ? 0 : static_cast<int64_t>(f);
    }

    llvm::Value* splat_int(int64_t v) {
        return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.getInt64(static_cast<uint64_t>(v)));
    }

    Expr out_offset(const Coords& p, const Place& place) {
        if (!e_.output_index.empty()) return offset_of(place, e_.output_index, p);
        std::vector<Expr> index;
        for (size_t a = 0; a < e_.spatial; ++a) index.push_back(axis(a));
        return offset_of(place, index, p);
    }

    /// A partial result, from where `store` put it.
    llvm::Value* load_out(const Coords& p) {
        const Place& place = job_.out;
        Address where = address(place, out_offset(p, place));
        const auto align = llvm::Align(byte_size(place.storage));
        if (!has_vector_ || vector_reduces_)
            return annotate(b_.CreateAlignedLoad(storage_type(c_, place.storage, 0), where.pointer, align), place);
        llvm::Type* type = storage_type(c_, place.storage, lanes_);
        llvm::Value* mask = lane_mask(p);
        if (where.per_lane == nullptr && where.lane_stride == 1) {
            if (mask == nullptr) return annotate(b_.CreateAlignedLoad(type, where.pointer, align), place);
            return masked_load(place, where.pointer, mask);
        }
        return annotate(b_.CreateMaskedGather(type, lane_pointers(place, where), align, all_or(mask),
                                              llvm::Constant::getNullValue(type)),
                        place);
    }

    llvm::Value* lane_pointers(const Place& place, const Address& where) {
        if (where.per_lane != nullptr) return where.per_lane;
        llvm::Value* lane = exprs_.binding({VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
        return b_.CreateGEP(storage_type(c_, place.storage, 0), where.pointer,
                            b_.CreateMul(lane, splat_int(where.lane_stride)));
    }
    llvm::Value* all_or(llvm::Value* mask) {
        if (mask != nullptr) return mask;
        return llvm::Constant::getAllOnesValue(
            llvm::FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(lanes_)));
    }

    void store(const Coords& p, const Val& value) {
        // Under clamping, points beyond the end would write again what the last one wrote: skip them.
        llvm::Value* inside = nullptr;
        for (size_t a = 0; a < e_.spatial; ++a) {
            if (!clamp_[a] || p[a] == 0) continue;
            llvm::Value* ok =
                b_.CreateICmpSLT(b_.CreateAdd(base_[a], b_.getInt64(static_cast<uint64_t>(p[a]))), clamp_hi_.at(a));
            inside = inside == nullptr ? ok : b_.CreateAnd(inside, ok);
        }
        if (inside != nullptr) {
            // Leaving the block ends what the memo may share.
            branch(inside, [&] { store_inside(p, value, job_.out); });
            return;
        }
        store_inside(p, value, job_.out);
    }

    void store_inside(const Coords& p, const Val& value, const Place& place) {
        Address where = address(place, out_offset(p, place));
        const auto align = llvm::Align(byte_size(place.storage));
        if (!has_vector_ || vector_reduces_) {
            TW_CHECK(!value.is_vector, "a scalar result is a vector");
            annotate(b_.CreateAlignedStore(to_storage(b_, place.storage, value.v), where.pointer, align), place);
            return;
        }
        llvm::Value* v = to_storage(b_, place.storage, widen(value));
        llvm::Value* mask = lane_mask(p);
        if (where.per_lane == nullptr && where.lane_stride == 1) {
            if (mask == nullptr)
                annotate(b_.CreateAlignedStore(v, where.pointer, align), place);
            else
                masked_store(place, where.pointer, mask, v);
            return;
        }
        annotate(b_.CreateMaskedScatter(v, lane_pointers(place, where), align, all_or(mask)), place);
    }

    llvm::IRBuilder<>& b_;
    llvm::LLVMContext& c_;
    ExprEmitter exprs_;
    const StageJob& job_;
    const TensorExpr& e_;
    const Micro& m_;
    size_t n_axes_ = 0, va_ = 0, lane_axis_ = 0, block_axis_ = 0;
    int lanes_ = 0;
    bool has_vector_ = false, vector_reduces_ = false, aligned_ = false, partial_ = false;
    DType acc_type_ = DType::F32;
    Ranges ranges_;
    std::vector<Mask> access_mask_, body_mask_, epilogue_mask_;
    std::vector<AxisRange> axis_ranges_;   ///< the job's, narrowed to the segment being emitted
    std::vector<std::vector<Expr>> cuts_;  ///< per axis, ascending

    llvm::Value* first_ = nullptr;
    llvm::Value* last_ = nullptr;
    std::vector<int64_t> regs_;  ///< register coordinates of each axis in the code being emitted
    std::vector<llvm::Value*> base_;
    std::vector<bool> clamp_;
    std::map<size_t, llvm::Value*> clamp_hi_;
    std::map<Var, llvm::Value*> clamp_bound_;
    llvm::Value* tail_mask_ = nullptr;  ///< of the last vector of the tile
    std::vector<llvm::AllocaInst*> acc_;
    int64_t acc_partials_ = 1;
    std::vector<Coords> tile_points_;
    std::map<std::tuple<const ScalarBody*, uint32_t, Coords>, Val> memo_;
    std::map<size_t, llvm::Value*> load_binding_;
    std::map<std::pair<size_t, Coords>, std::vector<llvm::Value*>> blocks_;  ///< transposed, by access and corner
};

}  // namespace

void emit_stage(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job) {
    StageEmitter(builder, vars, job).run();
}

}  // namespace tilewright::cpu
