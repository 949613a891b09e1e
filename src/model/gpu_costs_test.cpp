// Measured costs on a fake GPU, whose kernels the tile interpreter runs.

#include "model/gpu_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/fake_gpu_test.h"
#include "backend/cuda/library_offer.h"
#include "backend/cuda/machine_code.h"
#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "orchestrate/library_parts.h"
#include "schedule/gpu/gpu_schedule.h"
#include "schedule/scheduler.h"
#include "tile/tile.h"

namespace tilewright {
namespace {

Program product(const std::string& rest) {
    return parse_program(R"(program product {
  input a: f32[64, 32]
  input b: f32[32, 64]
  c: f32[64, 64] = [64, 64] sum(i2 < 32) mul(@0, @1))" +
                         rest + R"( where @0 = a[i0, i2], @1 = b[i2, i1]
  output c
})");
}

/// A GPU with some schedules of one kernel, and the one that all are compared with. Schedule k takes k + 1 seconds.
struct Machine {
    /// `rest`: behind the product.
    explicit Machine(size_t most, const std::string& rest = "") : stages(product(rest)) {
        target.gpu = a100();
        schedules = gpu_product_schedules(stages, target, Precision::F32, most);
        all = schedules;
        all.push_back(gpu_schedule(stages, IndexVector<PrimitiveId, std::vector<size_t>>(1), target, Precision::F32));
        library_parts(stages, target, Precision::F32, cuda::library_refusal, parts);
        all.insert(all.end(), parts.kernels().begin(), parts.kernels().end());
        for (const TileProgram& p : all)
            images.push_back(cuda::device_header() + "\n" + cuda::alone(cuda::generate(p, *target.gpu, "kernel")).text);
        machine.memory_bytes = 1 << 24;
        machine.argument_count = [this](const std::string& image) {
            const TileProgram& kernel = all.at(number_of(image));
            return kernel.stages.inputs.size() + kernel.stages.outputs.size();
        };
        machine.run = [this](const std::string& image, const std::vector<uint64_t>& arguments, int64_t) {
            last = number_of(image);
            const TileProgram& kernel = all.at(last);
            std::vector<Tensor> tensors;
            for (const ValueId v : kernel.stages.inputs) {
                Tensor t(DType::F32, evaluate(kernel.stages.values[v].shape, Bindings{}));
                std::memcpy(t.mutable_data(), machine.at(arguments[tensors.size()], t.bytes()), t.bytes());
                tensors.push_back(std::move(t));
            }
            Tensor result = interpret(kernel, tensors, {})[0];
            if (last == wrong) result.set(5, result.get(5) + 1000);
            std::memcpy(machine.at(arguments[tensors.size()], result.bytes()), result.data(), result.bytes());
        };
    }
    size_t number_of(const std::string& image) const {
        return static_cast<size_t>(std::find(images.begin(), images.end(), image) - images.begin());
    }
    GpuCosts costs(double seconds = 1e6) {
        GpuLibraries libraries;
        if (library_seconds)
            libraries.libraries.push_back(
                std::make_shared<cuda::CublasLt>(cuda::Gpu(0, machine.driver()), machine.products()));
        libraries.time = [this](const cuda::Gpu::Stream& stream, const std::function<void()>& work) {
            const int before = machine.library_products;
            work();
            stream.synchronize();
            ++timed;
            return machine.library_products > before ? *library_seconds : static_cast<double>(last + 1);
        };
        GpuMeasuring how;
        how.seconds = seconds;
        how.database = database;
        how.compiler = [this] { return cuda::Nvrtc(machine.compiler()); };
        return {cuda::Gpu(0, machine.driver()), target, Precision::F32, libraries, std::move(how)};
    }

    cuda::test::FakeGpu machine;
    std::optional<double> library_seconds;  ///< of a product of cuBLASLt, with what runs behind it
    Program stages;
    KernelSet parts;
    Target target = current_target();
    std::vector<TileProgram> schedules, all;
    std::vector<std::string> images;
    size_t last = 0, wrong = ~size_t{0};
    int timed = 0;
    std::shared_ptr<TuningDatabase> database;
};

TEST(GpuCosts, of_schedules_are_measured_once) {
    Machine m(3);
    ASSERT_EQ(m.schedules.size(), 3u);
    const GpuCosts costs = m.costs();
    EXPECT_TRUE(costs.measures_schedules());
    EXPECT_THAT(costs.measure_schedules(m.schedules), testing::ElementsAre(1, 2, 3));
    EXPECT_EQ(m.timed, 3);
    EXPECT_THAT(costs.measure_schedules(m.schedules), testing::ElementsAre(1, 2, 3));
    EXPECT_EQ(m.timed, 3);
    EXPECT_EQ(print(fastest(m.schedules, costs)), print(m.schedules[0]));
    EXPECT_EQ(m.machine.wrong, "");
}

