#pragma once
// Tuning a model on many machines: rounds of candidates as jobs, one JSON object a line, which any machine of the same
// kind measures without the model and without a database. Nothing is kept between jobs, and one process commits the
// results (db merge), so a machine that is lost costs its job alone.
//
//     tilewright tune MODEL --budget 1000 --jobs 8     the next jobs; none when every round of the budget is measured
//     tilewright measure JOBS                          the records of the database that they give, on standard output
//     tilewright db merge RECORDS
//     tilewright tune MODEL --budget 1000              at the end: every time is recalled, and whole runs are compared
//
// Jobs follow from the model, the options and the database alone: they are the rounds that `tune` would measure next,
// where each kernel waits for its last round, and the others do not. So a few rounds are measured that one machine
// alone would not have come to, and the plan at the end is that of one machine with the same times.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/options.h"
#include "compile/tune_kernel.h"
#include "cost/target.h"
#include "tile/tile.h"
#include "tune/database.h"

namespace tilewright {

/// A round of candidates of one kernel.
struct TuneJob {
    std::string kernel;  ///< its name
    std::vector<TileProgram> candidates;
    std::vector<bool> weights;             ///< KernelBody::weights
    std::map<std::string, int64_t> sizes;  ///< that symbols are assumed to have
    Target target;                         ///< of the machine that planned the model
    int64_t weight_bytes = 0;              ///< of the model
};

/// Without a line end.
std::string to_json_line(const TuneJob& job);
/// Empty lines are ignored. Throws ModelError with `what`, the line and what is wrong with it: candidates that are not
/// legal included.
std::vector<TuneJob> parse_jobs(std::string_view text, const std::string& what);

/// The rounds that the database does not know.
class JobCollector {
  public:
    /// At most `most` jobs. `database`: null for an empty one.
    JobCollector(const CompileOptions& options, Target target, int64_t weight_bytes,
                 std::shared_ptr<const TuningDatabase> database, size_t most);
    /// Trials from the database. A round that it does not know becomes a job, and the kernel has no more rounds.
    std::optional<std::vector<Trial>> trials(const std::vector<TileProgram>& candidates,
                                             const std::vector<bool>& weights);
    bool full() const { return jobs_.size() >= most_; }
    std::vector<TuneJob> take() { return std::move(jobs_); }

  private:
    const CompileOptions& options_;
    const Target target_;
    const int64_t weight_bytes_;
    std::shared_ptr<const TuningDatabase> database_;
    const size_t most_;
    std::vector<TuneJob> jobs_;
};

/// Checks and measures the candidates on this machine; with `estimates` nothing runs, and their estimates count as
/// measured, which makes tests of drivers repeatable. Throws ModelError where the job is for another machine or cannot
/// be checked.
std::vector<Measurement> run_job(const TuneJob& job, const CompileOptions& options, bool estimates);

}  // namespace tilewright
