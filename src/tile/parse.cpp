// Reads the text of tile programs.
//
//     tile product {
//     stages {
//     program ... { ... }                       as program/parse.cpp reads it
//     }
//     axes m="512" n="768" k="3072"
//     stage 0 over [m n k]
//     buffer c layout "reorder(1, 0)"
//     near a
//     parallel m by 96 {
//       load 0 access 1 layout "split(1, 32)" padding local
//       for k by 64 {
//         compute 0 vector n lanes 16 registers [m=12 n=32] order [n m k] vthreads [m=2] padding partition
//       }
//       store c padding local
//     }
//     }
//
// An online maximum is "compute 0 online ...", a product on matrix instructions "compute 0 matrix f16 [m n k] ..."
// (behind the vector), on those of four warps "matrix f16 group [m n k]", a pipelined loop "for k by 32 stages 3 {", a
// copy whose rows are swizzled "load 0 access 1 layout "..." swizzle 128 padding local".
//
// Annotations (tile/annotations.h) follow the padding, in this order, each of them optional; `prefetch` and `tail` may
// be repeated:
//
//     accumulators 4 in_flight 8       scale_hoisted 12 in_flight 8
//     sum unrolled                     epilogue_loop [m] vectors 16 steps 4
//     non_temporal above 33554432      (or always, never; behind a store's padding as well)
//     prefetch 1 panel bytes 8192 results 8      (or task, rows, window, map, epilogue; prefetch never)
//     left streamed                    (or kept)
//     partial_sums late                (or early)
//     tail m [1 2 3 4 5 6 8 12] shift border 2   cut [m n]
//
// and of a GPU, `copy` of a load or a store:
//
//     unroll [k=8]    read 0 by 4    read 1 by fragments    read 2 in place    write by 4    products overlapped
//     copy [0 1] by 4 async     (a load's numbers of its buffer's dimensions, a store's names of axes; copy by boxes)
//
// Lines that begin with '#' are comments.

#include <algorithm>

#include "base/error.h"
#include "program/text.h"
#include "tile/tile.h"

namespace tilewright {

namespace {

constexpr int kMostNestedLoops = 200;

class Parser {
  public:
    explicit Parser(std::string_view text) : whole_(text), text_(text, "tile program text") {}

    TileProgram all() {
        text_.expect_word("tile");
        p_.name = text_.name();
        text_.expect("{");
        stages();
        axes();
        p_.stage_axes = IndexVector<PrimitiveId, std::vector<size_t>>(p_.stages.primitives.size());
        for (const PrimitiveId s : p_.stages.primitives.ids()) stage_axes(s);
        while (text_.eat_word("buffer")) {
            const ValueId v = value();
            p_.buffer_layouts[v] = layout();
        }
        while (text_.eat_word("near")) p_.near.insert(value());
        p_.body = statements(0);
        if (!text_.at_end()) text_.fail_expected("the end of the text");
        return std::move(p_);
    }

  private:
    void stages() {
        text_.expect_word("stages");
        text_.expect("{");
        text_.at_end();  // to the first token
        const size_t begin = text_.position(), end = end_of_block(begin);
        // The lines before it, empty, so that errors name the line of this text.
        std::string program(
            static_cast<size_t>(std::count(whole_.begin(), whole_.begin() + static_cast<long>(begin), '\n')), '\n');
        program += whole_.substr(begin, end - begin);
        p_.stages = parse_program(program);
        text_.rewind(end);
        text_.expect("}");
        for (const ValueId v : p_.stages.values.ids()) values_[p_.stages.values[v].name] = v;
    }

    /// Behind the brace that closes the first one from `at` on; braces in quoted names do not count.
    size_t end_of_block(size_t at) {
        int depth = 0;
        bool quoted = false;
        for (; at < whole_.size(); ++at) {
            const char c = whole_[at];
            if (quoted) {
                if (c == '\\') ++at;
                if (c == '"') quoted = false;
            } else if (c == '"') {
                quoted = true;
            } else if (c == '{') {
                ++depth;
            } else if (c == '}' && --depth == 0) {
                return at + 1;
            }
        }
        text_.fail("the program of the stages does not end");
    }

