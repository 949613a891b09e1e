// The functions that kernels call, against the meaning of scalar operators (program/scalar_eval.h) and the conversions
// of base/dtype.h.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/scalar_text.h"
#include "program/scalar_eval.h"

namespace tilewright::cuda {
namespace {

using namespace test;

/// A kernel that runs through elements: y[i] = value(x[i], ...).
KernelText each(const std::string& name, const std::vector<DType>& inputs, DType out, const std::string& value) {
    KernelText k;
    k.name = name;
    std::string arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
        k.tensors.push_back({fmt::format("x{}", i), inputs[i], false});
        arguments += fmt::format("tw::In<{}> x{}, ", storage_type(inputs[i]), i);
    }
    k.tensors.push_back({"y", out, true});
    k.names = {*symbol("n").as_var()};
    k.text = fmt::format(
        "TW_KERNEL({}, 32)({}tw::Out<{}> y, i64 n) {{\n"
        "    for (i64 i = tw::thread(); i < n; i += 32) tw::put(y, i, {});\n}}\n",
        name, arguments, storage_type(out), value);
    return k;
}

std::vector<double> numbers(DType t) {
    const double inf = std::numeric_limits<double>::infinity();
    if (is_float(t))
        return {0.0, -0.0, 1,     -1,   0.5,   -0.5,         1.5,   2.5,  -2.5,
                3,   7.25, -7.25, 1e-3, 100,   1e10,         -1e10, 1e19, -1e19,
                300, -300, 65504, 0.75, 1e-30, 2147483648.0, inf,   -inf, std::nan("")};
    if (t == DType::Bool) return {0, 1};
    std::vector<double> out = {0, 1, 2, 3, 5, 7, 8, 31, 63, 64, 100, 127};
    if (is_signed(t))
        for (const double v : {-1.0, -2.0, -3.0, -7.0, -100.0, -128.0}) out.push_back(v);
    return out;
}

/// Every pair (or triple) of numbers as operands.
std::vector<Tensor> operands(const std::vector<DType>& types) {
    size_t count = 1;
    for (const DType t : types) count *= numbers(t).size();
    std::vector<Tensor> out;
    size_t step = 1;
    for (const DType t : types) {
        const std::vector<double> values = numbers(t);
        out.emplace_back(t, Shape{static_cast<int64_t>(count)});
        for (size_t i = 0; i < count; ++i) {
            const double v = values[i / step % values.size()];
            if (is_float(t))
                out.back().set(static_cast<int64_t>(i), v);
            else
                out.back().set(static_cast<int64_t>(i), static_cast<int64_t>(v));
        }
        step *= values.size();
    }
    return out;
}

struct OpCase {
    ScalarOp op;
    std::vector<DType> operands;
    DType result;
};

bool on_integers(ScalarOp op) {
    switch (op) {
        case ScalarOp::Add:
        case ScalarOp::Sub:
        case ScalarOp::Mul:
        case ScalarOp::Div:
        case ScalarOp::FloorMod:
        case ScalarOp::TruncMod:
        case ScalarOp::Pow:
        case ScalarOp::Min:
        case ScalarOp::Max:
        case ScalarOp::Neg:
        case ScalarOp::Abs:
        case ScalarOp::Sign:
        case ScalarOp::BitAnd:
        case ScalarOp::BitOr:
        case ScalarOp::BitXor:
        case ScalarOp::BitNot:
        case ScalarOp::ShiftLeft:
        case ScalarOp::ShiftRight:
            return true;
        default:
            return false;
    }
}
bool on_floats(ScalarOp op) { return op < ScalarOp::BitAnd || op > ScalarOp::ShiftRight; }
bool compares(ScalarOp op) { return op >= ScalarOp::Eq && op <= ScalarOp::Ge; }

std::vector<OpCase> all_operators() {
    const std::vector<DType> integers = {DType::I8, DType::I16, DType::I32, DType::I64,
                                         DType::U8, DType::U16, DType::U32, DType::U64};
    const std::vector<DType> floats = {DType::F32, DType::F64};
    std::vector<DType> all = integers;
    all.insert(all.end(), floats.begin(), floats.end());
    all.push_back(DType::Bool);
    std::vector<OpCase> out;
    for (int k = static_cast<int>(ScalarOp::Add); k <= static_cast<int>(ScalarOp::IsInf); ++k) {
        const auto op = static_cast<ScalarOp>(k);
        const auto n = static_cast<size_t>(arity(op));
        if (op == ScalarOp::Cast) {
            for (const DType from : all)
                for (const DType to : all) out.push_back({op, {from}, to});
            for (const DType from : floats)
                for (const DType to : {DType::F16, DType::BF16}) out.push_back({op, {from}, to});
        } else if (op == ScalarOp::Bitcast) {
            out.push_back({op, {DType::F32}, DType::I32});
            out.push_back({op, {DType::I32}, DType::F32});
            out.push_back({op, {DType::I64}, DType::F64});
            out.push_back({op, {DType::U16}, DType::I16});
        } else if (op == ScalarOp::Table) {
            continue;  // an array of the kernel's text: the schedule cases have them
        } else if (op == ScalarOp::Select) {
            for (const DType t : all) out.push_back({op, {DType::Bool, t, t}, t});
        } else if (compares(op)) {
            for (const DType t : all) out.push_back({op, {t, t}, DType::Bool});
        } else if (op == ScalarOp::IsNan || op == ScalarOp::IsInf) {
            for (const DType t : floats) out.push_back({op, {t}, DType::Bool});
        } else {
            if (on_integers(op))
                for (const DType t : integers) out.push_back({op, std::vector<DType>(n, t), t});
            if (on_floats(op))
                for (const DType t : floats) out.push_back({op, std::vector<DType>(n, t), t});
            if (op >= ScalarOp::BitAnd && op <= ScalarOp::BitNot)
                out.push_back({op, std::vector<DType>(n, DType::Bool), DType::Bool});
            if (op == ScalarOp::Min || op == ScalarOp::Max)
                out.push_back({op, {DType::Bool, DType::Bool}, DType::Bool});
        }
    }
    return out;
}

ScalarValue element(const Tensor& t, int64_t i) {
    return is_float(t.dtype()) ? ScalarValue{t.get(i), 0} : ScalarValue{0, t.get_int(i)};
}

TEST(CudaScalars, OperatorsMeanWhatTheyDoElsewhere) {
    const std::vector<OpCase> cases = all_operators();
    std::vector<KernelText> kernels;
    for (const OpCase& c : cases) {
        std::vector<std::string> x(3);
        for (size_t i = 0; i < c.operands.size(); ++i) x[i] = from_storage(c.operands[i], fmt::format("x{}[i]", i));
        const DType operand = c.operands[c.op == ScalarOp::Select ? 1 : 0];
        const DType out = compute_type(c.result);
        kernels.push_back(each(fmt::format("op_{}", kernels.size()), c.operands, out,
                               to_storage(out, scalar_op(c.op, c.result, operand, x[0], x[1], x[2]))));
    }
    const TestKernels runner(kernels, {TW_TEST_CXX, {"-O0"}});
    for (size_t k = 0; k < cases.size(); ++k) {
        const OpCase& c = cases[k];
        std::vector<Tensor> tensors = operands(c.operands);
        const int64_t n = tensors[0].count();
        const DType out = compute_type(c.result);
        tensors.emplace_back(out, Shape{n});
        runner.run(k, tensors, {n}, 1);
        const std::string what =
            fmt::format("{}({}) -> {}", to_string(c.op), to_string(c.operands[0]), to_string(c.result));
        int wrong = 0;
        for (int64_t i = 0; i < n && wrong < 3; ++i) {
            std::vector<ScalarValue> x(3);
            for (size_t j = 0; j < c.operands.size(); ++j) x[j] = element(tensors[j], i);
            const DType operand = c.operands[c.op == ScalarOp::Select ? 1 : 0];
            const ScalarValue expected = eval_scalar(c.op, c.result, operand, x[0], x[1], x[2]);
            const ScalarValue got = element(tensors.back(), i);
            bool same = false;
            if (is_float(out)) {
                const double e = out == DType::F32 ? static_cast<double>(static_cast<float>(expected.f)) : expected.f;
                const double room = (out == DType::F32 ? 1e-6 : 1e-14) * std::fabs(e) + (out == DType::F32 ? 1e-38 : 0);
                same = (std::isnan(e) && std::isnan(got.f)) || e == got.f || std::fabs(e - got.f) <= room;
            } else {
                same = expected.i == got.i;
            }
            if (same) continue;
            ++wrong;
            ADD_FAILURE() << what << " of " << x[0].f << " " << x[0].i << ", " << x[1].f << " " << x[1].i << ": "
                          << got.f << " " << got.i << ", expected " << expected.f << " " << expected.i;
        }
    }
}

TEST(CudaScalars, StorageIsWhatTheHostHas) {
    const std::vector<DType> types = {DType::F16,    DType::BF16,       DType::F8E4M3FN, DType::F8E4M3FNUZ,
                                      DType::F8E5M2, DType::F8E5M2FNUZ, DType::F8E8M0,   DType::F4E2M1};
    const std::vector<DType> narrow = {DType::I4, DType::U4, DType::I2, DType::U2};
    std::vector<KernelText> kernels;
    for (const DType t : types) {
        kernels.push_back(each(fmt::format("from_{}", to_string(t)), {t}, DType::F32, from_storage(t, "x0[i]")));
        kernels.push_back(each(fmt::format("to_{}", to_string(t)), {DType::F32}, t, to_storage(t, "x0[i]")));
    }
    for (const DType t : narrow)
        kernels.push_back(each(fmt::format("to_{}", to_string(t)), {compute_type(t)}, t, to_storage(t, "x0[i]")));
    const TestKernels runner(kernels, {TW_TEST_CXX, {"-O0"}});
    const auto run = [&](size_t k, const Tensor& x, DType out) {
        std::vector<Tensor> tensors = {x, Tensor(out, {x.count()})};
        runner.run(k, tensors, {x.count()}, 1);
        return tensors[1];
    };
    for (size_t k = 0; k < types.size(); ++k) {
        const DType t = types[k];
        // Every code; those of a 4-bit float are 16.
        const int64_t codes = byte_size(t) == 2 ? 65536 : t == DType::F4E2M1 ? 16 : 256;
        Tensor x(t, {codes});
        for (int64_t i = 0; i < codes; ++i) {
            if (byte_size(t) == 2)
                static_cast<uint16_t*>(x.mutable_data())[i] = static_cast<uint16_t>(i);
            else
                static_cast<uint8_t*>(x.mutable_data())[i] = static_cast<uint8_t>(i);
        }
        const Tensor values = run(2 * k, x, DType::F32);
        for (int64_t i = 0; i < codes; ++i) {
            const double e = x.get(i), g = values.get(i);
            ASSERT_TRUE(e == g || (std::isnan(e) && std::isnan(g))) << to_string(t) << " code " << i;
        }
        // Each number, what lies between it and the next, and next to that: rounding goes to even.
        std::vector<float> floats = {1e30f,
                                     -1e30f,
                                     1e-30f,
                                     1e-40f,
                                     3e-39f,
                                     8e-39f,
                                     1e5f,
                                     3e38f,
                                     6e-8f,
                                     5.9e-8f,
                                     std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::quiet_NaN()};
        for (int64_t i = 0; i + 1 < codes; ++i) {
            const auto a = static_cast<float>(x.get(i)), b = static_cast<float>(x.get(i + 1));
            const float between = a / 2 + b / 2;
            for (const float f : {a, between, std::nextafter(between, a), std::nextafter(between, b)})
                floats.push_back(f);
        }
        const Tensor numbers = Tensor::of(DType::F32, {static_cast<int64_t>(floats.size())}, floats);
        const Tensor stored = run(2 * k + 1, numbers, t);
        for (int64_t i = 0; i < numbers.count(); ++i) {
            Tensor expected(t, {1});
            const ScalarValue v = eval_scalar(ScalarOp::Cast, t, DType::F64, {numbers.get(i), 0});
            expected.set(0, v.f);
            const double e = expected.get(0), g = stored.get(i);
            ASSERT_TRUE(e == g || (std::isnan(e) && std::isnan(g)))
                << to_string(t) << " of " << numbers.get(i) << ": " << g << ", expected " << e;
        }
    }
    for (size_t k = 0; k < narrow.size(); ++k) {
        Tensor x(compute_type(narrow[k]), {256});
        for (int64_t i = 0; i < 256; ++i) x.set(i, i - (is_signed(narrow[k]) ? 128 : 0));
        const Tensor stored = run(2 * types.size() + k, x, narrow[k]);
        for (int64_t i = 0; i < 256; ++i) ASSERT_EQ(stored.get_int(i), wrap_integer(narrow[k], x.get_int(i)));
    }
}

// --- matrix instructions

/// Which element of a matrix is element i of a thread's part of it, as the PTX manual has it ("Matrix fragments for
/// mma.m16n8k8" with .tf32, "for mma.m16n8k16"); group: lane / 4, member: lane % 4.
struct Fragments {
    std::string a_row, a_column, b_row, b_column;
};
const Fragments kTf32 = {"group + i % 2 * 8", "member + i / 2 * 4", "member + i * 4", "group"};
const Fragments kHalf = {"group + i / 2 % 2 * 8", "member * 2 + i % 2 + i / 4 * 8", "member * 2 + i % 2 + i / 2 * 8",
                         "group"};

/// c = a b with one instruction of a warp: a is 16 x k, b k x 8.
KernelText multiplication(const std::string& name, DType type, int64_t k) {
    KernelText text;
    text.name = "kernel_of_" + name;
    text.tensors = {{"a", type, false}, {"b", type, false}, {"c", DType::F32, true}};
    const bool half = type != DType::F32;
    const Fragments& f = half ? kHalf : kTf32;
    const auto words = [&](const std::string& from, int count) {
        std::string s;
        for (int w = 0; w < count; ++w)
            s += half ? fmt::format(", tw::pair({0}[{1}], {0}[{2}])", from, 2 * w, 2 * w + 1)
                      : fmt::format(", tw::tf32({}[{}])", from, w);
        return s;
    };
    text.text = fmt::format(R"TW(TW_KERNEL(kernel_of_{0}, 32)(tw::In<{1}> a, tw::In<{1}> b, tw::Out<float> c) {{
    const int group = tw::thread() / 4, member = tw::thread() % 4;
    {1} x[{2}], y[{3}];
    float z[4] = {{0, 0, 0, 0}};
    for (int i = 0; i < {2}; ++i) x[i] = a[({4}) * {8} + {5}];
    for (int i = 0; i < {3}; ++i) y[i] = b[({6}) * 8 + {7}];
    tw::{0}(z[0], z[1], z[2], z[3]{9}{10});
    for (int i = 0; i < 4; ++i) tw::put(c, (group + i / 2 * 8) * 8 + member * 2 + i % 2, z[i]);
}}
)TW",
                            name, storage_type(type), k / 2, k / 4, f.a_row, f.a_column, f.b_row, f.b_column, k,
                            words("x", 4), words("y", 2));
    return text;
}

