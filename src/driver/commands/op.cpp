// op: operators and small networks written as text.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cost/estimate.h"
#include "cost/first_calibration.h"
#include "cost/target.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "driver/opspec/chain_model.h"
#include "driver/opspec/check.h"
#include "driver/opspec/limit.h"
#include "driver/opspec/op_model.h"
#include "driver/opspec/op_spec.h"
#include "orchestrate/fuse.h"
#include "runtime/thread_count.h"
#include "schedule/chain/expression.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct OpOptions {
    std::vector<std::string> ops, batches;
    SchedulerOptions scheduler;
    RewriteFlags rewrite;
    std::string isa, json, save;
    int threads = 0, iterations = 0;
    size_t chain_model = 0;  ///< candidates to measure against the model; 0: none
    double seconds = 0.5, budget = 2e7;
    uint64_t seed = 0;
    bool list = false, no_check = false, no_run = false, calibrate = false, no_calibrate = false, verbose = false,
         pruning = false, save_only = false;
};

/// The figures of one operator; `error` if it could not be compiled or run.
struct OpResult {
    std::string op, error, schedule;
    bool ok = false;
    double construct_ms = 0, compile_ms = 0, estimate_ms = 0;
    double median_ms = 0, spread = 0;  ///< spread: interquartile range over the median
    int runs = 0, kernels = 0, steps = 0;
    Work work;
    Limit limit;
    std::optional<OpCheck> check;
    std::vector<ZooInput> inputs;
    std::optional<chain::SpaceCounts> pruning;  ///< of the operator as one GEMM chain
    std::optional<ChainModel> chain_model;

    bool measured() const { return runs > 0; }
    double gflops() const { return measured() ? work.flops / median_ms * 1e-6 : 0; }
    double share() const { return measured() ? limit.ms / median_ms : 0; }
};

/// Runs until `seconds` have passed, at least three times; or `iterations` times, if given. Several runs that are too
/// short for the clock are timed together.
void measure(Session& session, const std::vector<Tensor>& inputs, const OpOptions& o, OpResult& r) {
    const auto time_of = [&](int runs) {
        const double start = now_ms();
        for (int i = 0; i < runs; ++i) session.run_in_place(inputs);
        return (now_ms() - start) / runs;
    };
    time_of(1);
    constexpr double kShortestMs = 0.05;
    constexpr int kFewest = 3;
    const int together = std::clamp(static_cast<int>(kShortestMs / std::max(time_of(1), 1e-6)), 1, 1000);
    const auto wanted = static_cast<size_t>(o.iterations > 0 ? o.iterations : kFewest);
    std::vector<double> times;
    double spent = 0;
    while (times.size() < wanted || (o.iterations == 0 && spent < o.seconds * 1e3)) {
        times.push_back(time_of(together));
        spent += times.back() * together;
    }
    std::sort(times.begin(), times.end());
    const size_t n = times.size();
    r.runs = static_cast<int>(n);
    r.median_ms = (times[(n - 1) / 2] + times[n / 2]) / 2;
    r.spread = (times[n - 1 - n / 4] - times[n / 4]) / r.median_ms;
}

/// The number of candidates after each of MCFuser's pruning rules; nothing if the operator is not a chain.
std::optional<chain::SpaceCounts> pruning_of(const Program& program, const Target& target) {
    const auto c = chain::make_chain(fuse_greedily(program));
    if (!c) return std::nullopt;
    const CycleRates rates(target);
    return chain::count_space(*c, rates.caches[std::min<size_t>(1, rates.caches.size() - 1)].bytes);
}

/// Compares estimates with measurements of the operator as one chain.
std::optional<ChainModel> chain_model_of(const Program& program, const Target& target, const OpOptions& o) {
    TuneSettings settings;
    settings.measure.seconds = o.seconds;
    settings.measure.give_up = 0;  // slow candidates count as well
    settings.check_work = 1 << 21;
    CompileOptions options;
    options.machine = target;
    options.threads = o.threads;
    options.isa = o.isa;
    std::optional<TuningDatabase> database;
    if (!o.scheduler.database.empty()) database.emplace(o.scheduler.database);
    return measure_chain_model(program, target_of(options), o.chain_model, settings, database ? &*database : nullptr,
                               o.seed + 1);
}

