// Operators with data-dependent output size or order: TopK, NonZero, Compress, Unique, NonMaxSuppression; also Det.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"
#include "opaque/view.h"

namespace tilewright {

namespace {

void copy_element(const TensorView& from, int64_t source, const TensorView& to, int64_t target) {
    const size_t bytes = byte_size(from.dtype);
    std::memcpy(to.as<std::byte>() + static_cast<size_t>(target) * bytes,
                from.as<std::byte>() + static_cast<size_t>(source) * bytes, bytes);
}

/// A sort key: an integer ordered as element i is. NaNs are largest and equal.
int64_t sort_key(const Tensor& t, int64_t i) {
    if (!is_float(t.dtype())) {
        const int64_t v = t.get_int(i);
        return t.dtype() == DType::U64 ? v ^ std::numeric_limits<int64_t>::min() : v;
    }
    const double v = t.get(i);
    if (std::isnan(v)) return std::numeric_limits<int64_t>::max();
    if (v == 0) return 0;
    int64_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    return bits < 0 ? std::numeric_limits<int64_t>::min() - bits : bits;
}

// --- TopK

/// The k largest (smallest) elements of each line along an axis, and their positions; ties prefer the first.
class TopK final : public OpaqueOp {
  public:
    TopK(int64_t axis, bool largest) : axis_(static_cast<size_t>(axis)), largest_(largest) {}
    std::string print() const override { return fmt::format("TopK(axis={}, largest={})", axis_, largest_ ? 1 : 0); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const int64_t k = as_tensor(inputs[1]).get_int(0);
        const Lines lines(x.shape, axis_);
        if (k < 0 || k > lines.length)
            throw ModelError(fmt::format("TopK: k is {}, and the dimension has {} elements", k, lines.length));
        Shape shape(x.shape.begin(), x.shape.end());
        shape[axis_] = k;
        const TensorView values = outputs.allocate(0, shape), positions = outputs.allocate(1, shape);
        const Tensor t = as_tensor(x);
        std::vector<int64_t> keys(static_cast<size_t>(lines.length)), order(keys.size());
        const auto before = [&](int64_t a, int64_t b) {
            const int64_t ka = keys[static_cast<size_t>(a)], kb = keys[static_cast<size_t>(b)];
            return ka != kb ? (ka > kb) == largest_ : a < b;
        };
        for (int64_t o = 0; o < lines.outer; ++o)
            for (int64_t i = 0; i < lines.inner; ++i) {
                const int64_t first = o * lines.length * lines.inner + i;
                for (size_t n = 0; n < keys.size(); ++n)
                    keys[n] = sort_key(t, first + static_cast<int64_t>(n) * lines.inner);
                std::iota(order.begin(), order.end(), 0);
                std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
                for (int64_t n = 0; n < k; ++n) {
                    const int64_t from = order[static_cast<size_t>(n)], target = (o * k + n) * lines.inner + i;
                    copy_element(x, first + from * lines.inner, values, target);
                    positions.as<int64_t>()[target] = from;
                }
            }
    }

