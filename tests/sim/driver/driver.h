// The CUDA driver over the device model of ../runtime: what its parts know of each other.
//
// `drv_X` is the body of `cuX`. Device pointers and handles are passed as pointers: the calling convention is the same.
#ifndef DRIVER_H
#define DRIVER_H

#include "sim.h"

#define HIDDEN_THREAD_LOCAL static __thread __attribute__((tls_model("initial-exec")))

// What a call wants before it does anything.
enum need { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };
int drv_gate(enum need need);  // status

// Layouts of the driver's structures on x86-64

struct array_shape_v1 { unsigned width, height; int format; unsigned channels; };
struct array3d_shape_v1 { unsigned width, height, depth; int format; unsigned channels, flags; };
enum { MEMORY_HOST = 1, MEMORY_DEVICE, MEMORY_ARRAY, MEMORY_UNIFIED };
struct copy2d_side {
    size_t x, y;
    int memory_type;
    const void *host, *device, *array;
    size_t pitch;
};
struct copy2d { struct copy2d_side from, to; size_t width, height; };
struct copy3d_side {
    size_t x, y, z, level;
    int memory_type;
    const void *host, *device, *array, *reserved;
    size_t pitch, height;
};
struct copy3d { struct copy3d_side from, to; size_t width, height, depth; };
struct launch_configuration {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};
struct memory_node_parameters {
    sim_pool_properties pool;
    const void *access;
    size_t access_count, size;
    void *address;  // answer
};
struct host_node_parameters { void (*function)(void *); void *data; };
struct conditional_node_parameters { uint64_t handle; int type; unsigned count; void **graphs; void *context; };
struct node_parameters {
    int type, reserved[3];
    union {
        struct memory_node_parameters allocation;
        struct host_node_parameters host;
        struct conditional_node_parameters conditional;
        void *freed;
    };
};
struct instantiate_parameters { uint64_t flags; void *stream, *failed_node; int result; };
struct update_result { int result; void *failed_node, *failed_from; };

_Static_assert(sizeof(struct copy2d) == 128 && sizeof(struct copy3d) == 200, "the driver's layout");
_Static_assert(offsetof(struct memory_node_parameters, size) == 104, "the driver's layout");
_Static_assert(offsetof(struct launch_configuration, stream) == 32, "the driver's layout");

// context.c
void *drv_current_context(void);
int drv_Init(unsigned flags);
int drv_PrimaryRetain(void **context, int device);
int drv_PrimaryRelease(int device);
int drv_PrimaryReset(int device);
int drv_PrimaryGetState(int device, unsigned *flags, int *active);
int drv_CtxCreate(void **context, int device);
int drv_CtxDestroy(void *context);
int drv_CtxPush(void *context);
int drv_CtxPop(void **context);
int drv_CtxSetCurrent(void *context);
int drv_CtxGetCurrent(void **context);
int drv_CtxGetId(void *context, unsigned long long *id);
int drv_CtxGetApiVersion(unsigned *version);
int drv_CtxGetLimit(size_t *value);
int drv_PriorityRange(int *least, int *greatest);

// query.c
int drv_zero(unsigned *value);
int drv_same(void **out, void *handle);
int drv_DriverGetVersion(int *version);
int drv_GetErrorString(int status, const char **text);
int drv_GetErrorName(int status, const char **name);
int drv_GetExportTable(const void **table);
int drv_DeviceGetUuid(void *id, int device);
int drv_DeviceTotalMem_v1(unsigned *bytes, int device);
int drv_DeviceGetAttribute(int *value, int attribute, int device);
int drv_DeviceComputeCapability(int *major, int *minor, int device);
int drv_DeviceGetByPCIBusId(int *device, const char *text);
int drv_DeviceCanAccessPeer(int *can, int device, int peer);
int drv_DeviceGetP2PAttribute(int *value, int device, int peer);

// look_up.c
int drv_GetProcAddress(const char *name, void **function, int version, unsigned long long flags, int *found);
int drv_GetProcAddress_v1(const char *name, void **function, int version, unsigned long long flags);

