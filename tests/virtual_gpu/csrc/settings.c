/* The environment variables of the virtual GPU. README.md describes them. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "virtual_gpu.h"

/* A wrong setting ends the process: a test that goes on with another GPU than it asked for would
 * say something untrue. _exit, because this can happen inside the loading of a library. */
static void refuse(const char *variable, const char *value, const char *wanted) {
    fprintf(stderr, "virtual GPU: %s must be %s, not '%s'\n", variable, wanted, value);
    _exit(2);
}

bool vgpu_parse_bytes(const char *text, const char **end, size_t *bytes) {
    if (!isdigit((unsigned char)*text)) return false;
    char *stop;
    errno = 0;
    unsigned long long value = strtoull(text, &stop, 10);
    if (errno) return false;
    *end = stop;
    *bytes = value;
    return true;
}

static size_t bytes_setting(const char *variable, size_t otherwise) {
    const char *value = getenv(variable), *end;
    size_t bytes;
    if (!value) return otherwise;
    if (!vgpu_parse_bytes(value, &end, &bytes) || *end) refuse(variable, value, "a number of bytes");
    return bytes;
}

static void read_processes(vgpu_settings *settings) {
    const char *variable = "VIRTUAL_GPU_PROCESSES", *value = getenv(variable);
    if (!value) return;
    for (const char *at = value; *at;) {
        size_t pid, bytes;
        if (settings->process_count == VGPU_MAX_PROCESSES || !vgpu_parse_bytes(at, &at, &pid) ||
            *at != ':' || !vgpu_parse_bytes(at + 1, &at, &bytes) || (*at && *at != ','))
            refuse(variable, value, "at most 64 items pid:bytes separated by commas");
        settings->processes[settings->process_count++] = (vgpu_process){(pid_t)pid, bytes};
        if (*at == ',') at++;
    }
}

/* As CUDA does: the list counts up to its first invalid item, so "" and "-1" hide every device. */
static void read_visible(vgpu_settings *settings) {
    const char *value = getenv("CUDA_VISIBLE_DEVICES");
    if (!value) {
        for (int i = 0; i < settings->devices; i++) settings->visible[i] = i;
        settings->visible_count = settings->devices;
        return;
    }
    for (const char *at = value; *at;) {
        char *end;
        long card = strtol(at, &end, 10);
        if (end == at || card < 0 || card >= settings->devices) return;
        for (int i = 0; i < settings->visible_count; i++)
            if (settings->visible[i] == card) { /* a repeated device: CUDA then shows none */
                settings->visible_count = 0;
                return;
            }
        settings->visible[settings->visible_count++] = (int)card;
        while (*end == ' ') end++;
        if (*end != ',') return;
        at = end + 1;
    }
}

const vgpu_settings *vgpu_read_settings(void) {
    static vgpu_settings settings;
    const char *value, *end;

    size_t devices = bytes_setting("VIRTUAL_GPU_DEVICES", 1);
    if (devices < 1 || devices > VGPU_MAX_DEVICES)
        refuse("VIRTUAL_GPU_DEVICES", getenv("VIRTUAL_GPU_DEVICES"), "1 to 8");
    settings.devices = (int)devices;
    settings.capacity = bytes_setting("VIRTUAL_GPU_CAPACITY", 16 * GIB);
    settings.taken = bytes_setting("VIRTUAL_GPU_TAKEN", 0);

    value = getenv("VIRTUAL_GPU_NAME");
    snprintf(settings.name, sizeof settings.name, "%s", value ? value : "Virtual GPU");

    value = getenv("VIRTUAL_GPU_COMPUTE_CAPABILITY");
    size_t major = 9, minor = 0;
    if (value && (!vgpu_parse_bytes(value, &end, &major) || *end != '.' ||
                  !vgpu_parse_bytes(end + 1, &end, &minor) || *end))
        refuse("VIRTUAL_GPU_COMPUTE_CAPABILITY", value, "like 9.0");
    settings.major = (int)major;
    settings.minor = (int)minor;

    value = getenv("VIRTUAL_GPU_HOLD_EVENTS");
    if (value && strcmp(value, "0") && strcmp(value, "1"))
        refuse("VIRTUAL_GPU_HOLD_EVENTS", value, "0 or 1");
    settings.hold_events = value && *value == '1';

    settings.log_path = getenv("VIRTUAL_GPU_LOG");
    read_processes(&settings);
    read_visible(&settings);
    return &settings;
}
