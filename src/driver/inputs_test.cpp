#include "driver/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "driver/npy.h"
#include "driver/npz.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

class Inputs : public testing::Test {
  protected:
    Inputs() { std::filesystem::create_directories(folder_); }
    ~Inputs() override { std::filesystem::remove_all(folder_); }

    std::string npy(const std::string& name, DType type, const Shape& shape) const {
        const std::string path = folder_ + "/" + name;
        save_npy(path, Tensor(type, shape));
        return path;
    }
    /// The error of make_inputs without the folder's name.
    std::string error_for(const InputRequest& request) const {
        std::string text = "accepted";
        try {
            make_inputs(declared_, request);
        } catch (const ModelError& e) {
            text = e.what() + (e.hint().empty() ? "" : " | " + e.hint());
        } catch (const RuntimeError& e) {
            text = e.what();
        }
        for (size_t at; (at = text.find(folder_ + "/")) != std::string::npos;) text.erase(at, folder_.size() + 1);
        return text;
    }

    const std::string folder_ = testing::TempDir() + fmt::format("inputs_test_{}", ::getpid());
    std::vector<ModelIo> declared_ = {{"x", DType::F32, {symbol("batch"), 3}},
                                      {"y", DType::I64, {symbol("batch"), symbol("n")}},
                                      {"z", DType::BF16, {2}}};
};

TEST_F(Inputs, AreRandomByDefaultAndReproducible) {
    const std::vector<Tensor> a = make_inputs(declared_, {}), b = make_inputs(declared_, {});
    InputRequest other;
    other.seed = 1;
    EXPECT_EQ(a[0].shape(), (Shape{1, 3}));
    EXPECT_EQ(a[1].dtype(), DType::I64);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(a[i], b[i]);
    EXPECT_FALSE(make_inputs(declared_, other)[0] == a[0]);
}

TEST_F(Inputs, TakeNamedDimensionsFromGivenInputsThenFromDim) {
    InputRequest request;
    request.files = {"x=" + npy("x.npy", DType::F32, {5, 3}), "y=random"};
    request.dims = {{"n", 4}};
    EXPECT_EQ(make_inputs(declared_, request)[1].shape(), (Shape{5, 4}));
}

TEST_F(Inputs, ComeFromAnArchiveByName) {
    const Tensor x = Tensor::of<int>(DType::F32, {1, 3}, {1, 2, 3}), y = Tensor::of<int>(DType::I64, {1, 1}, {9});
    save_npz(folder_ + "/all.npz", {{"y", y}, {"x", x}});
    InputRequest request;
    request.files = {folder_ + "/all.npz"};
    const std::vector<Tensor> inputs = make_inputs(declared_, request);
    EXPECT_EQ(inputs[0], x);
    EXPECT_EQ(inputs[1], y);
    save_npz(folder_ + "/more.npz", {{"w", x}});
    request.files = {folder_ + "/more.npz"};
    EXPECT_EQ(error_for(request), "more.npz: the model has no input 'w' | its inputs: 'x', 'y', 'z'");
}

TEST_F(Inputs, ComeFromATestDataSetByPosition) {
    InputRequest request;
    request.folder = folder_;
    EXPECT_THAT(error_for(request), HasSubstr("holds 0 inputs (input_0.pb, input_1.pb, ...), and the model has 3"));
    const Tensor x = Tensor::of<int>(DType::F32, {1, 3}, {1, 2, 3});
    save_tensor_pb(folder_ + "/input_0.pb", {"any name", x});
    save_tensor_pb(folder_ + "/input_1.pb", {"", Tensor(DType::I64, {1, 7})});
    save_tensor_pb(folder_ + "/input_2.pb", {"", Tensor(DType::BF16, {2})});
    EXPECT_EQ(make_inputs(declared_, request)[0], x);
    save_tensor_pb(folder_ + "/input_1.pb", {"", Tensor(DType::I64, {2, 7})});
    EXPECT_EQ(error_for(request),
              "input 'y' from 'input_1.pb' has shape [2, 7], and the model expects i64[batch, n]: dimension 0 is 2 "
              "where 1 is expected (batch by input 'x')");
    request.folder = folder_ + "/nowhere";
    EXPECT_EQ(error_for(request), "'nowhere' is not a folder");
}

