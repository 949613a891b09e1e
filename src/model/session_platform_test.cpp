// Models for instructions that this CPU does not have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "compile/pipeline.h"
#include "model/recurrence_test.h"
#include "model/session.h"
#include "runtime/missing_features.h"

namespace tilewright {
namespace {

TEST(SessionPlatform, IsThisCpusOrTheModelIsRefused) {
    for (const std::string& isa : selectable_isas()) {
        CompileOptions options;
        options.isa = isa;
        const auto model = compile_program(test::recurrences({}), options);
        const bool runs = missing_features(model->impl().platform, host_features()).empty();
        try {
            Session session(model, 1);
            EXPECT_TRUE(runs) << isa;
            session.run(test::recurrence_inputs(5, 3, test::Recurrences().hidden));
        } catch (const ModelError& e) {
            EXPECT_FALSE(runs) << isa;
            EXPECT_THAT(e.what(), testing::HasSubstr("this CPU does not have"));
        }
    }
}

}  // namespace
}  // namespace tilewright
