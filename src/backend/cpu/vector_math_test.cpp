#include "backend/cpu/vector_math.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <mutex>
#include <numbers>
#include <thread>

#include "base/dtype.h"
#include "base/hash.h"
#include "program/scalar_ops.h"

namespace tilewright::cpu {
namespace {

using Emit = std::function<llvm::Value*(llvm::IRBuilderBase&, llvm::Value*, llvm::Value*)>;
using Loop = void (*)(const void* x, const void* y, void* out, int64_t count);

enum class Machine { Host, V3 };

std::string name_of(Machine m) { return m == Machine::Host ? "host" : "x86-64-v3"; }

template <class T>
T check(llvm::Expected<T> value) {
    if (!value) throw std::runtime_error(llvm::toString(value.takeError()));
    return std::move(*value);
}
void check(llvm::Error error) {
    if (error) throw std::runtime_error(llvm::toString(std::move(error)));
}

llvm::orc::JITTargetMachineBuilder machine_builder(Machine m) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    if (m == Machine::Host) return check(llvm::orc::JITTargetMachineBuilder::detectHost());
    llvm::orc::JITTargetMachineBuilder builder{llvm::Triple(llvm::sys::getProcessTriple())};
    builder.setCPU("x86-64-v3");
    return builder;
}

bool runs_here(Machine m) {
    if (m == Machine::Host) return true;
    const auto features = llvm::sys::getHostCPUFeatures();
    return features.lookup("avx2") && features.lookup("fma") && features.lookup("f16c");
}

/// The tested loop: out[i] = emit(x[i], y[i]) for i < count, `lanes` at a time.
struct Kernel {
    Emit emit;
    DType in = DType::F32;
    DType out = DType::F32;
    unsigned lanes = 16;  ///< of a vector; 0: scalars
    bool optimise = true;
    bool fast_math_builder = false;
};

llvm::Type* element_type(llvm::LLVMContext& context, DType t) {
    if (t == DType::F64) return llvm::Type::getDoubleTy(context);
    if (t == DType::F16) return llvm::Type::getHalfTy(context);
    if (t == DType::BF16) return llvm::Type::getInt16Ty(context);
    return llvm::Type::getFloatTy(context);
}

void add_loop(llvm::Module& module, const Kernel& k, llvm::StringRef cpu, llvm::StringRef features) {
    llvm::LLVMContext& context = module.getContext();
    llvm::IRBuilder<> b(context);
    llvm::Type* pointer = b.getPtrTy();
    auto* function = llvm::Function::Create(
        llvm::FunctionType::get(b.getVoidTy(), {pointer, pointer, pointer, b.getInt64Ty()}, false),
        llvm::GlobalValue::ExternalLinkage, "loop", module);
    function->addFnAttr("target-cpu", cpu);
    function->addFnAttr("target-features", features);
    auto* entry = llvm::BasicBlock::Create(context, "entry", function);
    auto* body = llvm::BasicBlock::Create(context, "body", function);
    auto* exit = llvm::BasicBlock::Create(context, "exit", function);
    const auto vector = [&](DType t) {
        llvm::Type* element = element_type(context, t);
        return k.lanes == 0 ? element : llvm::FixedVectorType::get(element, k.lanes);
    };
    b.SetInsertPoint(entry);
    b.CreateBr(body);
    b.SetInsertPoint(body);
    llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
    i->addIncoming(b.getInt64(0), entry);
    const auto at = [&](unsigned argument, DType t) {
        return b.CreateInBoundsGEP(element_type(context, t), function->getArg(argument), i);
    };
    llvm::Value* x = b.CreateAlignedLoad(vector(k.in), at(0, k.in), llvm::Align(2));
    llvm::Value* y = b.CreateAlignedLoad(vector(k.in), at(1, k.in), llvm::Align(2));
    if (k.fast_math_builder) b.setFastMathFlags(llvm::FastMathFlags::getFast());
    llvm::Value* result = k.emit(b, x, y);
    ASSERT_EQ(b.GetInsertBlock(), body) << "emitting a function must not leave the block";
    ASSERT_EQ(result->getType(), vector(k.out));
    b.CreateAlignedStore(result, at(2, k.out), llvm::Align(2));
    llvm::Value* next = b.CreateAdd(i, b.getInt64(std::max(1u, k.lanes)));
    i->addIncoming(next, body);
    b.CreateCondBr(b.CreateICmpSLT(next, function->getArg(3)), body, exit);
    b.SetInsertPoint(exit);
    b.CreateRetVoid();
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    ASSERT_FALSE(llvm::verifyModule(module, &stream)) << problem;
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager graphs;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder passes(&machine);
    passes.registerModuleAnalyses(modules);
    passes.registerCGSCCAnalyses(graphs);
    passes.registerFunctionAnalyses(functions);
    passes.registerLoopAnalyses(loops);
    passes.crossRegisterProxies(loops, functions, graphs, modules);
    passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

/// Machine code of one Kernel.
class Compiled {
  public:
    Compiled(const Kernel& kernel, Machine m) {
        auto builder = machine_builder(m);
        auto machine = check(builder.createTargetMachine());
        auto context = std::make_unique<llvm::LLVMContext>();
        auto module = std::make_unique<llvm::Module>("test", *context);
        module->setDataLayout(machine->createDataLayout());
        module->setTargetTriple(machine->getTargetTriple().str());
        add_loop(*module, kernel, machine->getTargetCPU(), machine->getTargetFeatureString());
        if (kernel.optimise) optimise(*module, *machine);
        jit_ = check(llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(builder).create());
        llvm::orc::SymbolMap symbols;
        for (const MathSymbol& s : math_symbols())
            symbols[jit_->mangleAndIntern(s.name)] = {llvm::orc::ExecutorAddr::fromPtr(s.address),
                                                      llvm::JITSymbolFlags::Exported};
        check(jit_->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))));
        check(jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
        loop_ = check(jit_->lookup("loop")).toPtr<Loop>();
    }

