#pragma once
// Named passes: skipped, timed, verified and printed by one wrapper, as every step of the pipeline goes through it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

struct Plan;
struct Program;
struct Unit;

/// What a pass is, as `tilewright passes` lists it.
struct PassInfo {
    std::string_view name;
    std::string_view what;  ///< one line
    bool on = true;         ///< false: the options of this compilation leave it out
    bool required = false;  ///< there is nothing to run without it: it cannot be skipped
};

/// What is compiled, as a pass leaves it: a program, from `isolate_bodies` on a unit (compile/unit.h), and from
/// `merge_kernels` on a plan. The others are null.
struct PassResult {
    Program* program = nullptr;
    Unit* unit = nullptr;
    Plan* plan = nullptr;
};

struct PassOptions {
    std::vector<std::string> print_before;  ///< names; what is compiled is printed
    std::vector<std::string> print_after;
    bool print_before_all = false, print_after_all = false;
    bool verify_each = false;  ///< check what is compiled after every pass; throws InternalError
    /// Where printed text goes: "after fuse", and the text. Needed where something is to be printed.
    std::function<void(const std::string& when, const std::string& text)> print;
    std::function<void(const std::string& pass)> progress;  ///< called with the name of each pass that begins
    /// Called with the name of each pass that has run. It may keep a copy of what the pass leaves. A test that plants a
    /// fault edits it; no command does.
    std::function<void(const std::string& pass, const PassResult& result)> after;
};

struct PassTime {
    std::string name;
    double ms = 0;
};

/// A range of the pipeline, inclusive; empty names: from its first pass, to its last.
struct PassRange {
    std::string_view first, last;
};

/// Runs passes in the order in which they are given.
class Passes {
  public:
    /// What is compiled, as its passes have left it.
    struct Subject {
        std::function<std::string()> text;
        std::function<std::vector<std::string>()> faults;  ///< of the verifier; empty: none
        std::function<PassResult()> result = {};           ///< needed where PassOptions::after is given
    };
    Passes(const PassOptions& options, std::vector<std::string> skip, Subject subject, PassRange range = {});
    /// Runs nothing; infos() are those of all passes that were given.
    Passes();
    Passes(const Passes&) = delete;
    Passes& operator=(const Passes&) = delete;

    void operator()(const PassInfo& pass, const std::function<void()>& run);

    const std::vector<PassTime>& times() const { return times_; }
    const std::vector<PassInfo>& infos() const { return infos_; }

  private:
    void print(const std::string& when);

    const PassOptions options_;
    const std::vector<std::string> skip_;
    const Subject subject_;
    const PassRange range_;
    bool begun_, ended_ = false;
    const bool lists_;
    std::vector<PassTime> times_;
    std::vector<PassInfo> infos_;
    std::string printed_;  ///< last
};

}  // namespace tilewright
