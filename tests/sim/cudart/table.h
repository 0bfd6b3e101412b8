// The runtime's functions: name, parameters, and what they answer. `d` is the driver.

// Device memory
RT(cudaMalloc, (void **p, size_t n), rt_Malloc(d, p, n))
RT(cudaMallocManaged, (void **p, size_t n, unsigned f), d->cuMemAllocManaged(p, n, f))
RT(cudaMallocPitch, (void **p, size_t *pitch, size_t w, size_t h), rt_MallocPitch(d, p, pitch, w, h))
RT(cudaMalloc3D, (struct pitched *p, struct extent e), rt_Malloc3D(d, p, e))
RT(cudaFree, (void *p), p ? d->cuMemFree(p) : SIM_SUCCESS)
RT(cudaMemGetInfo, (size_t *free, size_t *total), d->cuMemGetInfo(free, total))
RT(cudaMallocArray, (void **a, const struct channels *c, size_t w, size_t h, unsigned f),
   rt_MallocArray(d, a, c, w, h, f))
RT(cudaMalloc3DArray, (void **a, const struct channels *c, struct extent e, unsigned f),
   rt_Malloc3DArray(d, a, c, e, f))
RT(cudaMallocMipmappedArray, (void **a, const struct channels *c, struct extent e, unsigned levels, unsigned f),
   rt_MallocMipmappedArray(d, a, c, e, levels, f))
RT(cudaGetMipmappedArrayLevel, (void **a, void *mipmapped, unsigned level),
   d->cuMipmappedArrayGetLevel(a, mipmapped, level))
RT(cudaFreeArray, (void *a), a ? d->cuArrayDestroy(a) : SIM_SUCCESS)
RT(cudaFreeMipmappedArray, (void *a), a ? d->cuMipmappedArrayDestroy(a) : SIM_SUCCESS)

// Host memory
RT(cudaMallocHost, (void **p, size_t n), rt_MallocHost(d, p, n, 0))
RT(cudaHostAlloc, (void **p, size_t n, unsigned f), rt_MallocHost(d, p, n, f))
RT(cudaFreeHost, (void *p), p ? d->cuMemFreeHost(p) : SIM_SUCCESS)
RT(cudaHostRegister, (void *p, size_t n, unsigned f), d->cuMemHostRegister(p, n, f))
RT(cudaHostUnregister, (void *p), d->cuMemHostUnregister(p))
RT(cudaHostGetDevicePointer, (void **p, void *h, unsigned f), d->cuMemHostGetDevicePointer(p, h, f))
RT(cudaHostGetFlags, (unsigned *f, void *p), d->cuMemHostGetFlags(f, p))

// Stream-ordered memory
RT_PTSZ(cudaMallocAsync, (void **p, size_t n, void *s), rt_MallocAsync(d, p, n, NULL, s))
RT_PTSZ(cudaMallocFromPoolAsync, (void **p, size_t n, void *pool, void *s), rt_MallocAsync(d, p, n, pool, s))
RT_PTSZ(cudaFreeAsync, (void *p, void *s), d->cuMemFreeAsync(p, s))
RT(cudaMemPoolCreate, (void **p, const void *q), d->cuMemPoolCreate(p, q))
RT(cudaMemPoolDestroy, (void *p), d->cuMemPoolDestroy(p))
RT(cudaMemPoolTrimTo, (void *p, size_t keep), d->cuMemPoolTrimTo(p, keep))
RT(cudaMemPoolSetAttribute, (void *p, int a, void *v), d->cuMemPoolSetAttribute(p, a, v))
RT(cudaMemPoolGetAttribute, (void *p, int a, void *v), d->cuMemPoolGetAttribute(p, a, v))
RT(cudaMemPoolSetAccess, (void *p, const void *q, size_t n), d->cuMemPoolSetAccess(p, q, n))
RT(cudaMemPoolGetAccess, (int *flags, void *p, const struct location *l), d->cuMemPoolGetAccess(flags, p, l))
RT(cudaMemPoolExportToShareableHandle, (void *h, void *p, int type, unsigned f),
   d->cuMemPoolExportToShareableHandle(h, p, type, f))
