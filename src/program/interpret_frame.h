#pragma once
// Evaluation of a scalar body over runs of points along one axis. Internal to the interpreter.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "program/interpret_lanes.h"
#include "program/interpret_plan.h"

namespace tilewright::interp {

/// A Form, divided by how its terms vary over a run of lanes.
struct LaneForm {
    int64_t constant = 0;
    int64_t step = 0;  ///< per lane
    std::vector<std::pair<uint32_t, int64_t>> axes, scalars,
        columns;  ///< the other terms, sparse; columns vary within the run
    bool affine() const { return columns.empty(); }
    bool varies() const { return step != 0 || !columns.empty(); }
};

struct LaneCheck {
    LaneForm index;
    int64_t dimension = 0;
    size_t position = 0;
};

struct LaneAccess {
    uint32_t slot = 0;
    LaneForm address;
    std::vector<LaneCheck> checks;
    std::vector<LaneForm> conditions;
    bool affine = true;
    bool varies = true;
};

struct LaneRegister {
    LaneForm a, b;
    bool varies = false;
};

struct Step {
    enum class Kind : uint8_t { Register, Access, Node };
    Kind kind = Kind::Node;
    uint32_t id = 0;
};

struct Frame {
    size_t lane_axis = 0;
    const ScalarBody* body = nullptr;
    std::vector<LaneRegister> registers;  ///< indexed by register; registers not in `steps` are empty
    std::vector<LaneAccess> accesses;     ///< indexed by slot
    std::vector<LaneForm> index;          ///< indexed by node
    std::vector<char> node_varies;
    std::vector<Step> steps;
    bool products = false;  ///< the root is a product of two affine float accesses and no other node is live
    uint32_t product_a = 0, product_b = 0;
};

/// A sum of products in which one factor is invariant along a spatial axis: several rows reuse it.
///     c[i0, i1] = sum(i2) mul(a[i0, i2], b[i2, i1]), rows along i1: b's run serves several i0
struct ProductBlock {
    size_t axis = 0;
    uint32_t fixed = 0, moving = 0;  ///< slots of the invariant and the varying access
    int64_t step = 0;                ///< address step of the varying access along the axis
};
/// The longest such axis of `frame`.
std::optional<ProductBlock> product_block(const Plan& plan, const Frame& frame);

/// `index`: the forms of the body's Index nodes, indexed by node.
Frame make_frame(const Plan& plan, const ScalarBody& body, const std::vector<Form>& index, size_t lane_axis);

/// Evaluates a frame at points; one instance per thread and frame. `axes` is the current point, shared with the
/// function that advances it.
class FrameRunner {
  public:
    FrameRunner(const Plan& plan, const Frame& frame, std::vector<int64_t>& axes);

    /// The source of an epilogue's Acc.
    Column acc() const { return acc_; }
    /// The root at lanes [0, n), starting at the current point.
    Column run(int64_t n);
    /// For a frame with `products`: acc[l] += product at lane l; with `horizontal`, their sum is added to acc[0].
    void run_products(double* acc, int64_t n, bool horizontal);
    /// For a frame with a reuse block: acc[t][l] += product at lane l, t steps along the block's axis, t < rows.
    void run_products(const ProductBlock& block, std::span<const Column> acc, int64_t n);
    /// For a frame whose only access is the output's write: writes lanes [0, n).
    void write(Tensor& out, Column in, DType dtype, int64_t n);

  private:
    Strided strided(const LaneAccess& a) const;
    int64_t start(const LaneForm& f) const;
    void spread(const LaneForm& f, Column out, int64_t n) const;
    [[noreturn]] void out_of_bounds(uint32_t slot, const LaneCheck& c, int64_t index) const;
    void valid_lanes(const LaneAccess& a, int64_t n, int64_t& lo, int64_t& hi) const;
    void run_access(const LaneAccess& a, int64_t n);
    void gather(const LaneAccess& a, const AccessPlan& plan, Column out, int64_t n);
    void run_register(uint32_t id, int64_t n);
    void run_node(uint32_t id, int64_t n);

    const Plan& plan_;
    const Frame& frame_;
    std::vector<int64_t>& axes_;
    std::vector<int64_t> scalars_;  ///< registers that are uniform over the run
    ColumnStore store_;
    std::vector<Column> registers_, accesses_, nodes_;
    Column scratch_a_, scratch_b_, acc_;
};

}  // namespace tilewright::interp
