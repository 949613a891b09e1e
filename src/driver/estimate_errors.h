#pragma once
// How far the cost model is from measured times, by kind of kernel.

#include <span>
#include <string>
#include <vector>

#include "cost/residual.h"
#include "cost/target.h"
#include "model/session.h"
#include "tile/tile.h"

namespace tilewright {

/// The kind of a kernel, by its products: "GEMM chain" (several), "product on tile registers", "matrix-vector product"
/// (one row or column), "convolution" (windows), "depthwise convolution" (and other products without columns), "matrix
/// product". Without products: "reduction", "element-wise", "copy".
std::string kind_of(const TileProgram& kernel, const Bindings& sizes);

/// A kernel of a model.
struct KernelTime {
    std::string kind, name;
    double estimated_us = 0;  ///< with its launch
    double measured_us = 0;   ///< in runs of the model
};

/// The times of the generated kernels of a model: of several runs the median, of several calls the mean. `inputs`: of
/// the session, which belongs to the model. `target`: its rates are those of the estimates, which `residual` corrects
/// (null: nothing does). Steps that call no
/// generated kernel are omitted.
std::vector<KernelTime> kernel_times(const CompiledModel& model, Session& session, const std::vector<Tensor>& inputs,
                                     const Bindings& sizes, const Target& target,
                                     const ResidualModel* residual = nullptr);

/// Of the kernels of one kind.
struct EstimateErrors {
    std::string kind;
    size_t kernels = 0;
    double measured_us = 0;  ///< all together
    double correlation = 0;  ///< of the logarithms of estimated and measured times; 0: fewer than three kernels
    double error = 1;        ///< geometric: exp of the mean of |log(measured / estimated)|
    double bias = 1;         ///< exp of the mean of log(measured / estimated)
    KernelTime worst;        ///< with the largest |log(measured / estimated)|
};

/// Kernels from `least_us` of measured time on, by kind in descending order of time; the first entry, "all", has all.
std::vector<EstimateErrors> estimate_errors(std::span<const KernelTime> kernels, double least_us);

}  // namespace tilewright
