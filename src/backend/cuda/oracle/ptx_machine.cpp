#include "backend/cuda/oracle/ptx_machine.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace tilewright::cuda::oracle {

using State = PtxThread::State;

const PtxOperand& PtxCall::operand(size_t k) const {
    if (k >= instruction->operands.size())
        throw RuntimeError(fmt::format("{} has no operand {}", instruction->name(), k));
    return instruction->operands[k];
}

namespace {

/// The operand's register in the statement, which must have this constraint.
const AsmOperand& checked(const PtxCall& c, const PtxOperand& o, char constraint) {
    if (o.place < 0 || static_cast<size_t>(o.place) >= c.places.size())
        throw RuntimeError(fmt::format("{} names operand %{} of {}", c.instruction->name(), o.place, c.places.size()));
    const AsmOperand& a = c.places[static_cast<size_t>(o.place)];
    const char has = a.constraint[std::strlen(a.constraint) - 1];
    if (has != constraint && has != 'n')
        throw RuntimeError(fmt::format("{} needs a register '{}' as operand %{}, which is '{}'", c.instruction->name(),
                                       constraint, o.place, a.constraint));
    return a;
}

uint64_t mask_of(char constraint) {
    return constraint == 'h' ? 0xffff : constraint == 'r' || constraint == 'f' ? 0xffffffff : ~uint64_t{0};
}

}  // namespace

uint64_t PtxCall::get(const PtxOperand& o, char constraint) const {
    switch (o.kind) {
        case PtxOperand::Kind::Number:
            return static_cast<uint64_t>(o.number) & mask_of(constraint);
        case PtxOperand::Kind::Place: {
            const AsmOperand& a = checked(*this, o, constraint);
            if (a.constraint[0] == '=') throw RuntimeError(instruction->name() + " reads a register that is an output");
            return a.bits & mask_of(constraint);
        }
        case PtxOperand::Kind::Name:
            if (const auto found = declared->find(o.name); found != declared->end() && constraint == 'p')
                return found->second;
            [[fallthrough]];
        default:
            throw RuntimeError(instruction->name() + " has an operand of a wrong form");
    }
}

void* PtxCall::place_of(const PtxOperand& o, char constraint) const {
    const AsmOperand* a = o.kind == PtxOperand::Kind::Place ? &checked(*this, o, constraint) : nullptr;
    if (a == nullptr || a->place == nullptr)
        throw RuntimeError(instruction->name() + " writes what is no output of its statement");
    return a->place;
}

void PtxCall::set(const PtxOperand& o, char constraint, uint64_t bits) const {
    if (o.kind == PtxOperand::Kind::Sink) return;
    if (o.kind == PtxOperand::Kind::Name && constraint == 'p' && declared->contains(o.name)) {
        (*declared)[o.name] = bits;
        return;
    }
    std::memcpy(place_of(o, constraint), &bits, constraint == 'h' ? 2 : constraint == 'l' ? 8 : 4);
}

float PtxCall::get_float(const PtxOperand& o) const { return std::bit_cast<float>(static_cast<uint32_t>(get(o, 'f'))); }
void PtxCall::set_float(const PtxOperand& o, float value) const { set(o, 'f', std::bit_cast<uint32_t>(value)); }

void PtxBarrier::complete_if_done() {
    if (pending != 0 || bytes != 0) return;
    ++phase;
    pending = count;
}

PtxMachine::PtxMachine(const std::vector<std::string>& statements) {
    for (const std::string& text : statements) {
        statements_.push_back(parse_ptx(text));
        handlers_.emplace_back();
        for (const PtxInstruction& i : statements_.back().instructions) {
            Handler h = scalar_handler(i);
            for (const auto& other : {copy_handler, matrix_handler})
                if (!h.run) h = other(i);
            if (!h.run && i.name() != "bra") throw RuntimeError("unknown instruction: " + i.name());
            handlers_.back().push_back(std::move(h));
        }
    }
}

// --- threads

namespace {

PtxMachine* running = nullptr;  // of the fiber that begins

}  // namespace

