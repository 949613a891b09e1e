#pragma once
// Evaluates one stage at one point. Internal to the interpreter of tile programs.

#include "tile/place.h"

namespace tilewright {

class PointEvaluator : public LoadSource {
  public:
    /// The tensor that access k reads, and whether a Load has already evaluated the access's conditions.
    struct Source {
        Place* place = nullptr;
        bool decided = false;
        /// For an online maximum: whether it is final. Until then incomplete elements may be read, and -inf reads as 0.
        const bool* final = nullptr;
    };
    PointEvaluator(const Program& stages, const TensorExpr& expr, std::vector<Source> sources,
                   const Bindings& bindings);

    /// Moves to a point: `axes` are its coordinates. If `lenient` (the overhang of a tile), unwritten elements may be
    /// read.
    void move(std::span<const int64_t> axes, int64_t task, bool lenient);
    ScalarValue body() { return evaluate(body_, body_index_, {}); }
    ScalarValue epilogue(ScalarValue acc) { return evaluate(epilogue_, epilogue_index_, acc); }
    int64_t loaded(size_t access) override;

  private:
    struct Operand {
        Source source;
        DType dtype = DType::F32;
        std::vector<IndexCode> index, valid;
        ScalarValue fill;
        std::vector<int64_t> at;
        ScalarValue value;
        uint64_t known = 0;  ///< the point that `value` belongs to
    };
    ScalarValue access(size_t slot);
    ScalarValue evaluate(const ScalarBody& body, const std::vector<IndexCode>& index, ScalarValue acc);

    ScalarBody body_, epilogue_;
    std::vector<Operand> operands_;
    std::vector<IndexCode> body_index_, epilogue_index_;  ///< of Index nodes, by node
    std::vector<ScalarValue> values_;
    std::span<const int64_t> axes_;
    int64_t task_ = 0;
    bool lenient_ = false;
    uint64_t point_ = 0;
};

}  // namespace tilewright
