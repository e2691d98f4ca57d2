/* The CUDA driver (libcuda.so.1): contexts, and the virtual memory calls of expandable segments. */
#include <stdlib.h>
#include <string.h>

#include "virtual_gpu.h"

/* ---- devices and contexts: a device has one, its primary context ---- */

EXPORT CUresult cuInit(unsigned flags) {
    (void)flags;
    return vgpu_visible_count() ? CUDA_SUCCESS : cudaErrorNoDevice;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    *count = vgpu_visible_count();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(int *device, int ordinal) {
    if (!vgpu_card(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    const vgpu_device *card = vgpu_card(device);
    if (!card) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = card->has_context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, int device) {
    vgpu_device *card = vgpu_card(device);
    if (!card) return CUDA_ERROR_INVALID_DEVICE;
    card->has_context = true;
    *context = card; /* the card itself serves as the handle of its context */
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    vgpu_device *card = vgpu_card(vgpu_current_device());
    *context = card && card->has_context ? card : NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    for (int device = 0; device < vgpu_visible_count(); device++)
        if (vgpu_card(device) == context) return cudaSetDevice(device);
    return context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* ---- virtual memory: address ranges, physical memory, and mappings of one to the other ---- */

/* Physical memory lives until its handle is released and it is mapped nowhere. */
struct physical {
    size_t bytes;
    vgpu_allocation_prop prop;
    int uses; /* the handle, and every mapping */
};

static vgpu_ranges reservations;
static vgpu_ranges physicals; /* start: the handle; owner: struct physical */
static CUmemGenericAllocationHandle last_handle;

static bool is_granular(size_t bytes) { return bytes && bytes % VGPU_GRANULARITY == 0; }

static void drop(struct physical *memory) {
    if (--memory->uses) return;
    vgpu_refund(memory->prop.location.id, memory->bytes);
    free(memory);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const vgpu_allocation_prop *prop, int option) {
    (void)option;
    if (!bytes || !prop || !vgpu_card(prop->location.id)) return CUDA_ERROR_INVALID_VALUE;
    *bytes = VGPU_GRANULARITY;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                    CUdeviceptr wish, unsigned long long flags) {
    (void)wish; /* a hint in CUDA too */
    if (!pointer || !is_granular(bytes) || flags || alignment > VGPU_GRANULARITY) return CUDA_ERROR_INVALID_VALUE;
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return CUDA_ERROR_INVALID_DEVICE;
    vgpu_lock();
    uintptr_t address = vgpu_arena_take(bytes);
    CUresult error = address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (address) vgpu_ranges_insert(&reservations, (vgpu_range){address, bytes, device, 0, NULL});
    vgpu_log(VGPU_CALL_cuMemAddressReserve, device, address, bytes, error);
    vgpu_unlock();
    *pointer = address;
    return error;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) {
    vgpu_lock();
    CUresult error = CUDA_ERROR_INVALID_VALUE;
    int device = vgpu_current_device();
    const vgpu_range *range = vgpu_ranges_starting(&reservations, pointer);
    if (range && range->size == bytes && !vgpu_ranges_overlap(&vgpu_device_memory, pointer, bytes)) {
        device = range->device;
        vgpu_ranges_remove(&reservations, range);
        vgpu_arena_give(pointer, bytes);
        error = CUDA_SUCCESS;
    }
    vgpu_log(VGPU_CALL_cuMemAddressFree, device, pointer, bytes, error);
    vgpu_unlock();
    return error;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const vgpu_allocation_prop *prop, unsigned long long flags) {
    if (!handle || !prop || !is_granular(bytes) || flags || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    int device = prop->location.id;
    if (!vgpu_card(device)) return CUDA_ERROR_INVALID_DEVICE;
    struct physical *memory = malloc(sizeof *memory);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct physical){bytes, *prop, 1};
    vgpu_lock();
    CUresult error = vgpu_charge(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    *handle = 0;
    if (!error) {
        *handle = ++last_handle;
        vgpu_ranges_insert(&physicals, (vgpu_range){*handle, 1, device, 0, memory});
    }
    vgpu_log(VGPU_CALL_cuMemCreate, device, 0, bytes, error);
    vgpu_unlock();
    if (error) free(memory);
    return error;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    vgpu_lock();
    CUresult error = CUDA_ERROR_INVALID_VALUE;
    int device = vgpu_current_device();
    size_t bytes = 0;
    const vgpu_range *range = vgpu_ranges_starting(&physicals, handle);
    if (range) {
        struct physical *memory = range->owner;
        device = range->device;
        bytes = memory->bytes;
        vgpu_ranges_remove(&physicals, range);
        drop(memory);
        error = CUDA_SUCCESS;
    }
    vgpu_log(VGPU_CALL_cuMemRelease, device, 0, bytes, error);
    vgpu_unlock();
    return error;
}

EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    vgpu_lock();
    CUresult error = CUDA_ERROR_INVALID_VALUE;
    const vgpu_range *range = vgpu_ranges_starting(&physicals, handle);
    struct physical *memory = range ? range->owner : NULL;
    int device = range ? range->device : vgpu_current_device();
    if (memory && !flags && !offset && bytes == memory->bytes &&
        vgpu_ranges_cover(&reservations, pointer, bytes) &&
        !vgpu_ranges_overlap(&vgpu_device_memory, pointer, bytes)) {
        memory->uses++;
        vgpu_ranges_insert(&vgpu_device_memory, (vgpu_range){pointer, bytes, device, VGPU_MAPPED, memory});
        error = CUDA_SUCCESS;
    }
    vgpu_log(VGPU_CALL_cuMemMap, device, pointer, bytes, error);
    vgpu_unlock();
    return error;
}

/* Whether [pointer, pointer + bytes) consists of whole mappings. */
static bool is_whole_mappings(CUdeviceptr pointer, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const vgpu_range *range = vgpu_ranges_starting(&vgpu_device_memory, pointer + done);
        if (!range || range->kind != VGPU_MAPPED || range->size > bytes - done) return false;
        done += range->size;
    }
    return bytes > 0;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) {
    vgpu_lock();
    CUresult error = CUDA_ERROR_INVALID_VALUE;
    int device = vgpu_current_device();
    if (is_whole_mappings(pointer, bytes)) {
        for (size_t done = 0; done < bytes;) {
            vgpu_range mapping = *vgpu_ranges_starting(&vgpu_device_memory, pointer + done);
            vgpu_ranges_remove(&vgpu_device_memory, vgpu_ranges_starting(&vgpu_device_memory, mapping.start));
            device = mapping.device;
            drop(mapping.owner);
            done += mapping.size;
        }
        vgpu_forget(pointer, bytes);
        error = CUDA_SUCCESS;
    }
    vgpu_log(VGPU_CALL_cuMemUnmap, device, pointer, bytes, error);
    vgpu_unlock();
    return error;
}

/* Mapped memory is accessible here from the start; that it is mapped is checked. */
EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const void *descriptions, size_t count) {
    if (!descriptions || !count) return CUDA_ERROR_INVALID_VALUE;
    vgpu_lock();
    bool mapped = vgpu_ranges_cover(&vgpu_device_memory, pointer, bytes);
    vgpu_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    vgpu_lock();
    const vgpu_range *range = vgpu_ranges_containing(&vgpu_device_memory, pointer);
    if (range) {
        if (base) *base = range->start;
        if (bytes) *bytes = range->size;
    }
    vgpu_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer) {
    CUresult error = CUDA_SUCCESS;
    vgpu_lock();
    const vgpu_range *range = vgpu_ranges_containing(&vgpu_device_memory, pointer);
    if (!value || !range) {
        error = CUDA_ERROR_INVALID_VALUE;
    } else {
        switch (attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = cudaMemoryTypeDevice; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = pointer; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = range->device; break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = range->start; break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = range->size; break;
        default: vgpu_unsupported("this attribute of cuPointerGetAttribute"); error = CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    vgpu_unlock();
    return error;
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, cudaStream_t stream) {
    unsigned byte = value & 0xff;
    if (value == byte * 0x01010101u) return cudaMemsetAsync((void *)to, (int)byte, 4 * count, stream);
    vgpu_unsupported("cuMemsetD32Async with four different bytes");
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- modules: kernels compiled while the program runs. Accepted, and do nothing: kernels.c ---- */

EXPORT CUresult cuModuleLoadData(void **module, const void *image) {
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    *module = (void *)image;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

EXPORT CUresult cuModuleUnload(void *module) { return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

EXPORT CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    if (!module || !name) return CUDA_ERROR_INVALID_VALUE;
    *function = module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                               cudaStream_t stream, void **arguments, void **extra) {
    (void)extra;
    return cudaLaunchKernel(function, (dim3){grid_x, grid_y, grid_z}, (dim3){block_x, block_y, block_z},
                            arguments, shared, stream);
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                            size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared);
}

/* A descriptor of a tensor's shape for kernels, which do not run. */
EXPORT CUresult cuTensorMapEncodeTiled(void *map) {
    memset(map, 0, 128);
    return CUDA_SUCCESS;
}

/* A program may ask to be told what the driver logs. This one logs nothing, so it is never told. */
EXPORT CUresult cuLogsRegisterCallback(void *function, void *data, void **handle) {
    (void)data;
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    if (handle) *handle = function;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLogsUnregisterCallback(void *handle) {
    return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Undocumented tables of functions, by number. NVRTC crashes where the function is missing, and does
 * without where it finds no table. */
EXPORT CUresult cuGetExportTable(const void **table, const void *id) {
    (void)id;
    if (table) *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
