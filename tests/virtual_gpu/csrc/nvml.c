/* NVML (libnvidia-ml.so.1): the cards, their memory, and which processes use it. The processes are
 * those the test set (VIRTUAL_GPU_PROCESSES), and this one, with what it really uses, unless set. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "virtual_gpu.h"

/* A device handle of NVML: any pointer that is not NULL. */
typedef struct {
    int card;
} nvml_device;

static nvml_device nvml_devices[VGPU_MAX_DEVICES];

static vgpu_device *card_of(const nvml_device *device) {
    if (device < nvml_devices || device >= nvml_devices + VGPU_MAX_DEVICES) return NULL;
    return vgpu_physical_card((int)(device - nvml_devices));
}

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    vgpu_configuration();
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return nvmlInit_v2();
}

EXPORT nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

EXPORT const char *nvmlErrorString(nvmlReturn_t error) {
    switch (error) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    default: return "Unknown Error";
    }
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned length) {
    return (unsigned)snprintf(text, length, "0.virtual") < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    cudaRuntimeGetVersion(version);
    return NVML_SUCCESS;
}

/* ---- finding a card. Unlike CUDA, NVML does not know CUDA_VISIBLE_DEVICES. ---- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)vgpu_configuration()->devices;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device **device) {
    if (!vgpu_physical_card((int)index)) return NVML_ERROR_INVALID_ARGUMENT;
    *device = &nvml_devices[index];
    return NVML_SUCCESS;
}

/* "domain:bus:device.function"; the domain is 0 and has four digits or eight. */
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device **device) {
    unsigned domain, bus;
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || domain) return NVML_ERROR_NOT_FOUND;
    for (int card = 0; card < vgpu_configuration()->devices; card++) {
        if (vgpu_pci_bus(card) != (int)bus) continue;
        *device = &nvml_devices[card];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(const nvml_device *device, unsigned *index) {
    if (!card_of(device)) return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)(device - nvml_devices);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(const nvml_device *device, char *text, unsigned length) {
    if (!card_of(device)) return NVML_ERROR_INVALID_ARGUMENT;
    int needed = snprintf(text, length, "%s", vgpu_configuration()->name);
    return (unsigned)needed < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(const nvml_device *device, char *text, unsigned length) {
    if (!card_of(device)) return NVML_ERROR_INVALID_ARGUMENT;
    if (length < 41) return NVML_ERROR_INSUFFICIENT_SIZE;
    unsigned char u[16];
    vgpu_uuid((int)(device - nvml_devices), u);
    snprintf(text, length,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(const nvml_device *device, nvmlPciInfo_t *info) {
    if (!card_of(device)) return NVML_ERROR_INVALID_ARGUMENT;
    int bus = vgpu_pci_bus((int)(device - nvml_devices));
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)bus;
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", bus & 0xff);
    snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", bus & 0xff);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(const nvml_device *device, int *major, int *minor) {
    if (!card_of(device)) return NVML_ERROR_INVALID_ARGUMENT;
    *major = vgpu_configuration()->major;
    *minor = vgpu_configuration()->minor;
    return NVML_SUCCESS;
}

/* ---- memory and processes ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(const nvml_device *device, nvmlMemory_t *memory) {
    const vgpu_device *card = card_of(device);
    if (!card) return NVML_ERROR_INVALID_ARGUMENT;
    vgpu_lock();
    memory->total = card->capacity;
    memory->free = vgpu_free_bytes(card);
    memory->used = memory->total - memory->free;
    vgpu_unlock();
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(const nvml_device *device, nvmlMemory_v2_t *memory) {
    nvmlMemory_t plain;
    nvmlReturn_t error = nvmlDeviceGetMemoryInfo(device, &plain);
    if (error) return error;
    memory->total = plain.total;
    memory->free = plain.free;
    memory->used = plain.used;
    memory->reserved = 0;
    return NVML_SUCCESS;
}

/* The processes on a card: at most one more than can be set. The caller holds the lock. */
static unsigned list_processes(const vgpu_device *card, vgpu_process *to) {
    unsigned count = 0;
    bool listed = false;
    pid_t own = getpid();
    for (int i = 0; i < card->process_count; i++) {
        to[count++] = card->processes[i];
        listed |= card->processes[i].pid == own;
    }
    if (card->has_context && !listed) to[count++] = (vgpu_process){own, card->used};
    return count;
}

/* NVML's way with arrays: *count says how many fit and becomes how many there are. */
static nvmlReturn_t running(const nvml_device *device, unsigned *count, nvmlProcessInfo_v1_t *v1,
                            nvmlProcessInfo_v2_t *v2) {
    const vgpu_device *card = card_of(device);
    if (!card || !count) return NVML_ERROR_INVALID_ARGUMENT;
    vgpu_process processes[VGPU_MAX_PROCESSES + 1];
    vgpu_lock();
    unsigned there = list_processes(card, processes);
    vgpu_unlock();
    unsigned room = *count;
    *count = there;
    if (there > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++) {
        unsigned pid = (unsigned)processes[i].pid;
        const unsigned no_instance = 0xffffffff; /* the card is not partitioned (MIG) */
        if (v1) v1[i] = (nvmlProcessInfo_v1_t){pid, processes[i].bytes};
        if (v2) v2[i] = (nvmlProcessInfo_v2_t){pid, processes[i].bytes, no_instance, no_instance};
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(const nvml_device *device, unsigned *count,
                                                         nvmlProcessInfo_v1_t *processes) {
    return running(device, count, processes, NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(const nvml_device *device, unsigned *count,
                                                            nvmlProcessInfo_v2_t *processes) {
    return running(device, count, NULL, processes);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(const nvml_device *device, unsigned *count,
                                                            nvmlProcessInfo_v2_t *processes) {
    return running(device, count, NULL, processes);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(const nvml_device *device, unsigned *count,
                                                             nvmlProcessInfo_v2_t *processes) {
    (void)processes;
    if (!card_of(device) || !count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0; /* nothing draws on these cards */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(const nvml_device *device, nvmlUtilization_t *rates) {
    if (!card_of(device)) return NVML_ERROR_INVALID_ARGUMENT;
    *rates = (nvmlUtilization_t){0, 0}; /* kernels take no time */
    return NVML_SUCCESS;
}

/* ---- links between cards: there are none, which is an ordinary answer and needs no message ---- */

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(const nvml_device *device, unsigned link, int *type) {
    (void)device, (void)link, (void)type;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(const nvml_device *device, unsigned link, void *info) {
    (void)device, (void)link, (void)info;
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(const nvml_device *device, void *info) {
    (void)device, (void)info;
    return NVML_ERROR_NOT_SUPPORTED;
}
