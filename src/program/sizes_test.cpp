#include "program/sizes.h"

#include <gmock/gmock.h>

#include "base/option_error.h"
#include "program/builder.h"

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> sizes_of(const std::vector<DimRange::Sample>& samples) {
    std::vector<int64_t> out;
    for (const auto& s : samples) out.push_back(s.size);
    return out;
}

std::string refusal(std::string_view text) {
    try {
        parse_dim_range(text);
    } catch (const OptionError& e) {
        return std::string(e.what()) + " | " + e.hint();
    }
    return "accepted";
}

TEST(DimRange, ReadsRangesSamplesAndWeights) {
    const DimRange r = parse_dim_range("1..512:128@3,8,64");
    EXPECT_EQ(r.least, 1);
    EXPECT_EQ(r.most, 512);
    EXPECT_THAT(r.samples, ElementsAre(DimRange::Sample{8, 1}, DimRange::Sample{64, 1}, DimRange::Sample{128, 3}));
    EXPECT_EQ(to_string(r), "1..512:8,64,128@3");
    EXPECT_EQ(parse_dim_range(to_string(r)), r);
}

TEST(DimRange, ARangeMayHaveNoUpperEnd) {
    EXPECT_EQ(parse_dim_range("4..").most, std::nullopt);
    EXPECT_EQ(to_string(parse_dim_range("4..:16")), "4..:16");
}

TEST(DimRange, MayHaveMultiplesOfAStepAlone) {
    const DimRange r = parse_dim_range("32..512/32:64,256@2");
    EXPECT_EQ(r.most, 512);
    EXPECT_EQ(r.step, 32);
    EXPECT_EQ(to_string(r), "32..512/32:64,256@2");
    EXPECT_EQ(parse_dim_range(to_string(r)), r);
    EXPECT_EQ(to_string(parse_dim_range("8../8")), "8../8");
    EXPECT_THAT(refusal("1..512/32"), HasSubstr("1 is no multiple of 32"));
    EXPECT_THAT(refusal("32..500/32"), HasSubstr("500 is no multiple of 32"));
    EXPECT_THAT(refusal("32..512/32:48"), HasSubstr("48 is no multiple of 32"));
    EXPECT_THAT(refusal("0..512/0"), HasSubstr("the step is 0"));
    EXPECT_THAT(refusal("32..512/"), HasSubstr("expected a number"));
}

TEST(DimRange, RefusalsSayWhatWasExpected) {
    EXPECT_THAT(refusal("8"), HasSubstr("'..' is missing | write 1..512"));
    EXPECT_THAT(refusal("a..8"), HasSubstr("expected a number, found 'a'"));
    EXPECT_THAT(refusal("9..8"), HasSubstr("8 is less than 9"));
    EXPECT_THAT(refusal("1..8:9"), HasSubstr("the sample 9 lies outside of it"));
    EXPECT_THAT(refusal("1..8:2,2"), HasSubstr("the sample 2 is given twice"));
    EXPECT_THAT(refusal("1..8:2@0"), HasSubstr("expected a positive weight behind '@', found '0'"));
    EXPECT_THAT(refusal("1..8:2@x"), HasSubstr("found 'x'"));
    EXPECT_THAT(refusal("-1..8"), HasSubstr("-1 is not between 0 and"));
    EXPECT_THAT(refusal("1..99999999999999999999"), HasSubstr("expected a number"));
}

TEST(Samples, AreSpreadOnALogarithmicScale) {
    EXPECT_THAT(sizes_of(default_samples(parse_dim_range("1..512"), false)), ElementsAre(1, 8, 64, 512));
    EXPECT_THAT(sizes_of(default_samples(parse_dim_range("32..512"), false)), ElementsAre(32, 128, 512));
    EXPECT_THAT(sizes_of(default_samples(parse_dim_range("32..32"), false)), ElementsAre(32));
    EXPECT_THAT(sizes_of(default_samples(parse_dim_range("96..480/96"), false)), ElementsAre(96, 480));
    EXPECT_THAT(sizes_of(default_samples(parse_dim_range("24../24"), false)), ElementsAre(24, 120, 1032));
    EXPECT_THAT(sizes_of(default_samples({}, false)), ElementsAre(1, 16, 128, 1024));
    EXPECT_THAT(sizes_of(default_samples({}, true)), ElementsAre(1, 8));
}

