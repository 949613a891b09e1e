#include "cost/gpu_slots.h"

#include <algorithm>

#include "program/analysis/scalar_cost.h"
#include "program/scalar_ops.h"
#include "tile/late_factor.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

constexpr double kWarp = 32;
constexpr double kGroupSlots = 5;         ///< of a warpgroup instruction, with its descriptors
constexpr double kWarpSlots = 2;          ///< of a warp's matrix instruction, with its operands
constexpr double kRowSlots = 20;          ///< of an online maximum, for a row: shuffles, its factor, correction
constexpr int64_t kGroupColumns = 256;    ///< of one instruction
constexpr int64_t kWarpProduct = 16 * 8;  ///< results of a warp's instruction
constexpr double kRowThreads = 4;         ///< that have the same row

double product_of(std::span<const int64_t> tile) {
    double n = 1;
    for (const int64_t t : tile) n *= static_cast<double>(t);
    return n;
}

double pieces(int64_t n, int64_t of) { return static_cast<double>((n + of - 1) / of); }

/// Of one evaluation: an exponential is an instruction of its own, whose subtraction is a multiply-add.
double slots_of(const ScalarBody& body) {
    if (body.empty()) return 0;
    double slots = body_operations(body);
    for (const ScalarNode& n : body.nodes())
        if (scalar_op_info(n.op).cuda == "exp") slots -= operation_cost(n.op) - 1;
    return slots;
}

}  // namespace

GpuSlots::GpuSlots(const TileProgram& program, const Walk& tree, const std::set<ValueId>& held)
    : p_(program),
      tree_(tree),
      held_(held),
      online_(online_stages(program, tree)),
      scales_(online_scales(program.stages, online_maxima(program))) {}

bool GpuSlots::copied(PrimitiveId stage, size_t access) const {
    return std::any_of(tree_.loads.begin(), tree_.loads.end(),
                       [&](const auto& l) { return l.second->stage == stage && l.second->access == access; });
}

double GpuSlots::of_product(const TensorExpr& e, const MatrixUnit& unit, std::span<const int64_t> tile) const {
    const int64_t sum = matrix_sum(unit.type);
    if (!unit.group())
        return kWarpSlots * product_of(tile) / static_cast<double>(tile[unit.sum]) * pieces(tile[unit.sum], sum) /
               static_cast<double>(kWarpProduct);
    double instructions =
        pieces(tile[unit.rows], kGroupRows) * pieces(tile[unit.columns], kGroupColumns) * pieces(tile[unit.sum], sum);
    for (size_t a = 0; a < tile.size(); ++a)
        if (a != unit.rows && a != unit.columns && a != unit.sum) instructions *= static_cast<double>(tile[a]);
    constexpr double kWarps = 4;
    double slots = kWarps * kGroupSlots * instructions;
    // A left operand in registers is packed: a word has two halves, or one number of tf32.
    if (std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) { return held(a.value); }))
        slots +=
            static_cast<double>(tile[unit.rows] * tile[unit.sum]) / kWarp / (unit.type == MatrixType::TF32 ? 1 : 2);
    return slots;
}

double GpuSlots::of(const TreePath& path, const Compute& compute, std::span<const int64_t> tile) const {
    const PrimitiveId stage = compute.stage;
    const Primitive& primitive = p_.stages.primitives[stage];
    const TensorExpr& e = *primitive.expr();
    const ValueId out = primitive.outputs[0];
    const double points = product_of(tile), results = product_of(tile.first(e.spatial));
    double slots = 0;
    if (compute.micro.matrix) {
        slots = of_product(e, *compute.micro.matrix, tile);
    } else {
        slots = points / kWarp * (slots_of(e.body) + (e.reducer == Reducer::None ? 0 : 1));
        for (size_t i = 0; i < e.accesses.size(); ++i)
            if (!held(e.accesses[i].value) && !copied(stage, i)) slots += points / kWarp;
    }
    if (compute.online) slots += kRowSlots * results * kRowThreads / kWarp;
    if (rescaled_sum(p_, tree_, online_, scales_[stage], stage, path)) slots += results / kWarp;
    const std::optional<LateFactor> late = held(out) ? late_factor(e.epilogue) : std::nullopt;
    slots += slots_of(late ? late->epilogue : e.epilogue) * results / kWarp;
    // What is in shared memory is written, and a partial sum is read before.
    if (!held(out)) slots += (e.reducer == Reducer::None ? 1 : 2) * results / kWarp;
    return slots;
}

}  // namespace tilewright
