// The driver functions besides memory: devices, contexts, modules, launches, streams, events, graphs.

// Start and look-up
CU_FREE(cuInit, cuInit, 2000, drv_Init, (unsigned f), (f))
CU_FREE(cuDriverGetVersion, cuDriverGetVersion, 2020, drv_DriverGetVersion, (int *v), (v))
CU_FREE(cuGetErrorString, cuGetErrorString, 6000, drv_GetErrorString, (int status, const char **text), (status, text))
CU_FREE(cuGetErrorName, cuGetErrorName, 6000, drv_GetErrorName, (int status, const char **name), (status, name))
CU_FREE(cuGetProcAddress_v2, cuGetProcAddress, 12000, drv_GetProcAddress,
        (const char *name, void **f, int version, unsigned long long flags, int *found),
        (name, f, version, flags, found))
CU_FREE(cuGetProcAddress, cuGetProcAddress, 11030, drv_GetProcAddress_v1,
        (const char *name, void **f, int version, unsigned long long flags), (name, f, version, flags))
CU_FREE(cuGetExportTable, cuGetExportTable, 3000, drv_GetExportTable, (const void **t, const void *id), (t))

// Devices
CU_ANY(cuDeviceGet, cuDeviceGet, 2000, sim_DeviceGet, (int *d, int ordinal), (d, ordinal))
CU_ANY(cuDeviceGetCount, cuDeviceGetCount, 2000, sim_GetDeviceCount, (int *n), (n))
CU_ANY(cuDeviceGetName, cuDeviceGetName, 2000, sim_DeviceGetName, (char *t, int n, int d), (t, n, d))
CU_ANY(cuDeviceGetUuid, cuDeviceGetUuid, 9020, drv_DeviceGetUuid, (void *id, int d), (id, d))
CU_ANY(cuDeviceGetUuid_v2, cuDeviceGetUuid, 11040, drv_DeviceGetUuid, (void *id, int d), (id, d))
CU_ANY(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, sim_DeviceTotalMem, (size_t *n, int d), (n, d))
CU_ANY(cuDeviceTotalMem, cuDeviceTotalMem, 2000, drv_DeviceTotalMem_v1, (unsigned *n, int d), (n, d))
CU_ANY(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, drv_DeviceGetAttribute, (int *v, int a, int d), (v, a, d))
CU_ANY(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000, drv_DeviceComputeCapability,
       (int *major, int *minor, int d), (major, minor, d))
CU_ANY(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, sim_DeviceGetPCIBusId, (char *t, int n, int d), (t, n, d))
CU_ANY(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, drv_DeviceGetByPCIBusId, (int *d, const char *t), (d, t))
CU_ANY(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, drv_DeviceCanAccessPeer,
       (int *can, int d, int peer), (can, d, peer))
CU_ANY(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, drv_DeviceGetP2PAttribute,
       (int *v, int attribute, int d, int peer), (v, d, peer))

// Contexts
CU_ANY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, drv_PrimaryRetain, (void **c, int d), (c, d))
CU_ANY(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, drv_PrimaryRelease, (int d), (d))
CU_ANY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, drv_PrimaryRelease, (int d), (d))
CU_ANY(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, drv_PrimaryReset, (int d), (d))
CU_ANY(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, drv_PrimaryReset, (int d), (d))
CU_ANY(cuDevicePrimaryCtxSetFlags_v2, cuDevicePrimaryCtxSetFlags, 11000, sim_done, (int d, unsigned f), ())
CU_ANY(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000, sim_done, (int d, unsigned f), ())
CU_ANY(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, drv_PrimaryGetState,
       (int d, unsigned *f, int *active), (d, f, active))
