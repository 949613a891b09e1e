#pragma once
// One statement of a tile program as the threads of a GPU's block run it: at which points a thread stands, where its
// operands lie there, and which of them it may read or write several at a time. Everything that can be proved at
// compile time, and no text: `annotate` (tile/annotate/gpu.h) and the generator (backend/cuda) both derive from it.
//
// A thread's tile is a nest of loops over register coordinates. A value is computed once for each combination of those
// that it depends on, so an operand is read in a nest of its own, its group:
//
//     for i_m < 8: a[i_m] = s_a[...]
//     for i_n < 4: b[i_n] = s_b[...]
//     for i_m < 8: for i_n < 4: c[i_m][i_n] += a[i_m] * b[i_n]
//
// Neighbours along the innermost coordinate of a group that are neighbours in memory may be read as vectors, of 16
// bytes at most, where their address is a multiple of the vector's size.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tile/gpu_index.h"
#include "tile/gpu_partition.h"
#include "tile/tile.h"

namespace tilewright::gpu {

/// Where the elements of an operand or result lie.
struct Place {
    std::string object;  ///< what generated code indexes
    DType storage = DType::F32;
    std::vector<Expr> strides;     ///< per dimension (of `layout`'s memory if there is one), in elements
    std::vector<Expr> origin;      ///< subtracted from the index first (buffers); empty: zero
    std::optional<Layout> layout;  ///< of a buffer whose box is laid out
    std::vector<Expr> box;         ///< a buffer's logical shape
    bool checked = false;          ///< a Load has decided the access's conditions
    bool filled = false;           ///< every element of the box may be read
    bool shared = false;           ///< in the block's shared memory
    int swizzle = 0;               ///< Load::swizzle
    bool in_registers = false;     ///< each thread has its own: `object` is indexed by its coordinates along these axes
    std::vector<size_t> register_axes;
    double factor = 1;  ///< of registers: what each number is still to be multiplied by (tile/late_factor.h)
    std::vector<bool> zero_behind;  ///< per axis of the statement: behind the end of the whole axis lie zeros
    bool from_one = false;          ///< numbers are sums of a softmax (tile/softmax_sum.h): 1 or more
    bool unfinished = false;        ///< an online maximum that may not be final: -infinity reads as 0
    std::string final;              ///< of that, in generated code: the condition under which it is final
};

/// The parts of a block's sums in memory, each in the room of the block that made it: element r of a thread's registers
/// is element r * slots + slot, where the threads that write and read it have one slot, so neighbours access
/// neighbours.
struct SumParts {
    int64_t registers = 1, slots = 1;
    int64_t stride = 0, offset = 0;  ///< bytes from one block's room to the next, and of the parts in it
    std::string memory;              ///< in generated code: the rooms of all blocks,
    std::string first, count;        ///< the number of the block that has the first part, and of parts
    int64_t elements() const { return registers * slots; }
};
/// Of one block's part; the number of tiles is known.
SumParts sum_parts(const Partition& share, size_t spatial);

struct StageJob {
    const TensorExpr* expr = nullptr;
    const Micro* micro = nullptr;
    std::vector<AxisRange> ranges;
    std::vector<std::string> axes;   ///< what they are called
    std::vector<Place> accesses;     ///< one per access of expr
    std::vector<std::string> names;  ///< of what the accesses read
    Place out;
    std::optional<Place> correction;  ///< of an online maximum: takes exp(old - new), indexed as `out`
    std::optional<size_t> rescale;    ///< access of `expr` whose element multiplies what was summed up before
    Partition share;                  ///< of the threads
    /// A sum that stays in the registers of `out` through the loops around its statement: Steps adds to what is there,
    /// Finish, behind the loops, makes the result of it.
    enum class Phase : uint8_t { Whole, Steps, Finish };
    Phase phase = Phase::Whole;
    /// Of a block's part of a sum (Walk::split). Give: the sums go to the block's room in memory, and the statement
    /// ends. Join: the sums are those of all parts, in order, instead of what the ranges give.
    enum class Parts : uint8_t { None, Give, Join };
    Parts parts = Parts::None;
    SumParts sum_parts;
    /// Exponentials may have an error of |x| 2^-24 and quotients one of 2^-22, since products of the kernel round their
    /// operands to 2^-11 or more.
    bool rounds = false;
    bool async = false;       ///< a copy that may still be under way when the statement is through
    bool overlapped = false;  ///< products of a warpgroup may go on behind the statement, until the next one's end
    int threads = 32;         ///< of the block
    int64_t room = 0;         ///< byte of shared memory from which on groups of several warps exchange sums
};

class StagePoints {
  public:
    StagePoints(IndexVariables& variables, const StageJob& job);
    virtual ~StagePoints() = default;