RT(cudaMemPoolImportFromShareableHandle, (void **p, void *h, int type, unsigned f),
   d->cuMemPoolImportFromShareableHandle(p, h, type, f))
RT(cudaMemPoolExportPointer, (void *data, void *p), d->cuMemPoolExportPointer(data, p))
RT(cudaMemPoolImportPointer, (void **p, void *pool, void *data), d->cuMemPoolImportPointer(p, pool, data))
RT(cudaDeviceGetDefaultMemPool, (void **p, int device), d->cuDeviceGetDefaultMemPool(p, device))
RT(cudaDeviceGetMemPool, (void **p, int device), d->cuDeviceGetMemPool(p, device))
RT(cudaDeviceSetMemPool, (int device, void *p), d->cuDeviceSetMemPool(device, p))
RT(cudaMemGetDefaultMemPool, (void **p, struct location *l, int type), d->cuMemGetDefaultMemPool(p, l, type))
RT(cudaMemGetMemPool, (void **p, struct location *l, int type), d->cuMemGetMemPool(p, l, type))
RT(cudaMemSetMemPool, (struct location *l, int type, void *p), d->cuMemSetMemPool(l, type, p))

// Memory of other processes and other interfaces
RT(cudaIpcGetMemHandle, (struct ipc_handle *h, void *p), d->cuIpcGetMemHandle(h, p))
RT(cudaIpcOpenMemHandle, (void **p, struct ipc_handle h, unsigned f), d->cuIpcOpenMemHandle(p, h, f))
RT(cudaIpcCloseMemHandle, (void *p), d->cuIpcCloseMemHandle(p))
RT(cudaIpcGetEventHandle, (struct ipc_handle *h, void *e), d->cuIpcGetEventHandle(h, e))
RT(cudaIpcOpenEventHandle, (void **e, struct ipc_handle h), d->cuIpcOpenEventHandle(e, h))
RT(cudaImportExternalMemory, (void **m, const void *q), d->cuImportExternalMemory(m, q))
RT(cudaExternalMemoryGetMappedBuffer, (void **p, void *m, const void *q), d->cuExternalMemoryGetMappedBuffer(p, m, q))
RT(cudaExternalMemoryGetMappedMipmappedArray, (void **a, void *m, const void *q),
   d->cuExternalMemoryGetMappedMipmappedArray(a, m, q))
RT(cudaDestroyExternalMemory, (void *m), d->cuDestroyExternalMemory(m))

// Copies and fills
RT_PTDS(cudaMemcpy, (void *to, const void *from, size_t n, int kind), rt_Memcpy(d, to, from, n, kind))
RT_PTSZ(cudaMemcpyAsync, (void *to, const void *from, size_t n, int kind, void *s),
        rt_MemcpyAsync(d, to, from, n, kind, s))
RT(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t n), rt_Memcpy(d, to, from, n, 4))
RT(cudaMemcpyPeerAsync, (void *to, int to_device, const void *from, int from_device, size_t n, void *s),
   rt_MemcpyAsync(d, to, from, n, 4, s))
RT_PTDS(cudaMemcpy2D, (void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, int kind),
        rt_Memcpy2D(d, to, tp, from, fp, w, h, kind))
RT_PTSZ(cudaMemcpy2DAsync, (void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, int kind, void *s),
        rt_Memcpy2DAsync(d, to, tp, from, fp, w, h, kind, s))
RT_PTDS(cudaMemcpy3D, (const struct runtime_copy3d *c), rt_Memcpy3D(d, c))
RT_PTSZ(cudaMemcpy3DAsync, (const struct runtime_copy3d *c, void *s), rt_Memcpy3DAsync(d, c, s))
RT_PTDS(cudaMemset, (void *to, int v, size_t n), d->cuMemsetD8(to, (unsigned char)v, n))
RT_PTSZ(cudaMemsetAsync, (void *to, int v, size_t n, void *s), d->cuMemsetD8Async(to, (unsigned char)v, n, s))
RT_PTDS(cudaMemset2D, (void *to, size_t p, int v, size_t w, size_t h), d->cuMemsetD2D8(to, p, (unsigned char)v, w, h))
RT_PTSZ(cudaMemset2DAsync, (void *to, size_t p, int v, size_t w, size_t h, void *s),
        d->cuMemsetD2D8Async(to, p, (unsigned char)v, w, h, s))
