// What the machine code of generated kernels shows without a GPU: NVRTC compiles them, nvdisasm lists their
// instructions, and those of loops and epilogues are counted. Budgets hold the figures.
//
//     bench_sass                      # one line for kernels of a kind and precision: the worst of them
//     bench_sass --all --verbose      # of all kernels in place of a part, and one for every kernel
//     bench_sass --check              # exit status 1 where a budget is exceeded, 77 where NVRTC or nvdisasm is missing
//     bench_sass gemm:4096x4096x4096 --precision f16 --text
//
// An instruction is an issue slot of a warp. Figures of a kernel:
//
//     slots a score   instructions of the loop over keys, for each score of a thread (attentions on warpgroups)
//     least           those of the shortest way through it: a warp begins no copies, and none of its maxima changes
//     others          instructions of the main loop that are no HGMMA, for the work of one HGMMA 64x256x16
//     epilogue        instructions behind the main loop and all products, for each result of a thread
//     local           LDL and STL, anywhere
//     KiB             of the main loop's code
//
// The main loop is the natural loop with most matrix instructions; loops inside it (waiting for an mbarrier, copies by
// threads) count once. Where all steps are one, it is what stands between the first and the last matrix instruction.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "backend/cuda/machine_code.h"
#include "backend/cuda/sass.h"
#include "base/error.h"
#include "bench/gpu/on_threads.h"
#include "bench/gpu/task.h"
#include "schedule/scheduler.h"

