#pragma once
// Small kernels that use one function of device/cuda.cuh each, in the names that it shares with device/emulated.cuh.

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"
#include "backend/cuda/scalar_text.h"

namespace tilewright::cuda::oracle {

struct Probe {
    KernelText kernel;
    std::vector<Tensor> inputs;
    Shape output;
    DType type = DType::F32;
    double tolerance = 0;  ///< relative, of exp_near alone: other results are the same bits
};

inline Tensor raw(DType type, const std::vector<uint64_t>& codes) {
    Tensor t(type, Shape{static_cast<int64_t>(codes.size())});
    const size_t size = byte_size(type);
    for (size_t i = 0; i < codes.size(); ++i)
        std::memcpy(static_cast<char*>(t.mutable_data()) + i * size, &codes[i], size);
    return t;
}

/// Floats of every magnitude, halfway cases of f16, bf16 and tf32, and what is no number.
inline std::vector<uint64_t> float_codes() {
    std::vector<uint64_t> out = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                 0x7f800001, 1,          0x80000001, 0x7fffff};
    std::mt19937_64 rng(1);
    for (uint64_t exponent = 0; exponent < 255; ++exponent)
        for (const uint64_t mantissa : {uint64_t{0}, uint64_t{0x1000}, uint64_t{0x3000}, uint64_t{0x1001},
                                        uint64_t{0x8000}, uint64_t{0x18000}, uint64_t{0x7fffff}, rng() & 0x7fffff})
            for (const uint64_t sign : {uint64_t{0}, uint64_t{1} << 31})
                out.push_back(sign | exponent << 23 | mantissa);
    return out;
}

/// Whole numbers from -8 to 8, whose products and sums are exact in every type.
inline Tensor small_numbers(DType type, int64_t count, uint64_t seed) {
    Tensor t(type, Shape{count});
    std::mt19937_64 rng(seed);
    for (int64_t i = 0; i < count; ++i) t.set(i, static_cast<double>(static_cast<int64_t>(rng() % 17) - 8));
    return t;
}

/// The texts of kernels: a body, whose tensors are x0, x1, ... and y.
inline Probe probe(const std::string& name, std::vector<Tensor> inputs, DType type, int64_t count, int threads,
                   int64_t shared_bytes, const std::string& body) {
    Probe p{{}, std::move(inputs), {count}, type};
    KernelText& k = p.kernel;
    k.name = "probe_" + name;
    std::string arguments;
    for (size_t i = 0; i < p.inputs.size(); ++i) {
        k.tensors.push_back({fmt::format("x{}", i), p.inputs[i].dtype(), false});
        arguments += fmt::format("tw::In<{}> x{}, ", storage_type(p.inputs[i].dtype()), i);
    }
    k.tensors.push_back({"y", type, true});
    k.threads = threads;
    k.shared_bytes = shared_bytes;
    k.text = fmt::format("TW_KERNEL({}, {})({}tw::Out<{}> y) {{\n    const int t = tw::thread();\n{}}}\n", k.name,
                         threads, arguments, storage_type(type), body);
    return p;
}

/// y[i] = value(x0[i], x1[i])
inline Probe each(const std::string& name, std::vector<Tensor> inputs, DType type, const std::string& value) {
    const int64_t count = inputs[0].count();
    return probe(name, std::move(inputs), type, count, 32, 0,
                 fmt::format("    for (int i = t; i < {}; i += 32) tw::put(y, i, {});\n", count, value));
}

