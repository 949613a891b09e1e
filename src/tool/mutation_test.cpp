// Models changed at random: what is accepted runs, what is not is an error. A crash, a hang or a failed check of our
// own is a bug of ours, whatever the model. Every mutant runs in a process of its own.
//
// TILEWRIGHT_MUTANTS=N runs more of them than the default, TILEWRIGHT_MUTANT_SEED=N begins at another one.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "driver/inputs.h"
#include "driver/limits.h"
#include "driver/pipeline.h"
#include "onnx/onnx_pb.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

namespace fs = std::filesystem;
using Seeds = std::vector<std::pair<std::string, onnx::ModelProto>>;

/// The importer's samples and, where they are at hand, the ONNX project's small test cases.
Seeds seeds() {
    Seeds all;
    for (auto& [name, model] : import_test::sample_models())
        if (name != "external") all.emplace_back(name, model);
    for (const char* folder : {"core", "quant", "control-flow"}) {
        const fs::path cases = fs::path(TW_SOURCE_DIR) / "../shared/conformance" / folder;
        if (!fs::exists(cases)) continue;
        std::vector<fs::path> files;
        for (const auto& entry : fs::directory_iterator(cases))
            if (const fs::path file = entry.path() / "model.onnx"; fs::exists(file) && fs::file_size(file) < 20'000)
                files.push_back(file);
        std::sort(files.begin(), files.end());
        for (const fs::path& file : files) {
            std::ifstream in(file, std::ios::binary);
            onnx::ModelProto model;
            if (model.ParseFromIstream(&in)) all.emplace_back(file.parent_path().filename().string(), std::move(model));
        }
    }
    return all;
}

class Mutator {
  public:
    explicit Mutator(uint64_t seed) : random_(seed) {}

    size_t below(size_t n) { return n == 0 ? 0 : random_() % n; }

    /// Changes one thing; false where the model has none of the kind that was drawn.
    bool change(onnx::ModelProto& m) {
        onnx::GraphProto* g = m.mutable_graph();
        onnx::NodeProto* n = g->node_size() > 0 ? g->mutable_node(at(g->node_size())) : nullptr;
        if (n != nullptr && below(4) == 0)
            for (onnx::AttributeProto& a : *n->mutable_attribute())
                if (a.has_g() && a.g().node_size() > 0) {
                    g = a.mutable_g();
                    n = g->mutable_node(at(g->node_size()));
                    break;
                }
        switch (below(11)) {
            case 0:
                return g->input_size() > 0 && change_type(*g->mutable_input(at(g->input_size())));
            case 1:
                return g->initializer_size() > 0 && change(*g->mutable_initializer(at(g->initializer_size())));
            case 2:
            case 3:
            case 4:
                return n != nullptr && n->attribute_size() > 0 &&
                       change(*n->mutable_attribute(at(n->attribute_size())));
            case 5:
                if (n == nullptr || n->attribute_size() == 0) return false;
                n->mutable_attribute()->DeleteSubrange(at(n->attribute_size()), 1);
                return true;
            case 6:
                if (n == nullptr || n->input_size() == 0) return false;
                n->mutable_input()->DeleteSubrange(at(n->input_size()), 1);
                return true;
            case 7:
                if (n == nullptr || n->input_size() == 0) return false;
                n->mutable_input(at(n->input_size()))->clear();
                return true;
            case 8:
                if (n == nullptr || n->input_size() == 0) return false;
                n->add_input(n->input(at(n->input_size())));
                n->mutable_input()->SwapElements(at(n->input_size()), n->input_size() - 1);
                return true;
            case 9:
                for (onnx::OperatorSetIdProto& set : *m.mutable_opset_import())
                    set.set_version(1 + static_cast<int64_t>(below(25)));
                return true;
            default:
                if (n == nullptr) return false;
                n->add_output(fmt::format("more{}", below(1000)));
                return true;
        }
    }

  private:
    int at(int size) { return static_cast<int>(below(static_cast<size_t>(size))); }

    int64_t number() {
        constexpr int64_t kNumbers[] = {0,  1,       -1,        2,         3,         -2,        7,
                                        64, 1 << 20, 1LL << 31, 1LL << 32, 1LL << 40, INT64_MAX, INT64_MIN};
        return kNumbers[below(std::size(kNumbers))];
    }

    bool change_type(onnx::ValueInfoProto& v) {
        auto& tensor = *v.mutable_type()->mutable_tensor_type();
        auto& shape = *tensor.mutable_shape();
        switch (below(4)) {
            case 0:
                shape.add_dim()->set_dim_value(1 + static_cast<int64_t>(below(4)));
                return true;
            case 1:
                if (shape.dim_size() > 0) shape.mutable_dim()->RemoveLast();
                return true;
            case 2:
                tensor.set_elem_type(1 + static_cast<int>(below(16)));
                return true;
            default:
                if (shape.dim_size() == 0) return false;
                if (below(2) == 0)
                    shape.mutable_dim(at(shape.dim_size()))->set_dim_param("open");
                else
                    shape.mutable_dim(at(shape.dim_size()))->set_dim_value(static_cast<int64_t>(below(6)));
                return true;
        }
    }

    bool change(onnx::TensorProto& t) {
        switch (below(4)) {
            case 0:
                t.add_dims(1);
                return true;
            case 1:
                if (t.dims_size() == 0) return false;
                t.mutable_dims()->RemoveLast();
                return true;
            case 2:
                if (t.int64_data_size() > 0) {
                    t.set_int64_data(at(t.int64_data_size()), number());
                } else if (t.data_type() == onnx::TensorProto::INT64 && t.raw_data().size() >= 8) {
                    const int64_t v = number();
                    t.mutable_raw_data()->replace(below(t.raw_data().size() / 8) * 8, 8,
                                                  reinterpret_cast<const char*>(&v), 8);
                } else {
                    return false;
                }
                return true;
            default:
                t.set_data_type(1 + static_cast<int>(below(16)));
                return true;
        }
    }

    bool change(onnx::AttributeProto& a) {
        switch (a.type()) {
            case onnx::AttributeProto::INT:
                a.set_i(number());
                return true;
            case onnx::AttributeProto::INTS:
                if (a.ints_size() > 0 && below(3) != 0)
                    a.set_ints(at(a.ints_size()), number());
                else if (a.ints_size() > 0 && below(2) == 0)
                    a.mutable_ints()->RemoveLast();
                else
                    a.add_ints(number());
                return true;
            case onnx::AttributeProto::FLOAT:
                a.set_f(below(2) == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN());
                return true;
            case onnx::AttributeProto::STRING:
                a.set_s(below(2) == 0 ? "" : "no such value");
                return true;
            case onnx::AttributeProto::TENSOR:
                return change(*a.mutable_t());
            default:
                a.set_type(onnx::AttributeProto::INT);
                return true;
        }
    }

    std::mt19937_64 random_;
};

/// 'r' ran, 'e' an error of the model or the machine, else a bug: what it says.
std::string outcome(const onnx::ModelProto& model) {
    const std::string bytes = import_test::to_bytes(model);
    try {
        PipelineOptions options;
        options.compile.threads = 1;
        const Compilation c = compile_model(bytes.data(), bytes.size(), options);
        const std::vector<Tensor> inputs = make_inputs(c.model->inputs(), {});
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

/// While-loops end when their condition says so, which is up to the model.
bool may_run_forever(const onnx::GraphProto& g) {
    return std::any_of(g.node().begin(), g.node().end(), [](const onnx::NodeProto& n) {
        const bool counted = n.input_size() > 0 && !n.input(0).empty();
        return (n.op_type() == "Loop" && !counted) ||
               std::any_of(n.attribute().begin(), n.attribute().end(),
                           [](const onnx::AttributeProto& a) { return a.has_g() && may_run_forever(a.g()); });
    });
}

/// outcome() in a process of its own.
std::string guarded_outcome(const onnx::ModelProto& model) {
    int channel[2];
    if (pipe(channel) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        constexpr unsigned kSeconds = 20;
        alarm(kSeconds);
        const rlimit none{0, 0}, space{uint64_t{3} << 30, uint64_t{3} << 30};
        setrlimit(RLIMIT_CORE, &none);
        if (std::string(TW_SANITIZE).empty()) setrlimit(RLIMIT_AS, &space);
        const std::string text = outcome(model);
        _exit(write(channel[1], text.data(), text.size()) < 0 ? 1 : 0);
    }
    close(channel[1]);
    std::string text;
    char buffer[1024];
    for (ssize_t n; (n = read(channel[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
    close(channel[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
    return text;
}

size_t from_environment(const char* name, size_t fallback) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

TEST(Mutants, RunOrAreRefused) {
    const Seeds models = seeds();
    const size_t first = from_environment("TILEWRIGHT_MUTANT_SEED", 0);
    const size_t count = from_environment("TILEWRIGHT_MUTANTS", 150);
    size_t ran = 0, refused = 0;
    for (size_t i = first; i < first + count; ++i) {
        Mutator mutator(i);
        const auto& [name, seed] = models[mutator.below(models.size())];
        onnx::ModelProto mutant = seed;
        for (size_t changes = 1 + mutator.below(3); changes > 0;) changes -= mutator.change(mutant) ? 1 : 0;
        if (may_run_forever(mutant.graph())) continue;
        const std::string end = guarded_outcome(mutant);
        ran += end == "r" ? 1 : 0;
        refused += end == "e" ? 1 : 0;
        if (end == "r" || end == "e") continue;
        ADD_FAILURE() << "mutant " << i << " of " << name << ": " << end << "\n"
                      << mutant.ShortDebugString().substr(0, 2000);
    }
    EXPECT_GT(ran, count / 20) << "hardly any mutant runs";
    EXPECT_GT(refused, count / 20) << "hardly any mutant is refused";
}

}  // namespace
}  // namespace tilewright::tool_test
