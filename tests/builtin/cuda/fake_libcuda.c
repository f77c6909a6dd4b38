/* Stands in for NVIDIA's driver, as libcuda.so.1 of tests: device memory is the host's, and work is done when it is
 * asked for. Kernels are those that simt.py compiled for the host: FAKE_CUDA_KERNELS is the path of their library,
 * whose table `simt_kernels` tells how many arguments each has, and how many of the first are tensor maps.
 *
 * FAKE_CUDA_LOG is a file with a line for each launch; FAKE_CUDA_CAPABILITY is 80 for 8.0. Functions fake_* are for
 * tests. What a driver would take for an error is one here, by CUDA's numbers: calls without a current context, code
 * that is none, names that it has not, memory that nobody has, dynamic shared memory that was not asked for, edges
 * between nodes of another graph; and launches while nobody has waited for a copy in the default stream.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
    MOST = 4096, ARGUMENTS = 64, MAP = 128, FREE_SHARED = 48 << 10
};

typedef struct {
    const char *name;
    const char *(*run)(const int64_t *, int, int, int, long, int);
    int arguments, maps;
} emulated;

typedef struct {
    char name[256];
    const emulated *kernel;
    int most_shared;
} function;

typedef struct {
    function *function;
    unsigned grid[3], block[3], cluster[3], shared;
    int64_t arguments[ARGUMENTS];
    char maps[ARGUMENTS][MAP];
    int early; /* whether it may begin before the one that it follows is over */
    int edges;
} launch;

typedef struct graph {
    int count;
    launch *nodes[MOST];
    launch *made[MOST]; /* of what was instantiated: the handles of these nodes */
} graph;

static struct {
    char *address;
    size_t bytes;
} memory[MOST];
static int pieces;
static size_t used, room = (size_t)1 << 40;
static int live; /* contexts, modules, streams, graphs and executables that were made and not given back */
static int waiting; /* copies in the default stream, for which nothing waits by itself */
static int version = 13000, capability = 90, devices = 1;
static char failing[64];
static int failing_status, failing_in;
static _Thread_local void *stack[64];
static _Thread_local int depth;
static const char *calls[65536];
static int count_of_calls;

/* ---- for tests ---- */

/* From the call after `in` others on, the function answers with this status. */
void fake_fail(const char *name, int status, int in) {
    snprintf(failing, sizeof failing, "%s", name);
    failing_status = status;
    failing_in = in;
}

void fake_device(int count, int ten_times_capability, int driver) {
    devices = count, capability = ten_times_capability, version = driver;
}

void fake_room(size_t bytes) { room = bytes; }
int fake_live(void) { return live + pieces; }
int fake_depth(void) { return depth; }
int fake_calls(const char *name) {
    int found = 0;
    for (int i = 0; i < count_of_calls; i++)
        found += !strcmp(calls[i], name);
    return found;
}

/* ---- what all calls have ---- */

static int called(const char *name, int anywhere) {
    if (count_of_calls < 65536)
        calls[count_of_calls++] = name;
    if (!strcmp(name, failing) && failing_in-- <= 0)
        return failing_status;
    return anywhere || depth ? 0 : INVALID_CONTEXT;
}
#define CALLED                                                                                                     \
    const int failed = called(__func__, 0);                                                                       \
    if (failed)                                                                                                    \
        return failed
#define ANYWHERE                                                                                                   \
    const int failed = called(__func__, 1);                                                                       \
    if (failed)                                                                                                    \
        return failed

static FILE *journal(void) {
    static FILE *file;
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!file && path)
        file = fopen(path, "w");
    return file;
}

/* ---- devices and contexts ---- */

