#include "backend/cpu/vectors.h"

#include <algorithm>
#include <numeric>

namespace tilewright::cpu {

namespace {

int register_lanes(const VectorMemory& m) { return std::min(m.lanes, std::max(1, m.register_bits / 8 / m.bytes)); }

/// Lanes [from, from + n) of a vector of `lanes`.
llvm::Value* lanes_of(llvm::IRBuilder<>& b, llvm::Value* v, int lanes, int from, int n) {
    if (n == lanes) return v;
    std::vector<int> which(static_cast<size_t>(n));
    std::iota(which.begin(), which.end(), from);
    return b.CreateShuffleVector(v, which);
}

llvm::Value* behind(llvm::IRBuilder<>& b, const VectorMemory& m, llvm::Value* pointer, int from) {
    return from == 0 ? pointer : b.CreateGEP(m.element, pointer, b.getInt64(static_cast<uint64_t>(from)));
}

}  // namespace

llvm::Value* emit_masked_load(llvm::IRBuilder<>& b, const VectorMemory& m, llvm::Value* pointer, llvm::Value* mask,
                              const Annotate& annotate) {
    const int n = register_lanes(m);
    const auto align = llvm::Align(static_cast<uint64_t>(m.bytes));
    llvm::Type* type = llvm::FixedVectorType::get(m.element, static_cast<unsigned>(n));
    std::vector<llvm::Value*> parts;
    for (int from = 0; from < m.lanes; from += n) {
        llvm::CallInst* part =
            b.CreateMaskedLoad(type, behind(b, m, pointer, from), align, lanes_of(b, mask, m.lanes, from, n),
                               llvm::Constant::getNullValue(type));
        annotate(part);
        parts.push_back(part);
    }
    for (int width = n; parts.size() > 1; width *= 2) {
        std::vector<int> both(static_cast<size_t>(width) * 2);
        std::iota(both.begin(), both.end(), 0);
        for (size_t i = 0; i < parts.size() / 2; ++i)
            parts[i] = b.CreateShuffleVector(parts[2 * i], parts[2 * i + 1], both);
        parts.resize(parts.size() / 2);
    }
    return parts[0];
}

void emit_masked_store(llvm::IRBuilder<>& b, const VectorMemory& m, llvm::Value* pointer, llvm::Value* mask,
                       llvm::Value* v, const Annotate& annotate) {
    const int n = register_lanes(m);
    const auto align = llvm::Align(static_cast<uint64_t>(m.bytes));
    for (int from = 0; from < m.lanes; from += n)
        annotate(b.CreateMaskedStore(lanes_of(b, v, m.lanes, from, n), behind(b, m, pointer, from), align,
                                     lanes_of(b, mask, m.lanes, from, n)));
}

void transpose_registers(llvm::IRBuilder<>& b, std::vector<llvm::Value*>& rows) {
    // Eklundh: exchange the off-diagonal quarters of blocks of 2 half rows and lanes, half = n / 2, ..., 1.
    const int n = static_cast<int>(rows.size());
    for (int half = n / 2; half >= 1; half /= 2)
        for (int i = 0; i < n; ++i) {
            if ((i & half) != 0) continue;
            std::vector<int> low, high;
            for (int l = 0; l < n; ++l) {
                low.push_back((l & half) == 0 ? l : n + l - half);
                high.push_back((l & half) == 0 ? l + half : n + l);
            }
            llvm::Value* x = rows[static_cast<size_t>(i)];
            llvm::Value* y = rows[static_cast<size_t>(i + half)];
            rows[static_cast<size_t>(i)] = b.CreateShuffleVector(x, y, low);
            rows[static_cast<size_t>(i + half)] = b.CreateShuffleVector(x, y, high);
        }
}

}  // namespace tilewright::cpu
