#include "base/union_find.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(UnionFind, NumbersThatAreJoinedHaveOneRepresentative) {
    UnionFind sets(4);
    EXPECT_NE(sets.find(0), sets.find(3));
    sets.join(0, 1);
    sets.join(2, 3);
    EXPECT_EQ(sets.find(0), sets.find(1));
    EXPECT_NE(sets.find(1), sets.find(2));
    sets.join(1, 3);
    for (size_t k = 1; k < 4; ++k) EXPECT_EQ(sets.find(k), sets.find(0));
}

TEST(UnionFind, AnAddedNumberIsASetOfItsOwn) {
    UnionFind sets(2);
    sets.join(0, 1);
    const size_t added = sets.add();
    EXPECT_EQ(added, 2u);
    EXPECT_NE(sets.find(added), sets.find(0));
    sets.join(added, 0);
    EXPECT_EQ(sets.find(added), sets.find(1));
}

}  // namespace
}  // namespace tilewright
