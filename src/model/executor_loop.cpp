#include <algorithm>

#include "base/error.h"
#include "model/executor_impl.h"

namespace tilewright {

namespace {

/// Copies between a tensor and one slice of it along `axis`.
void copy_slice(const ExecutionContext& by, std::byte* whole, std::byte* slice, const Shape& shape, int64_t axis,
                int64_t at, size_t element, bool out_of_whole) {
    size_t outer = 1, inner = element;
    for (int64_t d = 0; d < axis; ++d) outer *= static_cast<size_t>(shape[static_cast<size_t>(d)]);
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d) inner *= static_cast<size_t>(shape[d]);
    const size_t stride = inner * static_cast<size_t>(shape[static_cast<size_t>(axis)]);
    for (size_t o = 0; o < outer; ++o) {
        std::byte* w = whole + o * stride + static_cast<size_t>(at) * inner;
        std::byte* s = slice + o * inner;
        if (out_of_whole)
            by.copy(s, w, inner);
        else
            by.copy(w, s, inner);
    }
}

size_t bytes_of_view(const TensorView& v) { return static_cast<size_t>(v.count()) * byte_size(v.dtype); }

}  // namespace

/// One run of a loop: begin(), then for each iteration set_inputs(), the body, take_outputs(); last finish().
class Executor::Impl::LoopRun {
  public:
    LoopRun(Impl& outer, PrimitiveId id, const Loop& loop, StepState& state)
        : outer_(outer),
          id_(id),
          loop_(loop),
          state_(state),
          body_(*state.bodies[0]),
          primitive_(outer.plan.program.primitives[id]),
          n_carried_(loop.carried.size()),
          first_carried_(loop.has_condition ? 1 : 0) {}

    void run() {
        begin();
        for (; iteration_ < trips_ && condition_ != 0; ++iteration_) {
            set_inputs();
            body_.impl_->backward = iteration_ % 2 != 0;
            body_.run();
            take_outputs();
        }
        finish_carried();
        finish_collected();
    }

  private:
    void begin() {
        state_.context->flops = 0;
        state_.carried.resize(n_carried_);
        state_.next.resize(n_carried_);
        state_.carried_shapes.resize(n_carried_);
        state_.slices.resize(loop_.scan_inputs.size());
        state_.collected.resize(loop_.scan_outputs.size());
        state_.collected_shapes.resize(loop_.scan_outputs.size());
        collected_bytes_.assign(loop_.scan_outputs.size(), 0);
        slice_bytes_.assign(loop_.scan_inputs.size(), 0);
        stacked_bytes_.assign(loop_.scan_outputs.size(), 0);
        if (loop_.trip_count) trips_ = outer_.context.names->evaluate(*loop_.trip_count);
        begin_carried();
        stacked_.assign(loop_.scan_outputs.size(), nullptr);
        for (size_t i = 0; i < stacked_.size() && trips_ > 0; ++i) {
            stacked_[i] = stacked_in_place(i);
            if (stacked_[i] == nullptr) body_.impl_->place(first_carried_ + n_carried_ + i, nullptr);
        }
        if (loop_.condition) condition_ = *static_cast<const uint8_t*>(outer_.slots[*loop_.condition].data);
    }

    void begin_carried() {
        places_.assign(n_carried_, false);
        for (size_t i = 0; i < n_carried_; ++i) {
            places_[i] = body_.impl_->can_place(first_carried_ + i);
            if (places_[i]) {
                const size_t bytes = body_.impl_->output_bytes(first_carried_ + i);
                grow(state_.carried[i], bytes + 128);
                grow(state_.next[i], bytes + 128);
            }
            const ValueId v = loop_.carried[i];
            assign(state_.carried[i], outer_.slots[v].data, static_cast<size_t>(outer_.bytes_of(v)));
            state_.carried_shapes[i] = outer_.slots[v].shape;
        }
    }

