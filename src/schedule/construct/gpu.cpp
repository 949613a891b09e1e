// Gensor's states on a GPU: a block's tile in shared memory, and the tile of a thread, or of a warp on matrix
// instructions.

#include <algorithm>

#include "schedule/construct/etir.h"
#include "schedule/gpu/gpu_nest.h"
#include "tile/gpu_memory.h"
#include "tile/matrix.h"

namespace tilewright::construct {

namespace {

constexpr size_t kGpuLevels = 2;
constexpr double kMargin = 1.2;        // tolerated excess of estimated bytes: MCFuser's rule 4
constexpr int64_t kMostOfBlock = 256;  // points of a block along rows or columns
constexpr int64_t kMostOthers = 16;    // and along any other axis of a product
constexpr int kMostAhead = 4;
constexpr int64_t kMostSums = 128;  // accumulator registers of a thread in a WGMMA product

class GpuStates : public StateModel {
  public:
    GpuStates(const Program& stages, const std::optional<GpuProduct>& product, const GpuTarget& target)
        : expr_(*stages.primitives[PrimitiveId(0)].expr()),
          product_(product),
          target_(target),
          nest_(stages, product),
          whole_steps_(product && product->group && !zeros_behind_sum(stages, expr_, *product)) {}

    const GpuNest& nest() const { return nest_; }

    double footprint(const Problem& p, const Etir& e, size_t level) const override {
        if (level == 0) {
            const GpuRegisters r = gpu_registers(p.stage, micro_of(p, e));
            const double all = 4 * (kGpuOtherRegisters + r.results + r.operands);
            return group() && r.results > kMostSums ? std::max(all, 4.0 * target_.thread_registers + 1) : all;
        }
        if (product_) return static_cast<double>(nest_.copy_bytes(e.tiles[level]));
        double n = 0;
        for (const OperandModel& o : p.stage.operands) n += o.bytes(e.tiles[level]);
        return n;
    }
    /// Shared memory for the copies of a step. Without copies, reads go through the same memory as a cache.
    double capacity(const Problem&, size_t level) const override {
        if (level == 0) return 4.0 * target_.thread_registers;
        return product_ ? kMargin * static_cast<double>(target_.block_shared_bytes)
                        : static_cast<double>(target_.sm_shared_bytes);
    }
    double transfer(size_t level, double bytes) const override {
        return level < kGpuLevels ? gpu_shared_seconds(target_, bytes) : gpu_memory_seconds(target_, bytes);
    }
    double interleaving(const Problem& p, const Etir& before, const Etir& after, size_t axis) const override {
        const Micro without = micro_of(p, before), with = micro_of(p, after);
        double most = 0;
        for (const GpuCopy& c : nest_.copies())
            if (p.stage.operands[c.access()].depends[axis])
                most = std::max(
                    most, c.conflicts(p.stage, without, before.tiles[1]) / c.conflicts(p.stage, with, after.tiles[1]));
        return most > 0 ? most : 1;
    }

    Realised realise(const Problem& p, const Etir& e) const override {
        Realised out;
        out.state = e;
        const size_t n = p.stage.extents.size();
        std::vector<std::vector<int64_t>>& tiles = out.state.tiles;
        for (size_t a = 0; a < n; ++a) set(p, tiles, a, tiles[1][a]);
        if (product_) {
            while (threads(p, tiles) > kGpuBlockThreads && halve(p, tiles, longest(p, tiles))) {
            }
            while (nest_.copy_bytes(tiles[1]) > target_.block_shared_bytes &&
                   (halve(p, tiles, product_->sum) || halve(p, tiles, longest(p, tiles)))) {
            }
        }
        out.micro = micro_of(p, out.state);
        out.stored = product_.has_value();
        const auto cut = [&](size_t a) {
            if (tiles[1][a] < p.stage.extents[a]) out.loops.push_back({a, tiles[1][a]});
        };
        for (size_t a = 0; a < p.stage.spatial; ++a) cut(a);
        out.parallel = out.loops.size();
        for (size_t a = p.stage.spatial; a < n; ++a) cut(a);
        out.copies_at = out.loops.size();
        // The model chooses the pipeline depth. Every further step in flight takes the same amount of shared memory
        // again.
        out.seconds = 1e300;
        if (whole_steps_ && p.stage.extents[product_->sum] % tiles[1][product_->sum] != 0) return out;
        const int64_t bytes = nest_.copy_bytes(tiles[1]);
        for (int ahead = 1; ahead <= kMostAhead; ++ahead) {
            if (ahead > 1 && (bytes == 0 || ahead * bytes > target_.block_shared_bytes || ahead > steps(p, tiles)))
                break;
            const double seconds = gpu_estimate(nest_.work(out.micro, tiles[1], ahead, target_), target_).seconds;
            if (seconds >= out.seconds) continue;
            out.seconds = seconds;
            out.ahead = ahead;
        }
        return out;
    }

