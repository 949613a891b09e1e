#pragma once
// The layouts of a contraction's tensors at the points of its template, for the searches over it.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layout/template.h"
#include "orchestrate/joint/evaluation.h"
#include "orchestrate/joint/single_kernel.h"

namespace tilewright::joint {

/// Layouts of a contraction's tensors.
struct LayoutCandidate {
    std::vector<Layout> layouts;  ///< per tensor of the primitive
    double seconds = 0;           ///< of the kernel
    /// Estimated seconds of conversions that no producer avoids: of operands in layouts that expand.
    double conversions = 0;
    bool measured = false;  ///< `seconds` is measured, not estimated
    double total() const { return seconds + conversions; }
};

class PointLayouts {
  public:
    /// `rule`: per tensor, the layout of the default heuristic. All must outlive this.
    PointLayouts(const SinglePrimitive& contraction, const std::vector<Layout>& rule, Evaluation& evaluation)
        : single_(contraction), rule_(rule), how_(evaluation) {}

    /// The layouts at a valid point. Tensors that are read where the result is written follow the result.
    std::vector<Layout> at(const LayoutTemplate& of, const LayoutPoint& point) const;
    /// Per parameter, whether it changes the layout of a computed tensor: constants are packed for the micro-kernel
    /// (lay_out).
    std::vector<bool> relevant(const LayoutTemplate& of) const;
    /// With the time of conversions, and without that of the kernel.
    LayoutCandidate candidate(std::vector<Layout> layouts);

  private:
    double conversion(size_t tensor, const Layout& to);

    const SinglePrimitive& single_;
    const std::vector<Layout>& rule_;
    Evaluation& how_;
    std::map<std::pair<size_t, std::string>, double> converted_;
};

}  // namespace tilewright::joint
