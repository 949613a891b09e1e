/* Shared libraries of operators: docs/custom-operators.md.
 *
 *     cc -shared -fPIC -o smooth.so smooth.c
 *     tilewright compile detrend.onnx --operators smooth.so -o detrend.so
 *
 * A source file with operators includes this header and, once in the library,
 *
 *     static const tilewright_operator_definition all[] = {{...}, {...}};
 *     TILEWRIGHT_OPERATOR_LIBRARY(all)
 *
 * Their functions call tilewright_call_int and the like as operators of a program do. Here these names are functions of
 * the Tilewright that makes the call, which it brings along: the library is linked with none, and several programs and
 * versions in one process may use it. */
#ifndef TILEWRIGHT_OPERATOR_LIBRARY_H
#define TILEWRIGHT_OPERATOR_LIBRARY_H

#include <tilewright/tilewright.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the library exports: its definitions and their number. NULL if `functions`, the size of the caller's table, is
 * less than the library may use. The definitions stay valid. */
TILEWRIGHT_API const tilewright_operator_definition* tilewright_operator_library(size_t functions, size_t* count);

#ifdef __cplusplus
}
#define TILEWRIGHT_EXTERN_C_ extern "C"
#else
#define TILEWRIGHT_EXTERN_C_
#endif

/* Defines tilewright_operator_library. `definitions`: an array of at least one. */
#define TILEWRIGHT_OPERATOR_LIBRARY(definitions)                                                             \
    TILEWRIGHT_EXTERN_C_ const tilewright_operator_definition* tilewright_operator_library(size_t functions, \
                                                                                           size_t* count) {  \
        if (functions < sizeof(tilewright_call_functions)) return NULL;                                      \
        *count = sizeof(definitions) / sizeof((definitions)[0]);                                             \
        return definitions;                                                                                  \
    }

#define TILEWRIGHT_CALL_(call) (*(const tilewright_call_functions* const*)(const void*)(call))
#define tilewright_call_node(call) (TILEWRIGHT_CALL_(call)->node(call))
#define tilewright_call_input_count(call) (TILEWRIGHT_CALL_(call)->input_count(call))
#define tilewright_call_output_count(call) (TILEWRIGHT_CALL_(call)->output_count(call))
#define tilewright_call_fail(call, message) (TILEWRIGHT_CALL_(call)->fail(call, message))
#define tilewright_call_attribute(call, name) (TILEWRIGHT_CALL_(call)->attribute(call, name))
#define tilewright_call_int(call, name, fallback) (TILEWRIGHT_CALL_(call)->get_int(call, name, fallback))
#define tilewright_call_float(call, name, fallback) (TILEWRIGHT_CALL_(call)->get_float(call, name, fallback))
#define tilewright_call_string(call, name, fallback) (TILEWRIGHT_CALL_(call)->get_string(call, name, fallback))
#define tilewright_call_ints(call, name, count) (TILEWRIGHT_CALL_(call)->get_ints(call, name, count))
#define tilewright_call_floats(call, name, count) (TILEWRIGHT_CALL_(call)->get_floats(call, name, count))
#define tilewright_call_tensor(call, name) (TILEWRIGHT_CALL_(call)->get_tensor(call, name))
#define tilewright_call_set_output(call, index, dtype, rank, sizes) \
    (TILEWRIGHT_CALL_(call)->set_output(call, index, dtype, rank, sizes))
#define tilewright_call_add(call, a, b) (TILEWRIGHT_CALL_(call)->add(call, a, b))
#define tilewright_call_sub(call, a, b) (TILEWRIGHT_CALL_(call)->sub(call, a, b))
#define tilewright_call_mul(call, a, b) (TILEWRIGHT_CALL_(call)->mul(call, a, b))
#define tilewright_call_div(call, a, b) (TILEWRIGHT_CALL_(call)->div(call, a, b))
#define tilewright_call_min(call, a, b) (TILEWRIGHT_CALL_(call)->min(call, a, b))
#define tilewright_call_max(call, a, b) (TILEWRIGHT_CALL_(call)->max(call, a, b))
#define tilewright_call_allocate(call, index, rank, sizes) (TILEWRIGHT_CALL_(call)->allocate(call, index, rank, sizes))

#endif
