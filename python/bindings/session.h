#pragma once
// Sessions of a model for any number of Python threads.

#include <atomic>
#include <mutex>

#include "arrays.h"

namespace tilewright_python {

/// RunOptions.terminate: set by any thread, read by those that run.
struct Flag {
    std::atomic<bool> set{false};
};

/// A model and its sessions: one per thread that is running at the same time.
class Runner {
  public:
    Runner(tw::Model model, int threads);

    const tw::Model& model() const { return model_; }

    /// Runs on a dict of arrays by input name. `names`: of the requested outputs; None or empty: all of them. Returns
    /// numpy arrays in this order.
    nb::list run(nb::handle names, nb::dict feeds, const Flag* terminate);

    /// Runs on arrays by position. `targets`, one per output: None: the output is not requested; True: a new array; a
    /// writable array: the output is written to it. Returns an array or None per output.
    nb::list run_bound(nb::sequence inputs, nb::sequence targets, const Flag* terminate);

    /// The seconds that each of `iterations` runs took, after `warmup` others.
    std::vector<double> time(nb::dict feeds, int warmup, int iterations);

  private:
    struct Target {
        bool requested = false;
        bool bound = false;
        tw::Tensor array;  ///< if bound
    };
    struct Feeds {
        std::vector<InputArray> arrays;
        std::vector<nb::object> held;  ///< what the arrays were converted from
        std::vector<tw::Tensor> tensors;
    };
    struct Outputs {
        std::vector<tw::Tensor> tensors;
        std::vector<Memory> memory;
    };
    class Use;

    void add(Feeds& feeds, std::size_t input, nb::handle array) const;
    Feeds feeds_of(nb::dict by_name) const;
    std::size_t output_index(nb::handle name) const;
    Outputs run(const Feeds& feeds, const std::vector<Target>& targets, const Flag* terminate);
    Target bound_target(std::size_t output, nb::handle array) const;
    std::unique_ptr<tw::Session> take();
    void give_back(std::unique_ptr<tw::Session> session);

    tw::Model model_;
    const int threads_;
    const std::vector<tw::Io> inputs_, outputs_;
    std::vector<nb::str> input_names_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<tw::Session>> idle_;
};

}  // namespace tilewright_python