  private:
    size_t axis_;
    bool largest_;
};

// --- NonZero, Compress

/// Positions of non-zero elements, one row per dimension: [[1, 0], [1, 1]] -> [[0, 1, 1], [0, 0, 1]]
class NonZero final : public OpaqueOp {
  public:
    std::string print() const override { return "NonZero()"; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const Tensor t = as_tensor(x);
        std::vector<int64_t> found;
        for (int64_t i = 0, n = x.count(); i < n; ++i)
            if (is_float(x.dtype) ? t.get(i) != 0 : t.get_int(i) != 0) found.push_back(i);
        const auto rank = static_cast<int64_t>(x.shape.size()), count = static_cast<int64_t>(found.size());
        const TensorView y = outputs.allocate(0, Shape{rank, count});
        for (int64_t r = rank; r-- > 0;)
            for (int64_t n = 0; n < count; ++n) {
                int64_t& rest = found[static_cast<size_t>(n)];
                const int64_t d = x.shape[static_cast<size_t>(r)];
                y.as<int64_t>()[r * count + n] = rest % d;
                rest /= d;
            }
    }
};

/// Slices along an axis where the condition holds; slices beyond a short condition are dropped.
class Compress final : public OpaqueOp {
  public:
    explicit Compress(int64_t axis) : axis_(static_cast<size_t>(axis)) {}
    std::string print() const override { return fmt::format("Compress(axis={})", axis_); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const TensorView& condition = inputs[1];
        const Lines lines(x.shape, axis_);
        std::vector<int64_t> kept;
        for (int64_t i = 0; i < condition.count(); ++i) {
            if (condition.as<uint8_t>()[i] == 0) continue;
            if (i >= lines.length)
                throw ModelError(fmt::format("Compress: element {} is chosen from a dimension of {}", i, lines.length));
            kept.push_back(i);
        }
        Shape shape(x.shape.begin(), x.shape.end());
        shape[axis_] = static_cast<int64_t>(kept.size());
        const TensorView y = outputs.allocate(0, shape);
        const size_t run = static_cast<size_t>(lines.inner) * byte_size(x.dtype);
        auto* to = y.as<std::byte>();
        for (int64_t o = 0; o < lines.outer && run > 0; ++o)
            for (const int64_t k : kept) {
                std::memcpy(to, x.as<std::byte>() + static_cast<size_t>(o * lines.length + k) * run, run);
                to += run;
            }
    }

  private:
    size_t axis_;
};

// --- Unique

/// Distinct slices along an axis. Outputs: the slices, the position of each first occurrence, for every slice of the
/// input its index among them, and the counts.
class Unique final : public OpaqueOp {
  public:
    Unique(int64_t axis, bool sorted) : axis_(static_cast<size_t>(axis)), sorted_(sorted) {}
    std::string print() const override { return fmt::format("Unique(axis={}, sorted={})", axis_, sorted_ ? 1 : 0); }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const Lines lines(x.shape, axis_);
        const std::vector<std::vector<int64_t>> keys = slice_keys(x, lines);
        std::vector<int64_t> order(keys.size());
        std::iota(order.begin(), order.end(), 0);
        const auto key = [&](int64_t s) -> const std::vector<int64_t>& { return keys[static_cast<size_t>(s)]; };
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) < key(b); });

        std::vector<int64_t> first, counts, place(keys.size());
        for (size_t n = 0; n < order.size(); ++n) {
            if (n == 0 || key(order[n]) != key(order[n - 1])) {
                first.push_back(order[n]);
                counts.push_back(0);
            }
            ++counts.back();
            place[static_cast<size_t>(order[n])] = static_cast<int64_t>(first.size()) - 1;
        }
        if (!sorted_) by_appearance(first, counts, place);

        Shape shape(x.shape.begin(), x.shape.end());
        shape[axis_] = static_cast<int64_t>(first.size());
        const TensorView y = outputs.allocate(0, shape);
        const auto found = static_cast<int64_t>(first.size());
        for (int64_t o = 0; o < lines.outer; ++o)
            for (int64_t n = 0; n < found; ++n)
                for (int64_t i = 0; i < lines.inner; ++i)
                    copy_element(x, (o * lines.length + first[static_cast<size_t>(n)]) * lines.inner + i, y,
                                 (o * found + n) * lines.inner + i);
        store(outputs, 1, first);
        store(outputs, 2, place);
        store(outputs, 3, counts);
    }

  private:
    static std::vector<std::vector<int64_t>> slice_keys(const TensorView& x, const Lines& lines) {
        const Tensor t = as_tensor(x);
        std::vector<std::vector<int64_t>> keys(static_cast<size_t>(lines.length));
        for (int64_t k = 0; k < lines.length; ++k)
            for (int64_t o = 0; o < lines.outer; ++o)
                for (int64_t i = 0; i < lines.inner; ++i)
                    keys[static_cast<size_t>(k)].push_back(sort_key(t, (o * lines.length + k) * lines.inner + i));
        return keys;
    }

    static void by_appearance(std::vector<int64_t>& first, std::vector<int64_t>& counts, std::vector<int64_t>& place) {
        std::vector<size_t> order(first.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first[a] < first[b]; });
        std::vector<int64_t> new_first, new_counts, moved(first.size());
        for (size_t n = 0; n < order.size(); ++n) {
            new_first.push_back(first[order[n]]);
            new_counts.push_back(counts[order[n]]);
            moved[order[n]] = static_cast<int64_t>(n);
        }
        for (int64_t& p : place) p = moved[static_cast<size_t>(p)];
        first = std::move(new_first);
        counts = std::move(new_counts);
    }

    static void store(OpaqueOutputs& outputs, size_t k, const std::vector<int64_t>& v) {
        const TensorView y = outputs.allocate(k, Shape{static_cast<int64_t>(v.size())});
        std::copy(v.begin(), v.end(), y.as<int64_t>());
    }

    size_t axis_;
    bool sorted_;
};

