/* What a context does on a GPU: memory of the device, and runs as launches in a stream, or as one CUDA graph of them.
 *
 * context.c calls what is here; running.h of a library for processors has the same functions. The weights and the
 * code are on a device once for all contexts of the library.
 */
#include <dlfcn.h>

#include "cubins.h"

enum {
    MOST_DEVICES = 64,
    MOST_THREADS_OF_BLOCK = 1024,
    FREE_SHARED = 48 << 10, /* bytes of dynamic shared memory that a kernel has without asking */
    MAP_ALIGNMENT = 128     /* bytes of which the address of a tensor map is a multiple */
};

static struct cuda_device {
    int users; /* contexts of the library */
    cu_context context;
    cu_address weights;
    int programmatic; /* whether a kernel may begin before the one that it follows is over */
    cu_module modules[IMAGES + 1];
    cu_function functions[KERNELS + 1];
    int shared[KERNELS + 1]; /* bytes that each kernel may have, once it asked */
} cuda_devices[MOST_DEVICES];
static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the driver ---- */

/* "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected" */
static const char *cu_said(char *text, size_t room, int status) {
    const char *name = NULL, *what = NULL;
    if (cu.error_name(status, &name) || !name)
        name = "an error without a name";
    if (cu.error_text(status, &what) || !what)
        what = "the driver has no text for it";
    snprintf(text, room, "%s (%d): %s", name, status, what);
    return text;
}

/* One of what the process can use the device no more after: errors of a running kernel, or of the chip. */
static int cu_is_fatal(int status) {
    return status == 214 || status == 700 || status == 702 || status == 709 || status == 710 ||
           (status >= 714 && status <= 720);
}

/* CUDA_ERROR_INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION */
static int cu_is_other_code(int status) {
    return status == 200 || status == 209 || status == 218 || status == CU_NEWER_PTX;
}

/* NOT_SUPPORTED, those of stream capture, GRAPH_EXEC_UPDATE_FAILURE: kernels are launched one by one then. */
static int cu_is_no_graph(int status) {
    return status == CU_NOT_SUPPORTED || (status >= 900 && status <= 908) || status == 910;
}

/* The status for a call of the driver that failed. `doing`: the step, or what it was for. */
static lib_status cu_failed(lib_context *c, const char *doing, const char *call, int status) {
    char said[320];
    const lib_status kind = status == CU_OUT_OF_MEMORY   ? LIB_OUT_OF_MEMORY
                            : cu_is_other_code(status)   ? LIB_OTHER_PROCESSOR
                            : cu_is_fatal(status)        ? LIB_FAILED_EXECUTION
                                                         : LIB_DRIVER_ERROR;
    const char *cure = cu_is_fatal(status)        ? ". The device is lost to this process: start it again"
                       : status == CU_NEWER_PTX   ? ". Update the driver, or build with an older NVRTC"
                       : cu_is_other_code(status) ? ". Export a plan for this device"
                                                  : "";
    return fail(c, kind, "%s: %s failed: %s%s", doing, call, cu_said(said, sizeof said, status), cure);
}

/* The driver, once for the process. Errors are told as of no context. */
static lib_status cu_open(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int found;
    lib_status status = LIB_OK;
    pthread_mutex_lock(&lock);
    void *library = found ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!found && !library) {
        const char *why = dlerror();
        status = fail(NULL, LIB_NO_DEVICE, "there is no NVIDIA driver: %s. Install it", why ? why : "not found");
    }
    for (size_t i = 0; library && i < sizeof cu_names / sizeof *cu_names; i++) {
        void *function = dlsym(library, cu_names[i].name);
        if (!function && !cu_names[i].optional) {
            status = fail(NULL, LIB_NO_DEVICE, "the NVIDIA driver has no %s. Update it", cu_names[i].name);
            break;
        }
        memcpy(cu_names[i].place, &function, sizeof function);
    }
    if (library && status == LIB_OK)
        found = 1; /* it stays: nothing takes a driver from a process */
    else if (library)
        dlclose(library);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- devices ---- */