TEST(CudaMatrices, InstructionsMultiplyWhatTheManualSays) {
    struct MatrixCase {
        std::string name;
        DType type;
        int64_t k;
        double kept;  ///< relative error of a rounded operand
    };
    const std::vector<MatrixCase> cases = {{"multiply_tf32", DType::F32, 8, 1.0 / 2048},
                                           {"multiply_f16", DType::F16, 16, 0},
                                           {"multiply_bf16", DType::BF16, 16, 0}};
    std::vector<KernelText> kernels;
    for (const MatrixCase& c : cases) kernels.push_back(multiplication(c.name, c.type, c.k));
    const TestKernels runner(kernels, {TW_TEST_CXX, {"-O0"}});
    for (size_t n = 0; n < cases.size(); ++n) {
        const MatrixCase& c = cases[n];
        for (const bool whole : {true, false}) {  // whole numbers are exact in every type
            std::vector<Tensor> tensors = {Tensor(c.type, {16, c.k}), Tensor(c.type, {c.k, 8}),
                                           Tensor(DType::F32, {16, 8})};
            for (int k = 0; k < 2; ++k)
                for (int64_t i = 0; i < tensors[k].count(); ++i) {
                    const auto v = static_cast<double>((i * 37 + k * 11 + i * i) % 23 - 11);
                    tensors[k].set(i, whole ? v : v * 0.37 + 0.01);
                }
            runner.run(n, tensors, {}, 1);
            for (int64_t row = 0; row < 16; ++row)
                for (int64_t column = 0; column < 8; ++column) {
                    double sum = 0, size = 0;
                    for (int64_t k = 0; k < c.k; ++k) {
                        const double x = tensors[0].get(row * c.k + k), y = tensors[1].get(k * 8 + column);
                        sum += x * y;
                        size += std::fabs(x * y);
                    }
                    const double room = whole ? 0 : size * (2.1 * c.kept + 1e-6);
                    EXPECT_NEAR(tensors[2].get(row * 8 + column), sum, room) << c.name << " " << row << " " << column;
                }
        }
    }
}