CU_ANY(cuCtxCreate, cuCtxCreate, 2000, drv_CtxCreate, (void **c, unsigned f, int d), (c, d))
CU_ANY(cuCtxCreate_v2, cuCtxCreate, 3020, drv_CtxCreate, (void **c, unsigned f, int d), (c, d))
CU_ANY(cuCtxCreate_v3, cuCtxCreate, 11040, drv_CtxCreate, (void **c, void *q, int n, unsigned f, int d), (c, d))
CU_ANY(cuCtxCreate_v4, cuCtxCreate, 12050, drv_CtxCreate, (void **c, void *q, unsigned f, int d), (c, d))
CU_ANY(cuCtxDestroy_v2, cuCtxDestroy, 4000, drv_CtxDestroy, (void *c), (c))
CU_ANY(cuCtxDestroy, cuCtxDestroy, 2000, drv_CtxDestroy, (void *c), (c))
CU_ANY(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000, drv_CtxPush, (void *c), (c))
CU_ANY(cuCtxPushCurrent, cuCtxPushCurrent, 2000, drv_CtxPush, (void *c), (c))
CU_ANY(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000, drv_CtxPop, (void **c), (c))
CU_ANY(cuCtxPopCurrent, cuCtxPopCurrent, 2000, drv_CtxPop, (void **c), (c))
CU_ANY(cuCtxSetCurrent, cuCtxSetCurrent, 4000, drv_CtxSetCurrent, (void *c), (c))
CU_ANY(cuCtxGetCurrent, cuCtxGetCurrent, 4000, drv_CtxGetCurrent, (void **c), (c))
CU(cuCtxGetDevice, cuCtxGetDevice, 2000, sim_GetDevice, (int *d), (d))
CU(cuCtxGetFlags, cuCtxGetFlags, 7000, drv_zero, (unsigned *f), (f))
CU(cuCtxGetId, cuCtxGetId, 12000, drv_CtxGetId, (void *c, unsigned long long *id), (c, id))
CU(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, drv_CtxGetApiVersion, (void *c, unsigned *v), (v))
CU(cuCtxGetLimit, cuCtxGetLimit, 3010, drv_CtxGetLimit, (size_t *n, int limit), (n))
CU(cuCtxSetLimit, cuCtxSetLimit, 3010, sim_done, (int limit, size_t n), ())
CU(cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020, drv_zero, (unsigned *v), (v))
CU(cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020, sim_done, (int v), ())
CU(cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000, sim_done, (void), ())
CU(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, drv_PriorityRange,
   (int *least, int *greatest), (least, greatest))
CU(cuCtxSynchronize, cuCtxSynchronize, 2000, sim_DeviceSynchronize, (void), ())
CU(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, sim_done, (void *c, unsigned f), ())
CU(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, sim_done, (void *c), ())

// Modules and kernels
CU(cuModuleLoad, cuModuleLoad, 2000, sim_noted_new, (void **m, const char *path),
   ("module", m, drv_ModuleLoad(m, path)))
CU(cuModuleLoadData, cuModuleLoadData, 2000, sim_noted_new, (void **m, const void *image),
   ("module", m, drv_ModuleLoad(m, image)))
CU(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, sim_noted_new,
   (void **m, const void *image, unsigned n, int *options, void **values), ("module", m, drv_ModuleLoad(m, image)))
CU(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, sim_noted_new, (void **m, const void *image),
   ("module", m, drv_ModuleLoad(m, image)))
CU(cuModuleUnload, cuModuleUnload, 2000, sim_noted, (void *m), ("module", m, drv_ModuleUnload(m)))
CU(cuModuleGetFunction, cuModuleGetFunction, 2000, drv_GetKernel, (void **f, void *m, const char *name), (f, m, name))
CU_ANY(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, drv_ModuleGetLoadingMode, (int *mode), (mode))
CU_ANY(cuLibraryLoadData, cuLibraryLoadData, 12000, sim_noted_new,
       (void **m, const void *code, int *jo, void **jv, unsigned jn, int *lo, void **lv, unsigned ln),
       ("module", m, drv_ModuleLoad(m, code)))
CU_ANY(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, sim_noted_new,
       (void **m, const char *path, int *jo, void **jv, unsigned jn, int *lo, void **lv, unsigned ln),
       ("module", m, drv_ModuleLoad(m, path)))
CU_ANY(cuLibraryUnload, cuLibraryUnload, 12000, sim_noted, (void *m), ("module", m, drv_ModuleUnload(m)))
CU_ANY(cuLibraryGetKernel, cuLibraryGetKernel, 12000, drv_GetKernel, (void **k, void *m, const char *name),
       (k, m, name))
CU_ANY(cuLibraryGetModule, cuLibraryGetModule, 12000, drv_same, (void **out, void *m), (out, m))
CU_ANY(cuKernelGetFunction, cuKernelGetFunction, 12000, drv_same, (void **out, void *k), (out, k))
CU(cuFuncGetAttribute, cuFuncGetAttribute, 2020, drv_FuncGetAttribute, (int *v, int a, void *f), (v, a, f))
CU(cuFuncSetAttribute, cuFuncSetAttribute, 9000, drv_FuncSetAttribute, (void *f, int a, int v), (f, a, v))
CU(cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000, sim_handle_use, (void *f, int v), (f))
CU(cuFuncGetName, cuFuncGetName, 12030, drv_FuncGetName, (const char **name, void *f), (name, f))
CU_ANY(cuKernelGetAttribute, cuKernelGetAttribute, 12000, drv_FuncGetAttribute,
       (int *v, int a, void *k, int d), (v, a, k))