TEST(Samples, OfABatchTheLeastCountsTwice) {
    EXPECT_THAT(default_samples({}, true), ElementsAre(DimRange::Sample{1, 2}, DimRange::Sample{8, 1}));
    EXPECT_THAT(default_samples(parse_dim_range("1..4"), true),
                ElementsAre(DimRange::Sample{1, 2}, DimRange::Sample{4, 1}));
}

Program tokens() {
    Program p;
    Builder b(p);
    b.set_outputs({b.input("x", DType::F32, {symbol("batch"), symbol("seq"), 8})});
    return p;
}

TEST(Samples, OfSeveralSymbolsAreCombinedWithinTheLimit) {
    const std::map<std::string, DimRange> ranges{{"seq", parse_dim_range("1..64:1,64@2")}};
    const auto all = size_samples(tokens(), ranges, 8);
    ASSERT_EQ(all.size(), 4u);
    const Var batch = *symbol("batch").as_var(), seq = *symbol("seq").as_var();
    EXPECT_EQ(all[1].sizes, (Bindings{{batch, 1}, {seq, 64}}));
    EXPECT_EQ(all[1].weight, 4);
    const auto few = size_samples(tokens(), ranges, 3);
    ASSERT_EQ(few.size(), 3u);
    EXPECT_EQ(few[0].sizes.at(seq), 64) << "the heaviest first";
    EXPECT_EQ(few[1].sizes, (Bindings{{batch, 1}, {seq, 1}}));
}

TEST(Samples, OfASingleSymbolAreAllThatAreDeclared) {
    Program p;
    Builder b(p);
    b.set_outputs({b.input("x", DType::F32, {symbol("seq"), 8})});
    const auto sizes = [&](const char* range) { return size_samples(p, {{"seq", parse_dim_range(range)}}, 3).size(); };
    EXPECT_EQ(sizes("1..64:1,2,4,8,16"), 5u);
    EXPECT_EQ(sizes("1..64:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18"), kMostDeclared);
}

TEST(Samples, OfADecoderAreTokensBehindRowsAndPrompts) {
    Program p = parse_program(
        "program t {\n  input ids: i64[$batch, $seq]\n  input mask: i64[$batch, $total]\n"
        "  input past: f32[$n, $batch, 4]\n  output ids\n}");
    const auto var = [](const char* name) { return *symbol(name).as_var(); };
    const auto samples = decoding_samples(p, {}, var("n"), var("seq"), 6);
    ASSERT_EQ(samples.size(), 6u);
    const auto sizes = [&](int64_t seq, int64_t n) {
        return Bindings{{var("batch"), 1}, {var("seq"), seq}, {var("n"), n}, {var("total"), seq + n}};
    };
    EXPECT_EQ(samples[0].sizes, sizes(1, 1024));
    EXPECT_EQ(samples[1].sizes, sizes(1, 128));
    EXPECT_EQ(samples[2].sizes, sizes(1, 16));
    EXPECT_EQ(samples[3].sizes, sizes(1024, 1)) << "a prompt";
    EXPECT_EQ(samples[5].sizes, sizes(16, 1));
    const auto declared = decoding_samples(
        p, {{"n", parse_dim_range("0..64:7,64")}, {"seq", parse_dim_range("1..8:1,8")}}, var("n"), var("seq"), 6);
    ASSERT_EQ(declared.size(), 3u);
    EXPECT_EQ(declared[0].sizes, sizes(1, 64));
    EXPECT_EQ(declared[1].sizes, sizes(8, 7));
    EXPECT_EQ(declared[2].sizes, sizes(1, 7));
}

