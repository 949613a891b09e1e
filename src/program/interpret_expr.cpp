// One tensor expression on given operands.
//
// Points are evaluated in runs along one axis, the lane axis, node by node of the body over columns of numbers. The
// output is made row by row: a row is a run of the row axis (a spatial one); where the lane axis is a reduction axis,
// each element of the row is reduced by itself, and the epilogue then runs over the row.

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "program/interpret_frame.h"
#include "program/program.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

using namespace interp;

/// Makes rows of the output; one per thread.
class RowRunner {
  public:
    RowRunner(const Plan& plan, const Frame& body, const Frame* epilogue, const Frame& output, Tensor& out)
        : plan_(plan),
          out_(out),
          axes_(plan.extents.size(), 0),
          body_frame_(body),
          body_(plan, body, axes_),
          output_(plan, output, axes_),
          dtype_((epilogue != nullptr ? epilogue->body : body.body)->dtype()),
          columns_(1) {
        if (epilogue != nullptr) epilogue_.emplace(plan, *epilogue, axes_);
        for (size_t k = plan.spatial; k < plan.extents.size(); ++k)
            if (k != plan.lane_axis) inner_.push_back(k);
    }

    /// Rows are numbered row-major over the spatial axes other than the row axis, then over runs of kLanes in it.
    void run(int64_t row) {
        const int64_t extent = plan_.extents[plan_.row_axis];
        const int64_t runs = (extent + kLanes - 1) / kLanes;
        const int64_t first = row % runs * kLanes;
        int64_t rest = row / runs;
        for (size_t k = plan_.spatial; k-- > 0;) {
            if (k == plan_.row_axis) continue;
            axes_[k] = rest % plan_.extents[k];
            rest /= plan_.extents[k];
        }
        const int64_t n = std::min(kLanes, extent - first);
        axes_[plan_.row_axis] = first;
        Column result = columns_[0];
        if (plan_.reducer == Reducer::None) {
            result = body_.run(n);
        } else {
            reduce_row(result, first, n);
            axes_[plan_.row_axis] = first;
            wrap_lanes(body_frame_.body->dtype(), result, n);
        }
        if (epilogue_) {
            std::copy_n(static_cast<const std::byte*>(result.data), n * 8,
                        static_cast<std::byte*>(epilogue_->acc().data));
            result = epilogue_->run(n);
        }
        output_.write(out_, result, dtype_, n);
    }

  private:
    void reduce_row(Column acc, int64_t first, int64_t n) {
        const DType t = body_frame_.body->dtype();
        const ScalarValue identity = reducer_identity(plan_.reducer, t);
        fill_lanes(t, identity, acc, 0, n);
        for (size_t k = plan_.spatial; k < plan_.extents.size(); ++k)
            if (plan_.extents[k] == 0) return;
        const bool products = body_frame_.products && plan_.reducer == Reducer::Sum;
        if (plan_.lane_axis == plan_.row_axis) {
            for_each_reduction([&] {
                if (products)
                    body_.run_products(acc.f(), n, false);
                else
                    reduce_lanes(plan_.reducer, t, acc, body_.run(n), n);
            });
            return;
        }
        const int64_t length = plan_.extents[plan_.lane_axis];
        for (int64_t s = 0; s < n; ++s) {
            axes_[plan_.row_axis] = first + s;
            ScalarValue sum = identity;
            for_each_reduction([&] {
                for (int64_t r = 0; r < length; r += kLanes) {
                    axes_[plan_.lane_axis] = r;
                    const int64_t lanes = std::min(kLanes, length - r);
                    if (products)
                        body_.run_products(&sum.f, lanes, true);
                    else
                        sum = reduce_run(plan_.reducer, t, sum, body_.run(lanes), lanes);
                }
            });
            fill_lanes(t, sum, acc, s, s + 1);
        }
    }

    /// Every point of the reduction axes other than the lane axis.
    template <class F>
    void for_each_reduction(const F& f) {
        for (const size_t k : inner_) axes_[k] = 0;
        while (true) {
            f();
            size_t position = inner_.size();
            while (position > 0) {
                const size_t k = inner_[position - 1];
                if (++axes_[k] < plan_.extents[k]) break;
                axes_[k] = 0;
                --position;
            }
            if (position == 0) return;
        }
    }

    const Plan& plan_;
    Tensor& out_;
    std::vector<int64_t> axes_;
    const Frame& body_frame_;
    FrameRunner body_;
    FrameRunner output_;
    DType dtype_;
    std::optional<FrameRunner> epilogue_;
    ColumnStore columns_;
    std::vector<size_t> inner_;
};

/// Calls body(worker state's next task) for tasks 0..count-1 on as many threads as `work` (in steps of a few
/// nanoseconds) is worth. The first exception is rethrown here.
template <class MakeWorker>
void run_tasks(int64_t count, double work, const MakeWorker& make_worker) {
    static const int usable = usable_cpu_count();
    const int64_t threads = std::min<int64_t>({usable, count, static_cast<int64_t>(work / 2e5) + 1, 16});
    std::atomic<int64_t> next{0};
    std::exception_ptr error;
    std::mutex mutex;
    const auto body = [&] {
        try {
            auto worker = make_worker();
            for (int64_t t = next++; t < count; t = next++) worker.run(t);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::current_exception();
            next = count;
        }
    };
    std::vector<std::jthread> others;
    for (int64_t t = 1; t < threads; ++t) others.emplace_back(body);
    body();
    others.clear();  // joins
    if (error) std::rethrow_exception(error);
}

}  // namespace

Tensor interpret(const TensorExpr& expr, std::span<const Tensor> operands, DType out,
                 std::span<const int64_t> out_shape, const Bindings& bindings, const InterpretOptions& options) {
    TW_CHECK(operands.size() == expr.accesses.size(), "{} operands for {} accesses", operands.size(),
             expr.accesses.size());
    const bool keep_double = options.exact && out == DType::F32;
    Tensor result(keep_double ? DType::F64 : out, Shape(out_shape.begin(), out_shape.end()));

    const Shape extents = evaluate(expr.extents, bindings);
    int64_t spatial_points = 1;
    for (size_t k = 0; k < expr.spatial; ++k) spatial_points *= extents[k];
    TW_CHECK(spatial_points == result.count(), "{} points write an output of shape {}", spatial_points,
             to_string(out_shape));
    if (spatial_points == 0) return result;
    const ScalarBody& last = expr.epilogue.empty() ? expr.body : expr.epilogue;
    TW_CHECK(is_float(last.dtype()) == is_float(out), "a body of type {} writes {}", to_string(last.dtype()),
             to_string(out));

    const Plan plan = make_plan(expr, operands, extents, result, bindings);
    const Frame body = make_frame(plan, expr.body, plan.body_index, plan.lane_axis);
    std::optional<Frame> epilogue;
    if (plan.epilogue != nullptr) epilogue = make_frame(plan, expr.epilogue, plan.epilogue_index, plan.row_axis);
    ScalarBody write;
    write.set_root(write.access(plan.output(), out));
    const Frame output = make_frame(plan, write, {}, plan.row_axis);

    double work = static_cast<double>(body.steps.size() + 1);
    for (const int64_t e : plan.extents) work *= static_cast<double>(std::max<int64_t>(e, 1));
    const int64_t row_extent = plan.extents[plan.row_axis];
    const int64_t rows = spatial_points / row_extent * ((row_extent + kLanes - 1) / kLanes);
    run_tasks(rows, work, [&] { return RowRunner(plan, body, epilogue ? &*epilogue : nullptr, output, result); });
    return result;
}

}  // namespace tilewright
