// The ONNX project's test cases: every case is lowered, interpreted and compared with its stored outputs.
// TILEWRIGHT_CASES restricts the run to names that contain it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "graph/import.h"
#include "ops/lowering.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

/// Whether all operators of the graph and of its bodies have lowerings.
bool has_lowerings(const Graph& graph) {
    for (const Node& n : graph.nodes) {
        if (find_lowering(n.domain, n.op, n.opset) == nullptr) return false;
        for (const auto& [name, value] : n.attributes)
            if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&value);
                body != nullptr && !has_lowerings(**body))
                return false;
    }
    return true;
}

/// rtol 1e-3, atol 1e-7, as in ONNX's own runner. The stored outputs of Fourier transforms have the error of a float32
/// FFT, 2e-7 where the exact value is 0: there atol is 1e-6.
double absolute_tolerance(const std::string& name) {
    return name.starts_with("test_dft") || name.starts_with("test_stft") ? 1e-6 : 1e-7;
}

/// The first difference, or none; NaN equals NaN.
std::string difference(const Tensor& got, const Tensor& want, double absolute) {
    if (got.dtype() != want.dtype())
        return fmt::format("type {} instead of {}", to_string(got.dtype()), to_string(want.dtype()));
    if (got.shape() != want.shape())
        return fmt::format("shape {} instead of {}", to_string(got.shape()), to_string(want.shape()));
    for (int64_t i = 0; i < got.count(); ++i) {
        if (!is_float(want.dtype())) {
            if (got.get_int(i) != want.get_int(i))
                return fmt::format("element {}: {} instead of {}", i, got.get_int(i), want.get_int(i));
            continue;
        }
        const double a = got.get(i), b = want.get(i);
        if (a == b || (std::isnan(a) && std::isnan(b))) continue;
        if (!(std::fabs(a - b) <= absolute + 1e-3 * std::fabs(b)))
            return fmt::format("element {}: {} instead of {}", i, a, b);
    }
    return {};
}

std::vector<Tensor> load_tensors(const fs::path& folder, const std::string& kind) {
    std::vector<Tensor> out;
    for (int k = 0;; ++k) {
        const fs::path file = folder / fmt::format("{}_{}.pb", kind, k);
        if (!fs::exists(file)) return out;
        out.push_back(load_tensor_pb(file.string()).value);
    }
}

/// Empty if the case passes.
std::string run_case(const fs::path& folder, const Model& model) {
    const Program program = lower(model);
    if (const auto faults = verify(program); !faults.empty()) return "verify: " + faults.front();
    const fs::path data = folder / "test_data_set_0";
    const std::vector<Tensor> inputs = load_tensors(data, "input"), wanted = load_tensors(data, "output");
    const std::vector<Tensor> got = interpret(program, inputs);
    if (got.size() < wanted.size()) return fmt::format("{} outputs instead of {}", got.size(), wanted.size());
    for (size_t k = 0; k < wanted.size(); ++k)
        if (std::string d = difference(got[k], wanted[k], absolute_tolerance(folder.filename().string())); !d.empty())
            return fmt::format("output {}: {}", k, d);
    return {};
}

void run_suite(const std::string& suite) {
    const fs::path root = fs::path(TW_SOURCE_DIR) / "../shared/conformance" / suite;
    if (!fs::exists(root / "index.tsv")) GTEST_SKIP() << "no " << suite << " test cases at hand";
    const char* filter = std::getenv("TILEWRIGHT_CASES");
    int passed = 0;
    std::vector<std::string> refused;
    std::vector<std::string> failures;
    std::vector<fs::path> cases;
    for (const auto& entry : fs::directory_iterator(root))
        if (entry.is_directory()) cases.push_back(entry.path());
    std::sort(cases.begin(), cases.end());
    for (const fs::path& folder : cases) {
        const std::string name = folder.filename().string();
        if (filter != nullptr && name.find(filter) == std::string::npos) continue;
        std::string problem;
        try {
            const Model model = load_model((folder / "model.onnx").string());
            if (!has_lowerings(model.graph)) {
                refused.push_back(name);
                continue;
            }
            problem = run_case(folder, model);
        } catch (const std::exception& e) {
            problem = e.what();
        }
        if (problem.empty())
            ++passed;
        else
            failures.push_back(name + ": " + problem);
    }
    std::ostringstream text;
    for (const std::string& f : failures) text << "\n  " << f;
    std::cout << suite << ": " << passed << " passed, " << failures.size() << " failed, " << refused.size()
              << " refused\n";
    // A removed lowering would skip its cases, so none may be skipped.
    EXPECT_EQ(refused, std::vector<std::string>()) << "operators without lowerings";
    EXPECT_TRUE(failures.empty()) << failures.size() << " of " << passed + static_cast<int>(failures.size())
                                  << " cases fail:" << text.str();
}

TEST(Conformance, CoreCasesMatchTheirStoredOutputs) { run_suite("core"); }
TEST(Conformance, QuantisedCasesMatchTheirStoredOutputs) { run_suite("quant"); }
TEST(Conformance, ControlFlowCasesMatchTheirStoredOutputs) { run_suite("control-flow"); }

}  // namespace
}  // namespace tilewright
