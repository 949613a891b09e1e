#include "backend/cpu/scalar_emitter.h"

#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "backend/cpu/small_floats.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"

namespace tilewright::cpu {

llvm::Type* with_lanes(llvm::Type* t, int lanes) {
    return lanes > 0 ? llvm::FixedVectorType::get(t, static_cast<unsigned>(lanes)) : t;
}

int lanes_of(llvm::Value* v) {
    auto* t = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    return t == nullptr ? 0 : static_cast<int>(t->getNumElements());
}

namespace {

unsigned bits_of(DType t) { return t == DType::Bool ? 1 : static_cast<unsigned>(byte_size(compute_type(t)) * 8); }

llvm::Constant* int_constant(llvm::Type* type, int64_t v) {
    return llvm::ConstantInt::get(type, static_cast<uint64_t>(v), true);
}

/// x / 0 = 0, and nothing traps: the divisor that would is replaced by 1 and the quotient mended.
llvm::Value* emit_int_division(llvm::IRBuilder<>& b, ScalarOp op, bool is_signed_type, llvm::Value* x, llvm::Value* y) {
    llvm::Type* type = x->getType();
    llvm::Value* zero = int_constant(type, 0);
    llvm::Value* one = int_constant(type, 1);
    llvm::Value* by_zero = b.CreateICmpEQ(y, zero);
    llvm::Value* safe = b.CreateSelect(by_zero, one, y);
    if (!is_signed_type) {
        llvm::Value* r = op == ScalarOp::Div ? b.CreateUDiv(x, safe) : b.CreateURem(x, safe);
        return b.CreateSelect(by_zero, zero, r);
    }
    llvm::Value* by_minus_one = b.CreateICmpEQ(y, int_constant(type, -1));
    safe = b.CreateSelect(by_minus_one, one, safe);
    if (op == ScalarOp::Div) {
        llvm::Value* q = b.CreateSDiv(x, safe);
        q = b.CreateSelect(by_minus_one, b.CreateNeg(x), q);
        return b.CreateSelect(by_zero, zero, q);
    }
    llvm::Value* r = b.CreateSRem(x, safe);
    if (op == ScalarOp::FloorMod) {
        llvm::Value* opposite = b.CreateICmpSLT(b.CreateXor(r, y), zero);
        llvm::Value* adjust = b.CreateAnd(b.CreateICmpNE(r, zero), opposite);
        r = b.CreateSelect(adjust, b.CreateAdd(r, y), r);
    }
    return b.CreateSelect(b.CreateOr(by_zero, by_minus_one), zero, r);
}

llvm::Value* emit_int_pow(llvm::IRBuilder<>& b, DType t, llvm::Value* x, llvm::Value* y) {
    // Square and multiply over every exponent bit; a negative exponent leaves 1 for base 1, +-1 for base -1, else 0.
    llvm::Type* type = x->getType();
    llvm::Value* result = int_constant(type, 1);
    llvm::Value* base = x;
    const unsigned bits = bits_of(t);
    for (unsigned k = 0; k < bits; ++k) {
        llvm::Value* bit = b.CreateAnd(b.CreateLShr(y, int_constant(type, k)), int_constant(type, 1));
        llvm::Value* set = b.CreateICmpNE(bit, int_constant(type, 0));
        result = b.CreateSelect(set, b.CreateMul(result, base), result);
        base = b.CreateMul(base, base);
    }
    if (is_signed(t)) {
        llvm::Value* negative = b.CreateICmpSLT(y, int_constant(type, 0));
        llvm::Value* is_one = b.CreateICmpEQ(x, int_constant(type, 1));
        llvm::Value* is_minus_one = b.CreateICmpEQ(x, int_constant(type, -1));
        llvm::Value* odd = b.CreateICmpNE(b.CreateAnd(y, int_constant(type, 1)), int_constant(type, 0));
        llvm::Value* unit = b.CreateSelect(odd, int_constant(type, -1), int_constant(type, 1));
        llvm::Value* other = b.CreateSelect(is_minus_one, unit, int_constant(type, 0));
        result = b.CreateSelect(negative, b.CreateSelect(is_one, int_constant(type, 1), other), result);
    }
    return result;
}

llvm::Value* emit_shift(llvm::IRBuilder<>& b, bool left, DType t, llvm::Value* x, llvm::Value* y) {
    llvm::Type* type = x->getType();
    llvm::Value* in_range = b.CreateICmpULT(y, int_constant(type, bits_of(t)));
    llvm::Value* amount = b.CreateSelect(in_range, y, int_constant(type, 0));
    llvm::Value* r = left ? b.CreateShl(x, amount) : is_signed(t) ? b.CreateAShr(x, amount) : b.CreateLShr(x, amount);
    return b.CreateSelect(in_range, r, int_constant(type, 0));
}

llvm::Value* emit_compare(llvm::IRBuilder<>& b, ScalarOp op, DType t, llvm::Value* x, llvm::Value* y) {
    using P = llvm::CmpInst::Predicate;
    if (is_float(t)) {
        switch (op) {
            case ScalarOp::Eq:
                return b.CreateFCmp(P::FCMP_OEQ, x, y);
            case ScalarOp::Ne:
                return b.CreateFCmp(P::FCMP_UNE, x, y);
            case ScalarOp::Lt:
                return b.CreateFCmp(P::FCMP_OLT, x, y);
            case ScalarOp::Le:
                return b.CreateFCmp(P::FCMP_OLE, x, y);
            case ScalarOp::Gt:
                return b.CreateFCmp(P::FCMP_OGT, x, y);
            default:
                return b.CreateFCmp(P::FCMP_OGE, x, y);
        }
    }
    const bool s = is_signed(t);
    switch (op) {
        case ScalarOp::Eq:
            return b.CreateICmp(P::ICMP_EQ, x, y);
        case ScalarOp::Ne:
            return b.CreateICmp(P::ICMP_NE, x, y);
        case ScalarOp::Lt:
            return b.CreateICmp(s ? P::ICMP_SLT : P::ICMP_ULT, x, y);
        case ScalarOp::Le:
            return b.CreateICmp(s ? P::ICMP_SLE : P::ICMP_ULE, x, y);
        case ScalarOp::Gt:
            return b.CreateICmp(s ? P::ICMP_SGT : P::ICMP_UGT, x, y);
        default:
            return b.CreateICmp(s ? P::ICMP_SGE : P::ICMP_UGE, x, y);
    }
}

/// A float as an integer of 8 or 16 bits or as I32: the nearest number of the type, 0 for NaN. LLVM's saturating
/// conversions of vectors go lane by lane: a kernel whose epilogue quantises took three times as long.
static llvm::Value* saturated(llvm::IRBuilder<>& b, DType to, llvm::Type* type, llvm::Value* x) {
    const int bits = 8 * static_cast<int>(byte_size(to));
    const double least = is_signed(to) ? -std::ldexp(1, bits - 1) : 0, beyond = least + std::ldexp(1, bits);
    // The largest number that a float has below 2^31 is 2^31 - 128.
    const double most = bits == 32 && !x->getType()->getScalarType()->isDoubleTy() ? beyond - 128 : beyond - 1;
    const auto number = [&](double v) { return llvm::ConstantFP::get(x->getType(), v); };
    llvm::Value* y = b.CreateSelect(b.CreateFCmpOGT(x, number(least)), x, number(least));
    y = b.CreateSelect(b.CreateFCmpOLT(y, number(most)), y, number(most));
    if (least < 0) y = b.CreateSelect(b.CreateFCmpUNO(x, x), number(0), y);
    y = b.CreateFPToSI(y, register_type(b.getContext(), DType::I32, lanes_of(x)));
    if (bits < 32) return b.CreateTrunc(y, type);
    return b.CreateSelect(b.CreateFCmpOGE(x, number(beyond)), int_constant(type, INT32_MAX), y);
}

llvm::Value* emit_cast(llvm::IRBuilder<>& b, DType to, DType from, llvm::Value* x) {
    const int lanes = lanes_of(x);
    if (to == DType::F16 || to == DType::BF16) {  // round there, stay in float
        if (from == DType::F64)
            x = b.CreateFPTrunc(x, register_type(b.getContext(), DType::F32, lanes));
        else if (!is_float(from))
            x = emit_cast(b, DType::F32, from, x);
        return from_storage(b, to, to_storage(b, to, x));
    }
    if (from == DType::F16 || from == DType::BF16) from = DType::F32;
    if (to == from) return x;
    llvm::Type* type = register_type(b.getContext(), to, lanes);
    if (to == DType::Bool) {
        if (is_float(from)) return b.CreateFCmpUNE(x, llvm::ConstantFP::get(x->getType(), 0.0));
        return b.CreateICmpNE(x, int_constant(x->getType(), 0));
    }
    if (is_float(from)) {
        if (is_float(to)) return to == DType::F64 ? b.CreateFPExt(x, type) : b.CreateFPTrunc(x, type);
        if (byte_size(to) < 4 || to == DType::I32) return saturated(b, to, type, x);
        const auto id = is_signed(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
        return b.CreateIntrinsic(id, {type, x->getType()}, {x});
    }
    if (is_float(to)) return is_signed(from) ? b.CreateSIToFP(x, type) : b.CreateUIToFP(x, type);
    return b.CreateIntCast(x, type, is_signed(from));
}

/// Max and Min that propagate NaN from either operand.
llvm::Value* emit_extremum(llvm::IRBuilder<>& b, bool is_max, DType t, llvm::Value* x, llvm::Value* y) {
    if (is_float(t)) return is_max ? emit_max_nan(b, x, y) : emit_min_nan(b, x, y);
    if (t == DType::Bool) return is_max ? b.CreateOr(x, y) : b.CreateAnd(x, y);
    const auto id = is_max ? (is_signed(t) ? llvm::Intrinsic::smax : llvm::Intrinsic::umax)
                           : (is_signed(t) ? llvm::Intrinsic::smin : llvm::Intrinsic::umin);
    return b.CreateBinaryIntrinsic(id, x, y);
}

llvm::Value* emit_sign(llvm::IRBuilder<>& b, DType t, llvm::Value* x) {
    if (is_float(t)) {
        llvm::Value* zero = llvm::ConstantFP::get(x->getType(), 0.0);
        llvm::Value* r = b.CreateSelect(b.CreateFCmpOGT(x, zero), llvm::ConstantFP::get(x->getType(), 1.0), zero);
        r = b.CreateSelect(b.CreateFCmpOLT(x, zero), llvm::ConstantFP::get(x->getType(), -1.0), r);
        return b.CreateSelect(b.CreateFCmpUNO(x, x), x, r);
    }
    llvm::Value* zero = int_constant(x->getType(), 0);
    llvm::Value* positive = is_signed(t) ? b.CreateICmpSGT(x, zero) : b.CreateICmpNE(x, zero);
    llvm::Value* r = b.CreateSelect(positive, int_constant(x->getType(), 1), zero);
    if (is_signed(t)) r = b.CreateSelect(b.CreateICmpSLT(x, zero), int_constant(x->getType(), -1), r);
    return r;
}

}  // namespace

llvm::Type* register_type(llvm::LLVMContext& context, DType t, int lanes) {
    switch (compute_type(t)) {
        case DType::F32:
            return with_lanes(llvm::Type::getFloatTy(context), lanes);
        case DType::F64:
            return with_lanes(llvm::Type::getDoubleTy(context), lanes);
        default:
            return with_lanes(llvm::Type::getIntNTy(context, bits_of(t)), lanes);
    }
}

llvm::Type* storage_type(llvm::LLVMContext& context, DType t, int lanes) {
    switch (t) {
        case DType::F32:
            return with_lanes(llvm::Type::getFloatTy(context), lanes);
        case DType::F64:
            return with_lanes(llvm::Type::getDoubleTy(context), lanes);
        case DType::F16:
            return with_lanes(llvm::Type::getHalfTy(context), lanes);
        default:
            return with_lanes(llvm::Type::getIntNTy(context, static_cast<unsigned>(byte_size(t) * 8)), lanes);
    }
}

llvm::Value* from_storage(llvm::IRBuilder<>& b, DType t, llvm::Value* v) {
    const int lanes = lanes_of(v);
    switch (t) {
        case DType::F16:
            return b.CreateFPExt(v, register_type(b.getContext(), DType::F32, lanes));
        case DType::BF16:
            return emit_bf16_to_f32(b, v);
        case DType::Bool:
            return b.CreateICmpNE(v, int_constant(v->getType(), 0));
        case DType::F8E4M3FN:
        case DType::F8E4M3FNUZ:
        case DType::F8E5M2:
        case DType::F8E5M2FNUZ:
        case DType::F8E8M0:
        case DType::F4E2M1:
            return emit_small_float_to_float(b, t, v);
        default:
            return v;
    }
}

llvm::Value* to_storage(llvm::IRBuilder<>& b, DType t, llvm::Value* v) {
    const int lanes = lanes_of(v);
    switch (t) {
        case DType::F16:
            return b.CreateFPTrunc(v, storage_type(b.getContext(), t, lanes));
        case DType::BF16:
            return emit_f32_to_bf16(b, v);
        case DType::Bool:
            return b.CreateZExt(v, storage_type(b.getContext(), t, lanes));
        case DType::F8E4M3FN:
        case DType::F8E4M3FNUZ:
        case DType::F8E5M2:
        case DType::F8E5M2FNUZ:
        case DType::F8E8M0:
        case DType::F4E2M1:
            return emit_float_to_small_float(b, t, v);
        case DType::I4:
        case DType::I2: {
            const int64_t shift = t == DType::I4 ? 4 : 6;
            return b.CreateAShr(b.CreateShl(v, int_constant(v->getType(), shift)), int_constant(v->getType(), shift));
        }
        case DType::U4:
            return b.CreateAnd(v, int_constant(v->getType(), 15));
        case DType::U2:
            return b.CreateAnd(v, int_constant(v->getType(), 3));
        default:
            return v;
    }
}

llvm::Constant* constant_of(llvm::LLVMContext& context, DType t, double value, int64_t int_value, int lanes) {
    llvm::Type* type = register_type(context, t, lanes);
    if (is_float(t)) {
        if (std::isnan(value)) return llvm::ConstantFP::getNaN(type);
        if (std::isinf(value)) return llvm::ConstantFP::getInfinity(type, value < 0);
        return llvm::ConstantFP::get(
            type, compute_type(t) == DType::F32 ? static_cast<double>(static_cast<float>(value)) : value);
    }
    return int_constant(type, t == DType::Bool ? static_cast<int64_t>(int_value != 0) : int_value);
}

llvm::Value* emit_combine(llvm::IRBuilder<>& b, Reducer reducer, DType t, llvm::Value* acc, llvm::Value* v) {
    switch (reducer) {
        case Reducer::Sum:
            return is_float(t) ? b.CreateFAdd(acc, v) : t == DType::Bool ? b.CreateOr(acc, v) : b.CreateAdd(acc, v);
        case Reducer::Prod:
            return is_float(t) ? b.CreateFMul(acc, v) : t == DType::Bool ? b.CreateAnd(acc, v) : b.CreateMul(acc, v);
        case Reducer::Max:
            return emit_extremum(b, true, t, acc, v);
        case Reducer::Min:
            return emit_extremum(b, false, t, acc, v);
        case Reducer::None:
            break;
    }
    return v;
}

llvm::Constant* identity_of(llvm::LLVMContext& context, Reducer reducer, DType t, int lanes) {
    const double infinity = HUGE_VAL;
    const unsigned bits = bits_of(t);
    const int64_t top = is_signed(t) ? static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1) : -1;
    const int64_t bottom = is_signed(t) ? static_cast<int64_t>(uint64_t{1} << (bits - 1)) : 0;
    switch (reducer) {
        case Reducer::Prod:
            return constant_of(context, t, 1, 1, lanes);
        case Reducer::Max:
            return constant_of(context, t, -infinity, t == DType::Bool ? 0 : bottom, lanes);
        case Reducer::Min:
            return constant_of(context, t, infinity, t == DType::Bool ? 1 : top, lanes);
        default:
            return constant_of(context, t, 0, 0, lanes);
    }
}

namespace {

/// Functions of one float: rounding and the elementary functions.
llvm::Value* emit_elementary(llvm::IRBuilder<>& b, ScalarOp function, llvm::Value* x) {
    switch (function) {
#define TW_SCALAR_FUNCTION(op, text, ...) \
    case ScalarOp::op:                    \
        return emit_##text(b, x);
#include "program/scalar_ops.def"
        default:
            internal_error(__FILE__, __LINE__, "an operation of one value", std::string(to_string(function)));
    }
}

/// The remainder with the sign of the divisor.
llvm::Value* emit_floor_mod(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y) {
    llvm::Value* r = b.CreateFRem(x, y);
    llvm::Value* zero = llvm::ConstantFP::get(x->getType(), 0.0);
    llvm::Value* opposite = b.CreateICmpNE(b.CreateFCmpOLT(r, zero), b.CreateFCmpOLT(y, zero));
    llvm::Value* adjust = b.CreateAnd(b.CreateFCmpONE(r, zero), opposite);
    return b.CreateSelect(adjust, b.CreateFAdd(r, y), r);
}

}  // namespace

llvm::Value* emit_scalar_op(llvm::IRBuilder<>& b, ScalarOp op, DType result, DType operand, llvm::Value* x,
                            llvm::Value* y, llvm::Value* z) {
    const bool floating = is_float(operand);
    const auto intrinsic = [&](llvm::Intrinsic::ID id) { return b.CreateUnaryIntrinsic(id, x); };
    switch (op) {
        case ScalarOp::Weigh: {
            llvm::Value* zero = llvm::ConstantFP::get(x->getType(), 0.0);
            return b.CreateSelect(b.CreateFCmpOEQ(x, zero), zero, b.CreateFMul(x, y));
        }
        case ScalarOp::Add:
            return floating ? b.CreateFAdd(x, y) : b.CreateAdd(x, y);
        case ScalarOp::Sub:
            return floating ? b.CreateFSub(x, y) : b.CreateSub(x, y);
        case ScalarOp::Mul:
            return floating ? b.CreateFMul(x, y) : b.CreateMul(x, y);
        case ScalarOp::Div:
            return floating ? emit_div(b, x, y) : emit_int_division(b, op, is_signed(operand), x, y);
        case ScalarOp::TruncMod:
            return floating ? b.CreateFRem(x, y) : emit_int_division(b, op, is_signed(operand), x, y);
        case ScalarOp::FloorMod:
            return floating ? emit_floor_mod(b, x, y) : emit_int_division(b, op, is_signed(operand), x, y);
        case ScalarOp::Pow:
            return floating ? emit_pow(b, x, y) : emit_int_pow(b, operand, x, y);
        case ScalarOp::Min:
            return emit_extremum(b, false, operand, x, y);
        case ScalarOp::Max:
            return emit_extremum(b, true, operand, x, y);
        case ScalarOp::Neg:
            return floating ? b.CreateFNeg(x) : b.CreateNeg(x);
        case ScalarOp::Abs:
            if (floating) return intrinsic(llvm::Intrinsic::fabs);
            if (!is_signed(operand)) return x;
            return b.CreateBinaryIntrinsic(llvm::Intrinsic::abs, x, b.getFalse());
        case ScalarOp::Sign:
            return emit_sign(b, operand, x);
        case ScalarOp::BitAnd:
            return b.CreateAnd(x, y);
        case ScalarOp::BitOr:
            return b.CreateOr(x, y);
        case ScalarOp::BitXor:
            return b.CreateXor(x, y);
        case ScalarOp::BitNot:
            return b.CreateNot(x);
        case ScalarOp::ShiftLeft:
            return emit_shift(b, true, operand, x, y);
        case ScalarOp::ShiftRight:
            return emit_shift(b, false, operand, x, y);
        case ScalarOp::Eq:
        case ScalarOp::Ne:
        case ScalarOp::Lt:
        case ScalarOp::Le:
        case ScalarOp::Gt:
        case ScalarOp::Ge:
            return emit_compare(b, op, operand, x, y);
        case ScalarOp::Select:
            return b.CreateSelect(x, y, z);
        case ScalarOp::Cast:
            return emit_cast(b, result, operand, x);
        case ScalarOp::Bitcast:
            return b.CreateBitCast(x, register_type(b.getContext(), result, lanes_of(x)));
        case ScalarOp::IsNan:
            return b.CreateFCmpUNO(x, x);
        case ScalarOp::IsInf: {
            llvm::Value* a = intrinsic(llvm::Intrinsic::fabs);
            return b.CreateFCmpOEQ(a, llvm::ConstantFP::getInfinity(x->getType()));
        }
        default:
            break;
    }
    return emit_elementary(b, op, x);
}

}  // namespace tilewright::cpu
