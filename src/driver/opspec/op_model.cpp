#include "driver/opspec/op_model.h"

#include <cmath>

#include "driver/zoo/builder.h"
#include "driver/zoo/weights.h"

namespace tilewright {

namespace {

template <class Use>
auto build(const OpSpec& op, uint64_t seed, bool with_data, Use use) {
    nets::BuildOptions options;
    options.seed = seed;
    options.with_data = with_data;
    nets::GraphBuilder builder(op.kind->name, options);
    op.kind->build(builder, op);
    return use(builder);
}

}  // namespace

ZooModel build_op(const OpSpec& op, uint64_t seed) {
    return build(op, seed, true, [](const nets::GraphBuilder& b) {
        ZooModel out = b.summary();
        out.bytes = b.serialize();
        return out;
    });
}

ZooModel summarize_op(const OpSpec& op) {
    return build(op, 0, false, [](const nets::GraphBuilder& b) { return b.summary(); });
}

void write_op(const OpSpec& op, const std::string& path, uint64_t seed) {
    build(op, seed, true, [&](const nets::GraphBuilder& b) { b.write(path); });
}

std::vector<Tensor> draw_inputs(const std::vector<ZooInput>& inputs, uint64_t seed) {
    std::vector<Tensor> out;
    for (const ZooInput& in : inputs) {
        Shape shape;
        for (const DeclaredDim& d : in.shape) shape.push_back(std::get<int64_t>(d));
        Tensor t(in.dtype, shape, false);
        if (in.dtype == DType::F32) {
            nets::draw_normal(in.name, seed, {}, t.as_mutable<float>());
        } else {
            std::vector<float> values(static_cast<size_t>(t.count()));
            nets::draw_normal(in.name, seed, {}, values);
            for (int64_t i = 0; i < t.count(); ++i)
                t.set(i, static_cast<int64_t>(std::abs(values[static_cast<size_t>(i)]) * 1e6f) % in.limit);
        }
        out.push_back(std::move(t));
    }
    return out;
}

}  // namespace tilewright
