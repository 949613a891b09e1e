// golden/PASS.txt: a program as text before and after each pass that can be skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "base/golden_test.h"
#include "compile/pipeline.h"
#include "orchestrate/append_in_place.h"
#include "program/transform/common_subexpressions.h"
#include "program/transform/dead_code.h"
#include "program/transform/fold.h"
#include "program/transform/integer_products.h"
#include "program/transform/quantised_weights.h"
#include "program/transform/widen_storage.h"

namespace tilewright {
namespace {

const std::string kFolder = TW_SOURCE_DIR "/src/compile/golden";

/// Passes without a file, and the reason.
const std::map<std::string, std::string> kWithoutGolden = {
    {"confirm_measurements", "its result depends on times"},
    {"tune", "its result depends on times; compile/tune_plan_test.cpp"},
    {"choose_precision", "it changes no program, but options of narrow_operands; compile/precision_choice_test.cpp"},
    {"compare_layouts", "it changes no program, but an option of choose_layouts; compile/pipeline_test.cpp"},
    {"index_masks", "it is for GPUs alone; program/transform/index_masks_test.cpp"},
    {"place_constants", "it changes addresses alone; compile/executable.h"},
};

std::set<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    std::set<std::string> out;
    for (std::string word; in >> word;) out.insert(word);
    return out;
}

/// Options for the machine of the tutorial, whatever machine runs the test. "# options: " lists the command-line
/// options --no-fission, --layouts-first, --single-output, --orchestrate optimal, --layouts joint (by estimates) and
/// --precision bf16, the latter for a machine with tile registers; with "bytes" the machine has VNNI. "# threads: " is
/// the number of threads.
PipelineOptions options_of(const test::Golden& golden) {
    PipelineOptions o;
    o.compile.isa = "avx2";
    std::ifstream machine(TW_SOURCE_DIR "/bench/machines/avx2.json");
    o.compile.machine = target_from_json(std::string(std::istreambuf_iterator<char>(machine), {}));
    const std::string threads = test::golden_setting(golden, "threads");
    o.compile.threads = threads.empty() ? 1 : std::stoi(threads);
    const std::set<std::string> options = words_of(test::golden_setting(golden, "options"));
    o.compile.without.no_fission = options.count("no_fission") != 0;
    o.compile.without.layouts_first = options.count("layouts_first") != 0;
    o.compile.without.single_output = options.count("single_output") != 0;
    if (options.count("joint") != 0) o.compile.joint.emplace();
    if (options.count("bf16") != 0) {
        o.compile.precision = Precision::BF16;
        o.compile.isa.clear();
        o.compile.machine->native = true;
        for (const char* feature : {"amx-bf16", "amx-tile"}) o.compile.machine->features.emplace_back(feature);
    }
    if (options.count("bytes") != 0) {
        o.compile.isa.clear();
        o.compile.machine->native = true;
        o.compile.machine->features.emplace_back("avxvnni");
    }
    if (options.count("optimal") != 0) o.compile.orchestrator = Orchestrator::Optimal;
    return o;
}

/// The input program; inputs whose names start with "w" become constants, as weights are.
Program program_of(const test::Golden& golden) {
    Program p = parse_program(golden.input);
    const auto weights = std::stable_partition(p.inputs.begin(), p.inputs.end(),
                                               [&](ValueId v) { return !p.values[v].name.starts_with('w'); });
    std::for_each(weights, p.inputs.end(), [&](ValueId v) {
        Tensor t(p.values[v].dtype, evaluate(p.values[v].shape, Bindings()));
        for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(i * 37 % 19 - 9) * 0.125);
        p.constants.emplace(v, t);
    });
    p.inputs.erase(weights, p.inputs.end());
    return p;
}

/// Passes before the start of rewrite_program and plan_program.
const std::map<std::string, Program (*)(Program)> kOfLowering = {
    {"dead_code", [](Program p) { return eliminate_dead_code(std::move(p)); }},
    {"integer_products", [](Program p) { return integer_products(std::move(p)); }},
    {"quantised_weights", [](Program p) { return quantised_weights(std::move(p)); }},
    {"fold_constants", [](Program p) { return fold_constants(p); }},  // NOLINT(performance-unnecessary-value-param)
    {"widen_storage", [](Program p) { return widen_storage(std::move(p), {DType::F16}); }},
    {"common_subexpressions", [](Program p) { return eliminate_dead_code(merge_common_subexpressions(std::move(p))); }},
    {"append_in_place",
     [](Program p) {
         append_in_place(p);
         return p;
     }},
};

/// Returns the program after the pass. Of the passes that can be skipped, only those of the line "# after: " run before
/// it.
std::string after_pass(const test::Golden& golden) {
    Program program = program_of(golden);
    if (const auto it = kOfLowering.find(golden.name); it != kOfLowering.end())
        return print(it->second(std::move(program)));
    PipelineOptions o = options_of(golden);
    const std::set<std::string> before = words_of(test::golden_setting(golden, "after"));
    bool kernels_begin = false, of_kernels = false;
    for (const PassInfo& pass : pipeline_passes()) {
        const std::string name(pass.name);
        if (name == "isolate_bodies") kernels_begin = true;
        if (name == golden.name) of_kernels = kernels_begin;
        if (!pass.required && name != golden.name && before.count(name) == 0) o.compile.skip.push_back(name);
    }
    std::string text;
    o.passes.print_before = o.passes.print_after = {golden.name};  // an unchanged text is printed as such
    o.passes.print = [&](const std::string&, const std::string& printed) { text = printed; };
    o.passes.verify_each = true;
    if (of_kernels) {
        KernelSet kernels;
        plan_program(std::move(program), kernels, orchestrate_options(o.compile), o.passes);
    } else {
        rewrite_program(std::move(program), o);
    }
    return text;
}

TEST(Golden, EachPassDoesWhatItsFileShows) {
    for (const test::Golden& golden : test::golden_files(kFolder)) {
        SCOPED_TRACE(golden.name);
        const std::string after = after_pass(golden);
        EXPECT_NE(after, "") << "the pass does not run";
        EXPECT_NE(after, "(unchanged)\n");
        EXPECT_NE(after, print(program_of(golden))) << "the pass changes nothing";
        test::expect_golden(golden, after);
    }
}

TEST(Golden, EachPassThatCanBeSkippedHasAFile) {
    std::set<std::string> files, passes;
    for (const test::Golden& golden : test::golden_files(kFolder)) files.insert(golden.name);
    for (const PassInfo& pass : pipeline_passes())
        if (!pass.required && kWithoutGolden.count(std::string(pass.name)) == 0) passes.insert(std::string(pass.name));
    EXPECT_EQ(files, passes);
}

}  // namespace
}  // namespace tilewright