  protected:
    using Mask = uint64_t;  ///< register axes that a value depends on

    /// What a value is: an access of the expression, or a node of one of its bodies.
    struct Item {
        bool access = false;
        uint32_t number = 0;
        auto operator<=>(const Item&) const = default;
    };
    struct Known {
        Mask mask = 0;
        int users = 0;            ///< in its own group
        bool exported = false;    ///< some user is in another group
        std::string name;         ///< in generated code, once it has one
        bool stored = false;      ///< the name is of elements as they lie in memory
        bool array = false;       ///< the name is of an array, one of each combination of register coordinates
        bool named_here = false;  ///< as a constant of the innermost scope of its group
    };
    /// The register axis of the innermost loop, whose coordinate is `width * part + lane` where it is vectorised.
    struct Vector {
        size_t axis = 0;
        int64_t width = 1;
        Expr offset;  ///< of lane 0, over the part
    };
    struct Conditional {
        Expr offset;
        std::vector<Expr> conditions;  ///< each >= 0
    };

    // --- the thread's tile

    /// The variables that say which tile a thread works on, and which thread of those that share it it is. Gives the
    /// number of the tile.
    Expr begin_tile();
    /// The thread's point along every spatial axis: raw, and held inside the range.
    void begin_points();
    /// Enters one step of a loop over a reduction axis, a point or a vector, or its tile where that is spread over
    /// registers. Gives the counter where there is one: not where a thread has one step.
    std::optional<Expr> enter_reduction(size_t a);
    std::vector<size_t> reduction_order() const;
    /// Whether points behind the end of a reduction that is spread over registers must not be added.
    bool sums_under_condition() const { return (overhang_ >> e_.spatial) != 0; }
    /// The values that a step adds to the sums: two factors, or the body.
    std::vector<ScalarId> terms() const;
    /// The thread's point along an axis is `local` from where the range begins: raw, and held inside the range.
    void place_axis(size_t a, Expr local);
    /// The same for the points of its tile, from `begin` on, over a register coordinate if there are several.
    void spread_axis(size_t a, Expr begin, std::string_view coordinate);
    /// The same where a strip of points is inside the range as a whole or not at all: it is held as a whole, so that
    /// its points stay neighbours. False where that is not so, or where it is certainly inside.
    bool hold_whole(size_t a, Expr begin, Expr r);
    bool is_held_whole(size_t a) const { return ((whole_held_ >> a) & 1) != 0; }
    bool has_row_pairs() const;
    /// Where register coordinate r stands in a tile.
    Expr spread_point(size_t a, Expr r) const;
    Expr local_range(size_t a) const { return vars_.simplified(job_.ranges[a].hi - job_.ranges[a].lo); }
    const std::string& axis_name(size_t a) const { return job_.axes[a]; }

    /// For generated code: `variable` is `value`; and `held` is `local`, but at most `last`: a point that depends on
    /// the register coordinate, or one of the axis' only point, or is_held_whole() and counts strips.
    virtual void declare(Expr /*variable*/, Expr /*value*/) {}
    virtual void hold(size_t /*axis*/, Expr /*held*/, Expr /*local*/, Expr /*last*/) {}

    // --- values

