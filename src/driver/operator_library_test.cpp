// Operators of shared libraries: examples/c/smooth_library.c, and files that are none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/temporary_folder_test.h"
#include "tilewright/tilewright.hpp"

namespace {

using testing::AllOf;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

const std::string kModel = TW_SOURCE_DIR "/examples/detrend.onnx";  // y = x - Smooth(x)

const std::vector<float> kDetrended = {-0.5, -1, 1 / 3.0F, 1.5};

/// Of 1, 2, 6, 9.
std::vector<float> run(const tw::Model& model) {
    tw::Session session(model, 1);
    const std::vector<float> x = {1, 2, 6, 9};
    const tw::Tensor y = session.run({tw::tensor(x, {4})}).at(0);
    return {y.as<float>(), y.as<float>() + y.count()};
}

tw::Options with(std::vector<std::string> libraries) {
    tw::Options options;
    options.operator_libraries = std::move(libraries);
    return options;
}

std::string refusal(const std::vector<std::string>& libraries) {
    try {
        tw::Model::from_file(kModel, with(libraries));
    } catch (const tw::Error& e) {
        return e.what();
    }
    return "no error";
}

TEST(OperatorLibrary, ComputesNodesOfAModel) {
    EXPECT_THAT(run(tw::Model::from_file(kModel, with({TW_SMOOTH_LIBRARY}))), Pointwise(FloatNear(1e-6F), kDetrended));
}

TEST(OperatorLibrary, IsGivenAgainToACompiledFile) {
    const tilewright::TemporaryFolder folder;
    tw::Options options = with({TW_SMOOTH_LIBRARY});
    options.output_file = folder / "model.so";
    tw::Model::from_file(kModel, options);
    EXPECT_THAT(run(tw::Model::load(options.output_file, {}, {TW_SMOOTH_LIBRARY})),
                Pointwise(FloatNear(1e-6F), kDetrended));
    EXPECT_THROW(tw::Model::load(options.output_file), tw::Error);
}

TEST(OperatorLibrary, ReportsAnErrorOfItsFunctions) {
    tw::Session session(tw::Model::from_file(kModel, with({TW_SMOOTH_LIBRARY})), 1);
    const std::vector<int> x = {1};
    EXPECT_THROW(session.run({tw::tensor(x, {1})}), tw::Error);
}

TEST(OperatorLibrary, IsRefusedWithItsPath) {
    const tilewright::TemporaryFolder folder;
    const std::string text = folder / "text.so";
    std::ofstream(text) << "no library";
    EXPECT_THAT(refusal({folder / "missing.so"}), AllOf(HasSubstr("missing.so"), HasSubstr("no such library")));
    EXPECT_THAT(refusal({folder.path()}), HasSubstr("no such library"));
    EXPECT_THAT(refusal({text}), AllOf(HasSubstr(text), HasSubstr("docs/custom-operators.md")));
    EXPECT_THAT(refusal({"/lib/x86_64-linux-gnu/libm.so.6"}), HasSubstr("no function tilewright_operator_library"));
    EXPECT_THAT(refusal({TW_SMOOTH_LIBRARY, TW_SMOOTH_LIBRARY}), HasSubstr("Smooth is given twice"));
}

}  // namespace
