// Stream capture, in outline: whether it forbids allocations is known by thread, what it makes nodes of by stream. Only nodes of
// memory are made.
#include "sim.h"

enum { CAPTURES = 16 };
static void *captured[CAPTURES];  // guarded by the lock

static bool replace(void *stream, void *by) {
    sigset_t saved;
    sim_lock(&saved);
    int i = 0;
    while (i < CAPTURES && captured[i] != stream) i++;
    if (i < CAPTURES) captured[i] = by;
    sim_unlock(&saved);
    return i < CAPTURES;
}

bool sim_is_captured(void *stream) {
    return stream && replace(stream, stream);
}

bool sim_allocation_forbidden(enum sim_kind kind) {
    (void)kind;
    return sim_thread()->capture;
}

int sim_StreamBeginCapture(void *stream, int mode) {
    enum { RELAXED = 2 };
    if (!stream) return SIM_CAPTURE_UNSUPPORTED;  // the default stream cannot be captured
    sim_thread()->capture = mode == RELAXED ? 0 : mode + 1;
    return replace(NULL, stream) ? SIM_SUCCESS : SIM_OUT_OF_MEMORY;
}

int sim_StreamEndCapture(void *stream, void **graph) {
    if (!stream) return SIM_CAPTURE_UNMATCHED;
    replace(stream, NULL);
    sim_thread()->capture = 0;
    return sim_handle_create(graph);
}

int sim_StreamIsCapturing(void *stream, int *state) {
    if (!state) return SIM_INVALID_VALUE;
    *state = sim_is_captured(stream) ? 1 : 0;
    return SIM_SUCCESS;
}
