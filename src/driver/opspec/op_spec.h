#pragma once
// Operators as one line of text: a name, then key=value.
//
//     gemm m=512 n=768 k=3072 bias=1 act=gelu
//     conv2d c=64 h=56 o=64 kh=3 pad=1
//     chain m=512 k=64 n=256 h=64
//
// A line becomes an ONNX model (op_model.h), so that everything after it is the way of any model, and that a peer can
// be run on the very same graph. The table of what there is: op_kinds().

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

namespace nets {
class GraphBuilder;
}

/// One key of an operator.
struct OpParam {
    enum class Type : uint8_t {
        Number,   ///< 64
        Real,     ///< 0.125
        Choice,   ///< relu
        Numbers,  ///< 64:128:64
    };
    std::string name;
    Type type = Type::Number;
    /// What it is when not given, as it would be written; "=h": what h is; "": nothing (must be given if `required`).
    std::string fallback;
    std::string help;
    bool required = false;
    int64_t lowest = 1, highest = int64_t{1} << 30;  ///< of numbers
    std::vector<std::string> choices;
};

struct OpSpec;

struct OpKind {
    std::string name;
    std::string help;  ///< one line
    std::vector<OpParam> params;
    /// Writes the operator, output "out". Throws ModelError where the values contradict each other.
    std::function<void(nets::GraphBuilder&, const OpSpec&)> build;

    const OpParam* find(std::string_view param) const;  ///< null: it has none of this name
};

/// Every operator there is, in the order in which they are listed. Built on first use; thread-safe.
const std::vector<OpKind>& op_kinds();

/// One operator with its values, each checked against its kind's table.
struct OpSpec {
    const OpKind* kind = nullptr;               ///< one of op_kinds()
    std::map<std::string, std::string> given;   ///< what was written
    std::map<std::string, std::string> values;  ///< with fallbacks; what has neither is missing

    bool has(const std::string& name) const { return values.count(name) != 0; }
    int64_t number(const std::string& name) const;
    bool flag(const std::string& name) const { return number(name) != 0; }
    double real(const std::string& name) const;
    const std::string& text(const std::string& name) const;
    std::vector<int64_t> numbers(const std::string& name) const;
    /// The line again: what was given, in the table's order. Equal texts are equal operators.
    std::string print() const;
};

/// Throws ModelError that names the operator and the key, with what would be right as its hint.
OpSpec parse_op(std::string_view line);

/// One line of a batch file.
struct BatchLine {
    int number = 0;  ///< in the file, from 1
    OpSpec op;
};
/// The operators of a file's text, one a line; '#' begins a comment, also behind an operator. Throws ModelError naming
/// `path` and line.
std::vector<BatchLine> parse_batch(std::string_view text, const std::string& path);

/// The table for people: an operator, what it is, its keys with their fallbacks.
std::string print_op_kinds();

}  // namespace tilewright
