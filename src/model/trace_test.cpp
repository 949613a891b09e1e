#include "model/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/clock.h"
#include "compile/pipeline.h"
#include "program/program.h"

namespace tilewright {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The number behind `"key": ` at its n-th occurrence.
double number(const std::string& json, const std::string& key, size_t n) {
    size_t at = 0;
    for (size_t k = 0; k <= n; ++k) at = json.find("\"" + key + "\": ", at + 1);
    return std::stod(json.substr(at + key.size() + 4));
}

TEST(Trace, HasAnEventForEachRunAndStep) {
    const Program p = parse_program(R"(program t {
  input x: f32[3]
  y: f32[3] = [3] exp(@0) where @0 = x[i0]
  output y
})");
    Session session(compile_program(p, {}), 1);
    const std::vector<Tensor> inputs = {Tensor(DType::F32, {3})};
    Trace trace;
    const double before = now_us();
    for (int run = 0; run < 2; ++run) {
        session.set_profile(trace.begin());
        session.run_in_place(inputs);
        session.set_profile(nullptr);
        trace.end(inputs);
    }
    session.run_in_place(inputs);
    const double after = now_us();
    const std::string json = trace.json();
    EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 6) << json;
    EXPECT_THAT(json, HasSubstr("\"name\": \"run\""));
    EXPECT_THAT(json, HasSubstr("\"args\": {\"inputs\": \"f32[3]\"}"));
    EXPECT_THAT(json, HasSubstr("\"runsLeftOut\": 0"));
    // Two runs, then the step of each.
    for (const size_t run : {0U, 1U}) {
        const double begin = number(json, "ts", run), end = begin + number(json, "dur", run);
        const double step = number(json, "ts", 2 + run), done = step + number(json, "dur", 2 + run);
        EXPECT_LE(before - 1, begin);
        EXPECT_LE(begin, step + 0.01);
        EXPECT_LE(done, end + 0.01);
        EXPECT_LE(end, after + 1);
    }
}

TEST(Trace, LeavesRunsOutOnceItIsFull) {
    Trace trace(3);
    for (const size_t steps : {2U, 2U}) {
        std::vector<StepTime>* to = trace.begin();
        ASSERT_NE(to, nullptr);
        to->resize(to->size() + steps);
        trace.end({});
    }
    for (int run = 0; run < 5; ++run) {
        EXPECT_EQ(trace.begin(), nullptr);
        trace.end({});
    }
    EXPECT_THAT(trace.json(), HasSubstr("\"runsLeftOut\": 5"));
    EXPECT_EQ(Trace().json(), "{\"traceEvents\": [\n], \"runsLeftOut\": 0}\n");
}

TEST(Trace, IsJsonWhateverTheNamesAre) {
    Trace trace;
    trace.begin()->push_back({"a\"b\\c\n\x80\xc3\xa4\xed\xa0\x80\xf0\x9f\x99\x82\xc3", 0, 0, 0, -1, 0});
    trace.end({});
    const std::string json = trace.json();
    EXPECT_THAT(json,
                HasSubstr("\"a\\u0022b\\u005cc\\u000a\\ufffd\xc3\xa4\\ufffd\\ufffd\\ufffd\xf0\x9f\x99\x82\\ufffd\""));
    EXPECT_THAT(json, Not(HasSubstr("\x80\xc3\xa4")));
}

}  // namespace
}  // namespace tilewright
