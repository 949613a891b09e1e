/* usage: load MODEL.so
 *        linked NAME     (with -DLINKED_MODEL=tilewright_model_NAME: the model is part of the program)
 *
 * What a program that ships compiled models does: loads one, runs it on ones, prints the outputs bit by bit. A dynamic
 * dimension is 3. Prints why a model is not loaded. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright/tilewright.h>

#define MOST_INPUTS 8
#define MOST_DIMS 8

static int fail(const char* what, tilewright_error* error) {
    printf("%s: %s (%s)\n", what, tilewright_error_message(error), tilewright_error_hint(error));
    tilewright_error_free(error);
    return 3;
}

/* The i-th input of ones; its shape is in `dims`. */
static int make_input(const tilewright_model* model, size_t i, int64_t* dims, tilewright_tensor* input) {
    tilewright_io io;
    size_t k, count = 1;
    if (tilewright_input(model, i, &io, NULL) != TILEWRIGHT_OK || io.rank > MOST_DIMS) return 0;
    for (k = 0; k < io.rank; ++k) {
        dims[k] = io.dims[k] < 0 ? 3 : io.dims[k];
        count *= (size_t)dims[k];
    }
    input->dtype = io.dtype;
    input->rank = io.rank;
    input->shape = dims;
    input->bytes = count * tilewright_dtype_size(io.dtype);
    input->data = malloc(input->bytes);
    for (k = 0; k < count; ++k) {
        if (io.dtype == TILEWRIGHT_F32)
            ((float*)input->data)[k] = 1;
        else if (io.dtype == TILEWRIGHT_I64)
            ((int64_t*)input->data)[k] = 1;
        else
            return 0;
    }
    return 1;
}

int main(int argc, char** argv) {
    tilewright_error* error = NULL;
    tilewright_model* model = NULL;
    tilewright_session* session = NULL;
    tilewright_model_info info;
    tilewright_tensor inputs[MOST_INPUTS], output;
    int64_t dims[MOST_INPUTS][MOST_DIMS];
    size_t count, i, k;

    if (argc != 2) return 2;
#ifdef LINKED_MODEL
    (void)argv;
    if (tilewright_load_linked(&LINKED_MODEL, &model, &error) != TILEWRIGHT_OK) return fail("load", error);
#else
    if (tilewright_load(argv[1], &model, &error) != TILEWRIGHT_OK) return fail("load", error);
#endif
    if (tilewright_info(model, &info, &error) != TILEWRIGHT_OK) return fail("info", error);
    printf("%s, %s\n", info.producer_name, info.graph_name);
    count = tilewright_input_count(model);
    if (count > MOST_INPUTS) return 2;
    for (i = 0; i < count; ++i)
        if (!make_input(model, i, dims[i], &inputs[i])) return 2;
    if (tilewright_session_create(model, 2, &session, &error) != TILEWRIGHT_OK) return fail("session", error);
    if (tilewright_run(session, inputs, count - 1, NULL) != TILEWRIGHT_INVALID_ARGUMENT) return 1;
    if (tilewright_run(session, inputs, count, &error) != TILEWRIGHT_OK) return fail("run", error);
    for (i = 0; i < tilewright_output_count(model); ++i) {
        if (tilewright_session_output(session, i, &output, &error) != TILEWRIGHT_OK) return fail("output", error);
        printf("%s", tilewright_dtype_name(output.dtype));
        for (k = 0; k < output.rank; ++k) printf(" %lld", (long long)output.shape[k]);
        for (k = 0; k < output.bytes; ++k) printf("%s%02x", k % 32 == 0 ? "\n" : "", ((const uint8_t*)output.data)[k]);
        printf("\n");
    }
    tilewright_session_free(session);
    tilewright_model_free(model);
    for (i = 0; i < count; ++i) free(inputs[i].data);
    return 0;
}
