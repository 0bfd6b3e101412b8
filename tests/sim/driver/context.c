// Contexts: what owns memory, and which one a thread works in.
#include <pthread.h>

#include "driver.h"

enum { MAX_CONTEXTS = 256, MAX_DEPTH = 32 };

struct context {
    struct sim_block block;  // what the context takes for itself, for the log
    int device;
    unsigned references;  // of a primary context
    bool alive, has_memory;
    unsigned long long id;
};

static struct context contexts[MAX_CONTEXTS];  // the first SIM_MAX_DEVICES are the devices' primary ones
static unsigned long long last_id;             // guarded by the lock
static bool initialized, forked;
// With the number of each context: a place that is used again is another context.
HIDDEN_THREAD_LOCAL struct { struct context *contexts[MAX_DEPTH]; unsigned long long ids[MAX_DEPTH]; int depth; } stack;

static void forget_in_child(void) {
    initialized = false;
    forked = true;
}

// Once in a process, whichever of its threads comes first.
static void take_at_start(void) {
    static bool is_done;
    sigset_t saved;
    sim_lock(&saved);
    for (int device = 0; device < sim_config()->devices && !is_done; device++)
        (void)sim_device_hide_if_free(device, sim_config()->card.start);
    is_done = true;
    sim_unlock(&saved);
}

int drv_Init(unsigned flags) {
    if (flags) return SIM_INVALID_VALUE;
    if (forked) return SIM_NOT_INITIALIZED;
    if (sim_config()->devices == 0) return SIM_NO_DEVICE;
    if (!initialized) pthread_atfork(NULL, NULL, forget_in_child);
    take_at_start();
    initialized = true;
    return SIM_SUCCESS;
}

static struct context *current(void) { return stack.depth ? stack.contexts[stack.depth - 1] : NULL; }

void *drv_current_context(void) { return current(); }

int drv_gate(enum need need) {
    if (need == NEEDS_NOTHING) return SIM_SUCCESS;
    if (!initialized) return SIM_NOT_INITIALIZED;
    struct context *context = current();
    if (context && context->alive && context->id == stack.ids[stack.depth - 1]) {
        sim_thread()->device = context->device;
        sim_thread()->owner = context;
    } else if (need == NEEDS_CONTEXT) {
        return context ? SIM_CONTEXT_IS_DESTROYED : SIM_INVALID_CONTEXT;
    }
    return SIM_SUCCESS;
}

static struct context *checked(void *handle) {
    struct context *context = handle;
    return context >= contexts && context < contexts + MAX_CONTEXTS && context->alive ? context : NULL;
}

static bool valid_device(int device) { return device >= 0 && device < sim_config()->devices; }

// What the log says, and what it does not.
static bool take_for_context(int device) {
    size_t size = sim_config()->context_bytes;
    if (!sim_device_hide_if_free(device, sim_config()->card.context)) return false;
    if (!size || sim_device_charge(device, size)) return true;
    sim_device_unhide(device, sim_config()->card.context);
    return false;
}

// Wants the lock.
static int begin(struct context *context, int device) {
    size_t size = sim_config()->context_bytes;
    if (!take_for_context(device)) {
        sim_log_failure(SIM_KIND_CONTEXT, device, size + sim_config()->card.context, SIM_OUT_OF_MEMORY);
        return SIM_OUT_OF_MEMORY;
    }
    *context = (struct context){.device = device, .alive = true, .has_memory = size != 0, .id = ++last_id,
                                .references = context->references};
    context->block = (struct sim_block){.address = (uintptr_t)context, .requested = size, .held = size,
                                        .kind = SIM_KIND_CONTEXT, .device = device};
    if (size) sim_log_block("alloc", &context->block);
    return SIM_SUCCESS;
}

// Wants the lock. All memory of the context goes with it; that of pools and physical memory are of none.
static void end(struct context *context) {
    sim_release_owned(context);
    if (context->has_memory) {
        sim_log_block("free", &context->block);
        sim_device_refund(context->device, context->block.held);
    }
    sim_device_unhide(context->device, sim_config()->card.context);
    context->alive = false;
}