TEST(GpuCosts, are_recalled_from_the_tuning_database_for_the_same_device_and_driver) {
    const TemporaryFolder folder;
    const auto measured = [&](int driver, int expected_runs, size_t wrong = ~size_t{0}) {
        Machine m(3);
        m.machine.driver_version = driver;
        m.wrong = wrong;
        m.database = std::make_shared<TuningDatabase>(folder / "tuning.db");
        const GpuCosts costs = m.costs();
        const std::vector<double> seconds = costs.measure_schedules(m.schedules);
        EXPECT_EQ(m.timed, expected_runs);
        const MeasuredKernel whole = costs.measure(m.schedules[0], {}).value();
        EXPECT_EQ(whole.seconds, seconds[0]);
        EXPECT_TRUE(whole.remembered);
        EXPECT_EQ(m.machine.launches > 0, expected_runs > 0) << "nothing runs where all is known";
        EXPECT_EQ(m.machine.wrong, "");
        return seconds;
    };
    EXPECT_THAT(measured(13000, 2, 1), testing::ElementsAre(1, -1, 3));
    EXPECT_THAT(measured(13000, 0), testing::ElementsAre(1, -1, 3)) << "a wrong result is kept as well";
    EXPECT_THAT(measured(13010, 3), testing::ElementsAre(1, 2, 3)) << "another driver may run them at other speeds";
    std::set<std::string> devices;
    for (const Measurement& m : TuningDatabase(folder / "tuning.db").measurements()) devices.insert(m.key.target);
    EXPECT_EQ(devices.size(), 2u);
}

TEST(GpuCosts, of_a_kernel_are_those_of_its_parts_where_libraries_are_faster) {
    const TemporaryFolder folder;
    for (const double library : {0.25, 7.0}) {
        const auto database = std::make_shared<TuningDatabase>(folder / fmt::format("{}.db", library));
        for (const bool known : {false, true}) {
            Machine m(1, " then tanh(acc)");
            m.library_seconds = library;
            m.database = database;
            EXPECT_EQ(m.parts.kernels().size(), 1u);
            const MeasuredKernel whole = m.costs().measure(m.schedules[0], {}).value();
            EXPECT_EQ(whole.seconds, std::min(1.0, library));
            EXPECT_EQ(whole.remembered, known);
            EXPECT_EQ(m.machine.library_products > 0, !known);
            EXPECT_EQ(m.machine.wrong, "");
        }
    }
    // A part with other results is as slow as none.
    Machine m(1, " then tanh(acc)");
    m.library_seconds = 0.25;
    m.wrong = m.all.size() - 1;
    EXPECT_EQ(m.costs().measure(m.schedules[0], {}).value().seconds, 1);
}

TEST(GpuCosts, are_not_kept_of_kernels_that_could_not_run) {
    const TemporaryFolder folder;
    for (const bool fails : {true, false}) {
        Machine m(1);
        m.database = std::make_shared<TuningDatabase>(folder / "tuning.db");
        if (fails) m.machine.failure = 700;
        EXPECT_THAT(m.costs().measure_schedules(m.schedules), testing::ElementsAre(fails ? -1 : 1));
        EXPECT_EQ(m.database->measurements().size(), fails ? 0u : 1u);
    }
}

TEST(GpuCosts, reject_a_schedule_with_other_results) {
    Machine m(3);
    m.wrong = 1;
    EXPECT_THAT(m.costs().measure_schedules(m.schedules), testing::ElementsAre(1, -1, 3));
}

TEST(GpuCosts, are_estimates_behind_the_time_limit) {
    Machine m(3);
    EXPECT_FALSE(m.costs(0).measures_schedules());
    EXPECT_GT(m.costs(0).estimate(m.schedules[0]), 0);
}

TEST(GpuCosts, of_a_kernel_are_nothing_where_sizes_are_unknown) {
    Machine m(1);
    const GpuCosts costs = m.costs();
    EXPECT_EQ(costs.measure(m.schedules[0], {}).value().seconds, 1);
    TileProgram open = m.schedules[0];
    open.stages.values[ValueId(0)].shape[0] = symbol("n");
    EXPECT_FALSE(costs.measure(open, {}));
    EXPECT_THAT(costs.measure_schedules({open}), testing::ElementsAre(costs.estimate(open)));
}

}  // namespace
}  // namespace tilewright
