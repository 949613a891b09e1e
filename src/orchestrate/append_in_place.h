#pragma once
// Appending in place: a program whose outputs extend inputs, for runs that keep both in one memory (model/kv_cache.h).
//
//     present = Concat(past, new) along dimension 2      past: input [b, h, n, d], present: output [b, h, n + m, d]
//     ->  rows = new, dimension 2 first; present = Append(past, rows)      past [n, b, h, d], present [n + m, b, h, d]
//
// Reads of past and present follow. The executor places past and rows in the memory of present (Executor::bind), so
// that a step of decoding copies nothing that earlier steps have computed.

#include <optional>
#include <vector>

#include "program/append.h"
#include "program/program.h"

namespace tilewright {

/// Rewrites the program, and returns its appends: outputs that concatenate an input with something else and nothing
/// more, where only tensor expressions read both, where the input's dimension is a symbol, the same in all of them, as
/// many rows are added to each, and other inputs have the symbols of its other dimensions.
std::vector<Append> append_in_place(Program& program);

/// The rows that such a program has before a run, and those that the run adds.
struct AppendedRows {
    Var before, added;
};
/// Nothing where a run adds rows that are not one symbol.
std::optional<AppendedRows> appended_rows(const Program& program, const std::vector<Append>& appends);

}  // namespace tilewright
