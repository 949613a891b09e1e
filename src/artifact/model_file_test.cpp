// Compiled models in files: what is loaded runs as what was compiled, and a damaged file never reaches the loader.

#include "artifact/model_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "artifact/model_trailer.h"
#include "base/error.h"
#include "base/private_folder.h"
#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "model/recurrence_test.h"
#include "model/session.h"
#include "program/builder.h"
#include "program/random_program.h"

namespace tilewright::artifact {
namespace {

using testing::HasSubstr;

class ModelFile : public testing::Test {
  protected:
    static CompileOptions with_objects() {
        CompileOptions o;
        o.keep_objects = true;
        return o;
    }
    static std::string contents(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    std::string written(const std::string& name, const std::string& bytes) const {
        std::ofstream(folder / name, std::ios::binary) << bytes;
        return folder / name;
    }
    static std::string refusal_of(const std::string& path) {
        try {
            load_model_file(path);
        } catch (const std::exception& e) {
            return e.what();
        }
        return "loaded";
    }
    TemporaryFolder folder;
};

TEST_F(ModelFile, IsAnArchiveWithEqualBytesForEqualModels) {
    const auto model = compile_program(test::recurrences({}), with_objects());
    for (const char* name : {"a.a", "b.a"}) {
        const ModelFileInfo info = write_model_archive({model}, {"ab12", {}}, folder / name, "tilewright_model_m");
        EXPECT_EQ(info.about.origin.hash, "ab12");
        EXPECT_EQ(info.file_bytes, std::filesystem::file_size(folder / name));
        ASSERT_EQ(info.variants.size(), 1u);
        EXPECT_GT(info.variants[0].kernels, 0u);
    }
    const std::string bytes = contents(folder / "a.a");
    EXPECT_EQ(bytes, contents(folder / "b.a"));
    EXPECT_EQ(bytes.substr(0, 8), "!<arch>\n");
    EXPECT_THAT(bytes, HasSubstr("tilewright_model_m_kernel_0_0"));
    EXPECT_TRUE(is_model_file(folder / "a.a"));
    EXPECT_THAT(refusal_of(folder / "a.a"), HasSubstr("a.a' is an archive, which programs are linked with"));
    EXPECT_THROW(write_model_archive({model}, {}, folder / "none/a.a", "m"), RuntimeError);
}

TEST_F(ModelFile, OfAProgramIsRefusedUnlessItIsATableOfThisInterface) {
    ModelTable table{};
    const auto refusal = [&]() -> std::string {
        try {
            load_linked_model(table);
        } catch (const ModelError& e) {
            return e.what();
        }
        return "loaded";
    };
    EXPECT_THAT(refusal(), HasSubstr("not of a model's table"));
    std::memcpy(table.magic, "TWMODEL", sizeof table.magic);
    table.abi = kModelAbi + 1;
    EXPECT_THAT(refusal(), HasSubstr("version 3 of the interface"));
}

TEST_F(ModelFile, RunsAsTheModelThatWasCompiled) {
    const test::Recurrences options;
    const auto model = compile_program(test::recurrences(options), with_objects());
    write_model_file({model}, {"ab12", {}}, folder / "m.so");
    const auto loaded = load_model_file(folder / "m.so").model;
    Session a(model, 2), b(loaded, 2);
    for (const int64_t steps : {5, 1, 9}) {
        const std::vector<Tensor> inputs = test::recurrence_inputs(steps, 3, options.hidden);
        EXPECT_EQ(a.run(inputs), b.run(inputs));
    }
    const ModelFileInfo info = inspect_model_file(folder / "m.so");
    EXPECT_EQ(info.about.origin.hash, "ab12");
    EXPECT_EQ(info.variants.at(0).kernels, model->kernels().size());
    EXPECT_EQ(info.file_bytes, std::filesystem::file_size(folder / "m.so"));
}

/// Transcendental functions are libm's, which the file names as a library it needs.
TEST_F(ModelFile, OfRandomProgramsRunsTheSame) {
    for (uint64_t seed = 20; seed < 26; ++seed) {
        const Program p = random_program(seed, 16);
        const auto model = compile_program(p, with_objects());
        const std::string path = folder / std::to_string(seed);
        write_model_file({model}, {}, path);
        const std::vector<Tensor> inputs = random_inputs(p, seed);
        EXPECT_EQ(Session(model).run(inputs), Session(load_model_file(path).model).run(inputs)) << print(p);
    }
}

TEST_F(ModelFile, OfFunctionsOfLibmRunsTheSame) {
    Program p;
    p.name = "functions";
    Builder b(p);
    const ValueId x = b.input("x", DType::F64, {symbol("n")});
    b.set_source("f", "F");
    b.set_outputs({b.unary(ScalarOp::Sin, b.unary(ScalarOp::Exp, x)), b.unary(ScalarOp::Tanh, x)});
    const auto model = compile_program(p, with_objects());
    write_model_file({model}, {}, folder / "f.so");
    const std::vector<Tensor> inputs = {Tensor::of<double>(DType::F64, {5}, {-1, 0, 0.5, 2, 7})};
    EXPECT_EQ(Session(model).run(inputs), Session(load_model_file(folder / "f.so").model).run(inputs));
}

TEST_F(ModelFile, OfEqualCompilationsHasEqualBytes) {
    for (const char* name : {"a.so", "b.so"})
        write_model_file({compile_program(test::recurrences({}), with_objects())}, {}, folder / name);
    const std::string bytes = contents(folder / "a.so");
    EXPECT_EQ(bytes, contents(folder / "b.so"));
    EXPECT_EQ(bytes, model_file_bytes({compile_program(test::recurrences({}), with_objects())}, {}));
}

/// Two models through one descriptor number: the dynamic linker must not take the second for the first.
TEST_F(ModelFile, IsLoadedFromAnOpenFileWithoutItsName) {
    std::vector<std::shared_ptr<const CompiledModel>> loaded;
    for (const int64_t hidden : {5, 7}) {
        test::Recurrences options;
        options.hidden = hidden;
        const auto model = compile_program(test::recurrences(options), with_objects());
        write_model_file({model}, {}, folder / "m.so");
        const Descriptor file(::open((folder / "m.so").c_str(), O_RDONLY));
        std::filesystem::remove(folder / "m.so");
        loaded.push_back(load_model_file(file.get(), "the model").model);
        const std::vector<Tensor> inputs = test::recurrence_inputs(3, 3, hidden);
        EXPECT_EQ(Session(loaded.back()).run(inputs), Session(model).run(inputs));
    }
    written("damaged.so", "hello");
    const Descriptor file(::open((folder / "damaged.so").c_str(), O_RDONLY));
    try {
        load_model_file(file.get(), "the model");
        ADD_FAILURE() << "loaded";
    } catch (const ModelError& e) {
        EXPECT_STREQ(e.what(), "'the model' is no compiled model");
    }
}

TEST_F(ModelFile, ThatIsDamagedIsRefused) {
    write_model_file({compile_program(test::recurrences({}), with_objects())}, {}, folder / "m.so");
    const std::string bytes = contents(folder / "m.so");
    for (size_t n = 0; n < bytes.size(); n += 1 + n / 8)
        EXPECT_NE(refusal_of(written("cut.so", bytes.substr(0, n))), "loaded") << n << " bytes";
    for (size_t at = 0; at < bytes.size(); at += 1 + at / 16) {
        std::string wrong = bytes;
        wrong[at] = static_cast<char>(wrong[at] ^ 4);
        EXPECT_NE(refusal_of(written("flipped.so", wrong)), "loaded") << "byte " << at;
    }
    std::string earlier = bytes;
    earlier.back() = '\0';
    EXPECT_THAT(refusal_of(written("earlier.so", earlier)), HasSubstr("has version 0"));
    EXPECT_THAT(refusal_of(written("cut.so", bytes.substr(0, bytes.size() - 1))), HasSubstr("cut off"));
    std::string wrong = bytes;
    wrong[bytes.size() / 2] = static_cast<char>(wrong[bytes.size() / 2] ^ 1);
    EXPECT_THAT(refusal_of(written("flipped.so", wrong)), HasSubstr("damaged"));
    EXPECT_THAT(refusal_of(written("text.so", "hello")), HasSubstr("no compiled model"));
    EXPECT_THAT(refusal_of(folder / "missing.so"), HasSubstr("cannot read"));
    EXPECT_FALSE(is_model_file(folder / "text.so"));
    EXPECT_TRUE(is_model_file(folder / "m.so"));
}

TEST_F(ModelFile, WithDamagedWeightsIsRefusedWhereverTheyAreLoaded) {
    const ModelFileInfo info =
        write_model_file({compile_program(test::recurrences({}), with_objects())}, {}, folder / "m.so");
    const std::string bytes = contents(folder / "m.so");
    ModelTrailer trailer;
    std::memcpy(&trailer, &bytes[bytes.size() - sizeof trailer], sizeof trailer);
    ASSERT_EQ(trailer.weight_bytes, info.weight_bytes);
    ASSERT_GT(trailer.weight_bytes, 0u);
    for (const uint64_t at : {trailer.weights_at, trailer.weights_at + trailer.weight_bytes - 1}) {
        std::string wrong = bytes;
        wrong[at] = static_cast<char>(wrong[at] ^ 1);
        const std::string path = written("wrong.so", wrong);
        EXPECT_THAT(refusal_of(path), HasSubstr("wrong.so' is damaged"));
        EXPECT_THROW(load_model_file(path, nullptr, true), ModelError);
        EXPECT_THROW(inspect_model_file(path), ModelError);
    }
    EXPECT_NE(load_model_file(folder / "m.so", nullptr, true).model, nullptr);
}

/// A trailer that leads outside of the file.
TEST_F(ModelFile, WithAPlaceOutsideIsRefused) {
    write_model_file({compile_program(test::recurrences({}), with_objects())}, {}, folder / "m.so");
    const std::string bytes = contents(folder / "m.so");
    for (const uint64_t at : {uint64_t{bytes.size()}, ~uint64_t{0}, ~uint64_t{0} - 64}) {
        std::string wrong = bytes;
        std::memcpy(&wrong[bytes.size() - sizeof(ModelTrailer)], &at, sizeof at);
        EXPECT_THAT(refusal_of(written("wrong.so", wrong)), HasSubstr("damaged"));
    }
}

TEST_F(ModelFile, ForAnotherCpuIsRefusedWithWhatIsMissing) {
    CompileOptions options = with_objects();
    options.machine = host_target();
    options.machine->features.emplace_back("zz-wide-vectors");
    write_model_file({compile_program(test::recurrences({}), options)}, {}, folder / "m.so");
    const std::string why = refusal_of(folder / "m.so");
    EXPECT_THAT(why, HasSubstr("does not have zz-wide-vectors"));
    EXPECT_THAT(why, HasSubstr("m.so"));
    EXPECT_THAT(inspect_model_file(folder / "m.so").about.platform.features, testing::Contains("zz-wide-vectors"));
}

/// Compiled for the vector instructions that every selectable level has, and for all others.
TEST_F(ModelFile, ForSeveralLevelsOfInstructionsRunsTheLastThatTheCpuHas) {
    Compilations models;
    for (const std::string& isa : selectable_isas()) {
        CompileOptions options = with_objects();
        options.isa = isa;
        models.push_back(compile_program(test::recurrences({}), options));
    }
    write_model_file({models[0]}, {}, folder / "one.so");
    write_model_file(models, {"ab12", {}}, folder / "all.so");
    const ModelFileInfo info = inspect_model_file(folder / "all.so");
    ASSERT_EQ(info.variants.size(), models.size());
    for (size_t v = 0; v < models.size(); ++v)
        EXPECT_EQ(info.variants[v].platform.features, models[v]->impl().platform.features) << v;
    EXPECT_LT(info.weight_bytes, models.size() * inspect_model_file(folder / "one.so").weight_bytes)
        << "constants of equal content are there once";

    const auto here = variant_for(info.variants, host_features());
    if (!here) GTEST_SKIP() << "this CPU has none of the levels";
    const ModelFileInfo loaded = load_model_file(folder / "all.so");
    EXPECT_EQ(loaded.about.platform, info.variants[*here].platform);
    const std::vector<Tensor> inputs = test::recurrence_inputs(5, 3, test::Recurrences().hidden);
    EXPECT_EQ(Session(loaded.model).run(inputs), Session(models[*here]).run(inputs));
}

/// Without loading it: an archive has no addresses yet, and code for another architecture cannot be loaded.
TEST_F(ModelFile, IsDescribedForAnyArchitecture) {
    for (const char* isa : {"avx2", "neon"}) {
        CompileOptions options = with_objects();
        options.isa = isa;
        const auto model = compile_program(test::recurrences({}), options);
        write_model_file({model, model}, {"ab12", {}}, folder / "m.so");
        write_model_archive({model, model}, {"ab12", {}}, folder / "m.a", "tilewright_model_m");
        for (const char* name : {"m.so", "m.a"}) {
            const ModelFileInfo info = inspect_model_file(folder / name);
            EXPECT_EQ(info.about.origin.hash, "ab12") << name;
            EXPECT_EQ(info.about.platform, model->impl().platform) << name;
            ASSERT_EQ(info.variants.size(), 2u) << name;
            for (const ModelFileInfo::Variant& v : info.variants) EXPECT_EQ(v.kernels, model->kernels().size()) << name;
            EXPECT_GT(info.weight_bytes, 0u) << name;
            EXPECT_EQ(info.file_bytes, std::filesystem::file_size(folder / name));
            EXPECT_EQ(info.model->outputs().size(), model->outputs().size()) << name;
            EXPECT_EQ(info.model->stats().steps, model->stats().steps) << name;
        }
    }
}

/// An archive has no hash: what is wrong with it is found as it is read.
TEST_F(ModelFile, ThatIsADamagedArchiveIsDescribedOrRefused) {
    const auto model = compile_program(test::recurrences({}), with_objects());
    write_model_archive({model}, {}, folder / "m.a", "tilewright_model_m");
    const std::string bytes = contents(folder / "m.a");
    int refused = 0;
    const auto inspect = [&](const std::string& changed) {
        try {
            EXPECT_TRUE(inspect_model_file(written("changed.a", changed)).model);
        } catch (const ModelError& e) {
            EXPECT_THAT(e.what(), HasSubstr("changed.a'"));
            ++refused;
        }
    };
    for (size_t at = 8; at < bytes.size(); at += 1 + at / 64) {
        std::string wrong = bytes;
        wrong[at] = static_cast<char>(wrong[at] ^ 0x81);
        inspect(wrong);
        inspect(bytes.substr(0, at));
    }
    EXPECT_GT(refused, 0);
    inspect(bytes.substr(0, 8));
}

TEST(ModelVariants, AreChosenByWhatTheCpuHas) {
    std::vector<ModelFileInfo::Variant> variants;
    for (const std::vector<std::string>& features : {std::vector<std::string>{"a"}, {"a", "b"}, {"a", "c"}})
        variants.push_back({{std::string(kHostArch), "", VectorIsa::baseline, features}, 0, 0});
    EXPECT_EQ(variant_for(variants, {}), std::nullopt);
    EXPECT_EQ(variant_for(variants, {"a"}), 0u);
    EXPECT_EQ(variant_for(variants, {"a", "b", "x"}), 1u);
    EXPECT_EQ(variant_for(variants, {"a", "b", "c"}), 2u);
    variants[1].platform.arch = "other";
    EXPECT_EQ(variant_for(variants, {"a", "b"}), 0u);
}

TEST_F(ModelFile, IsLeftAloneWhereWritingFails) {
    const auto model = compile_program(test::recurrences({}), with_objects());
    EXPECT_THROW(write_model_file({model}, {}, folder / "no/such/folder.so"), RuntimeError);
    EXPECT_THROW(write_model_file({compile_program(test::recurrences({}), {})}, {}, folder / "m.so"), InternalError);
    EXPECT_FALSE(std::filesystem::exists(folder / "m.so"));
}

}  // namespace
}  // namespace tilewright::artifact