inline std::vector<Probe> scalar_probes() {
    std::vector<uint64_t> halves(65536);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = i;
    const std::vector<uint64_t> codes = float_codes();
    std::vector<uint64_t> reversed(codes.rbegin(), codes.rend());
    reversed.insert(reversed.begin(), 0x7fc00000);  // each number beside several others
    reversed.pop_back();
    const Tensor x = raw(DType::F32, codes), other = raw(DType::F32, reversed);
    std::vector<uint64_t> from_one = {0, 0x7fc00000};
    constexpr uint64_t kOne = 0x3f800000, kMost = 0x7e800000;
    std::copy_if(codes.begin(), codes.end(), std::back_inserter(from_one),
                 [&](uint64_t code) { return code >= kOne && code < kMost; });
    std::vector<Probe> out = {
        each("f16_value", {raw(DType::U16, halves)}, DType::F32, "tw::f16_value(x0[i])"),
        each("to_f16", {x}, DType::U16, "tw::to_f16(x0[i])"),
        each("to_bf16", {x}, DType::U16, "tw::to_bf16(x0[i])"),
        each("tf32", {x}, DType::U32, "tw::tf32(x0[i])"),
        each("f16_pair", {x, other}, DType::U32, "tw::f16_pair(x0[i], x1[i])"),
        each("bf16_pair", {x, other}, DType::U32, "tw::bf16_pair(x0[i], x1[i])"),
        each("maximum", {x, other}, DType::F32, "tw::maximum(x0[i], x1[i])"),
        each("minimum", {x, other}, DType::F32, "tw::minimum(x0[i], x1[i])"),
        each("reciprocal", {x}, DType::F32, "tw::reciprocal(x0[i])"),
        each("reciprocal_from_one", {raw(DType::F32, from_one)}, DType::F32, "tw::reciprocal_from_one(x0[i])"),
        probe("elected", {x}, DType::I32, 128, 128, 0,
              "    tw::assume_threads<128>();\n    const bool one = tw::elected();\n    tw::put(y, t, one ? 4 * "
              "tw::warpgroup() + 1 : 4 * "
              "tw::warpgroup());\n"),
        probe("kept", {x}, DType::I32, 128, 128, 0,
              "    const tw::Out<i32> own = tw::kept(y + t);\n    tw::put(own, 0, 3 * t + tw::counted_block());\n"),
        probe("any_of_warp", {x}, DType::I32, 128, 128, 0,
              "    const bool any = tw::any_of_warp(t == 37), all = tw::any_of_warp(true);\n"
              "    tw::put(y, t, (any ? 1 : 0) + (all ? 2 : 0));\n"),
        each("exp_near", {x}, DType::F32, "tw::exp_near(x0[i])"),
        each("exp_near_difference", {x, other}, DType::F32, "tw::exp_near(x0[i], x1[i])"),
        each("exp_near_scaled", {x, other}, DType::F32, "tw::exp_near(x0[i], 0.125f, x1[i])"),
    };
    for (size_t k = out.size() - 3; k < out.size(); ++k) out[k].tolerance = 1e-6;
    return out;
}

/// Each of 32 threads copies `n` elements in two groups, and other threads read them.
inline std::vector<Probe> copy_probes() {
    std::vector<Probe> out;
    for (const int n : {2, 4, 8})
        for (const bool conditional : {false, true}) {
            const auto copy = [&](int group, const std::string& condition) {
                return fmt::format(
                    "    tw::copy_async{3}<{0}>(s + ({1} + t * {0}), x0 + ({1} + t * {0}){2});\n"
                    "    tw::commit_async();\n",
                    n, 32 * n * group, conditional ? ", " + condition : "", conditional ? "_if" : "");
            };
            const auto read = [&](int group) {
                return fmt::format(
                    "    tw::barrier();\n    for (int i = 0; i < {0}; ++i) {{\n"
                    "        const int at = {1} + (31 - t) * {0} + i;\n        tw::put(y, at, s[at]);\n    }}\n",
                    n, 32 * n * group);
            };
            out.push_back(probe(fmt::format("copy_{}{}", n, conditional ? "_if" : ""),
                                {small_numbers(DType::F16, 64 * n, 3)}, DType::F16, 64 * n, 32, 64 * 2 * n,
                                fmt::format("    const tw::Shared<u16> s = tw::shared<u16>(0, {}, \"s\");\n", 64 * n) +
                                    copy(0, "t % 3 != 0") + copy(1, "t % 5 != 1") + "    tw::wait_async<1>();\n" +
                                    read(0) + "    tw::wait_async<0>();\n" + read(1)));
        }
    return out;
}

/// A box of each rank, partly outside of its tensor, and once more over it in the next phase.
inline std::vector<Probe> box_probes() {
    std::vector<Probe> out;
    for (int rank = 1; rank <= 5; ++rank)
        for (const int swizzle : {0, 32, 64, 128}) {
            if (rank == 1 && swizzle != 0) continue;
            const int64_t inner = swizzle == 0 ? 24 : swizzle / 2;
            int64_t tensor = 1, box = 1;
            KernelText::Map map{0, {}, {}, swizzle};
            std::string begin;
            for (int d = 0; d < rank; ++d) {
                map.extents.emplace_back(d == 0 ? inner + 8 : 5 + d);
                map.box.push_back(d == 0 ? inner : 3);
                begin += d == 0 ? ", 8 * step" : fmt::format(", 4 * step - {}", d % 2);
                tensor *= map.extents.back().constant();
                box *= map.box.back();
            }
            Probe p = probe(fmt::format("box_{}d_{}", rank, swizzle), {small_numbers(DType::F16, tensor, 5)},
                            DType::F16, 2 * box, 32, (box * 2 + 8 + 7) / 8 * 8 + 8,
                            fmt::format(R"(    const tw::Shared<u16> s = tw::shared<u16>(0, {0}, "s");
    const tw::Shared<u64> arrivals = tw::shared<u64>({1}, 1, "arrivals");
    if (t == 0) tw::begin_arrivals(arrivals, 1);
    tw::barrier();
    for (int step = 0; step < 2; ++step) {{
        if (t == 0) {{
            tw::expect_bytes(arrivals, {2});
            tw::copy_box(s, map, arrivals{3});
        }}
        tw::wait_arrival(arrivals, step);
        for (int i = t; i < {0}; i += 32) tw::put(y, step * {0} + i, s[i]);
        tw::barrier();
    }}
)",
                                        box, (box * 2 + 7) / 8 * 8, box * 2, begin));
            KernelText& k = p.kernel;
            k.text.insert(k.text.find("> y)") + 3, ", const TW_GRID_CONSTANT tw::TensorMap map");
            k.maps.push_back(std::move(map));
            out.push_back(std::move(p));
        }
    return out;
}

