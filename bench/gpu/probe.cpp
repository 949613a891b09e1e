// Measures the rates and latencies of this machine's GPU on which cost/gpu_estimate.h depends, in a few seconds, and
// keeps them in the cache folder, from where compilations for this GPU take them (cost/gpu_target_file.h).
//
//     bench_probe [--seconds 0.05] [--output FILE]
//
// One line a figure: name, value, unit. Clocks are those of an SM (clock64), per instruction or step of one block;
// rates are of all SMs by wall time, and so include the clock that the GPU takes under that load.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <tuple>

#include "backend/cuda/gpu.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "base/whole_file.h"
#include "cost/gpu_target_file.h"

namespace tilewright {
namespace {

const char* const kKernels = R"TW(
using Word = uint4;
TW_DEVICE u32 hashed(u32 x) {
    x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; return x ^ (x >> 16);
}
/// Two halves (f16 or bf16) or one f32 of about 1, with random mantissas and signs.
TW_DEVICE u32 random_word(u32 x, bool halves) {
    return halves ? (hashed(x) & 0x83ff83ffu) | 0x3c003c00u : (hashed(x) & 0x807fffffu) | 0x3f800000u;
}
TW_DEVICE void fill_shared(int bytes, bool halves) {
    u32* s = tw::shared<u32>(0, bytes / 4, "s");
    for (int i = tw::thread(); i < bytes / 4; i += blockDim.x) s[i] = random_word(i + 977 * tw::block(), halves);
    tw::fence_async();
    tw::barrier();
}

TW_KERNEL(empty, 32)() {}

TW_KERNEL(fill, 256)(Word* to, i64 words, i64 step) {
    for (i64 i = tw::block() * 256ll + tw::thread(); i < words; i += gridDim.x * 256ll) {
        const i64 next = (i + step) % words;  // a ring for `chase`
        to[i] = Word{static_cast<u32>(next), static_cast<u32>(next >> 32), random_word(i, true), random_word(~i, true)};
    }
}
TW_KERNEL(read, 256)(const Word* from, i64 words, i64 rounds, u32* out) {
    Word sum = {0, 0, 0, 0};
    const i64 stride = gridDim.x * 256ll;
    for (i64 r = 0; r < rounds; ++r)
        for (i64 i = tw::block() * 256ll + tw::thread(); i < words; i += 4 * stride) {
            Word w[4];
            TW_UNROLL for (int k = 0; k < 4; ++k)
                w[k] = i + k * stride < words ? __ldcg(from + i + k * stride) : Word{0, 0, 0, 0};
            TW_UNROLL for (int k = 0; k < 4; ++k) { sum.x ^= w[k].x; sum.y ^= w[k].y; sum.z ^= w[k].z; sum.w ^= w[k].w; }
        }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u) out[0] = 1;
}
TW_KERNEL(copy, 256)(const Word* from, Word* to, i64 words) {
    const i64 stride = gridDim.x * 256ll;
    for (i64 i = tw::block() * 256ll + tw::thread(); i < words; i += stride) to[i] = from[i];
}
TW_KERNEL(chase, 32)(const Word* ring, i64 steps, i64* clocks) {
    i64 at = 0;
    const i64 start = clock64();
    for (i64 k = 0; k < steps; ++k) {
        const Word w = __ldcg(ring + at);
        at = static_cast<i64>(w.x) | static_cast<i64>(w.y) << 32;
    }
    clocks[0] = clock64() - start + (at == -1 ? 1 : 0);
}
TW_KERNEL(shared_read, 256)(i64 rounds, i64* clocks, u32* out) {
    fill_shared(32768, true);
    const Word* s = reinterpret_cast<const Word*>(tw::shared_memory());
    Word sum = {0, 0, 0, 0};
    int at = tw::thread();
    const i64 start = clock64();
    for (i64 r = 0; r < rounds; ++r) {
        TW_UNROLL for (int k = 0; k < 8; ++k) {
            const Word w = s[(at + 256 * k) & 2047];
            sum.x ^= w.x; sum.y ^= w.y; sum.z ^= w.z; sum.w ^= w.w;
        }
        at += 8;
    }
    tw::barrier();
    if (tw::thread() == 0) clocks[tw::block()] = clock64() - start;
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u) out[0] = 1;
}
TW_KERNEL(shared_chase, 32)(i64 steps, i64* clocks) {
    u32* s = tw::shared<u32>(0, 1024, "s");
    for (int i = tw::thread(); i < 1024; i += 32) s[i] = (i + 33) & 1023;
    tw::barrier();
    u32 at = 0;
    const i64 start = clock64();
    for (i64 k = 0; k < steps; ++k) at = s[at];
    clocks[0] = clock64() - start + (at == 5000 ? 1 : 0);
}
template <int threads> TW_DEVICE void barriers(i64 rounds, i64* clocks) {
    const i64 start = clock64();
    for (i64 r = 0; r < rounds; ++r) tw::barrier();
    if (tw::thread() == 0) clocks[tw::block()] = clock64() - start;
}
TW_KERNEL(barrier_128, 128)(i64 rounds, i64* clocks) { barriers<128>(rounds, clocks); }
TW_KERNEL(barrier_256, 256)(i64 rounds, i64* clocks) { barriers<256>(rounds, clocks); }

