#include "index/map.h"
#include "index/axes_test.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "index/random_test.h"

namespace tilewright {
namespace {

using testing::Choice;
using testing::for_all_points;

std::string inverse(const IndexMap& map, std::vector<Expr> codomain) {
    const auto i = invert(map, codomain);
    return i ? print(*i) : "none";
}

TEST(IndexMap, SplitAndFuseAreInverse) {
    const std::vector<Expr> flat{3, 32, 5}, apart{3, 8, 4, 5};
    const IndexMap split = split_axis(flat, 1, 4);
    EXPECT_EQ(print(split), "[3, 8, 4, 5] -> [i0, 4*i1 + i2, i3]");
    EXPECT_EQ(print(simplify(fuse_axes(apart, 1, 2))), "[3, 32, 5] -> [i0, i1 // 4, i1 % 4, i2]");
    EXPECT_EQ(invert(split, flat), simplify(fuse_axes(apart, 1, 2)));
    EXPECT_EQ(compose(split, simplify(fuse_axes(apart, 1, 2))), identity_map(flat));
}

TEST(IndexMap, PermutationsAndReversalsInvert) {
    const std::vector<Expr> shape{2, 3, n};
    const IndexMap permuted = permute_axes(shape, std::vector<size_t>{2, 0, 1});
    EXPECT_EQ(print(permuted), "[$n, 2, 3] -> [i1, i2, i0]");
    EXPECT_EQ(inverse(permuted, shape), "[2, 3, $n] -> [i2, i0, i1]");
    EXPECT_EQ(inverse(reverse_axis(shape, 2), shape), "[2, 3, $n] -> [i0, i1, $n - i2 - 1]");
}

TEST(IndexMap, AReshapeInverts) {
    // [4, 6] seen as [3, 8]: neither is a split of the other
    const Expr flat = i0 * 6 + i1;
    const IndexMap reshape{{4, 6}, {floor_div(flat, 8), mod(flat, 8)}};
    EXPECT_EQ(inverse(reshape, {3, 8}), "[3, 8] -> [(8*i0 + i1) // 6, (8*i0 + i1) % 6]");
    // [3, 24] seen as [2, 6, 6]: 24*i0 + i1 in base 6
    const Expr deep = i0 * 24 + i1;
    EXPECT_EQ(inverse({{3, 24}, {floor_div(deep, 36), mod(floor_div(deep, 6), 6), mod(deep, 6)}}, {2, 6, 6}),
              "[2, 6, 6] -> [(6*i0 + i1) // 4, 6*((6*i0 + i1) % 4) + i2]");
}

TEST(IndexMap, SymbolicFactorsThatDivideInvert) {
    EXPECT_EQ(inverse({{n, 4, m}, {i0, i1 * m + i2}}, {n, m * 4}), "[$n, 4*$m] -> [i0, i1 // $m, i1 % $m]");
    EXPECT_EQ(inverse({{n * 4}, {floor_div(i0, 4), mod(i0, 4)}}, {n, 4}), "[$n, 4] -> [4*i0 + i1]");
    EXPECT_EQ(inverse({{n * m}, {floor_div(i0, m), mod(i0, m)}}, {n, m}), "[$n, $m] -> [$m*i0 + i1]");
}

TEST(IndexMap, OnlyBijectionsHaveAnInverse) {
    EXPECT_EQ(inverse({{8}, {i0}}, {9}), "none");                               // not onto
    EXPECT_EQ(inverse({{8}, {floor_div(i0, 2)}}, {4}), "none");                 // not one to one
    EXPECT_EQ(inverse({{4, 4}, {i0, i0}}, {4, 4}), "none");                     // i1 is lost
    EXPECT_EQ(inverse({{4, 4}, {i0 * 3 + i1}}, {16}), "none");                  // overlaps
    EXPECT_EQ(inverse({{8}, {i0 + 1}}, {8}), "none");                           // leaves the box
    EXPECT_EQ(inverse({{6}, {floor_div(i0, 4), mod(i0, 4)}}, {2, 4}), "none");  // a partial last block
    EXPECT_EQ(inverse({{n}, {floor_div(i0, 4), mod(i0, 4)}}, {ceil_div(n, 4), 4}), "none");
    EXPECT_EQ(inverse({{4}, {i0, 0}}, {4, 2}), "none");
}

TEST(IndexMap, UnitAxesAreAddedAndRemoved) {
    EXPECT_EQ(inverse({{1, 5}, {i1}}, {5}), "[5] -> [0, i0]");
    EXPECT_EQ(inverse({{5}, {0, i0}}, {1, 5}), "[1, 5] -> [i1]");
}

// --- against brute force

struct Concrete {
    IndexMap map;
    std::vector<int64_t> domain, codomain;
};

std::vector<Expr> exprs(const std::vector<int64_t>& v) { return {v.begin(), v.end()}; }

int64_t count(const std::vector<int64_t>& extents) {
    int64_t c = 1;
    for (const int64_t e : extents) c *= e;
    return c;
}

std::vector<int64_t> image(const IndexMap& map, const std::vector<int64_t>& point) {
    Env env;
    env.axes = point;
    std::vector<int64_t> out;
    for (const Expr r : map.results) out.push_back(evaluate(r, env));
    return out;
}

std::vector<int64_t> extents_of(const IndexMap& map) {
    std::vector<int64_t> out;
    for (const Expr e : map.extents) out.push_back(e.constant());
    return out;
}

/// A composition of splits, fuses, permutations and reversals: from a box back to the same box.
Concrete random_bijection(Choice& choose) {
    Concrete c;
    for (int64_t k = choose.between(1, 3); k > 0; --k) c.codomain.push_back(choose.between(1, 8));
    c.map = identity_map(exprs(c.codomain));
    for (int64_t step = choose.between(1, 5); step > 0; --step) {
        const std::vector<Expr> box = c.map.extents;
        const auto pick = static_cast<size_t>(choose.between(0, static_cast<int64_t>(box.size()) - 1));
        IndexMap next = identity_map(box);
        switch (choose.between(0, 3)) {
            case 0: {
                std::vector<int64_t> factors;
                for (int64_t f = 1; f <= box[pick].constant(); ++f)
                    if (box[pick].constant() % f == 0) factors.push_back(f);
                next = split_axis(
                    box, pick,
                    factors[static_cast<size_t>(choose.between(0, static_cast<int64_t>(factors.size()) - 1))]);
                break;
            }
            case 1:
                next = fuse_axes(box, pick,
                                 static_cast<size_t>(choose.between(1, static_cast<int64_t>(box.size() - pick))));
                break;
            case 2: {
                std::vector<size_t> order(box.size());
                for (size_t k = 0; k < order.size(); ++k) order[k] = k;
                for (size_t k = order.size(); k > 1; --k)
                    std::swap(order[k - 1], order[static_cast<size_t>(choose.between(0, static_cast<int64_t>(k) - 1))]);
                next = permute_axes(box, order);
                break;
            }
            default:
                next = reverse_axis(box, pick);
        }
        c.map = compose(c.map, next);
    }
    c.domain = extents_of(c.map);
    return c;
}

TEST(IndexMapProperty, ChainsOfSplitsFusesPermutationsAndReversalsInvert) {
    EXPECT_TRUE(rc::check([] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        for (uint64_t k = 0; k < 10; ++k) {
            Choice choose(seed + k);
            const Concrete c = random_bijection(choose);
            RC_LOG() << print(c.map) << " onto " << to_string(exprs(c.codomain)) << '\n';
            const auto back = invert(c.map, exprs(c.codomain));
            RC_ASSERT(back.has_value());
            RC_LOG() << "inverse " << print(*back) << '\n';
            RC_ASSERT(for_all_points(c.domain, [&](const std::vector<int64_t>& point) {
                return image(*back, image(c.map, point)) == point;
            }));
            RC_ASSERT(for_all_points(c.codomain, [&](const std::vector<int64_t>& point) {
                return image(c.map, image(*back, point)) == point;
            }));
        }
    }));
}

TEST(IndexMapProperty, AReshapeBetweenAnyTwoShapesOfEqualCountInverts) {
    EXPECT_TRUE(rc::check([] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        for (uint64_t repetition = 0; repetition < 10; ++repetition) {
            Choice choose(seed + repetition);
            const auto factored = [&](int64_t total) {
                std::vector<int64_t> shape;
                while (total > 1) {
                    int64_t f = choose.between(2, total);
                    while (total % f != 0) ++f;
                    shape.push_back(f);
                    total /= f;
                }
                if (shape.empty()) shape.push_back(1);
                return shape;
            };
            const int64_t total =
                std::vector<int64_t>{12, 24, 30, 36, 48, 60, 64, 72}[static_cast<size_t>(choose.between(0, 7))];
            const auto from = factored(total), to = factored(total);
            Expr flat = 0;
            for (size_t k = 0; k < from.size(); ++k) flat = flat * from[k] + axis(k);
            IndexMap map{exprs(from), {}};
            for (size_t k = 0; k < to.size(); ++k) {
                const int64_t below = count({to.begin() + static_cast<std::ptrdiff_t>(k) + 1, to.end()});
                map.results.push_back(simplify(mod(floor_div(flat, below), to[k]), map.ranges()));
            }
            RC_LOG() << print(map) << '\n';
            const auto back = invert(map, exprs(to));
            RC_ASSERT(back.has_value());
            RC_ASSERT(
                for_all_points(from, [&](const std::vector<int64_t>& p) { return image(*back, image(map, p)) == p; }));
        }
    }));
}

