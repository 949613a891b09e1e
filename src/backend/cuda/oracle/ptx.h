#pragma once
// PTX of an asm statement, parsed.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tilewright::cuda::oracle {

struct PtxOperand {
    enum class Kind : uint8_t { Place, Name, Number, Sink, Vector, Address, Pair };
    Kind kind = Kind::Sink;
    int place = 0;                    ///< Place: %3 is operand 3 of the statement
    std::string name;                 ///< Name: a register that the statement declares, or a label
    int64_t number = 0;               ///< Number: an immediate
    std::vector<PtxOperand> members;  ///< Vector: {a, b}; Address: [a], [a, b]; Pair: a|b
};

struct PtxInstruction {
    std::string guard;                ///< "p" or "!p"; empty: none
    std::vector<std::string> opcode;  ///< "cvt", "rn", "f16", "f32"
    std::vector<PtxOperand> operands;

    std::string name() const;  ///< "cvt.rn.f16.f32"
};

struct PtxStatement {
    std::vector<PtxInstruction> instructions;
    std::map<std::string, size_t> labels;         ///< which instruction follows each
    std::map<std::string, std::string> declared;  ///< name -> type of a register: "pred"
};

/// Throws RuntimeError, with the text, where it is no PTX that this parser reads.
PtxStatement parse_ptx(const std::string& text);

}  // namespace tilewright::cuda::oracle