    void axes() {
        text_.expect_word("axes");
        while (text_.peek_word() != "stage") {
            TileAxis a;
            a.name = text_.name();
            text_.expect("=");
            const std::string extent = text_.name();
            try {
                a.extent = parse_expr(extent);
            } catch (const ModelError& e) {
                text_.fail(e.what());
            }
            if (!axes_.emplace(a.name, p_.axes.size()).second)
                text_.fail(fmt::format("axis {} is given twice", a.name));
            p_.axes.push_back(std::move(a));
        }
    }

    size_t axis_number() {
        const size_t start = text_.position();
        const std::string name = text_.name();
        const auto it = axes_.find(name);
        if (it != axes_.end()) return it->second;
        text_.rewind(start);
        text_.at_end();
        text_.fail(fmt::format("there is no axis {}", name));
    }

    /// Which axis of the stage a kernel axis is.
    size_t axis_of(PrimitiveId s) {
        const size_t start = text_.position();
        const size_t a = axis_number();
        const std::vector<size_t>& axes = p_.stage_axes[s];
        const auto it = std::find(axes.begin(), axes.end(), a);
        if (it != axes.end()) return static_cast<size_t>(it - axes.begin());
        text_.rewind(start);
        text_.at_end();
        text_.fail(fmt::format("stage {} has no axis {}", s.value, p_.axes[a].name));
    }

    void stage_axes(PrimitiveId s) {
        text_.expect_word("stage");
        if (stage() != s) text_.fail(fmt::format("the axes of stage {} are expected here", s.value));
        text_.expect_word("over");
        text_.expect("[");
        while (!text_.eat("]")) p_.stage_axes[s].push_back(axis_number());
        if (p_.stage_axes[s].size() != p_.stages.primitives[s].expr()->extents.size())
            text_.fail(fmt::format("stage {} has {} axes", s.value, p_.stages.primitives[s].expr()->extents.size()));
    }

    ValueId value() {
        const size_t start = text_.position();
        const std::string name = text_.name();
        const auto it = values_.find(name);
        if (it != values_.end()) return it->second;
        text_.rewind(start);
        text_.at_end();
        text_.fail(fmt::format("there is no value '{}'", name));
    }

    PrimitiveId stage() {
        const int64_t n = text_.integer();
        if (n < 0 || n >= static_cast<int64_t>(p_.stages.primitives.size()))
            text_.fail(fmt::format("there is no stage {}", n));
        const PrimitiveId s(static_cast<size_t>(n));
        if (p_.stages.primitives[s].expr() == nullptr)
            text_.fail(fmt::format("stage {} is not a tensor expression", n));
        return s;
    }

    Layout layout() {
        text_.expect_word("layout");
        const std::string text = text_.name();
        try {
            return parse_layout(text);
        } catch (const ModelError& e) {
            text_.fail(e.what());
        }
    }

    Padding padding() {
        text_.expect_word("padding");
        for (const Padding p : {Padding::Local, Padding::Partition, Padding::Global})
            if (text_.eat_word(to_string(p))) return p;
        text_.fail_expected("local, partition or global");
    }

    /// Up to the closing brace.
    std::vector<Stmt> statements(int depth) {
        if (depth > kMostNestedLoops) text_.fail("loops nested this deep");
        std::vector<Stmt> body;
        while (!text_.eat("}")) {
            Stmt s;
            if (text_.peek_word() == "for" || text_.peek_word() == "parallel") {
                TileLoop loop;
                loop.parallel = text_.eat_word("parallel");
                if (!loop.parallel) text_.expect_word("for");
                loop.axis = axis_number();
                text_.expect_word("by");
                loop.step = text_.integer();
                if (text_.eat_word("stages"))
                    loop.stages = static_cast<int>(std::clamp<int64_t>(text_.integer(), 0, 1000));
                text_.expect("{");
                loop.body = statements(depth + 1);
                s.kind = std::move(loop);
            } else if (text_.eat_word("load")) {
                Load load;
                load.stage = stage();
                text_.expect_word("access");
                const int64_t access = text_.integer();
                if (access < 0) text_.fail_expected("the number of an access");
                load.access = static_cast<size_t>(access);
                load.layout = layout();
                if (text_.eat_word("swizzle"))
                    load.swizzle = static_cast<int>(std::clamp<int64_t>(text_.integer(), 0, 1000));
                load.padding = padding();
                if (text_.eat_word("copy"))
                    load.copy = block_copy([&] {
                        const int64_t d = text_.integer();
                        if (d < 0) text_.fail_expected("the number of a dimension");
                        return static_cast<size_t>(d);
                    });
                s.kind = std::move(load);
            } else if (text_.eat_word("compute")) {
                s.kind = compute();
            } else if (text_.eat_word("store")) {
                Store store;
                store.value = value();
                store.padding = padding();
                if (text_.eat_word("non_temporal")) store.non_temporal = non_temporal();
                if (text_.eat_word("copy")) {
                    const PrimitiveId from = p_.stages.producers()[store.value];
                    if (!from) text_.fail("a value that no stage computes is not copied");
                    store.copy = block_copy([&] { return axis_of(from); });
                }
                s.kind = store;
            } else {
                text_.fail_expected("for, parallel, load, compute, store or '}'");
            }
            body.push_back(std::move(s));
        }
        return body;
    }

