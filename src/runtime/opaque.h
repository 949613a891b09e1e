#pragma once
// Opaque operators, which no tensor expression describes: plain C++ called by the runtime and by the interpreter.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/tensor.h"

namespace tilewright {

/// A non-owning view of a dense row-major tensor.
struct TensorView {
    DType dtype = DType::F32;
    std::span<const int64_t> shape;
    void* data = nullptr;

    int64_t count() const {
        int64_t n = 1;
        for (int64_t d : shape) n *= d;
        return n;
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(data);
    }
};

/// Allocates the outputs of an opaque operator. A second request for output k returns fresh memory.
class OpaqueOutputs {
  public:
    virtual ~OpaqueOutputs() = default;
    /// Memory for output k, uninitialised; `shape` is copied. Throws ModelError if the model declares another shape.
    virtual TensorView allocate(size_t k, std::span<const int64_t> shape) = 0;
};

/// Immutable, thread-safe: one object serves all sessions.
class OpaqueOp {
  public:
    virtual ~OpaqueOp() = default;
    /// "TopK(axis=1, largest=1)": name and attributes, stable; two operators with equal text compute the same.
    virtual std::string print() const = 0;
    /// Inputs are dense; a missing optional input has data == nullptr and an empty shape. Every output must be
    /// allocated. Throws ModelError (bad values in the data) with the operator in the message.
    virtual void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const = 0;
    /// True if equal inputs always give equal outputs. Random generators return false and are never folded.
    virtual bool deterministic() const { return true; }
    /// True if the output's bytes are those of the inputs, one behind the other. The runtime may place the inputs in
    /// the output's memory; then it does not call run().
    virtual bool concatenates() const { return false; }
};

}  // namespace tilewright
