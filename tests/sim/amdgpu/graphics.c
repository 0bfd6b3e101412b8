// What Vulkan needs of a render node beside memory: contexts, submissions and the objects that wait for them. No command is executed, and
// whatever is submitted is done at once, so that nobody waits.
#include <errno.h>
#include <libdrm/amdgpu_drm.h>
#include <libdrm/drm.h>
#include <string.h>

#include "amdgpu.h"

// Contexts, submissions and synchronisation objects are numbers that nobody looks at again.
static uint32_t next_number(void) {
    static uint32_t number;
    return ++number;
}

static int capability(unsigned char *payload) {
    uint64_t which = get64(payload);
    put64(payload + 8, which == DRM_CAP_SYNCOBJ || which == DRM_CAP_SYNCOBJ_TIMELINE || which == DRM_CAP_PRIME ? 1 : 0);
    return 0;
}

// What is asked of a context is answered by zeros: it was never reset.
static int context(unsigned char *payload) {
    union drm_amdgpu_ctx *context = (union drm_amdgpu_ctx *)payload;
    uint32_t wanted = context->in.op;
    memset(context, 0, sizeof *context);
    if (wanted == AMDGPU_CTX_OP_ALLOC_CTX) context->out.alloc.ctx_id = next_number();
    return 0;
}

static int submit(unsigned char *payload) {
    put64(payload, next_number());
    return 0;
}

static int buffer_list(unsigned char *payload) {
    memset(payload, 0, sizeof(union drm_amdgpu_bo_list));
    put32(payload, next_number());
    return 0;
}

int graphics_request(unsigned number, unsigned char *payload) {
    switch (number) {
        case 0x0C: return capability(payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_CTX: return context(payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_BO_LIST: return buffer_list(payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_CS: return submit(payload);
        case DRM_COMMAND_BASE + DRM_AMDGPU_WAIT_CS: put64(payload, 0); return 0;
        case DRM_COMMAND_BASE + DRM_AMDGPU_GEM_METADATA: return 0;
        case 0xBF: put32(payload, next_number()); return 0;  // DRM_IOCTL_SYNCOBJ_CREATE
        case 0xC0: return 0;                                 // _DESTROY
        case 0xC3: return 0;                                 // _WAIT
        case 0xC4: return 0;                                 // _RESET
        case 0xC5: return 0;                                 // _SIGNAL
        case 0xCA: return 0;                                 // _TIMELINE_WAIT
        case 0xCC: return 0;                                 // _TRANSFER
        case 0xCD: return 0;                                 // _TIMELINE_SIGNAL
        default: return -EINVAL;
    }
}
