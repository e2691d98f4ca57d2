/* cuBLAS and cuBLASLt. Arithmetic is accepted and not done, like kernels (kernels.c); handles, modes
 * and the answers a program acts on are real. The workspaces that PyTorch gives to cuBLAS come from
 * PyTorch's own allocator, so they are there; what cuBLAS itself would take from the driver is not.
 */
#include <stdlib.h>
#include <string.h>

#include "virtual_gpu.h"

struct blas_handle {
    int math_mode;
    int pointer_mode;
};

EXPORT cublasStatus_t cublasCreate_v2(struct blas_handle **handle) {
    vgpu_use_device();
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasDestroy_v2(struct blas_handle *handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetStream_v2(struct blas_handle *handle, cudaStream_t stream) {
    (void)handle, (void)stream; /* nothing is done in it */
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetMathMode(struct blas_handle *handle, int *mode) {
    *mode = handle->math_mode;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(struct blas_handle *handle, int mode) {
    handle->math_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetPointerMode_v2(struct blas_handle *handle, int *mode) {
    *mode = handle->pointer_mode;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetPointerMode_v2(struct blas_handle *handle, int mode) {
    handle->pointer_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuBLASLt: descriptions of a multiplication, which nothing here reads ---- */

static cublasStatus_t create_description(void **description) {
    *description = calloc(1, 64); /* what it would hold does not matter, only that it is its own */
    return *description ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t destroy_description(void *description) {
    free(description);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(void **d) { return create_description(d); }
EXPORT cublasStatus_t cublasLtMatmulDescDestroy(void *d) { return destroy_description(d); }
EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(void **d) { return create_description(d); }
EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(void *d) { return destroy_description(d); }
EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(void **d) { return create_description(d); }
EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(void *d) { return destroy_description(d); }

EXPORT size_t cublasLtGetVersion(void) {
    int version; /* cuBLAS counts 100 * (CUDA's major version) * 100 */
    cudaRuntimeGetVersion(&version);
    return (size_t)version / 1000 * 10000;
}

/* One way to do it, without a workspace. */
EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b,
                                                     void *c, void *d, void *preference, int wanted,
                                                     cublasLtMatmulHeuristicResult_t *results, int *found) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    memset(results, 0, sizeof *results);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- arithmetic that PyTorch's own operators use: accepted, not done. No parameters are named: the
 * caller removes its arguments, so a function may ignore that there are any. ---- */

#define ACCEPTED(_)                                                                                \
    _(cublasCdotc_v2) _(cublasCdotu_v2) _(cublasCgemmStridedBatched) _(cublasCgemm_v2)             \
    _(cublasCgemv_v2) _(cublasCgetrfBatched) _(cublasCtrsmBatched) _(cublasCtrsm_v2)               \
    _(cublasDdot_v2) _(cublasDgemmStridedBatched) _(cublasDgemm_v2) _(cublasDgemv_v2)              \
    _(cublasDgetrfBatched) _(cublasDotEx) _(cublasDtrsmBatched) _(cublasDtrsm_v2) _(cublasGemmEx)  \
    _(cublasGemmStridedBatchedEx) _(cublasLtMatmul) _(cublasLtMatmulDescSetAttribute)              \
    _(cublasLtMatmulPreferenceSetAttribute) _(cublasLtMatrixLayoutSetAttribute) _(cublasSdot_v2)   \
    _(cublasSetSmCountTarget) _(cublasSetWorkspace_v2) _(cublasSgemmEx)                            \
    _(cublasSgemmStridedBatched) _(cublasSgemm_v2) _(cublasSgemv_v2) _(cublasSgetrfBatched)        \
    _(cublasStrsmBatched) _(cublasStrsm_v2) _(cublasZdotc_v2) _(cublasZdotu_v2)                    \
    _(cublasZgemmStridedBatched) _(cublasZgemm_v2) _(cublasZgemv_v2) _(cublasZgetrfBatched)        \
    _(cublasZtrsmBatched) _(cublasZtrsm_v2)

static cublasStatus_t not_done(void) {
    vgpu_lock();
    vgpu_forget_everything(); /* as for a kernel */
    vgpu_unlock();
    return CUBLAS_STATUS_SUCCESS;
}

#define ACCEPT(name)                                                                               \
    EXPORT cublasStatus_t name(void) { return not_done(); }
ACCEPTED(ACCEPT)

/* ---- the rest of what PyTorch links, nearly all for torch.linalg: answers that a program would go on
 * to compute with cannot be given. They are defined, and refused, because the real library would
 * take the handles above for its own and crash. ---- */

#define REFUSED(_)                                                                                 \
    _(cublasCaxpy_v2) _(cublasCcopy_v2) _(cublasCgelsBatched) _(cublasCgemmBatched)                \
    _(cublasCgeqrfBatched) _(cublasCgerc_v2) _(cublasCgeru_v2) _(cublasCgetrsBatched)              \
    _(cublasChemm_v2) _(cublasChemv_v2) _(cublasCher2_v2) _(cublasCher2k_v2) _(cublasCher_v2)      \
    _(cublasCherk_v2) _(cublasCrot_v2) _(cublasCrotg_v2) _(cublasCscal_v2) _(cublasCsrot_v2)       \
    _(cublasCsscal_v2) _(cublasCswap_v2) _(cublasCsymm_v2) _(cublasCsymv_v2) _(cublasCsyr2_v2)     \
    _(cublasCsyr2k_v2) _(cublasCsyr_v2) _(cublasCsyrk_v2) _(cublasCtrmm_v2) _(cublasCtrmv_v2)      \
    _(cublasCtrsv_v2) _(cublasDasum_v2) _(cublasDaxpy_v2) _(cublasDcopy_v2) _(cublasDgelsBatched)  \
    _(cublasDgemmBatched) _(cublasDgeqrfBatched) _(cublasDger_v2) _(cublasDgetrsBatched)           \
    _(cublasDnrm2_v2) _(cublasDrot_v2) _(cublasDrotg_v2) _(cublasDrotm_v2) _(cublasDrotmg_v2)      \
    _(cublasDscal_v2) _(cublasDswap_v2) _(cublasDsymm_v2) _(cublasDsymv_v2) _(cublasDsyr2_v2)      \
    _(cublasDsyr2k_v2) _(cublasDsyr_v2) _(cublasDsyrk_v2) _(cublasDtrmm_v2) _(cublasDtrmv_v2)      \
    _(cublasDtrsv_v2) _(cublasDzasum_v2) _(cublasDznrm2_v2) _(cublasGetMatrixAsync)                \
    _(cublasGetVectorAsync) _(cublasIcamax_v2) _(cublasIcamin_v2) _(cublasIdamax_v2)               \
    _(cublasIdamin_v2) _(cublasIsamax_v2) _(cublasIsamin_v2) _(cublasIzamax_v2) _(cublasIzamin_v2) \
    _(cublasLtMatmulAlgoCheck) _(cublasLtMatmulAlgoConfigGetAttribute)                             \
    _(cublasLtMatmulAlgoConfigSetAttribute) _(cublasLtMatmulAlgoInit) _(cublasSasum_v2)            \
    _(cublasSaxpy_v2) _(cublasScasum_v2) _(cublasScnrm2_v2) _(cublasScopy_v2)                      \
    _(cublasSetMatrixAsync) _(cublasSetVectorAsync) _(cublasSgelsBatched) _(cublasSgemmBatched)    \
    _(cublasSgeqrfBatched) _(cublasSger_v2) _(cublasSgetrsBatched) _(cublasSnrm2_v2)               \
    _(cublasSrot_v2) _(cublasSrotg_v2) _(cublasSrotm_v2) _(cublasSrotmg_v2) _(cublasSscal_v2)      \
    _(cublasSswap_v2) _(cublasSsymm_v2) _(cublasSsymv_v2) _(cublasSsyr2_v2) _(cublasSsyr2k_v2)     \
    _(cublasSsyr_v2) _(cublasSsyrk_v2) _(cublasStrmm_v2) _(cublasStrmv_v2) _(cublasStrsv_v2)       \
    _(cublasZaxpy_v2) _(cublasZcopy_v2) _(cublasZdrot_v2) _(cublasZdscal_v2) _(cublasZgelsBatched) \
    _(cublasZgemmBatched) _(cublasZgeqrfBatched) _(cublasZgerc_v2) _(cublasZgeru_v2)               \
    _(cublasZgetrsBatched) _(cublasZhemm_v2) _(cublasZhemv_v2) _(cublasZher2_v2)                   \
    _(cublasZher2k_v2) _(cublasZher_v2) _(cublasZherk_v2) _(cublasZrot_v2) _(cublasZrotg_v2)       \
    _(cublasZscal_v2) _(cublasZswap_v2) _(cublasZsymm_v2) _(cublasZsymv_v2) _(cublasZsyr2_v2)      \
    _(cublasZsyr2k_v2) _(cublasZsyr_v2) _(cublasZsyrk_v2) _(cublasZtrmm_v2) _(cublasZtrmv_v2)      \
    _(cublasZtrsv_v2)

#define REFUSE(name)                                                                               \
    EXPORT cublasStatus_t name(void) {                                                             \
        vgpu_unsupported(#name);                                                                   \
        return CUBLAS_STATUS_NOT_SUPPORTED;                                                        \
    }
REFUSED(REFUSE)
