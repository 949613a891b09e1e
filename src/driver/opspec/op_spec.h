#pragma once
// Operators as one line of text: a name, then key=value.
//
//     gemm m=512 n=768 k=3072 bias=1 act=gelu
//     conv2d c=64 h=56 o=64 kh=3 pad=1
//     chain m=512 k=64 n=256 h=64
//
// A line becomes an ONNX model (op_model.h), which is compiled like any model and can be run by other frameworks. The
// table of operators: op_kinds().

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
    /// The default, as text; "=h": the value of h; "": none (must be given if `required`).
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
    /// Builds the operator with output "out". Throws ModelError if its parameters are inconsistent.
    std::function<void(nets::GraphBuilder&, const OpSpec&)> build;

    const OpParam* find(std::string_view param) const;  ///< null if there is none of this name
};

/// All operators, in listing order. Built on first use; thread-safe.
const std::vector<OpKind>& op_kinds();

/// One operator with its values, each checked against its kind's table.
struct OpSpec {
    const OpKind* kind = nullptr;               ///< one of op_kinds()
    std::map<std::string, std::string> given;   ///< the given values
    std::map<std::string, std::string> values;  ///< with fallbacks; parameters without either are absent

    bool has(const std::string& name) const { return values.count(name) != 0; }
    int64_t number(const std::string& name) const;
    bool flag(const std::string& name) const { return number(name) != 0; }
    double real(const std::string& name) const;
    const std::string& text(const std::string& name) const;
    std::vector<int64_t> numbers(const std::string& name) const;
    /// The given values as a line, in the table's order. Equal texts are equal operators.
    std::string print() const;
};

/// Throws ModelError with the operator and the key, and a hint of valid values.
OpSpec parse_op(std::string_view line);

/// One line of a batch file.
struct BatchLine {
    int number = 0;  ///< in the file, from 1
    OpSpec op;
};
/// The operators of a file, one per line; '#' begins a comment, also after an operator. Throws ModelError with `path`
/// and line.
std::vector<BatchLine> parse_batch(std::string_view text, const std::string& path);

/// The table as text: operators, descriptions, keys with their fallbacks.
std::string print_op_kinds();

}  // namespace tilewright
