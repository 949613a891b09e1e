#pragma once
// Kernels to generate for a GPU, by name: gemm:MxNxK, conv:IMAGESxCHANNELSxPIXELSxRESULTSxTAPSxSTRIDE (padded by half
// the taps, NHWC), chain:BxMxNxKxH, attention:HEADSxMxNxKxH.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "program/program.h"

namespace tilewright {

struct Task {
    std::string name;
    Program stages;
    double flops = 0;
    bool chain = false;
};

/// `type`: of the tensors in memory.
inline Task parse_task(const std::string& text, const std::string& type) {
    const size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    std::vector<int64_t> n;
    std::istringstream in(colon == std::string::npos ? "" : text.substr(colon + 1));
    for (std::string part; std::getline(in, part, 'x');) n.push_back(std::atoll(part.c_str()));
    const size_t wanted = kind == "gemm" ? 3 : kind == "conv" ? 6 : kind == "chain" || kind == "attention" ? 5 : 0;
    if (wanted == 0 || n.size() != wanted || std::any_of(n.begin(), n.end(), [](int64_t v) { return v < 1; }))
        throw CLI::ValidationError(text,
                                   "expected gemm:MxNxK, conv:NxCxHxOxKxS, chain:BxMxNxKxH or attention:HEADSxMxNxKxH");
    Task t{text, {}, 0, kind == "chain" || kind == "attention"};
    if (kind == "gemm") {
        t.flops = 2.0 * static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[2]);
        t.stages = parse_program(fmt::format(R"(program gemm {{
  input a: {3}[{0}, {2}]
  input b: {3}[{2}, {1}]
  c: {3}[{0}, {1}] = [{0}, {1}] sum(i2 < {2}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
}})",
                                             n[0], n[1], n[2], type));
        return t;
    }
    if (kind == "conv") {
        const int64_t pad = n[4] / 2, out = (n[2] + 2 * pad - n[4]) / n[5] + 1;
        t.flops = 2.0 * static_cast<double>(n[0] * out * out * n[3]) * static_cast<double>(n[1] * n[4] * n[4]);
        const auto at = [&](const char* i, const char* k) { return fmt::format("{} * {} + {} - {}", i, n[5], k, pad); };
        const std::string row = at("i1", "i4"), column = at("i2", "i5"), last = std::to_string(n[2] - 1);
        t.stages = parse_program(fmt::format(
            R"(program conv {{
  input x: {0}[{1}, {2}, {2}, {3}]
  input w: {0}[{4}, {4}, {3}, {5}]
  y: {0}[{1}, {6}, {6}, {5}] = [{1}, {6}, {6}, {5}] sum(i4 < {4}, i5 < {4}, i6 < {3}) mul(@0, @1) where @0 = x[i0, {7}, {8}, i6]{9}, @1 = w[i4, i5, i6, i3]
  output y
}})",
            type, n[0], n[2], n[1], n[4], n[3], out, row, column,
            pad == 0 ? ""
                     : fmt::format(" when {0} >= 0 and {2} - ({0}) >= 0 and {1} >= 0 and {2} - ({1}) >= 0 else 0", row,
                                   column, last)));
        return t;
    }
    const double outer = 2.0 * static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[2]);
    t.flops = outer * static_cast<double>(n[3] + n[4]);
    const bool softmax = kind == "attention";
    t.stages = parse_program(fmt::format(
        R"(program {6} {{
  input q: {5}[{0}, {1}, {3}]
  input k: {5}[{0}, {2}, {3}]
  input v: {5}[{0}, {2}, {4}]
  c: f32[{0}, {1}, {2}] = [{0}, {1}, {2}] sum(i3 < {3}) mul(@0, @1){7} where @0 = q[i0, i1, i3], @1 = k[i0, i2, i3]
{8}}})",
        n[0], n[1], n[2], n[3], n[4], type, kind, softmax ? " then mul(acc, 0.125)" : "",
        softmax
            ? fmt::format(
                  R"(  r: f32[{0}, {1}, 1] = [{0}, {1}, 1] max(i3 < {2}) @0 where @0 = c[i0, i1, i3]
  p: f32[{0}, {1}, {2}] = [{0}, {1}, {2}] exp(sub(@0, @1)) where @0 = c[i0, i1, i2], @1 = r[i0, i1, 0]
  s: f32[{0}, {1}, 1] = [{0}, {1}, 1] sum(i3 < {2}) @0 where @0 = p[i0, i1, i3]
  e: f32[{0}, {1}, {3}] = [{0}, {1}, {3}] sum(i3 < {2}) mul(@0, @1) where @0 = p[i0, i1, i3], @1 = v[i0, i3, i2]
  o: {4}[{0}, {1}, {3}] = [{0}, {1}, {3}] div(@0, @1) where @0 = e[i0, i1, i2], @1 = s[i0, i1, 0]
  output o
)",
                  n[0], n[1], n[2], n[4], type)
            : fmt::format(
                  R"(  o: {4}[{0}, {1}, {3}] = [{0}, {1}, {3}] sum(i3 < {2}) mul(@0, @1) where @0 = c[i0, i1, i3], @1 = v[i0, i3, i2]
  output o
)",
                  n[0], n[1], n[2], n[4], type)));
    return t;
}

}  // namespace tilewright
