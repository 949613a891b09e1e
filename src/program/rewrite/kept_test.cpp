// The cache of rewrite choices: a choice is restored exactly, and only under the key it was stored with.

#include "program/rewrite/kept.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "base/temporary_folder_test.h"
#include "program/rewrite/rewrite_test.h"
#include "program/text.h"

namespace tilewright {
namespace {

/// Two equal layers, each a convolution with its normalisation, then a different convolution.
constexpr const char* kLayers = R"(program layers {
  input x: f32[1, 16, 18, 18]
  const w: f32[16, 16, 3, 3] = #0000000000000001
  const u: f32[16, 16, 3, 3] = #0000000000000002
  const s: f32[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
  c: f32[1, 16, 16, 16] = [1, 16, 16, 16] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, i2 + i5, i3 + i6], @1 = w[i1, i4, i5, i6]  ; first Conv
  n: f32[1, 16, 16, 16] = [1, 16, 16, 16] mul(@0, @1) where @0 = c[i0, i1, i2, i3], @1 = s[i1]  ; scaled Mul
  d: f32[1, 16, 14, 14] = [1, 16, 14, 14] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) where @0 = n[i0, i4, i2 + i5, i3 + i6], @1 = u[i1, i4, i5, i6]  ; second Conv
  output d
})";

/// An evaluator whose costs are operations, and which counts its calls.
struct CountingEvaluator {
    std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
    PlannedCost operator()(const Program& program) const {
        ++*calls;
        const RewriteContext context(program, {.work = int64_t{1} << 29});
        PlannedCost cost;
        cost.of.resize(program.primitives.size());
        for (const PrimitiveId id : program.primitives.ids()) {
            const Primitive& p = program.primitives[id];
            cost.of[id] = context.foldable(p.outputs[0]) ? 0 : rough_operations(*p.expr(), program.assumed);
            cost.total += cost.of[id];
        }
        return cost;
    }
};

class KeptRewrites : public testing::Test {
  protected:
    KeptRewrites() {
        search_.rules.winograd = true;
        search_.rules.folding.work = int64_t{1} << 29;
        search_.piece = 2;
        search_.evaluator = evaluator_;
        search_.evaluator_key = "operations";
        search_.kept = std::make_shared<CodeCache>(folder_ / "code");
    }

    /// The rewritten program, and the number of evaluator calls.
    std::pair<std::string, int> rewritten(const Program& program, RewriteReport* report = nullptr) {
        const int before = *evaluator_.calls;
        const Program out = rewrite(program, search_, report);
        EXPECT_EQ(verify(out), std::vector<std::string>());
        std::string text = print(out);
        for (const Primitive& p : out.primitives)
            for (const uint32_t node : p.origin.nodes) text += std::to_string(node) + ' ';
        return {text, *evaluator_.calls - before};
    }

    /// The file of the only cached choice.
    std::filesystem::path file() const {
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / "code"))
            if (entry.path().extension() == ".code") return entry.path();
        return {};
    }
    ptrdiff_t files() const {
        const std::filesystem::directory_iterator all(folder_ / "code");
        return std::count_if(begin(all), end(all), [](const auto& e) { return e.path().extension() == ".code"; });
    }

    static Program with_nodes(std::string_view text) {
        Program p = parse_sound(text);
        for (const PrimitiveId id : p.primitives.ids()) {
            p.nodes.push_back({p.primitives[id].name, p.primitives[id].source});
            p.primitives[id].origin.nodes = {id.value};
        }
        return p;
    }

    TemporaryFolder folder_;
    CountingEvaluator evaluator_;
    RewriteSearch search_;
};

TEST_F(KeptRewrites, AreReusedWithoutASearch) {
    const Program p = with_nodes(kLayers);
    RewriteReport first, second;
    const auto [made, calls] = rewritten(p, &first);
    EXPECT_NE(made.find("n/scaled"), std::string::npos) << "nothing was rewritten:\n" << made;
    EXPECT_GT(calls, 1);
    EXPECT_EQ(files(), 1);
    search_.kept = std::make_shared<CodeCache>(folder_ / "code");
    const auto [found, calls_again] = rewritten(p, &second);
    EXPECT_EQ(found, made);
    EXPECT_EQ(calls_again, 0);
    EXPECT_EQ(second.applied, first.applied);
    EXPECT_EQ(second.costed, first.costed);
    EXPECT_EQ(second.planned_after, first.planned_after);
    EXPECT_EQ(files(), 1);
}

TEST_F(KeptRewrites, DoNotDependOnTheContentsOfWeights) {
    const auto [made, calls] = rewritten(with_nodes(kLayers));
    Program p = with_nodes(kLayers);
    for (auto& [v, tensor] : p.constants)
        if (tensor.count() > kSmallConstant) {
            tensor = Tensor(tensor.dtype(), tensor.shape());
            for (int64_t i = 0; i < tensor.count(); ++i) tensor.set(i, static_cast<double>(i % 7) - 3);
            p.unread.erase(v);
        }
    EXPECT_EQ(rewritten(p).second, 0);
}

