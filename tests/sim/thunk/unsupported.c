/* Calls that need nothing here, and calls the simulated driver answers with "not supported". */
#include "thunk.h"

HSAKMT_STATUS hsaKmtRuntimeEnable(void *debug, bool setup_ttmp)
{
    (void)debug, (void)setup_ttmp;
    return HSAKMT_STATUS_NOT_SUPPORTED; /* as upstream kernels of that age: ROCr then does without */
}

HSAKMT_STATUS hsaKmtRuntimeDisable(void)
{
    return HSAKMT_STATUS_NOT_SUPPORTED;
}

HSAKMT_STATUS hsaKmtSetTrapHandler(HSAuint32 node, void *code, HSAuint64 code_bytes, void *buffer,
                                   HSAuint64 buffer_bytes)
{
    (void)node, (void)code, (void)code_bytes, (void)buffer, (void)buffer_bytes;
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtSetMemoryPolicy(HSAuint32 node, HSAuint32 normal, HSAuint32 alternate, void *address,
                                    HSAuint64 size_bytes)
{
    (void)node, (void)normal, (void)alternate, (void)address, (void)size_bytes;
    return HSAKMT_STATUS_NOT_IMPLEMENTED;
}

HSAKMT_STATUS hsaKmtAllocQueueGWS(HSA_QUEUEID id, HSAuint32 count, HSAuint32 *first)
{
    (void)id, (void)count, (void)first;
    return HSAKMT_STATUS_NOT_SUPPORTED;
}

HSAKMT_STATUS hsaKmtGetXNACKMode(HSAint32 *enabled)
{
    *enabled = 0;
    return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtSetXNACKMode(HSAint32 enable)
{
    return enable ? HSAKMT_STATUS_NOT_SUPPORTED : HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS hsaKmtSVMGetAttr(void *address, HSAuint64 size_bytes, unsigned count, HSA_SVM_ATTRIBUTE *attributes)
{
    (void)address, (void)size_bytes, (void)count, (void)attributes;
    return HSAKMT_STATUS_NOT_SUPPORTED;
}

HSAKMT_STATUS hsaKmtSVMSetAttr(void *address, HSAuint64 size_bytes, unsigned count, HSA_SVM_ATTRIBUTE *attributes)
{
    (void)address, (void)size_bytes, (void)count, (void)attributes;
    return HSAKMT_STATUS_NOT_SUPPORTED;
}

/* Sharing between processes and with graphics. */

HSAKMT_STATUS hsaKmtShareMemory(void *address, HSAuint64 size_bytes, HsaSharedMemoryHandle *shared)
{
    (void)address, (void)size_bytes, (void)shared;
    return HSAKMT_STATUS_NOT_SUPPORTED;
}

HSAKMT_STATUS hsaKmtRegisterSharedHandle(const HsaSharedMemoryHandle *shared, void **address,
                                         HSAuint64 *size_bytes)
{
    (void)shared, (void)address, (void)size_bytes;
    return HSAKMT_STATUS_NOT_SUPPORTED;
}

HSAKMT_STATUS hsaKmtRegisterSharedHandleToNodes(const HsaSharedMemoryHandle *shared, void **address,
                                                HSAuint64 *size_bytes, HSAuint64 node_count, HSAuint32 *nodes)
{
    (void)node_count, (void)nodes;
    return hsaKmtRegisterSharedHandle(shared, address, size_bytes);
}

HSAKMT_STATUS hsaKmtRegisterGraphicsHandleToNodes(HSAuint64 graphics_handle, HsaGraphicsResourceInfo *info,
                                                  HSAuint64 node_count, HSAuint32 *nodes)
{
    (void)graphics_handle, (void)info, (void)node_count, (void)nodes;
    return HSAKMT_STATUS_NOT_SUPPORTED;
}