    std::vector<Stmt> copies(const Program& stages, const Problem&, const Realised& r) const override {
        std::vector<Stmt> out;
        TileProgram bare;
        bare.stages = stages;
        for (const Load& load : nest_.loads())
            out.push_back(Stmt{*gpu_load(bare, PrimitiveId(0), load.access, *product_, &r.micro)});
        return out;
    }

    /// The micro-kernel of a state.
    Micro micro_of(const Problem& p, const Etir& e) const {
        if (!product_) {
            Micro m = p.micro;
            m.registers = e.tiles[0];
            return m;
        }
        GpuTiles tiles;
        const int64_t unit = p.units[product_->sum];
        tiles.sum = (e.tiles[1][product_->sum] + unit - 1) / unit * unit;
        tiles.warp_rows = e.tiles[0][product_->rows];
        tiles.warp_columns = e.tiles[0][product_->columns];
        Micro m = gpu_micro(expr_, *product_, tiles);
        if (!product_->matrix) m.virtual_threads = e.virtual_threads;
        return m;
    }

  private:
    bool group() const { return product_ && product_->group; }
    /// Sets a block's tile to the fewest whole register tiles that cover `wanted`. A warpgroup's tile stays inside the
    /// product, because an instruction reads all of it.
    void set(const Problem& p, std::vector<std::vector<int64_t>>& tiles, size_t a, int64_t wanted) const {
        const bool summed = group() && a == product_->sum;
        const int64_t unit = a < p.stage.spatial ? tiles[0][a] : summed ? p.units[a] : 1;
        const int64_t rounded = (std::max<int64_t>(1, wanted) + unit - 1) / unit * unit;
        const bool whole = group() && (summed || a == product_->rows || a == product_->columns);
        tiles[1][a] = std::min(rounded, whole ? p.stage.extents[a] / unit * unit : p.stage.extents[a]);
    }
    static int64_t count(const std::vector<std::vector<int64_t>>& tiles, size_t a) {
        return (tiles[1][a] + tiles[0][a] - 1) / tiles[0][a];
    }
    int64_t threads(const Problem& p, const std::vector<std::vector<int64_t>>& tiles) const {
        int64_t n = group() ? 4 * target_.warp : product_ && product_->matrix ? target_.warp : 1;
        for (size_t a = 0; a < p.stage.spatial; ++a) n *= count(tiles, a);
        return n;
    }
    /// The axis along which the block has the most register tiles.
    static size_t longest(const Problem& p, const std::vector<std::vector<int64_t>>& tiles) {
        size_t best = 0;
        for (size_t a = 1; a < p.stage.spatial; ++a)
            if (count(tiles, a) > count(tiles, best)) best = a;
        return best;
    }
    /// Halves the register tiles along a spatial axis, or the step along a reduction. False where there is only one.
    bool halve(const Problem& p, std::vector<std::vector<int64_t>>& tiles, size_t a) const {
        const int64_t unit = a < p.stage.spatial ? tiles[0][a] : p.units[a];
        const int64_t units = (tiles[1][a] + unit - 1) / unit;
        if (units < 2) return false;
        set(p, tiles, a, (units + 1) / 2 * unit);
        return true;
    }
    /// Steps of the loop over the reduction.
    int64_t steps(const Problem& p, const std::vector<std::vector<int64_t>>& tiles) const {
        if (!product_) return 1;
        return (p.stage.extents[product_->sum] + tiles[1][product_->sum] - 1) / tiles[1][product_->sum];
    }

