#include "backend/cpu/stage_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "backend/cpu/byte_results.h"
#include "backend/cpu/scalar_emitter.h"
#include "backend/cpu/stage_matrix.h"
#include "base/error.h"
#include "program/analysis/contraction.h"
#include "program/constant_transform.h"
#include "tile/hoisted_scale.h"
#include "tile/register_tile.h"

namespace tilewright::cpu {

namespace {

class StageEmitter : public StageMatrix {
  public:
    using StageMatrix::StageMatrix;

    void run() {
        decide_first_last();
        find_cuts();
        find_map();
        find_blocks();
        enter_tiles();
        enter_dots();
        spatial_loops(0);
        leave_tiles();
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
        if (partial_ && !job_.partial_sums)
            TW_CHECK(job_.out.storage == acc_type_,
                     "partial reductions are kept in the result, whose type is {}, not {}", to_string(job_.out.storage),
                     to_string(acc_type_));
    }

    // --- constant-coefficient linear transforms (program/constant_transform.h)

    void find_map() {
        if (m_.annotations.unroll_sum != true) return;
        map_ = constant_transform(e_);
        TW_CHECK(map_, "the unrolled reduction is not a linear transform");
        for (size_t k = 0; k < map_->rows.size(); ++k)
            if (const uint32_t a = map_->rows[k]; map_->periodic[k]) {
                TW_CHECK(whole_tails(m_.annotations, a, register_tile(a)),
                         "a tail starts inside of a transform's block");
                period_[a] = map_->row_extents[k];
                bind_axis(a, axis_ranges_[a].lo);
            }
        shared_ = share_sums(*map_);
    }

    /// Whether the register tile contains all rows of the transform, so that every weight in it is known at compile
    /// time.
    bool holds_map() const {
        if (!map_) return false;
        for (size_t k = 0; k < map_->rows.size(); ++k) {
            const uint32_t a = map_->rows[k];
            const auto* base = llvm::dyn_cast<llvm::ConstantInt>(base_[a]);
            const bool whole = base != nullptr && base->isZero() && regs_[a] == e_.extents[a].constant();
            if (!map_->periodic[k] && (clamp_[a] || !whole)) return false;
        }
        return true;
    }

