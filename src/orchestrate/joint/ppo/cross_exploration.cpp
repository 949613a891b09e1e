#include "orchestrate/joint/ppo/cross_exploration.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "cost/estimate.h"
#include "layout/template.h"
#include "orchestrate/joint/ppo/agents.h"
#include "orchestrate/joint/ppo/cost_model.h"
#include "orchestrate/joint/ppo/loop_space.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::joint::ppo {

namespace {

constexpr double kMostLatency = 10;  ///< relative to the default heuristic's
constexpr size_t kSplitActor = 0;

size_t actor_of(const LoopParameter& p) { return 1 + p.level * kAxisRoles + static_cast<size_t>(p.role); }

/// The loops of one layout.
struct Task {
    LayoutCandidate candidate;
    std::vector<double> layout_state;
    std::optional<LoopSpace> space;
    StageModels models;
    struct Point {
        construct::Realised realised;
        ResidualFeatures features{};
        double estimate = 0;
        std::optional<double> seconds = std::nullopt;  ///< measured; infinity: it cannot run
    };
    std::map<construct::Realised::Key, Point> points;
    const Point* best = nullptr;  ///< the fastest of those measured

    double latency() const { return best == nullptr ? kInfinity : *best->seconds + candidate.conversions; }
};

class CrossExploration {
  public:
    CrossExploration(const SinglePrimitive& single, const std::vector<Layout>& rule, Evaluation& evaluation,
                     const PpoOptions& options)
        : single_(single),
          rule_(rule),
          how_(evaluation),
          options_(options),
          layouts_(single, rule, evaluation),
          rng_(options.seed) {}

    SearchResult run(const std::optional<LayoutTemplate>& found) {
        result_.rule = layouts_.candidate(rule_);
        result_.rule.seconds = how_.constructed({&single_, rule_});
        const auto measured = how_.measured({{&single_, rule_}});
        if (measured) result_.rule.seconds = measured->front();
        result_.rule.measured = measured.has_value();
        if (!found) return std::move(result_);
        result_.template_size = found->size();
        const std::vector<bool> all = layouts_.relevant(*found);
        for (size_t k = 0; k < all.size(); ++k)
            if (all[k]) relevant_.push_back(k);
        make_agents();
        if (options_.joint > 0)
            joint_stage(*found);
        else
            rule_stage(*found);
        loop_stage();
        finish();
        return std::move(result_);
    }

  private:
    size_t layout_size() const { return 2 * relevant_.size(); }

    void make_agents() {
        std::vector<Actor> actors = {{Actor::Kind::Fraction, layout_size() + relevant_.size()}};
        for (size_t k = 0; k < kMostLevels * kAxisRoles; ++k)
            actors.push_back({Actor::Kind::Direction, LoopSpace::kViewSize + LoopSpace::kTotalSize + layout_size()});
        agents_.emplace(std::move(actors), layout_size() + LoopSpace::kTotalSize + 1, options_.seed);
    }

    /// §5.2.1: the factors of all parameters, [1, D] where nothing is split. They are given by their logarithms.
    std::vector<double> layout_state(const LayoutTemplate& of, const LayoutPoint& point) const {
        std::vector<double> out;
        for (const size_t k : relevant_) {
            const double inner = log_share(point[k], of.parameters()[k].extent);
            out.push_back(1 - inner);
            out.push_back(inner);
        }
        return out;
    }

    std::vector<double> critic_state(const std::vector<double>& layout, std::vector<double> totals, bool loops) const {
        std::vector<double> out = layout;
        out.insert(out.end(), totals.begin(), totals.end());
        out.push_back(loops ? 1 : 0);
        return out;
    }

    /// One action a parameter. Their rewards are 0 but for the last one's, which the loops decide.
    LayoutPoint select_layout(const LayoutTemplate& of, std::vector<Step>& episode) {
        LayoutPoint point;
        for (const LayoutParameter& p : of.parameters()) point.push_back(p.factors.back());
        for (size_t n = 0; n < relevant_.size(); ++n) {
            const LayoutParameter& p = of.parameters()[relevant_[n]];
            Step step;
            const std::vector<double> state = layout_state(of, point);
            step.state = critic_state(state, std::vector<double>(LoopSpace::kTotalSize, 0), false);
            std::vector<double> input = state;
            for (size_t k = 0; k < relevant_.size(); ++k) input.push_back(k == n ? 1 : 0);
            step.actions.push_back(agents_->act(kSplitActor, std::move(input)));
            const double wanted = static_cast<double>(p.extent) * step.actions[0].fraction();
            const auto nearest = std::min_element(p.factors.begin(), p.factors.end(), [&](int64_t a, int64_t b) {
                return std::abs(static_cast<double>(a) - wanted) < std::abs(static_cast<double>(b) - wanted);
            });
            point[relevant_[n]] = *nearest;
            episode.push_back(std::move(step));
        }
        return point;
    }

