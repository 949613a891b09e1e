#include "provider/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/option_error.h"

namespace tilewright::provider {
namespace {

using testing::ElementsAre;

TEST(Settings, ReadWhichProductsStayInF32AndSubnormalNumbers) {
    const Settings s = settings_of({{"keep_f32", "/lm_head/*;logits"}, {"keep_subnormals", "1"}});
    EXPECT_THAT(s.pipeline.compile.keep_f32, ElementsAre("/lm_head/*", "logits"));
    EXPECT_TRUE(s.pipeline.compile.keep_subnormals);
    EXPECT_FALSE(settings_of({}).pipeline.compile.keep_subnormals);
    EXPECT_TRUE(settings_of({}).pipeline.compile.keep_f32.empty());
    EXPECT_THROW(settings_of({{"keep_subnormals", "yes"}}), OptionError);
    EXPECT_THROW(settings_of({{"keep_f23", "logits"}}), OptionError);
}

}  // namespace
}  // namespace tilewright::provider
