#include "tile/annotate/prefetch.h"

#include <algorithm>

#include "program/analysis/access.h"
#include "program/constant_transform.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

bool reads(const ScalarBody& body, size_t access) {
    const std::vector<uint32_t> slots = body.slots();
    return std::find(slots.begin(), slots.end(), access) != slots.end();
}

/// Whether lanes read elements of their own.
bool on_vector(const StageSite& s, size_t access) {
    return s.has_vector() && moves_along(*s.expr, s.expr->accesses[access], *s.micro->vector_axis);
}

/// The offset of an element in memory over the stage's axes.
Expr element_number(const StageSite& s, size_t access) {
    Expr sum = 0;
    const std::vector<Expr>& index = s.expr->accesses[access].index;
    for (size_t d = 0; d < index.size(); ++d) sum += index[d] * s.operands[access].strides[d];
    return sum;
}

std::optional<int64_t> stride_along(Expr offset, size_t axis_number) {
    const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(axis_number)});
    if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
    return linear->coefficient.constant();
}

/// Whether a sum reads new elements of this access with every step, and none of them twice in a tile. Neighbouring
/// windows overlap: what a tile reads of them is in a near cache already, and prefetching it takes longer.
bool is_panel(const TensorExpr& e, size_t access) {
    bool moves = false;
    for (size_t a = e.spatial; a < e.extents.size(); ++a) moves = moves || moves_along(e, e.accesses[access], a);
    if (e.reducer == Reducer::None || !moves) return false;
    const auto overlaps = [&](Expr index) {              // 2 * i0 + i3 with i3 < 5; not 64 * i0 + i3 with i3 < 64
        std::vector<std::pair<int64_t, int64_t>> steps;  // of each axis, and how many points it has
        for (const Var v : variables(index)) {
            const auto linear = linear_in(index, v);
            if (v.kind != VarKind::Axis || !linear || !linear->coefficient.is_constant()) continue;
            const Expr points = e.extents[v.id];
            steps.emplace_back(std::abs(linear->coefficient.constant()), points.is_constant() ? points.constant() : 2);
        }
        std::sort(steps.begin(), steps.end());
        for (size_t k = 0; k + 1 < steps.size(); ++k)
            if (steps[k + 1].first < steps[k].first * steps[k].second) return true;
        return false;
    };
    const std::vector<Expr>& index = e.accesses[access].index;
    return std::none_of(index.begin(), index.end(), overlaps);
}

/// Of several stages over the same rows, the last to read an input prefetches the row of the next task: while the
/// stages compute, memory would be idle.
std::optional<Prefetch> task_row(const StageSite& s, size_t access) {
    constexpr int64_t kFarthest = 128 * 1024;  // bytes of a row that stays in the second-level cache beside this one
    const OperandSite& operand = s.operands[access];
    if (!s.task_axis || !operand.streams() || !operand.last_read || !on_vector(s, access)) return std::nullopt;
    const auto stride = stride_along(element_number(s, access), *s.task_axis);
    const int64_t bytes = stride.value_or(0) * s.task_step * operand.element_bytes;
    if (bytes <= 0 || bytes > kFarthest) return std::nullopt;
    return Prefetch{access, PrefetchKind::Task, bytes};
}

