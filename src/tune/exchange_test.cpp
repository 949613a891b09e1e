#include "tune/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

Measurement measurement() {
    Measurement m;
    m.key = {"program k {\n  input v0: f32[$s0, 4]\n}\n", "tile k {\n}\n", "0123456789abcdef",
             "threads=1 warmth=warm s0=3", 7};
    m.seconds = {1.0 / 3, 0.1, 31};
    m.when = 1'700'000'000;
    return m;
}

Choice choice() {
    Choice c;
    c.key = {"program k {\n}\n", "0123456789abcdef", "construct", "budget=\"1\"", 7};
    c.schedule = "tile k {\n}\n";
    c.estimate = 1e-300;
    c.seconds = {2e-3, 0, 5};
    c.when = 1;
    return c;
}

std::string error_of(const std::string& text) {
    try {
        parse_json_lines(text, "records");
    } catch (const ModelError& e) {
        return e.what();
    }
    return "no error";
}

/// The line with the first `from` replaced.
std::string changed(std::string line, const std::string& from, const std::string& to) {
    const size_t at = line.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << line;
    return line.replace(at, from.size(), to);
}

TEST(Exchange, records_round_trip) {
    Measurement wrong = measurement();
    wrong.verdict = Verdict::wrong;
    wrong.reason = "element \"1\"\nis 2";
    wrong.seconds = {};
    const std::string text =
        to_json_line(measurement()) + "\n" + to_json_line(choice()) + "\r\n\n" + to_json_line(wrong);
    const TuningRecords records = parse_json_lines(text, "records");
    EXPECT_EQ(records.measurements, (std::vector<Measurement>{measurement(), wrong}));
    EXPECT_EQ(records.choices, std::vector<Choice>{choice()});
    EXPECT_EQ(to_json_line(measurement()).find('\n'), std::string::npos);
}

TEST(Exchange, errors_name_the_line_and_the_cause) {
    const std::string line = to_json_line(measurement());
    EXPECT_THAT(error_of(line + "\nnonsense\n"), HasSubstr("records, line 2: expected a JSON object"));
    EXPECT_THAT(error_of("[1]"), HasSubstr("expected a JSON object"));
    EXPECT_THAT(error_of("{}"), HasSubstr("no field 'format'"));
    EXPECT_THAT(error_of(changed(line, "\"format\":1", "\"format\":9")), HasSubstr("newer Tilewright"));
    EXPECT_THAT(error_of(changed(line, "\"kind\":\"measurement\"", "\"kind\":\"rumour\"")), HasSubstr("'kind'"));
    EXPECT_THAT(error_of(changed(line, "\"measured\"", "\"guessed\"")), HasSubstr("'verdict'"));
    EXPECT_THAT(error_of(changed(line, "\"spread\":0.1", "\"spread\":-0.1")), HasSubstr("'spread'"));
    EXPECT_THAT(error_of(changed(line, "\"samples\":31", "\"samples\":3.5")), HasSubstr("'samples'"));
    EXPECT_THAT(error_of(changed(line, "\"samples\":31", "\"samples\":99999999999")), HasSubstr("'samples'"));
    EXPECT_THAT(error_of(changed(line, "\"when\":1700000000", "\"when\":18446744073709551615")), HasSubstr("'when'"));
    EXPECT_THAT(error_of(changed(line, "\"spread\":0.1", "\"spread\":1e999")), HasSubstr("records, line 1"));
    EXPECT_THAT(error_of(changed(line, "\"target\":\"0123456789abcdef\"", "\"target\":5")), HasSubstr("'target'"));
    EXPECT_THAT(error_of(changed(line, "\"settings\"", "\"setting\"")), HasSubstr("no field 'settings'"));
}

TEST(Exchange, unknown_fields_are_ignored) {
    const std::string line = changed(to_json_line(choice()), "\"format\":1", "\"format\":1,\"mood\":\"good\"");
    EXPECT_EQ(parse_json_lines(line, "records").choices, std::vector<Choice>{choice()});
}

}  // namespace
}  // namespace tilewright
