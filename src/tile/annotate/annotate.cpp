#include "tile/annotate/annotate.h"

#include <algorithm>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/analysis/scalar_cost.h"
#include "program/constant_transform.h"
#include "tile/annotate/gpu.h"
#include "tile/annotate/prefetch.h"
#include "tile/cuts.h"
#include "tile/hoisted_scale.h"
#include "tile/matrix.h"
#include "tile/register_tile.h"

namespace tilewright {

namespace {

/// Per axis, the points at which its loops are cut.
std::vector<std::vector<Expr>> cuts_at(const StageSite& s, const std::optional<std::vector<size_t>>& only) {
    const TensorExpr& e = *s.expr;
    Ranges ranges;
    for (const Expr extent : e.extents) ranges.axes.push_back({Expr(0), extent - 1});
    ranges.loads.resize(e.accesses.size());
    for (const Access& a : e.accesses)
        for (size_t d = 0; d < a.index.size() && a.valid.empty(); ++d)
            if (auto v = a.index[d].as_var(); v && v->kind == VarKind::Load && v->id < ranges.loads.size())
                ranges.loads[v->id] = {Expr(0), std::nullopt};
    CutQuestion q;
    q.expr = &e;
    q.ranges = &ranges;
    for (size_t a = 0; a < e.spatial; ++a)
        q.may_cut.push_back((!s.vector_axis(a) || s.axes[a].full) && !in_blocks(e, a) &&
                            !(s.has_vector() && !s.vector_reduces() && between_lanes(e, *s.micro->vector_axis, a)) &&
                            (!only || std::find(only->begin(), only->end(), a) != only->end()));
    for (const OperandSite& operand : s.operands) q.checked.push_back(operand.checked);
    for (size_t a = 0; a < e.extents.size(); ++a)
        if (s.micro->registers.size() > a && !s.vector_axis(a))
            q.tile_points *= static_cast<size_t>(s.micro->registers[a]);
    if (s.has_vector() && !s.vector_reduces()) {
        q.vector_axis = s.micro->vector_axis;
        q.lanes = s.micro->lanes;
    }
    return choose_cuts(q);
}

std::vector<size_t> axes_with_cuts(const std::vector<std::vector<Expr>>& cuts) {
    std::vector<size_t> axes;
    for (size_t a = 0; a < cuts.size(); ++a)
        if (!cuts[a].empty()) axes.push_back(a);
    return axes;
}

/// Of sums of products of floats.
std::optional<Accumulators> derive_accumulators(const StageSite& s) {
    if (s.vector_reduces() || !is_float(s.expr->body.dtype()) || !contraction(*s.expr)) return std::nullopt;
    if (s.on_tiles() || s.on_dots()) return std::nullopt;
    const std::vector<size_t> loops = s.order(true);
    if (loops.empty() || s.register_tile(loops.back()) > 1) return std::nullopt;
    const Accumulators several = accumulators_for(s.axes[loops.back()].extent);
    return several.most > 1 ? std::optional(several) : std::nullopt;
}

/// Sums without the scale take the registers of as many vectors as the sums themselves.
std::optional<HoistScale> derive_hoisted_scale(const StageSite& s) {
    constexpr HoistScale kHoisted{12, 8};  // vectors, of 32 registers
    constexpr int64_t kLeastSteps = 8;     // that share a scale
    if (!s.has_vector() || s.vector_reduces() || s.on_tiles() || s.on_dots() || s.online) return std::nullopt;
    const std::vector<size_t> loops = s.order(true);
    const auto scale = hoisted_scale(*s.expr, *s.micro, loops);
    if (!scale) return std::nullopt;
    int64_t steps = 1;
    for (size_t k = scale->first_loop; k < loops.size(); ++k) steps *= s.axes[loops[k]].extent.value_or(kLeastSteps);
    return steps >= kLeastSteps ? std::optional(kHoisted) : std::nullopt;
}

/// An exponential for each of 28 sums, unrolled, is 700 instructions that LLVM orders by latency: constants, sums and
/// halves of exponentials are spilled. A loop keeps its constants in registers. For few sums it does not pay: its end
/// is mispredicted before the multiply-adds of the sum have retired.
std::optional<EpilogueLoop> derive_epilogue_loop(const StageSite& s) {
    constexpr double kLong = 16;   // instructions of an epilogue; an exponential counts 12
    constexpr int64_t kMany = 16;  // vectors
    constexpr int64_t kLeast = 4;  // steps
    const TensorExpr& e = *s.expr;
    // Sums of tile registers are in memory, from where a loop reads them.
    if (s.on_tiles()) return EpilogueLoop{{s.micro->matrix->rows}, 1, 2};
    if (e.reducer == Reducer::None || !s.has_vector() || s.vector_reduces() || body_operations(e.epilogue) < kLong)
        return std::nullopt;
    EpilogueLoop loop{{}, kMany, kLeast};
    int64_t vectors = 1;
    for (size_t a = 0; a < e.spatial; ++a) {
        vectors *= s.vector_axis(a) ? s.register_tile(a) / s.micro->lanes : s.register_tile(a);
        if (!s.vector_axis(a) && s.register_tile(a) >= kLeast) loop.axes.push_back(a);
    }
    if (vectors < kMany || loop.axes.empty()) return std::nullopt;
    return loop;
}

std::optional<NonTemporal> above_cache(const OperandSite& result, int64_t cache_bytes) {
    if (cache_bytes == 0 || !result.memory || result.near) return std::nullopt;
    if (!result.bytes.is_constant()) return cache_bytes;
    return result.bytes.constant() > cache_bytes ? std::optional(kNonTemporalAlways) : std::nullopt;
}

constexpr int64_t kLine = 64;  // bytes

/// Whether a step along the axis leads from one line of the result to the next.
bool next_line(const StageSite& s, size_t axis_number) {
    const Expr offset = strided_offset(result_index(*s.expr), s.result.strides);
    const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(axis_number)});
    return linear && linear->coefficient.is_constant(kLine / s.result.element_bytes);
}

