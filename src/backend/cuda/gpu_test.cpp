// Machines without a GPU, with an old one, with a full one; and, where there is a real one, kernels on it.

#include "backend/cuda/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "backend/cuda/fake_gpu_test.h"
#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/machine_code.h"
#include "backend/cuda/matrix_cases_test.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class F>
std::string error_of(const F& f) {
    try {
        f();
    } catch (const RuntimeError& e) {
        return e.what();
    }
    return "nothing";
}

TEST(Gpu, WithoutADriverIsAnErrorThatSaysWhatToDo) {
    EXPECT_THAT(error_of([] { Gpu(0, "libno-such-driver.so.1"); }),
                AllOf(HasSubstr("no CUDA driver"), HasSubstr("libno-such-driver.so.1"), HasSubstr("nvidia-smi")));
    EXPECT_THAT(error_of([] { Nvrtc({"libno-such-compiler.so"}); }),
                AllOf(HasSubstr("no NVRTC"), HasSubstr("libno-such-compiler.so"), HasSubstr("LD_LIBRARY_PATH")));
    // A library that is there, but no driver.
    EXPECT_THAT(error_of([] { Gpu(0, "libm.so.6"); }), HasSubstr("has no function cuInit: it is too old"));
}

TEST(Gpu, ThatIsOldOrNotThereIsRefused) {
    test::FakeGpu machine;
    machine.major = 7;
    EXPECT_THAT(error_of([&] { Gpu(0, machine.driver()); }),
                HasSubstr("'FakeDriver' has compute capability 7.0: kernels are made for 8.0 (Ampere) and newer"));
    machine.major = 9;
    EXPECT_THAT(error_of([&] { Gpu(1, machine.driver()); }), HasSubstr("there is no GPU 1: the driver sees 1"));
    machine.devices = 0;
    EXPECT_THAT(error_of([&] { Gpu(0, machine.driver()); }), HasSubstr("there is no GPU 0: the driver sees 0"));
    EXPECT_EQ(machine.contexts, 0);
}

TEST(Gpu, SaysWhenItsMemoryIsFullAndWhatFailed) {
    test::FakeGpu machine;
    machine.major = 9;
    machine.memory_bytes = 4096;
    const Gpu gpu(0, machine.driver());
    EXPECT_EQ(gpu.target().capability(), 90);
    EXPECT_EQ(gpu.target().name, "FakeDriver");
    const auto some = gpu.allocate(1000);
    EXPECT_EQ(gpu.free_bytes(), 3096u);
    EXPECT_THAT(error_of([&] { gpu.allocate(5000, "the model"); }),
                HasSubstr("out of memory on 'FakeDriver': the model needs 5000 bytes, and 3096 of its 4096 are free"));
    const std::vector<int> there = {1, 2, 3};
    std::vector<int> back(3);
    const auto memory = gpu.allocate(12);
    gpu.to_device(memory.get(), there.data(), 12);
    gpu.to_host(back.data(), memory.get(), 12);
    EXPECT_EQ(back, there);
    KernelText kernel;
    kernel.name = "k";
    EXPECT_THAT(error_of([&] { gpu.load("", kernel); }), HasSubstr("cannot load the code of kernel 'k': some error"));
    machine.failure = 700;
    EXPECT_THAT(error_of([&] { gpu.synchronize(); }),
                HasSubstr("cannot finish what was launched: an illegal memory access"));
}

/// A machine whose only kernel adds its second argument to the first number at the other.
struct Counter {
    test::FakeGpu machine;
    KernelText text;
    Counter() {
        text.name = "count";
        text.text = "TW_KERNEL(count, 32)(...) { }";
        machine.argument_count = [](const std::string&) { return size_t{2}; };
        machine.run = [this](const std::string&, const std::vector<uint64_t>& a, int64_t blocks) {
            *static_cast<int64_t*>(machine.at(a[0], 8)) += static_cast<int64_t>(a[1]) * blocks;
        };
    }
};

