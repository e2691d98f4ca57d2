/* Where the fields of cudaDeviceProp lie: _(field, offset in CUDA 12, offset in CUDA 13).
 *
 * CUDA 12 programs get the first layout from cudaGetDeviceProperties_v2, CUDA 13 programs the second
 * from cudaGetDeviceProperties. tests/test_virtual_gpu.py checks this table against NVIDIA's header.
 */
#define VGPU_DEVICE_PROP_FIELDS(_)                                                                 \
    _(name, 0, 0)                                                                                  \
    _(uuid, 256, 256)                                                                              \
    _(totalGlobalMem, 288, 288)                                                                    \
    _(sharedMemPerBlock, 296, 296)                                                                 \
    _(regsPerBlock, 304, 304)                                                                      \
    _(warpSize, 308, 308)                                                                          \
    _(memPitch, 312, 312)                                                                          \
    _(maxThreadsPerBlock, 320, 320)                                                                \
    _(maxThreadsDim, 324, 324)                                                                     \
    _(maxGridSize, 336, 336)                                                                       \
    _(totalConstMem, 352, 352)                                                                     \
    _(major, 360, 360)                                                                             \
    _(minor, 364, 364)                                                                             \
    _(textureAlignment, 368, 368)                                                                  \
    _(texturePitchAlignment, 376, 376)                                                             \
    _(multiProcessorCount, 388, 384)                                                               \
    _(canMapHostMemory, 400, 392)                                                                  \
    _(concurrentKernels, 576, 560)                                                                 \
    _(pciBusID, 584, 568)                                                                          \
    _(asyncEngineCount, 600, 584)                                                                  \
    _(unifiedAddressing, 604, 588)                                                                 \
    _(memoryBusWidth, 612, 592)                                                                    \
    _(l2CacheSize, 616, 596)                                                                       \
    _(maxThreadsPerMultiProcessor, 624, 604)                                                       \
    _(streamPrioritiesSupported, 628, 608)                                                         \
    _(sharedMemPerMultiprocessor, 640, 624)                                                        \
    _(regsPerMultiprocessor, 648, 632)                                                             \
    _(cooperativeLaunch, 688, 668)                                                                 \
    _(sharedMemPerBlockOptin, 696, 672)                                                            \
    _(maxBlocksPerMultiProcessor, 712, 688)                                                        \
    _(reservedSharedMemPerBlock, 720, 696)                                                         \
    _(hostRegisterSupported, 728, 704)                                                             \
    _(memoryPoolsSupported, 744, 720)

enum { VGPU_DEVICE_PROP_SIZE_12 = 1032, VGPU_DEVICE_PROP_SIZE_13 = 1008 };