/// Whether a register tile writes parts of more lines than a CPU combines in its buffers: they would go to memory part
/// by part.
///     36 points of a transform of 8 channels (32 bytes), 14 MB in all (128 channels of 112 x 112 pixels): 0.95 ms
///     through the caches, 3.0 around them (Zen 2)
bool writes_parts_of_lines(const StageSite& s) {
    constexpr int64_t kCombined = 8;
    if (!s.has_vector() || s.vector_reduces()) return false;
    int64_t rows = 1;
    for (size_t a = 0; a < s.expr->spatial; ++a)
        if (!s.vector_axis(a)) rows *= s.register_tile(a);
    return s.register_tile(*s.micro->vector_axis) * s.result.element_bytes < kLine && rows > kCombined;
}

/// A result that the kernel reads again stays in the caches. So do lines of several rows that are written in turn,
/// unless they are adjacent, as the pixels of a block of channels, or each row goes on with the next tile (measured: a
/// transposition whose rows did not took half as long again). A sum's tile is written after all its steps: its rows may
/// lie anywhere (products of 64 to 256 MB took 5 to 15 % less, depthwise convolutions 20 %).
std::optional<NonTemporal> derive_non_temporal(const StageSite& s, int64_t cache_bytes) {
    const auto above = above_cache(s.result, cache_bytes);
    if (!above || s.read_back || (s.partial && !s.apart) || writes_parts_of_lines(s)) return std::nullopt;
    const Micro& m = *s.micro;
    if (s.expr->reducer != Reducer::None || (!m.order.empty() && m.order.back() == m.vector_axis)) return above;
    for (size_t a = 0; a < s.expr->spatial; ++a)
        if (a != m.vector_axis && a < m.registers.size() && m.registers[a] != 1 && !next_line(s, a))
            return std::nullopt;
    return above;
}

/// Whether the left factor on tile registers is read again only after more than L1 keeps beside a panel of the right
/// one. Windows overlap: they read it again at once.
bool reads_left_from_afar(const StageSite& s) {
    constexpr int64_t kKept = 16 * 1024;
    const auto slots = s.on_tiles() ? tile_slots(*s.expr, *s.micro->matrix) : std::nullopt;
    if (!slots) return false;
    int64_t bytes = matrix_bytes(s.micro->matrix->type);
    for (size_t a = 0; a < s.axes.size(); ++a) {
        if (!moves_along(*s.expr, s.expr->accesses[slots->left], a)) continue;
        const int64_t extent = s.axes[a].extent.value_or(kKept);
        if (a >= s.expr->spatial && a != s.micro->matrix->sum && extent > 1) return false;
        bytes = std::min(bytes, kKept + 1) * extent;
    }
    return bytes > kKept;
}