    Task& task_of(const LayoutTemplate& of, const LayoutPoint& point) {
        std::vector<Layout> layouts = layouts_.at(of, point);
        const auto [it, fresh] = tasks_.try_emplace(text_of(layouts));
        Task& task = it->second;
        if (fresh) prepare(task, std::move(layouts), layout_state(of, point));
        return task;
    }

    void prepare(Task& task, std::vector<Layout> layouts, std::vector<double> state) {
        ++result_.points;
        task.candidate = layouts_.candidate(std::move(layouts));
        task.layout_state = std::move(state);
        if (auto kernel = kernel_in_layouts(single_, task.candidate.layouts, how_.target()))
            task.space = LoopSpace::of(std::move(*kernel), how_.scheduling());
        if (task.space) task.models = stage_models(task.space->initial().stages);
    }

    double reward(double seconds) const { return 1 - std::min(seconds / result_.rule.total(), kMostLatency); }

    Task::Point& point(Task& task, const construct::Etir& e) const {
        construct::Realised realised = task.space->realised(e);
        const auto [it, fresh] = task.points.try_emplace(realised.key());
        Task::Point& p = it->second;
        if (fresh) {
            const TileProgram program = task.space->program(realised);
            const Estimate about = estimate(program, how_.target(), task.models);
            p.features = residual_features(program, task.models, about, how_.target());
            p.estimate = about.seconds;
            p.realised = std::move(realised);
        }
        return p;
    }

    double seconds(const Task::Point& p) const {
        return p.seconds ? *p.seconds : model_.seconds(p.features, p.estimate);
    }

