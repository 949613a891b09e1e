#pragma once
// Choice of layouts, and their application to a program.

#include <cstdint>
#include <map>

#include "layout/propagate.h"
#include "orchestrate/options.h"
#include "program/program.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

/// A program, and the layouts of those values that are not row-major. The program may differ from the given one: it has
/// copies of inputs and outputs whose row-major layout would be much slower to read or write.
struct ChosenLayouts {
    Program program;
    std::map<ValueId, Layout> values;
};
/// How layouts are propagated in this folder: between tuned operators with weights, along kept dimensions, and not to
/// constants. `fixed` has the constants only.
PropagateOptions layout_propagation(const Program& program);
enum class Boundary : uint8_t {
    RowMajor,  ///< inputs and outputs are row-major
    Free       ///< any layout, for a part of a program that is only evaluated
};
/// Chooses layouts by the default heuristic.
ChosenLayouts choose_layouts(const Program& program, const Target& target, Boundary boundary = Boundary::RowMajor);
enum class Contents : uint8_t {
    Moved,    ///< packed constants are permuted
    Anything  ///< contents are unspecified, for a program that is only evaluated
};
struct LayOutOptions {
    Contents contents = Contents::Moved;
    Precision precision = Precision::F32;  ///< of products on a GPU
    /// ALT's store_at (§4.1.2): the bias of a product becomes one more row of its packed weights, where these are f32
    /// as well and nothing else reads them. Every panel of columns is then followed by their part of the bias.
    ///     w[k, n] -> [n / 32, k, n % 32], b[n]   ->   [n / 32, k + 1, n % 32], b[n] = w[n / 32, k, n % 32]
    bool store_biases = false;
};
/// As orchestration has them: the precision, and store_at where layouts are tuned (joint::Options).
LayOutOptions lay_out_options(const OrchestrateOptions& options, Contents contents);
/// The program with these layouts: every index map is rewritten, and the weights of products are packed for their
/// micro-kernels: on a GPU, for products on matrix instructions, contiguous along the sum. Layouts must not expand.
/// Values keep their ids. A constant without other owners is freed as soon as the last of its packed copies is made.
Program lay_out(Program program, const std::map<ValueId, Layout>& layouts, const Target& target,
                const LayOutOptions& options = {});
/// Chooses and applies layouts, for a program that will run.
Program assign_layouts(const Program& program, const Target& target);
/// A primitive that copies a value to another one of the same shape, possibly of another layout.
Primitive layout_copy(const Program& program, ValueId from, ValueId to);

}  // namespace tilewright
