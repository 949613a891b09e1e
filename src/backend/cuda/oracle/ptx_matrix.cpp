#include "backend/cuda/oracle/ptx_matrix.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "backend/cuda/oracle/ptx_machine.h"
#include "base/error.h"

namespace tilewright::cuda::oracle {

MatrixPoint mma_a(int lane, int i, int element_bytes) {
    const int group = lane / 4, in_group = lane % 4;
    if (element_bytes == 4) return {group + (i % 2 == 0 ? 0 : 8), in_group + (i < 2 ? 0 : 4)};
    return {group + ((i >= 2 && i < 4) || i >= 6 ? 8 : 0), in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
MatrixPoint mma_b(int lane, int i, int element_bytes) {
    const int group = lane / 4, in_group = lane % 4;
    if (element_bytes == 4) return {in_group + (i == 0 ? 0 : 4), group};
    return {in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group};
}
MatrixPoint mma_c(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }
MatrixPoint wgmma_a(int thread, int i, int element_bytes) {
    const MatrixPoint p = mma_a(thread % 32, i, element_bytes);
    return {thread / 32 * 16 + p.row, p.column};
}
MatrixPoint wgmma_c(int thread, int i) {
    const MatrixPoint p = mma_c(thread % 32, i % 4);
    return {thread / 32 * 16 + p.row, i / 4 * 8 + p.column};
}

MatrixDescriptor decode(uint64_t descriptor) {
    const auto field = [&](int from, int bits) { return descriptor >> from & ((uint64_t{1} << bits) - 1); };
    constexpr int kRows[] = {0, 128, 64, 32};
    // Bits 14, 15, 30, 31, 46 to 48 and 52 to 61 have no meaning; 49 to 51 are the base offset.
    if (field(14, 2) != 0 || field(30, 2) != 0 || field(46, 16) != 0)
        throw RuntimeError(fmt::format("a matrix descriptor {:#x} with a base offset or unknown bits", descriptor));
    return {field(0, 14) << 4, field(16, 14) << 4, field(32, 14) << 4, kRows[field(62, 2)]};
}

uint64_t element_address(const MatrixDescriptor& d, int p, int k, int element_bytes, bool transposed) {
    // `inner`: bytes along what lies side by side in memory; `outer`: its rows.
    const auto inner = static_cast<uint64_t>(transposed ? p : k) * static_cast<uint64_t>(element_bytes);
    const auto outer = static_cast<uint64_t>(transposed ? k : p);
    if (d.row == 0) {
        // Core matrices of eight rows of 16 bytes. Along the sum they are `leading` bytes apart, across it `stride`.
        const uint64_t inner_step = transposed ? d.stride : d.leading, outer_step = transposed ? d.leading : d.stride;
        return d.begin + outer / 8 * outer_step + outer % 8 * 16 + inner / 16 * inner_step + inner % 16;
    }
    const auto row = static_cast<uint64_t>(d.row);
    if (!transposed && inner >= row) throw RuntimeError("a sum that is longer than a swizzled row");
    const uint64_t at = d.begin + outer / 8 * d.stride + outer % 8 * row + inner / row * d.leading + inner % row;
    // Bits 4 to 6 (128 bytes), 4 and 5 (64), or 4 (32) change by those three places above.
    return at ^ ((at >> 7 & (row / 16 - 1)) << 4);
}

namespace {

enum class Element : uint8_t { F16, Bf16, Tf32 };

double number(uint32_t bits, Element type) {
    if (type == Element::Tf32) return std::bit_cast<float>(bits & ~uint32_t{0x1fff});
    if (type == Element::Bf16) return std::bit_cast<float>(bits << 16);
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double mantissa = bits & 1023;
    const double magnitude = exponent == 31  ? (mantissa != 0 ? std::nan("") : HUGE_VAL)
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::optional<Element> element_of(const std::string& type) {
    if (type == "f16") return Element::F16;
    if (type == "bf16") return Element::Bf16;
    if (type == "tf32") return Element::Tf32;
    return std::nullopt;
}

/// Element i of the registers {a, b, ...}, `bytes` each.
uint32_t packed(const PtxCall& c, const PtxOperand& vector, int i, int bytes) {
    const auto per_register = static_cast<size_t>(4 / bytes), at = static_cast<size_t>(i);
    if (at / per_register >= vector.members.size())
        throw RuntimeError(c.instruction->name() + " has too few registers");
    const uint64_t word = c.get(vector.members[at / per_register], 'r');
    return static_cast<uint32_t>(word >> (at % per_register * 16) & (bytes == 2 ? 0xffff : 0xffffffff));
}

void expect_registers(const PtxCall& c, size_t k, size_t count) {
    const PtxOperand& o = c.operand(k);
    if (o.kind != PtxOperand::Kind::Vector || o.members.size() != count)
        throw RuntimeError(fmt::format("{} needs {} registers as operand {}", c.instruction->name(), count, k));
}

/// rows x columns, double.
struct Matrix {
    int columns;
    std::vector<double> at;
    Matrix(int r, int c) : columns(c), at(static_cast<size_t>(r) * static_cast<size_t>(c), 0) {}
    double& operator()(int r, int c) { return at[static_cast<size_t>(int64_t{r} * columns + c)]; }
    double& operator()(MatrixPoint p) { return (*this)(p.row, p.column); }
};

/// d = a b + c.
void multiply(std::span<PtxThread* const> warp, Element type) {
    const int bytes = type == Element::Tf32 ? 4 : 2, sum = 32 / bytes;
    Matrix a(16, sum), b(sum, 8);
    for (int lane = 0; lane < 32; ++lane) {
        const PtxCall& c = *warp[static_cast<size_t>(lane)]->call;
        expect_registers(c, 0, 4);
        expect_registers(c, 1, 4);
        expect_registers(c, 2, 2);
        expect_registers(c, 3, 4);
        for (int i = 0; i < 16 / bytes; ++i) a(mma_a(lane, i, bytes)) = number(packed(c, c.operand(1), i, bytes), type);
        for (int i = 0; i < 8 / bytes; ++i) b(mma_b(lane, i, bytes)) = number(packed(c, c.operand(2), i, bytes), type);
    }
    for (int lane = 0; lane < 32; ++lane) {
        const PtxCall& c = *warp[static_cast<size_t>(lane)]->call;
        float result[4];
        for (int i = 0; i < 4; ++i) {
            const MatrixPoint p = mma_c(lane, i);
            double total = c.get_float(c.operand(3).members[static_cast<size_t>(i)]);
            for (int k = 0; k < sum; ++k) total += a(p.row, k) * b(k, p.column);
            result[i] = static_cast<float>(total);
        }
        for (int i = 0; i < 4; ++i) c.set_float(c.operand(0).members[static_cast<size_t>(i)], result[i]);
    }
}

/// Lane 8 m + r has the address of row r of matrix m. Lane l receives elements 2 (l % 4) and the next of row l / 4.
void load_matrices(PtxMachine& machine, std::span<PtxThread* const> warp, size_t count, bool transposed) {
    for (size_t lane = 0; lane < 32; ++lane) {
        const PtxCall& c = *warp[lane]->call;
        expect_registers(c, 0, count);
        for (size_t m = 0; m < count; ++m) {
            uint32_t word = 0;
            for (size_t half = 0; half < 2; ++half) {
                const size_t row = transposed ? lane % 4 * 2 + half : lane / 4;
                const size_t column = transposed ? lane / 4 : lane % 4 * 2 + half;
                const PtxCall& from = *warp[8 * m + row]->call;
                const uint64_t address = from.get(from.operand(1).members.at(0), 'r');
                uint16_t value = 0;
                std::memcpy(&value, machine.shared(address, 16, 16) + 2 * column, 2);
                word |= static_cast<uint32_t>(value) << (16 * half);
            }
            c.set(c.operand(0).members[m], 'r', word);
        }
    }
}

// --- wgmma

struct Product {
    int columns;
    Element type;
    int bytes() const { return type == Element::Tf32 ? 4 : 2; }
    int sum() const { return 32 / bytes(); }
};

/// A matrix of p x k in shared memory; every thread names the same one.
Matrix from_shared(PtxMachine& machine, std::span<PtxThread* const> group, size_t operand, const Product& p, int count,
                   bool transposed) {
    const PtxCall& c = *group[0]->call;
    const uint64_t descriptor = c.get(c.operand(operand), 'l');
    for (const PtxThread* t : group)
        if (t->call->get(t->call->operand(operand), 'l') != descriptor)
            throw RuntimeError("threads of a warpgroup name different matrices");
    const MatrixDescriptor d = decode(descriptor);
    Matrix out(count, p.sum());
    for (int i = 0; i < count; ++i)
        for (int k = 0; k < p.sum(); ++k) {
            const uint64_t address = element_address(d, i, k, p.bytes(), transposed);
            uint32_t bits = 0;
            std::memcpy(&bits, machine.shared(address, p.bytes(), p.bytes()), static_cast<size_t>(p.bytes()));
            out(i, k) = number(bits, p.type);
        }
    return out;
}

/// The sum that is pending for this register, or what the register has.
PtxThread::Sum& pending(PtxThread& t, float* at) {
    for (PtxThread::Sum& s : t.sums)
        if (s.at == at) return s;
    t.sums.push_back({at, *at, 0});
    return t.sums.back();
}

void multiply_group(PtxMachine& machine, std::span<PtxThread* const> group, const Product& p) {
    const PtxCall& first = *group[0]->call;
    const bool in_registers = first.operand(1).kind == PtxOperand::Kind::Vector;
    const size_t behind = 6;  // d, a, b, scale-d, scale-a, scale-b
    const auto flag = [&](size_t k) {
        if (p.type == Element::Tf32) return false;
        return first.get(first.operand(k), 'r') != 0;
    };
    const size_t wanted = behind + (p.type == Element::Tf32 ? 0 : in_registers ? 1 : 2);
    if (first.instruction->operands.size() != wanted)
        throw RuntimeError(fmt::format("{} needs {} operands", first.instruction->name(), wanted));
    const bool a_transposed = !in_registers && flag(behind), b_transposed = flag(behind + (in_registers ? 0 : 1));
    const auto scale = [&](size_t k) { return static_cast<int32_t>(first.get(first.operand(k), 'r')); };
    const bool adds = first.get(first.operand(3), 'p') != 0;
    Matrix a(64, p.sum());
    if (!in_registers) a = from_shared(machine, group, 1, p, 64, a_transposed);
    for (int t = 0; t < 128 && in_registers; ++t) {
        const PtxCall& c = *group[static_cast<size_t>(t)]->call;
        expect_registers(c, 1, 4);
        for (int i = 0; i < 16 / p.bytes(); ++i)
            a(wgmma_a(t, i, p.bytes())) = number(packed(c, c.operand(1), i, p.bytes()), p.type);
    }
    Matrix b = from_shared(machine, group, 2, p, p.columns, b_transposed);
    const double factor = scale(4) * scale(5);
    for (int t = 0; t < 128; ++t) {
        PtxThread& thread = *group[static_cast<size_t>(t)];
        if (!thread.fenced) throw RuntimeError("wgmma.mma_async without wgmma.fence");
        const PtxCall& c = *thread.call;
        expect_registers(c, 0, static_cast<size_t>(p.columns / 2));
        for (int i = 0; i < p.columns / 2; ++i) {
            auto* at = static_cast<float*>(c.place_of(c.operand(0).members[static_cast<size_t>(i)], 'f'));
            PtxThread::Sum& sum = pending(thread, at);
            const MatrixPoint point = wgmma_c(t, i);
            double total = adds ? sum.value : 0.0;
            for (int k = 0; k < p.sum(); ++k) total += factor * a(point.row, k) * b(point.column, k);
            sum.value = static_cast<float>(total);
            sum.group = thread.product_groups;
            *at = std::nanf("");
        }
    }
}

void wait_for_products(PtxThread& t) {
    const auto open = static_cast<int>(t.call->get(t.call->operand(0), 'r'));
    std::erase_if(t.sums, [&](const PtxThread::Sum& s) {
        const bool done = s.group < t.product_groups - open;
        if (done) *s.at = s.value;
        return done;
    });
    if (t.sums.empty()) t.fenced = false;
}

using Run = std::function<void(PtxMachine&, std::span<PtxThread* const>)>;

/// wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16
std::optional<Product> product_of(const PtxInstruction& i) {
    for (const char* type : {"f16", "bf16", "tf32"})
        for (int n = 8; n <= 256; n += 8) {
            const Product p{n, *element_of(type)};
            if (i.name() == fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{}", n, p.sum(), type, type))
                return p;
        }
    return std::nullopt;
}

Run of_group(const PtxInstruction& i) {
    const auto each = [](void (*f)(PtxThread&)) -> Run {
        return [f](PtxMachine&, std::span<PtxThread* const> warp) {
            for (PtxThread* t : warp) f(*t);
        };
    };
    if (i.name() == "wgmma.fence.sync.aligned") return each([](PtxThread& t) { t.fenced = true; });
    if (i.name() == "wgmma.commit_group.sync.aligned") return each([](PtxThread& t) { ++t.product_groups; });
    if (i.name() == "wgmma.wait_group.sync.aligned") return each(wait_for_products);
    return {};
}

}  // namespace

PtxMachine::Handler matrix_handler(const PtxInstruction& i) {
    for (const char* type : {"f16", "bf16", "tf32"}) {
        const int sum = std::strcmp(type, "tf32") == 0 ? 8 : 16;
        if (i.name() == fmt::format("mma.sync.aligned.m16n8k{}.row.col.f32.{}.{}.f32", sum, type, type))
            return {32, [t = *element_of(type)](PtxMachine&, std::span<PtxThread* const> warp) { multiply(warp, t); }};
    }
    for (const size_t count : {size_t{1}, size_t{2}, size_t{4}})
        for (const bool transposed : {false, true})
            if (i.name() ==
                fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16", count, transposed ? ".trans" : ""))
                return {32, [=](PtxMachine& m, std::span<PtxThread* const> warp) {
                            load_matrices(m, warp, count, transposed);
                        }};
    if (const auto p = product_of(i))
        return {128, [p](PtxMachine& m, std::span<PtxThread* const> group) { multiply_group(m, group, *p); }};
    if (Run run = of_group(i)) return {32, std::move(run)};
    return {};
}

}  // namespace tilewright::cuda::oracle
