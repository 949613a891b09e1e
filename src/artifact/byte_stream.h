#pragma once
// The binary form of a compiled model, field by field. One function describes each structure, for both directions:
//
//     template <class Stream> void stream(Stream& s, Field<Stream, ModelIo> io) { s.text(io.name); ... }
//
// Unsigned numbers have 7 bits a byte, the lowest first, bit 7 set in all but the last byte; signed ones are folded to
// unsigned (0, -1, 1, -2, ...). Floating-point numbers have 8 bytes, texts a length before their bytes. An expression
// is a position in a table of texts.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "index/expr.h"

namespace tilewright::artifact {

/// T& where the stream reads, const T& where it writes.
template <class Stream, class T>
using Field = std::conditional_t<Stream::kReads, T, const T>&;

class ByteWriter {
  public:
    static constexpr bool kReads = false;

    void number(uint64_t v) {
        for (; v >= 0x80; v >>= 7) bytes_ += static_cast<char>(v | 0x80);
        bytes_ += static_cast<char>(v);
    }
    void integer(int64_t v) { number((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63)); }
    void flag(bool v) { number(v ? 1 : 0); }
    void real(double v) {
        const auto bits = std::bit_cast<uint64_t>(v);
        for (int k = 0; k < 64; k += 8) bytes_ += static_cast<char>(bits >> k);
    }
    void text(std::string_view s) {
        number(s.size());
        bytes_ += s;
    }
    void expr(Expr e) {
        const auto [it, fresh] = places_.try_emplace(e, exprs_.size());
        if (fresh) exprs_.push_back(e.text());
        number(it->second);
    }
    template <class E>
    void enumerator(E e, E /*last*/) {
        number(static_cast<uint64_t>(e));
    }
    template <class T, class F>
    void list(const std::vector<T>& all, const F& each) {
        number(all.size());
        for (const T& t : all) each(t);
    }
    /// Nothing to check in what is written.
    void require(bool /*holds*/, const char* /*what*/) const {}

    /// The table of expressions, then all fields.
    std::string finished() const {
        ByteWriter table;
        table.list(exprs_, [&](const std::string& s) { table.text(s); });
        return table.bytes_ + bytes_;
    }

  private:
    std::string bytes_;
    std::vector<std::string> exprs_;
    std::unordered_map<Expr, size_t> places_;
};

/// Throws ModelError where the bytes end early or a field has a value that it cannot have.
class ByteReader {
  public:
    static constexpr bool kReads = true;

    /// Reads the table of expressions first.
    explicit ByteReader(std::string_view bytes) : bytes_(bytes) {
        std::vector<std::string> texts;
        list(texts, [&](std::string& s) { text(s); });
        for (const std::string& s : texts) {
            exprs_.push_back(parse_expr(s));
            for (const Var v : variables(exprs_.back()))
                require(v.kind == VarKind::Symbol || v.kind == VarKind::Scalar, "an expression over symbols");
        }
    }

    template <class T>
    void number(T& v) {
        uint64_t out = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1)[0]);
            require(shift < 63 || byte <= 1, "a number of 64 bits");
            out |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) break;
        }
        v = static_cast<T>(out);
        require(static_cast<uint64_t>(v) == out, "a number of fewer bits");
    }
    void integer(int64_t& v) {
        uint64_t folded = 0;
        number(folded);
        v = static_cast<int64_t>((folded >> 1) ^ (~(folded & 1) + 1));
    }
    void flag(bool& v) {
        uint64_t n = 0;
        number(n);
        require(n <= 1, "a flag");
        v = n == 1;
    }
    void real(double& v) {
        uint64_t bits = 0;
        const std::string_view raw = take(8);
        for (size_t k = 0; k < 8; ++k) bits |= static_cast<uint64_t>(static_cast<unsigned char>(raw[k])) << (8 * k);
        v = std::bit_cast<double>(bits);
    }
    void text(std::string& s) {
        uint64_t size = 0;
        number(size);
        s = take(size);
    }
    void expr(Expr& e) {
        uint64_t place = 0;
        number(place);
        require(place < exprs_.size(), "an expression of the table");
        e = exprs_[place];
    }
    template <class E>
    void enumerator(E& e, E last) {
        uint64_t n = 0;
        number(n);
        require(n <= static_cast<uint64_t>(last), "an enumerator");
        e = static_cast<E>(n);
    }
    /// An element takes a byte or more, so a count beyond the bytes that are left is refused before memory is taken.
    template <class T, class F>
    void list(std::vector<T>& all, const F& each) {
        uint64_t count = 0;
        number(count);
        require(count <= bytes_.size(), "as many elements as its count says");
        all.clear();
        for (uint64_t k = 0; k < count; ++k) each(all.emplace_back());
    }
    void require(bool holds, const char* what) const {
        if (!holds) model_error("the compiled model is damaged: expected {}", what);
    }
    bool at_end() const { return bytes_.empty(); }

  private:
    std::string_view take(uint64_t n) {
        if (n > bytes_.size()) model_error("the compiled model is damaged: it ends inside a field");
        const std::string_view out = bytes_.substr(0, n);
        bytes_.remove_prefix(n);
        return out;
    }

    std::string_view bytes_;
    std::vector<Expr> exprs_;
};

}  // namespace tilewright::artifact
