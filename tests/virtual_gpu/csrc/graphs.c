/* CUDA graphs: enough for torch.cuda.graph. A capture makes the allocator use a private pool, which
 * is what the tests are about; a captured graph only counts its work, and launching it does nothing,
 * as launching a kernel does. */
#include <stdlib.h>

#include "graphs.h"

struct vgpu_graph {
    size_t work;
};

struct vgpu_graph_exec {
    char unused;
};

/* A capture that has begun and not ended. */
struct capture {
    struct capture *next;
    unsigned long long number;
    cudaStream_t origin;
    struct vgpu_graph *graph;
};

static struct capture *captures;
static unsigned long long last_number;
static vgpu_ranges captured_events; /* start: the event; owner: number of its capture */

static bool is_default(cudaStream_t stream) { return (uintptr_t)stream <= 2; }

static struct capture *capture_of(cudaStream_t stream) {
    if (!captures || is_default(stream) || !vgpu_handle_is(stream, VGPU_STREAM) || !stream->capture)
        return NULL;
    struct capture *capture = captures;
    while (capture && capture->number != stream->capture) capture = capture->next;
    return capture;
}

bool vgpu_is_capturing(cudaStream_t stream) { return capture_of(stream) != NULL; }

void vgpu_count_work(cudaStream_t stream) {
    struct capture *capture = capture_of(stream);
    if (capture) capture->graph->work++;
}

void vgpu_capture_event(cudaStream_t stream, cudaEvent_t event) {
    vgpu_ranges_insert(&captured_events,
                       (vgpu_range){(uintptr_t)event, 1, 0, 0, (void *)(uintptr_t)stream->capture});
}

bool vgpu_event_is_captured(cudaEvent_t event) {
    return vgpu_ranges_starting(&captured_events, (uintptr_t)event) != NULL;
}

void vgpu_forget_captured(cudaEvent_t event) {
    const vgpu_range *found = vgpu_ranges_starting(&captured_events, (uintptr_t)event);
    if (found) vgpu_ranges_remove(&captured_events, found);
}

void vgpu_join_capture(cudaStream_t stream, cudaEvent_t event) {
    const vgpu_range *found = vgpu_ranges_starting(&captured_events, (uintptr_t)event);
    if (found && !is_default(stream) && !vgpu_is_capturing(stream))
        stream->capture = (unsigned long long)(uintptr_t)found->owner;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
    (void)mode; /* calls that a capture forbids are not refused here */
    vgpu_lock();
    cudaError_t error = cudaSuccess;
    if (is_default(stream))
        error = cudaErrorStreamCaptureUnsupported; /* the default stream cannot be captured */
    else if (!vgpu_handle_is(stream, VGPU_STREAM))
        error = cudaErrorInvalidResourceHandle;
    else if (vgpu_is_capturing(stream))
        error = cudaErrorStreamCaptureUnsupported;
    struct capture *capture = error ? NULL : calloc(1, sizeof *capture);
    struct vgpu_graph *graph = error ? NULL : calloc(1, sizeof *graph);
    if (capture && graph) {
        vgpu_handle_add(graph, VGPU_GRAPH);
        *capture = (struct capture){captures, ++last_number, stream, graph};
        captures = capture;
        stream->capture = capture->number;
    } else if (!error) {
        free(capture);
        free(graph);
        error = cudaErrorMemoryAllocation;
    }
    vgpu_unlock();
    return vgpu_result(error);
}

