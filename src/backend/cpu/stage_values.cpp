#include "backend/cpu/stage_values.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>

#include "backend/cpu/scalar_emitter.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "program/analysis/access.h"
#include "program/scalar_eval.h"
#include "tile/cuts.h"

namespace tilewright::cpu {

StageValues::StageValues(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job)
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
    strips_.resize(n_axes_);
    period_.assign(n_axes_, 0);
    base_.assign(n_axes_, nullptr);
    non_temporal_ = job_.out.non_temporal && job_.out.non_temporal_if == nullptr;
    lane_axis_ = n_axes_;  // additional axis variables: the lane, and the vector axis in units of lanes
    block_axis_ = n_axes_ + 1;
    setup_ranges();
    setup_dependences();
    if (has_vector_) {
        std::vector<llvm::Constant*> lane_numbers;
        lane_numbers.reserve(static_cast<size_t>(lanes_));
        for (int i = 0; i < lanes_; ++i) lane_numbers.push_back(b_.getInt64(static_cast<uint64_t>(i)));
        exprs_.bind({VarKind::Axis, static_cast<uint32_t>(lane_axis_)}, llvm::ConstantVector::get(lane_numbers));
        aligned_ = axis_ranges_[va_].lo_multiple % lanes_ == 0;
    }
    for (size_t a = 0; a < n_axes_; ++a)
        if (a != va_) bind_axis(a, axis_ranges_[a].lo);
}

void StageValues::setup_ranges() {
    Ranges r;
    for (size_t a = 0; a < n_axes_; ++a) r.axes.push_back({Expr(0), e_.extents[a] - 1});
    r.axes.push_back({Expr(0), Expr(std::max(1, lanes_) - 1)});
    Interval block{Expr(0), std::nullopt};
    if (has_vector_) block.hi = floor_div(e_.extents[va_] - 1, lanes_);
    r.axes.push_back(block);
    r.axes.resize(r.axes.size() + n_axes_, {Expr(0), std::nullopt});  // for block_of each axis
    for (const Access& a : e_.accesses) {
        (void)a;
        r.loads.push_back({});
    }
    // A load that serves as an index is inside the dimension that it indexes, wherever the element is read.
    for (size_t i = 0; i < e_.accesses.size(); ++i)
        for (size_t d = 0; d < e_.accesses[i].index.size() && e_.accesses[i].valid.empty(); ++d)
            if (auto v = e_.accesses[i].index[d].as_var(); v && v->kind == VarKind::Load && v->id < r.loads.size())
                r.loads[v->id] = {Expr(0), std::nullopt};
    ranges_ = r;
    exprs_.set_ranges(r);
}

