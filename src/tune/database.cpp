#include "tune/database.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "base/private_folder.h"
#include "tune/sqlite.h"

namespace tilewright {
namespace {

using sqlite::Connection;
using sqlite::Statement;
using sqlite::Transaction;

constexpr int64_t kSchemaVersion = 1;           // PRAGMA user_version; increment it with every change of the tables
constexpr int64_t kApplicationId = 0x54574442;  // PRAGMA application_id, "TWDB"

// `key` is the 128-bit hash, high half first. It is not unique.
constexpr const char* kSchema[] = {
    "CREATE TABLE measurement (id INTEGER PRIMARY KEY, key BLOB NOT NULL, stages TEXT NOT NULL, schedule TEXT NOT NULL,"
    " target TEXT NOT NULL, settings TEXT NOT NULL, generator INTEGER NOT NULL, verdict INTEGER NOT NULL,"
    " reason TEXT NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL, samples INTEGER NOT NULL,"
    " taken INTEGER NOT NULL)",
    "CREATE TABLE choice (id INTEGER PRIMARY KEY, key BLOB NOT NULL, stages TEXT NOT NULL, target TEXT NOT NULL,"
    " scheduler TEXT NOT NULL, options TEXT NOT NULL, generator INTEGER NOT NULL, schedule TEXT NOT NULL,"
    " estimate REAL NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL, samples INTEGER NOT NULL,"
    " taken INTEGER NOT NULL)",
    "CREATE INDEX measurement_key ON measurement (key)",
    "CREATE INDEX choice_key ON choice (key)",
};

int64_t now() {
    using namespace std::chrono;
    return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

/// An injective encoding of a list of texts.
std::string joined(std::initializer_list<std::string_view> parts) {
    std::string text;
    for (const std::string_view p : parts) text += fmt::format("{}:{}", p.size(), p);
    return text;
}

std::string key_text(const MeasurementKey& k) {
    return joined({"measurement", k.stages, k.schedule, k.target, k.settings, std::to_string(k.generator)});
}

std::string key_text(const ChoiceKey& k) {
    return joined({"choice", k.stages, k.target, k.scheduler, k.options, std::to_string(k.generator)});
}

// The column order is defined once. The key's equality is SQL's: texts are compared byte by byte.
constexpr const char* kMeasurementColumns =
    "stages, schedule, target, settings, generator, verdict, reason, seconds, spread, samples, taken";
constexpr const char* kMeasurementWhere =
    "key = ?1 AND stages = ?2 AND schedule = ?3 AND target = ?4 AND settings = ?5 AND generator = ?6";
constexpr const char* kChoiceColumns =
    "stages, target, scheduler, options, generator, schedule, estimate, seconds, spread, samples, taken";
constexpr const char* kChoiceWhere =
    "key = ?1 AND stages = ?2 AND target = ?3 AND scheduler = ?4 AND options = ?5 AND generator = ?6";

void bind_key(Statement& s, const std::string& hash, const MeasurementKey& k) {
    s.bind_blob(1, hash).bind(2, k.stages).bind(3, k.schedule).bind(4, k.target).bind(5, k.settings);
    s.bind(6, int64_t{k.generator});
}

void bind_key(Statement& s, const std::string& hash, const ChoiceKey& k) {
    s.bind_blob(1, hash).bind(2, k.stages).bind(3, k.target).bind(4, k.scheduler).bind(5, k.options);
    s.bind(6, int64_t{k.generator});
}

void bind_seconds(Statement& s, int first, const Measure& m, int64_t when) {
    s.bind(first, m.value).bind(first + 1, m.spread).bind(first + 2, int64_t{m.samples});
    s.bind(first + 3, when != 0 ? when : now());
}

Measure seconds_of(const Connection& c, const Statement& row, int first) {
    const Measure m{row.number(first), row.number(first + 1), static_cast<int>(row.integer(first + 2))};
    // Written so that the comparisons with NaN fail as well.
    if (!(m.value >= 0 && m.spread >= 0) || !std::isfinite(m.value + m.spread) || m.samples < 0)
        c.damaged("a time that is none");
    return m;
}

Measurement measurement_of(const Connection& c, const Statement& row) {
    Measurement m;
    m.key = {row.text(0), row.text(1), row.text(2), row.text(3), static_cast<int>(row.integer(4))};
    const int64_t verdict = row.integer(5);
    if (verdict < 0 || verdict > static_cast<int64_t>(Verdict::wrong)) c.damaged("an unknown verdict");
    m.verdict = static_cast<Verdict>(verdict);
    m.reason = row.text(6);
    m.seconds = seconds_of(c, row, 7);
    m.when = row.integer(10);
    return m;
}

Choice choice_of(const Connection& c, const Statement& row) {
    Choice out;
    out.key = {row.text(0), row.text(1), row.text(2), row.text(3), static_cast<int>(row.integer(4))};
    out.schedule = row.text(5);
    out.estimate = row.number(6);
    if (!(out.estimate >= 0) || !std::isfinite(out.estimate)) c.damaged("an estimate that is none");
    out.seconds = seconds_of(c, row, 7);
    out.when = row.integer(10);
    return out;
}

auto founded(const Measure& m, int64_t when) { return std::tuple(m.samples, -m.spread, when); }

int rank(Verdict v) { return v == Verdict::wrong ? 2 : v == Verdict::measured ? 1 : 0; }

/// Checks that the tables can represent the record.
void require(const Measure& m) {
    TW_CHECK(m.value >= 0 && m.spread >= 0 && std::isfinite(m.value + m.spread) && m.samples >= 0,
             "a time of {} s with spread {} and {} samples is not valid", m.value, m.spread, m.samples);
}

}  // namespace

std::string_view to_string(Verdict v) {
    switch (v) {
        case Verdict::measured:
            return "measured";
        case Verdict::failed:
            return "failed";
        case Verdict::wrong:
            return "wrong";
    }
    internal_error(__FILE__, __LINE__, "verdict", "out of range");
}

bool better_founded(const Measurement& a, const Measurement& b) {
    return std::tuple_cat(std::tuple(rank(a.verdict)), founded(a.seconds, a.when)) >
           std::tuple_cat(std::tuple(rank(b.verdict)), founded(b.seconds, b.when));
}

bool better_founded(const Choice& a, const Choice& b) {
    return founded(a.seconds, a.when) > founded(b.seconds, b.when);
}

Hash128 structural_hash(std::string_view text) {
    // Two chains over 64-bit words with different initial values and mixing.
    uint64_t high = 0x6A09E667F3BCC908ull, low = 0xBB67AE8584CAA73Bull;
    for (size_t at = 0; at < text.size(); at += 8) {
        uint64_t word = 0;
        for (size_t k = 0; k < 8 && at + k < text.size(); ++k)
            word |= uint64_t{static_cast<unsigned char>(text[at + k])} << (8 * k);
        high = hash_combine(high, word);
        low = hash_mix((low ^ word) * 0x9E3779B97F4A7C15ull + at);
    }
    return {hash_combine(high, text.size()), hash_combine(low, text.size())};
}

std::string hash_digits(std::string_view text) {
    const Hash128 hash = structural_hash(text);
    return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

class TuningDatabase::Impl {
  public:
    Impl(const std::string& path, DatabaseOptions options)
        : options_(std::move(options)),
          connection_(prepared(path, options_), options_.read_only, options_.busy_seconds) {
        // A file from elsewhere may contain triggers and views, and corrupt cells.
        connection_.run("PRAGMA trusted_schema=OFF");
        connection_.run("PRAGMA cell_size_check=ON");
        const int64_t version = version_at_once();
        if (options_.read_only) {
            if (version == 0) throw RuntimeError(fmt::format("{} is an empty file, not a tuning database", path));
            return;
        }
        connection_.use_write_ahead_log();
        connection_.run("PRAGMA synchronous=NORMAL");
        if (version == 0) create();
    }

    template <class Record, class Key>
    std::optional<Record> find(const Key& key) const {
        const std::lock_guard lock(mutex_);
        const auto found = find_row<Record>(key, hash_of(key));
        return found ? std::optional(found->second) : std::nullopt;
    }

    template <class Record>
    void insert(const Record& record) {
        const std::lock_guard lock(mutex_);
        Transaction transaction(connection_, true);
        put(record, [](const Record&) { return true; });
        transaction.commit();
    }

    int64_t merge(const std::vector<Measurement>& measurements, const std::vector<Choice>& choices) {
        const std::lock_guard lock(mutex_);
        Transaction transaction(connection_, true);
        int64_t count = 0;
        for (const Measurement& m : measurements)
            count += put(m, [&](const Measurement& old) { return better_founded(m, old); }) ? 1 : 0;
        for (const Choice& c : choices)
            count += put(c, [&](const Choice& old) { return better_founded(c, old); }) ? 1 : 0;
        transaction.commit();
        return count;
    }

    template <class Record>
    void visit(const std::function<bool(const Record&)>& f) const {
        const std::lock_guard lock(mutex_);
        const bool measurement = std::is_same_v<Record, Measurement>;
        Statement rows = connection_.query(fmt::format("SELECT {} FROM {} ORDER BY id",
                                                       measurement ? kMeasurementColumns : kChoiceColumns,
                                                       measurement ? "measurement" : "choice"));
        while (rows.step()) {
            if constexpr (std::is_same_v<Record, Measurement>) {
                if (!f(measurement_of(connection_, rows))) return;
            } else {
                if (!f(choice_of(connection_, rows))) return;
            }
        }
    }

    PruneCount prune(const PruneOptions& options) {
        const std::lock_guard lock(mutex_);
        PruneCount count;
        {
            Transaction transaction(connection_, !options.dry_run);
            count.measurements = prune_table("measurement", options, options.failed);
            count.choices = prune_table("choice", options, false);
            transaction.commit();
        }
        if (options.dry_run || count.measurements + count.choices == 0) return count;
        try {
            connection_.run("VACUUM");
        } catch (const RuntimeError&) {  // NOLINT(bugprone-empty-catch): other connections are active; space is reused
        }
        return count;
    }

    const std::string& path() const { return connection_.path(); }

  private:
    /// The path, if the file exists as required by the options, or can be created.
    static std::string prepared(const std::string& path, const DatabaseOptions& options) {
        namespace fs = std::filesystem;
        std::error_code error;
        const fs::file_status status = fs::status(path, error);
        if (fs::exists(status)) {
            if (!fs::is_regular_file(status))
                throw RuntimeError(fmt::format("tuning database {}: expected a regular file", path));
            return path;
        }
        if (options.must_exist || options.read_only)
            throw RuntimeError(
                fmt::format("no tuning database at {}: run tuning to create one, or name another file", path));
        const fs::path folder = fs::path(path).parent_path();
        try {
            if (!folder.empty()) make_private_folders(folder.string());
        } catch (const RuntimeError& e) {
            throw CannotKeep(fmt::format("tuning database {}: {}", path, e.what()), false);
        }
        return path;
    }

    /// Read in one transaction: another process may be creating the tables.
    int64_t version_at_once() const {
        Transaction transaction(connection_, false);
        const int64_t version = schema_version();
        transaction.commit();
        return version;
    }

    /// Within a transaction. 0: an empty file, to be initialised. Throws for any other or unsupported file.
    int64_t schema_version() const {
        const int64_t version = connection_.integer("PRAGMA user_version");
        const int64_t application = connection_.integer("PRAGMA application_id");
        if (application == 0 && version == 0 && connection_.integer("SELECT count(*) FROM sqlite_master") == 0)
            return 0;
        if (application != kApplicationId)
            throw RuntimeError(fmt::format("{} belongs to another program: name another file", path()));
        if (version > kSchemaVersion)
            throw RuntimeError(
                fmt::format("tuning database {} was made by a newer Tilewright (its format is {}, this "
                            "program reads up to {}): use that version, or name another file",
                            path(), version, kSchemaVersion));
        if (version < 1) connection_.damaged("no format version");
        return version;
    }

    void create() {
        Transaction transaction(connection_, true);
        if (schema_version() == 0) {  // no other process has created the tables
            for (const char* sql : kSchema) connection_.run(sql);
            connection_.run(fmt::format("PRAGMA application_id={}", kApplicationId));
            connection_.run(fmt::format("PRAGMA user_version={}", kSchemaVersion));
        }
        transaction.commit();
    }

    template <class Key>
    std::string hash_of(const Key& key) const {
        const Hash128 h = options_.hash(key_text(key));
        std::string bytes;
        for (const uint64_t half : {h.high, h.low})
            for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(half >> shift);
        return bytes;
    }

    template <class Record, class Key>
    std::optional<std::pair<int64_t, Record>> find_row(const Key& key, const std::string& hash) const {
        const bool measurement = std::is_same_v<Record, Measurement>;
        static const std::string sql =
            fmt::format("SELECT {}, id FROM {} WHERE {}", measurement ? kMeasurementColumns : kChoiceColumns,
                        measurement ? "measurement" : "choice", measurement ? kMeasurementWhere : kChoiceWhere);
        Statement row = connection_.query(sql);
        bind_key(row, hash, key);
        if (!row.step()) return std::nullopt;
        if constexpr (std::is_same_v<Record, Measurement>) {
            return std::pair(row.integer(11), measurement_of(connection_, row));
        } else {
            return std::pair(row.integer(11), choice_of(connection_, row));
        }
    }

    void write(const Measurement& m, const std::string& hash, std::optional<int64_t> row) const {
        require(m.seconds);
        Statement s = connection_.query(
            row ? "UPDATE measurement SET verdict = ?7, reason = ?8, seconds = ?9, spread = ?10, samples = ?11, taken "
                  "= "
                  "?12 WHERE id = ?1"
                : fmt::format("INSERT INTO measurement (key, {}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
                              "?12)",
                              kMeasurementColumns));
        if (row)
            s.bind(1, *row);
        else
            bind_key(s, hash, m.key);
        s.bind(7, static_cast<int64_t>(m.verdict)).bind(8, m.reason);
        bind_seconds(s, 9, m.seconds, m.when);
        s.run();
    }

    void write(const Choice& c, const std::string& hash, std::optional<int64_t> row) const {
        require(c.seconds);
        TW_CHECK(c.estimate >= 0 && std::isfinite(c.estimate), "an estimate of {} s is not valid", c.estimate);
        Statement s = connection_.query(
            row ? "UPDATE choice SET schedule = ?7, estimate = ?8, seconds = ?9, spread = ?10, samples = ?11, taken = "
                  "?12 WHERE id = ?1"
                : fmt::format("INSERT INTO choice (key, {}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                              kChoiceColumns));
        if (row)
            s.bind(1, *row);
        else
            bind_key(s, hash, c.key);
        s.bind(7, c.schedule).bind(8, c.estimate);
        bind_seconds(s, 9, c.seconds, c.when);
        s.run();
    }

    /// Within a transaction. True if the record was inserted: there was none of its key, or it may be replaced.
    template <class Record, class MayReplace>
    bool put(const Record& record, const MayReplace& may_replace) const {
        const std::string hash = hash_of(record.key);
        const auto old = find_row<Record>(record.key, hash);
        if (old && !may_replace(old->second)) return false;
        write(record, hash, old ? std::optional(old->first) : std::nullopt);
        return true;
    }

    int64_t prune_table(const std::string& table, const PruneOptions& o, bool failed) const {
        std::string where;
        const auto add = [&](const std::string& condition) { where += (where.empty() ? "" : " OR ") + condition; };
        if (o.older_than) add("taken < ?1");
        if (o.other_generators_than) add("generator <> ?2");
        if (o.other_targets_than) add("target <> ?3");
        if (failed) add(fmt::format("verdict = {}", static_cast<int>(Verdict::failed)));
        if (where.empty()) return 0;
        Statement s = connection_.query(
            fmt::format("{} FROM {} WHERE {}", o.dry_run ? "SELECT count(*)" : "DELETE", table, where));
        if (o.older_than) s.bind(1, *o.older_than);
        if (o.other_generators_than) s.bind(2, int64_t{*o.other_generators_than});
        if (o.other_targets_than) s.bind(3, *o.other_targets_than);
        if (s.step()) return s.integer(0);
        return connection_.changes();
    }

    mutable std::mutex mutex_;
    DatabaseOptions options_;
    Connection connection_;
};

TuningDatabase::TuningDatabase(const std::string& path, DatabaseOptions options)
    : impl_(std::make_unique<Impl>(path, std::move(options))) {}
TuningDatabase::~TuningDatabase() = default;
TuningDatabase::TuningDatabase(TuningDatabase&&) noexcept = default;
TuningDatabase& TuningDatabase::operator=(TuningDatabase&&) noexcept = default;

std::string TuningDatabase::default_path() {
    const auto folder = cache_folder();
    if (!folder) throw CannotKeep("no folder for the tuning database: set XDG_CACHE_HOME or HOME", false);
    return *folder + "/tuning.db";
}

const std::string& TuningDatabase::path() const { return impl_->path(); }

std::optional<Measurement> TuningDatabase::find(const MeasurementKey& key) const {
    return impl_->find<Measurement>(key);
}
std::optional<Choice> TuningDatabase::find(const ChoiceKey& key) const { return impl_->find<Choice>(key); }

void TuningDatabase::insert(const Measurement& record) { impl_->insert(record); }
void TuningDatabase::insert(const Choice& record) { impl_->insert(record); }

int64_t TuningDatabase::merge(const std::vector<Measurement>& measurements, const std::vector<Choice>& choices) {
    return impl_->merge(measurements, choices);
}

void TuningDatabase::measurements(const std::function<bool(const Measurement&)>& visit) const { impl_->visit(visit); }
void TuningDatabase::choices(const std::function<bool(const Choice&)>& visit) const { impl_->visit(visit); }

std::vector<Measurement> TuningDatabase::measurements() const {
    std::vector<Measurement> out;
    measurements([&](const Measurement& m) {
        out.push_back(m);
        return true;
    });
    return out;
}

std::vector<Choice> TuningDatabase::choices() const {
    std::vector<Choice> out;
    choices([&](const Choice& c) {
        out.push_back(c);
        return true;
    });
    return out;
}

PruneCount TuningDatabase::prune(const PruneOptions& options) { return impl_->prune(options); }

}  // namespace tilewright