/// The bytes from a panel of the factor that moves along the vectors to the next one, if there are several, each for
/// more than one tile of rows. Of a blocked reduction: from the panel of a block to that of the next, which is one of
/// the same columns unless the loop over columns is the innermost one.
std::optional<int64_t> bytes_of_panel(const StageSite& s, size_t access) {
    const TensorExpr& e = *s.expr;
    const auto slots = s.on_tiles() ? tile_slots(e, *s.micro->matrix) : std::nullopt;
    if (s.on_tiles() ? !slots || slots->right != access : !on_vector(s, access) || s.vector_reduces())
        return std::nullopt;
    const size_t columns = *s.micro->vector_axis;
    const int64_t block = s.register_tile(columns);
    int64_t tiles = 1;
    for (const size_t a : s.order(false)) {
        if (a == columns || moves_along(e, e.accesses[access], a)) continue;
        const int64_t points = s.axes[a].extent.value_or(2 * s.register_tile(a));  // dynamic: several tiles
        tiles *= (points + s.register_tile(a) - 1) / s.register_tile(a);
    }
    const Expr count = e.extents[columns];
    if (tiles < 2 || !count.is_constant() || count.constant() <= block) return std::nullopt;
    Ranges ranges = e.ranges();
    ranges.axes[columns] = {Expr(0), floor_div(count - 1, block)};
    const Var self{VarKind::Axis, static_cast<uint32_t>(columns)};
    const Expr by_panel =
        simplify(substitute(element_number(s, access),
                            [&](Var v) -> std::optional<Expr> {
                                return v == self ? std::optional(axis(columns) * block) : std::nullopt;
                            }),
                 ranges);
    const auto stride = stride_along(by_panel, columns);
    if (!stride || *stride <= 0) return std::nullopt;
    int64_t elements = *stride;
    for (size_t a = e.spatial; a < s.axes.size() && s.loop_axis != columns; ++a)
        if (!s.axes[a].full) {
            if (!s.axes[a].extent || !e.extents[a].is_constant()) return std::nullopt;
            elements = elements / e.extents[a].constant() * *s.axes[a].extent;
        }
    return elements * s.operands[access].element_bytes;
}

/// Whether each step of the reduction is one point.
bool single_steps(const StageSite& s) {
    for (size_t a = s.expr->spatial; a < s.expr->extents.size(); ++a)
        if (s.register_tile(a) != 1) return false;
    return s.expr->extents.size() > s.expr->spatial;
}

/// Whether consecutive steps of the reduction read consecutive lines, each as long as the register tile is wide. Of a
/// blocked reduction: the steps of a block.
bool in_lines(const StageSite& s, size_t access) {
    const Expr from = element_number(s, access);
    int64_t line = s.register_tile(*s.micro->vector_axis);
    bool whole = true;  // the loops inside read all of their axes
    const std::vector<size_t> loops = s.order(true);
    for (auto a = loops.rbegin(); a != loops.rend(); ++a) {
        const AxisSpan& axis = s.axes[*a];
        if (axis.extent == 1) continue;
        if (!whole || stride_along(from, *a) != line) return false;
        whole = axis.full && axis.extent;
        line *= axis.extent.value_or(1);
    }
    return true;
}

/// As bytes_of_panel, on vectors: where each step of the reduction can prefetch a share of the next panel, as steps
/// read a panel line by line.
std::optional<int64_t> bytes_by_shares(const StageSite& s, size_t access) {
    if (s.on_dots() || !single_steps(s)) return std::nullopt;
    const auto bytes = bytes_of_panel(s, access);
    return bytes && in_lines(s, access) ? bytes : std::nullopt;
}

/// If it is near enough. Memory would be idle while all but the first tile of rows use a panel: 128 x 768 sums of 768
/// terms, weights in memory, 0.90 to 0.80 ms (Intel Xeon 6/167; 0.78 from L2). Panels of 384 KB gained nothing.
std::optional<int64_t> near_panel(const StageSite& s, size_t access) {
    const auto bytes = bytes_by_shares(s, access);
    return bytes && *bytes <= kNearPanelBytes ? bytes : std::nullopt;
}

/// The hardware's streams end with every page of 4 KiB, and a panel of weights is followed by the next. Steps of less
/// than eight multiply-adds (one to three rows of two vectors) are served by the hardware's streams, and there a
/// software prefetch takes as long as a read. Weights in memory, 32 columns: 24 GB/s with prefetch, 35 without, of two
/// rows; 27 and 19 of eight. In the caches: 14 us for 1 MB and one row, 12.6 without.
/// A prefetch of a line that L2 holds takes as long there as its read (1.3 cycles), so that a step of multiply-adds
/// must take longer than both: 512 channels, 3 x 3, stride 2, 4 rows of 64 columns 2.2 ms, 1.8 without (Intel Xeon
/// 6/207).
std::optional<Prefetch> panel(const StageSite& s, size_t access) {
    constexpr int64_t kLeastResults = 8, kLeastRows = 5, kLine = 64;
    if (!is_panel(*s.expr, access) || !on_vector(s, access)) return std::nullopt;
    int64_t results = 1, numbers = 1;
    for (size_t a = 0; a < s.expr->spatial; ++a)
        results *= s.vector_axis(a) ? s.register_tile(a) / s.micro->lanes : s.register_tile(a);
    // An element has several numbers of quantised weights, or is a scale of several. A product of a row in
    // SmolLM2-135M, 0.5 MB of codes in memory: 63 us without prefetch, 44 with.
    for (size_t a = s.expr->spatial; a < s.expr->extents.size(); ++a)
        if (!moves_along(*s.expr, s.expr->accesses[access], a)) numbers *= s.register_tile(a);
    const bool far = s.operands[access].far && numbers > 1;
    const int64_t lines = s.register_tile(*s.micro->vector_axis) * s.operands[access].element_bytes / kLine;
    const int64_t least =
        numbers > 1 ? std::max<int64_t>(1, kLeastResults / numbers) : std::max(kLeastResults, kLeastRows * lines);
    if ((!far && !s.operands[access].streams()) || results < least) return std::nullopt;
    if (const auto bytes = numbers == 1 ? near_panel(s, access) : std::nullopt)
        return Prefetch{access, PrefetchKind::Next, *bytes, least};
    return Prefetch{access, PrefetchKind::Panel, kPanelAhead, least};
}

