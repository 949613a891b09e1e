#pragma once
// Operation graphs as cuDNN's manual has them, for tests without a GPU: descriptors that know their attributes and the
// types of those, demand what they need when they are finished, and are computed in double precision.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tilewright::cuda::test {

class FakeCudnn {
  public:
    using Address = unsigned long long;
    enum : int { kFine = 0, kNotFinished = 2004, kBadShape = 2008, kBadType = 2010, kBadKind = 2012, kNotThere = 3000 };

    std::string wrong;                ///< the last refusal
    double error = 0;                 ///< of its results, relative
    int graphs = 0;                   ///< that were computed
    bool chose_exact_engine = false;  ///< the last plan's uses no matrix instructions
    bool supports_products = true;    ///< engines take a graph of one product
    bool supports_masks = true;       ///< engines take a graph with an operand added between two products

    struct Attribute {
        int type = 0;
        int64_t count = 0;
        std::vector<unsigned char> bytes;
    };
    struct Descriptor {
        int kind = 0;
        bool finished = false;
        std::map<int, Attribute> attributes;
        int engine = -1;                ///< of an engine or its configuration
        std::vector<int> engines = {};  ///< of heuristics
        Descriptor* graph = nullptr;    ///< of engines, configurations, plans
    };

    int create(int kind, void** out) {
        if (known().count(kind) == 0) return refuse(kBadKind, fmt::format("there is no descriptor {}", kind));
        auto* d = new Descriptor{kind, false, {}};
        alive_.insert(d);
        *out = d;
        return kFine;
    }
    int destroy(void* d) {
        alive_.erase(static_cast<Descriptor*>(d));
        delete static_cast<Descriptor*>(d);
        return kFine;
    }
    bool has_descriptors() const { return !alive_.empty(); }

    int set(void* descriptor, int attribute, int type, int64_t count, const void* values) {
        Descriptor& d = *static_cast<Descriptor*>(descriptor);
        if (d.finished) return refuse(kNotFinished, "an attribute comes after the end");
        const auto& attributes = known().at(d.kind);
        const auto it = attributes.find(attribute);
        if (it == attributes.end() || it->second.type != type)
            return refuse(kBadType,
                          fmt::format("descriptor {} has no attribute {} of type {}", d.kind, attribute, type));
        const auto* from = static_cast<const unsigned char*>(values);
        d.attributes[attribute] = {type, count, {from, from + count * size_of(type)}};
        if (type == kDescriptor)
            for (Descriptor* other : descriptors(d, attribute))
                if (alive_.count(other) == 0 || !other->finished)
                    return refuse(kNotFinished, fmt::format("attribute {} is not finished", attribute));
        return kFine;
    }
    int finish(void* descriptor) {
        Descriptor& d = *static_cast<Descriptor*>(descriptor);
        for (const auto& [attribute, what] : known().at(d.kind))
            if (what.needed && d.attributes.count(attribute) == 0)
                return refuse(2000, fmt::format("descriptor {} needs attribute {}", d.kind, attribute));
        try {
            check(d);
        } catch (const std::exception& e) {
            return refuse(kBadShape, e.what());
        }
        if (d.kind == kPlan && d.graph != nullptr && !supported(*d.graph))
            return refuse(kNotThere, "this engine supports no such graph");
        d.finished = true;
        return kFine;
    }
    int get(void* descriptor, int attribute, int type, int64_t wanted, int64_t* count, void* to) {
        Descriptor& d = *static_cast<Descriptor*>(descriptor);
        if (!d.finished) return refuse(kNotFinished, "asked before the end");
        const auto give = [&](const void* from, int64_t n, size_t size) {
            *count = n;
            if (wanted >= n) std::memcpy(to, from, static_cast<size_t>(n) * size);
            return static_cast<int>(kFine);
        };
        if (d.kind == kHeuristics && attribute == 202 && type == kDescriptor) {
            *count = static_cast<int64_t>(d.engines.size());
            for (int64_t k = 0; k < std::min(wanted, *count); ++k) {
                Descriptor& config = *static_cast<Descriptor**>(to)[k];
                config.engine = d.engines[static_cast<size_t>(k)];
                config.graph = d.graph;
                config.finished = true;
            }
            return kFine;
        }
        if (d.kind == kConfig && attribute == 300 && type == kDescriptor && wanted == 1) {
            Descriptor& engine = **static_cast<Descriptor**>(to);
            engine.engine = d.engine;
            engine.finished = true;
            *count = 1;
            return kFine;
        }
        if (d.kind == kEngine && attribute == 1303 && type == 11) {
            const int notes[1] = {0};  // the first engine uses matrix instructions
            return give(notes, d.engine == 0 ? 1 : 0, sizeof(int));
        }
        const int64_t workspace = 1000;
        if (d.kind == kPlan && attribute == 402 && type == kInt) return give(&workspace, 1, sizeof workspace);
        return refuse(kBadType, fmt::format("attribute {} cannot be asked of descriptor {}", attribute, d.kind));
    }

