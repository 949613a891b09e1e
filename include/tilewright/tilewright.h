/* Tilewright: compiles ONNX models to machine code for the host CPU, and runs them.
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
 * (names, shapes, output data) belongs to the model or session that returned it.
 *
 * Threads. A model is immutable: any number of threads may use it and create sessions of it. A session may be used by
 * one thread at a time: during a call, calls of other threads return TILEWRIGHT_BUSY and have no effect. A session must
 * not be freed during a call, and its outputs must not be read while another thread runs it. Different sessions,
 * including sessions of one model, may be used by different threads at the same time. Sessions with equal numbers of
 * threads share one pool of worker threads. The results of a model depend neither on the number of running sessions nor
 * on their numbers of threads. tilewright_options.threads, the number of threads that the code is planned for, may
 * change the order of sums, and with it the last bits; TILEWRIGHT_NUMERICS_STRICT excludes that.
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

/* In C++ only an enumeration with a fixed underlying type may hold any number, and callers may pass invalid ones. */
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
    TILEWRIGHT_BUSY = 5,             /* another thread uses the session */
    TILEWRIGHT_CANCELLED = 6         /* the caller's `cancelled` returned non-zero */
} tilewright_status;

/* Elements of tensors, in the order of the host. BOOL is one byte, 0 or 1; types of less than 8 bits have one byte per
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
typedef struct tilewright_kv_cache tilewright_kv_cache;
typedef struct tilewright_operator tilewright_operator;

/* Functions of an ONNX file (ModelProto.functions) that define operators: docs/custom-operators.md. */
typedef struct tilewright_function_library {
    const char* path;  /* NULL: the bytes below */
    const void* bytes; /* of such a file */
    size_t size;
} tilewright_function_library;

/* "0.1.0": the version of the loaded library; TILEWRIGHT_VERSION is that of the header. */
TILEWRIGHT_API const char* tilewright_version(void);
/* Bytes of one element; 0 for an invalid type. */
TILEWRIGHT_API size_t tilewright_dtype_size(tilewright_dtype type);
/* "f32", "i64", "bool", ...; "?" for an invalid type. */
TILEWRIGHT_API const char* tilewright_dtype_name(tilewright_dtype type);

/* One sentence with the file, node or input, the expectation and the finding. */
TILEWRIGHT_API const char* tilewright_error_message(const tilewright_error* error);
/* The remedy; "" if there is none. */
TILEWRIGHT_API const char* tilewright_error_hint(const tilewright_error* error);
TILEWRIGHT_API tilewright_status tilewright_error_status(const tilewright_error* error);
TILEWRIGHT_API void tilewright_error_free(tilewright_error* error);

/* Allowed changes of floating-point results. The order of sums is always the compiler's choice, and equal options on
 * one machine give equal bits, for any number of sessions and of their threads. */
typedef enum tilewright_numerics {
    /* Convolutions of few taps use Winograd's algorithm if their inputs are finite and at most 2^20 in magnitude; a run
     * with other inputs is repeated with the strict code, which is compiled on first use. The error of an output in f32
     * is at most 1e-5 of the largest output if the inputs of its tile, up to 3 elements beyond its window, have similar
     * magnitudes: the error is relative to the largest of them. */
    TILEWRIGHT_NUMERICS_DEFAULT = 0,
    /* An output only depends on the inputs of its definition, and its bits do not depend on
     * tilewright_options.threads. */
    TILEWRIGHT_NUMERICS_STRICT = 1,
    /* As the default, without the check: an infinity or NaN may affect outputs up to 3 elements beyond its window. */
    TILEWRIGHT_NUMERICS_FAST = 2
} tilewright_numerics;

/* The precision to which f32 operands of products may be rounded. Sums, normalisations, inputs and outputs stay f32. */
typedef enum tilewright_precision TILEWRIGHT_INT {
    TILEWRIGHT_F32_PRODUCTS = 0,
    /* bf16, where this machine has instructions for it (Intel AMX, AVX512_BF16); elsewhere as TILEWRIGHT_F32_PRODUCTS.
     * The error is about 2^-8 of the largest output for each layer. */
    TILEWRIGHT_BF16_PRODUCTS = 1,
    /* bf16 or f16 where it is estimated to be no slower than f32, within tilewright_options.max_error; elsewhere f32.
     */
    TILEWRIGHT_AUTO_PRODUCTS = 2,
    /* f32 operands as sums of two bf16 numbers on Intel AMX: 16 of f32's 24 bits; elsewhere as TILEWRIGHT_F32_PRODUCTS.
     */
    TILEWRIGHT_F32_FAST_PRODUCTS = 3,
    /* f16, where this machine has multiply-adds of it (AVX512_FP16), up to 32 of which are added up in f16; elsewhere
     * as TILEWRIGHT_F32_PRODUCTS. Numbers, products and such sums above 65504 become infinite. */
    TILEWRIGHT_F16_PRODUCTS = 4
} tilewright_precision;