/* That the code runs on a device of that compute capability (90 for 9.0). */
static lib_status check_capability(cu_device device, int *found) {
    int major = 0, minor = 0;
    char name[128] = "this device";
    int status = cu.attribute(&major, CU_CAPABILITY_MAJOR, device);
    status = status ? status : cu.attribute(&minor, CU_CAPABILITY_MINOR, device);
    if (status)
        return cu_failed(NULL, "asking for the compute capability", "cuDeviceGetAttribute", status);
    *found = 10 * major + minor;
    if (*found >= LEAST_CAPABILITY && *found <= MOST_CAPABILITY)
        return LIB_OK;
    (void)cu.name(name, (int)sizeof name, device);
    return fail(NULL, LIB_OTHER_PROCESSOR,
                "%s has compute capability %d.%d, the kernels are for %s. Export a plan for it", name, major, minor,
                CAPABILITIES);
}

/* All machine code; its functions by kernel. */
static lib_status load_code(struct cuda_device *d) {
    for (int i = 0; i < IMAGES; i++) {
        const int status = cu.load(&d->modules[i], lib_cubins + images[i]);
        if (status)
            return cu_failed(NULL, "loading the kernels", "cuModuleLoadData", status);
    }
    for (int i = 0; i < KERNELS; i++) {
        const int status = cu.function(&d->functions[i], d->modules[kernels[i].image], kernels[i].name);
        if (status)
            return cu_failed(NULL, kernels[i].name, "cuModuleGetFunction", status);
        d->shared[i] = FREE_SHARED;
    }
    return LIB_OK;
}

static lib_status upload_weights(struct cuda_device *d, const lib_options *o) {
    char text[ERROR_SIZE];
    const char *content = take_weights(o->weights, !o->skip_digest, text, sizeof text);
    if (!content)
        return fail(NULL, LIB_BAD_WEIGHTS, "%s", text);
    const char *call = "cuMemAlloc";
    int status = cu.allocate(&d->weights, WEIGHTS_BYTES);
    if (!status) {
        call = "cuMemcpyHtoDAsync"; /* in the default stream, for which the contexts' streams do not wait */
        status = cu.to_device(d->weights, content, WEIGHTS_BYTES, NULL);
        status = status ? status : cu.wait(NULL);
    }
    release_weights();
    return status ? cu_failed(NULL, "copying the weights to the device", call, status) : LIB_OK;
}

/* What the library has on a device whose context is current; nothing that fails here can be told. */
static void unload(struct cuda_device *d) {
    for (int i = 0; i < IMAGES; i++)
        if (d->modules[i])
            (void)cu.unload(d->modules[i]);
    if (d->weights)
        (void)cu.free(d->weights);
}

static lib_status load(struct cuda_device *d, cu_device device, const lib_options *o) {
    int capability = 0, version = 0;
    lib_status found = check_capability(device, &capability);
    if (found != LIB_OK)
        return found;
    memset(d, 0, sizeof *d);
    int status = cu.retain(&d->context, device);
    if (status)
        return cu_failed(NULL, "opening the device", "cuDevicePrimaryCtxRetain", status);
    status = cu.push(d->context);
    if (status) {
        found = cu_failed(NULL, "opening the device", "cuCtxPushCurrent", status);
    } else {
        d->programmatic = !cu.version(&version) && version >= CU_PROGRAMMATIC_SINCE && capability >= 90 && cu.edge;
        found = upload_weights(d, o);
        if (found == LIB_OK)
            found = load_code(d);
        if (found != LIB_OK)
            unload(d);
        (void)cu.pop(&(cu_context){NULL});
    }
    if (found != LIB_OK)
        (void)cu.release(device);
    return found;
}

/* The device of that number for one context more. */
static lib_status take_device(lib_context *c, const lib_options *o) {
    int count = 0, status = cu.init(0);
    cu_device device = 0;
    char said[320];
    if (status)
        return fail(NULL, LIB_NO_DEVICE, "the NVIDIA driver does not start: %s", cu_said(said, sizeof said, status));
    status = cu.count(&count);
    if (status || o->device < 0 || o->device >= count || o->device >= MOST_DEVICES)
        return fail(NULL, LIB_NO_DEVICE, "there is no GPU %d: the driver shows %d", o->device, count);
    status = cu.device(&device, o->device);
    if (status)
        return cu_failed(NULL, "opening the device", "cuDeviceGet", status);
    struct cuda_device *d = &cuda_devices[o->device];
    pthread_mutex_lock(&cuda_lock);
    const lib_status found = d->users ? LIB_OK : load(d, device, o);
    d->users += found == LIB_OK;
    pthread_mutex_unlock(&cuda_lock);
    c->home.ordinal = o->device;
    c->home.device = d;
    return found;
}