    /// What a stream is to do for a plan. `at`: the bytes at an address of the device.
    std::function<void(const std::function<void*(Address, size_t)>& at)> execution(void* plan, void* pack) {
        const Descriptor& p = *static_cast<Descriptor*>(plan);
        const Descriptor& t = *static_cast<Descriptor*>(pack);
        if (!p.finished || !t.finished) throw std::runtime_error("a plan or its tensors are not finished");
        Run run;
        const std::vector<int64_t> numbers = ints(t, 1000), pointers = ints(t, 1001);
        for (size_t k = 0; k < numbers.size(); ++k) run.addresses[numbers[k]] = static_cast<Address>(pointers.at(k));
        run.workspace = static_cast<Address>(ints(t, 1003).at(0));
        for (Descriptor* o : descriptors(*p.graph, 801)) {
            run.operations.push_back(o);
            for (const Descriptor* x : tensors_of(*o)) {
                const int64_t number = ints(*x, 906)[0];
                if (is(*x, 908)) {  // read when it is asked for
                    float v = 0;
                    std::memcpy(&v, reinterpret_cast<const void*>(run.addresses.at(number)), sizeof v);
                    run.values[number] = {static_cast<double>(v)};
                } else if (!is(*x, 907) && run.addresses.count(number) == 0) {
                    throw std::runtime_error(fmt::format("tensor {} has no address", number));
                }
            }
        }
        return [this, run](const auto& at) mutable {
            ++graphs;
            at(run.workspace, 1000);
            for (const Descriptor* o : run.operations) compute(*o, run, at);
        };
    }

  private:
    enum : int {
        kPointwise = 0,
        kConvolution = 1,
        kEngine = 2,
        kConfig = 3,
        kHeuristics = 4,
        kPlan = 5,
        kForward = 10,
        kBackwardData = 12,
        kPointwiseOperation = 13,
        kGraph = 15,
        kPack = 16,
        kTensor = 17,
        kMatmul = 18,
        kMatmulOperation = 19,
        kReduction = 21,
        kReductionOperation = 22,
    };
    enum : int {
        kHandle = 0,
        kType = 1,
        kBool = 2,
        kInt = 3,
        kFloat = 4,
        kDouble = 5,
        kPointer = 6,
        kMode = 7,
        kDescriptor = 15
    };
    struct Known {
        int type = 0;
        bool needed = true;
    };
    struct Run {
        std::vector<const Descriptor*> operations;
        std::map<int64_t, Address> addresses;
        std::map<int64_t, std::vector<double>> values;  ///< of virtual tensors and numbers
        Address workspace = 0;
    };

