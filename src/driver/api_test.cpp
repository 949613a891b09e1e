// The C interface and its C++ header.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/dtype.h"
#include "base/temporary_folder_test.h"
#include "driver/files.h"
#include "driver/zoo/builder.h"
#include "driver/zoo/zoo.h"
#include "tilewright/tilewright.h"
#include "tilewright/tilewright.hpp"

namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// The zoo's MLP with a dynamic batch dimension, in a file and in memory.
class Api : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        path = testing::TempDir() + "api_test_" + std::to_string(::getpid()) + ".onnx";
        tilewright::write_zoo_model("mlp", path, 0, {{"batch", 0}});
        bytes = tilewright::read_file(path);
    }
    static void TearDownTestSuite() { ::unlink(path.c_str()); }

    static tw::Model model() { return tw::Model::from_memory(bytes.data(), bytes.size()); }
    static std::vector<float> values(size_t n, float scale = 1) {
        std::vector<float> v(n);
        for (size_t i = 0; i < n; ++i) v[i] = scale * static_cast<float>(i % 17) / 17.0f;
        return v;
    }

    static inline std::string path, bytes;
};

/// The status of a call; its message is written to `text`.
struct Outcome {
    tilewright_error* error = nullptr;
    ~Outcome() { tilewright_error_free(error); }
    std::string text() const { return tilewright_error_message(error); }
};

TEST_F(Api, ReturnsItsVersionAndTypes) {
    EXPECT_STREQ(tilewright_version(), TILEWRIGHT_VERSION);
    for (int t = TILEWRIGHT_F32; t <= TILEWRIGHT_U2; ++t) {
        const auto dtype = static_cast<tilewright::DType>(t);
        EXPECT_EQ(tilewright_dtype_size(static_cast<tilewright_dtype>(t)), tilewright::byte_size(dtype));
        EXPECT_EQ(tilewright_dtype_name(static_cast<tilewright_dtype>(t)), std::string(tilewright::to_string(dtype)));
    }
    EXPECT_EQ(tilewright_dtype_size(static_cast<tilewright_dtype>(23)), 0u);
    EXPECT_STREQ(tilewright_dtype_name(static_cast<tilewright_dtype>(-1)), "?");
    EXPECT_EQ(tw::dtype_of<float>(), TILEWRIGHT_F32);
    EXPECT_EQ(tw::dtype_of<int64_t>(), TILEWRIGHT_I64);
    EXPECT_EQ(tw::dtype_of<uint16_t>(), TILEWRIGHT_U16);
    EXPECT_EQ(tw::dtype_of<bool>(), TILEWRIGHT_BOOL);
}

TEST_F(Api, DescribesInputsAndOutputs) {
    const std::vector<tw::Io> in = model().inputs(), out = model().outputs();
    ASSERT_EQ(in.size(), 1u);
    EXPECT_EQ(in[0].name, "input");
    EXPECT_EQ(in[0].dtype, TILEWRIGHT_F32);
    ASSERT_EQ(in[0].dims.size(), 2u);
    EXPECT_EQ(in[0].dims[0], -1);
    EXPECT_EQ(in[0].dim_names[0], "batch");
    EXPECT_GT(in[0].dims[1], 0);
    EXPECT_EQ(in[0].dim_names[1], "");
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out[0].dims, (std::vector<int64_t>{-1, 10}));
    tw::Options fixed;
    fixed.dims = {{"batch", 4}};
    fixed.threads = 1;
    EXPECT_EQ(tw::Model::from_file(path, fixed).outputs()[0].dims, (std::vector<int64_t>{4, 10}));
}

TEST_F(Api, RunsAtAnyBatchSize) {
    const tw::Model m = model();
    const auto width = m.inputs()[0].dims[1];
    tw::Session session(m, 2);
    const std::vector<float> x = values(static_cast<size_t>(3 * width));
    const tw::Tensor all = session.run({tw::tensor(x, {3, width})}).at(0);
    EXPECT_EQ(all.shape, (std::vector<int64_t>{3, 10}));
    const std::vector<float> together(all.as<float>(), all.as<float>() + all.count());
    for (int64_t row = 0; row < 3; ++row) {
        const std::vector<float> one(x.begin() + row * width, x.begin() + (row + 1) * width);
        const tw::Tensor y = session.run({tw::tensor(one, {1, width})}).at(0);
        for (size_t i = 0; i < 10; ++i)
            EXPECT_NEAR(y.as<float>()[i], together[static_cast<size_t>(row) * 10 + i], 1e-4);
    }
    EXPECT_THROW(all.as<double>(), tw::Error);
}