/* For one context less; with the last one all leaves the device. */
static void release_device(int ordinal) {
    struct cuda_device *d = &cuda_devices[ordinal];
    pthread_mutex_lock(&cuda_lock);
    if (--d->users == 0) {
        cu_device device = 0;
        if (!cu.push(d->context)) {
            unload(d);
            (void)cu.pop(&(cu_context){NULL});
        }
        if (!cu.device(&device, ordinal))
            (void)cu.release(device);
    }
    pthread_mutex_unlock(&cuda_lock);
}

/* ---- a context ---- */

/* The device's context is current in each call, and what was current before is so again behind it. */
static lib_status visit(lib_context *c) {
    const int status = cu.push(c->home.device->context);
    return status ? cu_failed(c, "using the device", "cuCtxPushCurrent", status) : LIB_OK;
}

static void end_visit(lib_context *c) {
    (void)c;
    (void)cu.pop(&(cu_context){NULL});
}

/* Until all is over that was put into the stream. */
static lib_status wait_for(lib_context *c) {
    const int status = c->home.pending ? cu.wait(c->home.stream) : 0;
    c->home.pending = 0;
    return status ? cu_failed(c, "waiting for the kernels", "cuStreamSynchronize", status) : LIB_OK;
}

/* What a context needs beside itself. Errors are told as of no context. */
static lib_status open_home(lib_context *c, const lib_options *options) {
    lib_status found = cu_open();
    if (found == LIB_OK)
        found = take_device(c, options);
    if (found != LIB_OK)
        return found;
    home *h = &c->home;
    h->weights = (int64_t)h->device->weights;
    int status = cu.push(h->device->context);
    if (!status) {
        status = cu.stream(&h->own_stream, CU_NON_BLOCKING);
        (void)cu.pop(&(cu_context){NULL});
    }
    h->stream = h->own_stream;
    if (!status)
        return LIB_OK;
    release_device(h->ordinal);
    return cu_failed(NULL, "making a stream", "cuStreamCreate", status);
}

static void close_home(lib_context *c, int reached) {
    home *h = &c->home;
    if (reached) {
        (void)wait_for(c);
        for (size_t i = 0; i < TENSORS; i++)
            if (c->tensors[i].own)
                (void)cu.free((cu_address)c->tensors[i].own);
        if (h->arena)
            (void)cu.free((cu_address)h->arena);
        (void)cu.end_stream(h->own_stream);
        end_visit(c);
    }
    release_device(h->ordinal);
}

/* ---- memory ---- */

static lib_status allocate(lib_context *c, const char *what, size_t bytes, int64_t *address) {
    cu_address found = 0;
    const int status = cu.allocate(&found, bytes ? bytes : 1);
    *address = status ? 0 : (int64_t)found;
    if (!status)
        return LIB_OK;
    char doing[200];
    snprintf(doing, sizeof doing, "%zu bytes of device memory for %s", bytes, what);
    return cu_failed(c, doing, "cuMemAlloc", status);
}

/* Memory of the device goes back once nothing uses it any more. */
static void give_back(lib_context *c, int64_t *address) {
    (void)wait_for(c); /* what failed is told by whoever runs next */
    if (*address)
        (void)cu.free((cu_address)*address);
    *address = 0;
}

/* So much intermediate memory; where there is so much, it grows by half at least, as sizes may grow from run to run.
 */
static lib_status reserve(lib_context *c, size_t bytes) {
    home *h = &c->home;
    if (h->arena && h->arena_size >= bytes)
        return LIB_OK;
    const size_t half_more = h->arena_size + h->arena_size / 2;
    size_t size = bytes > half_more ? bytes : half_more;
    c->bound = 0;
    give_back(c, &h->arena);
    h->arena_size = 0;
    lib_status status = allocate(c, "intermediate tensors", size, &h->arena);
    if (status == LIB_OUT_OF_MEMORY && size > bytes)
        status = allocate(c, "intermediate tensors", size = bytes, &h->arena);
    h->arena_size = status == LIB_OK ? size : 0;
    return status;
}

