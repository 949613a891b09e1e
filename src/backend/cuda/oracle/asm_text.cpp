#include "backend/cuda/oracle/asm_text.h"

#include <fmt/format.h>

#include <cctype>

#include "base/error.h"

namespace tilewright::cuda::oracle {

namespace {

/// Reads a text from a place on.
class Reader {
  public:
    Reader(const std::string& text, size_t at) : text_(text), at_(at) {}

    size_t at() const { return at_; }
    void blanks() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    bool take(char c) {
        blanks();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    bool take_word(const std::string& word) {
        blanks();
        if (text_.compare(at_, word.size(), word) != 0) return false;
        at_ += word.size();
        return true;
    }
    void expect(char c) { TW_CHECK(take(c), "an asm statement has no '{}' at: {}", c, text_.substr(at_, 60)); }

    /// Adjacent string literals, without their quotes and escapes.
    std::string literals() {
        std::string out;
        while (take('"')) {
            for (bool escaped = false; escaped || text_[at_] != '"'; ++at_) {
                const bool begins = !escaped && text_[at_] == '\\';
                if (!begins) out += escaped && text_[at_] == 'n' ? '\n' : text_[at_];
                escaped = begins;
            }
            ++at_;
        }
        return out;
    }
    /// What stands between parentheses, the first of which comes next.
    std::string parenthesised() {
        expect('(');
        const size_t begin = at_;
        for (int depth = 1; depth > 0; ++at_) {
            TW_CHECK(at_ < text_.size(), "an operand of an asm statement has no end: {}", text_.substr(begin, 60));
            depth += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
        }
        return text_.substr(begin, at_ - begin - 1);
    }

  private:
    const std::string& text_;
    size_t at_;
};

bool in_a_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The call for the statement whose word `asm` has been read, up to its closing parenthesis.
std::string call_of(Reader& r, AsmText& out) {
    r.take_word("volatile");
    r.expect('(');
    std::string call = fmt::format("tw_asm::run({}", out.statements.size());
    out.statements.push_back(r.literals());
    for (int section = -1; !r.take(')');) {  // outputs, inputs, clobbers
        if (r.take(':')) {
            ++section;
            continue;
        }
        r.take(',');
        const std::string constraint = r.literals();
        TW_CHECK(section >= 0 && !constraint.empty(), "an operand of an asm statement has no constraint: {}",
                 out.statements.back());
        if (section == 0) call += fmt::format(", tw_asm::out(\"{}\", {})", constraint, r.parenthesised());
        if (section == 1) call += fmt::format(", tw_asm::in(\"{}\", {})", constraint, r.parenthesised());
    }
    return call + ")";
}

}  // namespace

AsmText with_calls(const std::string& preprocessed) {
    AsmText out;
    const std::string word = "asm";
    size_t copied = 0;
    for (size_t at = preprocessed.find(word); at != std::string::npos; at = preprocessed.find(word, at + 1)) {
        if ((at > 0 && in_a_word(preprocessed[at - 1])) || in_a_word(preprocessed[at + word.size()])) continue;
        out.text += preprocessed.substr(copied, at - copied);
        Reader r(preprocessed, at + word.size());
        out.text += call_of(r, out);
        copied = at = r.at();
    }
    out.text += preprocessed.substr(copied);
    return out;
}

}  // namespace tilewright::cuda::oracle