    /// Where stacked output `i` of the loop lies, if the body can write each slice to where it stays; else null.
    ///     [3, 8, 256] = slices of 8 KiB: the first at 0, then at 8 KiB, at 16 KiB; reversed, the first at 16 KiB
    std::byte* stacked_in_place(size_t i) {
        const ValueId v = primitive_.outputs[n_carried_ + i];
        if (loop_.scan_outputs[i].axis != 0 || loop_.has_condition || outer_.slots[v].late ||
            outer_.bindings.count(id_) != 0)
            return nullptr;
        const size_t out = n_carried_ + i;
        const Impl& body = *body_.impl_;
        if (!body.can_place(out)) return nullptr;
        const Value& slice = body.plan.program.values[body.plan.program.outputs[out]];
        Shape whole{trips_};
        for (const Expr& d : slice.shape) whole.push_back(outer_.context.names->evaluate(d));
        auto* to = static_cast<std::byte*>(outer_.place_output(id_, v, whole));
        const int64_t bytes = stacked_bytes_[i] = outer_.bytes_of(v) / trips_;
        return bytes % 64 == 0 && reinterpret_cast<uintptr_t>(to) % 64 == 0 ? to : nullptr;
    }

    void set_inputs() {
        if (iteration_ > 0 && sizes_stay_)
            move_inputs();
        else
            set_all_inputs();
        for (size_t i = 0; i < stacked_.size(); ++i) {
            if (stacked_[i] == nullptr) continue;
            const int64_t at = loop_.scan_outputs[i].reverse ? trips_ - 1 - iteration_ : iteration_;
            body_.impl_->place(n_carried_ + i, stacked_[i] + at * stacked_bytes_[i]);
        }
    }

    /// The inputs that lie elsewhere than an iteration before, where all shapes are the same.
    void move_inputs() {
        size_t in = 1 + first_carried_;
        for (size_t i = 0; i < n_carried_; ++i) {
            body_.impl_->move_input(in++, aligned(state_.carried[i]));
            if (places_[i]) body_.impl_->place(first_carried_ + i, aligned(state_.next[i]));
        }
        for (size_t i = 0; i < loop_.scan_inputs.size(); ++i) body_.impl_->move_input(in++, slice_of(i));
    }

    void set_all_inputs() {
        static const Shape scalar_shape;
        size_t in = 0;
        body_.set_input(in++, &iteration_, scalar_shape);
        if (loop_.has_condition) body_.set_input(in++, &condition_, scalar_shape);
        for (size_t i = 0; i < n_carried_; ++i) {
            body_.set_input(in++, aligned(state_.carried[i]), state_.carried_shapes[i]);
            if (places_[i]) body_.impl_->place(first_carried_ + i, aligned(state_.next[i]));
        }
        for (size_t i = 0; i < loop_.scan_inputs.size(); ++i) set_scan_input(in++, i);
        for (const ValueId v : loop_.captures) body_.set_input(in++, outer_.slots[v].data, outer_.slots[v].shape);
    }

    void set_scan_input(size_t in, size_t i) {
        const Loop::ScanInput& scan = loop_.scan_inputs[i];
        Shape slice = outer_.slots[scan.value].shape;
        slice.erase(slice.begin() + scan.axis);
        slice_bytes_[i] =
            static_cast<size_t>(element_count(slice)) * byte_size(outer_.plan.program.values[scan.value].dtype);
        if (scan.axis != 0) grow(state_.slices[i], slice_bytes_[i] + 64);
        body_.set_input(in, slice_of(i), slice);
    }

    /// This iteration's slice of scan input `i`, in place where slices are contiguous.
    std::byte* slice_of(size_t i) {
        const Loop::ScanInput& scan = loop_.scan_inputs[i];
        const Slot& whole = outer_.slots[scan.value];
        const int64_t length = whole.shape[static_cast<size_t>(scan.axis)];
        const int64_t at = scan.reverse ? length - 1 - iteration_ : iteration_;
        auto* base = static_cast<std::byte*>(whole.data);
        if (scan.axis == 0) return base + static_cast<size_t>(at) * slice_bytes_[i];
        copy_slice(outer_.context, base, state_.slices[i].data(), whole.shape, scan.axis, at,
                   byte_size(outer_.plan.program.values[scan.value].dtype), true);
        return state_.slices[i].data();
    }

