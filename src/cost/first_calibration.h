#pragma once
// The calibration that the first compilation on a machine makes without being requested.

#include <functional>
#include <string>

#include "cost/target.h"

namespace tilewright {

/// Where one line of text goes.
using LineSink = std::function<void(const std::string&)>;

/// False where the environment variable TILEWRIGHT_CALIBRATE is "0": load_target() or assumed rates are used.
bool first_calibration_enabled();

/// The kept calibration of this machine (load_target). Where there is none, `measure` is called and its result is kept
/// for later processes; `note` gets one line with the figures, the time it took and the file.
///
/// Processes that start at the same time measure once: the others wait for a lock beside the file, at most 10 seconds.
/// Where nothing can be kept, `warn` gets one line and the rates are kept until the process ends. Where `measure`
/// throws RuntimeError (no memory or threads), `warn` gets one line, and host_target() is returned. May be called from
/// several threads.
Target calibrated_target(const std::function<Target()>& measure, const LineSink& note, const LineSink& warn);

/// The same with calibrate(CalibrationLength::quick): at most about 2 seconds. current_target() where
/// first_calibration_enabled() is false.
Target calibrated_target(const LineSink& note, const LineSink& warn);

}  // namespace tilewright