TEST(IndexMapProperty, AnInverseIsGivenOnlyForBijections) {
    int inverted = 0;
    EXPECT_TRUE(rc::check([&] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        for (uint64_t k = 0; k < 100; ++k) {
            Choice choose(seed + k);
            Concrete c;
            for (int a = 0; a < 2; ++a) c.domain.push_back(choose.between(1, 4));
            c.map.extents = exprs(c.domain);
            testing::Vocabulary words;
            words.axes = 2;
            words.symbols = false;
            for (int r = 0; r < 2; ++r) {
                c.map.results.push_back(choose.one_in(2) ? random_tree(choose, words, 2)->expr()
                                                         : axis(static_cast<size_t>(choose.between(0, 1))));
                c.codomain.push_back(choose.between(1, 4));
            }
            const auto back = invert(c.map, exprs(c.codomain));
            if (!back) continue;
            ++inverted;
            RC_LOG() << print(c.map) << " onto " << to_string(exprs(c.codomain)) << " inverse " << print(*back) << '\n';
            RC_ASSERT(count(c.domain) == count(c.codomain));
            RC_ASSERT(for_all_points(c.domain, [&](const std::vector<int64_t>& point) {
                const auto there = image(c.map, point);
                for (size_t d = 0; d < there.size(); ++d)
                    if (there[d] < 0 || there[d] >= c.codomain[d]) return false;
                return image(*back, there) == point;
            }));
        }
    }));
    EXPECT_GT(inverted, 50);
}

TEST(IndexMapProperty, ComposeIsApplicationInTurn) {
    EXPECT_TRUE(rc::check([] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        Choice choose(seed);
        const Concrete inner = random_bijection(choose);
        testing::Vocabulary words;
        words.axes = static_cast<int64_t>(inner.codomain.size());
        words.symbols = false;
        IndexMap outer{exprs(inner.codomain), {}};
        for (int r = 0; r < 2; ++r) outer.results.push_back(random_tree(choose, words, 3)->expr());
        const IndexMap both = compose(outer, inner.map);
        RC_LOG() << print(outer) << " after " << print(inner.map) << " = " << print(both) << '\n';
        RC_ASSERT(for_all_points(inner.domain, [&](const std::vector<int64_t>& point) {
            return image(both, point) == image(outer, image(inner.map, point));
        }));
    }));
}

}  // namespace
}  // namespace tilewright