/// Whether register tiles of the axis can have a tail whose size is unknown at compile time.
bool has_dynamic_tail(const StageSite& s, size_t a, const std::vector<Expr>& cuts) {
    const AxisSpan& span = s.axes[a];
    const bool constant_cuts = std::all_of(cuts.begin(), cuts.end(), [](Expr c) { return c.is_constant(); });
    if (!cuts.empty()) return !(span.extent && span.full && constant_cuts);
    return !span.extent && !(span.lo_multiple % s.register_tile(a) == 0 && s.expr->extents[a].is_constant());
}

bool may_shift(const StageSite& s, size_t a, const std::vector<size_t>& periodic) {
    return s.expr->reducer != Reducer::None && !s.partial && !s.online && s.virtual_threads(a) <= 1 &&
           std::find(periodic.begin(), periodic.end(), a) == periodic.end();
}

/// Whether a second tile along the axis would read something again that is not in a near cache.
bool reads_again_from_afar(const StageSite& s, size_t a) {
    for (size_t k = 0; k < s.operands.size(); ++k)
        if (s.operands[k].may_stream() && !moves_along(*s.expr, s.expr->accesses[k], a)) return true;
    return false;
}

/// Code for tiles in borders of one or two points would be half of the code of a depthwise convolution of 5 x 5 points.
constexpr int64_t kBorder = 2;

void derive_tails(Annotations& out, const StageSite& s, const std::vector<std::vector<Expr>>& cuts,
                  const std::vector<size_t>& periodic) {
    for (size_t a = 0; a < s.expr->spatial; ++a) {
        const int64_t tile = s.register_tile(a);
        if (s.vector_axis(a) || tile == 1 || !has_dynamic_tail(s, a, cuts[a])) continue;
        if (std::any_of(out.tails.begin(), out.tails.end(), [&](const Tail& t) { return t.axis == a; })) continue;
        Tail tail{a, {tile}, false, cuts[a].empty() ? 0 : kBorder};
        const bool whole = std::find(periodic.begin(), periodic.end(), a) != periodic.end() || in_blocks(*s.expr, a);
        if (s.on_tiles() && a == s.micro->matrix->rows) {
            // The number of rows is part of a tile register's shape, which may be dynamic.
            const int64_t tiles = (tile + kTileRows - 1) / kTileRows, height = (tile + tiles - 1) / tiles;
            tail.sizes.clear();
            for (int64_t t = 1; t < tiles; ++t) tail.sizes.push_back(t * height);
            tail.sizes.push_back(tile);
            tail.shift = may_shift(s, a, periodic);
        } else if (s.micro->padding != Padding::Local && !whole) {
            // Every size has the code of the whole sum.
            if (out.unroll_sum == true)
                tail.sizes = {1};
            else
                tail.sizes = reads_again_from_afar(s, a) ? tail_sizes(tile) : half_tail_sizes(tile);
        }
        out.tails.push_back(std::move(tail));
    }
}

void annotate_body(std::vector<Stmt>& body, TreePath& path, const TileProgram& program, const Walk& tree,
                   const AnnotateOptions& options) {
    for (size_t i = 0; i < body.size(); ++i) {
        path.push_back(i);
        if (auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
            annotate_body(loop->body, path, program, tree, options);
        } else if (auto* compute = std::get_if<Compute>(&body[i].kind)) {
            annotate(compute->micro.annotations, site_of(program, tree, path, *compute), options);
        } else if (auto* store = std::get_if<Store>(&body[i].kind); store != nullptr && !store->non_temporal) {
            OperandSite result = operand_site(program, tree, store->value);
            result.memory = true;
            store->non_temporal = above_cache(result, options.cache_bytes);
        }
        path.pop_back();
    }
}

}  // namespace

std::string_view to_string(PrefetchKind kind) {
    switch (kind) {
        case PrefetchKind::Task:
            return "task";
        case PrefetchKind::Panel:
            return "panel";
        case PrefetchKind::Rows:
            return "rows";
        case PrefetchKind::Window:
            return "window";
        case PrefetchKind::Map:
            return "map";
        case PrefetchKind::Epilogue:
            return "epilogue";
        case PrefetchKind::Next:
            return "next";
    }
    return "?";
}

