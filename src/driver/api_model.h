#pragma once
// tilewright_model of the C interface.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/api_call.h"
#include "model/compiled_model.h"
#include "model/kv_cache.h"
#include "runtime/model_info.h"
#include "tilewright/tilewright.h"

namespace tilewright::api {

/// Inputs or outputs; owns the strings and numbers that a C caller reads.
struct Interface {
    struct Entry {
        std::string name;
        DType dtype = DType::F32;
        std::vector<int64_t> dims;
        std::vector<std::string> names;
        std::vector<const char*> name_pointers;
    };
    std::vector<Entry> entries;

    explicit Interface(const std::vector<ModelIo>& ios) : entries(ios.size()) {
        for (size_t i = 0; i < ios.size(); ++i) {
            Entry& e = entries[i];
            e.name = ios[i].name;
            e.dtype = ios[i].dtype;
            for (const Expr d : ios[i].shape) {
                const auto v = bound_symbol(d);
                e.dims.push_back(d.is_constant() ? d.constant() : -1);
                e.names.push_back(v ? size_name(*v).name : d.text());
            }
            for (size_t d = 0; d < e.dims.size(); ++d)
                e.name_pointers.push_back(e.dims[d] < 0 ? e.names[d].c_str() : nullptr);
        }
    }
};

/// ModelInfo, and what a C caller reads of it.
struct InfoTexts {
    ModelInfo info;
    std::vector<const char*> keys, values;

    explicit InfoTexts(ModelInfo i) : info(std::move(i)) {
        for (const auto& [key, value] : info.metadata) {
            keys.push_back(key.c_str());
            values.push_back(value.c_str());
        }
    }
    InfoTexts(const InfoTexts&) = delete;
    InfoTexts& operator=(const InfoTexts&) = delete;
};

}  // namespace tilewright::api

struct tilewright_model {
    std::shared_ptr<const tilewright::CompiledModel> compiled;
    tilewright::api::Interface inputs, outputs;
    tilewright::api::InfoTexts info;

    tilewright_model(std::shared_ptr<const tilewright::CompiledModel> model, tilewright::ModelInfo i)
        : compiled(std::move(model)), inputs(compiled->inputs()), outputs(compiled->outputs()), info(std::move(i)) {}
};

namespace tilewright::api {
inline constexpr const char* kCacheIsUsed = "the KV cache is used by another thread: give each sequence one of its own";
}

struct tilewright_kv_cache {
    tilewright::KvCache cache;
    tilewright::Tensor read;  ///< what the last call of tilewright_kv_cache_read has copied
    mutable std::atomic<bool> used = false;

    explicit tilewright_kv_cache(tilewright::KvCache c) : cache(std::move(c)) {}
    tilewright::api::Use use() const { return {used, tilewright::api::kCacheIsUsed}; }
};
