// Sizes and texts of custom operators.

#include "opaque/custom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "opaque/text.h"

namespace tilewright {
namespace {

TEST(SizeCodes, AreTheNumbersOfConstants) {
    SizeCodes codes;
    EXPECT_EQ(codes.code(Expr(0)), 0);
    EXPECT_EQ(codes.code(Expr(1 << 20)), 1 << 20);
    EXPECT_EQ(codes.size(7), Expr(7));
}

TEST(SizeCodes, AreEqualForEqualExpressionsAlone) {
    SizeCodes codes;
    const Expr n = symbol("n"), m = symbol("m");
    const int64_t code = codes.code(n + 1);
    EXPECT_LT(code, kUnknownSize);
    EXPECT_EQ(codes.code(n + 1), code);
    EXPECT_NE(codes.code(m + 1), code);
    EXPECT_EQ(codes.size(code), n + 1);
    EXPECT_EQ(codes.size(codes.code(Expr(-3))), Expr(-3)) << "a difference may be negative for a while";
}

TEST(SizeCodes, AreNotReachedByArithmeticOnThem) {
    SizeCodes codes;
    std::vector<int64_t> all;
    for (int k = 0; k < 50; ++k) all.push_back(codes.code(symbol("n") + k));
    for (const int64_t code : all)
        for (const int64_t near : {code + 1, code - 1, code / 2, code + 4096, int64_t{-2}, kUnknownSize})
            EXPECT_EQ(codes.size(near), std::nullopt) << near;
}

std::shared_ptr<const CustomOperator> operator_called(const std::string& name) {
    auto op = std::make_shared<CustomOperator>();
    op->domain = "com.example";
    op->name = name;
    op->infer = op->compute = [](CustomCall&) {};
    return op;
}

CustomNode node_with(std::map<std::string, CustomAttribute> attributes) {
    CustomNode node;
    node.name = "layer, \"1\"\n";
    node.version = 3;
    node.attributes = std::move(attributes);
    node.inputs = 2;
    node.outputs = 1;
    return node;
}

TEST(CustomText, ReadsBackAsTheSameNode) {
    CustomOperators operators;
    operators.add(operator_called("Odd name"));
    const auto op = opaque::custom(operators.find("com.example", "Odd name", 3),
                                   node_with({{"i", INT64_MIN},
                                              {"f", -0.1F},
                                              {"inf", std::numeric_limits<float>::infinity()},
                                              {"s", std::string("a, b) = \"c\"\0\x01\xff", 14)},
                                              {"empty", std::string()},
                                              {"is", std::vector<int64_t>{1, -2}},
                                              {"none", std::vector<int64_t>{}},
                                              {"fs", std::vector<float>{1e-20F, 3}},
                                              {"odd, name", int64_t{1}},
                                              {"t", TensorOperand{2}}}));
    const std::string text = op->print();
    const OpaquePointer read = opaque_op(text, &operators);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->print(), text);
    EXPECT_EQ(custom_operator_of(*read), operators.find("com.example", "Odd name", 3));
}

TEST(CustomText, NamesAnOperatorThatWasNotGiven) {
    const std::string text = opaque::custom(operator_called("Filter"), node_with({}))->print();
    const auto error = [&text](const CustomOperators* operators) -> std::string {
        try {
            opaque_op(text, operators);
        } catch (const ModelError& e) {
            return e.what();
        }
        return "";
    };
    CustomOperators others;
    others.add(operator_called("Other"));
    EXPECT_EQ(error(nullptr), "the operator com.example.Filter was not given");
    EXPECT_EQ(error(&others), "the operator com.example.Filter was not given");
    const CustomOperators any = CustomOperators::any();
    EXPECT_EQ(opaque_op(text, &any)->print(), text) << "to be inspected";
}

TEST(CustomText, IsRefusedWhereItIsDamaged) {
    CustomOperators operators;
    operators.add(operator_called("F"));
    for (const char* text :
         {"Custom()", "Custom(domain=com.example, name=F, version=1, node=n, inputs=-1, outputs=1)",
          "Custom(domain=com.example, name=F, version=1, node=n, inputs=1, outputs=1, \"attribute a\"=1)",
          "Custom(domain=com.example, name=F, version=1, node=n, inputs=1, outputs=1, \"attribute a\"=\"x:1\")",
          "Custom(domain=com.example, name=F, version=1, node=n, inputs=1, outputs=1, \"attribute a\"=\"I:1,,2\")",
          "Custom(domain=com.example, name=F, version=1, node=n, inputs=1, outputs=1, \"attribute a\"=\"t:0\")",
          "Custom(domain=com.example, name=F, version=1, node=n, inputs=1, outputs=1, \"attribute a\"=\"t:2\")"})
        EXPECT_THROW(opaque_op(text, &operators), ModelError) << text;
}

}  // namespace
}  // namespace tilewright
