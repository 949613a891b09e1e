// Compiles generated kernels with NVIDIA's assembler; needs NVRTC, and no GPU.
//
//     TILEWRIGHT_TILE_PROGRAMS=build/tiles build/bin/backend_cuda_test
//     build/bin/bench_ptxas build/tiles
//
// Tile programs (texts, FOLDER/*.tile) are generated and compiled for each architecture. The table contains: the number
// of rejected kernels, the number of spilled registers, and estimated against allocated registers. With --candidates N,
// N of MCFuser's candidates for a chain and an attention are compiled with their buffers as static shared memory, whose
// size ptxas reports: it shows how well the estimate of the tree, and that of pruning rule 4 before it, predict which
// candidates fit a block (the paper's Figure 10).

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "bench/gpu/on_threads.h"
#include "cost/gpu_estimate.h"
#include "schedule/chain/chains_test.h"
#include "schedule/chain/realise.h"
#include "schedule/chain/search.h"
#include "schedule/gpu/retarget.h"

namespace tilewright {
namespace {

GpuTarget target_of(int capability) { return capability >= 90 ? h200() : a100(); }

struct Kernel {
    std::string name;
    TileProgram program;
    // Of one architecture:
    bool too_large = false;  ///< its copies fit no block, as reported by generate(, h200())
    std::string refused;     ///< the compiler's message
    cuda::KernelUse use;
    double estimated = 0;  ///< registers
};

std::vector<Kernel> programs_in(const std::string& folder) {
    std::vector<Kernel> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".tile") continue;
        std::ifstream in(entry.path());
        std::ostringstream text;
        text << in.rdbuf();
        out.push_back({entry.path().stem().string(), parse_tile_program(text.str()), false, "", {}, 0});
    }
    std::sort(out.begin(), out.end(), [](const Kernel& a, const Kernel& b) { return a.name < b.name; });
    return out;
}

void compile(const cuda::Nvrtc& nvrtc, Kernel& k, int capability) {
    k.too_large = false;
    k.refused.clear();
    const GpuTarget target = target_of(capability);
    cuda::KernelText text;
    try {
        text = cuda::generate(k.program, target, "kernel");
    } catch (const RuntimeError&) {
        k.too_large = true;
        return;
    }
    k.estimated = gpu_estimate(k.program, target).registers;
    try {
        const auto uses = nvrtc.uses(cuda::device_header() + "\n" + text.text, capability);
        k.use = uses.at("kernel");
    } catch (const RuntimeError& e) {
        k.refused = e.what();
    }
}

bool is_product(const Kernel& k) {
    for (const PrimitiveId s : k.program.stages.primitives.ids())
        if (stage_model(k.program.stages, s, {}).product) return true;
    return false;
}

void table(std::vector<Kernel> kernels, int capability, int threads, bool verbose) {
    const cuda::Nvrtc nvrtc;
    on_threads(kernels.size(), threads, [&](size_t k) { compile(nvrtc, kernels[k], capability); });
    size_t too_large = 0, refused = 0, spilling = 0, on_stack = 0;
    std::vector<double> ratios;
    for (const Kernel& k : kernels) {
        too_large += k.too_large ? 1 : 0;
        refused += k.refused.empty() ? 0 : 1;
        if (!k.refused.empty()) fmt::print("refused {}: {}\n", k.name, k.refused.substr(0, 400));
        if (k.too_large || !k.refused.empty()) continue;
        spilling += k.use.spilled_bytes > 0 ? 1 : 0;
        on_stack += k.use.stack_bytes > 0 ? 1 : 0;
        if (k.use.spilled_bytes > 0 || (verbose && k.use.stack_bytes > 0))
            fmt::print("{} {}: {} registers, {} bytes of stack, {} spilled\n", k.name, k.program.name, k.use.registers,
                       k.use.stack_bytes, k.use.spilled_bytes);
        if (is_product(k)) ratios.push_back(k.estimated / k.use.registers);
        if (verbose && is_product(k))
            fmt::print("{} {}: {} registers, estimated {:.0f}\n", k.name, k.program.name, k.use.registers, k.estimated);
    }
    std::sort(ratios.begin(), ratios.end());
    const auto at = [&](double share) {
        return ratios.empty() ? 0 : ratios[static_cast<size_t>(share * static_cast<double>(ratios.size() - 1))];
    };
    fmt::print("{}: {} kernels, {} too large for a block, {} refused, {} spill, {} use the stack; ",
               architecture_name(capability), kernels.size(), too_large, refused, spilling, on_stack);
    fmt::print("registers of {} products, estimated over given: median {:.2f}, 10 to 90 % {:.2f} to {:.2f}\n",
               ratios.size(), at(0.5), at(0.1), at(0.9));
}

