/* Device memory (cudaMalloc), pinned host memory, copies and fills. */
#include <string.h>
#include <sys/mman.h>

#include "virtual_gpu.h"

/* The smallest unit cudaMalloc hands out. A real driver also rounds to 2 MiB pages, which small
 * requests share; PyTorch asks for multiples of 2 MiB, where this makes no difference. */
#define MALLOC_UNIT ((size_t)512)

vgpu_ranges vgpu_device_memory;
static vgpu_ranges pinned; /* kind: PINNED_ALLOCATED or PINNED_REGISTERED */
enum { PINNED_ALLOCATED, PINNED_REGISTERED };

static size_t charged(size_t bytes) { return (bytes + MALLOC_UNIT - 1) & ~(MALLOC_UNIT - 1); }

static cudaError_t allocate(void **pointer, size_t bytes, int device) {
    /* Compared before rounding up, which could wrap around. */
    if (bytes > vgpu_card(device)->capacity || !vgpu_charge(device, charged(bytes)))
        return cudaErrorMemoryAllocation;
    uintptr_t address = vgpu_arena_take(bytes);
    if (!address) {
        vgpu_refund(device, charged(bytes));
        return cudaErrorMemoryAllocation;
    }
    vgpu_ranges_insert(&vgpu_device_memory, (vgpu_range){address, bytes, device, VGPU_MALLOC, NULL});
    *pointer = (void *)address;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    if (!pointer) return vgpu_result(cudaErrorInvalidValue);
    *pointer = NULL;
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!bytes) return cudaSuccess;
    vgpu_lock();
    cudaError_t error = allocate(pointer, bytes, device);
    vgpu_log(VGPU_CALL_cudaMalloc, device, (uintptr_t)*pointer, bytes, error);
    vgpu_unlock();
    return vgpu_result(error);
}

/* Unlike a card, which finishes its work first, this does not complete held events: a test decides
 * when they complete (README.md). */
EXPORT cudaError_t cudaFree(void *pointer) {
    int device = vgpu_use_device();
    if (!pointer) return cudaSuccess; /* cudaFree(0) is how programs make a context */
    vgpu_lock();
    cudaError_t error = cudaErrorInvalidValue;
    size_t bytes = 0;
    vgpu_range *range = vgpu_ranges_starting(&vgpu_device_memory, (uintptr_t)pointer);
    if (range && range->kind != VGPU_MAPPED) {
        vgpu_range freed = *range;
        vgpu_ranges_remove(&vgpu_device_memory, range);
        if (freed.kind == VGPU_POOL)
            vgpu_free_pool_memory(&freed);
        else
            vgpu_refund(freed.device, charged(freed.size));
        vgpu_arena_give(freed.start, freed.size);
        device = freed.device;
        bytes = freed.size;
        error = cudaSuccess;
    }
    vgpu_log(VGPU_CALL_cudaFree, device, (uintptr_t)pointer, bytes, error);
    vgpu_unlock();
    return vgpu_result(error);
}

/* ---- pinned host memory: ordinary memory of the host, remembered ---- */

EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    (void)flags;
    if (!pointer) return vgpu_result(cudaErrorInvalidValue);
    *pointer = NULL;
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!bytes) return cudaSuccess;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cudaError_t error = p == MAP_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
    vgpu_lock();
    if (!error) {
        vgpu_ranges_insert(&pinned, (vgpu_range){(uintptr_t)p, bytes, device, PINNED_ALLOCATED, NULL});
        *pointer = p;
    }
    vgpu_log(VGPU_CALL_cudaHostAlloc, device, (uintptr_t)*pointer, bytes, error);
    vgpu_unlock();
    return vgpu_result(error);
}

static cudaError_t unpin(void *pointer, int kind, int call, cudaError_t unknown) {
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    vgpu_lock();
    size_t bytes = 0;
    cudaError_t error = unknown;
    vgpu_range *range = vgpu_ranges_starting(&pinned, (uintptr_t)pointer);
    if (range && range->kind == kind) {
        bytes = range->size;
        vgpu_ranges_remove(&pinned, range);
        error = cudaSuccess;
    }
    vgpu_log(call, device, (uintptr_t)pointer, bytes, error);
    vgpu_unlock();
    if (!error && kind == PINNED_ALLOCATED) munmap(pointer, bytes);
    return vgpu_result(error);
}

