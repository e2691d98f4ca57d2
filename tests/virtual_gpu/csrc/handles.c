/* Which opaque pointers (streams, events, graphs) are alive, so that a stale one is an error, as
 * with CUDA, and not a crash. The callers hold the lock. */
#include "virtual_gpu.h"

static vgpu_ranges handles;

void vgpu_handle_add(void *handle, int kind) {
    vgpu_ranges_insert(&handles, (vgpu_range){(uintptr_t)handle, 1, 0, kind, handle});
}

bool vgpu_handle_is(const void *handle, int kind) {
    const vgpu_range *found = vgpu_ranges_starting(&handles, (uintptr_t)handle);
    return found && found->kind == kind;
}

void vgpu_handle_remove(const void *handle) {
    vgpu_ranges_remove(&handles, vgpu_ranges_starting(&handles, (uintptr_t)handle));
}