/* Memory of the device for a tensor, of so many bytes at least. */
static lib_status own_memory(lib_context *c, size_t tensor, size_t bytes) {
    tensor_memory *m = &c->tensors[tensor];
    if (m->own && m->room >= bytes)
        return LIB_OK;
    moving(c, tensor);
    give_back(c, &m->own);
    const lib_status status = allocate(c, tensors[tensor].name, bytes, &m->own);
    m->room = status == LIB_OK ? bytes : 0;
    return status;
}

/* Between the caller's memory and the context's own for a tensor; it is done when this returns. */
static lib_status copied(lib_context *c, size_t tensor, const char *call, int status) {
    c->home.pending = 1;
    const lib_status waited = wait_for(c);
    return status ? cu_failed(c, tensors[tensor].name, call, status) : waited;
}

static lib_status copy_in(lib_context *c, size_t tensor, const void *from, size_t bytes) {
    const int status = cu.to_device((cu_address)c->tensors[tensor].own, from, bytes, c->home.stream);
    return copied(c, tensor, "cuMemcpyHtoDAsync", status);
}

static lib_status copy_out(lib_context *c, size_t tensor, void *to, size_t bytes) {
    const int status = cu.to_host(to, (cu_address)c->tensors[tensor].own, bytes, c->home.stream);
    return copied(c, tensor, "cuMemcpyDtoHAsync", status);
}

/* The input that lies where an output does in the caller's memory, if they may be one; -1 if there is none. */
static int input_under(const lib_context *c, size_t tensor) {
    const tensor_memory *m = &c->tensors[tensor];
    for (size_t i = 0; tensor >= LIB_INPUTS && m->owner == CALLERS && i < LIB_INPUTS; i++) {
        const tensor_memory *x = &c->tensors[i];
        if (x->owner == CALLERS && x->memory == m->memory && may_be_one(i, tensor - LIB_INPUTS) &&
            settled_bytes(c, tensor) <= settled_bytes(c, i))
            return (int)i;
    }
    return -1;
}

/* Where the kernels find a tensor. */
static int64_t address_of(const lib_context *c, size_t tensor) {
    const tensor_memory *m = &c->tensors[tensor];
    const int under = input_under(c, tensor);
    return under >= 0 ? c->tensors[under].own : m->owner == CALLERS ? m->own : m->memory;
}

/* ---- programs ---- */

/* Words of memory that a state has for this. */
static int64_t running_words(const program *p) {
    const int64_t map = sizeof(cu_tensor_map) / sizeof(int64_t);
    return 2 * p->slots + p->work.launches + map * (p->work.maps + 1);
}

static lib_status begin_state(lib_context *c, state *s, int64_t *words) {
    (void)c;
    const program *p = s->program;
    running *r = &s->running;
    r->kept = words;
    r->arguments = (void **)(void *)(words + p->slots);
    r->nodes = (cu_node *)(void *)(r->arguments + p->slots);
    char *maps = (char *)(r->nodes + p->work.launches);
    maps += (MAP_ALIGNMENT - (uintptr_t)maps % MAP_ALIGNMENT) % MAP_ALIGNMENT;
    r->maps = (cu_tensor_map *)(void *)maps;
    for (int64_t i = 0; i < p->slots; i++)
        r->arguments[i] = &s->binding.slots[i];
    for (int64_t i = 0; i < p->work.maps; i++)
        r->arguments[p->work.map[i].slot] = &r->maps[i];
    r->plain = !(cu.graph && cu.end_graph && cu.node && cu.node_attribute && cu.instantiate && cu.end_executable &&
                 cu.set_node && cu.launch_graph);
    return LIB_OK;
}

static void drop_graph(state *s) {
    running *r = &s->running;
    if (r->executable)
        (void)cu.end_executable(r->executable); /* a run that is under way comes to its end */
    if (r->graph)
        (void)cu.end_graph(r->graph);
    r->executable = NULL;
    r->graph = NULL;
}

static void end_state(state *s) {
    drop_graph(s);
}

/* A launch at these sizes. */
typedef struct {
    unsigned grid[3], block[3], cluster[3], shared;
} geometry;

