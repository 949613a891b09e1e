#pragma once
// The values of one statement in the register tile of a thread: operands read, bodies evaluated, results written, each
// in loops over the register coordinates that it depends on. Internal to the statement's emitter (stage_text.cpp),
// which puts tiles, threads and reductions around. stage_vectors.cpp has accesses of several neighbours at a time.

#include <functional>
#include <map>

#include "backend/cuda/stage_text.h"

namespace tilewright::cuda {

class StageValues {
  public:
    StageValues(Writer& writer, Variables& variables, const StageJob& job);

  protected:
    using Mask = uint64_t;  ///< register axes that a value depends on
    using Finish = std::function<void(const std::vector<std::string>& texts)>;

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
        std::string name;         ///< once it has one
        bool stored = false;      ///< the name is of elements as they lie in memory
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

    const std::string& axis_name(size_t a) const { return job_.axes[a]; }

    // --- the thread's tile

    /// The thread's point along an axis is `local` from where the range begins: raw, and held inside the range.
    void place_axis(size_t a, Expr local);
    /// The same for the points of its tile, from `begin` on, over a register coordinate if there are several.
    void spread_axis(size_t a, Expr begin, std::string_view coordinate);
    /// Where register coordinate r stands in a tile.
    Expr spread_point(size_t a, Expr r) const;
    Expr local_range(size_t a) const { return v_.simplified(job_.ranges[a].hi - job_.ranges[a].lo); }

    // --- values

    static bool is_own_axis(Var v) { return v.kind == VarKind::Axis && v.id < Variables::kStageAxes; }
    Mask mask_of(Expr e);
    Mask mask_of(const Access& a, bool checked);
    Mask mask_of(Item item) { return known(item).mask; }
    std::vector<Item> operands(Item item) const;
    Known& known(Item item);
    /// An access node is its access; constants are written where they are used.
    Item resolved(Item item) const;
    bool is_leaf_text(Item item) const;
    void count_users(Item item, Mask user);
    DType type_of(Item item) const;
    /// Loops over the register coordinates of `mask`.
    void open_loops(Mask mask);
    void close_loops(Mask mask);
    std::vector<int64_t> extents(Mask mask) const;
    std::string coordinates(Mask mask) const;
    /// What a loop nest says, with the held coordinates that it uses in front.
    void in_loops(Mask mask, const std::function<void()>& inside);
    /// Evaluates `roots` of `body` and hands their texts to `finish`, in loops over the whole register tile. `guarded`:
    /// there only points inside the ranges count, and only they are touched.
    void evaluate(const ScalarBody& body, const std::vector<ScalarId>& roots, bool guarded, const Finish& finish);
    /// Where this point of the tile exists, and is this thread's to write.
    std::string inside_condition() const;
    std::string wish(Item i) const;
    void name_here(Item item);
    /// C++ for the value in the group that is being written.
    std::string use(Item item);
    std::string number_in(Item item, const std::string& name);
    std::string text(Item item);
    /// The number at `position`, from an array that is declared here.
    std::string table_text(const ScalarNode& n, const std::string& position);
    Variables::LoadText load_text();

    // --- places

    const std::vector<Expr>& points_here() const { return raw_points_ ? raw_ : clamped_; }
    /// The expression at the thread's point.
    Expr at(Expr e);
    std::string access_text(uint32_t slot);
    std::string access_element(uint32_t slot);
    /// C++ for whether the access's conditions hold at the thread's point; empty: they do.
    std::string access_conditions(uint32_t slot);
    /// The index without clamping, where all that it can reach is there to be read.
    std::optional<std::vector<Expr>> inside_filled(const Place& place, const std::vector<Expr>& index) const;
    Expr offset(const Place& place, std::vector<Expr> where) const;
    /// C++ for where the element, or the vector of 16 bytes at most, at that offset lies.
    std::string swizzled(const Place& place, Expr offset, const Variables::LoadText& loads = {}) const;
    /// The same to stand behind a '+'.
    std::string address(const Place& place, Expr offset) const {
        return place.swizzle == 0 ? v_.operand(offset) : swizzled(place, offset);
    }
    std::string element(const Place& place, const std::vector<Expr>& index);
    /// Begins to copy the operand's element to the result's place.
    void put_async();
    /// Writes the result's element at the raw point.
    void put(const Place& place, const std::string& value);
    std::vector<Expr> out_index() const;
    /// The result's element at the raw point.
    std::string out_element(const Place& place) { return element(place, out_index()); }

    // --- vectors: neighbours along one register axis that are neighbours in memory

