// HIP's contexts: the devices themselves (ROCm/clr hip_context.cpp). Making one puts it on the thread's stack and does not
// choose it; pushing one chooses its device, which stays chosen when it is popped.
#include "sim.h"

enum { INVALID_CONTEXT = 201, DEPTH = 8 };
static char devices[SIM_MAX_DEVICES];
static _Thread_local char *stack[DEPTH];
static _Thread_local int depth;

static bool is_context(const char *context) { return context >= devices && context < devices + sim_config()->devices; }

static void push(char *context) {
    if (depth < DEPTH) stack[depth++] = context;
}

int sim_CtxRetain(void **context, int device) {
    if (device < 0 || device >= sim_config()->devices) return SIM_INVALID_DEVICE;
    if (!context) return SIM_INVALID_VALUE;
    *context = &devices[device];
    return SIM_SUCCESS;
}

int sim_CtxCreate(void **context, int device) {
    int status = sim_CtxRetain(context, device);
    if (status == SIM_SUCCESS) push(*context);
    return status;
}

int sim_CtxPush(void *context) {
    if (!is_context(context)) return INVALID_CONTEXT;
    sim_thread()->device = (int)((char *)context - devices);
    push(context);
    return SIM_SUCCESS;
}

int sim_CtxPop(void **context) {
    if (!depth) return INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return SIM_SUCCESS;
}

int sim_CtxSet(void *context) {
    if (depth) depth--;
    return context ? sim_CtxPush(context) : SIM_SUCCESS;
}

int sim_CtxGet(void **context) { return sim_CtxRetain(context, sim_thread()->device); }

int sim_CtxDestroy(void *context) {
    if (!is_context(context)) return SIM_INVALID_VALUE;
    if (depth && stack[depth - 1] == context) depth--;
    return SIM_SUCCESS;
}