/* Layouts of tensors inside of a model (docs/layouts.md). */
typedef enum tilewright_layouts TILEWRIGHT_INT {
    TILEWRIGHT_RULE_LAYOUTS = 0,  /* by the default heuristic */
    TILEWRIGHT_ROW_MAJOR = 1,     /* all are row-major */
    TILEWRIGHT_JOINT_LAYOUTS = 2, /* tuned together with loops, by estimates and for `layout_seconds` by measurements */
} tilewright_layouts;

/* How primitives are grouped into kernels. */
typedef enum tilewright_orchestrator TILEWRIGHT_INT {
    TILEWRIGHT_GREEDY = 0, /* fast to compile */
    TILEWRIGHT_OPTIMAL = 1 /* by a binary program */
} tilewright_orchestrator;

typedef enum tilewright_severity TILEWRIGHT_INT {
    TILEWRIGHT_INFO = 1,   /* the name of a pass that begins, or what is measured */
    TILEWRIGHT_WARNING = 2 /* what works differently than requested, and the remedy */
} tilewright_severity;

/* Options of the compilation. A null pointer means the defaults.
 *
 *     tilewright_options options = tilewright_default_options();
 *     options.threads = 2;
 *
 * Later versions only add fields at the end. `struct_size` is the size that the caller was compiled with: fields beyond
 * it have their defaults, and non-zero fields that the library does not have are an error. A size of 0 means the fields
 * up to `dim_sizes`. A field of zeros means the default. */
