/* The functions of the operator Smooth: a moving average, whose attribute `radius` says how many elements on each side
 * count. smooth.c defines it for its program, smooth_library.c for all programs that load the library: each includes
 * before this file the header that declares tilewright_call_int and the like. */
/* The type of the output: that of the input. It is called by the compilation, where the length is not known yet, and by
 * every run. */
static int32_t infer(void* user, tilewright_call* call, const tilewright_tensor* const* inputs) {
    (void)user;
    if (inputs[0]->dtype != TILEWRIGHT_F32 || inputs[0]->rank != 1)
        return tilewright_call_fail(call, "a vector of f32 is expected");
    tilewright_call_set_output(call, 0, TILEWRIGHT_F32, 1, inputs[0]->shape);
    return 0;
}

static int32_t compute(void* user, tilewright_call* call, const tilewright_tensor* const* inputs,
                       const tilewright_tensor* const* outputs) {
    (void)user;
    const int64_t radius = tilewright_call_int(call, "radius", 1), n = inputs[0]->shape[0];
    const float* x = inputs[0]->data;
    float* y = outputs[0]->data;
    if (radius < 0) return tilewright_call_fail(call, "the radius is negative");
    for (int64_t i = 0; i < n; ++i) {
        const int64_t first = i > radius ? i - radius : 0, last = i + radius < n ? i + radius : n - 1;
        float sum = 0;
        for (int64_t k = first; k <= last; ++k) sum += x[k];
        y[i] = sum / (float)(last - first + 1);
    }
    return 0;
}
