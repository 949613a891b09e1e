#include "backend/cuda/library_kernel.h"

#include "tile/walk.h"

namespace tilewright::cuda {

Precision precision_of(const TileProgram& kernel) {
    const Walk tree = walk(kernel);
    Precision out = Precision::F32;
    for (const auto& [path, compute] : tree.computes)
        if (compute->micro.matrix)
            out = compute->micro.matrix->type == MatrixType::TF32  ? Precision::TF32
                  : compute->micro.matrix->type == MatrixType::F16 ? Precision::F16
                                                                   : Precision::BF16;
    return out;
}

}  // namespace tilewright::cuda
