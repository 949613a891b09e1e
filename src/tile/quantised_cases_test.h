#pragma once
// Hand-written schedules of products with quantised weights (program/transform/quantised_weights.h).

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tile/schedule_cases_test.h"

namespace tilewright::schedule_cases {

/// Numbers of codes of four bits, and of two: evenly spaced, and not.
inline constexpr const char* kEven16 = "-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7";
inline constexpr const char* kUneven16 = "-8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 12";
inline constexpr const char* kUneven4 = "-3, -1, 1, 2";

/// A number of word @1, whose codes have `bits` bits, along axis i4.
inline std::string number_of_word(const std::string& numbers, int bits) {
    return fmt::format("table{{{}}}(i64(and(shr(@1, u32(index({}*i4))), {}:u32)))", numbers, bits, (1 << bits) - 1);
}

/// y = relu(x w) with k = 2 blocks x 4 words x `codes` numbers, in f32.
inline std::string quantised_product(const std::string& m, int n, int codes, const std::string& number) {
    return fmt::format(R"TW(program product {{
  input x: f32[{0}, {3}]
  input w: u32[8, {1}]
  input s: f32[2, {1}]
  y: f32[{0}, {1}] = [{0}, {1}] sum(i2 < 2, i3 < 4, i4 < {2}) mul(@0, mul({5}, @2)) then max(acc, 0.0) where @0 = x[i0, {4}*i2 + {2}*i3 + i4], @1 = w[4*i2 + i3, i1], @2 = s[i2, i1]  ; y ""
  output y
}})TW",
                       m, n, codes, 8 * codes, 4 * codes, number);
}

inline std::string schedule_of_quantised_product(const std::string& m, int n, int codes, int rows, int columns,
                                                 int lanes, const std::string& annotations) {
    return fmt::format(R"TW(axes m="{}" n="{}" b="2" i="4" j="{}"
stage 0 over [m n b i j]
compute 0 vector n lanes {} registers [m={} n={} j={}] order [n m b i j] padding partition{})TW",
                       m, n, codes, lanes, rows, columns, codes, annotations);
}

inline void codes_are_decoded_in_registers(Collector& right) {
    struct Numbers {
        const char* all;
        int bits;
    };
    for (const Numbers& numbers : {Numbers{kEven16, 4}, Numbers{kUneven16, 4}, Numbers{kUneven4, 2}})
        for (const int lanes : {8, 16}) {
            const int codes = 32 / numbers.bits;
            right(kernel(quantised_product("5", 40, codes, number_of_word(numbers.all, numbers.bits)),
                         schedule_of_quantised_product("5", 40, codes, 4, 2 * lanes, lanes, "")));
        }
}

/// Neighbours along the unrolled loop are broadcast together.
inline void codes_are_multiplied_by_numbers_of_bf16(Collector& right) {
    for (const char* m : {"1", "5", "$m"}) {
        std::string stages = quantised_product(m, 40, 8, number_of_word(kEven16, 4));
        stages.replace(stages.find("x: f32"), 6, "x: bf16");
        right(kernel(stages, schedule_of_quantised_product(m, 40, 8, 4, 32, 16, "")),
              std::string(m) != "$m" ? std::vector<Sizes>{{}} : all_of("m", {1, 4, 6}));
    }
}

inline void scales_are_hoisted_out_of_the_inner_loops(Collector& right) {
    for (const char* how : {"", " scale_hoisted 0", " scale_hoisted 12", " scale_hoisted 12 in_flight 8",
                            " scale_hoisted 2 in_flight 8", " scale_hoisted 12 in_flight 100"})
        for (const char* m : {"1", "7", "$m"})
            right(kernel(quantised_product(m, 40, 8, number_of_word(kEven16, 4)),
                         schedule_of_quantised_product(m, 40, 8, 4, 32, 16, how)),
                  std::string(m) != "$m" ? std::vector<Sizes>{{}} : all_of("m", {1, 4, 6}));
}

/// A panel of 32 columns is decoded into the task's buffer, for tile registers in pairs along k.
inline void panels_are_decoded_for_all_rows(Collector& right) {
    for (const char* m : {"20", "$m"})
        for (const bool tiles : {false, true})
            right(kernel(fmt::format(R"TW(program product {{
  input x: {1}[{0}, 64]
  input w: u32[8, 48]
  input s: f32[2, 48]
  p: {1}[64, 48] = [2, 4, 8, 48] -> [32*i0 + 8*i1 + i2, i3] mul({2}, @1) where @0 = w[4*i0 + i1, i3], @1 = s[i0, i3]  ; p ""
  y: f32[{0}, 48] = [{0}, 48] sum(i2 < 64) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = p[i2, i1]  ; y ""
  output y
}})TW",
                                     m, tiles ? "bf16" : "f32",
                                     fmt::format("table{{{}}}(i64(and(shr(@0, u32(index(4*i2))), 15:u32)))", kEven16)),
                         fmt::format(R"TW(axes m="{0}" n="48" k="64" b="2" i="4" j="8"
stage 0 over [b i j n]
stage 1 over [m n k]
{1}parallel n by 32 {{
compute 0 vector n lanes 16 registers [j=8 n=16] order [n b i j] padding partition
compute 1 vector n lanes 16 {2}registers [m=16 n=32{3}] order [n m k] padding partition
}})TW",
                                     m, tiles ? "buffer p layout \"split(0, 2) reorder(0, 2, 1)\"\n" : "",
                                     tiles ? "matrix bf16 tile [m n k] " : "", tiles ? " k=32" : "")),
                  std::string(m) == "20" ? std::vector<Sizes>{{}} : all_of("m", {1, 16, 33}));
}

inline std::vector<Group> of_quantised_weights() {
    Collector registers, halves, scales, panels;
    codes_are_decoded_in_registers(registers);
    codes_are_multiplied_by_numbers_of_bf16(halves);
    scales_are_hoisted_out_of_the_inner_loops(scales);
    panels_are_decoded_for_all_rows(panels);
    return {{"codes_are_decoded_in_registers", registers.cases},
            {"codes_are_multiplied_by_numbers_of_bf16", halves.cases},
            {"scales_are_hoisted_out_of_the_inner_loops", scales.cases},
            {"panels_are_decoded_for_all_rows", panels.cases}};
}

}  // namespace tilewright::schedule_cases
