#include "driver/commands/common.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <set>
#include <thread>

#include "backend/cpu/onednn.h"
#include "base/clock.h"
#include "base/error.h"
#include "compile/limits.h"
#include "cost/target.h"
#include "driver/files.h"
#include "runtime/thread_count.h"

namespace tilewright {

// --- options

namespace {

struct SchedulerName {
    SchedulerKind kind;
    const char* help;
};
constexpr SchedulerName kSchedulers[] = {
    {SchedulerKind::Default, "default heuristic: tiles from the shapes alone"},
    {SchedulerKind::Tree, "construction along a tree: one objective, no backtracking"},
    {SchedulerKind::Gensor, "construction by a Markov walk over the tiles of every level"},
    {SchedulerKind::GensorPlain, "gensor without virtual threads"},
    {SchedulerKind::GensorPublished, "the walk alone, as in the paper: no seed, no hill climb"},
    {SchedulerKind::GensorPublishedPlain, "the same without virtual threads"},
    {SchedulerKind::Mcfuser, "GEMM chains as one kernel, all else by the default heuristic"},
    {SchedulerKind::Search,
     "the best of --trials measured states of gensor's space, of mcfuser's for chains, then of its annotations"},
    {SchedulerKind::DietCode,
     "kernels of dynamic sizes: the best of --trials measured micro-kernels for all samples together; others: search"},
    {SchedulerKind::Auto, "for each kernel the scheduler with the best estimate"},
};

/// By ALT's names.
constexpr std::pair<std::string_view, joint::Ablation> kLayoutAblations[] = {
    {"ol", joint::Ablation::LoopsOnly},
    {"wp", joint::Ablation::WithoutPropagation},
    {"fp", joint::Ablation::ForwardOnly},
    {"bp", joint::Ablation::BackwardOnly},
};

constexpr std::pair<std::string_view, chain::Ablation> kChainAblations[] = {
    {"deep", chain::Ablation::DeepOnly},
    {"unhoisted", chain::Ablation::Unhoisted},
    {"chimera", chain::Ablation::Chimera},
};

}  // namespace

void SchedulerOptions::apply(CompileOptions& o) const {
    o.scheduler = scheduler_from_string(scheduler).value();
    o.orchestrator = orchestrator_from_string(orchestrate).value();
    o.layouts = layouts != "none";
    if (layouts == "joint" || layouts == "ppo") {
        o.joint.emplace();
        constexpr double kSeconds = 10, kAnyTime = 1e6;  // the trials limit the published search
        const double seconds = layout_seconds.value_or(layouts == "ppo" ? kAnyTime : kSeconds);
        o.joint->measure = seconds > 0 && !tuned;
        o.joint->measure_seconds = seconds;
    }
    if (o.joint) {
        o.joint->search.levels = layout_levels;
        for (const auto& [name, ablation] : kLayoutAblations)
            if (layout_ablation == name) o.joint->without = ablation;
    }
    if (layouts == "ppo") {
        joint::PpoOptions& ppo = o.joint->ppo.emplace();
        const size_t paper = ppo.joint + ppo.loops;
        ppo.joint = std::max<size_t>(1, static_cast<size_t>(layout_trials) * ppo.joint / paper);
        ppo.loops = static_cast<size_t>(layout_trials) - ppo.joint;
    }
    if (tuned && (measure || searches(o.scheduler)))
        throw CLI::ValidationError("--tuned", "it measures nothing: leave out --measure and --scheduler search");
    if (tuned && o.orchestrator == Orchestrator::Optimal)
        throw CLI::ValidationError("--tuned", "plans of greedy orchestration are tuned: leave out --orchestrate");
    o.tuned = tuned;
    o.measure = measure;
    o.measure_seconds = measure_seconds;
    if (!profile.empty() && o.orchestrator != Orchestrator::Optimal)
        throw CLI::ValidationError("--profile", "needs optimal orchestration: give --orchestrate optimal");
    const Profile wanted = measure ? Profile::Lazy : Profile::None;
    o.optimal.profile = profile.empty() ? wanted : profile_from_string(profile).value();
    o.optimal.piece_nodes = piece_nodes;
    o.optimal.kernel_nodes = kernel_nodes;
    o.optimal.most_sets = most_sets;
    o.optimal.most_outputs = most_outputs;
    o.optimal.seconds = blp_seconds;
    o.optimal.published_form = blp == "published";
    o.optimal.compare_forms = blp == "both";
    o.provider = provider(o.optimal.profile != Profile::None && o.orchestrator == Orchestrator::Optimal);
    o.database = database;
    o.trials = trials;
    o.all_chains = all_chains;
    for (const auto& [name, ablation] : kChainAblations)
        if (chain_ablation == name) o.chains_without = ablation;
    o.joint_search.published = joint_search == "published";
}

std::shared_ptr<const cpu::KernelProvider> SchedulerOptions::provider(bool measured) const {
    constexpr std::string_view kOneDnn = "onednn", kPath = "onednn=";
    if (!measured) {
        if (!libraries.empty() && libraries != "none")
            throw CLI::ValidationError("--libraries",
                                       "libraries are only used if kernels are measured: give --orchestrate "
                                       "optimal and --profile lazy or full");
        return nullptr;
    }
    if (libraries == "none") return nullptr;
    if (libraries.empty()) try {
            return std::make_shared<const cpu::OneDnn>();
        } catch (const RuntimeError&) {  // default library, not requested explicitly
            return nullptr;
        }
    if (libraries == kOneDnn) return std::make_shared<const cpu::OneDnn>();
    if (!libraries.starts_with(kPath))
        throw CLI::ValidationError("--libraries", "'" + libraries + "' is not none, onednn or onednn=FILE");
    return std::make_shared<const cpu::OneDnn>(std::vector<std::string>{libraries.substr(kPath.size())});
}

void add_orchestrate_option(CLI::App& command, std::string& orchestrate) {
    command
        .add_option("--orchestrate", orchestrate,
                    "which primitives share a kernel: greedy, or optimal by a binary program (" + orchestrate + ")")
        ->check(CLI::IsMember({"greedy", "optimal"}));
}

namespace {

void add_search_options(CLI::App& command, SchedulerOptions& o) {
    command.add_option("--trials", o.trials, "candidates of --scheduler search or dietcode for each kernel (1000)")
        ->check(CLI::Range(1, 1000000));
    command
        .add_option("--joint-search", o.joint_search,
                    "of --scheduler dietcode: relative to estimates and to the fastest known, measuring only what can "
                    "change the choice; or as published (relative)")
        ->check(CLI::IsMember({"relative", "published"}));
    command.add_flag(
        "--all-chains", o.all_chains,
        "with greedy orchestration: every GEMM chain that has a schedule becomes one kernel, whether or not "
        "it is estimated to gain");
    command
        .add_option("--chain-ablation", o.chain_ablation,
                    "GEMM chains without a part of MCFuser, on a CPU: deep (no flat tiling expressions), unhoisted "
                    "(copies of operands stay in their own loops), or chimera (both)")
        ->check(CLI::IsMember({"deep", "unhoisted", "chimera"}));
}

void add_layout_options(CLI::App& command, SchedulerOptions& o) {
    command
        .add_option(
            "--layouts", o.layouts,
            "tensors' layouts: none (row-major), rule (the default heuristic), joint (tuned together with loops, "
            "which measures kernels; ALT), or ppo (the same by ALT's reinforcement learning: minutes a kernel) (" +
                o.layouts + ")")
        ->check(CLI::IsMember({"none", "rule", "joint", "ppo"}));
    command
        .add_option("--layout-seconds", o.layout_seconds,
                    "time for measuring kernels with --layouts joint (10) or ppo (no limit); 0: estimates only")
        ->check(CLI::Range(0.0, 1e6));
    command
        .add_option("--layout-trials", o.layout_trials,
                    fmt::format("schedules that --layouts ppo measures for each contraction ({}), three in ten of them "
                                "while layouts change",
                                o.layout_trials))
        ->check(CLI::Range(1, 1000000));
    command
        .add_option("--layout-levels", o.layout_levels,
                    "levels of tiles in the layouts of --layouts joint and ppo (1); with 2 tiles consist of tiles")
        ->check(CLI::Range(1, 2));
    command
        .add_option(
            "--layout-ablation", o.layout_ablation,
            "a variant of ALT for --layouts joint and ppo: ol (loops only), wp (no propagation), fp or bp (a tensor "
            "between two contractions has the layout of the first or of the second one)")
        ->check(CLI::IsMember({"ol", "wp", "fp", "bp"}));
}

}  // namespace

void add_scheduler_options(CLI::App& command, SchedulerOptions& o) {
    std::vector<std::string> names;
    for (const SchedulerName& s : kSchedulers) names.emplace_back(to_string(s.kind));
    command.add_option("--scheduler", o.scheduler, "the kernel scheduler (" + o.scheduler + ")")
        ->check(CLI::IsMember(names));
    add_orchestrate_option(command, o.orchestrate);
    add_layout_options(command, o);
    command
        .add_option("--profile", o.profile,
                    "which kernels optimal orchestration measures: none, lazy (those that decide), full (lazy with "
                    "--measure, else none)")
        ->check(CLI::IsMember({"none", "lazy", "full"}));
    command.add_flag(
        "--measure", o.measure,
        "run the best candidates of chains, and with --orchestrate optimal the kernels that decide, on "
        "this machine; the resulting plan is used if whole runs are faster than without --measure; results "
        "are kept in the tuning database. On a GPU also products; the plan is not compared");
    command
        .add_option("--measure-seconds", o.measure_seconds,
                    fmt::format("time for measuring kernels with --measure ({:.0f}); afterwards estimates are used",
                                o.measure_seconds))
        ->check(CLI::Range(0.0, 1e6));
    command.add_flag("--tuned", o.tuned,
                     "use the plan that `tilewright tune` has kept for this model, options and machine; nothing is "
                     "measured, and without one the plan is the default one. With --layouts joint, layouts are those "
                     "that it has chosen");
    command.add_option("--libraries", o.libraries,
                       "library kernels that are measured against generated ones: none, onednn, or "
                       "onednn=FILE (onednn, if it is installed)");
    command
        .add_option(
            "--piece-nodes", o.piece_nodes,
            fmt::format(
                "maximum of primitives of a piece of the graph that optimal orchestration solves at a time ({})",
                o.piece_nodes))
        ->check(CLI::Range(1, 100000));
    command
        .add_option(
            "--kernel-nodes", o.kernel_nodes,
            fmt::format("maximum of primitives of a candidate kernel; kernels of the greedy plan may have more ({})",
                        o.kernel_nodes))
        ->check(CLI::Range(1, 100000));
    command
        .add_option(
            "--most-sets", o.most_sets,
            fmt::format("maximum of convex sets of a piece; if there are more, the largest are not candidates ({})",
                        o.most_sets))
        ->check(CLI::Range(1, 10000000));
    command
        .add_option("--most-outputs", o.most_outputs,
                    fmt::format("maximum of output sets per convex set that are candidates ({})", o.most_outputs))
        ->check(CLI::Range(1, 10000));
    command
        .add_option("--blp", o.blp,
                    "its binary program: strong, published (Korch's equations 2 to 4), or both (strong, with the "
                    "relaxations of both and their times) (strong)")
        ->check(CLI::IsMember({"strong", "published", "both"}));
    command
        .add_option("--blp-seconds", o.blp_seconds,
                    fmt::format("CPU time for a piece's binary program; after that the best plan found is used, "
                                "and the gap bounds what a better one could save ({})",
                                o.blp_seconds))
        ->check(CLI::Range(0.0, 86400.0));
    command.add_option("--database", o.database, "where measurements are kept (tuning.db in the cache folder)");
    add_search_options(command, o);
}

std::string scheduler_help() {
    std::string out = "Schedulers:\n";
    for (const SchedulerName& s : kSchedulers) out += fmt::format("  {:<24}{}\n", to_string(s.kind), s.help);
    return out;
}

constexpr const char* kWithout = "Ablations (to measure the effect of one mechanism)";

void add_ablation_options(CLI::App& command, Ablations& o) {
    const auto flag = [&](const char* name, bool& to, const char* help) {
        command.add_flag(name, to, help)->group(kWithout);
    };
    flag("--no-fission", o.no_fission, "operators as units: no kernel combines a part of one with anything else");
    flag("--no-operator-fusion", o.no_operator_fusion, "no kernel combines two operators");
    flag("--no-redundancy", o.no_redundancy, "no primitive is computed by two kernels");
    flag("--single-output", o.single_output, "one output per kernel");
    flag("--layouts-first", o.layouts_first, "choose layouts before kernels");
}

void RewriteFlags::apply(PipelineOptions& o) const {
    if (no_rewrites)
        o.rewrite.reset();
    else if (no_winograd)
        o.rewrite.value().rules.winograd = false;
}

void add_rewrite_options(CLI::App& command, RewriteFlags& o) {
    command.add_flag("--no-winograd", o.no_winograd, "direct convolutions, which round less");
    command.add_flag("--no-rewrites", o.no_rewrites, "no rewrites of the program")->group(kWithout);
}

void PassFlags::apply(PipelineOptions& o) const {
    o.compile.skip = skip;
    o.passes.print_before = print_before;
    o.passes.print_after = print_after;
    o.passes.print_before_all = print_before_all;
    o.passes.print_after_all = print_after_all;
    o.passes.verify_each = verify_each;
    o.passes.print = [](const std::string& when, const std::string& text) {
        std::fprintf(stderr, "# %s\n%s\n", when.c_str(), text.c_str());
    };
}

void add_pass_options(CLI::App& command, PassFlags& o) {
    constexpr const char* kPasses = "Passes (`tilewright passes` lists them)";
    const auto names = [&](const char* name, std::vector<std::string>& to, const char* help) {
        command.add_option(name, to, help)->delimiter(',')->allow_extra_args(false)->group(kPasses);
    };
    const auto flag = [&](const char* name, bool& to, const char* help) {
        command.add_flag(name, to, help)->group(kPasses);
    };
    names("--skip", o.skip, "skip this pass; may be given several times");
    names("--print-before", o.print_before, "print the program before this pass, on standard error");
    names("--print-after", o.print_after, "print it after this pass");
    flag("--print-before-all", o.print_before_all, "before every pass");
    flag("--print-after-all", o.print_after_all, "after every pass");
    flag("--verify-each", o.verify_each, "verify programs and tile programs after every pass");
    flag("--time-passes", o.time, "print how long each pass took, on standard error");
}

namespace {

/// Notes that the command's options behind the first so many only matter to a compilation.
void compiling_since(size_t first, const CLI::App& command, ModelOptions& o) {
    const std::vector<const CLI::Option*> all = command.get_options();
    o.compiling.insert(o.compiling.end(), all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& o) {
    command.add_option("model", o.model, "ONNX file; run, bench and verify: or a file of `compile`")->required();
    add_operator_options(command, o.operators);
    o.compiling.push_back(command.get_option("--functions"));
    command.add_option("--threads", o.threads, "worker threads; default: the CPUs this process may use")
        ->check(CLI::Range(1, kMaxThreads));
    command.add_flag("--progress", o.progress, "print progress even if standard error is not a terminal");
    const size_t first = command.get_options().size();
    command.add_option("--isa", o.isa, "generate for this instruction set instead of this machine's best")
        ->check(CLI::IsMember(selectable_isas()));
    command.add_option("--target-file", o.target_file,
                       "plan for the machine described by this file (written by `info --json`) and generate for its "
                       "vector instructions, instead of this machine; excludes measuring");
    command.add_flag("--no-fuse", o.no_fuse, "one kernel per primitive");
    command.add_flag("--no-layouts", o.no_layouts, "keep every tensor row-major");
    command.add_flag(
        "--no-code-cache", o.no_code_cache,
        "neither use nor keep machine code and schedules of kernels compiled before (folder code in the cache "
        "folder)");
    command.add_flag("--no-calibrate", o.no_calibrate,
                     "assume unknown rates of this machine, instead of measuring them briefly (once; see `info`)");
    command.add_flag("--keep-subnormals", o.keep_subnormals,
                     "compute with subnormal numbers; without it they count as 0 while kernels run, as some CPUs are "
                     "up to a hundred times slower on them");
    command
        .add_option("--numerics", o.numerics,
                    "strict: every output depends on the inputs of its definition alone, with equal bits for every "
                    "number of threads, and every f16 tensor is rounded; default: Winograd convolutions if their "
                    "inputs are finite "
                    "and at most 2^20; fast: without that check")
        ->check(CLI::IsMember({"strict", "default", "fast"}));
    command.add_flag("--check-values", o.check_values,
                     "check all data-dependent indices, lengths and shapes, even if that takes time; without "
                     "it, indices out of range may read another element");
    add_rewrite_options(command, o.rewrite);
    add_ablation_options(command, o.without);
    add_scheduler_options(command, o.scheduler);
    add_pass_options(command, o.passes);
    compiling_since(first, command, o);
}

void add_kv_cache_option(CLI::App& command, ModelOptions& o) {
    o.compiling.push_back(command.add_flag(
        "--kv-cache", o.kv_cache,
        "decoders: inputs that an output extends (past keys and values) can stay in a KV cache, where a run "
        "appends to them in place"));
}

void add_copy_weights_option(CLI::App& command, ModelOptions& o) {
    command.add_flag("--copy-weights", o.copy_weights,
                     "of a file of `compile`: copy its weights into memory of this process, on huge pages, in place of "
                     "its mapping, which processes share");
}

void add_target_option(CLI::App& command, std::string& target) {
    const auto file = CLI::Validator(
        [](const std::string& text) {
            return text.ends_with(".json") ? CLI::ExistingFile(text) : text + " is no file of a GPU";
        },
        "FILE.json");
    command
        .add_option("--target", target,
                    "cpu (default); cuda (this machine's GPU, else an H200), cuda:sm_80 (A100), cuda:sm_90a (H200), or "
                    "the GPU that FILE.json describes (written by bench_probe and `info --json`)")
        ->check(CLI::IsMember({"cpu", "cuda", "cuda:sm_80", "cuda:sm_90a"}) | file);
}

void add_target_options(CLI::App& command, ModelOptions& o) {
    add_target_option(command, o.target);
    const size_t first = command.get_options().size();
    command.add_flag(
        "--gpu-libraries", o.gpu_libraries,
        "plan for a GPU with cuBLASLt and cuDNN, which may compute sums of kernels; with --target cuda that "
        "is so where they are installed");
    add_precision_option(command, o);
    compiling_since(first, command, o);
}

void add_precision_option(CLI::App& command, ModelOptions& o) {
    command
        .add_option(
            "--precision", o.precision,
            "precision to which f32 operands of products may be rounded, on matrix instructions: f32 (exact; "
            "default), f32-fast (AMX: 16 bits), tf32 (GPUs), f16 (also AVX512_FP16), bf16 (also AMX, "
            "AVX512_BF16), or auto (CPUs: bf16 or f16 where it is estimated to be no slower, within --max-error)")
        ->check(CLI::IsMember({"f32", "f32-fast", "tf32", "f16", "bf16", "auto"}));
    command
        .add_option(
            "--keep-f32", o.keep_f32,
            "with --precision bf16, f16 or auto, on a CPU: products of nodes stay in f32 whose name, or the name of "
            "one of whose tensors, matches this pattern (*: any text); may be given several times")
        ->allow_extra_args(false);
    command
        .add_option("--max-error", o.max_error,
                    fmt::format("likewise: products stay in f32 until no output differs from f32's by more than this "
                                "share of its largest magnitude, on sample inputs (no limit; auto: {})",
                                kAutoMaxError))
        ->check(CLI::PositiveNumber);
}

void warn_once(const std::string& text) {
    static std::mutex mutex;
    static std::set<std::string> said;
    const std::lock_guard lock(mutex);
    if (said.insert(text).second) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

void print_note(const std::string& text) { std::fprintf(stderr, "note: %s\n", text.c_str()); }

void add_data_options(CLI::App& command, DataOptions& o) {
    command
        .add_option("--dim", o.dims,
                    "size of a named dimension of random inputs: batch=8; or the range for which the "
                    "model is compiled, with samples and weights: seq=1..512:8,64,128@3, and with "
                    "multiples of a step alone: height=32..512/32")
        ->allow_extra_args(false);
    CLI::Option* input = command.add_option(
        "--input", o.request.files,
        "x=x.npy, x=x.pb (ONNX TensorProto), x=random, or all.npz with an array for each name; others are random");
    input->allow_extra_args(false);  // one at a time: in `--input x=x.npy model.onnx` the model is not an input
    command.add_option("--data", o.request.folder, "ONNX test data set: input_0.pb, ... by position")->excludes(input);
    command.add_option("--seed", o.request.seed, "of random inputs (0)");
}

void add_fixed_dim_option(CLI::App& command, std::vector<std::string>& dims) {
    command
        .add_option("--dim", dims,
                    "fix a named dimension of the inputs: batch=8; or declare its range, with samples and "
                    "weights: seq=1..512:8,64,128@3")
        ->allow_extra_args(false);
}

std::pair<std::string, int64_t> parse_setting(const std::string& option, const std::string& text) {
    const size_t at = text.find('=');
    int64_t v = 0;
    if (at != std::string::npos && at > 0) {
        const char* end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data() + at + 1, end, v);
        if (error == std::errc() && stop == end) return {text.substr(0, at), v};
    }
    throw CLI::ValidationError(option, "'" + text + "' is not of the form name=number");
}

bool given(const DataOptions& o) {
    return !dim_settings(o.dims).sizes.empty() || !o.request.files.empty() || !o.request.folder.empty();
}

std::function<std::vector<Tensor>(const std::vector<ModelIo>&)> sample_inputs(const DataOptions& o) {
    return [o](const std::vector<ModelIo>& declared) {
        InputRequest request = o.request;
        request.dims = dims_of(o);
        return make_inputs(declared, request);
    };
}

DimSettings dim_settings(const std::vector<std::string>& texts) {
    DimSettings out;
    for (const std::string& text : texts) {
        const size_t at = text.find('=');
        if (at != std::string::npos && at > 0 && is_dim_range(std::string_view(text).substr(at + 1))) {
            out.ranges[text.substr(0, at)] = parse_dim_range(std::string_view(text).substr(at + 1));
            continue;
        }
        const auto [name, size] = parse_setting("--dim", text);
        if (size < 0) throw CLI::ValidationError("--dim", "'" + text + "': a size is not negative");
        out.sizes[name] = size;
    }
    return out;
}

std::map<std::string, int64_t> dims_of(const DataOptions& o) {
    std::map<std::string, int64_t> dims = o.request.dims;
    for (const auto& [name, size] : dim_settings(o.dims).sizes) dims[name] = size;
    return dims;
}

std::vector<Tensor> inputs_of(const Compilation& c, const DataOptions& o, std::map<std::string, int64_t>* assumed) {
    InputRequest request = o.request;
    request.dims = dims_of(o);
    std::vector<Tensor> inputs = make_inputs(c.model->inputs(), request, assumed);
    if (!c.program.values.empty()) check_limits(c.program, bind_inputs(c.program, inputs));
    return inputs;
}

void add_tolerance_options(CLI::App& command, ToleranceOptions& o) {
    o.rtol = command.add_option("--rtol", o.tolerance.relative, "allowed difference relative to the element (1e-3)");
    o.atol = command.add_option("--atol", o.tolerance.absolute, "plus this absolute difference (1e-7)");
    o.max_relative = command
                         .add_option("--max-relative", o.tolerance.max_relative,
                                     "instead: relative to the largest expected magnitude")
                         ->excludes(o.rtol);
}

Tolerance ToleranceOptions::get() const {
    Tolerance t = tolerance;
    if (rtol->count() > 0) t.max_relative = 0;
    return t;
}

bool ToleranceOptions::given() const { return rtol->count() + atol->count() + max_relative->count() > 0; }

double default_tolerance(const std::string& precision, const Program& program) {
    double rounding = precision == "bf16" || precision == "auto" ? 0x1p-8 : 0x1p-11;
    if (precision.starts_with("f32")) rounding = precision == "f32" ? 0 : 0x1p-15;
    for (const Value& v : program.values) {
        if (v.dtype == DType::BF16) rounding = std::max(rounding, 0x1p-8);
        if (v.dtype == DType::F16) rounding = std::max(rounding, 0x1p-11);
    }
    return 1e-4 + 20 * rounding;
}

void add_json_option(CLI::App& command, std::string& path) {
    command.add_option("--json", path, "also write the results to this file, as JSON");
}

void write_json(const std::string& path, const std::string& text) {
    if (!path.empty()) write_file(path, {text, "\n"});
}

// --- interrupts

namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

struct Interrupts::Before {
    struct sigaction action {};
};

Interrupts::Interrupts() : before_(std::make_unique<Before>()) {
    interrupted = 0;
    struct sigaction note {};
    note.sa_handler = [](int) { interrupted = 1; };
    note.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &note, &before_->action);
}
Interrupts::~Interrupts() { ::sigaction(SIGINT, &before_->action, nullptr); }
bool Interrupts::seen() { return interrupted != 0; }

// --- progress

struct Progress::Impl {
    std::string what, step;
    std::mutex mutex;
    std::condition_variable woken;
    bool done = false, shown = false, terminal = true;
    std::thread thread;

