/* Tilewright: compiles ONNX models to machine code for the CPU it runs on, and runs them.
 *
 *     tilewright_model* model = NULL;
 *     tilewright_error* error = NULL;
 *     if (tilewright_compile_file("model.onnx", NULL, &model, &error) != TILEWRIGHT_OK) {
 *         fprintf(stderr, "%s\n", tilewright_error_message(error));
 *         tilewright_error_free(error);
 *         return 1;
 *     }
 *     tilewright_session* session = NULL;
 *     tilewright_session_create(model, 0, &session, NULL);
 *     const int64_t shape[] = {1, 3, 224, 224};
 *     tilewright_tensor input = {TILEWRIGHT_F32, 4, shape, pixels, sizeof pixels};
 *     tilewright_run(session, &input, 1, NULL);
 *     tilewright_tensor output;
 *     tilewright_session_output(session, 0, &output, NULL);
 *     use(output.data, output.bytes);
 *     tilewright_session_free(session);
 *     tilewright_model_free(model);
 *
 * Ownership. What a function creates is freed by the function of the same name that ends in _free; freeing NULL does
 * nothing. A session keeps its model alive: the model may be freed first. Everything else that a pointer leads to
 * (names, shapes, output data) belongs to the model or session it was asked of.
 *
 * Threads. A model never changes: any number of threads may use one, and create sessions of it. One session may be used
 * by one thread at a time: while a call uses it, calls of other threads return TILEWRIGHT_BUSY and change nothing, but
 * it must not be freed, and the outputs that a call gave must not be read while another thread runs the session.
 * Different sessions, also of one model, may be used by different threads at the same time. Sessions with
 * equal numbers of threads share one pool of worker threads. Results of one model depend neither on how many
 * sessions run nor on their numbers of threads. tilewright_options.threads, which code is laid out for, may change the
 * order of sums, and with it the last bits; TILEWRIGHT_NUMERICS_STRICT excludes that.
 *
 * Errors. A function that can fail returns a status, and puts an error object into `*error` unless `error` is NULL or
 * the status is TILEWRIGHT_OK (then `*error` becomes NULL). No C++ exception leaves the library. Results are written
 * only on success.
 */
#ifndef TILEWRIGHT_TILEWRIGHT_H
#define TILEWRIGHT_TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TILEWRIGHT_VERSION "0.1.0"

#if defined(__GNUC__)
#define TILEWRIGHT_API __attribute__((visibility("default")))
#else
#define TILEWRIGHT_API
#endif

