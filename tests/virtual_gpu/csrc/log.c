/* What was asked of the driver: a log of the memory calls in their order, and counters.
 *
 * The log is kept in the process, and also written to the file VIRTUAL_GPU_LOG, one JSON object a
 * line. Each line is one write, so several processes may share a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "virtual_gpu.h"

/* tests/virtual_gpu/inside.py reads this layout. */
typedef struct {
    int call;
    int device;
    int result;
    int reserved;
    unsigned long long address;
    unsigned long long bytes;
} log_entry;

typedef struct {
    unsigned long long calls;  /* all, with the failed ones */
    unsigned long long failed;
    unsigned long long bytes;  /* of the successful calls */
} counter;

static const char *const call_names[] = {
#define NAME(name) #name,
    VGPU_LOGGED_CALLS(NAME)
#undef NAME
};

static log_entry *entries;
static size_t count, room;
static counter counters[VGPU_MAX_DEVICES][VGPU_CALL_COUNT];
static int file = -1;
static bool file_failed;

static void write_line(const log_entry *entry) {
    const char *path = vgpu_configuration()->log_path;
    if (!path || !*path || file_failed) return;
    if (file < 0) file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    char line[256];
    int length = snprintf(line, sizeof line,
                          "{\"pid\": %d, \"call\": \"%s\", \"device\": %d, \"address\": %llu, "
                          "\"bytes\": %llu, \"result\": %d}\n",
                          (int)getpid(), call_names[entry->call], entry->device, entry->address,
                          entry->bytes, entry->result);
    if (file < 0 || write(file, line, (size_t)length) != length) {
        fprintf(stderr, "virtual GPU: cannot write VIRTUAL_GPU_LOG %s: %s\n", path, strerror(errno));
        file_failed = true;
    }
}

void vgpu_log(int call, int device, uintptr_t address, size_t bytes, int result) {
    counter *sum = &counters[device][call];
    sum->calls++;
    if (result)
        sum->failed++;
    else
        sum->bytes += bytes;

    if (count == room) {
        room = room ? 2 * room : 1024;
        entries = realloc(entries, room * sizeof *entries);
        if (!entries) {
            fprintf(stderr, "virtual GPU: no host memory left for its log\n");
            abort();
        }
    }
    entries[count] = (log_entry){call, device, result, 0, address, bytes};
    write_line(&entries[count++]);
}

/* ---- for tests ---- */

EXPORT int virtual_gpu_call_count(void) { return VGPU_CALL_COUNT; }

EXPORT const char *virtual_gpu_call_name(int call) {
    return call >= 0 && call < VGPU_CALL_COUNT ? call_names[call] : NULL;
}

EXPORT int virtual_gpu_counter(int device, int call, unsigned long long *calls,
                               unsigned long long *failed, unsigned long long *bytes) {
    if (!vgpu_card(device) || !virtual_gpu_call_name(call)) return cudaErrorInvalidValue;
    vgpu_lock();
    *calls = counters[device][call].calls;
    *failed = counters[device][call].failed;
    *bytes = counters[device][call].bytes;
    vgpu_unlock();
    return cudaSuccess;
}

EXPORT size_t virtual_gpu_log_size(void) {
    vgpu_lock();
    size_t size = count;
    vgpu_unlock();
    return size;
}

/* Copies at most `most` entries from number `first` on; returns how many. */
EXPORT size_t virtual_gpu_log_read(size_t first, size_t most, void *to) {
    vgpu_lock();
    size_t here = first < count ? count - first : 0;
    if (here > most) here = most;
    if (here) memcpy(to, entries + first, here * sizeof *entries);
    vgpu_unlock();
    return here;
}

/* Empties the log kept in the process and sets the counters to zero; the file stays. */
EXPORT void virtual_gpu_log_clear(void) {
    vgpu_lock();
    count = 0;
    memset(counters, 0, sizeof counters);
    vgpu_unlock();
}
