/* lib: a network as a C library.
 *
//@summary
 *
 * A context has the memory of one run. Make one for each thread that runs the network, or take turns:
 * contexts run at the same time and share the weights. A context that two threads use at once answers
 * LIB_BUSY to one of them.
 *
 *     lib_context *context;
 *     if (lib_create(NULL, &context) != LIB_OK)
 *         fprintf(stderr, "%s\n", lib_last_error(NULL));
 *     lib_set_input_shape(context, ...);   inputs with open sizes alone
 *     lib_bind_input(context, ...);        or lib_copy_input
 *     lib_bind_output(context, ...);       or lib_copy_output after the run
 *     lib_run(context);
 *     lib_destroy(context);
 *
 * Tensors are dense and row-major, the last axis the fastest. Nothing is printed, and no signal is touched.
 */
#ifndef LIB_H
#define LIB_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LIB_API __attribute__((visibility("default")))
#else
#define LIB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What every function that can fail returns. */
typedef enum lib_status {
    LIB_OK = 0,
    LIB_INVALID_ARGUMENT = 1,  /* NULL, an index that is not there, a wrong number of bytes, memory that overlaps */
    LIB_INVALID_SHAPE = 2,     /* a shape that the network cannot run at, or that no profile takes */
    LIB_NOT_READY = 3,         /* an input has no shape or no memory yet */
    LIB_BUSY = 4,              /* another thread uses this context */
    LIB_OUT_OF_MEMORY = 5,
    LIB_BAD_WEIGHTS = 6,       /* the file of weights is missing, too short, or not the one of this library */
    LIB_OTHER_PROCESSOR = 7,   /* this processor lacks an instruction set that the kernels use */
    LIB_FAILED_EXECUTION = 8,  /* a kernel refused a value of an input, such as an index out of range */
//@statuses
} lib_status;

/* Types of elements. */
typedef enum lib_type {
//@types
} lib_type;

/* An input or output. */
typedef struct lib_tensor {
    const char *name;            /* as the model has it, UTF-8 */
    lib_type type;
    size_t element_size;         /* in bytes */
    size_t rank;
    const int64_t *dims;         /* rank sizes; -1 where a size is open */
    const char *const *dim_names; /* rank texts: "batch", "2*seq", or the size itself */
} lib_tensor;

/* Places of the inputs, and how many there are. */
enum {
//@inputs
};

/* Places of the outputs, and how many there are. */
enum {
//@outputs
};

/* How a context runs; all zeros is the default. */
typedef struct lib_options {
    int threads;         /* of one run, up to 255; 0: as many as the plan was tuned for, if they are there */
    int skip_digest;     /* not 0: of the file of weights the size alone is checked, not the sha256 */
    const char *weights; /* path of that file; NULL: beside the library. Not read where there is none */
//@options
} lib_options;

typedef struct lib_context lib_context;

/* ---- what the network is ---- */

/* The descriptor of an input or output; NULL for an index that is not there. It lives as long as the program. */
LIB_API const lib_tensor *lib_input(size_t input);
LIB_API const lib_tensor *lib_output(size_t output);

/* Name and digest of the plan, target and version, on one line, for logs. */
LIB_API const char *lib_description(void);

/* ---- contexts ---- */

/* A new context. `options` may be NULL. On an error *context is NULL, and lib_last_error(NULL) has the text. */
LIB_API lib_status lib_create(const lib_options *options, lib_context **context);

/* Gives back all memory of a context, which must not be running; NULL is taken. */
LIB_API void lib_destroy(lib_context *context);

/* Threads of runs from now on: 1 to 255, or 0 as in lib_options. */
LIB_API lib_status lib_set_threads(lib_context *context, int threads);

/* ---- shapes ---- */

/* The shape of an input from now on: `rank` sizes. Inputs without open sizes have theirs already. What the sizes
 * mean together is checked by lib_output_shape, lib_output_size and lib_run. Memory that is bound stays bound. */
LIB_API lib_status lib_set_input_shape(lib_context *context, size_t input, const int64_t *dims, size_t rank);

/* Writes the `rank` sizes of an output at the shapes of the inputs. */
LIB_API lib_status lib_output_shape(lib_context *context, size_t output, int64_t *dims, size_t rank);

/* Bytes of an input or output at these shapes. */
LIB_API lib_status lib_input_size(lib_context *context, size_t input, size_t *bytes);
LIB_API lib_status lib_output_size(lib_context *context, size_t output, size_t *bytes);
//@states

/* ---- memory ---- */

/* Where an input lies in the next runs: the caller's memory, aligned to its element size, of exactly the
 * input's bytes. It is read by each run, and must stay there. */
LIB_API lib_status lib_bind_input(lib_context *context, size_t input, const void *memory, size_t bytes);

/* Where an output goes in the next runs, with room for at least the output's bytes. */
LIB_API lib_status lib_bind_output(lib_context *context, size_t output, void *memory, size_t bytes);

/* The same by copies, through memory of the context's own: an input before runs, exactly its bytes; */
LIB_API lib_status lib_copy_input(lib_context *context, size_t input, const void *from, size_t bytes);
/* an output after a run, exactly its bytes, if it was not bound. */
LIB_API lib_status lib_copy_output(lib_context *context, size_t output, void *to, size_t bytes);

/* ---- running ---- */

/* Runs the network once, on this thread and as many others as were asked for, and returns when it is done. */
LIB_API lib_status lib_run(lib_context *context);
//@calls

/* ---- errors ---- */

/* What went wrong last in a context: what, why, what to do; empty if nothing did. NULL: in a call on this thread
 * that had no context, or one that was busy. The text stays until the next error of that context or thread. */
LIB_API const char *lib_last_error(const lib_context *context);

/* The name of a status, such as "LIB_INVALID_SHAPE". */
LIB_API const char *lib_status_name(lib_status status);

/* ---- by name and type ---- */

//@typed

#ifdef __cplusplus
}
#endif

#endif
