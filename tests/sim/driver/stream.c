// Streams and events of a device that has finished each piece of work before the call returns.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

enum { STREAM_MAGIC = 0x53545245, EVENT_MAGIC = 0x4556454e };

struct event {
    uint32_t magic;
    int64_t at_ns;
    // Recorded in a captured stream: what a stream that waits for the event waits for
    struct graph *graph;
    unsigned long long capture_id;
    struct node **nodes;
    size_t count;
};

static struct stream *streams;  // guarded by the lock
static unsigned long long last_id;

static bool is_default(void *handle) { return (uintptr_t)handle <= 2; }

struct stream *drv_stream(void *handle) {
    struct stream *stream = handle;
    return !is_default(handle) && stream->magic == STREAM_MAGIC ? stream : NULL;
}

struct stream *drv_capturing_stream(void *handle) {
    struct stream *stream = drv_stream(handle);
    return stream && stream->graph ? stream : NULL;
}

struct stream *drv_streams(void) { return streams; }

int drv_StreamCreate(void **handle, unsigned flags, int priority) {
    if (!handle || flags > 1) return SIM_INVALID_VALUE;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream) return SIM_OUT_OF_MEMORY;
    *stream = (struct stream){.magic = STREAM_MAGIC, .context = drv_current_context(), .flags = flags,
                              .priority = priority, .device = sim_thread()->device};
    sigset_t saved;
    sim_lock(&saved);
    stream->id = ++last_id + 2;  // 1 and 2 are the default streams
    stream->next = streams;
    streams = stream;
    sim_unlock(&saved);
    *handle = stream;
    return SIM_SUCCESS;
}

int drv_StreamDestroy(void *handle) {
    struct stream *stream = drv_stream(handle);
    if (!stream) return SIM_INVALID_HANDLE;
    sigset_t saved;
    sim_lock(&saved);
    struct stream **link = &streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
    sim_unlock(&saved);
    drv_capture_leave(stream);
    stream->magic = 0;
    free(stream);
    return SIM_SUCCESS;
}

static int status_of(void *handle) {
    if (!is_default(handle) && !drv_stream(handle)) return SIM_INVALID_HANDLE;
    return drv_capturing_stream(handle) ? SIM_CAPTURE_UNSUPPORTED : SIM_SUCCESS;
}

int drv_StreamSynchronize(void *handle) {
    int status = status_of(handle);
    return status == SIM_SUCCESS ? sim_StreamSynchronize() : status;
}

int drv_StreamQuery(void *handle) { return status_of(handle); }

int drv_StreamGetPriority(void *handle, int *priority) {
    struct stream *stream = drv_stream(handle);
    if (!priority || (!stream && !is_default(handle))) return SIM_INVALID_VALUE;
    *priority = stream ? stream->priority : 0;
    return SIM_SUCCESS;
}

int drv_StreamGetFlags(void *handle, unsigned *flags) {
    struct stream *stream = drv_stream(handle);
    if (!flags || (!stream && !is_default(handle))) return SIM_INVALID_VALUE;
    *flags = stream ? stream->flags : 0;
    return SIM_SUCCESS;
}

int drv_StreamGetId(void *handle, unsigned long long *id) {
    struct stream *stream = drv_stream(handle);
    if (!id || (!stream && !is_default(handle))) return SIM_INVALID_VALUE;
    *id = stream ? stream->id : (uintptr_t)handle == 2 ? 2 : 1;
    return SIM_SUCCESS;
}

int drv_StreamGetCtx(void *handle, void **context) {
    struct stream *stream = drv_stream(handle);
    if (!context || (!stream && !is_default(handle))) return SIM_INVALID_VALUE;
    *context = stream ? stream->context : drv_current_context();
    return SIM_SUCCESS;
}

int drv_StreamGetDevice(void *handle, int *device) {
    struct stream *stream = drv_stream(handle);
    if (!device || (!stream && !is_default(handle))) return SIM_INVALID_VALUE;
    *device = stream ? stream->device : sim_thread()->device;
    return SIM_SUCCESS;
}

static struct event *checked_event(void *handle) {
    struct event *event = handle;
    return event && event->magic == EVENT_MAGIC ? event : NULL;
}

int drv_EventCreate(void **handle) {
    if (!handle) return SIM_INVALID_VALUE;
    struct event *event = calloc(1, sizeof *event);
    if (!event) return SIM_OUT_OF_MEMORY;
    event->magic = EVENT_MAGIC;
    *handle = event;
    return SIM_SUCCESS;
}

int drv_IpcGetEventHandle(sim_ipc_handle *handle, void *event) {
    if (!handle) return SIM_INVALID_VALUE;
    if (!checked_event(event)) return SIM_INVALID_HANDLE;
    memset(handle, 0, sizeof *handle);
    return SIM_SUCCESS;
}

int drv_EventDestroy(void *handle) {
    struct event *event = checked_event(handle);
    if (!event) return SIM_INVALID_HANDLE;
    event->magic = 0;
    free(event->nodes);
    free(event);
    return SIM_SUCCESS;
}

static int record_in_capture(struct event *event, const struct stream *stream) {
    struct node **nodes = calloc(stream->tail_count + 1, sizeof *nodes);
    if (!nodes) return SIM_OUT_OF_MEMORY;
    if (stream->tail_count) memcpy(nodes, stream->tail, stream->tail_count * sizeof *nodes);
    free(event->nodes);
    event->nodes = nodes;
    event->count = stream->tail_count;
    event->graph = stream->graph;
    event->capture_id = stream->capture_id;
    return SIM_SUCCESS;
}

int drv_EventRecord(void *handle, void *stream) {
    struct event *event = checked_event(handle);
    if (!event) return SIM_INVALID_HANDLE;
    struct stream *capturing = drv_capturing_stream(stream);
    if (capturing) return record_in_capture(event, capturing);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->at_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    event->graph = NULL;
    return SIM_SUCCESS;
}

int drv_EventElapsedTime(float *milliseconds, void *start, void *stop) {
    struct event *from = checked_event(start), *to = checked_event(stop);
    if (!from || !to) return SIM_INVALID_HANDLE;
    if (!milliseconds) return SIM_INVALID_VALUE;
    *milliseconds = (float)(to->at_ns - from->at_ns) / 1e6f;
    return SIM_SUCCESS;
}

// A stream that waits for an event of a capture becomes part of it.
int drv_StreamWaitEvent(void *stream_handle, void *handle) {
    struct event *event = checked_event(handle);
    if (!event) return SIM_INVALID_HANDLE;
    struct stream *stream = drv_stream(stream_handle);
    if (!event->graph || !stream || !drv_capture_is_active(event->capture_id)) return SIM_SUCCESS;
    if (!stream->graph) drv_capture_join(stream, event->graph, event->capture_id);
    drv_capture_set_tail(stream, event->nodes, event->count, true);
    return SIM_SUCCESS;
}
