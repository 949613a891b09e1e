// Operators of the caller, by the C interface and its C++ header.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "base/temporary_folder_test.h"
#include "graph/export.h"
#include "ops/rule_test.h"
#include "runtime/float_mode.h"
#include "tilewright/tilewright.hpp"

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tilewright::DType;
using tilewright::Node;
using tilewright::test::In;

/// A node of an operator of the caller's.
Node own(const std::string& op, std::vector<std::string> inputs, std::vector<std::string> outputs,
         std::map<std::string, tilewright::Attribute> attributes = {}) {
    Node n = tilewright::test::node(op, std::move(inputs), std::move(outputs), std::move(attributes));
    n.domain = "com.example";
    return n;
}

std::string bytes_of(const std::vector<In>& inputs, std::vector<Node> nodes, const std::vector<std::string>& outputs,
                     std::map<std::string, tilewright::Tensor> initializers = {}) {
    return model_to_bytes(
        tilewright::test::model(tilewright::test::graph(inputs, std::move(nodes), outputs, std::move(initializers))));
}

/// y = Own(x), of rank 1 and the dynamic size n.
std::string one_node(std::map<std::string, tilewright::Attribute> attributes = {}) {
    return bytes_of({{"x", DType::F32, {"n"}}}, {own("Own", {"x"}, {"y"}, std::move(attributes))}, {"y"});
}

tw::Model compile(const std::string& bytes, const std::vector<tw::Operator>& operators, tw::Options options = {}) {
    options.operators = operators;
    return tw::Model::from_memory(bytes.data(), bytes.size(), options);
}

tw::OperatorDefinition definition(const std::string& name, std::function<void(tw::Call&)> infer,
                                  std::function<void(tw::Call&)> compute) {
    tw::OperatorDefinition d;
    d.domain = "com.example";
    d.name = name;
    d.infer = std::move(infer);
    d.compute = std::move(compute);
    return d;
}

/// y[i] = f(x[i])
tw::Operator elementwise(const std::function<float(float)>& f, const std::string& name = "Own") {
    return tw::Operator(definition(name, {}, [f](tw::Call& c) {
        const tw::Tensor x = c.input(0);
        std::transform(x.as<float>(), x.as<float>() + x.count(), c.output_as<float>(0), f);
    }));
}

std::vector<float> run(tw::Session& session, const std::vector<float>& x) {
    const tw::Tensor y = session.run({tw::tensor(x, {static_cast<int64_t>(x.size())})}).at(0);
    return {y.as<float>(), y.as<float>() + y.count()};
}
std::vector<float> run(const tw::Model& model, const std::vector<float>& x, int threads = 1) {
    tw::Session session(model, threads);
    return run(session, x);
}

template <class F>
std::string error_of(F&& f) {
    try {
        f();
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_INVALID_MODEL) << e.what();
        return e.what();
    }
    return "no error";
}
std::string refusal(const tw::OperatorDefinition& d, const std::string& bytes = one_node()) {
    return error_of([&] { compile(bytes, {tw::Operator(d)}); });
}

const auto kNothing = [](tw::Call&) {};

// --- shapes

TEST(CustomOperator, StandsBetweenGeneratedKernels) {
    const std::string bytes = bytes_of({{"x", DType::F32, {int64_t{4}}}},
                                       {tilewright::test::node("Neg", {"x"}, {"a"}), own("Own", {"a"}, {"b"}),
                                        tilewright::test::node("Exp", {"b"}, {"y"})},
                                       {"y"});
    const tw::Model model = compile(bytes, {elementwise([](float v) { return v + 1; })});
    const std::vector<float> y = run(model, {1, 2, 3, 4}, 2);
    for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(y.at(i), std::exp(-static_cast<float>(i)));
}

