#include <cctype>
#include <charconv>

#include "base/error.h"
#include "index/expr.h"

namespace tilewright {

namespace {

/// sum := product (('+' | '-') product)* ; product := unary (('*' | '//' | '%') unary)* ; unary := '-' unary | atom
class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}

    Expr all() {
        const Expr e = sum();
        skip();
        if (at_ != text_.size()) fail("end of expression");
        return e;
    }

  private:
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    bool eat(std::string_view token) {
        skip();
        if (text_.substr(at_, token.size()) != token) return false;
        at_ += token.size();
        return true;
    }
    [[noreturn]] void fail(std::string_view expected) const {
        model_error("index expression '{}': expected {} at column {}", text_, expected, at_ + 1);
    }
    void expect(std::string_view token) {
        if (!eat(token)) fail("'" + std::string(token) + "'");
    }

    Expr sum() {
        Expr e = product();
        for (;;) {
            if (eat("+"))
                e = e + product();
            else if (eat("-"))
                e = e - product();
            else
                return e;
        }
    }
    Expr product() {
        Expr e = unary();
        for (;;) {
            if (eat("//"))
                e = floor_div(e, unary());
            else if (eat("*"))
                e = e * unary();
            else if (eat("%"))
                e = mod(e, unary());
            else
                return e;
        }
    }
    Expr unary() {
        if (eat("-")) {
            skip();
            if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return number(true);
            if (++depth_ > 200) fail("less nesting");
            const Expr e = -unary();
            --depth_;
            return e;
        }
        return primary();
    }
    Expr number(bool negative) {
        skip();
        const size_t start = at_;
        while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
        const std::string digits = (negative ? "-" : "") + std::string(text_.substr(start, at_ - start));
        int64_t v = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
        if (error != std::errc() || end != digits.data() + digits.size()) fail("a 64-bit integer");
        return v;
    }
    std::string_view name() {
        const size_t start = at_;
        while (at_ < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_' || text_[at_] == '.'))
            ++at_;
        if (at_ == start) fail("a name");
        return text_.substr(start, at_ - start);
    }
    /// A name, and the step of the size that it counts: height/32, but not height // 32.
    Expr size_symbol() {
        const std::string_view whole = name();
        const auto digit = [&](size_t at) {
            return at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0;
        };
        if (at_ >= text_.size() || text_[at_] != '/' || !digit(at_ + 1)) return symbol(whole);
        ++at_;
        const Expr step = number(false);
        if (step.constant() < 2) fail("a step of at least 2");
        return symbol(whole, step.constant());
    }
    Expr primary() {
        if (++depth_ > 200) fail("less nesting");
        const Expr e = primary_unguarded();
        --depth_;
        return e;
    }
    Expr primary_unguarded() {
        skip();
        if (at_ >= text_.size()) fail("an operand");
        const char c = text_[at_];
        if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number(false);
        if (eat("(")) {
            const Expr e = sum();
            expect(")");
            return e;
        }
        if (eat("$")) return size_symbol();
        if (eat("?")) return scalar(name());
        if (eat("@")) return load(static_cast<size_t>(number(false).constant()));
        if (eat("min(")) return pair(true);
        if (eat("max(")) return pair(false);
        if (eat("i")) return axis(static_cast<size_t>(number(false).constant()));
        fail("a number, i<axis>, @<access>, $<symbol>, ?<scalar>, min(, max( or '('");
    }
    Expr pair(bool is_min) {
        const Expr a = sum();
        expect(",");
        const Expr b = sum();
        expect(")");
        return is_min ? min(a, b) : max(a, b);
    }

    std::string_view text_;
    size_t at_ = 0;
    int depth_ = 0;
};

}  // namespace

Expr parse_expr(std::string_view text) { return Parser(text).all(); }

}  // namespace tilewright
