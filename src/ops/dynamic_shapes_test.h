#pragma once
// Operators whose operands have distinct dynamic dimensions, so that mismatches are detected only at run time.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ops/rule_test.h"

namespace tilewright::test {

/// A model, input shapes that do not fit each other, and shapes that do.
struct OpenCase {
    std::string name;
    std::vector<In> inputs;
    std::vector<Node> nodes;
    std::vector<Shape> misfit, fitting;
    std::string says;  ///< in the message: the two dimensions
    Model model() const { return test::model(graph(inputs, nodes, {"y"})); }
};

inline In open(std::string name, const std::vector<std::string>& dims, DType dtype = DType::F32) {
    return {std::move(name), dtype, std::vector<DeclaredDim>(dims.begin(), dims.end())};
}

/// One operator of inputs a, b, ... to y.
inline OpenCase open_case(std::string name, const std::string& op, std::vector<In> inputs, std::vector<Shape> misfit,
                          std::vector<Shape> fitting, std::string says,
                          std::map<std::string, Attribute> attributes = {}) {
    std::vector<std::string> names;
    for (const In& in : inputs) names.push_back(in.name);
    return {std::move(name),   std::move(inputs),  {node(op, names, {"y"}, std::move(attributes))},
            std::move(misfit), std::move(fitting), std::move(says)};
}

inline std::vector<OpenCase> open_cases() {
    std::vector<OpenCase> out;
    const In a = open("a", {"N", "K"}), b = open("b", {"L", "M"}), line = open("a", {"N"}), other = open("b", {"L"});
    out.push_back(open_case("MatMul", "MatMul", {a, b}, {{2, 3}, {4, 5}}, {{2, 3}, {3, 5}},
                            "node 'MatMul0' (MatMul, opset 17): dimensions K = 3 and L = 4 differ"));
    out.push_back(open_case("MatMul of batches", "MatMul", {open("a", {"P", "N", "K"}), open("b", {"Q", "K", "M"})},
                            {{2, 3, 4}, {3, 4, 5}}, {{2, 3, 4}, {1, 4, 5}}, "P = 2 and Q = 3 do not broadcast"));
    out.push_back(open_case("Concat", "Concat", {a, b}, {{2, 3}, {4, 5}}, {{2, 3}, {4, 3}}, "K = 3 and M = 5 differ",
                            {{"axis", int64_t{0}}}));
    out.push_back({"Where",
                   {line, other},
                   {node("Greater", {"a", "b"}, {"g"}), node("Where", {"g", "a", "b"}, {"y"})},
                   {{2}, {4}},
                   {{5}, {1}},
                   "N = 2 and L = 4 do not broadcast"});
    out.push_back(open_case("Conv", "Conv", {open("a", {"N", "C", "H"}), {"b", DType::F32, {"O", "D", 3}}},
                            {{1, 3, 8}, {4, 2, 3}}, {{1, 2, 8}, {4, 2, 3}}, "channels C = 3 and D = 2 differ"));
    out.push_back(open_case("Gemm", "Gemm", {a, b}, {{2, 3}, {4, 5}}, {{2, 4}, {4, 5}}, "K = 3 and L = 4 differ"));
    out.push_back(open_case("Gemm's C", "Gemm", {a, b, open("c", {"X"})}, {{2, 3}, {3, 5}, {4}}, {{2, 3}, {3, 5}, {1}},
                            "X = 4 and M = 5 do not broadcast"));
    out.push_back(
        open_case("BatchNormalization", "BatchNormalization",
                  {open("a", {"N", "C"}), open("b", {"D"}), open("c", {"D"}), open("d", {"D"}), open("e", {"D"})},
                  {{2, 3}, {4}, {4}, {4}, {4}}, {{2, 4}, {4}, {4}, {4}, {4}}, "channels D = 4 and C = 3 differ"));
    out.push_back(open_case("Sum", "Sum", {line, other, open("c", {"M"})}, {{2}, {1}, {3}}, {{1}, {3}, {3}},
                            "max(L, N) = 2 and M = 3 do not broadcast"));
    out.push_back(open_case("Einsum", "Einsum", {a, b}, {{2, 3}, {4, 5}}, {{2, 4}, {4, 5}}, "K = 3 and L = 4 differ",
                            {{"equation", std::string("ij,jk->ik")}}));
    for (const std::string op : {"Expand", "Reshape"})
        out.push_back({op,
                       {line, other},
                       {node("Shape", {"b"}, {"s"}), node(op, {"a", "s"}, {"y"})},
                       {{2}, {4}},
                       {{4}, {4}},
                       op == "Expand" ? "N = 2 and L = 4 do not broadcast" : "element counts N = 2 and L = 4 differ"});
    out.push_back(open_case("LayerNormalization", "LayerNormalization", {a, other}, {{2, 3}, {4}}, {{2, 3}, {3}},
                            "L = 4 and K = 3 do not broadcast"));
    out.push_back(open_case("GatherElements", "GatherElements", {a, open("b", {"L", "M"}, DType::I64)},
                            {{2, 3}, {2, 4}}, {{2, 3}, {5, 2}}, "K = 3 and M = 4 do not fit", {{"axis", int64_t{0}}}));
    out.push_back({"Gather of a known place",
                   {a},
                   {node("Constant", {}, {"i"}, {{"value", whole({1}, {4})}}), node("Gather", {"a", "i"}, {"y"})},
                   {{3, 2}},
                   {{5, 2}},
                   "N = 3 and 5 do not fit"});
    out.push_back(open_case("Squeeze", "Squeeze", {a}, {{2, 3}}, {{2, 1}}, "K = 3 and 1 differ"));
    out.back().nodes = {node("Constant", {}, {"i"}, {{"value", whole({1}, {1})}}), node("Squeeze", {"a", "i"}, {"y"})};
    return out;
}

/// A model whose last input contains a shape, values that do not fit the other inputs, and values that do.
struct SaidCase {
    std::string op;
    std::vector<In> inputs;
    std::vector<Tensor> fixed;  ///< all inputs except the last
    std::vector<int64_t> misfit, fitting;
    std::string says;
    Model model() const {
        std::vector<std::string> names;
        for (const In& in : inputs) names.push_back(in.name);
        return test::model(graph(inputs, {node(op, names, {"y"})}, {"y"}));
    }
    std::vector<Tensor> with(const std::vector<int64_t>& numbers) const {
        std::vector<Tensor> all = fixed;
        all.push_back(whole({static_cast<int64_t>(numbers.size())}, numbers));
        return all;
    }
};

inline std::vector<SaidCase> said_cases() {
    const std::vector<In> line = {open("a", {"N"}), {"s", DType::I64, {2}}};
    const std::vector<In> table = {open("a", {"N", "K"}), {"s", DType::I64, {2}}};
    const Tensor two(DType::F32, {2}), six(DType::F32, {2, 3});
    // 3 * 6148914691236517206 is 2^64 + 2, 2^32 * 2^32 is 2^64.
    const int64_t third = 6148914691236517206, root = int64_t{1} << 32;
    return {{"Reshape", line, {two}, {3, third}, {2, 1}, "overflows 64 bits"},
            {"Reshape", line, {Tensor(DType::F32, {0})}, {root, root}, {0, 1}, "overflows 64 bits"},
            {"Reshape", table, {six}, {-2, -3}, {3, -1}, "Reshape0"},
            {"Reshape", table, {six}, {4, 2}, {6, 1}, "element counts"},
            {"Expand", table, {six}, {-2, 3}, {2, 1}, "do not broadcast"},
            {"Expand", table, {six}, {2, 4}, {1, 1}, "do not broadcast"},
            {"Tile", table, {six}, {-1, 1}, {0, 1}, "-2"},
            {"ConstantOfShape", {{"s", DType::I64, {2}}}, {}, {2, -3}, {2, 3}, "-3"}};
}

/// Numbers between -4 and 4, integers of any sign.
inline std::vector<Tensor> open_inputs(const std::vector<In>& declared, const std::vector<Shape>& shapes) {
    std::vector<Tensor> out;
    for (size_t k = 0; k < shapes.size(); ++k) {
        Tensor t(declared[k].dtype, shapes[k]);
        for (int64_t i = 0; i < t.count(); ++i) {
            const int64_t v = (i * 7919 + static_cast<int64_t>(k) * 31) % 17 - 8;
            if (is_float(t.dtype()))
                t.set(i, static_cast<double>(v) / 2);
            else
                t.set(i, t.dtype() == DType::Bool ? v & 1 : v / 4);
        }
        out.push_back(std::move(t));
    }
    return out;
}

/// Draws a model of one operator followed by another, and sizes. Each dimension is dynamic with its own name, dynamic
/// with a shared name, or constant. Sizes usually fit, as far as names determine them.
class OpenDraw {
  public:
    explicit OpenDraw(uint64_t seed) : random_(seed) {
        write();
        std::vector<std::string> names;
        for (const In& in : inputs)
            for (const DeclaredDim& d : in.shape)
                if (const auto* name = std::get_if<std::string>(&d)) names.push_back(*name);
        const int64_t usual = pick(1, 4);
        std::map<std::string, int64_t> size;
        for (const std::string& n : names) size.try_emplace(n, one_in(3) ? pick(one_in(12) ? 0 : 1, 4) : usual);
        for (const In& in : inputs) {
            Shape s;
            for (const DeclaredDim& d : in.shape)
                s.push_back(std::holds_alternative<int64_t>(d) ? std::get<int64_t>(d)
                                                               : size.at(std::get<std::string>(d)));
            shapes.push_back(std::move(s));
        }
    }

