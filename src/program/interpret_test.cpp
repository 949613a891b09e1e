// Whole programs: symbols, scalars, opaque operators, control flow.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "program/program.h"
#include "program/watch.h"

namespace tilewright {
namespace {

Tensor floats(Shape shape, const std::vector<double>& values) {
    return Tensor::of(DType::F32, std::move(shape), values);
}
Tensor ints(const std::vector<int64_t>& values) { return Tensor::of_i64(values); }
Tensor truth(bool v) { return Tensor::of<int64_t>(DType::Bool, {}, {v ? 1 : 0}); }

/// Positions of the elements above zero; an optional second input is added to them.
class Positive final : public OpaqueOp {
  public:
    std::string print() const override { return "Positive"; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        EXPECT_EQ(inputs[0].dtype, DType::F32);
        std::vector<int64_t> found;
        const int64_t added = inputs.size() > 1 && inputs[1].data != nullptr ? inputs[1].as<int64_t>()[0] : 0;
        for (int64_t i = 0; i < inputs[0].count(); ++i)
            if (inputs[0].as<float>()[i] > 0) found.push_back(i + added);
        const int64_t shape[] = {static_cast<int64_t>(found.size())};
        const TensorView out = outputs.allocate(0, shape);
        std::copy(found.begin(), found.end(), out.as<int64_t>());
    }
};

Program parse_positive(std::string_view text) {
    const Program p = parse_program(text, [](std::string_view name) -> std::shared_ptr<const OpaqueOp> {
        return name == "Positive" ? std::make_shared<Positive>() : nullptr;
    });
    EXPECT_EQ(verify(p), std::vector<std::string>()) << text;
    return p;
}

std::string message_of(const Program& p, const std::vector<Tensor>& inputs) {
    try {
        interpret(p, inputs);
    } catch (const std::exception& e) {
        return e.what();
    }
    return "no error";
}

TEST(Interpret, symbolic_dimensions_come_from_the_inputs) {
    const Program p = parse_positive(R"(program t {
  input a: f32[$b, 2]
  x: f32[$b*2] = [$b*2] neg(@0) where @0 = a[i0 // 2, i0 % 2]
  output x
})");
    EXPECT_EQ(interpret(p, {floats({1, 2}, {1, 2})})[0], floats({2}, {-1, -2}));
    EXPECT_EQ(interpret(p, {floats({2, 2}, {1, 2, 3, 4})})[0], floats({4}, {-1, -2, -3, -4}));
    EXPECT_EQ(interpret(p, {floats({0, 2}, {})})[0], floats({0}, {}));
}

TEST(Interpret, mismatched_inputs_are_model_errors) {
    const Program p = parse_positive(R"(program t {
  input a: f32[$b, 2]
  input c: f32[$b]
  x: f32[$b, 2] = [$b, 2] add(@0, @1) where @0 = a[i0, i1], @1 = c[i0]
  output x
})");
    EXPECT_EQ(message_of(p, {floats({1, 2}, {1, 2}), floats({2}, {1, 2})}),
              "c has shape [2]: dimension 0 is 2 where $b = 1 is expected");
    EXPECT_EQ(message_of(p, {ints({1, 2}), floats({2}, {1, 2})}), "'a' is expected to be f32, but is i64");
}

TEST(Interpret, requirements_are_checked_once_their_names_are_bound) {
    const Program p = parse_positive(R"(program t {
  input a: f32[$n]
  input b: f32[$m]
  input where: i64[1]
  require spread [$m, $n]  ; dimensions add
  bad: f32[1] = [1] @1 where @0 = where[0], @1 = a[@0]
  ?k = read where[0]
  x: f32[?k] = [?k] add(@0, @1) where @0 = a[i0], @1 = b[min(i0, $m - 1)]
  output x, bad
})");
    EXPECT_EQ(interpret(p, {floats({3}, {1, 2, 3}), floats({1}, {5}), ints({2})})[0], floats({2}, {6, 7}));
    EXPECT_EQ(message_of(p, {floats({3}, {1, 2, 3}), floats({2}, {5, 6}), ints({9})}),
              "add: dimensions m = 2 and n = 3 do not broadcast: the first should be 1 or the second")
        << "before anything runs";
    const Program late = parse_positive(R"(program t {
  input a: f32[$n]
  input where: i64[1]
  require at_least [$n, ?k]  ; dimensions cut
  ?k = read where[0]
  x: f32[?k] = [?k] @0 where @0 = a[i0]
  output x
})");
    EXPECT_EQ(message_of(late, {floats({3}, {1, 2, 3}), ints({3})}), "no error");
    EXPECT_EQ(message_of(late, {floats({3}, {1, 2, 3}), ints({4})}),
              "cut: dimensions n = 3 and k = 4 do not fit: the first should not be smaller");
}

