// Models changed at random: accepted models run, all others are errors. A crash, an internal error or a run of more
// than 20 s (30 s for models above 20 KB) is a bug of the compiler. Every mutant runs in its own process, limited to 4
// GiB.
//
// `make fuzz` runs many mutants. TILEWRIGHT_MUTANTS=N sets their number, TILEWRIGHT_MUTANT_SEED=N the seed of the
// first. Failing mutants are written to the folder TILEWRIGHT_MUTANT_FINDINGS. The models are the importer's samples,
// small models of the zoo, and those below the folders TILEWRIGHT_MUTANT_MODELS (separated by ':'; by default the
// conformance cases and real models beside the project, if present).

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "compile/limits.h"
#include "compile/pipeline.h"
#include "driver/inputs.h"
#include "driver/zoo/zoo.h"
#include "onnx/onnx_pb.h"
#include "tool/mutator_test.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSmallFile = 20'000, kLargeFile = 4'000'000;
/// CPU time limit of a mutant. A large one may be compiled twice, the second time without Winograd convolutions after a
/// run has found a value that is not finite: 21 s for one of ppocrv3_det_ch on Zen 3. Sanitizers take several times
/// more.
const unsigned kSlowerMutants = std::string(TW_SANITIZE).empty() ? 1 : 10;
const unsigned kSmallSeconds = 20 * kSlowerMutants, kLargeSeconds = 30 * kSlowerMutants;

struct SeedModel {
    std::string name;
    onnx::ModelProto model;
};

/// The models to mutate. Large models are drawn rarely: they take a hundred times as long.
struct SeedModels {
    std::vector<SeedModel> small, large;
    std::vector<std::string> operators;
};

std::string text_from_environment(const char* name, const std::string& fallback) {
    const char* text = std::getenv(name);
    return text != nullptr ? text : fallback;
}

size_t number_from_environment(const char* name, size_t fallback) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

void add_folder(const fs::path& folder, SeedModels& seeds) {
    if (!fs::exists(folder)) return;
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.path().extension() == ".onnx" && entry.file_size() < kLargeFile) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
        std::ifstream in(file, std::ios::binary);
        onnx::ModelProto model;
        if (!model.ParseFromIstream(&in)) continue;
        auto& group = fs::file_size(file) < kSmallFile ? seeds.small : seeds.large;
        group.push_back({file.parent_path().filename().string(), std::move(model)});
    }
}

SeedModels seed_models() {
    SeedModels seeds;
    for (auto& [name, model] : import_test::sample_models())
        if (name != "external") seeds.small.push_back({name, model});
    const std::pair<const char*, ZooSettings> zoo_models[] = {
        {"mlp", {{"in", 16}, {"hidden", 8}, {"layers", 2}, {"out", 4}, {"batch", 0}}},
        {"attention", {{"heads", 2}, {"m", 0}, {"n", 12}, {"k", 8}, {"h", 8}}},
        {"conv2d", {{"in", 8}, {"out", 8}, {"size", 10}}},
        {"lstm_tagger", {{"seq", 0}}},
    };
    for (const auto& [name, settings] : zoo_models) {
        onnx::ModelProto model;
        if (!model.ParseFromString(build_zoo_model(name, 0, settings).bytes)) continue;
        (model.ByteSizeLong() < kSmallFile ? seeds.small : seeds.large).push_back({name, std::move(model)});
    }
    const std::string shared = TW_SOURCE_DIR "/../shared/";
    const std::string folders =
        text_from_environment("TILEWRIGHT_MUTANT_MODELS", shared + "conformance:" + shared + "models/real");
    for (size_t from = 0; from < folders.size();) {
        const size_t end = std::min(folders.find(':', from), folders.size());
        add_folder(folders.substr(from, end - from), seeds);
        from = end + 1;
    }
    std::set<std::string> operators;
    for (const auto* group : {&seeds.small, &seeds.large})
        for (const SeedModel& s : *group)
            for (const onnx::NodeProto& n : s.model.graph().node()) operators.insert(n.op_type());
    seeds.operators.assign(operators.begin(), operators.end());
    return seeds;
}