/// The bytes of a register tile's rows, where the rows of the next tile adjoin them. Rows may have several parts, apart
/// from each other, that outer loops of the reduction go through.
std::optional<int64_t> bytes_of_rows(const StageSite& s, size_t access) {
    const TensorExpr& e = *s.expr;
    if (e.reducer != Reducer::Sum || !s.has_vector() || s.vector_reduces() || !single_steps(s)) return std::nullopt;
    const size_t k = s.order(true).back(), rows = s.order(false).back();
    const int64_t tile = s.register_tile(rows);
    if (!e.extents[k].is_constant() || s.vector_axis(rows) || tile < 2 || !is_panel(e, access)) return std::nullopt;
    if (!reads(e.body, access) || !e.accesses[access].valid.empty() || on_vector(s, access)) return std::nullopt;
    const int64_t steps = e.extents[k].constant();
    const Expr from = element_number(s, access);
    if (stride_along(from, k) != 1 || stride_along(from, rows) != steps) return std::nullopt;
    return tile * steps * s.operands[access].element_bytes;
}

/// Rows of the next register tile that adjoin this one's: the hardware sees as many short streams as the tile has rows,
/// each at its end where the next tile begins.
///     14 rows of 128 floats: with step k the line that has byte 56 k of the next 7 KiB
/// Rows a multiple of 4 KiB apart map to the same sets of a first-level cache: those of the next tile would replace
/// those in use (1024 x 1024 sums of 1024 terms take 4 % less time without, Zen 3). The shares of a blocked reduction
/// would be other blocks of the next rows (128 x 1024 sums of 4096 terms: 7 %).
std::optional<Prefetch> next_rows(const StageSite& s, size_t access) {
    constexpr int64_t kSetsRepeat = 4096;
    const OperandSite& operand = s.operands[access];
    const auto bytes = operand.memory ? bytes_of_rows(s, access) : std::nullopt;
    if (!bytes || !operand.may_stream() || !s.axes[s.order(true).back()].full) return std::nullopt;
    if (*bytes / s.register_tile(s.order(false).back()) % kSetsRepeat == 0) return std::nullopt;
    return Prefetch{access, PrefetchKind::Rows, *bytes};
}

/// Windows of pixels whose channels are adjacent, channels innermost: a tile begins a stream in each of its rows, and
/// the hardware has followed none of them for long when the next tile begins. 128 channels of 512 x 512 pixels, 3 x 3,
/// take 8.7 ms with this, 18.4 without.
std::optional<Prefetch> window(const StageSite& s, size_t access) {
    const TensorExpr& e = *s.expr;
    if (e.reducer == Reducer::None || !s.has_vector() || s.vector_reduces() || !s.vector_axis(s.order(false).back()))
        return std::nullopt;
    if (!reads(e.body, access) || !s.operands[access].may_stream() || is_panel(e, access) || !on_vector(s, access))
        return std::nullopt;
    return Prefetch{access, PrefetchKind::Window, kPanelAhead};
}