namespace tilewright {
namespace {

/// Figures of one kernel; negative: it has none.
struct Figures {
    double slots = -1, least = -1, others = -1, epilogue = -1;
    int local = 0;
    double kibibytes = -1;
};

struct Case {
    std::string kind, name, precision;
    Task task;
    cuda::KernelText text;
    Figures figures;
};

/// Shapes of ResNet-50 at 224 pixels, with their results, taps and strides.
const char* const kConvolutions[] = {
    "conv:1x3x224x64x7x2",     "conv:1x64x56x64x1x1",    "conv:1x64x56x64x3x1",    "conv:1x64x56x256x1x1",
    "conv:1x256x56x64x1x1",    "conv:1x256x56x128x1x1",  "conv:1x128x56x128x3x2",  "conv:1x128x28x512x1x1",
    "conv:1x256x56x512x1x2",   "conv:1x512x28x128x1x1",  "conv:1x128x28x128x3x1",  "conv:1x512x28x256x1x1",
    "conv:1x256x28x256x3x2",   "conv:1x256x14x1024x1x1", "conv:1x512x28x1024x1x2", "conv:1x1024x14x256x1x1",
    "conv:1x256x14x256x3x1",   "conv:1x1024x14x512x1x1", "conv:1x512x14x512x3x2",  "conv:1x512x7x2048x1x1",
    "conv:1x1024x14x2048x1x2", "conv:1x2048x7x512x1x1",  "conv:1x512x7x512x3x1"};
const char* const kProducts[] = {"gemm:1024x1024x1024", "gemm:2048x2048x2048", "gemm:4096x4096x4096",
                                 "gemm:8192x8192x8192"};
/// S1 to S9 of MCFuser's table, and a long one.
const char* const kAttentions[] = {"attention:8x512x512x64x64",  "attention:12x512x512x64x64",
                                   "attention:16x512x512x64x64", "attention:12x256x256x64x64",
                                   "attention:16x256x256x64x64", "attention:16x256x256x80x80",
                                   "attention:1x512x256x64x64",  "attention:1x768x384x64x64",
                                   "attention:1x1024x512x64x64", "attention:16x4096x4096x64x64"};
/// G1 to G12 of it.
const char* const kChains[] = {"chain:1x512x256x64x64",     "chain:1x512x256x64x128",    "chain:1x512x256x64x256",
                               "chain:1x512x512x256x256",   "chain:1x512x512x512x256",   "chain:1x512x512x1024x256",
                               "chain:1x512x512x128x128",   "chain:1x1024x512x128x128",  "chain:1x2048x512x128x128",
                               "chain:1x1024x1024x128x128", "chain:4x1024x1024x128x128", "chain:8x1024x1024x128x128"};

/// `all`: of every list all; otherwise a part that takes half a minute. (bf16 has the instructions of f16.)
std::vector<Case> chosen_cases(bool all) {
    std::vector<Case> out;
    const auto add = [&](const char* kind, const auto& names, const char* precision, size_t each) {
        for (size_t i = 0; i < std::size(names); i += all ? 1 : each)
            out.push_back({kind, names[i], precision, {}, {}, {}});
    };
    const struct {
        const char* precision;
        size_t attentions, products, convolutions, chains;  ///< one of so many
    } parts[] = {{"f16", 1, 1, 3, 2}, {"bf16", 5, 2, 12, 12}, {"tf32", 3, 2, 5, 4}, {"f32", 5, 2, 8, 6}};
    for (const auto& p : parts) {
        add("attentions", kAttentions, p.precision, p.attentions);
        add("products", kProducts, p.precision, p.products);
        add("convolutions", kConvolutions, p.precision, p.convolutions);
        add("chains", kChains, p.precision, p.chains);
    }
    return out;
}

cuda::KernelText kernel_of(const Case& c) {
    Scheduling s;
    s.kind = c.task.chain ? SchedulerKind::Mcfuser : SchedulerKind::Auto;
    s.target = with_gpu(generic_target(VectorIsa::avx512), h200());
    s.precision = *precision_from_string(c.precision);
    const Program& stages = c.task.stages;
    auto found = c.task.chain ? make_chain_schedule(stages, s) : std::nullopt;
    if (c.task.chain && !found) return {};  // parts of the chain are kernels
    if (!found)
        found = make_schedule(stages, IndexVector<PrimitiveId, std::vector<size_t>>(stages.primitives.size()), s);
    return cuda::generate(*found, *s.target.gpu, "kernel");
}

/// The listing of a cubin. Throws RuntimeError where nvdisasm fails.
std::string disassembled(const std::string& code, const std::string& nvdisasm) {
    char path[] = "/tmp/tilewright-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) throw RuntimeError("cannot create a temporary file");
    std::ofstream(path, std::ios::binary) << code;
    std::string listing;
    FILE* out = popen(fmt::format("'{}' -c {} 2>&1", nvdisasm, path).c_str(), "r");
    char buffer[1 << 16];
    for (size_t n; out != nullptr && (n = fread(buffer, 1, sizeof buffer, out)) > 0;) listing.append(buffer, n);
    const int status = out == nullptr ? -1 : pclose(out);
    close(file);
    std::remove(path);
    if (status != 0) throw RuntimeError(fmt::format("{} fails: {}", nvdisasm, listing.substr(0, 500)));
    return listing;
}

constexpr double kInstructionBytes = 16;

bool multiplies(const cuda::SassInstruction& i) { return i.is("HGMMA") || i.is("HMMA"); }

/// "HGMMA.64x128x16.F32" as a part of one of 64x256x16. (tf32's has half of the sum at half of the rate.)
double part_of_group(const cuda::SassInstruction& i) {
    int rows = 0, columns = 0;
    if (std::sscanf(i.opcode.c_str(), "HGMMA.%dx%d", &rows, &columns) != 2) return 0;
    return columns / 256.0;
}

/// The instructions of the main loop.
std::vector<size_t> main_loop(const cuda::SassKernel& k) {
    std::vector<size_t> best;
    std::ptrdiff_t most = 0;
    for (const cuda::SassLoop& loop : cuda::sass_loops(k)) {
        const auto count = std::count_if(loop.instructions.begin(), loop.instructions.end(),
                                         [&](size_t i) { return multiplies(k.instructions[i]); });
        if (count < most || count == 0) continue;  // of several with the same, the innermost
        most = count;
        best = loop.instructions;
    }
    if (!best.empty()) return best;
    for (size_t i = 0; i < k.instructions.size(); ++i)
        if (multiplies(k.instructions[i]))
            for (size_t from = best.empty() ? i : best.back() + 1; from <= i; ++from) best.push_back(from);
    return best;
}

Figures figures_of(const Case& c, const cuda::SassKernel& k) {
    Figures f;
    const auto count = [&](const std::vector<size_t>& in, const char* opcode) {
        return std::count_if(in.begin(), in.end(), [&](size_t i) { return k.instructions[i].is(opcode); });
    };
    std::vector<size_t> all(k.instructions.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    f.local = static_cast<int>(count(all, "LDL") + count(all, "STL"));
    const std::vector<size_t> loop = main_loop(k);
    const auto groups = count(loop, "HGMMA");
    if (groups == 0) return f;
    const auto slots = static_cast<double>(loop.size());
    f.kibibytes = slots * kInstructionBytes / 1024;
    double work = 0;
    for (const size_t i : loop) work += part_of_group(k.instructions[i]);
    // Scores are packed in pairs for the second product: once, or for each part of its columns. Of each there is one
    // exponential, and few of corrections besides.
    if (const double packed = 2.0 * static_cast<double>(count(loop, "F2FP")); c.kind == "attentions" && packed > 0) {
        const double exponentials = static_cast<double>(count(loop, "MUFU.EX2"));
        const double scores = packed / std::max(1.0, std::round(packed / exponentials));
        f.slots = slots / scores;
        std::vector<size_t> products;
        std::copy_if(loop.begin(), loop.end(), std::back_inserter(products),
                     [&](size_t i) { return multiplies(k.instructions[i]); });
        f.least = static_cast<double>(cuda::shortest_way(k, loop, products)) / scores;
    } else if (c.kind == "products" || c.kind == "convolutions") {
        f.others = (slots - static_cast<double>(groups)) / work;
    }
    // Behind the loop, up to the kernel's end: blocks that stand behind that belong to the loop, or are functions.
    int64_t blocks = 1;
    for (const Expr& g : c.text.grid) blocks *= evaluate(g, Bindings{});
    const ValueId result = c.task.stages.outputs[0];
    int64_t results = 1;
    for (const Expr& e : c.task.stages.values[result].shape) results *= evaluate(e, Bindings{});
    size_t end = 0, begin = 0;
    for (size_t i = 0; i < k.instructions.size() && end == 0; ++i)
        if (k.instructions[i].is("EXIT") && k.instructions[i].predicate.empty()) end = i;
    for (const size_t i : loop)
        if (i < end) begin = i + 1;
    // A product that stands behind the loop is no part of the epilogue.
    for (size_t i = begin; i < end; ++i)
        if (multiplies(k.instructions[i])) begin = i + 1;
    f.epilogue = static_cast<double>((end - begin) * static_cast<size_t>(c.text.threads * blocks)) /
                 static_cast<double>(results);
    return f;
}

/// What figures of a kernel, or of all of a kind that have no line of their own, may not exceed; negative: no budget.
/// bf16 has those of f16.
/// Eight slots a score, 20 others, two instructions a number and no local memory are the aim. Budgets are what was
/// reached; docs/gpu.md has the reasons where that is more.
struct Budget {
    const char *kernels, *precision;
    Figures most;
};
constexpr double kLoopKibibytes = 64;  ///< half of an SM's cache of instructions
const Budget kBudgets[] = {
    // 256 keys a step, or all
    {"attention:8x512x512x64x64", "f16", {5.6, 5.6, -1, 2.1, 0}},
    {"attention:12x256x256x64x64", "f16", {5.6, 5.6, -1, 2.1, 0}},
    {"attention:16x256x256x64x64", "f16", {5.6, 5.6, -1, 2.1, 0}},
    {"attention:1x512x256x64x64", "f16", {5.6, 5.6, -1, 2.1, 0}},
    {"attentions", "f16", {6.9, 6.3, -1, 2.2, 0}},
    {"attentions", "tf32", {-1, -1, -1, 1.9, 0}},
    {"products", "f16", {-1, -1, 18.1, 1.2, 0}},
    {"products", "tf32", {-1, -1, 18.8, 1.5, 0}},
    {"chains", "f16", {-1, -1, -1, 1.1, 0}},
    {"chains", "tf32", {-1, -1, -1, 1.4, 0}},
};
Figures budget(const Case& c) {
    const std::string precision = c.precision == "bf16" ? "f16" : c.precision;
    for (const std::string& name : {c.name, c.kind})
        for (const Budget& b : kBudgets)
            if (b.kernels == name && b.precision == precision) {
                Figures most = b.most;
                most.kibibytes = kLoopKibibytes;
                return most;
            }
    return {-1, -1, -1, -1, 0, kLoopKibibytes};
}

/// As it is printed; "!" behind what exceeds its budget.
std::string shown(double figure, double most) {
    if (figure < 0) return "-";
    return fmt::format("{:.1f}{}", figure, most >= 0 && figure > most + 0.05 ? " !" : "");
}

std::string line(const std::string& name, const std::string& precision, const std::string& count, const Figures& f,
                 const Figures& most = {-1, -1, -1, -1, 1 << 30, -1}) {
    return fmt::format("| {:<28} | {:<4} | {:>8} | {:>6} | {:>6} | {:>6} | {:>8} | {:>6} | {:>6} |\n", name, precision,
                       count, shown(f.slots, most.slots), shown(f.least, most.least), shown(f.others, most.others),
                       shown(f.epilogue, most.epilogue), shown(f.local, most.local),
                       shown(f.kibibytes, most.kibibytes));
}

/// Compiles the cases, and counts.
void measure(std::vector<Case>& cases, const cuda::Nvrtc& nvrtc, const std::string& nvdisasm, bool show) {
    const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    on_threads(cases.size(), threads, [&](size_t i) {
        Case& c = cases[i];
        c.task = parse_task(c.name, c.precision == "f16" || c.precision == "bf16" ? c.precision : "f32");
        c.text = kernel_of(c);
        if (c.text.text.empty()) return;
        const std::string listing =
            disassembled(nvrtc.compile(std::vector<cuda::KernelText>{c.text}, h200().capability()), nvdisasm);
        if (show) fmt::print("{}{}", c.text.text, listing);
        for (const cuda::SassKernel& k : cuda::parse_sass(listing)) c.figures = figures_of(c, k);
    });
}

/// The table; whether all figures are inside of their budgets. Kernels outside of theirs always have a line.
bool table(const std::vector<Case>& cases, bool verbose) {
    fmt::print("| {:<28} | {:<4} | {:>8} | {:>6} | {:>6} | {:>6} | {:>8} | {:>6} | {:>6} |\n", "kernels", "",
               "on WGMMA", "slots", "least", "others", "epilogue", "local", "KiB");
    fmt::print("|---|---|---|---|---|---|---|---|---|\n");
    bool inside = true;
    std::vector<std::pair<std::string, std::string>> groups;
    for (const Case& c : cases)
        if (const std::pair key(c.kind, c.precision); std::find(groups.begin(), groups.end(), key) == groups.end())
            groups.push_back(key);
    for (const auto& [kind, precision] : groups) {
        Figures worst;
        int count = 0, on_groups = 0;
        for (const Case& c : cases) {
            if (c.kind != kind || c.precision != precision || c.text.text.empty()) continue;
            ++count;
            on_groups += c.figures.epilogue >= 0 ? 1 : 0;
            worst.slots = std::max(worst.slots, c.figures.slots);
            worst.least = std::max(worst.least, c.figures.least);
            worst.others = std::max(worst.others, c.figures.others);
            worst.epilogue = std::max(worst.epilogue, c.figures.epilogue);
            worst.local = std::max(worst.local, c.figures.local);
            worst.kibibytes = std::max(worst.kibibytes, c.figures.kibibytes);
            const std::string own =
                line(c.name, precision, c.figures.epilogue >= 0 ? "yes" : "no", c.figures, budget(c));
            const bool exceeds = own.find('!') != std::string::npos;
            if (verbose || exceeds) fmt::print("{}", own);
            inside = inside && !exceeds;
        }
        fmt::print("{}", line(kind, precision, fmt::format("{}/{}", on_groups, count), worst));
    }
    return inside;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app("budgets of the machine code of kernels for GPUs");
    std::vector<std::string> tasks;
    std::string precision = "f16";
    // Empty where they were not there when this was built.
    std::string nvrtc = TW_NVRTC, nvdisasm = TW_NVDISASM;  // NOLINT(readability-redundant-string-init)
    bool check = false, all = false, verbose = false, text = false;
    app.add_option("tasks", tasks, "gemm:MxNxK, conv:NxCxHxOxKxS, chain:BxMxNxKxH, attention:HEADSxMxNxKxH; all");
    app.add_option("--precision", precision, "of these: f32, tf32, f16 or bf16")
        ->check(CLI::IsMember({"f32", "tf32", "f16", "bf16"}));
    app.add_option("--nvrtc", nvrtc, "NVIDIA's compiler, a library");
    app.add_option("--nvdisasm", nvdisasm, "NVIDIA's disassembler, a program");
    app.add_flag("--check", check, "compare with budgets");
    app.add_flag("--all", all, "every kernel of the lists (several minutes)");
    app.add_flag("--verbose", verbose, "a line for every kernel");
    app.add_flag("--text", text, "print kernels and their instructions");
    CLI11_PARSE(app, argc, argv);
    if (check && (nvrtc.empty() || nvdisasm.empty())) {
        fmt::print("no NVRTC or no nvdisasm: scripts/gpu_tools.sh has not installed them\n");
        return 77;
    }
    try {
        std::vector<Case> cases;
        for (const std::string& t : tasks) {
            const bool product = t.starts_with("gemm");
            const char* kind = product                  ? "products"
                               : t.starts_with("conv")  ? "convolutions"
                               : t.starts_with("chain") ? "chains"
                                                        : "attentions";
            cases.push_back({kind, t, precision, {}, {}, {}});
        }
        if (cases.empty()) cases = chosen_cases(all);
        measure(cases, cuda::Nvrtc({nvrtc}), nvdisasm, text);
        const bool inside = table(cases, verbose || !tasks.empty());
        if (check && !inside) fmt::print("figures marked ! exceed their budgets (kBudgets in bench/gpu/sass.cpp)\n");
        return check && !inside ? 1 : 0;
    } catch (const std::exception& e) {
        fmt::print(stderr, "error: {}\n", e.what());
        return 1;
    }
}
