#pragma once
// The values of one stage inside the current register tile: reads operands, evaluates bodies and writes results, each
// once per combination of the register coordinates that it depends on. Internal to the stage emitter, which emits the
// loops.

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

/// A value at one combination of register coordinates; a scalar if it does not depend on the vector axis.
struct Val {
    llvm::Value* v = nullptr;
    bool is_vector = false;
};

class StageValues {
  public:
    StageValues(llvm::IRBuilder<>& builder, const ExprEmitter& vars, const StageJob& job);

  protected:
    using Mask = uint64_t;  ///< set of axes that a value depends on
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
    /// Distance of register coordinate `i` of an axis from its base, in points.
    int64_t reach(size_t a, int64_t i) const;
    void forget();
    llvm::Value* widen(const Val& v);
    Val evaluate(const ScalarBody& body, const std::vector<Mask>& masks, ScalarId id, const Coords& p, const Val& acc);
    Val table(const ScalarNode& n, const Val& position);
    /// Up to 16 floats at `x & (size - 1)`, `position`: by a permutation of a register of 16 lanes, or, where they are
    /// evenly spaced, by arithmetic. Null: neither.
    llvm::Value* small_table(const ScalarNode& n, llvm::Value* position);
    /// The result of a comparison of indices if it is the same, known value at every lane of p.
    std::optional<bool> decided(const ScalarBody& body, ScalarId condition, const Coords& p);
    /// The expression at register coordinates p: axis a becomes its base plus the coordinate; the vector axis becomes
    /// lanes * block + lanes * coordinate + lane if its base is a multiple of the lanes.
    Expr at(Expr e, const Coords& p);
    static std::string clamp_name(size_t a) { return "codegen.hi" + std::to_string(a); }
    void exprs_bind_once(Var v, llvm::Value* value);
    bool lane_dependent(Expr e) const;
    /// Emits the loads of an index and binds them.
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
    /// The mask of the lanes of this register coordinate that are inside the axis; null: all.
    llvm::Value* lane_mask(const Coords& p) const;
    Val access(size_t slot, const Coords& p);
    Val read(size_t slot, const Coords& p);
    /// The conditions of an access that remain to be tested at run time; null: none.
    struct ReadCondition {
        llvm::Value* scalar = nullptr;  ///< (i1) for all lanes
        llvm::Value* lanes = nullptr;   ///< (vector of i1)
    };
    /// Returns nothing if the conditions are false.
    std::optional<ReadCondition> condition_of(const Access& a, const Coords& p);
    /// A number of bf16 that all lanes share, along a reduction that is unrolled: it and its neighbour are broadcast by
    /// one load of 4 bytes, as every shuffle of a broadcast would take a slot of the decoding's. Null: there is none.
    llvm::Value* half_of_pair(size_t slot, const Coords& p);
    llvm::Value* read_vector(size_t slot, const Coords& p, Expr offset, const ReadCondition& condition);
    /// Reads lanes that are not contiguous in memory.
    llvm::Value* read_strided(size_t slot, const Coords& p, const Address& where, const ReadCondition& condition,
                              llvm::Value* mask);
    void prefetch(llvm::Value* pointer, int64_t ahead);
    /// The address of a global with this constant.
    llvm::Value* in_memory(llvm::Constant* constant);
    /// The annotation of this access, if it applies to the current register tile.
    const Prefetch* prefetch_of(size_t slot, PrefetchKind kind) const;
    /// Whether a vector at this offset of 64-byte aligned memory is aligned to its size.
    bool whole_vector(Expr offset, const Place& place) const;
    /// Returns an axis along which the register tile holds a vector of contiguous elements of this access, if lanes
    /// have one stride, which may be dynamic. Then `lanes` contiguous loads and an in-register transpose replace as
    /// many gathers. Conditions may depend on the lane, but not on that axis.
    std::optional<size_t> transposing_axis(size_t slot, const Coords& p);
    /// Returns the offset as stride * lane + start, if lanes have one stride.
    std::optional<Linear> lane_rows(Expr offset) const;
    /// Element p of the block that transposing_axis found. The block is loaded once:
    ///     row i = load [pointer + i * stride], contiguous along u;   transposed block = vectors along the lanes
    llvm::Value* transposed(size_t slot, const Coords& p, size_t u, llvm::Value* mask);
    /// Lanes [from, to) that a compile-time mask enables.
    struct LaneRun {
        int from, to;
    };
    /// Reads lanes up to kMostSpread elements apart by contiguous loads that stay between the first and the last of the
    /// `wanted` ones; a gather takes a cycle or two per lane. Other lanes are zero.
    ///     4 lanes with stride 2:  load [0 .. 3], load [3 .. 6], elements 0 2 of the first and 1 3 of the second
    ///     only the first 2 lanes: load [0 .. 2] under a mask
    ///     only the last 3 lanes:  load [2 .. 5], load [3 .. 6]
    llvm::Value* spread(const Place& place, const Address& where, LaneRun wanted);
    /// Returns the lanes that the mask enables, if they are contiguous, at least one, and known at compile time. Null:
    /// all.
    std::optional<LaneRun> lane_run(llvm::Value* mask) const;
    static int64_t fill_int(double f);
    llvm::Value* splat_int(int64_t v);
    Expr out_offset(const Coords& p, const Place& place);
    /// Loads a partial result that `store` wrote.
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
    std::vector<AxisRange> axis_ranges_;  ///< the job's, narrowed to the current subrange
    std::vector<int64_t> regs_;           ///< register coordinates of each axis in the current code
    /// For an axis iterated in whole blocks of this many points, each from its first point (the last block may be
    /// shorter): `at` derives a point's position in its block from the register coordinate. 0: no blocks.
    std::vector<int64_t> period_;
    Expr block_of(size_t a) const { return axis(block_axis_of(a)); }
    uint32_t block_axis_of(size_t a) const { return static_cast<uint32_t>(n_axes_ + 2 + a); }
    /// For an axis whose register tile consists of interleaved sub-tiles (virtual threads): points of a sub-tile, and
    /// the distance between sub-tiles. Distance 0: they are contiguous.
    struct Strip {
        int64_t points = 0, distance = 0;
    };
    std::vector<Strip> strips_;
    std::vector<llvm::Value*> base_;
    std::vector<bool> clamp_;
    std::map<size_t, llvm::Value*> clamp_hi_;
    std::map<Var, llvm::Value*> clamp_bound_;
    llvm::Value* tail_mask_ = nullptr;  ///< of the last vector of the tile
    bool non_temporal_ = false;         ///< use non-temporal stores now
    std::map<std::tuple<const ScalarBody*, uint32_t, Coords>, Val> memo_;
    std::map<size_t, llvm::Value*> load_binding_;
    std::map<llvm::Constant*, llvm::GlobalVariable*> constants_;
    std::map<std::pair<size_t, Coords>, llvm::Value*> pairs_;  ///< of half_of_pair, by access and first element
    std::map<std::pair<size_t, Coords>, std::vector<llvm::Value*>> blocks_;  ///< transposed, by access and corner
};

}  // namespace tilewright::cpu
