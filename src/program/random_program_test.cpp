#include "program/random_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace tilewright {
namespace {

TEST(RandomProgram, programs_are_valid_and_run) {
    std::set<Category> categories;
    int symbolic = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        const Program p = random_program(seed, 10);
        ASSERT_EQ(verify(p), std::vector<std::string>()) << "seed " << seed << "\n" << print(p);
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        const std::vector<Tensor> outputs = interpret(p, inputs);
        ASSERT_EQ(outputs.size(), p.outputs.size());
        EXPECT_EQ(largest_difference(outputs, interpret(p, inputs)), 0) << "seed " << seed;
        for (const Primitive& primitive : p.primitives) categories.insert(category(p, primitive));
        for (const ValueId v : p.inputs)
            for (const Expr d : p.values[v].shape) symbolic += d.is_constant() ? 0 : 1;
    }
    EXPECT_EQ(categories, (std::set<Category>{Category::Elementwise, Category::Broadcast, Category::Reduce,
                                              Category::Layout, Category::Linear}));
    EXPECT_GT(symbolic, 50);
}

TEST(RandomProgram, depends_on_the_seed_only_and_smaller_sizes_are_prefixes) {
    EXPECT_EQ(print(random_program(3, 12)), print(random_program(3, 12)));
    EXPECT_NE(print(random_program(3, 12)), print(random_program(4, 12)));
    const Program shorter = random_program(3, 5), longer = random_program(3, 12);
    ASSERT_LE(shorter.primitives.size(), longer.primitives.size());
    for (const PrimitiveId id : shorter.primitives.ids())
        EXPECT_EQ(shorter.primitives[id].name, longer.primitives[id].name);
}

TEST(RandomProgram, differences_are_relative_and_exact_for_integers) {
    const auto floats = [](double v) { return std::vector<Tensor>{Tensor::of<double>(DType::F64, {1}, {v})}; };
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_DOUBLE_EQ(largest_difference(floats(1), floats(2)), 0.5);
    EXPECT_EQ(largest_difference(floats(NAN), floats(NAN)), 0);
    EXPECT_EQ(largest_difference(floats(1), floats(NAN)), infinity);
    EXPECT_EQ(largest_difference({Tensor::of_i64({1})}, {Tensor::of_i64({2})}), infinity);
}

}  // namespace
}  // namespace tilewright