TEST(CustomOperator, PassesDynamicSizesOn) {
    const tw::Model model =
        compile(bytes_of({{"x", DType::F32, {"n"}}},
                         {own("Own", {"x"}, {"t"}), tilewright::test::node("Add", {"t", "x"}, {"y"})}, {"y"}),
                {elementwise([](float v) { return v * 10; })});
    EXPECT_THAT(model.outputs().at(0).dims, ElementsAre(-1));
    EXPECT_THAT(model.outputs().at(0).dim_names, ElementsAre("n"));
    tw::Session session(model, 1);
    EXPECT_THAT(run(session, {1, 2}), ElementsAre(11, 22));
    EXPECT_THAT(run(session, {3}), ElementsAre(33));
}

TEST(CustomOperator, ComputesWithDynamicSizes) {
    const auto infer = [](tw::Call& c) {
        const int64_t n = c.input(0).shape.at(0);
        // ((n * 3 + 5 - 1) / 2), between 1 and 1000
        const int64_t size = c.div(c.sub(c.add(c.mul(n, 3), 5), 1), 2);
        c.set_output(0, TILEWRIGHT_F32, {c.max(1, c.min(size, 1000))});
    };
    const tw::Model model = compile(one_node(), {tw::Operator(definition("Own", infer, [](tw::Call& c) {
                                        std::fill_n(c.output_as<float>(0), c.output(0).count(), 2.0F);
                                    }))});
    EXPECT_THAT(model.outputs().at(0).dim_names.at(0), HasSubstr("n"));
    tw::Session session(model, 1);
    EXPECT_EQ(run(session, {1, 2}).size(), 5U);
    EXPECT_EQ(run(session, std::vector<float>(9)).size(), 15U);
    EXPECT_EQ(run(session, std::vector<float>(5000)).size(), 1000U);
}

TEST(CustomOperator, ReturnsSizesThatTheDataGives) {
    const auto positive = definition(
        "Own", [](tw::Call& c) { c.set_output(0, c.input(0).dtype, {TILEWRIGHT_UNKNOWN_SIZE}); },
        [](tw::Call& c) {
            const tw::Tensor x = c.input(0);
            std::vector<float> kept;
            std::copy_if(x.as<float>(), x.as<float>() + x.count(), std::back_inserter(kept),
                         [](float v) { return v > 0; });
            std::copy(kept.begin(), kept.end(), c.allocate<float>(0, {static_cast<int64_t>(kept.size())}));
        });
    const tw::Model model =
        compile(bytes_of({{"x", DType::F32, {"n"}}},
                         {own("Own", {"x"}, {"t"}), tilewright::test::node("Neg", {"t"}, {"y"})}, {"y"}),
                {tw::Operator(positive)});
    tw::Session session(model, 2);
    EXPECT_THAT(run(session, {1, -2, 3}), ElementsAre(-1, -3));
    EXPECT_THAT(run(session, {-1}), ElementsAre());
    EXPECT_THAT(run(session, {5, 6, 7, 8}), ElementsAre(-5, -6, -7, -8));
}

TEST(CustomOperator, SeesContentsWhereTheyAreKnown) {
    // The second input is the output's size: a constant, or only known when the model runs.
    const auto repeat = definition(
        "Own",
        [](tw::Call& c) {
            const tw::Tensor size = c.input(1);
            c.set_output(0, TILEWRIGHT_F32,
                         {size.data != nullptr ? size.as<int64_t>()[0] : int64_t{TILEWRIGHT_UNKNOWN_SIZE}});
        },
        [](tw::Call& c) { std::fill_n(c.output_as<float>(0), c.output(0).count(), *c.input(0).as<float>()); });
    const tw::Model known = compile(bytes_of({{"x", DType::F32, {"n"}}}, {own("Own", {"x", "size"}, {"y"})}, {"y"},
                                             {{"size", tilewright::Tensor::of_i64({3})}}),
                                    {tw::Operator(repeat)});
    EXPECT_THAT(known.outputs().at(0).dims, ElementsAre(3));
    EXPECT_THAT(run(known, {7}), ElementsAre(7, 7, 7));
    const tw::Model unknown = compile(bytes_of({{"x", DType::F32, {"n"}}, {"size", DType::I64, {int64_t{1}}}},
                                               {own("Own", {"x", "size"}, {"y"})}, {"y"}),
                                      {tw::Operator(repeat)});
    EXPECT_THAT(unknown.outputs().at(0).dims, ElementsAre(-1));
    tw::Session session(unknown, 1);
    const std::vector<float> x = {5};
    const std::vector<int64_t> size = {2};
    const tw::Tensor y = session.run({tw::tensor(x, {1}), tw::tensor(size, {1})}).at(0);
    EXPECT_THAT(std::vector<float>(y.as<float>(), y.as<float>() + y.count()), ElementsAre(5, 5));
}

