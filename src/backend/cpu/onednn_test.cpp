// Kernels of oneDNN: of the real library, if it is installed, and of a fake one.

#include "backend/cpu/onednn.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "program/program.h"
#include "runtime/arena.h"

namespace tilewright::cpu {
namespace {

using testing::HasSubstr;

/// Returns null, with a message, if it is not installed.
std::shared_ptr<const OneDnn> installed() {
    try {
        return std::make_shared<const OneDnn>();
    } catch (const RuntimeError& e) {
        fmt::print("{}\n", e.what());
        return nullptr;
    }
}

class RealOneDnn : public testing::Test {
  protected:
    void SetUp() override {
        if (!library_) GTEST_SKIP() << "oneDNN is not installed";
    }

    /// Values from -2 to 2; all rows differ.
    static std::vector<Tensor> inputs_of(const Program& p) {
        std::vector<Tensor> inputs;
        uint64_t seed = 7;
        for (const ValueId v : p.inputs) {
            Tensor t(DType::F32, evaluate(p.values[v].shape, Bindings{}), false);
            for (float& x : t.as_mutable<float>()) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                x = static_cast<float>(static_cast<double>(seed >> 11) * 0x1p-51 - 2);
            }
            inputs.push_back(std::move(t));
        }
        return inputs;
    }

    Tensor run(const Program& p, const std::vector<bool>& weights, const std::vector<Tensor>& inputs, int threads = 1,
               int made_for = 1) const {
        return run(p, *library_->provide(p, weights, made_for), inputs, threads);
    }

    static Tensor run(const Program& p, const LibraryCall& call, const std::vector<Tensor>& inputs, int threads) {
        std::vector<Arena> memory(p.inputs.size() + 3);
        std::vector<void*> tensors;
        const auto take = [&](size_t bytes) {
            memory[tensors.size()].reserve(static_cast<int64_t>(bytes) + 64);
            return tensors.emplace_back(memory[tensors.size()].data());
        };
        for (const Tensor& t : inputs) std::memcpy(take(t.bytes()), t.data(), t.bytes());
        Tensor out(DType::F32, evaluate(p.values[p.outputs[0]].shape, Bindings{}), false);
        take(out.bytes());
        const auto prepared = call.prepared();
        std::vector<Arena> instead(prepared.size());
        for (size_t k = 0; k < prepared.size(); ++k) {
            instead[k].reserve(prepared[k].bytes);
            call.prepare(k, tensors[prepared[k].input], instead[k].data());
            tensors[prepared[k].input] = instead[k].data();
        }
        Arena scratch;
        scratch.reserve(std::max<int64_t>(64, call.scratch_bytes(threads)));
        const auto runs = call.runs(threads);
        runs->run(tensors.data(), scratch.data());
        runs->run(tensors.data(), scratch.data());
        std::memcpy(out.mutable_data(), tensors[inputs.size()], out.bytes());
        return out;
    }

    void expect_right(const std::string& text, const std::vector<bool>& weights) const {
        SCOPED_TRACE(text);
        const Program p = parse_program(text);
        EXPECT_EQ(library_->refusal(p, weights), std::nullopt);
        const std::vector<Tensor> inputs = inputs_of(p);
        const Tensor expected = interpret(p, inputs)[0];
        for (const int threads : {1, 2}) expect_near(run(p, weights, inputs, threads), expected);
    }

    static void expect_near(const Tensor& actual, const Tensor& expected) {
        ASSERT_EQ(actual.shape(), expected.shape());
        int wrong = 0;
        for (int64_t i = 0; i < actual.count() && wrong < 3; ++i) {
            const double a = actual.get(i), e = expected.get(i);
            if (std::isnan(e) ? std::isnan(a) : a == e || std::fabs(a - e) <= 1e-4 * (1 + std::fabs(e))) continue;
            ADD_FAILURE() << "element " << i << " is " << a << ", expected " << e;
            ++wrong;
        }
    }

    std::shared_ptr<const OneDnn> library_ = installed();
};

constexpr const char* kProduct = R"(program p {
  input a: f32[45, 32]
  input b: f32[4, 32, 16]
  input c: f32[64]
  input r: f32[45, 64]
  y: f32[45, 64] = [45, 64] sum(i2 < 32) mul(@0, @1) then THEN where @0 = a[i0, i2], @1 = b[i1 // 16, i2, i1 % 16], @2 = c[i1], @3 = r[i0, i1]
  output y
})";

std::string followed_product(const std::string& then) {
    std::string text = kProduct;
    text.replace(text.find("THEN"), 4, then);
    return text;
}