RT_PTDS(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t n, size_t offset, int kind),
        rt_MemcpyToSymbol(d, symbol, from, n, offset, NULL, false))
RT_PTSZ(cudaMemcpyToSymbolAsync, (const void *symbol, const void *from, size_t n, size_t offset, int kind, void *s),
        rt_MemcpyToSymbol(d, symbol, from, n, offset, s, true))
RT_PTDS(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t n, size_t offset, int kind),
        rt_MemcpyFromSymbol(d, to, symbol, n, offset, NULL, false))
RT_PTSZ(cudaMemcpyFromSymbolAsync, (void *to, const void *symbol, size_t n, size_t offset, int kind, void *s),
        rt_MemcpyFromSymbol(d, to, symbol, n, offset, s, true))
RT(cudaGetSymbolAddress, (void **p, const void *symbol), rt_GetSymbolAddress(p, symbol))
RT(cudaGetSymbolSize, (size_t *n, const void *symbol), rt_GetSymbolSize(n, symbol))
RT_PTSZ(cudaMemPrefetchAsync, (const void *p, size_t n, struct location l, unsigned f, void *s),
        d->cuMemPrefetchAsync(p, n, l, f, s))
RT(cudaMemAdvise, (const void *p, size_t n, int advice, struct location l), d->cuMemAdvise(p, n, advice, l))
RT_ANY(cudaPointerGetAttributes, (struct pointer_attributes *a, const void *p), rt_PointerGetAttributes(d, a, p))

// Launches and kernels
RT_PTSZ(cudaLaunchKernel, (const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *s),
        rt_Launch(d, f, grid, block, args, shared, s))
RT_PTSZ(__cudaLaunchKernel, (void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *s),
        rt_Launch(d, f, grid, block, args, shared, s))
RT_PTSZ(cudaLaunchCooperativeKernel,
        (const void *f, struct dim3 grid, struct dim3 block, void **args, size_t shared, void *s),
        rt_LaunchCooperative(d, f, grid, block, args, shared, s))
RT_PTSZ(cudaLaunchKernelExC, (const struct launch_configuration *c, const void *f, void **args),
        rt_LaunchEx(d, c, f, args))
RT_PTSZ(cudaLaunchHostFunc, (void *s, void (*f)(void *), void *data), d->cuLaunchHostFunc(s, f, data))
RT_PTSZ(cudaStreamAddCallback, (void *s, void (*f)(void *, int, void *), void *data, unsigned flags),
        d->cuStreamAddCallback(s, f, data, flags))
RT(__cudaGetKernel, (void **kernel, const void *f), rt_GetKernel(d, kernel, f))
RT(cudaGetKernel, (void **kernel, const void *f), rt_GetKernel(d, kernel, f))
RT(cudaGetFuncBySymbol, (void **function, const void *f), rt_GetKernel(d, function, f))
RT(cudaFuncGetAttributes, (struct function_attributes *a, const void *f), rt_FuncGetAttributes(d, a, f))
RT(cudaFuncSetAttribute, (const void *f, int a, int v), rt_FuncSetAttribute(d, f, a, v))
RT(cudaFuncSetCacheConfig, (const void *f, int v), rt_FuncSetCacheConfig(d, f, v))
RT(cudaFuncGetName, (const char **name, const void *f), rt_FuncGetName(d, name, f))
RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *n, const void *f, int block, size_t shared),
   rt_Occupancy(d, n, f, block, shared))
RT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
   (int *n, const void *f, int block, size_t shared, unsigned flags),
   rt_Occupancy(d, n, f, block, shared))
RT(cudaLibraryLoadData, (void **m, const void *code, int *jo, void **jv, unsigned jn, int *lo, void **lv, unsigned ln),
   d->cuLibraryLoadData(m, code, jo, jv, jn, lo, lv, ln))
RT(cudaLibraryLoadFromFile,
   (void **m, const char *path, int *jo, void **jv, unsigned jn, int *lo, void **lv, unsigned ln),
   d->cuLibraryLoadFromFile(m, path, jo, jv, jn, lo, lv, ln))