TEST(Interpret, violated_requirements_report_values_and_inputs) {
    std::string wide = "$n % 3";
    for (int k = 4; k < 43; ++k) wide += " + $n % " + std::to_string(k);
    const auto refused = [&](const std::string& requirement, const Shape& a) {
        const Program p =
            parse_positive("program t {\n  input a: f32[$n, $m]\n  require " + requirement + "\n  output a\n}");
        try {
            interpret(p, {Tensor(DType::F32, a)});
        } catch (const ModelError& e) {
            return std::string(e.what()) + " -> " + e.hint();
        }
        return std::string("no error");
    };
    const std::string both = " -> give inputs whose sizes fit: n is dimension 0 of 'a', m is dimension 1 of 'a'";
    EXPECT_EQ(refused("equal [$n, $m]  ; dimensions x", {2, 3}), "x: dimensions n = 2 and m = 3 differ" + both);
    EXPECT_EQ(refused("broadcast [$n, $m]  ; dimensions x", {2, 3}),
              "x: dimensions n = 2 and m = 3 do not broadcast" + both);
    EXPECT_EQ(refused("spread [$n, $m]  ; dimensions x", {2, 1}),
              "x: dimensions n = 2 and m = 1 do not broadcast: the first should be 1 or the second" + both);
    EXPECT_EQ(refused("at_least [$n, 2*$n]  ; features \"\"", {2, 1}),
              "features n = 2 and 2*n = 4 do not fit: the first should not be smaller -> "
              "give inputs whose sizes fit: n is dimension 0 of 'a'");
    EXPECT_EQ(refused("equal [$n*$n*$n, $m]  ; \"element counts\" x", {int64_t{1} << 22, 0}),
              "x: element counts: shape arithmetic overflows 64 bits: 17592186044416 * 4194304" + both);
    EXPECT_EQ(refused("equal [$n, " + wide + "]  ; dimensions x", {2, 3}),
              "x: dimensions n = 2 and 80 differ -> give inputs whose sizes fit: n is dimension 0 of 'a'")
        << "an expression that fills lines";
    EXPECT_EQ(refused("equal [3, 4]  ; dimensions x", {1, 1}), "x: dimensions 3 and 4 differ -> ");
}

TEST(Interpret, errors_name_the_primitive) {
    Program p = parse_positive(R"(program t {
  input ids: i64[2]
  input table: f32[3]
  x: f32[2] = [2] @1 where @0 = ids[i0], @1 = table[@0]  ; lookup Gather
  output x
})");
    EXPECT_NE(message_of(p, {ints({0, 3}), floats({3}, {1, 2, 3})}).find("interpreting 'lookup': "), std::string::npos);
}

TEST(Interpret, scalars_read_from_tensors_determine_later_shapes) {
    const Program p = parse_positive(R"(program t {
  input a: f32[9]
  input range: i64[2]
  ?start = read range[0]
  ?count = read range[1]
  x: f32[?count] = [?count] @0 where @0 = a[i0 + ?start]
  output x
})");
    const Tensor a = floats({9}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
    EXPECT_EQ(interpret(p, {a, ints({2, 3})})[0], floats({3}, {2, 3, 4}));
    EXPECT_EQ(interpret(p, {a, ints({7, 1})})[0], floats({1}, {7}));
}