    /// count must be a multiple of the lanes.
    template <class In, class Out>
    void operator()(const In* x, const In* y, Out* out, size_t count) const {
        loop_(x, y, out, static_cast<int64_t>(count));
    }

  private:
    std::unique_ptr<llvm::orc::LLJIT> jit_;
    Loop loop_ = nullptr;
};

/// Returns |got - want| in units in the last place of want as a float. Infinity if the kind of value or the sign of a
/// zero differs. Above the largest float, infinity stands for 2^128.
template <class Wide>
double ulp_error(float got, Wide want) {
    constexpr double wrong = std::numeric_limits<double>::infinity();
    if (std::isnan(want)) return std::isnan(got) ? 0 : wrong;
    if (std::isnan(got) || std::signbit(got) != std::signbit(want)) return wrong;
    if (want == 0) return got == 0 ? 0 : wrong;
    if (std::isinf(want)) return std::isinf(got) ? 0 : wrong;
    const Wide end = static_cast<Wide>(0x1p128);
    const Wide size = std::min(std::abs(want), end);
    const Wide difference = (std::isinf(got) ? end : static_cast<Wide>(std::abs(got))) - size;
    const auto exponent = static_cast<int64_t>(std::bit_cast<uint64_t>(static_cast<double>(size)) >> 52) - 1023;
    const int64_t ulp = std::clamp<int64_t>(exponent, -126, 127) - 23;
    return static_cast<double>(std::abs(difference)) * std::bit_cast<double>((1023 - ulp) << 52);
}

constexpr double kEnd = std::numeric_limits<double>::infinity();

struct Function {
    const char* name;
    llvm::Value* (*emit)(llvm::IRBuilderBase&, llvm::Value*);
    long double (*in_long_double)(long double);
    double (*in_double)(double);
    double bound;  ///< on the error, whatever the machine
    double low = -kEnd;
    double high = kEnd;  ///< NaN outside: avoids the library's slow error handling

    template <class Wide>
    Wide reference(Wide x) const {
        if (!(low <= x && x <= high)) return std::numeric_limits<Wide>::quiet_NaN();
        if constexpr (std::is_same_v<Wide, double>)
            return in_double(x);
        else
            return in_long_double(x);
    }
    Emit emitter() const {
        return [f = emit](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value*) { return f(b, x); };
    }
};
void PrintTo(const Function& f, std::ostream* out) { *out << f.name; }

constexpr double kPowBound = 1;