TEST(CudaMatrices, NumbersArePackedAsTheyAreStored) {
    // y[i]: the word of x[2 i] and x[2 i + 1], as two numbers.
    std::vector<KernelText> kernels;
    for (const auto& [name, type] : {std::pair("f16", "f16"), std::pair("bf16", "bf16")}) {
        KernelText k;
        k.name = fmt::format("pack_{}", name);
        k.tensors = {{"x", DType::F32, false}, {"y", type == std::string("f16") ? DType::F16 : DType::BF16, true}};
        k.text = fmt::format(
            "TW_KERNEL(pack_{0}, 32)(tw::In<float> x, tw::Out<u16> y) {{ const int t = 2 * tw::thread(); "
            "const u32 word = tw::{0}_pair(x[t], x[t + 1]); tw::put(y, t, u16(word & 0xffffu)); tw::put(y, t + 1, "
            "u16(word >> 16)); }}\n",
            name);
        kernels.push_back(k);
    }
    const TestKernels runner(kernels, {TW_TEST_CXX, {"-O0"}});
    for (size_t k = 0; k < 2; ++k) {
        std::vector<Tensor> tensors = {Tensor(DType::F32, {64}), Tensor(kernels[k].tensors[1].dtype, {64})};
        Tensor expected = tensors[1];
        for (int64_t i = 0; i < 64; ++i) {
            tensors[0].set(i, std::ldexp(1 + static_cast<double>(i) / 64 + 1e-3, static_cast<int>(i % 30) - 14));
            expected.set(i, tensors[0].get(i));
        }
        runner.run(k, tensors, {}, 1);
        EXPECT_EQ(largest_difference({expected}, {tensors[1]}), 0);
    }
}