    Compute compute() {
        Compute c;
        c.stage = stage();
        const size_t n = p_.stage_axes[c.stage].size();
        Micro& m = c.micro;
        m.registers.assign(n, 1);
        m.virtual_threads.assign(n, 1);
        c.online = text_.eat_word("online");
        if (text_.eat_word("vector")) {
            m.vector_axis = axis_of(c.stage);
            text_.expect_word("lanes");
            m.lanes = text_.integer();
        }
        if (text_.eat_word("matrix")) m.matrix = matrix(c.stage);
        if (text_.eat_word("registers")) numbers(c.stage, m.registers);
        if (text_.eat_word("order")) {
            text_.expect("[");
            while (!text_.eat("]")) m.order.push_back(axis_of(c.stage));
        }
        if (text_.eat_word("vthreads")) numbers(c.stage, m.virtual_threads);
        m.padding = padding();
        annotations(c);
        return c;
    }

    void annotations(Compute& c) {
        Annotations& a = c.micro.annotations;
        if (text_.eat_word("accumulators")) {
            a.accumulators.emplace();
            a.accumulators->most = text_.integer();
            if (text_.eat_word("in_flight")) a.accumulators->in_flight = text_.integer();
        }
        if (text_.eat_word("scale_hoisted")) {
            a.hoist_scale.emplace();
            a.hoist_scale->vectors = text_.integer();
            if (text_.eat_word("in_flight")) a.hoist_scale->in_flight = text_.integer();
        }
        if (text_.eat_word("sum")) {
            a.unroll_sum = text_.eat_word("unrolled");
            if (!*a.unroll_sum) text_.expect_word("looped");
        }
        if (text_.eat_word("epilogue_loop")) {
            a.epilogue_loop.emplace();
            a.epilogue_loop->axes = axis_list(c.stage);
            if (text_.eat_word("vectors")) a.epilogue_loop->vectors = text_.integer();
            if (text_.eat_word("steps")) a.epilogue_loop->steps = text_.integer();
        }
        if (text_.eat_word("non_temporal")) a.non_temporal = non_temporal();
        while (text_.eat_word("prefetch")) {
            if (!a.prefetch) a.prefetch.emplace();
            if (!text_.eat_word("never")) a.prefetch->push_back(prefetch());
        }
        if (text_.eat_word("left")) {
            a.stream_left = text_.eat_word("streamed");
            if (!*a.stream_left) text_.expect_word("kept");
        }
        if (text_.eat_word("partial_sums")) {
            a.resume_late = text_.eat_word("late");
            if (!*a.resume_late) text_.expect_word("early");
        }
        while (text_.eat_word("tail")) {
            Tail& tail = a.tails.emplace_back();
            tail.axis = axis_of(c.stage);
            text_.expect("[");
            while (!text_.eat("]")) tail.sizes.push_back(text_.integer());
            tail.shift = text_.eat_word("shift");
            if (text_.eat_word("border")) tail.border = text_.integer();
        }
        if (text_.eat_word("cut")) a.cut = axis_list(c.stage);
        gpu_annotations(c);
    }

    void gpu_annotations(Compute& c) {
        Annotations& a = c.micro.annotations;
        if (text_.eat_word("unroll")) {
            a.unroll.emplace(p_.stage_axes[c.stage].size(), 1);
            numbers(c.stage, *a.unroll);
        }
        std::vector<OperandRead> reads;
        while (text_.eat_word("read")) reads.push_back(operand_read());
        if (!reads.empty() || text_.peek_word() == "write") {
            text_.expect_word("write");
            text_.expect_word("by");
            a.access = ThreadAccess{std::move(reads), text_.integer()};
        }
        if (text_.eat_word("products")) {
            a.overlap = text_.eat_word("overlapped");
            if (!*a.overlap) text_.expect_word("awaited");
        }
    }

