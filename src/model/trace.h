#pragma once
// Recorded runs as a Chrome trace, which chrome://tracing and Perfetto show.

#include <cstddef>
#include <string>
#include <vector>

#include "model/session.h"

namespace tilewright {

/// Recorded runs of a session. Once there are `most_steps` steps, further runs are left out and counted.
class Trace {
  public:
    explicit Trace(size_t most_steps = 1'000'000) : most_steps_(most_steps) {}

    /// Where a run about to begin is to put its steps (Session::set_profile); null: it is left out.
    std::vector<StepTime>* begin();
    /// The run that began is over.
    void end(const std::vector<Tensor>& inputs);
    /// A JSON object: an event for each run, and within it one for each step. Times are those of now_us().
    std::string json() const;

  private:
    struct Run {
        double start_us = 0, duration_us = 0;
        std::string inputs;  ///< types and sizes
    };
    size_t most_steps_;
    std::vector<Run> runs_;
    std::vector<StepTime> steps_;
    bool recording_ = false;
    double start_us_ = 0;
    size_t left_out_ = 0;
};

}  // namespace tilewright