TEST(Interpret, opaque_operators_bind_the_symbols_of_their_outputs) {
    const Program p = parse_positive(R"(program t {
  input a: f32[5]
  at: i64[$n] = opaque Positive(a, -)
  x: f32[$n] = [$n] @1 where @0 = at[i0], @1 = a[@0 % 5]
  output at, x
})");
    for (const bool exact : {false, true}) {
        const auto r = interpret(p, {floats({5}, {1, -1, 0, 3, 5})}, {.exact = exact});
        EXPECT_EQ(r[0], ints({0, 3, 4}));
        EXPECT_EQ(r[1].shape(), Shape{3});
        EXPECT_EQ(r[1].get(1), 3);
    }
}

TEST(Interpret, exact_keeps_f32_in_double_and_rounds_the_rest) {
    const Program p = parse_positive(R"(program t {
  input a: f32[1]
  x: f32[1] = [1] div(@0, 3.0) where @0 = a[i0]
  y: f32[1] = [1] mul(@0, 3.0) where @0 = x[i0]
  h: f16[1] = [1] div(@0, 3.0) where @0 = a[i0]
  output x, y, h
})");
    const auto r = interpret(p, {floats({1}, {1})}, {.exact = true});
    EXPECT_EQ(r[0].dtype(), DType::F64);
    EXPECT_EQ(r[0].get(0), 1.0 / 3.0);
    EXPECT_EQ(r[1].get(0), 1.0);
    EXPECT_EQ(r[2].dtype(), DType::F16);
    EXPECT_EQ(interpret(p, {floats({1}, {1})})[0].get(0), static_cast<double>(1.0f / 3.0f));
}

TEST(Interpret, if_runs_one_branch_whose_shape_may_differ) {
    const Program p = parse_positive(R"(program t {
  input c: bool[]
  input a: f32[4]
  x: f32[$n] = if c(a)
    then yes {
      input b: f32[4]
      y: f32[2] = [2] @0 where @0 = b[i0]
      output y
    }
    else no {
      input b: f32[4]
      y: f32[4] = [4] neg(@0) where @0 = b[i0]
      output y
    }
  z: f32[$n] = [$n] mul(@0, 2.0) where @0 = x[i0]
  output z
})");
    const Tensor a = floats({4}, {1, 2, 3, 4});
    EXPECT_EQ(interpret(p, {truth(true), a})[0], floats({2}, {2, 4}));
    EXPECT_EQ(interpret(p, {truth(false), a})[0], floats({4}, {-2, -4, -6, -8}));
}

/// Doubles a carried value each iteration, stacks it, and continues while it is below 20.
constexpr std::string_view kDoubling = R"(program t {
  input trips: i64[]
  input go: bool[]
  input a: f32[1]
  input factor: f32[]
  ?trips = read trips[0]
  last: f32[1], all: f32[$steps, 1] = loop trip(?trips) while(go) conditional carried(a) stack(axis 0) captures(factor)
    body step {
      input i: i64[]
      input on: bool[]
      input v: f32[1]
      input by: f32[]
      next: f32[1] = [1] mul(@0, @1) where @0 = v[i0], @1 = by[]
      more: bool[] = [] lt(@0, 20.0) where @0 = next[0]
      output more, next, next
    }
  output last, all
})";

TEST(Interpret, loops_end_by_trip_count_or_condition) {
    const Program p = parse_positive(kDoubling);
    const auto run = [&](int64_t trips, bool go) {
        return interpret(p,
                         {Tensor::of<int64_t>(DType::I64, {}, {trips}), truth(go), floats({1}, {1}), floats({}, {2})});
    };
    EXPECT_EQ(run(3, true)[0], floats({1}, {8}));
    EXPECT_EQ(run(3, true)[1], floats({3, 1}, {2, 4, 8}));
    EXPECT_EQ(run(100, true)[1], floats({5, 1}, {2, 4, 8, 16, 32}));
}