    static const std::map<int, std::map<int, Known>>& known() {
        static const std::map<int, std::map<int, Known>> all = {
            {kPointwise, {{0, {14}}, {1, {kType}}, {4, {kDouble, false}}, {9, {kInt, false}}}},
            {kConvolution,
             {{100, {kType}},
              {101, {kMode}},
              {102, {kInt}},
              {103, {kInt}},
              {104, {kInt}},
              {105, {kInt}},
              {106, {kInt}}}},
            {kEngine, {}},
            {kConfig, {}},
            {kHeuristics, {{200, {8}}, {201, {kDescriptor}}}},
            {kPlan, {{400, {kHandle}}, {401, {kDescriptor}}}},
            {kForward,
             {{700, {kFloat}},
              {701, {kFloat}},
              {702, {kDescriptor}},
              {703, {kDescriptor}},
              {704, {kDescriptor}},
              {705, {kDescriptor}}}},
            {kBackwardData,
             {{706, {kFloat}},
              {707, {kFloat}},
              {708, {kDescriptor}},
              {709, {kDescriptor}},
              {710, {kDescriptor}},
              {711, {kDescriptor}}}},
            {kPointwiseOperation,
             {{750, {kDescriptor}},
              {751, {kDescriptor}},
              {752, {kDescriptor, false}},
              {753, {kDescriptor}},
              {758, {kDescriptor, false}}}},
            {kGraph, {{800, {kHandle}}, {801, {kDescriptor}}}},
            {kPack, {{1000, {kInt}}, {1001, {kPointer}}, {1003, {kPointer}}}},
            {kTensor,
             {{900, {kInt}},
              {901, {kType}},
              {902, {kInt}},
              {903, {kInt}},
              {906, {kInt}},
              {907, {kBool, false}},
              {908, {kBool, false}}}},
            {kMatmul, {{1500, {kType}}}},
            {kMatmulOperation,
             {{1520, {kDescriptor}}, {1521, {kDescriptor}}, {1522, {kDescriptor}}, {1523, {kDescriptor}}}},
            {kReduction, {{1600, {18}}, {1601, {kType}}}},
            {kReductionOperation, {{1610, {kDescriptor}}, {1611, {kDescriptor}}, {1612, {kDescriptor}}}},
        };
        return all;
    }
    static int64_t size_of(int type) {
        return type == kBool                                                                                   ? 1
               : type == kHandle || type == kInt || type == kPointer || type == kDescriptor || type == kDouble ? 8
                                                                                                               : 4;
    }
    int refuse(int status, const std::string& what) {
        wrong = what;
        return status;
    }
    static void demand(bool right, const char* what) {
        if (!right) throw std::runtime_error(what);
    }

    static std::vector<int64_t> ints(const Descriptor& d, int attribute) {
        const Attribute& a = d.attributes.at(attribute);
        std::vector<int64_t> out(a.bytes.size() / 8);
        std::memcpy(out.data(), a.bytes.data(), a.bytes.size());
        return out;
    }
    static int number(const Descriptor& d, int attribute) {
        int out = 0;
        std::memcpy(&out, d.attributes.at(attribute).bytes.data(), sizeof out);
        return out;
    }
    static float real(const Descriptor& d, int attribute) {
        float out = 0;
        std::memcpy(&out, d.attributes.at(attribute).bytes.data(), sizeof out);
        return out;
    }
    static bool is(const Descriptor& d, int attribute) {
        const auto it = d.attributes.find(attribute);
        return it != d.attributes.end() && it->second.bytes.at(0) != 0;
    }
    static std::vector<Descriptor*> descriptors(const Descriptor& d, int attribute) {
        std::vector<Descriptor*> out;
        for (const int64_t p : ints(d, attribute)) out.push_back(reinterpret_cast<Descriptor*>(p));
        return out;
    }
    static Descriptor& part(const Descriptor& d, int attribute) { return *descriptors(d, attribute).at(0); }
    static bool has(const Descriptor& d, int attribute) { return d.attributes.count(attribute) != 0; }
    static std::vector<int64_t> extents(const Descriptor& tensor) { return ints(tensor, 902); }
    /// Operands, then the result.
    static std::vector<const Descriptor*> tensors_of(const Descriptor& o) {
        switch (o.kind) {
            case kForward:
                return {&part(o, 704), &part(o, 703), &part(o, 705)};
            case kBackwardData:
                return {&part(o, 711), &part(o, 709), &part(o, 710)};
            case kPointwiseOperation:
                if (has(o, 758)) return {&part(o, 751), &part(o, 752), &part(o, 758), &part(o, 753)};
                if (has(o, 752)) return {&part(o, 751), &part(o, 752), &part(o, 753)};
                return {&part(o, 751), &part(o, 753)};
            case kMatmulOperation:
                return {&part(o, 1520), &part(o, 1521), &part(o, 1522)};
            default:
                return {&part(o, 1610), &part(o, 1611)};
        }
    }

