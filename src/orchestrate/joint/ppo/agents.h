#pragma once
// Proximal policy optimisation (J. Schulman et al., 2017) with several actors and one critic that they share (ALT
// §5.2).
//
// ALT does not say how the networks look, nor their hyper-parameters. Here each has two layers of `hidden` units, and
// the constants are those of the PPO paper or its usual implementations.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "orchestrate/joint/ppo/network.h"

namespace tilewright::joint::ppo {

struct AgentOptions {
    double clip = 0.2;        ///< of the ratio of new and old probability
    double discount = 0.95;   ///< of the next step's value
    double smoothing = 0.95;  ///< lambda of generalised advantage estimation
    double entropy = 0.01;
    double rate = 3e-3;
    int epochs = 4;  ///< over an episode
    size_t hidden = 32;
};

struct Actor {
    enum class Kind : uint8_t {
        Fraction,   ///< a number in (0, 1): the logistic function of a normal distribution's draw
        Direction,  ///< -1, 0 or 1
    };
    Kind kind = Kind::Direction;
    size_t inputs = 0;
};

struct Action {
    size_t actor = 0;
    std::vector<double> input;
    double draw = 0;  ///< of a fraction: before the logistic function; of a direction: the direction
    double log_probability = 0;
    double fraction() const;
};

/// What the actors did in one state, and its reward.
struct Step {
    std::vector<double> state;  ///< the critic's input
    std::vector<Action> actions;
    double reward = 0;
};

class Agents {
  public:
    /// `states`: numbers of the critic's input. Deterministic in the seed.
    Agents(std::vector<Actor> actors, size_t states, uint64_t seed, AgentOptions options = {});

    /// Draws an action of the actor's policy.
    Action act(size_t actor, std::vector<double> input);
    /// Improves the policies and the critic by the steps of one episode, in order. The last step has no next state.
    void learn(const std::vector<Step>& episode);
    /// The critic's value of a state.
    double value(const std::vector<double>& state) const { return critic_.at(state)[0]; }

  private:
    /// Per step, how much more its actions gave than the critic expected.
    std::vector<double> advantages(const std::vector<Step>& episode) const;
    void learn_action(const Action& action, double advantage, double share);

    std::vector<Actor> actors_;
    std::vector<Network> policies_;  ///< per actor
    Network critic_;
    AgentOptions options_;
    std::mt19937_64 rng_;
};

}  // namespace tilewright::joint::ppo