TEST(Stream, DoesWhatItIsAskedForInOrderWhenSomebodyWaits) {
    Counter c;
    {
        const Gpu gpu(0, c.machine.driver());
        const Gpu::Kernel kernel = gpu.load(c.text.text, c.text);
        const Gpu::Stream stream = gpu.stream();
        const auto pinned = gpu.allocate_pinned(8), memory = gpu.allocate(8);
        auto& number = *static_cast<int64_t*>(pinned.get());
        number = 5;
        void* at = memory.get();
        int64_t more = 10;
        stream.to_device(at, &number, 8);
        stream.launch(kernel, 3, {&at, &more});
        more = 1000;  // arguments are those of the launch
        stream.to_host(&number, at, 8);
        EXPECT_EQ(number, 5);
        stream.synchronize();
        EXPECT_EQ(number, 35);
    }
    EXPECT_EQ(c.machine.wrong, "");
    EXPECT_EQ(c.machine.used + static_cast<uint64_t>(c.machine.pinned + c.machine.streams + c.machine.modules), 0u);
    EXPECT_EQ(c.machine.contexts, 0);
}

TEST(Stream, FindsWhatWasCopiedBefore) {
    // Copies of what is not pinned return early, and no stream of ours waits for the default one.
    Counter c;
    const Gpu gpu(0, c.machine.driver());
    const Gpu::Stream stream = gpu.stream();
    const auto pinned = gpu.allocate_pinned(8), memory = gpu.allocate(8);
    const int64_t number = 42;
    auto& seen = *static_cast<int64_t*>(pinned.get());
    gpu.to_device(memory.get(), &number, 8);
    stream.to_host(&seen, memory.get(), 8);
    stream.synchronize();
    EXPECT_EQ(seen, 42);
    EXPECT_EQ(c.machine.wrong, "");
}

TEST(Stream, CapturesAGraphThatDoesTheSameAgain) {
    Counter c;
    {
        const Gpu gpu(0, c.machine.driver());
        const Gpu::Kernel kernel = gpu.load(c.text.text, c.text);
        const Gpu::Stream stream = gpu.stream();
        const auto pinned = gpu.allocate_pinned(8), memory = gpu.allocate(8);
        auto& number = *static_cast<int64_t*>(pinned.get());
        const auto work = [&] {
            void* at = memory.get();
            int64_t more = 7;
            stream.to_device(at, &number, 8);
            stream.launch(kernel, 1, {&at, &more});
            stream.to_host(&number, at, 8);
        };
        number = 1;
        const Gpu::Graph graph = stream.capture(work);
        stream.synchronize();
        EXPECT_EQ(number, 1);  // nothing has happened
        EXPECT_EQ(c.machine.launches, 0);
        for (const int64_t expected : {8, 15, 22}) {
            stream.launch(graph);
            stream.synchronize();
            EXPECT_EQ(number, expected);
        }
        EXPECT_EQ(c.machine.graph_launches, 3);
        // What may not be captured is an error, after which the stream goes on as before.
        EXPECT_THAT(error_of([&] { stream.capture([&] { gpu.allocate(8); }); }), HasSubstr("not while capturing"));
        work();
        stream.synchronize();
        EXPECT_EQ(number, 29);
    }
    EXPECT_EQ(c.machine.wrong, "");
    EXPECT_EQ(c.machine.graphs, 0);
    EXPECT_EQ(c.machine.used, 0u);
}

TEST(Stream, SaysThatAKernelFailed) {
    Counter c;
    const Gpu gpu(0, c.machine.driver());
    const Gpu::Kernel kernel = gpu.load(c.text.text, c.text);
    const Gpu::Stream stream = gpu.stream();
    void* nowhere = nullptr;
    int64_t more = 1;
    stream.launch(kernel, 1, {&nowhere, &more});
    EXPECT_THAT(error_of([&] { stream.synchronize(); }),
                HasSubstr("the CUDA driver cannot finish what was launched: an illegal memory access"));
}

