#pragma once
// Reading the text of scalar bodies (ScalarBody::print writes it), and the typing rules of their operators.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "program/scalar.h"
#include "program/text.h"

namespace tilewright {

/// The storage type of access `slot`; nothing when there is no such access.
using StorageOf = std::function<std::optional<DType>(uint32_t slot)>;

/// Reads what ScalarBody::print writes. `acc` is the type of Acc, absent outside an epilogue. Throws ModelError.
ScalarBody parse_scalar(std::string_view text, const StorageOf& storage, std::optional<DType> acc = std::nullopt);
/// The same inside a longer text; stops after the expression.
ScalarBody parse_scalar(TextCursor& text, const StorageOf& storage, std::optional<DType> acc);

/// The type that an operator (no leaf, Cast or Bitcast) gives on its operands.
DType result_type(const ScalarBody& body, const ScalarNode& node);
/// What is wrong with the types of an inner node whose operands stand in `body`, as a sentence; empty when nothing is:
/// "operator 'exp' takes floating-point numbers, found i64".
std::string type_fault(const ScalarBody& body, const ScalarNode& node);

}  // namespace tilewright