#define TW_FUNCTION(name, ...) \
    Function { #name, emit_##name, std::name, std::name, __VA_ARGS__ }
const Function kFunctions[] = {
    TW_FUNCTION(exp, 1.5),        TW_FUNCTION(expm1, 2),       TW_FUNCTION(log, 1.5, 0), TW_FUNCTION(log1p, 2, -1),
    TW_FUNCTION(erf, 2),          TW_FUNCTION(sin, 2),         TW_FUNCTION(cos, 2),      TW_FUNCTION(tan, 4),
    TW_FUNCTION(asin, 4, -1, 1),  TW_FUNCTION(acos, 4, -1, 1), TW_FUNCTION(atan, 2),     TW_FUNCTION(sinh, 4),
    TW_FUNCTION(cosh, 4),         TW_FUNCTION(tanh, 2),        TW_FUNCTION(asinh, 4),    TW_FUNCTION(acosh, 4, 1),
    TW_FUNCTION(atanh, 4, -1, 1),
};

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_of_float(float f) { return std::bit_cast<uint32_t>(f); }

/// The specification of emit_exp: a subnormal result is 0.
long double normal_or_zero(long double x) { return x < 0x1p-126L ? 0 : x; }

/// Chunk `number` of 1088 chunks of 2^12 arguments. 1024 chunks have random mantissas, two chunks per sign and
/// exponent; the last 64 are runs of neighbouring floats around the points where functions or their approximations
/// change.
constexpr size_t kChunk = 4096;
constexpr size_t kChunks = 1088;
std::vector<float> chunk_of_arguments(size_t number) {
    std::vector<float> x(kChunk);
    if (number < 1024) {
        for (size_t i = 0; i < kChunk; ++i)
            x[i] = float_of(static_cast<uint32_t>(number >> 1 << 23 | (hash_mix(number * kChunk + i) & 0x7FFFFF)));
        x[0] = float_of(static_cast<uint32_t>(number >> 1 << 23));             // zeros, powers of two, infinities
        x[1] = float_of(static_cast<uint32_t>(number >> 1 << 23 | 0x7FFFFF));  // the largest of the exponent
        x[2] = float_of(static_cast<uint32_t>(number >> 1 << 23 | 1));
        return x;
    }
    constexpr float pi = std::numbers::pi_v<float>;
    constexpr float points[32] = {1.0f,       0.5f,      0.70710678f, 1.41421356f, 2.0f,      0.34657359f, 0.25f,
                                  3.93f,      3.919f,    9.01f,       10.0f,       88.72283f, 89.0f,       87.33655f,
                                  103.97208f, 104.0f,    90.0f,       89.41599f,   pi / 2,    pi,          pi / 4,
                                  3 * pi / 4, 100 * pi,  32768.0f,    20.0f,       0.126953f, 0x1p-12f,    0x1p30f,
                                  0x1p-25f,   0x1p-126f, 0x1p63f,     16777216.0f};
    const float point = points[(number - 1024) / 2];
    const uint32_t centre = bits_of_float(number % 2 == 0 ? point : -point);
    for (size_t i = 0; i < kChunk; ++i) x[i] = float_of(centre - static_cast<uint32_t>(kChunk / 2 - i));
    return x;
}

struct Worst {
    double error = -1;
    float x = 0;
    float y = 0;
};

/// Calls body(number) for all numbers below `count`, on all cores.
void on_every_core(size_t count, const std::function<void(size_t)>& body) {
    std::atomic<size_t> next = 0;
    const auto work = [&] {
        for (size_t i = next++; i < count; i = next++) body(i);
    };
    std::vector<std::thread> threads;
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
}

bool exhaustive() {
    const char* set = std::getenv("TILEWRIGHT_EXHAUSTIVE");
    return set != nullptr && std::string_view(set) == "1";
}

/// The error that the bounds of tune/error_bound.h assume is not below the one that is measured here.
TEST(VectorMathTable, HasAMeasuredErrorForEachFunctionThatIsNoInstruction) {
    for (const ScalarFunction& f : scalar_functions()) {
        if (rounds_to_integer(f.op) || f.op == ScalarOp::Sqrt) continue;  // instructions: IEEE 754
        const auto* measured = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                            [&](const Function& m) { return to_string(f.op) == m.name; });
        ASSERT_NE(measured, std::end(kFunctions)) << to_string(f.op) << " has no row in kFunctions";
        EXPECT_LE(measured->bound, f.ulp) << to_string(f.op);
    }
}

class VectorMath : public testing::TestWithParam<Function> {};

INSTANTIATE_TEST_SUITE_P(All, VectorMath, testing::ValuesIn(kFunctions),
                         [](const testing::TestParamInfo<Function>& instance) { return instance.param.name; });

/// `emit` compiled for every kind of target that runs here.
std::vector<std::pair<std::string, std::unique_ptr<Compiled>>> on_all_machines(const Kernel& kernel) {
    std::vector<std::pair<std::string, std::unique_ptr<Compiled>>> out;
    for (const Machine m : {Machine::Host, Machine::V3})
        if (runs_here(m)) out.emplace_back(name_of(m), std::make_unique<Compiled>(kernel, m));
    return out;
}