void StageValues::setup_dependences() {
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

void StageValues::bind_axis(size_t a, llvm::Value* value) {
    base_[a] = value;
    if (a == va_) {
        if (aligned_)
            exprs_.bind({VarKind::Axis, static_cast<uint32_t>(block_axis_)},
                        b_.CreateUDiv(value, b_.getInt64(static_cast<uint64_t>(lanes_)), "", true));
        exprs_.bind({VarKind::Axis, static_cast<uint32_t>(a)}, value);
        return;
    }
    exprs_.bind({VarKind::Axis, static_cast<uint32_t>(a)}, value);
    if (period_[a] != 0)
        exprs_.bind({VarKind::Axis, block_axis_of(a)},
                    b_.CreateUDiv(value, b_.getInt64(static_cast<uint64_t>(period_[a])), "", true));
}

StageValues::Mask StageValues::mask_of(Expr e) const {
    Mask m = 0;
    for (const Var v : variables(e)) {
        if (v.kind == VarKind::Axis) m |= Mask{1} << v.id;
        if (v.kind == VarKind::Load) m |= access_mask_.at(v.id);
    }
    return m;
}

std::vector<StageValues::Mask> StageValues::node_masks(const ScalarBody& body) const {
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

void StageValues::branch(llvm::Value* condition, const std::function<void()>& then) {
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

int64_t StageValues::reach(size_t a, int64_t i) const {
    const int64_t unit = a == va_ ? lanes_ : 1;
    if (strips_[a].distance == 0) return i * unit;
    const int64_t each = strips_[a].points / unit;
    return i / each * strips_[a].distance + i % each * unit;
}

void StageValues::forget() {
    memo_.clear();
    blocks_.clear();
    pairs_.clear();
    load_binding_.clear();
}

llvm::Value* StageValues::widen(const Val& v) {
    if (v.is_vector || !has_vector_) return v.v;
    return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), v.v);
}

Val StageValues::evaluate(const ScalarBody& body, const std::vector<Mask>& masks, ScalarId id, const Coords& p,
                          const Val& acc) {
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
        case ScalarOp::Table:
            result = table(n, evaluate(body, masks, n.a, p, acc));
            break;
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
            if (n.op == ScalarOp::Div && n.dtype == DType::F32 && args[0].is_vector && !args[1].is_vector) {
                result = {emit_div_by_one(b_, args[0].v, args[1].v), true};
                break;
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

llvm::Value* StageValues::small_table(const ScalarNode& n, llvm::Value* position) {
    constexpr size_t kNumbers = 16;
    // Bits above those that a permutation reads need not be cleared.
    auto* masked = llvm::dyn_cast<llvm::BinaryOperator>(position);
    const auto* mask = masked != nullptr && masked->getOpcode() == llvm::Instruction::And
                           ? llvm::dyn_cast<llvm::Constant>(masked->getOperand(1))
                           : nullptr;
    const auto* most = mask != nullptr ? llvm::dyn_cast_or_null<llvm::ConstantInt>(mask->getSplatValue()) : nullptr;
    if (most == nullptr || n.dtype != DType::F32 || n.table->size() > kNumbers ||
        most->getZExtValue() + 1 != n.table->size() || !position->getType()->getScalarType()->isIntegerTy(32))
        return nullptr;
    const std::vector<double>& numbers = *n.table;
    llvm::Value* x = masked->getOperand(0);
    const auto lanes = [&](size_t first) {  // repeated, so that higher bits change nothing
        std::vector<llvm::Constant*> all;
        for (size_t i = 0; i < static_cast<size_t>(lanes_); ++i)
            all.push_back(constant_of(c_, DType::F32, numbers[(first + i) % numbers.size()], 0, 0));
        return llvm::ConstantVector::get(all);
    };
    if (job_.vector_bits == 512 && lanes_ == 16)
        return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {lanes(0), x});
    llvm::Type* type = llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(lanes_));
    const double first = numbers[0], step = numbers[1] - first;
    bool even = true;
    for (size_t i = 0; i < numbers.size(); ++i) even = even && numbers[i] == first + step * static_cast<double>(i);
    if (even) {
        llvm::Value* scaled = b_.CreateSIToFP(position, type);
        if (step != 1) scaled = b_.CreateFMul(scaled, llvm::ConstantFP::get(type, step));
        return b_.CreateFAdd(scaled, llvm::ConstantFP::get(type, first));
    }
    if (job_.vector_bits != 256 || lanes_ != 8) return nullptr;
    const auto permuted = [&](size_t at) {
        return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {lanes(at), x});
    };
    if (numbers.size() <= 8) return permuted(0);
    llvm::Value* upper = b_.CreateICmpSLT(b_.CreateShl(x, 28), llvm::Constant::getNullValue(x->getType()));
    return b_.CreateSelect(upper, permuted(8), permuted(0));
}