    /// Emits a node of the shared sums at coordinates p of the register tile's other axes, once per p.
    llvm::Value* shared_sum(size_t node, const Coords& p) {
        llvm::Value*& known = sums_[{node, p}];
        if (known != nullptr) return known;
        const auto splat = [&](double v) { return constant_of(c_, acc_type_, v, 0, has_vector_ ? lanes_ : 0); };
        TW_CHECK(map_, "shared sums without a linear transform");
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

    void store_map() {
        prefetch_map(*map_);
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

    void spatial_loops(size_t k) {
        const std::vector<size_t> axes = order(false);
        if (k == axes.size()) return tile_body();
        in_pieces(axes[k], [&] { tiles_of(axes[k], [&] { spatial_loops(k + 1); }); });
    }

    void reduction_loops(size_t k) {
        const std::vector<size_t> axes = order(true);
        if (k == axes.size())
            return whole_sum_ ? store_map() : on_tiles() ? add_products() : on_f16() ? accumulate_f16() : accumulate();
        if (scale_ && scale_->first_loop == k && !inside_scale_) return scaled_loops(k);
        tiles_of(axes[k], [&] { reduction_loops(k + 1); });
    }

    /// The loops from k on in accumulators of their own, which are then scaled (Annotations::hoist_scale).
    void scaled_loops(size_t k) {
        std::vector<llvm::AllocaInst*> sums = acc_;
        acc_ = unscaled_;
        llvm::Type* type = acc_[0]->getAllocatedType();
        for (llvm::AllocaInst* a : acc_) b_.CreateStore(llvm::Constant::getNullValue(type), a);
        inside_scale_ = true;
        reduction_loops(k);
        inside_scale_ = false;
        std::swap(acc_, sums);
        forget();
        for (size_t i = 0; i < tile_points_.size(); ++i) {
            const Val scale = evaluate(e_.body, body_mask_, scale_->scale, tile_points_[i], {});
            llvm::Value* sum = b_.CreateLoad(type, sums[i * parts_]);
            for (size_t part = 1; part < parts_; ++part)
                sum = b_.CreateFAdd(sum, b_.CreateLoad(type, sums[i * parts_ + part]));
            llvm::Value* before = b_.CreateLoad(type, acc_[i]);
            b_.CreateStore(b_.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {sum, widen(scale), before}), acc_[i]);
        }
        forget();
    }

    /// Whether the scales of the tile are hoisted, and the accumulators for it.
    void choose_scale(size_t results) {
        scale_.reset();
        unscaled_.clear();
        const HoistScale wanted = m_.annotations.hoist_scale.value_or(HoistScale());
        if (results > static_cast<size_t>(wanted.vectors) || acc_partials_ != 1) return;
        const std::vector<size_t> loops = order(true);
        scale_ = hoisted_scale(e_, m_, loops);
        if (!scale_) return;
        const int64_t in_flight = wanted.in_flight / static_cast<int64_t>(results);
        parts_ = static_cast<size_t>(std::clamp<int64_t>(in_flight, 1, m_.registers[loops.back()]));
        llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
        for (size_t i = 0; i < results * parts_; ++i) {
            llvm::IRBuilder<> at_entry(&entry, entry.begin());
            unscaled_.push_back(at_entry.CreateAlloca(acc_[0]->getAllocatedType(), nullptr, "unscaled"));
        }
    }

    // --- one register tile

    /// Chooses the number of accumulators per sum, for a tile of `results` sums.
    void choose_accumulators(size_t results) {
        unrolled_axis_.reset();
        const auto& wanted = m_.annotations.accumulators;
        accumulators_ = wanted ? wanted->per_sum(static_cast<int64_t>(results)) : 1;
        if (accumulators_ > 1) unrolled_axis_ = order(true).back();
    }

    void tile_body() {
        forget();
        const std::vector<Coords> tile = points(false);
        if (e_.reducer == Reducer::None) {
            store_all([&] {
                const auto between = interleaved_axis();
                if (!between) return store_results(tile, e_.body, body_mask_, [](size_t) { return Val{}; });
                for (const Coords& p : tile)
                    if (p[between->axis] % between->points == 0) store_interleaved(p, *between);
            });
            return;
        }
        tile_points_ = tile;
        if (holds_map()) {
            whole_sum_ = true;
            reduction_loops(0);
            whole_sum_ = false;
            forget();
            return;
        }
        if (on_tiles()) return tile_on_registers(tile);
        choose_accumulators(tile.size());
        const int64_t partials = unrolled_axis_    ? accumulators_
                                 : vector_reduces_ ? std::max<int64_t>(1, register_tile(va_) / lanes_)
                                                   : 1;
        const auto saved = std::pair(acc_, acc_partials_);
        acc_partials_ = partials;
        start_sums(tile);
        choose_scale(tile.size());
        prefetch_epilogue();
        reduction_loops(0);
        unrolled_axis_.reset();
        forget();
        finish_tile(tile, sums_of(tile));
        std::tie(acc_, acc_partials_) = saved;
        forget();
    }

    /// An axis of whose points `points` neighbours lie between neighbouring lanes of the result, all in the register
    /// tile:
    ///     y[4 * w + c], lanes along w: 4 of c;   y[k // 2, n, k % 2], lanes along n: 2 of k
    struct Interleaved {
        size_t axis = 0;
        int64_t points = 1;
    };
    std::optional<Interleaved> interleaved_axis() {
        if (!has_vector_ || tail_mask_ != nullptr || is_clamped() || non_temporal_) return std::nullopt;
        const Coords origin(n_axes_, 0);
        const Expr offset = out_offset(origin, job_.out);
        const auto lanes = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
        if (!lanes || !lanes->coefficient.is_constant() || lanes->coefficient.constant() < 2 ||
            lanes->coefficient.constant() > kMostSpread)
            return std::nullopt;
        const int64_t points = lanes->coefficient.constant();
        for (size_t u = 0; u < e_.spatial; ++u) {
            if (u == va_ || regs_[u] < points || regs_[u] % points != 0) continue;
            const auto adjoins = [&](int64_t i) {
                Coords next = origin;
                next[u] = i;
                return simplify(out_offset(next, job_.out) - offset, ranges_).is_constant(i);
            };
            bool adjoining = true;
            for (int64_t i = 1; i < points; ++i) adjoining = adjoining && adjoins(i);
            if (adjoining) return Interleaved{u, points};
        }
        return std::nullopt;
    }

    /// Axes that the result addresses in blocks within the register tile are iterated in whole tiles, so that positions
    /// in a block are known:  y[k // 2, n, k % 2], 16 points of k in the tile
    void find_blocks() {
        if (e_.reducer != Reducer::None || e_.output_index.empty()) return;
        for (size_t u = 0; u < e_.spatial; ++u) {
            const int64_t tile = register_tile(u);
            if (u == va_ || !in_blocks(e_, u) || tile < 2 || !cuts_[u].empty() ||
                axis_ranges_[u].lo_multiple % tile != 0 || !whole_tails(m_.annotations, u, tile) ||
                (u < m_.virtual_threads.size() && m_.virtual_threads[u] > 1))
                continue;
            period_[u] = tile;
            bind_axis(u, axis_ranges_[u].lo);
        }
    }

    /// Stores the vectors of the points from p on as contiguous memory: lane 0 of each, lane 1 of each, ...
    void store_interleaved(const Coords& p, const Interleaved& between) {
        const auto count = static_cast<size_t>(between.points), lanes = static_cast<size_t>(lanes_);
        std::vector<llvm::Value*> parts;
        for (size_t i = 0; i < count; ++i) {
            Coords at = p;
            at[between.axis] += static_cast<int64_t>(i);
            parts.push_back(
                to_storage(b_, job_.out.storage, widen(evaluate(e_.body, body_mask_, e_.body.root(), at, {}))));
        }
        size_t width = lanes;  // of a part, while neighbours are concatenated
        while (parts.size() > 1) {
            if (parts.size() % 2 == 1) parts.push_back(llvm::PoisonValue::get(parts[0]->getType()));
            std::vector<int> both(2 * width);
            std::iota(both.begin(), both.end(), 0);
            std::vector<llvm::Value*> joined;
            for (size_t i = 0; i < parts.size(); i += 2)
                joined.push_back(b_.CreateShuffleVector(parts[i], parts[i + 1], both));
            parts = std::move(joined);
            width *= 2;
        }
        std::vector<int> order;
        for (size_t lane = 0; lane < lanes; ++lane)
            for (size_t i = 0; i < count; ++i) order.push_back(static_cast<int>(i * lanes + lane));
        const Address where = address(job_.out, out_offset(p, job_.out));
        annotate(b_.CreateAlignedStore(b_.CreateShuffleVector(parts[0], order), where.pointer,
                                       llvm::Align(byte_size(job_.out.storage))),
                 job_.out);
    }

    /// A tile whose sums are in tile registers.
    void tile_on_registers(const std::vector<Coords>& tile) {
        const std::function<llvm::Value*(const Coords&)> partial = [&](const Coords& p) { return before(p); };
        start_tiles(first_, partial_ ? &partial : nullptr);
        prefetch_epilogue();
        reduction_loops(0);
        forget();
        store_tiles(last_);
        const auto finish = [&] {
            forget();
            llvm::Type* type = register_type(c_, acc_type_, lanes_);
            std::vector<Val> done;
            for (size_t i = 0; i < tile.size(); ++i)
                done.push_back({b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(type, sums_memory(), i)), true});
            job_.partial_sums ? complete(tile, done) : finish_tile(tile, done);
        };
        job_.partial_sums ? branch(last_, finish) : finish();
        forget();
    }

