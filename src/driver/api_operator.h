#pragma once
// Custom operators of the C interface.

#include <cstddef>
#include <memory>
#include <string>

#include "opaque/custom.h"
#include "tilewright/tilewright.h"

namespace tilewright::api {

/// The fields of tilewright_options and tilewright_load_options.
struct GivenOperators {
    size_t count = 0;
    const tilewright_operator* const* operators = nullptr;
    size_t library_count = 0;
    const char* const* libraries = nullptr;
};

/// The caller's operators by name; null where there are none. Throws InvalidArgument, ModelError for two operators of
/// one name and version, and as add_library does.
std::shared_ptr<const CustomOperators> operators_of(const GivenOperators& given);

/// Adds the operators of a shared library (tilewright/operator_library.h), which stays loaded: its code runs in this
/// process. Throws RuntimeError that begins with the path, and ModelError for an operator that `to` has.
void add_library(const std::string& path, CustomOperators& to);

}  // namespace tilewright::api
