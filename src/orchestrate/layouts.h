#pragma once
// Layouts of values, and the program that follows from them.

#include <cstdint>
#include <map>

#include "layout/layout.h"
#include "program/program.h"
#include "schedule/default_schedule.h"

namespace tilewright {

/// A program, and the layouts of those values that are not to be row-major. It may differ from the one given: where
/// inputs and outputs are row-major, those that are read or written far faster otherwise have a copy.
struct ChosenLayouts {
    Program program;
    std::map<ValueId, Layout> values;
};
enum class Boundary : uint8_t {
    RowMajor,  ///< inputs and outputs are as the program declares them
    Free       ///< in any layout, for a part of a program that is only evaluated
};
/// Which values lie how, by the default rule.
ChosenLayouts choose_layouts(const Program& program, const Target& target, Boundary boundary = Boundary::RowMajor);
enum class Contents : uint8_t {
    Moved,    ///< those of packed constants are permuted
    Anything  ///< unspecified, for a program that is only evaluated
};
/// The program with its values in these layouts: every index map is rewritten accordingly, and the weights of products
/// are packed as the kernel of each will read them. Layouts must not expand. Numbers of values stay as they are. A
/// constant that nothing else holds is freed as soon as the last of its packed copies is made.
Program lay_out(Program program, const std::map<ValueId, Layout>& layouts, const Target& target,
                Contents contents = Contents::Moved);
/// Both, for a program that is to run.
Program assign_layouts(const Program& program, const Target& target);
/// A primitive that copies a value to another one of its shape, which may lie differently.
Primitive layout_copy(const Program& program, ValueId from, ValueId to);

}  // namespace tilewright