void PtxMachine::fiber() {
    PtxMachine& m = *running;
    try {
        m.launch_->kernel();
    } catch (const std::exception& e) {
        if (m.failure_.empty())
            m.failure_ = fmt::format("block {}, thread {}: {}", m.block_, m.current_->number, e.what());
    }
    m.wait(State::Done);
}

void PtxMachine::wait(State state) {
    PtxThread& t = *current_;
    t.state = state;
    swapcontext(&t.context, &scheduler_);
    // What waits in a block that failed ends here, so that its frames are left in order.
    if (!failure_.empty() && state != State::Done) throw RuntimeError("another thread failed");
}

void PtxMachine::resume(PtxThread& t) {
    current_ = &t;
    t.state = State::Ready;
    swapcontext(&scheduler_, &t.context);
}

void PtxMachine::run(const Launch& launch) {
    launch_ = &launch;
    failure_.clear();
    for (block_ = 0; block_ < launch.blocks && failure_.empty(); ++block_) run_block(launch);
    launch_ = nullptr;
    threads_.clear();
    if (!failure_.empty()) throw RuntimeError(failure_);
}

void PtxMachine::run_block(const Launch& launch) {
    constexpr size_t kStack = size_t{1} << 18;
    std::memset(launch.shared, 0xff, static_cast<size_t>(launch.shared_bytes));
    barriers_.clear();
    boxes_.clear();
    threads_ = std::vector<PtxThread>(static_cast<size_t>(launch.threads));
    running = this;
    for (size_t k = 0; k < threads_.size(); ++k) {
        PtxThread& t = threads_[k];
        t.number = static_cast<int>(k);
        t.stack.reset(new char[kStack]);
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = t.stack.get();
        t.context.uc_stack.ss_size = kStack;
        makecontext(&t.context, fiber, 0);
    }
    const auto all_done = [&] {
        return std::all_of(threads_.begin(), threads_.end(), [](const PtxThread& t) { return t.state == State::Done; });
    };
    while (!all_done()) {
        for (PtxThread& t : threads_)
            if (t.state == State::Ready || (!failure_.empty() && t.state != State::Done)) resume(t);
        if (!failure_.empty() || all_done() || release()) continue;
        // Polling threads look again: at first as things are, then behind the boxes.
        const bool polls =
            std::any_of(threads_.begin(), threads_.end(), [](const PtxThread& t) { return t.state == State::Polling; });
        if (!polls || boxes_.empty()) {
            failure_ = fmt::format("block {}: {}", block_, stuck());
            continue;
        }
        deliver_boxes();
        for (PtxThread& t : threads_)
            if (t.state == State::Polling) t.state = State::Ready;
    }
    if (failure_.empty() && !boxes_.empty()) failure_ = fmt::format("block {} ends before its TMA copies", block_);
}

std::string PtxMachine::stuck() const {
    std::string out = "its threads wait without end:";
    for (const PtxThread& t : threads_) {
        if (t.number > 0 && t.state == threads_[static_cast<size_t>(t.number) - 1].state) continue;
        out += fmt::format(" {} {}", t.number,
                           t.state == State::AtInstruction ? "at " + t.call->instruction->name()
                           : t.state == State::AtBarrier   ? std::string("at a barrier")
                           : t.state == State::AtShuffle   ? std::string("at a shuffle")
                           : t.state == State::Polling     ? std::string("at an mbarrier")
                                                           : std::string("done"));
    }
    return out;
}

/// What all of its threads have come to happens; whether anything did.
bool PtxMachine::release() {
    bool released = false;
    for (size_t first = 0; first < threads_.size() && failure_.empty(); first += 32) try {
            released = release_group(first) || released;
        } catch (const std::exception& e) {
            failure_ = fmt::format("block {}, threads from {} on: {}", block_, first, e.what());
            return true;
        }
    const bool all =
        std::all_of(threads_.begin(), threads_.end(), [](const PtxThread& t) { return t.state == State::AtBarrier; });
    if (all)
        for (PtxThread& t : threads_) t.state = State::Ready;
    return released || all;
}