    /// Initialises the accumulators of the tile: to the reducer's identity, or the first of each sum to its partial
    /// result.
    void start_sums(const std::vector<Coords>& tile) {
        acc_.clear();
        const auto partials = static_cast<size_t>(acc_partials_);
        llvm::Type* type = register_type(c_, acc_type_, has_vector_ ? lanes_ : 0);
        llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
        for (size_t i = 0; i < tile.size() * partials; ++i) {
            llvm::IRBuilder<> at_entry(&entry, entry.begin());
            acc_.push_back(at_entry.CreateAlloca(type, nullptr, "acc"));
        }
        llvm::Value* identity = identity_of(c_, e_.reducer, acc_type_, has_vector_ ? lanes_ : 0);
        for (llvm::AllocaInst* a : acc_) b_.CreateStore(identity, a);
        if (!partial_ || vector_reduces_) return;
        if (resumes_late()) {
            for (const Coords& p : tile) {
                const Address there = address(job_.out, out_offset(p, job_.out));
                if (there.per_lane == nullptr) prefetch(there.pointer, 0);
            }
            return;
        }
        branch(b_.CreateNot(first_), [&] {
            for (size_t i = 0; i < tile.size(); ++i) b_.CreateStore(before(tile[i]), acc_[i * partials]);
        });
    }