// --- nodes

TEST(CustomOperator, ReadsAttributesOfEveryKind) {
    std::vector<float> seen;
    const auto read = definition("Own", {}, [&seen](tw::Call& c) {
        seen = {static_cast<float>(c.integer("i")), c.number("f"), static_cast<float>(c.text("s").size())};
        for (const int64_t v : c.integers("is")) seen.push_back(static_cast<float>(v));
        for (const float v : c.numbers("fs")) seen.push_back(v);
        const tw::Tensor t = c.tensor("t");
        seen.insert(seen.end(), t.as<float>(), t.as<float>() + t.count());
        EXPECT_THAT(t.shape, ElementsAre(1, 2));
        EXPECT_EQ(c.integer("none", 7), 7);
        EXPECT_FALSE(c.has("none"));
        EXPECT_EQ(c.node(), "Own0");
        EXPECT_EQ(c.input_count(), 1U);
        *c.output_as<float>(0) = 0;
    });
    const tw::Model model = compile(one_node({{"i", int64_t{-5}},
                                              {"f", 0.1F},
                                              {"s", std::string("a, \"b\"\n\xff")},
                                              {"is", std::vector<int64_t>{1, INT64_MIN}},
                                              {"fs", std::vector<float>{-0.5F, 1e-20F}},
                                              {"t", tilewright::test::floats({1, 2}, {8, 9})}}),
                                    {tw::Operator(read)});
    run(model, {1});
    EXPECT_THAT(seen, ElementsAre(-5, 0.1F, 8, 1, static_cast<float>(INT64_MIN), -0.5F, 1e-20F, 8, 9));
}

TEST(CustomOperator, RefusesAnAttributeOfAnotherKind) {
    const auto read = definition("Own", {}, [](tw::Call& c) { c.integer("scale"); });
    const tw::Model model = compile(one_node({{"scale", 2.0F}}), {tw::Operator(read)});
    EXPECT_EQ(error_of([&] { run(model, {1}); }),
              "node 'Own0' (com.example.Own): attribute 'scale' is a float, and an integer was requested");
}

TEST(CustomOperator, MayLeaveInputsAndOutputsOut) {
    auto d = definition(
        "Own",
        [](tw::Call& c) {
            for (size_t k = 0; k < c.output_count(); ++k) c.set_output(k, TILEWRIGHT_F32, {3});
        },
        [](tw::Call& c) {
            c.output_as<float>(2)[0] = c.has_input(1) ? 1 : 0;
            c.output_as<float>(2)[1] = c.has_input(2) ? 1 : 0;
            c.output_as<float>(2)[2] = static_cast<float>(c.input_count());
        });
    d.least_inputs = 1;
    d.most_inputs = 3;
    d.most_outputs = 3;
    const auto model = [](std::vector<std::string> inputs, std::vector<std::string> outputs) {
        return bytes_of({{"x", DType::F32, {"n"}}}, {own("Own", std::move(inputs), std::move(outputs))}, {"y"});
    };
    EXPECT_THAT(run(compile(model({"x", "", "x"}, {"", "", "y"}), {tw::Operator(d)}), {1}), ElementsAre(0, 1, 3));
    EXPECT_THAT(refusal(d, model({"", "x"}, {"", "", "y"})), HasSubstr("input 0 is missing"));
    EXPECT_THAT(refusal(d, model({"x", "x", "x", "x"}, {"", "", "y"})),
                HasSubstr("the node has 4 inputs, and the operator at most 3"));
    EXPECT_THAT(refusal(d, model({"x"}, {"", "", "", "y"})),
                HasSubstr("the node has 4 outputs, and the operator at most 3"));
}