KernelText named(const std::string& name, const std::string& body) {
    KernelText k;
    k.name = name;
    k.text = fmt::format("// of some model\nTW_KERNEL({}, 32)(tw::In<float> x) {{ {} }}\n", name, body);
    return k;
}

TEST(MachineCode, KnowsKernelsByTheirTextAlone) {
    test::FakeGpu machine;
    const TemporaryFolder folder;
    const CodeCache cache(folder / "code");
    int asked = 0;
    const auto compiler = [&] { return ++asked, Nvrtc(machine.compiler()); };
    const std::vector<KernelText> first = {named("kernel_0", "x;"), named("kernel_1", "y;")};
    const std::vector<std::string> code = machine_code(first, 80, cache, compiler, 2);
    EXPECT_EQ(machine.compilations, 2);
    EXPECT_THAT(code[1], AllOf(HasSubstr("TW_KERNEL(kernel, 32)"), HasSubstr("{ y; }")));
    // Another model has one of them under another name, and one that is new.
    const auto more = machine_code({named("kernel_7", "y;"), named("kernel_0", "z;")}, 80, cache, compiler);
    EXPECT_EQ(more[0], code[1]);
    EXPECT_EQ(machine.compilations, 3);
    // Nothing is asked of the compiler where all is there; another GPU has other code.
    const int before = asked;
    EXPECT_EQ(machine_code(first, 80, cache, compiler), code);
    EXPECT_EQ(asked, before);
    machine_code(first, 90, cache, compiler);
    EXPECT_EQ(machine.compilations, 5);
}

/// Schedules for every rest, and their texts.
std::vector<std::pair<schedule_cases::Case, KernelText>> texts() {
    std::vector<std::pair<schedule_cases::Case, KernelText>> out;
    for (const schedule_cases::Group& g : schedule_cases::all())
        for (const schedule_cases::Case& c : g.cases)
            out.emplace_back(c, generate(c.program, h200(), fmt::format("kernel_{}", out.size())));
    return out;
}

const char* const kInstructions = R"TW(
TW_KERNEL(instructions, 32)(tw::In<float> x, tw::Out<float> y) {
    const tw::Shared<float> s = tw::shared<float>(0, 256, "s");
    tw::copy_async<4>(s + 4 * tw::thread(), x + 4 * tw::thread());
    tw::copy_async<1>(s + 128 + tw::thread(), x + tw::thread());
    tw::commit_async();
    tw::wait_async<0>();
    tw::barrier();
    tw::copy_async_if<2>(s + 192 + 2 * (tw::thread() % 16), x + 2 * tw::thread(), tw::thread() < 16);
    float c[4] = {0, 0, 0, 0};
    const u32 a = tw::tf32(s[0]), b = tw::f16_pair(s[1], s[2]), d = tw::bf16_pair(s[3], s[4]);
    tw::multiply_tf32(c[0], c[1], c[2], c[3], a, a, a, a, a, a);
    tw::multiply_f16(c[0], c[1], c[2], c[3], b, b, b, b, b, b);
    tw::multiply_bf16(c[0], c[1], c[2], c[3], d, d, d, d, d, d);
    tw::put(y, tw::thread(), c[0] + c[1] + c[2] + c[3]);
}
)TW";

