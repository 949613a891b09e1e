#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "cost/estimate.h"
#include "cost/target.h"
#include "driver/commands.h"
#include "driver/commands/bench_estimates.h"
#include "driver/commands/common.h"
#include "driver/decode.h"
#include "driver/files.h"
#include "driver/gpu_run.h"
#include "driver/opspec/limit.h"
#include "driver/run_times.h"
#include "model/trace.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
    ModelOptions model;
    DataOptions data;
    int iterations = 100, warmup = 3;
    std::string trace, json;
    int kernels = 0;
    int decode = 0;
    int64_t prompt = 128;
    std::vector<std::string> estimates;
};

double percentile(const std::vector<double>& sorted, double p) {
    const auto i = static_cast<size_t>(std::ceil(p * static_cast<double>(sorted.size()))) - 1;
    return sorted[std::min(i, sorted.size() - 1)];
}

/// Latencies, in ms; `times` are sorted.
Json latencies(const std::vector<double>& times) {
    const size_t n = times.size();
    double mean = 0;
    for (const double t : times) mean += t / static_cast<double>(n);
    return {{"min", times.front()},
            {"median", (times[(n - 1) / 2] + times[n / 2]) / 2},
            {"mean", mean},
            {"p90", percentile(times, 0.90)},
            {"p95", percentile(times, 0.95)},
            {"p99", percentile(times, 0.99)},
            {"max", times.back()}};
}

/// The peak memory of this process, in MB. getrusage's figure is not used: in a child it starts with its parent's peak.
double peak_memory_mb() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (double kib = 0; word == "VmHWM:" && status >> kib) return kib / 1024.0;
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

/// Writes one further run as a Chrome trace.
void write_trace(Session& session, const std::vector<Tensor>& inputs, const std::string& path) {
    Trace trace;
    session.set_profile(trace.begin());
    session.run_in_place(inputs);
    session.set_profile(nullptr);
    trace.end(inputs);
    write_json(path, trace.json());
}

/// The time of a kernel (or of a step without kernel, by name) over all its calls in a run; median over several runs.
struct KernelShare {
    std::string name;
    int kernel = -1;
    int calls = 0;
    double us = 0, flops = 0, bytes = 0, limit_us = 0;
};

/// The peak performance of the machine that runs the model.
struct Peak {
    double gflops = 0;
    std::string of;  ///< "measured FMA"
    std::function<double(const Work&)> limit_ms;
    bool calibrated = false;
};

Peak peak_of(const ModelOptions& o, int threads) {
    if (const auto gpu = gpu_of(o.target)) {
        const double peak = o.precision == "f32"    ? gpu->f32_gflops
                            : o.precision == "tf32" ? gpu->tf32_gflops
                                                    : gpu->f16_gflops;
        return {peak, fmt::format("data sheet's {} ({})", o.precision, gpu->name), [gpu = *gpu, peak](const Work& w) {
                    return std::max(w.flops / peak, w.bytes / gpu.memory_gbps) * 1e-6;
                }};
    }
    Target target = current_target();
    target.workers = threads;
    const bool f16 = o.precision == "f16";
    target.sums_in_f16 = f16;
    const bool narrow = f16 ? target.f16_sums() : o.precision != "f32" && target.bf16_products();
    const std::string unit = !narrow ? "FMA" : f16 ? "f16" : "bf16";
    return {peak_gflops(target) * (narrow ? matrix_advantage(target, 2) : 1),
            (target.calibrated ? "measured " : "assumed (see `tilewright info --calibrate`) ") + unit,
            [target, narrow](const Work& w) {
                return limit_of({w.flops, w.bytes, narrow ? w.flops : 0}, target).ms;
            },
            target.calibrated};
}

