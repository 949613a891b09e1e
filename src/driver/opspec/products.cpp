// gemm, gemv, and chains of products.

#include <cmath>

#include "base/error.h"
#include "driver/opspec/kinds.h"
#include "driver/zoo/ops.h"

namespace tilewright::nets {

namespace {

Draw product_weights(int64_t k) { return {0, 1 / std::sqrt(static_cast<double>(k))}; }

/// Appends bias and activation if requested.
void finish(GraphBuilder& b, const OpSpec& s, Value y, const Ints& bias_shape) {
    if (s.flag("bias")) y = add(b, y, b.weight("bias", bias_shape, Draw{0, 0.1}));
    b.output(activate(b, y, s.text("act")), "out");
}

void build_gemm(GraphBuilder& b, const OpSpec& s) {
    const int64_t m = s.number("m"), n = s.number("n"), k = s.number("k"), batch = s.number("batch");
    const bool ta = s.flag("ta"), tb = s.flag("tb");
    Value x = batched_input(b, "a", batch, ta ? Ints{k, m} : Ints{m, k});
    if (ta) x = swap_last(b, x);
    const Ints shape = tb ? Ints{n, k} : Ints{k, n};
    Value w = s.text("weights") == "constant" ? b.weight("weight", shape, product_weights(k))
                                              : batched_input(b, "b", batch, shape);
    if (tb) w = swap_last(b, w);
    finish(b, s, matmul(b, x, w), {n});
}

void build_gemv(GraphBuilder& b, const OpSpec& s) {
    const int64_t m = s.number("m"), k = s.number("k");
    const Value x = b.input("x", DType::F32, {k, 1});
    const Value w = s.text("weights") == "constant" ? b.weight("weight", {m, k}, product_weights(k))
                                                    : b.input("a", DType::F32, {m, k});
    finish(b, s, matmul(b, w, x), {m, 1});
}

/// The widths of a chain: k:n:h for a[m,k] b[k,n] d[n,h].
Ints chain_widths(const OpSpec& s) {
    const bool named = s.has("k") || s.has("n") || s.has("h");
    if (s.has("dims") == named)
        throw ModelError("operator 'chain' takes either k, n and h or dims",
                         "write k=64 n=256 h=64, or dims=64:256:64");
    if (named) {
        for (const char* name : {"k", "n", "h"})
            if (!s.has(name)) model_error("operator 'chain' needs k, n and h: {} is missing", name);
        return {s.number("k"), s.number("n"), s.number("h")};
    }
    const Ints dims = s.numbers("dims");
    if (dims.size() < 2)
        model_error("operator 'chain': dims={} is not a product, expected two numbers or more", dims[0]);
    return dims;
}

void build_chain(GraphBuilder& b, const OpSpec& s) {
    const Ints widths = chain_widths(s);
    const int64_t batch = s.number("batch");
    Value x = batched_input(b, "a", batch, {s.number("m"), widths[0]});
    for (size_t i = 1; i < widths.size(); ++i) {
        const Value w = batched_input(b, "b" + std::to_string(i), batch, {widths[i - 1], widths[i]});
        x = matmul(b, x, w);
        if (i + 1 < widths.size()) x = activate(b, x, s.text("act"));
    }
    b.output(x, "out");
}

OpParam optional_number(const std::string& name, const std::string& help) {
    OpParam p = needed(name, help);
    p.required = false;
    return p;
}

}  // namespace

void add_product_ops(std::vector<OpKind>& kinds) {
    const OpParam weights = choice("weights", {"constant", "input"}, "whether the right operand is a constant");
    kinds.push_back({"gemm",
                     "out[m,n] = act(a[m,k] b[k,n] + bias)",
                     {needed("m", "rows"), needed("n", "columns"), needed("k", "length of the sums"),
                      number("batch", 1, "batch size; constant weights are shared"), flag("bias", "add a vector"),
                      act_param(), weights, flag("ta", "a is transposed, [k,m]"), flag("tb", "b is transposed, [n,k]")},
                     build_gemm});
    kinds.push_back({"gemv",
                     "out[m] = act(a[m,k] x[k] + bias)",
                     {needed("m", "rows"), needed("k", "length of the sums"), flag("bias", "add a vector"), act_param(),
                      choice("weights", {"constant", "input"}, "whether the matrix is a constant")},
                     build_gemv});
    OpParam act = act_param();
    act.help = "activation between the products";
    kinds.push_back(
        {"chain",
         "out[m,h] = (a[m,k] b[k,n]) d[n,h], all of them inputs; or more products",
         {needed("m", "rows"), optional_number("k", "length of the first sums"),
          optional_number("n", "columns of the intermediate result"), optional_number("h", "columns of the result"),
          list("dims", "instead of k, n, h: k:n:h:..., a product for each ':'", false),
          number("batch", 1, "chains at once"), act},
         build_chain});
}

}  // namespace tilewright::nets
