#pragma once
// Custom operators of the C interface.

#include <cstddef>
#include <memory>

#include "opaque/custom.h"
#include "tilewright/tilewright.h"

namespace tilewright::api {

/// The caller's operators by name; null where there are none. `name`: of the field, in messages. Throws
/// InvalidArgument, and ModelError for two operators of one name and version.
std::shared_ptr<const CustomOperators> operators_of(size_t count, const tilewright_operator* const* operators,
                                                    const char* name);

}  // namespace tilewright::api
