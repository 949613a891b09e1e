#pragma once
// Random programs that contain the pattern of a rule: several shapes, batch dimensions (also symbolic) and
// broadcasting. The tests of all rules use them.

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "program/builder.h"
#include "program/random_program.h"

namespace tilewright {

/// Parses the text; the program must verify.
inline Program parse_sound(std::string_view text) {
    const Program p = parse_program(text);
    EXPECT_EQ(verify(p), std::vector<std::string>()) << text;
    return p;
}

/// Padding, stride and dilation of a window along a dimension.
struct WindowSteps {
    int64_t pad = 0, stride = 1, dilation = 1;
};

/// Writes a random program.
class PatternWriter {
  public:
    explicit PatternWriter(uint64_t seed) : rng_(seed * 0x9E3779B97F4A7C15ull + 11), b(program_) {
        program_.name = "pattern";
        b.set_source("p", "");
    }

  private:
    std::mt19937_64 rng_;
    Program program_;

  public:
    Builder b;
    std::vector<ValueId> outputs;

    Program take() {
        b.set_outputs(outputs);
        return std::move(program_);
    }

    int64_t upto(int64_t lo, int64_t hi) {
        return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
    }
    bool one_in(int64_t n) { return upto(1, n) == 1; }
    Expr dim(int64_t most = 5) { return upto(1, most); }
    Expr longer(int64_t most = 5) { return upto(2, most); }  ///< more than 1
    /// None, one or two leading dimensions, one of them possibly symbolic.
    Dims batch() {
        Dims d;
        if (one_in(2)) d.emplace_back(one_in(2) ? symbol("n") : dim(3));
        if (one_in(3)) d.push_back(dim(3));
        return d;
    }
    static Dims with(Dims d, std::initializer_list<Expr> more) {
        d.insert(d.end(), more);
        return d;
    }
    ValueId input(Dims d) { return b.input("x", DType::F32, std::move(d)); }
    ValueId weights(const Dims& d) {
        Shape s;
        for (const Expr e : d) s.push_back(e.constant());
        Tensor t(DType::F32, s);
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(upto(1, 1000)) / 512 + 0.25);
        return b.constant(std::move(t), "weights");
    }
    /// A constant that broadcasts to the last `rank` of these dimensions, some of them 1.
    ValueId broadcast_weights(Dims d, size_t rank) {
        d.erase(d.begin(), d.end() - static_cast<std::ptrdiff_t>(std::min(rank, d.size())));
        for (Expr& e : d)
            if (!e.is_constant() || one_in(3)) e = 1;
        return weights(d);
    }
    ValueId mul(ValueId x, ValueId y) { return b.binary(ScalarOp::Mul, x, y); }
    ValueId add(ValueId x, ValueId y) { return b.binary(ScalarOp::Add, x, y); }
    ValueId div(ValueId x, ValueId y) { return b.binary(ScalarOp::Div, x, y); }
    ValueId tanh(ValueId x) { return b.unary(ScalarOp::Tanh, x); }
    /// Positive and bounded away from 0.
    ValueId positive(ValueId x) { return b.unary(ScalarOp::Exp, tanh(x)); }
    /// x[n, c, ...] with w[o, c, ...] over one or more dimensions, with common steps or steps per dimension.
    ValueId convolution(ValueId x, ValueId w, const std::vector<WindowSteps>& steps);
    ValueId convolution(ValueId x, ValueId w, int64_t pad, int64_t stride, int64_t dilation = 1);
};

/// A rule's name and a program that it matches.
struct RulePattern {
    std::string_view rule;
    void (*write)(PatternWriter& w);
    double rounding = 1e-11;  ///< tolerance in double, the interpreter's precision between primitives
};
const std::vector<RulePattern>& rule_patterns();

}  // namespace tilewright