TEST_F(Api, RunsOnTheCallersThreads) {
    const tw::Model m = tw::Model::from_memory(bytes.data(), bytes.size());
    size_t calls = 0;
    const auto on_threads = [&](std::size_t count, const std::function<void(std::size_t)>& task) {
        ++calls;
        EXPECT_EQ(count, 3u);
        std::vector<std::thread> threads;
        for (std::size_t i = 1; i < count; ++i) threads.emplace_back(task, i);
        task(0);
        for (std::thread& t : threads) t.join();
    };
    tw::Session own(m, 3), callers(m, 3, on_threads);
    const int64_t features = m.inputs()[0].dims[1];
    const std::vector<float> x = values(static_cast<size_t>(5 * features));
    const tw::Tensor input = tw::tensor(x, {5, features});
    const tw::Tensor expected = own.run({input}).at(0);
    for (int k = 0; k < 3; ++k) {
        const tw::Tensor y = callers.run({input}).at(0);
        ASSERT_EQ(y.bytes, expected.bytes);
        EXPECT_EQ(std::memcmp(y.data, expected.data, y.bytes), 0);
    }
    EXPECT_EQ(calls, 3u);
    EXPECT_THROW(callers.run({}), tw::Error);
}

TEST_F(Api, CopiesOutputsIntoTheCallersMemory) {
    tilewright_model* m = nullptr;
    tilewright_session* s = nullptr;
    ASSERT_EQ(tilewright_compile_memory(bytes.data(), bytes.size(), nullptr, &m, nullptr), TILEWRIGHT_OK);
    ASSERT_EQ(tilewright_session_create(m, 1, &s, nullptr), TILEWRIGHT_OK);
    tilewright_io io;
    ASSERT_EQ(tilewright_input(m, 0, &io, nullptr), TILEWRIGHT_OK);
    const int64_t shape[] = {2, io.dims[1]};
    tilewright_model_free(m);  // the session keeps the data it needs
    std::vector<float> x = values(static_cast<size_t>(2 * shape[1]));
    const tilewright_tensor input = {TILEWRIGHT_F32, 2, shape, x.data(), x.size() * sizeof(float)};
    std::array<float, 24> y{};
    y.fill(-99);
    tilewright_tensor output{};
    output.data = y.data();
    output.bytes = sizeof y;
    Outcome ok;
    ASSERT_EQ(tilewright_run_into(s, &input, 1, &output, 1, &ok.error), TILEWRIGHT_OK) << ok.text();
    EXPECT_EQ(ok.error, nullptr);
    EXPECT_EQ(output.bytes, 20 * sizeof(float));
    EXPECT_EQ(output.rank, 2u);
    EXPECT_EQ(output.shape[1], 10);
    tilewright_tensor own{};
    ASSERT_EQ(tilewright_session_output(s, 0, &own, nullptr), TILEWRIGHT_OK);
    EXPECT_EQ(std::memcmp(own.data, y.data(), own.bytes), 0);
    EXPECT_EQ(y[20], -99) << "written past the output";

    Outcome small;
    output.bytes = 20 * sizeof(float) - 1;
    y.fill(-99);
    EXPECT_EQ(tilewright_run_into(s, &input, 1, &output, 1, &small.error), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(small.text(), "output 'logits' needs 80 bytes, and there is room for 79");
    EXPECT_EQ(output.bytes, 80u) << "returns the required size";
    EXPECT_THAT(y, Each(-99.0f));
    EXPECT_EQ(tilewright_session_output(s, 0, &own, nullptr), TILEWRIGHT_OK);
    tilewright_session_free(s);
}

TEST_F(Api, RunsSizesOfADeclaredRangeAndRefusesOthers) {
    tw::Options options;
    options.ranges["batch"] = "1..8:1,8@2";
    const tw::Model m = tw::Model::from_memory(bytes.data(), bytes.size(), options);
    tw::Session session(m, 1);
    const auto run = [&](int64_t rows) {
        std::vector<float> x = values(static_cast<size_t>(rows * 784));
        const tw::Tensor input{TILEWRIGHT_F32, {rows, 784}, x.data(), x.size() * sizeof(float)};
        return session.run({input})[0].shape;
    };
    EXPECT_THAT(run(1), ElementsAre(1, 10));
    EXPECT_THAT(run(8), ElementsAre(8, 10));
    try {
        run(9);
        ADD_FAILURE() << "9 rows were accepted";
    } catch (const tw::Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("dimension batch = 9, and the model is compiled for 1 to 8"));
    }
    options.ranges["batch"] = "8..1";
    EXPECT_THROW(tw::Model::from_memory(bytes.data(), bytes.size(), options), tw::Error);
    options.ranges = {{"rows", "1..8"}};
    EXPECT_THROW(tw::Model::from_memory(bytes.data(), bytes.size(), options), tw::Error);
}