/// One instruction of a warp on random words.
inline std::vector<Probe> warp_probes() {
    std::vector<Probe> out;
    for (const auto& [name, type] :
         {std::pair("tf32", DType::F32), std::pair("f16", DType::F16), std::pair("bf16", DType::BF16)}) {
        const int per_word = type == DType::F32 ? 1 : 2;
        // The words are read as elements of the tensor in pairs.
        const std::string word =
            per_word == 1 ? "tw::tf32(x{0}[{1}])" : "tw::pair(x{0}[2 * ({1})], x{0}[2 * ({1}) + 1])";
        const auto words = [&](int tensor, int count) {
            std::string all;
            for (int i = 0; i < count; ++i)
                all += ", " + fmt::format(fmt::runtime(word), tensor, fmt::format("{} * t + {}", count, i));
            return all;
        };
        out.push_back(probe(fmt::format("multiply_{}", name),
                            {small_numbers(type, 128 * per_word, 6), small_numbers(type, 64 * per_word, 7),
                             small_numbers(DType::F32, 128, 8)},
                            DType::F32, 128, 32, 0,
                            fmt::format("    float c[4];\n    for (int i = 0; i < 4; ++i) c[i] = x2[4 * t + i];\n"
                                        "    tw::multiply_{}(c[0], c[1], c[2], c[3]{}{});\n"
                                        "    for (int i = 0; i < 4; ++i) tw::put(y, 4 * t + i, c[i]);\n",
                                        name, words(0, 4), words(1, 2))));
    }
    for (const int count : {1, 2, 4})
        for (const bool turned : {false, true})
            out.push_back(
                probe(fmt::format("load_{}_{}", count, turned ? "turned" : "straight"),
                      {small_numbers(DType::F16, 512, 9)}, DType::U32, 32 * count, 32, 1024,
                      fmt::format("    const tw::Shared<u16> s = tw::shared<u16>(0, 512, \"s\");\n"
                                  "    for (int i = t; i < 512; i += 32) tw::put(s, i, x0[i]);\n    tw::barrier();\n"
                                  "    u32 w[4];\n    tw::load_matrices{}({}, s + (t * 13 % 32 * 16 + t % 2 * 8));\n"
                                  "    for (int i = 0; i < {}; ++i) tw::put(y, {} * t + i, w[i]);\n",
                                  turned ? "_turned" : "",
                                  count == 1   ? "w[0]"
                                  : count == 2 ? "w[0], w[1]"
                                               : "w[0], w[1], w[2], w[3]",
                                  count, count)));
    return out;
}

/// How an operand of a warpgroup lies in shared memory: the arguments of tw::cores, and the bytes of one step along the
/// sum.
struct GroupOperand {
    int along, across, row;
    bool turned;
    int bytes;

    std::string text(const char* tensor, int first) const {
        return fmt::format("tw::cores<{}, {}, {}>({}, {}, {})", along, across, row, tensor, first, turned);
    }
};
/// Every kind of layout, for `points` across the sum.
inline std::vector<GroupOperand> group_operands(int points, bool tf32) {
    std::vector<GroupOperand> out;
    for (const int row : {128, 64, 32}) out.push_back({16, 8 * row, row, false, points / 8 * 8 * row});
    out.push_back({128, 256, 0, false, points / 8 * 256});
    out.push_back({points * 16 + 16, 128, 0, false, 2 * (points * 16 + 16)});  // padded
    if (tf32) return out;
    for (const int row : {128, 64, 32}) {
        const int wide = std::max(1, points * 2 / row);
        out.push_back({8 * row, 16 * row, row, true, wide * 16 * row});
    }
    out.push_back({128, 256, 0, true, points / 8 * 256});
    return out;
}