    /// Measures the best of the points, by the cost model, that were not. False: none was left, or the time is over.
    bool measure(Task& task, const std::set<Task::Point*>& of) {
        std::vector<std::pair<double, Task::Point*>> order;
        for (Task::Point* p : of)
            if (!p->seconds) order.emplace_back(seconds(*p), p);
        std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first < b.first : a.second->realised.key() < b.second->realised.key();
        });
        order.resize(std::min({order.size(), options_.measured, budget_ - std::min(budget_, spent_)}));
        if (order.empty()) return false;
        std::vector<TileProgram> programs;
        for (const auto& [predicted, p] : order) programs.push_back(task.space->program(p->realised));
        const auto measured = how_.schedules(programs, task.space->kernel().weights);
        if (!measured) {
            over_ = true;
            return false;
        }
        spent_ += order.size();
        for (size_t k = 0; k < order.size(); ++k) {
            Task::Point& p = *order[k].second;
            p.seconds = (*measured)[k];
            if (*p.seconds == kInfinity) continue;
            model_.add(p.features, *p.seconds);
            if (task.best == nullptr || *p.seconds < *task.best->seconds) task.best = &p;
        }
        model_.train();
        return true;
    }

    bool sample(Task& task) {
        std::set<Task::Point*> points;
        for (size_t k = 0; k < options_.batch; ++k) points.insert(&point(task, task.space->random(rng_)));
        return measure(task, points);
    }

    /// §5.2.2: a walk from the fastest point, in which every actor moves its parameters.
    bool walk(Task& task) {
        if (task.best == nullptr) return false;
        construct::Etir e = task.best->realised.state;
        construct::round_to_sizes(task.space->problem(), e);
        std::vector<Step> episode;
        std::vector<Task::Point*> visited;
        for (size_t k = 0; k < options_.batch; ++k) {
            Step step;
            const std::vector<double> totals = task.space->totals(e);
            step.state = critic_state(task.layout_state, totals, true);
            for (const LoopParameter& p : task.space->parameters()) {
                std::vector<double> input = task.space->view(e, p);
                input.insert(input.end(), totals.begin(), totals.end());
                input.insert(input.end(), task.layout_state.begin(), task.layout_state.end());
                step.actions.push_back(agents_->act(actor_of(p), std::move(input)));
                task.space->move(e, p, static_cast<int>(step.actions.back().draw));
            }
            visited.push_back(&point(task, e));
            episode.push_back(std::move(step));
        }
        const bool found = measure(task, {visited.begin(), visited.end()});
        for (size_t k = 0; k < episode.size(); ++k)
            episode[k].reward = reward(seconds(*visited[k]) + task.candidate.conversions);
        agents_->learn(episode);
        return found;
    }

    void joint_stage(const LayoutTemplate& of) {
        budget_ = options_.joint;
        // A layout that was visited before costs nothing unless its walk finds new points.
        for (size_t layouts = 0; layouts < options_.joint && spent_ < budget_ && !over_; ++layouts) {
            std::vector<Step> episode;
            const LayoutPoint point = select_layout(of, episode);
            if (!of.valid(point)) continue;
            Task& task = task_of(of, point);
            if (task.space) {
                if (task.best == nullptr) sample(task);
                for (size_t round = 0; round < options_.rounds && !over_; ++round) walk(task);
            }
            if (episode.empty()) break;  // one layout alone
            episode.back().reward = reward(task.latency());
            agents_->learn(episode);
        }
    }

    /// Without a joint stage: loops in the heuristic's layouts.
    void rule_stage(const LayoutTemplate& of) {
        budget_ = options_.loops;
        LayoutPoint whole;
        for (const LayoutParameter& p : of.parameters()) whole.push_back(p.factors.back());
        Task& task = tasks_[text_of(rule_)];
        prepare(task, rule_, layout_state(of, whole));
        if (task.space) sample(task);
    }

    Task* best_task() {
        Task* best = nullptr;
        for (auto& [text, task] : tasks_)
            if (task.best != nullptr && (best == nullptr || task.latency() < best->latency())) best = &task;
        return best;
    }

    void loop_stage() {
        Task* task = best_task();
        if (task == nullptr) return;
        budget_ = options_.joint + options_.loops;
        constexpr int kPatience = 8;  // in a small space, few walks find new points
        for (int fruitless = 0; spent_ < budget_ && !over_ && fruitless < kPatience;)
            fruitless = walk(*task) || sample(*task) ? 0 : fruitless + 1;
    }

    void finish() {
        result_.measured = how_.measures() ? spent_ : 0;
        std::vector<Task*> order;
        for (auto& [text, task] : tasks_)
            if (task.best != nullptr) order.push_back(&task);
        std::stable_sort(order.begin(), order.end(),
                         [](const Task* a, const Task* b) { return a->latency() < b->latency(); });
        for (Task* task : order) {
            const bool same = text_of(task->candidate.layouts) == text_of(rule_);
            const double seconds = *task->best->seconds;
            if (same && seconds >= result_.rule.seconds) continue;
            if (!same && result_.best.size() == options_.measured) continue;
            how_.adopt({&single_, task->candidate.layouts}, task->space->program(task->best->realised), seconds);
            if (same) {
                result_.rule.seconds = seconds;
                continue;
            }
            task->candidate.seconds = seconds;
            task->candidate.measured = result_.rule.measured;
            result_.best.push_back(task->candidate);
        }
    }

    const SinglePrimitive& single_;
    const std::vector<Layout>& rule_;
    Evaluation& how_;
    const PpoOptions& options_;
    PointLayouts layouts_;
    std::mt19937_64 rng_;
    std::vector<size_t> relevant_;  ///< parameters of the template
    std::optional<Agents> agents_;
    OnlineCostModel model_;
    std::map<std::string, Task> tasks_;  ///< by the layouts' text
    size_t spent_ = 0, budget_ = 0;      ///< measurements
    bool over_ = false;                  ///< the time
    SearchResult result_;
};

}  // namespace

SearchResult search_layouts(const SinglePrimitive& contraction, const std::vector<Layout>& rule, Evaluation& evaluation,
                            const PpoOptions& options, int levels) {
    return CrossExploration(contraction, rule, evaluation, options)
        .run(layout_template(contraction.program, PrimitiveId(0), levels));
}

}  // namespace tilewright::joint::ppo