TEST(CustomOperator, IsTakenInTheVersionThatTheModelImports) {
    const auto versioned = [](int64_t version) {
        auto d =
            definition("Own", {}, [version](tw::Call& c) { *c.output_as<float>(0) = static_cast<float>(version); });
        d.version = version;
        return tw::Operator(d);
    };
    const std::string bytes = one_node();  // imports version 17
    EXPECT_THAT(run(compile(bytes, {versioned(1), versioned(17), versioned(18)}), {0}), ElementsAre(17));
    EXPECT_THAT(
        error_of([&] { compile(bytes, {versioned(20)}); }),
        HasSubstr("the operator com.example.Own was given from version 20 on, and version 17 of its domain is"));
    EXPECT_THAT(error_of([&] {
                    compile(bytes, {versioned(2), versioned(2)});
                }),
                HasSubstr("the operator com.example.Own is given twice in version 2"));
    EXPECT_THAT(error_of([&] { compile(bytes, {}); }), HasSubstr("'Own' of domain com.example is not supported"));
}

TEST(CustomOperator, PrecedesTilewrightsOwn) {
    tw::OperatorDefinition d = definition("Neg", {}, [](tw::Call& c) { *c.output_as<float>(0) = 5; });
    d.domain = "ai.onnx";
    const std::string bytes =
        bytes_of({{"x", DType::F32, {"n"}}}, {tilewright::test::node("Neg", {"x"}, {"y"})}, {"y"});
    EXPECT_THAT(run(compile(bytes, {tw::Operator(d)}), {1}), ElementsAre(5));
}

TEST(CustomOperator, WorksInLoopsAndBranches) {
    // s = Own(s), 3 times; then Own once more if the result is positive.
    using tilewright::Graph;
    using tilewright::test::node;
    Graph body = tilewright::test::graph({{"i", DType::I64, {}}, {"c", DType::Bool, {}}, {"s", DType::F32, {"n"}}},
                                         {node("Identity", {"c"}, {"c2"}), own("Own", {"s"}, {"s2"})}, {"c2", "s2"});
    body.name = "body";
    const auto branch = [](Node n) {
        Graph g = tilewright::test::graph({}, {std::move(n)}, {"r"});
        g.name = "branch";
        return std::make_shared<const Graph>(std::move(g));
    };
    const std::string bytes = bytes_of(
        {{"x", DType::F32, {"n"}}},
        {node("Loop", {"trips", "", "x"}, {"t"}, {{"body", std::make_shared<const Graph>(body)}}),
         node("ReduceMax", {"t"}, {"most"}, {{"keepdims", int64_t{0}}}),
         node("Greater", {"most", "zero"}, {"positive"}),
         node("If", {"positive"}, {"y"},
              {{"then_branch", branch(own("Own", {"t"}, {"r"}))}, {"else_branch", branch(node("Neg", {"t"}, {"r"}))}})},
        {"y"},
        {{"trips", tilewright::Tensor::of(DType::I64, {}, std::vector<int64_t>{3})},
         {"zero", tilewright::test::floats({}, {0})}});
    tw::Session session(compile(bytes, {elementwise([](float v) { return v + 1; })}), 2);
    EXPECT_THAT(run(session, {1, 2}), ElementsAre(5, 6));
    EXPECT_THAT(run(session, {-9}), ElementsAre(6));
}

// --- errors

