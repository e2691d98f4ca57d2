/* What the files of the virtual GPU share. Every name here starts with vgpu_. */
#ifndef VIRTUAL_GPU_H
#define VIRTUAL_GPU_H

#include <stdbool.h>
#include <sys/types.h>

#include "abi.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

enum { VGPU_MAX_DEVICES = 8, VGPU_MAX_PROCESSES = 64, VGPU_NAME_LENGTH = 256 };

/* CUDA hands out device memory in units of 2 MiB (cuMemGetAllocationGranularity says so too). */
#define VGPU_GRANULARITY (2 * MIB)

/* ---- settings.c: what the environment asks for; read once, at the first call ---- */

typedef struct {
    pid_t pid;
    size_t bytes;
} vgpu_process;

typedef struct {
    int devices;
    size_t capacity;
    char name[VGPU_NAME_LENGTH];
    int major, minor;
    size_t taken;
    bool hold_events;
    vgpu_process processes[VGPU_MAX_PROCESSES];
    int process_count;
    const char *log_path;
    /* CUDA_VISIBLE_DEVICES: ordinal as the program sees it -> card. */
    int visible[VGPU_MAX_DEVICES];
    int visible_count;
} vgpu_settings;

const vgpu_settings *vgpu_read_settings(void);
bool vgpu_parse_bytes(const char *text, const char **end, size_t *bytes);

/* ---- device.c: the cards, the lock, the thread's state ---- */

typedef struct {
    size_t capacity;
    size_t used;  /* by this process */
    size_t taken; /* by other processes */
    _Atomic bool has_context; /* set without the lock */
    vgpu_process processes[VGPU_MAX_PROCESSES];
    int process_count;
} vgpu_device;

/* One lock guards everything that is not thread-local: the calls are short. */
void vgpu_lock(void);
void vgpu_unlock(void);

const vgpu_settings *vgpu_configuration(void);
int vgpu_visible_count(void);
/* The card behind a device number of the program; NULL if there is none. */
vgpu_device *vgpu_card(int ordinal);
/* The card with this index, hidden or not; NULL if there is none. */
vgpu_device *vgpu_physical_card(int index);
/* The program's number for a card; -1 for a hidden one. */
int vgpu_ordinal_of(int card);
/* This thread's device number. vgpu_use_device also gives the device its context. */
int vgpu_current_device(void);
int vgpu_use_device(void);
size_t vgpu_free_bytes(const vgpu_device *card);
/* Takes bytes of a device's memory; false, changing nothing, if they are not free. */
bool vgpu_charge(int ordinal, size_t bytes);
void vgpu_refund(int ordinal, size_t bytes);

/* Every runtime function returns through this: an error becomes the thread's last error. */
cudaError_t vgpu_result(cudaError_t error);
/* Says on stderr that a function is not supported. */
void vgpu_unsupported(const char *function);

/* ---- ranges.c: sorted tables of address ranges ---- */

typedef struct {
    uintptr_t start;
    size_t size;
    int device;
    int kind;
    void *owner;
} vgpu_range;

typedef struct {
    vgpu_range *items;
    size_t count, room;
} vgpu_ranges;

void vgpu_ranges_insert(vgpu_ranges *table, vgpu_range range);
void vgpu_ranges_remove(vgpu_ranges *table, const vgpu_range *item);
/* The range that contains an address, or that starts exactly at it; NULL if none. */
vgpu_range *vgpu_ranges_containing(const vgpu_ranges *table, uintptr_t address);
vgpu_range *vgpu_ranges_starting(const vgpu_ranges *table, uintptr_t address);
bool vgpu_ranges_overlap(const vgpu_ranges *table, uintptr_t start, size_t size);
/* Whether [start, start + size) is covered without a hole. */
bool vgpu_ranges_cover(const vgpu_ranges *table, uintptr_t start, size_t size);

/* ---- arena.c: device addresses, and the bytes behind them ---- */

/* Address space for device memory, aligned to 2 MiB; 0 if none is left. The caller holds the lock. */
uintptr_t vgpu_arena_take(size_t bytes);
void vgpu_arena_give(uintptr_t address, size_t bytes);
bool vgpu_arena_contains(const void *pointer);
/* Forgets what was written there: it reads as zeros. */
void vgpu_forget(uintptr_t address, size_t bytes);
void vgpu_forget_everything(void);
void vgpu_copy(void *to, const void *from, size_t bytes);
void vgpu_fill(void *to, int value, size_t bytes);

/* ---- memory.c: cudaMalloc and its relatives ---- */

enum { VGPU_MALLOC, VGPU_POOL, VGPU_MAPPED };

/* Everything a program may copy to or from on a device: allocations and mapped memory. */
extern vgpu_ranges vgpu_device_memory;
/* pools.c: takes a freed range out of its pool; returns what a pool keeps above its threshold. */
void vgpu_free_pool_memory(const vgpu_range *range);
void vgpu_trim_pool(int device);

/* ---- streams.c ---- */

/* Whether stream is the default one or exists. The caller holds the lock. */
bool vgpu_stream_exists(cudaStream_t stream);
/* Counts work given to a stream that is being captured (graphs.c). The caller holds the lock. */
void vgpu_count_work(cudaStream_t stream);

/* ---- handles.c: which opaque pointers are alive, and as what ---- */

enum { VGPU_STREAM = 1, VGPU_EVENT, VGPU_GRAPH, VGPU_GRAPH_EXEC };
void vgpu_handle_add(void *handle, int kind);
bool vgpu_handle_is(const void *handle, int kind);
void vgpu_handle_remove(const void *handle);

/* ---- runtime functions that the driver functions rest on ---- */

cudaError_t cudaSetDevice(int device);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                          size_t shared);

/* ---- properties.c ---- */

void vgpu_uuid(int card, unsigned char uuid[16]);
int vgpu_pci_bus(int card);

/* ---- log.c: what was asked of the driver ---- */

#define VGPU_LOGGED_CALLS(_)                                                                       \
    _(cudaMalloc)                                                                                  \
    _(cudaFree)                                                                                    \
    _(cudaMallocAsync)                                                                             \
    _(cudaFreeAsync)                                                                               \
    _(cudaMemPoolTrimTo)                                                                           \
    _(cudaHostAlloc)                                                                               \
    _(cudaFreeHost)                                                                                \
    _(cudaHostRegister)                                                                            \
    _(cudaHostUnregister)                                                                          \
    _(cuMemAddressReserve)                                                                         \
    _(cuMemAddressFree)                                                                            \
    _(cuMemCreate)                                                                                 \
    _(cuMemRelease)                                                                                \
    _(cuMemMap)                                                                                    \
    _(cuMemUnmap)

enum {
#define VGPU_CALL_NUMBER(name) VGPU_CALL_##name,
    VGPU_LOGGED_CALLS(VGPU_CALL_NUMBER)
#undef VGPU_CALL_NUMBER
        VGPU_CALL_COUNT
};

/* Adds one call to the log and the counters. The caller holds the lock. */
void vgpu_log(int call, int device, uintptr_t address, size_t bytes, int result);

#endif
