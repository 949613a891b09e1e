#pragma once
// Programs evaluated by the interpreter, and their tensors compared by name.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "driver/compare.h"
#include "layout/layout.h"
#include "program/program.h"

namespace tilewright::bisect {

/// In which precision f32 values are kept between primitives.
enum class Precision : uint8_t {
    Exact,   ///< double: what the program defines
    Rounded  ///< f32: the program's own rounding errors show as well
};

/// What an evaluation gave. Values have the types that the program declares.
struct Evaluation {
    std::string failure;  ///< why there are no outputs: an access out of bounds; else empty
    std::vector<Tensor> outputs;
    std::map<ValueId, Tensor> values;  ///< those that were to be kept
    Bindings names;                    ///< symbols and scalars
};

/// `keep`: the values to keep, by name; empty: none. Throws ModelError (NeedsFallback too) as interpret() does.
Evaluation evaluate(const Program& program, const std::vector<Tensor>& inputs, Precision precision,
                    const std::function<bool(const std::string&)>& keep = {});

/// The tensor with its elements rounded to `to`.
Tensor in_type(const Tensor& tensor, DType to);

/// A program's value by name; none where there is no such value.
std::map<std::string, ValueId> ids_by_name(const Program& program);

/// Where a value is not row-major: its layout, by its name.
using Layouts = std::map<std::string, Layout>;

/// A tensor that was compared with another one.
struct Compared {
    ValueId value;
    Comparison result;
};

/// The values of `program` that parted while every compared value that they depend on agrees, in topological order.
/// `compared` has the values that were compared; what was not is looked through.
std::vector<Compared> first_parted(const Program& program, const std::map<ValueId, Comparison>& compared);

/// What a value is computed from: the nearest values in `known` and the program's inputs, and the primitives between.
struct Cone {
    std::set<ValueId> from;
    std::set<PrimitiveId> primitives;
};
/// `known` is not asked about the values of `of` themselves.
Cone cone(const Program& program, const std::vector<ValueId>& of, const std::function<bool(ValueId)>& known);

}  // namespace tilewright::bisect
