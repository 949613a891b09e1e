#pragma once

#include "program/program.h"

namespace tilewright {

/// The program without primitives and constants that no output needs. A ReadScalar stays if a remaining primitive,
/// shape or nested program uses its name. Requirements alone do not keep it and are removed with it, except by their
/// Requirement::Check and for reads of the program's inputs. Inputs stay, used or not. Nested programs are cleaned too.
/// ValueIds keep their meaning; PrimitiveIds do not.
Program eliminate_dead_code(Program program);

}  // namespace tilewright