TEST(CustomOperator, MustInferSizesThatAre) {
    const auto infers = [](const std::vector<int64_t>& sizes, int type = TILEWRIGHT_F32, size_t index = 0) {
        return refusal(definition(
            "Own", [=](tw::Call& c) { c.set_output(index, static_cast<tilewright_dtype>(type), sizes); }, kNothing));
    };
    EXPECT_THAT(infers({-7}),
                HasSubstr("node 'Own0' (com.example.Own): dimension 0 of output 0 is -7, which is no size"));
    EXPECT_THAT(infers({3}, 99), HasSubstr("output 0 is given the type 99, which is none"));
    EXPECT_THAT(infers({3}, TILEWRIGHT_F32, 1), HasSubstr("output 1 is given a type, and the node has 1"));
    EXPECT_THAT(refusal(definition("Own", kNothing, kNothing)),
                AllOf(HasSubstr("Own0"), HasSubstr("output 0 was given no type")));
    EXPECT_THAT(refusal(definition(
                    "Own", [](tw::Call& c) { c.set_output(0, TILEWRIGHT_F32, {c.sub(2, 3)}); }, kNothing)),
                HasSubstr("dimension 0 of output 0 is -1"));
    EXPECT_THAT(refusal(definition(
                    "Own", [](tw::Call& c) { c.set_output(0, TILEWRIGHT_F32, {c.input(0).shape[0] + 1}); }, kNothing)),
                HasSubstr("which is no size"))
        << "sizes are computed by the call's functions";
}

TEST(CustomOperator, MustReturnWhatItHasInferred) {
    int calls = 0;
    const auto first_then = [&calls](const std::function<void(tw::Call&)>& later) {
        calls = 0;
        return [&calls, later](tw::Call& c) {
            if (calls++ == 0)
                c.set_output(0, TILEWRIGHT_F32, c.input(0).shape);
            else
                later(c);
        };
    };
    const auto run_error = [&](const std::function<void(tw::Call&)>& infer,
                               const std::function<void(tw::Call&)>& compute) {
        const tw::Model model = compile(one_node(), {tw::Operator(definition("Own", infer, compute))});
        return error_of([&] { run(model, {1, 2}); });
    };
    EXPECT_THAT(
        run_error(first_then([](tw::Call& c) { c.set_output(0, TILEWRIGHT_F32, {3}); }), kNothing),
        AllOf(HasSubstr("node 'Own0' (com.example.Own): "), HasSubstr("3 elements in dimension 0, expected 2")));
    EXPECT_THAT(run_error(first_then([](tw::Call& c) {
                              c.set_output(0, TILEWRIGHT_F32, {1, 2});
                          }),
                          kNothing),
                HasSubstr("rank 2, expected 1"));
    EXPECT_THAT(run_error(first_then([](tw::Call& c) { c.set_output(0, TILEWRIGHT_I32, {2}); }), kNothing),
                HasSubstr("output 0 is of type i32, and was f32 when the model was compiled"));
    const auto unknown = [](tw::Call& c) { c.set_output(0, TILEWRIGHT_F32, {TILEWRIGHT_UNKNOWN_SIZE}); };
    EXPECT_THAT(run_error(unknown, kNothing), HasSubstr("output 0 was given no memory: its size is unknown"));
    const auto allocates = [](const std::vector<int64_t>& sizes, int times = 1) {
        return [=](tw::Call& c) {
            for (int t = 0; t < times; ++t) c.allocate<float>(0, sizes);
        };
    };
    EXPECT_THAT(run_error(unknown, allocates({-3})), HasSubstr("memory for output 0 is requested with -3 elements"));
    EXPECT_THAT(run_error(unknown, allocates({1, 1})), HasSubstr("is requested with 2 dimensions, and its type has 1"));
    EXPECT_THAT(run_error(unknown, allocates({2}, 2)), HasSubstr("memory for output 0 is requested twice"));
    EXPECT_THAT(run_error(unknown, [](tw::Call& c) { c.allocate<float>(4, {2}); }),
                HasSubstr("memory is requested for output 4, and the node has 1"));
}

