/* What a card says about itself. Capacity, name and compute capability are chosen; the rest is
 * typical of the compute capability, with one number of multiprocessors for all. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device_prop_fields.h"
#include "virtual_gpu.h"

enum { MULTIPROCESSORS = 132, THREADS_PER_MULTIPROCESSOR = 2048, FIRST_PCI_BUS = 1 };

/* Shared memory a block may ask for: CUDA C++ Programming Guide, "Technical Specifications per
 * Compute Capability". */
static int shared_per_block_optin(int major, int minor) {
    switch (10 * major + minor) {
    case 70: case 72: return 96 * 1024;
    case 75: return 64 * 1024;
    case 80: case 87: return 163 * 1024;
    case 86: case 89: case 120: case 121: return 99 * 1024;
    case 90: case 100: case 101: case 103: case 110: return 227 * 1024;
    default: return 48 * 1024;
    }
}

/* The CUDA version of the program: which runtime library it was linked with. 1000 * major + 10 * minor. */
static int runtime_version(void) {
    if (!dlopen("libcudart.so.13", RTLD_NOLOAD | RTLD_LAZY) && dlopen("libcudart.so.12", RTLD_NOLOAD | RTLD_LAZY))
        return 12080;
    return 13000;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = runtime_version();
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

EXPORT CUresult cuDriverGetVersion(int *version) { return cudaRuntimeGetVersion(version); }

/* "GPU-" and this, in hexadecimal, is what NVML shows. */
void vgpu_uuid(int card, unsigned char uuid[16]) {
    memcpy(uuid, "VirtualGPU\0\0\0\0\0\0", 16);
    uuid[15] = (unsigned char)card;
}

int vgpu_pci_bus(int card) { return FIRST_PCI_BUS + card; }

typedef struct {
    char name[VGPU_NAME_LENGTH];
    unsigned char uuid[16];
    size_t totalGlobalMem, sharedMemPerBlock, memPitch, totalConstMem, textureAlignment;
    size_t texturePitchAlignment, sharedMemPerMultiprocessor, sharedMemPerBlockOptin;
    size_t reservedSharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], major, minor;
    int multiProcessorCount, canMapHostMemory, concurrentKernels, pciBusID, asyncEngineCount;
    int unifiedAddressing, memoryBusWidth, l2CacheSize, maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported, regsPerMultiprocessor, cooperativeLaunch;
    int maxBlocksPerMultiProcessor, hostRegisterSupported, memoryPoolsSupported;
} properties;

static properties describe(int ordinal) {
    const vgpu_settings *settings = vgpu_configuration();
    int optin = shared_per_block_optin(settings->major, settings->minor);
    properties p = {
        .totalGlobalMem = vgpu_card(ordinal)->capacity,
        .sharedMemPerBlock = 48 * 1024,
        .regsPerBlock = 65536,
        .warpSize = 32,
        .memPitch = 2147483647,
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .totalConstMem = 65536,
        .major = settings->major,
        .minor = settings->minor,
        .textureAlignment = 512,
        .texturePitchAlignment = 32,
        .multiProcessorCount = MULTIPROCESSORS,
        .canMapHostMemory = 1,
        .concurrentKernels = 1,
        .pciBusID = vgpu_pci_bus(settings->visible[ordinal]),
        .asyncEngineCount = 3,
        .unifiedAddressing = 1,
        .memoryBusWidth = 5120,
        .l2CacheSize = 50 * 1024 * 1024,
        .maxThreadsPerMultiProcessor = THREADS_PER_MULTIPROCESSOR,
        .streamPrioritiesSupported = 1,
        .sharedMemPerMultiprocessor = (size_t)optin + 1024,
        .regsPerMultiprocessor = 65536,
        .cooperativeLaunch = 1,
        .sharedMemPerBlockOptin = (size_t)optin,
        .maxBlocksPerMultiProcessor = 32,
        .reservedSharedMemPerBlock = 1024,
        .hostRegisterSupported = 1,
        .memoryPoolsSupported = 1,
    };
    memcpy(p.name, settings->name, sizeof p.name);
    vgpu_uuid(settings->visible[ordinal], p.uuid);
    return p;
}

