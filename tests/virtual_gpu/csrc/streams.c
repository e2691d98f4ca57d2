/* Streams and events.
 *
 * Work is done at once, so an event is complete as soon as it is recorded, unless a test holds
 * events: then an event recorded from that time on is not complete until it is released, or until a
 * synchronise call waits for it. There is no one to wait for, so such a call completes what it
 * would have waited for:
 *   cudaEventSynchronize   the event, and those held before it in the same stream
 *   cudaStreamSynchronize  all of the stream
 *   cudaDeviceSynchronize  all of the device
 * cudaStreamQuery says not-ready while an event of the stream is held.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "virtual_gpu.h"
#include "graphs.h"

struct vgpu_event {
    int device;
    unsigned flags;
    bool recorded;
    double recorded_at; /* seconds */
    struct held *held;  /* NULL when complete */
};

/* One recording of an event that is not complete; oldest first. */
struct held {
    struct held *next;
    int device;
    cudaStream_t stream;
    struct vgpu_event *event; /* NULL once the event was recorded again or destroyed */
};

static struct held *oldest, **end_of_held = &oldest;
static bool holding, holding_known;

/* The handles that stand for the default stream: 0, cudaStreamLegacy, cudaStreamPerThread. */
static bool is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }
static cudaStream_t canonical(cudaStream_t stream) { return is_default(stream) ? NULL : stream; }

bool vgpu_stream_exists(cudaStream_t stream) {
    return is_default(stream) || vgpu_handle_is(stream, VGPU_STREAM);
}

static bool event_exists(cudaEvent_t event) { return event && vgpu_handle_is(event, VGPU_EVENT); }

static int device_of(cudaStream_t stream) {
    return is_default(stream) ? vgpu_current_device() : stream->device;
}

static bool is_holding(void) {
    if (!holding_known) {
        holding = vgpu_configuration()->hold_events;
        holding_known = true;
    }
    return holding;
}

static void forget_recording(struct vgpu_event *event) {
    if (event->held) event->held->event = NULL;
    event->held = NULL;
}

/* Takes one recording off the list and completes its event; returns where the list goes on. */
static struct held **complete(struct held **link) {
    struct held *held = *link;
    *link = held->next;
    if (!*link) end_of_held = link;
    if (held->event) held->event->held = NULL;
    free(held);
    return link;
}

static bool is_of(const struct held *held, int device, cudaStream_t stream) {
    return held->device == device && held->stream == canonical(stream);
}

static void complete_stream(int device, cudaStream_t stream, const struct held *last) {
    for (struct held **link = &oldest; *link;) {
        bool is_last = *link == last;
        link = is_of(*link, device, stream) ? complete(link) : &(*link)->next;
        if (is_last) return;
    }
}

static void complete_device(int device) {
    for (struct held **link = &oldest; *link;)
        link = (*link)->device == device ? complete(link) : &(*link)->next;
}

static bool stream_is_busy(int device, cudaStream_t stream) {
    for (const struct held *held = oldest; held; held = held->next)
        if (is_of(held, device, stream)) return true;
    return false;
}

/* ---- streams ---- */

static cudaError_t create_stream(cudaStream_t *stream, unsigned flags, int priority) {
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!stream || flags > cudaStreamNonBlocking) return vgpu_result(cudaErrorInvalidValue);
    struct vgpu_stream *made = calloc(1, sizeof *made);
    if (!made) return vgpu_result(cudaErrorMemoryAllocation);
    made->device = device;
    made->priority = priority;
    vgpu_lock();
    vgpu_handle_add(made, VGPU_STREAM);
    vgpu_unlock();
    *stream = made;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return create_stream(stream, cudaStreamDefault, 0);
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return create_stream(stream, flags, 0);
}

/* Priorities as on recent cards: 0 is the lowest, -5 the highest; others are brought into range. */
enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = LEAST_PRIORITY;
    if (greatest) *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    if (priority > LEAST_PRIORITY) priority = LEAST_PRIORITY;
    if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
    return create_stream(stream, flags, priority);
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    vgpu_lock();
    bool exists = vgpu_stream_exists(stream);
    if (exists) *priority = is_default(stream) ? 0 : stream->priority;
    vgpu_unlock();
    return vgpu_result(exists ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    vgpu_lock();
    bool exists = !is_default(stream) && vgpu_stream_exists(stream);
    if (exists) vgpu_handle_remove(stream);
    vgpu_unlock();
    if (!exists) return vgpu_result(cudaErrorInvalidResourceHandle);
    free(stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
    vgpu_use_device();
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!vgpu_stream_exists(stream))
        error = cudaErrorInvalidResourceHandle;
    else if (vgpu_is_capturing(stream))
        error = cudaErrorStreamCaptureUnsupported;
    else if (stream_is_busy(device_of(stream), stream))
        error = cudaErrorNotReady;
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    vgpu_use_device();
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!vgpu_stream_exists(stream)) {
        error = cudaErrorInvalidResourceHandle;
    } else if (vgpu_is_capturing(stream)) {
        error = cudaErrorStreamCaptureUnsupported;
    } else {
        complete_stream(device_of(stream), stream, NULL);
        vgpu_trim_pool(device_of(stream));
    }
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    vgpu_lock();
    complete_device(device);
    vgpu_trim_pool(device);
    vgpu_unlock();
    return cudaSuccess;
}

