#pragma once
// Sizes of dynamic dimensions: the range in which a run may choose them, and the samples for which kernels are made.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tilewright {

/// What a user declares of a dimension.
struct DimRange {
    struct Sample {
        int64_t size = 1;
        double weight = 1;  ///< relative to the other samples
        friend bool operator==(const Sample&, const Sample&) = default;
    };
    int64_t least = 1;
    std::optional<int64_t> most;  ///< nothing: no upper end
    int64_t step = 1;             ///< every size is a multiple of it: index arithmetic divides by it without remainders
    std::vector<Sample> samples;  ///< ascending; empty: default_samples
    friend bool operator==(const DimRange&, const DimRange&) = default;
};

/// Parses "1..512", "1..512:8,64,128@3" (samples, with weights behind '@'), "1.." (no upper end) or "32..512/32"
/// (multiples of 32). Throws OptionError saying what was expected where the text is something else, the range is empty,
/// or an end or a sample lies outside of it.
DimRange parse_dim_range(std::string_view text);
/// Whether the text of an option is a range, and not a single size.
bool is_dim_range(std::string_view text);
/// The text that parse_dim_range reads back.
std::string to_string(const DimRange& range);

/// The dimension `name` of an input: a symbol, or with steps a multiple of one (symbol(name, step)).
///     batch  ->  $batch        height, declared as 32..512/32  ->  32*$height/32
Expr input_dimension(const std::string& name, const std::map<std::string, DimRange>& ranges);

/// What is declared of the dimension that a symbol counts; null: nothing. Its ends and samples are sizes, not steps.
const DimRange* declared_range(Var v, const std::map<std::string, DimRange>& ranges);

/// Bounds the symbols that have a declared range (Program::at_most), requires sizes within it, and assumes the heaviest
/// sample (Program::assumed): of these, or of every dimension of the inputs (`all`). Names that no input has are
/// ignored. On a GPU, whose kernels are planned once, an undeclared size is the 128 of any unknown one.
void declare_ranges(Program& program, const std::map<std::string, DimRange>& ranges, bool all = true);

/// One combination of sizes.
struct SizeSample {
    Bindings sizes;
    double weight = 1;
};

/// Sizes about equally far apart on a logarithmic scale, at most a factor of 8, from the least to the most; multiples
/// of the step. Without an upper end: 1, 16, 128 and 1,024, or 1 and 8 for a dimension that is a batch. Of a batch the
/// least counts twice: most runs have one example.
std::vector<DimRange::Sample> default_samples(const DimRange& range, bool batch);

/// The number of samples that a user may declare of a program's only symbol, whatever `most` is.
inline constexpr size_t kMostDeclared = 16;
/// Combinations of the samples of all symbols that are dimensions of the program's inputs, at most `most`: all of them,
/// or else those that differ from the heaviest in one symbol, and the least and the largest of all. A symbol that is
/// nothing but the first dimension of inputs, not all of rank 1, is a batch.
std::vector<SizeSample> size_samples(const Program& program, const std::map<std::string, DimRange>& ranges,
                                     size_t most);
/// The same for a decoder, which adds `step` rows to the `rows` before: a token behind few and many rows, and prompts
/// of every size behind the fewest. A symbol without a declared range counts all rows, as a mask does, or is a batch of
/// 1 if the rows have it. The rows are the first dimension of the inputs that have them.
std::vector<SizeSample> decoding_samples(const Program& program, const std::map<std::string, DimRange>& ranges,
                                         Var rows, Var step, size_t most);
/// The symbols that dimensions of the program's inputs determine (bound_symbol).
std::vector<Var> input_symbols(const Program& program);

}  // namespace tilewright
