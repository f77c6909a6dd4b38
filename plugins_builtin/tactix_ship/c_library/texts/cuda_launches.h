/* Launches of CUDA kernels: what tables.h says of them, and what a context keeps to run them. */
#include "driver.h"

/* A kernel: which image of machine code has it, and what it is called there. */
typedef struct {
    int32_t image;
    const char *name;
} cuda_kernel;

/* A launch; numbers that hang on shapes are places among the values of the arithmetic. */
typedef struct {
    const char *step;
    int32_t kernel;
    int32_t first;     /* slot of its first argument */
    int32_t waits;     /* whether it waits itself for the launch that it follows */
    int32_t sizes[10]; /* grid, block and cluster with three axes each; bytes of dynamic shared memory */
} cuda_launch;

/* An argument that is a tensor map: of the tensor at the address that its slot has. */
typedef struct {
    const char *step;
    int32_t slot;
    int32_t type; /* CUtensorMapDataType */
    int32_t rank;
    int32_t windows; /* whether it is of pixels of windows, else of boxes */
    int64_t offset;  /* bytes from the address to the tensor */
    int32_t sizes[5], strides[4]; /* places of values: elements, innermost first; bytes of the others */
    uint32_t box[5], steps[5];
    int lower[3], upper[3]; /* corners of the windows */
} cuda_map;

/* Launches in a row. */
typedef struct {
    int64_t launches;
    const cuda_launch *launch;
    int64_t maps;
    const cuda_map *map;
} launch_table;

/* What a context has to run them. */
typedef struct {
    void **arguments; /* where each argument is, by slot */
    int64_t *kept;    /* the arguments that the nodes of the graph have */
    cu_node *nodes;   /* by launch; NULL for one that has nothing to do at these sizes */
    cu_tensor_map *maps;
    cu_graph graph;
    cu_executable executable; /* NULL: there is no graph yet */
    int64_t runs;             /* at this shape */
    int plain;                /* whether the driver makes no graph */
} running;

/* Memory of a context, in addresses of the device; the device, and the stream of its work. */
typedef struct {
    int64_t arena, weights;
    size_t arena_size;
    int ordinal;
    struct cuda_device *device;
    cu_stream stream, own_stream;
    int pending; /* whether the stream has work that nobody has waited for */
} home;

/* Callers' memory is the host's, which the kernels do not reach. */
enum { COPIES = 1 };
