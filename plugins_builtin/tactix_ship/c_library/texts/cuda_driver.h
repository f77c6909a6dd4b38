/* What is called of NVIDIA's driver, which is looked for when it is first needed: no header and no library of CUDA is
 * there when this is compiled. Names, numbers and structures are those of the CUDA driver API (cuda.h). */
enum {
    CU_OUT_OF_MEMORY = 2,
    CU_NEWER_PTX = 222, /* CUDA_ERROR_UNSUPPORTED_PTX_VERSION */
    CU_NOT_SUPPORTED = 801,
    CU_CAPABILITY_MAJOR = 75, /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */
    CU_CAPABILITY_MINOR = 76,
    CU_POINTER_ORDINAL = 9,  /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
    CU_MOST_SHARED = 8,      /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    CU_CLUSTER = 4,          /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
    CU_NON_BLOCKING = 1,     /* a stream that neither waits for the default stream nor holds it up */
    CU_PROGRAMMATIC = 1,     /* CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC */
    CU_LAUNCH_ORDER = 2,     /* CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER: once all blocks have begun */
    CU_SWIZZLE_128B = 3,     /* CU_TENSOR_MAP_SWIZZLE_128B */
    CU_PROMOTION_256B = 3,   /* CU_TENSOR_MAP_L2_PROMOTION_L2_256B */
    CU_PROGRAMMATIC_SINCE = 12040 /* the first driver with such edges */
};

typedef int cu_device;
typedef uint64_t cu_address;
typedef struct cu_context_of *cu_context;
typedef struct cu_module_of *cu_module;
typedef struct cu_function_of *cu_function;
typedef struct cu_stream_of *cu_stream;
typedef struct cu_graph_of *cu_graph;
typedef struct cu_node_of *cu_node;
typedef struct cu_executable_of *cu_executable;

typedef struct { /* CUtensorMap */
    uint64_t words[16];
} cu_tensor_map;

typedef union { /* CUlaunchAttributeValue */
    char bytes[64];
    unsigned cluster[3];
    uint64_t alignment;
} cu_attribute_value;

typedef struct { /* CUlaunchAttribute */
    int id;
    int unused;
    cu_attribute_value value;
} cu_attribute;

typedef struct { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    cu_stream stream;
    cu_attribute *attributes;
    unsigned count;
} cu_launch;

typedef struct { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    cu_function function;
    unsigned grid[3], block[3], shared;
    void **arguments;
    void **more;
    void *kernel;
    cu_context context;
} cu_node_params;

typedef struct { /* CUgraphEdgeData */
    unsigned char from_port, to_port, type, reserved[5];
} cu_edge;

static struct {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*error_name)(int, const char **);
    int (*error_text)(int, const char **);
    int (*count)(int *);
    int (*device)(cu_device *, int);
    int (*attribute)(int *, int, cu_device);
    int (*name)(char *, int, cu_device);
    int (*retain)(cu_context *, cu_device);
    int (*release)(cu_device);
    int (*push)(cu_context);
    int (*pop)(cu_context *);
    int (*allocate)(cu_address *, size_t);
    int (*free)(cu_address);
    int (*pointer)(void *, int, cu_address);
    int (*to_device)(cu_address, const void *, size_t, cu_stream);
    int (*to_host)(void *, cu_address, size_t, cu_stream);
    int (*stream)(cu_stream *, unsigned);
    int (*end_stream)(cu_stream);
    int (*wait)(cu_stream);
    int (*load)(cu_module *, const void *);
    int (*unload)(cu_module);
    int (*function)(cu_function *, cu_module, const char *);
    int (*set)(cu_function, int, int);
    int (*launch)(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream,
                  void **, void **);
    /* what earlier drivers do not have */
    int (*launch_with)(const cu_launch *, cu_function, void **, void **);
    int (*map_tiles)(cu_tensor_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                     const uint32_t *, int, int, int, int);
    int (*map_windows)(cu_tensor_map *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *,
                       const int *, uint32_t, uint32_t, const uint32_t *, int, int, int, int);
    int (*graph)(cu_graph *, unsigned);
    int (*end_graph)(cu_graph);
    int (*node)(cu_node *, cu_graph, const cu_node *, size_t, const cu_node_params *);
    int (*node_attribute)(cu_node, int, const cu_attribute_value *);
    int (*edge)(cu_graph, const cu_node *, const cu_node *, const cu_edge *, size_t);
    int (*instantiate)(cu_executable *, cu_graph, unsigned long long);
    int (*end_executable)(cu_executable);
    int (*set_node)(cu_executable, cu_node, const cu_node_params *);
    int (*launch_graph)(cu_executable, cu_stream);
} cu;

/* Names in the driver's library, where they go, and whether there is a way without. */
static const struct {
    const char *name;
    void *place;
    int optional;
} cu_names[] = {
    {"cuInit", &cu.init, 0},
    {"cuDriverGetVersion", &cu.version, 0},
    {"cuGetErrorName", &cu.error_name, 0},
    {"cuGetErrorString", &cu.error_text, 0},
    {"cuDeviceGetCount", &cu.count, 0},
    {"cuDeviceGet", &cu.device, 0},
    {"cuDeviceGetAttribute", &cu.attribute, 0},
    {"cuDeviceGetName", &cu.name, 0},
    {"cuDevicePrimaryCtxRetain", &cu.retain, 0},
    {"cuDevicePrimaryCtxRelease_v2", &cu.release, 0},
    {"cuCtxPushCurrent_v2", &cu.push, 0},
    {"cuCtxPopCurrent_v2", &cu.pop, 0},
    {"cuMemAlloc_v2", &cu.allocate, 0},
    {"cuMemFree_v2", &cu.free, 0},
    {"cuPointerGetAttribute", &cu.pointer, 0},
    {"cuMemcpyHtoDAsync_v2", &cu.to_device, 0},
    {"cuMemcpyDtoHAsync_v2", &cu.to_host, 0},
    {"cuStreamCreate", &cu.stream, 0},
    {"cuStreamDestroy_v2", &cu.end_stream, 0},
    {"cuStreamSynchronize", &cu.wait, 0},
    {"cuModuleLoadData", &cu.load, 0},
    {"cuModuleUnload", &cu.unload, 0},
    {"cuModuleGetFunction", &cu.function, 0},
    {"cuFuncSetAttribute", &cu.set, 0},
    {"cuLaunchKernel", &cu.launch, 0},
    {"cuLaunchKernelEx", &cu.launch_with, 1},
    {"cuTensorMapEncodeTiled", &cu.map_tiles, 1},
    {"cuTensorMapEncodeIm2col", &cu.map_windows, 1},
    {"cuGraphCreate", &cu.graph, 1},
    {"cuGraphDestroy", &cu.end_graph, 1},
    {"cuGraphAddKernelNode_v2", &cu.node, 1},
    {"cuGraphKernelNodeSetAttribute", &cu.node_attribute, 1},
    {"cuGraphAddDependencies_v2", &cu.edge, 1},
    {"cuGraphInstantiateWithFlags", &cu.instantiate, 1},
    {"cuGraphExecDestroy", &cu.end_executable, 1},
    {"cuGraphExecKernelNodeSetParams_v2", &cu.set_node, 1},
    {"cuGraphLaunch", &cu.launch_graph, 1},
};
