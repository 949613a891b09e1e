/* A library with an operator, for any program that runs a model with it:
 *
 *     cc -shared -fPIC -o smooth_library.so smooth_library.c
 *     tilewright run detrend.onnx --operators smooth_library.so --dim n=6
 *
 * smooth.c defines the same operator for its program alone. */
#include <tilewright/operator_library.h>

#include "smooth.h"

static const tilewright_operator_definition operators[] = {{.struct_size = sizeof(tilewright_operator_definition),
                                                            .domain = "com.example",
                                                            .name = "Smooth",
                                                            .least_inputs = 1,
                                                            .most_inputs = 1,
                                                            .most_outputs = 1,
                                                            .infer = infer,
                                                            .compute = compute}};
TILEWRIGHT_OPERATOR_LIBRARY(operators)
