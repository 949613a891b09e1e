// Generated kernels on this machine's GPU: products, convolutions, chains of two products (MCFuser's G1 to G12) and
// attentions (S1 to S9), one kernel each.
//
//     bench_gpu gemm:4096x4096x4096 chain:1x512x256x64x64 attention:8x512x512x64x64 --type f16
//
// gemm:MxNxK, conv:IMAGESxCHANNELSxPIXELSxRESULTSxTAPSxSTRIDE (padded by half the taps, NHWC), chain:BxMxNxKxH,
// attention:HEADSxMxNxKxH. A time is that of one launch among many consecutive ones in a CUDA graph, with operands as
// warm as the second-level cache keeps them. Kernels that are small enough to interpret are checked first.
// --compile-only needs no GPU: it generates the kernels, compiles them with NVRTC, and prints ptxas's resource usage.
// --text prints tile programs and kernels.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "backend/cuda/gpu.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "bench/gpu/on_threads.h"
#include "bench/gpu/task.h"
#include "cost/gpu_estimate.h"
#include "cost/gpu_target_file.h"
#include "model/gpu_costs.h"
#include "program/random_program.h"
#include "schedule/scheduler.h"

namespace tilewright {
namespace {

/// `candidates`: number of schedules for products with the default heuristic; otherwise one. `costs`: measures
/// candidates; null: estimates decide.
std::vector<TileProgram> schedules(const Task& t, SchedulerKind kind, const Target& target, Precision precision,
                                   int candidates, const std::shared_ptr<const KernelCosts>& costs) {
    if (candidates > 1 && !t.chain) {
        auto all = gpu_product_schedules(t.stages, target, precision, static_cast<size_t>(candidates));
        if (!all.empty()) return all;
    }
    Scheduling s;
    s.kind = t.chain ? SchedulerKind::Mcfuser : kind;
    s.target = target;
    s.precision = precision;
    s.costs = costs;
    if (!t.chain)
        return {make_schedule(t.stages, IndexVector<PrimitiveId, std::vector<size_t>>(t.stages.primitives.size()), s)};
    auto found = make_chain_schedule(t.stages, s);
    if (!found) throw RuntimeError(fmt::format("{}: no schedule fits one kernel", t.name));
    return {std::move(*found)};
}

/// The loops and register tiles of a product's schedule, on one line.
std::string tiles_of(const TileProgram& p) {
    std::string out;
    std::istringstream lines(print(p));
    for (std::string line; std::getline(lines, line);) {
        const size_t at = line.find_first_not_of(' ');
        if (at == std::string::npos) continue;
        const std::string text = line.substr(at);
        if (text.starts_with("parallel ") || text.starts_with("for ")) out += text.substr(0, text.size() - 1);
        if (text.starts_with("compute 0 ")) out += text.substr(10);
    }
    return out;
}

/// Seconds per launch of consecutive launches in a graph, so that small kernels do not wait for the host.
double time_kernel(const cuda::Gpu& gpu, const cuda::Gpu::Kernel& kernel, const cuda::KernelText& text,
                   const Program& stages, const std::vector<Tensor>& inputs, double budget) {
    std::vector<std::shared_ptr<void>> memory;
    for (const Tensor& t : inputs) {
        memory.push_back(gpu.allocate(t.bytes()));
        gpu.to_device(memory.back().get(), t.data(), t.bytes());
    }
    for (const ValueId v : stages.outputs)
        memory.push_back(gpu.allocate(Tensor(stages.values[v].dtype, evaluate(stages.values[v].shape, {})).bytes()));
    int64_t blocks = 1;
    for (const Expr& g : text.grid) blocks *= evaluate(g, Bindings{});
    if (text.scratch_bytes > 0) memory.push_back(gpu.allocate(static_cast<size_t>(text.scratch_bytes * blocks)));
    if (text.counters) memory.push_back(gpu.allocate_zeros(static_cast<size_t>(text.counter_bytes({}))));
    std::vector<void*> pointers, arguments;
    for (const auto& m : memory) pointers.push_back(m.get());
    for (void*& p : pointers) arguments.push_back(&p);
    constexpr int kTogether = 20;
    const cuda::Gpu::Stream stream = gpu.stream();
    stream.launch(kernel, blocks, arguments);  // loads its code to the device
    stream.synchronize();
    const cuda::Gpu::Graph graph = stream.capture([&] {
        for (int k = 0; k < kTogether; ++k) stream.launch(kernel, blocks, arguments);
    });
    const auto launches = [&](int n) {
        const auto start = std::chrono::steady_clock::now();
        for (int k = 0; k < n; ++k) stream.launch(graph);
        stream.synchronize();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / (n * kTogether);
    };
    const double one = launches(1);
    const int n = std::clamp(static_cast<int>(budget / (one * kTogether) / 5), 1, 1000);
    std::vector<double> seconds;
    for (int k = 0; k < 5; ++k) seconds.push_back(launches(n));
    std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
    return seconds[2];
}

/// A compiled kernel and its checks.
struct Compiled {
    const Task* task = nullptr;
    TileProgram program;
    cuda::KernelText kernel;
    std::string code;
    cuda::KernelUse use;                   ///< where requested
    std::vector<Tensor> inputs, expected;  ///< of checked kernels
};

void run(const std::vector<std::string>& tasks, const std::string& type, SchedulerKind kind, Precision precision,
         bool compile_only, bool show, bool measure, int candidates, double budget) {
    constexpr double kChecked = 4e8;  // limit of operations that are interpreted
    const cuda::Nvrtc nvrtc;
    std::optional<cuda::Gpu> gpu;
    if (!compile_only) gpu.emplace();
    const GpuTarget device = gpu ? with_kept_rates(gpu->target()) : h200();
    const Target target = with_gpu(host_target(), device);
    fmt::print("{:<36}{:>12}{:>12}{:>12}  {}\n", "kernel", "us", "TFLOP/s", "estimate us",
               candidates > 1 ? "difference; schedule" : "difference");
    std::vector<Task> parsed;
    for (const std::string& text : tasks) parsed.push_back(parse_task(text, type));
    // The steps that need no device run on all CPUs.
    const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    std::shared_ptr<const KernelCosts> costs;
    if (gpu && measure) {
        GpuMeasuring how;
        how.threads = threads;
        costs = std::make_shared<const GpuCosts>(*gpu, target, precision, GpuLibraries{}, std::move(how));
    }
    std::vector<std::vector<Compiled>> found(parsed.size());
    on_threads(parsed.size(), threads, [&](size_t k) {
        for (TileProgram& p : schedules(parsed[k], kind, target, precision, candidates, costs)) {
            found[k].emplace_back();
            found[k].back().task = &parsed[k];
            found[k].back().program = std::move(p);
        }
    });
    std::vector<Compiled> all;
    for (std::vector<Compiled>& of_task : found) std::move(of_task.begin(), of_task.end(), std::back_inserter(all));
    on_threads(all.size(), threads, [&](size_t k) {
        Compiled& c = all[k];
        c.kernel = cuda::generate(c.program, device, "kernel");
        if (compile_only)
            c.use = nvrtc.uses(cuda::device_header() + "\n" + c.kernel.text, device.capability()).at("kernel");
        else
            c.code = nvrtc.compile(std::vector<cuda::KernelText>{c.kernel}, device.capability());
        if (compile_only || c.task->flops >= kChecked) return;
        c.inputs = random_inputs(c.program.stages, 1);
        c.expected = interpret(c.program.stages, c.inputs);
    });
    for (const Compiled& c : all) {
        const std::string& text = c.task->name;
        const cuda::KernelText& kernel = c.kernel;
        const double estimate = gpu_estimate(c.program, device).seconds;
        const std::string tiles = candidates > 1 ? "; " + tiles_of(c.program) : "";
        if (show) fmt::print("{}{}", print(c.program), kernel.text);
        if (!gpu) {
            const cuda::KernelUse& use = c.use;
            fmt::print(
                "{:<36}{:>12}{:>12}{:>12.1f}  {} threads, {} registers, {} bytes spilled, {} of shared memory{}\n",
                text, "-", "-", estimate * 1e6, kernel.threads, use.registers, use.spilled_bytes, kernel.shared_bytes,
                tiles);
            continue;
        }
        const cuda::Gpu::Kernel loaded = gpu->load(c.code, kernel);
        const std::vector<Tensor> inputs = c.inputs.empty() ? random_inputs(c.program.stages, 1) : c.inputs;
        std::string difference = "not checked";
        if (!c.expected.empty())
            difference = fmt::format(
                "{:.2g}", largest_difference(c.expected, gpu->run(loaded, kernel, c.program.stages, inputs)));
        const double seconds = time_kernel(*gpu, loaded, kernel, c.program.stages, inputs, budget);
        fmt::print("{:<36}{:>12.1f}{:>12.1f}{:>12.1f}  {}{}\n", text, seconds * 1e6, c.task->flops / seconds * 1e-12,
                   estimate * 1e6, difference, tiles);
        std::fflush(stdout);  // keeps the lines before an abort
    }
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app("kernels on a GPU");
    std::vector<std::string> tasks;
    std::string type = "f16", precision = "f32", scheduler = "auto";
    bool compile_only = false, show = false, measure = false;
    int candidates = 1;
    double budget = 0.1;
    app.add_option("tasks", tasks, "gemm:MxNxK, conv:NxCxHxOxKxS, chain:BxMxNxKxH, attention:HEADSxMxNxKxH")
        ->required();
    app.add_option("--type", type, "type of tensors in memory: f16, bf16 or f32")
        ->check(CLI::IsMember({"f16", "bf16", "f32"}));
    app.add_option("--precision", precision, "precision of products of f32: f32, tf32, f16 or bf16")
        ->check(CLI::IsMember({"f32", "tf32", "f16", "bf16"}));
    app.add_option("--scheduler", scheduler, "scheduler of products: default, tree, gensor or auto")
        ->check(CLI::IsMember({"default", "tree", "gensor", "auto"}));
    app.add_option("--seconds", budget, "measuring time per kernel (0.1)");
    app.add_flag("--compile-only", compile_only, "needs no GPU");
    app.add_option("--candidates", candidates, "number of candidates of products, by estimate");
    app.add_flag("--measure", measure, "choose schedules by measuring candidates (MCFuser's algorithm 1 for chains)");
    app.add_flag("--text", show, "print tile programs and kernels");
    CLI11_PARSE(app, argc, argv);
    try {
        run(tasks, type, *scheduler_from_string(scheduler), *precision_from_string(precision), compile_only, show,
            measure, candidates, budget);
    } catch (const std::exception& e) {
        fmt::print(stderr, "error: {}\n", e.what());
        return 1;
    }
    return 0;
}