    void take_outputs() {
        size_t out = 0;
        if (loop_.has_condition) condition_ = *static_cast<const uint8_t*>(body_.output(out++).data);
        for (size_t i = 0; i < n_carried_; ++i) {
            const TensorView v = body_.output(out++);
            if (places_[i])
                std::swap(state_.carried[i], state_.next[i]);
            else
                assign(state_.carried[i], v.data, bytes_of_view(v));
            if (!sizes_stay_ || iteration_ == 0) state_.carried_shapes[i].assign(v.shape.begin(), v.shape.end());
        }
        for (size_t i = 0; i < loop_.scan_outputs.size(); ++i, ++out)
            if (stacked_[i] == nullptr) collect_slice(i, body_.output(out));
    }

    void collect_slice(size_t i, const TensorView& v) {
        const size_t bytes = bytes_of_view(v);
        // With a known trip count, memory for all slices is reserved at once: too many fail here, not hours later.
        const bool counted = iteration_ == 0 && !loop_.has_condition;
        size_t needed = collected_bytes_[i] + bytes;
        if (counted && __builtin_mul_overflow(bytes, static_cast<size_t>(trips_), &needed)) needed = kMostBytes;
        grow(state_.collected[i], std::min<size_t>(needed, kMostBytes) + 64);
        outer_.context.copy(state_.collected[i].data() + collected_bytes_[i], v.data, bytes);
        collected_bytes_[i] += bytes;
        state_.collected_shapes[i].assign(v.shape.begin(), v.shape.end());
    }

    void finish_carried() {
        for (size_t i = 0; i < n_carried_; ++i) {
            const ValueId v = primitive_.outputs[i];
            void* to = outer_.place_output(id_, v, state_.carried_shapes[i]);
            outer_.context.copy(to, aligned(state_.carried[i]), static_cast<size_t>(outer_.bytes_of(v)));
        }
    }

    void finish_collected() {
        const Program& body = body_.impl_->plan.program;
        for (size_t i = 0; i < loop_.scan_outputs.size(); ++i) {
            if (stacked_[i] != nullptr) continue;
            const Loop::ScanOutput& scan = loop_.scan_outputs[i];
            const ValueId v = primitive_.outputs[n_carried_ + i];
            Shape slice = state_.collected_shapes[i];
            if (iteration_ == 0) {  // the slice's shape as the body declares it
                slice.clear();
                for (const Expr& d : body.values[body.outputs[first_carried_ + n_carried_ + i]].shape)
                    slice.push_back(outer_.is_early(d) ? outer_.context.names->evaluate(d) : 0);
            }
            Shape whole = slice;
            whole.insert(whole.begin() + scan.axis, iteration_);
            auto* to = static_cast<std::byte*>(outer_.place_output(id_, v, whole));
            const size_t element = byte_size(outer_.plan.program.values[v].dtype);
            const size_t bytes = static_cast<size_t>(element_count(slice)) * element;
            for (int64_t t = 0; t < iteration_; ++t)
                copy_slice(outer_.context, to, state_.collected[i].data() + static_cast<size_t>(t) * bytes, whole,
                           scan.axis, scan.reverse ? iteration_ - 1 - t : t, element, false);
        }
    }

    void grow(std::vector<std::byte>& storage, size_t bytes) {
        outer_.context.memory->grow(storage, bytes, [this] {
            return fmt::format("loop '{}', after {} iterations,", primitive_.name, iteration_);
        });
    }
    void assign(std::vector<std::byte>& storage, const void* data, size_t bytes) {
        grow(storage, bytes + 128);
        outer_.context.copy(aligned(storage), data, bytes);
    }

    Impl& outer_;
    const PrimitiveId id_;
    const Loop& loop_;
    StepState& state_;
    Executor& body_;
    const Primitive& primitive_;
    const size_t n_carried_, first_carried_;
    std::vector<bool> places_;         ///< the body writes the carried value into storage that is then swapped in
    std::vector<std::byte*> stacked_;  ///< per scan output; null: it is collected slice by slice
    std::vector<size_t> collected_bytes_, slice_bytes_;
    std::vector<int64_t> stacked_bytes_;  ///< of a slice
    const bool sizes_stay_ = body_.impl_->sizes_stay();
    int64_t iteration_ = 0, trips_ = INT64_MAX;
    uint8_t condition_ = 1;
};

void Executor::Impl::run_loop(PrimitiveId id, const Loop& loop, StepState& state) {
    LoopRun(*this, id, loop, state).run();
}

}  // namespace tilewright
