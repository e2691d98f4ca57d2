/* How the runtime hands out driver functions, and the functions that are only there to refuse.
 *
 * PyTorch asks for a fixed list of driver functions and gives up if one is missing, though it calls
 * most of them for features nobody has switched on. So the list has to be complete; a function that
 * does nothing useful says so when it is called. A name outside the list is answered with "not found".
 */
#include <stdio.h>
#include <string.h>

#include "virtual_gpu.h"

/* Supported: defined in driver.c, errors.c and properties.c. */
#define SUPPORTED(_)                                                                               \
    _(cuInit) _(cuDriverGetVersion) _(cuGetErrorString) _(cuGetErrorName)                          \
    _(cuDeviceGet) _(cuDeviceGetCount) _(cuDeviceGetAttribute)                                     \
    _(cuDevicePrimaryCtxGetState) _(cuDevicePrimaryCtxRetain)                                      \
    _(cuCtxGetCurrent) _(cuCtxSetCurrent)                                                          \
    _(cuMemGetAllocationGranularity) _(cuMemAddressReserve) _(cuMemAddressFree)                    \
    _(cuMemCreate) _(cuMemRelease) _(cuMemMap) _(cuMemUnmap) _(cuMemSetAccess)                     \
    _(cuMemGetAddressRange) _(cuPointerGetAttribute) _(cuMemsetD32Async)                           \
    _(cuModuleLoadData) _(cuModuleLoadDataEx) _(cuModuleUnload) _(cuModuleGetFunction)             \
    _(cuLaunchKernel) _(cuOccupancyMaxActiveBlocksPerMultiprocessor) _(cuTensorMapEncodeTiled) \
    _(cuLogsRegisterCallback) _(cuLogsUnregisterCallback)

/* Refused: sharing between processes, several cards as one (multicast), parts of a card (green
 * contexts), signals between streams, linking of compiled code. */
#define REFUSED(_)                                                                                 \
    _(cuMemExportToShareableHandle) _(cuMemImportFromShareableHandle)                              \
    _(cuMemRetainAllocationHandle) _(cuMemGetAllocationPropertiesFromHandle)                       \
    _(cuStreamWriteValue32)                                                                        \
    _(cuMulticastAddDevice) _(cuMulticastBindMem) _(cuMulticastCreate) _(cuMulticastUnbind)        \
    _(cuCtxFromGreenCtx) _(cuCtxPopCurrent) _(cuCtxPushCurrent) _(cuGreenCtxCreate)                \
    _(cuGreenCtxDestroy) _(cuGreenCtxStreamCreate) _(cuDevSmResourceSplitByCount)                  \
    _(cuDeviceGetDevResource) _(cuDevResourceGenerateDesc)                                         \
    _(cuFuncGetAttribute) _(cuFuncSetAttribute) _(cuFuncSetCacheConfig)                            \
    _(cuLaunchCooperativeKernel) _(cuModuleLoad)                                                   \
    _(cuLinkAddData_v2) _(cuLinkComplete) _(cuLinkCreate_v2)

#define DECLARE(name) CUresult name();
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
SUPPORTED(DECLARE)

#define REFUSE_DRIVER(name)                                                                        \
    EXPORT CUresult name(void) {                                                                   \
        vgpu_unsupported(#name);                                                                   \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
REFUSED(REFUSE_DRIVER)

static const struct {
    const char *name;
    CUresult (*function)();
} entry_points[] = {
#define ENTRY(name) {#name, (CUresult(*)())name},
    SUPPORTED(ENTRY) REFUSED(ENTRY)
};

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                                    unsigned long long flags, int *status) {
    (void)version, (void)flags;
    if (!name || !function) return vgpu_result(cudaErrorInvalidValue);
    *function = NULL;
    for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points; i++)
        if (!strcmp(entry_points[i].name, name)) *function = (void *)entry_points[i].function;
    if (!*function) vgpu_unsupported(name);
    if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                           int *status) {
    return cudaGetDriverEntryPointByVersion(name, function, 12000, flags, status);
}

/* ---- runtime functions that PyTorch links and that are refused here: sharing between processes,
 * access from card to card, building graphs by hand, loading libraries of kernels. ---- */

#define REFUSED_RUNTIME(_)                                                                         \
    _(cudaIpcGetMemHandle) _(cudaIpcOpenMemHandle) _(cudaIpcCloseMemHandle)                        \
    _(cudaIpcGetEventHandle) _(cudaIpcOpenEventHandle) _(cudaDeviceEnablePeerAccess)               \
    _(cudaDeviceSetGraphMemAttribute)                                                              \
    _(cudaGraphAddNode) _(cudaGraphAddEmptyNode) _(cudaGraphConditionalHandleCreate)               \
    _(cudaGraphDebugDotPrint) _(cudaGraphNodeGetDependencies) _(cudaGraphNodeGetType)              \
    _(cudaGraphRetainUserObject) _(cudaUserObjectCreate) _(cudaUserObjectRelease)                  \
    _(cudaStreamBeginCaptureToGraph) _(cudaStreamUpdateCaptureDependencies)                        \
    _(cudaLibraryGetKernel) _(cudaLibraryLoadData) _(cudaLibraryUnload)

#define REFUSE_RUNTIME(name)                                                                       \
    EXPORT cudaError_t name(void) {                                                                \
        vgpu_unsupported(#name);                                                                   \
        return vgpu_result(cudaErrorNotSupported);                                                 \
    }
REFUSED_RUNTIME(REFUSE_RUNTIME)
