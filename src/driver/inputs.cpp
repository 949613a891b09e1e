#include "driver/inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "compile/random_inputs.h"
#include "driver/data.h"
#include "driver/npy.h"
#include "driver/npz.h"
#include "graph/graph.h"

namespace tilewright {

namespace {

struct Given {
    Tensor tensor;
    std::string source;  ///< the file, for messages
};

std::string names_of(const std::vector<ModelIo>& declared) {
    std::string names;
    for (const ModelIo& io : declared) names += (names.empty() ? "" : ", ") + quoted_name(io.name);
    return names.empty() ? "none" : names;
}

/// The sizes of named dimensions, and where each size came from.
class Dimensions {
  public:
    Dimensions(const std::vector<ModelIo>& declared, const std::map<std::string, int64_t>& dims) {
        std::map<std::string, Var> known;
        std::vector<std::string> names;
        for (const ModelIo& io : declared)
            for (const Expr d : io.shape)
                for (const Var v : variables(d))
                    if (const std::string name = size_name(v).name; known.emplace(name, v).second)
                        names.push_back(name);
        for (const auto& [name, size] : dims) {
            require_dimension(name, fmt::format("--dim {}={}", name, size), names);
            const Var v = known.at(name);
            if (const int64_t step = size_name(v).step; size % step != 0)
                throw ModelError(
                    fmt::format("--dim {}={}: the model is compiled for multiples of {}", name, size, step));
            bind(v, size, "--dim");
        }
    }

    /// Records the sizes of a given input. Throws if they differ from the declared ones.
    void take(const ModelIo& io, const Given& given) {
        const Shape& shape = given.tensor.shape();
        const auto refuse = [&](const std::string& why) {
            throw ModelError(fmt::format("input {} from '{}' has shape {}, and the model expects {}: {}",
                                         quoted_name(io.name), given.source, to_string(shape), describe(io), why));
        };
        if (shape.size() != io.shape.size())
            refuse(fmt::format("its rank is {} where {} is expected", shape.size(), io.shape.size()));
        for (size_t d = 0; d < shape.size(); ++d) {
            if (const auto v = bound_symbol(io.shape[d]); v && sizes_.count(*v) == 0)
                bind(*v, shape[d], fmt::format("input {}", quoted_name(io.name)));
            const std::vector<Var> names = variables(io.shape[d]);
            if (std::any_of(names.begin(), names.end(), [&](Var x) { return sizes_.count(x) == 0; })) continue;
            const int64_t expected = evaluate(io.shape[d], sizes_);
            if (expected == shape[d]) continue;
            const auto v = bound_symbol(io.shape[d]);
            const std::string why = !v ? ""
                                    : shape[d] / step_of(*v) == sizes_.at(*v)
                                        ? fmt::format(" (a multiple of {})", step_of(*v))
                                        : fmt::format(" ({} by {})", size_name(*v).name, origins_.at(*v));
            refuse(fmt::format("dimension {} is {} where {} is expected{}", d, shape[d], expected, why));
        }
    }

    /// The shape of an input that is not given.
    Shape shape(const ModelIo& io) {
        Shape shape;
        for (const Expr d : io.shape) {
            for (const Var v : variables(d))
                if (sizes_.count(v) == 0) {
                    const auto [name, step] = size_name(v);
                    bind(v, step, "default");
                    assumed[name] = step;
                }
            shape.push_back(evaluate(d, sizes_));
        }
        return shape;
    }

    std::map<std::string, int64_t> assumed;  ///< assumed sizes of dimensions without a given size