    static bool is_own_axis(Var v) { return v.kind == VarKind::Axis && v.id < IndexVariables::kStageAxes; }
    Mask mask_of(Expr e);
    Mask mask_of(const Access& a, bool checked);
    Mask mask_of(Item item) { return known(item).mask; }
    std::vector<Item> operands(Item item) const;
    Known& known(Item item);
    /// An access node is its access; constants are written where they are used.
    Item resolved(Item item) const;
    bool is_leaf_text(Item item) const;
    /// Whether an access that depends on all axes is read by vectors: as it is annotated, or could be.
    virtual bool reads_vectors(uint32_t slot) = 0;
    /// Whether the item is such an operand of a sum.
    bool in_vectors(Item item);
    void count_users(Item item, Mask user);
    /// Which values the roots of a body need, and the groups in which those are computed that other groups use.
    std::vector<Mask> groups_of(const ScalarBody& body, const std::vector<ScalarId>& roots);

    // --- places

    /// The index without clamping, where all that it can reach is there to be read.
    std::optional<std::vector<Expr>> inside_filled(const Place& place, const std::vector<Expr>& index) const;
    Expr offset(const Place& place, std::vector<Expr> where) const;
    std::vector<Expr> out_index() const;

    // --- vectors: neighbours along one register axis that are neighbours in memory

    /// The last register axis of the mask that may have neighbours (Spread::Quads has none); none: there is none.
    std::optional<size_t> innermost(Mask mask) const;
    void split_coordinate(size_t axis, int64_t width);
    Expr split(Expr e) const;
    /// e over the part alone; `step`: what it gains from lane to lane.
    std::optional<Expr> at_lane_0(Expr e, int64_t step) const;
    /// Offset of whole, aligned vectors of that place, where it is read by them.
    std::optional<Expr> vector_offset(const Place& place, const std::vector<Expr>& index);
    /// Elements of the widest vector that so many points side by side are whole ones of.
    static int64_t widest(DType t, int64_t points);
    Mask axes_of(const Access& a) const;
    /// Whether an access may be read by vectors of so many elements in loops over `mask`, without conditions.
    std::optional<Vector> vector_load(uint32_t slot, Mask mask, int64_t width);
    /// Whether an elementwise statement may write vectors: the result is stored by them, and a vector is inside the
    /// ranges as a whole or not at all.
    std::optional<Vector> vector_store(int64_t width);
    bool uses_coordinate(uint32_t slot, size_t axis) const;
    /// A vector that is there as a whole or not at all.
    std::optional<Conditional> conditional_vector(uint32_t slot, const Vector& vector);

    // --- matrix instructions (gpu_fragments.cpp)