// --- NonMaxSuppression

struct Box {
    double x0, y0, x1, y1;
    double area() const { return (x1 - x0) * (y1 - y0); }
};

double overlap(const Box& a, const Box& b) {
    const double w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0), h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
    if (w <= 0 || h <= 0) return 0;
    const double common = w * h, all = a.area() + b.area() - common;
    return all > 0 ? common / all : 0;
}

/// Boxes of high score whose overlap with better boxes of the same class is at most a threshold. Inputs: boxes [batch,
/// n, 4], scores [batch, class, n], and optional scalars: maximum boxes per class, overlap, score. Output: [found, 3]
/// of (batch, class, box).
class NonMaxSuppression final : public OpaqueOp {
  public:
    explicit NonMaxSuppression(bool centered) : centered_(centered) {}
    std::string print() const override {
        return fmt::format("NonMaxSuppression(center_point_box={})", centered_ ? 1 : 0);
    }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& scores = inputs[1];
        if (inputs[0].shape.size() != 3 || inputs[0].shape[2] != 4 || scores.shape.size() != 3 ||
            scores.shape[0] != inputs[0].shape[0] || scores.shape[2] != inputs[0].shape[1])
            throw ModelError(fmt::format("NonMaxSuppression: boxes of shape {} and scores of shape {}",
                                         to_string(inputs[0].shape), to_string(scores.shape)));
        const auto present = [&](size_t k) {
            if (inputs.size() <= k || inputs[k].data == nullptr) return false;
            if (inputs[k].count() != 1)
                throw ModelError(fmt::format("NonMaxSuppression: input {} has the shape {}, and one number is expected",
                                             k, to_string(inputs[k].shape)));
            return true;
        };
        const int64_t most = present(2) ? as_tensor(inputs[2]).get_int(0) : 0;
        const double overlap_limit = present(3) ? as_tensor(inputs[3]).get(0) : 0;
        const bool bounded = present(4);
        const double score_limit = bounded ? as_tensor(inputs[4]).get(0) : 0;
        const std::vector<double> corners = as_doubles(inputs[0]), marks = as_doubles(scores);
        const int64_t classes = scores.shape[1], n = scores.shape[2];
        std::vector<int64_t> found;
        for (int64_t b = 0; b < scores.shape[0]; ++b) {
            std::vector<Box> boxes;
            for (int64_t k = 0; k < n; ++k) boxes.push_back(box(&corners[static_cast<size_t>((b * n + k) * 4)]));
            for (int64_t c = 0; c < classes; ++c) {
                const double* score = marks.data() + (b * classes + c) * n;
                std::vector<int64_t> order;
                for (int64_t k = 0; k < n; ++k)
                    if (!bounded || score[k] > score_limit) order.push_back(k);
                std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) { return score[p] > score[q]; });
                std::vector<Box> kept;
                for (const int64_t k : order) {
                    if (static_cast<int64_t>(kept.size()) >= most) break;
                    const Box& own = boxes[static_cast<size_t>(k)];
                    if (std::any_of(kept.begin(), kept.end(),
                                    [&](const Box& other) { return overlap(own, other) > overlap_limit; }))
                        continue;
                    kept.push_back(own);
                    found.insert(found.end(), {b, c, k});
                }
            }
        }
        const TensorView y = outputs.allocate(0, Shape{static_cast<int64_t>(found.size() / 3), 3});
        std::copy(found.begin(), found.end(), y.as<int64_t>());
    }

  private:
    /// (x, y, width, height) around a centre, or two corners in any order.
    Box box(const double* v) const {
        if (centered_) return {v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2};
        return {std::min(v[1], v[3]), std::min(v[0], v[2]), std::max(v[1], v[3]), std::max(v[0], v[2])};
    }

    bool centered_;
};

