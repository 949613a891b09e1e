#pragma once
// Options of the joint tuning of layouts and loops (tune_layouts.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tilewright::joint {

struct Decision;  // decision.h

struct SearchOptions {
    size_t most_points = 256;  ///< of a contraction's template, by the default heuristic
    size_t constructed = 16;   ///< layouts whose schedules are constructed
    size_t measured = 8;       ///< of these, whose kernels run
    int levels = 1;            ///< of tiles
};

/// ALT's own search (ppo/cross_exploration.h), with the paper's budgets (§7).
struct PpoOptions {
    size_t joint = 300, loops = 700;  ///< measurements of a contraction: joint stage, and loops only
    size_t batch = 128;               ///< sampled points of a batch, and steps of an episode
    size_t measured = 8;              ///< of each
    size_t rounds = 1;                ///< episodes of loops for a layout in the joint stage
    uint64_t seed = 1;
};

/// ALT's variants of itself (§7.2 and §7.3.1), which show what its parts gain.
enum class Ablation : uint8_t {
    None,
    LoopsOnly,           ///< ALT-OL: the heuristic's layouts; loops are searched by the whole budget
    WithoutPropagation,  ///< ALT-WP: only the tensors of the contraction itself get a layout
    ForwardOnly,         ///< ALT-FP: a tensor between two contractions has the layout of the first one
    BackwardOnly,        ///< ALT-BP: that of the second one
};

struct Options {
    SearchOptions search;
    Ablation without = Ablation::None;
    std::optional<PpoOptions> ppo;  ///< in place of `search`
    bool store_biases = true;       ///< a product's bias becomes a row of its weights (LayOutOptions)
    size_t most_layouts = 4;        ///< per tensor
    size_t most_combinations = 16;  ///< of layouts, per primitive
    bool measure = false;           ///< kernels run (KernelCosts::measure); false: estimates only
    double measure_seconds = 10;    ///< time limit for that; then estimates decide
    double solve_seconds = 10;      ///< processor time of the binary program
    /// Not null: of each program in turn, what is applied in place of a search; programs without one keep the
    /// heuristic's layouts.
    std::shared_ptr<const std::vector<Decision>> decided;
    std::shared_ptr<std::vector<Decision>> record;  ///< not null: what is chosen, of each program in turn
};

}  // namespace tilewright::joint