/* A stream that waits for an event of a stream under capture joins the capture. Otherwise there is
 * nothing to do: work is done at once, and held events complete oldest first. */
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    vgpu_lock();
    bool exist = vgpu_stream_exists(stream) && event_exists(event);
    if (exist) vgpu_join_capture(stream, event);
    vgpu_unlock();
    return vgpu_result(exist ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* Host functions run at once, on the calling thread: all earlier work is done. */
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data) {
    vgpu_lock();
    bool exists = vgpu_stream_exists(stream);
    vgpu_unlock();
    if (!exists) return vgpu_result(cudaErrorInvalidResourceHandle);
    function(data);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                         void (*function)(cudaStream_t, cudaError_t, void *),
                                         void *data, unsigned flags) {
    (void)flags;
    vgpu_lock();
    bool exists = vgpu_stream_exists(stream);
    vgpu_unlock();
    if (!exists) return vgpu_result(cudaErrorInvalidResourceHandle);
    function(stream, cudaSuccess, data);
    return cudaSuccess;
}

/* ---- events ---- */

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    int device = vgpu_use_device();
    if (!vgpu_card(device)) return vgpu_result(cudaErrorNoDevice);
    if (!event) return vgpu_result(cudaErrorInvalidValue);
    struct vgpu_event *made = calloc(1, sizeof *made);
    if (!made) return vgpu_result(cudaErrorMemoryAllocation);
    made->device = device;
    made->flags = flags;
    vgpu_lock();
    vgpu_handle_add(made, VGPU_EVENT);
    vgpu_unlock();
    *event = made;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
    vgpu_lock();
    bool exists = event_exists(event);
    if (exists) {
        forget_recording(event);
        vgpu_forget_captured(event);
        vgpu_handle_remove(event);
    }
    vgpu_unlock();
    if (!exists) return vgpu_result(cudaErrorInvalidResourceHandle);
    free(event);
    return cudaSuccess;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void hold(struct vgpu_event *event, cudaStream_t stream) {
    struct held *held = malloc(sizeof *held);
    if (!held) abort();
    *held = (struct held){NULL, device_of(stream), canonical(stream), event};
    *end_of_held = held;
    end_of_held = &held->next;
    event->held = held;
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    (void)flags;
    vgpu_use_device();
    vgpu_lock();
    bool exist = vgpu_stream_exists(stream) && event_exists(event);
    if (exist) {
        forget_recording(event);
        vgpu_forget_captured(event);
        event->recorded = true;
        event->recorded_at = seconds_now();
        if (vgpu_is_capturing(stream))
            vgpu_capture_event(stream, event);
        else if (is_holding())
            hold(event, stream);
    }
    vgpu_unlock();
    return vgpu_result(exist ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!event_exists(event))
        error = cudaErrorInvalidResourceHandle;
    else if (vgpu_event_is_captured(event))
        error = cudaErrorStreamCaptureUnsupported;
    else if (event->held)
        error = cudaErrorNotReady;
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!event_exists(event))
        error = cudaErrorInvalidResourceHandle;
    else if (vgpu_event_is_captured(event))
        error = cudaErrorStreamCaptureUnsupported;
    else if (event->held)
        complete_stream(event->held->device, event->held->stream, event->held);
    vgpu_unlock();
    return vgpu_result(error);
}

/* Host time between the two recordings: kernels take no time here. */
EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (!event_exists(start) || !event_exists(end) || !start->recorded || !end->recorded ||
        (start->flags | end->flags) & cudaEventDisableTiming)
        error = cudaErrorInvalidResourceHandle;
    else if (start->held || end->held)
        error = cudaErrorNotReady;
    else
        *milliseconds = (float)(1e3 * (end->recorded_at - start->recorded_at));
    vgpu_unlock();
    return vgpu_result(error);
}

/* ---- for tests ---- */

/* From now on recorded events are held, or no more; ending it releases all. */
EXPORT void virtual_gpu_hold_events(int hold_them) {
    vgpu_lock();
    holding_known = true;
    holding = hold_them != 0;
    while (!holding && oldest) complete(&oldest);
    vgpu_unlock();
}

/* Completes the oldest `most` held events, of one stream of one device or, with device < 0, of all
 * streams; returns how many. */
EXPORT size_t virtual_gpu_release_events(size_t most, int device, void *stream) {
    size_t released = 0;
    vgpu_lock();
    for (struct held **link = &oldest; *link && released < most;) {
        if (device >= 0 && !is_of(*link, device, stream)) {
            link = &(*link)->next;
            continue;
        }
        complete(link);
        released++;
    }
    vgpu_unlock();
    return released;
}

EXPORT size_t virtual_gpu_held_events(void) {
    vgpu_lock();
    size_t count = 0;
    for (const struct held *held = oldest; held; held = held->next) count++;
    vgpu_unlock();
    return count;
}