  private:
    static int64_t step_of(Var v) { return size_name(v).step; }
    void bind(Var v, int64_t size, const std::string& origin) {
        sizes_[v] = size / step_of(v);
        origins_[v] = origin;
    }
    Bindings sizes_;  ///< values of symbols: sizes, or numbers of steps
    std::map<Var, std::string> origins_;
};

/// The tensor in the declared type. NumPy lacks bfloat16 and the smallest types: they are passed as float32.
Tensor typed(const ModelIo& io, const Given& given) {
    const Tensor& t = given.tensor;
    if (t.dtype() == io.dtype) return t;
    if (t.dtype() == DType::F32 && !has_numpy_type(io.dtype)) {
        Tensor narrow(io.dtype, t.shape(), false);
        for (int64_t i = 0; i < t.count(); ++i) narrow.set(i, t.get(i));
        return narrow;
    }
    throw ModelError(fmt::format("input {} from '{}' has elements of type {}, and the model expects {}",
                                 quoted_name(io.name), given.source, to_string(t.dtype()), describe(io)),
                     fmt::format("convert it before it is saved: a.astype('{}')", numpy_name(io.dtype)));
}

std::vector<std::optional<Given>> from_folder(const std::vector<ModelIo>& declared, const std::string& folder) {
    std::vector<Tensor> tensors = load_numbered(folder, "input");
    if (tensors.size() != declared.size())
        throw ModelError(fmt::format("'{}' holds {} inputs (input_0.pb, input_1.pb, ...), and the model has {}", folder,
                                     tensors.size(), declared.size()),
                         "inputs of the model, in order: " + names_of(declared));
    std::vector<std::optional<Given>> given;
    for (size_t i = 0; i < tensors.size(); ++i)
        given.push_back(Given{std::move(tensors[i]), fmt::format("{}/input_{}.pb", folder, i)});
    return given;
}

std::vector<std::optional<Given>> from_files(const std::vector<ModelIo>& declared,
                                             const std::vector<std::string>& files) {
    std::vector<std::optional<Given>> given(declared.size());
    const auto position = [&](const std::string& name, const std::string& where) {
        for (size_t i = 0; i < declared.size(); ++i)
            if (declared[i].name == name) return i;
        throw ModelError(fmt::format("{}: the model has no input {}", where, quoted_name(name)),
                         "its inputs: " + names_of(declared));
    };
    const auto give = [&](size_t i, Given value) {
        if (given[i])
            model_error("input {} is given twice, by '{}' and by '{}'", quoted_name(declared[i].name), given[i]->source,
                        value.source);
        given[i] = std::move(value);
    };
    for (const std::string& text : files) {
        // Both names and paths may contain '=': the longest prefix that is the name of an input is used.
        size_t at = text.find('=');
        for (size_t next = at; next != std::string::npos; next = text.find('=', next + 1))
            if (std::any_of(declared.begin(), declared.end(),
                            [&](const ModelIo& io) { return io.name == text.substr(0, next); }))
                at = next;
        if (at == std::string::npos) {
            if (!text.ends_with(".npz"))
                throw ModelError(fmt::format("--input '{}': expected NAME=FILE, NAME=random or an .npz file", text),
                                 "the model's inputs: " + names_of(declared));
            for (NamedTensor& array : load_npz(text)) give(position(array.name, text), {std::move(array.value), text});
            continue;
        }
        const size_t i = position(text.substr(0, at), fmt::format("--input '{}'", text));
        const std::string source = text.substr(at + 1);
        if (source != "random") give(i, {load_tensor(source), source});
    }
    return given;
}

}  // namespace

std::string describe(const ModelIo& io) {
    std::string dims;
    for (const Expr d : io.shape) {
        const auto v = bound_symbol(d);
        dims += (dims.empty() ? "" : ", ") + (v ? size_name(*v).name : d.text());
    }
    return fmt::format("{}[{}]", to_string(io.dtype), dims);
}

std::vector<Tensor> make_inputs(const std::vector<ModelIo>& declared, const InputRequest& request,
                                std::map<std::string, int64_t>* assumed) {
    Dimensions dimensions(declared, request.dims);
    const std::vector<std::optional<Given>> given =
        request.folder.empty() ? from_files(declared, request.files) : from_folder(declared, request.folder);
    std::vector<Tensor> inputs(declared.size());
    for (size_t i = 0; i < declared.size(); ++i)
        if (const std::optional<Given>& g = given[i]) {
            inputs[i] = typed(declared[i], *g);
            dimensions.take(declared[i], *g);
        }
    // Dimensions that are computed from those of later inputs.
    for (size_t i = 0; i < declared.size(); ++i)
        if (given[i]) dimensions.take(declared[i], *given[i]);
    for (size_t i = 0; i < declared.size(); ++i)
        if (!given[i]) {
            const ModelIo& io = declared[i];
            const Shape shape = dimensions.shape(io);
            inputs[i] = random_tensor(io.name, io.dtype, shape, request.seed);
        }
    if (assumed != nullptr) *assumed = dimensions.assumed;
    return inputs;
}

std::string sizes_text(const std::map<std::string, int64_t>& sizes) {
    std::string text;
    for (const auto& [name, size] : sizes) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, size);
    return text;
}

}  // namespace tilewright
