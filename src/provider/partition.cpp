#include "provider/partition.h"

#include <algorithm>
#include <optional>
#include <set>

namespace tilewright::provider {

namespace {

using Groups = std::set<size_t>;

void add_all(Groups& to, const Groups& from) { to.insert(from.begin(), from.end()); }

class Partitioner {
  public:
    explicit Partitioner(const std::vector<std::vector<size_t>>& producers)
        : producers_(producers), group_(producers.size()), alone_(producers.size()) {}

    void add(size_t node, bool supported) {
        if (!supported) {
            alone_[node] = before(node, std::nullopt);
            return;
        }
        for (const size_t g : candidates(node)) {
            const Groups outside = before(node, g);
            if (outside.count(g) == 0) return join(node, g, outside);
        }
        const Groups outside = before(node, std::nullopt);
        members_.emplace_back();
        before_.emplace_back();
        join(node, members_.size() - 1, outside);
    }

    std::vector<std::vector<size_t>> groups() && { return std::move(members_); }

  private:
    /// The groups that a node's producers depend on or belong to, without what `own` itself depends on.
    Groups before(size_t node, std::optional<size_t> own) const {
        Groups all;
        for (const size_t p : producers_[node]) {
            if (!group_[p]) {
                add_all(all, alone_[p]);
            } else if (group_[p] != own) {
                all.insert(*group_[p]);
                add_all(all, before_[*group_[p]]);
            }
        }
        return all;
    }

    /// Groups of producers first, then the newest one.
    std::vector<size_t> candidates(size_t node) const {
        std::vector<size_t> out;
        const auto propose = [&](size_t g) {
            if (std::find(out.begin(), out.end(), g) == out.end()) out.push_back(g);
        };
        for (const size_t p : producers_[node])
            if (group_[p]) propose(*group_[p]);
        if (!members_.empty()) propose(members_.size() - 1);
        return out;
    }

    void join(size_t node, size_t g, const Groups& outside) {
        group_[node] = g;
        members_[g].push_back(node);
        if (std::includes(before_[g].begin(), before_[g].end(), outside.begin(), outside.end())) return;
        add_all(before_[g], outside);
        // What follows the group follows these as well.
        for (size_t other = 0; other < before_.size(); ++other)
            if (before_[other].count(g) != 0) add_all(before_[other], before_[g]);
        for (Groups& of : alone_)
            if (of.count(g) != 0) add_all(of, before_[g]);
    }

    const std::vector<std::vector<size_t>>& producers_;
    std::vector<std::optional<size_t>> group_;  // by node
    std::vector<Groups> alone_;                 // by node without a group: the groups that lead to it
    std::vector<Groups> before_;                // by group: the groups that lead to it
    std::vector<std::vector<size_t>> members_;
};

}  // namespace

std::vector<std::vector<size_t>> partition(const std::vector<std::vector<size_t>>& producers,
                                           const std::vector<bool>& supported) {
    Partitioner p(producers);
    for (size_t i = 0; i < producers.size(); ++i) p.add(i, supported[i]);
    return std::move(p).groups();
}

}  // namespace tilewright::provider