#define ARITHMETIC(name, start_value, statement)                                                    \
    TW_KERNEL(name, 256)(i64 rounds, i64* clocks, float* out) {                                     \
        float x[16], a = out[1] + 0.999f, b = out[1] + 0.001f;                                      \
        TW_UNROLL for (int i = 0; i < 16; ++i) x[i] = start_value + 0.01f * (tw::thread() + i);      \
        const i64 start = clock64();                                                                \
        for (i64 r = 0; r < rounds; ++r) { TW_UNROLL for (int i = 0; i < 16; ++i) statement; }       \
        tw::barrier();                                                                              \
        if (tw::thread() == 0) clocks[tw::block()] = clock64() - start;                             \
        float sum = a + b;                                                                          \
        TW_UNROLL for (int i = 0; i < 16; ++i) sum += x[i];                                          \
        if (sum == 1.2345f) out[0] = sum;                                                           \
    }
ARITHMETIC(multiply_add, 1, x[i] = ::fmaf(x[i], a, b))
ARITHMETIC(exponential, 0, x[i] = ::expf(-x[i]))
ARITHMETIC(exponential_of_two, 0, asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i])))
ARITHMETIC(maximum, 0, x[i] = tw::maximum(x[i], a))

#define WARP_PRODUCTS(name, multiply, halves)                                                                   \
    TW_KERNEL(name, 256)(i64 rounds, i64* clocks, float* out) {                                                 \
        float c[8][4];                                                                                          \
        u32 a[4], b[8][2];                                                                                      \
        TW_UNROLL for (int i = 0; i < 4; ++i) a[i] = random_word(tw::thread() * 4 + i, halves);                  \
        TW_UNROLL for (int i = 0; i < 8; ++i) {                                                                 \
            b[i][0] = random_word(tw::thread() + 1000 * i, halves);                                             \
            b[i][1] = random_word(tw::thread() + 1000 * i + 500, halves);                                       \
            TW_UNROLL for (int j = 0; j < 4; ++j) c[i][j] = 0;                                                   \
        }                                                                                                       \
        const i64 start = clock64();                                                                            \
        for (i64 r = 0; r < rounds; ++r) {                                                                      \
            TW_UNROLL for (int i = 0; i < 8; ++i)                                                               \
                multiply(c[i][0], c[i][1], c[i][2], c[i][3], a[0], a[1], a[2], a[3], b[i][0], b[i][1]);          \
        }                                                                                                       \
        tw::barrier();                                                                                          \
        if (tw::thread() == 0) clocks[tw::block()] = clock64() - start;                                         \
        float sum = 0;                                                                                          \
        TW_UNROLL for (int i = 0; i < 8; ++i) TW_UNROLL for (int j = 0; j < 4; ++j) sum += c[i][j];              \
        if (sum == 1.2345f) out[0] = sum;                                                                       \
    }