    void check(Descriptor& d) {
        switch (d.kind) {
            case kTensor: {
                const auto x = extents(d), s = ints(d, 903);
                demand(x.size() == s.size() && !x.empty(), "a tensor has as many strides as extents");
                for (size_t k = 0; k < x.size(); ++k) demand(x[k] > 0 && s[k] > 0, "extents and strides are positive");
                const int type = number(d, 901);
                demand(type == 0 || type == 2 || type == 6 || type == 9 || (type == 11 && is(d, 907)),
                       "an element type that no tensor here has");
                break;
            }
            case kConvolution: {
                const auto n = static_cast<size_t>(ints(d, 106).at(0));
                demand(n == 2 || n == 3, "convolutions have two or three spatial dimensions");
                for (const int a : {102, 103, 104, 105}) demand(ints(d, a).size() == n, "a number for each dimension");
                for (const int a : {104, 105})
                    for (const int64_t pad : ints(d, a)) demand(pad >= 0, "padding is not negative");
                break;
            }
            case kForward:
            case kBackwardData: {
                const int first = d.kind == kForward ? 700 : 706;
                const Descriptor& c = part(d, first + 2);
                const auto x = extents(part(d, first + 4)), w = extents(part(d, first + 3)),
                           y = extents(part(d, first + 5));
                const auto dilation = ints(c, 102), stride = ints(c, 103), after = ints(c, 104), before = ints(c, 105);
                const size_t n = dilation.size();
                demand(x.size() == n + 2 && w.size() == n + 2 && y.size() == n + 2, "ranks of a convolution");
                demand(x[0] == y[0] && w[0] == y[1] && x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0, "channels");
                for (size_t k = 0; k < n; ++k)
                    demand(y[k + 2] ==
                               (x[k + 2] + before[k] + after[k] - (w[k + 2] - 1) * dilation[k] - 1) / stride[k] + 1,
                           "extents of a convolution's result");
                break;
            }
            case kPointwiseOperation: {
                const auto x = extents(part(d, 751)), y = extents(part(d, 753));
                demand(x == y, "a pointwise operation keeps extents");
                const int mode = number(part(d, 750), 0);
                const bool compares = mode >= 300 && mode < 306, selects = mode == 601;
                demand(has(d, 752) == (mode < 10 || compares || selects), "as many operands as the operation has");
                demand(has(d, 758) == selects && (!selects || number(part(d, 758), 901) == 11),
                       "booleans select, and nothing else");
                demand((number(part(d, 753), 901) == 11) == compares, "comparisons give booleans, and nothing else");
                demand(has(part(d, 750), 9) == (mode == 501), "indices have an axis");
                demand(!has(part(d, 750), 4) || mode == 100, "relu alone is clipped");
                for (const int operand : {752, 758}) {
                    if (!has(d, operand)) continue;
                    const auto b = extents(part(d, operand));
                    demand(b.size() == x.size(), "ranks of a pointwise operation");
                    for (size_t k = 0; k < b.size(); ++k)
                        demand(b[k] == 1 || b[k] == x[k], "operands are repeated whole");
                }
                break;
            }
            case kMatmulOperation: {
                const auto a = extents(part(d, 1520)), b = extents(part(d, 1521)), c = extents(part(d, 1522));
                const size_t n = a.size();
                demand((n == 3 || n == 4) && b.size() == n && c.size() == n, "ranks of a product");
                demand(a[n - 2] == c[n - 2] && a[n - 1] == b[n - 2] && b[n - 1] == c[n - 1], "extents of a product");
                for (size_t k = 0; k + 2 < n; ++k)
                    demand((a[k] == c[k] || a[k] == 1) && c[k] % b[k] == 0 && (n == 4 || b[k] == c[k] || b[k] == 1),
                           "batches of a product");
                break;
            }
            case kReductionOperation: {
                const auto x = extents(part(d, 1610)), y = extents(part(d, 1611));
                for (size_t k = 0; k < x.size(); ++k) demand(y.at(k) == 1 || y[k] == x[k], "extents of a reduction");
                break;
            }
            case kGraph: {
                std::set<int64_t> made;
                std::map<int64_t, const Descriptor*> seen;
                for (const Descriptor* o : descriptors(d, 801)) {
                    const auto tensors = tensors_of(*o);
                    for (const Descriptor* t : tensors) {
                        const auto [it, fresh] = seen.emplace(ints(*t, 906)[0], t);
                        demand(fresh || it->second == t, "two tensors have one number");
                        if (t != tensors.back())
                            demand(!is(*t, 907) || made.count(ints(*t, 906)[0]) != 0,
                                   "a virtual tensor without a producer");
                    }
                    demand(made.insert(ints(*tensors.back(), 906)[0]).second, "a tensor is written twice");
                }
                break;
            }
            case kHeuristics: {
                d.graph = &part(d, 201);
                const int mode = number(d, 200);
                demand(mode == 3 || mode == 2, "a way to choose that there is not");
                d.engines = mode == 3 ? std::vector<int>{0, 1} : std::vector<int>{1};
                break;
            }
            case kPlan:
                d.graph = part(d, 401).graph;
                chose_exact_engine = part(d, 401).engine == 1;
                break;
            case kPack:
                demand(ints(d, 1000).size() == ints(d, 1001).size(), "as many addresses as numbers");
                break;
            default:
                break;
        }
    }
    bool supported(const Descriptor& graph) const {
        int products = 0;
        for (const Descriptor* o : descriptors(graph, 801)) {
            products += o->kind == kMatmulOperation ? 1 : 0;
            if (supports_masks || products != 1 || o->kind != kPointwiseOperation) continue;
            const int mode = number(part(*o, 750), 0);
            if (mode == 601 || (mode == 0 && !is(part(*o, 752), 907))) return false;
        }
        return supports_products || products != 1;
    }

