// Performance of generated matrix products with constant weights, relative to the machine's FMA peak.
//
//     bench_gemm 768x768x768 1024x1024x1024 128x768x3072
//
// C[m, n] = A[m, k] W[k, n], float32, W packed at compile time. The peak is measured in the same run: a burst of
// independent multiply-adds before every timing of the product, so that a change of the clock affects both.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>

#include "compile/pipeline.h"
#include "cost/probe.h"
#include "model/session.h"
#include "program/builder.h"

namespace tilewright {
namespace {

struct Size {
    int64_t m = 0, n = 0, k = 0;
};

Size parse_size(const std::string& text) {
    Size s;
    char x = 0, y = 0;
    std::istringstream in(text);
    in >> s.m >> x >> s.n >> y >> s.k;
    if (!in || x != 'x' || y != 'x' || s.m < 1 || s.n < 1 || s.k < 1 || !in.eof())
        throw CLI::ValidationError(text, "expected MxNxK, as in 128x768x3072");
    return s;
}

Tensor random_matrix(int64_t rows, int64_t columns, uint32_t seed) {
    Tensor t(DType::F32, {rows, columns});
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * columns; ++i) t.as_mutable<float>()[static_cast<size_t>(i)] = normal(rng);
    return t;
}

double seconds(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

void measure(const Size& s, const std::string& isa, double budget) {
    Program program;
    Builder b(program);
    const ValueId a = b.input("a", DType::F32, {Expr(s.m), Expr(s.k)});
    const ValueId c = b.matmul(a, b.constant(random_matrix(s.k, s.n, 1), "w"));
    b.set_outputs({c});
    CompileOptions options;
    options.threads = 1;
    options.isa = isa;
    const auto model = compile_program(program, options);
    Session session(model, 1);
    const std::vector<Tensor> inputs{random_matrix(s.m, s.k, 2)};
    const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);

    const ProbeKernels probe = probe_kernels(isa == "avx2" ? VectorIsa::avx2 : host_target().isa);
    const int64_t burst = 4'000'000 / probe.flops_a_round * 20;
    std::vector<double> peak, product;
    session.run_in_place(inputs);
    double spent = 0;
    while (spent < budget || product.size() < 5) {
        const double p = seconds([&] { probe.multiply_add(burst); });
        const double t = seconds([&] { session.run_in_place(inputs); });
        peak.push_back(static_cast<double>(burst * probe.flops_a_round) / p);
        product.push_back(flops / t);
        spent += p + t;
    }
    const double best = median(peak), got = median(product);
    fmt::print("{:>18}  {:8.3f} ms  {:7.1f} GFLOP/s  peak {:7.1f}  {:5.1f} %  ({} runs)\n",
               fmt::format("{}x{}x{}", s.m, s.n, s.k), flops / got * 1e3, got * 1e-9, best * 1e-9, 100 * got / best,
               product.size());
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    CLI::App app{
        "float32 matrix products with constant weights on one thread, against the FMA peak of the same run\n"
        "  bench_gemm 768x768x768 128x768x3072"};
    std::vector<std::string> sizes{"768x768x768", "1024x1024x1024", "128x768x3072"};
    std::string isa;
    double budget = 2;
    app.add_option("sizes", sizes, "MxNxK: rows, columns, length of the sums");
    app.add_option("--isa", isa, "avx2 or avx512 instead of this machine's best");
    app.add_option("--seconds", budget, "for each size");
    CLI11_PARSE(app, argc, argv);
    try {
        for (const std::string& size : sizes) tilewright::measure(tilewright::parse_size(size), isa, budget);
    } catch (const std::exception& e) {
        fmt::print(stderr, "bench_gemm: {}\n", e.what());
        return 1;
    }
    return 0;
}