const std::string kBiased = "add(acc, @2)";
const std::map<std::string, std::string>& activations() {
    static const std::map<std::string, std::string> all = {
        {"none", kBiased},
        {"residual", "add(" + kBiased + ", @3)"},
        {"relu", "max(add(" + kBiased + ", @3), 0.0)"},
        {"gelu", "mul(mul(" + kBiased + ", 0.5), add(erf(mul(" + kBiased + ", 0.7071067811865476)), 1.0))"},
        {"silu", "div(" + kBiased + ", add(exp(neg(" + kBiased + ")), 1.0))"},
        {"sigmoid", "div(1.0, add(exp(neg(" + kBiased + ")), 1.0))"},
        {"tanh", "tanh(" + kBiased + ")"},
        {"scaled", "add(mul(acc, 0.125), @2)"},
    };
    return all;
}

TEST_F(RealOneDnn, ComputesProductsWithWhatFollows) {
    for (const auto& [name, then] : activations()) {
        SCOPED_TRACE(name);
        expect_right(followed_product(then), {false, true, true, false});
    }
}

TEST_F(RealOneDnn, KeepsNaNAndInfinitiesAsTheyAre) {
    for (const auto& [name, then] : activations()) {
        SCOPED_TRACE(name);
        const Program p = parse_program(followed_product(then));
        std::vector<Tensor> inputs = inputs_of(p);
        inputs[0].set(3 * 32, std::nan(""));
        for (int64_t i = 0; i < inputs[1].count(); ++i) inputs[1].set(i, std::fabs(inputs[1].get(i)) + 0.1);
        inputs[0].set(4 * 32, std::numeric_limits<double>::infinity());
        inputs[0].set(5 * 32, -std::numeric_limits<double>::infinity());
        expect_near(run(p, {false, true, true, false}, inputs), interpret(p, inputs)[0]);
    }
}

TEST_F(RealOneDnn, ComputesBatchesOfMatricesThatLieAnyhow) {
    expect_right(R"(program p {
  input q: f32[2, 40, 8, 16]
  input k: f32[2, 8, 48, 16]
  c: f32[2, 8, 40, 48] = [2, 8, 40, 48] sum(i4 < 16) mul(@0, @1) then mul(acc, 0.25) where @0 = q[i0, i2, i1, i4], @1 = k[i0, i1, i3, i4]
  output c
})",
                 {false, false});
    // Heads are stored in the order that the attention reads.
    expect_right(R"(program p {
  input a: f32[40, 32]
  input b: f32[32, 64]
  input c: f32[64]
  y: f32[4, 40, 16] = [4, 40, 16] sum(i3 < 32) mul(@0, @1) then add(acc, @2) where @0 = a[i1, i3], @1 = b[i3, 16*i0 + i2], @2 = c[16*i0 + i2]
  output y
})",
                 {false, true, false});
}

/// NHWC layout; "dilation" and "step" apply to both dimensions.
std::string convolution_text(int step, int dilation, int pad, bool row_major, bool depthwise) {
    const int h = 18, w = 21, c = 16, o = depthwise ? c : 24, reach = 2 * dilation + 1;
    const int oh = (h + 2 * pad - reach) / step + 1, ow = (w + 2 * pad - reach) / step + 1;
    const std::string y = fmt::format("{}*i2 + {}*i{} - {}", step, dilation, depthwise ? 4 : 5, pad),
                      x = fmt::format("{}*i3 + {}*i{} - {}", step, dilation, depthwise ? 5 : 6, pad);
    const std::string in = depthwise ? "i1" : "i4";
    return fmt::format(R"(program p {{
  input x: f32[{}]
  input w: f32[{}, {}, 3, 3]
  input b: f32[{}]
  y: f32[{}] = [2, {}, {}, {}] -> [{}] sum({}) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[{}] when {} >= 0 and {} - ({}) >= 0 and {} >= 0 and {} - ({}) >= 0 else 0, @1 = w[i1, {}, {}], @2 = b[i1]
  output y
}})",
                       row_major ? fmt::format("2, {}, {}, {}", c, h, w) : fmt::format("2, {}, {}, {}", h, w, c), o,
                       depthwise ? 1 : c, o,
                       row_major ? fmt::format("2, {}, {}, {}", o, oh, ow) : fmt::format("2, {}, {}, {}", oh, ow, o), o,
                       oh, ow, row_major ? "i0, i1, i2, i3" : "i0, i2, i3, i1",
                       depthwise ? "i4 < 3, i5 < 3" : fmt::format("i4 < {}, i5 < 3, i6 < 3", c),
                       row_major ? fmt::format("i0, {}, {}, {}", in, y, x) : fmt::format("i0, {}, {}, {}", y, x, in), y,
                       h - 1, y, x, w - 1, x, depthwise ? "0" : "i4", depthwise ? "i4, i5" : "i5, i6");
}

