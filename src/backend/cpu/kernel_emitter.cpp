#include "backend/cpu/kernel_emitter.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/TargetParser/Triple.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "backend/cpu/stage_emitter.h"
#include "base/error.h"
#include "cost/annotate_options.h"
#include "program/analysis/access.h"
#include "tile/annotate/annotate.h"
#include "tile/matrix.h"
#include "tile/online.h"
#include "tile/walk.h"

namespace tilewright::cpu {

namespace {

class KernelEmitter {
  public:
    KernelEmitter(llvm::Module& module, const std::string& symbol, const TileProgram& program, const Target& target)
        : m_(module),
          c_(module.getContext()),
          b_(c_),
          p_(annotate(program, annotate_options(target))),
          target_(target),
          cache_bytes_(annotate_options(target).cache_bytes),
          symbol_(symbol),
          exprs_(b_) {}

    EmittedKernel run() {
        result_.names = dynamic_names(p_);
        plan_ = plan_buffers(p_);
        result_.scratch_bytes = plan_.scratch_bytes;
        find_online();
        make_function();
        load_arguments();
        const std::vector<Stmt>* body = grid_loops();
        llvm::Value* begin = fn_->getArg(2);
        llvm::Value* end = fn_->getArg(3);
        const bool counted = counts_steps();
        if (counted) start_steps(begin);
        emit_loop(
            b_, begin, end, 1,
            [&](llvm::Value* task) {
                for (size_t a = 0; a < p_.axes.size(); ++a) ranges_[a] = whole_axis(a);
                enter_task(counted ? current_steps() : split_task(task, [](llvm::Value* n) { return n; }));
                enter_scope(grid_path_);
                statements(*body, grid_path_);
                if (counted) next_steps();
            },
            "task");
        // Other threads read the outputs as soon as all tasks have ended.
        if (has_non_temporal_ && llvm::Triple(m_.getTargetTriple()).isX86())
            b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
        b_.CreateRetVoid();
        return std::move(result_);
    }

