#include "program/analysis/rounded.h"

namespace tilewright {

std::optional<RoundedByte> rounded_byte(const ScalarBody& body, ScalarId node) {
    const ScalarNode& cast = body[node];
    if (cast.op != ScalarOp::Cast || !is_byte(cast.dtype)) return std::nullopt;
    RoundedByte out;
    ScalarId rounded = cast.a;
    if (body[rounded].op == ScalarOp::Add) {
        out.zero = body[rounded].b;
        rounded = body[rounded].a;
    }
    if (body[rounded].op != ScalarOp::RoundEven) return std::nullopt;
    out.real = body[rounded].a;
    return out;
}

}  // namespace tilewright
