#include "orchestrate/joint/ppo/agents.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewright::joint::ppo {
namespace {

double half_square(const Network& n, const std::vector<double>& x, double target) {
    return 0.5 * (n.at(x)[0] - target) * (n.at(x)[0] - target);
}

TEST(Network, FollowsItsGradient) {
    const std::vector<std::vector<double>> inputs = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    const std::vector<double> targets = {0, 1, 1, 0};  // no linear function
    Network network({2, 16, 16, 1}, 1);
    for (int step = 0; step < 2000; ++step) {
        for (size_t k = 0; k < 4; ++k)
            network.add_gradient(inputs[k], std::vector<double>{network.at(inputs[k])[0] - targets[k]});
        network.step(1e-2);
    }
    for (size_t k = 0; k < 4; ++k) EXPECT_LT(half_square(network, inputs[k], targets[k]), 1e-3) << k;
}

TEST(Network, IsEqualForEqualSeeds) {
    const std::vector<double> x = {0.3, -2};
    EXPECT_EQ(Network({2, 8, 3}, 5).at(x), Network({2, 8, 3}, 5).at(x));
    EXPECT_NE(Network({2, 8, 3}, 5).at(x), Network({2, 8, 3}, 6).at(x));
}

/// One actor in one state, whose reward depends on its action alone.
Agents taught(Actor::Kind kind, int episodes, double (*reward)(const Action&)) {
    Agents agents({{kind, 1}}, 1, 7);
    for (int e = 0; e < episodes; ++e) {
        std::vector<Step> episode;
        for (int k = 0; k < 32; ++k) {
            Step s;
            s.state = {1};
            s.actions.push_back(agents.act(0, {1}));
            s.reward = reward(s.actions[0]);
            episode.push_back(std::move(s));
        }
        agents.learn(episode);
    }
    return agents;
}

TEST(Agents, LearnTheDirectionThatIsRewarded) {
    Agents agents = taught(Actor::Kind::Direction, 60, [](const Action& a) { return a.draw; });
    int up = 0;
    for (int k = 0; k < 200; ++k) up += agents.act(0, {1}).draw == 1 ? 1 : 0;
    EXPECT_GT(up, 150) << "of 200; a third before";
}

TEST(Agents, LearnTheFractionThatIsRewarded) {
    const auto reward = [](const Action& a) { return -std::abs(a.fraction() - 0.8); };
    Agents agents = taught(Actor::Kind::Fraction, 150, reward);
    double mean = 0;
    for (int k = 0; k < 200; ++k) {
        const Action a = agents.act(0, {1});
        EXPECT_GT(a.fraction(), 0);
        EXPECT_LT(a.fraction(), 1);
        mean += a.fraction() / 200;
    }
    EXPECT_NEAR(mean, 0.8, 0.1);
}

TEST(Agents, ShareACriticThatLearnsTheReturns) {
    Agents agents({{Actor::Kind::Direction, 1}, {Actor::Kind::Direction, 1}}, 1, 3);
    for (int e = 0; e < 400; ++e) {
        std::vector<Step> episode;
        for (const double place : {0.0, 1.0}) {
            Step s;
            s.state = {place};
            s.actions = {agents.act(0, {place}), agents.act(1, {place})};
            s.reward = 1 + place;  // whatever they do
            episode.push_back(std::move(s));
        }
        agents.learn(episode);
    }
    EXPECT_NEAR(agents.value({1}), 2, 0.3);
    EXPECT_NEAR(agents.value({0}), 1 + AgentOptions().discount * 2, 0.3);
}

TEST(Agents, AreEqualForEqualSeeds) {
    const auto reward = [](const Action& a) { return a.draw; };
    Agents a = taught(Actor::Kind::Direction, 3, reward), b = taught(Actor::Kind::Direction, 3, reward);
    for (int k = 0; k < 20; ++k) EXPECT_EQ(a.act(0, {1}).draw, b.act(0, {1}).draw);
}

}  // namespace
}  // namespace tilewright::joint::ppo