/// Runs f, as compiled for each target, on `chunks` chunks of arguments that `arguments(number, x, y)` fills, and
/// expects results within `bound` of reference(x, y).
template <class Arguments, class Reference>
void expect_within(double bound, const Kernel& kernel, const char* name, size_t chunks, Arguments arguments,
                   Reference reference) {
    const auto machines = on_all_machines(kernel);
    std::mutex mutex;
    std::vector<Worst> worst(machines.size());
    on_every_core(chunks, [&](size_t number) {
        std::vector<float> x(kChunk);
        std::vector<float> y(kChunk);
        std::vector<float> got(kChunk);
        std::vector<decltype(reference(0.0F, 0.0F))> want(kChunk);
        arguments(number, x, y);
        for (size_t i = 0; i < kChunk; ++i) want[i] = reference(x[i], y[i]);
        for (size_t m = 0; m < machines.size(); ++m) {
            Worst mine;
            (*machines[m].second)(x.data(), y.data(), got.data(), kChunk);
            for (size_t i = 0; i < kChunk; ++i) {
                const double error = ulp_error(got[i], want[i]);
                if (error > mine.error) mine = {error, x[i], y[i]};
            }
            const std::lock_guard lock(mutex);
            if (mine.error > worst[m].error) worst[m] = mine;
        }
    });
    for (size_t m = 0; m < machines.size(); ++m) {
        const Worst& w = worst[m];
        if (exhaustive()) fmt::print("{} {}: {:.4f} ulp at {:a}, {:a}\n", name, machines[m].first, w.error, w.x, w.y);
        EXPECT_LE(w.error, bound) << fmt::format("{} on {} at {:a}, {:a}", name, machines[m].first, w.x, w.y);
    }
}

TEST_P(VectorMath, StaysWithinItsErrorOverAllExponents) {
    const Function& f = GetParam();
    expect_within(
        f.bound, Kernel{f.emitter()}, f.name, kChunks,
        [](size_t number, std::vector<float>& x, std::vector<float>&) { x = chunk_of_arguments(number); },
        [&](float x, float) {
            const long double want = f.reference(static_cast<long double>(x));
            return f.name == std::string_view("exp") ? normal_or_zero(want) : want;
        });
}

/// A subnormal result costs a microcode assist on some CPUs: tests every float on both sides of the bound.
TEST(Exp, GivesZeroInPlaceOfEverySubnormal) {
    const Kernel kernel{[](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value*) { return emit_exp(b, x); }};
    const uint32_t first = bits_of_float(-86.0F), last = bits_of_float(-104.5F);
    for (const auto& [name, exp] : on_all_machines(kernel)) {
        std::vector<float> x(kChunk), got(kChunk);
        for (uint32_t bits = first; bits < last; bits += kChunk) {
            for (uint32_t i = 0; i < kChunk; ++i) x[i] = float_of(bits + i);
            (*exp)(x.data(), x.data(), got.data(), kChunk);
            for (size_t i = 0; i < kChunk; ++i)
                ASSERT_TRUE(got[i] == 0 ? std::exp(static_cast<double>(x[i])) < 0x1p-126 : got[i] >= 0x1p-126F)
                    << fmt::format("{}: exp({:a}) = {:a}", name, x[i], got[i]);
        }
        x.assign(kChunk, 0);
        x[0] = -std::numeric_limits<float>::infinity();
        x[1] = std::numeric_limits<float>::lowest();
        x[2] = -10000;
        x[3] = std::numeric_limits<float>::quiet_NaN();
        (*exp)(x.data(), x.data(), got.data(), kChunk);
        for (size_t i = 0; i < 3; ++i) EXPECT_EQ(bits_of_float(got[i]), 0U) << name;
        EXPECT_TRUE(std::isnan(got[3])) << name;
    }
}

TEST(Division, ByAConstantIsTheNearestFloat) {
    for (const float c : {6.0F, 3.0F, -7.0F, 0.1F, 255.0F, 1.0e10F, 8.0F, -0.25F, 1.41421356F, 0x1.fffffep0F, 0x1p100F})
        expect_within(
            0, Kernel{[&](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value*) {
                return emit_div(b, x, llvm::ConstantFP::get(x->getType(), c));
            }},
            "division", kChunks,
            [&](size_t number, std::vector<float>& x, std::vector<float>&) {
                x = chunk_of_arguments(number);
                for (float& v : x)
                    if (std::abs(v / c) < 0x1p-100F) v = 0;
            },
            [&](float x, float) { return static_cast<double>(x / c); });
}