Val StageValues::table(const ScalarNode& n, const Val& position) {
    const auto number = [&](double v) { return constant_of(c_, n.dtype, v, 0, 0); };
    if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(position.v))
        return {number(table_at(n, known->getSExtValue())), false};
    std::vector<llvm::Constant*> numbers;
    for (const double v : *n.table) numbers.push_back(number(v));
    llvm::Type* type = number(0)->getType();
    auto* array = llvm::ArrayType::get(type, numbers.size());
    llvm::Value* memory = in_memory(llvm::ConstantArray::get(array, numbers));
    const auto at = [&](llvm::Value* k) -> llvm::Value* {
        llvm::Value* inside = b_.CreateICmpULT(k, b_.getInt64(numbers.size()));
        llvm::Value* there = b_.CreateGEP(type, memory, b_.CreateSelect(inside, k, b_.getInt64(0)));
        return b_.CreateSelect(inside, b_.CreateLoad(type, there), number(0));
    };
    if (numbers.empty()) return {number(0), false};
    if (!position.is_vector) return {at(position.v), false};
    auto* vector = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes_));
    if (auto* widened = llvm::dyn_cast<llvm::ZExtInst>(position.v))
        if (llvm::Value* found = small_table(n, widened->getOperand(0))) return {found, true};
    // A byte is inside of 256 numbers.
    if (auto* byte = llvm::dyn_cast<llvm::ZExtInst>(position.v);
        byte != nullptr && byte->getSrcTy()->getScalarSizeInBits() == 8 && numbers.size() == 256) {
        llvm::Value* k = b_.CreateZExt(byte->getOperand(0),
                                       llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(lanes_)));
        return {b_.CreateMaskedGather(vector, b_.CreateGEP(type, memory, k), llvm::Align(byte_size(n.dtype))), true};
    }
    llvm::Value* out = llvm::PoisonValue::get(vector);
    for (int lane = 0; lane < lanes_; ++lane)
        out = b_.CreateInsertElement(out, at(b_.CreateExtractElement(position.v, static_cast<uint64_t>(lane))),
                                     static_cast<uint64_t>(lane));
    return {out, true};
}

std::optional<bool> StageValues::decided(const ScalarBody& body, ScalarId condition, const Coords& p) {
    const auto c = index_condition(body, condition);
    if (!c) return std::nullopt;
    const Expr e = at(c->expression, p);
    if (prove_nonnegative(e, ranges_)) return !c->negated;
    if (prove_nonnegative(-e - 1, ranges_)) return c->negated;
    return std::nullopt;
}

Expr StageValues::at(Expr e, const Coords& p) {
    const Expr s = substitute(e, [&](Var v) -> std::optional<Expr> {
        if (v.kind != VarKind::Axis || v.id >= n_axes_) return std::nullopt;
        const size_t a = v.id;
        if (a == va_) {
            const Expr lane = axis(lane_axis_);
            if (aligned_) return axis(block_axis_) * lanes_ + lane + reach(a, p[a]);
            return axis(a) + lane + reach(a, p[a]);
        }
        if (clamp_[a] && p[a] != 0) return min(axis(a) + p[a], scalar(clamp_name(a)) - 1);
        if (period_[a] != 0) return block_of(a) * period_[a] + p[a];
        if (p[a] != 0) return axis(a) + reach(a, p[a]);
        return std::nullopt;
    });
    for (size_t a = 0; a < n_axes_; ++a)
        if (clamp_[a])
            if (const auto last = scalar(clamp_name(a)).as_var()) exprs_bind_once(*last, clamp_hi_[a]);
    return simplify(s, ranges_);
}

void StageValues::exprs_bind_once(Var v, llvm::Value* value) {
    auto it = clamp_bound_.find(v);
    if (it != clamp_bound_.end() && it->second == value) return;
    clamp_bound_[v] = value;
    exprs_.bind(v, value);
}

bool StageValues::lane_dependent(Expr e) const {
    for (const Var v : variables(e))
        if ((v.kind == VarKind::Axis && v.id == lane_axis_) || exprs_.is_vector(v)) return true;
    return false;
}

void StageValues::bind_loads(Expr e, const Coords& p) {
    for (const Var v : variables(e)) {
        if (v.kind != VarKind::Load) continue;
        Coords q = p;
        for (size_t a = 0; a < n_axes_; ++a)
            if (((access_mask_[v.id] >> a) & 1) == 0) q[a] = 0;
        Val x = access(v.id, q);
        llvm::Type* i64 = b_.getInt64Ty();
        llvm::Type* t = x.is_vector
                            ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(i64, static_cast<unsigned>(lanes_)))
                            : i64;
        const DType storage = job_.accesses[v.id].storage;
        llvm::Value* wide = b_.CreateIntCast(x.v, t, is_signed(storage));
        auto it = load_binding_.find(v.id);
        if (it != load_binding_.end() && it->second == wide) continue;
        load_binding_[v.id] = wide;
        exprs_.bind(v, wide);
    }
}

