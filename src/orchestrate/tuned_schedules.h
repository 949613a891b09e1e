#pragma once
// Schedules that measurements have found for the kernels of one model, as a value and as text.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tile/tile.h"

namespace tilewright {

struct TunedSchedule {
    TileProgram program;
    double seconds = 0;  ///< measured
    std::string source;  ///< how it was found, in one word; for reports
};

/// By kernel. The key is the text of the kernel's stages, with everything else that its schedule depends on
/// (Schedules::Made::key), so that a schedule is found for equal kernels only.
class TunedSchedules {
  public:
    const TunedSchedule* find(const std::string& kernel) const;
    void set(const std::string& kernel, TunedSchedule schedule) { all_[kernel] = std::move(schedule); }
    size_t size() const { return all_.size(); }

    std::string print() const;
    /// The inverse. Nothing for another text, or with a schedule that is not legal.
    static std::optional<TunedSchedules> parse(std::string_view text);

  private:
    std::map<std::string, TunedSchedule> all_;
};

}  // namespace tilewright