static void fill_properties(char *to, int ordinal, bool cuda12) {
    properties p = describe(ordinal);
    memset(to, 0, cuda12 ? VGPU_DEVICE_PROP_SIZE_12 : VGPU_DEVICE_PROP_SIZE_13);
#define PUT(field, offset12, offset13)                                                             \
    memcpy(to + (cuda12 ? (offset12) : (offset13)), &p.field, sizeof p.field);
    VGPU_DEVICE_PROP_FIELDS(PUT)
#undef PUT
}

EXPORT cudaError_t cudaGetDeviceProperties(void *to, int device) {
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    if (runtime_version() < 13000) {
        /* There this name has the layout of CUDA 11, which no program built with CUDA 12 uses. */
        vgpu_unsupported("cudaGetDeviceProperties of CUDA 12 (without _v2)");
        return vgpu_result(cudaErrorNotSupported);
    }
    fill_properties(to, device, false);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties_v2(void *to, int device) {
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    fill_properties(to, device, true);
    return cudaSuccess;
}

static int attribute_value(const properties *p, int attribute) {
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return p->maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX: return p->maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY: return p->maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ: return p->maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX: return p->maxGridSize[0];
    case cudaDevAttrMaxGridDimY: return p->maxGridSize[1];
    case cudaDevAttrMaxGridDimZ: return p->maxGridSize[2];
    case cudaDevAttrMaxSharedMemoryPerBlock: return (int)p->sharedMemPerBlock;
    case cudaDevAttrTotalConstantMemory: return (int)p->totalConstMem;
    case cudaDevAttrWarpSize: return p->warpSize;
    case cudaDevAttrMaxPitch: return (int)p->memPitch;
    case cudaDevAttrMaxRegistersPerBlock: return p->regsPerBlock;
    case cudaDevAttrTextureAlignment: return (int)p->textureAlignment;
    case cudaDevAttrMultiProcessorCount: return p->multiProcessorCount;
    case cudaDevAttrCanMapHostMemory: return p->canMapHostMemory;
    case cudaDevAttrConcurrentKernels: return p->concurrentKernels;
    case cudaDevAttrPciBusId: return p->pciBusID;
    case cudaDevAttrGlobalMemoryBusWidth: return p->memoryBusWidth;
    case cudaDevAttrL2CacheSize: return p->l2CacheSize;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return p->maxThreadsPerMultiProcessor;
    case cudaDevAttrUnifiedAddressing: return p->unifiedAddressing;
    case cudaDevAttrComputeCapabilityMajor: return p->major;
    case cudaDevAttrComputeCapabilityMinor: return p->minor;
    case cudaDevAttrStreamPrioritiesSupported: return p->streamPrioritiesSupported;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return (int)p->sharedMemPerMultiprocessor;
    case cudaDevAttrMaxRegistersPerMultiprocessor: return p->regsPerMultiprocessor;
    case cudaDevAttrCooperativeLaunch: return p->cooperativeLaunch;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)p->sharedMemPerBlockOptin;
    case cudaDevAttrHostRegisterSupported: return p->hostRegisterSupported;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return p->maxBlocksPerMultiProcessor;
    case cudaDevAttrReservedSharedMemoryPerBlock: return (int)p->reservedSharedMemPerBlock;
    case cudaDevAttrMemoryPoolsSupported: return p->memoryPoolsSupported;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return 1;
    default: return 0; /* every other attribute is a feature the card does not have */
    }
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    if (!value || attribute < 1) return vgpu_result(cudaErrorInvalidValue);
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    properties p = describe(device);
    *value = attribute_value(&p, attribute);
    return cudaSuccess;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (!value || attribute < 1) return CUDA_ERROR_INVALID_VALUE;
    if (!vgpu_card(device)) return CUDA_ERROR_INVALID_DEVICE;
    properties p = describe(device);
    *value = attribute_value(&p, attribute);
    return CUDA_SUCCESS;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    if (!text || length < 13) return vgpu_result(cudaErrorInvalidValue);
    snprintf(text, (size_t)length, "0000:%02x:00.0", vgpu_pci_bus(vgpu_configuration()->visible[device]));
    return cudaSuccess;
}