/// The tiles of a linear transform read lines in as many places as they have inputs, and the hardware follows few.
///     6 x 6 pixels in steps of four, channels adjacent: of the next tile the last four columns
std::optional<Prefetch> next_map(const StageSite& s, size_t access) {
    const TensorExpr& e = *s.expr;
    if (!s.has_vector() || !reads(e.body, access) || !s.operands[access].may_stream() || !on_vector(s, access))
        return std::nullopt;
    const Expr from = element_number(s, access);
    for (size_t a = 0; a < e.extents.size(); ++a)
        if (!stride_along(from, a)) return std::nullopt;
    const std::vector<size_t> axes = s.order(false);
    const auto next = std::find_if(axes.rbegin(), axes.rend(), [&](size_t a) {
        const int64_t points = std::min(s.register_tile(a), s.axes[a].extent.value_or(s.register_tile(a)));
        return !s.vector_axis(a) && *stride_along(from, a) != 0 && !e.extents[a].is_constant(points);
    });
    if (next == axes.rend()) return std::nullopt;
    const int64_t tile = *stride_along(from, *next) * s.register_tile(*next);
    if (tile < 0) return std::nullopt;
    return Prefetch{access, PrefetchKind::Map, 2 * tile * s.operands[access].element_bytes};
}

/// A product of 64 steps and a tile of 14 x 32 otherwise waits for them a third as long as it computes.
std::optional<Prefetch> epilogue(const StageSite& s, size_t access) {
    const TensorExpr& e = *s.expr;
    const Access& a = e.accesses[access];
    if (e.reducer == Reducer::None || !s.has_vector() || s.vector_reduces() || !reads(e.epilogue, access))
        return std::nullopt;
    if (!s.operands[access].may_stream() || !a.valid.empty() || !on_vector(s, access) || uses_load(a.index))
        return std::nullopt;
    return Prefetch{access, PrefetchKind::Epilogue, 0};
}

/// While later tiles of rows use a panel that the first has read from memory, memory would be idle.
std::optional<Prefetch> next_panel(const StageSite& s, size_t access) {
    constexpr int64_t kLargest = 1024 * 1024;  // of a panel that stays in the second-level cache beside this one
    const OperandSite& operand = s.operands[access];
    const auto bytes = operand.memory ? bytes_of_panel(s, access) : std::nullopt;
    if (!bytes || *bytes > kLargest || !operand.may_stream()) return std::nullopt;
    return Prefetch{access, PrefetchKind::Next, *bytes};
}

}  // namespace

std::vector<Prefetch> derive_prefetches(const StageSite& s, const Annotations& annotations) {
    std::vector<Prefetch> out;
    for (size_t i = 0; i < s.expr->accesses.size(); ++i) {
        if (s.on_tiles()) {
            for (const std::optional<Prefetch>& p : {next_panel(s, i), epilogue(s, i)})
                if (p) out.push_back(*p);
            continue;
        }
        const auto task = task_row(s, i);
        const std::optional<Prefetch> map = annotations.unroll_sum == true ? next_map(s, i) : std::nullopt;
        for (const std::optional<Prefetch>& p :
             {task, task ? std::nullopt : panel(s, i), next_rows(s, i), window(s, i), map, epilogue(s, i)})
            if (p) out.push_back(*p);
    }
    return out;
}

bool may_prefetch(const StageSite& s, const Prefetch& p) {
    const TensorExpr& e = *s.expr;
    if (p.access >= e.accesses.size() || p.bytes < 0 || p.results < 1 || !s.operands[p.access].memory) return false;
    const bool sums = e.reducer != Reducer::None && s.has_vector() && !s.vector_reduces();
    const bool vector = on_vector(s, p.access);
    switch (p.kind) {
        case PrefetchKind::Next:
            return (s.on_tiles() ? bytes_of_panel(s, p.access) : bytes_by_shares(s, p.access)).has_value();
        case PrefetchKind::Task:
        case PrefetchKind::Panel:
            return vector;
        case PrefetchKind::Rows:
            return bytes_of_rows(s, p.access).has_value();
        case PrefetchKind::Window:
            return sums && vector && reads(e.body, p.access);
        case PrefetchKind::Map:
            return constant_transform(e).has_value() && vector && reads(e.body, p.access);
        case PrefetchKind::Epilogue:
            return sums && vector && reads(e.epilogue, p.access) && e.accesses[p.access].valid.empty() &&
                   !uses_load(e.accesses[p.access].index);
    }
    return false;
}

}  // namespace tilewright
