
/* ---- on a GPU ---- */

/* Memory of lib_bind_input, lib_bind_output and the copies is the host's: each run copies what is bound so to the
 * device and back, what lib_copy_input brought stays there. lib_options: `device` is the GPU's number as the driver
 * counts, and threads mean nothing. Contexts use the device's primary context, as CUDA's runtime does, and leave
 * current what was. LIB_OTHER_PROCESSOR: the device has another compute capability than the kernels are for. */

/* Where an input or output lies in the next runs, in memory of the device (a CUdeviceptr, or what cudaMalloc gave),
 * aligned to 16 bytes: nothing is copied. What writes or reads it before and behind a run is in its stream, or has
 * been waited for. */
LIB_API lib_status lib_bind_device_input(lib_context *context, size_t input, const void *memory, size_t bytes);
LIB_API lib_status lib_bind_device_output(lib_context *context, size_t output, void *memory, size_t bytes);

/* The stream of the next runs and copies, a CUstream or cudaStream_t of the device; NULL: one of the context's own,
 * as at first. It must live until another is set here. Waits for runs that were put into the stream before. */
LIB_API lib_status lib_set_stream(lib_context *context, void *stream);

/* As lib_run, but returns once the run is in the stream. Inputs and outputs stay as they are until it is over: errors
 * of kernels are those of lib_wait, or of whoever waits for the stream. */
LIB_API lib_status lib_enqueue(lib_context *context);

/* Waits for the runs that lib_enqueue put into the stream. */
LIB_API lib_status lib_wait(lib_context *context);
