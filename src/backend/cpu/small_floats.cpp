#include "backend/cpu/small_floats.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/scalar_emitter.h"

namespace tilewright::cpu {

namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

llvm::GlobalVariable* table(llvm::IRBuilder<>& b, const std::string& name, llvm::Constant* contents) {
    llvm::Module& m = *b.GetInsertBlock()->getModule();
    if (llvm::GlobalVariable* there = m.getNamedGlobal(name)) return there;
    return new llvm::GlobalVariable(m, contents->getType(), true, llvm::GlobalValue::PrivateLinkage, contents, name);
}

/// Returns table[index] per lane. index: i64.
llvm::Value* look_up(llvm::IRBuilder<>& b, llvm::GlobalVariable* t, llvm::Value* index) {
    llvm::Type* element = llvm::cast<llvm::ArrayType>(t->getValueType())->getElementType();
    const int lanes = lanes_of(index);
    llvm::Value* at = b.CreateGEP(element, t, index);
    if (lanes == 0) return b.CreateLoad(element, at);
    llvm::Value* out = llvm::PoisonValue::get(with_lanes(element, lanes));
    for (int i = 0; i < lanes; ++i) {
        const auto lane = static_cast<uint64_t>(i);
        out = b.CreateInsertElement(out, b.CreateLoad(element, b.CreateExtractElement(at, lane)), lane);
    }
    return out;
}

/// Tables that encode |x|: thresholds[i] is the smallest float that rounds to value i + 1 or more; positive and
/// negative codes per value.
struct Encoding {
    std::vector<float> thresholds;
    std::vector<uint8_t> positive, negative;
};

Encoding encoding_of(DType t) {
    std::vector<float> values;
    for (int code = 0; code < 256; ++code) {
        const float v = small_float_to_float(t, static_cast<uint8_t>(code));
        if (std::isfinite(v) && !std::signbit(v)) values.push_back(v);
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    Encoding e;
    const auto decoded = [&](float x) { return small_float_to_float(t, float_to_small_float(t, x, true)); };
    for (size_t i = 0; i < values.size(); ++i) {
        e.positive.push_back(float_to_small_float(t, values[i], true));
        e.negative.push_back(float_to_small_float(t, -values[i], true));
        if (i + 1 == values.size()) break;
        const auto middle = static_cast<float>((static_cast<double>(values[i]) + values[i + 1]) / 2);
        e.thresholds.push_back(decoded(middle) >= values[i + 1] ? middle : std::nextafter(middle, kFloatInfinity));
    }
    return e;
}

}  // namespace

llvm::Value* emit_small_float_to_float(llvm::IRBuilder<>& b, DType t, llvm::Value* codes) {
    std::vector<float> values(256);
    for (size_t code = 0; code < values.size(); ++code)
        values[code] = small_float_to_float(t, static_cast<uint8_t>(code));
    llvm::Constant* contents = llvm::ConstantDataArray::get(b.getContext(), values);
    llvm::Value* index = b.CreateZExt(codes, with_lanes(b.getInt64Ty(), lanes_of(codes)));
    return look_up(b, table(b, "values." + std::string(to_string(t)), contents), index);
}

llvm::Value* emit_float_to_small_float(llvm::IRBuilder<>& b, DType t, llvm::Value* v) {
    const std::string name(to_string(t));
    const int lanes = lanes_of(v);
    Encoding e = encoding_of(t);
    size_t steps = 1;
    while (steps < e.positive.size()) steps *= 2;
    e.thresholds.resize(steps, kFloatInfinity);
    // Compared as integers: their order is that of the magnitudes, also where subnormals are flushed to zero.
    std::vector<uint32_t> limits;
    for (const float x : e.thresholds) limits.push_back(std::bit_cast<uint32_t>(x));
    llvm::GlobalVariable* thresholds =
        table(b, "thresholds." + name, llvm::ConstantDataArray::get(b.getContext(), limits));
    llvm::Type* i64 = with_lanes(b.getInt64Ty(), lanes);
    const auto number = [&](uint64_t n) { return llvm::ConstantInt::get(i64, n); };
    const auto code = [&](float x) {
        return llvm::ConstantInt::get(with_lanes(b.getInt8Ty(), lanes), float_to_small_float(t, x, true));
    };
    llvm::Type* i32 = with_lanes(b.getInt32Ty(), lanes);
    llvm::Value* bits = b.CreateBitCast(v, i32);
    llvm::Value* magnitude = b.CreateAnd(bits, llvm::ConstantInt::get(i32, 0x7fffffff));
    // Binary search: the number of thresholds that are not greater.
    llvm::Value* index = number(0);
    for (size_t half = steps / 2; half >= 1; half /= 2) {
        llvm::Value* limit = look_up(b, thresholds, b.CreateAdd(index, number(half - 1)));
        index = b.CreateSelect(b.CreateICmpUGE(magnitude, limit), b.CreateAdd(index, number(half)), index);
    }
    const auto codes = [&](const char* what, const std::vector<uint8_t>& c) {
        return look_up(b, table(b, what + name, llvm::ConstantDataArray::get(b.getContext(), c)), index);
    };
    // Infinity is not below any threshold and has its own code.
    std::vector<uint8_t> positive = e.positive, negative = e.negative;
    positive.resize(steps, positive.back());
    negative.resize(steps, negative.back());
    llvm::Value* below = b.CreateICmpSLT(bits, llvm::ConstantInt::get(i32, 0));
    llvm::Value* out = b.CreateSelect(below, codes("negative.", negative), codes("positive.", positive));
    llvm::Type* type = v->getType();
    out = b.CreateSelect(b.CreateFCmpOEQ(v, llvm::ConstantFP::get(type, kFloatInfinity)), code(kFloatInfinity), out);
    out = b.CreateSelect(b.CreateFCmpOEQ(v, llvm::ConstantFP::get(type, -kFloatInfinity)), code(-kFloatInfinity), out);
    return b.CreateSelect(b.CreateFCmpUNO(v, v), code(std::numeric_limits<float>::quiet_NaN()), out);
}

}  // namespace tilewright::cpu
