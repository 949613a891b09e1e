#include "schedule/dynamic/local_model.h"

#include <cmath>

namespace tilewright::dynamic {

void MeanModel::learn(const std::vector<MicroKernelFeatures>&, const std::vector<float>& labels) {
    if (labels.empty()) return;
    const auto n = static_cast<double>(labels.size());
    double sum = 0, squares = 0;
    for (const float x : labels) sum += x;
    mean_ = sum / n;
    for (const float x : labels) squares += (x - mean_) * (x - mean_);
    spread_ = std::sqrt(squares / n);
}

}  // namespace tilewright::dynamic
