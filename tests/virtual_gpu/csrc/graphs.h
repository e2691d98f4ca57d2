/* Stream capture, as streams.c sees it. The callers hold the lock. */
#ifndef VIRTUAL_GPU_GRAPHS_H
#define VIRTUAL_GPU_GRAPHS_H

#include "virtual_gpu.h"

struct vgpu_stream {
    int device;
    int priority;
    unsigned long long capture; /* number of the capture it takes part in; 0 for none */
};

bool vgpu_is_capturing(cudaStream_t stream);
/* An event recorded in a stream under capture is a point of the graph, not of time. */
void vgpu_capture_event(cudaStream_t stream, cudaEvent_t event);
bool vgpu_event_is_captured(cudaEvent_t event);
void vgpu_forget_captured(cudaEvent_t event);
void vgpu_join_capture(cudaStream_t stream, cudaEvent_t event);

#endif
