/* Device addresses, and the bytes behind them.
 *
 * Device memory is promised, not held. Addresses come from one reserved region that nothing may
 * touch: a program that reads a device pointer on the CPU crashes, as with a real card. Behind it,
 * at a fixed distance, lies a second region of the same size with the contents. It is memory of the
 * host, so it is written to with restraint:
 *
 *  - a copy or fill of at most COPY_LIMIT bytes is done;
 *  - a longer one is not: the device memory it would have written reads as zeros afterwards;
 *    host memory that it would have written is given back to the system, so that it reads as
 *    zeros too where it is ordinary (private, anonymous) memory;
 *  - what would make the contents exceed CONTENT_LIMIT in all is not written: it reads as zeros;
 *  - a kernel may write anywhere, and does not run: once one is launched, everything reads as zeros.
 *    Otherwise old bytes would come back as the results of kernels, for instance as a number of
 *    elements found, and a program would act on them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "virtual_gpu.h"

#define COPY_LIMIT (1 * MIB)
#define CONTENT_LIMIT (256 * MIB)
/* Contents are counted in granules of this size. */
#define GRANULE (64 * KIB)

enum { MOST_GRANULES = CONTENT_LIMIT / GRANULE };

#define TIB (1024 * GIB)
/* Fixed addresses where possible, so that two runs of a program see the same ones. */
#define WISHED_ADDRESSES (8 * TIB)
#define WISHED_CONTENTS (44 * TIB)
#define LARGEST_ARENA (32 * TIB)
#define SMALLEST_ARENA (1 * TIB)

static pthread_once_t reserved = PTHREAD_ONCE_INIT;
static char *addresses, *contents;
static size_t arena_size;
static vgpu_ranges gaps;

/* The granules that hold contents, in no order; and for every granule of the arena its place in that
 * list, counted from 1, or 0 if it holds nothing (this table too is only promised memory). */
static size_t written[MOST_GRANULES];
static size_t written_count;
static uint16_t *place_of;

static char *promise(uintptr_t wish, size_t bytes, int protection) {
    void *p = mmap((void *)wish, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes, MADV_DONTDUMP);
    /* A huge page would hold 2 MiB of host memory for a few bytes of contents. */
    madvise(p, bytes, MADV_NOHUGEPAGE);
    return p;
}

static void reserve(void) {
    for (size_t size = LARGEST_ARENA; size >= SMALLEST_ARENA; size /= 2) {
        addresses = promise(WISHED_ADDRESSES, size, PROT_NONE);
        contents = promise(WISHED_CONTENTS, size, PROT_READ | PROT_WRITE);
        place_of = (uint16_t *)promise(0, size / GRANULE * sizeof *place_of, PROT_READ | PROT_WRITE);
        if (addresses && contents && place_of) {
            arena_size = size;
            uintptr_t start = ((uintptr_t)addresses + VGPU_GRANULARITY - 1) & ~(VGPU_GRANULARITY - 1);
            size_t usable = ((uintptr_t)addresses + size - start) & ~(VGPU_GRANULARITY - 1);
            vgpu_ranges_insert(&gaps, (vgpu_range){start, usable, 0, 0, NULL});
            return;
        }
        if (addresses) munmap(addresses, size);
        if (contents) munmap(contents, size);
        if (place_of) munmap(place_of, size / GRANULE * sizeof *place_of);
    }
    fprintf(stderr, "virtual GPU: cannot reserve 2 TiB of address space (is there a `ulimit -v`?)\n");
    abort();
}

static size_t whole_units(size_t bytes) {
    return (bytes + VGPU_GRANULARITY - 1) & ~(VGPU_GRANULARITY - 1);
}

uintptr_t vgpu_arena_take(size_t bytes) {
    pthread_once(&reserved, reserve);
    if (bytes > arena_size) return 0;
    bytes = whole_units(bytes);
    for (size_t i = 0; i < gaps.count; i++) {
        vgpu_range *gap = &gaps.items[i];
        if (gap->size < bytes) continue;
        uintptr_t address = gap->start;
        gap->start += bytes;
        gap->size -= bytes;
        if (!gap->size) vgpu_ranges_remove(&gaps, gap);
        return address;
    }
    return 0;
}

