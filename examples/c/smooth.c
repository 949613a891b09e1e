/* Runs a model with an operator of this program's own.
 *
 *     smooth detrend.onnx 1 2 4 8 16
 *
 * The model is y = x - Smooth(x): Smooth, of the domain com.example, is defined in smooth.h. */
#include <stdio.h>
#include <stdlib.h>
#include <tilewright/tilewright.h>

#include "smooth.h"

static tilewright_error* error = NULL; /* of the last call */

/* Exits with the message of a failed call. */
static void check(tilewright_status status) {
    if (status == TILEWRIGHT_OK) return;
    fprintf(stderr, "error: %s\n", tilewright_error_message(error));
    exit(1);
}

int main(int count, char** arguments) {
    if (count < 3) {
        fprintf(stderr, "usage: smooth detrend.onnx NUMBER...\n");
        return 2;
    }
    tilewright_operator_definition definition = tilewright_default_operator_definition();
    definition.domain = "com.example";
    definition.name = "Smooth";
    definition.least_inputs = definition.most_inputs = definition.most_outputs = 1;
    definition.infer = infer;
    definition.compute = compute;
    tilewright_operator* smooth = NULL;
    check(tilewright_operator_create(&definition, &smooth, &error));

    const tilewright_operator* operators[] = {smooth};
    tilewright_options options = tilewright_default_options();
    options.operator_count = 1;
    options.operators = operators;
    tilewright_model* model = NULL;
    check(tilewright_compile_file(arguments[1], &options, &model, &error));
    tilewright_operator_free(smooth); /* the model keeps it */
    tilewright_session* session = NULL;
    check(tilewright_session_create(model, 0, &session, &error));
    tilewright_model_free(model);

    const int64_t shape[] = {count - 2};
    float* x = malloc((size_t)shape[0] * sizeof *x);
    if (x == NULL) return 1;
    for (int i = 2; i < count; ++i) x[i - 2] = strtof(arguments[i], NULL);
    const tilewright_tensor input = {TILEWRIGHT_F32, 1, shape, x, (size_t)shape[0] * sizeof *x};
    check(tilewright_run(session, &input, 1, &error));
    tilewright_tensor output;
    check(tilewright_session_output(session, 0, &output, &error));
    for (int64_t i = 0; i < output.shape[0]; ++i) printf("%g\n", ((const float*)output.data)[i]);
    free(x);
    tilewright_session_free(session);
    return 0;
}
