// How good constructed schedules are. For the kernels of a model (one stage each): the default rule, construction along
// a tree, Gensor without and with virtual threads, and the best of many measured states of the same space.
//
//     bench_construct model.onnx --trials 1000
//
// One thread. Candidates are measured in turn, round by round; every one is checked against the default rule's result.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <set>

#include "backend/cpu/kernel.h"
#include "driver/pipeline.h"
#include "graph/import.h"
#include "orchestrate/plan.h"
#include "schedule/construct/walk.h"

namespace tilewright {
namespace {

using construct::Etir;
using construct::Problem;
using construct::Realised;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Operands of a kernel, and what runs it.
class Bench {
  public:
    Bench(const Program& stages, const Bindings& bindings) : stages_(stages), bindings_(bindings) {
        std::mt19937 rng(7);
        for (const ValueId v : stages.inputs) {
            Tensor t(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
            if (t.dtype() == DType::F32)
                for (float& x : t.as_mutable<float>()) x = std::uniform_real_distribution<float>(-1, 1)(rng);
            inputs_.push_back(std::move(t));
        }
        for (const ValueId v : stages.outputs)
            outputs_.emplace_back(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
    }

    void run(const cpu::CompiledKernel& k) {
        std::vector<void*> tensors;
        for (const Tensor& t : inputs_) tensors.push_back(const_cast<void*>(t.data()));
        for (Tensor& t : outputs_) tensors.push_back(t.mutable_data());
        std::vector<int64_t> names;
        for (const Var v : k.names) names.push_back(bindings_.at(v));
        int64_t tasks = 1;
        for (const Expr& g : k.grid) tasks *= evaluate(g, bindings_);
        if (scratch_.size() < static_cast<size_t>(k.scratch_bytes) + 64)
            scratch_.resize(static_cast<size_t>(k.scratch_bytes) + 64);
        auto p = reinterpret_cast<uintptr_t>(scratch_.data());
        p = (p + 63) / 64 * 64;
        k.run(tensors.data(), names.data(), 0, tasks, reinterpret_cast<void*>(p));
    }

    const std::vector<Tensor>& outputs() const { return outputs_; }

  private:
    const Program& stages_;
    const Bindings& bindings_;
    std::vector<Tensor> inputs_, outputs_;
    std::vector<char> scratch_;
};

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : v[v.size() / 2];
}

/// Median seconds of each, measured in turn.
std::vector<double> measure(Bench& bench, const std::vector<const cpu::CompiledKernel*>& kernels, double budget) {
    std::vector<std::vector<double>> times(kernels.size());
    for (const auto* k : kernels) bench.run(*k);
    const double start = now();
    double one = now();
    bench.run(*kernels[0]);
    one = now() - one;
    const int inner = std::max(1, static_cast<int>(2e-4 / std::max(one, 1e-9)));
    do {
        for (size_t i = 0; i < kernels.size(); ++i) {
            bench.run(*kernels[i]);
            const double t = now();
            for (int k = 0; k < inner; ++k) bench.run(*kernels[i]);
            times[i].push_back((now() - t) / inner);
        }
    } while (now() - start < budget || times[0].size() < 3);
    std::vector<double> out;
    for (auto& t : times) out.push_back(median(std::move(t)));
    return out;
}

std::string text_of(const Realised& r) {
    std::string s;
    for (size_t l = construct::kLevels; l-- > 0;)
        s += fmt::format("{}[{}]", l == 2 ? "" : " ", fmt::join(r.state.tiles[l], " "));
    return s;
}

struct Totals {
    std::vector<double> log_ratio = std::vector<double>(5, 0);
    int kernels = 0;
};

void compare(const TileProgram& kernel, const ScheduleTarget& rule, const Machine& machine, const Bindings& bindings,
             int trials, double budget, bool verbose, Totals& totals) {
    Program stages = kernel.stages;
    const double t0 = now();
    const Problem p = construct::make_problem(stages, rule, machine, bindings);
    const auto tree = construct::construct_tree(p);
    const double t1 = now();
    construct::WalkOptions no_threads;
    no_threads.virtual_threads = false;
    const auto plain = construct::construct(p, no_threads);
    const double t2 = now();
    const auto full = construct::construct(p);
    const double t3 = now();

    std::vector<TileProgram> programs{kernel, construct::to_tile_program(stages, p, tree.top[0]),
                                      construct::to_tile_program(stages, p, plain.top[0]),
                                      construct::to_tile_program(stages, p, full.top[0])};
    std::vector<Realised> states{{}, tree.top[0], plain.top[0], full.top[0]};
    std::mt19937_64 rng(11);
    std::set<std::vector<std::vector<int64_t>>> seen;
    for (int k = 0; k < trials; ++k) {
        Realised r = construct::realise(p, construct::random_state(p, rng));
        if (!seen.insert(r.state.tiles).second) continue;
        programs.push_back(construct::to_tile_program(stages, p, r));
        states.push_back(std::move(r));
    }
    Bench bench(stages, bindings);
    // In batches: each against the default rule's kernel, which all batches share.
    std::vector<double> ratio(programs.size(), 0);
    double base_seconds = 0;
    const cpu::CompiledKernel base = cpu::compile(programs[0]);
    bench.run(base);
    std::vector<Tensor> want;
    for (const Tensor& t : bench.outputs()) {
        want.emplace_back(t.dtype(), t.shape());
        std::memcpy(want.back().mutable_data(), t.data(), t.bytes());
    }
    for (size_t from = 1; from < programs.size();) {
        const size_t to = std::min(programs.size(), from == 1 ? size_t{4} : from + 16);
        std::vector<const TileProgram*> batch;
        for (size_t i = from; i < to; ++i) batch.push_back(&programs[i]);
        const auto compiled = cpu::compile(batch);
        std::vector<const cpu::CompiledKernel*> kernels{&base};
        for (const auto& k : compiled) {
            kernels.push_back(&k);
            bench.run(k);
            for (size_t o = 0; o < want.size(); ++o) {
                if (want[o].dtype() != DType::F32) continue;
                double worst = 0;
                for (int64_t i = 0; i < want[o].count(); ++i)
                    worst = std::max(
                        worst, static_cast<double>(std::abs(want[o].as<float>()[static_cast<size_t>(i)] -
                                                            bench.outputs()[o].as<float>()[static_cast<size_t>(i)])));
                if (!(worst < 1e-2)) fmt::print("WRONG by {}: {}\n", worst, text_of(states[from + kernels.size() - 2]));
            }
        }
        const auto times = measure(bench, kernels, budget);
        if (from == 1) base_seconds = times[0];
        for (size_t i = from; i < to; ++i) ratio[i] = times[0] / times[i - from + 1];
        from = to;
    }
    ratio[0] = 1;
    size_t best = 0;
    for (size_t i = 1; i < ratio.size(); ++i)
        if (ratio[i] > ratio[best]) best = i;
    const double flops = p.stage.flops();
    fmt::print(
        "{:7.3f} ms {:6.1f} GFLOP/s  tree {:5.2f} ({:.1f} ms)  gensor-v {:5.2f} ({:.1f} ms)  gensor {:5.2f} ({:.1f} "
        "ms, {} states)  best {:5.2f}  {}\n",
        base_seconds * 1e3, flops / base_seconds * 1e-9, ratio[1], (t1 - t0) * 1e3, ratio[2], (t2 - t1) * 1e3, ratio[3],
        (t3 - t2) * 1e3, full.states, ratio[best], kernel.name.substr(0, 50));
    if (verbose) {
        const Estimate e = estimate(kernel, machine, bindings);
        fmt::print("    extents {}; default: measured {:.3f} ms, model {:.3f} (compute {:.3f}, memory {:.3f})\n",
                   fmt::join(p.stage.extents, " "), base_seconds * 1e3, e.seconds * 1e3, e.compute_seconds * 1e3,
                   e.memory_seconds * 1e3);
        for (const size_t i : {size_t{1}, size_t{3}, best})
            if (i > 0)
                fmt::print("    {:28} measured {:.3f} ms, model {:.3f} (compute {:.3f}, memory {:.3f}) order {}\n",
                           text_of(states[i]), base_seconds / ratio[i] * 1e3, states[i].seconds * 1e3,
                           states[i].cost.compute_cycles / machine.ghz * 1e-6,
                           states[i].cost.memory_cycles / machine.ghz * 1e-6, fmt::join(states[i].micro.order, ""));
        double mx = 0, my = 0, n = 0, xx = 0, yy = 0, xy = 0;
        for (size_t i = 4; i < ratio.size(); ++i) {
            mx += std::log(states[i].seconds);
            my += std::log(1 / ratio[i]);
            ++n;
        }
        if (n > 2) {
            mx /= n;
            my /= n;
            for (size_t i = 4; i < ratio.size(); ++i) {
                const double x = std::log(states[i].seconds) - mx, y = std::log(1 / ratio[i]) - my;
                xx += x * x;
                yy += y * y;
                xy += x * y;
            }
            fmt::print("    correlation of model and measurement over {} states: {:.3f}\n", n, xy / std::sqrt(xx * yy));
        }
    }
    std::fflush(stdout);
    for (size_t i = 0; i < 4; ++i) totals.log_ratio[i] += std::log(ratio[i]);
    totals.log_ratio[4] += std::log(ratio[best]);
    ++totals.kernels;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app{
        "Constructed schedules of a model's kernels against the default rule and against measured search\n"
        "  bench_construct model.onnx --trials 200 --most 10"};
    std::vector<std::string> models;
    std::vector<std::string> dims;
    int trials = 0, most = 10;
    double budget = 0.1;
    bool verbose = false;
    app.add_option("models", models, "ONNX models")->required();
    app.add_option("--dim", dims, "name=size for open dimensions");
    app.add_option("--trials", trials, "measured random states for each kernel");
    app.add_option("--most", most, "kernels of a model, those with most operations");
    app.add_option("--seconds", budget, "for each batch of candidates");
    app.add_flag("-v,--verbose", verbose, "tiles and the model's view of them");
    CLI11_PARSE(app, argc, argv);
    try {
        const Target target = current_target();
        const Machine machine(target, 1);
        ScheduleTarget rule;
        rule.lanes = machine.lanes;
        rule.vector_registers = target.vector_registers;
        rule.l2_bytes = target.caches.size() > 1 ? target.caches[1].bytes : 1 << 20;
        Totals totals;
        for (const std::string& path : models) {
            PipelineOptions options;
            for (const std::string& d : dims) {
                const size_t eq = d.find('=');
                options.compile.dims[d.substr(0, eq)] = std::stoll(d.substr(eq + 1));
            }
            const Program program = make_program(load_model(path), options);
            KernelSet set;
            OrchestrateOptions how;
            how.target = rule;
            orchestrate(program, set, how);
            std::vector<std::pair<double, const TileProgram*>> kernels;
            for (const TileProgram& k : set.kernels()) {
                if (k.stages.primitives.size() != 1) continue;
                bool open = false;
                for (const TileAxis& a : k.axes) open = open || !a.extent.is_constant();
                if (open) continue;
                kernels.emplace_back(-stage_model(k.stages, PrimitiveId(0)).flops(), &k);
            }
            std::stable_sort(kernels.begin(), kernels.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; });
            fmt::print("{}\n", path);
            for (size_t i = 0; i < kernels.size() && i < static_cast<size_t>(most); ++i)
                compare(*kernels[i].second, rule, machine, {}, trials, budget, verbose, totals);
        }
        if (totals.kernels > 0) {
            fmt::print("geometric means over {} kernels, default = 1:", totals.kernels);
            const char* names[] = {"default", "tree", "gensor without virtual threads", "gensor", "best measured"};
            for (size_t i = 1; i < 5; ++i)
                fmt::print("  {} {:.3f}", names[i], std::exp(totals.log_ratio[i] / totals.kernels));
            fmt::print("\n");
        }
    } catch (const std::exception& e) {
        fmt::print(stderr, "bench_construct: {}\n", e.what());
        return 1;
    }
    return 0;
}