    TensorExpr expr_;
    std::optional<GpuProduct> product_;
    GpuTarget target_;
    GpuNest nest_;
    bool whole_steps_;  ///< steps must divide the sum
};

constexpr int64_t kGroupSum = 32;  ///< points of the sum in a warpgroup's step, at least

/// The sizes up to `most`, and at least the first.
std::vector<int64_t> up_to(std::vector<int64_t> sizes, int64_t most) {
    while (sizes.size() > 1 && sizes.back() > most) sizes.pop_back();
    return sizes;
}

}  // namespace

std::optional<Problem> make_gpu_problem(const Program& stages, const Target& target, Precision precision, bool group) {
    const GpuTarget& gpu = *target.gpu;
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const ValueId result = stages.primitives[id].outputs[0];
    auto product = gpu_product(stages, e, result, precision);
    if (group) {
        if (!product) return std::nullopt;
        product = on_groups(stages, e, *product, gpu);
        if (!fits_group(stages, e, *product, gpu) || guess(e.extents[product->sum]) < kGroupSum ||
            guess(e.extents[product->columns]) < kMatrixColumns ||
            (guess(e.extents[product->sum]) % kGroupSum != 0 && !zeros_behind_sum(stages, e, *product)))
            return std::nullopt;
    }
    const auto states = std::make_shared<const GpuStates>(stages, product, gpu);
    const size_t n = e.extents.size();
    Problem p;
    p.stage = states->nest().stage();
    p.contraction = product.has_value();
    p.virtual_threads = product && !product->matrix;
    for (const Expr& x : e.extents) p.dynamic.push_back(!x.is_constant());
    for (const Load& load : states->nest().loads()) p.loads.push_back(load.access);
    p.units.assign(n, 1);
    std::vector<std::vector<int64_t>> block, own;
    const std::set<size_t> inside = group ? axes_inside_rows(e, *product) : std::set<size_t>();
    if (product) {
        const bool matrix = product->matrix.has_value();
        const int64_t least_rows = group ? kGroupRows : matrix ? 16 : 1;
        const int64_t least_sum = group ? kGroupSum : matrix ? 16 : 8;
        p.micro = gpu_micro(e, *product, {16, 8, least_sum, least_rows, matrix ? 8 : 4, 1});
        p.units[product->rows] = group ? kGroupRows : matrix ? kMatrixRows : 1;
        p.units[product->columns] = matrix ? kMatrixColumns : 4;
        p.units[product->sum] = least_sum;
        for (size_t a = 0; a < n; ++a) {
            const int64_t extent = p.stage.extents[a];
            const bool row = a == product->rows, column = a == product->columns;
            if (a >= e.spatial)
                block.push_back(a == product->sum ? up_to(candidate_sizes(extent, p.units[a]), matrix ? 128 : 64)
                                                  : std::vector<int64_t>{extent});
            else if (inside.count(a) != 0)
                block.push_back({1});
            else
                block.push_back(up_to(candidate_sizes(extent, p.units[a]), row || column ? kMostOfBlock : kMostOthers));
            own.push_back({1});
            if (row)
                own.back() = up_to(group    ? std::vector<int64_t>{64, 128}
                                   : matrix ? std::vector<int64_t>{16, 32, 64}
                                            : std::vector<int64_t>{1, 2, 4, 8, 16},
                                   extent);
            if (column)
                own.back() = up_to(group    ? std::vector<int64_t>{8, 16, 32, 64, 128, 256}
                                   : matrix ? std::vector<int64_t>{8, 16, 32, 64}
                                            : std::vector<int64_t>{4, 8, 16},
                                   extent);
        }
    } else {
        p.micro = choose_micro(stages, e, DType::F32, target).micro;
        if (p.micro.vector_axis) p.units[*p.micro.vector_axis] = std::max<int64_t>(1, p.micro.lanes);
        for (size_t a = 0; a < n; ++a) {
            const int64_t given = a < p.micro.registers.size() ? std::max<int64_t>(1, p.micro.registers[a]) : 1;
            own.push_back({std::max(given, p.units[a])});
            block.push_back(a < e.spatial ? candidate_sizes(p.stage.extents[a], p.units[a])
                                          : std::vector<int64_t>{p.stage.extents[a]});
        }
    }
    p.tile_sizes = {std::move(own), std::move(block)};
    p.model = states;
    measure_smallest(p);
    if (product && p.smallest[1] > static_cast<double>(gpu.block_shared_bytes)) return std::nullopt;
    return p;
}

}  // namespace tilewright::construct
