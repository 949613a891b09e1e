#pragma once
// The tensors a model is run on, from what a user asked for.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"
#include "model/session.h"

namespace tilewright {

/// What the caller asked for does not fit the model.
class OptionError : public ModelError {
  public:
    using ModelError::ModelError;
};

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

/// Throws OptionError unless `name` is one of `names`, the model's named dimensions. `setting` is what the user wrote.
void require_dimension(const std::string& name, const std::string& setting, const std::vector<std::string>& names);

/// "f32[batch, 224]"
std::string describe(const ModelIo& io);

}  // namespace tilewright
