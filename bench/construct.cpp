// Quality of constructed schedules: Gensor's Table VI, and the distance to the result of a long search.
//
//     bench_construct --ops bench/ops/gensor_scaled.txt --trials 1000
//     bench_construct model.onnx --most 5 --trials 200
//
// Takes the single-stage kernel with the largest estimate of each operator (several of a model). Schedules: the default
// heuristic, construction along a tree, the paper's walk without and with virtual threads, the same with the state of
// the default heuristic and a hill climb (walk.h), each ranked by the cost model, then the best eight of the latter
// measured, and the best of --trials measured states of the same space. Every candidate is checked against exact
// arithmetic before it is measured, and results are stored in the tuning database. Finally all schedules are timed once
// more, in turns. One thread. Table VI compares the first three of these after the heuristic.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "compile/pipeline.h"
#include "cost/sampling.h"
#include "driver/files.h"
#include "driver/opspec/op_model.h"
#include "graph/import.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"
#include "schedule/construct/walk.h"
#include "schedule/spaces.h"
#include "tune/canonical.h"
#include "tune/operands.h"
#include "tune/tuner.h"

namespace tilewright {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Settings {
    int trials = 0;
    int walks = construct::WalkOptions().walks;
    double seconds = 0.3;
    bool verbose = false;
    std::string database;
};

constexpr const char* kColumns[] = {"rule", "tree", "walk-v", "walk", "gensor-v", "gensor", "measured 8", "search"};
constexpr size_t kRule = 0, kTree = 1, kWalkPlain = 2, kWalk = 3, kPlain = 4, kGensor = 5, kEight = 6, kSearch = 7,
                 kAll = 8;

struct Row {
    std::string name;
    std::vector<double> seconds;  ///< per column
    double construct_ms = 0;      ///< of Gensor
    double correlation = 0;       ///< of logarithms of estimates and times over all measured states; 0: too few
    size_t states = 0, rank = 0;  ///< position of the fastest measured state in the model's order, from 1
};

double geometric_mean(const std::vector<Row>& rows, size_t of, size_t over) {
    double sum = 0;
    for (const Row& r : rows) sum += std::log(r.seconds[over] / r.seconds[of]);
    return std::exp(sum / static_cast<double>(rows.size()));
}

/// Every schedule's measured time; pairs of estimated and measured seconds are added to `seen`.
class MeasuredSchedules : public EstimatedCosts {
  public:
    MeasuredSchedules(const Target& target, std::string name, Tuner& tuner,
                      std::vector<std::pair<double, double>>& seen)
        : EstimatedCosts(target), name_(std::move(name)), tuner_(tuner), seen_(seen) {}

    bool measures_schedules() const override { return true; }
    std::vector<double> measure_schedules(const std::vector<TileProgram>& schedules) const override {
        std::vector<double> seconds;
        for (const TunedKernel& k : tuner_.tune(schedules)) {
            const bool good = k.measurement.verdict == Verdict::measured;
            if (k.measurement.verdict == Verdict::wrong)
                fmt::print(stderr, "WRONG: {}: {}\n", name_, k.measurement.reason);
            seconds.push_back(good ? k.measurement.seconds.value : -1);
            if (good) seen_.emplace_back(EstimatedCosts::estimate(schedules[seconds.size() - 1]), seconds.back());
        }
        return seconds;
    }

  private:
    const std::string name_;
    Tuner& tuner_;
    std::vector<std::pair<double, double>>& seen_;
};

class Quality {
  public:
    explicit Quality(Settings settings)
        : settings_(std::move(settings)),
          target_(current_target()),
          database_(settings_.database.empty() ? TuningDatabase::default_path() : settings_.database) {
        target_.workers = 1;
        how_.target = target_;
        how_.estimates = true;
        how_.trials = settings_.trials;
    }

    /// The single-stage kernels with constant extents, at most `most`, by descending estimate. With `only_main`, none
    /// if the kernel with the largest estimate has several stages.
    std::vector<TileProgram> kernels_of(const Program& program, size_t most, bool fuse, bool only_main) const {
        KernelSet set;
        OrchestrateOptions options;
        options.scheduling.target = target_;
        options.fuse = fuse;
        plan_program(program, set, options);
        std::vector<std::pair<double, const TileProgram*>> order;
        for (const TileProgram& k : set.kernels()) order.emplace_back(-estimate(k, target_).seconds, &k);
        std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<TileProgram> out;
        for (const auto& [seconds, k] : order) {
            if (out.size() == most) break;
            const bool fixed =
                std::all_of(k->axes.begin(), k->axes.end(), [](const TileAxis& a) { return a.extent.is_constant(); });
            if (k->stages.primitives.size() == 1 && fixed)
                out.push_back(*k);
            else if (only_main)
                break;
        }
        return out;
    }

