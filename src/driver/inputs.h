#pragma once
// The tensors a model is run on, from what a user asked for.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "compile/option_error.h"
#include "model/session.h"

namespace tilewright {

struct InputRequest {
    /// "x=x.npy", "x=x.pb", "x=random"; "all.npz" gives every input that it has an array for.
    std::vector<std::string> files;
    std::map<std::string, int64_t> dims;  ///< sizes of named dimensions of random inputs
    std::string folder;                   ///< an ONNX test data set: input_0.pb, ... by position; excludes `files`
    uint64_t seed = 0;                    ///< of random inputs
};

/// One tensor for each declared input. An input that nothing is said about is random; its named dimensions are those of
/// the inputs that were given, else of `dims`, else 1. Throws ModelError naming input, file, what was expected and what
/// was found; RuntimeError where a file cannot be read or memory does not suffice. `assumed`: becomes the dimensions
/// that are 1 because nothing was said about them.
std::vector<Tensor> make_inputs(const std::vector<ModelIo>& declared, const InputRequest& request,
                                std::map<std::string, int64_t>* assumed = nullptr);

/// "f32[batch, 224]"
std::string describe(const ModelIo& io);

}  // namespace tilewright