TEST(Interpret, a_loop_without_iterations_returns_its_inputs_and_empty_stacks) {
    const Program p = parse_positive(kDoubling);
    for (const auto& [trips, go] : {std::pair<int64_t, bool>(0, true), {7, false}, {-1, true}}) {
        const auto r =
            interpret(p, {Tensor::of<int64_t>(DType::I64, {}, {trips}), truth(go), floats({1}, {5}), floats({}, {2})});
        EXPECT_EQ(r[0], floats({1}, {5}));
        EXPECT_EQ(r[1], floats({0, 1}, {}));
    }
}

TEST(Interpret, exact_loops_stack_slices_of_one_type) {
    const Program p = parse_positive(kDoubling);
    const auto r = interpret(
        p, {Tensor::of<int64_t>(DType::I64, {}, {2}), truth(true), floats({1}, {1}), floats({}, {2})}, {.exact = true});
    EXPECT_EQ(r[1], Tensor::of<double>(DType::F64, {2, 1}, {2, 4}));
}

TEST(Interpret, scans_run_along_any_axis_in_both_directions) {
    const Program p = parse_positive(R"(program t {
  input s: f32[2]
  input x: f32[2, 3]
  last: f32[2], sums: f32[2, 3] = loop trip(3) carried(s) scan(x axis 1 reverse) stack(axis 1 reverse)
    body step {
      input i: i64[]
      input sum: f32[2]
      input part: f32[2]
      next: f32[2] = [2] add(@0, @1) where @0 = sum[i0], @1 = part[i0]
      output next, next
    }
  output last, sums
})");
    const auto r = interpret(p, {floats({2}, {0, 0}), floats({2, 3}, {1, 2, 3, 10, 20, 30})});
    EXPECT_EQ(r[0], floats({2}, {6, 60}));
    EXPECT_EQ(r[1], floats({2, 3}, {6, 5, 3, 60, 50, 30}));  // sums from the end, each at its slice's place
}

TEST(Interpret, a_carried_value_may_grow) {
    const Program p = parse_positive(R"(program t {
  input a: f32[$n]
  last: f32[$m] = loop trip(3) carried(a)
    body step {
      input i: i64[]
      input v: f32[$k]
      next: f32[$k + 1] = [$k + 1] add(@0, 1.0) where @0 = v[i0] when $k - 1 - i0 >= 0 else 0
      output next
    }
  output last
})");
    EXPECT_EQ(interpret(p, {floats({1}, {7})})[0], floats({4}, {10, 3, 2, 1}));
}

TEST(Interpret, a_scan_that_runs_past_its_input_is_an_error) {
    const Program p = parse_positive(R"(program t {
  input n: i64[1]
  input x: f32[2]
  ?n = read n[0]
  all: f32[?n] = loop trip(?n) scan(x axis 0) stack(axis 0)  ; scanning Scan
    body step {
      input i: i64[]
      input part: f32[]
      output part
    }
  output all
})");
    EXPECT_EQ(interpret(p, {ints({2}), floats({2}, {4, 5})})[0], floats({2}, {4, 5}));
    EXPECT_NE(message_of(p, {ints({3}), floats({2}, {4, 5})}).find("runs past the 2 slices of its scan input 'x'"),
              std::string::npos);
}

TEST(Interpret, shows_each_value_of_the_program_but_not_of_bodies) {
    const Program p = parse_positive(R"(program t {
  input n: i64[1]
  input x: f32[2]
  const one: f32[] = {1}
  ?n = read n[0]
  all: f32[?n] = loop trip(?n) scan(x axis 0) stack(axis 0)  ; scanning Scan
    body step {
      input i: i64[]
      input part: f32[]
      inner: f32[] = [] neg(@0) where @0 = part[]
      output inner
    }
  y: f32[?n] = [?n] add(@0, @1) where @0 = all[i0], @1 = one[]
  output y
})");
    std::string names;
    const auto outputs = interpret(p, {ints({2}), floats({2}, {4, 5})}, {}, [&](ValueId v, const Tensor& contents) {
        names += p.values[v].name + to_string(contents.shape()) + " ";
    });
    EXPECT_EQ(names, "one[] n[1] x[2] all[2] y[2] ");
    EXPECT_EQ(outputs[0], floats({2}, {-3, -4}));
}

}  // namespace
}  // namespace tilewright