    std::vector<In> inputs;
    std::vector<Node> nodes;
    std::vector<Shape> shapes;
    Model model() const { return test::model(graph(inputs, nodes, {"y"}, {}, 23), 23); }
    std::string describe() const {
        std::string s;
        for (const Node& n : nodes) s += n.op + " ";
        for (const Shape& shape : shapes) s += to_string(shape);
        return s;
    }

  private:
    int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
    bool one_in(int64_t n) { return pick(1, n) == 1; }

    DeclaredDim dim() {
        if (one_in(6)) return pick(1, 4);
        if (dims_ > 0 && one_in(3)) return "d" + std::to_string(pick(0, dims_ - 1));
        return "d" + std::to_string(dims_++);
    }
    std::string input(size_t rank, DType dtype = DType::F32) {
        In in{"x" + std::to_string(inputs.size()), dtype, {}};
        for (size_t k = 0; k < rank; ++k) in.shape.push_back(dim());
        inputs.push_back(in);
        return in.name;
    }
    std::string shaped(std::vector<DeclaredDim> shape, DType dtype = DType::F32) {
        inputs.push_back({"x" + std::to_string(inputs.size()), dtype, std::move(shape)});
        return inputs.back().name;
    }
    std::string add(const std::string& op, std::vector<std::string> in,
                    std::map<std::string, Attribute> attributes = {}) {
        const std::string name = "v" + std::to_string(nodes.size());
        nodes.push_back(node(op, std::move(in), {name}, std::move(attributes)));
        return name;
    }
    std::string numbers(const std::vector<int64_t>& v) {
        return add("Constant", {}, {{"value", whole({static_cast<int64_t>(v.size())}, v)}});
    }
    size_t rank(int64_t low = 1, int64_t high = 3) { return static_cast<size_t>(pick(low, high)); }