    void show() {
        using std::chrono::milliseconds;
        const double start = now_ms();
        std::unique_lock lock(mutex);
        std::string before;
        for (int wait = 1000; !woken.wait_for(lock, milliseconds(wait), [&] { return done; });
             wait = terminal ? 200 : 1000) {
            if (!terminal) {
                if (step != before) std::fprintf(stderr, "%s: %s\n", what.c_str(), step.c_str());
                before = step;
                continue;
            }
            std::fprintf(stderr, "\r\033[K%s: %s, %.0f s", what.c_str(), step.c_str(), (now_ms() - start) / 1e3);
            shown = true;
        }
        if (shown) std::fputs("\r\033[K", stderr);
    }
};

Progress::Progress(std::string what, bool always) {
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    if (!terminal && !always) return;
    impl_ = std::make_unique<Impl>();
    impl_->terminal = terminal;
    impl_->what = std::move(what);
    impl_->thread = std::thread([this] { impl_->show(); });
}

Progress::~Progress() {
    if (!impl_) return;
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->done = true;
    }
    impl_->woken.notify_one();
    impl_->thread.join();
}

void Progress::step(const std::string& name) {
    if (!impl_) return;
    const std::lock_guard lock(impl_->mutex);
    impl_->step = name;
}

}  // namespace tilewright
