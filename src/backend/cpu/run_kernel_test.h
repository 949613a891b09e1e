#pragma once
// Runs machine code on tensors that end (or begin) at an inaccessible page, so that every out-of-bounds access faults.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/kernel.h"
#include "program/random_program.h"
#include "tile/random_schedule.h"
#include "tile/tile.h"

namespace tilewright::cpu::test {

/// y[i] = formula of @0 = x[i], for 40 elements: "mul(@0, 2.0)".
inline TileProgram of_forty_elements(const std::string& formula) {
    return parse_tile_program(fmt::format(R"(tile stages {{
stages {{
program stages {{
  input x: f32[40]
  y: f32[40] = [40] {} where @0 = x[i0]  ; y ""
  output y
}}
}}
axes s0="40"
stage 0 over [s0]
parallel s0 by 16 {{
  compute 0 vector s0 lanes 8 registers [s0=16] order [s0] padding partition
}}
}}
)",
                                          formula));
}

/// Memory between two inaccessible pages. It ends at the second page, or begins after the first. All bytes are 0xff:
/// reading unwritten memory gives a NaN or a large number.
class GuardedMemory {
  public:
    enum class Tight { Begin, End };

    GuardedMemory(size_t bytes, Tight tight, size_t alignment = 1) {
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        const size_t inside = (bytes + page - 1) / page * page;
        size_ = inside + 2 * page;
        void* all = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc();
        all_ = static_cast<std::byte*>(all);
        mprotect(all_, page, PROT_NONE);
        mprotect(all_ + page + inside, page, PROT_NONE);
        std::memset(all_ + page, 0xff, inside);
        data_ = all_ + page + (tight == Tight::Begin ? 0 : (inside - bytes) / alignment * alignment);
    }
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory() { munmap(all_, size_); }

    std::byte* data() const { return data_; }

  private:
    std::byte* all_ = nullptr;
    std::byte* data_ = nullptr;
    size_t size_ = 0;
};

/// Runs `work`; returns false if it faulted. Only for code without objects to destroy: machine code.
template <class Work>
bool survives(const Work& work) {
    static thread_local sigjmp_buf back;
    struct sigaction handler = {}, segv = {}, bus = {};
    handler.sa_handler = [](int) { siglongjmp(back, 1); };
    sigaction(SIGSEGV, &handler, &segv);
    sigaction(SIGBUS, &handler, &bus);
    const bool fine = sigsetjmp(back, 1) == 0;
    if (fine) work();
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
    return fine;
}

/// Returns the outputs of the kernel on `inputs`. Runs its tasks in two calls, the later ones first. Throws
/// std::runtime_error if the code reads or writes outside its tensors and scratch.
inline std::vector<Tensor> run_kernel(const CompiledKernel& kernel, const TileProgram& program,
                                      const std::vector<Tensor>& inputs,
                                      GuardedMemory::Tight tight = GuardedMemory::Tight::End) {
    const Program& stages = program.stages;
    Bindings bindings;
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    std::vector<void*> tensors;
    tensors.reserve(inputs.size() + stages.outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Value& declared = stages.values[stages.inputs[i]];
        bind_shape(bindings, declared.shape, inputs[i].shape(), declared.name);
        memory.push_back(std::make_unique<GuardedMemory>(inputs[i].bytes(), tight));
        if (inputs[i].bytes() > 0) std::memcpy(memory.back()->data(), inputs[i].data(), inputs[i].bytes());
        tensors.push_back(memory.back()->data());
    }
    std::vector<Tensor> outputs;
    for (const ValueId v : stages.outputs) {
        outputs.emplace_back(stages.values[v].dtype, evaluate(stages.values[v].shape, bindings));
        memory.push_back(std::make_unique<GuardedMemory>(outputs.back().bytes(), tight));
        tensors.push_back(memory.back()->data());
    }
    std::vector<int64_t> names;
    names.reserve(kernel.names.size());
    for (const Var v : kernel.names) names.push_back(bindings.at(v));
    int64_t tasks = 1;
    for (const Expr& g : kernel.grid) tasks *= evaluate(g, bindings);
    const auto call = [&](int64_t begin, int64_t end) {
        const GuardedMemory scratch(static_cast<size_t>(kernel.scratch_bytes), tight, 64);
        if (!survives([&] { kernel.run(tensors.data(), names.data(), begin, end, scratch.data()); }))
            throw std::runtime_error(
                fmt::format("tasks {} to {} of {} touch memory that is not theirs", begin, end, tasks));
    };
    call(tasks / 2, tasks);
    call(0, tasks / 2);
    for (size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].bytes() > 0)
            std::memcpy(outputs[i].mutable_data(), tensors[inputs.size() + i], outputs[i].bytes());
    for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].bytes() > 0 && std::memcmp(inputs[i].data(), tensors[i], inputs[i].bytes()) != 0)
            throw std::runtime_error(fmt::format("input {} was written to", i));
    return outputs;
}

/// This machine, and variants with other vector instructions.
inline const Target& host() {
    static const Target target = host_target();
    return target;
}
inline const Target& avx2() {
    static const Target target = restricted(host(), VectorIsa::avx2);
    return target;
}
inline const Target& avx512() {
    static const Target target = restricted(host(), VectorIsa::avx512);
    return target;
}

/// Whether this machine runs code for `target`.
inline bool runs_here(const Target& target) {
    return host().arch == "x86_64" && target.vector_bits <= host().vector_bits;
}

/// Empty if the results of the code equal those of the stages and of the tile interpreter, up to `tolerance` relative
/// to 1 + |x|.
inline std::string disagreement(const CompiledKernel& kernel, const TileProgram& program,
                                const std::vector<Tensor>& inputs, double tolerance) {
    try {
        const std::vector<Tensor> expected = interpret(program.stages, inputs);
        const double apart = largest_difference(expected, interpret(program, inputs, {}));
        if (!(apart <= tolerance)) return fmt::format("the tile interpreter is {} from the stages", apart);
        for (const auto tight : {GuardedMemory::Tight::End, GuardedMemory::Tight::Begin}) {
            const double difference = largest_difference(expected, run_kernel(kernel, program, inputs, tight));
            if (!(difference <= tolerance)) return fmt::format("the code is {} from the stages", difference);
        }
        return "";
    } catch (const std::exception& e) {
        return e.what();
    }
}

inline std::string disagreement(const TileProgram& program, const std::vector<Tensor>& inputs, double tolerance,
                                const Target& target = host()) {
    try {
        return disagreement(compile(program, target), program, inputs, tolerance);
    } catch (const std::exception& e) {
        return e.what();
    }
}

/// Returns the disagreement, and the simplest program that still has one.
inline std::string explained(const TileProgram& program, const std::vector<Tensor>& inputs, double tolerance,
                             const Target& target = host()) {
    const std::string wrong = disagreement(program, inputs, tolerance, target);
    if (wrong.empty()) return "";
    const TileProgram small =
        shrink(program, [&](const TileProgram& t) { return !disagreement(t, inputs, tolerance, target).empty(); });
    return wrong + "\n" + disagreement(small, inputs, tolerance, target) + "\n" + print(small);
}

}  // namespace tilewright::cpu::test
