// Evaluates one tensor expression on given operands.
//
// Points are evaluated in runs along one axis, the lane axis, node by node of the body over columns of numbers. The
// output is computed row by row: a row is a run of the row axis (a spatial one). If the lane axis is a reduction axis,
// each element of the row is reduced separately, and the epilogue then runs over the row.

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

/// Rows that a block of products computes together.
constexpr int64_t kBlockRows = 8;

/// State shared by the rows of one expression.
struct Rows {
    const Plan& plan;
    Frame body, output;
    std::optional<Frame> epilogue;
    std::optional<ProductBlock> block;

    /// Rows are numbered row-major over the spatial axes other than the row axis (in steps of kBlockRows along a
    /// block's axis), then over runs of kLanes in it.
    int64_t step(size_t axis) const {
        if (axis == plan.row_axis) return kLanes;
        return block && block->axis == axis ? kBlockRows : 1;
    }
    int64_t steps(size_t axis) const { return (plan.extents[axis] + step(axis) - 1) / step(axis); }
    int64_t count() const {
        int64_t n = 1;
        for (size_t k = 0; k < plan.spatial; ++k) n *= steps(k);
        return n;
    }
};

/// Computes rows of the output; one per thread.
class RowRunner {
  public:
    RowRunner(const Rows& rows, Tensor& out)
        : rows_(rows),
          plan_(rows.plan),
          out_(out),
          axes_(plan_.extents.size(), 0),
          body_(plan_, rows.body, axes_),
          output_(plan_, rows.output, axes_),
          dtype_((rows.epilogue ? rows.epilogue->body : rows.body.body)->dtype()),
          store_(static_cast<size_t>(kBlockRows)) {
        if (rows.epilogue) epilogue_.emplace(plan_, *rows.epilogue, axes_);
        for (size_t k = 0; k < static_cast<size_t>(kBlockRows); ++k) columns_.push_back(store_[k]);
        for (size_t k = plan_.spatial; k < plan_.extents.size(); ++k)
            if (k != plan_.lane_axis) inner_.push_back(k);
    }

    void run(int64_t number) {
        int64_t rest = number / rows_.steps(plan_.row_axis);
        for (size_t k = plan_.spatial; k-- > 0;) {
            if (k == plan_.row_axis) continue;
            axes_[k] = rest % rows_.steps(k) * rows_.step(k);
            rest /= rows_.steps(k);
        }
        const int64_t first = number % rows_.steps(plan_.row_axis) * kLanes;
        const int64_t n = std::min(kLanes, plan_.extents[plan_.row_axis] - first);
        axes_[plan_.row_axis] = first;
        if (plan_.reducer == Reducer::None) {
            finish(body_.run(n), n);
        } else if (rows_.block) {
            reduce_block(n);
        } else {
            reduce_row(columns_[0], first, n);
            axes_[plan_.row_axis] = first;
            wrap_lanes(plan_.body->dtype(), columns_[0], n);
            finish(columns_[0], n);
        }
    }

  private:
    void finish(Column result, int64_t n) {
        if (epilogue_) {
            std::copy_n(static_cast<const std::byte*>(result.data), n * 8,
                        static_cast<std::byte*>(epilogue_->acc().data));
            result = epilogue_->run(n);
        }
        output_.write(out_, result, dtype_, n);
    }

    void reduce_block(int64_t n) {
        int64_t& at = axes_[rows_.block->axis];
        const int64_t first = at;
        const auto rows = static_cast<size_t>(std::min(kBlockRows, plan_.extents[rows_.block->axis] - first));
        const std::span<const Column> acc = std::span(columns_).first(rows);
        for (const Column& c : acc) fill_lanes(plan_.body->dtype(), {}, c, 0, n);
        if (!empty_reduction()) for_each_reduction([&] { body_.run_products(*rows_.block, acc, n); });
        for (size_t t = 0; t < rows; ++t) {
            at = first + static_cast<int64_t>(t);
            finish(acc[t], n);
        }
    }

    bool empty_reduction() const {
        return std::any_of(plan_.extents.begin() + static_cast<std::ptrdiff_t>(plan_.spatial), plan_.extents.end(),
                           [](int64_t e) { return e == 0; });
    }

    void reduce_row(Column acc, int64_t first, int64_t n) {
        const DType t = plan_.body->dtype();
        const ScalarValue identity = reducer_identity(plan_.reducer, t);
        fill_lanes(t, identity, acc, 0, n);
        if (empty_reduction()) return;
        const bool products = rows_.body.products && plan_.reducer == Reducer::Sum;
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

    /// Iterates over the reduction axes other than the lane axis.
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

    const Rows& rows_;
    const Plan& plan_;
    Tensor& out_;
    std::vector<int64_t> axes_;
    FrameRunner body_, output_;
    std::optional<FrameRunner> epilogue_;
    DType dtype_;
    ColumnStore store_;
    std::vector<Column> columns_;
    std::vector<size_t> inner_;
};

/// Calls body(worker state's next task) for tasks 0..count-1 on a number of threads that suits `work` (in units of a
/// few nanoseconds). The first exception is rethrown here.
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
    ScalarBody write;
    write.set_root(write.access(plan.output(), out));
    Rows rows{plan, make_frame(plan, expr.body, plan.body_index, plan.lane_axis),
              make_frame(plan, write, {}, plan.row_axis), std::nullopt, std::nullopt};
    if (plan.epilogue != nullptr) rows.epilogue = make_frame(plan, expr.epilogue, plan.epilogue_index, plan.row_axis);
    if (plan.reducer == Reducer::Sum) rows.block = product_block(plan, rows.body);

    double work = static_cast<double>(rows.body.steps.size() + 1);
    for (const int64_t e : plan.extents) work *= static_cast<double>(std::max<int64_t>(e, 1));
    run_tasks(rows.count(), work, [&] { return RowRunner(rows, result); });
    return result;
}

}  // namespace tilewright