    /// Along the sum, of what is multiplied at a time: a word holds one tf32, or two halves.
    int64_t words() const;
    /// The type as it lies in memory is what the instruction takes.
    bool takes_stored(DType storage) const;
    /// Behind the end of the sum the factor is 0 by itself, in every tile that reaches there, and read as it stands.
    bool zero_behind_sum(ScalarId factor) const;
    /// Where the sum of a warp's product begins: one step, or the counter of a loop over them.
    struct SumSteps {
        Expr begin;
        std::optional<Expr> counter;
    };
    SumSteps sum_steps();
    /// Spreads the points of a factor over the warp: along the spatial axes that it moves along, and the sum. `across`:
    /// the unit's rows or columns. Gives the spatial axes that have several points.
    std::vector<size_t> spread_operand(ScalarId factor, size_t across, bool is_left, Expr across_begin, Expr sum_begin);
    /// What spread_operand changes along the columns: the right operand's are distributed as the instruction requires.
    struct Columns {
        Expr raw, clamped, coordinate;
        Mask overhang = 0;
        int64_t registers = 1;
        Spread spread = Spread::Strip;
    };
    Columns columns_now() const;
    void restore(const Columns& columns);
    /// Whether elements of the factor behind the end of the sum must be made zeros.
    bool passes_sum(ScalarId factor) const {
        return ((overhang_ >> job_.micro->matrix->sum) & 1) != 0 && !zero_behind_sum(factor);
    }
    /// Fragments by ldmatrix: each thread points at a row of eight halves.
    struct Fragments {
        Expr f, g;           ///< count fragments across the sum, and words along it
        int64_t brings = 2;  ///< words along the sum that one instruction brings
        bool turned = false;
        Expr offset;
    };
    std::optional<Fragments> fragments(uint32_t slot, size_t across, bool is_left, Expr across_begin, Expr sum_begin);
    /// Where an instruction of four warps finds an operand: at element `first` of its buffer, in blocks of eight rows
    /// of 16 bytes behind each other; bytes from one block to the next along the sum, and across it.
    struct Cores {
        Expr first;
        int64_t along = 0, across = 0;
        bool turned = false;  ///< a block's rows go across the sum
        int swizzle = 0;      ///< bytes of a row that is swizzled; 0: rows are of 16 bytes
    };
    /// Nothing where the operand does not lie so. `count`: points across, from `across_begin` on, of `sum_begin` and
    /// the rest of an instruction's.
    /// `paired`: along the sum, numbers 2 t and 2 t + 1 lie at t and t + 4 of eight (tf32 words of a left operand in
    /// registers, whose thread has pairs of columns of the product before).
    std::optional<Cores> cores(ScalarId factor, size_t across, Expr across_begin, int64_t count, Expr sum_begin,
                               bool paired = false);
    /// The same of rows that are swizzled.
    std::optional<Cores> swizzled_cores(uint32_t slot, size_t across, Expr across_begin, int64_t count, Expr sum_begin);
    /// The index of an access there, where it may be read at this point.
    std::optional<std::vector<Expr>> index_in_box(uint32_t slot, const std::vector<Expr>& point) const;
    /// A product by warpgroup instructions (WGMMA).
    struct GroupProduct {
        ScalarId left, right;  ///< factors
        Expr left_begin, right_begin, sum_begin;
        std::optional<Expr> part;  ///< counts the steps along the sum, where there are several
        Expr f, counter;           ///< count fragments of rows, and instructions along the sum
        int64_t unit = 1;          ///< along the sum, of one instruction
        int64_t instructions = 1;  ///< along the sum of one step: no more than the buffers hold
        bool whole_steps = true;
        bool tail = false;  ///< instructions pass the end of the sum
        /// A row that is swizzled may hold several instructions' part of the sum: each is written out.
        bool written_out = false;
        std::optional<Cores> left_in_place;  ///< of the first instruction
    };
    GroupProduct group_product();
    std::optional<Cores> left_cores(const GroupProduct& p, Expr g);
    /// Whether what instructions read behind the end of the sum is zero. (cores() proves that it may be read.)
    bool group_reads_zeros(const GroupProduct& p, ScalarId factor) const;

    IndexVariables& vars_;
    const StageJob& job_;
    const TensorExpr& e_;
    size_t n_ = 0;
    Partition part_;
    std::vector<Expr> raw_, clamped_, coordinate_;
    std::vector<Expr> tile_begin_;  ///< of the thread's or warp's tile, per spatial axis
    Mask mask_ = 0;                 ///< axes with register coordinates in what is being written
    Mask result_mask_ = 0;          ///< those of the result
    Mask overhang_ = 0;             ///< axes along which a tile may reach beyond the range
    Mask whole_held_ = 0;           ///< those of them that hold_whole() holds
    Expr tile_;
    Expr lane_;       ///< of the thread in its warp, or in its group
    Expr lane_row_;   ///< of a warp: lane / 4; of Spread::RowPairs the number of its pair among 64 rows
    Expr lane_pair_;  ///< lane % 4

    size_t split_axis_ = 0;  ///< the register axis whose coordinate is split_width_ * part + lane
    int64_t split_width_ = 0;
    Expr part_of_, lane_of_;

    const ScalarBody* body_ = nullptr;
    std::map<Item, Known> known_;
    std::vector<Item> needed_;
};

}  // namespace tilewright::gpu