WARP_PRODUCTS(warp_f16, tw::multiply_f16, true)
WARP_PRODUCTS(warp_tf32, tw::multiply_tf32, false)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/// Steps of four instructions of `sum` each, as a product's loop has them: operands in shared memory in rows of 128
/// swizzled bytes, the left of 64 rows a warpgroup, the right shared by all. `drained`: each step waits for its products.
#define GROUP_PRODUCTS(name, n, threads, instruction, halves, drained)                                              \
    TW_KERNEL(name, threads)(i64 rounds, i64* clocks, float* out) {                                                 \
        fill_shared(65536, halves);                                                                                 \
        float low[n / 4], high[n / 4];                                                                              \
        TW_UNROLL for (int i = 0; i < n / 4; ++i) low[i] = high[i] = 0;                                              \
        const unsigned char* s = tw::shared_memory();                                                               \
        const i64 start = clock64();                                                                                \
        for (i64 r = 0; r < rounds; ++r) {                                                                          \
            TW_UNROLL for (int i = 0; i < n / 4; ++i) tw::settle(low[i]), tw::settle(high[i]);                       \
            tw::begin_products();                                                                                   \
            TW_UNROLL for (int k = 0; k < 4; ++k)                                                                   \
                tw::instruction##_##n<0, 0>(                                                                        \
                    low, high, tw::cores<16, 1024, 128>(s, 32 * k + tw::thread() / 128 * 8192),                     \
                    tw::cores<16, 1024, 128>(s, 32768 + 32 * k));                                                   \
            tw::end_products();                                                                                     \
            tw::wait_products<drained ? 0 : 1>();                                                                   \
        }                                                                                                           \
        tw::wait_products<0>();                                                                                     \
        TW_UNROLL for (int i = 0; i < n / 4; ++i) tw::settle(low[i]), tw::settle(high[i]);                           \
        tw::barrier();                                                                                              \
        if (tw::thread() == 0) clocks[tw::block()] = clock64() - start;                                             \
        float sum = 0;                                                                                              \
        TW_UNROLL for (int i = 0; i < n / 4; ++i) sum += low[i] + high[i];                                           \
        if (sum == 1.2345f) out[0] = sum;                                                                           \
    }
GROUP_PRODUCTS(group_f16_8_1, 8, 128, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_16_1, 16, 128, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_32_1, 32, 128, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_64_1, 64, 128, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_128_1, 128, 128, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_256_1, 256, 128, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_64_2, 64, 256, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_128_2, 128, 256, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_256_2, 256, 256, multiply_group_f16, true, false)
GROUP_PRODUCTS(group_f16_256_2_drained, 256, 256, multiply_group_f16, true, true)
GROUP_PRODUCTS(group_bf16_256_2, 256, 256, multiply_group_bf16, true, false)
GROUP_PRODUCTS(group_tf32_256_2, 256, 256, multiply_group_tf32, false, false)

/// Boxes of 64 rows of 128 bytes: one at a time, or as many as there are slots. `boxes`: of the tensor.
template <int slots> TW_DEVICE void copy_boxes(const tw::TensorMap& map, i64 boxes, i64 rounds, i64* clocks) {
    u64* arrivals = reinterpret_cast<u64*>(tw::shared_memory() + slots * 8192);
    if (tw::thread() == 0) tw::begin_arrivals(arrivals, slots);
    tw::barrier();
    i64 box = tw::block() * 7919ll % boxes;
    const i64 start = clock64();
    if (tw::thread() == 0) {
        for (i64 r = 0; r < rounds + slots; ++r) {
            const int slot = static_cast<int>(r % slots);
            if (r >= slots) tw::wait_arrival(arrivals + slot, static_cast<u32>((r / slots - 1) & 1));
            if (r >= rounds) continue;
            tw::expect_bytes(arrivals + slot, 8192);
            tw::copy_box(tw::shared<u16>(slot * 8192, 4096, "s"), map, arrivals + slot, 0, static_cast<int>(box) * 64);
            box = box + 1 == boxes ? 0 : box + 1;
        }
        clocks[tw::block()] = clock64() - start;
    }
}
TW_KERNEL(box_1, 32)(const u16*, i64 boxes, i64 rounds, i64* clocks, const TW_GRID_CONSTANT tw::TensorMap map) {
    copy_boxes<1>(map, boxes, rounds, clocks);
}
TW_KERNEL(box_16, 32)(const u16*, i64 boxes, i64 rounds, i64* clocks, const TW_GRID_CONSTANT tw::TensorMap map) {
    copy_boxes<16>(map, boxes, rounds, clocks);
}
#endif
)TW";

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A kernel of kKernels, loaded; its arguments are addresses and i64 numbers.
class Probe {
  public:
    explicit Probe(double budget) : budget_(budget) {
        sms_ = gpu_.target().multiprocessors;
        code_ = cuda::Nvrtc().compile(cuda::device_header() + kKernels, gpu_.target().capability());
        clocks_ = gpu_.allocate(sizeof(int64_t) * 65536);
        out_ = gpu_.allocate(4096);
        const std::vector<char> zeros(4096);
        gpu_.to_device(out_.get(), zeros.data(), zeros.size());
    }

