#pragma once
// The values of one stage inside the register tile that is being emitted: operands read, bodies evaluated, results
// written, each once per combination of the register coordinates that it depends on. Internal to the stage emitter,
// which puts the loops around.

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cpu/stage_emitter.h"
#include "backend/cpu/vectors.h"

namespace tilewright::cpu {

/// A value at one combination of register coordinates: a scalar where it does not depend on the vector axis.
struct Val {
    llvm::Value* v = nullptr;
    bool is_vector = false;
};

class StageValues {
  public:
    StageValues(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job);

  protected:
    using Mask = uint64_t;  ///< which axes a value depends on
    using Coords = std::vector<int64_t>;

    struct Address {
        llvm::Value* pointer = nullptr;   ///< of lane 0 (or of the scalar)
        int64_t lane_stride = 0;          ///< elements between lanes; unused when `lanes` is set
        llvm::Value* per_lane = nullptr;  ///< vector of pointers, for a gather
    };

    void setup_ranges();
    void setup_dependences();
    void bind_axis(size_t a, llvm::Value* value);
    Mask mask_of(Expr e) const;
    std::vector<Mask> node_masks(const ScalarBody& body) const;
    bool on_vector(Mask m) const { return has_vector_ && ((m >> va_) & 1) != 0; }
    void branch(llvm::Value* condition, const std::function<void()>& then);
    /// How far register coordinate `i` of an axis is from its base, in points.
    int64_t reach(size_t a, int64_t i) const;
    void forget();
    llvm::Value* widen(const Val& v);
    Val evaluate(const ScalarBody& body, const std::vector<Mask>& masks, ScalarId id, const Coords& p, const Val& acc);
    Val table(const ScalarNode& n, const Val& position);
    /// What a comparison of indices gives at every lane of p, where that is known.
    std::optional<bool> decided(const ScalarBody& body, ScalarId condition, const Coords& p);
    /// The expression at register coordinates p: axis a becomes its base plus the coordinate; the vector axis becomes
    /// lanes * block + lanes * coordinate + lane where its base is known to be a multiple of the lanes.
    Expr at(Expr e, const Coords& p);
    static std::string clamp_name(size_t a) { return "codegen.hi" + std::to_string(a); }
    void exprs_bind_once(Var v, llvm::Value* value);
    bool lane_dependent(Expr e) const;
    /// Emits the loads an index uses and binds them.
    void bind_loads(Expr e, const Coords& p);
    Expr offset_of(const Place& place, const std::vector<Expr>& index, const Coords& p);
    Address address(const Place& place, Expr offset);
    llvm::Value* element(llvm::Type* type, llvm::Value* base, Expr offset);
    template <class I>
    I* annotate(I* instruction, const Place& place) {
        if (place.scope != nullptr) instruction->setMetadata(llvm::LLVMContext::MD_alias_scope, place.scope);
        if (place.others != nullptr) instruction->setMetadata(llvm::LLVMContext::MD_noalias, place.others);
        return instruction;
    }
    llvm::Value* masked_load(const Place& place, llvm::Value* pointer, llvm::Value* mask);
    void masked_store(const Place& place, llvm::Value* pointer, llvm::Value* mask, llvm::Value* v);
    VectorMemory vector_memory(const Place& place) const;
    /// The lanes of this register coordinate that are inside the axis; null: all.
    llvm::Value* lane_mask(const Coords& p) const;
    Val access(size_t slot, const Coords& p);
    Val read(size_t slot, const Coords& p);
    /// What the conditions of an access leave to the code; null: nothing.
    struct ReadCondition {
        llvm::Value* scalar = nullptr;  ///< (i1) of all lanes
        llvm::Value* lanes = nullptr;   ///< (vector of i1)
    };
    /// Nothing where they are false.
    std::optional<ReadCondition> condition_of(const Access& a, const Coords& p);
    llvm::Value* read_vector(size_t slot, const Coords& p, Expr offset, const ReadCondition& condition);
    /// Of lanes that are not neighbours in memory.
    llvm::Value* read_strided(size_t slot, const Coords& p, const Address& where, const ReadCondition& condition,
                              llvm::Value* mask);
    void prefetch(llvm::Value* pointer, int64_t ahead);
    /// Where the constant lies.
    llvm::Value* in_memory(llvm::Constant* constant);
    /// The annotation of this access, if it holds for the register tile being emitted.
    const Prefetch* prefetch_of(size_t slot, PrefetchKind kind) const;
    /// Whether a vector at this offset of 64-byte aligned memory is as aligned as it is long.
    bool whole_vector(Expr offset, const Place& place) const;
    /// An axis along which the register tile holds a vector's worth of neighbours in this access's memory, while lanes
    /// are one stride apart, which may be dynamic: then `lanes` contiguous loads and a transposition in registers
    /// replace as many gathers. Conditions may depend on the lane, not on that axis.
    std::optional<size_t> transposing_axis(size_t slot, const Coords& p);
    /// The offset as stride * lane + start, where lanes are one stride apart.
    std::optional<Linear> lane_rows(Expr offset) const;
    /// Element p of the block that transposing_axis found. The block is loaded once:
    ///     row i = load [pointer + i * stride], lanes neighbours along u;   the block transposed = vectors along the
    ///     lanes
    llvm::Value* transposed(size_t slot, const Coords& p, size_t u, llvm::Value* mask);
    /// Lanes [from, to), which a mask known at compile time leaves.
    struct LaneRun {
        int from, to;
    };
    /// Lanes up to kMostSpread elements apart, by contiguous loads that do not leave the space between the first of the
    /// `wanted` ones and the last: a gather takes a cycle or two a lane. Zero in the other lanes.
    ///     4 lanes 2 apart:     load [0 .. 3], load [3 .. 6], elements 0 2 of the first and 1 3 of the second
    ///     the first 2 of them: load [0 .. 2] under a mask
    ///     the last 3 of them:  load [2 .. 5], load [3 .. 6]
    llvm::Value* spread(const Place& place, const Address& where, LaneRun wanted);
    /// The lanes that the mask leaves, where they are neighbours, at least one, known at compile time. Null: all.
    std::optional<LaneRun> lane_run(llvm::Value* mask) const;
    static int64_t fill_int(double f);
    llvm::Value* splat_int(int64_t v);
    Expr out_offset(const Coords& p, const Place& place);
    /// A partial result, from where `store` put it.
    llvm::Value* load_out(const Coords& p);
    llvm::Value* lane_pointers(const Place& place, const Address& where);
    llvm::Value* all_or(llvm::Value* mask);
    void store(const Coords& p, const Val& value);
    void store_inside(const Coords& p, const Val& value, const Place& place);

