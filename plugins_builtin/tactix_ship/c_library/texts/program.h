/* What a plan is as tables: the types of tables.h. Addresses and sizes are 64-bit integers, as kernels take them.
 */

/* What an operation of the arithmetic means where it has no value. */
typedef struct {
    int64_t operation;
    const char *text;
} check;

/* An axis of an input: its size if that is fixed, else the symbol that it gives a value to, else neither (both -1),
 * as it is an expression of others. */
typedef struct {
    int64_t size;
    int64_t symbol;
} axis;

/* Sizes that a profile takes of one symbol; `most` is INT64_MAX where there is no limit. */
typedef struct {
    int64_t least;
    int64_t most;
} range;

/* Where a buffer lies: in the context's memory, among the weights, or where an input or output was bound. */
typedef enum { IN_ARENA, IN_WEIGHTS, BOUND, NOWHERE } place;

#include "launches.h"

/* One set of kernels: launches in a row, what their arguments are, and the arithmetic from symbols to sizes. */
typedef struct {
    launch_table work;
    int64_t slots; /* arguments of all launches */

    int64_t pointers; /* as in txe_binding: slot, buffer, and which value is added to its address */
    const int64_t (*pointer)[3];
    int64_t scalars; /* slot, and which value it takes */
    const int64_t (*scalar)[2];

    int64_t buffers;
    const uint8_t *places;  /* one of place for each */
    const int64_t *offsets; /* of weights, in bytes behind the begin of all */
    const int32_t *tensors; /* buffers of the inputs, then of the outputs */

    /* Values: the symbols, then constants and what operations write. Results: the sizes of all axes of inputs and
     * outputs, bytes of the arena, the offset of each buffer in it, and what the launches take. */
    int64_t values;
    const int64_t *value;
    int64_t operations;
    const txe_operation *operation;
    int64_t results;
    const int64_t *result;
    int64_t checks; /* in the order of their operations */
    const check *check;
} program;
