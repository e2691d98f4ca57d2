/* Memory pools: cudaMallocAsync, and the default pool of each device.
 *
 * Work is done at once (streams.c), so memory freed in a stream is back in its pool at once. A pool
 * takes memory from its device in pieces of POOL_STEP, as seen on cards, and keeps it up to the
 * release threshold; what is above goes back when something is synchronised.
 */
#include "virtual_gpu.h"

#define POOL_STEP (32 * MIB)
#define POOL_UNIT ((size_t)512)

struct vgpu_pool {
    bool ready;
    int device;
    size_t used, used_high;
    size_t reserved, reserved_high;
    uint64_t release_threshold;
    int reuse[4]; /* the three cudaMemPoolReuse* flags, by number; on from the start, without effect here */
};

static struct vgpu_pool pools[VGPU_MAX_DEVICES];

static struct vgpu_pool *default_pool(int device) {
    struct vgpu_pool *pool = &pools[device];
    if (!pool->ready) {
        *pool = (struct vgpu_pool){.ready = true, .device = device, .reuse = {0, 1, 1, 1}};
    }
    return pool;
}

static bool is_pool(const struct vgpu_pool *pool) {
    return pool >= pools && pool < pools + VGPU_MAX_DEVICES;
}

static size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

static void release_down_to(struct vgpu_pool *pool, uint64_t keep) {
    if (keep < pool->used) keep = pool->used;
    if (pool->reserved <= keep) return;
    size_t kept = keep > SIZE_MAX - POOL_STEP ? pool->reserved : rounded(keep, POOL_STEP);
    if (kept >= pool->reserved) return;
    vgpu_refund(pool->device, pool->reserved - kept);
    pool->reserved = kept;
}

static bool grow_for(struct vgpu_pool *pool, size_t bytes) {
    size_t spare = pool->reserved - pool->used;
    if (bytes <= spare) return true;
    size_t more = rounded(bytes - spare, POOL_STEP);
    if (!vgpu_charge(pool->device, more)) {
        more = rounded(bytes - spare, VGPU_GRANULARITY); /* the last of the device */
        if (!vgpu_charge(pool->device, more)) return false;
    }
    pool->reserved += more;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    return true;
}

static cudaError_t allocate(struct vgpu_pool *pool, void **pointer, size_t bytes) {
    if (bytes > vgpu_card(pool->device)->capacity) return cudaErrorMemoryAllocation;
    size_t size = rounded(bytes, POOL_UNIT);
    if (!grow_for(pool, size)) return cudaErrorMemoryAllocation;
    uintptr_t address = vgpu_arena_take(size);
    if (!address) return cudaErrorMemoryAllocation;
    pool->used += size;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    vgpu_ranges_insert(&vgpu_device_memory, (vgpu_range){address, size, pool->device, VGPU_POOL, pool});
    *pointer = (void *)address;
    return cudaSuccess;
}

void vgpu_free_pool_memory(const vgpu_range *range) {
    struct vgpu_pool *pool = range->owner;
    pool->used -= range->size;
}

/* A synchronise call returns memory above the threshold (streams.c calls this). */
void vgpu_trim_pool(int device) {
    struct vgpu_pool *pool = default_pool(device);
    release_down_to(pool, pool->release_threshold);
}

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    vgpu_lock();
    *pool = default_pool(device);
    vgpu_unlock();
    return cudaSuccess;
}

EXPORT cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream) {
    if (!pointer) return vgpu_result(cudaErrorInvalidValue);
    *pointer = NULL;
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!bytes) return cudaSuccess;
    vgpu_lock();
    cudaError_t error = vgpu_stream_exists(stream) ? allocate(default_pool(device), pointer, bytes)
                                                   : cudaErrorInvalidResourceHandle;
    vgpu_log(VGPU_CALL_cudaMallocAsync, device, (uintptr_t)*pointer, bytes, error);
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!pointer) return cudaSuccess;
    vgpu_lock();
    cudaError_t error = cudaErrorInvalidValue;
    size_t bytes = 0;
    vgpu_range *range = vgpu_ranges_starting(&vgpu_device_memory, (uintptr_t)pointer);
    if (!vgpu_stream_exists(stream)) {
        error = cudaErrorInvalidResourceHandle;
    } else if (range && range->kind == VGPU_POOL) {
        vgpu_range freed = *range;
        vgpu_ranges_remove(&vgpu_device_memory, range);
        vgpu_free_pool_memory(&freed);
        vgpu_arena_give(freed.start, freed.size);
        device = freed.device;
        bytes = freed.size;
        error = cudaSuccess;
    }
    vgpu_log(VGPU_CALL_cudaFreeAsync, device, (uintptr_t)pointer, bytes, error);
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    if (!is_pool(pool)) return vgpu_result(cudaErrorInvalidValue);
    vgpu_lock();
    size_t before = pool->reserved;
    release_down_to(pool, keep);
    vgpu_log(VGPU_CALL_cudaMemPoolTrimTo, pool->device, 0, before - pool->reserved, cudaSuccess);
    vgpu_unlock();
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    if (!is_pool(pool) || !value) return vgpu_result(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    vgpu_lock();
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: *(int *)value = pool->reuse[attribute]; break;
    case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)value = pool->release_threshold; break;
    case cudaMemPoolAttrReservedMemCurrent: *(uint64_t *)value = pool->reserved; break;
    case cudaMemPoolAttrReservedMemHigh: *(uint64_t *)value = pool->reserved_high; break;
    case cudaMemPoolAttrUsedMemCurrent: *(uint64_t *)value = pool->used; break;
    case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)value = pool->used_high; break;
    default: error = cudaErrorInvalidValue;
    }
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    if (!is_pool(pool) || !value) return vgpu_result(cudaErrorInvalidValue);
    cudaError_t error = cudaSuccess;
    vgpu_lock();
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
    case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies:
        pool->reuse[attribute] = *(int *)value;
        break;
    case cudaMemPoolAttrReleaseThreshold: pool->release_threshold = *(uint64_t *)value; break;
    /* A high-water mark can only be set to 0, which means: to what it is now. */
    case cudaMemPoolAttrReservedMemHigh:
        if (*(uint64_t *)value) error = cudaErrorInvalidValue;
        else pool->reserved_high = pool->reserved;
        break;
    case cudaMemPoolAttrUsedMemHigh:
        if (*(uint64_t *)value) error = cudaErrorInvalidValue;
        else pool->used_high = pool->used;
        break;
    default: error = cudaErrorInvalidValue;
    }
    vgpu_unlock();
    return vgpu_result(error);
}

/* Asked only for cards that can reach each other, and these cannot (cudaDeviceCanAccessPeer). */
EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const void *descriptions, size_t count) {
    (void)pool, (void)descriptions, (void)count;
    vgpu_unsupported("cudaMemPoolSetAccess");
    return vgpu_result(cudaErrorNotSupported);
}

/* Memory of allocation nodes in graphs: there are none here, as graphs cannot be built by hand. */
EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute,
                                                  void *value) {
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    if (!value) return vgpu_result(cudaErrorInvalidValue);
    switch (attribute) {
    case cudaGraphMemAttrUsedMemCurrent:
    case cudaGraphMemAttrUsedMemHigh:
    case cudaGraphMemAttrReservedMemCurrent:
    case cudaGraphMemAttrReservedMemHigh: *(uint64_t *)value = 0; return cudaSuccess;
    }
    return vgpu_result(cudaErrorInvalidValue);
}
