/* usage: c_consumer MODEL.onnx VERSION
 *
 * What a stranger's C program does with Tilewright: compiles the model, runs it on ones, prints the outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tilewright/tilewright.h>

static int fail(const char* what, tilewright_error* error) {
    fprintf(stderr, "%s: %s\n", what, tilewright_error_message(error));
    tilewright_error_free(error);
    return 1;
}

int main(int argc, char** argv) {
    tilewright_error* error = NULL;
    tilewright_model* model = NULL;
    tilewright_session* session = NULL;
    tilewright_options options = tilewright_default_options();
    tilewright_io io;
    tilewright_tensor input, output;
    float* ones = NULL;
    size_t count = 1, i;

    if (argc != 3) return 2;
    if (strcmp(tilewright_version(), argv[2]) != 0) return fail("not the version that was found", NULL);
    if (tilewright_compile_file("no/such/file.onnx", NULL, &model, &error) == TILEWRIGHT_OK) return 1;
    tilewright_error_free(error);
    options.threads = 1;
    if (tilewright_compile_file(argv[1], &options, &model, &error) != TILEWRIGHT_OK) return fail("compile", error);
    if (tilewright_input_count(model) != 1) return fail("expected one input", NULL);
    if (tilewright_input(model, 0, &io, &error) != TILEWRIGHT_OK) return fail("input", error);
    for (i = 0; i < io.rank; ++i) count *= (size_t)io.dims[i];
    if (tilewright_session_create(model, 1, &session, &error) != TILEWRIGHT_OK) return fail("session", error);

    ones = malloc(count * sizeof *ones);
    if (ones == NULL) return 1;
    for (i = 0; i < count; ++i) ones[i] = 1;
    input.dtype = TILEWRIGHT_F32;
    input.rank = io.rank;
    input.shape = io.dims;
    input.data = ones;
    input.bytes = count * sizeof *ones;
    if (tilewright_run(session, &input, 1, &error) != TILEWRIGHT_OK) return fail("run", error);
    if (tilewright_session_output(session, 0, &output, &error) != TILEWRIGHT_OK) return fail("output", error);
    for (i = 0; i < output.bytes / sizeof(float); ++i) printf("%.9g\n", (double)((const float*)output.data)[i]);

    free(ones);
    tilewright_session_free(session);
    tilewright_model_free(model);
    return 0;
}
