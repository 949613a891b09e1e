#pragma once
// Shared by the printers and parsers of Program and of the IRs built on it: names, numbers, and a cursor over text.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "index/expr.h"

namespace tilewright {

/// Unquoted if the name consists of letters, digits and "_./-" and does not start with '.' or '-'; else in quotes,
/// with \" \\ \n \t and \xHH for other control bytes. TextCursor::name reads both.
std::string name_text(std::string_view name);

/// The shortest text that reads back as exactly this number: "1", "0.1", "1e+30", "-0", "inf", "-inf", "nan".
std::string double_text(double v);
/// The same for a number of type F32 (or smaller): it reads back exactly after rounding to float.
std::string float_text(float v);

/// The most elements of a constant that is printed as numbers; a larger constant is printed as its hash.
inline constexpr int64_t kSmallConstant = 64;

/// Reads a text from left to right. Blanks, newlines and lines that begin with '#' are skipped between tokens.
/// A syntax error is a ModelError: "<what>, line 3, column 7: expected ']', found 'x'".
class TextCursor {
  public:
    TextCursor(std::string_view text, std::string what) : text_(text), what_(std::move(what)) {}

    bool at_end();
    bool peek(std::string_view token);
    /// A punctuation mark, or the first character of a longer one: eat("[").
    bool eat(std::string_view token);
    void expect(std::string_view token);
    /// A whole word: eat_word("in") does not match the beginning of "input".
    bool eat_word(std::string_view word);
    void expect_word(std::string_view word);
    /// The letters, digits and '_' at the cursor; empty if there are none. Does not move.
    std::string_view peek_word();

    std::string name();
    int64_t integer();           ///< also accepts unsigned 64-bit values above INT64_MAX, as the same bits
    std::string_view numeral();  ///< sign, digits, '.', exponent; or inf, nan
    double number();             ///< decimal to the nearest double
    float single();              ///< decimal to the nearest float
    DType dtype();
    /// An index expression that ends before any of `ends` (outside parentheses).
    Expr expr(std::string_view ends);
    /// "[e, e, e]"
    std::vector<Expr> expr_list();

    /// Moves to the next `word` on this line, before any ';'; if there is none, returns false without moving.
    bool skip_to_word(std::string_view word);
    /// True if the rest of the line is not blank.
    bool more_on_line() const;
    size_t position() const { return at_; }
    void rewind(size_t position) { at_ = position; }
    [[noreturn]] void fail_expected(std::string_view expected);
    [[noreturn]] void fail(std::string_view message) const;

  private:
    void skip();

    std::string_view text_;
    std::string what_;
    size_t at_ = 0;
};

}  // namespace tilewright
