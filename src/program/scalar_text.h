#pragma once
// The parser of scalar bodies (ScalarBody::print writes their text) and the typing rules of their operators.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "program/scalar.h"
#include "program/text.h"

namespace tilewright {

/// The storage type of access `slot`; none if there is no such access.
using StorageOf = std::function<std::optional<DType>(uint32_t slot)>;

/// Reads what ScalarBody::print writes. `acc` is the type of Acc, absent outside an epilogue. Throws ModelError.
ScalarBody parse_scalar(std::string_view text, const StorageOf& storage, std::optional<DType> acc = std::nullopt);
/// Reads an expression inside a longer text; stops after the expression.
ScalarBody parse_scalar(TextCursor& text, const StorageOf& storage, std::optional<DType> acc);

/// The result type of an operator (no leaf, Cast or Bitcast) on its operands.
DType result_type(const ScalarBody& body, const ScalarNode& node);
/// The type error of an inner node whose operands are in `body`, as a sentence; empty if there is none:
/// "operator 'exp' takes floating-point numbers, found i64".
std::string type_fault(const ScalarBody& body, const ScalarNode& node);

}  // namespace tilewright
