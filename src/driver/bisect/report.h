#pragma once
// A finding as text, as JSON, and as a test case folder.

#include <string>

#include "driver/bisect/bisect.h"

namespace tilewright::bisect {

/// What `tilewright bisect` prints: a paragraph for each of outputs, fault, tensors, kernel and notes.
std::string text_of(const Finding& finding, const Options& options);
std::string json_of(const Finding& finding, const Options& options);

/// Writes the evidence with a README.txt that has the report and says what each file is. Throws RuntimeError.
void write_folder(const Finding& finding, const Options& options, const std::string& folder);

}  // namespace tilewright::bisect
