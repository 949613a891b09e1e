// Vectors: neighbours along one register axis that are neighbours in memory.

#include "backend/cuda/stage_values.h"

#include "backend/cuda/scalar_text.h"
#include "base/error.h"

namespace tilewright::cuda {

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

void StageValues::annotated_store() {
    const int64_t width = job_.micro->annotations.access->write;
    if (width == 1) return;
    vector_out_ = vector_store(width);
    TW_CHECK(vector_out_.has_value(), "a result is annotated to be written {} elements at a time, which it cannot be",
             width);
}

void StageValues::copy_async(const Vector& vector) {
    const auto load = conditional_vector(0, vector);
    TW_CHECK(load.has_value(), "a copy is annotated to run beside the program, which it cannot");
    std::string conditions;
    for (const Expr& c : load->conditions) conditions += (conditions.empty() ? "" : " && ") + v_.condition(c);
    w_->line("tw::copy_async{}<{}>({} + {}, {} + {}{});", conditions.empty() ? "" : "_if", vector.width,
             job_.out.object, address(job_.out, vector.offset), job_.accesses[0].object, v_.operand(load->offset),
             conditions.empty() ? "" : ", " + conditions);
}

std::string StageValues::result_address(const Vector& vector) {
    const auto whole = [&](Expr offset) { return fmt::format("{} + {}", job_.out.object, address(job_.out, offset)); };
    if (early_ == nullptr || job_.out.shared) return whole(vector.offset);
    std::set<Var> own = {var_of(part_of_)};
    for (size_t a = 0; a < n_; ++a)
        if (((mask_ >> a) & 1) != 0) own.insert(var_of(coordinate_[a]));
    const Expr begin = v_.simplified(substitute(vector.offset, [&](Var v) -> std::optional<Expr> {
        if (own.count(v) != 0) return Expr(0);
        return std::nullopt;
    }));
    const Expr more = v_.simplified(vector.offset - begin);
    for (const Var v : variables(more))
        if (own.count(v) == 0) return whole(vector.offset);
    const std::string name = v_.fresh(job_.out.object + "_from");
    early_->line("const tw::Out<{}> {} = tw::kept({});", storage_type(job_.out.storage), name, whole(begin));
    return fmt::format("{} + {}", name, v_.operand(more));
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
    if (job_.async) {
        copy_async(vector);
        if (!inside.empty()) w_->close();
        close_parts(vector);
        close_loops(others);
        return;
    }
    const std::string lane = v_.name(lane_of_);
    for (const Item i : needed_) {
        if (!i.access || known(i).mask != mask_ || job_.accesses[i.number].in_registers) continue;
        if (reading(i.number).width == 1) continue;
        const auto load = conditional_vector(i.number, vector);
        TW_CHECK(load && reading(i.number).width == vector.width,
                 "access {} is annotated to be read {} elements at a time, which it cannot be", i.number,
                 reading(i.number).width);
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
    w_->line("tw::store<{}>({}, {});", vector.width, result_address(vector), out);
    if (!inside.empty()) w_->close();
    close_parts(vector);
    close_loops(others);
}

}  // namespace tilewright::cuda