int cuInit(unsigned flags) {
    ANYWHERE;
    const char *told = getenv("FAKE_CUDA_CAPABILITY");
    capability = told ? atoi(told) : capability;
    return flags ? INVALID_VALUE : 0;
}
int cuDriverGetVersion(int *to) { ANYWHERE; return *to = version, 0; }
int cuGetErrorName(int status, const char **to) {
    *to = status == 1 ? "CUDA_ERROR_INVALID_VALUE" : status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
        : status == 100 ? "CUDA_ERROR_NO_DEVICE" : status == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
        : status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : status == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
    return *to ? 0 : INVALID_VALUE;
}
int cuGetErrorString(int status, const char **to) { (void)status; return *to = "the text", 0; }
int cuDeviceGetCount(int *to) { ANYWHERE; return *to = devices, 0; }
int cuDeviceGet(int *to, int ordinal) { ANYWHERE; return *to = ordinal, ordinal < devices ? 0 : 101; }
int cuDeviceGetName(char *to, int size, int device) {
    ANYWHERE;
    (void)device;
    return snprintf(to, (size_t)size, "Fake GPU"), 0;
}
int cuDeviceGetAttribute(int *to, int key, int device) {
    ANYWHERE;
    (void)device;
    *to = key == 75 ? capability / 10 : key == 76 ? capability % 10 : -1;
    return *to < 0 ? INVALID_VALUE : 0;
}
int cuDevicePrimaryCtxRetain(void **to, int device) { ANYWHERE; live++; return *to = stack + device, 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { ANYWHERE; (void)device; return live--, 0; }
int cuCtxPushCurrent_v2(void *context) { ANYWHERE; return stack[depth++] = context, 0; }
int cuCtxPopCurrent_v2(void **to) { CALLED; return *to = stack[--depth], 0; }

/* ---- memory ---- */

static int piece_of(uint64_t address, size_t bytes) {
    for (int i = 0; i < pieces; i++)
        if ((char *)address >= memory[i].address && (char *)address + bytes <= memory[i].address + memory[i].bytes)
            return i;
    return -1;
}

int cuMemAlloc_v2(uint64_t *to, size_t bytes) {
    CALLED;
    if (!bytes)
        return INVALID_VALUE;
    if (used + bytes > room || pieces == MOST)
        return OUT_OF_MEMORY;
    char *made = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(made, 0xff, bytes); /* what nobody writes is NaN */
    memory[pieces].address = made;
    memory[pieces++].bytes = bytes;
    used += bytes;
    *to = (uint64_t)made;
    return 0;
}
int cuMemFree_v2(uint64_t address) {
    CALLED;
    const int i = piece_of(address, 1);
    if (i < 0 || memory[i].address != (char *)address)
        return INVALID_VALUE;
    used -= memory[i].bytes;
    free(memory[i].address);
    memory[i] = memory[--pieces];
    return 0;
}
int cuPointerGetAttribute(void *to, int key, uint64_t address) {
    ANYWHERE;
    if (key != 9 || piece_of(address, 1) < 0)
        return INVALID_VALUE;
    return *(int *)to = 0, 0;
}
static int moved(void *to, const void *from, size_t bytes, const void *device) {
    if (piece_of((uint64_t)device, bytes) < 0)
        return INVALID_VALUE;
    return memcpy(to, from, bytes), 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    CALLED;
    waiting += !stream;
    return moved((void *)to, from, bytes, (void *)to);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    CALLED;
    return stream ? moved(to, (void *)from, bytes, (void *)from) : INVALID_VALUE;
}

/* ---- streams ---- */

int cuStreamCreate(void **to, unsigned flags) {
    CALLED;
    live++;
    return *to = malloc(8), flags == 1 ? 0 : INVALID_VALUE;
}
int cuStreamDestroy_v2(void *stream) { CALLED; live--; return free(stream), 0; }
int cuStreamSynchronize(void *stream) {
    CALLED;
    waiting = stream ? waiting : 0;
    return 0;
}

/* ---- code ---- */

/* An ELF image with its section headers at the end, as NVRTC writes it, or text. */
static size_t image_size(const char *image) {
    uint64_t sections;
    uint16_t size, count;
    if (memcmp(image, "\177ELF", 4))
        return strstr(image, ".version") ? strlen(image) : 0;
    memcpy(&sections, image + 0x28, 8);
    memcpy(&size, image + 0x3a, 2);
    memcpy(&count, image + 0x3c, 2);
    return sections + (size_t)size * count;
}
int cuModuleLoadData(const char **to, const char *image) {
    CALLED;
    if (!image_size(image))
        return INVALID_IMAGE;
    live++;
    return *to = image, 0;
}
int cuModuleUnload(void *module) { CALLED; (void)module; return live--, 0; }

static const emulated *emulated_kernel(const char *name) {
    static const emulated *table;
    const char *path = getenv("FAKE_CUDA_KERNELS");
    if (!table && path) {
        void *library = dlopen(path, RTLD_NOW);
        table = library ? dlsym(library, "simt_kernels") : NULL;
    }
    for (const emulated *e = table; e && e->name; e++)
        if (!strcmp(e->name, name))
            return e;
    return NULL;
}
int cuModuleGetFunction(function **to, const char *image, const char *name) {
    CALLED;
    static function made[MOST];
    static int count;
    char section[300];
    snprintf(section, sizeof section, ".text.%s", name);
    const size_t size = image_size(image);
    const char *told = memcmp(image, "\177ELF", 4) ? name : section;
    if (!memmem(image, size, told, strlen(told)) || count == MOST)
        return NOT_FOUND;
    function *f = &made[count++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->kernel = emulated_kernel(name);
    f->most_shared = FREE_SHARED;
    return *to = f, 0;
}
int cuFuncSetAttribute(function *f, int key, int value) {
    CALLED;
    return f->most_shared = value, key == 8 ? 0 : INVALID_VALUE;
}

/* Tensor maps: their numbers as simt_hopper.h has them, address, sizes, strides, box, steps and corners. */
static int laid(uint64_t *map, const int64_t *numbers, int count, int swizzle, int promotion) {
    static int64_t pool[1 << 18]; /* for as long as the process lives */
    static int used_numbers;
    if ((uintptr_t)map % 64 || swizzle != 3 || promotion != 3 || used_numbers + count > 1 << 18)
        return INVALID_VALUE;
    memset(map, 0, MAP);
    map[0] = (uint64_t)memcpy(pool + used_numbers, numbers, (size_t)count * sizeof *numbers);
    used_numbers += count;
    return 0;
}
/* What maps of both kinds begin with, and how many numbers that is. */
static int tensor_of(int64_t *n, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides) {
    int at = 0;
    n[at++] = (int64_t)address;
    for (uint32_t i = 0; i < rank; i++)
        n[at++] = (int64_t)sizes[i];
    for (uint32_t i = 0; i + 1 < rank; i++)
        n[at++] = (int64_t)strides[i];
    return at;
}
int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill) {
    ANYWHERE;
    int64_t n[32];
    int at = tensor_of(n, rank, address, sizes, strides);
    for (uint32_t i = 0; i < rank; i++)
        n[at++] = box[i];
    for (uint32_t i = 0; i < rank; i++)
        n[at++] = steps[i];
    if (interleave || fill || (type != 0 && type != 6 && type != 9) || (uintptr_t)address % 16)
        return INVALID_VALUE;
    return laid(map, n, at, swizzle, promotion);
}
int cuTensorMapEncodeIm2col(uint64_t *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                            const uint64_t *strides, const int *lower, const int *upper, uint32_t channels,
                            uint32_t pixels, const uint32_t *steps, int interleave, int swizzle, int promotion,
                            int fill) {
    ANYWHERE;
    int64_t n[32];
    int at = tensor_of(n, rank, address, sizes, strides);
    n[at++] = channels, n[at++] = pixels;
    for (uint32_t i = 0; i < rank; i++)
        n[at++] = steps[i];
    for (uint32_t i = 0; i + 2 < rank; i++)
        n[at++] = lower[i];
    for (uint32_t i = 0; i + 2 < rank; i++)
        n[at++] = upper[i];
    if (interleave || fill || (type != 0 && type != 6 && type != 9) || (uintptr_t)address % 16)
        return INVALID_VALUE;
    return laid(map, n, at, swizzle, promotion);
}

/* ---- launches ---- */

static launch kept(function *f, const unsigned *grid, const unsigned *block, unsigned shared, void **arguments) {
    launch l = {.function = f, .cluster = {1, 1, 1}, .shared = shared};
    memcpy(l.grid, grid, sizeof l.grid);
    memcpy(l.block, block, sizeof l.block);
    for (int i = 0; f->kernel && i < f->kernel->arguments; i++) {
        if (i < f->kernel->maps)
            memcpy(l.maps[i], arguments[i], MAP);
        else
            memcpy(&l.arguments[i], arguments[i], 8);
    }
    return l;
}

static int run(launch *l, const char *how) {
    const unsigned *g = l->grid, *b = l->block, *c = l->cluster;
    if (waiting || !g[0] || !g[1] || !g[2] || !b[0] || (int)l->shared > l->function->most_shared)
        return INVALID_VALUE;
    const emulated *k = l->function->kernel;
    for (int i = 0; k && i < k->maps; i++) /* on the host a map is the address of its numbers */
        memcpy(&l->arguments[i], l->maps[i], 8);
    FILE *file = journal();
    if (file) {
        fprintf(file, "%s %s %u,%u,%u %u,%u,%u %u,%u,%u %u %d", how, l->function->name, g[0], g[1], g[2], b[0], b[1],
                b[2], c[0], c[1], c[2], l->shared, l->early);
        for (int i = 0; k && i < k->arguments; i++)
            fprintf(file, " %lld", (long long)(i < k->maps ? *(int64_t *)l->arguments[i] : l->arguments[i]));
        fprintf(file, "\n");
        fflush(file);
    }
    if (!k)
        return 0;
    if (g[1] != 1 || g[2] != 1 || b[1] != 1 || b[2] != 1)
        return LAUNCH_FAILED;
    const char *problem = k->run(l->arguments, (int)g[0], (int)b[0], (int)c[0], (long)l->shared, 0);
    if (problem && *problem) {
        fprintf(stderr, "%s: %s\n", k->name, problem);
        return ILLEGAL_ADDRESS;
    }
    return 0;
}

int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **more) {
    CALLED;
    launch l = kept(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, arguments);
    return stream && !more ? run(&l, "launch") : INVALID_VALUE;
}

