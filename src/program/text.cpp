#include "program/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace tilewright {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_letter(c) || is_digit(c); }
bool is_bare(char c) { return is_word(c) || c == '.' || c == '/' || c == '-'; }

int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

template <class T>
std::string shortest(T v) {
    if (std::isnan(v)) return "nan";
    return fmt::format("{}", v);
}

}  // namespace

std::string name_text(std::string_view name) {
    if (!name.empty() && name[0] != '.' && name[0] != '-' && std::all_of(name.begin(), name.end(), is_bare))
        return std::string(name);
    std::string s = "\"";
    for (const char c : name) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            (s += '\\') += c;
        else if (c == '\n')
            s += "\\n";
        else if (c == '\t')
            s += "\\t";
        else if (u < 32 || u == 127)
            s += fmt::format("\\x{:02x}", u);
        else
            s += c;
    }
    return s + '"';
}

std::string double_text(double v) { return shortest(v); }
std::string float_text(float v) { return shortest(v); }

void TextCursor::skip() {
    for (; at_ < text_.size(); ++at_) {
        const char c = text_[at_];
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
        if (c != '#') return;
        size_t before = at_;
        while (before > 0 && (text_[before - 1] == ' ' || text_[before - 1] == '\t')) --before;
        if (before > 0 && text_[before - 1] != '\n') return;  // '#' inside a line is a token
        at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    }
}

bool TextCursor::at_end() {
    skip();
    return at_ == text_.size();
}

bool TextCursor::peek(std::string_view token) {
    skip();
    return text_.substr(at_, token.size()) == token;
}

bool TextCursor::eat(std::string_view token) {
    if (!peek(token)) return false;
    at_ += token.size();
    return true;
}

void TextCursor::expect(std::string_view token) {
    if (!eat(token)) fail_expected("'" + std::string(token) + "'");
}

std::string_view TextCursor::peek_word() {
    skip();
    size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
}

bool TextCursor::eat_word(std::string_view word) {
    if (peek_word() != word) return false;
    at_ += word.size();
    return true;
}

void TextCursor::expect_word(std::string_view word) {
    if (!eat_word(word)) fail_expected("'" + std::string(word) + "'");
}

std::string TextCursor::name() {
    skip();
    if (at_ == text_.size() || text_[at_] != '"') {
        size_t end = at_;
        while (end < text_.size() && is_bare(text_[end])) ++end;
        if (end == at_ || text_[at_] == '.' || text_[at_] == '-') fail_expected("a name");
        std::string s(text_.substr(at_, end - at_));
        at_ = end;
        return s;
    }
    std::string s;
    for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_) {
        if (text_[at_] != '\\') {
            s += text_[at_];
            continue;
        }
        const std::string_view rest = text_.substr(at_ + 1, 3);
        if (rest.empty()) break;
        ++at_;
        if (rest[0] == 'n')
            s += '\n';
        else if (rest[0] == 't')
            s += '\t';
        else if (rest[0] == '"' || rest[0] == '\\')
            s += rest[0];
        else if (rest.size() == 3 && rest[0] == 'x' && hex_digit(rest[1]) >= 0 && hex_digit(rest[2]) >= 0) {
            s += static_cast<char>(hex_digit(rest[1]) * 16 + hex_digit(rest[2]));
            at_ += 2;
        } else {
            fail(fmt::format("'\\{}' is not an escape in a quoted name", rest[0]));
        }
    }
    if (at_ >= text_.size() || text_[at_] != '"') fail("a quoted name does not end on its line");
    ++at_;
    return s;
}

std::string_view TextCursor::numeral() {
    skip();
    size_t end = at_;
    if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
    for (const std::string_view word : {"inf", "nan"})
        if (text_.substr(end, 3) == word && (end + 3 == text_.size() || !is_word(text_[end + 3]))) {
            const std::string_view s = text_.substr(at_, end + 3 - at_);
            at_ = end + 3;
            return s;
        }
    const size_t digits = end;
    while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '.')) ++end;
    if (end == digits) fail_expected("a number");
    if (end < text_.size() && text_[end] == 'e') {
        size_t exponent = end + 1;
        if (exponent < text_.size() && (text_[exponent] == '-' || text_[exponent] == '+')) ++exponent;
        if (exponent < text_.size() && is_digit(text_[exponent])) {
            end = exponent;
            while (end < text_.size() && is_digit(text_[end])) ++end;
        }
    }
    const std::string_view s = text_.substr(at_, end - at_);
    at_ = end;
    return s;
}

