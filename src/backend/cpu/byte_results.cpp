#include "backend/cpu/byte_results.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "program/analysis/rounded.h"

namespace tilewright::cpu {

namespace {

constexpr size_t kBytes = 256;
constexpr size_t kTableRegisters = 4, kTableRegisterBytes = kBytes / kTableRegisters;

/// round(real) + zero, or round(real), saturated.
std::optional<ByteResult> quantised(const ScalarBody& body, ScalarId id) {
    const auto byte = rounded_byte(body, id);
    if (!byte || body[byte->real].dtype != DType::F32) return std::nullopt;
    ByteResult out;
    out.real = byte->real;
    out.type = body[id].dtype;
    if (!byte->zero) return out;
    const ScalarNode& zero = body[*byte->zero];
    const double least = out.type == DType::U8 ? 0 : -128;
    if (zero.op != ScalarOp::Const || zero.value != std::floor(zero.value) || zero.value < least ||
        zero.value > least + 255)
        return std::nullopt;
    out.zero = static_cast<int64_t>(zero.value);
    return out;
}

/// The numbers of a table by the bits of its position, a byte; `biased`: by the byte plus 128, modulo 256.
std::optional<std::vector<uint8_t>> bytes_of(const std::vector<double>& numbers, DType result, bool biased) {
    const double least = result == DType::U8 ? 0 : -128;
    if (numbers.size() != kBytes) return std::nullopt;
    std::vector<uint8_t> out;
    for (size_t bits = 0; bits < kBytes; ++bits) {
        const double v = numbers[biased ? bits ^ 128 : bits];
        if (v != std::floor(v) || v < least || v > least + 255) return std::nullopt;
        out.push_back(static_cast<uint8_t>(static_cast<int64_t>(v)));
    }
    return out;
}

/// Whether the node is a position of a table: a byte of the type, or a signed one plus 128. Returns the byte.
std::optional<std::pair<ScalarId, bool>> byte_of_position(const ScalarBody& body, ScalarId position) {
    bool biased = false;
    if (body[position].op == ScalarOp::Add && body[body[position].b].op == ScalarOp::Const) {
        if (body[body[position].b].int_value != 128) return std::nullopt;
        biased = true;
        position = body[position].a;
    }
    const ScalarNode& cast = body[position];
    if (cast.op != ScalarOp::Cast || cast.dtype != DType::I64) return std::nullopt;
    if (body[cast.a].dtype != (biased ? DType::I8 : DType::U8)) return std::nullopt;
    return std::pair(cast.a, biased);
}

llvm::Value* to_integers(llvm::IRBuilder<>& b, llvm::Value* real, const ByteResult& result, int vector_bits) {
    // A conversion gives the least integer for what no integer holds. 2^30 is beyond what any zero point brings back.
    llvm::Constant* most = llvm::ConstantFP::get(real->getType(), 0x1p30);
    llvm::Value* bounded = b.CreateSelect(b.CreateFCmpOLT(most, real), most, real);
    llvm::Type* type = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(vector_bits / 32));
    constexpr int kCurrentRounding = 4;
    llvm::Value* integers = vector_bits == 512
                                ? b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512, {},
                                                    {bounded, llvm::Constant::getNullValue(type), b.getInt16(0xffff),
                                                     b.getInt32(kCurrentRounding)})
                                : b.CreateIntrinsic(llvm::Intrinsic::x86_avx_cvt_ps2dq_256, {}, {bounded});
    if (result.type == DType::U8) return integers;
    llvm::Constant* zero = llvm::ConstantInt::get(type, static_cast<uint64_t>(-result.zero), true);
    return b.CreateSelect(b.CreateFCmpUNO(real, real), zero, integers);
}

