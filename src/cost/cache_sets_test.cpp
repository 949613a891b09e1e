#include "cost/cache_sets.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(CacheSets, MultiplesOfAWayCollide) {
    EXPECT_EQ(steps_to_same_set(4096), 1);
    EXPECT_EQ(steps_to_same_set(-8192), 1);
    EXPECT_EQ(steps_to_same_set(1024), 4);
    EXPECT_EQ(steps_to_same_set(4096 + 64), 64);
    EXPECT_EQ(steps_to_same_set(4), 1024);
}

TEST(CacheSets, CountsThePointsOfTheFullestSet) {
    EXPECT_EQ(points_in_fullest_set(1, 0, 14, 4096), 14);
    EXPECT_EQ(points_in_fullest_set(1, 0, 14, 2048), 7);
    EXPECT_EQ(points_in_fullest_set(1, 0, 14, 4096 + 64), 1);
    EXPECT_EQ(points_in_fullest_set(2, 4096, 3, 64), 2) << "rows below each other collide, neighbours do not";
}

TEST(CacheSets, FirstLevelCachesHaveTheSizeOfTheTarget) {
    Target target;
    EXPECT_EQ(l1_bytes(target), 32 << 10) << "unknown";
    EXPECT_EQ(l1_ways(target), 8);
    target.caches.emplace_back().bytes = 48 << 10;
    EXPECT_EQ(l1_bytes(target), 48 << 10);
    EXPECT_EQ(l1_ways(target), 12);
}

TEST(CacheSets, AWayIsWhatAnAddressMovesByToReturnToItsSet) {
    CacheLevel cache;
    cache.bytes = 48 << 10;
    EXPECT_EQ(way_bytes(cache), 4096);
    cache.level = 2;
    cache.bytes = 2 << 20;
    EXPECT_EQ(way_bytes(cache), 256 << 10) << "8 ways where they are unknown";
    cache.ways = 16;
    EXPECT_EQ(way_bytes(cache), 128 << 10);
    cache.level = 3;
    EXPECT_EQ(way_bytes(cache), 0) << "sets are hashes of addresses";
}

}  // namespace
}  // namespace tilewright