    void run() {
        fmt::print("device {}, {} SMs, {:.3f} GHz\n", gpu_.target().name, sms_, gpu_.target().ghz);
        launches();
        memory();
        shared();
        arithmetic();
        if (gpu_.target().has_wgmma()) {
            group_products();
            boxes();
        }
    }
    const GpuProbes& figures() const { return figures_; }
    const GpuTarget& gpu() const { return gpu_.target(); }

  private:
    struct Run {
        double seconds = 0;  ///< of one launch among consecutive ones
        double clocks = 0;   ///< of the median block
    };
    void line(const std::string& name, double value, const std::string& unit) {
        figures_[name] = value;
        fmt::print("{:<28}{:>14.4g}  {}\n", name, value, unit);
        std::fflush(stdout);
    }
    cuda::Gpu::Kernel load(const std::string& name, int threads, int64_t shared_bytes,
                           std::vector<cuda::KernelText::Map> maps = {}, size_t arguments = 0) {
        cuda::KernelText text;
        text.name = name;
        text.threads = threads;
        text.shared_bytes = shared_bytes;
        text.maps = std::move(maps);
        // Launches with maps count their arguments.
        text.tensors.assign(arguments, {"x", DType::F16, false});
        return gpu_.load(code_, text);
    }
    Run measure(const cuda::Gpu::Kernel& kernel, int64_t blocks, std::vector<int64_t> values) {
        std::vector<void*> arguments;
        for (int64_t& v : values) arguments.push_back(&v);
        const cuda::Gpu::Stream stream = gpu_.stream();
        stream.launch(kernel, blocks, arguments);
        stream.synchronize();
        auto start = Clock::now();
        stream.launch(kernel, blocks, arguments);
        stream.synchronize();
        const int n = std::clamp(static_cast<int>(budget_ / since(start)), 1, 200);
        start = Clock::now();
        for (int k = 0; k < n; ++k) stream.launch(kernel, blocks, arguments);
        stream.synchronize();
        Run out;
        out.seconds = since(start) / n;
        std::vector<int64_t> clocks(static_cast<size_t>(std::min<int64_t>(blocks, 65536)));
        gpu_.to_host(clocks.data(), clocks_.get(), clocks.size() * sizeof(int64_t));
        std::nth_element(clocks.begin(), clocks.begin() + static_cast<std::ptrdiff_t>(clocks.size() / 2), clocks.end());
        out.clocks = static_cast<double>(clocks[clocks.size() / 2]);
        return out;
    }
    static int64_t at(const std::shared_ptr<void>& memory) { return reinterpret_cast<int64_t>(memory.get()); }