int drv_PrimaryRetain(void **handle, int device) {
    if (!handle) return SIM_INVALID_VALUE;
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    struct context *context = &contexts[device];
    sigset_t saved;
    sim_lock(&saved);
    int status = context->alive ? SIM_SUCCESS : begin(context, device);
    if (status == SIM_SUCCESS) context->references++;
    sim_unlock(&saved);
    if (status == SIM_SUCCESS) *handle = context;
    return status;
}

int drv_PrimaryRelease(int device) {
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    struct context *context = &contexts[device];
    sigset_t saved;
    sim_lock(&saved);
    // A reset releases nothing: who has retained the context still has to.
    bool held = context->references;
    if (held && --context->references == 0 && context->alive) end(context);
    sim_unlock(&saved);
    return held ? SIM_SUCCESS : SIM_INVALID_CONTEXT;
}

int drv_PrimaryReset(int device) {
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    sigset_t saved;
    sim_lock(&saved);
    if (contexts[device].alive) end(&contexts[device]);
    sim_unlock(&saved);
    return SIM_SUCCESS;
}

int drv_PrimaryGetState(int device, unsigned *flags, int *active) {
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    if (!flags || !active) return SIM_INVALID_VALUE;
    *flags = 0;
    *active = contexts[device].alive;
    return SIM_SUCCESS;
}

int drv_CtxPush(void *handle) {
    struct context *context = checked(handle);
    if (!context || stack.depth == MAX_DEPTH) return SIM_INVALID_CONTEXT;
    stack.ids[stack.depth] = context->id;
    stack.contexts[stack.depth++] = context;
    return SIM_SUCCESS;
}

int drv_CtxPop(void **handle) {
    if (!stack.depth) return SIM_INVALID_CONTEXT;
    stack.depth--;
    if (handle) *handle = stack.contexts[stack.depth];
    return SIM_SUCCESS;
}

int drv_CtxSetCurrent(void *handle) {
    if (handle && !checked(handle)) return SIM_INVALID_CONTEXT;
    if (stack.depth) stack.depth--;
    return handle ? drv_CtxPush(handle) : SIM_SUCCESS;
}

int drv_CtxGetCurrent(void **handle) {
    if (!handle) return SIM_INVALID_VALUE;
    *handle = current();
    return SIM_SUCCESS;
}

int drv_CtxCreate(void **handle, int device) {
    if (!handle) return SIM_INVALID_VALUE;
    if (!valid_device(device)) return SIM_INVALID_DEVICE;
    if (stack.depth == MAX_DEPTH) return SIM_INVALID_CONTEXT;
    sigset_t saved;
    sim_lock(&saved);
    int slot = SIM_MAX_DEVICES;
    while (slot < MAX_CONTEXTS && contexts[slot].alive) slot++;
    int status = slot < MAX_CONTEXTS ? begin(&contexts[slot], device) : SIM_OUT_OF_MEMORY;
    sim_unlock(&saved);
    if (status != SIM_SUCCESS) return status;
    *handle = &contexts[slot];
    return drv_CtxPush(*handle);
}

int drv_CtxDestroy(void *handle) {
    struct context *context = checked(handle);
    if (!context || context < contexts + SIM_MAX_DEVICES) return SIM_INVALID_CONTEXT;
    sigset_t saved;
    bool is_current = current() == context && context->id == stack.ids[stack.depth - 1];
    sim_lock(&saved);
    end(context);
    sim_unlock(&saved);
    if (is_current) stack.depth--;
    return SIM_SUCCESS;
}

int drv_CtxGetId(void *handle, unsigned long long *id) {
    struct context *context = handle ? checked(handle) : current();
    if (!context || !id) return SIM_INVALID_VALUE;
    *id = context->id;
    return SIM_SUCCESS;
}

int drv_CtxGetApiVersion(unsigned *version) {
    if (!version) return SIM_INVALID_VALUE;
    *version = (unsigned)sim_config()->cuda_version;
    return SIM_SUCCESS;
}

int drv_CtxGetLimit(size_t *value) {
    if (!value) return SIM_INVALID_VALUE;
    *value = 1 << 20;
    return SIM_SUCCESS;
}

int drv_PriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SIM_SUCCESS;
}