/// Of several runs with the same steps.
std::vector<KernelShare> kernel_shares(const std::vector<std::vector<StepTime>>& runs, const Peak& peak) {
    std::map<std::pair<int, std::string>, KernelShare> shares;
    for (size_t s = 0; s < runs[0].size(); ++s) {
        const StepTime& step = runs[0][s];
        std::vector<double> us;
        for (const std::vector<StepTime>& run : runs)
            if (s < run.size() && run[s].name == step.name) us.push_back(run[s].duration_us);
        KernelShare& share = shares[{step.kernel, step.kernel < 0 ? step.name : std::string()}];
        if (share.calls++ == 0) {
            share.name = step.name;
            share.kernel = step.kernel;
        }
        share.us += median(us);
        share.flops += step.flops;
        share.bytes += step.bytes;
        if (step.kernel >= 0) share.limit_us += peak.limit_ms({step.flops, step.bytes}) * 1e3;
    }
    std::vector<KernelShare> out;
    for (auto& [key, share] : shares) out.push_back(std::move(share));
    std::stable_sort(out.begin(), out.end(), [](const KernelShare& a, const KernelShare& b) { return a.us > b.us; });
    return out;
}

/// Prints the `most` kernels with the longest times. Their limit: operands once at the bandwidth of the first cache
/// that holds them (on a GPU, of its memory), or multiply-adds at the peak.
void print_kernels(const std::vector<KernelShare>& shares, size_t most) {
    if (shares.empty()) return;
    double all = 0;
    for (const KernelShare& k : shares)
        if (k.kernel >= 0) all += k.us;
    std::printf("%6s %5s %10s %6s %9s %7s %6s  %s\n", "kernel", "calls", "us", "share", "GFLOP/s", "GB/s", "limit",
                "computes");
    for (size_t i = 0; i < std::min(most, shares.size()); ++i) {
        const KernelShare& k = shares[i];
        const double per = k.us > 0 ? 1e-3 / k.us : 0;
        if (k.kernel < 0)
            std::printf("%6s %5d %10.1f %6s %9s %7s %6s  %s\n", "-", k.calls, k.us, "", "", "", "", k.name.c_str());
        else
            std::printf("%6d %5d %10.1f %5.1f%% %9.1f %7.1f %5.0f%%  %s\n", k.kernel, k.calls, k.us, 100 * k.us / all,
                        k.flops * per, k.bytes * per, 100 * k.limit_us / std::max(1e-9, k.us), k.name.c_str());
    }
}

Json to_json(const std::vector<KernelShare>& shares) {
    Json list = Json::array();
    for (const KernelShare& k : shares)
        list.push_back({{"kernel", k.kernel},
                        {"name", k.name},
                        {"calls", k.calls},
                        {"us", k.us},
                        {"flops", k.flops},
                        {"bytes", k.bytes},
                        {"limit_us", k.limit_us}});
    return list;
}

Json to_json(const RunCounts& counts) {
    return {{"runs", counts.runs},
            {"compilations", counts.compilations},
            {"preparations", counts.preparations},
            {"recalled", counts.recalled},
            {"memory_plans", counts.memory_plans},
            {"dispatches", counts.dispatches},
            {"bytes_copied", counts.bytes_copied}};
}

/// --decode: a prompt, then token after token.
int bench_decoding(BenchOptions o) {
    o.model.kv_cache = true;
    const Compilation c = compile(o.model, o.data, false);
    const int threads = default_thread_count(o.model.threads);
    const DecodeTimes t = time_decoding(c.model, o.data.request.dims, threads, o.prompt, o.decode);
    std::vector<double> sorted = t.token_ms;
    std::sort(sorted.begin(), sorted.end());
    const Json latency = latencies(sorted);
    const double median = latency["median"].get<double>(), gbps = t.bytes / median * 1e-6;
    Json j;
    j["model"] = o.model.model;
    j["threads"] = threads;
    j["compile_ms"] = c.compile_ms;
    j["prompt"] = o.prompt;
    j["first_token_ms"] = t.prompt_ms;
    j["prompt_tokens_per_s"] = 1e3 * static_cast<double>(o.prompt) / t.prompt_ms;
    j["token_ms"] = latency;
    j["decode_tokens_per_s"] = 1e3 / median;
    j["bytes_per_token"] = t.bytes;
    j["gbps"] = gbps;
    j["read_gbps"] = t.read_gbps;
    j["cache_bytes"] = t.cache_bytes;
    j["counts"] = to_json(t.counts);
    j["tokens"] = t.tokens;
    std::vector<KernelShare> shares;
    if (o.kernels > 0) j["by_kernel"] = to_json(shares = kernel_shares(t.profiled, peak_of(o.model, threads)));
    write_json(o.json, j.dump(2));
    std::printf("%s, %d thread%s\n", o.model.model.c_str(), threads, threads == 1 ? "" : "s");
    std::printf("prompt  %lld tokens: %.1f tokens/s, first token after %.1f ms\n", static_cast<long long>(o.prompt),
                1e3 * static_cast<double>(o.prompt) / t.prompt_ms, t.prompt_ms);
    std::printf("decode  %zu tokens: %.1f tokens/s; median %.2f, p90 %.2f, max %.2f ms a token\n", sorted.size(),
                1e3 / median, median, latency["p90"].get<double>(), latency["max"].get<double>());
    std::printf("memory  %.1f MB a token: %.1f GB/s, %.0f %% of the %.1f GB/s that %s read; KV cache %.1f MB\n",
                t.bytes * 1e-6, gbps, 100 * gbps / t.read_gbps, t.read_gbps,
                threads == 1 ? "a thread can" : "as many threads can", static_cast<double>(t.cache_bytes) * 1e-6);
    print_kernels(shares, static_cast<size_t>(o.kernels));
    return 0;
}

