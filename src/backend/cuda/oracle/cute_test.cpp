// Fragments, matrix descriptors and swizzles against CuTe's layouts (CUTLASS, compiled as C++ for the host): the
// interpreter of PTX, which ptx_test.cpp compares with the emulation, and the functions of device/cuda.cuh.

#include <cstddef>

namespace {
/// What CuTe takes the descriptors' addresses from.
alignas(1024) unsigned char shared_bytes[64 << 10];
constexpr size_t kSharedBegin = 1024;
inline size_t __cvta_generic_to_shared(const void* p) {
    return static_cast<size_t>(static_cast<const unsigned char*>(p) - shared_bytes) + kSharedBegin;
}
}  // namespace
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1

#include <cuda_runtime.h>

#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/tensor.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cuda/oracle/interpreted.h"
#include "backend/cuda/oracle/probes_test.h"
#include "backend/cuda/oracle/ptx_matrix.h"

namespace tilewright::cuda::oracle {
namespace {

namespace gmma = cute::SM90::GMMA;

LockstepOptions options() { return {TW_TEST_CXX, {"-O0"}}; }

/// The first element of a fragment that CuTe's layout, (thread, element) -> row + rows * column, has elsewhere; empty
/// where there is none.
template <class Layout, class Point>
std::string difference(const Layout& layout, int rows, const Point& point) {
    const int threads = cute::size<0>(layout), elements = cute::size<1>(layout);
    for (int t = 0; t < threads; ++t)
        for (int i = 0; i < elements; ++i) {
            const int expected = layout(t, i);
            const MatrixPoint p = point(t, i);
            if (expected != p.row + rows * p.column)
                return fmt::format("element {} of thread {} is ({}, {}), in CuTe ({}, {})", i, t, p.row, p.column,
                                   expected % rows, expected / rows);
        }
    return "";
}

/// Fragments of A and C as CuTe orders them: rows along m. B's points are (k, n) here, and (n, k) there.
template <class Operation>
void expect_fragments(int bytes) {
    using Traits = cute::MMA_Traits<Operation>;
    EXPECT_EQ(difference(typename Traits::ALayout{}, 16, [&](int t, int i) { return mma_a(t, i, bytes); }), "");
    EXPECT_EQ(difference(typename Traits::BLayout{}, 8,
                         [&](int t, int i) {
                             const MatrixPoint p = mma_b(t, i, bytes);
                             return MatrixPoint{p.column, p.row};
                         }),
              "");
    EXPECT_EQ(difference(typename Traits::CLayout{}, 16, mma_c), "");
}

TEST(Cute, HasTheFragmentsOfAWarp) {
    expect_fragments<cute::SM80_16x8x16_F32F16F16F32_TN>(2);
    expect_fragments<cute::SM80_16x8x16_F32BF16BF16F32_TN>(2);
    expect_fragments<cute::SM80_16x8x8_F32TF32TF32F32_TN>(4);
}

TEST(Cute, HasTheFragmentsOfAWarpgroup) {
    EXPECT_EQ(difference(gmma::ALayout_64x16{}, 64, [](int t, int i) { return wgmma_a(t, i, 2); }), "");
    EXPECT_EQ(difference(gmma::ALayout_64x8{}, 64, [](int t, int i) { return wgmma_a(t, i, 4); }), "");
    EXPECT_EQ(difference(gmma::CLayout_64xN<8>{}, 64, wgmma_c), "");
    EXPECT_EQ(difference(gmma::CLayout_64xN<16>{}, 64, wgmma_c), "");
    EXPECT_EQ(difference(gmma::CLayout_64xN<32>{}, 64, wgmma_c), "");
    EXPECT_EQ(difference(gmma::CLayout_64xN<64>{}, 64, wgmma_c), "");
    EXPECT_EQ(difference(gmma::CLayout_64xN<128>{}, 64, wgmma_c), "");
    EXPECT_EQ(difference(gmma::CLayout_64xN<256>{}, 64, wgmma_c), "");
}

TEST(Cute, FindsAWrongIndex) {
    using Traits = cute::MMA_Traits<cute::SM80_16x8x16_F32F16F16F32_TN>;
    EXPECT_NE(difference(Traits::ALayout{}, 16,
                         [](int t, int i) {
                             const MatrixPoint p = mma_a(t, i, 2);
                             return MatrixPoint{p.row ^ (i == 4 ? 8 : 0), p.column};
                         }),
              "");
    EXPECT_NE(difference(gmma::CLayout_64xN<64>{}, 64, [](int t, int i) { return wgmma_c(t ^ 32, i); }), "");
}

// --- descriptors

/// A call of tw::cores, and the descriptor that CuTe has for the same matrix.
struct Described {
    std::string name, cores;
    uint64_t expected;
    int size;
};

/// A matrix of points x 256 bits along the sum, from byte `begin` on, in an atom's layout. Its descriptor has to lead
/// to the addresses that CuTe's layout has. Arguments of tw::cores are distances of elements in that layout, as its
/// comment describes them.
template <class Element, gmma::Major major, class Atom, class Points, class Sum>
void describe(const std::string& name, int row, Points points, Sum sum, int step, std::vector<Described>& all) {
    using Step = cute::Int<32 / sizeof(Element)>;
    constexpr bool turned = major == gmma::Major::MN;
    constexpr int size = sizeof(Element);
    const auto layout = cute::tile_to_shape(Atom{}, cute::make_shape(points, sum));
    const auto whole = cute::make_tensor(cute::make_smem_ptr(reinterpret_cast<Element*>(shared_bytes)), layout);
    const auto matrix = cute::local_tile(whole, cute::make_shape(points, Step{}), cute::make_coord(0, step));
    const auto offset = [&](int p, int k) {
        return static_cast<int>(reinterpret_cast<const unsigned char*>(&matrix(p, k)) - shared_bytes);
    };
    const auto descriptor = static_cast<uint64_t>(gmma::make_gmma_desc<major>(matrix));
    const MatrixDescriptor d = decode(descriptor);
    EXPECT_EQ(d.row, row) << name;
    for (int p = 0; p < points; ++p)
        for (int k = 0; k < Step{}; ++k)
            ASSERT_EQ(element_address(d, p, k, size, turned), kSharedBegin + static_cast<size_t>(offset(p, k)))
                << name << " (" << p << ", " << k << ")";
    // Distances that the swizzle does not change: of whole groups of eight rows.
    const int wide = (row == 0 ? 16 : row) / size, first = static_cast<int>(d.begin - kSharedBegin);
    const int along = turned ? offset(0, 8) - offset(0, 0) : row == 0 ? offset(0, wide) - offset(0, 0) : 16;
    const int across = turned ? offset(wide, 0) - offset(0, 0) : offset(8, 0) - offset(0, 0);
    all.push_back({name,
                   fmt::format("tw::cores<{}, {}, {}>(tw::shared<{}>(0, 64, \"matrix\"), {}, {})", along, across, row,
                               size == 4 ? "float" : "u16", first / size, turned),
                   descriptor, size});
}

template <class Element>
void describe_along_sum(const std::string& type, std::vector<Described>& all) {
    constexpr auto kK = gmma::Major::K;
    using Points = cute::_64;
    using Sum = cute::Int<128 / sizeof(Element)>;
    for (const int step : {0, 1}) {
        const std::string name = fmt::format("{} step {}", type, step);
        describe<Element, kK, gmma::Layout_K_SW128_Atom<Element>>(name + " 128", 128, Points{}, Sum{}, step, all);
        describe<Element, kK, gmma::Layout_K_SW64_Atom<Element>>(name + " 64", 64, Points{}, Sum{}, step, all);
        describe<Element, kK, gmma::Layout_K_SW32_Atom<Element>>(name + " 32", 32, Points{}, Sum{}, step, all);
        describe<Element, kK, gmma::Layout_K_INTER_Atom<Element>>(name + " 0", 0, Points{}, Sum{}, step, all);
    }
}

template <class Element>
void describe_across_sum(const std::string& type, std::vector<Described>& all) {
    constexpr auto kMN = gmma::Major::MN;
    using Points = cute::_256;
    using Sum = cute::_32;
    for (const int step : {0, 1}) {
        const std::string name = fmt::format("{} transposed, step {}", type, step);
        describe<Element, kMN, gmma::Layout_MN_SW128_Atom<Element>>(name + " 128", 128, Points{}, Sum{}, step, all);
        describe<Element, kMN, gmma::Layout_MN_SW64_Atom<Element>>(name + " 64", 64, Points{}, Sum{}, step, all);
        describe<Element, kMN, gmma::Layout_MN_SW32_Atom<Element>>(name + " 32", 32, Points{}, Sum{}, step, all);
        describe<Element, kMN, gmma::Layout_MN_INTER_Atom<Element>>(name + " 0", 0, Points{}, Sum{}, step, all);
    }
}

TEST(Cute, HasTheDescriptorsOfEveryLayout) {
    std::vector<Described> all;
    describe_along_sum<cute::half_t>("f16", all);
    describe_along_sum<cute::bfloat16_t>("bf16", all);
    describe_along_sum<cute::tfloat32_t>("tf32", all);
    describe_across_sum<cute::half_t>("f16", all);
    describe_across_sum<cute::bfloat16_t>("bf16", all);
    std::string body;
    for (size_t i = 0; i < all.size(); ++i)
        body += fmt::format("    if (t == 0) tw::put(y, {}, {});\n", i, all[i].cores);
    const auto count = static_cast<int64_t>(all.size());
    const Probe p = probe("descriptors", {small_numbers(DType::F32, 1, 1)}, DType::U64, count, 32, 64 << 10, body);
    const Interpreted kernels({p.kernel}, options());
    std::vector<Tensor> tensors = p.inputs;
    tensors.emplace_back(DType::U64, p.output);
    kernels.run(0, tensors, {}, 1);
    for (size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(tensors[1].as<uint64_t>()[i], all[i].expected) << all[i].name << ": " << all[i].cores;
}

TEST(Cute, HasTheSwizzles) {
    std::string body;
    for (const int row : {32, 64, 128})
        for (const int size : {2, 4})
            body +=
                fmt::format("    for (int i = t; i < 1024; i += 32) tw::put(y, {0} + i, tw::swizzled<{1}, {2}>(i));\n",
                            ((row / 64) * 2 + size / 4) * 1024, row, size);
    const Probe p = probe("swizzles", {small_numbers(DType::F32, 1, 1)}, DType::I32, 6 * 1024, 32, 0, body);
    const Interpreted kernels({p.kernel}, options());
    std::vector<Tensor> tensors = p.inputs;
    tensors.emplace_back(DType::I32, p.output);
    kernels.run(0, tensors, {}, 1);
    const auto given = tensors[1].as<int32_t>();
    for (int size : {2, 4})
        for (int i = 0; i < 1024; ++i) {
            const int byte = i * size, k = size / 4 * 1024 + i;
            EXPECT_EQ(given[static_cast<size_t>(k)] * size, (cute::Swizzle<1, 4, 3>{}(byte)));
            EXPECT_EQ(given[static_cast<size_t>(2048 + k)] * size, (cute::Swizzle<2, 4, 3>{}(byte)));
            EXPECT_EQ(given[static_cast<size_t>(4096 + k)] * size, (cute::Swizzle<3, 4, 3>{}(byte)));
        }
}

}  // namespace
}  // namespace tilewright::cuda::oracle