TEST_F(Inputs, OfAnotherTypeOrShapeAreRefused) {
    const std::string wide = npy("wide.npy", DType::F64, {1, 3}), flat = npy("flat.npy", DType::F32, {3});
    const std::string four = npy("four.npy", DType::F32, {1, 4}), ok = npy("ok.npy", DType::F32, {2, 3});
    InputRequest request;
    request.files = {"x=" + wide};
    EXPECT_EQ(error_for(request),
              "input 'x' from 'wide.npy' has elements of type f64, and the model expects f32[batch, 3] | convert it "
              "before it is saved: a.astype('float32')");
    request.files = {"x=" + flat};
    EXPECT_EQ(error_for(request),
              "input 'x' from 'flat.npy' has shape [3], and the model expects f32[batch, 3]: its rank is 1 where 2 "
              "is expected");
    request.files = {"x=" + four};
    EXPECT_EQ(error_for(request),
              "input 'x' from 'four.npy' has shape [1, 4], and the model expects f32[batch, 3]: dimension 1 is 4 where "
              "3 is expected");
    request.files = {"x=" + ok};
    request.dims = {{"batch", 8}};
    EXPECT_EQ(error_for(request),
              "input 'x' from 'ok.npy' has shape [2, 3], and the model expects f32[batch, 3]: dimension 0 is 2 where 8 "
              "is expected (batch by --dim)");
    request.dims = {{"bach", 8}};
    EXPECT_EQ(error_for(request),
              "--dim bach=8: no input of the model has a dimension 'bach' | its named dimensions: batch, n; did you "
              "mean 'batch'?");
}

TEST_F(Inputs, OfTypesThatNumPyLacksAreGivenAsFloats) {
    InputRequest request;
    request.files = {"z=" + npy("z.npy", DType::F32, {2})};
    EXPECT_EQ(make_inputs(declared_, request)[2].dtype(), DType::BF16);
}

TEST_F(Inputs, MustBeNamedOnceAndExist) {
    const std::string x = npy("x.npy", DType::F32, {1, 3});
    InputRequest request;
    request.files = {"w=" + x};
    EXPECT_EQ(error_for(request), "--input 'w=x.npy': the model has no input 'w' | its inputs: 'x', 'y', 'z'");
    request.files = {"x=" + x, "x=" + x};
    EXPECT_EQ(error_for(request), "input 'x' is given twice, by 'x.npy' and by 'x.npy'");
    request.files = {x};
    EXPECT_EQ(error_for(request),
              "--input 'x.npy': expected NAME=FILE, NAME=random or an .npz file | the model's inputs: 'x', 'y', 'z'");
    request.files = {"x=" + folder_ + "/none.npy"};
    EXPECT_EQ(error_for(request), "cannot read 'none.npy': No such file or directory");
    request.files = {"x=" + folder_ + "/x.txt"};
    EXPECT_EQ(error_for(request), "'x.txt': expected a file that ends in .npy or .pb");
    declared_[0].name = "a=b";
    request.files = {"a=b=" + x};
    EXPECT_EQ(error_for(request), "accepted") << "a name may hold a '='";
}

TEST_F(Inputs, LargerThanMemoryAreRefusedBeforeAllocation) {
    InputRequest request;
    request.dims = {{"batch", int64_t{1} << 60}, {"n", int64_t{1} << 60}};
    EXPECT_THAT(error_for(request), HasSubstr("not enough memory: input 'x' of shape [1152921504606846976, 3] needs "
                                              "more than "));
}

}  // namespace
}  // namespace tilewright