void run_op(const OpSpec& op, const OpOptions& o, const Target& target, OpResult& r) {
    const ZooModel model = build_op(op, o.seed);
    PipelineOptions options;
    options.compile.threads = o.threads;
    options.compile.isa = o.isa;
    options.compile.machine = target;
    options.compile.warn = warn_once;
    options.compile.note = print_note;
    o.scheduler.apply(options.compile);
    options.rewrite.value().rules.winograd = false;  // results are checked against the error of direct sums
    o.rewrite.apply(options);
    const Compilation c = compile_model(model.bytes.data(), model.bytes.size(), options);
    r.inputs = model.inputs;
    r.construct_ms = c.model->stats().schedule_ms;
    r.compile_ms = c.compile_ms;
    r.kernels = c.model->stats().kernels;
    r.steps = c.model->stats().steps;
    r.schedule = c.model->dump("plan") + c.model->dump("tiles");
    r.work = {2.0 * static_cast<double>(model.macs), bytes_of(c.program)};
    r.limit = limit_of(r.work, target);
    r.estimate_ms = estimate_ms(*c.model, target);
    if (o.pruning) r.pruning = pruning_of(c.program, target);
    if (o.chain_model > 0) r.chain_model = chain_model_of(c.program, target, o);
    r.ok = true;
    if (o.no_run && o.no_check) return;
    const std::vector<Tensor> inputs = draw_inputs(model.inputs, o.seed);
    Session session(c.model, o.threads);
    if (!o.no_check) {
        r.check = check_outputs(c.program, inputs, session.run(inputs), o.budget, o.seed);
        r.ok = r.check->ok;
        r.error = r.check->reason;
    }
    if (!o.no_run) measure(session, inputs, o, r);
}

// --- output

Json to_json(const OpResult& r, const OpOptions& o) {
    const auto number = [](bool there, double v) { return there ? Json(v) : Json(nullptr); };
    const bool compiled = !r.schedule.empty();
    Json j;
    j["op"] = r.op;
    j["scheduler"] = o.scheduler.scheduler;
    j["ok"] = r.ok;
    if (r.pruning)
        j["candidates"] = {{"all", r.pruning->all},
                           {"rule_1", r.pruning->rule_1},
                           {"rule_2", r.pruning->rule_2},
                           {"rule_3", r.pruning->rule_3},
                           {"rule_4", r.pruning->rule_4}};
    if (r.chain_model) {
        Json points = Json::array();
        for (const ChainModelPoint& p : r.chain_model->points)
            points.push_back({p.estimate * 1e3, p.seconds * 1e3, p.candidate});
        j["chain_model"] = {{"correlation", r.chain_model->correlation()},
                            {"rank_of_fastest", r.chain_model->rank_of_fastest()},
                            {"share_of_first_8", r.chain_model->share_of_first(8)},
                            {"refused", r.chain_model->refused},
                            {"points", points}};
    }
    j["construct_ms"] = number(compiled, r.construct_ms);
    j["estimate_ms"] = number(compiled, r.estimate_ms);
    j["measured_ms"] = number(r.measured(), r.median_ms);
    j["gflops"] = number(r.measured(), r.gflops());
    j["limit_share"] = number(r.measured(), r.share());
    j["schedule"] = r.schedule;
    j["threads"] = o.threads;
    j["runs"] = r.runs;
    j["spread"] = number(r.measured(), r.spread);
    j["compile_ms"] = number(compiled, r.compile_ms);
    j["kernels"] = r.kernels;
    j["steps"] = r.steps;
    j["flops"] = r.work.flops;
    j["bytes"] = r.work.bytes;
    j["limit_ms"] = number(compiled, r.limit.ms);
    j["limit"] = r.limit.compute ? "multiply-adds" : r.limit.level;
    if (r.check) {
        j["checked"] = {{"elements", r.check->elements},
                        {"of", r.check->total},
                        {"error", r.check->error},
                        {"tolerance", r.check->tolerance}};
    }
    Json inputs = Json::array();
    for (const ZooInput& in : r.inputs) {
        Json shape = Json::array();
        for (const DeclaredDim& d : in.shape) shape.push_back(std::get<int64_t>(d));
        inputs.push_back({{"name", in.name}, {"dtype", to_string(in.dtype)}, {"shape", shape}, {"limit", in.limit}});
    }
    j["inputs"] = inputs;
    if (!r.error.empty()) j["error"] = r.error;
    return j;
}

std::string time_text(bool there, double ms) { return there ? fmt::format("{:.4g}", ms) : "-"; }

void print_head(size_t width, const OpOptions& o, const Target& target) {
    fmt::print("scheduler {}, {} thread{}, float32; limits from {} rates{}\n", o.scheduler.scheduler, o.threads,
               o.threads == 1 ? "" : "s", target.calibrated ? "measured" : "assumed",
               target.calibrated ? "" : " (see `tilewright info --calibrate`)");
    fmt::print("{:{}}  {:>9} {:>6} {:>8} {:>9} {:>6} {:>9} {:>9} {:>7}  check\n", "operator", width, "ms", "spread",
               "GFLOP/s", "limit ms", "share", "estimate", "construct", "kernels");
}

