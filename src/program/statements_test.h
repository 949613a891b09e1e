#pragma once
// Test programs written as statements only; every opaque operator is parsed as Nothing.

#include <memory>
#include <string>
#include <string_view>

#include "program/program.h"

namespace tilewright::test {

class Nothing : public OpaqueOp {
  public:
    std::string print() const override { return "Nothing()"; }
    void run(std::span<const TensorView>, OpaqueOutputs&) const override {}
};

inline Program program(std::string_view statements) {
    return parse_program("program p {\n" + std::string(statements) + "\n}",
                         [](std::string_view) { return std::make_shared<Nothing>(); });
}

}  // namespace tilewright::test
