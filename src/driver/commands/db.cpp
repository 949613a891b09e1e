#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cost/target.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/commands/db_learn.h"
#include "driver/files.h"
#include "tune/database.h"
#include "tune/exchange.h"

namespace tilewright {

namespace {

struct DbOptions {
    std::string file;  ///< empty: the default path
    // list and export
    std::string target, verdict, kernel;
    int limit = 40;
    std::string json;
    // export
    std::string output;
    // merge
    std::vector<std::string> sources;
    // prune
    int days = 0;
    bool other_generators = false, other_targets = false, failed = false, dry_run = false;
};

std::string path_of(const DbOptions& o) { return o.file.empty() ? TuningDatabase::default_path() : o.file; }

TuningDatabase existing(const DbOptions& o) { return TuningDatabase(path_of(o), {.must_exist = true}); }

void add_file_option(CLI::App& command, DbOptions& o) {
    command.add_option("--db,--database", o.file, "the database (tuning.db in the cache folder)");
}

void add_filters(CLI::App& command, DbOptions& o) {
    command.add_option("--target", o.target, "only of this machine (16 digits, or 'this')");
    command.add_option("--verdict", o.verdict, "only measurements with this verdict")
        ->check(CLI::IsMember({"measured", "failed", "wrong"}));
    command.add_option("--kernel", o.kernel, "only kernels whose number has this prefix");
}

/// A kernel's number in tables: 8 hexadecimal digits. Not unique, and not used for lookup.
std::string kernel_number(const std::string& stages) {
    return fmt::format("{:08x}", structural_hash(stages).high >> 32);
}

bool wanted(const DbOptions& o, const std::string& stages, const std::string& target) {
    static const std::string here = target_key(host_target());
    return (o.target.empty() || target == (o.target == "this" ? here : o.target)) &&
           (o.kernel.empty() || kernel_number(stages).rfind(o.kernel, 0) == 0);
}

/// The records that pass the filters.
TuningRecords filtered(const TuningDatabase& db, const DbOptions& o) {
    TuningRecords out;
    db.measurements([&](const Measurement& m) {
        if (wanted(o, m.key.stages, m.key.target) && (o.verdict.empty() || to_string(m.verdict) == o.verdict))
            out.measurements.push_back(m);
        return true;
    });
    db.choices([&](const Choice& c) {
        if (wanted(o, c.key.stages, c.key.target) && o.verdict.empty()) out.choices.push_back(c);
        return true;
    });
    return out;
}

/// The result of a kernel, from its canonical text: "f32[64, 56, 56]", and "(3 stages)" if there are several.
std::string kernel_summary(const std::string& stages) {
    std::string last;
    int count = 0;
    for (size_t at = 0; at < stages.size();) {
        const size_t end = std::min(stages.find('\n', at), stages.size());
        const std::string line = stages.substr(at, end - at);
        at = end + 1;
        const size_t type = line.find(": "), made = line.find(" = ");
        if (type == std::string::npos || made == std::string::npos || type > made || line.rfind("  const ", 0) == 0)
            continue;
        last = line.substr(type + 2, made - type - 2);
        ++count;
    }
    return count > 1 ? fmt::format("{} ({} stages)", last, count) : last;
}

std::string date_of(int64_t when) {
    const auto seconds = static_cast<std::time_t>(when);
    std::tm parts{};
    char text[32] = "?";
    if (gmtime_r(&seconds, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
    return text;
}

std::string microseconds(const Measure& m) {
    return m.measured() ? fmt::format("{:.2f} +-{:.0f}%", m.value * 1e6, m.spread * 50) : "-";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

template <class Record>
std::string json_array(const std::vector<Record>& records) {
    std::string text;
    for (const Record& r : records) text += (text.empty() ? "" : ",\n") + to_json_line(r);
    return "[\n" + text + "]";
}

int list(const DbOptions& o) {
    const TuningRecords records = filtered(existing(o), o);
    const auto shown = [&](size_t n) { return o.limit == 0 ? n : std::min(n, static_cast<size_t>(o.limit)); };
    const auto more = [&](size_t n) {
        if (shown(n) < n) fmt::print("... and {} more (--limit 0 shows all)\n", n - shown(n));
    };
    if (!records.measurements.empty())
        fmt::print("{:<8}  {:>16}  {:>7}  {:<10}  {:<16}  {:>3}  {:<28}  {}\n", "kernel", "microseconds", "samples",
                   "when", "target", "gen", "settings", "makes");
    for (size_t i = 0; i < shown(records.measurements.size()); ++i) {
        const Measurement& m = records.measurements[i];
        const bool fine = m.verdict == Verdict::measured;
        fmt::print("{:<8}  {:>16}  {:>7}  {:<10}  {:<16}  {:>3}  {:<28}  {}{}\n", kernel_number(m.key.stages),
                   fine ? microseconds(m.seconds) : std::string(to_string(m.verdict)), m.seconds.samples,
                   date_of(m.when), m.key.target, m.key.generator, m.key.settings, kernel_summary(m.key.stages),
                   fine ? "" : ": " + first_line(m.reason));
    }
    more(records.measurements.size());
    if (!records.choices.empty())
        fmt::print("{}{:<8}  {:>16}  {:>12}  {:<10}  {:<16}  {:>3}  {:<28}  {}\n",
                   records.measurements.empty() ? "" : "\n", "kernel", "microseconds", "estimate", "when", "target",
                   "gen", "chosen by", "makes");
    for (size_t i = 0; i < shown(records.choices.size()); ++i) {
        const Choice& c = records.choices[i];
        fmt::print("{:<8}  {:>16}  {:>12.2f}  {:<10}  {:<16}  {:>3}  {:<28}  {}\n", kernel_number(c.key.stages),
                   microseconds(c.seconds), c.estimate * 1e6, date_of(c.when), c.key.target, c.key.generator,
                   c.key.scheduler + (c.key.options.empty() ? "" : " " + c.key.options), kernel_summary(c.key.stages));
    }
    more(records.choices.size());
    fmt::print("{} measurements, {} choices\n", records.measurements.size(), records.choices.size());
    write_json(o.json, fmt::format("{{\"measurements\": {}, \"choices\": {}}}", json_array(records.measurements),
                                   json_array(records.choices)));
    return 0;
}

int export_records(const DbOptions& o) {
    const TuningRecords records = filtered(existing(o), o);
    std::string text;
    for (const Measurement& m : records.measurements) text += to_json_line(m) + "\n";
    for (const Choice& c : records.choices) text += to_json_line(c) + "\n";
    if (o.output.empty() || o.output == "-") {
        if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
            throw RuntimeError("cannot write to standard output");
        return 0;
    }
    write_file(o.output, {text});
    fmt::print("{} records written to {}\n", records.measurements.size() + records.choices.size(), o.output);
    return 0;
}

bool is_database(const std::string& path) {
    char head[16] = {};
    std::ifstream(path, std::ios::binary).read(head, sizeof head);
    return std::string_view(head, 15) == "SQLite format 3";
}

int merge(const DbOptions& o) {
    // All files are read before any record is inserted: an unreadable file leaves the database unchanged.
    std::vector<TuningRecords> given;
    for (const std::string& source : o.sources) {
        if (is_database(source))
            given.push_back(all_records(TuningDatabase(source, {.must_exist = true})));
        else
            given.push_back(parse_json_lines(read_file(source), source));
    }
    TuningDatabase db(path_of(o));
    for (size_t i = 0; i < given.size(); ++i) {
        const int64_t came = db.merge(given[i].measurements, given[i].choices);
        fmt::print("{}: {} of {} records came in\n", o.sources[i], came,
                   given[i].measurements.size() + given[i].choices.size());
    }
    return 0;
}

int prune(const DbOptions& o) {
    PruneOptions p;
    if (o.days > 0) p.older_than = static_cast<int64_t>(std::time(nullptr)) - int64_t{o.days} * 24 * 60 * 60;
    if (o.other_generators) p.other_generators_than = kGeneratorVersion;
    if (o.other_targets) p.other_targets_than = target_key(host_target());
    p.failed = o.failed;
    p.dry_run = o.dry_run;
    TuningDatabase db = existing(o);
    const PruneCount count = db.prune(p);
    fmt::print("{} measurements and {} choices {}\n", count.measurements, count.choices,
               o.dry_run ? "would go" : "removed");
    return 0;
}

void add_list(CLI::App& db, const std::shared_ptr<DbOptions>& o, int& status) {
    CLI::App* c = db.add_subcommand("list", "print measurements and choices");
    add_file_option(*c, *o);
    add_filters(*c, *o);
    c->add_option("--limit", o->limit, "rows of each table (40); 0: all")->check(CLI::Range(0, 1 << 30));
    add_json_option(*c, o->json);
    c->footer(
        "Microseconds are medians, with half the interquartile range.\n\n"
        "Examples:\n"
        "  tilewright db list\n"
        "  tilewright db list --target this --limit 0 --json records.json\n"
        "  tilewright db list --verdict wrong");
    c->callback([=, &status] { status = list(*o); });
}

void add_export(CLI::App& db, const std::shared_ptr<DbOptions>& o, int& status) {
    CLI::App* c = db.add_subcommand("export", "write records as JSON lines, for `db merge` elsewhere");
    add_file_option(*c, *o);
    add_filters(*c, *o);
    c->add_option("output,-o,--output", o->output, "file (standard output if absent or -)");
    c->footer(
        "Examples:\n"
        "  tilewright db export records.jsonl\n"
        "  tilewright db export --target this | gzip > records.jsonl.gz");
    c->callback([=, &status] { status = export_records(*o); });
}

void add_merge(CLI::App& db, const std::shared_ptr<DbOptions>& o, int& status) {
    CLI::App* c = db.add_subcommand("merge", "insert records of other databases or of exported files");
    add_file_option(*c, *o);
    c->add_option("files", o->sources, "JSON lines that `db export` wrote, or databases")->required();
    c->footer(
        "Of two records with one key the more reliable is kept: a wrong result before a time, a time before a failure; "
        "then\n"
        "more samples, the smaller spread, the later.\n\n"
        "Examples:\n"
        "  tilewright db merge records.jsonl\n"
        "  tilewright db merge --db all.db machine1.db machine2.db");
    c->callback([=, &status] { status = merge(*o); });
}

void add_prune(CLI::App& db, const std::shared_ptr<DbOptions>& o, int& status) {
    CLI::App* c = db.add_subcommand("prune", "remove records");
    add_file_option(*c, *o);
    c->add_option("--older-than", o->days, "records older than this many days")->check(CLI::Range(1, 100000));
    c->add_flag("--other-generators", o->other_generators, "records of other versions of the code generator");
    c->add_flag("--other-targets", o->other_targets, "records of other machines");
    c->add_flag("--failed", o->failed, "records of kernels that could not be compiled or run, to try them again");
    c->add_flag("--dry-run", o->dry_run, "only print the number of records");
    c->footer(
        "A record is removed if any of the conditions holds.\n\n"
        "Examples:\n"
        "  tilewright db prune --other-generators --dry-run\n"
        "  tilewright db prune --older-than 180 --other-targets");
    c->callback([=, &status] {
        if (o->days == 0 && !o->other_generators && !o->other_targets && !o->failed)
            throw CLI::ValidationError("prune",
                                       "no condition given: expected --older-than, --other-generators, --other-targets "
                                       "or --failed");
        status = prune(*o);
    });
}

}  // namespace

void add_db_command(CLI::App& app, int& status) {
    const auto o = std::make_shared<DbOptions>();
    CLI::App* db = app.add_subcommand("db", "the tuning database: measurements of this machine and others");
    db->require_subcommand(1);
    add_list(*db, o, status);
    add_export(*db, o, status);
    add_merge(*db, o, status);
    add_prune(*db, o, status);
    add_db_learn(*db, status);
    db->footer(
        "Examples:\n"
        "  tilewright db list\n"
        "  tilewright db export records.jsonl\n"
        "  tilewright db merge records.jsonl other.db\n"
        "  tilewright db prune --older-than 180 --dry-run\n"
        "  tilewright db learn");
}

}  // namespace tilewright