TEST(CudaMatrices, PairsOfRowsMeetAllBanks) {
    // Thread t's pair of 64 rows, and where number t % 4 along the sum has it in swizzled rows of 32 floats.
    KernelText k;
    k.name = "pairs";
    k.tensors = {{"pair", DType::I32, true}, {"at", DType::I32, true}};
    k.threads = 128;
    k.text =
        "TW_KERNEL(pairs, 128)(tw::Out<i32> pair, tw::Out<i32> at) {\n"
        "    const int t = tw::thread(), p = tw::row_pair_of_group(t % 32);\n"
        "    tw::put(pair, t, p);\n"
        "    tw::put(at, t, tw::swizzled<128, 4>(p % 16 * 2 + t % 4 * 32));\n}\n";
    std::vector<Tensor> out = {Tensor(DType::I32, {128}), Tensor(DType::I32, {128})};
    TestKernels({k}, {TW_TEST_CXX, {"-O0"}}).run(0, out, {}, 1);
    std::map<int64_t, int> threads_of;
    for (int64_t t = 0; t < 128; ++t) ++threads_of[static_cast<int64_t>(out[0].get(t))];
    EXPECT_EQ(threads_of.size(), size_t{32});  // each is that of the four threads of a row
    for (const auto& [pair, threads] : threads_of) EXPECT_EQ(threads, 4) << pair;
    // Reads of 8 bytes are served for 16 threads together: 32 banks of 4 bytes.
    for (int64_t first = 0; first < 128; first += 16) {
        std::set<int64_t> banks;
        for (int64_t t = first; t < first + 16; ++t)
            for (const int64_t word : {0, 1}) banks.insert((static_cast<int64_t>(out[1].get(t)) + word) % 32);
        EXPECT_EQ(banks.size(), size_t{32}) << first;
    }
    // Results of eight rows of a warp's fragment, two side by side each, are whole sectors of 32 bytes.
    std::set<int64_t> sectors;
    for (int64_t t = 0; t < 32; ++t) sectors.insert(static_cast<int64_t>(out[0].get(t)) * 2 / 8);
    EXPECT_EQ(sectors.size(), size_t{2});
}

