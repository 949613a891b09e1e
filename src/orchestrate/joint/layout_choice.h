#pragma once
// The choice of layouts as the choice of kernels (optimal/kernels.h): a (value, layout) pair is a tensor, a primitive
// in a combination of layouts is a candidate, and so is a conversion between two layouts of a value.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/joint/layout_options.h"
#include "orchestrate/joint/single_kernel.h"
#include "orchestrate/optimal/lazy.h"

namespace tilewright::joint {

/// A kernel in a combination of layouts.
struct PlacedKernel {
    std::optional<PrimitiveId> primitive;  ///< none: a conversion
    std::vector<ValueId> tensors;          ///< read, then written
    std::vector<size_t> options;           ///< per tensor: position in its LayoutOptions
};

class LayoutChoice {
  public:
    /// `converts`: false leaves only conversions from and to row-major, which the boundary needs.
    LayoutChoice(const RuleLayouts& rule, const LayoutOptions& options, Evaluation& evaluation,
                 size_t most_combinations, bool converts = true);

    const optimal::Choice& choice() const { return choice_; }
    const std::vector<PlacedKernel>& kernels() const { return kernels_; }  ///< of the candidates
    size_t conversions() const { return conversions_; }
    /// The candidates of the heuristic's layouts.
    const std::vector<size_t>& rule() const { return rule_; }
    /// Whether the primitive of a candidate, or the converted value, has several layouts to choose from.
    bool decides(size_t candidate) const;
    /// Measured costs of candidates, each with a launch. Nothing: out of time.
    std::optional<std::vector<double>> measure(const std::vector<size_t>& candidates) const;

    /// The program with conversions, and layouts, of chosen candidates that can run.
    ChosenLayouts apply(const std::vector<size_t>& chosen) const;

  private:
    optimal::TensorId tensor(ValueId v, size_t option) const;
    ValueId value_of(optimal::TensorId t) const { return values_[t.index()]; }
    void add_primitive(PrimitiveId id, const RuleLayouts& rule);
    void add_conversions(ValueId v);
    std::vector<Layout> layouts_of(const PlacedKernel& kernel) const;
    void add(const SinglePrimitive& single, PlacedKernel kernel);
    void convert_rule();

    const Program& program_;
    const LayoutOptions& options_;
    Evaluation& how_;
    const size_t most_combinations_;
    const bool converts_;
    const KernelExtractor extracted_;
    optimal::Choice choice_;
    std::vector<PlacedKernel> kernels_;
    std::map<std::string, SinglePrimitive> singles_;  ///< by key
    std::vector<const SinglePrimitive*> single_of_;   ///< of the candidates
    IndexVector<ValueId, size_t> first_tensor_;
    std::vector<ValueId> values_;  ///< by tensor
    size_t conversions_ = 0;
    std::vector<size_t> rule_;
};

}  // namespace tilewright::joint