TEST_F(Api, CountsWhatASessionDoesBesideItsKernels) {
    const tw::Model m = model();
    tw::Session session(m, 1);
    const auto run = [&](int64_t rows) {
        std::vector<float> x = values(static_cast<size_t>(rows * 784));
        session.run({tw::Tensor{TILEWRIGHT_F32, {rows, 784}, x.data(), x.size() * sizeof(float)}});
    };
    for (const int64_t rows : {1, 2, 1, 2, 2}) run(rows);
    const tilewright_counts c = session.counts();
    EXPECT_EQ(c.runs, 5u);
    EXPECT_EQ(c.preparations, 2u);
    EXPECT_EQ(c.recalled, 2u);
    EXPECT_EQ(c.memory_plans, 2u);
    EXPECT_EQ(c.compilations, 0u);
    tilewright_counts old{};
    Outcome o;
    tilewright_session* s = nullptr;
    ASSERT_EQ(tilewright_session_create(m.handle(), 1, &s, nullptr), TILEWRIGHT_OK);
    EXPECT_EQ(tilewright_session_counts(s, &old, &o.error), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_THAT(o.text(), HasSubstr("counts->struct_size is 0"));
    tilewright_session_free(s);
}

/// Inputs of the decoder for these tokens behind `past` others; no tensors for the cache's.
struct DecoderFeeds {
    std::vector<std::int64_t> ids, positions;
    std::vector<tw::Tensor> tensors;
    DecoderFeeds(const tw::Model& model, std::vector<std::int64_t> tokens, std::int64_t past) : ids(std::move(tokens)) {
        for (size_t k = 0; k < ids.size(); ++k) positions.push_back(past + static_cast<std::int64_t>(k));
        const auto n = static_cast<std::int64_t>(ids.size());
        for (const tw::Io& io : model.inputs())
            tensors.push_back(io.name == "input_ids"      ? tw::tensor(ids, {1, n})
                              : io.name == "position_ids" ? tw::tensor(positions, {1, n})
                                                          : tw::Tensor{});
    }
};

TEST_F(Api, KeepsKeysAndValuesInACache) {
    const std::string decoder = tilewright::build_zoo_model("gpt2_tiny_decoder").bytes;
    tw::Options options;
    options.kv_cache = true;
    const tw::Model m = tw::Model::from_memory(decoder.data(), decoder.size(), options);
    ASSERT_EQ(m.appends().size(), 4u) << "keys and values of two layers";
    EXPECT_EQ(m.outputs()[m.appends()[0].output].name, "present.0.key");
    EXPECT_EQ(m.appends()[0].axis, 2u);
    EXPECT_EQ(m.inputs()[m.appends()[0].input].dims, (std::vector<std::int64_t>{-1, 4, -1, 16}));
    tw::Session session(m, 1);
    tw::KvCache cache(m, 16), whole(m);
    const auto logits = [&](tw::KvCache& in, std::vector<std::int64_t> tokens) {
        const DecoderFeeds feeds(m, std::move(tokens), in.rows());
        tw::RunOptions run;
        run.kv_cache = &in;
        const std::vector<tw::Tensor> out = session.run(feeds.tensors, run);
        EXPECT_EQ(out[m.appends()[0].output].bytes, 0u);
        const tw::Tensor& last = out.back();
        return std::vector<float>(last.as<float>() + last.count() - 1000, last.as<float>() + last.count());
    };
    logits(cache, {5, 6, 7});
    logits(cache, {8});
    const std::vector<float> steps = logits(cache, {9}), at_once = logits(whole, {5, 6, 7, 8, 9});
    EXPECT_EQ(cache.rows(), 5);
    for (size_t k = 0; k < steps.size(); ++k) ASSERT_NEAR(steps[k], at_once[k], 1e-4) << k;
    std::vector<unsigned char> a, b;
    const tw::Tensor keys = cache.read(0, a), same = whole.read(0, b);
    EXPECT_EQ(keys.shape, (std::vector<std::int64_t>{1, 4, 5, 16}));
    for (size_t k = 0; k < keys.count(); ++k) ASSERT_NEAR(keys.as<float>()[k], same.as<float>()[k], 1e-5) << k;
    cache.truncate(3);
    logits(cache, {8});
    EXPECT_EQ(logits(cache, {9}), steps) << "generated again";
}

TEST_F(Api, RefusesACacheWhereThereIsNone) {
    tw::Options options;
    options.kv_cache = true;
    try {
        tw::Model::from_memory(bytes.data(), bytes.size(), options);
        FAIL() << "compiled";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_INVALID_ARGUMENT);
        EXPECT_THAT(e.what(), HasSubstr("no input that an output extends"));
    }
    const tw::Model m = model();
    EXPECT_TRUE(m.appends().empty());
    tilewright_kv_cache* cache = nullptr;
    Outcome o;
    EXPECT_EQ(tilewright_kv_cache_create(m.handle(), 0, &cache, &o.error), TILEWRIGHT_INVALID_MODEL);
    EXPECT_THAT(o.text(), HasSubstr("not compiled for a KV cache"));
    EXPECT_EQ(cache, nullptr);
    EXPECT_EQ(tilewright_kv_cache_create(m.handle(), -1, &cache, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(tilewright_kv_cache_rows(nullptr), 0);
    EXPECT_EQ(tilewright_append_count(nullptr), 0u);
    EXPECT_EQ(tilewright_kv_cache_truncate(nullptr, 0, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(tilewright_kv_cache_read(nullptr, 0, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    tilewright_kv_cache_free(nullptr);
}

TEST_F(Api, RefusesInputsThatDoNotFit) {
    const tw::Model m = model();
    const auto width = m.inputs()[0].dims[1];
    tw::Session session(m, 1);
    const std::vector<float> x = values(static_cast<size_t>(2 * width));
    const std::vector<double> d(x.begin(), x.end());
    const auto error = [&](const std::vector<tw::Tensor>& inputs) {
        try {
            session.run(inputs);
        } catch (const tw::Error& e) {
            return std::to_string(e.status()) + " " + e.what();
        }
        return std::string("accepted");
    };
    EXPECT_EQ(error({}), "1 the model has 1 inputs, and 0 were given");
    EXPECT_THAT(error({tw::tensor(d, {2, width})}), HasSubstr("2 input 'input' has type f64, expected f32"));
    EXPECT_THAT(error({tw::tensor(x, {2 * width})}), HasSubstr("2 input 'input' has rank 1, expected 2"));
    EXPECT_THAT(error({tw::tensor(x, {width, 2})}), HasSubstr("2 input 'input' has 2 elements in dimension 1"));
    EXPECT_THAT(error({tw::tensor(x, {1, width})}), HasSubstr(" bytes, and "));
    EXPECT_THAT(error({tw::tensor(x, {-2, width})}), HasSubstr("1 input 'input' has shape [-2, "));
    EXPECT_NE(error({tw::tensor(x, {int64_t{1} << 62, int64_t{1} << 62})}), "accepted");
    EXPECT_THAT(error({tw::Tensor{TILEWRIGHT_F32, {int64_t{1} << 62}, nullptr, 0}}),
                HasSubstr("which exceeds the address space"))
        << "2^64 bytes, taken for none";
    tw::Tensor type = tw::tensor(x, {2, width});
    type.dtype = static_cast<tilewright_dtype>(77);
    EXPECT_EQ(error({type}), "1 input 'input': 77 is not an element type");
    EXPECT_EQ(error({tw::tensor(x, {2, width})}), "accepted") << "a session should survive its errors";
}

TEST_F(Api, RefusesInconsistentDimensions) {
    using tilewright::nets::Extent;
    tilewright::nets::GraphBuilder b("product", {});
    const auto x = b.input("x", tilewright::DType::F32, {Extent(2, "N"), Extent(3, "K")});
    const auto y = b.input("y", tilewright::DType::F32, {Extent(3, "L"), Extent(2, "M")});
    b.output(b.node("MatMul", {x, y}, {}, {Extent(2, "N"), Extent(2, "M")}), "z");
    const std::string product = b.serialize();
    tw::Session session(tw::Model::from_memory(product.data(), product.size()), 1);
    const std::vector<float> numbers = values(64);
    const auto with = [&](int64_t n, int64_t k, int64_t l, int64_t m) {
        const std::vector<float> left(numbers.begin(), numbers.begin() + n * k);
        const std::vector<float> right(numbers.begin(), numbers.begin() + l * m);
        try {
            return std::to_string(
                session.run({tw::tensor(left, {n, k}), tw::tensor(right, {l, m})}).at(0).shape.size());
        } catch (const tw::Error& e) {
            return std::to_string(e.status()) + " " + e.what();
        }
    };
    EXPECT_THAT(with(2, 3, 4, 5),
                testing::MatchesRegex("2 node '.*MatMul' \\(MatMul, opset 17\\): dimensions K = 3 and L = 4 differ"));
    EXPECT_EQ(with(2, 4, 4, 5), "2");
}

TEST_F(Api, ANullPointerIsAnErrorEverywhere) {
    tilewright_model* m = nullptr;
    tilewright_session* s = nullptr;
    tilewright_io io;
    tilewright_tensor t{};
    ASSERT_EQ(tilewright_compile_file(path.c_str(), nullptr, &m, nullptr), TILEWRIGHT_OK);
    ASSERT_EQ(tilewright_session_create(m, 1, &s, nullptr), TILEWRIGHT_OK);
    const auto refused = [](tilewright_status status) { EXPECT_EQ(status, TILEWRIGHT_INVALID_ARGUMENT); };
    refused(tilewright_compile_file(nullptr, nullptr, &m, nullptr));
    refused(tilewright_compile_file(path.c_str(), nullptr, nullptr, nullptr));
    refused(tilewright_compile_memory(nullptr, 1, nullptr, &m, nullptr));
    refused(tilewright_compile_memory(bytes.data(), bytes.size(), nullptr, nullptr, nullptr));
    refused(tilewright_input(nullptr, 0, &io, nullptr));
    refused(tilewright_input(m, 0, nullptr, nullptr));
    refused(tilewright_input(m, 1, &io, nullptr));
    refused(tilewright_output(m, SIZE_MAX, &io, nullptr));
    refused(tilewright_session_create(nullptr, 1, &s, nullptr));
    refused(tilewright_session_create(m, 1, nullptr, nullptr));
    refused(tilewright_session_create(m, -1, &s, nullptr));
    refused(tilewright_session_create(m, 1'000'000, &s, nullptr));
    refused(tilewright_run(nullptr, &t, 1, nullptr));
    refused(tilewright_run(s, nullptr, 1, nullptr));
    refused(tilewright_session_output(nullptr, 0, &t, nullptr));
    refused(tilewright_session_output(s, 0, nullptr, nullptr));
    refused(tilewright_session_output(s, 0, &t, nullptr));  // no run yet
    refused(tilewright_run_into(s, &t, 1, nullptr, 1, nullptr));
    refused(tilewright_run_into(s, &t, 1, &t, 0, nullptr));
    const int64_t shape[] = {1, 1};
    t = {TILEWRIGHT_F32, 2, shape, nullptr, 4};
    refused(tilewright_run(s, &t, 1, nullptr));
    t = {TILEWRIGHT_F32, 2, nullptr, &io, 4};
    refused(tilewright_run(s, &t, 1, nullptr));
    tilewright_options o = tilewright_default_options();
    o.dim_count = 1;
    refused(tilewright_compile_file(path.c_str(), &o, &m, nullptr));
    EXPECT_EQ(tilewright_input_count(nullptr), 0u);
    EXPECT_EQ(tilewright_output_count(nullptr), 0u);
    EXPECT_STREQ(tilewright_error_message(nullptr), "");
    EXPECT_STREQ(tilewright_error_hint(nullptr), "");
    EXPECT_EQ(tilewright_error_status(nullptr), TILEWRIGHT_OK);
    tilewright_error_free(nullptr);
    tilewright_session_free(s);
    tilewright_session_free(nullptr);
    tilewright_model_free(m);
    tilewright_model_free(nullptr);
}

TEST_F(Api, ReportsFailuresAndKeepsResults) {
    auto* const before = reinterpret_cast<tilewright_model*>(&path);
    tilewright_model* m = before;
    Outcome file, bad, isa;
    EXPECT_EQ(tilewright_compile_file("no/such.onnx", nullptr, &m, &file.error), TILEWRIGHT_RUNTIME_ERROR);
    EXPECT_THAT(file.text(), HasSubstr("no/such.onnx"));
    EXPECT_EQ(tilewright_error_status(file.error), TILEWRIGHT_RUNTIME_ERROR);
    EXPECT_EQ(tilewright_compile_memory("PK\3\4", 4, nullptr, &m, &bad.error), TILEWRIGHT_INVALID_MODEL);
    EXPECT_NE(bad.text(), "");
    tilewright_options o = tilewright_default_options();
    o.isa = "mmx";
    EXPECT_EQ(tilewright_compile_file(path.c_str(), &o, &m, &isa.error), TILEWRIGHT_INVALID_MODEL);
    EXPECT_EQ(m, before);
    for (size_t n = 0; n < bytes.size(); n += bytes.size() / 50 + 1)
        EXPECT_NE(tilewright_compile_memory(bytes.data(), n, nullptr, &m, nullptr), TILEWRIGHT_OK) << n;
}

TEST_F(Api, SessionsOfOneModelRunAtTheSameTime) {
    const tw::Model m = model();
    const auto width = m.inputs()[0].dims[1];
    constexpr int kThreads = 8, kRuns = 30;
    std::vector<std::vector<float>> inputs, expected;
    for (int t = 0; t < kThreads; ++t) {
        inputs.push_back(values(static_cast<size_t>((t % 3 + 1) * width), static_cast<float>(t + 1)));
        tw::Session alone(m, 1);
        const tw::Tensor y = alone.run({tw::tensor(inputs.back(), {t % 3 + 1, width})}).at(0);
        expected.emplace_back(y.as<float>(), y.as<float>() + y.count());
    }
    std::array<int, kThreads> different{};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            tw::Session session(m, 2);  // all sessions share one pool
            for (int run = 0; run < kRuns; ++run) {
                const tw::Tensor y =
                    session.run({tw::tensor(inputs[t], {static_cast<int64_t>(t % 3 + 1), width})}).at(0);
                if (std::memcmp(y.data, expected[t].data(), y.bytes) != 0) ++different[t];
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_THAT(different, Each(0)) << "results should not depend on what else runs, bit by bit";
}

TEST_F(Api, ReadsTheOptionsOfOlderAndNewerCallers) {
    const auto compile = [&](const void* options) {
        tilewright_model* m = nullptr;
        Outcome o;
        const auto* given = static_cast<const tilewright_options*>(options);
        const tilewright_status status = tilewright_compile_memory(bytes.data(), bytes.size(), given, &m, &o.error);
        tilewright_io io{};
        if (m != nullptr) tilewright_input(m, 0, &io, nullptr);
        const std::string batch = m != nullptr ? std::to_string(io.dims[0]) : "";
        tilewright_model_free(m);
        return std::to_string(status) + " " + (m != nullptr ? batch : o.text());
    };
    const char* names[] = {"batch"};
    const int64_t sizes[] = {4};
    struct {
        tilewright_options known;
        int64_t later[3];
    } newer{tilewright_default_options(), {}};
    EXPECT_EQ(newer.known.struct_size, sizeof(tilewright_options));
    newer.known.dim_count = 1;
    newer.known.dim_names = names;
    newer.known.dim_sizes = sizes;
    EXPECT_EQ(compile(&newer), "0 4");
    newer.known.struct_size = 0;  // all zeros except for the field that was set
    EXPECT_EQ(compile(&newer), "0 4");
    const tilewright_options zeros{};
    EXPECT_EQ(compile(&zeros), "0 -1");
    newer.known.struct_size = sizeof newer;
    EXPECT_EQ(compile(&newer), "0 4") << "a newer caller that sets nothing new";
    newer.later[2] = 1;
    EXPECT_EQ(compile(&newer), "1 the options of " + std::to_string(sizeof newer) +
                                   " bytes set a field that this version (" TILEWRIGHT_VERSION ") does not have");
    const size_t first = offsetof(tilewright_options, dim_sizes) + sizeof(int64_t*);
    // A caller of the first version: bytes behind its fields are not read.
    newer.known.struct_size = first;
    std::memset(reinterpret_cast<unsigned char*>(&newer) + first, 0x7f, sizeof newer - first);
    EXPECT_EQ(compile(&newer), "0 4");
    for (const size_t size : {size_t{1}, first - 1, size_t{1} << 40, SIZE_MAX}) {
        newer.known.struct_size = size;
        EXPECT_THAT(compile(&newer), HasSubstr("1 options->struct_size is " + std::to_string(size) + ": expected"));
    }
}

TEST_F(Api, RefusesUnknownDimensionNames) {
    tw::Options options;
    options.dims = {{"bacth", 4}};
    try {
        tw::Model::from_file(path, options);
        FAIL() << "accepted";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_INVALID_ARGUMENT);
        EXPECT_STREQ(e.what(), "dimension 'bacth' = 4: no input of the model has a dimension 'bacth'");
        EXPECT_EQ(e.hint(), "its named dimensions: batch; did you mean 'batch'?");
    }
    using tilewright::nets::Extent;
    tilewright::nets::GraphBuilder b("fixed", {});
    b.output(b.node("Relu", {b.input("x", tilewright::DType::F32, {Extent(2)})}, {}, {Extent(2)}), "y");
    const std::string fixed = b.serialize();
    options.dims = {{"batch", 4}};
    try {
        tw::Model::from_memory(fixed.data(), fixed.size(), options);
        FAIL() << "accepted";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.hint(), "all its dimensions are fixed");
    }
}

TEST_F(Api, RoundsProductsToBf16WhereTheMachineHasThem) {
    const auto outputs = [&](const tw::Options& options) {
        const tw::Model m = tw::Model::from_memory(bytes.data(), bytes.size(), options);
        const auto width = static_cast<size_t>(m.inputs().at(0).dims[1]);
        const std::vector<float> x = values(16 * width);
        tw::Session session(m);
        const tw::Tensor y = session.run({tw::tensor(x, {16, static_cast<int64_t>(width)})}).at(0);
        return std::vector<float>(y.as<float>(), y.as<float>() + y.count());
    };
    const auto apart = [](const std::vector<float>& a, const std::vector<float>& b) {
        float magnitude = 0, difference = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            magnitude = std::max(magnitude, std::abs(a[i]));
            difference = std::max(difference, std::abs(a[i] - b[i]));
        }
        return difference / magnitude;
    };
    const std::vector<float> exact = outputs({});
    tw::Options options;
    options.precision = TILEWRIGHT_BF16_PRODUCTS;
    EXPECT_LT(apart(exact, outputs(options)), 0.1F);
    options.precision = TILEWRIGHT_F32_FAST_PRODUCTS;
    EXPECT_LT(apart(exact, outputs(options)), 1e-3F);
    options.precision = TILEWRIGHT_BF16_PRODUCTS;
    options.keep_f32 = {"*"};
    EXPECT_LT(apart(exact, outputs(options)), 1e-5F);
    options.keep_f32.clear();
    options.max_error = 1e-5;
    EXPECT_LT(apart(exact, outputs(options)), 5e-5F);
    options.precision = TILEWRIGHT_AUTO_PRODUCTS;
    options.max_error = 0;
    EXPECT_LT(apart(exact, outputs(options)), 0.05F);
}

TEST_F(Api, ChecksOptionsOfThePrecision) {
    const auto refusal = [&](tilewright_options options) {
        tilewright_model* m = nullptr;
        Outcome o;
        const auto status = tilewright_compile_memory(bytes.data(), bytes.size(), &options, &m, &o.error);
        tilewright_model_free(m);
        return status == TILEWRIGHT_INVALID_ARGUMENT ? o.text() : "status " + std::to_string(status);
    };
    tilewright_options options = tilewright_default_options();
    options.precision = 5;
    EXPECT_EQ(refusal(options), "options->precision is 5: expected 0 to 4 (TILEWRIGHT_..._PRODUCTS)");
    options.precision = TILEWRIGHT_BF16_PRODUCTS;
    options.max_error = -0.5;
    EXPECT_EQ(refusal(options), "options->max_error is -0.5: expected at least 0");
    options.max_error = 0;
    const char* const patterns[] = {"no such node"};
    options.keep_f32_count = 1;
    EXPECT_THAT(refusal(options), HasSubstr("options->keep_f32"));
    options.keep_f32 = patterns;
    EXPECT_EQ(refusal(options), "no node or tensor of the model matches 'no such node', which is to stay in f32");
}

TEST_F(Api, ReportsConcurrentUseOfASession) {
    const tw::Model m = model();
    const auto width = m.inputs()[0].dims[1];
    tilewright_session* s = nullptr;
    ASSERT_EQ(tilewright_session_create(m.handle(), 2, &s, nullptr), TILEWRIGHT_OK);
    constexpr int64_t kRows = 64;
    const std::vector<float> x = values(static_cast<size_t>(kRows * width));
    const int64_t shape[] = {kRows, width};
    const tilewright_tensor input = {TILEWRIGHT_F32, 2, shape, const_cast<float*>(x.data()), x.size() * sizeof(float)};
    std::atomic<int> busy = 0, ok = 0, other = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto use = [&](int how) {
        std::vector<float> y(kRows * 10);
        while ((busy == 0 || ok < 100) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60)) {
            Outcome o;
            tilewright_tensor output{};
            output.data = y.data();
            output.bytes = y.size() * sizeof(float);
            const tilewright_status status = how == 0   ? tilewright_run(s, &input, 1, &o.error)
                                             : how == 1 ? tilewright_run_into(s, &input, 1, &output, 1, &o.error)
                                                        : tilewright_session_output(s, 0, &output, &o.error);
            const bool is_busy =
                status == TILEWRIGHT_BUSY && o.text().find("used by another thread") != std::string::npos;
            (status == TILEWRIGHT_OK ? ok : is_busy ? busy : other) += 1;
        }
    };
    ASSERT_EQ(tilewright_run(s, &input, 1, nullptr), TILEWRIGHT_OK);  // outputs exist
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) threads.emplace_back(use, t % 3);
    for (std::thread& t : threads) t.join();
    EXPECT_GT(busy, 0);
    EXPECT_GE(ok, 100);
    EXPECT_EQ(other, 0);
    EXPECT_EQ(tilewright_run(s, &input, 1, nullptr), TILEWRIGHT_OK) << "nothing stays in use";
    tilewright_session_free(s);
}

// --- options of runs

TEST_F(Api, RunsWithMemoryForItsOutputs) {
    const tw::Model m = model();
    const auto width = m.inputs()[0].dims[1];
    tw::Session session(m, 1);
    const std::vector<float> x = values(static_cast<size_t>(3 * width));
    const std::vector<tw::Tensor> inputs = {tw::tensor(x, {3, width})};
    const tw::Tensor own = session.run(inputs).at(0);
    const std::vector<float> expected(own.as<float>(), own.as<float>() + own.count());
    alignas(64) std::array<float, 32> y{};
    tw::RunOptions options;
    options.output_memory = [&](size_t index, const tw::Tensor& output) -> void* {
        EXPECT_EQ(index, 0u);
        EXPECT_EQ(output.shape, (std::vector<int64_t>{3, 10}));
        EXPECT_EQ(output.bytes, 30 * sizeof(float));
        return y.data();
    };
    EXPECT_EQ(session.run(inputs, options).at(0).data, y.data());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), y.begin()));

    options.output_memory = [](size_t, const tw::Tensor&) -> void* { throw std::out_of_range("mine"); };
    EXPECT_THROW(session.run(inputs, options), std::out_of_range);
    options.output_memory = nullptr;
    options.cancelled = [] { return true; };
    try {
        session.run(inputs, options);
        FAIL() << "not cancelled";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_CANCELLED);
    }
    EXPECT_EQ(session.run(inputs).at(0).bytes, 30 * sizeof(float));
}