/* In C++ an enumeration holds any number only where its type is named, and callers may give wrong ones. */
#ifdef __cplusplus
#define TILEWRIGHT_INT : int
extern "C" {
#else
#define TILEWRIGHT_INT
#endif

typedef enum tilewright_status TILEWRIGHT_INT {
    TILEWRIGHT_OK = 0,
    TILEWRIGHT_INVALID_ARGUMENT = 1, /* the call is wrong: a null pointer, an index out of range */
    TILEWRIGHT_INVALID_MODEL = 2,    /* the model or the data: damaged, not supported, of another shape */
    TILEWRIGHT_RUNTIME_ERROR = 3,    /* the machine: a file that cannot be read, no memory */
    TILEWRIGHT_INTERNAL_ERROR = 4,   /* a bug of Tilewright */
    TILEWRIGHT_BUSY = 5              /* another thread uses the session */
} tilewright_status;

/* Elements of tensors, in the order of the host. BOOL is one byte, 0 or 1; types of less than 8 bits have one byte an
 * element. */
typedef enum tilewright_dtype TILEWRIGHT_INT {
    TILEWRIGHT_F32 = 0,
    TILEWRIGHT_F64 = 1,
    TILEWRIGHT_F16 = 2,
    TILEWRIGHT_BF16 = 3,
    TILEWRIGHT_I8 = 4,
    TILEWRIGHT_I16 = 5,
    TILEWRIGHT_I32 = 6,
    TILEWRIGHT_I64 = 7,
    TILEWRIGHT_U8 = 8,
    TILEWRIGHT_U16 = 9,
    TILEWRIGHT_U32 = 10,
    TILEWRIGHT_U64 = 11,
    TILEWRIGHT_BOOL = 12,
    TILEWRIGHT_F8E4M3FN = 13,
    TILEWRIGHT_F8E4M3FNUZ = 14,
    TILEWRIGHT_F8E5M2 = 15,
    TILEWRIGHT_F8E5M2FNUZ = 16,
    TILEWRIGHT_F8E8M0 = 17,
    TILEWRIGHT_I4 = 18,
    TILEWRIGHT_U4 = 19,
    TILEWRIGHT_F4E2M1 = 20,
    TILEWRIGHT_I2 = 21,
    TILEWRIGHT_U2 = 22
} tilewright_dtype;

typedef struct tilewright_error tilewright_error;
typedef struct tilewright_model tilewright_model;
typedef struct tilewright_session tilewright_session;

/* "0.1.0", of the library that runs; TILEWRIGHT_VERSION is the header's. */
TILEWRIGHT_API const char* tilewright_version(void);
/* Bytes of one element; 0 for a number that is no type. */
TILEWRIGHT_API size_t tilewright_dtype_size(tilewright_dtype type);
/* "f32", "i64", "bool", ...; "?" for a number that is no type. */
TILEWRIGHT_API const char* tilewright_dtype_name(tilewright_dtype type);

/* One sentence that names the file, node or input, what was expected and what was found. */
TILEWRIGHT_API const char* tilewright_error_message(const tilewright_error* error);
/* What to do about it; "" where there is nothing to say. */
TILEWRIGHT_API const char* tilewright_error_hint(const tilewright_error* error);
TILEWRIGHT_API tilewright_status tilewright_error_status(const tilewright_error* error);
TILEWRIGHT_API void tilewright_error_free(tilewright_error* error);

/* What may be done to floating-point results. In any case the order of sums is the compiler's choice, and equal options
 * on one machine give equal bits, whatever the number of sessions and of their threads. */
typedef enum tilewright_numerics {
    /* Convolutions of few taps by Winograd's algorithm, as long as what they read is finite and at most 2^20 in
     * magnitude; a run with other numbers is repeated with the strict code, which is compiled when that happens first.
     * An output's error is at most 1e-5 of the largest output in f32, where its tile's inputs, up to 3 places beyond
     * its window, are of one magnitude: it is relative to the largest of them. */
    TILEWRIGHT_NUMERICS_DEFAULT = 0,
    /* An output depends on the inputs that its definition reads alone, and its bits do not depend on
     * tilewright_options.threads. */
    TILEWRIGHT_NUMERICS_STRICT = 1,
    /* As by default without the check: an infinity or NaN may reach outputs up to 3 places beyond its window. */
    TILEWRIGHT_NUMERICS_FAST = 2
} tilewright_numerics;

/* How to compile. A null pointer means the defaults.
 *
 *     tilewright_options options = tilewright_default_options();
 *     options.threads = 2;
 *
 * Later versions add fields at the end and change nothing else. `struct_size` says which of them the caller was
 * compiled with: fields behind it mean their defaults, and a caller with more fields than the library has is refused
 * where one of those is not zero. 0 stands for the fields up to `dim_sizes`. A field of zeros means the default. */
typedef struct tilewright_options {
    size_t struct_size; /* sizeof(tilewright_options) */
    int32_t threads;    /* what the code is laid out for; 0: the processors this process may use */
    const char* isa;    /* "avx2" or "avx512"; NULL: the best this machine has */
    size_t dim_count;   /* fixes named dimensions of inputs: dim_names[i] is dim_sizes[i]; other names are refused */
    const char* const* dim_names;
    const int64_t* dim_sizes;
    int32_t keep_subnormals; /* not 0: subnormal f32 and f64 numbers are computed with. Else they count as 0 while the
                                model runs (MXCSR's FTZ and DAZ; the caller's mode is restored): some CPUs are up to a
                                hundred times slower on them */
    int32_t numerics;        /* TILEWRIGHT_NUMERICS_...: what may be done to floating-point results */
    int32_t check_values;    /* not 0: all indices, lengths and shapes that the data gives are checked, also where that
                                takes time. Else indices out of range may read another element */
} tilewright_options;

static inline tilewright_options tilewright_default_options(void) {
    tilewright_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

/* Reads and compiles an ONNX file. External data is read only from below the file's own folder. */
TILEWRIGHT_API tilewright_status tilewright_compile_file(const char* path, const tilewright_options* options,
                                                         tilewright_model** model, tilewright_error** error);
/* The same from bytes, which are needed until the function returns. External data is refused. */
TILEWRIGHT_API tilewright_status tilewright_compile_memory(const void* bytes, size_t size,
                                                           const tilewright_options* options, tilewright_model** model,
                                                           tilewright_error** error);
TILEWRIGHT_API void tilewright_model_free(tilewright_model* model);

/* What a model declares of an input or output. A dimension that the model leaves open is -1 in `dims`, and
 * `dim_names[i]` says what it is called ("batch", or an expression such as "$batch * 2"); a fixed one has the name
 * NULL. Equal names are equal sizes. */
typedef struct tilewright_io {
    const char* name;
    tilewright_dtype dtype;
    size_t rank;
    const int64_t* dims;
    const char* const* dim_names;
} tilewright_io;

/* 0 for a null pointer. */
TILEWRIGHT_API size_t tilewright_input_count(const tilewright_model* model);
TILEWRIGHT_API size_t tilewright_output_count(const tilewright_model* model);
TILEWRIGHT_API tilewright_status tilewright_input(const tilewright_model* model, size_t index, tilewright_io* io,
                                                  tilewright_error** error);
TILEWRIGHT_API tilewright_status tilewright_output(const tilewright_model* model, size_t index, tilewright_io* io,
                                                   tilewright_error** error);

/* A dense row-major tensor. `bytes` must be the elements' count times their size. Data should be aligned to 64 bytes;
 * inputs that are not aligned to the size of an element are copied before they are used. */
typedef struct tilewright_tensor {
    tilewright_dtype dtype;
    size_t rank;
    const int64_t* shape;
    void* data; /* may be NULL where bytes is 0 */
    size_t bytes;
} tilewright_tensor;

/* threads: 0: the processors this process may use. */
TILEWRIGHT_API tilewright_status tilewright_session_create(const tilewright_model* model, int32_t threads,
                                                           tilewright_session** session, tilewright_error** error);
TILEWRIGHT_API void tilewright_session_free(tilewright_session* session);

/* Runs the model on inputs by position. Their data stays the caller's and is read during the call only. */
TILEWRIGHT_API tilewright_status tilewright_run(tilewright_session* session, const tilewright_tensor* inputs,
                                                size_t input_count, tilewright_error** error);
/* An output of the last successful run. Shape and data are the session's, and stay valid until its next run. */
TILEWRIGHT_API tilewright_status tilewright_session_output(const tilewright_session* session, size_t index,
                                                           tilewright_tensor* output, tilewright_error** error);
/* Runs, and copies the outputs into memory of the caller's: `outputs[i].data` with room for `outputs[i].bytes`. On
 * return `bytes` is the size of the output and `dtype`, `rank`, `shape` are the output's; `shape` points into the
 * session. Fails with TILEWRIGHT_INVALID_ARGUMENT where the room does not suffice: then each `bytes` says how much is
 * needed, and tilewright_session_output still gives the outputs. */
TILEWRIGHT_API tilewright_status tilewright_run_into(tilewright_session* session, const tilewright_tensor* inputs,
                                                     size_t input_count, tilewright_tensor* outputs,
                                                     size_t output_count, tilewright_error** error);

#ifdef __cplusplus
}
#endif

#endif
