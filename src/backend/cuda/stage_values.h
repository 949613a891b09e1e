#pragma once
// The values of one statement in the register tile of a thread: operands read, bodies evaluated, results written, each
// in loops over the register coordinates that it depends on. Internal to the statement's emitter (stage_text.cpp),
// which puts tiles, threads and reductions around. stage_vectors.cpp has accesses of several neighbours at a time.

#include <functional>
#include <map>
#include <set>

#include "backend/cuda/stage_text.h"

namespace tilewright::cuda {

class StageValues : public gpu::StagePoints {
  public:
    StageValues(Writer& writer, Variables& variables, const StageJob& job);

  protected:
    using Finish = std::function<void(const std::vector<std::string>& texts)>;

    // --- the thread's tile

    void declare(Expr variable, Expr value) override;
    void hold(size_t axis, Expr held, Expr local, Expr last) override;

    // --- what the annotations say

    /// Of an access: how it is read where it is read in loops of its own.
    OperandRead reading(size_t slot) const;
    bool reads_vectors(uint32_t slot) override;
    /// Steps of the loop over a reduction axis that are unrolled.
    int64_t unrolled(size_t a) const;
    /// The vectors by which an access is read in loops over `mask`; none: element by element.
    std::optional<Vector> annotated_load(uint32_t slot, Mask mask);

    // --- values

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
    /// Whether a node may be a product with a reciprocal.
    bool is_near_quotient(const ScalarNode& n) const;
    /// C++ for 1 / value of the item.
    std::string reciprocal(Item item, const std::string& value);
    /// Finds what is nothing but a divisor and the same for several results: its array has reciprocals.
    void find_inverted(const std::vector<ScalarId>& roots);
    /// The number at `position`, from an array that is declared here.
    std::string table_text(const ScalarNode& n, const std::string& position);
    Variables::LoadText load_text();

    // --- places

    const std::vector<Expr>& points_here() const { return raw_points_ ? raw_ : clamped_; }
    /// The expression at the thread's point.
    Expr at(Expr e);
    std::string access_text(uint32_t slot);
    std::string access_element(uint32_t slot);
    /// The place of a node that is an access whose factor (Place::factor) has yet to be applied; null: it is none.
    const Place* unscaled(ScalarId node) const;
    /// C++ for whether the access's conditions hold at the thread's point; empty: they do.
    std::string access_conditions(uint32_t slot);
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
    /// The result's element at the raw point.
    std::string out_element(const Place& place) { return element(place, out_index()); }

    // --- vectors

    void load_vectors(uint32_t slot, Mask mask, const Vector& vector, const std::string& name);
    /// The loop over the vectors of a register axis; what is added to the array's begin.
    std::string open_parts(const Vector& vector);
    void close_parts(const Vector& vector);
    /// The vectors by which an elementwise statement writes.
    void annotated_store();
    /// A copy by vectors that runs beside the program.
    void copy_async(const Vector& vector);
    /// C++ for where the vector goes: an address that is computed early, and what the coordinates add to it.
    std::string result_address(const Vector& vector);
    /// The last group of an elementwise statement, by vectors: operands into arrays, results from one.
    void vectors_out(const Vector& vector, const std::vector<ScalarId>& roots, const Finish& finish);

    // --- matrix instructions (stage_matrix.cpp)

    /// Adds to the sums in `acc_` what the current ranges of the sum and of the reductions around it give.
    void multiply();
    struct Operand {
        std::string words;         ///< an array: per axis of `axes` its fragments, then words along the sum
        std::vector<size_t> axes;  ///< spatial ones that it moves along and that have several points
    };
    /// Evaluates one factor and packs it. `across`: the unit's rows or columns.
    Operand operand(ScalarId factor, size_t across, bool is_left, Expr across_begin, Expr sum_begin);
    /// A product by warpgroup instructions (WGMMA). `words`: the left operand, where it is in registers.
    void multiply_group();
    [[noreturn]] void refuse_group(const std::string& why) const;
    /// Step `g` of the sum, for all columns. `others`: axes of the result but rows and columns.
    void group_instructions(const GroupProduct& p, const std::optional<Operand>& words, Mask others, Expr g);
    std::vector<std::string> group_sums(const GroupProduct& p, Mask others, int64_t column) const;
    std::string matrix_text(ScalarId factor, const Cores& c);
    /// The compiler moves no work on the sums across this.
    void settle();
    /// The subscript of a word in the arrays that operand() declares.
    std::string at_word(const std::string& index) const;
    void load_fragments(uint32_t slot, size_t across, bool is_left, const Fragments& f, const Operand& to);
    void instructions(const Operand& left, const Operand& right);

    Writer* w_;
    Writer* early_ = nullptr;  ///< in front of the loops before the statement
    Variables& v_;
    DType acc_type_ = DType::F32;
    std::string mine_;  ///< a condition: of its group, this thread writes; empty: all do
    std::string acc_;   ///< what Acc stands for
    std::map<size_t, std::pair<Expr, std::string>> held_;  ///< clamped coordinates, and their declarations
    Mask used_held_ = 0;                                   ///< in the loops being written
    std::optional<Vector> vector_out_;
    std::string into_vector_;  ///< where `put` goes while a vector is being made
    Mask group_ = 0;
    std::set<Item> inverted_;  ///< divisors whose arrays have reciprocals
    bool raw_points_ = false;
    bool applies_factor_ = true;  ///< of what is read; otherwise the statement does so behind a reduction
};

}  // namespace tilewright::cuda