    template <class At>
    static std::vector<double> read(const Descriptor& t, Run& run, const At& at) {
        const int64_t id = ints(t, 906)[0];
        if (const auto it = run.values.find(id); it != run.values.end()) return it->second;
        std::vector<double> out;
        each(extents(t), [&](const std::vector<int64_t>& i) {
            const int type = number(t, 901), size = type == 0 ? 4 : type == 6 ? 1 : 2;
            const void* p =
                at(run.addresses.at(id) + static_cast<Address>(offset(t, i) * size), static_cast<size_t>(size));
            float f = 0;
            uint16_t h = 0;
            if (type == 6) return out.push_back(*static_cast<const uint8_t*>(p));
            std::memcpy(type == 0 ? static_cast<void*>(&f) : &h, p, static_cast<size_t>(size));
            out.push_back(static_cast<double>(type == 0 ? f : type == 2 ? half_to_float(h) : bfloat16_to_float(h)));
        });
        return out;
    }
    template <class At>
    static void write(const Descriptor& t, std::vector<double> values, Run& run, const At& at) {
        const int64_t id = ints(t, 906)[0];
        const int type = number(t, 901), size = type == 0 ? 4 : 2;
        size_t k = 0;
        each(extents(t), [&](const std::vector<int64_t>& i) {
            const auto f = static_cast<float>(values[k]);
            const uint16_t h = type == 2 ? float_to_half(f) : float_to_bfloat16(f);
            if (type == 2 || type == 9)
                values[k] = static_cast<double>(type == 2 ? half_to_float(h) : bfloat16_to_float(h));
            ++k;
            if (is(t, 907)) return;
            void* p = at(run.addresses.at(id) + static_cast<Address>(offset(t, i) * size), static_cast<size_t>(size));
            std::memcpy(p, type == 0 ? static_cast<const void*>(&f) : &h, static_cast<size_t>(size));
        });
        if (is(t, 907)) run.values[id] = std::move(values);
    }
    static int64_t offset(const Descriptor& t, const std::vector<int64_t>& i) {
        const auto s = ints(t, 903);
        int64_t out = 0;
        for (size_t k = 0; k < i.size(); ++k) out += s[k] * i[k];
        return out;
    }
    template <class F>
    static void each(const std::vector<int64_t>& extents, const F& f) {
        std::vector<int64_t> i(extents.size());
        for (;;) {
            f(i);
            size_t d = i.size();
            while (d-- > 0 && ++i[d] == extents[d]) i[d] = 0;
            if (d > i.size()) return;
        }
    }
    /// Of packed values; dimensions of one point are repeated.
    static size_t packed(const std::vector<int64_t>& extents, const std::vector<int64_t>& i) {
        int64_t out = 0;
        for (size_t d = 0; d < i.size(); ++d) out = out * extents[d] + (extents[d] == 1 ? 0 : i[d]);
        return static_cast<size_t>(out);
    }
    static double pointwise(int mode, double x, double b, double t) {
        switch (mode) {
            case 302:
                return x > b ? 1 : 0;
            case 303:
                return x >= b ? 1 : 0;
            case 601:
                return t != 0 ? x : b;
            case 0:
                return x + b;
            case 1:
                return x * b;
            case 6:
                return x / b;
            case 9:
                return x - b;
            case 13:
                return std::exp(x);
            case 15:
                return std::log(x);
            case 100:
                return x < 0 ? 0 : x;
            case 101:
                return std::tanh(x);
            case 102:
                return 1 / (1 + std::exp(-x));
            case 104:
                return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
            case 106:
                return x / (1 + std::exp(-x));
            case 107:
                return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
            default:
                throw std::runtime_error("a pointwise operation that is not fake");
        }
    }

