/* What a library for a GPU has beside the functions of all: memory of the device, streams, runs that are not waited
 * for. */

/* That memory is of the context's device. */
static lib_status check_device_memory(lib_context *c, size_t tensor, const void *memory) {
    const char *name = tensors[tensor].name;
    int ordinal = -1;
    const int status = memory ? cu.pointer(&ordinal, CU_POINTER_ORDINAL, (cu_address)(uintptr_t)memory) : 0;
    if (status)
        return fail(c, LIB_INVALID_ARGUMENT, "'%s' at %p is no memory that CUDA knows. Call lib_bind_%s", name,
                    memory, kind_of(tensor));
    if (memory && ordinal != c->home.ordinal)
        return fail(c, LIB_INVALID_ARGUMENT, "'%s' at %p is memory of device %d, the context is on device %d", name,
                    memory, ordinal, c->home.ordinal);
    return LIB_OK;
}

static lib_status bind_device(lib_context *c, size_t tensor, const void *memory, size_t bytes) {
    const lib_status status = bytes ? check_device_memory(c, tensor, memory) : LIB_OK;
    return status == LIB_OK ? bind_memory(c, tensor, ON_DEVICE, memory, bytes) : status;
}

lib_status lib_bind_device_input(lib_context *context, size_t input, const void *memory, size_t bytes) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    status = input < LIB_INPUTS ? bind_device(context, input, memory, bytes) : no_input(context, input);
    return leave(context, status);
}

lib_status lib_bind_device_output(lib_context *context, size_t output, void *memory, size_t bytes) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    status = output < LIB_OUTPUTS ? bind_device(context, LIB_INPUTS + output, memory, bytes)
                                  : no_output(context, output);
    return leave(context, status);
}

static lib_status set_stream(lib_context *c, void *stream) {
    const lib_status status = wait_for(c); /* runs share memory, so that they are one after the other */
    c->home.stream = stream ? (cu_stream)stream : c->home.own_stream;
    return status;
}

lib_status lib_set_stream(lib_context *context, void *stream) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, set_stream(context, stream)) : status;
}

lib_status lib_enqueue(lib_context *context) {
    lib_status status = enter(context);
    if (status != LIB_OK)
        return status;
    status = ready(context);
    return leave(context, status == LIB_OK ? enqueue(context, context->state) : status);
}

lib_status lib_wait(lib_context *context) {
    const lib_status status = enter(context);
    return status == LIB_OK ? leave(context, wait_for(context)) : status;
}