/// Two products of a warpgroup, the second on top of the first. `in_registers`: the left operand's words.
inline Probe group_probe(const std::string& name, const std::string& type, int n, bool in_registers,
                         const GroupOperand& left, const GroupOperand& right) {
    const DType dtype = type == "tf32" ? DType::F32 : type == "f16" ? DType::F16 : DType::BF16;
    const std::string element = storage_type(dtype);
    const int size = dtype == DType::F32 ? 4 : 2;
    const int64_t a = in_registers ? 128 * 8 : left.bytes / size, b = right.bytes / size;
    const int b_at = in_registers ? 0 : (left.bytes + 1023) / 1024 * 1024;
    std::string words, load_a;
    for (int i = 0; i < 4 && in_registers; ++i) {
        words += i == 0 ? "" : ", ";
        words += size == 4 ? fmt::format("tw::tf32(x0[8 * t + {}])", 2 * i)
                           : fmt::format("tw::pair(x0[8 * t + {}], x0[8 * t + {}])", 2 * i, 2 * i + 1);
    }
    if (!in_registers)
        load_a = fmt::format(
            "    const tw::Shared<{0}> a = tw::shared<{0}>(0, {1}, \"a\");\n"
            "    for (int i = t; i < {1}; i += 128) tw::put(a, i, x0[i]);\n",
            element, a);
    // The second product begins further along a swizzled row, where it is longer than a step of the sum.
    const auto operand = [&](const GroupOperand& o, const char* tensor, int step) {
        return o.text(tensor, step == 1 && !o.turned && o.row > 32 ? 32 / size : 0);
    };
    std::string products;
    for (int step = 0; step < 2; ++step)
        products += fmt::format("    tw::multiply_group_{}_{}<{}{}>(sum[0], sum[1], {}, {});\n", type, n,
                                in_registers ? "" : fmt::format("{}, ", left.turned ? 1 : 0), right.turned ? 1 : 0,
                                in_registers ? words : operand(left, "a", step), operand(right, "b", step));
    return probe(name,
                 {small_numbers(dtype, a, 10), small_numbers(dtype, b, 11), small_numbers(DType::F32, 64 * n, 12)},
                 DType::F32, 64 * n, 128, b_at + right.bytes,
                 load_a + fmt::format(R"(    const tw::Shared<{0}> b = tw::shared<{0}>({1}, {2}, "b");
    for (int i = t; i < {2}; i += 128) tw::put(b, i, x1[i]);
    tw::fence_async();
    tw::barrier();
    float sum[2][{3}];
    for (int h = 0; h < 2; ++h)
        for (int i = 0; i < {3}; ++i) sum[h][i] = x2[(t * 2 + h) * {3} + i];
    tw::begin_products();
{4}    tw::end_products();
    tw::wait_products<0>();
    for (int h = 0; h < 2; ++h)
        for (int i = 0; i < {3}; ++i) {{
            tw::settle(sum[h][i]);
            tw::put(y, (t * 2 + h) * {3} + i, sum[h][i]);
        }}
)",
                                      element, b_at, b, n / 4, products));
}

inline std::vector<Probe> group_probes() {
    std::vector<Probe> out;
    const GroupOperand left = group_operands(64, false)[0];
    for (const char* type : {"f16", "bf16", "tf32"})
        for (const int n : {8, 16, 32, 64, 128, 256}) {
            const GroupOperand right = group_operands(n, false)[0];
            out.push_back(group_probe(fmt::format("{}_{}", type, n), type, n, false, left, right));
            out.push_back(group_probe(fmt::format("{}_{}_words", type, n), type, n, true, left, right));
        }
    for (const char* type : {"f16", "tf32"}) {
        const bool tf32 = std::string(type) == "tf32";
        const auto lefts = group_operands(64, tf32), rights = group_operands(128, tf32);
        for (size_t k = 0; k < lefts.size(); ++k) {
            const size_t other = (k + 3) % lefts.size();
            out.push_back(group_probe(fmt::format("{}_layout_{}", type, k), type, 128, false, lefts[k], rights[other]));
        }
    }
    return out;
}

/// A block that is the only one of its counter. (Generated kernels have several: OfGeneratedKernels... in
/// ptx_test.cpp.)
inline std::vector<Probe> counter_probes() {
    Probe p = probe("last_to_arrive", {raw(DType::I32, {0})}, DType::I32, 64, 64, 0,
                    "    const bool first = tw::last_to_arrive(counters, 1);\n"
                    "    tw::put(y, t, first ? 1 : 2);\n");
    p.kernel.counters = Expr(1);
    std::string& text = p.kernel.text;
    text.replace(text.find("> y)"), 4, "> y, tw::Out<u32> counters)");
    return {p};
}

inline std::vector<Probe> all_probes() {
    std::vector<Probe> out;
    for (auto list : {scalar_probes, copy_probes, box_probes, warp_probes, group_probes, counter_probes})
        for (Probe& p : list()) out.push_back(std::move(p));
    return out;
}

}  // namespace tilewright::cuda::oracle