    void launches() {
        const cuda::Gpu::Kernel kernel = load("empty", 32, 0);
        for (const int64_t blocks : {int64_t{1}, int64_t{sms_}}) {
            const cuda::Gpu::Stream stream = gpu_.stream();
            constexpr int kTogether = 500;
            const cuda::Gpu::Graph graph = stream.capture([&] {
                for (int k = 0; k < kTogether; ++k) stream.launch(kernel, blocks, {});
            });
            stream.launch(graph);
            stream.synchronize();
            auto start = Clock::now();
            for (int k = 0; k < 10; ++k) stream.launch(graph);
            stream.synchronize();
            line(fmt::format("launch_graph_{}", blocks), since(start) / 10 / kTogether * 1e6, "us");
            start = Clock::now();
            for (int k = 0; k < 2000; ++k) stream.launch(kernel, blocks, {});
            stream.synchronize();
            line(fmt::format("launch_stream_{}", blocks), since(start) / 2000 * 1e6, "us");
        }
        const cuda::Gpu::Stream stream = gpu_.stream();
        const auto start = Clock::now();
        for (int k = 0; k < 500; ++k) {
            stream.launch(kernel, 1, {});
            stream.synchronize();
        }
        line("launch_and_wait", since(start) / 500 * 1e6, "us");
    }

    void memory() {
        const int64_t bytes = int64_t{2} << 30;
        const std::shared_ptr<void> big = gpu_.allocate(bytes), other = gpu_.allocate(bytes);
        const cuda::Gpu::Kernel fill = load("fill", 256, 0), read = load("read", 256, 0), copy = load("copy", 256, 0),
                                chase = load("chase", 32, 0);
        const int64_t blocks = int64_t{sms_} * 8, words = bytes / 16;
        measure(fill, blocks, {at(big), words, 40961});
        line("memory_read", bytes / measure(read, blocks, {at(big), words, 1, at(out_)}).seconds * 1e-9, "GB/s");
        line("memory_copy", 2 * bytes / measure(copy, blocks, {at(big), at(other), words}).seconds * 1e-9, "GB/s");
        constexpr int64_t kLines = 500'000;  // more than the second-level cache holds
        line("memory_latency", measure(chase, 1, {at(big), kLines, at(clocks_)}).clocks / kLines, "clocks");
        for (const int64_t mib : {4, 16, 32}) {
            const int64_t part = mib << 16;  // words
            measure(fill, blocks, {at(big), part, 40961 % part});
            const double seconds = measure(read, blocks, {at(big), part, 20, at(out_)}).seconds;
            line(fmt::format("l2_read_{}_mib", mib), 20.0 * 16 * static_cast<double>(part) / seconds * 1e-9, "GB/s");
        }
        measure(fill, blocks, {at(big), 1 << 18, 40961});
        line("l2_latency", measure(chase, 1, {at(big), 4000, at(clocks_)}).clocks / 4000, "clocks");
    }

    void shared() {
        const Run r = measure(load("shared_read", 256, 32768), sms_, {2000, at(clocks_), at(out_)});
        line("shared_read", 2000.0 * 8 * 256 * 16 / r.clocks, "bytes/clock/SM");
        line("shared_latency", measure(load("shared_chase", 32, 4096), 1, {4000, at(clocks_)}).clocks / 4000, "clocks");
        for (const int threads : {128, 256})
            line(fmt::format("barrier_{}", threads),
                 measure(load(fmt::format("barrier_{}", threads), threads, 0), sms_, {4000, at(clocks_)}).clocks / 4000,
                 "clocks");
    }

    void arithmetic() {
        for (const std::string name : {"multiply_add", "exponential", "exponential_of_two", "maximum"}) {
            const Run r = measure(load(name, 256, 0), int64_t{sms_} * 4, {2000, at(clocks_), at(out_)});
            const double each = 2000.0 * 16 * 256 * 4;
            line(name, each / r.clocks, "/clock/SM");
            if (name == "multiply_add") line("f32", 2 * each * sms_ / r.seconds * 1e-12, "TFLOP/s");
        }
        for (const auto& [name, flops] :
             {std::pair("warp_f16", 16 * 8 * 16 * 2.0), std::pair("warp_tf32", 16 * 8 * 8 * 2.0)}) {
            const Run r = measure(load(name, 256, 0), int64_t{sms_} * 2, {4000, at(clocks_), at(out_)});
            line(name, 4000.0 * 8 * 8 * 2 * flops * sms_ / r.seconds * 1e-12, "TFLOP/s");
        }
    }