Expr StageValues::offset_of(const Place& place, const std::vector<Expr>& index, const Coords& p) {
    std::vector<Expr> where;
    for (size_t d = 0; d < index.size(); ++d) {
        Expr i = at(index[d], p);
        if (!place.origin.empty()) i = i - place.origin[d];
        where.push_back(i);
    }
    if (place.layout) where = physical_index(*place.layout, place.box, where);
    return simplify(strided_offset(where, place.strides), ranges_);
}

StageValues::Address StageValues::address(const Place& place, Expr offset) {
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

llvm::Value* StageValues::element(llvm::Type* type, llvm::Value* base, Expr offset) {
    const int64_t constant = offset.constant();
    llvm::Value* p = base;
    if (!offset.is_constant()) p = b_.CreateGEP(type, p, exprs_.scalar(offset - constant));
    if (constant != 0) p = b_.CreateGEP(type, p, b_.getInt64(static_cast<uint64_t>(constant)));
    return p;
}

llvm::Value* StageValues::masked_load(const Place& place, llvm::Value* pointer, llvm::Value* mask) {
    return emit_masked_load(b_, vector_memory(place), pointer, mask, [&](llvm::Instruction* i) { annotate(i, place); });
}

void StageValues::masked_store(const Place& place, llvm::Value* pointer, llvm::Value* mask, llvm::Value* v) {
    emit_masked_store(b_, vector_memory(place), pointer, mask, v, [&](llvm::Instruction* i) { annotate(i, place); });
}

VectorMemory StageValues::vector_memory(const Place& place) const {
    return {storage_type(c_, place.storage, 0), static_cast<int>(byte_size(place.storage)), lanes_, job_.vector_bits};
}

llvm::Value* StageValues::lane_mask(const Coords& p) const {
    return tail_mask_ != nullptr && p[va_] == regs_[va_] - 1 ? tail_mask_ : nullptr;
}

llvm::Value* StageValues::in_memory(llvm::Constant* constant) {
    llvm::GlobalVariable*& there = constants_[constant];
    if (there == nullptr) {
        there = new llvm::GlobalVariable(*b_.GetInsertBlock()->getModule(), constant->getType(), true,
                                         llvm::GlobalValue::PrivateLinkage, constant, "fill");
        there->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
    }
    return there;
}

std::optional<size_t> StageValues::transposing_axis(size_t slot, const Coords& p) {
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
        if (!lane_rows(start)) continue;
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

std::optional<Linear> StageValues::lane_rows(Expr offset) const {
    const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
    if (!linear || lane_dependent(linear->coefficient) || lane_dependent(linear->rest)) return std::nullopt;
    return linear;
}

llvm::Value* StageValues::transposed(size_t slot, const Coords& p, size_t u, llvm::Value* mask) {
    const Place& place = job_.accesses[slot];
    Coords q = p;
    q[u] = p[u] / lanes_ * lanes_;
    std::vector<llvm::Value*>& rows = blocks_[{slot, q}];
    if (rows.empty()) {
        llvm::Type* type = storage_type(c_, place.storage, lanes_);
        const auto align = llvm::Align(byte_size(place.storage));
        llvm::Type* element_type = storage_type(c_, place.storage, 0);
        const Linear start = *lane_rows(offset_of(place, e_.accesses[slot].index, q));
        llvm::Value* first = element(element_type, place.base, start.rest);
        llvm::Value* apart = exprs_.scalar(start.coefficient);
        for (int i = 0; i < lanes_; ++i) {
            llvm::Value* pointer =
                b_.CreateGEP(element_type, first, b_.CreateNSWMul(apart, b_.getInt64(static_cast<uint64_t>(i))));
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

int64_t StageValues::fill_int(double f) {
    if (f >= 9223372036854775807.0) return INT64_MAX;
    if (f <= -9223372036854775808.0) return INT64_MIN;
    return f != f ? 0 : static_cast<int64_t>(f);
}

llvm::Value* StageValues::splat_int(int64_t v) {
    return b_.CreateVectorSplat(static_cast<unsigned>(lanes_), b_.getInt64(static_cast<uint64_t>(v)));
}

Expr StageValues::out_offset(const Coords& p, const Place& place) {
    if (!e_.output_index.empty()) return offset_of(place, e_.output_index, p);
    std::vector<Expr> index;
    index.reserve(e_.spatial);
    for (size_t a = 0; a < e_.spatial; ++a) index.push_back(axis(a));
    return offset_of(place, index, p);
}

llvm::Value* StageValues::load_out(const Coords& p) {
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

llvm::Value* StageValues::lane_pointers(const Place& place, const Address& where) {
    if (where.per_lane != nullptr) return where.per_lane;
    llvm::Value* lane = exprs_.binding({VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
    return b_.CreateGEP(storage_type(c_, place.storage, 0), where.pointer,
                        b_.CreateMul(lane, splat_int(where.lane_stride)));
}

llvm::Value* StageValues::all_or(llvm::Value* mask) {
    if (mask != nullptr) return mask;
    return llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(lanes_)));
}

void StageValues::store(const Coords& p, const Val& value) {
    // Under clamping, points beyond the end would repeat the store of the last one: skip them.
    llvm::Value* inside = nullptr;
    for (size_t a = 0; a < e_.spatial; ++a) {
        if (!clamp_[a] || p[a] == 0) continue;
        llvm::Value* ok =
            b_.CreateICmpSLT(b_.CreateAdd(base_[a], b_.getInt64(static_cast<uint64_t>(p[a]))), clamp_hi_.at(a));
        inside = inside == nullptr ? ok : b_.CreateAnd(inside, ok);
    }
    if (inside != nullptr) {
        // Values that are computed in this block must not be reused after it.
        branch(inside, [&] { store_inside(p, value, job_.out); });
        return;
    }
    store_inside(p, value, job_.out);
}

bool StageValues::whole_vector(Expr offset, const Place& place) const {
    if (static_cast<size_t>(lanes_) * byte_size(place.storage) > 64) return false;
    if (offset.constant() % lanes_ != 0) return false;
    const Var lane{VarKind::Axis, static_cast<uint32_t>(lane_axis_)};
    for (const Term& t : offset.terms()) {
        const bool of_lane = std::any_of(t.atoms.begin(), t.atoms.end(), [&](const Atom* a) {
            return a->kind != Atom::Kind::Var ? uses(a->a, lane) || uses(a->b, lane) : a->var == lane;
        });
        const bool is_lane = of_lane && t.atoms.size() == 1 && t.atoms[0]->kind == Atom::Kind::Var;
        if (!is_lane && (of_lane || t.coefficient % lanes_ != 0)) return false;
    }
    return true;
}

void StageValues::store_inside(const Coords& p, const Val& value, const Place& place) {
    const Expr offset = out_offset(p, place);
    Address where = address(place, offset);
    const auto align = llvm::Align(byte_size(place.storage));
    if (!has_vector_ || vector_reduces_) {
        TW_CHECK(!value.is_vector, "a scalar result is a vector");
        annotate(b_.CreateAlignedStore(to_storage(b_, place.storage, value.v), where.pointer, align), place);
        return;
    }
    llvm::Value* v = to_storage(b_, place.storage, widen(value));
    llvm::Value* mask = lane_mask(p);
    if (where.per_lane == nullptr && where.lane_stride == 1) {
        if (mask == nullptr && non_temporal_ && place.non_temporal && whole_vector(offset, place)) {
            const auto bytes = static_cast<uint64_t>(lanes_) * byte_size(place.storage);
            llvm::StoreInst* past = b_.CreateAlignedStore(v, where.pointer, llvm::Align(bytes));
            past->setMetadata(llvm::LLVMContext::MD_nontemporal,
                              llvm::MDNode::get(c_, llvm::ConstantAsMetadata::get(b_.getInt32(1))));
            annotate(past, place);
        } else if (mask == nullptr)
            annotate(b_.CreateAlignedStore(v, where.pointer, align), place);
        else
            masked_store(place, where.pointer, mask, v);
        return;
    }
    annotate(b_.CreateMaskedScatter(v, lane_pointers(place, where), align, all_or(mask)), place);
}

}  // namespace tilewright::cpu
