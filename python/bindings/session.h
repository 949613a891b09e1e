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

/// A KV cache, and the names of the inputs that it holds.
class Cache {
  public:
    Cache(const tw::Model& model, std::int64_t rows);
    std::int64_t rows() const { return cache_.rows(); }
    void truncate(std::int64_t rows) { cache_.truncate(rows); }
    /// The rows by input name, as numpy arrays.
    nb::dict read() const;
    tw::KvCache& get() { return cache_; }

  private:
    std::vector<std::string> names_;
    tw::KvCache cache_;
};

/// A model and its sessions: one per thread that is running at the same time.
class Runner {
  public:
    Runner(tw::Model model, int threads);

    const tw::Model& model() const { return model_; }

    /// Runs on a dict of arrays by input name. `names`: of the requested outputs; None or empty: all of them. Returns
    /// numpy arrays in this order.
    /// With a cache, its inputs need no arrays, and its outputs are not among all.
    nb::list run(nb::handle names, const nb::dict& feeds, const Flag* terminate, Cache* cache);
    std::unique_ptr<Cache> new_cache(std::int64_t rows) const;
    /// The names of the outputs that a cache takes.
    std::vector<std::string> cached_outputs() const;

    /// Runs on arrays by position. `targets`, one per output: None: the output is not requested; True: a new array; a
    /// writable array: the output is written to it. Returns an array or None per output.
    nb::list run_bound(const nb::sequence& inputs, const nb::sequence& targets, const Flag* terminate);

    /// Runs on memory of the caller. `inputs`, `outputs`: addresses by position. `input_shapes`: tuples, or None if all
    /// declared dimensions are numbers. `output_shapes`: tuples; a run whose outputs have others is an error.
    void run_addresses(const nb::list& inputs, nb::handle input_shapes, const nb::list& outputs,
                       const nb::sequence& output_shapes);

    /// Records runs that begin from now on.
    void record();
    /// Ends that. Returns the Chrome traces of its sessions, one a thread that ran; runs that are not over are left
    /// out.
    std::vector<std::string> recorded();

    /// The seconds that each of `iterations` runs took, after `warmup` others.
    std::vector<double> time(const nb::dict& feeds, int warmup, int iterations);

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
    Feeds feeds_of(const nb::dict& by_name, bool cached = false) const;
    std::size_t output_index(nb::handle name) const;
    Outputs run(const Feeds& feeds, const std::vector<Target>& targets, const Flag* terminate, Cache* cache = nullptr);
    Target bound_target(std::size_t output, nb::handle array) const;
    std::unique_ptr<tw::Session> take();
    void give_back(std::unique_ptr<tw::Session> session);

    tw::Model model_;
    const int threads_;
    const std::vector<tw::Io> inputs_, outputs_;
    std::vector<bool> cached_inputs_, cached_outputs_;  ///< that a cache holds, or takes
    std::vector<nb::str> input_names_;
    std::mutex mutex_;
    bool records_ = false;
    std::vector<std::unique_ptr<tw::Session>> idle_;
};

}  // namespace tilewright_python
