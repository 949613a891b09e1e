#pragma once
// Layout propagation around tuned operators (ALT §4.2), and the rewriting of a program to the chosen layouts.
//
// Complex operators (products, convolutions) are tuned one by one, and each requests layouts for its result and its
// operands. A layout is propagated along elementwise primitives, so that their loops stay aligned and can be fused. A
// simple primitive between two layouts reads one and writes the other by itself. A conversion is inserted between two
// complex operators with different layouts.
//
//     pad -> conv             the padding writes the layout that the convolution reads      (Fig. 5b)
//     conv -> relu -> conv    relu reads the first one's layout, writes the second one's
//     conv -> conv            conversion, if they differ                                     (Fig. 5a)
//     conv -> relu, add       both get the convolution's layout                              (Fig. 7)
//
// The three constraints of propagation: (1) only along primitives whose result at [i] depends on the operand at [i],
// between tensors of one shape; (2) only for layouts that do not expand data (no unfold, pad, store_at, nor a split
// that does not divide): the others need a conversion; (3) never onto the result of another complex operator.

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "layout/layout.h"
#include "program/program.h"

namespace tilewright {

struct PropagateOptions {
    /// These values stay row-major, whatever is requested. See `row_major_values`.
    std::set<ValueId> fixed;
    /// Primitives that are tuned separately; by default those of Category::Linear.
    std::function<bool(const Program&, const Primitive&)> complex;
    /// Propagate from results to operands as well.
    bool upstream = true;
    /// Beyond the paper: propagate through simple primitives that change the shape but keep the dimensions that the
    /// layout splits or moves (pooling keeps channels).
    bool kept_dimensions = false;
};

/// Values with a fixed layout: inputs and outputs of the program, and values of primitives without expression.
std::set<ValueId> row_major_values(const Program& program);

/// True if the layout has, or may have, more elements than the tensor.
bool expands(const Layout& layout, std::span<const Expr> shape);

/// `chosen` without fixed values, and layouts propagated from it. The first operand with a layout wins.
std::map<ValueId, Layout> propagate_layouts(const Program& program, std::map<ValueId, Layout> chosen,
                                            const PropagateOptions& options);

using Reader = std::pair<PrimitiveId, size_t>;  ///< a primitive and one of its accesses

/// The layouts that the tuned operators request.
struct LayoutRequests {
    std::map<ValueId, Layout> written;  ///< for the primitive that produces the value
    std::map<Reader, Layout> read;
};

struct LayoutPlan {
    std::map<ValueId, Layout> values;  ///< absent: row-major
    /// A copy of a value in another layout, for these readers. Copies of constants are made at compile time.
    struct Conversion {
        ValueId value;
        Layout layout;
        std::vector<Reader> readers;
    };
    std::vector<Conversion> conversions;
};

/// Satisfies every request: by the value's own layout if its producer allows it (in order of the primitives, the first
/// reader wins), otherwise by a conversion. Then propagates layouts to the other values.
LayoutPlan plan_layouts(const Program& program, const LayoutRequests& requests, const PropagateOptions& options);

/// Whether the result can be written in a layout that expands: every dimension is indexed by an axis of its own.
bool can_expand(const TensorExpr& e);

/// Rewrites every shape and index (S_X(S_Y^-1(L')) of ALT §6), transforms constants, and inserts each conversion after
/// the producer of its value. Inputs and outputs of the program are unchanged if they are row-major in the plan. In a
/// layout that expands, every copy of an element is computed (see `can_expand`; else InternalError).
Program apply_layouts(const Program& program, const LayoutPlan& plan);

}  // namespace tilewright
