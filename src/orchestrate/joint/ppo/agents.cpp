#include "orchestrate/joint/ppo/agents.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"

namespace tilewright::joint::ppo {

namespace {

constexpr double kPi = 3.14159265358979323846;

/// Of a fraction: mean and logarithm of the standard deviation, which neither vanishes nor fills (0, 1) at both ends.
struct Normal {
    double mean = 0, log_deviation = 0;
    bool bounded = false;  ///< the deviation is at its least or its most
    explicit Normal(const std::vector<double>& out)
        : mean(out[0]), log_deviation(std::clamp(out[1], -2.0, 0.5)), bounded(log_deviation != out[1]) {}
    double scaled(double draw) const { return (draw - mean) * std::exp(-log_deviation); }
    double log_probability(double draw) const {
        return -0.5 * scaled(draw) * scaled(draw) - log_deviation - 0.5 * std::log(2 * kPi);
    }
};

/// The probabilities of -1, 0 and 1.
std::array<double, 3> softmax(const std::vector<double>& out) {
    const double most = *std::max_element(out.begin(), out.end());
    std::array<double, 3> p{};
    double sum = 0;
    for (size_t k = 0; k < 3; ++k) sum += p[k] = std::exp(out[k] - most);
    for (double& x : p) x /= sum;
    return p;
}

double normal_draw(std::mt19937_64& rng) {  // Box and Muller
    const double u = 1 - uniform(rng), v = uniform(rng);
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * kPi * v);
}

std::vector<size_t> sizes(size_t inputs, size_t hidden, size_t outputs) { return {inputs, hidden, hidden, outputs}; }

}  // namespace

double Action::fraction() const { return 1 / (1 + std::exp(-draw)); }

Agents::Agents(std::vector<Actor> actors, size_t states, uint64_t seed, AgentOptions options)
    : actors_(std::move(actors)), critic_(sizes(states, options.hidden, 1), seed), options_(options), rng_(seed) {
    for (const Actor& a : actors_)
        policies_.emplace_back(sizes(a.inputs, options.hidden, a.kind == Actor::Kind::Fraction ? 2 : 3), ++seed);
}

Action Agents::act(size_t actor, std::vector<double> input) {
    Action out;
    out.actor = actor;
    const std::vector<double> policy = policies_[actor].at(input);
    if (actors_[actor].kind == Actor::Kind::Fraction) {
        const Normal n(policy);
        out.draw = n.mean + std::exp(n.log_deviation) * normal_draw(rng_);
        out.log_probability = n.log_probability(out.draw);
    } else {
        const auto p = softmax(policy);
        const double draw = uniform(rng_);
        const size_t k = draw < p[0] ? 0 : draw < p[0] + p[1] ? 1 : 2;
        out.draw = static_cast<double>(k) - 1;
        out.log_probability = std::log(std::max(p[k], 1e-12));
    }
    out.input = std::move(input);
    return out;
}

std::vector<double> Agents::advantages(const std::vector<Step>& episode) const {
    std::vector<double> out(episode.size());
    double next_value = 0, next = 0;
    for (size_t k = episode.size(); k-- > 0;) {
        const double value = this->value(episode[k].state);
        const double surprise = episode[k].reward + options_.discount * next_value - value;
        next = out[k] = surprise + options_.discount * options_.smoothing * next;
        next_value = value;
    }
    return out;
}

void Agents::learn_action(const Action& action, double advantage, double share) {
    Network& policy = policies_[action.actor];
    const std::vector<double> out = policy.at(action.input);
    std::vector<double> gradient(out.size());        // of the loss: minus the clipped gain, minus the entropy's share
    const auto gain = [&](double log_probability) {  // by the logarithm of the probability
        const double ratio = std::exp(std::clamp(log_probability - action.log_probability, -20.0, 20.0));
        const bool clipped = advantage > 0 ? ratio > 1 + options_.clip : ratio < 1 - options_.clip;
        return clipped ? 0 : ratio * advantage;
    };
    if (actors_[action.actor].kind == Actor::Kind::Fraction) {
        const Normal n(out);
        const double by = gain(n.log_probability(action.draw)), z = n.scaled(action.draw);
        gradient[0] = -by * z * std::exp(-n.log_deviation);
        gradient[1] = n.bounded ? 0 : -by * (z * z - 1) - options_.entropy;
    } else {
        const auto p = softmax(out);
        const auto chosen = static_cast<size_t>(action.draw + 1);
        const double by = gain(std::log(std::max(p[chosen], 1e-12)));
        double entropy = 0;
        for (const double x : p) entropy -= x * std::log(std::max(x, 1e-12));
        for (size_t k = 0; k < 3; ++k)
            gradient[k] = -by * ((k == chosen ? 1 : 0) - p[k]) +
                          options_.entropy * p[k] * (std::log(std::max(p[k], 1e-12)) + entropy);
    }
    for (double& g : gradient) g *= share;
    policy.add_gradient(action.input, gradient);
}

void Agents::learn(const std::vector<Step>& episode) {
    if (episode.empty()) return;
    const std::vector<double> advantage = advantages(episode);
    std::vector<double> returns;
    double mean = 0, square = 0;
    for (size_t k = 0; k < episode.size(); ++k) {
        returns.push_back(advantage[k] + value(episode[k].state));
        mean += advantage[k] / static_cast<double>(episode.size());
    }
    for (const double a : advantage) square += (a - mean) * (a - mean) / static_cast<double>(episode.size());
    const double deviation = std::sqrt(square) + 1e-8;
    const bool normalised = episode.size() > 1 && square > 0;
    const double share = 1 / static_cast<double>(episode.size());
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
        for (size_t k = 0; k < episode.size(); ++k) {
            const double a = normalised ? (advantage[k] - mean) / deviation : advantage[k];
            for (const Action& action : episode[k].actions) learn_action(action, a, share);
            const double error = value(episode[k].state) - returns[k];
            critic_.add_gradient(episode[k].state, std::vector<double>{error * share});
        }
        for (Network& policy : policies_) policy.step(options_.rate);
        critic_.step(options_.rate);
    }
}

}  // namespace tilewright::joint::ppo