    /// "0 by 4", "0 by fragments", "0 in place"
    OperandRead operand_read() {
        OperandRead r;
        const int64_t access = text_.integer();
        if (access < 0) text_.fail_expected("the number of an access");
        r.access = static_cast<size_t>(access);
        if (text_.eat_word("in")) {
            text_.expect_word("place");
            r.by = OperandRead::By::Place;
            return r;
        }
        text_.expect_word("by");
        if (text_.eat_word("fragments"))
            r.by = OperandRead::By::Fragments;
        else
            r.width = text_.integer();
        return r;
    }

    /// "[0 1] by 4 async", "by boxes"; `dimension` reads one of the order.
    template <class F>
    BlockCopy block_copy(const F& dimension) {
        BlockCopy c;
        if (text_.eat("["))
            while (!text_.eat("]")) c.order.push_back(dimension());
        text_.expect_word("by");
        if (text_.eat_word("boxes")) {
            c.by = BlockCopy::By::Boxes;
            return c;
        }
        c.width = text_.integer();
        if (text_.eat_word("async")) c.by = BlockCopy::By::Async;
        return c;
    }

    NonTemporal non_temporal() {
        if (text_.eat_word("never")) return kNonTemporalNever;
        if (text_.eat_word("always")) return kNonTemporalAlways;
        if (!text_.eat_word("above")) text_.fail_expected("never, always or above");
        return text_.integer();
    }

    /// "0 panel bytes 8192 results 8"
    Prefetch prefetch() {
        Prefetch p;
        const int64_t access = text_.integer();
        if (access < 0) text_.fail_expected("the number of an access");
        p.access = static_cast<size_t>(access);
        bool known = false;
        for (const PrefetchKind kind :
             {PrefetchKind::Task, PrefetchKind::Panel, PrefetchKind::Rows, PrefetchKind::Window, PrefetchKind::Map,
              PrefetchKind::Epilogue, PrefetchKind::Next})
            if (!known && text_.eat_word(to_string(kind))) {
                p.kind = kind;
                known = true;
            }
        if (!known) text_.fail_expected("task, panel, rows, window, map or epilogue");
        text_.expect_word("bytes");
        p.bytes = text_.integer();
        if (text_.eat_word("results")) p.results = text_.integer();
        return p;
    }

    /// "[m n]"
    std::vector<size_t> axis_list(PrimitiveId s) {
        std::vector<size_t> axes;
        text_.expect("[");
        while (!text_.eat("]")) axes.push_back(axis_of(s));
        return axes;
    }

    /// "f16 [m n k]", "f16 group [m n k]", "bf16 tile [m n k]", "bf16 dot [m n k]", "i8 dot [m n k]"
    MatrixUnit matrix(PrimitiveId s) {
        MatrixUnit unit;
        bool known = false;
        for (const MatrixType t : {MatrixType::TF32, MatrixType::F16, MatrixType::BF16, MatrixType::I8})
            if (!known && text_.eat_word(to_string(t))) {
                unit.type = t;
                known = true;
            }
        if (!known) text_.fail_expected("tf32, f16, bf16 or i8");
        for (const MatrixForm form : {MatrixForm::Group, MatrixForm::Tile, MatrixForm::Dot})
            if (unit.form == MatrixForm::Warp && text_.eat_word(to_string(form))) unit.form = form;
        text_.expect("[");
        unit.rows = axis_of(s);
        unit.columns = axis_of(s);
        unit.sum = axis_of(s);
        text_.expect("]");
        return unit;
    }

    /// "[m=12 n=32]"
    void numbers(PrimitiveId s, std::vector<int64_t>& out) {
        text_.expect("[");
        while (!text_.eat("]")) {
            const size_t a = axis_of(s);
            text_.expect("=");
            out[a] = text_.integer();
        }
    }

    std::string_view whole_;
    TextCursor text_;
    TileProgram p_;
    std::map<std::string, size_t, std::less<>> axes_;
    std::map<std::string, ValueId, std::less<>> values_;
};

}  // namespace

TileProgram parse_tile_program(std::string_view text) { return Parser(text).all(); }

}  // namespace tilewright