// memory.c
int drv_MemAlloc(void **pointer, size_t size);
int drv_MemAlloc_v1(unsigned *pointer, unsigned size);
int drv_MemAllocPitch(void **pointer, size_t *pitch, size_t width, size_t height, unsigned element);
int drv_MemAllocPitch_v1(unsigned *pointer, unsigned *pitch, unsigned width, unsigned height, unsigned element);
int drv_MemAllocManaged(void **pointer, size_t size, unsigned flags);
int drv_MemFree(void *pointer);
int drv_MemFree_v1(unsigned pointer);
int drv_MemGetInfo_v1(unsigned *free, unsigned *total);
int drv_ArrayCreate_v1(void **array, const struct array_shape_v1 *shape);
int drv_Array3DCreate_v1(void **array, const struct array3d_shape_v1 *shape);
int drv_ArrayDestroy(void *array);
int drv_MipmappedArrayGetLevel(void **array, void *mipmapped);
int drv_MemHostAlloc(void **pointer, size_t size);
int drv_MemFreeHost(void *pointer);
int drv_MemAllocAsync(void **pointer, size_t size, void *stream);
int drv_MemAllocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream);
int drv_MemFreeAsync(void *pointer, void *stream);
int drv_MemPoolGetAccess(int *flags, void *pool, const sim_location *location);
int drv_MemGetDefaultMemPool(void **pool, const sim_location *location);
int drv_MemGetMemPool(void **pool, const sim_location *location);
int drv_MemSetMemPool(const sim_location *location, void *pool);

// pointer.c
int drv_MemGetAddressRange(void **base, size_t *size, void *pointer);
int drv_MemGetAddressRange_v1(unsigned *base, unsigned *size, unsigned pointer);
int drv_MemHostGetDevicePointer(void **device, void *host);
int drv_MemHostGetFlags(unsigned *flags, void *pointer);
int drv_MemGetAccess(unsigned long long *flags, const sim_location *location, void *pointer);
int drv_PointerGetAttribute(void *data, int attribute, void *pointer);
int drv_PointerGetAttributes(unsigned count, const int *attributes, void **data, void *pointer);

// copy.c
int drv_MemPrefetch(const void *address, sim_location location);
int drv_MemcpyAsync(void *to, const void *from, size_t size, void *stream);
int drv_Memcpy2D(const struct copy2d *copy);
int drv_Memcpy2DAsync(const struct copy2d *copy, void *stream);
int drv_Memcpy3D(const struct copy3d *copy);
int drv_Memcpy3DAsync(const struct copy3d *copy, void *stream);
int drv_MemsetAsync(void *to, unsigned value, size_t width, size_t count, void *stream);

// module.c
int drv_ModuleLoad(void **module, const void *image);
int drv_ModuleUnload(void *module);
int drv_GetKernel(void **kernel, void *module, const char *name);
int drv_ModuleGetLoadingMode(int *mode);
int drv_FuncGetAttribute(int *value, int attribute, void *function);
int drv_FuncSetAttribute(void *function, int attribute, int value);
int drv_FuncGetName(const char **name, void *function);
int drv_Occupancy(int *blocks, void *function, int block_size);
int drv_Launch(void *function, void *stream);
int drv_LaunchEx(const struct launch_configuration *configuration, void *function);
int drv_LaunchHostFunc(void *stream, void (*function)(void *), void *data);
int drv_StreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data);

// graph.c: a graph is a list of nodes, in an order in which they may run
enum node_type {
    NODE_KERNEL, NODE_COPY, NODE_FILL, NODE_HOST, NODE_CHILD, NODE_EMPTY, NODE_WAIT, NODE_RECORD,
    NODE_ALLOC = 10, NODE_FREE, NODE_CONDITIONAL = 13,
};
struct graph_memory;
struct work {
    enum node_type type;
    void *to;
    const void *from;
    size_t size;  // of the copy, or of the pattern
    size_t count;
    unsigned value;
    void (*function)(void *);
    void *data;
    struct graph_memory *memory;
};
struct graph;
struct node;
struct node *drv_graph_add(struct graph *graph, void *const *dependencies, size_t count, const struct work *work);
int drv_GraphCreate(void **graph);
int drv_GraphDestroy(void *graph);
int drv_GraphClone(void **clone, void *graph);
int drv_AddMemAllocNode(void **node, void *graph, void *const *dependencies, size_t count,
                        struct memory_node_parameters *parameters);
int drv_AddMemFreeNode(void **node, void *graph, void *const *dependencies, size_t count, void *pointer);
int drv_AddEmptyNode(void **node, void *graph, void *const *dependencies, size_t count);
int drv_AddKernelNode(void **node, void *graph, void *const *dependencies, size_t count);
int drv_AddHostNode(void **node, void *graph, void *const *dependencies, size_t count,
                    const struct host_node_parameters *parameters);
