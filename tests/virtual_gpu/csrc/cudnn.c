/* cuDNN is not imitated. PyTorch is told that the user has switched it off, as with
 * torch.backends.cudnn.enabled = False, and uses its own kernels for convolutions, recurrent networks and
 * attention; otherwise each of these would end in CUDNN_STATUS_NOT_INITIALIZED.
 *
 * The names are those of at::Context::userEnabledCuDNN() const and userEnabledCuDNNSDP() const. Should
 * PyTorch rename them, that error comes back; nothing goes wrong unseen.
 */
#include <stdbool.h>

#include "abi.h"

EXPORT bool _ZNK2at7Context16userEnabledCuDNNEv(const void *context) {
    (void)context;
    return false;
}

EXPORT bool _ZNK2at7Context19userEnabledCuDNNSDPEv(const void *context) {
    (void)context;
    return false;
}
