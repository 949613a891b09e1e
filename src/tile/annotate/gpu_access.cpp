#include "tile/annotate/gpu_access.h"

#include <algorithm>

#include "base/error.h"
#include "tile/matrix.h"

namespace tilewright::gpu {

ThreadAccess StageAccess::derive() {
    given_ = nullptr;
    run();
    return access_;
}

std::vector<std::string> StageAccess::faults(const ThreadAccess& given) {
    given_ = &given;
    run();
    return faults_;
}

void StageAccess::run() {
    begin_tile();
    begin_points();
    if (e_.reducer == Reducer::None)
        elementwise();
    else
        reduction();
}

bool StageAccess::reads_vectors(uint32_t slot) {
    if (given_ != nullptr) return wanted(slot).by == OperandRead::By::Elements && wanted(slot).width > 1;
    const auto axis = innermost(mask_);
    const int64_t width = axis ? widest(job_.accesses[slot].storage, part_.strip[*axis]) : 1;
    return width > 1 && vector_load(slot, mask_, width);
}

OperandRead StageAccess::wanted(size_t slot) const {
    if (const OperandRead* read = given_->read(slot)) return *read;
    return {slot};
}

void StageAccess::derived(OperandRead read) {
    const auto at = std::find_if(access_.reads.begin(), access_.reads.end(),
                                 [&](const OperandRead& r) { return r.access >= read.access; });
    if (at == access_.reads.end() || at->access != read.access) access_.reads.insert(at, read);
}

void StageAccess::fault(std::string text) {
    if (std::find(faults_.begin(), faults_.end(), text) == faults_.end()) faults_.push_back(std::move(text));
}

std::string StageAccess::no_vectors(const Place& place, std::optional<size_t> axis, int64_t width, Expr offset) const {
    const int64_t most = 16 / static_cast<int64_t>(byte_size(place.storage));
    if (width < 1 || width > most || (width & (width - 1)) != 0)
        return fmt::format("vectors have a power of two of elements, {} at most", most);
    if (place.in_registers) return "it is in registers";
    if (!axis) return "a thread has one of them";
    if (part_.strip[*axis] % width != 0)
        return fmt::format("a thread has {} side by side along {}", part_.strip[*axis], axis_name(*axis));
    const auto lane = at_lane_0(offset, 1);
    if (!lane) return fmt::format("neighbours along {} are not neighbours in memory", axis_name(*axis));
    const int64_t multiple = IndexVariables::multiple(*lane);
    if (multiple % width != 0) return fmt::format("their address is a multiple of {} elements", multiple);
    return "a vector may cross the end of an axis, or the place where a condition changes";
}

void StageAccess::elementwise() {
    const auto axis = innermost(mask_);
    int64_t width = axis ? widest(job_.out.storage, part_.strip[*axis]) : 1;
    if (given_ != nullptr) width = given_->write;
    const auto out = width == 1 ? std::nullopt : vector_store(width);
    if (given_ == nullptr) access_.write = out ? width : 1;
    if (given_ != nullptr && width != 1 && !out) {
        Expr at = 0;
        if (axis && !job_.out.in_registers && width > 1 && part_.registers[*axis] % width == 0) {
            split_coordinate(*axis, width);
            at = offset(job_.out, out_index());
        }
        fault(fmt::format("the result is written {} elements at a time, but {}", width,
                          no_vectors(job_.out, axis, width, at)));
    }
    reads(e_.body, {e_.body.root()}, out);
}

bool StageAccess::may_be_async(int64_t width) {
    const Place& from = job_.accesses.at(0);
    const int64_t size = static_cast<int64_t>(byte_size(from.storage));
    if (e_.accesses[0].fill != 0) return false;
    if (width == 1) return byte_size(job_.out.storage) == 4;
    const auto axis = innermost(mask_);
    return axis && width * size >= 4 && conditional_vector(0, {*axis, width, {}});
}

void StageAccess::reads(const ScalarBody& body, const std::vector<ScalarId>& roots, const std::optional<Vector>& out) {
    for (const Mask group : groups_of(body, roots)) {
        if (group == 0) continue;
        for (auto it = needed_.rbegin(); it != needed_.rend(); ++it)
            if (it->access && known(*it).exported && known(*it).mask == group && (group != mask_ || in_vectors(*it)))
                read_in_loops(it->number, group);
    }
    if (!out) return;
    for (const Item i : needed_) {
        if (!i.access || known(i).mask != mask_ || job_.accesses[i.number].in_registers) continue;
        seen_.insert(i.number);
        const bool may = conditional_vector(i.number, *out).has_value();
        if (given_ == nullptr) {
            if (may) derived({i.number, OperandRead::By::Elements, out->width});
            continue;
        }
        const OperandRead read = wanted(i.number);
        if (read.width == 1 || (may && read.width == out->width)) continue;
        fault(fmt::format("access {} is read {} elements at a time beside a result of {}", i.number, read.width,
                          out->width));
    }
}

void StageAccess::read_in_loops(uint32_t slot, Mask mask) {
    const auto axis = innermost(mask);
    const Place& place = job_.accesses[slot];
    seen_.insert(slot);
    if (given_ == nullptr) {
        const int64_t width = axis ? widest(place.storage, part_.strip[*axis]) : 1;
        if (width > 1 && vector_load(slot, mask, width)) derived({slot, OperandRead::By::Elements, width});
        return;
    }
    const OperandRead read = wanted(slot);
    if (read.by != OperandRead::By::Elements)
        return fault(fmt::format("access {} is no operand of matrix instructions as it stands", slot));
    if (read.width == 1 || vector_load(slot, mask, read.width)) return;
    Expr at = 0;
    if (axis && !place.in_registers && read.width > 1 && part_.registers[*axis] % read.width == 0) {
        split_coordinate(*axis, read.width);
        std::vector<Expr> index;
        for (const Expr& i : e_.accesses[slot].index) index.push_back(substitute_axes(i, raw_));
        at = offset(place, index);
    }
    fault(fmt::format("access {} is read {} elements at a time, but {}", slot, read.width,
                      no_vectors(place, axis, read.width, at)));
}

void StageAccess::reduction() {
    if (given_ != nullptr && given_->write != 1)
        fault(fmt::format("sums are written one by one, not {} elements at a time", given_->write));
    if (job_.phase != StageJob::Phase::Finish) add_up();
    if (job_.phase != StageJob::Phase::Steps && !e_.epilogue.empty())
        reads(e_.epilogue, {e_.epilogue.root()}, std::nullopt);
}

void StageAccess::add_up() {
    const bool matrix = part_.warps != 0 && job_.micro->matrix;
    for (const size_t a : reduction_order())
        if (!matrix || a != job_.micro->matrix->sum) enter_reduction(a);
    if (!matrix)
        reads(e_.body, terms(), std::nullopt);
    else if (job_.micro->matrix->group())
        multiply_group();
    else
        multiply();
    if (matrix) overhang_ &= ~(Mask{1} << job_.micro->matrix->sum);
    mask_ = result_mask_;
}

void StageAccess::multiply() {
    const MatrixUnit& u = *job_.micro->matrix;
    const auto factors = matrix_factors(e_, u);
    TW_CHECK(factors.has_value(), "a stage on a matrix unit is no product");
    const SumSteps steps = sum_steps();
    operand(factors->left, u.rows, true, tile_begin_[u.rows], steps.begin);
    const Columns columns = columns_now();
    operand(factors->right, u.columns, false, tile_begin_[u.columns], steps.begin);
    restore(columns);
}

void StageAccess::multiply_group() {
    const MatrixUnit& u = *job_.micro->matrix;
    const GroupProduct p = group_product();
    const ScalarNode &left = e_.body[p.left], &right = e_.body[p.right];
    const auto placed = [&](const ScalarNode& n) {
        if (n.op != ScalarOp::Access) return false;
        seen_.insert(n.slot);
        if (given_ == nullptr) derived({n.slot, OperandRead::By::Place});
        return given_ == nullptr || wanted(n.slot).by == OperandRead::By::Place;
    };
    if (!placed(right) && given_ != nullptr && right.op == ScalarOp::Access)
        fault(fmt::format("access {} is the right operand of a warpgroup: it is read in place", right.slot));
    if (p.left_in_place && placed(left)) return;
    if (given_ != nullptr && left.op == ScalarOp::Access && wanted(left.slot).by == OperandRead::By::Place)
        fault(fmt::format("access {} does not lie as a warpgroup's instructions read it", left.slot));
    else
        operand(p.left, u.rows, true, tile_begin_[u.rows], p.sum_begin);
}

void StageAccess::operand(ScalarId factor, size_t across, bool is_left, Expr across_begin, Expr sum_begin) {
    spread_operand(factor, across, is_left, across_begin, sum_begin);
    const ScalarNode& node = e_.body[factor];
    if (node.op != ScalarOp::Access || passes_sum(factor)) return reads(e_.body, {factor}, std::nullopt);
    seen_.insert(node.slot);
    const bool asked = given_ == nullptr || wanted(node.slot).by == OperandRead::By::Fragments;
    if (asked && fragments(node.slot, across, is_left, across_begin, sum_begin)) {
        if (given_ == nullptr) derived({node.slot, OperandRead::By::Fragments});
    } else if (given_ != nullptr && asked) {
        fault(fmt::format("access {} does not lie as ldmatrix reads fragments", node.slot));
    } else {
        read_in_loops(node.slot, mask_);
    }
}

}  // namespace tilewright::gpu