int drv_AddNode(void **node, void *graph, void *const *dependencies, size_t count, struct node_parameters *parameters);
int drv_ConditionalHandle(unsigned long long *handle);
int drv_GraphGetNodes(void *graph, void **nodes, size_t *count);
int drv_GraphGetRootNodes(void *graph, void **nodes, size_t *count);
int drv_NodeGetType(void *node, int *type);
int drv_NodeGetDependencies(void *node, void **dependencies, size_t *count);
int drv_GraphInstantiate(void **executable, void *graph, unsigned long long flags);
int drv_GraphInstantiateWithParams(void **executable, void *graph, struct instantiate_parameters *parameters);
int drv_GraphExecUpdate(void *executable, void *graph, int *result);
int drv_GraphExecUpdate_v2(void *executable, void *graph, struct update_result *result);
int drv_GraphExecDestroy(void *executable);
int drv_GraphUpload(void *executable);
int drv_GraphLaunch(void *executable, void *stream);

// graph_memory.c: the memory of allocation nodes. It is taken at a launch, and given back by a trim once it is free.
struct graph_memory *drv_graph_memory_new(int device, size_t size);  // null: no addresses left
struct graph_memory *drv_graph_memory_find(const void *pointer);
void *drv_graph_memory_address(const struct graph_memory *memory);
int drv_graph_memory_take(struct graph_memory *memory);
int drv_graph_memory_free(struct graph_memory *memory);
bool drv_graph_memory_is_live(const struct graph_memory *memory);
int drv_GraphMemTrim(int device);
int drv_GetGraphMemAttribute(int device, int attribute, uint64_t *value);

// user_object.c
struct retained;
void drv_retained_copy(struct retained **to, const struct retained *from);
void drv_retained_drop(struct retained **list);
struct retained **drv_graph_retained(void *graph);  // null: not a graph
int drv_UserObjectCreate(void **object, void *data, void (*destroy)(void *), unsigned count);
int drv_UserObjectRetain(void *object, unsigned count);
int drv_UserObjectRelease(void *object, unsigned count);
int drv_GraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags);
int drv_GraphReleaseUserObject(void *graph, void *object, unsigned count);

// stream.c: streams and events; everything that is queued is done before the call returns
struct stream {
    uint32_t magic;
    struct stream *next;
    void *context;
    unsigned flags;
    int priority, device;
    unsigned long long id;
    // While it is captured; the stream in which the capture began also knows in which mode
    struct graph *graph;
    unsigned long long capture_id;
    bool is_origin, invalidated;
    int mode;
    const void *thread;
    struct node **tail;  // what the next node waits for
    size_t tail_count;
};
struct stream *drv_stream(void *handle);            // null for the default streams, and for what is none
struct stream *drv_capturing_stream(void *handle);  // null where nothing is captured
struct stream *drv_streams(void);                   // all of them; wants the lock
int drv_StreamCreate(void **stream, unsigned flags, int priority);
int drv_StreamDestroy(void *stream);
int drv_StreamSynchronize(void *stream);
int drv_StreamQuery(void *stream);
int drv_StreamWaitEvent(void *stream, void *event);
int drv_StreamGetPriority(void *stream, int *priority);
int drv_StreamGetFlags(void *stream, unsigned *flags);
int drv_StreamGetId(void *stream, unsigned long long *id);
int drv_StreamGetCtx(void *stream, void **context);
int drv_StreamGetDevice(void *stream, int *device);
int drv_EventCreate(void **event);
int drv_EventDestroy(void *event);
int drv_IpcGetEventHandle(sim_ipc_handle *handle, void *event);
int drv_EventRecord(void *event, void *stream);
int drv_EventElapsedTime(float *milliseconds, void *start, void *stop);

// stream_capture.c
int drv_capture_add(struct stream *stream, const struct work *work);
bool drv_capture_is_active(unsigned long long id);
void drv_capture_set_tail(struct stream *stream, struct node *const *nodes, size_t count, bool append);
void drv_capture_join(struct stream *stream, struct graph *graph, unsigned long long id);
void drv_capture_leave(struct stream *stream);
int drv_BeginCapture(void *stream, void *graph, int mode);
int drv_EndCapture(void *stream, void **graph);
int drv_IsCapturing(void *stream, int *state);
int drv_GetCaptureInfo(void *stream, int *state, unsigned long long *id, void **graph, const void ***dependencies,
                       const void **edges, size_t *count);
int drv_UpdateDependencies(void *stream, void **dependencies, size_t count, unsigned flags);
int drv_ExchangeCaptureMode(int *mode);

#endif