const OperandRead* ThreadAccess::read(size_t access) const {
    const auto at = std::find_if(reads.begin(), reads.end(), [&](const OperandRead& r) { return r.access == access; });
    return at == reads.end() ? nullptr : &*at;
}

int64_t Accumulators::per_sum(int64_t results) const {
    return in_flight == 0 ? most : std::clamp<int64_t>(in_flight / results, 1, most);
}

std::optional<std::vector<size_t>> unrollable_sum(const StageSite& s, const std::vector<size_t>& cut) {
    if (s.partial || s.vector_reduces()) return std::nullopt;
    const auto map = constant_transform(*s.expr);
    if (!map) return std::nullopt;
    std::vector<size_t> periodic;
    for (size_t k = 0; k < map->rows.size(); ++k) {
        const size_t a = map->rows[k];
        const bool blocks =
            s.axes[a].lo_multiple % map->row_extents[k] == 0 && s.register_tile(a) % map->row_extents[k] == 0;
        if (s.vector_axis(a) || std::find(cut.begin(), cut.end(), a) != cut.end() || (map->periodic[k] && !blocks) ||
            s.virtual_threads(a) > 1)
            return std::nullopt;
        if (map->periodic[k]) periodic.push_back(a);
    }
    return periodic;
}

/// Sums that begin as partial sums or end with them. Those of several lanes, and tile registers, have one way.
bool may_resume_late(const StageSite& s) { return s.partial && !s.online && !s.vector_reduces() && !s.on_tiles(); }

/// Few steps would not cover the time in which partial sums arrive.
bool resumes_late(const StageSite& s) {
    constexpr int64_t kLeastSteps = 32;
    if (!may_resume_late(s) || s.expr->reducer != Reducer::Sum) return false;
    int64_t steps = 1;
    for (size_t a = s.expr->spatial; a < s.axes.size() && steps < kLeastSteps; ++a)
        steps *= s.axes[a].extent.value_or(kLeastSteps);
    return steps >= kLeastSteps;
}

void annotate(Annotations& a, const StageSite& s, const AnnotateOptions& options) {
    const std::vector<std::vector<Expr>> cuts = cuts_at(s, a.cut);
    const std::vector<size_t> cut = axes_with_cuts(cuts);
    if (!a.cut && !cut.empty()) a.cut = cut;
    if (!a.accumulators) a.accumulators = derive_accumulators(s);
    if (!a.hoist_scale) a.hoist_scale = derive_hoisted_scale(s);
    if (const auto rows = unrollable_sum(s, cut); !a.unroll_sum && rows)
        if (std::all_of(rows->begin(), rows->end(), [&](size_t r) { return whole_tails(a, r, s.register_tile(r)); }))
            a.unroll_sum = true;
    if (!a.epilogue_loop) a.epilogue_loop = derive_epilogue_loop(s);
    if (!a.non_temporal) a.non_temporal = derive_non_temporal(s, options.cache_bytes);
    if (!a.prefetch) {
        std::vector<Prefetch> prefetches = derive_prefetches(s, a);
        if (!prefetches.empty()) a.prefetch = std::move(prefetches);
    }
    if (!a.stream_left && options.one_thread && reads_left_from_afar(s)) a.stream_left = true;
    if (!a.resume_late && resumes_late(s)) a.resume_late = true;
    derive_tails(a, s, cuts,
                 a.unroll_sum == true ? unrollable_sum(s, cut).value_or(std::vector<size_t>()) : std::vector<size_t>());
}

TileProgram annotate(TileProgram program, const AnnotateOptions& options) {
    if (options.gpu) return gpu::annotate(std::move(program), *options.gpu);
    const TileProgram given = program;
    TreePath path;
    annotate_body(program.body, path, given, walk(given), options);
    return program;
}

namespace {

/// Whether every number of rows that a size has code for, those above the size before, reaches the last of its
/// registers.
///     16, 32: 17 to 32 rows are two registers;   1, 32: 2 rows would leave the second one empty
bool fills_tile_registers(const std::vector<int64_t>& sizes) {
    int64_t before = 0;
    for (const int64_t size : sizes) {
        const int64_t registers = (size + kTileRows - 1) / kTileRows, height = (size + registers - 1) / registers;
        if ((registers - 1) * height > before) return false;
        before = size;
    }
    return true;
}

}  // namespace

