#include "backend/cpu/scalar_emitter.h"
#include "backend/cpu/stage_values.h"

namespace tilewright::cpu {

Val StageValues::access(size_t slot, const Coords& p) {
    Val x = read(slot, p);
    llvm::Value* final = job_.accesses[slot].final;
    if (final == nullptr) return x;
    llvm::Value* lowest = b_.CreateFCmpOEQ(x.v, llvm::ConstantFP::getInfinity(x.v->getType(), true));
    llvm::Value* open = b_.CreateNot(final);
    if (x.is_vector) open = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), open);
    x.v = b_.CreateSelect(b_.CreateAnd(lowest, open), llvm::Constant::getNullValue(x.v->getType()), x.v);
    return x;
}

Val StageValues::read(size_t slot, const Coords& p) {
    const Access& a = e_.accesses[slot];
    const Place& place = job_.accesses[slot];
    for (const Expr& i : a.index) bind_loads(i, p);
    const auto condition = place.checked ? ReadCondition() : condition_of(a, p);
    const DType t = compute_type(place.storage);
    if (!condition) return {constant_of(c_, t, a.fill, fill_int(a.fill), 0), false};
    llvm::Value* scalar_ok = condition->scalar;
    const Expr offset = offset_of(place, a.index, p);
    if (on_vector(access_mask_[slot]) && (lane_dependent(offset) || condition->lanes != nullptr))
        return {read_vector(slot, p, offset, *condition), true};
    if (llvm::Value* half = scalar_ok == nullptr ? half_of_pair(slot, p) : nullptr) return {half, true};
    llvm::Type* element_type = storage_type(c_, place.storage, 0);
    llvm::Value* pointer = address(place, offset).pointer;
    if (scalar_ok != nullptr) pointer = b_.CreateSelect(scalar_ok, pointer, place.base);
    llvm::LoadInst* loaded = b_.CreateAlignedLoad(element_type, pointer, llvm::Align(byte_size(place.storage)));
    llvm::Value* v = from_storage(b_, place.storage, annotate(loaded, place));
    if (scalar_ok != nullptr) v = b_.CreateSelect(scalar_ok, v, constant_of(c_, t, a.fill, fill_int(a.fill), 0));
    return {v, false};
}

llvm::Value* StageValues::half_of_pair(size_t slot, const Coords& p) {
    const Place& place = job_.accesses[slot];
    if (place.storage != DType::BF16 || !has_vector_ || vector_reduces_) return nullptr;
    for (size_t r = e_.spatial; r < n_axes_; ++r) {
        if (((access_mask_[slot] >> r) & 1) == 0 || regs_[r] % 2 != 0) continue;
        Coords even = p, odd = p;
        even[r] = p[r] / 2 * 2;
        odd[r] = even[r] + 1;
        const Expr first = offset_of(place, e_.accesses[slot].index, even);
        if (!simplify(offset_of(place, e_.accesses[slot].index, odd) - first, ranges_).is_constant(1)) continue;
        llvm::Value*& pair = pairs_[{slot, even}];
        if (pair == nullptr) {
            auto* both = b_.CreateAlignedLoad(b_.getInt32Ty(), element(b_.getInt16Ty(), place.base, first),
                                              llvm::Align(byte_size(place.storage)));
            pair = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), annotate(both, place));
        }
        llvm::Value* half = p[r] == even[r] ? b_.CreateShl(pair, 16) : b_.CreateAnd(pair, 0xffff0000U);
        return b_.CreateBitCast(half, llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(lanes_)));
    }
    return nullptr;
}

std::optional<StageValues::ReadCondition> StageValues::condition_of(const Access& a, const Coords& p) {
    ReadCondition all;
    for (const Expr& condition : a.valid) {
        bind_loads(condition, p);
        const Expr e = at(condition, p);
        if (prove_nonnegative(e, ranges_)) continue;
        if (prove_nonnegative(-e - 1, ranges_)) return std::nullopt;
        if (lane_dependent(e)) {
            llvm::Value* ok = b_.CreateICmpSGE(exprs_.vector(e, lanes_), splat_int(0));
            all.lanes = all.lanes == nullptr ? ok : b_.CreateAnd(all.lanes, ok);
        } else {
            llvm::Value* ok = b_.CreateICmpSGE(exprs_.scalar(e), b_.getInt64(0));
            all.scalar = all.scalar == nullptr ? ok : b_.CreateAnd(all.scalar, ok);
        }
    }
    return all;
}

