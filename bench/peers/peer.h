#pragma once
// What the programs around other libraries share: the command line, timing, results.

#include <functional>
#include <span>
#include <vector>

#include "driver/opspec/op_spec.h"

namespace tilewright::peers {

/// Prepares an operator and gives what runs it once. Gives nothing where the library has no such operator; throws
/// std::exception where it fails.
using Prepare = std::function<std::function<void()>(const OpSpec&)>;

/// Measures operators of the command line and of batch files, in the options of `tilewright op`, and prints one JSON
/// object a line: op, measured_ms (median), spread, runs; or op, unsupported; or op, error. `set_threads` is called
/// before anything else. Returns the exit status.
int run_peer(int argc, char** argv, const char* description, const std::function<void(int)>& set_threads,
             const Prepare& prepare);

/// Fills with numbers between -1 and 1; the time of an operator does not depend on which.
void fill(std::span<float> numbers, uint32_t seed);
std::vector<float> numbers(int64_t count, uint32_t seed);

}  // namespace tilewright::peers