/* Whether there is anything to do: a grid has no zero. */
static int geometry_of(const state *s, const cuda_launch *l, geometry *g) {
    const int64_t *values = s->binding.values;
    for (int i = 0; i < 3; i++) {
        g->grid[i] = (unsigned)values[l->sizes[i]];
        g->block[i] = (unsigned)values[l->sizes[3 + i]];
        g->cluster[i] = (unsigned)values[l->sizes[6 + i]];
    }
    g->shared = (unsigned)values[l->sizes[9]];
    return values[l->sizes[0]] && values[l->sizes[1]] && values[l->sizes[2]];
}

static int is_clustered(const geometry *g) {
    return g->cluster[0] != 1 || g->cluster[1] != 1 || g->cluster[2] != 1;
}

/* That a device takes the launch (CUDA C++ Programming Guide, "Technical Specifications"); the driver finds it out as
 * well, but names no step. */
static lib_status check_launch(lib_context *c, const state *s, const cuda_launch *l) {
    static const int64_t most[6] = {INT32_MAX, 65535, 65535, 1024, 1024, 64};
    int64_t threads = 1, size[6];
    int fits = 1;
    for (int i = 0; i < 6; i++) {
        size[i] = s->binding.values[l->sizes[i]];
        fits = fits && size[i] >= 1 && size[i] <= most[i];
        threads = i < 3 || !fits ? threads : threads * size[i];
    }
    if (fits && threads <= MOST_THREADS_OF_BLOCK)
        return LIB_OK;
    return fail(c, LIB_FAILED_EXECUTION,
                "%s: a launch of (%lld, %lld, %lld) blocks of (%lld, %lld, %lld) threads is more than a device takes",
                l->step, (long long)size[0], (long long)size[1], (long long)size[2], (long long)size[3],
                (long long)size[4], (long long)size[5]);
}

/* Lets a kernel have so many bytes of dynamic shared memory; contexts of several threads ask for different sizes. */
static lib_status allow_shared(lib_context *c, const cuda_launch *l, int bytes) {
    struct cuda_device *d = c->home.device;
    int status = 0;
    pthread_mutex_lock(&cuda_lock);
    if (bytes > d->shared[l->kernel]) {
        status = cu.set(d->functions[l->kernel], CU_MOST_SHARED, bytes);
        d->shared[l->kernel] = status ? d->shared[l->kernel] : bytes;
    }
    pthread_mutex_unlock(&cuda_lock);
    return status ? cu_failed(c, l->step, "cuFuncSetAttribute", status) : LIB_OK;
}

/* Before runs at other sizes than the last ones. */
static lib_status begin_shape(lib_context *c, state *s) {
    const launch_table *w = &s->program->work;
    geometry g;
    drop_graph(s);
    s->running.runs = 0;
    for (const cuda_launch *l = w->launch; l < w->launch + w->launches; l++) {
        if (!geometry_of(s, l, &g))
            continue;
        lib_status status = check_launch(c, s, l);
        if (status == LIB_OK && is_clustered(&g) && !cu.launch_with)
            status = fail(c, LIB_NO_DEVICE, "%s: the NVIDIA driver has no cuLaunchKernelEx. Update it", l->step);
        if (status == LIB_OK)
            status = allow_shared(c, l, (int)g.shared);
        if (status != LIB_OK)
            return status;
    }
    return LIB_OK;
}

/* The map of a tensor at its address: rows of 128 bytes in shared memory with permuted chunks; zeros outside. */
static int encode(const state *s, const cuda_map *m, cu_tensor_map *to) {
    uint64_t sizes[5] = {0}, strides[4] = {0};
    void *address = (void *)(intptr_t)(s->binding.slots[m->slot] + m->offset);
    for (int i = 0; i < m->rank; i++) {
        const int64_t size = s->binding.values[m->sizes[i]];
        sizes[i] = size < 1 ? 1 : (uint64_t)size; /* nothing is copied of an empty tensor */
    }
    for (int i = 0; i + 1 < m->rank; i++)
        strides[i] = (uint64_t)s->binding.values[m->strides[i]];
    const uint32_t rank = (uint32_t)m->rank;
    if (m->windows)
        return cu.map_windows ? cu.map_windows(to, m->type, rank, address, sizes, strides, m->lower, m->upper,
                                               m->box[0], m->box[1], m->steps, 0, CU_SWIZZLE_128B,
                                               CU_PROMOTION_256B, 0)
                              : CU_NOT_SUPPORTED;
    return cu.map_tiles ? cu.map_tiles(to, m->type, rank, address, sizes, strides, m->box, m->steps, 0,
                                       CU_SWIZZLE_128B, CU_PROMOTION_256B, 0)
                        : CU_NOT_SUPPORTED;
}

