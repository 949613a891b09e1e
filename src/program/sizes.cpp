#include "program/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/option_error.h"

namespace tilewright {

namespace {

constexpr int64_t kMostSize = int64_t{1} << 40;

[[noreturn]] void fail(std::string_view text, const std::string& why) {
    throw OptionError(
        fmt::format("'{}' is no range of sizes: {}", text, why),
        "write 1..512, 1..512:8,64,128@3 (samples, and a weight behind '@'), 1.. without an upper end, or 32..512/32 "
        "for multiples of 32");
}

int64_t size_in(std::string_view text, std::string_view part) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    if (error != std::errc() || end != part.data() + part.size() || part.empty())
        fail(text, fmt::format("expected a number, found '{}'", part));
    if (n < 0 || n > kMostSize) fail(text, fmt::format("{} is not between 0 and {}", n, kMostSize));
    return n;
}

DimRange::Sample sample_in(std::string_view text, std::string_view part) {
    DimRange::Sample s;
    const size_t at = part.find('@');
    s.size = size_in(text, part.substr(0, at));
    if (at == std::string_view::npos) return s;
    const std::string weight(part.substr(at + 1));
    size_t used = 0;
    try {
        s.weight = std::stod(weight, &used);
    } catch (const std::exception&) {
        used = 0;
    }
    if (used == 0 || used != weight.size() || !(s.weight > 0) || s.weight > 1e9)
        fail(text, fmt::format("expected a positive weight behind '@', found '{}'", weight));
    return s;
}

/// Values of the symbol: sizes, or numbers of steps.
std::vector<DimRange::Sample> samples_of(Var v, const std::map<std::string, DimRange>& ranges, bool batch) {
    const DimRange* declared = declared_range(v, ranges);
    const DimRange range = declared != nullptr ? *declared : DimRange();
    std::vector<DimRange::Sample> out = range.samples.empty() ? default_samples(range, batch) : range.samples;
    for (DimRange::Sample& s : out) s.size /= size_name(v).step;
    return out;
}

/// The position of the heaviest sample; of equal ones the middle one.
size_t typical(const std::vector<DimRange::Sample>& samples) {
    double heaviest = 0;
    for (const DimRange::Sample& s : samples) heaviest = std::max(heaviest, s.weight);
    std::vector<size_t> heavy;
    for (size_t i = 0; i < samples.size(); ++i)
        if (samples[i].weight == heaviest) heavy.push_back(i);
    return heavy[heavy.size() / 2];
}

/// Of rank 1 there may be inputs beside others: tokens [batch, seq], lengths [batch].
bool is_batch(const Program& program, Var v) {
    bool first = false;
    for (const ValueId input : program.inputs) {
        const std::vector<Expr>& shape = program.values[input].shape;
        for (size_t d = 1; d < shape.size(); ++d)
            if (uses(shape[d], v)) return false;
        first = first || (shape.size() > 1 && uses(shape[0], v));
    }
    return first;
}

}  // namespace

bool is_dim_range(std::string_view text) { return text.find("..") != std::string_view::npos; }

