// Conversions that no scalar operator describes.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"

namespace tilewright {

namespace {

using opaque::PowerRounding;
constexpr std::string_view kPowerRoundings[] = {"up", "down", "nearest"};

/// Conversion to 8-bit and 4-bit floats, with overflow and rounding according to the operator's attributes.
class SmallFloatCast final : public OpaqueOp {
  public:
    SmallFloatCast(DType to, bool saturate, PowerRounding rounding)
        : to_(to), saturate_(saturate), rounding_(rounding) {}

    std::string print() const override {
        std::string s = fmt::format("Cast(to={}, saturate={}", to_string(to_), saturate_ ? 1 : 0);
        if (to_ == DType::F8E8M0) {
            s += fmt::format(", round_mode={}", kPowerRoundings[static_cast<size_t>(rounding_)]);
        }
        return s + ")";
    }

    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const TensorView y = outputs.allocate(0, x.shape);
        // A Tensor that views the operand reads its elements as numbers of any type.
        const Tensor in(x.dtype, Shape(x.shape.begin(), x.shape.end()), x.data, nullptr);
        for (int64_t i = 0; i < in.count(); ++i) y.as<uint8_t>()[i] = code(static_cast<float>(in.get(i)));
    }

  private:
    uint8_t code(float f) const {
        if (to_ == DType::F4E2M1 && std::isnan(f)) return 8;  // the type has no NaN; the specification's cases give -0
        if (to_ != DType::F8E8M0) return float_to_small_float(to_, f, saturate_);
        if (std::isnan(f)) return 255;
        if (!(f > 0)) return 0;
        if (std::isinf(f)) return saturate_ ? 254 : 255;
        int e = 0;
        const float m = std::frexp(f, &e);  // f = m * 2^e, m in [0.5, 1)
        const bool next = rounding_ == PowerRounding::Up ? m > 0.5f : rounding_ == PowerRounding::Nearest && m >= 0.75f;
        const int exponent = e - 1 + (next ? 1 : 0) + 127;
        if (exponent > 254) return saturate_ ? 254 : 255;
        return static_cast<uint8_t>(std::max(exponent, 0));
    }

    DType to_;
    bool saturate_;
    PowerRounding rounding_;
};

/// The same bytes under another type.
class BitCast final : public OpaqueOp {
  public:
    explicit BitCast(DType to) : to_(to) {}
    std::string print() const override { return fmt::format("BitCast(to={})", to_string(to_)); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView y = outputs.allocate(0, inputs[0].shape);
        if (y.count() > 0) std::memcpy(y.data, inputs[0].data, static_cast<size_t>(y.count()) * byte_size(to_));
    }

  private:
    DType to_;
};

}  // namespace

namespace opaque {

Operator small_float_cast(DType to, bool saturate, PowerRounding rounding) {
    return std::make_shared<SmallFloatCast>(to, saturate, rounding);
}
Operator bit_cast(DType to) { return std::make_shared<BitCast>(to); }

}  // namespace opaque

std::vector<OpaqueReader> cast_readers() {
    return {
        {"Cast",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<SmallFloatCast>(
                 t.dtype("to"), t.flag("saturate"),
                 t.has("round_mode") ? t.choice<PowerRounding>("round_mode", kPowerRoundings) : PowerRounding::Up);
         }},
        {"BitCast", [](const OpaqueText& t) -> OpaquePointer { return std::make_shared<BitCast>(t.dtype("to")); }},
    };
}

}  // namespace tilewright
