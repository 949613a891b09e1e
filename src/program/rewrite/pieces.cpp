#include "program/rewrite/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace tilewright {

namespace {

/// Per position between primitives: the number of values computed before it and read after it.
std::vector<size_t> alive(const Program& program) {
    const size_t n = program.primitives.size();
    std::vector<ptrdiff_t> change(n + 2, 0);
    const auto consumers = program.consumers();
    std::vector<ValueId> outputs = program.outputs;
    std::sort(outputs.begin(), outputs.end());
    for (const PrimitiveId id : program.primitives.ids())
        for (const ValueId v : program.primitives[id].outputs) {
            size_t last = id.index();
            for (const PrimitiveId reader : consumers[v]) last = std::max(last, reader.index());
            if (std::binary_search(outputs.begin(), outputs.end(), v)) last = n;
            ++change[id.index() + 1];
            --change[last + 1];
        }
    std::vector<size_t> out(n + 1, 0);
    ptrdiff_t now = 0;
    for (size_t k = 0; k <= n; ++k) {
        now += change[k];
        out[k] = static_cast<size_t>(now);
    }
    return out;
}

}  // namespace

std::vector<Run> cut(const Program& program, size_t largest) {
    const std::vector<size_t> live = alive(program);
    const size_t n = program.primitives.size();
    std::vector<Run> out;
    for (size_t begin = 0; begin < n;) {
        size_t end = begin;
        while (end < n && program.primitives[PrimitiveId(end)].expr() != nullptr) ++end;
        if (end == begin) {
            ++begin;
            continue;
        }
        if (end - begin > largest) {
            size_t best = begin + largest;
            for (size_t k = best; k >= begin + (largest + 1) / 2 && k > begin; --k)
                if (live[k] < live[best]) best = k;
            end = best;
        }
        out.emplace_back(begin, end);
        begin = end;
    }
    return out;
}

namespace {

Piece piece(const Program& whole, const IndexVector<ValueId, std::vector<PrimitiveId>>& consumers,
            const std::set<ValueId>& outputs, Run run) {
    Piece out;
    out.program.name = whole.name;
    out.program.assumed = whole.assumed;
    std::map<ValueId, ValueId> moved;
    std::set<ValueId> made;
    for (size_t k = run.first; k < run.second; ++k) {
        const Primitive& p = whole.primitives[PrimitiveId(k)];
        made.insert(p.outputs.begin(), p.outputs.end());
    }
    const auto read_outside = [&](ValueId v) {
        return outputs.count(v) != 0 || std::any_of(consumers[v].begin(), consumers[v].end(), [&](PrimitiveId reader) {
                   return reader.index() < run.first || reader.index() >= run.second;
               });
    };
    const auto add = [&](ValueId v) {
        if (!moved.emplace(v, ValueId(out.values.size())).second) return false;
        out.values.push_back(v);
        out.program.values.push_back(whole.values[v]);
        return true;
    };
    for (size_t k = run.first; k < run.second; ++k)
        for (const ValueId v : whole.primitives[PrimitiveId(k)].inputs()) {
            if (made.count(v) != 0 || !add(v)) continue;
            const auto constant = whole.constants.find(v);
            if (constant == whole.constants.end())
                out.program.inputs.push_back(moved.at(v));
            else
                out.program.constants.emplace(moved.at(v), constant->second);
        }
    for (size_t k = run.first; k < run.second; ++k) {
        Primitive p = whole.primitives[PrimitiveId(k)];
        for (ValueId& v : p.outputs) {
            add(v);
            if (read_outside(v)) out.program.outputs.push_back(moved.at(v));
            v = moved.at(v);
        }
        for (Access& a : p.expr()->accesses) a.value = moved.at(a.value);
        out.program.primitives.push_back(std::move(p));
    }
    const RewriteContext context(out.program);
    std::map<ValueId, uint64_t> unread;
    for (const auto& [v, tensor] : out.program.constants)
        if (whole.unread.count(out.values[v.index()]) != 0 || !context.fill(v)) unread.emplace(v, v.index());
    out.program.unread = std::move(unread);
    return out;
}

}  // namespace

std::vector<Piece> pieces(const Program& whole, const std::vector<Run>& runs) {
    const auto consumers = whole.consumers();
    const std::set<ValueId> outputs(whole.outputs.begin(), whole.outputs.end());
    std::vector<Piece> out;
    for (const auto& run : runs) out.push_back(piece(whole, consumers, outputs, run));
    return out;
}

std::string piece_text(const Piece& piece) {
    Program p = piece.program;
    p.name = "piece";
    for (const ValueId v : p.values.ids()) p.values[v].name = fmt::format("v{}", v.value);
    for (Primitive& primitive : p.primitives) primitive.name = primitive.source = "";
    return print(p);
}

namespace {

/// The nodes of a piece that take the place of those of an equal one: the primitives of both correspond.
std::map<uint32_t, Origin> nodes_instead(const Piece& of, const Piece& from) {
    std::map<uint32_t, Origin> out;
    for (const PrimitiveId id : of.program.primitives.ids()) {
        const std::vector<uint32_t>& theirs = of.program.primitives[id].origin.nodes;
        const Origin& ours = from.program.primitives[id].origin;
        for (size_t i = 0; i < theirs.size(); ++i)
            out[theirs[i]].add(theirs.size() == ours.nodes.size() ? Origin{{ours.nodes[i]}, {}}
                                                                  : Origin{ours.nodes, {}});
    }
    return out;
}

}  // namespace

Program put_back(const Program& whole, const std::vector<Replacement>& replacements, std::vector<ValueId>* new_values) {
    Patch all;
    for (const auto& [from, to, of] : replacements) {
        const bool other = of != nullptr && of != from;
        const auto instead = other ? nodes_instead(*of, *from) : std::map<uint32_t, Origin>();
        const size_t known = from->values.size(), first = whole.values.size() + all.values.size();
        const auto moved = [&](ValueId v) {
            return v.index() < known ? from->values[v.index()] : ValueId(first + v.index() - known);
        };
        if (new_values != nullptr) new_values->emplace_back(first);
        for (size_t k = known; k < to->values.size(); ++k) all.values.push_back(to->values[ValueId(k)]);
        for (const auto& [v, tensor] : to->constants)
            if (v.index() >= known) all.constants.emplace(moved(v), tensor);
        for (Primitive p : to->primitives) {
            for (ValueId& v : p.outputs) v = moved(v);
            if (other) {
                const Origin made = std::exchange(p.origin, {});
                for (const uint32_t node : made.nodes)
                    if (const auto it = instead.find(node); it != instead.end()) p.origin.add(it->second);
            }
            for (Access& a : p.expr()->accesses) a.value = moved(a.value);
            all.primitives.push_back(std::move(p));
        }
    }
    return all.primitives.empty() ? whole : apply(whole, all);
}

}  // namespace tilewright