CU_ANY(cuKernelSetAttribute, cuKernelSetAttribute, 12000, drv_FuncSetAttribute, (int a, int v, void *k, int d),
       (k, a, v))
CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, drv_Occupancy,
   (int *n, void *f, int block, size_t shared), (n, f, block))
CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000,
   drv_Occupancy, (int *n, void *f, int block, size_t shared, unsigned flags), (n, f, block))
CU_PTSZ(cuLaunchKernel, cuLaunchKernel, 4000, 7000, drv_Launch,
        (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
         void *s, void **args, void **extra),
        (f, s))
CU_PTSZ(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 11060, drv_LaunchEx,
        (const struct launch_configuration *c, void *f, void **args, void **extra), (c, f))
CU_PTSZ(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 9000, drv_Launch,
        (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
         void *s, void **args),
        (f, s))
CU_PTSZ(cuLaunchHostFunc, cuLaunchHostFunc, 10000, 10000, drv_LaunchHostFunc,
        (void *s, void (*f)(void *), void *data), (s, f, data))
CU_PTSZ(cuStreamAddCallback, cuStreamAddCallback, 5000, 7000, drv_StreamAddCallback,
        (void *s, void (*f)(void *, int, void *), void *data, unsigned flags), (s, f, data))

// Streams and events
CU(cuStreamCreate, cuStreamCreate, 2000, drv_StreamCreate, (void **s, unsigned f), (s, f, 0))
CU(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, drv_StreamCreate,
   (void **s, unsigned f, int priority), (s, f, priority))
CU_ANY(cuStreamDestroy_v2, cuStreamDestroy, 4000, drv_StreamDestroy, (void *s), (s))
CU_ANY(cuStreamDestroy, cuStreamDestroy, 2000, drv_StreamDestroy, (void *s), (s))
CU_PTSZ(cuStreamSynchronize, cuStreamSynchronize, 2000, 7000, drv_StreamSynchronize, (void *s), (s))
CU_PTSZ(cuStreamQuery, cuStreamQuery, 2000, 7000, drv_StreamQuery, (void *s), (s))
CU_PTSZ(cuStreamWaitEvent, cuStreamWaitEvent, 3020, 7000, drv_StreamWaitEvent, (void *s, void *e, unsigned f), (s, e))
CU_PTSZ(cuStreamWriteValue32, cuStreamWriteValue32, 8000, 8000, sim_unsupported,
        (void *s, void *p, unsigned v, unsigned f), ())
CU_PTSZ(cuStreamGetPriority, cuStreamGetPriority, 5050, 7000, drv_StreamGetPriority, (void *s, int *v), (s, v))
CU_PTSZ(cuStreamGetFlags, cuStreamGetFlags, 5050, 7000, drv_StreamGetFlags, (void *s, unsigned *v), (s, v))
CU_PTSZ(cuStreamGetId, cuStreamGetId, 12000, 12000, drv_StreamGetId, (void *s, unsigned long long *v), (s, v))
CU_PTSZ(cuStreamGetCtx, cuStreamGetCtx, 9020, 9020, drv_StreamGetCtx, (void *s, void **c), (s, c))
CU_PTSZ(cuStreamGetDevice, cuStreamGetDevice, 12080, 12080, drv_StreamGetDevice, (void *s, int *d), (s, d))
CU_PTSZ(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, 7000, sim_done,
        (void *s, void *p, size_t n, unsigned f), ())
CU_PTSZ(cuStreamWriteValue32_v2, cuStreamWriteValue32, 11070, 11070, sim_done,
        (void *s, void *to, uint32_t value, unsigned f), ())
CU(cuEventCreate, cuEventCreate, 2000, drv_EventCreate, (void **e, unsigned f), (e))
CU_ANY(cuEventDestroy_v2, cuEventDestroy, 4000, drv_EventDestroy, (void *e), (e))
CU_ANY(cuEventDestroy, cuEventDestroy, 2000, drv_EventDestroy, (void *e), (e))
CU_PTSZ(cuEventRecord, cuEventRecord, 2000, 7000, drv_EventRecord, (void *e, void *s), (e, s))
CU_PTSZ(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, 11010, drv_EventRecord,
        (void *e, void *s, unsigned f), (e, s))