TEST(CustomOperator, EndsARunWithItsMessage) {
    bool fails = true;
    const tw::Model model = compile(one_node(), {tw::Operator(definition("Own", {}, [&fails](tw::Call& c) {
                                        if (fails) throw std::runtime_error("the sensor is off");
                                        *c.output_as<float>(0) = 4;
                                    }))});
    tw::Session session(model, 1);
    EXPECT_EQ(error_of([&] { run(session, {1}); }), "node 'Own0' (com.example.Own): the sensor is off");
    fails = false;
    EXPECT_THAT(run(session, {1}), ElementsAre(4)) << "the session goes on";
    EXPECT_THAT(refusal(definition(
                    "Own", [](tw::Call&) { throw 7; }, kNothing)),
                HasSubstr("node 'Own0' (com.example.Own): an exception of unknown type"));
}

TEST(CustomOperator, KeepsToTheLimitOfMemory) {
    const auto d = definition(
        "Own", [](tw::Call& c) { c.set_output(0, TILEWRIGHT_F32, {TILEWRIGHT_UNKNOWN_SIZE}); },
        [](tw::Call& c) { c.allocate<float>(0, {int64_t{1} << 45}); });
    const tw::Model model = compile(one_node(), {tw::Operator(d)});
    try {
        run(model, {1});
        FAIL() << "accepted";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_RUNTIME_ERROR) << e.what();
    }
}

