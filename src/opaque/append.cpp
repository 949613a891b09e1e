// Append: rows behind rows. A concatenation along the outermost dimension, whose operands may lie in the memory of its
// result (Executor::bind).

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "opaque/operators.h"
#include "opaque/text.h"

namespace tilewright {

namespace {

class Append final : public OpaqueOp {
  public:
    std::string print() const override { return "Append()"; }
    bool concatenates() const override { return true; }
    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        const TensorView &rows = inputs[0], &more = inputs[1];
        Shape shape(rows.shape.begin(), rows.shape.end());
        if (shape.empty() || more.shape.size() != shape.size() || more.dtype != rows.dtype ||
            !std::equal(shape.begin() + 1, shape.end(), more.shape.begin() + 1))
            model_error("Append: rows of shape {} cannot follow rows of shape {}", to_string(more.shape),
                        to_string(rows.shape));
        shape[0] += more.shape[0];
        const TensorView all = outputs.allocate(0, shape);
        const size_t first = static_cast<size_t>(rows.count()) * byte_size(rows.dtype);
        const size_t second = static_cast<size_t>(more.count()) * byte_size(more.dtype);
        if (first > 0) std::memcpy(all.data, rows.data, first);
        if (second > 0) std::memcpy(all.as<std::byte>() + first, more.data, second);
    }
};

}  // namespace

namespace opaque {

Operator append() { return std::make_shared<Append>(); }

}  // namespace opaque

std::vector<OpaqueReader> append_readers() {
    return {{"Append", [](const OpaqueText&) { return opaque::append(); }}};
}

}  // namespace tilewright
