// cp.async, mbarriers, TMA, and fences.

#include <algorithm>
#include <cstring>

#include "backend/cuda/oracle/ptx_machine.h"
#include "base/error.h"

namespace tilewright::cuda::oracle {

namespace {

using Run = std::function<void(PtxMachine&, PtxThread&)>;

/// [a]
uint64_t address(const PtxCall& c, size_t k, char constraint) {
    const PtxOperand& o = c.operand(k);
    if (o.kind != PtxOperand::Kind::Address || o.members.size() != 1)
        throw RuntimeError(fmt::format("{} needs an address as operand {}", c.instruction->name(), k));
    return c.get(o.members[0], constraint);
}

/// cp.async.cg takes 16 bytes, .ca 4, 8 or 16; behind `given` of them, zeros.
void copy_async(const PtxCall& c, PtxMachine& m, PtxThread& t, bool past_first_level) {
    const auto bytes = static_cast<int>(c.get(c.operand(2), 'r'));
    const int given = c.instruction->operands.size() > 3 ? static_cast<int>(c.get(c.operand(3), 'r')) : bytes;
    if (past_first_level ? bytes != 16 : bytes != 4 && bytes != 8 && bytes != 16)
        throw RuntimeError(fmt::format("{} of {} bytes", c.instruction->name(), bytes));
    if (given < 0 || given > bytes) throw RuntimeError(fmt::format("cp.async reads {} of {} bytes", given, bytes));
    const PtxThread::Copy copy{address(c, 1, 'l'), address(c, 0, 'r'), bytes, given, t.copy_groups};
    m.shared(copy.to, bytes, bytes);
    if (given > 0) m.global(copy.from, given, bytes);
    t.copies.push_back(copy);
}

/// All groups but the last `open` write what they have read.
void wait_for_copies(PtxMachine& m, PtxThread& t, int64_t open) {
    std::erase_if(t.copies, [&](const PtxThread::Copy& copy) {
        if (copy.group >= t.copy_groups - open) return false;
        unsigned char* to = m.shared(copy.to, copy.bytes, copy.bytes);
        std::memset(to, 0, static_cast<size_t>(copy.bytes));
        if (copy.given > 0)
            std::memcpy(to, m.global(copy.from, copy.given, copy.bytes), static_cast<size_t>(copy.given));
        return true;
    });
}

Run asynchronous(const std::string& name) {
    for (const bool cg : {true, false})
        if (name == (cg ? "cp.async.cg.shared.global" : "cp.async.ca.shared.global"))
            return [=](PtxMachine& m, PtxThread& t) { copy_async(*t.call, m, t, cg); };
    if (name == "cp.async.commit_group") return [](PtxMachine&, PtxThread& t) { ++t.copy_groups; };
    if (name == "cp.async.wait_group")
        return [](PtxMachine& m, PtxThread& t) {
            wait_for_copies(m, t, static_cast<int64_t>(t.call->get(t.call->operand(0), 'r')));
        };
    // Which accesses a fence orders is the lockstep executor's check.
    if (name == "fence.mbarrier_init.release.cluster" || name == "fence.proxy.async.shared::cta")
        return [](PtxMachine&, PtxThread&) {};
    if (name == "fence.acq_rel.gpu") return [](PtxMachine&, PtxThread&) {};
    if (name == "atom.acq_rel.gpu.global.inc.u32")  // behind the last number comes 0
        return [](PtxMachine& m, PtxThread& t) {
            const PtxCall& c = *t.call;
            unsigned char* place = m.global(address(c, 1, 'l'), 4, 4);
            uint32_t before = 0;
            std::memcpy(&before, place, 4);
            const uint32_t behind = before >= c.get(c.operand(2), 'r') ? 0 : before + 1;
            std::memcpy(place, &behind, 4);
            c.set(c.operand(0), 'r', before);
        };
    return {};
}

Run of_mbarrier(const std::string& name) {
    if (name == "mbarrier.init.shared::cta.b64")
        return [](PtxMachine& m, PtxThread& t) {
            m.begin_barrier(address(*t.call, 0, 'r'), static_cast<int64_t>(t.call->get(t.call->operand(1), 'r')));
        };
    if (name == "mbarrier.arrive.expect_tx.shared::cta.b64")
        return [](PtxMachine& m, PtxThread& t) {
            const PtxCall& c = *t.call;
            PtxBarrier& b = m.barrier_at(address(c, 1, 'r'));
            if (b.pending == 0) throw RuntimeError("an arrival that the mbarrier's phase does not expect");
            b.bytes += static_cast<int64_t>(c.get(c.operand(2), 'r'));
            --b.pending;
            b.complete_if_done();
        };
    if (name == "mbarrier.try_wait.parity.shared::cta.b64")
        return [](PtxMachine& m, PtxThread& t) {
            const PtxCall& c = *t.call;
            const uint64_t barrier = address(c, 1, 'r'), parity = c.get(c.operand(2), 'r');
            // The phase of that parity is complete where the current one has the other.
            const auto complete = [&] { return (m.barrier_at(barrier).phase & 1) != parity; };
            if (!complete()) m.poll();
            c.set(c.operand(0), 'p', complete() ? 1 : 0);
        };
    return {};
}

Run box(const PtxInstruction& i) {
    for (size_t rank = 1; rank <= 5; ++rank) {
        if (i.name() !=
            fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", rank))
            continue;
        return [rank](PtxMachine& m, PtxThread& t) {
            const PtxCall& c = *t.call;
            const PtxOperand& tensor = c.operand(1);
            if (tensor.kind != PtxOperand::Kind::Address || tensor.members.size() != 2 ||
                tensor.members[1].members.size() != rank)
                throw RuntimeError("a TMA copy whose coordinates are not those of its dimensions");
            PtxBox b;
            b.map = reinterpret_cast<const uint64_t*>(c.get(tensor.members[0], 'l'));
            if (b.map[0] != kMapMagic || b.map[2] != rank)
                throw RuntimeError("a TMA copy of another tensor map or rank");
            for (const PtxOperand& o : tensor.members[1].members)
                b.begin.push_back(static_cast<int32_t>(c.get(o, 'r')));
            b.to = address(c, 0, 'r');
            b.barrier = address(c, 2, 'r');
            m.shared(b.to, 1, b.map[4] == 0 ? 128 : static_cast<int64_t>(8 * b.map[4]));
            m.barrier_at(b.barrier);
            m.begin_box(std::move(b));
        };
    }
    return {};
}

}  // namespace

/// Every box is written, zeros where it lies outside of its tensor, and its bytes are counted.
void PtxMachine::deliver_boxes() {
    for (const PtxBox& b : boxes_) {
        const uint64_t rank = b.map[2], size = b.map[3], swizzle = b.map[4];
        const uint64_t *extents = b.map + 5, *box = b.map + 10;
        uint64_t count = 1;
        for (uint64_t d = 0; d < rank; ++d) count *= box[d];
        for (uint64_t e = 0; e < count; ++e) {
            uint64_t rest = e, from = 0, stride = size;
            bool inside = true;
            for (uint64_t d = 0; d < rank; ++d) {
                const int64_t at = b.begin[d] + static_cast<int64_t>(rest % box[d]);
                inside = inside && at >= 0 && at < static_cast<int64_t>(extents[d]);
                from += static_cast<uint64_t>(at) * stride;
                stride *= extents[d];
                rest /= box[d];
            }
            // 32, 64, 128 bytes: bit 4, bits 4 and 5, bits 4 to 6 of the address change by those three places above.
            uint64_t to = b.to + e * size;
            if (swizzle != 0) to ^= (to >> 3) & (swizzle - 16);
            unsigned char* place = shared(to, static_cast<int64_t>(size), static_cast<int64_t>(size));
            if (inside)
                std::memcpy(place, global(b.map[1] + from, static_cast<int64_t>(size), 1), size);
            else
                std::memset(place, 0, size);
        }
        PtxBarrier& barrier = barrier_at(b.barrier);
        barrier.bytes -= static_cast<int64_t>(count * size);
        barrier.complete_if_done();
    }
    boxes_.clear();
}

PtxMachine::Handler copy_handler(const PtxInstruction& i) {
    Run run = asynchronous(i.name());
    if (!run) run = of_mbarrier(i.name());
    if (!run) run = box(i);
    if (!run) return {};
    return {1, [run](PtxMachine& m, std::span<PtxThread* const> t) { run(m, *t[0]); }};
}

}  // namespace tilewright::cuda::oracle
