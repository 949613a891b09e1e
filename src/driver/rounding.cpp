#include "driver/rounding.h"

#include <fmt/format.h>

#include <algorithm>

namespace tilewright {

namespace {

ScalarBody shifted(const ScalarBody& body, double by) {
    ScalarBody out;
    IndexVector<ScalarId, ScalarId> copies;
    for (ScalarNode n : body.nodes()) {
        for (ScalarId* operand : {&n.a, &n.b, &n.c})
            if (*operand) *operand = copies[*operand];
        if (n.op == ScalarOp::RoundEven) n.a = out.binary(ScalarOp::Add, n.a, out.constant(n.dtype, by));
        copies.push_back(out.add(std::move(n)));
    }
    out.set_root(copies[body.root()]);
    return out;
}

bool rounds(const ScalarBody& body) {
    return std::ranges::any_of(body.nodes(), [](const ScalarNode& n) { return n.op == ScalarOp::RoundEven; });
}

}  // namespace

Program shift_roundings(Program program, double by) {
    for (Primitive& p : program.primitives)
        if (TensorExpr* e = p.expr())
            for (ScalarBody* body : {&e->body, &e->epilogue})
                if (rounds(*body)) *body = shifted(*body, by);
    return program;
}

std::vector<Sensitivity> rounding_sensitivity(const Program& program, const std::vector<Tensor>& inputs,
                                              const std::vector<Tensor>& expected) {
    std::vector<Sensitivity> out(expected.size());
    const bool any = std::ranges::any_of(program.primitives, [](const Primitive& p) {
        return p.expr() != nullptr && (rounds(p.expr()->body) || rounds(p.expr()->epilogue));
    });
    if (!any) return out;
    for (const double by : {-0x1p-12, 0x1p-12}) {
        const std::vector<Tensor> moved = interpret(shift_roundings(program, by), inputs);
        for (size_t i = 0; i < out.size(); ++i) {
            const Comparison c = compare(moved[i], expected[i], {}, "output");
            out[i] = {std::max(out[i].largest, c.max_difference), std::max(out[i].rms, c.rms_difference)};
        }
    }
    return out;
}

Comparison compare_rounded(const Tensor& actual, const Tensor& expected, const Sensitivity& sensitivity,
                           const std::string& what) {
    Comparison r = compare(actual, expected, {.relative = 0, .absolute = kSensitivities * sensitivity.largest}, what);
    if (r.ok && r.rms_difference > kSensitivities * sensitivity.rms) {
        r.ok = false;
        r.reason = fmt::format("{}: the root mean square difference is {:.2g}", what, r.rms_difference);
    }
    return r;
}

}  // namespace tilewright