RT(cudaLibraryUnload, (void *m), d->cuLibraryUnload(m))
RT(cudaLibraryGetKernel, (void **kernel, void *m, const char *name), d->cuLibraryGetKernel(kernel, m, name))
RT(cudaKernelSetAttributeForDevice, (void *k, int a, int v, int device), d->cuKernelSetAttribute(a, v, k, device))

// Streams and events
RT(cudaStreamCreate, (void **s), d->cuStreamCreate(s, 0))
RT(cudaStreamCreateWithFlags, (void **s, unsigned f), d->cuStreamCreate(s, f))
RT(cudaStreamCreateWithPriority, (void **s, unsigned f, int priority), d->cuStreamCreateWithPriority(s, f, priority))
RT(cudaStreamDestroy, (void *s), d->cuStreamDestroy(s))
RT_PTSZ(cudaStreamSynchronize, (void *s), d->cuStreamSynchronize(s))
RT_PTSZ(cudaStreamQuery, (void *s), d->cuStreamQuery(s))
RT_PTSZ(cudaStreamWaitEvent, (void *s, void *e, unsigned f), d->cuStreamWaitEvent(s, e, f))
RT_PTSZ(cudaStreamGetPriority, (void *s, int *v), d->cuStreamGetPriority(s, v))
RT_PTSZ(cudaStreamGetFlags, (void *s, unsigned *v), d->cuStreamGetFlags(s, v))
RT_PTSZ(cudaStreamGetId, (void *s, unsigned long long *v), d->cuStreamGetId(s, v))
RT_PTSZ(cudaStreamGetDevice, (void *s, int *device), d->cuStreamGetDevice(s, device))
RT_PTSZ(cudaStreamAttachMemAsync, (void *s, void *p, size_t n, unsigned f), d->cuStreamAttachMemAsync(s, p, n, f))
RT(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), d->cuCtxGetStreamPriorityRange(least, greatest))
RT(cudaEventCreate, (void **e), d->cuEventCreate(e, 0))
RT(cudaEventCreateWithFlags, (void **e, unsigned f), d->cuEventCreate(e, f))
RT(cudaEventDestroy, (void *e), d->cuEventDestroy(e))
RT_PTSZ(cudaEventRecord, (void *e, void *s), d->cuEventRecord(e, s))
RT_PTSZ(cudaEventRecordWithFlags, (void *e, void *s, unsigned f), d->cuEventRecordWithFlags(e, s, f))
RT(cudaEventQuery, (void *e), d->cuEventQuery(e))
RT(cudaEventSynchronize, (void *e), d->cuEventSynchronize(e))
RT(cudaEventElapsedTime, (float *ms, void *a, void *b), d->cuEventElapsedTime(ms, a, b))

// Capture and graphs
RT_PTSZ(cudaStreamBeginCapture, (void *s, int mode), d->cuStreamBeginCapture(s, mode))
RT_PTSZ(cudaStreamBeginCaptureToGraph, (void *s, void *g, void **q, const void *edges, size_t n, int mode),
        d->cuStreamBeginCaptureToGraph(s, g, q, edges, n, mode))
RT_PTSZ(cudaStreamEndCapture, (void *s, void **g), d->cuStreamEndCapture(s, g))
RT_PTSZ(cudaStreamIsCapturing, (void *s, int *state), d->cuStreamIsCapturing(s, state))
RT_PTSZ(cudaStreamGetCaptureInfo,
        (void *s, int *state, unsigned long long *id, void **g, const void ***q, const void **edges, size_t *n),
        sim_cudart_major >= 13 ? d->cuStreamGetCaptureInfo(s, state, id, g, q, edges, n)
                               : d->cuStreamGetCaptureInfo(s, state, id, NULL, NULL, NULL, NULL))
// Until CUDA 12: no edges, and the name without a number asks for the state and the id alone.
RT_PTSZ(cudaStreamGetCaptureInfo_v2,
        (void *s, int *state, unsigned long long *id, void **g, const void ***q, size_t *n),
        d->cuStreamGetCaptureInfo(s, state, id, g, q, NULL, n))