TEST_F(RealOneDnn, ComputesConvolutions) {
    for (const bool row_major : {false, true})
        for (const bool depthwise : {false, true}) {
            expect_right(convolution_text(1, 1, 1, row_major, depthwise), {false, true, false});
            expect_right(convolution_text(2, 1, 1, row_major, depthwise), {false, true, false});
            expect_right(convolution_text(1, 2, 2, row_major, depthwise), {false, true, false});
            expect_right(convolution_text(2, 1, 0, row_major, depthwise), {false, true, false});
        }
}

TEST_F(RealOneDnn, ComputesConvolutionsOfGroups) {
    expect_right(R"(program p {
  input x: f32[2, 6, 6, 7]
  input w: f32[12, 2, 3, 3]
  input b: f32[12]
  y: f32[2, 12, 4, 5] = [2, 3, 4, 4, 5] -> [i0, 4*i1 + i2, i3, i4] sum(i5 < 2, i6 < 3, i7 < 3) mul(@0, @1) then add(acc, @2) where @0 = x[i0, 2*i1 + i5, i3 + i6, i4 + i7], @1 = w[4*i1 + i2, i5, i6, i7], @2 = b[4*i1 + i2]
  output y
})",
                 {false, true, true});
}

TEST_F(RealOneDnn, HasEachImplementationAsACandidate) {
    const Program p = parse_program(convolution_text(1, 1, 1, false, false));
    const std::vector<bool> weights = {false, true, false};
    const auto forms = library_kernels(p, weights);
    const LibraryKernel form = std::get<std::vector<LibraryKernel>>(forms).front();
    EXPECT_EQ(library_->refusal(form), std::nullopt);
    const auto found = library_->candidates(form, {2, Precision::F32}, 16);
    const auto& all = std::get<std::vector<OneDnn::Candidate>>(found);
    ASSERT_GE(all.size(), 2u);
    const std::vector<Tensor> inputs = inputs_of(p);
    const Tensor expected = interpret(p, inputs)[0];
    std::set<std::string> names;
    for (const OneDnn::Candidate& c : all) {
        SCOPED_TRACE(c.kernel);
        EXPECT_TRUE(names.insert(c.kernel).second);
        EXPECT_THAT(c.kernel, testing::Not(HasSubstr("ref")));
        for (const int threads : {1, 2}) expect_near(run(p, *library_->make(c), inputs, threads), expected);
    }
    const auto first = library_->candidates(form, {2, Precision::F32}, 1);
    EXPECT_EQ(std::get<std::vector<OneDnn::Candidate>>(first).size(), 1u);
}

/// Threads of this process, this one left out, that a signal without a receiver may interrupt.
std::set<std::string> interruptible_threads() {
    std::set<std::string> out;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        const std::string id = task.path().filename();
        if (id == std::to_string(::gettid())) continue;
        std::ifstream status(task.path() / "status");
        for (std::string line; std::getline(status, line);)
            if (line.rfind("SigBlk:", 0) == 0 && (std::stoull(line.substr(7), nullptr, 16) >> (SIGPROF - 1)) % 2 == 0)
                out.insert(id);
    }
    return out;
}

TEST_F(RealOneDnn, StartsOnlyThreadsThatNoSignalInterrupts) {
    // Reorders and runs on two threads start them. A blocked layout pads 12 results to 16.
    const Program p = parse_program(R"(program p {
  input x: f32[1, 3, 66, 66]
  input w: f32[12, 3, 3, 3]
  y: f32[1, 12, 64, 64] = [1, 12, 64, 64] sum(i4 < 3, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5, i3 + i6], @1 = w[i1, i4, i5, i6]
  output y
})");
    const std::set<std::string> before = interruptible_threads();
    const std::vector<Tensor> inputs = inputs_of(p);
    const auto forms = library_kernels(p, {false, true});
    const auto found =
        library_->candidates(std::get<std::vector<LibraryKernel>>(forms).front(), {2, Precision::F32}, 16);
    for (const OneDnn::Candidate& c : std::get<std::vector<OneDnn::Candidate>>(found)) {
        SCOPED_TRACE(c.kernel);
        const auto call = library_->make(c);
        for (const int threads : {1, 2, 1}) run(p, *call, inputs, threads);
        EXPECT_EQ(interruptible_threads(), before);
    }
}