TEST_F(KeptRewrites, AnotherProgramOptionOrEvaluatorIsAMiss) {
    const Program p = with_nodes(kLayers);
    rewritten(p);
    const auto misses = [&](const Program& program) { return rewritten(program).second > 0; };
    EXPECT_FALSE(misses(p));
    std::string other = kLayers;
    other.replace(other.find("x: f32[1, 16"), 12, "z: f32[1, 16");
    other.replace(other.find("= x["), 4, "= z[");
    EXPECT_TRUE(misses(with_nodes(other))) << "different names";
    Program filled = p;
    for (auto& [v, tensor] : filled.constants)
        if (tensor.count() == 16)
            for (int64_t i = 0; i < 16; ++i) {
                if (i == 0) tensor = Tensor(DType::F32, {16});
                tensor.set(i, 2.0);
            }
    EXPECT_TRUE(misses(filled)) << "a constant with a fill";
    Program sized = p;
    sized.assumed[*symbol("seq").as_var()] = 7;
    EXPECT_TRUE(misses(sized)) << "other sizes are assumed";
    search_.margin = 0.03;
    EXPECT_TRUE(misses(p));
    search_.margin = RewriteSearch{}.margin;
    EXPECT_FALSE(misses(p));
    search_.rules.winograd = false;
    EXPECT_TRUE(misses(p));
    search_.rules.winograd = true;
    search_.evaluator_key = "operations of another kind";
    EXPECT_TRUE(misses(p));
    search_.evaluator_key.clear();
    const ptrdiff_t before = files();
    EXPECT_TRUE(misses(p)) << "the evaluator has no key";
    EXPECT_TRUE(misses(p));
    EXPECT_EQ(files(), before);
}

TEST_F(KeptRewrites, AFlippedByteIsAMiss) {
    const Program p = with_nodes(kLayers);
    const std::string made = rewritten(p).first;
    const std::string whole = read_whole(file().string());
    for (const size_t at : {size_t{3}, whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ 1);
        std::ofstream(file(), std::ios::binary) << damaged;
        const auto [text, calls] = rewritten(p);
        EXPECT_EQ(text, made);
        EXPECT_GT(calls, 0) << "byte " << at;
        EXPECT_EQ(rewritten(p).second, 0) << "the choice was not cached again";
    }
}

class RewritesText : public testing::Test {
  protected:
    RewritesText() : program_(parse_sound(kLayers)), pieces_(pieces(program_, cut(program_, 32))) {
        RewriteSearch options;
        options.rules.winograd = true;
        options.rules.folding.work = int64_t{1} << 29;
        chosen_.pieces.emplace_back(proposals(pieces_[0].program, options).front());
        chosen_.report.applied["a rule"] = 3;
    }

    std::vector<const Piece*> first() const { return {&pieces_[0]}; }

    Program program_;
    std::vector<Piece> pieces_;
    ChosenRewrites chosen_;
};

TEST_F(RewritesText, RoundTrips) {
    ASSERT_FALSE(chosen_.pieces[0]->way.empty());
    const auto text = print(chosen_, first());
    ASSERT_TRUE(text.has_value());
    const auto read = parse_rewrites(*text, first());
    ASSERT_TRUE(read.has_value()) << *text;
    EXPECT_EQ(print(*read, first()), text);
    EXPECT_EQ(read->pieces[0]->way, chosen_.pieces[0]->way);
    EXPECT_EQ(read->pieces[0]->program.unread, chosen_.pieces[0]->program.unread);
    EXPECT_EQ(structure_hash(read->pieces[0]->program), structure_hash(chosen_.pieces[0]->program));
}

TEST_F(RewritesText, RejectsInvalidText) {
    const std::string text = *print(chosen_, first());
    for (size_t length = 0; length < text.size(); length += 97)
        EXPECT_FALSE(parse_rewrites(text.substr(0, length), first())) << length;
    EXPECT_FALSE(parse_rewrites(text + "more", first()));
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"output d", "output c"}, {"input x: f32[1, 16", "input x: f32[1, 17"}, {"const w", "input w"}}) {
        std::string other = text;
        const size_t at = other.find(from);
        ASSERT_NE(at, std::string::npos) << from << "\n" << text;
        other.replace(at, from.size(), to);
        EXPECT_FALSE(parse_rewrites(other, first())) << to;
    }
}

TEST_F(RewritesText, LargeNewConstantsAreNotCached) {
    Program& p = chosen_.pieces[0]->program;
    const ValueId v = p.values.push_back({"large", DType::F32, {Expr(kSmallConstant + 1)}});
    p.constants.emplace(v, Tensor(DType::F32, {kSmallConstant + 1}));
    EXPECT_FALSE(print(chosen_, first()));
}

}  // namespace
}  // namespace tilewright
