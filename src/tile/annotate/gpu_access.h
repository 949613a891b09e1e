#pragma once
// How many elements at a time the threads of a block read and write in one statement (ThreadAccess).

#include <set>
#include <string>
#include <vector>

#include "tile/annotations.h"
#include "tile/gpu_points.h"

namespace tilewright::gpu {

class StageAccess : public StagePoints {
  public:
    using StagePoints::StagePoints;

    /// The widest vectors that can be proved, fragments of matrix instructions where ldmatrix can bring them, and
    /// operands of a warpgroup in place where its instructions can read them.
    ThreadAccess derive();
    /// One clause for each access that cannot be as `given` has it.
    std::vector<std::string> faults(const ThreadAccess& given);
    /// Whether a copy of access 0 by vectors of that width can run beside the program.
    bool may_be_async(int64_t width);
    /// Accesses that are read in loops of their own, or beside a result that is written by vectors.
    const std::set<size_t>& seen() const { return seen_; }

  private:
    bool reads_vectors(uint32_t slot) override;
    void run();
    void elementwise();
    void reduction();
    void add_up();
    void reads(const ScalarBody& body, const std::vector<ScalarId>& roots, const std::optional<Vector>& out);
    /// An access that is read in a loop nest of its own, over `mask`.
    void read_in_loops(uint32_t slot, Mask mask);
    void multiply();
    void multiply_group();
    void operand(ScalarId factor, size_t across, bool is_left, Expr across_begin, Expr sum_begin);

    OperandRead wanted(size_t slot) const;
    void derived(OperandRead read);
    /// Why an access cannot be read so.
    std::string no_vectors(const Place& place, std::optional<size_t> axis, int64_t width, Expr offset) const;
    void fault(std::string text);

    const ThreadAccess* given_ = nullptr;
    ThreadAccess access_;
    std::vector<std::string> faults_;
    std::set<size_t> seen_;
};

}  // namespace tilewright::gpu