#ifdef __x86_64__
/// Signals of this thread while its stack pointer was outside of its stack.
class ForeignStackSignals {
  public:
    ForeignStackSignals() : alternate_(size_t{256} << 10) {
        pthread_attr_t attributes;
        pthread_getattr_np(pthread_self(), &attributes);
        void* from = nullptr;
        size_t bytes = 0;
        pthread_attr_getstack(&attributes, &from, &bytes);
        pthread_attr_destroy(&attributes);
        from_ = reinterpret_cast<uintptr_t>(from);
        to_ = from_ + bytes;
        delivered_ = 0;
        foreign_ = 0;
        const stack_t alternate = {alternate_.data(), 0, alternate_.size()};
        sigaltstack(&alternate, &before_stack_);
        struct sigaction action {};
        action.sa_sigaction = note;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        sigaction(SIGPROF, &action, &before_);
        sigevent to_this_thread{};
        to_this_thread.sigev_notify = SIGEV_THREAD_ID;
        to_this_thread.sigev_signo = SIGPROF;
        to_this_thread._sigev_un._tid = ::gettid();
        timer_create(CLOCK_THREAD_CPUTIME_ID, &to_this_thread, &timer_);
        const itimerspec every = {{0, 500'000}, {0, 500'000}};
        timer_settime(timer_, 0, &every, nullptr);
    }
    ~ForeignStackSignals() {
        timer_delete(timer_);
        sigaction(SIGPROF, &before_, nullptr);
        sigaltstack(&before_stack_, nullptr);
    }
    ForeignStackSignals(const ForeignStackSignals&) = delete;
    ForeignStackSignals& operator=(const ForeignStackSignals&) = delete;

    static int delivered() { return delivered_; }
    static int foreign() { return foreign_; }
    static std::string what() {
        return fmt::format("{} of {} signals outside of the stack [{:#x}, {:#x}], the last at {:#x}", int{foreign_},
                           int{delivered_}, from_, to_, uintptr_t{last_foreign_});
    }

  private:
    static void note(int /*signal*/, siginfo_t* /*info*/, void* context) {
        const auto at = static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
        delivered_ = delivered_ + 1;
        if (at >= from_ && at <= to_) return;
        foreign_ = foreign_ + 1;
        last_foreign_ = at;
    }

    std::vector<std::byte> alternate_;
    stack_t before_stack_{};
    struct sigaction before_ {};
    timer_t timer_{};
    inline static uintptr_t from_ = 0, to_ = 0;
    inline static volatile sig_atomic_t delivered_ = 0, foreign_ = 0;
    inline static volatile uintptr_t last_foreign_ = 0;
};

TEST_F(RealOneDnn, GetsNoSignalsWhileItsStackPointerIsInTheHeap) {
    // A handler's frame would overwrite the heap: "corrupted size vs. prev_size" after an interrupt.
    const Program p = parse_program(R"(program p {
  input a: f32[256, 512]
  input b: f32[512, 256]
  y: f32[256, 256] = [256, 256] sum(i2 < 512) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2, i1]
  output y
})");
    const std::vector<Tensor> inputs = inputs_of(p);
    const auto forms = library_kernels(p, {false, true});
    const auto found =
        library_->candidates(std::get<std::vector<LibraryKernel>>(forms).front(), {1, Precision::F32}, 16);
    const ForeignStackSignals signals;
    const auto begun = std::chrono::steady_clock::now();
    while (ForeignStackSignals::delivered() < 200 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(5))
        for (const OneDnn::Candidate& c : std::get<std::vector<OneDnn::Candidate>>(found))
            run(p, *library_->make(c), inputs, 1);
    EXPECT_GT(ForeignStackSignals::delivered(), 0) << "signals are delivered between calls";
    EXPECT_EQ(ForeignStackSignals::foreign(), 0) << ForeignStackSignals::what();
}
#endif

TEST(OneDnnRefusal, NamesWhatTheLibraryLacks) {
    const auto reason = [](const std::string& text, const std::vector<bool>& weights) {
        const auto forms = library_kernels(parse_program(text), weights);
        const auto refusal = onednn_refusal(std::get<std::vector<LibraryKernel>>(forms).front());
        return refusal ? refusal->reason : "";
    };
    EXPECT_EQ(reason(convolution_text(1, 1, 1, false, false), {false, true, false}), "");
    EXPECT_THAT(reason(convolution_text(1, 1, 1, false, false), {}), HasSubstr("weights"));
    std::string halves = followed_product("acc");
    for (size_t at = 0; (at = halves.find("f32", at)) != std::string::npos;) halves.replace(at, 3, "f16");
    EXPECT_THAT(reason(halves, {false, true, true, false}), HasSubstr("not f32"));
}