/* Once the arguments hold the addresses. */
static lib_status bound_anew(lib_context *c, state *s) {
    const launch_table *w = &s->program->work;
    for (int64_t i = 0; i < w->maps; i++) {
        const cuda_map *m = &w->map[i];
        const int status = s->binding.slots[m->slot] ? encode(s, m, &s->running.maps[i]) : 0;
        if (status)
            return cu_failed(c, m->step, m->windows ? "cuTensorMapEncodeIm2col" : "cuTensorMapEncodeTiled", status);
    }
    return LIB_OK;
}

/* ---- running ---- */

static int launch_one(const lib_context *c, const state *s, const cuda_launch *l, const geometry *g) {
    const cu_function f = c->home.device->functions[l->kernel];
    void **arguments = s->running.arguments + l->first;
    const unsigned *n = g->grid, *b = g->block;
    if (!is_clustered(g))
        return cu.launch(f, n[0], n[1], n[2], b[0], b[1], b[2], g->shared, c->home.stream, arguments, NULL);
    cu_attribute cluster = {.id = CU_CLUSTER};
    cu_launch how = {.shared = g->shared, .stream = c->home.stream, .attributes = &cluster, .count = 1};
    memcpy(cluster.value.cluster, g->cluster, sizeof g->cluster);
    memcpy(how.grid, g->grid, sizeof how.grid);
    memcpy(how.block, g->block, sizeof how.block);
    return cu.launch_with(&how, f, arguments, NULL);
}

static lib_status launch_all(lib_context *c, const state *s) {
    const launch_table *w = &s->program->work;
    geometry g;
    for (const cuda_launch *l = w->launch; l < w->launch + w->launches; l++) {
        const int status = geometry_of(s, l, &g) ? launch_one(c, s, l, &g) : 0;
        if (status)
            return cu_failed(c, l->step, is_clustered(&g) ? "cuLaunchKernelEx" : "cuLaunchKernel", status);
    }
    return LIB_OK;
}

static cu_node_params node_params(const lib_context *c, const state *s, const cuda_launch *l, const geometry *g) {
    cu_node_params p = {.function = c->home.device->functions[l->kernel], .shared = g->shared};
    memcpy(p.grid, g->grid, sizeof p.grid);
    memcpy(p.block, g->block, sizeof p.block);
    p.arguments = s->running.arguments + l->first;
    return p;
}

/* A node behind another (NULL: the first). One that waits itself may begin as soon as all blocks of the one before
 * have begun: such an edge orders starts, and the kernel's griddepcontrol.wait is what waits for the memory. */
static int add_node(const lib_context *c, const state *s, const cuda_launch *l, const geometry *g, cu_node before,
                    cu_node *made) {
    const cu_edge early = {.from_port = CU_LAUNCH_ORDER, .type = CU_PROGRAMMATIC};
    const int waits = before && l->waits && c->home.device->programmatic;
    const cu_node_params params = node_params(c, s, l, g);
    int status = cu.node(made, s->running.graph, before && !waits ? &before : NULL, before && !waits, &params);
    if (!status && is_clustered(g)) {
        cu_attribute_value cluster = {.bytes = {0}};
        memcpy(cluster.cluster, g->cluster, sizeof g->cluster);
        status = cu.node_attribute(*made, CU_CLUSTER, &cluster);
    }
    return !status && waits ? cu.edge(s->running.graph, &before, made, &early, 1) : status;
}

/* All launches one after the other as a graph. */
static int make_graph(const lib_context *c, state *s) {
    const launch_table *w = &s->program->work;
    running *r = &s->running;
    geometry g;
    cu_node before = NULL;
    int status = cu.graph(&r->graph, 0);
    for (int64_t i = 0; !status && i < w->launches; i++) {
        r->nodes[i] = NULL;
        if (!geometry_of(s, &w->launch[i], &g))
            continue;
        status = add_node(c, s, &w->launch[i], &g, before, &r->nodes[i]);
        before = r->nodes[i];
    }
    if (!status)
        status = cu.instantiate(&r->executable, r->graph, 0);
    memcpy(r->kept, s->binding.slots, (size_t)s->program->slots * sizeof *r->kept);
    return status;
}

