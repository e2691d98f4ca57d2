/* Names and texts of errors: those of NVIDIA's runtime, because PyTorch prints them. The test
 * compares them with the runtime library that is installed next to PyTorch. */
#include "abi.h"

#define ERRORS(_)                                                                                  \
    _(cudaSuccess, "CUDA_SUCCESS", "no error")                                                     \
    _(cudaErrorInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument")                       \
    _(cudaErrorMemoryAllocation, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")                      \
    _(cudaErrorInitializationError, "CUDA_ERROR_NOT_INITIALIZED", "initialization error")          \
    _(cudaErrorInvalidSymbol, NULL, "invalid device symbol")                                       \
    _(cudaErrorNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected")             \
    _(cudaErrorInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal")               \
    _(cudaErrorInvalidResourceHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle")      \
    _(cudaErrorNotReady, "CUDA_ERROR_NOT_READY", "device not ready")                               \
    _(cudaErrorPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",                 \
      "peer access is already enabled")                                                            \
    _(cudaErrorHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",           \
      "part or all of the requested memory range is already mapped")                               \
    _(cudaErrorHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",                   \
      "pointer does not correspond to a registered memory region")                                 \
    _(cudaErrorNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported")                \
    _(cudaErrorStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",                  \
      "operation not permitted when stream is capturing")                                          \
    _(cudaErrorStreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",                      \
      "capture was not ended in the same stream as it began")                                              \
    _(cudaErrorUnknown, "CUDA_ERROR_UNKNOWN", "unknown error")

EXPORT const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define NAME(code, driver, text)                                                                   \
    case code: return #code;
        ERRORS(NAME)
    default: return "unrecognized error code";
    }
}

EXPORT const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define TEXT(code, driver, text)                                                                   \
    case code: return text;
        ERRORS(TEXT)
    default: return "unrecognized error code";
    }
}

/* The driver's errors have the runtime's numbers and texts, except those only the driver has. */
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_INVALID_CONTEXT ? "invalid device context" : cudaGetErrorString(error);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    switch (error) {
#define DRIVER_NAME(code, driver, text)                                                            \
    case code: *name = driver; return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        ERRORS(DRIVER_NAME)
    case CUDA_ERROR_INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return CUDA_SUCCESS;
    default: *name = NULL; return CUDA_ERROR_INVALID_VALUE;
    }
}
