#pragma once
// Shared by the programs of other libraries: the command line, timing, results.

#include <functional>
#include <span>
#include <vector>

#include "driver/opspec/op_spec.h"

namespace tilewright::peers {

/// Prepares an operator and returns a function that runs it once. Returns nothing if the library has no such operator;
/// throws std::exception on failure.
using Prepare = std::function<std::function<void()>(const OpSpec&)>;

/// Measures operators of the command line and of batch files, with the options of `tilewright op`, and prints one JSON
/// object per line: op, measured_ms (median), spread, runs; or op, unsupported; or op, error. `set_threads` is called
/// before anything else. Returns the exit status.
int run_peer(int argc, char** argv, const char* description, const std::function<void(int)>& set_threads,
             const Prepare& prepare);

/// Fills with numbers between -1 and 1; the values do not affect an operator's time.
void fill(std::span<float> numbers, uint32_t seed);
std::vector<float> numbers(int64_t count, uint32_t seed);

}  // namespace tilewright::peers