/// 'r': ran; 'e': an error of the model or the machine; otherwise the text of a bug.
std::string outcome(const std::string& bytes, uint64_t seed) {
    try {
        PipelineOptions options;
        options.compile.threads = 1;
        const Compilation c = compile_model(bytes.data(), bytes.size(), options);
        InputRequest request;
        request.seed = seed;
        const std::vector<Tensor> inputs = make_inputs(c.model->inputs(), request);
        check_limits(c.program, bind_inputs(c.program, inputs));
        Session(c.model, 1).run(inputs);
        return "r";
    } catch (const ModelError&) {
        return "e";
    } catch (const RuntimeError&) {
        return "e";
    } catch (const std::bad_alloc&) {
        return "e";
    } catch (const std::exception& e) {
        return e.what();
    }
}

bool has_loop(const onnx::GraphProto& g) {
    return std::any_of(g.node().begin(), g.node().end(), [](const onnx::NodeProto& n) {
        return n.op_type() == "Loop" ||
               std::any_of(n.attribute().begin(), n.attribute().end(),
                           [](const onnx::AttributeProto& a) { return a.has_g() && has_loop(a.g()); });
    });
}

/// outcome() in its own process; "time" if it exceeded the limit.
std::string guarded_outcome(const std::string& bytes, uint64_t seed, unsigned seconds) {
    int channel[2];
    if (pipe(channel) != 0) return "no pipe";
    const pid_t child = fork();
    if (child < 0) return "no process";
    if (child == 0) {
        close(channel[0]);
        // A deadlocked run uses no CPU time: the alarm ends it.
        alarm(20 * seconds);
        const rlimit none{0, 0}, time{seconds, seconds + 5}, space{uint64_t{4} << 30, uint64_t{4} << 30};
        setrlimit(RLIMIT_CORE, &none);
        setrlimit(RLIMIT_CPU, &time);
        if (std::string(TW_SANITIZE).empty()) setrlimit(RLIMIT_AS, &space);
        const std::string text = outcome(bytes, seed);
        _exit(write(channel[1], text.data(), text.size()) < 0 ? 1 : 0);
    }
    close(channel[1]);
    std::string text;
    char buffer[1024];
    for (ssize_t n; (n = read(channel[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) return text;
    const int signal = WTERMSIG(status);
    if (signal == SIGXCPU || signal == SIGALRM) return "time";
    return fmt::format("signal {}", signal);
}

TEST(Mutants, RunOrAreRefused) {
    const SeedModels models = seed_models();
    const size_t first = number_from_environment("TILEWRIGHT_MUTANT_SEED", 0);
    const size_t count = number_from_environment("TILEWRIGHT_MUTANTS", 150);
    const std::string findings = text_from_environment("TILEWRIGHT_MUTANT_FINDINGS", "");
    size_t ran = 0, refused = 0, loops = 0, late = 0, signals = 0, internal = 0;
    for (size_t i = first; i < first + count; ++i) {
        Mutator mutator(i, models.operators);
        const bool large = !models.large.empty() && mutator.below(32) == 0;
        const auto& group = large ? models.large : models.small;
        const SeedModel& seed = group[mutator.below(group.size())];
        const std::string mutant = mutator.mutate(seed.model);
        const std::string end = guarded_outcome(mutant, i, large ? kLargeSeconds : kSmallSeconds);
        onnx::ModelProto model;
        const bool readable = model.ParseFromString(mutant);
        if (end == "r") {
            ++ran;
        } else if (end == "e") {
            ++refused;
        } else if (end == "time" && readable && has_loop(model.graph())) {
            ++loops;  // may legally run until its condition or its trip count ends it
        } else {
            ++(end == "time" ? late : end.starts_with("signal") ? signals : internal);
            if (!findings.empty()) {
                fs::create_directories(findings);
                std::ofstream(fmt::format("{}/mutant-{}.onnx", findings, i), std::ios::binary) << mutant;
            }
            ADD_FAILURE() << "mutant " << i << " of " << seed.name << ": " << end << "\n"
                          << model.ShortDebugString().substr(0, 2000);
        }
    }
    fmt::print("{} mutants: {} ran, {} refused, {} in a long loop; {} signals, {} internal errors, {} too long\n",
               count, ran, refused, loops, signals, internal, late);
    EXPECT_GT(ran, count / 20) << "hardly any mutant runs";
    EXPECT_GT(refused, count / 20) << "hardly any mutant is refused";
}

}  // namespace
}  // namespace tilewright::tool_test