void vgpu_arena_give(uintptr_t address, size_t bytes) {
    bytes = whole_units(bytes);
    vgpu_forget(address, bytes);
    vgpu_range *before = vgpu_ranges_containing(&gaps, address - 1);
    if (before) {
        address = before->start;
        bytes += before->size;
        vgpu_ranges_remove(&gaps, before);
    }
    vgpu_range *after = vgpu_ranges_starting(&gaps, address + bytes);
    if (after) {
        bytes += after->size;
        vgpu_ranges_remove(&gaps, after);
    }
    vgpu_ranges_insert(&gaps, (vgpu_range){address, bytes, 0, 0, NULL});
}

bool vgpu_arena_contains(const void *pointer) {
    return arena_size && (const char *)pointer >= addresses &&
           (const char *)pointer < addresses + arena_size;
}

/* ---- contents ---- */

static char *content_of(uintptr_t address) { return contents + (address - (uintptr_t)addresses); }

static size_t granule_of(uintptr_t address) { return (address - (uintptr_t)addresses) / GRANULE; }

static bool holds_contents(uintptr_t address, size_t bytes) {
    for (size_t g = granule_of(address); g <= granule_of(address + bytes - 1); g++)
        if (place_of[g]) return true;
    return false;
}

static void add_granule(size_t granule) {
    if (place_of[granule]) return;
    written[written_count++] = granule;
    place_of[granule] = (uint16_t)written_count;
}

static void drop_granule(size_t granule) {
    size_t last = written[--written_count];
    written[place_of[granule] - 1] = last;
    place_of[last] = place_of[granule];
    place_of[granule] = 0;
    madvise(contents + granule * GRANULE, GRANULE, MADV_DONTNEED);
}

void vgpu_forget(uintptr_t address, size_t bytes) {
    size_t start = address - (uintptr_t)addresses, end = start + bytes;
    /* Backwards, because dropping one puts the last in its place. */
    for (size_t i = written_count; i-- > 0;) {
        size_t from = written[i] * GRANULE, to = from + GRANULE;
        if (from >= end || to <= start) continue;
        if (from >= start && to <= end) {
            drop_granule(written[i]);
        } else {
            if (from < start) from = start;
            if (to > end) to = end;
            memset(contents + from, 0, to - from);
        }
    }
}

void vgpu_forget_everything(void) {
    while (written_count) drop_granule(written[written_count - 1]);
}

/* Where to write this range; NULL if it would be too much. */
static char *for_writing(uintptr_t address, size_t bytes) {
    size_t more = 0, first = granule_of(address), last = granule_of(address + bytes - 1);
    for (size_t g = first; g <= last; g++) more += !place_of[g];
    if (written_count + more > MOST_GRANULES) return NULL;
    for (size_t g = first; g <= last; g++) add_granule(g);
    return content_of(address);
}

/* Makes host memory read as zeros without holding it: whole pages go back to the system. */
static void forget_host(char *to, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)to + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)to + bytes) & ~(page - 1);
    memset(to, 0, first - (uintptr_t)to);
    memset((char *)end, 0, (uintptr_t)to + bytes - end);
    /* Fails for locked memory, which then keeps what it had: the rule above. */
    madvise((void *)first, end - first, MADV_DONTNEED);
}

void vgpu_copy(void *to, const void *from, size_t bytes) {
    bool to_device = vgpu_arena_contains(to), from_device = vgpu_arena_contains(from);
    if (!bytes) return;
    if (!to_device && !from_device) {
        memmove(to, from, bytes);
        return;
    }
    vgpu_lock();
    bool short_enough = bytes <= COPY_LIMIT;
    /* Device memory that was never written reads as zeros: no need to touch it. */
    bool known = short_enough && (!from_device || holds_contents((uintptr_t)from, bytes));
    const void *source = from_device ? content_of((uintptr_t)from) : from;
    if (to_device) {
        char *target = known ? for_writing((uintptr_t)to, bytes) : NULL;
        if (target)
            memmove(target, source, bytes);
        else
            vgpu_forget((uintptr_t)to, bytes);
    } else if (known) {
        memcpy(to, source, bytes);
    } else if (short_enough) {
        memset(to, 0, bytes);
    } else {
        forget_host(to, bytes);
    }
    vgpu_unlock();
}

void vgpu_fill(void *to, int value, size_t bytes) {
    if (!bytes) return;
    if (!vgpu_arena_contains(to)) {
        memset(to, value, bytes);
        return;
    }
    vgpu_lock();
    char *target = NULL;
    if (bytes <= COPY_LIMIT && (value & 0xff)) target = for_writing((uintptr_t)to, bytes);
    if (target)
        memset(target, value, bytes);
    else
        vgpu_forget((uintptr_t)to, bytes);
    vgpu_unlock();
}
