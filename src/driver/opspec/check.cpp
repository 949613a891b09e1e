#include "driver/opspec/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "driver/compare.h"
#include "driver/opspec/part.h"

namespace tilewright {

namespace {

constexpr int kPlaces = 4;

/// A box of one element at the first or last corner, or at a random place.
Box start(const Shape& shape, int place, std::mt19937_64& rng) {
    Box box;
    for (const int64_t n : shape) {
        const int64_t at = place == 0 ? 0 : place == 1 ? n - 1 : static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
        box.lo.push_back(at);
        box.hi.push_back(at + 1);
    }
    return box;
}

/// Doubles dimension d within the extent; false if it cannot grow.
bool grow(Box& box, size_t d, int64_t extent) {
    const int64_t n = box.hi[d] - box.lo[d];
    if (n == extent) return false;
    const int64_t wanted = std::min(extent, 2 * n);
    box.hi[d] = std::min(extent, box.lo[d] + wanted);
    box.lo[d] = box.hi[d] - wanted;
    return true;
}

/// The box, grown while its computation takes no more than `budget` points, the last dimension first.
Box grown(const Program& program, size_t output, Box box, const Shape& shape, double budget,
          const std::vector<Box>& nothing) {
    const auto cost = [&](const Box& b) {
        std::vector<Box> boxes = nothing;
        boxes[output] = b;
        return point_count(compute_part(program, boxes));
    };
    for (size_t d = shape.size(); d-- > 0;)
        for (Box next = box; grow(next, d, shape[d]) && cost(next) <= budget;) box = next;
    return box;
}

struct Sample {
    size_t output = 0;
    std::vector<int64_t> begin;  ///< its first element
    Tensor actual, expected;
};

std::vector<Sample> take_samples(const Program& program, const std::vector<Tensor>& inputs,
                                 const std::vector<Tensor>& outputs, double budget, uint64_t seed) {
    std::mt19937_64 rng(seed);
    std::vector<Sample> out;
    // One element of each output that is not sampled.
    std::vector<Box> nothing;
    nothing.reserve(outputs.size());
    for (const Tensor& t : outputs) nothing.push_back(start(t.shape(), 0, rng));
    for (size_t k = 0; k < outputs.size(); ++k)
        for (int place = 0; place < kPlaces; ++place) {
            const Shape& shape = outputs[k].shape();
            std::vector<Box> boxes = nothing;
            boxes[k] = grown(program, k, start(shape, place, rng), shape, budget / (2 * kPlaces), nothing);
            std::vector<Tensor> results = interpret(compute_part(program, boxes), inputs);
            out.push_back({k, boxes[k].lo, cut(outputs[k], boxes[k]), std::move(results[k])});
            if (boxes[k] == whole(shape)) break;
        }
    return out;
}

}  // namespace

double tolerance_of(const Program& program) {
    double terms = 0;
    for (const Primitive& p : program.primitives)
        if (const TensorExpr* e = p.expr(); e != nullptr && e->reducer == Reducer::Sum) {
            double n = 1;
            for (size_t a = e->spatial; a < e->extents.size(); ++a) n *= static_cast<double>(e->extents[a].constant());
            terms += n;
        }
    return std::ldexp(64 + 4 * std::sqrt(terms), -24);
}

OpCheck check_outputs(const Program& program, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                      double budget, uint64_t seed) {
    OpCheck check;
    check.tolerance = tolerance_of(program);
    check.sampled = point_count(program) > budget;
    std::vector<Sample> samples;
    if (check.sampled) {
        samples = take_samples(program, inputs, outputs, budget, seed);
    } else {
        std::vector<Tensor> expected = interpret(program, inputs);
        for (size_t k = 0; k < outputs.size(); ++k) samples.push_back({k, {}, outputs[k], std::move(expected[k])});
    }
    for (const Tensor& t : outputs) check.total += t.count();
    // One scale for all samples of an output: a sample with small elements does not represent the result's magnitude.
    std::vector<double> magnitude(outputs.size());
    for (const Sample& s : samples)
        for (int64_t i = 0; i < s.expected.count(); ++i)
            if (const double e = std::fabs(s.expected.get(i)); std::isfinite(e))
                magnitude[s.output] = std::max(magnitude[s.output], e);
    for (const Sample& s : samples) {
        const std::string name = program.values[program.outputs[s.output]].name;
        const double allowed = check.tolerance * magnitude[s.output];
        const Comparison c = compare(s.actual, s.expected, {0, allowed, 0}, fmt::format("output '{}'", name));
        check.elements += s.expected.count();
        if (magnitude[s.output] > 0) check.error = std::max(check.error, c.max_difference / magnitude[s.output]);
        if (!c.ok && check.ok) {
            check.ok = false;
            check.reason = c.reason;
            if (check.sampled) check.reason += fmt::format(", counted from {}", to_string(s.begin));
        }
    }
    return check;
}

std::string describe(const OpCheck& check) {
    return check.sampled ? fmt::format("{} of {} elements", check.elements, check.total)
                         : fmt::format("all {} elements", check.total);
}

}  // namespace tilewright
