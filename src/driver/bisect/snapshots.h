#pragma once
// A compilation's programs between its passes.

#include <optional>
#include <string>
#include <vector>

#include "compile/pass.h"
#include "driver/bisect/evaluate.h"
#include "orchestrate/plan.h"

namespace tilewright::bisect {

/// The program that a pass left, bodies of control flow included, and that the passes behind it up to `until` did not
/// change.
struct Snapshot {
    std::string pass, until;
    Program program;
    bool laid_out = false;  ///< values lie in Snapshots::layouts
};

/// Copies of programs share the contents of their constants.
class Snapshots {
  public:
    /// Takes a snapshot after each pass; what `options.after` did before is done first. This must outlive the
    /// compilation.
    void attach(PassOptions& options);

    const std::vector<Snapshot>& all() const { return all_; }
    const Layouts& layouts() const { return layouts_; }
    /// The plan before its constants were prepared for libraries and moved. There is one once a model is compiled.
    const Plan& plan() const { return plan_.value(); }

  private:
    void take(const std::string& pass, const PassResult& result);
    void add(const std::string& pass, Program program, bool laid_out);

    std::vector<Snapshot> all_;
    Layouts layouts_;
    std::optional<Plan> plan_;
};

}  // namespace tilewright::bisect
