#include "backend/cpu/stage_matrix.h"

#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "backend/cpu/dot_unit.h"
#include "backend/cpu/scalar_emitter.h"
#include "backend/cpu/vectors.h"
#include "base/error.h"
#include "program/analysis/access.h"
#include "tile/walk.h"

namespace tilewright::cpu {

void StageMatrix::enter_tiles() {
    if (!on_tiles()) return;
    const MatrixUnit& u = *m_.matrix;
    slots_ = tile_slots(e_, u);
    TW_CHECK(slots_ && va_ == u.columns && lanes_ == kTileColumns, "tile registers without a product");
    TW_CHECK(axis_ranges_[u.sum].lo_multiple % m_.registers[u.sum] == 0, "a sum in tiles starts inside of one");
    period_[u.sum] = m_.registers[u.sum];
    bind_axis(u.sum, axis_ranges_[u.sum].lo);
    TileProducts products = TileProducts::BF16;
    if (u.type == MatrixType::I8) {
        const bool left_signed = job_.accesses[slots_->left].storage == DType::I8;
        products = left_signed ? TileProducts::SignedUnsigned : TileProducts::UnsignedSigned;
    }
    unit_.emplace(b_, products, u.type == MatrixType::I8 ? job_.emulated_byte_tiles : job_.emulated_tiles);
    const TileGrid grid = tile_grid(e_, m_);
    const int64_t points = m_.registers[u.rows];
    for (int64_t r = 0; r < grid.rows; ++r) {
        const int64_t first = r * grid.height % ((points + grid.height - 1) / grid.height * grid.height);
        whole_.push_back(b_.getInt64(static_cast<uint64_t>(std::min(grid.height, points - first))));
    }
    whole_columns_ = static_cast<size_t>(grid.columns);
    configure(whole_, whole_columns_);
}

void StageMatrix::leave_tiles() {
    if (unit_) unit_->release();
}

std::vector<StageMatrix::RowTile> StageMatrix::row_tiles() {
    const size_t rows = m_.matrix->rows;
    const int64_t points = regs_[rows], tiles = (points + kTileRows - 1) / kTileRows,
                  height = (points + tiles - 1) / tiles;
    llvm::Value* left = clamp_[rows] ? b_.CreateSub(clamp_hi_.at(rows), base_[rows]) : nullptr;
    std::vector<RowTile> out;
    for (const Coords& p : tile_points_) {
        if (p[va_] != 0 || p[rows] % height != 0) continue;
        RowTile t{p, b_.getInt64(static_cast<uint64_t>(std::min(height, points - p[rows])))};
        if (left != nullptr)
            t.rows = extremum(t.rows, b_.CreateSub(left, b_.getInt64(static_cast<uint64_t>(p[rows]))), false);
        out.push_back(t);
    }
    return out;
}

void StageMatrix::configure(const std::vector<llvm::Value*>& rows, size_t columns) {
    const MatrixType type = m_.matrix->type;
    const int64_t step = m_.registers[m_.matrix->sum];
    std::array<TileShape, kTileRegisters> shapes;
    const size_t sums = rows.size() * columns;
    for (size_t t = 0; t < shapes.size(); ++t)
        if (t < sums)
            shapes[t] = {rows[t / columns], kTileRowBytes};
        else if (t < sums + rows.size())
            shapes[t] = {rows[t - sums], matrix_bytes(type) * step};
        else
            shapes[t] = {b_.getInt64(static_cast<uint64_t>(step / dot_step(type))), kTileRowBytes};
    unit_->configure(shapes);
}

bool StageMatrix::is_whole() const {
    return columns_ == whole_columns_ && rows_.size() == whole_.size() &&
           std::equal(rows_.begin(), rows_.end(), whole_.begin(),
                      [](const RowTile& t, llvm::Value* rows) { return t.rows == rows; });
}

Expr StageMatrix::offset_at(uint32_t slot, const Coords& p) {
    const Place& place = job_.accesses[slot];
    return offset_of(place, e_.accesses[slot].index, p);
}

llvm::Value* StageMatrix::stride_of_rows(const std::function<Expr(const Coords&)>& offset, const Coords& first,
                                         int64_t bytes) {
    const size_t axis_number = m_.matrix->rows;
    if (regs_[axis_number] == 1) return b_.getInt64(kTileRowBytes);
    const bool clamped = clamp_[axis_number];
    clamp_[axis_number] = false;
    Coords next = first, last = first;
    next[axis_number] += 1;
    last[axis_number] += kTileRows - 1;
    const Expr here = offset(first);
    const Expr stride = simplify(offset(next) - here, ranges_);
    const Expr span = simplify(offset(last) - here - stride * (kTileRows - 1), ranges_);
    clamp_[axis_number] = clamped;
    TW_CHECK(span.is_constant(0), "rows of an operand of tile registers have no stride: {}", stride.text());
    return exprs_.scalar(stride * bytes);
}

llvm::Value* StageMatrix::left_stride(const RowTile& rows) {
    return stride_of_rows([&](const Coords& p) { return offset_at(slots_->left, p); }, rows.first,
                          matrix_bytes(m_.matrix->type));
}

void StageMatrix::load_left(int t, const RowTile& rows, const Coords& term) {
    Coords from = rows.first;
    for (size_t a = e_.spatial; a < n_axes_; ++a) from[a] = term[a];
    Coords last = from;
    last[m_.matrix->sum] = m_.registers[m_.matrix->sum] - 1;
    const Expr first = offset_at(slots_->left, from);
    if (!loads_anew(t, first)) return;
    const Expr run = simplify(offset_at(slots_->left, last) - first, ranges_);
    TW_CHECK(run.is_constant(m_.registers[m_.matrix->sum] - 1), "a factor of tile registers has no run: {}",
             run.text());
    const Place& place = job_.accesses[slots_->left];
    unit_->load(t, element(storage_type(c_, place.storage, 0), place.base, first), left_stride(rows),
                m_.annotations.stream_left == true);
}

void StageMatrix::load_right(int t, size_t column, const Coords& term) {
    const int64_t group = dot_step(m_.matrix->type);
    Coords p = term;
    p[va_] = static_cast<int64_t>(column);
    Coords next = p, last = p;
    next[m_.matrix->sum] = group;
    last[m_.matrix->sum] = group - 1;
    const Expr lanes = offset_at(slots_->right, p);
    if (!loads_anew(t, lanes)) return;
    const auto linear = linear_in(lanes, {VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
    const Expr stride = simplify(offset_at(slots_->right, next) - lanes, ranges_);
    TW_CHECK(linear && linear->coefficient.is_constant(group) &&
                 simplify(offset_at(slots_->right, last) - lanes, ranges_).is_constant(group - 1),
             "a factor of tile registers is not in groups: {}", lanes.text());
    const Place& place = job_.accesses[slots_->right];
    llvm::Value* from = element(storage_type(c_, place.storage, 0), place.base, linear->rest);
    llvm::Value* bytes = exprs_.scalar(stride * matrix_bytes(m_.matrix->type));
    unit_->load(t, from, bytes);
    if (const Prefetch* ahead = prefetch_of(slots_->right, PrefetchKind::Next))
        prefetch_next(from, ahead->bytes, bytes);
}

void StageMatrix::prefetch_next(llvm::Value* right, int64_t bytes, llvm::Value* stride) {
    constexpr int64_t kAssumed = 4;  // of a dynamic number of tiles; a power of two
    const TilesOfPanel tiles = tiles_of_panel(slots_->right);
    if (tiles.number == nullptr) return;
    const int64_t lines = m_.registers[m_.matrix->sum] / dot_step(m_.matrix->type),
                  count = tiles.known.value_or(kAssumed), share = (lines + count - 1) / count;
    llvm::Value* number = tiles.known ? tiles.number : b_.CreateAnd(tiles.number, b_.getInt64(kAssumed - 1));
    llvm::Value* first = b_.CreateMul(number, b_.getInt64(static_cast<uint64_t>(share)));
    for (int64_t k = 0; k < share; ++k) {
        llvm::Value* line = b_.CreateAdd(first, b_.getInt64(static_cast<uint64_t>(k)));
        prefetch(b_.CreateGEP(b_.getInt8Ty(), right, b_.CreateMul(line, stride)), bytes);
    }
}

llvm::Type* StageMatrix::sums_type() {
    llvm::Type* number =
        m_.matrix->type == MatrixType::I8 ? static_cast<llvm::Type*>(b_.getInt32Ty()) : b_.getFloatTy();
    return llvm::FixedVectorType::get(number, static_cast<unsigned>(lanes_));
}

void StageMatrix::each_accumulator(const AccumulatorBody& body) {
    llvm::Type* vector = sums_type();
    // Points are in row-major order of the register coordinates.
    uint64_t stride = columns_;
    for (size_t a = m_.matrix->rows + 1; a < e_.spatial; ++a)
        if (a != va_) stride *= static_cast<uint64_t>(regs_[a]);
    for (size_t r = 0; r < rows_.size(); ++r) {
        const auto first = static_cast<uint64_t>(std::find(tile_points_.begin(), tile_points_.end(), rows_[r].first) -
                                                 tile_points_.begin());
        for (size_t c = 0; c < columns_; ++c)
            body(accumulator(r, c), b_.CreateConstInBoundsGEP1_64(vector, sums_, first + c),
                 b_.getInt64(stride * kTileRowBytes));
    }
}

void StageMatrix::each_partial_sum(const AccumulatorBody& body) {
    const Place& place = *job_.partial_sums;
    std::vector<Expr> index;
    for (const size_t a : partial_sum_axes(e_, *m_.matrix)) index.push_back(axis(static_cast<uint32_t>(a)));
    const auto offset = [&](const Coords& p) { return offset_of(place, index, p); };
    for (size_t r = 0; r < rows_.size(); ++r)
        for (size_t c = 0; c < columns_; ++c) {
            Coords p = rows_[r].first;
            p[va_] = static_cast<int64_t>(c);
            const auto lanes = linear_in(offset(p), {VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
            TW_CHECK(lanes && lanes->coefficient.is_constant(1), "partial sums of tile registers lie in rows");
            body(accumulator(r, c), element(storage_type(c_, place.storage, 0), place.base, lanes->rest),
                 stride_of_rows(offset, p, static_cast<int64_t>(byte_size(place.storage))));
        }
}

void StageMatrix::start_tiles(llvm::Value* first, const std::function<llvm::Value*(const Coords&)>* before) {
    columns_ = static_cast<size_t>(regs_[va_]);
    rows_ = row_tiles();
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    llvm::Type* vector = sums_type();
    sums_ = at_entry.CreateAlloca(llvm::ArrayType::get(vector, tile_points_.size()), nullptr, "sums");
    sums_->setAlignment(llvm::Align(kTileRowBytes));
    if (!is_whole()) {
        std::vector<llvm::Value*> rows;
        for (const RowTile& t : rows_) rows.push_back(t.rows);
        configure(rows, columns_);
    }
    each_accumulator([&](int t, llvm::Value*, llvm::Value*) { unit_->zero(t); });
    if (!job_.partial_sums && before == nullptr) return;
    const auto load = [&](int t, llvm::Value* at, llvm::Value* stride) { unit_->load(t, at, stride); };
    branch(b_.CreateNot(first), [&] {
        forget();
        if (job_.partial_sums) return each_partial_sum(load);
        for (size_t i = 0; i < tile_points_.size(); ++i)
            b_.CreateStore((*before)(tile_points_[i]), b_.CreateConstInBoundsGEP1_64(vector, sums_, i));
        each_accumulator(load);
    });
}

bool StageMatrix::loads_anew(int t, Expr from) {
    std::optional<Expr>& held = held_[static_cast<size_t>(t)];
    if (held == from) return false;
    held = from;
    return true;
}

void StageMatrix::add_products() {
    forget();
    held_ = {};
    for (const Coords& term : terms()) add_products(term);
}

std::vector<StageMatrix::Coords> StageMatrix::terms() {
    const int64_t step = std::exchange(regs_[m_.matrix->sum], 1);
    std::vector<Coords> all = points(true);
    regs_[m_.matrix->sum] = step;
    return all;
}

void StageMatrix::add_products(const Coords& term) {
    const size_t sums = rows_.size() * columns_, right = sums + rows_.size();
    const size_t spare = static_cast<size_t>(kTileRegisters) - right;
    for (size_t c = 0; c < columns_; ++c) {
        const int other = static_cast<int>(right + c % spare);
        if (c > 0) load_right(other, c, term);
        for (size_t r = 0; r < rows_.size(); ++r) {
            const int left = static_cast<int>(sums + r);
            if (c == 0) load_left(left, rows_[r], term);
            if (c == 0 && r == 0) load_right(other, c, term);
            unit_->product(accumulator(r, c), left, other);
        }
    }
}

void StageMatrix::store_tiles(llvm::Value* last) {
    const auto store = [&](int t, llvm::Value* at, llvm::Value* stride) { unit_->store(t, at, stride); };
    if (job_.partial_sums) {
        branch(b_.CreateNot(last), [&] {
            forget();
            each_partial_sum(store);
        });
        branch(last, [&] { each_accumulator(store); });
    } else {
        each_accumulator(store);
    }
    if (!is_whole()) configure(whole_, whole_columns_);
}

void StageMatrix::enter_dots() {
    if (!on_dots()) return;
    const MatrixUnit& u = *m_.matrix;
    slots_ = tile_slots(e_, u);
    TW_CHECK(slots_ && va_ == u.columns, "dot products without a product");
    TW_CHECK(axis_ranges_[u.sum].lo_multiple % dot_step(u.type) == 0, "a sum of dot products starts inside of one");
    period_[u.sum] = dot_step(u.type);
    bind_axis(u.sum, axis_ranges_[u.sum].lo);
}

std::vector<llvm::AllocaInst*> StageMatrix::start_pairs(size_t count) {
    llvm::Type* type = llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(lanes_));
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    std::vector<llvm::AllocaInst*> out;
    for (size_t i = 0; i < count; ++i) {
        llvm::IRBuilder<> at_entry(&entry, entry.begin());
        out.push_back(at_entry.CreateAlloca(type, nullptr, "pairs"));
        b_.CreateStore(llvm::Constant::getNullValue(type), out.back());
    }
    return out;
}

void StageMatrix::add_pairs(llvm::AllocaInst* sum, llvm::AllocaInst* pairs) {
    llvm::Value* before = b_.CreateLoad(sum->getAllocatedType(), sum);
    llvm::Value* more = b_.CreateLoad(pairs->getAllocatedType(), pairs);
    b_.CreateStore(emit_add_pairs_f16(b_, before, more, job_.emulated_f16), sum);
}

llvm::Value* StageMatrix::packed(uint32_t slot, Coords p) {
    for (size_t a = 0; a < n_axes_; ++a)
        if (((access_mask_[slot] >> a) & 1) == 0) p[a] = 0;
    llvm::Value*& known = packed_[{slot, p}];
    if (known != nullptr) return known;
    const int64_t step = dot_step(m_.matrix->type);
    Coords last = p;
    last[m_.matrix->sum] += step - 1;
    const Expr offset = offset_at(slot, p);
    TW_CHECK(simplify(offset_at(slot, last) - offset, ranges_).is_constant(step - 1),
             "a factor of dot products is not contiguous along the sum: {}", offset.text());
    const Place& place = job_.accesses[slot];
    llvm::Type* stored = storage_type(c_, place.storage, 0);
    const auto align = llvm::Align(byte_size(place.storage));
    if (!on_vector(access_mask_[slot])) {
        auto* pair = annotate(b_.CreateAlignedLoad(b_.getInt32Ty(), element(stored, place.base, offset), align), place);
        return known = b_.CreateVectorSplat(static_cast<unsigned>(lanes_), pair);
    }
    const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(lane_axis_)});
    TW_CHECK(linear && linear->coefficient.is_constant(step), "a factor of dot products is not in groups: {}",
             offset.text());
    llvm::Value* from = element(stored, place.base, linear->rest);
    if (const Prefetch* next = prefetch_of(slot, PrefetchKind::Panel)) prefetch(from, next->bytes);
    const VectorMemory memory{b_.getInt32Ty(), 4, lanes_, job_.vector_bits};
    if (llvm::Value* mask = lane_mask(p))
        return known = emit_masked_load(b_, memory, from, mask, [&](llvm::Instruction* i) { annotate(i, place); });
    llvm::Type* pairs = llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(lanes_));
    return known = annotate(b_.CreateAlignedLoad(pairs, from, align), place);
}

llvm::Value* StageMatrix::add_dot(llvm::Value* sum, const Coords& p) {
    llvm::Value *left = packed(slots_->left, p), *right = packed(slots_->right, p);
    if (m_.matrix->type == MatrixType::BF16) return emit_dot_bf16(b_, sum, left, right, job_.emulated_dots);
    if (on_f16()) return emit_dot_f16(b_, sum, left, right, job_.emulated_f16);
    if (job_.accesses[slots_->left].storage == DType::I8) std::swap(left, right);
    const bool one_register = lanes_ * 32 <= job_.vector_bits;
    return emit_dot_bytes(b_, sum, left, right, one_register ? job_.byte_dots : ByteDots::Emulated);
}

}  // namespace tilewright::cpu
