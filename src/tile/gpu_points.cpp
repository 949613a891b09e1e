#include "tile/gpu_points.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"

namespace tilewright::gpu {

SumParts sum_parts(const Partition& share, size_t spatial) {
    SumParts out;
    for (size_t a = 0; a < spatial; ++a) out.registers *= share.registers[a];
    TW_CHECK(share.count.has_value(), "a part of a sum has a dynamic number of tiles");
    // Threads that share a tile have the same sums, but the lanes of a warp's tile.
    out.slots = *share.count * (share.warps != 0 ? share.takes() : 1);
    return out;
}

StagePoints::StagePoints(IndexVariables& variables, const StageJob& job)
    : vars_(variables), job_(job), e_(*job.expr), n_(job.expr->extents.size()), part_(job.share) {
    TW_CHECK(n_ <= IndexVariables::kStageAxes, "a stage has {} axes", n_);
}

Expr StagePoints::begin_tile() {
    const Expr count = vars_.simplified(part_.tile_count());
    const Expr tile = vars_.add("tile", {Expr(0), count - 1});
    tile_ = count.is_constant(1) ? Expr(0) : tile;
    if (part_.warps != 0) {
        lane_ = vars_.add("lane", {Expr(0), Expr(31)});
        lane_row_ = vars_.add("lane_row", {Expr(0), Expr(has_row_pairs() ? 31 : 16 * (part_.warps - 1) + 7)});
        lane_pair_ = vars_.add("lane_pair", {Expr(0), Expr(3)});
    } else if (part_.group > 1) {
        lane_ = vars_.add("lane", {Expr(0), Expr(part_.group - 1)});
    }
    return tile;
}

void StagePoints::begin_points() {
    raw_.resize(n_);
    clamped_.resize(n_);
    coordinate_.resize(n_);
    Expr rest = tile_;
    std::vector<Expr> tile(e_.spatial);
    for (size_t k = part_.order.size(); k-- > 0;) {
        const size_t a = part_.order[k];
        const Expr tiles = vars_.simplified(part_.tiles[a]);
        if (tiles.is_constant(1)) continue;
        bool outermost = true;
        for (size_t j = 0; j < k; ++j)
            if (!vars_.simplified(part_.tiles[part_.order[j]]).is_constant(1)) outermost = false;
        if (outermost && rest == tile_) {
            tile[a] = tile_;
            break;
        }
        tile[a] = vars_.add("tile_" + axis_name(a), {Expr(0), tiles - 1});
        declare(tile[a], vars_.simplified(outermost ? rest : mod(rest, tiles)));
        rest = floor_div(rest, tiles);
    }
    for (size_t a = 0; a < e_.spatial; ++a) {
        tile_begin_.push_back(tile[a] * (part_.spread[a] == Spread::Strip ? part_.strip[a] : part_.span(a)));
        spread_axis(a, tile_begin_[a], "r_" + axis_name(a));
    }
    result_mask_ = mask_;
}

std::vector<size_t> StagePoints::reduction_order() const {
    std::vector<size_t> out;
    for (const size_t a : job_.micro->order)
        if (a >= e_.spatial) out.push_back(a);
    for (size_t a = e_.spatial; a < n_; ++a)
        if (std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
    return out;
}

std::vector<ScalarId> StagePoints::terms() const {
    if (const auto c = contraction(e_); c && is_float(e_.body.dtype()) && !sums_under_condition())
        return {c->factors[0].node, c->factors[1].node};
    return {e_.body.root()};
}

std::optional<Expr> StagePoints::enter_reduction(size_t a) {
    const AxisRange& r = job_.ranges[a];
    if (part_.spread[a] == Spread::Columns) {  // over registers
        spread_axis(a, 0, "r_" + axis_name(a));
        return std::nullopt;
    }
    const Expr length = local_range(a);
    if (length.is_constant(1)) {
        raw_[a] = clamped_[a] = r.lo;
        return std::nullopt;
    }
    const int64_t vector = part_.registers[a];
    const Expr steps = vars_.simplified(ceil_div(length, vector));
    // Threads that share so many steps have one each.
    const bool one = part_.group > 1 && part_.shared_axis == a && steps.is_constant(part_.group);
    const Expr k = one ? lane_ : vars_.add(axis_name(a), {Expr(0), steps - 1});
    if (vector > 1)
        spread_axis(a, k * vector, "r_" + axis_name(a));
    else
        raw_[a] = clamped_[a] = vars_.simplified(r.lo + k);
    if (one) return std::nullopt;
    return k;
}

void StagePoints::place_axis(size_t a, Expr local) {
    const AxisRange& r = job_.ranges[a];
    raw_[a] = vars_.simplified(r.lo + local);
    overhang_ &= ~(Mask{1} << a);
    whole_held_ &= ~(Mask{1} << a);
    const Expr length = local_range(a);
    if (vars_.nonnegative(length - 1 - local)) {
        clamped_[a] = raw_[a];
        return;
    }
    overhang_ |= Mask{1} << a;
    // A name of its own, whose range is known.
    const Expr held = vars_.add(axis_name(a) + "_held", {Expr(0), length - 1});
    hold(a, held, local, length - 1);
    clamped_[a] = vars_.simplified(r.lo + held);
}

void StagePoints::spread_axis(size_t a, Expr begin, std::string_view coordinate) {
    const int64_t n = part_.registers[a];
    mask_ &= ~(Mask{1} << a);
    Expr r = 0;
    if (n > 1) {
        mask_ |= Mask{1} << a;
        r = coordinate_[a] = vars_.add(coordinate, {Expr(0), Expr(n - 1)});
    }
    if (!hold_whole(a, begin, r)) place_axis(a, begin + spread_point(a, r));
}

bool StagePoints::hold_whole(size_t a, Expr begin, Expr r) {
    const int64_t n = part_.registers[a];
    const Expr length = local_range(a);
    if (a >= e_.spatial || n == 1 || part_.spread[a] != Spread::Strip || part_.strip[a] != n ||
        vars_.nonnegative(length - 1 - begin - r) || IndexVariables::multiple(length) % n != 0 ||
        IndexVariables::multiple(begin) % n != 0)
        return false;
    overhang_ |= Mask{1} << a;
    whole_held_ |= Mask{1} << a;
    raw_[a] = vars_.simplified(job_.ranges[a].lo + begin + r);
    const Expr last = vars_.simplified(floor_div(length, n)) - 1;
    const Expr held = vars_.add(axis_name(a) + "_held", {Expr(0), last});
    hold(a, held, floor_div(begin, n), last);
    clamped_[a] = vars_.simplified(job_.ranges[a].lo + held * n + r);
    return true;
}

Expr StagePoints::spread_point(size_t a, Expr r) const {
    const int64_t strip = part_.strip[a];
    switch (part_.spread[a]) {
        case Spread::Rows:
            return floor_div(r, 2) * (16 * part_.warps) + mod(r, 2) * 8 + lane_row_;
        case Spread::Columns:
            return floor_div(r, 2) * 8 + mod(r, 2) + lane_pair_ * 2;
        case Spread::Right:
            return r * 8 + lane_row_;
        case Spread::RowPairs:
            return floor_div(r, 2) * 64 + lane_row_ * 2 + mod(r, 2);
        case Spread::Quads:
            return floor_div(r, 2) * 8 + mod(r, 2) * 4 + lane_pair_;
        case Spread::Strip:
            break;
    }
    if (strip == part_.registers[a]) return r;
    return floor_div(r, strip) * (part_.tiles[a] * strip) + mod(r, strip);
}

// --- values

StagePoints::Mask StagePoints::mask_of(Expr e) {
    Mask m = 0;
    for (const Var v : variables(e)) {
        if (is_own_axis(v)) m |= Mask{1} << v.id;
        if (v.kind == VarKind::Load) m |= mask_of(Item{true, v.id});
    }
    return m & mask_;
}

StagePoints::Mask StagePoints::mask_of(const Access& a, bool checked) {
    Mask m = 0;
    for (const Expr& i : a.index) m |= mask_of(i);
    if (!checked)
        for (const Expr& c : a.valid) m |= mask_of(c);
    return m;
}

std::vector<StagePoints::Item> StagePoints::operands(Item item) const {
    std::vector<Item> out;
    if (item.access) {
        const Access& a = e_.accesses[item.number];
        const auto loads = [&](Expr e) {
            for (const Var v : variables(e))
                if (v.kind == VarKind::Load) out.push_back({true, v.id});
        };
        for (const Expr& i : a.index) loads(i);
        if (!job_.accesses[item.number].checked)
            for (const Expr& c : a.valid) loads(c);
        return out;
    }
    const ScalarNode& n = (*body_)[ScalarId(item.number)];
    if (n.op == ScalarOp::Access) return {{true, n.slot}};
    if (n.op == ScalarOp::Index) {
        for (const Var v : variables(n.index))
            if (v.kind == VarKind::Load) out.push_back({true, v.id});
        return out;
    }
    for (const ScalarId k : {n.a, n.b, n.c})
        if (k) out.push_back({false, k.value});
    return out;
}

StagePoints::Known& StagePoints::known(Item item) {
    const auto it = known_.find(item);
    if (it != known_.end()) return it->second;
    Known k;
    if (item.access && job_.accesses[item.number].in_registers) {
        for (const size_t a : job_.accesses[item.number].register_axes) k.mask |= Mask{1} << a;
        k.mask &= mask_;
    } else if (item.access) {
        k.mask = mask_of(e_.accesses[item.number], job_.accesses[item.number].checked);
    } else {
        const ScalarNode& n = (*body_)[ScalarId(item.number)];
        if (n.op == ScalarOp::Acc) k.mask = mask_;
        if (n.op == ScalarOp::Index) k.mask = mask_of(n.index);
        for (const Item o : operands(item)) k.mask |= mask_of(o);
    }
    return known_[item] = k;
}

StagePoints::Item StagePoints::resolved(Item item) const {
    if (!item.access && (*body_)[ScalarId(item.number)].op == ScalarOp::Access)
        return {true, (*body_)[ScalarId(item.number)].slot};
    return item;
}

bool StagePoints::is_leaf_text(Item item) const {
    if (item.access) return false;
    const ScalarOp op = (*body_)[ScalarId(item.number)].op;
    return op == ScalarOp::Const || op == ScalarOp::Acc;
}

void StagePoints::count_users(Item item, Mask user) {
    item = resolved(item);
    if (is_leaf_text(item)) return;
    Known& k = known(item);
    const bool seen = k.users > 0 || k.exported;
    if (user == k.mask)
        ++k.users;
    else
        k.exported = true;
    if (seen) return;
    needed_.push_back(item);
    for (const Item o : operands(item)) count_users(o, mask_of(item));
}

bool StagePoints::in_vectors(Item item) {
    return item.access && mask_ != 0 && e_.reducer != Reducer::None && body_ == &e_.body && part_.warps == 0 &&
           known(item).mask == mask_ && !job_.accesses[item.number].in_registers && reads_vectors(item.number);
}

std::vector<StagePoints::Mask> StagePoints::groups_of(const ScalarBody& body, const std::vector<ScalarId>& roots) {
    body_ = &body;
    known_.clear();
    needed_.clear();
    for (const ScalarId r : roots) count_users({false, r.value}, mask_);
    // An operand of a sum that depends on all axes is read in a loop of its own where that reads vectors.
    for (const Item i : needed_) known(i).exported = known(i).exported || in_vectors(i);
    std::vector<Mask> groups;
    for (const Item i : needed_)
        if (known(i).exported && (known(i).mask != mask_ || in_vectors(i)) &&
            std::find(groups.begin(), groups.end(), known(i).mask) == groups.end())
            groups.push_back(known(i).mask);
    std::sort(groups.begin(), groups.end(), [](Mask a, Mask b) {
        return std::popcount(a) != std::popcount(b) ? std::popcount(a) < std::popcount(b) : a < b;
    });
    return groups;
}

// --- places

std::optional<std::vector<Expr>> StagePoints::inside_filled(const Place& place, const std::vector<Expr>& index) const {
    if (!place.filled || overhang_ == 0) return std::nullopt;
    std::vector<Expr> out;
    for (size_t d = 0; d < index.size(); ++d) {
        out.push_back(substitute_axes(index[d], raw_));
        const Expr in_box = vars_.simplified(out[d] - place.origin[d]);
        if (!vars_.nonnegative(in_box) || !vars_.nonnegative(place.box[d] - 1 - in_box)) return std::nullopt;
    }
    return out;
}

Expr StagePoints::offset(const Place& place, std::vector<Expr> where) const {
    if (!place.origin.empty())
        for (size_t d = 0; d < where.size(); ++d) where[d] = vars_.simplified(where[d] - place.origin[d]);
    if (place.layout) where = physical_index(*place.layout, place.box, where);
    return vars_.simplified(strided_offset(where, place.strides));
}

std::vector<Expr> StagePoints::out_index() const {
    std::vector<Expr> index;
    for (const Expr& i : result_index(e_)) index.push_back(substitute_axes(i, raw_));
    return index;
}

// --- vectors

std::optional<size_t> StagePoints::innermost(Mask mask) const {
    for (size_t a = n_; a-- > 0;)
        if (((mask >> a) & 1) != 0 && part_.spread[a] != Spread::Quads) return a;
    return std::nullopt;
}

bool StagePoints::has_row_pairs() const {
    return std::find(part_.spread.begin(), part_.spread.end(), Spread::RowPairs) != part_.spread.end();
}

void StagePoints::split_coordinate(size_t axis, int64_t width) {
    if (split_axis_ == axis && split_width_ == width) return;
    split_axis_ = axis;
    split_width_ = width;
    part_of_ = vars_.add("part_" + axis_name(axis), {Expr(0), Expr(part_.registers[axis] / width - 1)});
    lane_of_ = vars_.add("lane_" + axis_name(axis), {Expr(0), Expr(width - 1)});
}

Expr StagePoints::split(Expr e) const {
    const Var whole = var_of(coordinate_[split_axis_]);
    return vars_.simplified(substitute(e, [&](Var v) -> std::optional<Expr> {
        if (v == whole) return part_of_ * split_width_ + lane_of_;
        return std::nullopt;
    }));
}

std::optional<Expr> StagePoints::at_lane_0(Expr e, int64_t step) const {
    const auto linear = linear_in(split(e), var_of(lane_of_));
    if (!linear || !linear->coefficient.is_constant(step)) return std::nullopt;
    return vars_.simplified(linear->rest);
}

std::optional<Expr> StagePoints::vector_offset(const Place& place, const std::vector<Expr>& index) {
    if (place.in_registers) return std::nullopt;
    const auto rest = at_lane_0(offset(place, index), 1);
    if (!rest || IndexVariables::multiple(*rest) % split_width_ != 0) return std::nullopt;
    for (const Var v : variables(*rest))
        if (v.kind == VarKind::Load) return std::nullopt;
    return rest;
}

int64_t StagePoints::widest(DType t, int64_t points) {
    int64_t width = 16 / static_cast<int64_t>(byte_size(t));
    while (width > 1 && points % width != 0) width /= 2;
    return width;
}

StagePoints::Mask StagePoints::axes_of(const Access& a) const {
    Mask m = 0;
    for (const Expr& i : a.index)
        for (const Var v : variables(i))
            if (is_own_axis(v)) m |= Mask{1} << v.id;
    return m;
}

std::optional<StagePoints::Vector> StagePoints::vector_load(uint32_t slot, Mask mask, int64_t width) {
    const Place& place = job_.accesses[slot];
    const Access& a = e_.accesses[slot];
    const auto axis = innermost(mask);
    if (!axis || width < 2 || place.unfinished || widest(place.storage, part_.strip[*axis]) % width != 0)
        return std::nullopt;
    if (!place.checked)
        for (const Expr& c : a.valid)
            if (!vars_.nonnegative(vars_.simplified(substitute_axes(c, clamped_)))) return std::nullopt;
    const auto raw = inside_filled(place, a.index);
    // Held points of one coordinate are not neighbours, but those of a whole strip are.
    for (size_t k = 0; k < n_ && !raw; ++k)
        if (((overhang_ & axes_of(a)) >> k & 1) != 0 && part_.registers[k] != 1 && !is_held_whole(k))
            return std::nullopt;
    std::vector<Expr> index;
    if (raw)
        index = *raw;
    else
        for (const Expr& i : a.index) index.push_back(substitute_axes(i, clamped_));
    split_coordinate(*axis, width);
    const auto at = vector_offset(place, index);
    if (!at) return std::nullopt;
    return Vector{*axis, width, *at};
}

std::optional<StagePoints::Vector> StagePoints::vector_store(int64_t width) {
    const auto axis = innermost(mask_);
    if (!axis || width < 2 || job_.out.in_registers || widest(job_.out.storage, part_.strip[*axis]) % width != 0)
        return std::nullopt;
    split_coordinate(*axis, width);
    const auto at = vector_offset(job_.out, out_index());
    if (!at) return std::nullopt;
    if (((overhang_ >> *axis) & 1) != 0) {
        const auto left = at_lane_0(job_.ranges[*axis].hi - raw_[*axis], -1);
        if (!left || IndexVariables::multiple(*left) % width != 0) return std::nullopt;
    }
    // Operands that are read one by one would be neighbours of neighbours to the other threads.
    for (uint32_t slot = 0; slot < e_.accesses.size(); ++slot) {
        const Place& place = job_.accesses[slot];
        if (place.in_registers || !uses_coordinate(slot, *axis)) continue;
        if (!conditional_vector(slot, {*axis, width, {}})) return std::nullopt;
    }
    return Vector{*axis, width, *at};
}

bool StagePoints::uses_coordinate(uint32_t slot, size_t axis) const {
    const Access& a = e_.accesses[slot];
    const auto uses_it = [&](Expr e) { return uses(e, var_of(tilewright::axis(axis))); };
    return std::any_of(a.index.begin(), a.index.end(), uses_it) ||
           (!job_.accesses[slot].checked && std::any_of(a.valid.begin(), a.valid.end(), uses_it));
}

std::optional<StagePoints::Conditional> StagePoints::conditional_vector(uint32_t slot, const Vector& vector) {
    const Place& place = job_.accesses[slot];
    const Access& a = e_.accesses[slot];
    if (place.unfinished || widest(place.storage, vector.width) != vector.width) return std::nullopt;
    std::vector<Expr> index;
    index.reserve(a.index.size());
    for (const Expr& i : a.index) index.push_back(substitute_axes(i, raw_));
    split_coordinate(vector.axis, vector.width);
    const auto at = vector_offset(place, index);
    if (!at) return std::nullopt;
    Conditional out{*at, {}};
    if (place.checked) return out;
    const auto add = [&](Expr c) {
        if (std::find(out.conditions.begin(), out.conditions.end(), c) == out.conditions.end())
            out.conditions.push_back(c);
    };
    for (const Expr& c : a.valid) {
        const Expr here = vars_.simplified(substitute_axes(c, raw_));
        if (vars_.nonnegative(here)) continue;
        for (const Var v : variables(here))
            if (v.kind == VarKind::Load) return std::nullopt;
        const auto same = at_lane_0(here, 0), up = at_lane_0(here, 1), down = at_lane_0(here, -1);
        if (same) {
            add(*same);
        } else if (up && IndexVariables::multiple(*up) % vector.width == 0) {
            add(*up);
        } else if (down && IndexVariables::multiple(*down + 1) % vector.width == 0) {
            add(*down);
        } else {
            return std::nullopt;
        }
    }
    return out;
}

}  // namespace tilewright::gpu