    template <class At>
    void compute(const Descriptor& o, Run& run, const At& at) {
        const auto tensors = tensors_of(o);
        std::vector<std::vector<double>> in;
        for (size_t k = 0; k + 1 < tensors.size(); ++k) in.push_back(read(*tensors[k], run, at));
        const Descriptor& result = *tensors.back();
        const auto x = extents(*tensors[0]), y = extents(result);
        std::vector<double> out;
        if (o.kind == kPointwiseOperation) {
            const int mode = number(part(o, 750), 0);
            double most = std::numeric_limits<double>::infinity();
            if (has(part(o, 750), 4)) std::memcpy(&most, part(o, 750).attributes.at(4).bytes.data(), sizeof most);
            const auto b = has(o, 752) ? extents(part(o, 752)) : x, t = has(o, 758) ? extents(part(o, 758)) : x;
            each(y, [&](const auto& i) {
                if (mode == 501)
                    out.push_back(static_cast<double>(i.at(static_cast<size_t>(ints(part(o, 750), 9)[0]))));
                else
                    out.push_back(pointwise(mode, in[0][packed(x, i)], in.size() > 1 ? in[1][packed(b, i)] : 0,
                                            in.size() > 2 ? in[2][packed(t, i)] : 0));
                if (out.back() > most) out.back() = most;
            });
        } else if (o.kind == kMatmulOperation) {
            const auto b = extents(part(o, 1521));
            each(y, [&](const auto& i) {
                double sum = 0;
                auto of_a = i, of_b = i;
                const size_t n = y.size();
                if (n == 4 && b[1] != 1) of_b[1] /= y[1] / b[1];  // heads that share a matrix follow each other
                for (int64_t k = 0; k < x[n - 1]; ++k) {
                    of_a[n - 1] = of_b[n - 2] = k;
                    sum += in[0][packed(x, of_a)] * in[1][packed(b, of_b)];
                }
                out.push_back(sum);
            });
        } else if (o.kind == kReductionOperation) {
            const int kind = number(part(o, 1612), 1600);
            if (kind != 0 && kind != 3) throw std::runtime_error("a reduction that is not fake");
            size_t all = 1;
            for (const int64_t n : y) all *= static_cast<size_t>(n);
            out.assign(all, kind == 0 ? 0 : -std::numeric_limits<double>::infinity());
            each(x, [&](const auto& i) {
                double& to = out[packed(y, i)];
                const double v = in[0][packed(x, i)];
                to = kind == 0 ? to + v : v > to || std::isnan(v) ? v : to;
            });
        } else if (o.kind == kBackwardData) {
            // What each element of the other convolution's result has of its data.
            const Descriptor& c = part(o, 708);
            const auto w = extents(part(o, 709)), dilation = ints(c, 102), stride = ints(c, 103), before = ints(c, 105);
            if (number(c, 101) == 0) throw std::runtime_error("a gradient that is not fake");
            const int64_t of_group = w[0] / (y[1] / w[1]);
            const std::vector<int64_t> window(w.begin() + 2, w.end());
            size_t all = 1;
            for (const int64_t n : y) all *= static_cast<size_t>(n);
            out.assign(all, 0);
            each(x, [&](const auto& i) {
                for (int64_t channel = 0; channel < w[1]; ++channel)
                    each(window, [&](const auto& k) {
                        std::vector<int64_t> to = {i[0], i[1] / of_group * w[1] + channel}, weight = {i[1], channel};
                        for (size_t d = 0; d < dilation.size(); ++d) {
                            to.push_back(i[d + 2] * stride[d] + k[d] * dilation[d] - before[d]);
                            if (to.back() < 0 || to.back() >= y[d + 2]) return;
                            weight.push_back(k[d]);
                        }
                        out[packed(y, to)] +=
                            static_cast<double>(real(o, 706)) * in[0][packed(x, i)] * in[1][packed(w, weight)];
                    });
            });
        } else {
            const Descriptor& c = part(o, 702);
            const auto w = extents(part(o, 703)), dilation = ints(c, 102), stride = ints(c, 103), before = ints(c, 105);
            const bool turned = number(c, 101) == 0;  // a convolution in the mathematician's sense
            const int64_t of_group = w[0] / (x[1] / w[1]);
            const std::vector<int64_t> window(w.begin() + 1, w.end());
            each(y, [&](const auto& i) {
                double sum = 0;
                each(window, [&](const auto& k) {
                    std::vector<int64_t> from = {i[0], i[1] / of_group * w[1] + k[0]}, weight = {i[1], k[0]};
                    for (size_t d = 0; d < dilation.size(); ++d) {
                        const int64_t p = i[d + 2] * stride[d] + k[d + 1] * dilation[d] - before[d];
                        if (p < 0 || p >= x[d + 2]) return;
                        from.push_back(p);
                        weight.push_back(turned ? w[d + 2] - 1 - k[d + 1] : k[d + 1]);
                    }
                    sum += in[0][packed(x, from)] * in[1][packed(w, weight)];
                });
                out.push_back(static_cast<double>(real(o, 700)) * sum);
            });
        }
        if (!is(result, 907))
            for (double& v : out) v *= 1 + error;
        write(result, std::move(out), run, at);
    }

    std::set<Descriptor*> alive_;
};

}  // namespace tilewright::cuda::test
