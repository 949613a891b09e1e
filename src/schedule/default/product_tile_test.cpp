#include "schedule/default/product_tile.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

/// 13 rows whose lines share a set of L1, times 768 columns.
ProductShape far_apart() {
    ProductShape shape;
    shape.vectors = 48;
    shape.rows = 13;
    shape.stride = 3072;
    shape.steps = 3072;
    return shape;
}

TEST(ProductTile, HasNoMoreRowsThanTheSetOfL1ThatTheyShareHolds) {
    EXPECT_LE(choose_product_tile(far_apart(), generic_target(VectorIsa::avx512)).rows, 6);
}

TEST(ProductTile, HasAllRowsWhereThePanelComesFromMemory) {
    ProductShape shape = far_apart();
    shape.far_bytes = 5;
    EXPECT_EQ(choose_product_tile(shape, generic_target(VectorIsa::avx512)).rows, 13);
    shape.far_bytes = 500;  // sooner than the rows are multiplied
    EXPECT_LE(choose_product_tile(shape, generic_target(VectorIsa::avx512)).rows, 6);
}

}  // namespace
}  // namespace tilewright