CU_ANY(cuEventQuery, cuEventQuery, 2000, sim_handle_use, (void *e), (e))
CU_ANY(cuEventSynchronize, cuEventSynchronize, 2000, sim_handle_use, (void *e), (e))
CU_ANY(cuEventElapsedTime, cuEventElapsedTime, 2000, drv_EventElapsedTime, (float *ms, void *a, void *b), (ms, a, b))
CU_ANY(cuEventElapsedTime_v2, cuEventElapsedTime, 12080, drv_EventElapsedTime, (float *ms, void *a, void *b),
       (ms, a, b))

// Stream capture
CU_PTSZ(cuStreamBeginCapture, cuStreamBeginCapture, 10000, 10000, sim_noted, (void *s),
        ("capture", s, drv_BeginCapture(s, NULL, 0)))
CU_PTSZ(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 10010, sim_noted, (void *s, int mode),
        ("capture", s, drv_BeginCapture(s, NULL, mode)))
CU_PTSZ(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 12030, sim_noted,
        (void *s, void *g, void **d, const void *edges, size_t n, int mode),
        ("capture", s, drv_BeginCapture(s, g, mode)))
CU_PTSZ(cuStreamEndCapture, cuStreamEndCapture, 10000, 10000, sim_noted, (void *s, void **g),
        ("capture", s, drv_EndCapture(s, g)))
CU_PTSZ(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 10000, drv_IsCapturing, (void *s, int *state), (s, state))
CU_PTSZ(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, 10010, drv_GetCaptureInfo,
        (void *s, int *state, unsigned long long *id), (s, state, id, NULL, NULL, NULL, NULL))
CU_PTSZ(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo, 11030, 11030, drv_GetCaptureInfo,
        (void *s, int *state, unsigned long long *id, void **g, const void ***d, size_t *n),
        (s, state, id, g, d, NULL, n))
CU_PTSZ(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo, 12030, 12030, drv_GetCaptureInfo,
        (void *s, int *state, unsigned long long *id, void **g, const void ***d, const void **edges, size_t *n),
        (s, state, id, g, d, edges, n))
CU_PTSZ(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030, 11030, drv_UpdateDependencies,
        (void *s, void **d, size_t n, unsigned f), (s, d, n, f))
CU_PTSZ(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies, 12030, 12030, drv_UpdateDependencies,
        (void *s, void **d, const void *edges, size_t n, unsigned f), (s, d, n, f))
CU_ANY(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, drv_ExchangeCaptureMode,
       (int *mode), (mode))

// Graphs
CU_ANY(cuGraphCreate, cuGraphCreate, 10000, drv_GraphCreate, (void **g, unsigned f), (g))
CU_ANY(cuGraphDestroy, cuGraphDestroy, 10000, sim_noted, (void *g), ("graph", g, drv_GraphDestroy(g)))
CU_ANY(cuGraphClone, cuGraphClone, 10000, drv_GraphClone, (void **clone, void *g), (clone, g))
CU(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, drv_AddMemAllocNode,
   (void **node, void *g, void *const *d, size_t n, struct memory_node_parameters *q), (node, g, d, n, q))
CU(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, drv_AddMemFreeNode,
   (void **node, void *g, void *const *d, size_t n, void *p), (node, g, d, n, p))
CU_ANY(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, drv_AddEmptyNode,
       (void **node, void *g, void *const *d, size_t n), (node, g, d, n))
CU_ANY(cuGraphAddHostNode, cuGraphAddHostNode, 10000, drv_AddHostNode,
       (void **node, void *g, void *const *d, size_t n, const struct host_node_parameters *q), (node, g, d, n, q))
CU_ANY(cuGraphAddKernelNode, cuGraphAddKernelNode, 10000, drv_AddKernelNode,
       (void **node, void *g, void *const *d, size_t n, const void *q), (node, g, d, n))
CU_ANY(cuGraphAddKernelNode_v2, cuGraphAddKernelNode, 12000, drv_AddKernelNode,
       (void **node, void *g, void *const *d, size_t n, const void *q), (node, g, d, n))