/// Packs four registers of integers, saturating after the zero point is added: those of register k are dword k of every
/// 128 bits.
llvm::Value* pack(llvm::IRBuilder<>& b, const std::vector<llvm::Value*>& integers, const ByteResult& result,
                  int vector_bits) {
    using namespace llvm::Intrinsic;
    const bool wide = vector_bits == 512, is_unsigned = result.type == DType::U8;
    const auto words = [&](size_t first) {
        llvm::Value* both = b.CreateIntrinsic(wide ? x86_avx512_packssdw_512 : x86_avx2_packssdw, {},
                                              {integers[first], integers[first + 1]});
        if (result.zero == 0) return both;
        llvm::Constant* zero = llvm::ConstantInt::get(both->getType(), static_cast<uint64_t>(result.zero), true);
        return b.CreateBinaryIntrinsic(sadd_sat, both, zero);
    };
    llvm::Value *low = words(0), *high = words(2);
    const ID to_bytes = wide ? (is_unsigned ? x86_avx512_packuswb_512 : x86_avx512_packsswb_512)
                             : (is_unsigned ? x86_avx2_packuswb : x86_avx2_packsswb);
    return b.CreateIntrinsic(to_bytes, {}, {low, high});
}

/// Entries of a table of 256 bytes at 64 positions.
llvm::Value* look_up(llvm::IRBuilder<>& b, const std::vector<uint8_t>& table, llvm::Value* positions) {
    std::array<llvm::Constant*, kTableRegisters> part{};
    for (size_t k = 0; k < kTableRegisters; ++k)
        part[k] = llvm::ConstantDataVector::get(
            b.getContext(), llvm::ArrayRef<uint8_t>(table.data() + k * kTableRegisterBytes, kTableRegisterBytes));
    llvm::Function* f = b.GetInsertBlock()->getParent();
    const std::string features = f->getFnAttribute("target-features").getValueAsString().str();
    if (features.find("+avx512vbmi") == std::string::npos)
        f->addFnAttr("target-features", features + (features.empty() ? "" : ",") + "+avx512vbmi");
    const auto half = [&](size_t first) {
        return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {},
                                 {part[first], positions, part[first + 1]});
    };
    llvm::Value* upper = b.CreateICmpSLT(positions, llvm::Constant::getNullValue(positions->getType()));
    return b.CreateSelect(upper, half(2), half(0));
}

}  // namespace

std::optional<ByteResult> byte_result(const ScalarBody& body) {
    if (body.empty()) return std::nullopt;
    if (auto plain = quantised(body, body.root())) return plain;
    const ScalarNode& root = body[body.root()];
    if (root.op != ScalarOp::Cast || !is_byte(root.dtype) || body[root.a].op != ScalarOp::Table) return std::nullopt;
    const ScalarNode& table = body[root.a];
    const auto position = byte_of_position(body, table.a);
    if (!position) return std::nullopt;
    auto out = quantised(body, position->first);
    auto bytes = bytes_of(*table.table, root.dtype, position->second);
    if (!out || !bytes) return std::nullopt;
    out->table = std::move(*bytes);
    return out;
}

std::vector<llvm::Value*> emit_byte_results(llvm::IRBuilder<>& b, const ByteResult& result,
                                            const std::vector<llvm::Value*>& reals, int vector_bits) {
    TW_CHECK(!reals.empty() && reals.size() <= kPackedVectors && (vector_bits == 256 || vector_bits == 512),
             "{} vectors of {} bits are packed", reals.size(), vector_bits);
    TW_CHECK(result.table.empty() || vector_bits == 512, "a table without registers of 64 bytes");
    std::vector<llvm::Value*> integers;
    for (llvm::Value* real : reals) integers.push_back(to_integers(b, real, result, vector_bits));
    while (integers.size() < kPackedVectors) integers.push_back(llvm::PoisonValue::get(integers[0]->getType()));
    llvm::Value* bytes = pack(b, integers, result, vector_bits);
    if (!result.table.empty()) bytes = look_up(b, result.table, bytes);
    const int groups = vector_bits / 128, lanes = vector_bits / 32;
    std::vector<int> order;
    for (int k = 0; k < static_cast<int>(kPackedVectors); ++k)
        for (int group = 0; group < groups; ++group) order.push_back(static_cast<int>(kPackedVectors) * group + k);
    llvm::Type* dwords = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(lanes));
    llvm::Value* sorted =
        b.CreateBitCast(b.CreateShuffleVector(b.CreateBitCast(bytes, dwords), order), bytes->getType());
    std::vector<llvm::Value*> out;
    for (size_t k = 0; k < reals.size(); ++k) {
        std::vector<int> own(static_cast<size_t>(lanes));
        std::iota(own.begin(), own.end(), static_cast<int>(k) * lanes);
        out.push_back(b.CreateShuffleVector(sorted, own));
    }
    return out;
}

}  // namespace tilewright::cpu