  private:
    void make_function() {
        llvm::Type* ptr = b_.getPtrTy();
        llvm::Type* i64 = b_.getInt64Ty();
        auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, i64, i64, ptr}, false);
        fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol_, m_);
        const LlvmCpu cpu = llvm_cpu(target_);
        fn_->addFnAttr("target-cpu", cpu.name);
        fn_->addFnAttr("target-features", cpu.features);
        fn_->addFnAttr("prefer-vector-width", std::to_string(target_.vector_bits));
        fn_->addFnAttr(llvm::Attribute::NoUnwind);
        // LLVM aligns spilled registers as the caller aligns the stack, to 16 bytes, so that three in four frames have
        // them across two lines each. Sums in f16 join up to 28 vectors there (ResNet-50 46 ms, aligned 33).
        if (sums_in_f16(p_)) fn_->addFnAttr(llvm::Attribute::getWithStackAlignment(c_, llvm::Align(64)));
        for (const unsigned i : {0u, 1u, 4u}) fn_->addParamAttr(i, llvm::Attribute::NoAlias);
        b_.SetInsertPoint(llvm::BasicBlock::Create(c_, "entry", fn_));
    }

    void load_arguments() {
        const auto i64 = b_.getInt64Ty();
        for (size_t i = 0; i < result_.names.size(); ++i) {
            llvm::Value* at = b_.CreateConstInBoundsGEP1_64(i64, fn_->getArg(1), i);
            llvm::LoadInst* v = b_.CreateLoad(i64, at);
            v->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(c_, {}));
            exprs_.bind(result_.names[i], v);
        }
        // Tensors and scratch do not overlap: one alias scope each.
        llvm::MDBuilder md(c_);
        llvm::MDNode* domain = md.createAnonymousAliasScopeDomain(symbol_);
        std::vector<ValueId> values = p_.stages.inputs;
        values.insert(values.end(), p_.stages.outputs.begin(), p_.stages.outputs.end());
        std::vector<llvm::MDNode*> scopes;
        for (size_t i = 0; i <= values.size(); ++i) scopes.push_back(md.createAnonymousAliasScope(domain));
        const auto others = [&](size_t self) {
            llvm::SmallVector<llvm::Metadata*> list;
            for (size_t i = 0; i < scopes.size(); ++i)
                if (i != self) list.push_back(scopes[i]);
            return llvm::MDNode::get(c_, list);
        };
        for (size_t i = 0; i < values.size(); ++i) {
            llvm::Value* at = b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), fn_->getArg(0), i);
            llvm::LoadInst* base = b_.CreateLoad(b_.getPtrTy(), at);
            base->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(c_, {}));
            Place place;
            place.base = base;
            place.storage = p_.stages.values[values[i]].dtype;
            place.strides = row_major_strides(p_.stages.values[values[i]].shape);
            const Expr bytes = bytes_of(p_.stages.values[values[i]]);
            const auto above =
                i < p_.stages.inputs.size() || bytes.is_constant() ? std::nullopt : compared_size(values[i]);
            if (above)
                larger_[values[i]] =
                    b_.CreateICmpSGT(exprs_.scalar(bytes), b_.getInt64(static_cast<uint64_t>(*above)), "large");
            place.scope = llvm::MDNode::get(c_, {scopes[i]});
            place.others = others(i);
            memory_[values[i]] = place;
        }
        scratch_scope_ = llvm::MDNode::get(c_, {scopes.back()});
        scratch_others_ = others(values.size());
    }

    /// Returns the threshold for an output's dynamic size in bytes; larger outputs are stored non-temporally.
    std::optional<NonTemporal> compared_size(ValueId v) const {
        std::optional<NonTemporal> above;
        for (const auto& [path, compute] : tree_.computes)
            if (p_.stages.primitives[compute->stage].outputs[0] == v) above = compute->micro.annotations.non_temporal;
        for (const auto& [path, store] : tree_.stores)
            if (store->value == v) above = store->non_temporal;
        if (above && *above != kNonTemporalAlways && *above != kNonTemporalNever) return above;
        return cache_bytes_ > 0 && p_.near.count(v) == 0 ? std::optional(cache_bytes_) : std::nullopt;
    }

    /// Returns the place of a result with the stores that its annotation requests.
    Place result_place(ValueId v, Place out, const std::optional<NonTemporal>& above) {
        if (!above || *above == kNonTemporalNever) return out;
        const Expr bytes = bytes_of(p_.stages.values[v]);
        out.non_temporal = !bytes.is_constant() || bytes.constant() > *above;
        if (!bytes.is_constant() && *above != kNonTemporalAlways) out.non_temporal_if = larger_.at(v);
        has_non_temporal_ = has_non_temporal_ || out.non_temporal;
        return out;
    }

    static Expr bytes_of(const Value& v) {
        Expr bytes = static_cast<int64_t>(byte_size(v.dtype));
        for (const Expr d : v.shape) bytes = bytes * d;
        return bytes;
    }

    // --- ranges

    AxisRange whole_axis(size_t a) {
        AxisRange r;
        r.total = p_.axes[a].extent;
        r.lo = b_.getInt64(0);
        r.lo_multiple = 0;
        r.extent = exprs_.scalar(r.total);
        if (r.total.is_constant()) r.constant_extent = r.total.constant();
        return r;
    }

    /// The range of one step of a loop, which starts at `at`.
    AxisRange narrowed(const AxisRange& outer, llvm::Value* at, int64_t step) {
        AxisRange r = outer;
        r.lo = at;
        r.lo_multiple = std::gcd(outer.lo_multiple, step);
        r.full = false;
        if (outer.constant_extent && *outer.constant_extent % step == 0) {
            r.constant_extent = step;
            r.extent = b_.getInt64(static_cast<uint64_t>(step));
        } else {
            r.constant_extent.reset();
            llvm::Value* left = b_.CreateSub(b_.CreateAdd(outer.lo, outer.extent), at);
            r.extent = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(static_cast<uint64_t>(step)));
        }
        return r;
    }

    static bool covers(const AxisRange& r, int64_t step) { return r.constant_extent && *r.constant_extent <= step; }

    /// Strips the nest of parallel loops; returns the body inside.
    const std::vector<Stmt>* grid_loops() {
        ranges_.resize(p_.axes.size());
        const std::vector<Stmt>* body = &p_.body;
        std::vector<Expr> remaining;
        for (const TileAxis& a : p_.axes) remaining.push_back(a.extent);
        while (body->size() == 1) {
            const auto* loop = std::get_if<TileLoop>(&(*body)[0].kind);
            if (loop == nullptr || !loop->parallel) break;
            grid_.push_back(loop);
            result_.grid.push_back(ceil_div(remaining[loop->axis], loop->step));
            remaining[loop->axis] = loop->step;
            grid_path_.push_back(0);
            body = &loop->body;
        }
        return body;
    }

    /// The steps i0, i1, ... of the parallel loops in a task: task = (i0 * n1 + i1) * n2 + i2. `divisor`: of each n.
    template <class Divisor>
    std::vector<llvm::Value*> split_task(llvm::Value* task, Divisor divisor) {
        std::vector<llvm::Value*> index(grid_.size());
        for (size_t k = grid_.size(); k-- > 1;) {
            llvm::Value* n = divisor(exprs_.scalar(result_.grid[k]));
            index[k] = b_.CreateURem(task, n);
            task = b_.CreateUDiv(task, n);
        }
        if (!index.empty()) index[0] = task;
        return index;
    }

    /// Whether tasks count the steps of the parallel loops, instead of dividing their number. LLVM's loop strength
    /// reduction leaves addresses alone that contain a division by a number it cannot prove to be positive: the inner
    /// loop of a product with a dynamic number of rows computed all its addresses in every step.
    bool counts_steps() const {
        return std::any_of(result_.grid.begin() + (result_.grid.empty() ? 0 : 1), result_.grid.end(),
                           [](const Expr& n) { return !n.is_constant(); });
    }
    void start_steps(llvm::Value* begin) {
        // Without tasks a loop may have no steps.
        const auto positive = [&](llvm::Value* n) {
            return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, n, b_.getInt64(1));
        };
        for (llvm::Value* at : split_task(begin, positive)) {
            steps_.push_back(b_.CreateAlloca(b_.getInt64Ty(), nullptr, "step"));
            b_.CreateStore(at, steps_.back());
        }
    }
    std::vector<llvm::Value*> current_steps() {
        std::vector<llvm::Value*> index;
        for (llvm::AllocaInst* step : steps_) index.push_back(b_.CreateLoad(b_.getInt64Ty(), step));
        return index;
    }
    /// One step of the innermost loop; after its last one, a step of the loop around it.
    void next_steps() {
        llvm::Value* carry = b_.getInt64(1);
        for (size_t k = steps_.size(); k-- > 0;) {
            llvm::Value* next = b_.CreateAdd(b_.CreateLoad(b_.getInt64Ty(), steps_[k]), carry);
            if (k > 0) {
                llvm::Value* over = b_.CreateICmpEQ(next, exprs_.scalar(result_.grid[k]));
                next = b_.CreateSelect(over, b_.getInt64(0), next);
                carry = b_.CreateZExt(over, b_.getInt64Ty());
            }
            b_.CreateStore(next, steps_[k]);
        }
    }

    void enter_task(const std::vector<llvm::Value*>& index) {
        for (size_t k = 0; k < grid_.size(); ++k) {
            AxisRange& r = ranges_[grid_[k]->axis];
            if (covers(r, grid_[k]->step)) continue;
            llvm::Value* at =
                b_.CreateAdd(r.lo, b_.CreateNSWMul(index[k], b_.getInt64(static_cast<uint64_t>(grid_[k]->step))));
            r = narrowed(r, at, grid_[k]->step);
        }
    }

    // --- the tree

    void statements(const std::vector<Stmt>& body, const std::vector<size_t>& path) {
        for (size_t i = 0; i < body.size(); ++i) {
            std::vector<size_t> here = path;
            here.push_back(i);
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind))
                emit_tile_loop(*loop, here);
            else if (const auto* load = std::get_if<Load>(&body[i].kind))
                emit_load(*load, here);
            else if (const auto* compute = std::get_if<Compute>(&body[i].kind))
                emit_compute(*compute, here);
            else
                emit_store(std::get<Store>(body[i].kind), here);
        }
    }

    void emit_tile_loop(const TileLoop& loop, const std::vector<size_t>& path) {
        const AxisRange outer = ranges_[loop.axis];
        const auto inside = [&] {
            enter_scope(path);
            statements(loop.body, path);
        };
        if (covers(outer, loop.step)) {
            inside();
        } else {
            emit_loop(
                b_, outer.lo, b_.CreateAdd(outer.lo, outer.extent), loop.step,
                [&](llvm::Value* at) {
                    ranges_[loop.axis] = narrowed(outer, at, loop.step);
                    inside();
                },
                p_.axes[loop.axis].name.c_str());
        }
        ranges_[loop.axis] = outer;
    }

    static std::string start_name(const std::vector<size_t>& path, size_t axis_number) {
        std::string s = "codegen.start";
        for (const size_t i : path) s += "." + std::to_string(i);
        return s + ".a" + std::to_string(axis_number);
    }

    /// Stores the starts of the current ranges: buffers of this scope are addressed relative to them.
    void enter_scope(const std::vector<size_t>& path) {
        for (const Buffer& buffer : plan_.buffers) {
            if (buffer.scope != path) continue;
            for (size_t a = 0; a < p_.axes.size(); ++a) starts_[{path, a}] = start_of(path, a);
            return;
        }
    }

    /// Returns the start of an axis' current range as an expression that preserves its known divisor, so that packed
    /// blocks are addressed without division.
    Expr start_of(const std::vector<size_t>& path, size_t a) {
        const AxisRange& r = ranges_[a];
        if (const auto* k = llvm::dyn_cast<llvm::ConstantInt>(r.lo)) return k->getSExtValue();
        const Expr quotient = scalar(start_name(path, a));
        const int64_t multiple = std::max<int64_t>(1, r.lo_multiple);
        llvm::Value* value = r.lo;
        if (multiple > 1) value = b_.CreateUDiv(r.lo, b_.getInt64(static_cast<uint64_t>(multiple)), "", true);
        exprs_.bind(*quotient.as_var(), value);
        return quotient * multiple;
    }

    Place place_of(const Buffer& buffer) {
        Place place;
        place.base =
            b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), fn_->getArg(4), static_cast<uint64_t>(buffer.offset));
        place.storage = buffer.dtype;
        std::vector<Expr> starts;
        for (size_t a = 0; a < p_.axes.size(); ++a) starts.push_back(starts_.at({buffer.scope, a}));
        for (const Expr& base : buffer.base) place.origin.push_back(substitute_axes(base, starts));
        std::vector<Expr> physical(buffer.physical.begin(), buffer.physical.end());
        place.strides = row_major_strides(physical);
        if (!buffer.layout.is_identity()) {
            place.layout = buffer.layout;
            place.box.assign(buffer.box.begin(), buffer.box.end());
        }
        place.scope = scratch_scope_;
        place.others = scratch_others_;
        return place;
    }

    const Buffer* buffer_of_load(PrimitiveId stage, size_t access) const {
        for (const Buffer& b : plan_.buffers)
            if (b.access && b.access->first == stage && b.access->second == access) return &b;
        return nullptr;
    }
    const Buffer* buffer_of_value(ValueId v) const {
        for (const Buffer& b : plan_.buffers)
            if (!b.access && !b.correction && !b.partial && b.value == v) return &b;
        return nullptr;
    }

    Place place_of(ValueId v) {
        if (const Buffer* buffer = buffer_of_value(v)) return place_of(*buffer);
        auto it = memory_.find(v);
        TW_CHECK(it != memory_.end(), "value '{}' of kernel '{}' has no memory", p_.stages.values[v].name, p_.name);
        return it->second;
    }

    // --- online maxima

    void find_online() {
        tree_ = walk(p_);
        TW_CHECK(!tree_.split, "kernel '{}': tasks of a CPU do not add the parts of a sum", p_.name);
        online_ = online_stages(p_, tree_);
        scales_ = online_scales(p_.stages, online_maxima(p_));
    }

    /// Returns whether the current ranges reach the end of the stage's reduction; null: always.
    llvm::Value* is_final(PrimitiveId stage) {
        llvm::Value* final = nullptr;
        for (size_t k = p_.stages.primitives[stage].expr()->spatial; k < p_.stage_axes[stage].size(); ++k) {
            const AxisRange& r = ranges_[p_.stage_axes[stage][k]];
            if (r.full) continue;
            llvm::Value* here = b_.CreateICmpEQ(b_.CreateAdd(r.lo, r.extent), exprs_.scalar(r.total));
            final = final == nullptr ? here : b_.CreateAnd(final, here);
        }
        return final;
    }

    Place correction_of(ValueId maximum) {
        for (const Buffer& b : plan_.buffers)
            if (b.correction && b.value == maximum) return place_of(b);
        internal_error(__FILE__, __LINE__, "an online maximum has a correction", p_.name);
    }

    /// Adds the handling of maxima that are not final. If the stage rescales its partial sums, `expr` becomes its
    /// rescaled expression.
    void add_online(const Compute& compute, const TreePath& path, StageJob& job, TensorExpr& expr) {
        if (compute.online) job.correction = correction_of(p_.stages.primitives[compute.stage].outputs[0]);
        for (size_t i = 0; i < job.expr->accesses.size(); ++i)
            if (const auto it = online_.find(job.expr->accesses[i].value); it != online_.end())
                job.accesses[i].final = is_final(it->second.stage);
        std::optional<RescaledSum> rescaled =
            rescaled_sum(p_, tree_, online_, scales_[compute.stage], compute.stage, path);
        if (!rescaled) return;
        job.rescale = job.expr->accesses.size();
        job.accesses.push_back(correction_of(rescaled->maximum));
        expr = std::move(rescaled->expr);
        job.expr = &expr;
    }

    void emit_compute(const Compute& compute, const TreePath& path) {
        const Primitive& stage = p_.stages.primitives[compute.stage];
        StageJob job;
        job.vector_bits = target_.vector_bits;
        job.emulated_tiles = !target_.bf16_tiles();
        job.emulated_byte_tiles = !target_.byte_tiles();
        job.emulated_dots = !target_.bf16_dot_instructions();
        job.emulated_f16 = !target_.may_use("avx512fp16");
        job.byte_dots = target_.byte_dot_instructions() ? ByteDots::Instruction
                        : target_.byte_dots()           ? ByteDots::Words
                                                        : ByteDots::Emulated;
        // All CPUs with AVX512_FP16 or AMX have AVX512_VBMI, which the names of their levels (--isa) do not mention.
        job.byte_permutations = target_.may_use("avx512vbmi") || target_.may_use("avx512fp16") || target_.bf16_tiles();
        job.expr = stage.expr();
        job.micro = &compute.micro;
        for (const size_t a : p_.stage_axes[compute.stage]) job.ranges.push_back(ranges_[a]);
        for (size_t i = 0; i < job.expr->accesses.size(); ++i) {
            if (const Buffer* buffer = buffer_of_load(compute.stage, i)) {
                job.accesses.push_back(place_of(*buffer));
                job.accesses.back().checked = true;
            } else {
                job.accesses.push_back(place_of(job.expr->accesses[i].value));
            }
        }
        job.out = result_place(stage.outputs[0], place_of(stage.outputs[0]), compute.micro.annotations.non_temporal);
        for (const Buffer& b : plan_.buffers)
            if (b.partial && b.value == stage.outputs[0]) job.partial_sums = place_of(b);
        TensorExpr expr;
        add_online(compute, path, job, expr);
        emit_stage(b_, exprs_, job);
    }

    /// Returns the stride of the copy's operand along `axis_number`, if it is constant.
    static std::optional<int64_t> copy_stride(const TensorExpr& copy, const Place& from, size_t axis_number) {
        if (from.layout) return std::nullopt;
        const Expr offset = strided_offset(copy.accesses[0].index, from.strides);
        const auto linear = linear_in(offset, {VarKind::Axis, static_cast<uint32_t>(axis_number)});
        if (!linear || !linear->coefficient.is_constant()) return std::nullopt;
        return linear->coefficient.constant();
    }

    /// A copy over `extents` points: out[k] = in[index], vectorised along the last axis.
    void emit_copy(const TensorExpr& copy, std::vector<AxisRange> ranges, const Place& from, const Place& to) {
        Micro micro;
        const size_t last = copy.extents.size() - 1;
        micro.registers.assign(copy.extents.size(), 1);
        const int lanes =
            std::max(1, target_.vector_bits / 8 / static_cast<int>(std::max<size_t>(4, byte_size(from.storage))));
        if (!copy.extents.empty() && lanes > 1 &&
            !(copy.extents[last].is_constant() && copy.extents[last].constant() == 1)) {
            micro.vector_axis = last;
            micro.lanes = lanes;
            micro.registers[last] = lanes;
            const auto narrow = copy.extents[last].is_constant() ? copy.extents[last].constant() : lanes;
            for (size_t u = 0; u < last; ++u) {
                const auto stride = copy_stride(copy, from, u);
                if (!stride || *stride != 1) continue;
                const bool vectors = !copy.extents[u].is_constant() || copy.extents[u].constant() >= lanes;
                if (vectors && narrow > kMostSpread && narrow < lanes) {
                    // Panels of few rows: vectors along the rows, which the result interleaves.
                    micro.vector_axis = u;
                    micro.registers[u] = lanes;
                    micro.registers[last] = narrow;
                } else if (vectors && copy.extents[u].is_constant()) {
                    micro.registers[u] = lanes;  // a packing copy that transposes works on blocks of lanes x lanes
                }
            }
        }
        StageSite site;
        site.expr = &copy;
        site.micro = &micro;
        site.operands.resize(copy.accesses.size());
        for (const AxisRange& r : ranges) site.axes.push_back({r.constant_extent, r.full, r.lo_multiple});
        annotate(micro.annotations, site, {});
        StageJob job;
        job.vector_bits = target_.vector_bits;
        job.expr = &copy;
        job.micro = &micro;
        job.ranges = std::move(ranges);
        job.accesses = {from};
        job.out = to;
        emit_stage(b_, exprs_, job);
    }

    AxisRange constant_range(int64_t extent) {
        AxisRange r;
        r.lo = b_.getInt64(0);
        r.lo_multiple = 0;
        r.extent = b_.getInt64(static_cast<uint64_t>(extent));
        r.constant_extent = extent;
        r.total = extent;
        return r;
    }

    /// The points of dimension `d` of a loaded operand that the current ranges read, counted from the box's start;
    /// nothing if they are as many as the box has, or not known to be fewer.
    llvm::Value* read_points(const Load& load, size_t d) {
        const TensorExpr& e = *p_.stages.primitives[load.stage].expr();
        const Expr index = e.accesses[load.access].index[d];
        llvm::Value* reach = nullptr;
        int64_t constant = 1;
        for (uint32_t a = 0; a < e.extents.size(); ++a) {
            const auto linear = linear_in(index, {VarKind::Axis, a});
            if (!linear || !linear->coefficient.is_constant()) return nullptr;
            const int64_t step = linear->coefficient.constant();
            const AxisRange& r = ranges_[p_.stage_axes[load.stage][a]];
            if (step < 0) return nullptr;  // the read part ends at the box's end
            if (r.constant_extent || step == 0) {
                if (step > 0) constant += step * (*r.constant_extent - 1);
                continue;
            }
            llvm::Value* points = b_.CreateNSWMul(r.extent, b_.getInt64(static_cast<uint64_t>(step)));
            reach = reach == nullptr ? points : b_.CreateNSWAdd(reach, points);
            constant -= step;
        }
        return reach == nullptr ? nullptr : b_.CreateNSWAdd(reach, b_.getInt64(static_cast<uint64_t>(constant)));
    }

    /// Whether dimension d of a loaded operand is indexed by axes of the result alone: what lies behind the points of a
    /// task is not summed.
    bool is_spatial(const Load& load, size_t d) const {
        const TensorExpr& e = *p_.stages.primitives[load.stage].expr();
        const std::vector<Var> used = variables(e.accesses[load.access].index[d]);
        return std::all_of(used.begin(), used.end(),
                           [&](Var v) { return v.kind == VarKind::Axis && v.id < e.spatial; });
    }

    /// Returns the subrange of physical dimension d of a copied box that the current ranges read. With dynamic extents
    /// a task may have fewer points than its loop steps, or than the bound of its sizes:
    ///     8 items of a batch of 1, 48 of 4 pixels: a copy of the whole box is 96 times what is read
    ///     keys in panels of 16, [512 / 16, 26, 16], for 5 tokens of at most 512: one panel of 32
    ///     pixels in panels of 64, [w / 64, 12, 64], for a row of 20: 32 of the only panel, two vectors
    AxisRange copied_range(const Load& load, const Buffer& buffer, size_t d) {
        const AxisRange whole = constant_range(buffer.physical[d]);
        std::vector<Expr> logical, box(buffer.box.begin(), buffer.box.end());
        for (size_t k = 0; k < box.size(); ++k) logical.push_back(axis(k));
        const Expr index = buffer.layout.is_identity() ? logical[d] : physical_index(buffer.layout, box, logical)[d];
        const int64_t vector = target_.vector_bits / 32;
        // The dimension itself, whole panels of it, or whole vectors of the only panel.
        for (size_t k = 0; k < box.size(); ++k) {
            int64_t unit = 1;
            bool inside = false;
            if (index != logical[k]) {
                const std::vector<Term>& terms = index.terms();
                const Atom* atom = index.constant() == 0 && terms.size() == 1 && terms[0].coefficient == 1 &&
                                           terms[0].atoms.size() == 1
                                       ? terms[0].atoms[0]
                                       : nullptr;
                if (atom == nullptr || (atom->kind != Atom::Kind::FloorDiv && atom->kind != Atom::Kind::Mod) ||
                    atom->a != logical[k] || !atom->b.is_constant())
                    continue;
                inside = atom->kind == Atom::Kind::Mod;
                unit = inside ? vector : atom->b.constant();
                if (inside && (*whole.constant_extent <= vector || !is_spatial(load, k))) return whole;
            }
            llvm::Value* points = read_points(load, k);
            if (points == nullptr || unit < 1) return whole;
            AxisRange r = whole;
            r.constant_extent.reset();
            llvm::Value* units =
                unit == 1 ? points
                          : b_.CreateUDiv(b_.CreateNSWAdd(points, b_.getInt64(static_cast<uint64_t>(unit - 1))),
                                          b_.getInt64(static_cast<uint64_t>(unit)));
            r.extent = units;
            if (inside) {
                llvm::Value* read = b_.CreateNSWMul(units, b_.getInt64(static_cast<uint64_t>(unit)));
                r.extent = b_.CreateSelect(b_.CreateICmpSLT(read, whole.extent), read, whole.extent);
            }
            r.total = scalar(fmt::format("codegen.copied.{}.{}.{}", load.stage.value, load.access, d));
            exprs_.bind(*r.total.as_var(), r.extent);
            return r;
        }
        return whole;
    }

    void emit_load(const Load& load, const std::vector<size_t>&) {
        const Buffer* buffer = buffer_of_load(load.stage, load.access);
        TW_CHECK(buffer != nullptr);
        const Access& access = p_.stages.primitives[load.stage].expr()->accesses[load.access];
        const std::vector<Expr>& shape = p_.stages.values[access.value].shape;
        Place to = place_of(*buffer);
        // Element j of the buffer's memory is element origin + logical(j) of the tensor.
        std::vector<Expr> box(buffer->box.begin(), buffer->box.end());
        TensorExpr copy;
        std::vector<Expr> j;
        std::vector<AxisRange> ranges;
        for (size_t d = 0; d < buffer->physical.size(); ++d) {
            ranges.push_back(copied_range(load, *buffer, d));
            copy.extents.push_back(ranges.back().total);
            j.push_back(axis(d));
        }
        if (copy.extents.empty()) {
            copy.extents.push_back(1);
            ranges.push_back(constant_range(1));
        }
        copy.spatial = copy.extents.size();
        LogicalIndex logical{j, {}};
        if (!buffer->layout.is_identity()) logical = logical_index(buffer->layout, box, j);
        copy.accesses = {copied_access(access, logical, to.origin, shape, false)};
        copy.body.set_root(copy.body.access(0, buffer->dtype));
        Place flat = to;
        flat.origin.clear();
        flat.layout.reset();
        if (buffer->physical.empty()) flat.strides = {Expr(1)};
        emit_copy(copy, std::move(ranges), memory_.at(access.value), flat);
    }

    void emit_store(const Store& store, const std::vector<size_t>&) {
        const Buffer* buffer = buffer_of_value(store.value);
        TW_CHECK(buffer != nullptr);
        // The axes of the producing stage are the dimensions of the value.
        const auto producers = p_.stages.producers();
        const PrimitiveId stage = producers[store.value];
        TW_CHECK(p_.stages.primitives[stage].expr()->output_index.empty());
        const std::vector<Expr>& shape = p_.stages.values[store.value].shape;
        TensorExpr copy;
        std::vector<AxisRange> ranges;
        Access read;
        read.value = store.value;
        for (size_t d = 0; d < shape.size(); ++d) {
            copy.extents.push_back(shape[d]);
            read.index.push_back(axis(d));
            ranges.push_back(ranges_[p_.stage_axes[stage][d]]);
        }
        copy.spatial = shape.size();
        copy.accesses = {read};
        copy.body.set_root(copy.body.access(0, buffer->dtype));
        emit_copy(copy, std::move(ranges), place_of(*buffer),
                  result_place(store.value, memory_.at(store.value), store.non_temporal));
    }

    llvm::Module& m_;
    llvm::LLVMContext& c_;
    llvm::IRBuilder<> b_;
    const TileProgram p_;  ///< with all annotations
    const Target& target_;
    const int64_t cache_bytes_;
    bool has_non_temporal_ = false;
    std::map<ValueId, llvm::Value*> larger_;  ///< (i1) whether an output of dynamic size exceeds compared_size
    std::string symbol_;
    ExprEmitter exprs_;
    EmittedKernel result_;
    BufferPlan plan_;
    Walk tree_;
    std::map<ValueId, OnlineMaximum> online_;
    IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    llvm::Function* fn_ = nullptr;
    std::map<ValueId, Place> memory_;
    llvm::MDNode* scratch_scope_ = nullptr;
    llvm::MDNode* scratch_others_ = nullptr;
    std::vector<AxisRange> ranges_;
    std::map<std::pair<std::vector<size_t>, size_t>, Expr> starts_;  ///< by scope and axis
    std::vector<const TileLoop*> grid_;
    std::vector<size_t> grid_path_;
    std::vector<llvm::AllocaInst*> steps_;  ///< of the parallel loops, where tasks count them
};

}  // namespace

EmittedKernel emit_kernel(llvm::Module& module, const std::string& symbol, const TileProgram& program,
                          const Target& target) {
    return KernelEmitter(module, symbol, program, target).run();
}

}  // namespace tilewright::cpu
