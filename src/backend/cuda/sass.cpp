#include "backend/cuda/sass.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"

namespace tilewright::cuda {

namespace {

std::string_view trimmed(std::string_view s) {
    while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
    while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
    return s;
}

/// The first word of the text, which then begins behind it.
std::string_view take_word(std::string_view& text) {
    text = trimmed(text);
    const std::string_view word = text.substr(0, text.find(' '));
    text = trimmed(text.substr(word.size()));
    return word;
}

/// The label in "`(.L_x_3)", which is where branches have their target.
std::string label_in(std::string_view operands) {
    const size_t at = operands.find("`(");
    if (at == std::string_view::npos) return "";
    return std::string(operands.substr(at + 2, operands.find(')', at) - at - 2));
}

/// Basic blocks: where each begins, and with which it may continue.
struct FlowGraph {
    std::vector<size_t> begins;  ///< ascending; one more for the end
    std::vector<std::vector<size_t>> successors, predecessors;

    size_t block_of(size_t instruction) const {
        return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), instruction) - begins.begin()) - 1;
    }
};

bool branches(const SassInstruction& i) { return i.target && i.is("BRA"); }

FlowGraph flow_graph(const std::vector<SassInstruction>& code) {
    std::vector<bool> first(code.size() + 1, false);
    first[0] = true;
    for (size_t k = 0; k < code.size(); ++k) {
        if (code[k].target) first[*code[k].target] = true;
        if (branches(code[k]) || code[k].ends_flow()) first[k + 1] = true;
    }
    FlowGraph g;
    for (size_t k = 0; k < code.size(); ++k)
        if (first[k]) g.begins.push_back(k);
    g.begins.push_back(code.size());
    const size_t count = g.begins.size() - 1;
    g.successors.resize(count);
    g.predecessors.resize(count);
    for (size_t b = 0; b < count; ++b) {
        const SassInstruction& last = code[g.begins[b + 1] - 1];
        if (branches(last)) g.successors[b].push_back(g.block_of(*last.target));
        if (!last.ends_flow() && b + 1 < count) g.successors[b].push_back(b + 1);
        for (const size_t s : g.successors[b]) g.predecessors[s].push_back(b);
    }
    return g;
}

/// Blocks in an order in which those that dominate come first, and for each its immediate dominator.
struct Dominators {
    static constexpr size_t kNone = static_cast<size_t>(-1);
    std::vector<size_t> order, place, immediate;  ///< kNone for blocks that are never reached

    explicit Dominators(const FlowGraph& g) : place(g.successors.size(), kNone), immediate(g.successors.size(), kNone) {
        std::vector<bool> seen(g.successors.size(), false);
        std::vector<std::pair<size_t, size_t>> path = {{0, 0}};
        seen[0] = true;
        while (!path.empty()) {
            auto& [block, next] = path.back();
            if (next == g.successors[block].size()) {
                order.push_back(block);
                path.pop_back();
            } else if (const size_t s = g.successors[block][next++]; !seen[s]) {
                seen[s] = true;
                path.emplace_back(s, 0);
            }
        }
        std::reverse(order.begin(), order.end());
        for (size_t k = 0; k < order.size(); ++k) place[order[k]] = k;
        immediate[0] = 0;
        for (bool changed = true; changed;) {
            changed = false;
            for (size_t k = 1; k < order.size(); ++k) {
                size_t found = kNone;
                for (const size_t p : g.predecessors[order[k]])
                    if (immediate[p] != kNone) found = found == kNone ? p : common(found, p);
                changed = changed || immediate[order[k]] != found;
                immediate[order[k]] = found;
            }
        }
    }

    size_t common(size_t a, size_t b) const {
        while (a != b) {
            while (place[a] > place[b]) a = immediate[a];
            while (place[b] > place[a]) b = immediate[b];
        }
        return a;
    }
    bool dominates(size_t a, size_t b) const { return place[a] != kNone && place[b] != kNone && common(a, b) == a; }
};

/// The blocks of the loop with this head and the sources of its back edges.
std::vector<bool> loop_blocks(const FlowGraph& g, size_t head, const std::vector<size_t>& sources) {
    std::vector<bool> inside(g.successors.size(), false);
    inside[head] = true;
    std::vector<size_t> open = sources;
    while (!open.empty()) {
        const size_t b = open.back();
        open.pop_back();
        if (inside[b]) continue;
        inside[b] = true;
        open.insert(open.end(), g.predecessors[b].begin(), g.predecessors[b].end());
    }
    return inside;
}

}  // namespace

bool SassInstruction::is(std::string_view name) const {
    return opcode.starts_with(name) && (opcode.size() == name.size() || opcode[name.size()] == '.');
}

bool SassInstruction::ends_flow() const {
    if (is("EXIT") || is("RET") || is("BRX") || is("JMP")) return predicate.empty();
    // A branch's condition may also be its first operand: BRA P0, `(.L_x_1).
    return is("BRA") && predicate.empty() && operands.starts_with("`(");
}

