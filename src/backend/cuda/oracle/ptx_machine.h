#pragma once
// A small model of a block of threads that executes the PTX of asm statements: registers, shared and global memory,
// barriers, asynchronous copies, TMA, and matrix instructions of warps and warpgroups, each after the PTX ISA.
//
// Threads are fibers. Asynchronous copies and products write as late as the ISA permits: cp.async at the wait for its
// group, TMA when no thread can continue, sums of wgmma (NaN until then) at the wait for their group. Races and bounds
// of tensors' elements are not checked here: the lockstep executor (device/emulated.cuh) does that for the same
// kernels.

#include <ucontext.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/oracle/ptx.h"

namespace tilewright::cuda::oracle {

/// An operand of an asm statement (tw_asm::Operand of device_prelude.h).
struct AsmOperand {
    const char* constraint;  ///< "=f", "+f", "r", "l", "h", "n"
    void* place;             ///< of an output
    unsigned long long bits;
    long long size;  ///< bytes of the value
};

/// An instruction at which a thread is, with the operands of its statement.
struct PtxCall {
    const PtxInstruction* instruction;
    std::span<const AsmOperand> places;
    std::map<std::string, uint64_t>* declared;

    const PtxOperand& operand(size_t k) const;
    /// The bits of an operand whose register has this constraint ('h' 16 bits, 'r' and 'f' 32, 'l' 64, 'p' a
    /// predicate); immediates have any. Throws RuntimeError for a register of another class.
    uint64_t get(const PtxOperand& o, char constraint) const;
    void set(const PtxOperand& o, char constraint, uint64_t bits) const;
    void* place_of(const PtxOperand& o, char constraint) const;  ///< of an operand that is read and written
    float get_float(const PtxOperand& o) const;
    void set_float(const PtxOperand& o, float value) const;
};

struct PtxThread {
    enum class State : uint8_t { Ready, AtInstruction, AtBarrier, AtShuffle, Polling, Done };
    struct Copy {
        uint64_t from, to;
        int bytes, given;  ///< from `given` on, zeros
        int group;
    };
    struct Sum {
        float* at;
        float value;
        int group;
    };

    int number = 0;
    State state = State::Ready;
    std::unique_ptr<char[]> stack;
    ucontext_t context{};
    const PtxCall* call = nullptr;  ///< AtInstruction
    size_t statement = 0, at = 0;   ///< AtInstruction: of that statement, instruction `at`
    struct {
        void* value;
        size_t size;
        int exchanged, kept;  ///< of lane l, that of lane (l & kept) ^ exchanged
    } shuffle{};              ///< AtShuffle
    std::vector<Copy> copies;
    int copy_groups = 0;
    std::vector<Sum> sums;
    int product_groups = 0;
    bool fenced = false;  ///< by wgmma.fence, since its last products were complete
};

/// An mbarrier object: arrivals and bytes that the current phase still needs.
struct PtxBarrier {
    int64_t count = 0, pending = 0, bytes = 0;
    uint64_t phase = 0;
    void complete_if_done();
};
/// A TMA copy under way.
struct PtxBox {
    const uint64_t* map;
    std::vector<int64_t> begin;
    uint64_t to, barrier;
};
/// The words of a tensor map here: magic, address, rank, bytes of an element, swizzle, extents[5], box[5].
constexpr uint64_t kMapMagic = 0x54574d4150000001;

class PtxMachine {
  public:
    /// What executes an instruction: for each of its threads, or for a warp or a warpgroup at once.
    struct Handler {
        int width = 1;
        std::function<void(PtxMachine&, std::span<PtxThread* const>)> run;
    };
    /// Throws RuntimeError for an instruction that is not known.
    explicit PtxMachine(const std::vector<std::string>& statements);

    struct Launch {
        std::function<void()> kernel;
        int64_t blocks = 1;
        int threads = 32;
        unsigned char* shared = nullptr;
        int64_t shared_bytes = 0;
        std::vector<std::pair<uint64_t, uint64_t>> memory;  ///< addresses and sizes of tensors
    };
    /// Throws RuntimeError that says what was wrong.
    void run(const Launch& launch);
    /// Statements that have been executed.
    const std::set<size_t>& executed() const { return executed_; }

    // --- called by a kernel's text
    void statement(size_t k, std::span<const AsmOperand> operands);
    int thread() const { return current_->number; }
    int64_t block() const { return block_; }
    void barrier();
    /// The value of lane (l & kept) ^ exchanged for each lane l of a warp.
    void shuffle(void* value, size_t size, int exchanged, int kept);

    // --- used by handlers
    static constexpr uint64_t kSharedBegin = 1024;  ///< address of the first byte of a block's shared memory
    unsigned char* shared(uint64_t address, int64_t bytes, int64_t alignment);
    unsigned char* global(uint64_t address, int64_t bytes, int64_t alignment);
    PtxBarrier& barrier_at(uint64_t address);
    void begin_barrier(uint64_t address, int64_t count);
    void begin_box(PtxBox box) { boxes_.push_back(std::move(box)); }
    void poll() { wait(PtxThread::State::Polling); }

  private:
    static void fiber();
    void run_block(const Launch& launch);
    void wait(PtxThread::State state);
    void resume(PtxThread& t);
    bool release();
    bool release_group(size_t first);
    const Handler& handler_of(const PtxThread& t) const { return handlers_[t.statement][t.at]; }
    void deliver_boxes();
    std::string stuck() const;

    std::vector<PtxStatement> statements_;
    std::vector<std::vector<Handler>> handlers_;
    std::set<size_t> executed_;
    const Launch* launch_ = nullptr;
    std::vector<PtxThread> threads_;
    PtxThread* current_ = nullptr;
    ucontext_t scheduler_{};
    int64_t block_ = 0;
    std::map<uint64_t, PtxBarrier> barriers_;
    std::vector<PtxBox> boxes_;
    std::string failure_;
};

/// The handler of an instruction of each kind; none (an empty function) for another one.
PtxMachine::Handler scalar_handler(const PtxInstruction& i);
PtxMachine::Handler copy_handler(const PtxInstruction& i);
PtxMachine::Handler matrix_handler(const PtxInstruction& i);

}  // namespace tilewright::cuda::oracle