/* Events of an ended capture may be recorded and asked about again. */
static void end_capture_of_events(unsigned long long number) {
    for (size_t i = captured_events.count; i-- > 0;)
        if ((unsigned long long)(uintptr_t)captured_events.items[i].owner == number)
            vgpu_ranges_remove(&captured_events, &captured_events.items[i]);
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    vgpu_lock();
    cudaError_t error = cudaErrorStreamCaptureUnmatched;
    struct capture *capture = capture_of(stream);
    if (capture && capture->origin == stream) {
        *graph = capture->graph;
        struct capture **link = &captures;
        while (*link != capture) link = &(*link)->next;
        *link = capture->next; /* other streams' numbers now lead nowhere: they are free again */
        end_capture_of_events(capture->number);
        free(capture);
        stream->capture = 0;
        error = cudaSuccess;
    }
    vgpu_unlock();
    return vgpu_result(error);
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status) {
    vgpu_lock();
    bool exists = vgpu_stream_exists(stream);
    if (exists)
        *status = vgpu_is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    vgpu_unlock();
    return vgpu_result(exists ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* CUDA 12 and 13 differ in one parameter, the edge data, which is always empty here. */
static cudaError_t capture_info(cudaStream_t stream, int *status, unsigned long long *number,
                                cudaGraph_t *graph, const void **dependencies, size_t *count) {
    vgpu_lock();
    bool exists = vgpu_stream_exists(stream);
    const struct capture *capture = capture_of(stream);
    if (exists) {
        *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
        if (number) *number = capture ? capture->number : 0;
        if (graph) *graph = capture ? capture->graph : NULL;
        if (dependencies) *dependencies = NULL;
        if (count) *count = 0;
    }
    vgpu_unlock();
    return vgpu_result(exists ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, int *status, unsigned long long *number,
                                            cudaGraph_t *graph, const void **dependencies,
                                            const void **edges, size_t *count) {
    if (edges) *edges = NULL;
    return capture_info(stream, status, number, graph, dependencies, count);
}

EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int *status,
                                               unsigned long long *number, cudaGraph_t *graph,
                                               const void **dependencies, size_t *count) {
    return capture_info(stream, status, number, graph, dependencies, count);
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int current; /* cudaStreamCaptureModeGlobal */
    if (!mode || *mode < 0 || *mode > 2) return vgpu_result(cudaErrorInvalidValue);
    int before = current;
    current = *mode;
    *mode = before;
    return cudaSuccess;
}

static cudaError_t destroy(void *handle, int kind) {
    vgpu_lock();
    bool exists = handle && vgpu_handle_is(handle, kind);
    if (exists) vgpu_handle_remove(handle);
    vgpu_unlock();
    if (!exists) return vgpu_result(cudaErrorInvalidValue);
    free(handle);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return destroy(graph, VGPU_GRAPH); }

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return destroy(exec, VGPU_GRAPH_EXEC); }

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                                 unsigned long long flags) {
    (void)flags;
    struct vgpu_graph_exec *made = calloc(1, sizeof *made);
    if (!made) return vgpu_result(cudaErrorMemoryAllocation);
    vgpu_lock();
    bool exists = graph && vgpu_handle_is(graph, VGPU_GRAPH);
    if (exists) vgpu_handle_add(made, VGPU_GRAPH_EXEC);
    vgpu_unlock();
    if (!exists) {
        free(made);
        return vgpu_result(cudaErrorInvalidValue);
    }
    *exec = made;
    return cudaSuccess;
}

/* Since CUDA 12 the same under a shorter name. */
EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    vgpu_lock();
    bool exist = exec && vgpu_handle_is(exec, VGPU_GRAPH_EXEC) && vgpu_stream_exists(stream);
    if (exist) vgpu_forget_everything();
    vgpu_unlock();
    return vgpu_result(exist ? cudaSuccess : cudaErrorInvalidValue);
}

/* Only the number of nodes is known: how much work was captured. */
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void **nodes, size_t *count) {
    if (nodes) {
        vgpu_unsupported("cudaGraphGetNodes with an array");
        return vgpu_result(cudaErrorNotSupported);
    }
    vgpu_lock();
    bool exists = graph && vgpu_handle_is(graph, VGPU_GRAPH);
    if (exists) *count = graph->work;
    vgpu_unlock();
    return vgpu_result(exists ? cudaSuccess : cudaErrorInvalidValue);
}
