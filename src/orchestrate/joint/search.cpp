#include "orchestrate/joint/search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "layout/propagate.h"
#include "layout/template.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::joint {

namespace {

/// The points of a template that are compared: all factors of space, and channels that fill vectors.
class Points {
  public:
    Points(const LayoutTemplate& of, const std::vector<bool>& relevant, int lanes) : template_(of) {
        for (size_t k = 0; k < of.parameters().size(); ++k) {
            const LayoutParameter& p = of.parameters()[k];
            std::vector<int64_t> factors;
            for (const int64_t f : p.factors)
                if (!p.innermost || f == 1 || f == p.extent || f % lanes == 0) factors.push_back(f);
            if (!relevant[k]) factors = {p.factors.back()};
            factors_.push_back(std::move(factors));
        }
    }

    double size() const {
        double n = 1;
        for (const auto& f : factors_) n *= static_cast<double>(f.size());
        return n;
    }

    /// All points if there are at most `most`; else those without tiles of space, and an even sample of the others.
    std::vector<LayoutPoint> start(size_t most) const {
        std::vector<LayoutPoint> out;
        const auto add = [&](LayoutPoint p) {
            if (template_.valid(p)) out.push_back(std::move(p));
        };
        const double all = size();
        if (all > static_cast<double>(most)) {
            for (const LayoutPoint& p : product(true))
                if (out.size() < most) add(p);
        }
        const auto n = static_cast<uint64_t>(std::min(all, 1e15));
        // Multiples of a number near the golden section of n, and without a common divisor, visit the points evenly.
        uint64_t step = n <= most ? 1 : std::max<uint64_t>(1, static_cast<uint64_t>(0.618034 * all));
        while (std::gcd(step, n) != 1) ++step;
        for (uint64_t k = 0, at = 0; k < std::min<uint64_t>(n, 4 * most) && out.size() < most;
             ++k, at = (at + step) % n)
            add(point(at));
        return out;
    }

    /// The points that differ in one parameter, by one factor.
    std::vector<LayoutPoint> neighbours(const LayoutPoint& of) const {
        std::vector<LayoutPoint> out;
        for (size_t k = 0; k < of.size(); ++k) {
            const auto at = std::find(factors_[k].begin(), factors_[k].end(), of[k]);
            for (const std::ptrdiff_t step : {-1, 1}) {
                const std::ptrdiff_t next = at - factors_[k].begin() + step;
                if (next < 0 || next >= static_cast<std::ptrdiff_t>(factors_[k].size())) continue;
                LayoutPoint p = of;
                p[k] = factors_[k][static_cast<size_t>(next)];
                if (template_.valid(p)) out.push_back(std::move(p));
            }
        }
        return out;
    }

  private:
    LayoutPoint point(uint64_t number) const {
        LayoutPoint p;
        for (const auto& f : factors_) {
            p.push_back(f[number % f.size()]);
            number /= f.size();
        }
        return p;
    }

    /// `whole`: without tiles of space.
    std::vector<LayoutPoint> product(bool whole) const {
        std::vector<LayoutPoint> out = {{}};
        for (size_t k = 0; k < factors_.size(); ++k) {
            const bool one = whole && !template_.parameters()[k].innermost;
            std::vector<LayoutPoint> longer;
            for (const LayoutPoint& p : out)
                for (const int64_t f : factors_[k]) {
                    if (one && f != factors_[k].back()) continue;
                    longer.push_back(p);
                    longer.back().push_back(f);
                }
            out = std::move(longer);
        }
        return out;
    }

    const LayoutTemplate& template_;
    std::vector<std::vector<int64_t>> factors_;
};

class Search {
  public:
    Search(const SinglePrimitive& contraction, const std::vector<Layout>& rule, Evaluation& evaluation,
           const SearchOptions& options)
        : single_(contraction),
          rule_(rule),
          how_(evaluation),
          options_(options),
          layouts_(contraction, rule, evaluation) {}