TEST(CudaMatrices, RowsOfHalvesAreLoadedAsFragments) {
    // x: 32 x 8 numbers in shared memory, four matrices of 8 x 8. y[thread][i]: the two halves of word i.
    std::vector<KernelText> kernels;
    for (const char* turned : {"", "_turned"}) {
        KernelText k;
        k.name = fmt::format("load{}", turned);
        k.shared_bytes = 512;
        k.tensors = {{"x", DType::F16, false}, {"y", DType::F16, true}};
        k.text = fmt::format(R"TW(TW_KERNEL({0}, 32)(tw::In<u16> x, tw::Out<u16> y) {{
    const tw::Shared<u16> s = tw::shared<u16>(0, 256, "s");
    const int t = tw::thread();
    for (int i = 0; i < 8; ++i) tw::put(s, 8 * t + i, x[8 * t + i]);
    tw::barrier();
    u32 w[4];
    tw::load_matrices{1}(w[0], w[1], w[2], w[3], s + 8 * t);
    for (int i = 0; i < 4; ++i) {{ tw::put(y, 8 * t + 2 * i, u16(w[i] & 0xffffu)); tw::put(y, 8 * t + 2 * i + 1, u16(w[i] >> 16)); }}
}}
)TW",
                             k.name, turned);
        kernels.push_back(k);
    }
    const TestKernels runner(kernels, {TW_TEST_CXX, {"-O0"}});
    for (size_t k = 0; k < 2; ++k) {
        std::vector<Tensor> tensors = {Tensor(DType::F16, {32, 8}), Tensor(DType::F16, {32, 8})};
        for (int64_t i = 0; i < 256; ++i) tensors[0].set(i, i);
        runner.run(k, tensors, {}, 1);
        for (int64_t t = 0; t < 32; ++t)
            for (int64_t i = 0; i < 8; ++i) {
                const int64_t matrix = i / 2, a = t / 4, b = t % 4 * 2 + i % 2;
                const int64_t row = k == 0 ? a : b, column = k == 0 ? b : a;
                EXPECT_EQ(tensors[1].get(8 * t + i), static_cast<double>((8 * matrix + row) * 8 + column));
            }
    }
}

}  // namespace
}  // namespace tilewright::cuda
