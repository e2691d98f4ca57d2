/* The cards: capacity, what is used of it, whether they have a context; the state of a thread. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "virtual_gpu.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static const vgpu_settings *settings;
static vgpu_device cards[VGPU_MAX_DEVICES];

static _Thread_local int current_device;
static _Thread_local cudaError_t last_error;

void vgpu_lock(void) { pthread_mutex_lock(&lock); }
void vgpu_unlock(void) { pthread_mutex_unlock(&lock); }

static void start(void) {
    settings = vgpu_read_settings();
    for (int i = 0; i < settings->devices; i++) {
        cards[i].capacity = settings->capacity;
        cards[i].taken = settings->taken;
        cards[i].process_count = settings->process_count;
        memcpy(cards[i].processes, settings->processes, sizeof settings->processes);
    }
    /* A fork must not copy a lock that another thread holds. */
    pthread_atfork(vgpu_lock, vgpu_unlock, vgpu_unlock);
}

const vgpu_settings *vgpu_configuration(void) {
    pthread_once(&started, start);
    return settings;
}

int vgpu_visible_count(void) { return vgpu_configuration()->visible_count; }

vgpu_device *vgpu_physical_card(int index) {
    return index >= 0 && index < vgpu_configuration()->devices ? &cards[index] : NULL;
}

vgpu_device *vgpu_card(int ordinal) {
    if (ordinal < 0 || ordinal >= vgpu_visible_count()) return NULL;
    return &cards[settings->visible[ordinal]];
}

int vgpu_ordinal_of(int card) {
    for (int i = 0; i < vgpu_visible_count(); i++)
        if (settings->visible[i] == card) return i;
    return -1;
}

int vgpu_current_device(void) { return current_device; }

int vgpu_use_device(void) {
    vgpu_device *card = vgpu_card(current_device);
    if (card) card->has_context = true;
    return current_device;
}

size_t vgpu_free_bytes(const vgpu_device *card) {
    size_t gone = card->used + card->taken;
    return gone < card->capacity ? card->capacity - gone : 0;
}

bool vgpu_charge(int ordinal, size_t bytes) {
    vgpu_device *card = vgpu_card(ordinal);
    if (!card || bytes > vgpu_free_bytes(card)) return false;
    card->used += bytes;
    return true;
}

void vgpu_refund(int ordinal, size_t bytes) { vgpu_card(ordinal)->used -= bytes; }

cudaError_t vgpu_result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

void vgpu_unsupported(const char *function) {
    fprintf(stderr, "virtual GPU: %s is not supported\n", function);
}

EXPORT cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void) { return last_error; }

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    *count = vgpu_visible_count();
    return vgpu_result(*count ? cudaSuccess : cudaErrorNoDevice);
}

EXPORT cudaError_t cudaGetDevice(int *device) {
    if (!vgpu_visible_count()) return vgpu_result(cudaErrorNoDevice);
    *device = current_device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device) {
    if (!vgpu_visible_count()) return vgpu_result(cudaErrorNoDevice);
    if (!vgpu_card(device)) return vgpu_result(cudaErrorInvalidDevice);
    current_device = device;
    vgpu_use_device(); /* since CUDA 12 choosing a device also makes its context */
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    vgpu_lock();
    vgpu_device *card = vgpu_card(vgpu_use_device());
    if (card) {
        *free = vgpu_free_bytes(card);
        *total = card->capacity;
    }
    vgpu_unlock();
    return vgpu_result(card ? cudaSuccess : cudaErrorNoDevice);
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *possible, int device, int peer) {
    if (!vgpu_card(device) || !vgpu_card(peer)) return vgpu_result(cudaErrorInvalidDevice);
    *possible = 0; /* cards without a link between them: copies go through the host */
    return cudaSuccess;
}

/* ---- for tests: called through ctypes by tests/virtual_gpu/inside.py ---- */

EXPORT int virtual_gpu_set_taken(int device, size_t bytes) {
    vgpu_device *card = vgpu_card(device);
    if (!card) return cudaErrorInvalidDevice;
    vgpu_lock();
    card->taken = bytes;
    vgpu_unlock();
    return cudaSuccess;
}

/* Lists a process with these bytes in NVML; listed = 0 takes it off the list again. */
EXPORT int virtual_gpu_set_process(int device, int pid, size_t bytes, int listed) {
    vgpu_device *card = vgpu_card(device);
    if (!card) return cudaErrorInvalidDevice;
    int error = cudaSuccess;
    vgpu_lock();
    int at = 0;
    while (at < card->process_count && card->processes[at].pid != pid) at++;
    if (at == VGPU_MAX_PROCESSES) {
        error = cudaErrorInvalidValue;
    } else if (listed) {
        card->processes[at] = (vgpu_process){pid, bytes};
        if (at == card->process_count) card->process_count++;
    } else if (at < card->process_count) {
        card->processes[at] = card->processes[--card->process_count];
    }
    vgpu_unlock();
    return error;
}

/* Bytes of a device that this process uses. */
EXPORT size_t virtual_gpu_used(int device) {
    vgpu_device *card = vgpu_card(device);
    if (!card) return 0;
    vgpu_lock();
    size_t used = card->used;
    vgpu_unlock();
    return used;
}