    bool resumes_late() const { return m_.annotations.resume_late == true; }

    /// Returns the sums of the tile, each combined over its accumulators and lanes.
    std::vector<Val> sums_of(const std::vector<Coords>& tile) {
        std::vector<Val> done;
        const auto partials = static_cast<size_t>(acc_partials_);
        llvm::Type* type = register_type(c_, acc_type_, has_vector_ ? lanes_ : 0);
        for (size_t i = 0; i < tile.size(); ++i) {
            llvm::Value* v = b_.CreateLoad(type, acc_[i * partials]);
            for (size_t p = 1; p < partials; ++p)
                v = emit_combine(b_, e_.reducer, acc_type_, v, b_.CreateLoad(type, acc_[i * partials + p]));
            if (vector_reduces_) v = across_lanes(v);
            if (partial_ && (vector_reduces_ || resumes_late())) {
                llvm::Value* identity =
                    identity_of(c_, e_.reducer, acc_type_, has_vector_ && !vector_reduces_ ? lanes_ : 0);
                v = emit_combine(b_, e_.reducer, acc_type_, b_.CreateSelect(first_, identity, before(tile[i])), v);
            }
            done.push_back({v, has_vector_ && !vector_reduces_});
        }
        return done;
    }

    /// Applies the epilogue if the reduction is complete, and stores.
    void finish_tile(const std::vector<Coords>& tile, const std::vector<Val>& done) {
        if (!partial_ || e_.epilogue.empty()) return complete(tile, done);
        branch(b_.CreateNot(last_), [&] {
            forget();
            for (size_t i = 0; i < tile.size(); ++i) store(tile[i], done[i]);
        });
        branch(last_, [&] { complete(tile, done); });
    }

    /// Applies the epilogue and stores.
    void complete(const std::vector<Coords>& tile, const std::vector<Val>& done) {
        const auto finish = [&](const std::vector<Coords>& points, const SumAt& sum) {
            if (!job_.correction && !e_.epilogue.empty())
                return store_results(points, e_.epilogue, epilogue_mask_, sum);
            for (size_t i = 0; i < points.size(); ++i) {
                const Coords& p = points[i];
                const Val s = sum(i);
                if (job_.correction) store_correction(p, s);
                store(p, e_.epilogue.empty() ? s : evaluate(e_.epilogue, epilogue_mask_, e_.epilogue.root(), p, s));
            }
        };
        forget();
        store_all([&] {
            if (const auto a = finishing_axis(tile)) return finish_in_loop(*a, tile, done, finish);
            finish(tile, [&](size_t i) { return done[i]; });
        });
    }

    using SumAt = std::function<Val(size_t)>;  ///< the sum of a point, by its position