TEST(Ranges, EverySizeIsAssumedWhereNoneIsDeclared) {
    const Var batch = *symbol("batch").as_var(), seq = *symbol("seq").as_var();
    Program p = tokens();
    declare_ranges(p, {});
    EXPECT_EQ(p.assumed, (Bindings{{batch, 1}, {seq, 128}}));
    p = tokens();
    declare_ranges(p, {{"seq", parse_dim_range("1..64:8,64@2")}}, false);
    EXPECT_EQ(p.assumed, (Bindings{{seq, 64}})) << "not for a GPU";
    p = tokens();
    declare_ranges(p, {{"seq", parse_dim_range("1..64:8,64@2")}});
    EXPECT_EQ(p.assumed, (Bindings{{batch, 1}, {seq, 64}}));
}

TEST(Ranges, ABatchIsTheFirstDimensionOfAllInputsAndOfOneThatHasMore) {
    const Var n = *symbol("n").as_var();
    const auto assumed = [&](const char* inputs) {
        Program p = parse_program(std::string("program t {\n") + inputs + "  output x\n}");
        declare_ranges(p, {});
        return p.assumed.at(n);
    };
    EXPECT_EQ(assumed("  input x: f32[$n, 8]\n  input lengths: i64[$n]\n"), 1);
    EXPECT_EQ(assumed("  input x: f32[$n]\n"), 128) << "a signal";
    EXPECT_EQ(assumed("  input x: f32[$n, 8]\n  input y: f32[8, $n]\n"), 128);
}

TEST(Ranges, OfStepsCountThem) {
    const std::map<std::string, DimRange> ranges = {{"seq", parse_dim_range("8..64/8:16,64@2")}};
    const Expr steps = symbol("seq", 8);
    Program p;
    Builder b(p);
    b.set_outputs({b.input("x", DType::F32, {symbol("batch"), input_dimension("seq", ranges), 8})});
    declare_ranges(p, ranges);
    EXPECT_EQ(p.at_most, (std::map<Var, int64_t>{{*steps.as_var(), 8}}));
    EXPECT_EQ(p.assumed.at(*steps.as_var()), 8) << "steps of the sample 64";
    EXPECT_EQ(size_samples(p, ranges, 1)[0].sizes.at(*steps.as_var()), 8);
    EXPECT_EQ(print(parse_program(print(p))), print(p));
    const auto run = [&](int64_t seq) {
        try {
            interpret(p, {Tensor(DType::F32, {1, seq, 8}, true)});
        } catch (const ModelError& e) {
            return std::string(e.what()) + " | " + e.hint();
        }
        return std::string("ran");
    };
    EXPECT_EQ(run(8), "ran");
    EXPECT_EQ(run(64), "ran");
    EXPECT_THAT(run(72), HasSubstr("dimension seq = 72, and the model is compiled for 8 to 64 in steps of 8 | give "
                                   "inputs whose sizes fit: seq is dimension 1 of 'x'"));
    EXPECT_THAT(run(20), HasSubstr("dimension 1 is 20 where"));
}

TEST(Ranges, BoundSymbolsAndRequireSizesWithinThem) {
    Program p = tokens();
    declare_ranges(p, {{"seq", parse_dim_range("2..64")}});
    EXPECT_EQ(p.at_most, (std::map<Var, int64_t>{{*symbol("seq").as_var(), 64}}));
    EXPECT_EQ(print(parse_program(print(p))), print(p));
    const auto run = [&](int64_t seq) {
        try {
            interpret(p, {Tensor(DType::F32, {1, seq, 8}, true)});
        } catch (const ModelError& e) {
            return std::string(e.what()) + " | " + e.hint();
        }
        return std::string("ran");
    };
    EXPECT_EQ(run(2), "ran");
    EXPECT_EQ(run(64), "ran");
    EXPECT_EQ(run(65),
              "dimension seq = 65, and the model is compiled for 2 to 64 | give inputs whose sizes fit: seq is "
              "dimension 1 of 'x'");
    EXPECT_THAT(run(1), HasSubstr("dimension seq = 1, and the model is compiled for 2 to 64"));
}

}  // namespace
}  // namespace tilewright