/* Whether arguments of a launch are others than its node has. */
static int is_stale(const state *s, int64_t launch) {
    const program *p = s->program;
    const int64_t first = p->work.launch[launch].first;
    const int64_t end = launch + 1 < p->work.launches ? p->work.launch[launch + 1].first : p->slots;
    return end > first && memcmp(s->running.kept + first, s->binding.slots + first,
                                 (size_t)(end - first) * sizeof *s->running.kept);
}

/* Brings other addresses to the nodes that use them; runs that are under way keep theirs. */
static int freshen(const lib_context *c, state *s) {
    const launch_table *w = &s->program->work;
    running *r = &s->running;
    geometry g;
    int status = 0;
    for (int64_t i = 0; !status && i < w->launches; i++)
        if (geometry_of(s, &w->launch[i], &g) && is_stale(s, i)) {
            const cu_node_params params = node_params(c, s, &w->launch[i], &g);
            status = cu.set_node(r->executable, r->nodes[i], &params);
        }
    memcpy(r->kept, s->binding.slots, (size_t)s->program->slots * sizeof *r->kept);
    return status;
}

/* Whether any launch has something to do at these sizes. */
static int has_work(const state *s) {
    const launch_table *w = &s->program->work;
    geometry g;
    for (const cuda_launch *l = w->launch; l < w->launch + w->launches; l++)
        if (geometry_of(s, l, &g))
            return 1;
    return 0;
}

/* The kernels: the first run at a shape launches them one by one, later ones as a graph, which takes the caller less
 * time; also where the driver makes none they are launched one by one. */
static lib_status start_kernels(lib_context *c, state *s) {
    running *r = &s->running;
    if (!has_work(s))
        return LIB_OK;
    if (r->plain || r->runs++ == 0)
        return launch_all(c, s);
    int status = r->executable ? freshen(c, s) : make_graph(c, s);
    if (!status)
        status = cu.launch_graph(r->executable, c->home.stream);
    if (!status)
        return LIB_OK;
    drop_graph(s);
    if (!cu_is_no_graph(status))
        return cu_failed(c, "running the kernels", "a CUDA graph", status);
    r->plain = 1;
    return launch_all(c, s);
}

/* Between callers' memory of the host and the device, before and behind the kernels. */
static lib_status copy_inputs(lib_context *c) {
    for (size_t i = 0; i < LIB_INPUTS; i++) {
        const tensor_memory *m = &c->tensors[i];
        const size_t bytes = m->owner == CALLERS ? settled_bytes(c, i) : 0;
        const void *from = (const void *)(intptr_t)m->memory;
        const int status = bytes ? cu.to_device((cu_address)m->own, from, bytes, c->home.stream) : 0;
        if (status)
            return cu_failed(c, tensors[i].name, "cuMemcpyHtoDAsync", status);
    }
    return LIB_OK;
}

static lib_status copy_outputs(lib_context *c) {
    for (size_t i = LIB_INPUTS; i < TENSORS; i++) {
        const tensor_memory *m = &c->tensors[i];
        const size_t bytes = m->owner == CALLERS ? settled_bytes(c, i) : 0;
        void *to = (void *)(intptr_t)m->memory;
        const int status = bytes ? cu.to_host(to, (cu_address)address_of(c, i), bytes, c->home.stream) : 0;
        if (status)
            return cu_failed(c, tensors[i].name, "cuMemcpyDtoHAsync", status);
    }
    return LIB_OK;
}

/* Puts a run into the stream; what fails midway leaves nothing under way. */
static lib_status enqueue(lib_context *c, state *s) {
    c->home.pending = 1;
    lib_status status = copy_inputs(c);
    if (status == LIB_OK)
        status = start_kernels(c, s);
    if (status == LIB_OK)
        status = copy_outputs(c);
    if (status != LIB_OK) {
        (void)cu.wait(c->home.stream);
        c->home.pending = 0;
    }
    return status;
}

static lib_status run_once(lib_context *c, state *s) {
    const lib_status status = enqueue(c, s);
    return status == LIB_OK ? wait_for(c) : status;
}