    /// The last register axis of the mask; none: there is none.
    std::optional<size_t> innermost(Mask mask) const;
    void split_coordinate(size_t axis, int64_t width);
    Expr split(Expr e) const;
    /// e over the part alone; `step`: what it gains from lane to lane.
    std::optional<Expr> at_lane_0(Expr e, int64_t step) const;
    /// Offset of whole, aligned vectors of that place, where it is read by them.
    std::optional<Expr> vector_offset(const Place& place, const std::vector<Expr>& index);
    static int64_t widest(DType t, int64_t points);
    /// Whether an access may be read by vectors in loops over `mask`, without conditions.
    std::optional<Vector> vector_load(uint32_t slot, Mask mask);
    Mask axes_of(const Access& a) const;
    void load_vectors(uint32_t slot, Mask mask, const Vector& vector, const std::string& name);
    /// The loop over the vectors of a register axis; what is added to the array's begin.
    std::string open_parts(const Vector& vector);
    void close_parts(const Vector& vector);
    /// Whether an elementwise statement may write vectors: the result is stored by them, and a vector is inside the
    /// ranges as a whole or not at all.
    void choose_vector_out();
    bool uses_coordinate(uint32_t slot, size_t axis) const;
    /// A vector that is there as a whole or not at all.
    std::optional<Conditional> conditional_vector(uint32_t slot, const Vector& vector);
    /// The same as copies that run beside the program, where they have 4 bytes at least.
    bool copies_async(const Vector& vector);
    /// The last group of an elementwise statement, by vectors: operands into arrays, results from one.
    void vectors_out(const Vector& vector, const std::vector<ScalarId>& roots, const Finish& finish);

    // --- matrix instructions (stage_matrix.cpp)

    /// Adds to the sums in `acc_` what the current ranges of the sum and of the reductions around it give.
    /// `tile_begin`: of the warp's tile, per spatial axis.
    void multiply(const std::vector<Expr>& tile_begin);
    struct Operand {
        std::string words;         ///< an array: per axis of `axes` its fragments, then words along the sum
        std::vector<size_t> axes;  ///< spatial ones that it moves along and that have several points
    };
    /// Evaluates one factor and packs it. `across`: the unit's rows or columns.
    Operand operand(ScalarId factor, size_t across, bool is_left, Expr across_begin, Expr sum_begin);
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
    std::optional<Cores> cores(ScalarId factor, size_t across, Expr across_begin, int64_t count, Expr sum_begin);
    /// The same of rows that are swizzled.
    std::optional<Cores> swizzled_cores(uint32_t slot, size_t across, Expr across_begin, int64_t count, Expr sum_begin);
    /// The index of an access there, where it may be read at this point.
    std::optional<std::vector<Expr>> index_in_box(uint32_t slot, const std::vector<Expr>& point) const;
    /// A product by warpgroup instructions (WGMMA).
    struct GroupProduct {
        ScalarId left, right;  ///< factors
        Expr left_begin, right_begin, sum_begin;
        Expr f;                        ///< counts fragments of rows
        int64_t unit = 1;              ///< along the sum, of one instruction
        bool tail = false;             ///< instructions pass the end of the sum
        Mask others = 0;               ///< axes of the result but rows and columns
        std::optional<Operand> words;  ///< the left operand, where it is in registers
    };
    void multiply_group(const std::vector<Expr>& tile_begin);
    [[noreturn]] void refuse_group(const std::string& why) const;
    std::optional<Cores> left_cores(const GroupProduct& p, Expr g);
    bool group_reads_zeros(const GroupProduct& p, ScalarId factor) const;
    /// Step `g` of the sum, for all columns.
    void group_instructions(const GroupProduct& p, Expr g);
    std::vector<std::string> group_sums(const GroupProduct& p, int64_t column) const;
    std::string matrix_text(ScalarId factor, const Cores& c);
    /// The compiler moves no work on the sums across this.
    void settle();
    bool load_matrices(uint32_t slot, size_t across, bool is_left, Expr across_begin, Expr sum_begin,
                       const Operand& to);
    void instructions(const Operand& left, const Operand& right);
    int64_t words() const;
    bool takes_stored(DType storage) const;
    bool zero_behind_sum(ScalarId factor) const;

    Writer* w_;
    Variables& v_;
    const StageJob& job_;
    const TensorExpr& e_;
    size_t n_ = 0;
    Partition part_;
    DType acc_type_ = DType::F32;
    std::string mine_;  ///< a condition: of its group, this thread writes; empty: all do
    std::string acc_;   ///< what Acc stands for
    std::vector<Expr> raw_, clamped_, coordinate_;
    std::map<size_t, std::pair<Expr, std::string>> held_;  ///< clamped coordinates, and their declarations
    Mask mask_ = 0;                                        ///< axes with register coordinates in what is being written
    Mask result_mask_ = 0;                                 ///< those of the result
    Mask overhang_ = 0;                                    ///< axes along which a tile may reach beyond the range
    Mask used_held_ = 0;                                   ///< in the loops being written
    bool wrote_vectors_ = false;

    Expr lane_;                  ///< of the thread in its warp, or in its group
    Expr lane_row_, lane_pair_;  ///< of a warp: lane / 4, lane % 4

    size_t split_axis_ = 0;  ///< the register axis whose coordinate is split_width_ * part + lane
    int64_t split_width_ = 0;
    Expr part_of_, lane_of_;
    std::optional<Vector> vector_out_;
    std::string into_vector_;  ///< where `put` goes while a vector is being made

    const ScalarBody* body_ = nullptr;
    std::map<Item, Known> known_;
    std::vector<Item> needed_;
    Mask group_ = 0;
    bool raw_points_ = false;
};

}  // namespace tilewright::cuda