bool PtxMachine::release_group(size_t first) {
    const PtxThread& one = threads_[first];
    const auto width = static_cast<size_t>(one.state == State::AtInstruction ? handler_of(one).width : 32);
    if (first % width != 0 || first + width > threads_.size()) return false;
    std::vector<PtxThread*> group;
    for (size_t k = first; k < first + width; ++k) {
        group.push_back(&threads_[k]);
        if (threads_[k].state != one.state) return false;
    }
    if (one.state == State::AtShuffle) {
        std::vector<std::vector<char>> values;
        for (const PtxThread* t : group) {
            const char* bytes = static_cast<const char*>(t->shuffle.value);
            values.emplace_back(bytes, bytes + t->shuffle.size);
        }
        for (size_t k = 0; k < width; ++k)
            std::memcpy(group[k]->shuffle.value,
                        values[(k & static_cast<size_t>(group[k]->shuffle.kept)) ^
                               static_cast<size_t>(group[k]->shuffle.exchanged)]
                            .data(),
                        group[k]->shuffle.size);
    } else if (one.state == State::AtInstruction) {
        for (const PtxThread* t : group)
            if (t->call->instruction != one.call->instruction) return false;
        handler_of(one).run(*this, group);
    } else {
        return false;
    }
    for (PtxThread* t : group) t->state = State::Ready;
    return true;
}

// --- what a kernel's text calls

void PtxMachine::statement(size_t k, std::span<const AsmOperand> operands) {
    executed_.insert(k);
    const PtxStatement& s = statements_.at(k);
    std::map<std::string, uint64_t> declared;
    for (const auto& [name, type] : s.declared) declared[name] = 0;
    for (size_t at = 0; at < s.instructions.size(); ++at) {
        const PtxInstruction& i = s.instructions[at];
        const bool negated = i.guard.starts_with('!');
        if (!i.guard.empty() && (declared.at(i.guard.substr(negated ? 1 : 0)) != 0) == negated) continue;
        if (i.opcode[0] == "bra") {
            at = s.labels.at(i.operands.at(0).name) - 1;
            continue;
        }
        const PtxCall call{&i, operands, &declared};
        const Handler& h = handlers_[k][at];
        current_->call = &call;
        current_->statement = k;
        current_->at = at;
        PtxThread* const alone[] = {current_};
        if (h.width == 1)
            h.run(*this, alone);
        else
            wait(State::AtInstruction);
    }
}

void PtxMachine::barrier() { wait(State::AtBarrier); }

void PtxMachine::shuffle(void* value, size_t size, int exchanged, int kept) {
    current_->shuffle = {value, size, exchanged, kept};
    wait(State::AtShuffle);
}

// --- memory

unsigned char* PtxMachine::shared(uint64_t address, int64_t bytes, int64_t alignment) {
    const auto at = static_cast<int64_t>(address - kSharedBegin);
    if (address < kSharedBegin || at + bytes > launch_->shared_bytes)
        throw RuntimeError(fmt::format("{} bytes at byte {} of {} of shared memory", bytes, at, launch_->shared_bytes));
    if (address % static_cast<uint64_t>(alignment) != 0)
        throw RuntimeError(fmt::format("byte {} of shared memory is not aligned to {}", at, alignment));
    return launch_->shared + at;
}

unsigned char* PtxMachine::global(uint64_t address, int64_t bytes, int64_t alignment) {
    const auto end = address + static_cast<uint64_t>(bytes);
    const bool known = std::any_of(launch_->memory.begin(), launch_->memory.end(),
                                   [&](const auto& m) { return address >= m.first && end <= m.first + m.second; });
    if (!known || address % static_cast<uint64_t>(alignment) != 0)
        throw RuntimeError(fmt::format("{} bytes outside of all tensors, or not aligned to {}", bytes, alignment));
    return reinterpret_cast<unsigned char*>(address);
}

PtxBarrier& PtxMachine::barrier_at(uint64_t address) {
    const auto found = barriers_.find(address);
    if (found == barriers_.end()) throw RuntimeError("an mbarrier that is not initialised");
    return found->second;
}

void PtxMachine::begin_barrier(uint64_t address, int64_t count) {
    shared(address, 8, 8);
    barriers_[address] = {count, count, 0, 0};
}

}  // namespace tilewright::cuda::oracle
