#pragma once
// tilewright_options as the pipeline's options.

#include <cstdint>
#include <map>
#include <string>

#include "compile/pipeline.h"
#include "tilewright/tilewright.h"

namespace tilewright::api {

/// The caller's options in this version's layout: fields that the caller does not have are zero. Throws
/// InvalidArgument.
tilewright_options options_of(const tilewright_options* given);
/// Throws InvalidArgument. `options` must outlive the result.
PipelineOptions pipeline_options(const tilewright_options* options);
/// CompileOptions::code_folder for tilewright_options.cache_folder: in the command-line tool's cache folder if it is
/// empty; empty if there is none.
std::string code_folder(const std::string& folder);
/// Where the model is also written to; empty: nowhere.
std::string output_file(const tilewright_options* options);
/// The sample sizes. Throws InvalidArgument.
std::map<std::string, int64_t> sample_sizes(const tilewright_options* options);

}  // namespace tilewright::api