/// Random candidates of a chain's space: ptxas's shared memory, the estimate from the tree, and the earlier estimate of
/// pruning rule 4.
void figure_10(int count, int capability, int threads, bool verbose) {
    const cuda::Nvrtc nvrtc;
    const GpuTarget target = target_of(capability);
    GpuTarget roomy = target;  // no tensor is placed outside of shared memory
    roomy.block_shared_bytes = int64_t{1} << 30;
    const auto limit = static_cast<double>(target.block_shared_bytes);
    std::mt19937_64 rng(5);
    for (const auto& [name, stages] : {std::pair("G4", chain::two_products(512, 512, 256, 256)),
                                       std::pair("S1", chain::attention(8, 512, 512, 64, 64))}) {
        const auto c = chain::make_chain(stages);
        const chain::Space space = chain::make_space(*c);
        const GpuChainBytes rule_4(*c);
        const Target machine = with_gpu(host_target(), target);
        struct Drawn {
            cuda::KernelText text;
            std::string expression;
            double tree = 0, rule_4 = 0, actual = 0;  ///< bytes
        };
        std::vector<Drawn> all;
        for (int tries = 0; static_cast<int>(all.size()) < count && tries < 50 * count; ++tries) {
            chain::Candidate k{space.expressions[rng() % space.expressions.size()], {}};
            for (const auto& sizes : space.sizes) k.tiles.push_back(sizes[rng() % sizes.size()]);
            auto tree = chain::realise(*c, k, machine);
            if (!tree) continue;
            const TileProgram t = for_gpu(std::move(*tree), machine, Precision::F16);
            if (!verify(t).empty()) continue;
            const auto estimate = shared_bytes(t);
            if (!estimate) continue;
            all.push_back({cuda::generate(t, roomy, "kernel"), tiling_expression(t), static_cast<double>(*estimate),
                           rule_4(k), 0});
        }
        on_threads(all.size(), threads, [&](size_t k) {
            const std::vector<std::string> shared = {
                fmt::format("-DTW_SHARED_BYTES={}", std::max<int64_t>(1, all[k].text.shared_bytes))};
            try {
                const auto uses = nvrtc.uses(cuda::device_header() + "\n" + all[k].text.text, capability, shared);
                all[k].actual = static_cast<double>(uses.at("kernel").shared_bytes);
            } catch (const RuntimeError& e) {
                // Static memory has its own limit (48 KiB on sm_80); ptxas reports the required size in its error. Any
                // other error is a bug.
                const auto uses = cuda::parse_uses(e.what());
                if (uses.empty() || uses.begin()->second.shared_bytes == 0) throw;
                all[k].actual = static_cast<double>(uses.begin()->second.shared_bytes);
            }
        });
        int fit = 0, of_tree = 0, of_rule = 0, kept = 0, lost = 0;
        for (const Drawn& k : all) {
            const bool fits = k.actual <= limit, keeps = k.rule_4 <= 1.2 * limit;
            fit += fits ? 1 : 0;
            of_tree += fits == (k.tree <= limit) ? 1 : 0;
            of_rule += fits == keeps ? 1 : 0;
            kept += keeps ? 1 : 0;
            lost += fits && !keeps ? 1 : 0;
            if (verbose)
                fmt::print("{:<60} ptxas {:>8.0f}, tree {:>8.0f}, rule 4 {:>8.0f}\n", k.expression, k.actual, k.tree,
                           k.rule_4);
        }
        const double percent = 100.0 / static_cast<double>(std::max<size_t>(1, all.size()));
        fmt::print(
            "{} on sm_{}, {} KiB: {} candidates, {} fit by ptxas; classified rightly of their tree {} ({:.0f} %), "
            "before by rule 4 with its margin {} ({:.0f} %; {} kept, {} that fit are not)\n",
            name, capability, target.block_shared_bytes >> 10, all.size(), fit, of_tree, of_tree * percent, of_rule,
            of_rule * percent, kept, lost);
    }
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app("generated kernels through ptxas");
    std::string folder;
    std::vector<int> capabilities = {80, 90};
    int threads = 2, candidates = 0;
    bool verbose = false;
    app.add_option("folder", folder, "of tile programs");
    app.add_option("--capability", capabilities, "80, 90");
    app.add_option("--threads", threads, "number of concurrent compilations");
    app.add_option("--candidates", candidates, "of each chain, for rule 4's estimate of shared memory");
    app.add_flag("--verbose", verbose, "print every product's registers, and the kernels that use the stack");
    CLI11_PARSE(app, argc, argv);
    try {
        for (const int capability : capabilities) {
            if (!folder.empty()) table(programs_in(folder), capability, threads, verbose);
            if (candidates > 0) figure_10(candidates, capability, threads, verbose);
        }
    } catch (const std::exception& e) {
        fmt::print(stderr, "error: {}\n", e.what());
        return 1;
    }
    return 0;
}
