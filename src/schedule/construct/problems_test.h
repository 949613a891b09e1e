#pragma once
// Single-stage kernels and machines of round numbers, for the tests of this folder.

#include <fmt/format.h>

#include "schedule/construct/etir.h"

namespace tilewright::construct {

constexpr size_t kM = 0, kN = 1, kK = 2;  // axes of a product

/// Sets a cache level. `bytes`: the capacity that the cost model assumes.
inline void set_cache(Target& target, size_t level, double bytes, double bytes_per_cycle, double latency_cycles) {
    CacheLevel& cache = target.caches.at(level);
    cache.bytes = static_cast<int64_t>(bytes / 0.8);
    cache.load_gbps.value = bytes_per_cycle * target.ghz.value;
    cache.latency_ns.value = latency_cycles / target.ghz.value;
}

inline Target narrow_target(int workers = 1) {
    Target t = generic_target(VectorIsa::avx2);
    t.workers = workers;
    set_cache(t, 0, 25600, 64, 4);
    set_cache(t, 1, 409600, 32, 14);
    set_cache(t, 2, 1.2e7, 16, 50);
    t.memory_gbps_1.value = 8 * t.ghz.value;
    t.memory_gbps_all.value = workers * t.memory_gbps_1.value;
    t.memory_latency_ns.value = 250 / t.ghz.value;
    return t;
}

inline Program product(int64_t m, int64_t n, int64_t k) {
    return parse_program(fmt::format(R"(program product {{
  input a: f32[{0}, {2}]
  input b: f32[{2}, {1}]
  c: f32[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}})",
                                     m, n, k));
}

inline Problem problem_of(const Program& stages, const Target& target = narrow_target()) {
    return make_problem(stages, target);
}

/// Kernels of many kinds, small enough for the interpreter.
inline std::vector<Program> small_kernels() {
    std::vector<Program> out = {product(32, 48, 16), product(13, 21, 70), product(7, 100, 5), product(1, 64, 130)};
    for (const char* text : {// transposed right operand, which is packed
                             R"(program transposed {
  input a: f32[20, 24]
  input b: f32[40, 24]
  c: f32[20, 40] = [20, 40] sum(i2 < 24) mul(@0, @1) then max(acc, 0.0) where @0 = a[i0, i2], @1 = b[i1, i2]
  output c
})",
                             R"(program batched {
  input a: f32[3, 9, 16]
  input b: f32[3, 16, 20]
  c: f32[3, 9, 20] = [3, 9, 20] sum(i3 < 16) mul(@0, @1) where @0 = a[i0, i1, i3], @1 = b[i0, i3, i2]
  output c
})",
                             R"(program convolution {
  input x: f32[4, 9, 9]
  input w: f32[16, 4, 3, 3]
  input bias: f32[16]
  y: f32[16, 9, 9] = [16, 9, 9] sum(i3 < 4, i4 < 3, i5 < 3) mul(@0, @1) then add(acc, @2) where @0 = x[i3, i1 + i4 - 1, i2 + i5 - 1] when i1 + i4 - 1 >= 0 and -i1 - i4 + 9 >= 0 and i2 + i5 - 1 >= 0 and -i2 - i5 + 9 >= 0 else 0, @1 = w[i0, i3, i4, i5], @2 = bias[i0]
  output y
})",
                             // contiguous channels
                             R"(program blocked {
  input x: f32[8, 8, 16]
  input w: f32[3, 3, 16, 24]
  y: f32[6, 6, 24] = [6, 6, 24] sum(i3 < 3, i4 < 3, i5 < 16) mul(@0, @1) where @0 = x[i0 + i3, i1 + i4, i5], @1 = w[i3, i4, i5, i2]
  output y
})",
                             R"(program strided {
  input x: f32[2, 11, 11, 8]
  input w: f32[16, 8]
  y: f32[2, 6, 6, 16] = [2, 6, 6, 16] sum(i4 < 8) mul(@0, @1) where @0 = x[i0, 2*i1, 2*i2, i4], @1 = w[i3, i4]
  output y
})",
                             R"(program elementwise {
  input x: f32[30, 44]
  input y: f32[44]
  z: f32[30, 44] = [30, 44] tanh(mul(@0, @1)) where @0 = x[i0, i1], @1 = y[i1]
  output z
})",
                             R"(program transpose {
  input x: f32[30, 44]
  y: f32[44, 30] = [44, 30] @0 where @0 = x[i1, i0]
  output y
})",
                             R"(program rows {
  input x: f32[30, 100]
  y: f32[30] = [30] max(i1 < 100) @0 where @0 = x[i0, i1]
  output y
})",
                             R"(program columns {
  input x: f32[100, 30]
  y: f32[30] = [30] sum(i1 < 100) @0 then mul(acc, 0.01) where @0 = x[i1, i0]
  output y
})",
                             R"(program pool {
  input x: f32[6, 12, 12]
  y: f32[6, 6, 6] = [6, 6, 6] max(i3 < 2, i4 < 2) @0 where @0 = x[i0, 2*i1 + i3, 2*i2 + i4]
  output y
})",
                             R"(program half {
  input a: f16[10, 70]
  input b: f16[70, 32]
  c: f16[10, 32] = [10, 32] sum(i2 < 70) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
})",
                             R"(program gather {
  input ids: i64[12]
  input table: f32[20, 32]
  y: f32[12, 32] = [12, 32] @1 where @0 = ids[i0], @1 = table[@0, i1]
  output y
})"})
        out.push_back(parse_program(text));
    return out;
}

}  // namespace tilewright::construct
