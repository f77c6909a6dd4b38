/* Launches as functions of C: what tables.h says of them, and what a context keeps to run them. */

/* What a kernel says of a value that it refuses, where {0} and {1} stand for two numbers, and the cure. */
typedef struct {
    const char *what;
    const char *cure;
} refusal;

/* A launch that may refuse: the slot that gets the address of its record, and the step's name for messages. */
typedef struct {
    int64_t slot;
    const char *step;
    const refusal *refusals;
    int64_t count;
} fault;

/* An instruction set: where cpuid tells of it (registers: 0 eax to 3 edx), and the registers that the system must
 * save for it (bits of XCR0). Intel, Software Developer's Manual, volume 2, CPUID. */
typedef struct {
    const char *name;
    uint32_t leaf, sub_leaf;
    int place, bit;
    uint64_t saved;
} feature;

/* Launches in a row. */
typedef struct {
    int64_t launches;
    const txe_kernel *kernels;
    const int32_t *first_slots; /* of each launch's arguments */
    int64_t faults;
    const fault *fault;
} launch_table;

/* What a context has to run them. */
typedef struct {
    txe_table table;
    int64_t *records; /* the flag's, then one for each launch that may refuse something */
    int64_t *timed;   /* the symbols at which timed runs began, */
    int begun;        /* if they have */
} running;

/* Memory of a context, in addresses. */
typedef struct {
    int64_t arena, weights;
    size_t arena_size;
} home;

/* Whether the kernels read and write callers' memory where it lies. */
enum { COPIES = 0 };