TEST(Nvrtc, AcceptsTheTextsForEveryArchitecture) {
    std::unique_ptr<Nvrtc> nvrtc;
    try {
        nvrtc = std::make_unique<Nvrtc>();
    } catch (const RuntimeError& e) {
        GTEST_SKIP() << e.what();
    }
    std::vector<KernelText> all;
    size_t k = 0;
    for (auto& [c, text] : texts())
        if (k++ % 12 == 0) all.push_back(std::move(text));  // a fifth of a second each
    for (const TileProgram& p :
         {test::matrix_product({"128", "128", "96"}), test::matrix_product({"33", "65", "9", "f32", "tf32"}),
          test::matrix_attention("bf16", "bf16", 1, 64, 96, 32, 64, 32, 32, 2)})
        all.push_back(generate(p, h200(), fmt::format("matrix_{}", all.size())));
    all.push_back({});
    all.back().text = kInstructions;
    std::vector<KernelText> with_groups = all;
    for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("bf16", "bf16"), std::pair("f32", "tf32")}) {
        test::MatrixProduct p = {"256", "192", "128", type, unit};
        p.group = true;
        p.block = "128";
        with_groups.push_back(generate(test::matrix_product(p), h200(), fmt::format("group_{}", unit)));
    }
    EXPECT_EQ(nvrtc->compile(with_groups, 90).substr(1, 3), "ELF");
    EXPECT_EQ(nvrtc->compile(std::vector<KernelText>(all.end() - 5, all.end()), 80).substr(1, 3), "ELF");
    EXPECT_THAT(error_of([&] { nvrtc->compile("nonsense;", 80); }), HasSubstr("NVRTC refuses the text"));
}

TEST(Nvrtc, SaysWhatAKernelTakesOfAMultiprocessor) {
    EXPECT_EQ(parse_uses("ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
                         "ptxas info    : Function properties for k\n"
                         "ptxas         .     24 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
                         "ptxas info    : Used 34 registers, used 1 barriers, 256 bytes smem\n"),
              (std::map<std::string, KernelUse>{{"k", {34, 256, 12, 24}}}));
    EXPECT_EQ(parse_uses(""), (std::map<std::string, KernelUse>()));
    std::unique_ptr<Nvrtc> nvrtc;
    try {
        nvrtc = std::make_unique<Nvrtc>();
    } catch (const RuntimeError& e) {
        GTEST_SKIP() << e.what();
    }
    // Shared memory is requested by the launch, unless ptxas is to see it; of that it has 48 KiB.
    const KernelText text = generate(test::matrix_product({"128", "128", "96"}), h200());
    const std::string all = device_header() + text.text;
    const KernelUse plain = nvrtc->uses(all, 80).at(text.name);
    EXPECT_EQ(plain.shared_bytes, 0);
    EXPECT_EQ(plain.spilled_bytes, 0);
    EXPECT_GT(plain.registers, 32);  // its sums alone
    EXPECT_EQ(nvrtc->uses(all, 80, {fmt::format("-DTW_SHARED_BYTES={}", text.shared_bytes)}).at(text.name).shared_bytes,
              text.shared_bytes);
    EXPECT_THAT(error_of([&] { nvrtc->uses(all, 80, {"-DTW_SHARED_BYTES=50000"}); }), HasSubstr("50000 bytes smem"));
}

TEST(Gpu, DescribesTensorsToTheCopyEngineWhereAKernelIsLaunched) {
    test::MatrixProduct p = {"$m", "128", "96", "f16", "f16"};
    p.group = p.swizzled = true;
    const TileProgram t = test::matrix_product(p);
    const KernelText text = generate(t, h200(), "kernel");
    ASSERT_EQ(text.maps.size(), size_t{2});
    test::FakeGpu machine;
    machine.major = 9;
    std::vector<uint64_t> seen;
    machine.argument_count = [](const std::string&) { return size_t{4 + 1 + 2}; };
    machine.run = [&](const std::string&, const std::vector<uint64_t>& a, int64_t) { seen = a; };
    {
        const Gpu gpu(0, machine.driver());
        const Gpu::Kernel kernel = gpu.load(text.text, text);
        gpu.run(kernel, text, t.stages, schedule_cases::whole_numbers(t.stages, {{"m", 70}}));
    }
    EXPECT_EQ(machine.wrong, "");
    ASSERT_EQ(seen.size(), size_t{7});
    EXPECT_EQ(seen[4], 70u);      // m
    EXPECT_EQ(seen[5], seen[0]);  // the maps are of a, and of b
    EXPECT_EQ(seen[6], seen[1]);
    ASSERT_EQ(machine.maps.size(), size_t{2});
    EXPECT_THAT(machine.maps[0].extents, testing::ElementsAre(96, 70));
    EXPECT_THAT(machine.maps[0].box, testing::ElementsAre(32, 64));
    EXPECT_EQ(machine.maps[0].swizzle, 64);
    EXPECT_THAT(machine.maps[1].extents, testing::ElementsAre(128, 96));
    // An older driver has no tensor maps: such a kernel is not loaded.
    machine.has_maps = false;
    EXPECT_THAT(error_of([&] { Gpu(0, machine.driver()).load(text.text, text); }), HasSubstr("older than CUDA 12"));
}