EXPORT cudaError_t cudaFreeHost(void *pointer) {
    if (!pointer) return cudaSuccess;
    return unpin(pointer, PINNED_ALLOCATED, VGPU_CALL_cudaFreeHost, cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
    (void)flags;
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!pointer || !bytes) return vgpu_result(cudaErrorInvalidValue);
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (vgpu_ranges_overlap(&pinned, (uintptr_t)pointer, bytes))
        error = cudaErrorHostMemoryAlreadyRegistered;
    else
        vgpu_ranges_insert(&pinned,
                           (vgpu_range){(uintptr_t)pointer, bytes, device, PINNED_REGISTERED, NULL});
    vgpu_log(VGPU_CALL_cudaHostRegister, device, (uintptr_t)pointer, bytes, error);
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaHostUnregister(void *pointer) {
    return unpin(pointer, PINNED_REGISTERED, VGPU_CALL_cudaHostUnregister,
                 cudaErrorHostMemoryNotRegistered);
}

EXPORT cudaError_t cudaPointerGetAttributes(vgpu_pointer_attributes *attributes, const void *pointer) {
    if (!attributes) return vgpu_result(cudaErrorInvalidValue);
    vgpu_lock();
    const vgpu_range *device = vgpu_ranges_containing(&vgpu_device_memory, (uintptr_t)pointer);
    const vgpu_range *host = device ? NULL : vgpu_ranges_containing(&pinned, (uintptr_t)pointer);
    /* Pinned memory has one address for both sides (unifiedAddressing). */
    if (device)
        *attributes = (vgpu_pointer_attributes){cudaMemoryTypeDevice, device->device, (void *)pointer, NULL};
    else if (host)
        *attributes = (vgpu_pointer_attributes){cudaMemoryTypeHost, host->device, (void *)pointer, (void *)pointer};
    else
        *attributes = (vgpu_pointer_attributes){cudaMemoryTypeUnregistered, -2, NULL, (void *)pointer};
    vgpu_unlock();
    return cudaSuccess;
}

/* ---- copies and fills; arena.c says what becomes of the bytes ---- */

/* Whether a pointer may be used for so many bytes: what lies in the arena must be allocated. */
static bool usable(const void *pointer, size_t bytes) {
    if (!vgpu_arena_contains(pointer)) return pointer != NULL;
    return vgpu_ranges_cover(&vgpu_device_memory, (uintptr_t)pointer, bytes);
}

static bool fits(const void *pointer, bool on_device) {
    return vgpu_arena_contains(pointer) == on_device;
}

static cudaError_t copy(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
    vgpu_use_device();
    if (!bytes) return cudaSuccess;
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!vgpu_stream_exists(stream))
        error = cudaErrorInvalidResourceHandle;
    else if (!usable(to, bytes) || !usable(from, bytes) || kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        error = cudaErrorInvalidValue;
    /* A kind that contradicts the pointers: real CUDA follows the pointers where both sides share
     * their addresses, except that device memory cannot be named as host memory. */
    else if ((kind == cudaMemcpyHostToDevice && !fits(to, true)) ||
             (kind == cudaMemcpyDeviceToHost && !fits(from, true)) ||
             (kind == cudaMemcpyHostToHost && (fits(to, true) || fits(from, true))))
        error = cudaErrorInvalidValue;
    else
        vgpu_count_work(stream);
    vgpu_unlock();
    if (!error) vgpu_copy(to, from, bytes);
    return vgpu_result(error);
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    return copy(to, from, bytes, kind, NULL);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
    return copy(to, from, bytes, kind, stream);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                       size_t bytes, cudaStream_t stream) {
    if (!vgpu_card(to_device) || !vgpu_card(from_device)) return vgpu_result(cudaErrorInvalidDevice);
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                     size_t width, size_t height, int kind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return vgpu_result(cudaErrorInvalidValue);
    for (size_t row = 0; row < height; row++) {
        cudaError_t error =
            copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
        if (error) return error;
    }
    return cudaSuccess;
}

static cudaError_t fill(void *to, int value, size_t bytes, cudaStream_t stream) {
    vgpu_use_device();
    if (!bytes) return cudaSuccess;
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!vgpu_stream_exists(stream))
        error = cudaErrorInvalidResourceHandle;
    else if (!usable(to, bytes))
        error = cudaErrorInvalidValue;
    else
        vgpu_count_work(stream);
    vgpu_unlock();
    if (!error) vgpu_fill(to, value, bytes);
    return vgpu_result(error);
}

EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes) { return fill(to, value, bytes, NULL); }

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return fill(to, value, bytes, stream);
}

/* Device variables are only read by kernels, which do not run: what is copied into them is not kept. */
EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes,
                                      size_t offset, int kind) {
    (void)from, (void)bytes, (void)offset, (void)kind;
    return vgpu_result(symbol ? cudaSuccess : cudaErrorInvalidSymbol);
}

/* The host's shadow of the variable: an address that is valid for as long as the program. */
EXPORT cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    if (!symbol) return vgpu_result(cudaErrorInvalidSymbol);
    *pointer = (void *)symbol;
    return cudaSuccess;
}