/// Divisors of all magnitudes, one per chunk of dividends.
float divisor_of_chunk(size_t number) {
    return number % 16 == 0 ? 3 * chunk_of_arguments(number % 1024)[number % 3]
                            : chunk_of_arguments(number * 7 % 1024)[5];
}

TEST(Division, ByOneNumberIsTheNearestFloat) {
    const Kernel kernel{[](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
        return emit_div_by_one(b, x, b.CreateExtractElement(y, uint64_t{0}));
    }};
    const auto arguments = [](size_t number, std::vector<float>& x, std::vector<float>& y) {
        // Every divisor is tested with dividends of 16 magnitudes.
        for (size_t part = 0; part < 16; ++part) {
            const std::vector<float> some = chunk_of_arguments((number + 67 * part) % kChunks);
            std::copy_n(some.begin() + static_cast<std::ptrdiff_t>(part * kChunk / 16), kChunk / 16,
                        x.begin() + static_cast<std::ptrdiff_t>(part * kChunk / 16));
        }
        std::fill(y.begin(), y.end(), divisor_of_chunk(number));
    };
    expect_within(1, kernel, "division", kChunks, arguments,
                  [](float x, float y) { return static_cast<double>(x / y); });
    expect_within(
        0, kernel, "division", kChunks,
        [&](size_t number, std::vector<float>& x, std::vector<float>& y) {
            arguments(number, x, y);
            for (size_t i = 0; i < kChunk; ++i)
                if (std::abs(x[i] / y[i]) < 0x1p-100F || std::abs(x[i]) < 0x1p-100F) x[i] = 0;
        },
        [](float x, float y) { return static_cast<double>(x / y); });
}

TEST(Division, ByAConstantOfTinyNumbersStaysWithinOnePlace) {
    expect_within(
        1, Kernel{[](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value*) {
            return emit_div(b, x, llvm::ConstantFP::get(x->getType(), 6.0));
        }},
        "division", kChunks,
        [](size_t number, std::vector<float>& x, std::vector<float>&) { x = chunk_of_arguments(number); },
        [](float x, float) { return static_cast<double>(x / 6.0F); });
}

TEST_P(VectorMath, StaysWithinItsErrorForEveryFloat) {
    if (!exhaustive()) GTEST_SKIP() << "takes minutes: TILEWRIGHT_EXHAUSTIVE=1 runs it";
    const Function& f = GetParam();
    expect_within(
        f.bound, Kernel{f.emitter()}, f.name, (uint64_t{1} << 32) / kChunk,
        [](size_t number, std::vector<float>& x, std::vector<float>&) {
            for (size_t i = 0; i < kChunk; ++i) x[i] = float_of(static_cast<uint32_t>(number * kChunk + i));
        },
        [&](float x, float) { return f.reference(static_cast<double>(x)); });
}

TEST_P(VectorMath, GivesTheSameBitsWhateverTheLaneCount) {
    const Function& f = GetParam();
    constexpr size_t count = 4080;  // a multiple of all lane counts below
    for (const Machine m : {Machine::Host, Machine::V3}) {
        if (!runs_here(m)) continue;
        std::vector<float> x(count);
        for (size_t i = 0; i < count; ++i) x[i] = float_of(static_cast<uint32_t>(hash_mix(i)));
        std::vector<float> want(count);
        Compiled(Kernel{f.emitter()}, m)(x.data(), x.data(), want.data(), count);
        for (const unsigned lanes : {0U, 1U, 3U, 4U, 8U, 17U, 24U, 48U}) {
            std::vector<float> got(count);
            Compiled(Kernel{.emit = f.emitter(), .lanes = lanes, .optimise = false}, m)(x.data(), x.data(), got.data(),
                                                                                        count);
            for (size_t i = 0; i < count; ++i) {
                if (std::isnan(want[i]) && std::isnan(got[i])) continue;
                ASSERT_EQ(bits_of_float(got[i]), bits_of_float(want[i]))
                    << fmt::format("{}({:a}), {} lanes, {}", f.name, x[i], lanes, name_of(m));
            }
        }
    }
}

TEST_P(VectorMath, LeavesTheBuildersFastMathFlagsUnused) {
    const Function& f = GetParam();
    std::vector<float> x = chunk_of_arguments(300);
    x[0] = std::numeric_limits<float>::infinity();
    x[1] = -x[0];
    x[2] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> strict(kChunk);
    std::vector<float> fast(kChunk);
    Compiled(Kernel{f.emitter()}, Machine::Host)(x.data(), x.data(), strict.data(), kChunk);
    Compiled(Kernel{.emit = f.emitter(), .fast_math_builder = true}, Machine::Host)(x.data(), x.data(), fast.data(),
                                                                                    kChunk);
    for (size_t i = 0; i < kChunk; ++i)
        EXPECT_TRUE(strict[i] == fast[i] || (std::isnan(strict[i]) && std::isnan(fast[i]))) << x[i];
}

