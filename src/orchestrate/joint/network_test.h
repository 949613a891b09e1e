#pragma once
// A small network and its costs, for tests of the searches over layouts.

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "orchestrate/joint/evaluation.h"
#include "orchestrate/layouts.h"
#include "orchestrate/program_test.h"
#include "orchestrate/scheduling_test.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright::joint::test {

using namespace tilewright::test;

/// relu, a 3 x 3 convolution with padding and a residual, relu, a 1 x 1 convolution.
inline Program network(int channels = 16, int size = 12) {
    return with_weights(fmt::format(R"(program network {{
  input x: f32[1, {0}, {1}, {1}]
  input w0: f32[{0}, {0}, 3, 3]
  input w1: f32[{2}, {0}]
  a: f32[1, {0}, {1}, {1}] = [1, {0}, {1}, {1}] max(@0, 0.0) where @0 = x[i0, i1, i2, i3]
  c: f32[1, {0}, {1}, {1}] = [1, {0}, {1}, {1}] sum(i4 < {0}, i5 < 3, i6 < 3) mul(@0, @1) then add(acc, @2) where @0 = a[i0, i4, i2 + i5 - 1, i3 + i6 - 1] when i2 + i5 - 1 >= 0 and -i2 - i5 + {1} >= 0 and i3 + i6 - 1 >= 0 and -i3 - i6 + {1} >= 0 else 0, @1 = w0[i1, i4, i5, i6], @2 = x[i0, i1, i2, i3]
  r: f32[1, {0}, {1}, {1}] = [1, {0}, {1}, {1}] max(@0, 0.0) where @0 = c[i0, i1, i2, i3]
  y: f32[1, {2}, {1}, {1}] = [1, {2}, {1}, {1}] sum(i4 < {0}) mul(@0, @1) where @0 = r[i0, i4, i2, i3], @1 = w1[i1, i4]
  output y
}})",
                                    channels, size, 2 * channels));
}

inline PrimitiveId producer(const Program& p, const char* value) { return p.producers()[value_of(p, value)]; }

/// Costs of one target. With `measure`, kernels are measured by that function, one after the other.
struct Evaluator {
    Schedules schedules;
    Evaluation how;

    explicit Evaluator(MeasureKernel measure = {})
        : schedules(measured_by(avx2_scheduling(SchedulerKind::Auto), std::move(measure))), how(schedules, true) {}

    static Scheduling measured_by(Scheduling how, MeasureKernel measure) {
        if (measure) measure_kernels_by(how, std::move(measure));
        return how;
    }
};

inline MeasuredKernel seconds(double s) {
    MeasuredKernel out;
    out.seconds = s;
    return out;
}

struct Single {
    Program program;
    SinglePrimitive single;
    std::vector<Layout> rule;

    Single(Program of, const char* value) : program(std::move(of)) {
        const KernelExtractor extracted(program);
        single = single_primitive(program, extracted, producer(program, value));
        const ChosenLayouts chosen = choose_layouts(program, avx2_scheduling().target);
        for (const ValueId v : single.tensors) {
            const auto it = chosen.values.find(v);
            rule.push_back(it == chosen.values.end() ? Layout() : it->second);
        }
    }
};

}  // namespace tilewright::joint::test