std::vector<std::string> annotation_faults(const Annotations& a, const StageSite& s) {
    const TensorExpr& e = *s.expr;
    std::vector<std::string> faults;
    const auto check = [&](bool legal, std::string what) {
        if (!legal) faults.push_back(std::move(what));
    };
    const auto spatial = [&](size_t axis) { return axis < e.spatial && !s.vector_axis(axis); };
    const std::vector<size_t> cut = a.cut ? *a.cut : axes_with_cuts(cuts_at(s, a.cut));
    const auto unrolled = a.unroll_sum == true ? unrollable_sum(s, cut) : std::nullopt;
    const std::vector<size_t> rows = unrolled.value_or(std::vector<size_t>());  // that repeat, in blocks
    if (a.accumulators) {
        const std::vector<size_t> loops = s.order(true);
        check(a.accumulators->most >= 1 && a.accumulators->most <= 16 && a.accumulators->in_flight >= 0,
              "a sum has 1 to 16 accumulators");
        check(a.accumulators->most <= 1 || (!loops.empty() && e.reducer != Reducer::None && !s.vector_reduces() &&
                                            s.register_tile(loops.back()) == 1),
              "several accumulators need a reduction whose innermost loop is neither vectorised nor unrolled");
    }
    check(!a.hoist_scale || a.hoist_scale->vectors == 0 ||
              (a.hoist_scale->vectors > 0 && a.hoist_scale->in_flight >= 1 && s.has_vector() && !s.vector_reduces() &&
               !s.on_tiles() && !s.on_dots() && hoisted_scale(e, *s.micro, s.order(true))),
          "a hoisted scale needs a product that inner loops of the reduction scale alike");
    check(a.unroll_sum != true || unrolled.has_value(),
          "an unrolled sum needs a constant-coefficient linear transform whose blocks its register tile covers");
    if (a.epilogue_loop && !a.epilogue_loop->axes.empty())
        check(e.reducer != Reducer::None && s.has_vector() && !s.vector_reduces() && a.epilogue_loop->vectors >= 1 &&
                  a.epilogue_loop->steps >= 1 &&
                  std::all_of(a.epilogue_loop->axes.begin(), a.epilogue_loop->axes.end(), spatial),
              "an epilogue loop needs a reduction and spatial axes beside a spatial vector axis");
    check(!a.non_temporal || *a.non_temporal == kNonTemporalNever || (s.result.memory && *a.non_temporal >= 0),
          "non-temporal stores need a result in memory");
    for (const Prefetch& p : a.prefetch.value_or(std::vector<Prefetch>()))
        check(may_prefetch(s, p), fmt::format("access {} has no {} to prefetch", p.access, to_string(p.kind)));
    check(!a.stream_left || s.on_tiles(), "only tile registers stream their left factor");
    check(a.resume_late != true || may_resume_late(s), "no partial sums can be added late");
    for (const Tail& t : a.tails) {
        const bool ascending =
            std::adjacent_find(t.sizes.begin(), t.sizes.end(), std::greater_equal<>()) == t.sizes.end();
        check(spatial(t.axis) && !t.sizes.empty() && t.sizes.front() >= 1 && ascending &&
                  t.sizes.back() <= s.register_tile(t.axis),
              "tail sizes ascend to the register tile, or to less, of a spatial axis that is not the vector axis");
        check(!s.on_tiles() || t.axis != s.micro->matrix->rows || fills_tile_registers(t.sizes),
              "a tail on tile registers leaves none of them empty");
        check(std::count_if(a.tails.begin(), a.tails.end(), [&](const Tail& u) { return u.axis == t.axis; }) == 1,
              "an axis has two tails");
        check(t.border >= 0, "a border has 0 points or more");
        check(std::find(rows.begin(), rows.end(), t.axis) == rows.end() ||
                  whole_tails(a, t.axis, s.register_tile(t.axis)),
              "a tail of an unrolled transform's blocks is one tile");
        check(!t.shift || t.sizes.back() == s.register_tile(t.axis),
              "a shifted tail is a whole tile, which must be one of its sizes");
        check(!t.shift || may_shift(s, t.axis, rows),
              "a shifted tail needs a whole reduction, whose results can be computed twice");
    }
    for (const size_t axis : a.cut.value_or(std::vector<size_t>()))
        check(axis < e.spatial && (!s.vector_axis(axis) || s.axes[axis].full),
              "loops are cut along spatial axes, along the vector axis where its range is whole");
    return faults;
}

}  // namespace tilewright