    void add(const std::string& name, const TileProgram& kernel) {
        Row row;
        row.name = name;
        const Program& stages = kernel.stages;
        std::vector<TileProgram> schedules;
        for (const SchedulerKind kind :
             {SchedulerKind::Default, SchedulerKind::Tree, SchedulerKind::GensorPublishedPlain,
              SchedulerKind::GensorPublished, SchedulerKind::GensorPlain, SchedulerKind::Gensor}) {
            Scheduling how = how_;
            how.kind = kind;
            const double start = now();
            const bool published =
                kind == SchedulerKind::GensorPublished || kind == SchedulerKind::GensorPublishedPlain;
            schedules.push_back(published ? walked(stages, how) : make_schedule(stages, rows_of(stages), how));
            row.construct_ms = (now() - start) * 1e3;
        }
        std::vector<std::pair<double, double>> seen;  // estimate, measured
        {
            Scheduling how = how_;
            TuneSettings tune;
            tune.measure.seconds = 0.02;
            tune.measure.give_up = 1.2;
            tune.check_work = 1 << 21;
            Tuner tuner(target_, tune, &database_);
            how.costs = std::make_shared<MeasuredSchedules>(target_, name, tuner, seen);
            how.kind = SchedulerKind::Gensor;
            schedules.push_back(make_schedule(stages, rows_of(stages), how));
            how.kind = SchedulerKind::Search;
            if (settings_.trials > 0)
                schedules.push_back(make_schedule(stages, rows_of(stages), how));
            else
                schedules.push_back(schedules[kEight]);
        }
        evaluate_model(seen, row);
        row.seconds = time(schedules);
        print(row);
        if (settings_.verbose) explain(schedules, row);
        rows_.push_back(std::move(row));
    }

    static void head() {
        fmt::print("milliseconds of the default heuristic's kernel; then the speed of others relative to it\n");
        fmt::print("{:<48} {:>8}", "kernel", "rule ms");
        for (size_t c = kTree; c < kAll; ++c) fmt::print(" {:>10}", kColumns[c]);
        fmt::print(" {:>9} {:>9} {:>11} {:>12}\n", "of best", "ms", "correlation", "best is no.");
    }

    void foot() const {
        if (rows_.empty()) return;
        const auto mean = [&](size_t of, size_t over) { return geometric_mean(rows_, of, over); };
        fmt::print("geometric means over {} kernels, default = 1:", rows_.size());
        for (size_t c = kTree; c < kAll; ++c) fmt::print("  {} {:.3f}", kColumns[c], mean(c, kRule));
        fmt::print("\nTable VI, steps: tree to graph {:.3f}, virtual threads {:.3f}; seed and climb {:.3f}\n",
                   mean(kWalkPlain, kTree), mean(kWalk, kWalkPlain), mean(kGensor, kWalk));
        for (const size_t c : {kRule, kWalk, kGensor, kEight}) {
            double least = 1e300;
            for (const Row& r : rows_) least = std::min(least, best_of(r) / r.seconds[c]);
            double sum = 0;
            for (const Row& r : rows_) sum += std::log(best_of(r) / r.seconds[c]);
            fmt::print("share of the best of all: {} {:.3f}, least {:.3f}\n", kColumns[c],
                       std::exp(sum / static_cast<double>(rows_.size())), least);
        }
    }

    /// Milliseconds of each column, of each kernel.
    nlohmann::ordered_json json() const {
        nlohmann::ordered_json out = nlohmann::ordered_json::array();
        for (const Row& r : rows_) {
            nlohmann::ordered_json ms;
            for (size_t c = 0; c < kAll; ++c) ms[kColumns[c]] = r.seconds[c] * 1e3;
            out.push_back({{"kernel", r.name}, {"construct_ms", r.construct_ms}, {"ms", ms}});
        }
        return out;
    }

  private:
    static double best_of(const Row& r) { return *std::min_element(r.seconds.begin(), r.seconds.end()); }

    static IndexVector<PrimitiveId, std::vector<size_t>> rows_of(const Program& stages) {
        return IndexVector<PrimitiveId, std::vector<size_t>>(stages.primitives.size());
    }

    /// The schedule of a published kind, by --walks walks.
    TileProgram walked(const Program& stages, const Scheduling& how) const {
        Spaces spaces = spaces_of(stages, rows_of(stages), how);
        if (spaces.all.empty()) return std::move(spaces.initial);
        construct::WalkOptions options;
        options.seed = how.seed;
        options.walks = settings_.walks;
        options.virtual_threads = how.kind == SchedulerKind::GensorPublished;
        options.climb = false;
        const construct::Realised best = construct::construct(spaces.all[0], options).top[0];
        return construct::to_tile_program(std::move(spaces.initial.stages), spaces.all[0], best);
    }

