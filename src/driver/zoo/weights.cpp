#include "driver/zoo/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"

namespace tilewright::nets {

namespace {

constexpr int32_t kMeanOfSum = 131070;                  // 4 * 65535 / 2
constexpr double kDeviationOfSum = 37837.227513600640;  // sqrt(4 * (65536^2 - 1) / 12)
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

int32_t sum_of_pieces(uint64_t r) {
    const uint64_t pairs = (r & 0x0000FFFF0000FFFFull) + ((r >> 16) & 0x0000FFFF0000FFFFull);
    return static_cast<int32_t>((pairs & 0xFFFFFFFF) + (pairs >> 32));
}

}  // namespace

void draw_normal(std::string_view name, uint64_t seed, const Draw& draw, std::span<float> out) {
    const size_t row = draw.row > 0 ? static_cast<size_t>(draw.row) : 1024;
    TW_CHECK(draw.row <= 0 || out.size() % row == 0, "{} numbers do not fall into rows of {}", out.size(), row);
    TW_CHECK(!draw.centred || draw.row > 1, "only rows of two and more numbers can be centred");
    uint64_t counter = hash_combine(hash_text(name), seed);
    std::vector<int32_t> sums(row);
    for (size_t begin = 0; begin < out.size(); begin += row) {
        const size_t n = std::min(row, out.size() - begin);
        int64_t total = 0;
        int64_t squares = 0;
        for (size_t i = 0; i < n; ++i) {
            counter += kGolden;
            const int32_t s = sum_of_pieces(hash_mix(counter)) - kMeanOfSum;
            sums[i] = s;
            total += s;
            squares += static_cast<int64_t>(s) * s;
        }
        const auto count = static_cast<double>(n);
        const double centre = draw.centred ? static_cast<double>(total) / count : 0;
        double deviation = kDeviationOfSum;
        if (draw.row > 0) deviation = std::sqrt(static_cast<double>(squares) / count - centre * centre);
        const double scale = deviation > 0 ? draw.deviation / deviation : 0;
        float* to = out.data() + begin;
        for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>((sums[i] - centre) * scale);
    }
    if (draw.mean != 0) {
        for (float& v : out) v = static_cast<float>(draw.mean + v);
    }
    if (draw.lowest > -1e30) {
        for (float& v : out) v = std::max(v, static_cast<float>(draw.lowest));
    }
}

std::vector<float> transposed(std::span<const float> in, int64_t rows, int64_t cols) {
    TW_CHECK(static_cast<int64_t>(in.size()) == rows * cols);
    constexpr int64_t kBlock = 32;
    std::vector<float> out(in.size());
    for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
        for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
            for (int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r) {
                for (int64_t c = c0; c < std::min(cols, c0 + kBlock); ++c) {
                    out[static_cast<size_t>(c * rows + r)] = in[static_cast<size_t>(r * cols + c)];
                }
            }
        }
    }
    return out;
}

}  // namespace tilewright::nets