llvm::Value* StageValues::read_vector(size_t slot, const Coords& p, Expr offset, const ReadCondition& condition) {
    const Access& a = e_.accesses[slot];
    const Place& place = job_.accesses[slot];
    llvm::Value* scalar_ok = condition.scalar;
    llvm::Value* const lanes_ok = condition.lanes;
    llvm::Value* mask = lane_mask(p);
    Address where = address(place, offset);
    const bool contiguous = where.per_lane == nullptr && where.lane_stride == 1;
    const bool all_or_none = scalar_ok != nullptr && lanes_ok == nullptr && mask == nullptr;
    llvm::Constant* fill = constant_of(c_, compute_type(place.storage), a.fill, fill_int(a.fill), lanes_);
    llvm::Type* vector_type = storage_type(c_, place.storage, lanes_);
    if (lanes_ok != nullptr) mask = mask == nullptr ? lanes_ok : b_.CreateAnd(mask, lanes_ok);
    if (all_or_none && contiguous && fill->getType() == vector_type) {
        // A masked load from an unmapped page takes hundreds of cycles, even if all lanes are masked off.
        where.pointer = b_.CreateSelect(scalar_ok, where.pointer, in_memory(fill));
        scalar_ok = nullptr;
    }
    if (scalar_ok != nullptr) {
        llvm::Value* all = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), scalar_ok);
        mask = mask == nullptr ? all : b_.CreateAnd(mask, all);
    }
    llvm::Value* v = nullptr;
    if (contiguous) {
        for (const PrefetchKind kind : {PrefetchKind::Task, PrefetchKind::Panel})
            if (const Prefetch* wanted = prefetch_of(slot, kind)) prefetch(where.pointer, wanted->bytes);
        v = mask != nullptr
                ? masked_load(place, where.pointer, mask)
                : annotate(b_.CreateAlignedLoad(vector_type, where.pointer, llvm::Align(byte_size(place.storage))),
                           place);
    } else {
        v = read_strided(slot, p, where, {scalar_ok, lanes_ok}, mask);
    }
    v = from_storage(b_, place.storage, v);
    if (lanes_ok != nullptr || scalar_ok != nullptr) v = b_.CreateSelect(mask, v, fill);
    return v;
}

llvm::Value* StageValues::read_strided(size_t slot, const Coords& p, const Address& where,
                                       const ReadCondition& condition, llvm::Value* mask) {
    const Place& place = job_.accesses[slot];
    llvm::Type* element_type = storage_type(c_, place.storage, 0);
    llvm::Type* vector_type = storage_type(c_, place.storage, lanes_);
    const auto align = llvm::Align(byte_size(place.storage));
    if (where.per_lane == nullptr && where.lane_stride == 0) {
        llvm::Value* pointer = where.pointer;
        if (condition.scalar != nullptr)
            pointer = b_.CreateSelect(condition.scalar, pointer, place.base);
        else if (condition.lanes != nullptr)
            pointer = b_.CreateSelect(b_.CreateOrReduce(mask), pointer, place.base);
        llvm::Value* s = annotate(b_.CreateAlignedLoad(element_type, pointer, align), place);
        return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), s);
    }
    if (const auto across = transposing_axis(slot, p)) return transposed(slot, p, *across, mask);
    if (const auto wanted = lane_run(mask);
        wanted && where.per_lane == nullptr && where.lane_stride > 1 && where.lane_stride <= kMostSpread)
        return spread(place, where, *wanted);
    llvm::Value* pointers = where.per_lane;
    if (pointers == nullptr) {
        llvm::Value* lane = exprs_.binding({VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
        pointers = b_.CreateGEP(element_type, where.pointer, b_.CreateMul(lane, splat_int(where.lane_stride)));
    }
    llvm::Value* m = mask != nullptr ? mask
                                     : llvm::Constant::getAllOnesValue(
                                           llvm::FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(lanes_)));
    return annotate(b_.CreateMaskedGather(vector_type, pointers, align, m, llvm::Constant::getNullValue(vector_type)),
                    place);
}

std::optional<StageValues::LaneRun> StageValues::lane_run(llvm::Value* mask) const {
    if (mask == nullptr) return LaneRun{0, lanes_};
    const auto* known = llvm::dyn_cast<llvm::Constant>(mask);
    LaneRun run{0, 0};
    for (int i = 0; i < lanes_; ++i) {
        const llvm::Constant* lane = known != nullptr ? known->getAggregateElement(static_cast<unsigned>(i)) : nullptr;
        if (lane == nullptr || (!lane->isOneValue() && !lane->isNullValue())) return std::nullopt;
        if (lane->isNullValue()) continue;
        if (run.to == 0)
            run.from = i;
        else if (run.to < i)
            return std::nullopt;
        run.to = i + 1;
    }
    return run.to > 0 ? std::optional(run) : std::nullopt;
}

llvm::Value* StageValues::spread(const Place& place, const Address& where, LaneRun wanted) {
    llvm::Type* element_type = storage_type(c_, place.storage, 0);
    llvm::Type* type = storage_type(c_, place.storage, lanes_);
    const auto align = llvm::Align(byte_size(place.storage));
    const int64_t first = where.lane_stride * wanted.from, end = where.lane_stride * (wanted.to - 1) + 1;
    const bool all = wanted.to - wanted.from == lanes_;
    llvm::Value* v = all ? llvm::PoisonValue::get(type) : llvm::Constant::getNullValue(type);
    for (int64_t k = 0; first + k * lanes_ < end; ++k) {
        const int64_t begin = std::max(first, std::min(first + k * lanes_, end - lanes_));
        llvm::Value* pointer = b_.CreateGEP(element_type, where.pointer, b_.getInt64(static_cast<uint64_t>(begin)));
        std::vector<llvm::Constant*> there;
        there.reserve(static_cast<size_t>(lanes_));
        for (int64_t i = 0; i < lanes_; ++i) there.push_back(b_.getInt1(begin + i < end));
        llvm::Value* block = end - first < lanes_ ? masked_load(place, pointer, llvm::ConstantVector::get(there))
                                                  : annotate(b_.CreateAlignedLoad(type, pointer, align), place);
        std::vector<int> from;
        for (int i = 0; i < lanes_; ++i) {
            const int64_t at = where.lane_stride * i;
            const bool here = i >= wanted.from && i < wanted.to && (at - first) / lanes_ == k;
            from.push_back(static_cast<int>(here ? lanes_ + at - begin : i));
        }
        v = b_.CreateShuffleVector(v, block, from);
    }
    return v;
}

}  // namespace tilewright::cpu
