// Vectors: neighbours along one register axis that are neighbours in memory.

#include "backend/cuda/stage_values.h"

#include <algorithm>

#include "backend/cuda/scalar_text.h"
#include "base/error.h"

namespace tilewright::cuda {

std::optional<size_t> StageValues::innermost(Mask mask) const {
    for (size_t a = n_; a-- > 0;)
        if (((mask >> a) & 1) != 0) return a;
    return std::nullopt;
}

void StageValues::split_coordinate(size_t axis, int64_t width) {
    if (split_axis_ == axis && split_width_ == width) return;
    split_axis_ = axis;
    split_width_ = width;
    part_of_ = v_.add("part_" + axis_name(axis), {Expr(0), Expr(part_.registers[axis] / width - 1)});
    lane_of_ = v_.add("lane_" + axis_name(axis), {Expr(0), Expr(width - 1)});
}

Expr StageValues::split(Expr e) const {
    const Var whole = var_of(coordinate_[split_axis_]);
    return v_.simplified(substitute(e, [&](Var v) -> std::optional<Expr> {
        if (v == whole) return part_of_ * split_width_ + lane_of_;
        return std::nullopt;
    }));
}

std::optional<Expr> StageValues::at_lane_0(Expr e, int64_t step) const {
    const auto linear = linear_in(split(e), var_of(lane_of_));
    if (!linear || !linear->coefficient.is_constant(step)) return std::nullopt;
    return v_.simplified(linear->rest);
}

std::optional<Expr> StageValues::vector_offset(const Place& place, const std::vector<Expr>& index) {
    if (place.in_registers) return std::nullopt;
    const auto rest = at_lane_0(offset(place, index), 1);
    if (!rest || Variables::multiple(*rest) % split_width_ != 0) return std::nullopt;
    for (const Var v : variables(*rest))
        if (v.kind == VarKind::Load) return std::nullopt;
    return rest;
}

int64_t StageValues::widest(DType t, int64_t points) {
    int64_t width = 16 / static_cast<int64_t>(byte_size(t));
    while (width > 1 && points % width != 0) width /= 2;
    return width;
}

std::optional<StageValues::Vector> StageValues::vector_load(uint32_t slot, Mask mask) {
    const Place& place = job_.accesses[slot];
    const Access& a = e_.accesses[slot];
    const auto axis = innermost(mask);
    if (!axis || !place.final.empty()) return std::nullopt;
    const int64_t width = widest(place.storage, part_.strip[*axis]);
    if (width == 1) return std::nullopt;
    if (!place.checked)
        for (const Expr& c : a.valid)
            if (!v_.nonnegative(v_.simplified(substitute_axes(c, raw_)))) return std::nullopt;
    const auto raw = inside_filled(place, a.index);
    if (!raw && (overhang_ & axes_of(a)) != 0) return std::nullopt;
    std::vector<Expr> index;
    if (raw)
        index = *raw;
    else
        for (const Expr& i : a.index) index.push_back(substitute_axes(i, raw_));
    split_coordinate(*axis, width);
    const auto at = vector_offset(place, index);
    if (!at) return std::nullopt;
    return Vector{*axis, width, *at};
}

StageValues::Mask StageValues::axes_of(const Access& a) const {
    Mask m = 0;
    for (const Expr& i : a.index)
        for (const Var v : variables(i))
            if (is_own_axis(v)) m |= Mask{1} << v.id;
    return m;
}

void StageValues::load_vectors(uint32_t slot, Mask mask, const Vector& vector, const std::string& name) {
    const Mask others = mask & ~(Mask{1} << vector.axis);
    open_loops(others);
    const std::string part = open_parts(vector);
    w_->line("tw::load<{}>({}{}{}, {} + {});", vector.width, name, coordinates(others), part,
             job_.accesses[slot].object, address(job_.accesses[slot], vector.offset));
    close_parts(vector);
    close_loops(others);
}

std::string StageValues::open_parts(const Vector& vector) {
    const int64_t parts = part_.registers[vector.axis] / vector.width;
    if (parts == 1) return "";
    const std::string part = v_.name(part_of_);
    w_->add("TW_UNROLL");
    w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", part, parts));
    return fmt::format(" + {} * {}", part, vector.width);
}

void StageValues::close_parts(const Vector& vector) {
    if (part_.registers[vector.axis] != vector.width) w_->close();
}

void StageValues::choose_vector_out() {
    const auto axis = innermost(mask_);
    if (!axis || job_.out.in_registers) return;
    const int64_t width = widest(job_.out.storage, part_.strip[*axis]);
    if (width == 1) return;
    split_coordinate(*axis, width);
    const auto at = vector_offset(job_.out, out_index());
    if (!at) return;
    if (((overhang_ >> *axis) & 1) != 0) {
        const auto left = at_lane_0(job_.ranges[*axis].hi - raw_[*axis], -1);
        if (!left || Variables::multiple(*left) % width != 0) return;
    }
    // Operands that are read one by one would be neighbours of neighbours to the other threads.
    for (uint32_t slot = 0; slot < e_.accesses.size(); ++slot) {
        const Place& place = job_.accesses[slot];
        if (place.in_registers || !uses_coordinate(slot, *axis)) continue;
        if (!conditional_vector(slot, {*axis, width, {}})) return;
    }
    vector_out_ = Vector{*axis, width, *at};
}

bool StageValues::uses_coordinate(uint32_t slot, size_t axis) const {
    const Access& a = e_.accesses[slot];
    const auto uses_it = [&](Expr e) { return uses(e, var_of(tilewright::axis(axis))); };
    return std::any_of(a.index.begin(), a.index.end(), uses_it) ||
           (!job_.accesses[slot].checked && std::any_of(a.valid.begin(), a.valid.end(), uses_it));
}

std::optional<StageValues::Conditional> StageValues::conditional_vector(uint32_t slot, const Vector& vector) {
    const Place& place = job_.accesses[slot];
    const Access& a = e_.accesses[slot];
    if (!place.final.empty() || widest(place.storage, vector.width) != vector.width) return std::nullopt;
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
        const Expr here = v_.simplified(substitute_axes(c, raw_));
        if (v_.nonnegative(here)) continue;
        for (const Var v : variables(here))
            if (v.kind == VarKind::Load) return std::nullopt;
        const auto same = at_lane_0(here, 0), up = at_lane_0(here, 1), down = at_lane_0(here, -1);
        if (same) {
            add(*same);
        } else if (up && Variables::multiple(*up) % vector.width == 0) {
            add(*up);
        } else if (down && Variables::multiple(*down + 1) % vector.width == 0) {
            add(*down);
        } else {
            return std::nullopt;
        }
    }
    return out;
}

