#include "tune/exchange.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace tilewright {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // increment it when a field changes its meaning

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// One line's fields, with errors that name them.
class Fields {
  public:
    Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

    std::string text(const char* name) const {
        const Json& v = field(name);
        if (!v.is_string()) fail(name, "a text");
        return v.get<std::string>();
    }
    int64_t integer(const char* name, int64_t lo, int64_t hi) const {
        const Json& v = field(name);
        // An unsigned number above the range of int64 would wrap.
        const bool fits = v.is_number_integer() && !(v.is_number_unsigned() &&
                                                     v.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()});
        if (!fits || v.get<int64_t>() < lo || v.get<int64_t>() > hi)
            fail(name, fmt::format("an integer from {} to {}", lo, hi));
        return v.get<int64_t>();
    }
    int small(const char* name) const { return static_cast<int>(integer(name, 0, std::numeric_limits<int>::max())); }
    /// A time or a ratio: not negative.
    double number(const char* name) const {
        const Json& v = field(name);
        const double d = v.is_number() ? v.get<double>() : -1;
        if (!(d >= 0) || !std::isfinite(d)) fail(name, "a number that is not negative");
        return d;
    }
    Measure seconds() const { return {number("seconds"), number("spread"), small("samples")}; }
    int64_t when() const { return integer("when", 0, int64_t{1} << 40); }
    [[noreturn]] void fail(const char* name, const std::string& expected) const {
        model_error("{}: expected '{}' to be {}", where_, name, expected);
    }

  private:
    const Json& field(const char* name) const {
        const auto it = json_.find(name);
        if (it == json_.end()) model_error("{}: no field '{}'", where_, name);
        return *it;
    }

    const Json& json_;
    std::string where_;
};

Measurement measurement_of(const Fields& f) {
    Measurement m;
    m.key = {f.text("stages"), f.text("schedule"), f.text("target"), f.text("settings"), f.small("generator")};
    const std::string verdict = f.text("verdict");
    if (verdict == to_string(Verdict::measured))
        m.verdict = Verdict::measured;
    else if (verdict == to_string(Verdict::failed))
        m.verdict = Verdict::failed;
    else if (verdict == to_string(Verdict::wrong))
        m.verdict = Verdict::wrong;
    else
        f.fail("verdict", "measured, failed or wrong");
    m.reason = f.text("reason");
    m.seconds = f.seconds();
    m.when = f.when();
    return m;
}

Choice choice_of(const Fields& f) {
    Choice c;
    c.key = {f.text("stages"), f.text("target"), f.text("scheduler"), f.text("options"), f.small("generator")};
    c.schedule = f.text("schedule");
    c.estimate = f.number("estimate");
    c.seconds = f.seconds();
    c.when = f.when();
    return c;
}

}  // namespace

std::string to_json_line(const Measurement& m) {
    return line_of({{"format", kFormat},
                    {"kind", "measurement"},
                    {"stages", m.key.stages},
                    {"schedule", m.key.schedule},
                    {"target", m.key.target},
                    {"settings", m.key.settings},
                    {"generator", m.key.generator},
                    {"verdict", std::string(to_string(m.verdict))},
                    {"reason", m.reason},
                    {"seconds", m.seconds.value},
                    {"spread", m.seconds.spread},
                    {"samples", m.seconds.samples},
                    {"when", m.when}});
}

std::string to_json_line(const Choice& c) {
    return line_of({{"format", kFormat},
                    {"kind", "choice"},
                    {"stages", c.key.stages},
                    {"target", c.key.target},
                    {"scheduler", c.key.scheduler},
                    {"options", c.key.options},
                    {"generator", c.key.generator},
                    {"schedule", c.schedule},
                    {"estimate", c.estimate},
                    {"seconds", c.seconds.value},
                    {"spread", c.seconds.spread},
                    {"samples", c.seconds.samples},
                    {"when", c.when}});
}

TuningRecords parse_json_lines(std::string_view text, const std::string& what) {
    TuningRecords records;
    for (int number = 1; !text.empty(); ++number) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string where = fmt::format("{}, line {}", what, number);
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object())
            throw ModelError(where + ": expected a JSON object of a tuning record",
                             "`tilewright db export` writes such lines");
        const Fields fields(json, where);
        if (const int64_t format = fields.integer("format", 1, 1 << 20); format > kFormat)
            model_error("{}: format {} is of a newer Tilewright, which this one (format {}) cannot read", where, format,
                        kFormat);
        const std::string kind = fields.text("kind");
        if (kind == "measurement")
            records.measurements.push_back(measurement_of(fields));
        else if (kind == "choice")
            records.choices.push_back(choice_of(fields));
        else
            fields.fail("kind", "measurement or choice");
    }
    return records;
}

TuningRecords all_records(const TuningDatabase& db) { return {db.measurements(), db.choices()}; }

}  // namespace tilewright