CU(cuGraphAddNode, cuGraphAddNode, 12020, drv_AddNode,
   (void **node, void *g, void *const *d, size_t n, struct node_parameters *q), (node, g, d, n, q))
CU(cuGraphAddNode_v2, cuGraphAddNode, 12030, drv_AddNode,
   (void **node, void *g, void *const *d, const void *edges, size_t n, struct node_parameters *q), (node, g, d, n, q))
CU_ANY(cuGraphDestroyNode, cuGraphDestroyNode, 10000, sim_handle_use, (void *node), (node))
CU_ANY(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, 12030, drv_ConditionalHandle,
       (unsigned long long *h, void *g, void *c, unsigned value, unsigned flags), (h))
CU_ANY(cuGraphGetNodes, cuGraphGetNodes, 10000, drv_GraphGetNodes, (void *g, void **nodes, size_t *n), (g, nodes, n))
CU_ANY(cuGraphGetRootNodes, cuGraphGetRootNodes, 10000, drv_GraphGetRootNodes,
       (void *g, void **nodes, size_t *n), (g, nodes, n))
CU_ANY(cuGraphNodeGetType, cuGraphNodeGetType, 10000, drv_NodeGetType, (void *node, int *type), (node, type))
CU_ANY(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, 10000, drv_NodeGetDependencies,
       (void *node, void **d, size_t *n), (node, d, n))
CU_ANY(cuGraphNodeGetDependencies_v2, cuGraphNodeGetDependencies, 12030, drv_NodeGetDependencies,
       (void *node, void **d, void *edges, size_t *n), (node, d, n))
CU_ANY(cuGraphInstantiate, cuGraphInstantiate, 10000, sim_noted_new,
       (void **e, void *g, void **node, char *log, size_t n), ("graph", e, drv_GraphInstantiate(e, g, 0)))
CU_ANY(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, sim_noted_new,
       (void **e, void *g, void **node, char *log, size_t n), ("graph", e, drv_GraphInstantiate(e, g, 0)))
CU_ANY(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, sim_noted_new,
       (void **e, void *g, unsigned long long f), ("graph", e, drv_GraphInstantiate(e, g, f)))
CU_PTSZ(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 12000, sim_noted_new,
        (void **e, void *g, struct instantiate_parameters *q), ("graph", e, drv_GraphInstantiateWithParams(e, g, q)))
CU_ANY(cuGraphExecUpdate, cuGraphExecUpdate, 10020, drv_GraphExecUpdate,
       (void *e, void *g, void **node, int *result), (e, g, result))
CU_ANY(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, drv_GraphExecUpdate_v2,
       (void *e, void *g, struct update_result *result), (e, g, result))
CU_ANY(cuGraphExecDestroy, cuGraphExecDestroy, 10000, sim_noted, (void *e), ("graph", e, drv_GraphExecDestroy(e)))
CU_PTSZ(cuGraphUpload, cuGraphUpload, 11010, 11010, drv_GraphUpload, (void *e, void *s), (e))
CU_PTSZ(cuGraphLaunch, cuGraphLaunch, 10000, 10000, drv_GraphLaunch, (void *e, void *s), (e, s))
CU_ANY(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, sim_noted, (int d), ("trim", NULL, drv_GraphMemTrim(d)))
CU_ANY(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, drv_GetGraphMemAttribute,
       (int d, int attribute, uint64_t *v), (d, attribute, v))
CU_ANY(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040, sim_done, (int d, int attribute, void *v), ())
CU_ANY(cuUserObjectCreate, cuUserObjectCreate, 11030, drv_UserObjectCreate,
       (void **o, void *data, void (*destroy)(void *), unsigned n, unsigned f), (o, data, destroy, n))
CU_ANY(cuUserObjectRetain, cuUserObjectRetain, 11030, drv_UserObjectRetain, (void *o, unsigned n), (o, n))
CU_ANY(cuUserObjectRelease, cuUserObjectRelease, 11030, drv_UserObjectRelease, (void *o, unsigned n), (o, n))
CU_ANY(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030, drv_GraphRetainUserObject,
       (void *g, void *o, unsigned n, unsigned f), (g, o, n, f))
CU_ANY(cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030, drv_GraphReleaseUserObject,
       (void *g, void *o, unsigned n), (g, o, n))
CU_ANY(cuProfilerStart, cuProfilerStart, 4000, sim_done, (void), ())
CU_ANY(cuProfilerStop, cuProfilerStop, 4000, sim_done, (void), ())
