/* Kernels are accepted and do nothing: they have no memory of their own, and results of arithmetic
 * are not what the virtual GPU is for. Registration of compiled code is accepted likewise. */
#include <string.h>

#include "virtual_gpu.h"

/* What the compiler's launch code passes from the <<<...>>> to the launch itself. */
typedef struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} launch_shape;

/* The compiler nests a launch in the arguments of another at most a few deep. */
enum { MOST_NESTED = 16 };
static _Thread_local launch_shape pushed[MOST_NESTED];
static _Thread_local int pushed_count;

static cudaError_t launch(const void *function, cudaStream_t stream) {
    if (!vgpu_card(vgpu_use_device())) return vgpu_result(cudaErrorNoDevice);
    if (!function) return vgpu_result(cudaErrorInvalidValue);
    vgpu_lock();
    bool exists = vgpu_stream_exists(stream);
    if (exists) {
        vgpu_count_work(stream);
        vgpu_forget_everything();
    }
    vgpu_unlock();
    return vgpu_result(exists ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream) {
    (void)grid, (void)block, (void)arguments, (void)shared;
    return launch(function, stream);
}

EXPORT cudaError_t __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                                      size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                               void **arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                       void **arguments) {
    (void)arguments;
    return config ? launch(function, config->stream) : vgpu_result(cudaErrorInvalidValue);
}

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    if (pushed_count == MOST_NESTED) return 1; /* the compiler's code then does not launch */
    pushed[pushed_count++] = (launch_shape){grid, block, shared, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!pushed_count) return vgpu_result(cudaErrorInvalidValue);
    const launch_shape *shape = &pushed[--pushed_count];
    *grid = shape->grid;
    *block = shape->block;
    *shared = shape->shared;
    *(cudaStream_t *)stream = shape->stream;
    return cudaSuccess;
}

/* ---- registration of compiled code, before main: must not read the settings yet ---- */

EXPORT void **__cudaRegisterFatBinary(void *binary) {
    (void)binary;
    static void *handle[1];
    return handle;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
EXPORT void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
EXPORT char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                                   int threads, void *tid, void *bid, void *block, void *grid, int *size) {
    (void)handle, (void)host, (void)device, (void)name, (void)threads;
    (void)tid, (void)bid, (void)block, (void)grid, (void)size;
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                              size_t size, int constant, int global) {
    (void)handle, (void)host, (void)device, (void)name;
    (void)external, (void)size, (void)constant, (void)global;
}

/* A kernel's handle is the address of its host function. */
EXPORT cudaError_t __cudaGetKernel(const void **kernel, const void *function) {
    *kernel = function;
    return cudaSuccess;
}

/* ---- what a program asks about kernels before it launches them ---- */

EXPORT cudaError_t cudaFuncGetAttributes(vgpu_function_attributes *attributes, const void *function) {
    if (!function) return vgpu_result(cudaErrorInvalidValue);
    const vgpu_settings *settings = vgpu_configuration();
    int version = 10 * settings->major + settings->minor;
    *attributes = (vgpu_function_attributes){
        .maxThreadsPerBlock = 1024,
        .numRegs = 32,
        .ptxVersion = version,
        .binaryVersion = version,
        .maxDynamicSharedSizeBytes = 48 * 1024,
    };
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *function, int attribute, int value) {
    (void)attribute, (void)value;
    return vgpu_result(function ? cudaSuccess : cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value, int device) {
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    return cudaFuncSetAttribute(kernel, attribute, value);
}

/* As many blocks as fill the 2048 threads of a multiprocessor. */
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                                 int block_size, size_t shared) {
    (void)shared;
    if (!function || block_size < 1) return vgpu_result(cudaErrorInvalidValue);
    int count = 2048 / block_size;
    *blocks = count < 1 ? 1 : count > 32 ? 32 : count;
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int block_size, size_t shared, unsigned flags) {
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared);
}

/* The profiler's window changes nothing here. */
EXPORT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
