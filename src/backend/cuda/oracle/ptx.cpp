#include "backend/cuda/oracle/ptx.h"

#include <cctype>
#include <charconv>

#include "base/error.h"

namespace tilewright::cuda::oracle {

namespace {

class Parser {
  public:
    explicit Parser(const std::string& text) : text_(text) {}

    PtxStatement statement() {
        PtxStatement out;
        int depth = 0;
        while (blanks(), at_ < text_.size()) {
            if (take('{')) {
                ++depth;
            } else if (take('}')) {
                if (--depth < 0) refuse("a '}' without a '{'");
            } else if (take('.')) {
                declaration(out);
            } else {
                labelled(out);
            }
        }
        if (depth != 0) refuse("a '{' without a '}'");
        return out;
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const {
        throw RuntimeError(fmt::format("PTX that cannot be read, {}: {}", why, text_));
    }
    void blanks() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    bool take(char c) {
        blanks();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!take(c)) refuse(fmt::format("no '{}' at byte {}", c, at_));
    }
    /// Letters, digits, '_', and "::" within them.
    std::string word() {
        blanks();
        std::string out;
        for (; at_ < text_.size(); ++at_) {
            const char c = text_[at_];
            const bool inside = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
            const bool colons = c == ':' && (text_.compare(at_, 2, "::") == 0 || out.ends_with(':'));
            if (!inside && !(colons && !out.empty())) break;
            out += c;
        }
        if (out.empty()) refuse(fmt::format("no word at byte {}", at_));
        return out;
    }
    void declaration(PtxStatement& out) {
        if (word() != "reg") refuse("a directive that is no .reg");
        expect('.');
        const std::string type = word();
        do out.declared[word()] = type;
        while (take(','));
        expect(';');
    }
    void labelled(PtxStatement& out) {
        PtxInstruction i;
        if (take('@')) {
            i.guard = take('!') ? "!" : "";
            i.guard += word();
        }
        i.opcode.push_back(word());
        if (i.guard.empty() && take(':')) {
            out.labels[i.opcode[0]] = out.instructions.size();
            return;
        }
        while (take('.')) i.opcode.push_back(word());
        if (!take(';')) {
            do i.operands.push_back(operand());
            while (take(','));
            expect(';');
        }
        out.instructions.push_back(std::move(i));
    }
    std::vector<PtxOperand> list(char end) {
        std::vector<PtxOperand> out;
        do out.push_back(operand());
        while (take(','));
        expect(end);
        return out;
    }
    PtxOperand operand() {
        PtxOperand first = single();
        if (!take('|')) return first;
        PtxOperand pair;
        pair.kind = PtxOperand::Kind::Pair;
        pair.members = {std::move(first), single()};
        return pair;
    }
    PtxOperand single() {
        PtxOperand o;
        if (take('{')) {
            o.kind = PtxOperand::Kind::Vector;
            o.members = list('}');
        } else if (take('[')) {
            o.kind = PtxOperand::Kind::Address;
            o.members = list(']');
        } else if (take('%')) {
            o.kind = PtxOperand::Kind::Place;
            o.place = static_cast<int>(number(word()));
        } else if (take('-')) {
            o.kind = PtxOperand::Kind::Number;
            o.number = -number(word());
        } else {
            o.name = word();
            const bool digit = std::isdigit(static_cast<unsigned char>(o.name[0])) != 0;
            o.kind = o.name == "_" ? PtxOperand::Kind::Sink : digit ? PtxOperand::Kind::Number : PtxOperand::Kind::Name;
            if (digit) o.number = number(o.name);
        }
        return o;
    }
    /// Decimal, or hexadecimal behind 0x.
    int64_t number(const std::string& digits) const {
        const bool hex = digits.starts_with("0x");
        int64_t n = 0;
        const char* const end = digits.data() + digits.size();
        const auto [read, error] = std::from_chars(digits.data() + (hex ? 2 : 0), end, n, hex ? 16 : 10);
        if (error != std::errc() || read != end) refuse("'" + digits + "' is no number");
        return n;
    }

    const std::string& text_;
    size_t at_ = 0;
};

}  // namespace

std::string PtxInstruction::name() const { return fmt::format("{}", fmt::join(opcode, ".")); }

PtxStatement parse_ptx(const std::string& text) { return Parser(text).statement(); }

}  // namespace tilewright::cuda::oracle