DimRange parse_dim_range(std::string_view text) {
    DimRange out;
    const size_t dots = text.find(".."), colon = text.find(':');
    if (dots == std::string_view::npos || colon < dots) fail(text, "'..' is missing");
    out.least = size_in(text, text.substr(0, dots));
    const std::string_view end = text.substr(dots + 2, colon == std::string_view::npos ? colon : colon - dots - 2);
    const size_t slash = end.find('/');
    const std::string_view most = end.substr(0, slash);
    if (!most.empty()) out.most = size_in(text, most);
    if (slash != std::string_view::npos) out.step = size_in(text, end.substr(slash + 1));
    if (out.step == 0) fail(text, "the step is 0");
    const auto in_steps = [&](int64_t size) {
        if (size % out.step != 0) fail(text, fmt::format("{} is no multiple of {}", size, out.step));
    };
    in_steps(out.least);
    if (out.most) in_steps(*out.most);
    if (out.most && *out.most < out.least) fail(text, fmt::format("{} is less than {}", *out.most, out.least));
    if (colon == std::string_view::npos) return out;
    for (std::string_view rest = text.substr(colon + 1);;) {
        const size_t comma = rest.find(',');
        out.samples.push_back(sample_in(text, rest.substr(0, comma)));
        if (comma == std::string_view::npos) break;
        rest.remove_prefix(comma + 1);
    }
    std::sort(out.samples.begin(), out.samples.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
    for (size_t k = 0; k < out.samples.size(); ++k) {
        const int64_t size = out.samples[k].size;
        if (size < out.least || (out.most && size > *out.most))
            fail(text, fmt::format("the sample {} lies outside of it", size));
        in_steps(size);
        if (k > 0 && size == out.samples[k - 1].size) fail(text, fmt::format("the sample {} is given twice", size));
    }
    return out;
}

std::string to_string(const DimRange& range) {
    std::string text = fmt::format("{}..{}", range.least, range.most ? fmt::format("{}", *range.most) : "");
    if (range.step != 1) text += fmt::format("/{}", range.step);
    for (size_t k = 0; k < range.samples.size(); ++k) {
        text += fmt::format("{}{}", k == 0 ? ":" : ",", range.samples[k].size);
        if (range.samples[k].weight != 1) text += fmt::format("@{}", range.samples[k].weight);
    }
    return text;
}

std::vector<DimRange::Sample> default_samples(const DimRange& range, bool batch) {
    std::set<int64_t> sizes;
    const int64_t least = std::max<int64_t>(range.step, range.least);
    const auto in_steps = [&](double size) {
        return std::max<int64_t>(1, std::llround(size / static_cast<double>(range.step))) * range.step;
    };
    if (!range.most) {
        for (const int64_t size : batch ? std::vector<int64_t>{1, 8} : std::vector<int64_t>{1, 16, 128, 1024})
            sizes.insert(std::max(least, in_steps(static_cast<double>(size))));
    } else {
        // Neighbours differ by a factor of at most 8: 1..512 -> 1, 8, 64, 512, and 32..512 -> 32, 128, 512.
        const double span = std::log2(static_cast<double>(std::max(least, *range.most)) / static_cast<double>(least));
        const int steps = std::max(1, static_cast<int>(std::ceil(span / 3 - 1e-9)));
        for (int k = 0; k <= steps; ++k)
            sizes.insert(in_steps(static_cast<double>(least) * std::exp2(span * k / steps)));
    }
    std::vector<DimRange::Sample> out;
    for (const int64_t size : sizes) out.push_back({size, 1});
    if (batch) out.front().weight = 2;
    return out;
}

std::vector<Var> input_symbols(const Program& program) {
    std::vector<Var> out;
    for (const ValueId input : program.inputs)
        for (const Expr d : program.values[input].shape)
            if (const auto v = bound_symbol(d); v && std::find(out.begin(), out.end(), *v) == out.end())
                out.push_back(*v);
    return out;
}

Expr input_dimension(const std::string& name, const std::map<std::string, DimRange>& ranges) {
    const auto it = ranges.find(name);
    const int64_t step = it == ranges.end() ? 1 : it->second.step;
    return step * symbol(name, step);
}

const DimRange* declared_range(Var v, const std::map<std::string, DimRange>& ranges) {
    const auto it = std::find_if(ranges.begin(), ranges.end(),
                                 [&](const auto& r) { return symbol(r.first, r.second.step) == Expr::var(v); });
    return it == ranges.end() ? nullptr : &it->second;
}

void declare_ranges(Program& program, const std::map<std::string, DimRange>& ranges, bool all) {
    for (const Var v : input_symbols(program)) {
        const DimRange* declared = declared_range(v, ranges);
        if (declared == nullptr) continue;
        const DimRange& range = *declared;
        std::string sizes =
            range.most ? fmt::format("{} to {}", range.least, *range.most) : fmt::format("{} and more", range.least);
        const int64_t step = size_name(v).step;
        if (step != 1) sizes += fmt::format(" in steps of {}", step);
        const auto require = [&](Expr a, Expr b) {
            program.requirements.push_back({Requirement::Kind::Declared, a, b, sizes, "", Requirement::Check::Always});
        };
        require(step * Expr::var(v), range.least);
        if (!range.most) continue;
        require(*range.most, step * Expr::var(v));
        program.at_most.emplace(v, *range.most / step);
    }
    for (const Var v : input_symbols(program)) {
        if (!all && declared_range(v, ranges) == nullptr) continue;
        const std::vector<DimRange::Sample> samples = samples_of(v, ranges, is_batch(program, v));
        program.assumed.insert_or_assign(v, samples[typical(samples)].size);
    }
}

std::vector<SizeSample> size_samples(const Program& program, const std::map<std::string, DimRange>& ranges,
                                     size_t most) {
    const std::vector<Var> symbols = input_symbols(program);
    if (symbols.empty()) return {};
    if (symbols.size() == 1)
        if (const DimRange* declared = declared_range(symbols[0], ranges))
            most = std::max(most, std::min(declared->samples.size(), kMostDeclared));
    std::vector<std::vector<DimRange::Sample>> of;
    size_t all = 1;
    for (const Var v : symbols) {
        of.push_back(samples_of(v, ranges, is_batch(program, v)));
        all = std::min(all, most + 1) * of.back().size();
    }
    std::vector<SizeSample> out;
    const auto add = [&](const std::vector<size_t>& which) {
        SizeSample s;
        for (size_t k = 0; k < symbols.size(); ++k) {
            s.sizes.emplace(symbols[k], of[k][which[k]].size);
            s.weight *= of[k][which[k]].weight;
        }
        if (out.size() < most &&
            std::none_of(out.begin(), out.end(), [&](const auto& o) { return o.sizes == s.sizes; }))
            out.push_back(std::move(s));
    };
    if (all <= most) {
        std::vector<size_t> which(symbols.size(), 0);
        for (size_t n = 0; n < all; ++n) {
            add(which);
            for (size_t k = symbols.size(); k-- > 0 && ++which[k] == of[k].size();) which[k] = 0;
        }
        return out;
    }
    std::vector<size_t> usual, least(symbols.size(), 0), largest;
    for (const auto& samples : of) {
        usual.push_back(typical(samples));
        largest.push_back(samples.size() - 1);
    }
    add(usual);
    add(least);
    add(largest);
    for (size_t k = 0; k < symbols.size(); ++k)
        for (size_t i = 0; i < of[k].size(); ++i) {
            std::vector<size_t> one = usual;
            one[k] = i;
            add(one);
        }
    return out;
}

std::vector<SizeSample> decoding_samples(const Program& program, const std::map<std::string, DimRange>& ranges,
                                         Var rows, Var step, size_t most) {
    const auto of = [&](Var v) { return samples_of(v, ranges, v != rows && v != step && is_batch(program, v)); };
    const std::vector<DimRange::Sample> before = of(rows), steps = of(step);
    std::set<Var> in_rows;  // sizes of a row: batches
    for (const ValueId input : program.inputs) {
        const std::vector<Expr>& shape = program.values[input].shape;
        if (!shape.empty() && shape[0] == Expr::var(rows))
            for (const Expr d : shape)
                if (const auto v = bound_symbol(d)) in_rows.insert(*v);
    }
    std::vector<SizeSample> out;
    const auto add = [&](const DimRange::Sample& tokens, const DimRange::Sample& past) {
        if (out.size() == most) return;
        SizeSample s{{{rows, past.size}, {step, tokens.size}}, tokens.weight * past.weight};
        for (const Var v : input_symbols(program)) {
            if (v == rows || v == step) continue;
            const std::vector<DimRange::Sample> sizes = of(v);
            const bool declared = declared_range(v, ranges) != nullptr,
                       batch = is_batch(program, v) || in_rows.count(v) != 0;
            s.sizes.emplace(v, declared ? sizes[typical(sizes)].size : batch ? 1 : past.size + tokens.size);
        }
        out.push_back(std::move(s));
    };
    for (size_t k = before.size(); k-- > 1 && before.size() - k <= most / 2;) add(steps.front(), before[k]);
    for (size_t k = steps.size(); k-- > 0;) add(steps[k], before.front());
    return out;
}

}  // namespace tilewright