TEST_P(VectorMath, AsksLibmForDoubles) {
    const Function& f = GetParam();
    const std::vector<double> x = {-0.0, 0.3, -0.9, 1.0, 2.5, 1e-300, 700.0, -1e9};
    for (const unsigned lanes : {0U, 4U}) {
        std::vector<double> got(x.size());
        Compiled(Kernel{.emit = f.emitter(), .in = DType::F64, .out = DType::F64, .lanes = lanes}, Machine::Host)(
            x.data(), x.data(), got.data(), x.size());
        for (size_t i = 0; i < x.size(); ++i) {
            const double want = f.reference(x[i]);
            EXPECT_TRUE(got[i] == want || (std::isnan(got[i]) && std::isnan(want))) << f.name << " of " << x[i];
        }
    }
}

const Emit kPow = [](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) { return emit_pow(b, x, y); };

/// Pairs of four kinds: any bits; powers within the range of floats; bases next to 1 with huge exponents; whole
/// exponents, bases of both signs.
void fill_pow_arguments(size_t number, std::vector<float>& x, std::vector<float>& y) {
    for (size_t i = 0; i < kChunk; ++i) {
        const uint64_t bits = hash_mix(number * kChunk + i + 1);
        const auto low = static_cast<uint32_t>(bits);
        const auto high = static_cast<uint32_t>(bits >> 32);
        const double u = high * 0x1p-32 * 2 - 1;
        x[i] = float_of(low & 0x7FFFFFFF);
        y[i] = float_of(high);
        const double range = 128 / std::max(std::abs(std::log2(static_cast<double>(x[i]))), 1e-9);
        if (i % 4 == 1) y[i] = static_cast<float>(u * range * 1.2);
        if (i % 4 == 2) {
            x[i] = 1 + static_cast<float>(std::ldexp(static_cast<double>(low & 0xFFFF) - 0x8000, -24));
            y[i] = static_cast<float>(u * 1.2 * 128 / std::max(std::abs(std::log2(static_cast<double>(x[i]))), 1e-9));
        }
        if (i % 4 == 3) {
            x[i] = static_cast<float>(std::ldexp(static_cast<double>(low) - 0x1p31, -28));
            y[i] = static_cast<float>(static_cast<int>(high % 101) - 50);
        }
    }
}

TEST(VectorMathPow, StaysWithinItsError) {
    expect_within(kPowBound, Kernel{kPow}, "pow", exhaustive() ? 1 << 16 : 1024, fill_pow_arguments,
                  [](float x, float y) { return std::pow(static_cast<long double>(x), static_cast<long double>(y)); });
}

TEST(VectorMathPow, FollowsTheTableOfSpecialCases) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float least = std::numeric_limits<float>::denorm_min();
    constexpr float most = std::numeric_limits<float>::max();
    // All pairs of these cover the table of C's Annex F (10.4.4), with the C library's pow as reference.
    const std::vector<float> values = {0,          1,          2,     3,          4,         0.5F,     1.5F,
                                       0.9999999F, 1.0000001F, 2.5F,  8388607.5F, 8388609,   16777215, 16777216,
                                       1e10F,      most,       least, 1e-40F,     0x1p-126F, inf,      nan};
    std::vector<float> x;
    std::vector<float> y;
    for (const float a : values)
        for (const float b : values)
            for (const float sa : {1.0F, -1.0F})
                for (const float sb : {1.0F, -1.0F}) {
                    x.push_back(sa * a);
                    y.push_back(sb * b);
                }
    x.resize((x.size() + 15) / 16 * 16, 1.0F);
    y.resize(x.size(), 1.0F);
    for (const auto& [machine, pow] : on_all_machines(Kernel{kPow})) {
        std::vector<float> got(x.size());
        (*pow)(x.data(), y.data(), got.data(), x.size());
        for (size_t i = 0; i < x.size(); ++i) {
            const long double want = std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i]));
            EXPECT_LE(ulp_error(got[i], want), kPowBound)
                << fmt::format("pow({:a}, {:a}) = {:a} on {}", x[i], y[i], got[i], machine);
        }
    }
    // Well-known cases, compared without a library.
    const auto is = [&](float a, float b) {
        std::vector<float> in(16, a);
        std::vector<float> power(16, b);
        std::vector<float> got(16);
        Compiled(Kernel{kPow}, Machine::Host)(in.data(), power.data(), got.data(), 16);
        return got[0];
    };
    EXPECT_EQ(is(nan, 0), 1);
    EXPECT_EQ(is(1, nan), 1);
    EXPECT_EQ(is(-1, inf), 1);
    EXPECT_EQ(is(-0.0F, -3), -inf);
    EXPECT_EQ(is(-2, 3), -8);
    EXPECT_TRUE(std::isnan(is(-2, 0.5F)));
    EXPECT_EQ(is(-inf, 0.5F), inf);
}