    void group_products() {
        for (const std::string name :
             {"group_f16_8_1", "group_f16_16_1", "group_f16_32_1", "group_f16_64_1", "group_f16_128_1",
              "group_f16_256_1", "group_f16_64_2", "group_f16_128_2", "group_f16_256_2", "group_f16_256_2_drained",
              "group_bf16_256_2", "group_tf32_256_2"}) {
            const bool tf32 = name.find("tf32") != std::string::npos;
            const int groups = name.ends_with("_1") ? 1 : 2;
            const int n = std::stoi(name.substr(name.find('_', 6) + 1));
            constexpr int64_t kRounds = 8000;
            const Run r = measure(load(name, 128 * groups, 65536), sms_, {kRounds, at(clocks_), at(out_)});
            const double flops = 2.0 * 64 * n * (tf32 ? 8 : 16) * 4 * groups * static_cast<double>(kRounds);
            line(name, r.clocks / (4.0 * static_cast<double>(kRounds)), "clocks an instruction of each warpgroup");
            line(name + "_rate", flops * sms_ / r.seconds * 1e-12, "TFLOP/s");
        }
    }

    void boxes() {
        // 16 MiB, in the second-level cache: boxes of 64 rows of 64 halves.
        const int64_t rows = 131072, boxes = rows / 64;
        const std::shared_ptr<void> tensor = gpu_.allocate(static_cast<size_t>(rows) * 128);
        measure(load("fill", 256, 0), sms_, {at(tensor), rows * 8, 1});
        for (const auto& [figure, slots, blocks] :
             {std::tuple("box_1", 1, 1), std::tuple("box_16", 16, 1), std::tuple("box_16_all", 16, sms_)}) {
            cuda::KernelText::Map map;
            map.extents = {Expr(64), Expr(rows)};
            map.box = {64, 64};
            map.swizzle = 128;
            constexpr int64_t kRounds = 2000;
            const Run r = measure(load(fmt::format("box_{}", slots), 32, slots * 8192 + 1024, {map}, 4), blocks,
                                  {at(tensor), boxes, kRounds, at(clocks_)});
            line(figure, r.clocks / kRounds, "clocks a box of 8 KiB");
        }
    }

    cuda::Gpu gpu_;
    GpuProbes figures_;
    double budget_;
    int sms_ = 1;
    std::string code_;
    std::shared_ptr<void> clocks_, out_;
};

/// `path`: empty: where compilations on this machine find it.
void keep(const GpuProbes& figures, GpuTarget gpu, const std::string& path) {
    try {
        gpu.rates = rates_of(figures, gpu);
    } catch (const RuntimeError& e) {
        throw RuntimeError(fmt::format("these figures are not kept: {}", e.what()));
    }
    gpu.measured = true;
    if (!path.empty()) write_whole_file(path, to_json(gpu, figures));
    fmt::print("kept in {}; estimates for this GPU use these rates\n", path.empty() ? save_target(gpu, figures) : path);
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
    using namespace tilewright;
    CLI::App app("rates and latencies of a GPU");
    double budget = 0.05;
    bool compile_only = false;
    std::string output;
    app.add_option("--seconds", budget, "measuring time per figure (0.05)");
    app.add_option("--output", output,
                   "file for the description, for `--target FILE`; otherwise one in the cache folder");
    app.add_flag("--compile-only", compile_only, "needs no GPU");
    CLI11_PARSE(app, argc, argv);
    try {
        if (compile_only) {
            for (const auto& [name, use] : cuda::Nvrtc().uses(cuda::device_header() + kKernels, 90))
                fmt::print("{:<28}{:>4} registers, {} bytes spilled\n", name, use.registers, use.spilled_bytes);
            return 0;
        }
        Probe probe(budget);
        probe.run();
        keep(probe.figures(), probe.gpu(), output);
    } catch (const std::exception& e) {
        fmt::print(stderr, "error: {}\n", e.what());
        return 1;
    }
    return 0;
}
