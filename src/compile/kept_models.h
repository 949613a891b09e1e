#pragma once
// Compiled models in the code cache: a process that compiles what an earlier one has compiled loads the result.

#include <cstddef>
#include <string>

#include "compile/pipeline.h"

namespace tilewright {

/// compile_model; or, without the importer, passes and LLVM, the model that an equal compilation has kept in
/// CompileOptions::code_folder (Compilation::kept). Its runs give the same bits. It has no program, kernels' texts or
/// pass times; what was left to the strict model (CompiledModel::Impl::make_fallback) is compiled when it is needed.
///
/// Equal are: the model's bytes, all options that decide about code and plan, the machine (Target, and the CPU's
/// flags), and the build of the compiler. Not kept are models with external data or for GPUs, compilations with
/// CompileOptions::operators (nothing says whether a function of the caller is that of an earlier process), those that
/// measure, those of which more than the model is wanted (PipelineOptions::reference, keep_rewritten, printed or
/// verified passes, keep_objects), and models that take more than a quarter of the cache. A damaged file counts as
/// missing. That nothing can be kept is a warning.
///
/// Throws as compile_model does.
Compilation compile_or_load(const std::string& path, const PipelineOptions& options);
Compilation compile_or_load(const void* bytes, size_t size, const PipelineOptions& options);
Compilation compile_or_load(const Model& model, const PipelineOptions& options);

}  // namespace tilewright
