#pragma once

#include <CLI/CLI.hpp>

namespace tilewright {

/// `db learn`: corrects the cost model by the measurements in the tuning database.
void add_db_learn(CLI::App& db, int& status);

}  // namespace tilewright
