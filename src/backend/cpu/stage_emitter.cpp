#include "backend/cpu/stage_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/cpu/scalar_emitter.h"
#include "backend/cpu/stage_values.h"
#include "base/error.h"
#include "cost/stage_model.h"
#include "program/analysis/contraction.h"
#include "program/weighed_sum.h"
#include "tile/cuts.h"
#include "tile/register_tile.h"

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

class StageEmitter : public StageValues {
  public:
    using StageValues::StageValues;

    void run() {
        decide_first_last();
        choose_cuts();
        choose_map();
        spatial_loops(0);
    }

  private:
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
            TW_CHECK(job_.out.storage == acc_type_,
                     "partial reductions are kept in the result, whose type is {}, not {}", to_string(job_.out.storage),
                     to_string(acc_type_));
    }

    // --- sums weighed by known numbers (program/weighed_sum.h)

    void choose_map() {
        if (partial_ || vector_reduces_) return;
        map_ = weighed_sum(e_);
        if (!map_) return;
        for (size_t k = 0; k < map_->rows.size(); ++k) {
            const uint32_t a = map_->rows[k];
            const bool blocks = map_->periodic[k] && axis_ranges_[a].lo_multiple % map_->row_extents[k] == 0 &&
                                register_tile(a) % map_->row_extents[k] == 0;
            if (a == va_ || !cuts_[a].empty() || (map_->periodic[k] && !blocks) ||
                (a < m_.virtual_threads.size() && m_.virtual_threads[a] > 1)) {
                map_.reset();
                return;
            }
        }
        for (size_t k = 0; k < map_->rows.size(); ++k)
            if (const uint32_t a = map_->rows[k]; map_->periodic[k]) {
                period_[a] = map_->row_extents[k];
                bind_axis(a, axis_ranges_[a].lo);
            }
        shared_ = share_sums(*map_);
    }

    /// Whether the register tile holds all rows of the map, so that every weight in it is known.
    bool holds_map() const {
        if (!map_) return false;
        for (size_t k = 0; k < map_->rows.size(); ++k) {
            const uint32_t a = map_->rows[k];
            const auto* base = llvm::dyn_cast<llvm::ConstantInt>(base_[a]);
            const bool whole = base != nullptr && base->isZero() && regs_[a] == e_.extents[a].constant();
            if (clamp_[a] || (!map_->periodic[k] && !whole)) return false;
        }
        return true;
    }

    /// A node of the shared sums where the register tile's other axes are at p, once for each such place.
    llvm::Value* shared_sum(size_t node, const Coords& p) {
        llvm::Value*& known = sums_[{node, p}];
        if (known != nullptr) return known;
        const auto splat = [&](double v) { return constant_of(c_, acc_type_, v, 0, has_vector_ ? lanes_ : 0); };
        TW_CHECK(map_, "sums of no map");
        if (node < shared_.inputs) {
            Coords at = p;
            map_->to_column(node, at);
            return known = widen(evaluate(e_.body, body_mask_, map_->term, at, {}));
        }
        std::vector<SharedSums::Term> terms = shared_.sums[node - shared_.inputs];
        std::stable_partition(terms.begin(), terms.end(), [](const auto& t) { return t.weight == 1; });
        llvm::Value* sum = nullptr;
        for (const auto& [of, weight] : terms) {
            llvm::Value* x = shared_sum(of, p);
            if (sum == nullptr)
                sum = weight == 1 ? x : weight == -1 ? b_.CreateFNeg(x) : b_.CreateFMul(x, splat(weight));
            else if (weight == 1)
                sum = b_.CreateFAdd(sum, x);
            else if (weight == -1)
                sum = b_.CreateFSub(sum, x);
            else
                sum = b_.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, splat(weight), sum});
        }
        return sums_[{node, p}] = sum;
    }

    /// Of its operand, over the stage's axes: which element an access reads.
    Expr element_number(size_t slot) const {
        Expr sum = 0;
        for (size_t d = 0; d < e_.accesses[slot].index.size(); ++d)
            sum += e_.accesses[slot].index[d] * job_.accesses[slot].strides[d];
        return sum;
    }

    /// What the map's next tile reads and this one has not is asked for, where it comes from far away: a tile's lines
    /// lie in as many places as it has inputs, and the hardware follows few of them.
    ///     6 x 6 pixels in steps of four, channels side by side: of the next tile the last four columns
    void fetch_next_map() {
        const std::vector<size_t> axes = order(false);
        if (!has_vector_ || vector_reduces_ || tile_points_.empty()) return;
        for (const uint32_t slot : e_.body.slots()) {
            const Place& place = job_.accesses[slot];
            if (!place.rows_stream || place.layout || !on_vector(access_mask_[slot])) continue;
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
            for (size_t c = 0; c < map_->column_count(); ++c) {
                Coords at(n_axes_, 0);
                map_->to_column(c, at);
                int64_t offset = 0;
                for (const uint32_t a : map_->columns) offset += strides[a] * at[a];
                lines.emplace(offset, std::move(at));
            }
            const auto bytes = static_cast<int64_t>(byte_size(place.storage));
            for (const auto& [offset, at] : lines) {
                if (lines.count(offset + ahead) != 0) continue;
                const Address here = address(place, offset_of(place, e_.accesses[slot].index, at));
                if (here.per_lane == nullptr) prefetch(here.pointer, 2 * ahead * bytes);
            }
        }
    }

    void store_map() {
        fetch_next_map();
        store_all([&] {
            for (const Coords& p : tile_points_) {
                const std::optional<size_t> node = shared_.rows[map_->row_at(p)];
                Coords elsewhere = p;
                for (size_t k = 0; k < map_->rows.size(); ++k)
                    elsewhere[map_->rows[k]] -= p[map_->rows[k]] % map_->row_extents[k];
                const Val sum{
                    node ? shared_sum(*node, elsewhere) : constant_of(c_, acc_type_, 0, 0, has_vector_ ? lanes_ : 0),
                    has_vector_};
                store(p, e_.epilogue.empty() ? sum : evaluate(e_.epilogue, epilogue_mask_, e_.epilogue.root(), p, sum));
            }
        });
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
        if (has_vector_ && va_ < e_.spatial) {
            q.vector_axis = va_;
            q.lanes = lanes_;
        }
        cuts_ = tilewright::choose_cuts(q);
    }

    /// Runs `inner` once for each piece that the cuts make of axis a: inside the loops around it, so that a row's
    /// padded ends are computed with the row, while it is near.
    void in_pieces(size_t a, const std::function<void()>& inner) {
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
            AxisRange& r = axis_ranges_[a];
            r = whole;
            r.lo = start;
            r.extent = b_.CreateSub(end, start);
            r.to_end = false;
            r.most = (to - from).is_constant() ? std::optional((to - from).constant()) : whole.most;
            r.constant_extent.reset();
            if (const auto* k = llvm::dyn_cast<llvm::ConstantInt>(r.extent)) r.constant_extent = k->getSExtValue();
            if (const auto* k = llvm::dyn_cast<llvm::ConstantInt>(start))
                r.lo_multiple = k->getSExtValue();
            else
                r.lo_multiple = 1;
            if (a == va_) aligned_ = r.lo_multiple % lanes_ == 0;
            ranges_.axes[a] = {from, to - 1};
            if (a == va_) ranges_.axes[block_axis_] = {floor_div(from, lanes_), floor_div(to - 1, lanes_)};
            exprs_.set_ranges(ranges_);
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

    /// The larger or smaller number; known at compile time where both are, which the builder leaves to later.
    llvm::Value* extremum(llvm::Value* x, llvm::Value* y, bool larger) {
        const auto *p = llvm::dyn_cast<llvm::ConstantInt>(x), *q = llvm::dyn_cast<llvm::ConstantInt>(y);
        if (p != nullptr && q != nullptr) return (p->getSExtValue() > q->getSExtValue()) == larger ? x : y;
        return b_.CreateBinaryIntrinsic(larger ? llvm::Intrinsic::smax : llvm::Intrinsic::smin, x, y);
    }

    // --- loops

    int64_t register_tile(size_t a) const {
        if (a == chained_axis_) return chains_;
        if (whole_sum_ && a >= e_.spatial) return e_.extents[a].constant();
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

    /// Whether rows of the result may be computed twice in a run, each time from the same operands.
    bool may_compute_again(size_t a) const {
        return a != va_ && a < e_.spatial && e_.reducer != Reducer::None && !partial_ && !job_.correction &&
               !job_.rescale && period_[a] == 0 && register_tile(a) >= 4 &&
               (a >= m_.virtual_threads.size() || m_.virtual_threads[a] <= 1);
    }

    /// The tail specialisations of a tile that are needed for tails of up to `most` points.
    ///     rungs_up_to(3, 4) = {1, 2, 3}    rungs_up_to(11, 12) = {1, 2, 3, 4, 5, 6, 8, 10, 12}
    static std::vector<int64_t> rungs_up_to(int64_t most, int64_t tile) {
        if (most <= 1) return {1};
        std::vector<int64_t> rungs = rest_rungs(tile);
        const auto last = std::lower_bound(rungs.begin(), rungs.end(), most);
        if (last != rungs.end()) rungs.erase(last + 1, rungs.end());
        return rungs;
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
                const int64_t threads = strips_[a].distance == 0 ? 1 : points / strips_[a].points;
                const Expr last =
                    *ranges_.axes[a].hi + 1 - points - (threads - 1) * (strips_[a].distance - strips_[a].points);
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
        // A padded end has few points and needs no code for tiles that it cannot hold. Kernels of padded convolutions
        // with dynamic sizes would be mostly such code.
        const bool fills = !r.most || *r.most >= tile;
        if (!fills) whole_hi = r.lo;
        const std::vector<int64_t> rungs = rungs_up_to(std::min(tile - 1, r.most.value_or(tile)), tile);
        const int64_t threads = a < m_.virtual_threads.size() ? m_.virtual_threads[a] : 1;
        if (threads > 1 && r.constant_extent && *r.constant_extent >= 2 * tile) {
            // Sub-tiles that lie a part of the range apart, side by side in registers only.
            const int64_t points = tile / threads;
            strips_[a] = {points, *r.constant_extent / tile * points};
            emit_loop(
                b_, r.lo, b_.CreateAdd(r.lo, b_.getInt64(static_cast<uint64_t>(strips_[a].distance))), points,
                [&](llvm::Value* at) { with(at, tile, nullptr, false); }, "strip");
            strips_[a] = {};
        } else if (!rest && fills && rungs.back() == tile && may_compute_again(a)) {
            // A rest that only the run knows, too long for code of its own, is the last whole tile of the range.
            // Clamped rows need a pointer each: 11 of 13 rows took twice a tile's time.
            llvm::Value* left = b_.CreateSub(hi, whole_hi);
            llvm::Value* again =
                b_.CreateAnd(b_.CreateICmpSGE(r.extent, b_.getInt64(static_cast<uint64_t>(tile))),
                             b_.CreateICmpSGT(left, b_.getInt64(static_cast<uint64_t>(rungs.rbegin()[1]))));
            llvm::Value* last = b_.CreateSub(hi, b_.getInt64(static_cast<uint64_t>(tile)));
            whole_hi = b_.CreateSelect(again, hi, whole_hi);
            emit_loop(
                b_, r.lo, whole_hi, tile,
                [&](llvm::Value* at) { with(extremum(at, last, false), tile, nullptr, false); }, "tile");
        } else if (r.constant_extent ? *r.constant_extent >= tile : fills) {
            emit_loop(
                b_, r.lo, whole_hi, tile, [&](llvm::Value* at) { with(at, tile, nullptr, false); }, "tile");
        }
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
            } else if (rungs.size() == 1) {
                with(at, rungs[0], nullptr, rungs[0] > 1);
            } else {
                // A rest that only the run knows: the least rung that holds it.
                llvm::Value* left = b_.CreateSub(hi, at);
                const auto bound = [&](size_t i) { return b_.getInt64(static_cast<uint64_t>(rungs[i])); };
                for (size_t i = 0; i < rungs.size(); ++i) {
                    llvm::Value* this_one = b_.getTrue();
                    if (i > 0) this_one = b_.CreateICmpSGT(left, bound(i - 1));
                    if (i + 1 < rungs.size()) this_one = b_.CreateAnd(this_one, b_.CreateICmpSLE(left, bound(i)));
                    const bool exact = rungs[i] == (i > 0 ? rungs[i - 1] : 0) + 1;
                    branch(this_one, [&] { with(at, rungs[i], nullptr, !exact); });
                }
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
        bits.reserve(static_cast<size_t>(lanes_));
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
        in_pieces(axes[k], [&] { tiles_of(axes[k], [&] { spatial_loops(k + 1); }); });
    }

    void reduction_loops(size_t k) {
        const std::vector<size_t> axes = order(true);
        if (k == axes.size()) return whole_sum_ ? store_map() : accumulate();
        tiles_of(axes[k], [&] { reduction_loops(k + 1); });
    }

    // --- one register tile

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

    /// Whether sums of a tile of so many results are taken in several chains (tile/register_tile.h), and in how many.
    void choose_chains(size_t results) {
        chained_axis_.reset();
        if (vector_reduces_ || !is_float(acc_type_) || !contraction(e_)) return;
        const size_t a = order(true).back();
        if (register_tile(a) > 1) return;
        chains_ = sum_chains(static_cast<int64_t>(results), axis_ranges_[a].constant_extent);
        if (chains_ > 1) chained_axis_ = a;
    }

    void tile_body() {
        forget();
        const std::vector<Coords> tile = points(false);
        if (e_.reducer == Reducer::None) {
            store_all([&] {
                for (const Coords& p : tile) store(p, evaluate(e_.body, body_mask_, e_.body.root(), p, {}));
            });
            return;
        }
        if (holds_map()) {
            tile_points_ = tile;
            whole_sum_ = true;
            reduction_loops(0);
            whole_sum_ = false;
            forget();
            return;
        }
        const bool acc_vector = has_vector_;
        llvm::Type* type = register_type(c_, acc_type_, acc_vector ? lanes_ : 0);
        choose_chains(tile.size());
        const int64_t partials = chained_axis_     ? chains_
                                 : vector_reduces_ ? std::max<int64_t>(1, register_tile(va_) / lanes_)
                                                   : 1;
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
        fetch_epilogue();
        reduction_loops(0);
        chained_axis_.reset();
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
        const auto finish_one = [&](const Coords& p, const Val& sum) {
            if (job_.correction) store_correction(p, sum);
            store(p, e_.epilogue.empty() ? sum : evaluate(e_.epilogue, epilogue_mask_, e_.epilogue.root(), p, sum));
        };
        const auto finish = [&] {
            forget();
            store_all([&] {
                if (const auto a = finishing_axis(tile)) return finish_in_loop(*a, tile, done, finish_one);
                for (size_t i = 0; i < tile.size(); ++i) finish_one(tile[i], done[i]);
            });
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

    /// The axis whose coordinates a loop goes through in which the tile's sums are finished, a few vectors a step; none
    /// where they are written out. An exponential for each of 28 sums, written out, is 700 instructions that LLVM
    /// orders by latency: constants, sums and halves of exponentials are spilled, several times each. A loop keeps its
    /// constants in registers. For few sums it does not pay: the processor meets its end before it is through with
    /// the product, and guesses it wrong.
    std::optional<size_t> finishing_axis(const std::vector<Coords>& tile) const {
        constexpr double kLong = 16;   // instructions of an epilogue; an exponential counts 12
        constexpr size_t kMany = 16;   // vectors
        constexpr int64_t kLeast = 4;  // steps
        if (!has_vector_ || vector_reduces_ || tile.size() < kMany || body_operations(e_.epilogue) < kLong)
            return std::nullopt;
        if (std::any_of(strips_.begin(), strips_.end(), [](const Strip& s) { return s.distance != 0; }))
            return std::nullopt;
        for (size_t a = 0; a < e_.spatial; ++a)
            if (a != va_ && regs_[a] >= kLeast && period_[a] == 0) return a;
        return std::nullopt;
    }

    /// finish_one(p, sum) of all sums of the tile, in a loop along the axis.
    void finish_in_loop(size_t along, const std::vector<Coords>& tile, const std::vector<Val>& done,
                        const std::function<void(const Coords&, const Val&)>& finish_one) {
        // The sums lie in memory as the loop meets them.
        llvm::Type* type = done[0].v->getType();
        const int64_t steps = regs_[along];
        const size_t a_step = tile.size() / static_cast<size_t>(steps);
        llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
        llvm::IRBuilder<> at_entry(&entry, entry.begin());
        llvm::AllocaInst* there = at_entry.CreateAlloca(llvm::ArrayType::get(type, tile.size()), nullptr, "sums");
        there->setAlignment(llvm::Align(static_cast<uint64_t>(lanes_) * byte_size(acc_type_)));
        const auto place = [&](llvm::Value* step, size_t k) {
            llvm::Value* number = b_.CreateMul(step, b_.getInt64(a_step));
            return b_.CreateGEP(type, there, b_.CreateAdd(number, b_.getInt64(k)));
        };
        std::vector<size_t> met(static_cast<size_t>(steps), 0);
        for (size_t i = 0; i < tile.size(); ++i) {
            const auto step = static_cast<size_t>(tile[i][along]);
            b_.CreateStore(done[i].v, place(b_.getInt64(step), met[step]++));
        }

        const auto saved = std::tuple(ranges_, clamp_, regs_, base_[along]);
        llvm::Value* end = b_.getInt64(static_cast<uint64_t>(steps));
        if (clamp_[along])
            end = extremum(end, b_.CreateSub(clamp_hi_.at(along), base_[along]), false);
        else if (auto& hi = ranges_.axes[along].hi)
            hi = *hi + (steps - 1);
        regs_[along] = 1;
        clamp_[along] = false;
        exprs_.set_ranges(ranges_);
        llvm::Function* f = b_.GetInsertBlock()->getParent();
        llvm::BasicBlock* before = b_.GetInsertBlock();
        llvm::Instruction* last = &before->back();
        const size_t blocks = f->size();
        emit_loop(
            b_, b_.getInt64(0), end, 1,
            [&](llvm::Value* step) {
                bind_axis(along, b_.CreateNSWAdd(std::get<3>(saved), step));
                forget();
                const std::vector<Coords> now = points(false);
                for (size_t k = 0; k < now.size(); ++k) finish_one(now[k], {b_.CreateLoad(type, place(step, k)), true});
                forget();
            },
            "finish");
        llvm::BasicBlock* after = b_.GetInsertBlock();
        b_.SetInsertPoint(before, std::next(last->getIterator()));
        constants_in_registers(std::next(f->begin(), static_cast<std::ptrdiff_t>(blocks)), f->end());
        b_.SetInsertPoint(after);
        bind_axis(along, std::get<3>(saved));
        std::tie(ranges_, clamp_, regs_, std::ignore) = saved;
        exprs_.set_ranges(ranges_);
        forget();
    }

    /// Loads, at the insertion point, the vector constants that the blocks use most, as many as leave half of the
    /// registers to what is computed. LLVM would make them anew in every step: where a tile of sums comes before, it
    /// thinks of constants as too long-lived, and a broadcast takes the place of a multiply-add. It leaves volatile
    /// loads where they are.
    void constants_in_registers(llvm::Function::iterator from, llvm::Function::iterator to) {
        std::map<llvm::Constant*, std::vector<llvm::Use*>> uses;
        std::vector<llvm::Constant*> found;  // in the order of the code, which is the same in every run
        for (auto block = from; block != to; ++block)
            for (llvm::Instruction& i : *block) {
                if (llvm::isa<llvm::PHINode>(i)) continue;
                for (llvm::Use& use : i.operands()) {
                    auto* c = llvm::dyn_cast<llvm::Constant>(use.get());
                    if (c == nullptr || !c->getType()->isVectorTy() || !c->getType()->isFPOrFPVectorTy()) continue;
                    if (c->isNullValue() || llvm::isa<llvm::UndefValue>(c)) continue;
                    if (uses[c].empty()) found.push_back(c);
                    uses[c].push_back(&use);
                }
            }
        std::stable_sort(found.begin(), found.end(),
                         [&](llvm::Constant* x, llvm::Constant* y) { return uses[x].size() > uses[y].size(); });
        const size_t most = job_.vector_bits == 512 ? 16 : 8;
        if (found.size() > most) found.resize(most);
        for (llvm::Constant* c : found) {
            llvm::Value* loaded = b_.CreateLoad(c->getType(), in_memory(c), true);
            for (llvm::Use* use : uses[c]) use->set(loaded);
        }
    }

    /// Emits the stores of a tile. Where only the run knows whether they are written past the caches there are stores
    /// of either kind, behind one test for the whole tile.
    void store_all(const std::function<void()>& stores) {
        sums_.clear();
        const bool clamped = std::find(clamp_.begin(), clamp_.end(), true) != clamp_.end();
        if (!job_.out.passes || job_.out.passes_if == nullptr || clamped || tail_mask_ != nullptr) return stores();
        for (const bool past : {true, false})
            branch(past ? job_.out.passes_if : b_.CreateNot(job_.out.passes_if), [&] {
                forget();
                sums_.clear();
                past_ = past;
                stores();
            });
        past_ = false;
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
        TW_CHECK(job_.correction, "a maximum without a place for its factor");
        store_inside(p, {factor, now.is_vector}, *job_.correction);
    }

    /// The rows of the next register tile, where they lie behind this one's and are read from far away: each step of
    /// the sum asks for its share of them. The hardware sees as many short streams as the tile has rows, each at its
    /// end where the next tile begins.
    ///     14 rows of 128 floats: with step k the line that has byte 56 k of the next 7 KiB
    void fetch_next_rows() {
        constexpr int64_t kLine = 64;
        if (e_.reducer != Reducer::Sum || !has_vector_ || vector_reduces_ || n_axes_ != e_.spatial + 1) return;
        const size_t k = e_.spatial;
        if (register_tile(k) != 1 || regs_[k] != 1 || !e_.extents[k].is_constant()) return;
        const size_t rows = order(false).back();
        const int64_t tile = register_tile(rows);
        if (rows == va_ || tile < 2 || regs_[rows] != tile || clamp_[rows] || strips_[rows].distance != 0) return;
        for (const uint32_t slot : e_.body.slots()) {
            const Place& place = job_.accesses[slot];
            const Access& a = e_.accesses[slot];
            if (!place.rows_stream || place.layout || !a.valid.empty() || on_vector(access_mask_[slot])) continue;
            const Expr from = element_number(slot);
            const auto moves_by = [&](size_t axis_number, int64_t elements) {
                const auto linear = linear_in(from, {VarKind::Axis, static_cast<uint32_t>(axis_number)});
                return linear && linear->coefficient.is_constant(elements);
            };
            const int64_t steps = e_.extents[k].constant();
            if (!moves_by(k, 1) || !moves_by(rows, steps)) continue;
            const auto bytes = static_cast<int64_t>(byte_size(place.storage));
            const Address here = address(place, offset_of(place, a.index, Coords(n_axes_, 0)));
            llvm::Value* skipped = b_.CreateNSWMul(base_[k], b_.getInt64(static_cast<uint64_t>((tile - 1) * bytes)));
            llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), here.pointer, skipped);
            for (int64_t line = 0; line < tile * bytes; line += kLine) prefetch(there, tile * steps * bytes + line);
        }
    }

    /// What the epilogue adds to the tile's own elements, where it comes from far away, is asked for before the sum and
    /// there when that is done. A product of 64 steps and a tile of 14 x 32 else waits a third as long as it computes.
    void fetch_epilogue() {
        if (!has_vector_ || vector_reduces_ || std::find(clamp_.begin(), clamp_.end(), true) != clamp_.end()) return;
        for (const uint32_t slot : e_.epilogue.slots()) {
            const Place& place = job_.accesses[slot];
            const Access& a = e_.accesses[slot];
            if (!place.rows_stream || place.layout || !a.valid.empty() || !on_vector(access_mask_[slot])) continue;
            const bool picked = std::any_of(a.index.begin(), a.index.end(), [](Expr i) {
                const auto of = variables(i);
                return std::any_of(of.begin(), of.end(), [](Var v) { return v.kind == VarKind::Load; });
            });
            if (picked) continue;
            for (const Coords& p : tile_points_) {
                const Address here = address(place, offset_of(place, a.index, p));
                if (here.per_lane == nullptr && here.lane_stride == 1) prefetch(here.pointer, 0);
            }
        }
    }

    /// Windows of pixels whose channels lie side by side, channels innermost: with every step of a tile's sum, what the
    /// tiles behind it will read for the first time is asked for. A tile begins a stream in each of its rows, and the
    /// hardware has followed none of them for long when the next tile begins: 128 channels of 512 x 512 pixels, 3 x 3,
    /// take 8.7 ms like that, 18.4 without.
    ///     2 x 4 windows of 3 x 3: of 4 x 6 pixels the last two rows of the last four columns
    void fetch_windows() {
        constexpr int64_t kAhead = 8192;  // bytes
        if (e_.reducer == Reducer::None || !has_vector_ || vector_reduces_ || order(false).back() != va_) return;
        if (std::find(clamp_.begin(), clamp_.end(), true) != clamp_.end()) return;
        for (const uint32_t slot : e_.body.slots()) {
            const Place& place = job_.accesses[slot];
            if (!place.rows_stream || place.layout || is_panel(slot) || !on_vector(access_mask_[slot])) continue;
            std::set<std::vector<int64_t>> asked;
            for (const Coords& s : points(true))
                for (Coords p : tile_points_) {
                    for (size_t a = e_.spatial; a < n_axes_; ++a) p[a] = s[a];
                    const auto where = first_read(e_.accesses[slot], p);
                    if (!where || !asked.insert(*where).second) continue;
                    const Address here = address(place, offset_of(place, e_.accesses[slot].index, p));
                    if (here.per_lane == nullptr) prefetch(here.pointer, kAhead);
                }
        }
    }

    /// Where in the tile's pixels window element p lies, if no tile before this one has read it.
    std::optional<std::vector<int64_t>> first_read(const Access& access, const Coords& p) const {
        std::vector<int64_t> where;
        for (const Expr& index : access.index) {
            int64_t offset = 0, known = 0;  // up to `known` lies what tiles before this one have read
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
                else  // in a loop, which takes the last row of windows over all that is new
                    for (size_t a = 0; a < e_.spatial; ++a)
                        if (a != va_ && p[a] + 1 < regs_[a] && uses(index, {VarKind::Axis, static_cast<uint32_t>(a)}))
                            return std::nullopt;
            }
            if (slides && offset <= known) return std::nullopt;
            where.push_back(offset);
        }
        return where;
    }

    /// One step of the reduction for the whole register tile.
    void accumulate() {
        forget();
        fetch_next_rows();
        fetch_windows();
        const std::vector<Coords> steps = points(true);
        for (const Coords& s : steps) {
            for (size_t i = 0; i < tile_points_.size(); ++i) {
                Coords p = tile_points_[i];
                for (size_t a = e_.spatial; a < n_axes_; ++a) p[a] = s[a];
                const int64_t partial = chained_axis_     ? s[*chained_axis_]
                                        : vector_reduces_ ? s[va_] % acc_partials_
                                                          : 0;
                llvm::AllocaInst* slot = acc_[i * static_cast<size_t>(acc_partials_) + static_cast<size_t>(partial)];
                llvm::Value* acc = b_.CreateLoad(slot->getAllocatedType(), slot);
                b_.CreateStore(step(acc, p), slot);
            }
        }
    }

    llvm::Value* step(llvm::Value* acc, const Coords& p) {
        llvm::Value* next = nullptr;
        if (const auto c = contraction(e_); c && is_float(acc_type_)) {
            const Val x = evaluate(e_.body, body_mask_, c->factors[0].node, p, {});
            const Val y = evaluate(e_.body, body_mask_, c->factors[1].node, p, {});
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

    bool partial_ = false;
    llvm::Value* first_ = nullptr;
    llvm::Value* last_ = nullptr;
    std::vector<std::vector<Expr>> cuts_;  ///< per axis, ascending
    std::vector<llvm::AllocaInst*> acc_;
    int64_t acc_partials_ = 1;
    std::optional<size_t> chained_axis_;  ///< the reduction axis that is taken `chains_` steps at a time
    int64_t chains_ = 1;
    std::vector<Coords> tile_points_;
    std::optional<WeighedSum> map_;
    SharedSums shared_;
    bool whole_sum_ = false;  ///< the register tile being emitted has all steps of the sum
    std::map<std::pair<size_t, Coords>, llvm::Value*> sums_;
};

}  // namespace

void emit_stage(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job) {
    StageEmitter(builder, vars, job).run();
}

}  // namespace tilewright::cpu