void print_line(const OpResult& r, size_t width, bool verbose) {
    const bool compiled = !r.schedule.empty();
    const bool products = r.measured() && r.work.flops > 0;
    std::string check = !r.ok ? "FAILED: " + r.error : r.check ? describe(*r.check) : "not checked";
    if (r.ok && r.check) check += fmt::format(", error {:.1e}", r.check->error);
    fmt::print("{:{}}  {:>9} {:>6} {:>8} {:>9} {:>6} {:>9} {:>9} {:>7}  {}\n", r.op, width,
               time_text(r.measured(), r.median_ms), r.measured() ? fmt::format("{:.1f}%", 100 * r.spread) : "-",
               products ? fmt::format("{:.1f}", r.gflops()) : "-", time_text(compiled, r.limit.ms),
               r.measured() ? fmt::format("{:.0f}%", 100 * r.share()) : "-", time_text(compiled, r.estimate_ms),
               time_text(compiled, r.construct_ms), r.kernels, check);
    if (r.pruning) {
        const chain::SpaceCounts& n = *r.pruning;
        fmt::print("    candidates {:.0f} ({} expressions); after rule 1 {:.0f}, 2 {:.0f}, 3 {:.0f}, 4 {:.0f}\n", n.all,
                   n.expressions, n.rule_1, n.rule_2, n.rule_3, n.rule_4);
    }
    if (r.chain_model) {
        const ChainModel& m = *r.chain_model;
        fmt::print(
            "    cost model against {} candidates: correlation {:.2f}; the fastest is its number {}; of its first 8 "
            "the best has {:.0f}% of the fastest's speed{}\n",
            m.points.size(), m.correlation(), m.rank_of_fastest(), 100 * m.share_of_first(8),
            m.refused > 0 ? fmt::format("; {} refused", m.refused) : "");
    }
    if (verbose) fmt::print("{}\n", r.schedule);
    std::fflush(stdout);
}

// --- the command

/// The operators of the command line, then those of the files. Throws CLI::ValidationError for errors in the former.
std::vector<OpSpec> wanted_ops(const OpOptions& o) {
    std::vector<OpSpec> out;
    for (const std::string& text : o.ops) {
        try {
            out.push_back(parse_op(text));
        } catch (const ModelError& e) {
            throw CLI::ValidationError("op", fmt::format("{}\n  {}", e.what(), e.hint()));
        }
    }
    for (const std::string& path : o.batches)
        for (const BatchLine& line : parse_batch(read_file(path), path)) out.push_back(line.op);
    if (out.empty()) throw CLI::RequiredError("an operator, --batch or --list");
    return out;
}

/// One operator is written to the path itself, several to numbered files in it, from 0.
void save_models(const std::vector<OpSpec>& ops, const OpOptions& o) {
    if (o.save.empty()) return;
    const bool several = ops.size() > 1;
    if (several) std::filesystem::create_directories(o.save);
    for (size_t i = 0; i < ops.size(); ++i) {
        const std::string path = several ? fmt::format("{}/{}.onnx", o.save, i) : o.save;
        write_op(ops[i], path, o.seed);
        if (o.save_only) fmt::print("{} {}\n", path, ops[i].print());
    }
}

/// This machine's rates: stored ones, else measured ones. --calibrate requests the long calibration, which replaces a
/// stored short one.
Target machine(const OpOptions& o) {
    if (o.no_calibrate) return current_target();
    if (!o.calibrate) return calibrated_target(print_note, warn_once);
    if (std::optional<Target> known = load_target(); known && !known->quick) return *known;
    Progress progress("measuring this machine");
    Target target =
        calibrate(CalibrationLength::full, [&](std::string_view step, double) { progress.step(std::string(step)); });
    try {
        save_target(target);
    } catch (const RuntimeError& e) {
        std::fprintf(stderr, "warning: the measured rates are not stored: %s\n", e.what());
    }
    return target;
}

int command_op(const OpOptions& o) {
    if (o.list) {
        fmt::print("{}", print_op_kinds());
        return 0;
    }
    const std::vector<OpSpec> ops = wanted_ops(o);
    save_models(ops, o);
    if (o.save_only) return 0;
    Target target = machine(o);
    target.workers = o.threads;
    size_t width = 8;
    for (const OpSpec& op : ops) width = std::max(width, op.print().size());
    width = std::min<size_t>(width, 72);
    print_head(width, o, target);
    std::string lines;
    int failed = 0;
    for (const OpSpec& op : ops) {
        OpResult r;
        r.op = op.print();
        try {
            const Progress progress(r.op);
            run_op(op, o, target, r);
        } catch (const std::exception& e) {
            r.ok = false;
            r.error = e.what();
        }
        failed += r.ok ? 0 : 1;
        print_line(r, width, o.verbose);
        lines += to_json(r, o).dump() + "\n";
        if (!o.json.empty()) write_file(o.json, {lines});
    }
    if (failed > 0) throw RuntimeError(fmt::format("{} of {} operators failed", failed, ops.size()));
    return 0;
}

}  // namespace