RT_PTSZ(cudaStreamUpdateCaptureDependencies, (void *s, void **q, const void *edges, size_t n, unsigned f),
        d->cuStreamUpdateCaptureDependencies(s, q, edges, n, f))
RT_ANY(cudaThreadExchangeStreamCaptureMode, (int *mode), d->cuThreadExchangeStreamCaptureMode(mode))
RT(cudaGraphCreate, (void **g, unsigned f), d->cuGraphCreate(g, f))
RT(cudaGraphDestroy, (void *g), d->cuGraphDestroy(g))
RT(cudaGraphClone, (void **clone, void *g), d->cuGraphClone(clone, g))
RT(cudaGraphAddMemAllocNode, (void **node, void *g, void *const *q, size_t n, void *parameters),
   d->cuGraphAddMemAllocNode(node, g, q, n, parameters))
RT(cudaGraphAddMemFreeNode, (void **node, void *g, void *const *q, size_t n, void *p),
   d->cuGraphAddMemFreeNode(node, g, q, n, p))
RT(cudaGraphAddEmptyNode, (void **node, void *g, void *const *q, size_t n), d->cuGraphAddEmptyNode(node, g, q, n))
RT(cudaGraphAddHostNode, (void **node, void *g, void *const *q, size_t n, const void *parameters),
   d->cuGraphAddHostNode(node, g, q, n, parameters))
RT(cudaGraphAddKernelNode, (void **node, void *g, void *const *q, size_t n, const void *parameters),
   d->cuGraphAddKernelNode(node, g, q, n, parameters))
RT(cudaGraphAddNode, (void **node, void *g, void *const *q, const void *edges, size_t n, void *parameters),
   d->cuGraphAddNode(node, g, q, edges, n, parameters))
RT(cudaGraphDestroyNode, (void *node), d->cuGraphDestroyNode(node))
RT(cudaGraphConditionalHandleCreate, (unsigned long long *h, void *g, unsigned value, unsigned f),
   rt_ConditionalHandle(d, h, g, value, f))
RT(cudaGraphGetNodes, (void *g, void **nodes, size_t *n), d->cuGraphGetNodes(g, nodes, n))
RT(cudaGraphGetRootNodes, (void *g, void **nodes, size_t *n), d->cuGraphGetRootNodes(g, nodes, n))
RT(cudaGraphNodeGetType, (void *node, int *type), d->cuGraphNodeGetType(node, type))
RT(cudaGraphNodeGetDependencies, (void *node, void **q, void *edges, size_t *n),
   d->cuGraphNodeGetDependencies(node, q, edges, n))
// CUDA 11 has a node, a text and its length in place of the flags.
RT(cudaGraphInstantiate, (void **e, void *g, unsigned long long f),
   d->cuGraphInstantiateWithFlags(e, g, sim_cudart_major < 12 ? 0 : f))
RT(cudaGraphInstantiateWithFlags, (void **e, void *g, unsigned long long f), d->cuGraphInstantiateWithFlags(e, g, f))
RT_PTSZ(cudaGraphInstantiateWithParams, (void **e, void *g, void *q), d->cuGraphInstantiateWithParams(e, g, q))
RT(cudaGraphExecUpdate, (void *e, void *g, void *result), d->cuGraphExecUpdate(e, g, result))
RT(cudaGraphExecDestroy, (void *e), d->cuGraphExecDestroy(e))
RT_PTSZ(cudaGraphUpload, (void *e, void *s), d->cuGraphUpload(e, s))
RT_PTSZ(cudaGraphLaunch, (void *e, void *s), d->cuGraphLaunch(e, s))
RT(cudaDeviceGraphMemTrim, (int device), d->cuDeviceGraphMemTrim(device))
RT(cudaDeviceGetGraphMemAttribute, (int device, int a, void *v), d->cuDeviceGetGraphMemAttribute(device, a, v))
RT(cudaDeviceSetGraphMemAttribute, (int device, int a, void *v), d->cuDeviceSetGraphMemAttribute(device, a, v))
RT_ANY(cudaUserObjectCreate, (void **o, void *data, void (*destroy)(void *), unsigned n, unsigned f),
       d->cuUserObjectCreate(o, data, destroy, n, f))
