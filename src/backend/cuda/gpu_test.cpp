// Machines without a GPU, with an old one, with a full one; and, where there is a real one, kernels on it.

#include "backend/cuda/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backend/cuda/lockstep_cases_test.h"
#include "backend/cuda/matrix_cases_test.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "tile/schedule_cases_test.h"

namespace tilewright::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// A driver that has one device, of compute capability MAJOR.0, with 1000 bytes of memory left.
const char* const kFakeDriver = R"TW(
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long Address;
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* n) { *n = DEVICES; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetName(char* s, int n, int d) { strncpy(s, "Pretender", n); return 0; }
int cuDeviceTotalMem_v2(size_t* n, int d) { *n = 4096; return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? MAJOR : a == 76 ? 0 : a; return 0; }
int cuDevicePrimaryCtxRetain(void** c, int d) { *c = &cuInit; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxSetCurrent(void* c) { return 0; }
int cuCtxSynchronize() { return 700; }
int cuModuleLoadData(void** m, const void* image) { *m = 0; return 200; }
int cuModuleUnload(void* m) { return 0; }
int cuModuleGetFunction(void** f, void* m, const char* n) { return 500; }
int cuFuncSetAttribute(void* f, int a, int v) { return 0; }
int cuLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned s,
                   void* stream, void** a, void** e) { return 0; }
int cuMemAlloc_v2(Address* m, size_t n) { if (n > 1000) return 2; *m = (Address)malloc(n); return 0; }
int cuMemFree_v2(Address m) { free((void*)m); return 0; }
int cuMemcpyHtoD_v2(Address to, const void* from, size_t n) { memcpy((void*)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void* to, Address from, size_t n) { memcpy(to, (void*)from, n); return 0; }
int cuGetErrorString(int e, const char** s) { *s = e == 700 ? "an illegal memory access" : "some error"; return 0; }
)TW";

/// The library of such a driver, which goes with this object.
class FakeDriver {
  public:
    explicit FakeDriver(int major, int devices = 1) {
        std::string pattern = (fs::temp_directory_path() / "tilewright-fake-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) throw RuntimeError("no temporary folder");
        folder_ = pattern;
        std::ofstream(folder_ / "driver.c") << kFakeDriver;
        const std::string command = fmt::format("'{}' -x c -shared -fPIC -DMAJOR={} -DDEVICES={} -o '{}' '{}'",
                                                TW_TEST_CXX, major, devices, path(), (folder_ / "driver.c").string());
        if (std::system(command.c_str()) != 0) throw RuntimeError("the fake driver cannot be compiled");
    }
    ~FakeDriver() {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }
    FakeDriver(const FakeDriver&) = delete;
    FakeDriver& operator=(const FakeDriver&) = delete;

    std::string path() const { return (folder_ / "libdriver.so").string(); }

  private:
    fs::path folder_;
};

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
    EXPECT_THAT(error_of([] { Gpu(0, FakeDriver(7).path()); }),
                HasSubstr("'Pretender' has compute capability 7.0: kernels are made for 8.0 (Ampere) and newer"));
    const FakeDriver driver(9, 1);
    EXPECT_THAT(error_of([&] { Gpu(1, driver.path()); }), HasSubstr("there is no GPU 1: the driver sees 1"));
    const FakeDriver none(9, 0);
    EXPECT_THAT(error_of([&] { Gpu(0, none.path()); }), HasSubstr("there is no GPU 0: the driver sees 0"));
}

TEST(Gpu, SaysWhenItsMemoryIsFullAndWhatFailed) {
    const FakeDriver driver(9);
    const Gpu gpu(0, driver.path());
    EXPECT_EQ(gpu.target().capability(), 90);
    EXPECT_EQ(gpu.target().name, "Pretender");
    EXPECT_THAT(error_of([&] { gpu.allocate(5000); }),
                HasSubstr("out of memory on 'Pretender': 5000 bytes were asked for, it has 4096 in all"));
    const std::vector<int> there = {1, 2, 3};
    std::vector<int> back(3);
    const auto memory = gpu.allocate(12);
    gpu.to_device(memory.get(), there.data(), 12);
    gpu.to_host(back.data(), memory.get(), 12);
    EXPECT_EQ(back, there);
    KernelText kernel;
    kernel.name = "k";
    EXPECT_THAT(error_of([&] { gpu.load("", kernel); }), HasSubstr("cannot load the code of kernel 'k': some error"));
    EXPECT_THAT(error_of([&] { gpu.synchronize(); }),
                HasSubstr("cannot finish what was launched: an illegal memory access"));
}

/// Schedules for every rest, and their texts.
std::vector<std::pair<schedule_cases::Case, KernelText>> texts() {
    std::vector<std::pair<schedule_cases::Case, KernelText>> out;
    for (const schedule_cases::Group& g : schedule_cases::all())
        for (const schedule_cases::Case& c : g.cases)
            out.emplace_back(c, generate(c.program, {}, fmt::format("kernel_{}", out.size())));
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
        if (k++ % 4 == 0) all.push_back(std::move(text));  // a fifth of a second each
    for (const TileProgram& p :
         {test::matrix_product({"128", "128", "96"}), test::matrix_product({"33", "65", "9", "f32", "tf32"}),
          test::matrix_attention("bf16", "bf16", 1, 64, 96, 32, 64, 32, 32, 2)})
        all.push_back(generate(p, {}, fmt::format("matrix_{}", all.size())));
    all.push_back({});
    all.back().text = kInstructions;
    EXPECT_EQ(nvrtc->compile(all, 90).substr(1, 3), "ELF");
    EXPECT_EQ(nvrtc->compile(std::vector<KernelText>(all.end() - 5, all.end()), 80).substr(1, 3), "ELF");
    EXPECT_THAT(error_of([&] { nvrtc->compile("nonsense;", 80); }), HasSubstr("NVRTC refuses the text"));
}

TEST(Gpu, RunsWhatTheExecutorRuns) {
    std::unique_ptr<Gpu> gpu;
    std::unique_ptr<Nvrtc> nvrtc;
    try {
        gpu = std::make_unique<Gpu>();
        nvrtc = std::make_unique<Nvrtc>();
    } catch (const RuntimeError& e) {
        GTEST_SKIP() << e.what();
    }
    std::vector<KernelText> all;
    const auto cases = texts();
    for (const auto& [c, text] : cases) all.push_back(text);
    const std::string code = nvrtc->compile(all, gpu->target().capability());
    for (const auto& [c, text] : cases) {
        const Gpu::Kernel kernel = gpu->load(code, text);
        for (const schedule_cases::Sizes& sizes : c.sizes) {
            const std::vector<Tensor> inputs = schedule_cases::whole_numbers(c.program.stages, sizes);
            EXPECT_LE(largest_difference(interpret(c.program.stages, inputs),
                                         gpu->run(kernel, text, c.program.stages, inputs)),
                      c.tolerance)
                << print(c.program);
        }
    }
}

}  // namespace
}  // namespace tilewright::cuda
