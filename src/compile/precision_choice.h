#pragma once
// Which products of a program are rounded to 16 bits, and which stay in f32: by name, by estimated time, by their
// effect on the outputs.

#include <optional>
#include <string>
#include <vector>

#include "compile/options.h"
#include "compile/unit.h"

namespace tilewright {

/// Why a product has operands of its type.
enum class PrecisionReason : uint8_t {
    Rounded,  ///< to PrecisionChoice::precision
    Named,    ///< f32: CompileOptions::keep_f32
    Slower,   ///< f32: the other is estimated to be slower
    Error     ///< f32: for CompileOptions::max_error
};
std::string_view to_string(PrecisionReason reason);

/// What was chosen.
struct PrecisionChoice {
    struct Product {
        std::string result;              ///< the name of the value that it computes
        std::vector<std::string> nodes;  ///< of the model: "conv1 (Conv)"
        PrecisionReason reason = PrecisionReason::Rounded;
        std::optional<double> alone;  ///< the error of the outputs with this product alone rounded, if it was measured
    };
    Precision precision = Precision::BF16;  ///< of rounded products: BF16 or F16
    bool available = true;                  ///< the target has products of that type
    std::vector<Product> products;          ///< those that its instructions can compute, and those kept by name
    double max_error = 0;                   ///< CompileOptions::max_error
    /// Errors of outputs against f32 arithmetic, on sample inputs: with all products rounded but those kept by name or
    /// slower, and as chosen. If max_error is set.
    std::optional<double> error_of_all, error;
    /// Estimated times of a run as it is and with all products in f32. If CompileOptions::where_faster is set.
    std::optional<double> seconds, f32_seconds;
    std::string note;          ///< why the precision is f32 after all; empty: it is `precision`
    F32Products f32_products;  ///< GroupingOptions::f32_products, as chosen

    size_t rounded() const;  ///< products
};

/// Whether operands are rounded to 16 bits.
bool is_narrow(Precision precision);

/// The types of 16 bits whose products are faster than those of f32, the fastest first: tile registers of bf16 have
/// several times the rate of multiply-adds in f16.
std::vector<Precision> faster_precisions(const Target& target);

/// Whether products may get operands of 16 bits. `planning`: in place of what the options say of it; may be null.
bool narrows(const CompileOptions& options, const OrchestrateOptions* planning);

/// Rounds operands of the unit's products, but for planning.f32_products (orchestrate/precision.h), or splits them into
/// planning.bf16_terms (orchestrate/bf16_terms.h), which is not reported. `report` may be null; the products are added
/// to it.
void narrow_operands(Unit& unit, const OrchestrateOptions& planning, PrecisionChoice* report);

/// Chooses products of the unit's program that stay in f32, beside planning.f32_products, and adds them there. Products
/// in bodies of loops and branches are not compared, and stay in f32.
///
/// CompileOptions::where_faster: those whose kernels are estimated to take longer so; all, if the whole plan does.
/// CompileOptions::max_error: programs are compiled and run on sample inputs.
///
///     all products rounded; the error is within the budget  ->  done
///     with a switch for each product (precision_switches.h), one rounded at a time  ->  ranking
///     as few of the first in the ranking as suffice, by bisection with the switches
///     these in f32, the others rounded, as planned  ->  done, or some more
void choose_precision(Unit& unit, const CompileOptions& options, OrchestrateOptions& planning, PrecisionChoice& report);

/// The estimated time of a run of the plan of a model in seconds.
double estimated_seconds(const Plan& plan);

}  // namespace tilewright
