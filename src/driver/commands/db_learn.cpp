#include "driver/commands/db_learn.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/whole_file.h"
#include "cost/residual.h"
#include "cost/target.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "runtime/thread_count.h"
#include "tune/learn_costs.h"

namespace tilewright {

namespace {

struct LearnOptions {
    std::string file;  ///< empty: the default path
    int threads = 0;
    bool forget = false, dry_run = false;
    std::string json;
};

Target learning_target(const LearnOptions& o) {
    Target target = current_target();
    target.workers = default_thread_count(o.threads);
    return target;
}

int forget(const std::string& path) {
    const bool was = std::filesystem::remove(path);
    fmt::print("{}\n", was ? "removed " + path : "nothing was learned for this machine and number of threads");
    return 0;
}

std::string json_of(const LearnedCosts& learned, const LearningRows& rows, bool kept) {
    return nlohmann::ordered_json{{"measurements", rows.rows.size()},
                                  {"learned_from", learned.model.measurements()},
                                  {"kernels", learned.kernels},
                                  {"unreadable", rows.unreadable},
                                  {"error_before", learned.error_before},
                                  {"error_after", learned.error_after},
                                  {"correlation_before", learned.correlation_before},
                                  {"correlation_after", learned.correlation_after},
                                  {"within_spread", learned.within_spread},
                                  {"kept", kept}}
        .dump(2);
}

int learn(const LearnOptions& o) {
    const Target target = learning_target(o);
    const std::string path = residual_path(target);
    if (o.forget) return forget(path);
    const TuningDatabase db(o.file.empty() ? TuningDatabase::default_path() : o.file, {.must_exist = true});
    Progress progress("learning");
    progress.step("reading measurements");
    const LearningRows rows = learning_rows(db, target);
    progress.step("training");
    const LearnedCosts learned = learn_costs(rows.rows);
    const bool kept = learned.helps() && !o.dry_run;
    if (kept) write_whole_file(path, learned.model.to_json());
    if (!o.json.empty()) write_json(o.json, json_of(learned, rows, kept));
    fmt::print("{} measurements of {} kernels on {} thread{}", rows.rows.size(), learned.kernels, target.workers,
               target.workers == 1 ? "" : "s");
    if (rows.unreadable > 0) fmt::print("; {} of libraries or other versions left out", rows.unreadable);
    fmt::print("\nlearned from {} of schedules within {:.0f} % of the fastest of their kernel\n",
               learned.model.measurements(), (kNearBest - 1) * 100);
    fmt::print("kernels that were held out   estimate   corrected\n");
    fmt::print("  geometric error            {:8.3f}   {:9.3f}\n", learned.error_before, learned.error_after);
    fmt::print("  correlation of logarithms  {:8.3f}   {:9.3f}\n", learned.correlation_before,
               learned.correlation_after);
    fmt::print("  within the predicted spread           {:7.0f} %\n", learned.within_spread * 100);
    if (kept)
        fmt::print("kept in {}: later plans on this machine with {} thread{} correct their estimates by it\n", path,
                   target.workers, target.workers == 1 ? "" : "s");
    else if (!o.dry_run)
        fmt::print("not kept: estimates of kernels that were held out are no better with it\n");
    return 0;
}

}  // namespace

void add_db_learn(CLI::App& db, int& status) {
    const auto o = std::make_shared<LearnOptions>();
    CLI::App* c = db.add_subcommand("learn", "learn from measurements how far estimates are from this machine");
    c->add_option("--db,--database", o->file, "the database (tuning.db in the cache folder)");
    c->add_option("--threads", o->threads,
                  "of measurements with that many threads; default: the CPUs this process may use")
        ->check(CLI::Range(1, 1024));
    c->add_flag("--forget", o->forget, "remove what was learned: estimates are the cost model's again");
    c->add_flag("--dry-run", o->dry_run, "only print how much better estimates would be");
    add_json_option(*c, o->json);
    c->footer(
        "Trees that XGBoost (package libxgboost0) trains on log(measured / estimated) of each kernel. Plans that "
        "`tune`\n"
        "has kept and measured plans do not use them; --no-calibrate ignores them.\n\n"
        "Examples:\n"
        "  tilewright tune model.onnx --budget 60s && tilewright db learn\n"
        "  tilewright db learn --threads 1 --dry-run\n"
        "  tilewright db learn --forget");
    c->callback([=, &status] { status = learn(*o); });
}

}  // namespace tilewright