void add_op_command(CLI::App& app, int& status) {
    auto o = std::make_shared<OpOptions>();
    CLI::App* c = app.add_subcommand("op", "compile, check and time operators written as text");
    c->add_option("op", o->ops, "NAME key=value ..., one argument per operator");
    c->add_flag("--list", o->list, "list the operators with their keys");
    c->add_option("--batch", o->batches, "a file of operators, one per line")->allow_extra_args(false);
    add_scheduler_options(*c, o->scheduler);
    c->add_option("--threads", o->threads, "worker threads; default: the CPUs this process may use")
        ->check(CLI::Range(1, kMaxThreads));
    c->add_option("--isa", o->isa, "generate for this instruction set instead of this machine's best")
        ->check(CLI::IsMember(selectable_isas()));
    CLI::Option* seconds = c->add_option("--time", o->seconds, "seconds to measure each operator for (0.5)");
    seconds->check(CLI::Range(0.0, 3600.0));
    c->add_option("--iterations", o->iterations, "timed runs, instead of --time")
        ->check(CLI::Range(1, 1000000))
        ->excludes(seconds);
    c->add_option("--check-points", o->budget,
                  "most points to interpret; larger operators are checked by samples (2e7)")
        ->check(CLI::Range(1e3, 1e15));
    c->add_flag("--no-rewrites", o->rewrite.no_rewrites,
                "no rewrites of the program: products of three factors in the order given");
    c->add_flag("--no-check", o->no_check, "do not compare with the interpreter");
    c->add_flag("--no-run", o->no_run, "do not measure");
    CLI::Option* calibrate =
        c->add_flag("--calibrate", o->calibrate,
                    "measure and store this machine's rates as `info --calibrate` does, unless that was done before; "
                    "all later plans use them");
    c->add_flag("--no-calibrate", o->no_calibrate, "use stored or assumed rates, without measuring them briefly")
        ->excludes(calibrate);
    c->add_option("--seed", o->seed, "of weights and inputs (0)");
    CLI::Option* save = c->add_option(
        "--save", o->save, "write the ONNX model; of several operators 0.onnx, 1.onnx, ... into this folder");
    c->add_flag("--save-only", o->save_only, "only save; prints a line `FILE OPERATOR` for each")->needs(save);
    c->add_flag("--pruning", o->pruning,
                "print the number of candidates after each of MCFuser's pruning rules, for GEMM chains");
    c->add_option("--chain-model", o->chain_model,
                  "measure this many candidates of GEMM chains, each for --time, and compare them with the "
                  "cost model; stored in --database")
        ->check(CLI::Range(2, 100000));
    c->add_flag("-v,--verbose", o->verbose, "print each plan and its kernels' tile programs");
    c->add_option("--json", o->json, "also write the results to this file, one JSON object per line");
    c->footer(
        scheduler_help() +
        "JSON: op, scheduler, ok, construct_ms, estimate_ms, measured_ms, gflops, limit_share, schedule; threads, "
        "runs,\n"
        "spread, compile_ms, kernels, steps, flops, bytes, limit_ms, limit, checked, inputs, error (where not ok).\n"
        "The limit is the longer of: 2 operations per multiply-add at the measured peak; every operand and the result\n"
        "moved once, at the bandwidth of the first cache that holds them all. The estimate is the cost\n"
        "model's for the chosen schedules. Results are compared with the interpreter, within 2^-24 (64 + 4 sqrt(length "
        "of all sums)) of the\n"
        "largest magnitude.\n\n"
        "Examples:\n"
        "  tilewright op \"gemm m=512 n=768 k=3072\" \"softmax m=512 n=512\"\n"
        "  tilewright op \"conv2d c=64 h=56 o=64 kh=3 pad=1 bias=1 act=relu\" -v --json out.jsonl\n"
        "  tilewright op --batch bench/ops/mcfuser_attention.txt --scheduler mcfuser --measure\n"
        "  tilewright op --batch bench/ops/mcfuser_gemm_chains.txt --no-run --no-check --chain-model 64 --time 0.05\n"
        "  tilewright op \"attention heads=32 kv_heads=8 m=1 n=4096 k=128\" --threads 2\n"
        "  tilewright op \"attention heads=8 m=512 k=64\" --save attention.onnx");
    c->callback([o, &status] {
        o->threads = default_thread_count(o->threads);
        status = command_op(*o);
    });
}

}  // namespace tilewright