int command_bench(const BenchOptions& o) {
    if (!o.json.empty()) check_writable(o.json);
    if (!o.estimates.empty()) return bench_estimates(o.model, o.data, o.estimates, o.json);
    if (o.decode > 0) return bench_decoding(o);
    const Compilation c = compile(o.model, o.data, false);
    std::map<std::string, int64_t> assumed;
    const std::vector<Tensor> inputs = inputs_of(c, o.data, &assumed);
    const int threads = default_thread_count(o.model.threads);
    Session session = session_of(o.model, c);
    double start = now_ms();
    session.run_in_place(inputs);
    const double first = now_ms() - start;
    for (int i = 0; i < o.warmup; ++i) session.run_in_place(inputs);
    std::vector<double> times;
    for (int i = 0; i < o.iterations; ++i) {
        start = now_ms();
        session.run_in_place(inputs);
        times.push_back(now_ms() - start);
    }
    std::sort(times.begin(), times.end());
    const Json latency = latencies(times);
    const auto ms = [&](const char* key) { return latency[key].get<double>(); };
    const Peak peak = peak_of(o.model, threads);
    const double gflops = session.last_flops() / ms("median") * 1e-6;
    const double share = peak.gflops > 0 ? gflops / peak.gflops : 0;
    const double peak_rss = peak_memory_mb();
    const CompileStats& stats = c.model->stats();
    Json j;
    j["model"] = o.model.model;
    j["threads"] = threads;
    j["iterations"] = o.iterations;
    j["assumed_dims"] = assumed;
    j["latency_ms"] = latency;
    j["load_ms"] = c.load_ms;
    j["compile_ms"] = c.compile_ms;
    j["from_cache"] = c.kept;
    j["first_run_ms"] = first;
    j["kernels"] = stats.kernels;
    j["steps"] = stats.steps;
    j["gflops"] = gflops;
    j["peak_share"] = share;
    j["peak_gflops"] = peak.gflops;
    j["peak_calibrated"] = peak.calibrated;
    j["peak_rss_mb"] = peak_rss;
    j["counts"] = to_json(session.counts());
    std::map<std::string, double> passes;  // a pass may run twice
    for (const PassTime& p : c.passes) passes[p.name] += p.ms;
    j["passes_ms"] = passes;
    std::vector<KernelShare> shares;
    if (o.kernels > 0) {
        constexpr size_t kRuns = 9;
        std::vector<std::vector<StepTime>> runs;
        for (size_t i = 0; i < kRuns; ++i) runs.push_back(profiled_run(session, inputs));
        shares = kernel_shares(runs, peak);
        j["by_kernel"] = to_json(shares);
    }
    write_json(o.json, j.dump(2));
    std::printf("%s, %d thread%s, %d run%s\n", o.model.model.c_str(), threads, threads == 1 ? "" : "s", o.iterations,
                o.iterations == 1 ? "" : "s");
    if (!assumed.empty())
        std::printf("sizes assumed: %s (--dim NAME=SIZE, --input or --data set them)\n", sizes_text(assumed).c_str());
    std::printf("latency  min %.3f  median %.3f  p90 %.3f  p99 %.3f ms\n", ms("min"), ms("median"), ms("p90"),
                ms("p99"));
    std::printf("load %.0f ms%s, compile %.0f ms, first run %.2f ms, %d kernels, %d steps\n", c.load_ms,
                c.kept ? " from the code cache" : "", c.compile_ms, first, stats.kernels, stats.steps);
    std::printf("%.1f GFLOP/s, %.0f %% of the %s peak (%.0f GFLOP/s); peak memory %.0f MB\n", gflops, 100 * share,
                peak.of.c_str(), peak.gflops, peak_rss);
    print_kernels(shares, static_cast<size_t>(o.kernels));
    if (!o.trace.empty()) write_trace(session, inputs, o.trace);
    return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, int& status) {
    auto o = std::make_shared<BenchOptions>();
    CLI::App* c = app.add_subcommand("bench", "compile a model and time it");
    add_model_options(*c, o->model);
    add_kv_cache_option(*c, o->model);
    add_copy_weights_option(*c, o->model);
    add_target_options(*c, o->model);
    add_data_options(*c, o->data);
    add_json_option(*c, o->json);
    c->add_option("--iterations", o->iterations, "timed runs (100)")->check(CLI::Range(1, 1000000));
    c->add_option("--warmup", o->warmup, "untimed runs before the timed ones (3)")->check(CLI::Range(0, 1000000));
    CLI::Option* trace = c->add_option("--trace", o->trace, "write the steps of one run as a Chrome trace");
    CLI::Option* kernels =
        c->add_option("--kernels", o->kernels, "print the N kernels with the longest times, with their limits")
            ->check(CLI::Range(0, 100000));
    CLI::Option* model = c->get_option("model");
    CLI::Option* estimates =
        c->add_option("--estimates", o->estimates,
                      "instead: how far the cost model is from the times of kernels, by kind, for several models")
            ->excludes(model)
            ->excludes(trace)
            ->excludes(kernels);
    model->required(false);
    CLI::Option* decode =
        c->add_option(
             "--decode", o->decode,
             "generate N tokens from a decoder with a KV cache (--kv-cache), each the likeliest, behind --prompt")
            ->check(CLI::Range(2, 1000000))
            ->excludes(estimates);
    c->add_option("--prompt", o->prompt, "tokens that are read at once before the first one is generated (128)")
        ->needs(decode)
        ->check(CLI::Range(1, 10000000));
    c->footer(
        "JSON: latency_ms.{min,median,mean,p90,p95,p99,max}, load_ms, compile_ms, first_run_ms, threads, kernels,\n"
        "assumed_dims (dynamic dimensions without a given size, and the assumed sizes), steps, counts (of the session: "
        "runs, compilations,\n"
        "preparations, recalled, memory_plans, dispatches, bytes_copied), gflops (2 per "
        "multiply-add of products), peak_share (of peak_gflops), peak_rss_mb, passes_ms,\n"
        "with --kernels by_kernel (a list: kernel, name, calls, us, flops, bytes, limit_us).\n"
        "With --decode: prompt, first_token_ms, prompt_tokens_per_s, token_ms (as latency_ms), decode_tokens_per_s, "
        "bytes_per_token\n"
        "(weights and cache), gbps, read_gbps (of memory, in the same run), cache_bytes, counts, tokens.\n"
        "With --estimates: kinds (kind, kernels, measured_us, correlation of logarithms, error (geometric), bias, "
        "worst), kernels\n"
        "(kind, name, estimated_us, measured_us, model).\n\n"
        "Examples:\n"
        "  tilewright bench model.onnx --threads 2 --iterations 100 --json out.json\n"
        "  tilewright bench model.onnx --kernels 20    (the slowest kernels)\n"
        "  tilewright bench decoder.onnx --prompt 128 --decode 32    (tokens a second)\n"
        "  tilewright bench --estimates *.onnx --threads 1    (is the cost model right on this machine?)\n"
        "  tilewright bench model.onnx --target cuda --precision tf32\n"
        "  tilewright bench model.onnx --dim batch=8 --trace trace.json    (open it in Perfetto)");
    c->callback([o, model, &status] {
        if (o->estimates.empty() && model->count() == 0) throw CLI::RequiredError("model");
        status = command_bench(*o);
    });
}

}  // namespace tilewright