    SearchResult run() {
        result_.rule = layouts_.candidate(rule_);
        result_.rule.seconds = how_.constructed({&single_, rule_});
        const auto found = layout_template(single_.program, PrimitiveId(0), options_.levels);
        if (found) {
            result_.template_size = found->size();
            compare_points(*found);
            construct();
        }
        measure();
        return std::move(result_);
    }

  private:
    void compare(const LayoutTemplate& of, const LayoutPoint& point) {
        std::vector<Layout> layouts = layouts_.at(of, point);
        if (!seen_.insert(text_of(layouts)).second) return;
        LayoutCandidate c = layouts_.candidate(std::move(layouts));
        c.seconds = how_.by_rule({&single_, c.layouts});
        ++result_.points;
        if (c.seconds != kInfinity) found_.emplace_back(std::move(c), point);
    }

    void sort_found() {
        std::stable_sort(found_.begin(), found_.end(),
                         [](const auto& a, const auto& b) { return a.first.total() < b.first.total(); });
    }

    void compare_points(const LayoutTemplate& of) {
        const Points points(of, layouts_.relevant(of), how_.target().micro_lanes());
        seen_.insert(text_of(rule_));
        for (const LayoutPoint& p : points.start(options_.most_points / 2)) compare(of, p);
        // The rest of the budget goes to the neighbours of the best points.
        std::set<LayoutPoint> expanded;
        while (result_.points < options_.most_points) {
            sort_found();
            const size_t n = std::min(found_.size(), options_.constructed);
            std::vector<LayoutPoint> next;
            for (size_t k = 0; k < n && next.empty(); ++k)
                if (expanded.insert(found_[k].second).second) next = points.neighbours(found_[k].second);
            if (next.empty()) break;
            for (const LayoutPoint& p : next)
                if (result_.points < options_.most_points) compare(of, p);
        }
        sort_found();
    }

    void construct() {
        for (const auto& [c, point] : found_) {
            if (result_.best.size() == options_.constructed) break;
            result_.best.push_back(c);
            result_.best.back().seconds = how_.constructed({&single_, c.layouts});
            ++result_.constructed;
        }
        sort_best();
        if (result_.best.size() > options_.measured) result_.best.resize(options_.measured);
    }

    void sort_best() {
        std::stable_sort(result_.best.begin(), result_.best.end(),
                         [](const LayoutCandidate& a, const LayoutCandidate& b) { return a.total() < b.total(); });
    }

    /// In turns, so that a change of the clock affects all of them alike.
    void measure() {
        auto& best = result_.best;
        if (best.empty() || !how_.measures()) return;
        std::vector<Placement> all = {{&single_, rule_}};
        for (const LayoutCandidate& c : best) all.push_back({&single_, c.layouts});
        const auto seconds = how_.measured(all);
        if (!seconds) return;
        result_.measured = seconds->size();
        result_.rule.seconds = seconds->front();
        result_.rule.measured = true;
        for (size_t k = 0; k < best.size(); ++k) {
            best[k].seconds = (*seconds)[k + 1];
            best[k].measured = true;
        }
        best.erase(
            std::remove_if(best.begin(), best.end(), [](const LayoutCandidate& c) { return c.seconds == kInfinity; }),
            best.end());
        sort_best();
    }

    const SinglePrimitive& single_;
    const std::vector<Layout>& rule_;
    Evaluation& how_;
    const SearchOptions& options_;
    PointLayouts layouts_;
    SearchResult result_;
    std::vector<std::pair<LayoutCandidate, LayoutPoint>> found_;  ///< by the default heuristic
    std::set<std::string> seen_;
};

}  // namespace

SearchResult search_layouts(const SinglePrimitive& contraction, const std::vector<Layout>& rule, Evaluation& evaluation,
                            const SearchOptions& options) {
    return Search(contraction, rule, evaluation, options).run();
}

}  // namespace tilewright::joint