typedef struct {
    int id, unused;
    unsigned cluster[16];
} attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    attribute *attributes;
    unsigned count;
} config;

int cuLaunchKernelEx(const config *how, function *f, void **arguments, void **more) {
    CALLED;
    launch l = kept(f, how->grid, how->block, how->shared, arguments);
    if (how->count != 1 || how->attributes->id != 4 || !how->stream || more)
        return INVALID_VALUE;
    memcpy(l.cluster, how->attributes->cluster, sizeof l.cluster);
    return run(&l, "launch");
}

/* ---- graphs: nodes run in the order in which they were made, each behind the one before ---- */

typedef struct {
    function *function;
    unsigned grid[3], block[3], shared;
    void **arguments, **more;
    void *kernel, *context;
} params;
typedef struct {
    unsigned char from, to, type, reserved[5];
} edge;

int cuGraphCreate(graph **to, unsigned flags) {
    CALLED;
    live++;
    return *to = calloc(1, sizeof **to), flags ? INVALID_VALUE : 0;
}
int cuGraphAddKernelNode_v2(launch **to, graph *g, launch *const *after, size_t count, const params *p) {
    CALLED;
    if (count > 1 || (count && (!g->count || *after != g->nodes[g->count - 1])) || p->more || p->kernel || p->context)
        return INVALID_VALUE;
    launch *made = malloc(sizeof *made);
    *made = kept(p->function, p->grid, p->block, p->shared, p->arguments);
    made->edges = (int)count;
    g->nodes[g->count++] = made;
    return *to = made, 0;
}
int cuGraphKernelNodeSetAttribute(launch *node, int id, const unsigned *value) {
    CALLED;
    memcpy(node->cluster, value, sizeof node->cluster);
    return id == 4 ? 0 : INVALID_VALUE;
}
int cuGraphAddDependencies_v2(graph *g, launch *const *from, launch *const *to, const edge *e, size_t count) {
    CALLED;
    const int last = g->count - 1;
    if (count != 1 || last < 1 || *from != g->nodes[last - 1] || *to != g->nodes[last] || e->from != 2 || e->to ||
        e->type != 1)
        return INVALID_VALUE;
    (*to)->early = 1;
    (*to)->edges++;
    return 0;
}
int cuGraphInstantiateWithFlags(graph **to, const graph *g, unsigned long long flags) {
    CALLED;
    for (int i = 0; i < g->count; i++)
        if (g->nodes[i]->edges != (i > 0))
            return INVALID_VALUE;
    live++;
    *to = calloc(1, sizeof **to);
    (*to)->count = g->count;
    for (int i = 0; i < g->count; i++) {
        (*to)->made[i] = g->nodes[i];
        (*to)->nodes[i] = memcpy(malloc(sizeof(launch)), g->nodes[i], sizeof(launch));
    }
    return flags ? INVALID_VALUE : 0;
}
int cuGraphExecKernelNodeSetParams_v2(graph *g, const launch *node, const params *p) {
    CALLED;
    for (int i = 0; i < g->count; i++)
        if (g->made[i] == node) {
            launch made = kept(p->function, p->grid, p->block, p->shared, p->arguments);
            memcpy(made.cluster, g->nodes[i]->cluster, sizeof made.cluster);
            made.early = g->nodes[i]->early;
            return *g->nodes[i] = made, 0;
        }
    return INVALID_VALUE;
}
int cuGraphLaunch(const graph *g, void *stream) {
    CALLED;
    int status = stream ? 0 : INVALID_VALUE;
    for (int i = 0; !status && i < g->count; i++)
        status = run(g->nodes[i], "graph");
    return status;
}
int cuGraphDestroy(graph *g) {
    CALLED;
    for (int i = 0; i < g->count; i++)
        free(g->nodes[i]);
    free(g);
    return live--, 0;
}
int cuGraphExecDestroy(graph *g) {
    CALLED;
    for (int i = 0; i < g->count; i++)
        free(g->nodes[i]);
    free(g);
    return live--, 0;
}
