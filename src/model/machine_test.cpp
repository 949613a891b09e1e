// What plans and machine code take of the machine: its target file, where there is one.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "cost/given_test.h"
#include "model/session.h"
#include "orchestrate/options.h"

namespace tilewright {
namespace {

constexpr int64_t kSecond = 192 << 10;

/// With a cache folder of its own.
class MachineFile : public testing::Test {
  protected:
    MachineFile() {
        if (const char* value = std::getenv("XDG_CACHE_HOME")) before_ = value;
        setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    }
    ~MachineFile() override { before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME"); }

    /// This machine, calibrated: `last` bytes of its last cache and 192 KiB of the second are usable.
    static Target measured(int64_t last) {
        Target t = host_target();
        for (CacheLevel& c : t.caches)
            if (c.level == 2) c.measured_bytes = kSecond;
        t.caches.back().measured_bytes = last;
        t.fma_gflops_1 = {77, 0.01, 5};
        t.calibrated = true;
        return t;
    }

  private:
    const TemporaryFolder folder_;
    std::optional<std::string> before_;
};

int64_t described_bytes() { return host_target().caches.back().bytes; }

/// y = -x, of half the bytes that the last cache is said to have.
Program long_negation() {
    return parse_program(fmt::format(R"(program t {{
  input x: f32[{0}]
  y: f32[{0}] = [{0}] neg(@0) where @0 = x[i0]
  output y
}})",
                                     described_bytes() / 2 / 4));
}

bool has_streaming_stores(const CompileOptions& options) {
    return compile_program(long_negation(), options)->dump("asm").find("movnt") != std::string::npos;
}

TEST_F(MachineFile, DecidesWhatPlansAndCodeGenerationGet) {
    const CompileOptions options;
    save_target(measured(described_bytes() / 4));
    const OrchestrateOptions plans = orchestrate_options(options);
    EXPECT_EQ(plans.scheduling.target.last_cache_bytes(), described_bytes() / 4);
    EXPECT_EQ(plans.scheduling.target.l2_bytes(), kSecond);
    const Target& target = plans.scheduling.target;
    EXPECT_TRUE(target.native);
    EXPECT_DOUBLE_EQ(CycleRates(target).fmas_per_cycle, 77 / (2 * target.micro_lanes() * target.ghz.value));
    EXPECT_TRUE(has_streaming_stores(options)) << "the output is larger than the last cache";

    save_target(measured(described_bytes()));
    EXPECT_EQ(orchestrate_options(options).scheduling.target.last_cache_bytes(), described_bytes());
    EXPECT_FALSE(has_streaming_stores(options));
}

TEST_F(MachineFile, IsOverriddenByTheOptions) {
    save_target(measured(described_bytes() / 4));
    CompileOptions options;
    options.machine = measured(described_bytes());
    EXPECT_EQ(orchestrate_options(options).scheduling.target.last_cache_bytes(), described_bytes());
    EXPECT_FALSE(has_streaming_stores(options));
}

TEST_F(MachineFile, IsUsedAsTheOptionsSay) {
    CompileOptions options;
    options.machine = generic_target(VectorIsa::avx512);
    options.threads = 3;
    EXPECT_EQ(target_of(options).vector_bits, 512);
    EXPECT_EQ(target_of(options).workers, 3);
    options.isa = "avx2";
    options.gpu = h200();
    const Target target = target_of(options);
    EXPECT_EQ(target.vector_bits, 256);
    EXPECT_EQ(target.gpu, h200());
    EXPECT_EQ(orchestrate_options(options).scheduling.target, target);
    options.isa = "mmx";
    EXPECT_THROW(target_of(options), ModelError);
}

TEST_F(MachineFile, IsNotNeeded) {
    EXPECT_EQ(orchestrate_options({}).scheduling.target.last_cache_bytes(), described_bytes());
}

}  // namespace
}  // namespace tilewright