TEST_F(RealOneDnn, RunsInSeveralSessionsAtATime) {
    const Program p = parse_program(followed_product(kBiased));
    const std::vector<Tensor> inputs = inputs_of(p);
    const Tensor expected = interpret(p, inputs)[0];
    std::vector<std::thread> threads;
    std::vector<Tensor> results(4);
    for (size_t i = 0; i < results.size(); ++i)
        threads.emplace_back([&, i] {
            for (int again = 0; again < 20; ++again)
                results[i] = run(p, {false, true, true, false}, inputs, 1 + static_cast<int>(i % 2));
        });
    for (std::thread& t : threads) t.join();
    for (const Tensor& r : results) expect_near(r, expected);
}

// --- a fake library

/// Functions that do nothing and return success, except those that a test sets.
struct Fake {
    std::map<std::string, void*> functions;
    std::vector<std::string> missing;

    SharedLibrary library() const {
        return {"oneDNN", [*this](const std::string& name) -> void* {
                    if (std::find(missing.begin(), missing.end(), name) != missing.end()) return nullptr;
                    const auto it = functions.find(name);
                    return it != functions.end() ? it->second : reinterpret_cast<void*>(+[] { return 0; });
                }};
    }
};

struct FakeVersion {
    int major, minor, patch;
    const char* hash;
    unsigned cpu_runtime, gpu_runtime;
};

template <int major, unsigned runtime>
void* version() {
    return reinterpret_cast<void*>(+[]() -> const FakeVersion* {
        static const FakeVersion v{major, 7, 1, "", runtime, 0};
        return &v;
    });
}

std::string failure(const Fake& p) {
    try {
        const OneDnn library(p.library());
        return library.name();
    } catch (const RuntimeError& e) {
        return e.what();
    }
}

TEST(FakeOneDnn, IsTakenOrRefusedWithTheReason) {
    Fake p;
    p.functions["dnnl_version"] = version<2, 2>();
    EXPECT_EQ(failure(p), "oneDNN 2.7.1");
    p.missing = {"dnnl_matmul_desc_init"};
    EXPECT_THAT(failure(p), HasSubstr("no function dnnl_matmul_desc_init"));
    p.missing = {"omp_set_num_threads"};
    EXPECT_THAT(failure(p), HasSubstr("no function omp_set_num_threads"));
    p.functions["dnnl_version"] = version<2, 1>();  // with one thread it needs none of them
    EXPECT_EQ(failure(p), "oneDNN 2.7.1");
    p.functions["dnnl_version"] = version<3, 2>();
    EXPECT_THAT(failure(p), HasSubstr("only version 2 is supported"));
    p.functions["dnnl_version"] = version<2, 4>();
    EXPECT_THAT(failure(p), HasSubstr("threading runtime"));
    p.functions["dnnl_version"] = version<2, 2>();
    p.missing.clear();
    p.functions["dnnl_engine_create"] = reinterpret_cast<void*>(+[] { return 5; });
    EXPECT_THAT(failure(p), HasSubstr("cannot start: status 5"));
    EXPECT_THROW(OneDnn({"libno_such_library.so.9"}), RuntimeError);
}

TEST(FakeOneDnn, SaysWhereAPrimitiveIsNotToBeHad) {
    Fake p;
    p.functions["dnnl_version"] = version<2, 2>();
    p.functions["dnnl_primitive_desc_create"] = reinterpret_cast<void*>(+[] { return 3; });
    const OneDnn library(p.library());
    const Program product = parse_program(followed_product(kBiased));
    try {
        library.provide(product, {false, true, true, false}, 1);
        FAIL() << "there is no primitive";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("cannot compute this: status 3"));
    }
    p.functions.erase("dnnl_primitive_desc_create");
    p.functions["dnnl_primitive_desc_query"] = reinterpret_cast<void*>(+[](const void*, int, int, const char** answer) {
        *answer = "gemm:ref:any";
        return 0;
    });
    try {
        OneDnn(p.library()).provide(product, {false, true, true, false}, 1);
        FAIL() << "a reference is as slow as can be";
    } catch (const RuntimeError& e) {
        EXPECT_THAT(e.what(), HasSubstr("reference"));
    }
}

}  // namespace
}  // namespace tilewright::cpu