    llvm::IRBuilder<>& b_;
    llvm::LLVMContext& c_;
    ExprEmitter exprs_;
    const StageJob& job_;
    const TensorExpr& e_;
    const Micro& m_;
    size_t n_axes_ = 0, va_ = 0, lane_axis_ = 0, block_axis_ = 0;
    int lanes_ = 0;
    bool has_vector_ = false, vector_reduces_ = false, aligned_ = false;
    DType acc_type_ = DType::F32;
    Ranges ranges_;
    std::vector<Mask> access_mask_, body_mask_, epilogue_mask_;
    std::vector<AxisRange> axis_ranges_;  ///< the job's, narrowed to the segment being emitted
    std::vector<int64_t> regs_;           ///< register coordinates of each axis in the code being emitted
    /// Of an axis that only whole blocks of so many points are walked of, each from its first (the last may be
    /// shorter): then `at` determines which of a block's points it is. 0: of none.
    std::vector<int64_t> period_;
    Expr block_of(size_t a) const { return axis(block_axis_of(a)); }
    uint32_t block_axis_of(size_t a) const { return static_cast<uint32_t>(n_axes_ + 2 + a); }
    /// Of an axis whose register tile lies in interleaved sub-tiles (virtual threads): points of one, and from one to
    /// the next. Distance 0: they lie side by side.
    struct Strip {
        int64_t points = 0, distance = 0;
    };
    std::vector<Strip> strips_;
    std::vector<llvm::Value*> base_;
    std::vector<bool> clamp_;
    std::map<size_t, llvm::Value*> clamp_hi_;
    std::map<Var, llvm::Value*> clamp_bound_;
    llvm::Value* tail_mask_ = nullptr;  ///< of the last vector of the tile
    bool non_temporal_ = false;         ///< results are stored non-temporally now
    std::map<std::tuple<const ScalarBody*, uint32_t, Coords>, Val> memo_;
    std::map<size_t, llvm::Value*> load_binding_;
    std::map<llvm::Constant*, llvm::GlobalVariable*> constants_;
    std::map<std::pair<size_t, Coords>, std::vector<llvm::Value*>> blocks_;  ///< transposed, by access and corner
};

}  // namespace tilewright::cpu