bool StageValues::copies_async(const Vector& vector) {
    const auto load = conditional_vector(0, vector);
    const Place& from = job_.accesses[0];
    if (!load || vector.width * static_cast<int64_t>(byte_size(from.storage)) < 4) return false;
    std::string conditions;
    for (const Expr& c : load->conditions) conditions += (conditions.empty() ? "" : " && ") + v_.condition(c);
    w_->line("tw::copy_async{}<{}>({} + {}, {} + {}{});", conditions.empty() ? "" : "_if", vector.width,
             job_.out.object, address(job_.out, vector.offset), from.object, v_.operand(load->offset),
             conditions.empty() ? "" : ", " + conditions);
    wrote_vectors_ = true;
    return true;
}

void StageValues::vectors_out(const Vector& vector, const std::vector<ScalarId>& roots, const Finish& finish) {
    const Mask others = mask_ & ~(Mask{1} << vector.axis);
    split_coordinate(vector.axis, vector.width);
    open_loops(others);
    open_parts(vector);
    // Conditions of the ranges, at lane 0.
    std::string inside = mine_;
    for (size_t a = 0; a < e_.spatial; ++a)
        if (((overhang_ >> a) & 1) != 0) {
            Expr at = raw_[a];
            if (a == vector.axis)
                at = v_.simplified(substitute(split(at), [&](Var v) -> std::optional<Expr> {
                    if (v == var_of(lane_of_)) return Expr(0);
                    return std::nullopt;
                }));
            inside += fmt::format("{}{} < {}", inside.empty() ? "" : " && ", v_.text(at), v_.text(job_.ranges[a].hi));
        }
    if (!inside.empty()) w_->open("if (" + inside + ")");
    if (job_.async && copies_async(vector)) {
        if (!inside.empty()) w_->close();
        close_parts(vector);
        close_loops(others);
        return;
    }
    const std::string lane = v_.name(lane_of_);
    for (const Item i : needed_) {
        if (!i.access || known(i).mask != mask_ || job_.accesses[i.number].in_registers) continue;
        const auto load = conditional_vector(i.number, vector);
        if (!load) continue;
        const Place& place = job_.accesses[i.number];
        const std::string name = v_.fresh(wish(i)), type = storage_type(place.storage);
        std::string conditions;
        for (const Expr& c : load->conditions) conditions += (conditions.empty() ? "" : " && ") + v_.condition(c);
        w_->line("{} {}[{}];", type, name, vector.width);
        const std::string text =
            fmt::format("tw::load<{}>({}, {} + {});", vector.width, name, place.object, address(place, load->offset));
        if (conditions.empty())
            w_->add(text);
        else
            w_->line("if ({}) {} else tw::fill<{}>({}, {});", conditions, text, vector.width, name,
                     to_storage(place.storage, fill_literal(place.storage, e_.accesses[i.number].fill)));
        known(i).stored = true;
        known(i).name = fmt::format("{}[{}]", name, lane);
    }
    const std::string out = v_.fresh("out");
    w_->line("{} {}[{}];", storage_type(job_.out.storage), out, vector.width);
    w_->add("TW_UNROLL");
    w_->open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", lane, vector.width));
    const bool one = part_.registers[vector.axis] == vector.width;
    w_->line("const int {} = {}{};", v_.name(coordinate_[vector.axis]),
             one ? "" : fmt::format("{} * {} + ", v_.name(part_of_), vector.width), lane);
    std::vector<std::string> texts;
    texts.reserve(roots.size());
    for (const ScalarId r : roots) texts.push_back(use({false, r.value}));
    into_vector_ = fmt::format("{}[{}]", out, lane);
    finish(texts);
    into_vector_.clear();
    w_->close();
    w_->line("tw::store<{}>({} + {}, {});", vector.width, job_.out.object, address(job_.out, vector.offset), out);
    if (!inside.empty()) w_->close();
    close_parts(vector);
    close_loops(others);
    wrote_vectors_ = true;
}

}  // namespace tilewright::cuda