TEST(VectorMathPow, AsksLibmForDoubles) {
    const std::vector<double> x = {2, -2, 1e-5, 9};
    const std::vector<double> y = {0.5, 3, 60, -0.5};
    std::vector<double> got(4);
    Compiled(Kernel{.emit = kPow, .in = DType::F64, .out = DType::F64, .lanes = 4}, Machine::Host)(x.data(), y.data(),
                                                                                                   got.data(), 4);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[i], std::pow(x[i], y[i]));
}

TEST(VectorMathExtrema, KeepNans) {
    constexpr float inf = std::numeric_limits<float>::infinity();
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> values = {-inf, -1,   0,   2,   inf,  nan,  1e-40F, -1e38F,
                                       3,    -inf, nan, 1.5, -0.5, 1e30, -3e-39, 7};
    const auto extremum = [](bool max) -> Emit {
        return [max](llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y) {
            return max ? emit_max_nan(b, x, y) : emit_min_nan(b, x, y);
        };
    };
    for (const auto& [max, lanes] :
         {std::pair(true, 4U), {false, 4U}, {true, 8U}, {false, 8U}, {true, 16U}, {false, 16U}})
        for (const auto& [machine, f] : on_all_machines(Kernel{.emit = extremum(max), .lanes = lanes}))
            for (const float a : values) {
                const std::vector<float> x(values.size(), a);
                std::vector<float> got(values.size());
                (*f)(x.data(), values.data(), got.data(), values.size());
                for (size_t i = 0; i < values.size(); ++i) {
                    const float b = values[i];
                    if (std::isnan(a) || std::isnan(b)) {
                        EXPECT_TRUE(std::isnan(got[i])) << a << ", " << b << " on " << machine;
                    } else {
                        EXPECT_EQ(got[i], max ? std::max(a, b) : std::min(a, b)) << a << ", " << b << " on " << machine;
                    }
                }
            }
}

template <llvm::Value* (*F)(llvm::IRBuilderBase&, llvm::Value*)>
llvm::Value* first_operand(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value*) {
    return F(b, x);
}

TEST(VectorMathConversions, WidenEveryHalfAndBfloat16) {
    std::vector<uint16_t> x(65536);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
    std::vector<float> got(x.size());
    const Kernel half{.emit = first_operand<emit_f16_to_f32>, .in = DType::F16};
    const Kernel brain{.emit = first_operand<emit_bf16_to_f32>, .in = DType::BF16};
    for (const bool is_half : {true, false})
        for (const auto& [machine, f] : on_all_machines(is_half ? half : brain)) {
            (*f)(x.data(), x.data(), got.data(), x.size());
            for (size_t i = 0; i < x.size(); ++i) {
                const float want = is_half ? half_to_float(x[i]) : bfloat16_to_float(x[i]);
                if (std::isnan(want)) {
                    ASSERT_TRUE(std::isnan(got[i])) << i;
                } else {
                    ASSERT_EQ(bits_of_float(got[i]), bits_of_float(want)) << i << " on " << machine;
                }
            }
        }
}

