// Models for instructions that this CPU does not have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "compile/pipeline.h"
#include "model/recurrence_test.h"
#include "model/session.h"
#include "runtime/cpu_features.h"

namespace tilewright {
namespace {

TEST(SessionPlatform, IsThisCpusOrTheModelIsRefused) {
    for (const std::string& isa : selectable_isas()) {
        CompileOptions options;
        options.isa = isa;
        const auto model = compile_program(test::recurrences({}), options);
        const std::vector<std::string> here = host_features();
        const std::vector<std::string>& wanted = model->impl().platform.features;
        const bool runs = std::all_of(wanted.begin(), wanted.end(), [&](const std::string& f) {
            return std::find(here.begin(), here.end(), f) != here.end();
        });
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
