#pragma once
// The inputs of a run, from the user's options.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "compile/option_error.h"
#include "model/session.h"

namespace tilewright {

struct InputRequest {
    /// "x=x.npy", "x=x.pb", "x=random"; "all.npz" sets every input for which it has an array.
    std::vector<std::string> files;
    std::map<std::string, int64_t> dims;  ///< sizes of named dimensions of random inputs
    std::string folder;                   ///< an ONNX test data set: input_0.pb, ... by position; excludes `files`
    uint64_t seed = 0;                    ///< of random inputs
};

/// One tensor for each declared input. Inputs that are not specified are random; their named dimensions are those of
/// the given inputs, else of `dims`, else 1. Throws ModelError with input, file, expectation and finding; RuntimeError
/// if a file cannot be read or memory does not suffice. `assumed` receives the dimensions that are 1 because no size
/// was given.
std::vector<Tensor> make_inputs(const std::vector<ModelIo>& declared, const InputRequest& request,
                                std::map<std::string, int64_t>* assumed = nullptr);

/// "f32[batch, 224]"
std::string describe(const ModelIo& io);

/// "batch = 1, seq = 8"
std::string sizes_text(const std::map<std::string, int64_t>& sizes);

}  // namespace tilewright
