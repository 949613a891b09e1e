#include <cctype>
#include <charconv>

#include "base/error.h"
#include "layout/layout.h"

namespace tilewright {

std::string print(const Layout& layout) {
    std::string s;
    const auto add = [&](const std::string& text) { s += (s.empty() ? "" : " ") + text; };
    for (const layout::Primitive& p : layout.primitives) {
        if (const auto* x = std::get_if<layout::Split>(&p)) {
            add(fmt::format("split({}, {})", x->dim, x->factor));
        } else if (const auto* r = std::get_if<layout::Reorder>(&p)) {
            std::string order;
            for (const size_t d : r->permutation) order += (order.empty() ? "" : ", ") + std::to_string(d);
            add("reorder(" + order + ")");
        } else if (const auto* f = std::get_if<layout::Fuse>(&p)) {
            add(fmt::format("fuse({}, {})", f->dim, f->count));
        } else if (const auto* u = std::get_if<layout::Unfold>(&p)) {
            add(fmt::format("unfold({}, {}, {})", u->dim, u->tile, u->stride));
        } else if (const auto* d = std::get_if<layout::Pad>(&p)) {
            add(fmt::format("pad({}, {}, {})", d->dim, d->before, d->after));
        } else {
            const auto& store = std::get<layout::StoreAt>(p);
            add(fmt::format("store_at({}, {}, {}, {})", store.host, store.dim, store.offset, store.size));
        }
    }
    return s;
}

bool operator==(const Layout& a, const Layout& b) { return print(a) == print(b); }

namespace {

class LayoutParser {
  public:
    explicit LayoutParser(std::string_view text) : text_(text) {}

    Layout all() {
        Layout layout;
        for (skip(); at_ < text_.size(); skip()) layout.primitives.push_back(one());
        return layout;
    }

  private:
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    }
    [[noreturn]] void fail(std::string_view expected) const {
        model_error("layout '{}': expected {} at column {}", text_, expected, at_ + 1);
    }
    void expect(char c) {
        skip();
        if (at_ >= text_.size() || text_[at_] != c) fail(std::string(1, c));
        ++at_;
    }
    std::string_view word() {
        skip();
        const size_t start = at_;
        while (at_ < text_.size() &&
               (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_' || text_[at_] == '.'))
            ++at_;
        if (at_ == start) fail("a word");
        return text_.substr(start, at_ - start);
    }
    int64_t number() {
        const std::string_view w = word();
        int64_t v = 0;
        const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), v);
        if (error != std::errc() || end != w.data() + w.size()) fail("a number");
        return v;
    }
    int64_t next() {
        expect(',');
        return number();
    }
    layout::Primitive one() {
        const std::string_view name = word();
        expect('(');
        layout::Primitive p;
        if (name == "split") {
            layout::Split x;
            x.dim = static_cast<size_t>(number());
            x.factor = next();
            p = x;
        } else if (name == "reorder") {
            layout::Reorder x;
            x.permutation.push_back(static_cast<size_t>(number()));
            for (skip(); at_ < text_.size() && text_[at_] == ','; skip())
                x.permutation.push_back(static_cast<size_t>(next()));
            p = x;
        } else if (name == "fuse") {
            layout::Fuse x;
            x.dim = static_cast<size_t>(number());
            x.count = static_cast<size_t>(next());
            p = x;
        } else if (name == "unfold") {
            layout::Unfold x;
            x.dim = static_cast<size_t>(number());
            x.tile = next();
            x.stride = next();
            p = x;
        } else if (name == "pad") {
            layout::Pad x;
            x.dim = static_cast<size_t>(number());
            x.before = next();
            x.after = next();
            p = x;
        } else if (name == "store_at") {
            layout::StoreAt x;
            x.host = std::string(word());
            x.dim = static_cast<size_t>(next());
            x.offset = next();
            x.size = next();
            p = x;
        } else {
            fail("split, reorder, fuse, unfold, pad or store_at");
        }
        expect(')');
        return p;
    }

    std::string_view text_;
    size_t at_ = 0;
};

}  // namespace

Layout parse_layout(std::string_view text) { return LayoutParser(text).all(); }

}  // namespace tilewright