std::vector<SassKernel> parse_sass(const std::string& listing) {
    std::vector<SassKernel> kernels;
    std::map<std::string, size_t> labels;
    std::vector<std::pair<size_t, std::string>> targets;
    const auto finish = [&] {
        if (kernels.empty()) return;
        std::vector<SassInstruction>& code = kernels.back().instructions;
        for (const auto& [at, label] : targets)
            if (const auto found = labels.find(label); found != labels.end() && found->second < code.size())
                code[at].target = found->second;
        // Behind the last instruction stand a branch to itself and NOPs.
        while (!code.empty() &&
               (code.back().is("NOP") || (code.back().is("BRA") && code.back().target == code.size() - 1)))
            code.pop_back();
        labels.clear();
        targets.clear();
    };
    std::istringstream lines(listing);
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        std::string_view text = trimmed(line);
        if (text.starts_with(".section")) {
            const std::string_view head = ".text.";
            const size_t at = text.find(head);
            if (inside) finish();
            inside = at != std::string_view::npos;
            if (inside)
                kernels.push_back(
                    {std::string(text.substr(at + head.size(), text.find_first_of(",\t ", at) - at - head.size())),
                     {}});
            continue;
        }
        if (!inside || text.empty() || text.starts_with("//")) continue;
        std::vector<SassInstruction>& code = kernels.back().instructions;
        if (text.ends_with(':')) {
            labels[std::string(text.substr(0, text.size() - 1))] = code.size();
            continue;
        }
        if (text.starts_with('.')) continue;
        const size_t behind = text.find("*/");
        TW_CHECK(text.starts_with("/*") && behind != std::string_view::npos && text.ends_with(';'),
                 "a line of a listing is no instruction: {}", line);
        text = trimmed(text.substr(behind + 2, text.size() - behind - 3));
        SassInstruction i;
        if (text.starts_with('@')) i.predicate = take_word(text).substr(1);
        i.opcode = take_word(text);
        i.operands = text;
        if (std::string label = label_in(text); !label.empty()) targets.emplace_back(code.size(), std::move(label));
        code.push_back(std::move(i));
    }
    if (inside) finish();
    return kernels;
}

std::vector<SassLoop> sass_loops(const SassKernel& kernel) {
    if (kernel.instructions.empty()) return {};
    const FlowGraph g = flow_graph(kernel.instructions);
    const Dominators dominators(g);
    std::map<size_t, std::vector<size_t>> back_edges;  // by head
    for (size_t b = 0; b < g.successors.size(); ++b)
        for (const size_t s : g.successors[b])
            if (dominators.dominates(s, b)) back_edges[s].push_back(b);
    std::vector<std::vector<bool>> blocks;
    for (const auto& [head, sources] : back_edges) blocks.push_back(loop_blocks(g, head, sources));
    const auto size = [](const std::vector<bool>& b) { return std::count(b.begin(), b.end(), true); };
    std::stable_sort(blocks.begin(), blocks.end(), [&](const auto& a, const auto& b) { return size(a) > size(b); });
    std::vector<SassLoop> loops;
    for (const std::vector<bool>& inside : blocks) {
        SassLoop loop;
        size_t a_block = 0;
        for (size_t b = 0; b < inside.size(); ++b)
            for (size_t k = g.begins[b]; k < g.begins[b + 1] && inside[b]; ++k) {
                loop.instructions.push_back(k);
                a_block = b;
            }
        for (size_t outer = 0; outer < loops.size(); ++outer)
            if (blocks[outer][a_block]) {
                loop.parent = outer;  // the last one that has it is the smallest
                loop.depth = loops[outer].depth + 1;
            }
        loops.push_back(std::move(loop));
    }
    return loops;
}

size_t shortest_way(const SassKernel& kernel, const std::vector<size_t>& instructions,
                    const std::vector<size_t>& passed) {
    const std::set<size_t> inside(instructions.begin(), instructions.end());
    /// Instructions from `from` to in front of `to`; nothing where it is not reached.
    const auto distance = [&](size_t from, size_t to) -> std::optional<size_t> {
        std::map<size_t, size_t> counts = {{from, 0}};
        std::deque<size_t> open = {from};
        while (!open.empty()) {  // breadth first
            const size_t at = open.front();
            open.pop_front();
            const SassInstruction& i = kernel.instructions[at];
            std::vector<size_t> next;
            if (branches(i)) next.push_back(*i.target);
            if (!i.ends_flow()) next.push_back(at + 1);
            for (const size_t n : next) {
                if (n == to) return counts.at(at) + 1;
                if (inside.count(n) != 0 && counts.try_emplace(n, counts.at(at) + 1).second) open.push_back(n);
            }
        }
        return std::nullopt;
    };
    if (passed.empty()) return 0;
    size_t sum = 0;
    for (size_t k = 0; k + 1 < passed.size(); ++k) {
        const auto part = distance(passed[k], passed[k + 1]);
        TW_CHECK(part.has_value(), "an instruction is not reached from the one before");
        sum += *part;
    }
    return sum + distance(passed.back(), passed.front()).value_or(1);
}

}  // namespace tilewright::cuda
