#include "tile/place.h"

#include <algorithm>

#include "base/error.h"

namespace tilewright {

ScalarValue stored_as(DType t, ScalarValue v) {
    if (is_float(t)) return eval_scalar(ScalarOp::Cast, t, DType::F64, v);
    return {0, wrap_integer(t, v.i)};
}

Place::Place(std::string what, DType t, Shape shape)
    : dtype(t),
      name(std::move(what)),
      corner(shape.size(), 0),
      box(std::move(shape)),
      physical(box),
      cells(static_cast<size_t>(element_count(box))) {}

Place::Place(std::string what, const Tensor& contents) : Place(std::move(what), contents.dtype(), contents.shape()) {
    for (size_t i = 0; i < cells.size(); ++i) {
        const auto k = static_cast<int64_t>(i);
        cells[i].value = is_float(dtype) ? ScalarValue{contents.get(k), 0} : ScalarValue{0, contents.get_int(k)};
        cells[i].state = State::Written;
    }
}

Place::Place(std::string what, const Buffer& buffer)
    : dtype(buffer.dtype),
      name(std::move(what)),
      corner(buffer.box.size(), 0),
      box(buffer.box),
      physical(buffer.physical),
      layout(buffer.layout),
      cells(static_cast<size_t>(element_count(buffer.physical))) {
    if (layout.is_identity()) return;
    std::vector<Expr> shape, index;
    for (size_t d = 0; d < box.size(); ++d) {
        shape.emplace_back(box[d]);
        index.push_back(axis(d));
    }
    layout_ = index_codes(physical_index(layout, shape, index), {});
}

void Place::enter(std::vector<int64_t> to) {
    corner = std::move(to);
    std::fill(cells.begin(), cells.end(), Cell());
}

std::string Place::element(std::span<const int64_t> index) const {
    return fmt::format("element {} of {}", to_string(index), name);
}

bool Place::inside(std::span<const int64_t> index) const {
    for (size_t d = 0; d < box.size(); ++d)
        if (index[d] < corner[d] || index[d] >= corner[d] + box[d]) return false;
    return true;
}

Place::Cell& Place::cell(std::span<const int64_t> index) {
    TW_CHECK(inside(index), "{} lies outside: it holds {} from {}", element(index), to_string(box), to_string(corner));
    size_t offset = 0;
    if (layout_.empty()) {
        for (size_t d = 0; d < box.size(); ++d)
            offset = offset * static_cast<size_t>(box[d]) + static_cast<size_t>(index[d] - corner[d]);
        return cells[offset];
    }
    logical_.clear();
    for (size_t d = 0; d < box.size(); ++d) logical_.push_back(index[d] - corner[d]);
    for (size_t d = 0; d < physical.size(); ++d) {
        const int64_t i = layout_[d].at(logical_);
        TW_CHECK(i >= 0 && i < physical[d], "{} lies outside its memory {}: index {} is {}", element(index),
                 to_string(physical), d, i);
        offset = offset * static_cast<size_t>(physical[d]) + static_cast<size_t>(i);
    }
    return cells[offset];
}

ScalarValue Place::read(std::span<const int64_t> index, int64_t task) {
    const Cell& c = cell(index);
    TW_CHECK(c.state != State::Unwritten, "{} is read before it is written", element(index));
    TW_CHECK(c.state != State::Partial, "{} is read before its reduction ends", element(index));
    TW_CHECK(c.task < 0 || c.task == task, "{} is read by task {}, but task {} wrote it", element(index), task, c.task);
    return c.value;
}

void Place::write(std::span<const int64_t> index, ScalarValue v, int64_t task) {
    Cell& c = cell(index);
    TW_CHECK(c.state != State::Written, "{} is written twice", element(index));
    c = {stored_as(dtype, v), State::Written, task};
}

Tensor Place::contents() const {
    Tensor out(dtype, box);
    for (size_t i = 0; i < cells.size(); ++i) {
        if (cells[i].state != State::Written) {
            std::vector<int64_t> index(box.size());
            auto rest = static_cast<int64_t>(i);
            for (size_t d = box.size(); d-- > 0; rest /= box[d]) index[d] = rest % box[d];
            internal_error(__FILE__, __LINE__, "every element is written",
                           fmt::format("{} is never {}", element(index),
                                       cells[i].state == State::Partial ? "completed" : "written"));
        }
        if (is_float(dtype))
            out.set(static_cast<int64_t>(i), cells[i].value.f);
        else
            out.set(static_cast<int64_t>(i), cells[i].value.i);
    }
    return out;
}

}  // namespace tilewright