TEST_F(Api, ChecksRunOptions) {
    const tw::Model m = model();
    tilewright_session* s = nullptr;
    ASSERT_EQ(tilewright_session_create(m.handle(), 1, &s, nullptr), TILEWRIGHT_OK);
    tilewright_run_options o = tilewright_default_run_options();
    const std::vector<float> x = values(static_cast<size_t>(m.inputs()[0].dims[1]));
    const int64_t shape[] = {1, m.inputs()[0].dims[1]};
    const tilewright_tensor input = {TILEWRIGHT_F32, 2, shape, const_cast<float*>(x.data()), x.size() * sizeof(float)};
    EXPECT_EQ(tilewright_run_with(s, &input, 1, &o, nullptr), TILEWRIGHT_OK);
    EXPECT_EQ(tilewright_run_with(s, &input, 1, nullptr, nullptr), TILEWRIGHT_OK);
    o.struct_size = 8;
    Outcome bad;
    EXPECT_EQ(tilewright_run_with(s, &input, 1, &o, &bad.error), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(bad.text(), "options->struct_size is 8: expected sizeof(tilewright_run_options), " +
                              std::to_string(sizeof o) + " here");
    EXPECT_EQ(tilewright_run_with(nullptr, &input, 1, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    tilewright_session_free(s);
}

// --- options of compilations

TEST_F(Api, LogsAndCancelsCompilations) {
    std::vector<std::string> passes;
    tw::Options options;
    options.log = [&](tilewright_severity severity, const std::string& text) {
        if (severity == TILEWRIGHT_INFO) passes.push_back(text);
    };
    tw::Model::from_file(path, options);
    EXPECT_THAT(passes, testing::Contains("merge_kernels"));
    const size_t all = passes.size();
    passes.clear();
    options.cancelled = [&] { return passes.size() == 3; };
    try {
        tw::Model::from_file(path, options);
        FAIL() << "not cancelled";
    } catch (const tw::Error& e) {
        EXPECT_EQ(e.status(), TILEWRIGHT_CANCELLED);
    }
    EXPECT_EQ(passes.size(), 3u);
    EXPECT_GT(all, 3u);
}

TEST_F(Api, KeepsMachineCodeInTheCacheFolder) {
    const tilewright::TemporaryFolder folder;
    tw::Options options;
    options.cache = true;
    options.cache_folder = folder.path();
    tw::Model::from_file(path, options);
    EXPECT_FALSE(std::filesystem::is_empty(folder.path() + "/code"));
}

TEST_F(Api, PlansByTheBinaryProgram) {
    tw::Options options;
    options.orchestrator = TILEWRIGHT_OPTIMAL;
    EXPECT_THAT(tw::Explanation::of_file(path, options).text, HasSubstr("columns"));
    options.orchestrator = static_cast<tilewright_orchestrator>(2);
    try {
        tw::Model::from_file(path, options);
        FAIL() << "accepted";
    } catch (const tw::Error& e) {
        EXPECT_STREQ(e.what(), "options->orchestrator is 2: expected 0 (TILEWRIGHT_GREEDY) or 1 (TILEWRIGHT_OPTIMAL)");
    }
}

TEST_F(Api, ExplainsAPlanAtSampleSizes) {
    tw::Options options;
    options.sample_sizes = {{"batch", 7}};
    const tw::Explanation e = tw::Explanation::of_memory(bytes.data(), bytes.size(), options);
    EXPECT_THAT(e.text, HasSubstr("batch = 7"));
    EXPECT_THAT(e.json, HasSubstr("\"kernels\""));
    EXPECT_THAT(e.html, testing::AllOf(HasSubstr("<html"), HasSubstr("batch")));
    options.sample_sizes = {{"batch", -1}};
    EXPECT_THROW(tw::Explanation::of_file(path, options), tw::Error);
    EXPECT_EQ(tilewright_explain_file(nullptr, nullptr, 0, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(tilewright_explain_memory(bytes.data(), 3, nullptr, 0, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
    EXPECT_STREQ(tilewright_explanation_text(nullptr), "");
    tilewright_explanation_free(nullptr);
}

TEST_F(Api, ReturnsWhatTheFileSaysAboutTheModel) {
    const tw::Info info = model().info();
    EXPECT_EQ(info.producer_name, "tilewright");
    EXPECT_EQ(info.metadata, (std::map<std::string, std::string>{}));
    EXPECT_EQ(tilewright_info(nullptr, nullptr, nullptr), TILEWRIGHT_INVALID_ARGUMENT);
}

}  // namespace
