// OpenBLAS as a peer: products and chains of products, float32.
//
//     bench_openblas "gemm m=512 n=768 k=3072"
//
// OpenBLAS does not store packed operands, so constant weights are packed in every call; bias and activations are not
// supported.

#include <cblas.h>

#include <memory>

#include "bench/peers/peer.h"

namespace tilewright::peers {
namespace {

std::function<void()> gemm(const OpSpec& s) {
    if (s.flag("bias") || s.text("act") != "none") return {};
    const int64_t m = s.number("m"), n = s.number("n"), k = s.number("k"), batch = s.number("batch");
    const bool ta = s.flag("ta"), tb = s.flag("tb");
    const bool shared = s.text("weights") == "constant";
    auto a = std::make_shared<std::vector<float>>(numbers(batch * m * k, 1));
    auto b = std::make_shared<std::vector<float>>(numbers((shared ? 1 : batch) * k * n, 2));
    auto c = std::make_shared<std::vector<float>>(static_cast<size_t>(batch * m * n));
    return [=] {
        const auto one = [&](int64_t rows, const float* x, const float* y, float* z) {
            cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                        static_cast<blasint>(rows), static_cast<blasint>(n), static_cast<blasint>(k), 1.0F, x,
                        static_cast<blasint>(ta ? rows : k), y, static_cast<blasint>(tb ? k : n), 0.0F, z,
                        static_cast<blasint>(n));
        };
        if (shared && !ta) {  // one product of all rows
            one(batch * m, a->data(), b->data(), c->data());
            return;
        }
        for (int64_t i = 0; i < batch; ++i)
            one(m, a->data() + i * m * k, b->data() + (shared ? 0 : i * k * n), c->data() + i * m * n);
    };
}

std::function<void()> gemv(const OpSpec& s) {
    if (s.flag("bias") || s.text("act") != "none") return {};
    const int64_t m = s.number("m"), k = s.number("k");
    auto a = std::make_shared<std::vector<float>>(numbers(m * k, 1));
    auto x = std::make_shared<std::vector<float>>(numbers(k, 2));
    auto y = std::make_shared<std::vector<float>>(static_cast<size_t>(m));
    return [=] {
        cblas_sgemv(CblasRowMajor, CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(k), 1.0F, a->data(),
                    static_cast<blasint>(k), x->data(), 1, 0.0F, y->data(), 1);
    };
}

std::function<void()> chain(const OpSpec& s) {
    if (s.text("act") != "none") return {};
    const std::vector<int64_t> widths =
        s.has("dims") ? s.numbers("dims") : std::vector{s.number("k"), s.number("n"), s.number("h")};
    const int64_t m = s.number("m"), batch = s.number("batch");
    std::vector<std::shared_ptr<std::vector<float>>> rows, weights;  // the operand of each product, and the last result
    for (size_t i = 0; i < widths.size(); ++i) {
        rows.push_back(std::make_shared<std::vector<float>>(numbers(batch * m * widths[i], 1)));
        if (i > 0)
            weights.push_back(std::make_shared<std::vector<float>>(numbers(batch * widths[i - 1] * widths[i], 2)));
    }
    return [=] {
        for (int64_t e = 0; e < batch; ++e)
            for (size_t i = 0; i + 1 < widths.size(); ++i) {
                const int64_t k = widths[i], n = widths[i + 1];
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
                            static_cast<blasint>(k), 1.0F, rows[i]->data() + e * m * k, static_cast<blasint>(k),
                            weights[i]->data() + e * k * n, static_cast<blasint>(n), 0.0F,
                            rows[i + 1]->data() + e * m * n, static_cast<blasint>(n));
            }
    };
}

std::function<void()> prepare(const OpSpec& op) {
    if (op.kind->name == "gemm") return gemm(op);
    if (op.kind->name == "gemv") return gemv(op);
    if (op.kind->name == "chain") return chain(op);
    return {};
}

}  // namespace
}  // namespace tilewright::peers

int main(int argc, char** argv) {
    return tilewright::peers::run_peer(
        argc, argv,
        "OpenBLAS's time for operators (gemm, gemv, chain; float32)\n"
        "  bench_openblas \"gemm m=512 n=768 k=3072\" --time 0.2",
        [](int threads) { openblas_set_num_threads(threads); }, tilewright::peers::prepare);
}
