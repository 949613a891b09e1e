// The C interface's compilation (tilewright/tilewright.h).

#include <functional>
#include <string>
#include <string_view>

#include "artifact/model_file.h"
#include "compile/kept_models.h"
#include "driver/api_call.h"
#include "driver/api_model.h"
#include "driver/api_options.h"

using namespace tilewright;
using namespace tilewright::api;

namespace {

/// The model, which is also written to the options' file. `hash`: of the bytes that were compiled.
tilewright_model* finished(Compilation c, const tilewright_options* options, const std::function<std::string()>& hash) {
    if (const std::string file = output_file(options); !file.empty())
        artifact::write_model_file({c.model}, {hash(), c.info}, file);
    return new tilewright_model(std::move(c.model), std::move(c.info));
}

}  // namespace

extern "C" {

tilewright_status tilewright_compile_file(const char* path, const tilewright_options* options, tilewright_model** model,
                                          tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(path, "path");
        require_pointer(model, "model");
        *model = finished(compile_or_load(std::string(path), pipeline_options(options)), options,
                          [&] { return artifact::content_hash_of_file(path); });
    });
}

tilewright_status tilewright_compile_memory(const void* bytes, size_t size, const tilewright_options* options,
                                            tilewright_model** model, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(bytes, "bytes");
        require_pointer(model, "model");
        *model = finished(compile_or_load(bytes, size, pipeline_options(options)), options, [&] {
            return artifact::content_hash({static_cast<const char*>(bytes), size});
        });
    });
}

}  // extern "C"