// --- Det

/// Determinants of the matrices in the last two dimensions, by elimination with row exchanges, in double.
class Det final : public OpaqueOp {
  public:
    std::string print() const override { return "Det()"; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView& x = inputs[0];
        const int64_t n = x.shape.back();
        if (x.shape[x.shape.size() - 2] != n)
            throw ModelError(fmt::format("Det: matrices of shape {} are not square", to_string(x.shape)));
        const TensorView y = outputs.allocate(0, x.shape.first(x.shape.size() - 2));
        std::vector<double> all = as_doubles(x), out;
        for (int64_t b = 0; b < y.count(); ++b) out.push_back(determinant(all.data() + b * n * n, n));
        store_doubles(y, out);
    }

  private:
    static double determinant(double* a, int64_t n) {
        double d = 1;
        for (int64_t k = 0; k < n; ++k) {
            int64_t pivot = k;
            for (int64_t r = k + 1; r < n; ++r)
                if (std::fabs(a[r * n + k]) > std::fabs(a[pivot * n + k])) pivot = r;
            if (pivot != k) {
                std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
                d = -d;
            }
            d *= a[k * n + k];
            if (a[k * n + k] == 0) return 0;
            for (int64_t r = k + 1; r < n; ++r) {
                const double f = a[r * n + k] / a[k * n + k];
                for (int64_t q = k; q < n; ++q) a[r * n + q] -= f * a[k * n + q];
            }
        }
        return d;
    }
};

}  // namespace

namespace opaque {

Operator top_k(int64_t axis, bool largest) { return std::make_shared<TopK>(axis, largest); }
Operator non_zero() { return std::make_shared<NonZero>(); }
Operator compress(int64_t axis) { return std::make_shared<Compress>(axis); }
Operator unique(int64_t axis, bool sorted) { return std::make_shared<Unique>(axis, sorted); }
Operator non_max_suppression(bool centered) { return std::make_shared<NonMaxSuppression>(centered); }
Operator det() { return std::make_shared<Det>(); }

}  // namespace opaque

std::vector<OpaqueReader> selection_readers() {
    return {
        {"TopK",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<TopK>(t.integer("axis"), t.flag("largest"));
         }},
        {"NonZero", [](const OpaqueText&) -> OpaquePointer { return std::make_shared<NonZero>(); }},
        {"Compress",
         [](const OpaqueText& t) -> OpaquePointer { return std::make_shared<Compress>(t.integer("axis")); }},
        {"Unique",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<Unique>(t.integer("axis"), t.flag("sorted"));
         }},
        {"NonMaxSuppression",
         [](const OpaqueText& t) -> OpaquePointer {
             return std::make_shared<NonMaxSuppression>(t.flag("center_point_box"));
         }},
        {"Det", [](const OpaqueText&) -> OpaquePointer { return std::make_shared<Det>(); }},
    };
}

}  // namespace tilewright