    /// Times all schedules in turns. Equal schedules share a time.
    std::vector<double> time(const std::vector<TileProgram>& schedules) const {
        std::vector<const TileProgram*> different;
        std::vector<size_t> at;
        for (const TileProgram& s : schedules) {
            const auto same = std::find_if(different.begin(), different.end(), [&](const TileProgram* d) {
                return schedule_text(*d) == schedule_text(s) && canonical_text(d->stages) == canonical_text(s.stages);
            });
            at.push_back(static_cast<size_t>(same - different.begin()));
            if (same == different.end()) different.push_back(&s);
        }
        const std::vector<cpu::CompiledKernel> code = cpu::compile(different, target_);
        ThreadPool pool(1, Pinning::on);
        std::map<std::string, Operands> operands;  // schedules with merged axes have other stages on the same memory
        std::vector<Runnable> runnables;
        for (size_t i = 0; i < different.size(); ++i) {
            const Program& stages = different[i]->stages;
            Operands& of_stages =
                operands.try_emplace(canonical_text(stages), stages, kernel_inputs(stages, 1, Spread::Usual))
                    .first->second;
            runnables.push_back({different[i]->name, KernelRun(code[i], {}, of_stages, pool)});
        }
        MeasureOptions options;
        options.seconds = settings_.seconds;
        options.enough = 1000;
        options.give_up = 0;
        std::vector<double> seconds;
        const std::vector<Timing> timings = measure(runnables, options);
        for (const size_t i : at) seconds.push_back(timings[i].seconds.value);
        return seconds;
    }

    static void evaluate_model(std::vector<std::pair<double, double>> seen, Row& row) {
        row.states = seen.size();
        if (seen.size() < 3) return;
        const auto best = std::min_element(seen.begin(), seen.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        row.rank = 1 + static_cast<size_t>(std::count_if(seen.begin(), seen.end(),
                                                         [&](const auto& s) { return s.first < best->first; }));
        std::vector<double> estimates, measured;
        for (const auto& [estimate, seconds] : seen) {
            estimates.push_back(std::log(estimate));
            measured.push_back(std::log(seconds));
        }
        row.correlation = correlation(estimates, measured);
    }

    static void print(const Row& r) {
        fmt::print("{:<48} {:>8.3f}", r.name.substr(0, 48), r.seconds[kRule] * 1e3);
        for (size_t c = kTree; c < kAll; ++c) fmt::print(" {:>10.2f}", r.seconds[kRule] / r.seconds[c]);
        fmt::print(" {:>8.0f}% {:>9.1f} {:>11.2f} {:>5} / {:<4}\n", 100 * best_of(r) / r.seconds[kGensor],
                   r.construct_ms, r.correlation, r.rank, r.states);
        std::fflush(stdout);
    }

    void explain(const std::vector<TileProgram>& schedules, const Row& row) const {
        for (const size_t c : {kRule, kGensor, kEight, kSearch}) {
            const Estimate e = estimate(schedules[c], target_);
            fmt::print("  {}: measured {:.4f} ms, model {:.4f} (compute {:.4f}, memory {:.4f})\n{}\n", kColumns[c],
                       row.seconds[c] * 1e3, e.seconds * 1e3, e.compute_seconds * 1e3, e.memory_seconds * 1e3,
                       schedule_text(schedules[c]));
        }
    }

    Settings settings_;
    Target target_;
    TuningDatabase database_;
    Scheduling how_;
    std::vector<Row> rows_;
};

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app{
        "Constructed schedules against the default heuristic and against a long measured search\n"
        "  bench_construct --ops bench/ops/gensor_scaled.txt --trials 1000\n"
        "  bench_construct model.onnx --trials 200 --most 10"};
    std::vector<std::string> models, batches, lines;
    std::string json;
    Settings settings;
    size_t most = 10;
    app.add_option("models", models, "ONNX models of fixed shapes");
    app.add_option("--ops", batches, "files of operators, one per line");
    app.add_option("--op", lines, "operators");
    app.add_option("--trials", settings.trials, "states that the search measures; 0: no search");
    app.add_option("--walks", settings.walks, "of the paper's columns, of 100 steps each (6)")
        ->check(CLI::Range(1, 100000));
    app.add_option("--most", most, "kernels of a model, those with the largest estimates");
    app.add_option("--seconds", settings.seconds, "for the final timing of each schedule");
    app.add_option("--database", settings.database, "the tuning database");
    app.add_option("--json", json, "also write the times to this file");
    app.add_flag("-v,--verbose", settings.verbose, "print schedules and their estimates");
    CLI11_PARSE(app, argc, argv);
    try {
        Quality quality(settings);
        Quality::head();
        std::vector<OpSpec> ops;
        for (const std::string& path : batches)
            for (const BatchLine& line : parse_batch(read_file(path), path)) ops.push_back(line.op);
        for (const std::string& line : lines) ops.push_back(parse_op(line));
        for (const OpSpec& op : ops) {
            const ZooModel model = build_op(op);
            const Program program = make_program(load_model_from_bytes(model.bytes.data(), model.bytes.size()), {});
            std::vector<TileProgram> kernels = quality.kernels_of(program, 1, true, true);
            if (kernels.empty()) kernels = quality.kernels_of(program, 1, false, false);
            for (const TileProgram& k : kernels) quality.add(op.print(), k);
        }
        for (const std::string& path : models)
            for (const TileProgram& k : quality.kernels_of(make_program(load_model(path), {}), most, true, false))
                quality.add(k.name, k);
        quality.foot();
        if (!json.empty()) write_file(json, {quality.json().dump(1) + "\n"});
    } catch (const std::exception& e) {
        fmt::print(stderr, "bench_construct: {}\n", e.what());
        return 1;
    }
    return 0;
}