    /// Stores the body's results at the points; `sum`: of the reductions that it reads.
    void store_results(const std::vector<Coords>& points, const ScalarBody& body, const std::vector<Mask>& masks,
                       const SumAt& sum) {
        const std::optional<ByteResult> bytes = packed_results(body, masks);
        if (!bytes) {
            for (size_t i = 0; i < points.size(); ++i)
                store(points[i], evaluate(body, masks, body.root(), points[i], sum(i)));
            return;
        }
        for (size_t first = 0; first < points.size(); first += kPackedVectors) {
            std::vector<llvm::Value*> reals;
            for (size_t i = first; i < std::min(first + kPackedVectors, points.size()); ++i)
                reals.push_back(widen(evaluate(body, masks, bytes->real, points[i], sum(i))));
            const std::vector<llvm::Value*> packed = emit_byte_results(b_, *bytes, reals, job_.vector_bits);
            for (size_t k = 0; k < packed.size(); ++k) store(points[first + k], {packed[k], true});
        }
    }

    /// How the body's results become bytes, if they do so four vectors at a time.
    std::optional<ByteResult> packed_results(const ScalarBody& body, const std::vector<Mask>& masks) const {
        if (!has_vector_ || vector_reduces_ || job_.vector_bits < 256 || lanes_ * 32 != job_.vector_bits)
            return std::nullopt;
        std::optional<ByteResult> bytes = byte_result(body);
        const bool looks_up = job_.byte_permutations && job_.vector_bits == 512;
        if (!bytes || !on_vector(masks[bytes->real.index()]) || (!bytes->table.empty() && !looks_up))
            return std::nullopt;
        return bytes;
    }

    /// Returns the axis along which a loop applies the epilogue to the tile (EpilogueLoop); none: it is unrolled.
    std::optional<size_t> finishing_axis(const std::vector<Coords>& tile) const {
        const auto& wanted = m_.annotations.epilogue_loop;
        if (!wanted || tile.size() < static_cast<size_t>(wanted->vectors)) return std::nullopt;
        if (std::any_of(strips_.begin(), strips_.end(), [](const Strip& s) { return s.distance != 0; }))
            return std::nullopt;
        for (const size_t a : wanted->axes)
            if (regs_[a] >= wanted->steps && period_[a] == 0) return a;
        return std::nullopt;
    }

    /// Where the loop of finish_in_loop reads its sums: sum k of a step at `first[k]` + step * `stride`.
    struct SumsInMemory {
        llvm::Value* base = nullptr;
        std::vector<size_t> first;
        size_t stride = 0;
    };
    /// The sums of tile registers are in memory already; others are stored there in the order of the loop.
    SumsInMemory sums_in_memory(size_t along, const std::vector<Coords>& tile, const std::vector<Val>& done) {
        SumsInMemory out;
        if (on_tiles()) {
            out.base = sums_memory();
            for (size_t i = 0; i < tile.size(); ++i) {
                if (tile[i][along] == 0) out.first.push_back(i);
                if (tile[i][along] == 1 && out.stride == 0) out.stride = i - out.first[0];
            }
            return out;
        }
        llvm::Type* type = done[0].v->getType();
        const auto steps = static_cast<size_t>(regs_[along]);
        out.stride = tile.size() / steps;
        llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
        llvm::IRBuilder<> at_entry(&entry, entry.begin());
        llvm::AllocaInst* there = at_entry.CreateAlloca(llvm::ArrayType::get(type, tile.size()), nullptr, "sums");
        there->setAlignment(llvm::Align(static_cast<uint64_t>(lanes_) * byte_size(acc_type_)));
        out.base = there;
        std::vector<size_t> met(steps, 0);
        for (size_t i = 0; i < tile.size(); ++i) {
            const auto step = static_cast<size_t>(tile[i][along]);
            b_.CreateStore(done[i].v, sum_at(type, out, b_.getInt64(step), met[step]++));
        }
        return out;
    }
    llvm::Value* sum_at(llvm::Type* type, const SumsInMemory& sums, llvm::Value* step, size_t k) {
        llvm::Value* number = b_.CreateMul(step, b_.getInt64(sums.stride));
        return b_.CreateGEP(type, sums.base,
                            b_.CreateAdd(number, b_.getInt64(k < sums.first.size() ? sums.first[k] : k)));
    }

