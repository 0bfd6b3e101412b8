// Stream capture, in outline: it is known by thread, and there are no nodes.
#include "sim.h"

bool sim_allocation_forbidden(enum sim_kind kind) {
    (void)kind;
    return sim_thread()->capture;
}

int sim_StreamBeginCapture(void *stream, int mode) {
    enum { RELAXED = 2 };
    if (!stream) return SIM_CAPTURE_UNSUPPORTED;  // the default stream cannot be captured
    sim_thread()->capture = mode == RELAXED ? 0 : mode + 1;
    return SIM_SUCCESS;
}

int sim_StreamEndCapture(void *stream, void **graph) {
    if (!stream) return SIM_CAPTURE_UNMATCHED;
    sim_thread()->capture = 0;
    return sim_handle_create(graph);
}

int sim_StreamIsCapturing(void *stream, int *state) {
    (void)stream;
    if (!state) return SIM_INVALID_VALUE;
    *state = sim_thread()->capture ? 1 : 0;
    return SIM_SUCCESS;
}
