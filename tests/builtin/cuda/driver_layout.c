/* Whether what cuda_driver.h says of the driver is what cuda.h says. */
#include <stddef.h>
#include <stdint.h>

typedef int lib_status;
#include "cuda_driver.h"

#include <cuda.h>

#define SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b), #b)
#define PLACE(a, x, b, y) _Static_assert(offsetof(a, x) == offsetof(b, y), #b "." #y)
#define NUMBER(a, b) _Static_assert((int)(a) == (int)(b), #b)

SIZE(cu_device, CUdevice);
SIZE(cu_address, CUdeviceptr);
SIZE(cu_tensor_map, CUtensorMap);
SIZE(cu_attribute_value, CUlaunchAttributeValue);
PLACE(cu_attribute_value, cluster, CUlaunchAttributeValue, clusterDim);
SIZE(cu_attribute, CUlaunchAttribute);
PLACE(cu_attribute, value, CUlaunchAttribute, value);
SIZE(cu_launch, CUlaunchConfig);
PLACE(cu_launch, block, CUlaunchConfig, blockDimX);
PLACE(cu_launch, shared, CUlaunchConfig, sharedMemBytes);
PLACE(cu_launch, stream, CUlaunchConfig, hStream);
PLACE(cu_launch, attributes, CUlaunchConfig, attrs);
PLACE(cu_launch, count, CUlaunchConfig, numAttrs);
SIZE(cu_node_params, CUDA_KERNEL_NODE_PARAMS_v2);
PLACE(cu_node_params, grid, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
PLACE(cu_node_params, shared, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
PLACE(cu_node_params, arguments, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
PLACE(cu_node_params, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
PLACE(cu_node_params, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);
SIZE(cu_edge, CUgraphEdgeData);
PLACE(cu_edge, type, CUgraphEdgeData, type);
PLACE(cu_edge, to_port, CUgraphEdgeData, to_port);

NUMBER(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
NUMBER(CU_NEWER_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
NUMBER(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
NUMBER(CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
NUMBER(CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
NUMBER(CU_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
NUMBER(CU_MOST_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
NUMBER(CU_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
NUMBER(CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
NUMBER(CU_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
NUMBER(CU_LAUNCH_ORDER, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
NUMBER(CU_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B);
NUMBER(CU_PROMOTION_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
/* cuda_tables.py has these, and calls say 0 for the last two */
NUMBER(6, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
NUMBER(9, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
NUMBER(0, CU_TENSOR_MAP_DATA_TYPE_UINT8);
NUMBER(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
NUMBER(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