    /// Calls finish(points, sum) for all sums of the tile, in a loop along the axis.
    void finish_in_loop(size_t along, const std::vector<Coords>& tile, const std::vector<Val>& done,
                        const std::function<void(const std::vector<Coords>&, const SumAt&)>& finish) {
        llvm::Type* type = done[0].v->getType();
        const int64_t steps = regs_[along];
        const SumsInMemory sums = sums_in_memory(along, tile, done);
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
                finish(now, [&](size_t k) { return Val{b_.CreateLoad(type, sum_at(type, sums, step, k)), true}; });
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

    /// Loads, at the insertion point, the vector constants that the blocks use most, in up to half of the registers.
    /// LLVM would rematerialise them in every step: after a tile of sums it considers their live ranges too long, and a
    /// broadcast then takes an issue slot of a multiply-add. LLVM does not move volatile loads.
    void constants_in_registers(llvm::Function::iterator from, llvm::Function::iterator to) {
        std::map<llvm::Constant*, std::vector<llvm::Use*>> uses;
        std::vector<llvm::Constant*> found;  // in code order, which is deterministic
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

    /// Emits the stores of a tile. If a dynamic size decides on non-temporal stores, emits both kinds after one test
    /// for the whole tile.
    void store_all(const std::function<void()>& stores) {
        sums_.clear();
        llvm::Value* condition = job_.out.non_temporal_if;
        if (!job_.out.non_temporal || condition == nullptr || is_clamped() || tail_mask_ != nullptr) return stores();
        for (const bool yes : {true, false})
            branch(yes ? condition : b_.CreateNot(condition), [&] {
                forget();
                sums_.clear();
                non_temporal_ = yes;
                stores();
            });
        non_temporal_ = false;
    }

    /// Returns the partial result, rescaled if needed.
    llvm::Value* before(const Coords& p) {
        llvm::Value* v = load_out(p);
        if (!job_.rescale) return v;
        const Val factor = access(*job_.rescale, p);
        return b_.CreateFMul(v, vector_reduces_ ? factor.v : widen(factor));
    }

    /// Stores exp(old - new) of a maximum; 1 if both are the same infinity.
    void store_correction(const Coords& p, const Val& now) {
        llvm::Value* then = load_out(p);
        llvm::Value* same = b_.CreateFCmpOEQ(then, now.v);
        llvm::Value* factor =
            emit_scalar_op(b_, ScalarOp::Exp, acc_type_, acc_type_, b_.CreateFSub(then, now.v), nullptr, nullptr);
        factor = b_.CreateSelect(same, llvm::ConstantFP::get(factor->getType(), 1), factor);
        TW_CHECK(job_.correction, "an online maximum without a correction buffer");
        store_inside(p, {factor, now.is_vector}, *job_.correction);
    }

    /// Emits one step of the reduction for the whole register tile.
    void accumulate() {
        forget();
        prefetch_rows();
        prefetch_panels();
        prefetch_windows();
        start_dots();
        const std::vector<Coords> steps = points(true);
        for (const Coords& s : steps) {
            if (on_dots() && s[m_.matrix->sum] % dot_step(m_.matrix->type) != 0) continue;
            for (size_t i = 0; i < tile_points_.size(); ++i) {
                Coords p = tile_points_[i];
                for (size_t a = e_.spatial; a < n_axes_; ++a) p[a] = s[a];
                const int64_t partial = unrolled_axis_    ? s[*unrolled_axis_]
                                        : vector_reduces_ ? s[va_] % acc_partials_
                                                          : 0;
                llvm::AllocaInst* slot =
                    inside_scale_ ? acc_[i * parts_ + static_cast<size_t>(s[order(true).back()]) % parts_]
                                  : acc_[i * static_cast<size_t>(acc_partials_) + static_cast<size_t>(partial)];
                llvm::Value* acc = b_.CreateLoad(slot->getAllocatedType(), slot);
                b_.CreateStore(step(acc, p), slot);
            }
        }
    }

    /// One step of the reduction by dot products in f16: a loop over a few pairs, whose sums of f16 join those of f32.
    void accumulate_f16() {
        constexpr int64_t kUnrolled = 8;  // elements along the sum
        const size_t sum = m_.matrix->sum;
        const auto saved = std::tuple(regs_[sum], base_[sum], ranges_.axes[sum]);
        const int64_t elements = regs_[sum];
        std::vector<llvm::AllocaInst*> sums = start_pairs(acc_.size());
        std::swap(acc_, sums);
        for (regs_[sum] = kUnrolled; elements % regs_[sum] != 0;) regs_[sum] -= dot_step(MatrixType::F16);
        if (auto& last = ranges_.axes[sum].hi) last = *last + (elements - regs_[sum]);
        exprs_.set_ranges(ranges_);
        llvm::Value* end = b_.CreateNSWAdd(base_[sum], b_.getInt64(static_cast<uint64_t>(elements)));
        emit_loop(
            b_, base_[sum], end, regs_[sum],
            [&](llvm::Value* at) {
                bind_axis(sum, at);
                accumulate();
            },
            "pairs");
        std::swap(acc_, sums);
        regs_[sum] = std::get<0>(saved);
        ranges_.axes[sum] = std::get<2>(saved);
        exprs_.set_ranges(ranges_);
        bind_axis(sum, std::get<1>(saved));
        forget();
        for (size_t i = 0; i < acc_.size(); ++i) add_pairs(acc_[i], sums[i]);
    }

    llvm::Value* step(llvm::Value* acc, const Coords& p) {
        if (on_dots()) return add_dot(acc, p);
        llvm::Value* next = nullptr;
        if (const auto c = contraction(e_); c && is_float(acc_type_)) {
            const auto factor = [&](size_t k) {
                const bool unscaled = inside_scale_ && scale_->factor == k;
                return evaluate(e_.body, body_mask_, unscaled ? scale_->number : c->factors[k].node, p, {});
            };
            const Val x = factor(0), y = factor(1);
            next = b_.CreateIntrinsic(llvm::Intrinsic::fma, {acc->getType()}, {widen(x), widen(y), acc});
        } else {
            next = emit_combine(b_, e_.reducer, acc_type_, acc,
                                widen(evaluate(e_.body, body_mask_, e_.body.root(), p, {})));
        }
        // Lanes beyond the end of a vectorised reduction keep their value.
        if (vector_reduces_ && tail_mask_ != nullptr && p[va_] == regs_[va_] - 1)
            next = b_.CreateSelect(tail_mask_, next, acc);
        return next;
    }

    llvm::Value* across_lanes(llvm::Value* v) {
        // Halves that are added in turns would be recognised by LLVM 19 as a sum of bytes, also where these are
        // multiplied by a number: it then adds a quarter of the lanes.
        if (e_.reducer == Reducer::Sum && is_integer(acc_type_)) return b_.CreateAddReduce(v);
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
    std::vector<llvm::AllocaInst*> acc_;
    std::optional<HoistedScale> scale_;  ///< of the current register tile
    std::vector<llvm::AllocaInst*> unscaled_;
    size_t parts_ = 1;           ///< accumulators of an unscaled sum, for steps of the unrolled innermost loop in turn
    bool inside_scale_ = false;  ///< in the loops whose sums are scaled later
    int64_t acc_partials_ = 1;
    std::optional<ConstantTransform> map_;
    SharedSums shared_;
    std::map<std::pair<size_t, Coords>, llvm::Value*> sums_;
};

}  // namespace

void emit_stage(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job) {
    StageEmitter(builder, vars, job).run();
}

}  // namespace tilewright::cpu