typedef struct tilewright_options {
    size_t struct_size; /* sizeof(tilewright_options) */
    int32_t threads;    /* threads that the code is planned for; 0: the CPUs that this process may use */
    const char* isa;    /* "avx2", "avx512-bf16", ... (docs/artifacts.md); NULL: the best one of this machine */
    size_t dim_count;   /* fixes named dimensions of inputs: dim_names[i] is dim_sizes[i]; other names are refused */
    const char* const* dim_names;
    const int64_t* dim_sizes;
    int32_t keep_subnormals; /* not 0: compute with subnormal f32 and f64 numbers. Otherwise they are flushed to 0
                                while the model runs (MXCSR's FTZ and DAZ; the caller's mode is restored): some CPUs are
                                up to a hundred times slower on them */
    int32_t numerics;        /* TILEWRIGHT_NUMERICS_...: allowed changes of floating-point results */
    int32_t check_values;    /* not 0: check all data-dependent indices, lengths and shapes, even if that takes time.
                                Otherwise indices out of range may read another element */
    int32_t orchestrator;    /* TILEWRIGHT_GREEDY or TILEWRIGHT_OPTIMAL */
    int32_t measure;         /* not 0: choose between kernels by measurements on this machine, which are kept in the
                                tuning database */
    double measure_seconds;  /* time for these measurements; 0: 60 */
    size_t sample_count;     /* typical sizes of dynamic dimensions, for measurements and for explanations:
                                sample_names[i] is sample_sizes[i]. The model still accepts all sizes */
    const char* const* sample_names;
    const int64_t* sample_sizes;
    const char* cache_folder; /* where machine code and compiled models are kept: a later compilation of the same model
                                 with the same options loads them. "": the command-line tool's cache folder; NULL:
                                 nothing is kept. Not NULL: the first compilation on a machine measures its rates, for
                                 at most 2 seconds, unless the environment variable TILEWRIGHT_CALIBRATE is "0" */
    void* user;               /* first argument of the functions below, which may be called from any thread */
    void (*log)(void* user, tilewright_severity severity, const char* message);
    int32_t (*cancelled)(void* user); /* called before each pass and measurement; non-zero: ends the compilation with
                                         TILEWRIGHT_CANCELLED */
    int32_t precision;                /* TILEWRIGHT_..._PRODUCTS */
    size_t range_count; /* declares ranges of named dimensions of inputs, which stay dynamic: range_names[i] has the
                           sizes ranges[i], such as "1..512", "1..512:8,64,128@3" (sizes for which kernels are
                           made, with weights behind '@'), "1.." (no upper end) or "32..512/32" (multiples of 32). A
                           run with another size is an error. Undeclared dimensions have any size */
    const char* const* range_names;
    const char* const* ranges;
    int32_t kv_cache; /* not 0: inputs that an output extends, such as past keys and values of a decoder, can stay in a
                         tilewright_kv_cache. An error where the model has none (tilewright_append_count) */
    size_t keep_f32_count; /* products that stay in f32 whatever `precision` says: those of nodes whose name, or the
                              name of one of whose tensors, matches the pattern keep_f32[i] (* any text, ? one
                              character). A pattern that matches nothing is an error */
    const char* const* keep_f32;
    double max_error; /* for bf16 and f16: the largest error of an output against f32, relative to its largest
                         magnitude, on random inputs with the dimensions `sample_sizes`. Products stay in f32 until it
                         is met. 0: no limit; 0.02 for TILEWRIGHT_AUTO_PRODUCTS */
    size_t function_library_count; /* a node that has the domain and name of a function becomes the function's nodes,
                                      which fuse with others. The model's own functions take precedence; two libraries
                                      with one function are an error */
    const tilewright_function_library* function_libraries;
    size_t operator_count; /* operators that C functions compute; they take precedence over Tilewright's. A model with
                              any is not kept in `cache_folder` */
    const tilewright_operator* const* operators;
    const char* output_file;       /* not NULL: the model is also written there, as by `tilewright compile -o`, for
                                      tilewright_load and tilewright_load_with */
    size_t operator_library_count; /* further operators: of shared libraries that tilewright/operator_library.h helps to
                                      write. They stay loaded until the process ends */
    const char* const* operator_libraries; /* paths */
    tilewright_layouts layouts;
    double layout_seconds; /* for TILEWRIGHT_JOINT_LAYOUTS, time to measure kernels, in tunings too; 0: none */
    int32_t tuned; /* not 0: use the plan that tilewright_tune_file or `tilewright tune` has kept for this model, these
                      options and this machine. Without one the plan is the default one, with a note to `log` */
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
/* As tilewright_compile_file, from bytes that stay valid until the function returns. External data is refused. */
TILEWRIGHT_API tilewright_status tilewright_compile_memory(const void* bytes, size_t size,
                                                           const tilewright_options* options, tilewright_model** model,
                                                           tilewright_error** error);
/* Loads a file that `tilewright compile` wrote; nothing is compiled. Its machine code runs in this process: load files
 * of trusted origin only. Fails if the file is damaged, has another version's format, or needs instructions that this
 * CPU does not have, which the message lists. */
TILEWRIGHT_API tilewright_status tilewright_load(const char* path, tilewright_model** model, tilewright_error** error);

/* What a loaded model needs of the caller. `struct_size` is sizeof(tilewright_load_options), as in tilewright_options.
 */
typedef struct tilewright_load_options {
    size_t struct_size;
    size_t operator_count; /* the operators with which the model was compiled, by domain and name. A missing one is an
                              error that names it */
    const tilewright_operator* const* operators;
    size_t operator_library_count; /* as in tilewright_options */
    const char* const* operator_libraries;
    int32_t copy_weights; /* not 0: weights are copied to memory of the process, on huge pages. Otherwise they are
                             mapped from the file, which processes share; runs that read all weights for few rows are
                             then slower where the kernel maps files by pages of 4 KiB (docs/artifacts.md). No effect on
                             linked models */
} tilewright_load_options;

static inline tilewright_load_options tilewright_default_load_options(void) {
    tilewright_load_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

/* As tilewright_load, with options; NULL means the defaults. */
TILEWRIGHT_API tilewright_status tilewright_load_with(const char* path, const tilewright_load_options* options,
                                                      tilewright_model** model, tilewright_error** error);

/* A model that is linked into the program. `tilewright compile model.onnx -o NAME.a` writes it as a static archive, and
 * NAME.h declares it: `extern const tilewright_linked_model tilewright_model_NAME`. */
typedef struct tilewright_linked_model tilewright_linked_model;
/* As tilewright_load, from the program's own memory: tilewright_load_linked(&tilewright_model_NAME, &model, &error). */
TILEWRIGHT_API tilewright_status tilewright_load_linked(const tilewright_linked_model* linked, tilewright_model** model,
                                                        tilewright_error** error);
/* As tilewright_load_linked, with options; NULL means the defaults. */
TILEWRIGHT_API tilewright_status tilewright_load_linked_with(const tilewright_linked_model* linked,
                                                             const tilewright_load_options* options,
                                                             tilewright_model** model, tilewright_error** error);
TILEWRIGHT_API void tilewright_model_free(tilewright_model* model);

/* The declaration of an input or output. A dynamic dimension is -1 in `dims`, and its name is `dim_names[i]` ("batch",
 * or an expression such as "$batch * 2"). The name of a fixed dimension is NULL. Dimensions with equal names have equal
 * sizes. */
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

/* What the file says about the model. The strings are UTF-8, empty if the file has none. */
typedef struct tilewright_model_info {
    const char* producer_name;
    const char* graph_name;
    const char* domain;
    const char* description;
    const char* graph_description;
    int64_t version;
    size_t metadata_count;
    const char* const* metadata_keys;
    const char* const* metadata_values;
} tilewright_model_info;

TILEWRIGHT_API tilewright_status tilewright_info(const tilewright_model* model, tilewright_model_info* info,
                                                 tilewright_error** error);

/* A dense row-major tensor. `bytes` must be the elements' count times their size. Data should be aligned to 64 bytes;
 * inputs that are not aligned to the size of an element are copied before use. */
typedef struct tilewright_tensor {
    tilewright_dtype dtype;
    size_t rank;
    const int64_t* shape;
    void* data; /* may be NULL if bytes is 0 */
    size_t bytes;
} tilewright_tensor;

/* `threads` 0: the CPUs that this process may use. */
TILEWRIGHT_API tilewright_status tilewright_session_create(const tilewright_model* model, int32_t threads,
                                                           tilewright_session** session, tilewright_error** error);

/* Options of a session. `struct_size` is sizeof(tilewright_session_options), as in tilewright_options. */
typedef struct tilewright_session_options {
    size_t struct_size;
    int32_t threads; /* 0: the CPUs that this process may use */
    void* user;      /* first argument of the function below */
    /* NULL, or the caller's threads in place of a pool of the library, and the session starts none: calls
     * task(argument, i) once for every i < count, on threads of its choice, and returns when all are done. Called once
     * for each run, with a count of `threads`; the first task that begins makes the run, calling the functions of
     * tilewright_run_options, and the others work for it until it ends. If the caller has fewer threads, or runs the
     * tasks one after another, then fewer work. */
    void (*parallel_for)(void* user, size_t count, void (*task)(void* argument, size_t i), void* argument);
} tilewright_session_options;

static inline tilewright_session_options tilewright_default_session_options(void) {
    tilewright_session_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

/* As tilewright_session_create, with options; NULL means the defaults. */
TILEWRIGHT_API tilewright_status tilewright_session_create_with(const tilewright_model* model,
                                                                const tilewright_session_options* options,
                                                                tilewright_session** session, tilewright_error** error);
TILEWRIGHT_API void tilewright_session_free(tilewright_session* session);

/* Runs the model on inputs by position. Their data belongs to the caller and is only read during the call. */
TILEWRIGHT_API tilewright_status tilewright_run(tilewright_session* session, const tilewright_tensor* inputs,
                                                size_t input_count, tilewright_error** error);
/* An output of the last successful run. Shape and data belong to the session, and are valid until its next run. */
TILEWRIGHT_API tilewright_status tilewright_session_output(const tilewright_session* session, size_t index,
                                                           tilewright_tensor* output, tilewright_error** error);
/* Runs, and copies the outputs into the caller's memory: `outputs[i].data` with a capacity of `outputs[i].bytes`. On
 * return `bytes` is the size of the output and `dtype`, `rank`, `shape` are the output's; `shape` points into the
 * session. Fails with TILEWRIGHT_INVALID_ARGUMENT if a capacity does not suffice: then each `bytes` is the required
 * size, and tilewright_session_output still returns the outputs. */
TILEWRIGHT_API tilewright_status tilewright_run_into(tilewright_session* session, const tilewright_tensor* inputs,
                                                     size_t input_count, tilewright_tensor* outputs,
                                                     size_t output_count, tilewright_error** error);

/* What the caller of one run controls. `struct_size` is sizeof(tilewright_run_options), as in tilewright_options. */
typedef struct tilewright_run_options {
    size_t struct_size;
    void* user; /* first argument of the functions below */
    /* Returns memory for output `index`, or NULL for the session's own. `output` has the output's type, shape and
     * bytes. Called once per output: before the kernels run if the size depends on the input shapes alone, otherwise
     * after them. Kernels write directly to memory that is aligned to 64 bytes and overlaps neither an input nor
     * another output; otherwise the output is copied there. tilewright_session_output returns this memory until the
     * next run. */
    void* (*output_memory)(void* user, size_t index, const tilewright_tensor* output);
    /* Called between kernels, from any thread; non-zero: the run ends with TILEWRIGHT_CANCELLED. */
    int32_t (*cancelled)(void* user);
    /* NULL, or holds the inputs of tilewright_append, whose tensors are ignored, and takes their outputs, which are
     * then empty: the dimension that grows is 0. The cache grows when the run succeeds. */
    tilewright_kv_cache* kv_cache;
} tilewright_run_options;

static inline tilewright_run_options tilewright_default_run_options(void) {
    tilewright_run_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    return options;
}

/* As tilewright_run, with options; NULL means none. */
TILEWRIGHT_API tilewright_status tilewright_run_with(tilewright_session* session, const tilewright_tensor* inputs,
                                                     size_t input_count, const tilewright_run_options* options,
                                                     tilewright_error** error);

/* An input that an output extends along dimension `axis`: the output is the input with rows behind it. */
typedef struct tilewright_append {
    size_t input, output, axis;
} tilewright_append;

/* Of a model that was compiled with `kv_cache`; else, and for a null pointer, 0. All grow by the same rows. */
TILEWRIGHT_API size_t tilewright_append_count(const tilewright_model* model);
TILEWRIGHT_API tilewright_status tilewright_append_at(const tilewright_model* model, size_t index,
                                                      tilewright_append* append, tilewright_error** error);

/* The rows of all these inputs, of one sequence or of a batch of them, from run to run: a run appends to them in place.
 * At first there are none. `rows`: how many to reserve memory for at the first run; more make it grow, to at least
 * twice its size, which copies it once. Any session of the model may use it, one run at a time: others return
 * TILEWRIGHT_BUSY. It keeps its model alive, and must not be freed during a run. */
TILEWRIGHT_API tilewright_status tilewright_kv_cache_create(const tilewright_model* model, int64_t rows,
                                                            tilewright_kv_cache** cache, tilewright_error** error);
TILEWRIGHT_API void tilewright_kv_cache_free(tilewright_kv_cache* cache);
/* 0 for a null pointer. */
TILEWRIGHT_API int64_t tilewright_kv_cache_rows(const tilewright_kv_cache* cache);
/* Keeps the first `rows` rows only: 0 begins a new sequence. */
TILEWRIGHT_API tilewright_status tilewright_kv_cache_truncate(tilewright_kv_cache* cache, int64_t rows,
                                                              tilewright_error** error);
/* Copies the rows into the caller's memory as the input of tilewright_append_at(model, index) would have them:
 * `tensor->data` with a capacity of `tensor->bytes`, as in tilewright_run_into. `shape` belongs to the cache, until the
 * next call with it. */
TILEWRIGHT_API tilewright_status tilewright_kv_cache_read(tilewright_kv_cache* cache, size_t index,
                                                          tilewright_tensor* tensor, tilewright_error** error);

/* --- Operators of the caller
 *
 * A node of the operator's domain and name is computed by a C function (docs/custom-operators.md has an example). It is
 * a kernel of its own. Operators are given to the compilation and, by name, to tilewright_load_with: there is no
 * registry of the process, so that libraries in one process may have operators of equal names. A file holds names and
 * attributes, never an address. */

/* One call of an operator's functions; valid until they return. */
typedef struct tilewright_call tilewright_call;

/* `infer`: a size that is known once the operator has computed its output. */
#define TILEWRIGHT_UNKNOWN_SIZE (-1)

/* `struct_size` is sizeof(tilewright_operator_definition), as in tilewright_options.
 *
 * Functions return 0, or else tilewright_call_fail, which ends the compilation or run with TILEWRIGHT_INVALID_MODEL and
 * a message that begins with node and operator. They must not throw. Any thread may call them, several at the same time
 * for different sessions; a run calls them one after another, on the thread that makes the run (of `parallel_for`: the
 * one whose task began first), in the floating-point mode of a new thread. They may use other sessions, but not the one
 * that calls them. */
typedef struct tilewright_operator_definition {
    size_t struct_size;
    const char* domain; /* "com.example"; strings are copied */
    const char* name;
    int64_t version;     /* first version of the domain that has it: a node takes the operator with the newest one that
                            is not newer than what the model imports. 0: 1 */
    size_t least_inputs; /* inputs behind these may be left out */
    size_t most_inputs;  /* 0: no limit */
    size_t most_outputs; /* 0: no limit */
    int32_t varies; /* not 0: equal inputs may give different outputs. Otherwise a node of constants may be computed
                       once, by the compilation */
    void* user;     /* first argument of the functions */
    /* Says the type and sizes of every output, by tilewright_call_set_output. Called by the compilation, and before
     * each `compute` with what the inputs have then. inputs[i] is NULL if the node leaves input i out. For the
     * compilation, a dynamic size is a number below -1 that stands for it: equal numbers are equal sizes, and
     * tilewright_call_add and the like compute with it; `data` is NULL where elements are not known. NULL: all outputs
     * have the type and sizes of input 0. */
    int32_t (*infer)(void* user, tilewright_call* call, const tilewright_tensor* const* inputs);
    /* Writes the outputs. outputs[k] is NULL where `infer` has left a size unknown: tilewright_call_allocate makes it.
     * Memory is aligned to 64 bytes, except for inputs of the model that the caller has not aligned. */
    int32_t (*compute)(void* user, tilewright_call* call, const tilewright_tensor* const* inputs,
                       const tilewright_tensor* const* outputs);
    void (*release)(void* user); /* NULL, or called once: when the operator is freed, and so are all models and sessions
                                    that use it */
} tilewright_operator_definition;

static inline tilewright_operator_definition tilewright_default_operator_definition(void) {
    tilewright_operator_definition definition;
    memset(&definition, 0, sizeof definition);
    definition.struct_size = sizeof definition;
    return definition;
}

/* The operator may be freed once models are made: they keep it. Without success `release` is not called. */
TILEWRIGHT_API tilewright_status tilewright_operator_create(const tilewright_operator_definition* definition,
                                                            tilewright_operator** created, tilewright_error** error);
TILEWRIGHT_API void tilewright_operator_free(tilewright_operator* created);

/* The node: its name in the model, and how many inputs and outputs it has (those left out at the end not counted). */
TILEWRIGHT_API const char* tilewright_call_node(const tilewright_call* call);
TILEWRIGHT_API size_t tilewright_call_input_count(const tilewright_call* call);
TILEWRIGHT_API size_t tilewright_call_output_count(const tilewright_call* call);
/* Returns 1, and makes the call fail with this message. */
TILEWRIGHT_API int32_t tilewright_call_fail(tilewright_call* call, const char* message);

/* Attributes of the node. */
typedef enum tilewright_attribute TILEWRIGHT_INT {
    TILEWRIGHT_NO_ATTRIBUTE = 0,
    TILEWRIGHT_INT_ATTRIBUTE = 1,
    TILEWRIGHT_FLOAT_ATTRIBUTE = 2,
    TILEWRIGHT_STRING_ATTRIBUTE = 3,
    TILEWRIGHT_INTS_ATTRIBUTE = 4,
    TILEWRIGHT_FLOATS_ATTRIBUTE = 5,
    TILEWRIGHT_TENSOR_ATTRIBUTE = 6
} tilewright_attribute;
TILEWRIGHT_API tilewright_attribute tilewright_call_attribute(const tilewright_call* call, const char* name);
/* The value, or `fallback` (lists: NULL and a count of 0; tensors: NULL) where the node does not have the attribute.
 * One of another kind makes the call fail. */
TILEWRIGHT_API int64_t tilewright_call_int(tilewright_call* call, const char* name, int64_t fallback);
TILEWRIGHT_API float tilewright_call_float(tilewright_call* call, const char* name, float fallback);
TILEWRIGHT_API const char* tilewright_call_string(tilewright_call* call, const char* name, const char* fallback);
TILEWRIGHT_API const int64_t* tilewright_call_ints(tilewright_call* call, const char* name, size_t* count);
TILEWRIGHT_API const float* tilewright_call_floats(tilewright_call* call, const char* name, size_t* count);
TILEWRIGHT_API const tilewright_tensor* tilewright_call_tensor(tilewright_call* call, const char* name);

/* In `infer`: the type of output `index`, of sizes as those of inputs, or TILEWRIGHT_UNKNOWN_SIZE. */
TILEWRIGHT_API void tilewright_call_set_output(tilewright_call* call, size_t index, tilewright_dtype dtype, size_t rank,
                                               const int64_t* sizes);
/* In `infer`: arithmetic on sizes, dynamic ones included. The quotient is rounded down; by 0 it is 0. */
TILEWRIGHT_API int64_t tilewright_call_add(tilewright_call* call, int64_t a, int64_t b);
TILEWRIGHT_API int64_t tilewright_call_sub(tilewright_call* call, int64_t a, int64_t b);
TILEWRIGHT_API int64_t tilewright_call_mul(tilewright_call* call, int64_t a, int64_t b);
TILEWRIGHT_API int64_t tilewright_call_div(tilewright_call* call, int64_t a, int64_t b);
TILEWRIGHT_API int64_t tilewright_call_min(tilewright_call* call, int64_t a, int64_t b);
TILEWRIGHT_API int64_t tilewright_call_max(tilewright_call* call, int64_t a, int64_t b);

/* In `compute`: memory for an output of which `infer` has left a size unknown; NULL where that fails, and the call. */
TILEWRIGHT_API void* tilewright_call_allocate(tilewright_call* call, size_t index, size_t rank, const int64_t* sizes);

/* The functions above as a table, with whose address a tilewright_call begins: shared libraries of operators
 * (tilewright/operator_library.h) call the Tilewright that calls them. Later versions add functions at the end. */
typedef struct tilewright_call_functions {
    size_t struct_size;
    const char* (*node)(const tilewright_call* call);
    size_t (*input_count)(const tilewright_call* call);
    size_t (*output_count)(const tilewright_call* call);
    int32_t (*fail)(tilewright_call* call, const char* message);
    tilewright_attribute (*attribute)(const tilewright_call* call, const char* name);
    int64_t (*get_int)(tilewright_call* call, const char* name, int64_t fallback);
    float (*get_float)(tilewright_call* call, const char* name, float fallback);
    const char* (*get_string)(tilewright_call* call, const char* name, const char* fallback);
    const int64_t* (*get_ints)(tilewright_call* call, const char* name, size_t* count);
    const float* (*get_floats)(tilewright_call* call, const char* name, size_t* count);
    const tilewright_tensor* (*get_tensor)(tilewright_call* call, const char* name);
    void (*set_output)(tilewright_call* call, size_t index, tilewright_dtype dtype, size_t rank, const int64_t* sizes);
    int64_t (*add)(tilewright_call* call, int64_t a, int64_t b);
    int64_t (*sub)(tilewright_call* call, int64_t a, int64_t b);
    int64_t (*mul)(tilewright_call* call, int64_t a, int64_t b);
    int64_t (*div)(tilewright_call* call, int64_t a, int64_t b);
    int64_t (*min)(tilewright_call* call, int64_t a, int64_t b);
    int64_t (*max)(tilewright_call* call, int64_t a, int64_t b);
    void* (*allocate)(tilewright_call* call, size_t index, size_t rank, const int64_t* sizes);
} tilewright_call_functions;

/* What a session has done beside running kernels, since it was created. Once input sizes repeat, only `runs`,
 * `recalled` and `bytes_copied` grow. `struct_size`: sizeof(tilewright_counts), set by the caller. */
typedef struct tilewright_counts {
    size_t struct_size;
    uint64_t runs;
    uint64_t compilations; /* of the strict program, for inputs that do not suit the numerics of the model */
    uint64_t preparations; /* of input sizes that were not among the last 16 */
    uint64_t recalled;     /* sizes that were among the last 16, but not those of the run before */
    uint64_t memory_plans;
    uint64_t dispatches;   /* choices by size among several ways to compute the same values */
    uint64_t bytes_copied; /* by the session, not by kernels: outputs, and what loops and branches carry */
} tilewright_counts;

TILEWRIGHT_API tilewright_status tilewright_session_counts(const tilewright_session* session, tilewright_counts* counts,
                                                           tilewright_error** error);

/* `on` not 0: later runs of the session are recorded, and earlier recordings are dropped; 0: recording ends. While it
 * is off it costs nothing; recorded runs read the clock twice a kernel. */
TILEWRIGHT_API tilewright_status tilewright_session_record(tilewright_session* session, int32_t on,
                                                           tilewright_error** error);
/* The recorded runs as a Chrome trace (JSON, for Perfetto and chrome://tracing): an event a run and an event a kernel,
 * custom operator, loop or other step, in microseconds of the monotonic clock. After a million steps runs are counted
 * (`runsLeftOut`) instead. The text belongs to the session, until the next call with it. */
TILEWRIGHT_API tilewright_status tilewright_session_trace(tilewright_session* session, const char** trace,
                                                          tilewright_error** error);

/* The kernels of a model's plan, their primitives and times, as `tilewright explain` prints them. `seconds`: run the
 * plan and the two it is compared with for this long each, at the sample sizes; 0: times are estimates. */
typedef struct tilewright_explanation tilewright_explanation;
TILEWRIGHT_API tilewright_status tilewright_explain_file(const char* path, const tilewright_options* options,
                                                         double seconds, tilewright_explanation** explanation,
                                                         tilewright_error** error);
TILEWRIGHT_API tilewright_status tilewright_explain_memory(const void* bytes, size_t size,
                                                           const tilewright_options* options, double seconds,
                                                           tilewright_explanation** explanation,
                                                           tilewright_error** error);
TILEWRIGHT_API const char* tilewright_explanation_text(const tilewright_explanation* explanation); /* "" for NULL */
TILEWRIGHT_API const char* tilewright_explanation_json(const tilewright_explanation* explanation);
/* A page for a browser, which needs no other file. */
TILEWRIGHT_API const char* tilewright_explanation_html(const tilewright_explanation* explanation);
TILEWRIGHT_API void tilewright_explanation_free(tilewright_explanation* explanation);

/* --- Tuning: measures schedules of a model's kernels (docs/tuning.md)
 *
 * `budget`: a time ("90s", "10m") or a number of candidates ("1000"). Every candidate is checked against exact
 * arithmetic, and measured at the number of threads of `options`; results are kept in tuning.db in `cache_folder`, or
 * the command-line tool's cache folder. The best plan is kept if its whole runs, on inputs with the dimensions
 * `sample_sizes`, are 2 % faster than the default plan's; later compilations use it with `tuned`. `log` is called with
 * every kernel that is measured; `cancelled` ends the tuning with what was found. TILEWRIGHT_OPTIMAL, `measure` and
 * `tuned` are refused. */
typedef struct tilewright_tuning tilewright_tuning;
TILEWRIGHT_API tilewright_status tilewright_tune_file(const char* path, const tilewright_options* options,
                                                      const char* budget, tilewright_tuning** tuning,
                                                      tilewright_error** error);
TILEWRIGHT_API tilewright_status tilewright_tune_memory(const void* bytes, size_t size,
                                                        const tilewright_options* options, const char* budget,
                                                        tilewright_tuning** tuning, tilewright_error** error);
/* Median milliseconds of whole runs of the default and of the tuned plan; 0 where they were not compared. */
TILEWRIGHT_API double tilewright_tuning_default_ms(const tilewright_tuning* tuning);
TILEWRIGHT_API double tilewright_tuning_tuned_ms(const tilewright_tuning* tuning);
TILEWRIGHT_API int32_t tilewright_tuning_kept(const tilewright_tuning* tuning);     /* 1: `tuned` uses the plan */
TILEWRIGHT_API const char* tilewright_tuning_text(const tilewright_tuning* tuning); /* what `tilewright tune` prints */
TILEWRIGHT_API const char* tilewright_tuning_json(const tilewright_tuning* tuning); /* keys: `tilewright tune --help` */
TILEWRIGHT_API void tilewright_tuning_free(tilewright_tuning* tuning);

#ifdef __cplusplus
}
#endif

#endif
