// The C interface's compilation (tilewright/tilewright.h).

#include "compile/kept_models.h"
#include "driver/api_call.h"
#include "driver/api_model.h"
#include "driver/api_options.h"

using namespace tilewright;
using namespace tilewright::api;

namespace {

tilewright_model* finished(Compilation c) { return new tilewright_model(std::move(c.model), std::move(c.info)); }

}  // namespace

extern "C" {

tilewright_status tilewright_compile_file(const char* path, const tilewright_options* options, tilewright_model** model,
                                          tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(path, "path");
        require_pointer(model, "model");
        *model = finished(compile_or_load(std::string(path), pipeline_options(options)));
    });
}

tilewright_status tilewright_compile_memory(const void* bytes, size_t size, const tilewright_options* options,
                                            tilewright_model** model, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(bytes, "bytes");
        require_pointer(model, "model");
        *model = finished(compile_or_load(bytes, size, pipeline_options(options)));
    });
}

}  // extern "C"