namespace {

/// None if the text is not entirely a number. Out of range: infinity or zero, as rounding gives.
template <class T>
bool read_float(std::string_view s, T& v) {
    if (!s.empty() && s[0] == '+') s.remove_prefix(1);
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (end != s.data() + s.size()) return false;
    if (error == std::errc::result_out_of_range) {
        const size_t e = s.find('e');
        const bool tiny =
            e != std::string_view::npos ? s[e + 1] == '-' : s.substr(0, 3).find('.') != std::string_view::npos;
        v = tiny ? T(0) : std::numeric_limits<T>::infinity();
        if (s[0] == '-') v = -v;
        return true;
    }
    return error == std::errc();
}

}  // namespace

double TextCursor::number() {
    const size_t start = at_;
    double v = 0;
    if (!read_float(numeral(), v)) {
        at_ = start;
        fail_expected("a number");
    }
    return v;
}

float TextCursor::single() {
    const size_t start = at_;
    float v = 0;
    if (!read_float(numeral(), v)) {
        at_ = start;
        fail_expected("a number");
    }
    return v;
}

int64_t TextCursor::integer() {
    skip();
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    int64_t v = 0;
    auto [stop, error] = std::from_chars(begin, end, v);
    if (error == std::errc::result_out_of_range && begin != end && *begin != '-') {
        uint64_t u = 0;
        const auto wide = std::from_chars(begin, end, u);
        stop = wide.ptr;
        error = wide.ec;
        v = static_cast<int64_t>(u);
    }
    if (error != std::errc()) fail_expected("a 64-bit integer");
    at_ += static_cast<size_t>(stop - begin);
    return v;
}

DType TextCursor::dtype() {
    const std::string_view word = peek_word();
    const auto t = dtype_from_string(word);
    if (!t) fail_expected("an element type");
    at_ += word.size();
    return *t;
}

Expr TextCursor::expr(std::string_view ends) {
    skip();
    size_t end = at_;
    int depth = 0;
    for (; end < text_.size() && text_[end] != '\n'; ++end) {
        const char c = text_[end];
        if (depth == 0 && ends.find(c) != std::string_view::npos) break;
        if (c == '(') ++depth;
        if (c == ')') --depth;
    }
    std::string_view piece = text_.substr(at_, end - at_);
    while (!piece.empty() && piece.back() == ' ') piece.remove_suffix(1);
    if (piece.empty()) fail_expected("an index expression");
    try {
        const Expr e = parse_expr(piece);
        at_ = end;
        return e;
    } catch (const ModelError& error) {
        fail(error.what());
    }
}

std::vector<Expr> TextCursor::expr_list() {
    std::vector<Expr> out;
    expect("[");
    if (eat("]")) return out;
    do {
        out.push_back(expr(",]"));
    } while (eat(","));
    expect("]");
    return out;
}

bool TextCursor::skip_to_word(std::string_view word) {
    for (size_t k = at_; k < text_.size() && text_[k] != '\n' && text_[k] != ';'; ++k) {
        if (!is_word(text_[k])) continue;
        size_t end = k;
        while (end < text_.size() && is_word(text_[end])) ++end;
        if (text_.substr(k, end - k) == word) {
            at_ = k;
            return true;
        }
        k = end - 1;
    }
    return false;
}

bool TextCursor::more_on_line() const {
    for (size_t k = at_; k < text_.size() && text_[k] != '\n'; ++k)
        if (text_[k] != ' ' && text_[k] != '\t' && text_[k] != '\r') return true;
    return false;
}

void TextCursor::fail_expected(std::string_view expected) {
    skip();
    if (at_ == text_.size()) fail(fmt::format("expected {}, found the end of the text", expected));
    const size_t end = std::min({text_.find('\n', at_), at_ + 20, text_.size()});
    fail(fmt::format("expected {}, found '{}'", expected, text_.substr(at_, end - at_)));
}

void TextCursor::fail(std::string_view message) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t newline = before.rfind('\n');
    const size_t column = newline == std::string_view::npos ? at_ + 1 : at_ - newline;
    model_error("{}, line {}, column {}: {}", what_, line, column, message);
}

}  // namespace tilewright