TEST(VectorMathConversions, RoundFloatsToNearestEven) {
    const Kernel half{.emit = first_operand<emit_f32_to_f16>, .out = DType::F16};
    const Kernel brain{.emit = first_operand<emit_f32_to_bf16>, .out = DType::BF16};
    const auto is_nan = [](float f) { return std::isnan(f); };
    for (const bool is_half : {true, false})
        for (const auto& [machine, f] : on_all_machines(is_half ? half : brain))
            for (size_t chunk = 0; chunk < 1024; chunk += 3) {
                std::vector<float> x = chunk_of_arguments(chunk);
                // A third of them lies halfway between two results, the hard case.
                for (size_t i = 0; i < kChunk; i += 3)
                    x[i] = float_of((bits_of_float(x[i]) & (is_half ? 0xFFFFE000U : 0xFFFF0000U)) |
                                    (is_half ? 0x1000U : 0x8000U));
                std::vector<uint16_t> got(kChunk);
                (*f)(x.data(), x.data(), got.data(), kChunk);
                for (size_t i = 0; i < kChunk; ++i) {
                    if (is_nan(x[i])) {
                        ASSERT_TRUE(is_nan(is_half ? half_to_float(got[i]) : bfloat16_to_float(got[i]))) << machine;
                    } else if (!is_half && std::abs(x[i]) < std::numeric_limits<float>::min() &&
                               (got[i] & 0x7FFFU) == 0) {
                        // AVX512_BF16 flushes subnormal numbers.
                        ASSERT_EQ(got[i] != 0, std::signbit(x[i])) << machine;
                    } else {
                        ASSERT_EQ(got[i], is_half ? float_to_half(x[i]) : float_to_bfloat16(x[i]))
                            << x[i] << " on " << machine;
                    }
                }
            }
}

/// Returns the assembly of a kernel for `triple` and `cpu`; empty if this LLVM does not support the target.
std::string assembly(const Kernel& kernel, const std::string& triple, const std::string& cpu,
                     const std::string& features) {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    std::string unknown;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, unknown);
    if (target == nullptr) return {};
    const std::unique_ptr<llvm::TargetMachine> machine(
        target->createTargetMachine(triple, cpu, features, llvm::TargetOptions(), llvm::Reloc::PIC_));
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    module.setDataLayout(machine->createDataLayout());
    module.setTargetTriple(triple);
    add_loop(module, kernel, cpu, features);
    optimise(module, *machine);
    llvm::SmallString<0> text;
    llvm::raw_svector_ostream stream(text);
    llvm::legacy::PassManager passes;
    machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile);
    passes.run(module);
    return std::string(text);
}

/// Counts the instructions of the first loop of x86 assembly: from the first local label that is a backward jump
/// target, without register moves and loop control.
int vector_instructions_of_loop(const std::string& text) {
    int count = 0;
    bool inside = false;
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(text).split(lines, '\n');
    for (const llvm::StringRef line : lines) {
        if (!inside) {
            inside = line.starts_with(".LBB0_1:");
            continue;
        }
        const llvm::StringRef code = line.trim();
        if (code.starts_with("j")) break;
        const bool copy = code.starts_with("vmovap") && !code.contains('(');
        if (code.starts_with("v") && !copy && !code.starts_with("vbroadcast")) ++count;
    }
    return count;
}

TEST(VectorMathCode, OfInnerLoopsStaysShort) {
    struct Budget {
        const char* cpu;
        unsigned lanes;
        Emit emit;
        int instructions;
    };
    const Emit exp = first_operand<emit_exp>;
    const Emit tanh = first_operand<emit_tanh>;
    const Emit erf = first_operand<emit_erf>;
    // The count includes one store, and sometimes a load.
    for (const Budget& budget :
         {Budget{"x86-64-v4", 16, exp, 14}, Budget{"x86-64-v4", 16, tanh, 21}, Budget{"x86-64-v4", 16, erf, 20},
          Budget{"x86-64-v3", 8, exp, 21}, Budget{"x86-64-v3", 8, tanh, 34}, Budget{"x86-64-v3", 8, erf, 32}}) {
        const std::string text =
            assembly(Kernel{.emit = budget.emit, .lanes = budget.lanes}, "x86_64-pc-linux-gnu", budget.cpu, "");
        if (text.empty()) GTEST_SKIP() << "this LLVM has no x86";
        const int count = vector_instructions_of_loop(text);
        EXPECT_GT(count, 10) << text;
        EXPECT_LE(count, budget.instructions) << text;
    }
}

TEST(VectorMathCode, NeedsNoLibraryForFloatsOnAarch64) {
    for (const Function& f : kFunctions) {
        const std::string text =
            assembly(Kernel{.emit = f.emitter(), .lanes = 4}, "aarch64-linux-gnu", "neoverse-n1", "");
        if (text.empty()) GTEST_SKIP() << "this LLVM has no AArch64";
        EXPECT_NE(text.find("fmla\t"), std::string::npos) << f.name;
        llvm::SmallVector<llvm::StringRef> lines;
        llvm::StringRef(text).split(lines, '\n');
        for (const llvm::StringRef line : lines)
            if (line.trim().starts_with("bl\t")) {
                EXPECT_TRUE(line.contains("tilewright.")) << f.name << ": " << line.str();
            }
    }
}

}  // namespace
}  // namespace tilewright::cpu