    std::string operation(const std::string& x, size_t r) {
        const auto axis = [&] { return Attribute(pick(0, static_cast<int64_t>(r) - 1)); };
        switch (pick(0, 24)) {
            case 0:
                return add("Add", {x, input(rank())});
            case 1:
                return add("Where", {input(rank(), DType::Bool), x, input(rank())});
            case 2:
                return add("Max", {x, input(rank()), input(rank())});
            case 3:
                return add("MatMul", {x, input(rank())});
            case 4:
                return add("Concat", {x, input(r), input(r)}, {{"axis", axis()}});
            case 5:
                return add("Expand", {x, add("Shape", {input(rank())})});
            case 6:
                return add("Reshape", {x, add("Shape", {input(rank())})});
            case 7:
                return add("Reshape", {x, numbers({-1, pick(1, 4)})});
            case 8:
                return r < 3 ? add("Gemm", {input(2), input(2), input(rank(1, 2))},
                                   {{"transA", pick(0, 1)}, {"transB", pick(0, 1)}})
                             : add("Conv", {x, shaped({dim(), dim(), pick(1, 3)}), input(1)}, {{"group", pick(1, 2)}});
            case 9:
                return add("LayerNormalization", {x, input(1), input(1)});
            case 10:
                return r < 2 ? add("Einsum", {x, input(1)}, {{"equation", std::string("i,i->i")}})
                             : add("Einsum", {input(2), input(2)},
                                   {{"equation", std::string(one_in(2) ? "ij,jk->ik" : "ij,ij->j")}});
            case 11:
                return add("GatherElements", {x, input(r, DType::I64)}, {{"axis", axis()}});
            case 12:
                return add("GatherND", {x, shaped({dim(), 1}, DType::I64)}, {{"batch_dims", r > 1 ? pick(0, 1) : 0}});
            case 13:
                return add("ScatterND", {x, shaped({dim(), 1}, DType::I64), input(r)});
            case 14:
                return add("Gather", {x, one_in(2) ? numbers({pick(-3, 3)}) : input(1, DType::I64)},
                           {{"axis", axis()}});
            case 15:
                return add("PRelu", {x, input(rank())});
            case 16:
                return r < 2 ? add("Tile", {x, numbers({pick(0, 3)})})
                             : add("ReverseSequence", {x, input(1, DType::I64)},
                                   {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}});
            case 17:
                return add("Squeeze", {x, numbers({pick(0, static_cast<int64_t>(r) - 1)})});
            case 18:
                return add("Slice", {x, numbers({pick(-4, 3)}), numbers({pick(-4, 5)}), numbers({0}),
                                     numbers({one_in(3) ? -1 : pick(1, 3)})});
            case 19:
                return add("Attention", {input(4), input(4), input(4), input(2)});
            case 20:
                return add(
                    "LSTM",
                    {input(3), shaped({1, 8, dim()}), shaped({1, 8, 2}), shaped({1, 16}), "", shaped({1, dim(), 2})},
                    {{"hidden_size", int64_t{2}}});
            case 21:
                return add("RotaryEmbedding", {input(4), input(3), input(3)});
            case 22:
                return r < 2 ? add("CumSum", {x, add("Constant", {}, {{"value", whole({}, {0})}})})
                             : add("BatchNormalization", {x, input(1), input(1), input(1), input(1)});
            case 23:
                return add("QuantizeLinear", {x, input(1)}, {{"axis", axis()}});
            default:
                return add("Pad", {x, numbers(std::vector<int64_t>(2 * r, pick(-1, 2)))},
                           {{"mode", std::string(one_in(2) ? "reflect" : "edge")}});
        }
    }

    void write() {
        const size_t r = rank();
        std::string v = operation(input(r), r);
        const bool real = nodes.back().op != "QuantizeLinear";
        if (real && one_in(2)) v = add("Mul", {v, input(rank())});
        nodes.back().outputs = {"y"};
    }

    std::mt19937_64 random_;
    int64_t dims_ = 0;
};

}  // namespace tilewright::test
