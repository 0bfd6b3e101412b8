// Stream capture: calls on a captured stream, and on those that joined it, become nodes of a graph.
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

static unsigned long long last_capture;  // guarded by the lock
HIDDEN_THREAD_LOCAL int thread_mode;  // set by cuThreadExchangeStreamCaptureMode

// What a forbidden call means to this capture, whoever makes the call
static bool forbids(const struct stream *stream) {
    if (!stream->graph || !stream->is_origin) return false;
    if (stream->mode == MODE_RELAXED || thread_mode == MODE_RELAXED) return false;
    return stream->thread == &thread_mode || (stream->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL);
}

// Only allocations that are not ordered by a stream: those become nodes, or go beside the capture. The refusal is not
// all: the capture is void.
bool sim_allocation_forbidden(enum sim_kind kind) {
    if (kind == SIM_KIND_POOL || kind == SIM_KIND_PHYSICAL || kind == SIM_KIND_PHYSICAL_IN_RAM) return false;
    bool forbidden = false;
    for (struct stream *stream = drv_streams(); stream; stream = stream->next) {
        if (!forbids(stream)) continue;
        stream->invalidated = true;
        forbidden = true;
    }
    return forbidden;
}

int drv_ExchangeCaptureMode(int *mode) {
    if (!mode || *mode < MODE_GLOBAL || *mode > MODE_RELAXED) return SIM_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return SIM_SUCCESS;
}

void drv_capture_set_tail(struct stream *stream, struct node *const *nodes, size_t count, bool append) {
    size_t kept = append ? stream->tail_count : 0;
    struct node **tail = calloc(kept + count + 1, sizeof *tail);
    if (!tail) return;
    if (kept) memcpy(tail, stream->tail, kept * sizeof *tail);
    if (count) memcpy(tail + kept, nodes, count * sizeof *tail);
    free(stream->tail);
    stream->tail = tail;
    stream->tail_count = kept + count;
}

int drv_capture_add(struct stream *stream, const struct work *work) {
    struct node *node = drv_graph_add(stream->graph, (void *const *)stream->tail, stream->tail_count, work);
    if (!node) return SIM_OUT_OF_MEMORY;
    drv_capture_set_tail(stream, &node, 1, false);
    return SIM_SUCCESS;
}

bool drv_capture_is_active(unsigned long long id) {
    sigset_t saved;
    sim_lock(&saved);
    struct stream *stream = drv_streams();
    while (stream && !(stream->is_origin && stream->graph && stream->capture_id == id)) stream = stream->next;
    sim_unlock(&saved);
    return stream;
}

void drv_capture_join(struct stream *stream, struct graph *graph, unsigned long long id) {
    stream->graph = graph;
    stream->capture_id = id;
}

void drv_capture_leave(struct stream *stream) {
    free(stream->tail);
    stream->tail = NULL;
    stream->tail_count = 0;
    stream->graph = NULL;
    stream->is_origin = stream->invalidated = false;
}

int drv_BeginCapture(void *handle, void *graph, int mode) {
    struct stream *stream = drv_stream(handle);
    if (!stream) return SIM_CAPTURE_UNSUPPORTED;  // the default streams cannot be captured
    if (stream->graph || mode < MODE_GLOBAL || mode > MODE_RELAXED) return SIM_INVALID_VALUE;
    if (!graph && drv_GraphCreate(&graph) != SIM_SUCCESS) return SIM_OUT_OF_MEMORY;
    sigset_t saved;
    sim_lock(&saved);
    stream->capture_id = ++last_capture;
    stream->graph = graph;
    stream->is_origin = true;
    stream->mode = mode;
    stream->thread = &thread_mode;
    sim_unlock(&saved);
    return SIM_SUCCESS;
}

int drv_EndCapture(void *handle, void **graph) {
    struct stream *stream = drv_capturing_stream(handle);
    if (!graph) return SIM_INVALID_VALUE;
    if (!stream || !stream->is_origin) return SIM_CAPTURE_UNMATCHED;
    unsigned long long id = stream->capture_id;
    sigset_t saved;
    sim_lock(&saved);
    bool invalidated = stream->invalidated;
    *graph = invalidated ? NULL : stream->graph;
    for (struct stream *each = drv_streams(); each; each = each->next)
        if (each->graph && each->capture_id == id) drv_capture_leave(each);
    sim_unlock(&saved);
    return invalidated ? SIM_CAPTURE_INVALIDATED : SIM_SUCCESS;
}

static int state_of(const struct stream *stream) {
    enum { NONE, ACTIVE, INVALIDATED };
    if (!stream) return NONE;
    return stream->invalidated ? INVALIDATED : ACTIVE;
}

int drv_IsCapturing(void *stream, int *state) {
    if (!state) return SIM_INVALID_VALUE;
    *state = state_of(drv_capturing_stream(stream));
    return SIM_SUCCESS;
}

int drv_GetCaptureInfo(void *handle, int *state, unsigned long long *id, void **graph, const void ***dependencies,
                       const void **edges, size_t *count) {
    if (!state) return SIM_INVALID_VALUE;
    struct stream *stream = drv_capturing_stream(handle);
    *state = state_of(stream);
    if (!stream) return SIM_SUCCESS;
    if (id) *id = stream->capture_id;
    if (graph) *graph = stream->graph;
    if (dependencies) *dependencies = (const void **)stream->tail;
    if (edges) *edges = NULL;
    if (count) *count = stream->tail_count;
    return SIM_SUCCESS;
}

int drv_UpdateDependencies(void *handle, void **dependencies, size_t count, unsigned flags) {
    enum { ADD, SET };
    struct stream *stream = drv_capturing_stream(handle);
    if (!stream || flags > SET) return SIM_INVALID_VALUE;
    drv_capture_set_tail(stream, (struct node *const *)dependencies, count, flags == ADD);
    return SIM_SUCCESS;
}