TEST(CustomOperator, IsCheckedWhenItIsMade) {
    tilewright_operator_definition d = tilewright_default_operator_definition();
    const auto message = [&d] {
        tilewright_operator* op = nullptr;
        tilewright_error* error = nullptr;
        const tilewright_status status = tilewright_operator_create(&d, &op, &error);
        const std::string text = tilewright_error_message(error);
        tilewright_error_free(error);
        tilewright_operator_free(op);
        return std::to_string(status) + " " + text;
    };
    EXPECT_EQ(message(), "1 'definition->domain' is NULL");
    d.domain = "com.example";
    EXPECT_EQ(message(), "1 'definition->name' is NULL");
    d.name = "";
    EXPECT_EQ(message(), "1 definition->name is empty");
    d.name = "Own";
    EXPECT_EQ(message(), "1 definition->compute is NULL");
    d.compute = [](void*, tilewright_call*, const tilewright_tensor* const*, const tilewright_tensor* const*) {
        return int32_t{0};
    };
    EXPECT_EQ(message(), "0 ");
    d.version = -1;
    EXPECT_EQ(message(), "1 definition->version is -1: expected at least 0");
    d.version = 0;
    d.least_inputs = 3;
    d.most_inputs = 2;
    EXPECT_EQ(message(), "1 definition->most_inputs is 2, and least_inputs 3");
    d.struct_size = 4;
    EXPECT_THAT(message(), HasSubstr("struct_size is 4"));
    EXPECT_EQ(tilewright_operator_create(nullptr, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    tilewright_operator_free(nullptr);
}

TEST(CustomOperator, ReportsTheNumberThatItsFunctionReturns) {
    tilewright_operator_definition d = tilewright_default_operator_definition();
    d.domain = "com.example";
    d.name = "Own";
    d.compute = [](void*, tilewright_call*, const tilewright_tensor* const*, const tilewright_tensor* const*) {
        return int32_t{5};
    };
    tilewright_operator* op = nullptr;
    ASSERT_EQ(tilewright_operator_create(&d, &op, nullptr), TILEWRIGHT_OK);
    tilewright_options options = tilewright_default_options();
    options.operator_count = 1;
    options.operators = &op;
    tilewright_model* model = nullptr;
    const std::string bytes = one_node();
    ASSERT_EQ(tilewright_compile_memory(bytes.data(), bytes.size(), &options, &model, nullptr), TILEWRIGHT_OK);
    tilewright_operator_free(op);  // the model keeps it
    tilewright_session* session = nullptr;
    ASSERT_EQ(tilewright_session_create(model, 1, &session, nullptr), TILEWRIGHT_OK);
    tilewright_model_free(model);
    float x = 1;
    const int64_t shape[] = {1};
    const tilewright_tensor input = {TILEWRIGHT_F32, 1, shape, &x, sizeof x};
    tilewright_error* error = nullptr;
    EXPECT_EQ(tilewright_run(session, &input, 1, &error), TILEWRIGHT_INVALID_MODEL);
    EXPECT_STREQ(tilewright_error_message(error), "node 'Own0' (com.example.Own): the operator's function returned 5");
    tilewright_error_free(error);
    tilewright_session_free(session);
}

// --- lifetime, threads, runs

TEST(CustomOperator, LivesAsLongAsASessionUsesIt) {
    const auto alive = std::make_shared<int>(1);
    const std::weak_ptr<int> seen = alive;
    auto session = [&] {
        const tw::Model model =
            compile(one_node(), {elementwise([held = alive](float v) { return v + static_cast<float>(*held); })});
        return std::make_unique<tw::Session>(model, 1);
    }();
    EXPECT_THAT(run(*session, {1}), ElementsAre(2));
    EXPECT_GT(seen.use_count(), 1);
    session.reset();
    EXPECT_EQ(seen.use_count(), 1);
}

TEST(CustomOperator, BelongsToItsModel) {
    const std::string bytes = one_node();
    const tw::Model twice = compile(bytes, {elementwise([](float v) { return v * 2; })});
    const tw::Model half = compile(bytes, {elementwise([](float v) { return v / 2; })});
    EXPECT_THAT(run(twice, {3}), ElementsAre(6));
    EXPECT_THAT(run(half, {3}), ElementsAre(1.5));
    EXPECT_THAT(run(twice, {3}), ElementsAre(6));
}

TEST(CustomOperator, IsCalledBySessionsOfManyThreads) {
    std::atomic<int> calls = 0;
    const tw::Model model = compile(one_node(), {elementwise([&calls](float v) {
                                        ++calls;
                                        return v * 3;
                                    })});
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t)
        threads.emplace_back([&, t] {
            tw::Session session(model, 2);
            for (int n = 1; n < 20; ++n) {
                const std::vector<float> x(static_cast<size_t>(n), static_cast<float>(t));
                wrong += run(session, x) == std::vector<float>(x.size(), static_cast<float>(3 * t)) ? 0 : 1;
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(calls, 6 * 190);
}

TEST(CustomOperator, IsNotCalledBehindACancellation) {
    bool cancelled = false;
    int calls = 0;
    const tw::Model model =
        compile(bytes_of({{"x", DType::F32, {"n"}}}, {own("Own", {"x"}, {"t"}), own("Own", {"t"}, {"y"})}, {"y"}),
                {elementwise([&](float v) {
                    cancelled = true;
                    ++calls;
                    return v;
                })});
    tw::Session session(model, 1);
    tw::RunOptions options;
    options.cancelled = [&] { return cancelled; };
    const std::vector<float> x = {1};
    EXPECT_THROW(session.run({tw::tensor(x, {1})}, options), tw::Error);
    EXPECT_EQ(calls, 1);
}

TEST(CustomOperator, RunsInTheFloatingPointModeOfANewThread) {
    const tw::Model model = compile(one_node(), {elementwise([](float v) {
                                        EXPECT_EQ(tilewright::FloatMode::current(), tilewright::FloatMode());
                                        return v / 2;
                                    })});
    constexpr float kLeast = 1.17549435e-38F;  // half of it is subnormal
    EXPECT_THAT(run(model, {kLeast}), ElementsAre(kLeast / 2));
}

TEST(CustomOperator, IsComputedByTheCompilationWhereInputsAreConstant) {
    const std::string bytes = bytes_of({{"x", DType::F32, {"n"}}},
                                       {own("Own", {"w"}, {"t"}), tilewright::test::node("Add", {"x", "t"}, {"y"})},
                                       {"y"}, {{"w", tilewright::test::floats({1}, {20})}});
    for (const bool varies : {false, true}) {
        int calls = 0;
        auto d = definition("Own", {}, [&calls](tw::Call& c) { *c.output_as<float>(0) = static_cast<float>(++calls); });
        d.varies = varies;
        const tw::Model model = compile(bytes, {tw::Operator(d)});
        EXPECT_EQ(calls, varies ? 0 : 1);
        tw::Session session(model, 1);
        run(session, {1});
        EXPECT_THAT(run(session, {1}), ElementsAre(varies ? 3 : 2));
    }
}

TEST(CustomOperator, IsAStepOfItsOwnInExplanationsAndTraces) {
    tw::Options options;
    options.operators = {elementwise([](float v) { return v; })};
    const std::string bytes = one_node();
    const tw::Explanation e = tw::Explanation::of_memory(bytes.data(), bytes.size(), options, 0.01);
    EXPECT_THAT(e.text, HasSubstr("1 primitive in 0 kernels (0 distinct), 1 other step (Own)"));
    EXPECT_THAT(e.json, HasSubstr("Own0"));
    tw::Session session(compile(bytes, options.operators), 1);
    session.record(true);
    run(session, {1});
    EXPECT_THAT(session.trace(), HasSubstr("Own0"));
}

// --- compiled models in files

class CustomOperatorFile : public testing::Test {
  protected:
    std::string path() const { return folder_ / "model.so"; }
    tw::Model written(const std::string& bytes, const tw::Operator& op) const {
        tw::Options options;
        options.output_file = path();
        return compile(bytes, {op}, options);
    }
    tilewright::TemporaryFolder folder_;
};

TEST_F(CustomOperatorFile, FindsOperatorsByName) {
    const auto scaled = [](float by) {
        return tw::Operator(definition("Own", {}, [by](tw::Call& c) {
            const tw::Tensor x = c.input(0), w = c.tensor("w");
            for (size_t i = 0; i < x.count(); ++i)
                c.output_as<float>(0)[i] = x.as<float>()[i] * by * c.number("scale") + w.as<float>()[1];
        }));
    };
    const std::string bytes = one_node({{"scale", 0.5F}, {"w", tilewright::test::floats({2}, {1, 100})}});
    const tw::Model model = written(bytes, scaled(2));
    EXPECT_THAT(run(model, {3, 4}), ElementsAre(103, 104));
    EXPECT_THAT(run(tw::Model::load(path(), {scaled(2)}), {3, 4}), ElementsAre(103, 104));
    EXPECT_THAT(run(tw::Model::load(path(), {scaled(20)}), {3}), ElementsAre(130));
}

TEST_F(CustomOperatorFile, NamesAMissingOperator) {
    written(one_node(), elementwise([](float v) { return v; }));
    EXPECT_THAT(error_of([&] { tw::Model::load(path()); }), HasSubstr("the operator com.example.Own was not given"));
    EXPECT_THAT(error_of([&] { tw::Model::load(path(), {elementwise([](float v) { return v; }, "Other")}); }),
                AllOf(HasSubstr(path()), HasSubstr("the operator com.example.Own was not given")));
}

TEST_F(CustomOperatorFile, IsNotKeptInTheCache) {
    tw::Options options;
    options.cache = true;
    options.cache_folder = folder_.path();
    const std::string bytes = bytes_of({{"x", DType::F32, {"n"}}},
                                       {own("Own", {"w"}, {"t"}), tilewright::test::node("Add", {"x", "t"}, {"y"})},
                                       {"y"}, {{"w", tilewright::test::floats({1}, {20})}});
    EXPECT_THAT(run(compile(bytes, {elementwise([](float v) { return v; })}, options), {1}), ElementsAre(21));
    EXPECT_THAT(run(compile(bytes, {elementwise([](float v) { return 2 * v; })}, options), {1}), ElementsAre(41));
}

}  // namespace
