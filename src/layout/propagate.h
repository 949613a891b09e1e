#pragma once
// Which layouts the tensors around a tuned operator get (ALT §4.2), and the program that lies so.
//
// Complex operators (products, convolutions) are tuned one by one and say in which layout they write their result and
// read their operands. From there a layout spreads along elementwise primitives, so that their loops stay alike and
// fuse; a simple primitive in between reads one layout and writes another by itself; where two complex operators meet
// and want different things, a conversion stands between them.
//
//     pad -> conv             the padding writes what the convolution wants to read          (Fig. 5b)
//     conv -> relu -> conv    relu reads the first one's layout, writes the second one's
//     conv -> conv            conversion, if they differ                                     (Fig. 5a)
//     conv -> relu, add       both get the convolution's layout                              (Fig. 7)
//
// The three constraints: (1) along primitives whose result at [i] comes from the operand at [i], between tensors of one
// shape; (2) only layouts that do not expand data (no unfold, pad, store_at, nor a split that does not divide): the
// others are made by a conversion; (3) never onto the result of another complex operator.

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "layout/layout.h"
#include "program/program.h"

namespace tilewright {

struct PropagateOptions {
    /// Stay row-major, whatever is asked. See `row_major_values`.
    std::set<ValueId> fixed;
    /// Who is tuned by itself; by default whoever is Category::Linear.
    std::function<bool(const Program&, const Primitive&)> complex;
    /// From results back to operands too.
    bool upstream = true;
    /// Beyond the paper: also through simple primitives that change the shape but keep the dimensions that the layout
    /// splits or moves (pooling keeps channels).
    bool kept_dimensions = false;
};

/// Values whose layout is not ours: inputs and outputs of the program, and what no tensor expression reads or makes.
std::set<ValueId> row_major_values(const Program& program);

/// True when the layout holds more elements than the tensor, or may.
bool expands(const Layout& layout, std::span<const Expr> shape);

/// `chosen` without what is fixed, and what it spreads to. Where several operands bring a layout the first decides.
std::map<ValueId, Layout> propagate_layouts(const Program& program, std::map<ValueId, Layout> chosen,
                                            const PropagateOptions& options);

using Reader = std::pair<PrimitiveId, size_t>;  ///< a primitive and one of its accesses

/// What the tuned operators want.
struct LayoutWishes {
    std::map<ValueId, Layout> written;  ///< by who makes the value
    std::map<Reader, Layout> read;
};

struct LayoutPlan {
    std::map<ValueId, Layout> values;  ///< absent: row-major
    /// A copy of a value in another layout, for these readers. Of a constant it is made at compile time.
    struct Conversion {
        ValueId value;
        Layout layout;
        std::vector<Reader> readers;
    };
    std::vector<Conversion> conversions;
};

/// Fulfils every wish: by the value's own layout where its producer is free to give it (in order of the primitives, the
/// first reader decides), else by a conversion. Then spreads layouts to the other values.
LayoutPlan plan_layouts(const Program& program, const LayoutWishes& wishes, const PropagateOptions& options);

/// The program with every shape and index rewritten (S_X(S_Y^-1(L')) of ALT §6), constants moved, conversions inserted
/// behind what they convert. Its inputs and outputs are as before if they are row-major in the plan. Computed values
/// must not have layouts that expand (InternalError).
Program apply_layouts(const Program& program, const LayoutPlan& plan);

}  // namespace tilewright
