#include "index/intern_set.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "index/expr.h"

namespace tilewright {
namespace {

const std::string* interned(InternSet<std::string>& set, const std::string& text, size_t hash) {
    return set.find_or_insert(
        hash, [&](const std::string& s) { return s == text; }, [&] { return text; });
}

TEST(InternSet, GivesOnePointerToEachValue) {
    InternSet<std::string> set;
    std::vector<const std::string*> first;
    for (int k = 0; k < 20000; ++k) first.push_back(interned(set, std::to_string(k), std::hash<int>()(k * 7919)));
    for (int k = 0; k < 20000; ++k) {
        EXPECT_EQ(*first[static_cast<size_t>(k)], std::to_string(k));
        EXPECT_EQ(interned(set, std::to_string(k), std::hash<int>()(k * 7919)), first[static_cast<size_t>(k)]);
    }
}

TEST(InternSet, SeparatesValuesWithEqualHashes) {
    InternSet<std::string> set;
    for (const size_t hash : {size_t{0}, SIZE_MAX}) {
        const std::string* a = interned(set, "a", hash);
        const std::string* b = interned(set, "b", hash);
        const std::string* c = interned(set, "c", hash ^ (size_t{1} << 63));  // differs in the last bit of the trie
        EXPECT_EQ(*a, "a");
        EXPECT_EQ(*b, "b");
        EXPECT_EQ(*c, "c");
        EXPECT_EQ(interned(set, "a", hash), a);
        EXPECT_EQ(interned(set, "b", hash), b);
        EXPECT_EQ(interned(set, "c", hash ^ (size_t{1} << 63)), c);
        const auto found = [&](const char* text) {
            return set.find(hash, [&](const std::string& s) { return s == text; });
        };
        EXPECT_EQ(found("a"), a);
        EXPECT_EQ(found("b"), b);
        EXPECT_EQ(found("c"), nullptr) << "it has another hash";
    }
    EXPECT_EQ(set.size(), 6u);
    EXPECT_EQ(set.find(1, [](const std::string&) { return true; }), nullptr);
}

TEST(InternSet, InsertsNothingIfMakeThrows) {
    InternSet<std::string> set;
    const auto is_x = [](const std::string& s) { return s == "x"; };
    EXPECT_THROW(set.find_or_insert(1, is_x, []() -> std::string { throw std::runtime_error("no"); }),
                 std::runtime_error);
    EXPECT_EQ(*set.find_or_insert(1, is_x, [] { return std::string("x"); }), "x");
}

TEST(InternSet, ThreadsAgreeOnEachValue) {
    constexpr int kThreads = 4, kValues = 3000;
    InternSet<std::string> set;
    std::vector<std::vector<const std::string*>> got(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (int k = 0; k < kValues; ++k)
                got[static_cast<size_t>(t)].push_back(
                    interned(set, std::to_string(k), static_cast<size_t>(k % 1000) * 0x9E3779B97F4A7C15u));
        });
    for (std::thread& t : threads) t.join();
    for (int t = 1; t < kThreads; ++t) EXPECT_EQ(got[static_cast<size_t>(t)], got[0]);
    EXPECT_EQ(std::unordered_set<const std::string*>(got[0].begin(), got[0].end()).size(), size_t{kValues});
}

TEST(InternedExpressions, AreTheSameInAllThreads) {
    constexpr int kThreads = 4;
    std::vector<std::vector<Expr>> got(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (int k = 1; k < 400; ++k) {
                const Expr x = axis(static_cast<size_t>(k % 7)) * (100000 + k) + symbol("threads_n");
                got[static_cast<size_t>(t)].push_back(floor_div(x, 1000 + k) + mod(x, 77) +
                                                      min(x, symbol("threads_m")));
            }
        });
    for (std::thread& t : threads) t.join();
    for (int t = 1; t < kThreads; ++t) EXPECT_EQ(got[static_cast<size_t>(t)], got[0]);
}

TEST(InternedExpressions, AreUniformWithoutAxesAndLoads) {
    EXPECT_TRUE(is_uniform(floor_div(symbol("n") + 3, 4) * scalar("k")));
    EXPECT_FALSE(is_uniform(min(symbol("n"), axis(2)) + 1));
    EXPECT_FALSE(is_uniform(mod(load(0), 4)));
}

TEST(InternedExpressions, OverflowIsReportedEachTime) {
    const Expr large = symbol("n") * (INT64_MAX / 2);
    for (int k = 0; k < 2; ++k) EXPECT_THROW(large * 3, ModelError);
}

}  // namespace
}  // namespace tilewright
