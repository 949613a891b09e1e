// The part of the C interface that keeps what a decoder has seen (model/kv_cache.h). It needs no compiler.

#include <cstring>

#include "base/error.h"
#include "base/quoted_name.h"
#include "driver/api_call.h"
#include "driver/api_model.h"

using namespace tilewright;
using namespace tilewright::api;

extern "C" {

size_t tilewright_append_count(const tilewright_model* model) {
    return model != nullptr ? model->compiled->appends().size() : 0;
}

tilewright_status tilewright_append_at(const tilewright_model* model, size_t index, tilewright_append* append,
                                       tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(model, "model");
        require_pointer(append, "append");
        const std::vector<Append>& all = model->compiled->appends();
        if (index >= all.size()) invalid("index {}: the model has {}", index, all.size());
        *append = {all[index].input, all[index].output, all[index].axis};
    });
}

tilewright_status tilewright_kv_cache_create(const tilewright_model* model, int64_t rows, tilewright_kv_cache** cache,
                                             tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(model, "model");
        require_pointer(cache, "cache");
        if (rows < 0) invalid("{} rows: expected 0 or more", rows);
        *cache = new tilewright_kv_cache(KvCache(model->compiled, rows));
    });
}

void tilewright_kv_cache_free(tilewright_kv_cache* cache) { delete cache; }

int64_t tilewright_kv_cache_rows(const tilewright_kv_cache* cache) {
    return cache != nullptr ? cache->cache.rows() : 0;
}

tilewright_status tilewright_kv_cache_truncate(tilewright_kv_cache* cache, int64_t rows, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(cache, "cache");
        const Use use = cache->use();
        if (rows < 0 || rows > cache->cache.rows())
            invalid("the KV cache has {} rows, and {} were to stay", cache->cache.rows(), rows);
        cache->cache.truncate(rows);
    });
}

tilewright_status tilewright_kv_cache_read(tilewright_kv_cache* cache, size_t index, tilewright_tensor* tensor,
                                           tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(cache, "cache");
        require_pointer(tensor, "tensor");
        const Use use = cache->use();
        const size_t count = cache->cache.model().appends().size();
        if (index >= count) invalid("index {}: the model has {}", index, count);
        cache->read = cache->cache.read(index);
        const Tensor& t = cache->read;
        const size_t room = tensor->bytes;
        tensor->dtype = static_cast<tilewright_dtype>(t.dtype());
        tensor->rank = t.shape().size();
        tensor->shape = t.shape().data();
        tensor->bytes = t.bytes();
        if (t.bytes() > room)
            invalid("the rows of input {} take {} bytes, and there is room for {}",
                    quoted_name(cache->cache.model().inputs()[cache->cache.model().appends()[index].input].name),
                    t.bytes(), room);
        if (t.bytes() == 0) return;
        require_pointer(tensor->data, "tensor->data");
        std::memcpy(tensor->data, t.data(), t.bytes());
    });
}

}  // extern "C"
