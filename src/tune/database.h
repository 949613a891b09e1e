#pragma once
// The tuning database: what was measured, and what was chosen, for ever.
//
// One SQLite file, in write-ahead mode, shared by any number of processes and threads. When insert() has returned, the
// record outlives the process: each insert is one transaction, in the log file when it commits, so kill -9 at any point
// loses nothing finished and leaves nothing half written. (synchronous=NORMAL: the log is not forced to the disk at
// each commit, so a loss of power may take the last inserts with it, whole ones, and never damages the file.)
//
// A record's key is a few texts. They are found through a 128-bit hash, and then compared in full: two keys of one hash
// are two records, side by side. A hash never decides what code runs.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cost/target.h"
#include "tune/generator_version.h"

namespace tilewright {

/// Nothing can be kept in the file now. What was found there before is still there.
class CannotKeep : public RuntimeError {
  public:
    CannotKeep(const std::string& message, bool full) : RuntimeError(message), full_(full) {}
    bool full() const { return full_; }  ///< writing failed; else the file or its folder may not be written

  private:
    bool full_;
};

/// Which measurement: everything the seconds depend on.
struct MeasurementKey {
    std::string stages;    ///< canonical_text of the stages
    std::string schedule;  ///< schedule_text of the tile program
    std::string target;    ///< target_key of the machine
    std::string settings;  ///< how it was run: settings_text (src/tune/measure.h)
    int generator = kGeneratorVersion;
    friend bool operator==(const MeasurementKey&, const MeasurementKey&) = default;
};

enum class Verdict : uint8_t {
    measured,  ///< `seconds` says how fast
    failed,    ///< could not be compiled or run, or took too long; not to be tried again
    wrong,     ///< its result was not that of the stages; not to be tried again, ever
};
std::string_view to_string(Verdict v);  ///< "measured", ...

struct Measurement {
    MeasurementKey key;
    Verdict verdict = Verdict::measured;
    std::string reason;  ///< why not measured; empty if it is
    Measure seconds;     ///< of one run; zero unless measured
    int64_t when = 0;    ///< seconds since 1970; 0: insert() sets the time
    friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// Which choice: a kernel, a machine, and who chooses under which options.
struct ChoiceKey {
    std::string stages;
    std::string target;
    std::string scheduler;  ///< "construct", ...
    std::string options;    ///< everything that changes what it chooses: budget, threads, sizes
    int generator = kGeneratorVersion;
    friend bool operator==(const ChoiceKey&, const ChoiceKey&) = default;
};

struct Choice {
    ChoiceKey key;
    std::string schedule;  ///< schedule_text of what was chosen; with_schedule() makes a kernel of it
    double estimate = 0;   ///< seconds, by the cost model; 0: none
    Measure seconds;       ///< no samples: chosen by the estimate alone
    int64_t when = 0;      ///< as in Measurement
    friend bool operator==(const Choice&, const Choice&) = default;
};

/// Whether `a` is the better founded of two records of one key. Measurements: wrong before measured before failed (one
/// wrong result outweighs any speed, a run that worked outweighs one that did not), then more samples, the smaller
/// spread, the later. Choices: measured before estimated, then the same.
bool better_founded(const Measurement& a, const Measurement& b);
bool better_founded(const Choice& a, const Choice& b);

/// What to take out. A record goes when any of the conditions given holds.
struct PruneOptions {
    std::optional<int64_t> older_than = std::nullopt;              ///< taken before this moment (seconds since 1970)
    std::optional<int> other_generators_than = std::nullopt;       ///< of another generator version
    std::optional<std::string> other_targets_than = std::nullopt;  ///< of another target_key
    bool failed = false;                                           ///< verdict failed (not wrong): to be tried again
    bool dry_run = false;                                          ///< only count
};
struct PruneCount {
    int64_t measurements = 0, choices = 0;
};

struct Hash128 {
    uint64_t high = 0, low = 0;
    friend bool operator==(const Hash128&, const Hash128&) = default;
};
/// Of the texts of a key, each with its length in front; the same on every machine and run.
Hash128 structural_hash(std::string_view text);

struct DatabaseOptions {
    bool must_exist = false;  ///< throw where there is no file, rather than make one
    bool read_only = false;   ///< implies must_exist; inserts throw
    int busy_seconds = 30;    ///< how long to wait for other processes' transactions before an error
    std::function<Hash128(std::string_view)> hash = structural_hash;  ///< for tests: one that collides
};

/// Every method throws RuntimeError naming the file, what is wrong and what to do: the folder cannot be written or has
/// no room (CannotKeep), the file is no tuning database or a damaged one (it is never deleted or overwritten), or was
/// made by a newer version. Methods may be called by several threads at once. Not to be used in a child after fork().
class TuningDatabase {
  public:
    /// Opens the file, making it and its folders where they are not there.
    explicit TuningDatabase(const std::string& path, DatabaseOptions options = {});
    ~TuningDatabase();
    TuningDatabase(TuningDatabase&&) noexcept;
    TuningDatabase& operator=(TuningDatabase&&) noexcept;

    /// <cache_folder>/tuning.db. Throws RuntimeError where there is no cache folder.
    static std::string default_path();
    const std::string& path() const;

    std::optional<Measurement> find(const MeasurementKey& key) const;
    std::optional<Choice> find(const ChoiceKey& key) const;

    /// Adds the record, in place of one of the same key.
    void insert(const Measurement& record);
    void insert(const Choice& record);

    /// Adds the records, all or none; of those of one key the better founded stays. How many came in.
    int64_t merge(const std::vector<Measurement>& measurements, const std::vector<Choice>& choices);

    /// Every record until `visit` gives false, in the order in which they were first added. What is inserted meanwhile
    /// does not appear. `visit` may call methods of other databases, not of this one.
    void measurements(const std::function<bool(const Measurement&)>& visit) const;
    void choices(const std::function<bool(const Choice&)>& visit) const;
    std::vector<Measurement> measurements() const;
    std::vector<Choice> choices() const;

    PruneCount prune(const PruneOptions& options);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