/// This machine's GPU and what compiles for it, or what is missing.
struct Device {
    std::unique_ptr<Gpu> gpu;
    std::unique_ptr<Nvrtc> nvrtc;
    std::string missing;
};
Device device() {
    try {
        return {std::make_unique<Gpu>(), std::make_unique<Nvrtc>(), ""};
    } catch (const RuntimeError& e) {
        return {nullptr, nullptr, e.what()};
    }
}

/// What compute-sanitizer is run on: few kernels, one of each kind.
TEST(Gpu, RunsAFewOfThem) {
    const auto [gpu, nvrtc, missing] = device();
    if (!missing.empty()) GTEST_SKIP() << missing;
    std::vector<schedule_cases::Case> cases;
    for (const TileProgram& p :
         {test::matrix_product({"128", "72", "96"}), test::matrix_product({"33", "65", "9", "f32", "tf32"})})
        cases.push_back({p, {{}}, 1e-4});
    if (gpu->target().has_wgmma())
        for (const auto& [type, unit] : {std::pair("f16", "f16"), std::pair("f32", "tf32")}) {
            test::MatrixProduct p = {"130", "72", "80", type, unit};
            p.group = true;
            cases.push_back({test::matrix_product(p), {{}}, 1e-4});
        }
    for (const schedule_cases::Group& g : schedule_cases::all()) {
        cases.push_back(g.cases[0]);
        if (cases.size() == 10) break;
    }
    for (const auto& [program, sizes, tolerance] : cases) {
        const KernelText text = generate(program, gpu->target(), "kernel");
        const Gpu::Kernel kernel =
            gpu->load(nvrtc->compile(std::vector<KernelText>{text}, gpu->target().capability()), text);
        ASSERT_FALSE(sizes.empty());
        const std::vector<Tensor> inputs = schedule_cases::whole_numbers(program.stages, sizes[0]);
        const std::vector<Tensor> expected = interpret(program.stages, inputs),
                                  got = gpu->run(kernel, text, program.stages, inputs);
        EXPECT_LE(largest_difference(expected, got), std::max(tolerance, 1e-4))
            << test::error_text(expected, got) << "\n"
            << print(program);
    }
}

TEST(Gpu, RunsWhatTheExecutorRuns) {
    const Device there = device();
    if (!there.missing.empty()) GTEST_SKIP() << there.missing;
    const auto& gpu = there.gpu;
    std::vector<KernelText> all;
    const auto cases = texts();
    for (const auto& [c, text] : cases) all.push_back(text);
    const std::vector<std::string> code = machine_code(
        all, gpu->target().capability(), CodeCache(test::cubin_folder()), [&] { return *there.nvrtc; },
        static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    for (size_t k = 0; k < cases.size(); ++k) {
        const auto& [c, named] = cases[k];
        const KernelText text = alone(named);
        const Gpu::Kernel kernel = gpu->load(code[k], text);
        for (const schedule_cases::Sizes& sizes : c.sizes) {
            const std::vector<Tensor> inputs = schedule_cases::whole_numbers(c.program.stages, sizes);
            const std::vector<Tensor> expected = interpret(c.program.stages, inputs),
                                      got = gpu->run(kernel, text, c.program.stages, inputs);
            EXPECT_LE(largest_difference(expected, got), c.tolerance) << test::error_text(expected, got) << "\n"
                                                                      << print(c.program);
        }
    }
}

}  // namespace
}  // namespace tilewright::cuda
