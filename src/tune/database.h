#pragma once
// The tuning database: measurements and choices that are kept between runs.
//
// One SQLite file, in write-ahead mode, shared by any number of processes and threads. When insert() has returned, the
// record survives the process: each insert is one transaction, in the log file when it commits, so kill -9 at any point
// loses no finished record and leaves no partial one. (synchronous=NORMAL: the log is not synced to the disk at each
// commit, so a power failure may lose complete recent inserts, but never damages the file.)
//
// A record's key is a few texts. They are looked up by a 128-bit hash, and then compared completely: two keys with the
// same hash are two separate records, so a hash collision cannot select the wrong code.

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

/// The database cannot be written. Records that were found before are still valid.
class CannotKeep : public RuntimeError {
  public:
    CannotKeep(const std::string& message, bool full) : RuntimeError(message), full_(full) {}
    bool full() const { return full_; }  ///< writing failed; otherwise the file or its folder is not writable

  private:
    bool full_;
};

/// The key of a measurement: everything that the time depends on.
struct MeasurementKey {
    std::string stages;    ///< canonical_text of the stages
    std::string schedule;  ///< schedule_text of the tile program
    std::string target;    ///< target_key of the machine
    std::string settings;  ///< how it was run: settings_text (src/tune/measure.h)
    int generator = kGeneratorVersion;
    friend bool operator==(const MeasurementKey&, const MeasurementKey&) = default;
};

enum class Verdict : uint8_t {
    measured,  ///< `seconds` is valid
    failed,    ///< could not be compiled or run, or took too long; not tried again
    wrong,     ///< its result differs from that of the stages; never tried again
};
std::string_view to_string(Verdict v);  ///< "measured", ...

struct Measurement {
    MeasurementKey key;
    Verdict verdict = Verdict::measured;
    std::string reason;  ///< of a failure; empty if measured
    Measure seconds;     ///< of one run; zero unless measured
    int64_t when = 0;    ///< seconds since 1970; 0: insert() sets the time
    friend bool operator==(const Measurement&, const Measurement&) = default;
};

/// The key of a choice: a kernel, a machine, and a scheduler with its options.
struct ChoiceKey {
    std::string stages;
    std::string target;
    std::string scheduler;  ///< "construct", ...
    std::string options;    ///< everything that affects the choice: budget, threads, sizes
    int generator = kGeneratorVersion;
    friend bool operator==(const ChoiceKey&, const ChoiceKey&) = default;
};

struct Choice {
    ChoiceKey key;
    std::string schedule;  ///< schedule_text of the choice; with_schedule() makes a kernel of it
    double estimate = 0;   ///< seconds, by the cost model; 0: none
    Measure seconds;       ///< no samples: chosen by the estimate only
    int64_t when = 0;      ///< as in Measurement
    friend bool operator==(const Choice&, const Choice&) = default;
};

/// True if `a` is the more reliable of two records with one key. Measurements: wrong before measured before failed (one
/// wrong result outweighs any speed, a successful run outweighs a failed one), then more samples, the smaller spread,
/// the later. Choices: measured before estimated, then the same.
bool better_founded(const Measurement& a, const Measurement& b);
bool better_founded(const Choice& a, const Choice& b);

/// Which records to remove. A record is removed if any of the given conditions holds.
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
/// Hash of a key's encoded texts; the same on every machine and in every run.
Hash128 structural_hash(std::string_view text);
/// structural_hash in 32 hexadecimal digits.
std::string hash_digits(std::string_view text);

struct DatabaseOptions {
    bool must_exist = false;  ///< throw if the file does not exist, instead of creating it
    bool read_only = false;   ///< implies must_exist; inserts throw
    int busy_seconds = 30;    ///< timeout for other processes' transactions
    std::function<Hash128(std::string_view)> hash = structural_hash;  ///< for tests: a hash function with collisions
};

/// Every method throws a RuntimeError with the file, the problem and the remedy: the folder is not writable or has no
/// room (CannotKeep), the file is not a tuning database or is damaged (it is never deleted or overwritten), or a newer
/// version wrote it. Methods may be called by several threads at once. Not to be used in a child after fork().
class TuningDatabase {
  public:
    /// Opens the file; creates it and its folders if they do not exist.
    explicit TuningDatabase(const std::string& path, DatabaseOptions options = {});
    ~TuningDatabase();
    TuningDatabase(TuningDatabase&&) noexcept;
    TuningDatabase& operator=(TuningDatabase&&) noexcept;

    /// <cache_folder>/tuning.db. Throws RuntimeError if there is no cache folder.
    static std::string default_path();
    const std::string& path() const;

    std::optional<Measurement> find(const MeasurementKey& key) const;
    std::optional<Choice> find(const ChoiceKey& key) const;

    /// Inserts the record, or replaces one with the same key.
    void insert(const Measurement& record);
    void insert(const Choice& record);

    /// Adds all records or none; of two with one key the more reliable is kept. Returns the number added.
    int64_t merge(const std::vector<Measurement>& measurements, const std::vector<Choice>& choices);

    /// Visits every record until `visit` returns false, in the order in which they were first added. Records inserted
    /// meanwhile are not visited. `visit` may call methods of other databases, not of this one.
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