RT_ANY(cudaUserObjectRetain, (void *o, unsigned n), d->cuUserObjectRetain(o, n))
RT_ANY(cudaUserObjectRelease, (void *o, unsigned n), d->cuUserObjectRelease(o, n))
RT(cudaGraphRetainUserObject, (void *g, void *o, unsigned n, unsigned f), d->cuGraphRetainUserObject(g, o, n, f))
RT(cudaGraphReleaseUserObject, (void *g, void *o, unsigned n), d->cuGraphReleaseUserObject(g, o, n))

// Devices and versions
RT_ANY(cudaGetDeviceCount, (int *n), d->cuDeviceGetCount(n))
RT_ANY(cudaSetDevice, (int device), rt_SetDevice(d, device))
RT_ANY(cudaGetDevice, (int *device), rt_GetDevice(d, device))
RT_ANY(cudaInitDevice, (int device, unsigned device_flags, unsigned flags), rt_SetDevice(d, device))
RT_ANY(cudaSetDeviceFlags, (unsigned f), SIM_SUCCESS)
RT_ANY(cudaGetDeviceFlags, (unsigned *f), put((int *)f, 0))
RT_ANY(cudaSetValidDevices, (int *devices, int n), SIM_SUCCESS)
RT_ANY(cudaGetDeviceProperties, (void *q, int device), rt_GetDeviceProperties(d, q, device))
RT_ANY(cudaGetDeviceProperties_v2, (void *q, int device), rt_GetDeviceProperties(d, q, device))
RT_ANY(cudaDeviceGetAttribute, (int *v, int a, int device), d->cuDeviceGetAttribute(v, a, device))
RT_ANY(cudaDeviceGetPCIBusId, (char *t, int n, int device), d->cuDeviceGetPCIBusId(t, n, device))
RT_ANY(cudaDeviceGetByPCIBusId, (int *device, const char *t), d->cuDeviceGetByPCIBusId(device, t))
RT_ANY(cudaDeviceCanAccessPeer, (int *can, int device, int peer), d->cuDeviceCanAccessPeer(can, device, peer))
RT_ANY(cudaDeviceGetP2PAttribute, (int *v, int a, int device, int peer), d->cuDeviceGetP2PAttribute(v, a, device, peer))
RT(cudaDeviceEnablePeerAccess, (int peer, unsigned f), rt_EnablePeerAccess(d, peer))
RT(cudaDeviceDisablePeerAccess, (int peer), rt_DisablePeerAccess(d, peer))
RT(cudaDeviceSynchronize, (void), d->cuCtxSynchronize())
RT(cudaDeviceReset, (void), rt_DeviceReset(d))
RT(cudaDeviceGetLimit, (size_t *n, int limit), d->cuCtxGetLimit(n, limit))
RT(cudaDeviceSetLimit, (int limit, size_t n), d->cuCtxSetLimit(limit, n))
RT(cudaProfilerStart, (void), d->cuProfilerStart())
RT(cudaProfilerStop, (void), d->cuProfilerStop())
RT_FREE(cudaRuntimeGetVersion, (int *v), put(v, RUNTIME_VERSION))
RT_ANY(cudaDriverGetVersion, (int *v), d->cuDriverGetVersion(v))
RT_ANY(cudaGetExportTable, (const void **t, const void *id), d->cuGetExportTable(t, id))

// The driver's functions by name
#define ENTRY_POINT(version) rt_GetDriverEntryPoint(d, stream_api, name, f, version, flags, found)
RT_PTSZ(cudaGetDriverEntryPoint, (const char *name, void **f, unsigned long long flags, int *found),
        sim_cudart_major < 12 ? rt_GetDriverEntryPoint(d, stream_api, name, f, RUNTIME_VERSION, flags, NULL)  // three parameters
                              : ENTRY_POINT(RUNTIME_VERSION))
RT_PTSZ(cudaGetDriverEntryPointByVersion,
        (const char *name, void **f, unsigned version, unsigned long long flags, int *found), ENTRY_POINT(version))
#undef ENTRY_POINT
