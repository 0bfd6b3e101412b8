// The exported functions that HIP and the CUDA runtime share, one row each:
//
//     API(HIP name, CUDA name, body, parameters, arguments of the body)
//
// A front end defines API to take the name it wants, and includes this file. Functions of one vendor only, and those
// that do not answer a status, stand in that vendor's file. Parameters that no body needs (streams, copy kinds) are
// there for the caller's sake.

// Device memory
API(hipMalloc, cudaMalloc, Malloc, (void **p, size_t n), (p, n))
API(hipMallocManaged, cudaMallocManaged, MallocManaged, (void **p, size_t n, unsigned f), (p, n, f))
API(hipMallocPitch, cudaMallocPitch, MallocPitch, (void **p, size_t *pitch, size_t w, size_t h), (p, pitch, w, h))
API(hipMalloc3D, cudaMalloc3D, Malloc3D, (sim_pitched *p, sim_extent e), (p, e))
API(hipFree, cudaFree, Free, (void *p), (p))
API(hipMemGetInfo, cudaMemGetInfo, MemGetInfo, (size_t *free, size_t *total), (free, total))
API(hipDeviceReset, cudaDeviceReset, DeviceReset, (void), ())
API(hipDeviceSetLimit, cudaDeviceSetLimit, done, (int limit, size_t n), ())

// Arrays
API(hipMallocArray, cudaMallocArray, MallocArray,
    (void **a, const sim_channels *c, size_t w, size_t h, unsigned f), (a, c, w, h, f))
API(hipMalloc3DArray, cudaMalloc3DArray, Malloc3DArray,
    (void **a, const sim_channels *c, sim_extent e, unsigned f), (a, c, e, f))
API(hipMallocMipmappedArray, cudaMallocMipmappedArray, MallocMipmappedArray,
    (void **a, const sim_channels *c, sim_extent e, unsigned levels, unsigned f), (a, c, e, levels, f))
API(hipFreeArray, cudaFreeArray, FreeArray, (void *a), (a))
API(hipFreeMipmappedArray, cudaFreeMipmappedArray, FreeArray, (void *a), (a))

// Host memory
API(hipMallocHost, cudaMallocHost, HostMalloc, (void **p, size_t n), (p, n, 0))
API(hipHostAlloc, cudaHostAlloc, HostMalloc, (void **p, size_t n, unsigned f), (p, n, f))
API(hipFreeHost, cudaFreeHost, HostFree, (void *p), (p))
API(hipHostRegister, cudaHostRegister, HostRegister, (void *p, size_t n, unsigned f), (p, n, f))
API(hipHostUnregister, cudaHostUnregister, HostUnregister, (void *p), (p))
API(hipHostGetDevicePointer, cudaHostGetDevicePointer, HostGetDevicePointer,
    (void **d, void *h, unsigned f), (d, h, f))

// Stream-ordered memory
API(hipMallocAsync, cudaMallocAsync, OrderMalloc, (void **p, size_t n, void *s), (p, n, s))
API(hipMallocFromPoolAsync, cudaMallocFromPoolAsync, OrderMallocFromPool,
    (void **p, size_t n, void *pool, void *s), (p, n, pool, s))
API(hipFreeAsync, cudaFreeAsync, OrderFree, (void *p, void *s), (p, s))
API(hipMemPoolCreate, cudaMemPoolCreate, MemPoolCreate, (void **p, const sim_pool_properties *q), (p, q))
API(hipMemPoolDestroy, cudaMemPoolDestroy, MemPoolDestroy, (void *p), (p))
API(hipMemPoolTrimTo, cudaMemPoolTrimTo, noted, (void *p, size_t keep), ("trim", p, sim_MemPoolTrimTo(p, keep)))
API(hipMemPoolSetAttribute, cudaMemPoolSetAttribute, noted, (void *p, int a, void *v),
    ("attribute", p, sim_MemPoolSetAttribute(p, a, v)))
API(hipMemPoolGetAttribute, cudaMemPoolGetAttribute, MemPoolGetAttribute, (void *p, int a, void *v), (p, a, v))
API(hipDeviceGetDefaultMemPool, cudaDeviceGetDefaultMemPool, DeviceGetDefaultMemPool, (void **p, int d), (p, d))
API(hipDeviceGetMemPool, cudaDeviceGetMemPool, DeviceGetMemPool, (void **p, int d), (p, d))
API(hipDeviceSetMemPool, cudaDeviceSetMemPool, DeviceSetMemPool, (int d, void *p), (d, p))

// Memory of other processes
API(hipMemPoolExportToShareableHandle, cudaMemPoolExportToShareableHandle, noted,
    (void *h, void *p, int type, unsigned f), ("export", p, sim_MemPoolExportToShareableHandle(h, p, type)))
API(hipMemPoolImportFromShareableHandle, cudaMemPoolImportFromShareableHandle, unsupported,
    (void **p, void *h, int type, unsigned f), ())
API(hipMemPoolExportPointer, cudaMemPoolExportPointer, noted, (void *data, void *p),
    ("export", p, sim_MemPoolExportPointer(data, p)))
API(hipMemPoolImportPointer, cudaMemPoolImportPointer, unsupported, (void **p, void *pool, void *data), ())
API(hipIpcGetMemHandle, cudaIpcGetMemHandle, noted, (sim_ipc_handle *h, void *p),
    ("export", p, sim_IpcGetMemHandle(h, p)))
API(hipIpcOpenMemHandle, cudaIpcOpenMemHandle, IpcOpenMemHandle, (void **p, sim_ipc_handle h, unsigned f), (p, &h))
API(hipIpcCloseMemHandle, cudaIpcCloseMemHandle, IpcCloseMemHandle, (void *p), (p))
API(hipImportExternalMemory, cudaImportExternalMemory, unsupported, (void **m, const void *d), ())
API(hipDestroyExternalMemory, cudaDestroyExternalMemory, unsupported, (void *m), ())
API(hipExternalMemoryGetMappedBuffer, cudaExternalMemoryGetMappedBuffer, unsupported,
    (void **p, void *m, const void *d), ())

// Memory nodes of graphs, and of graphics
API(hipGraphAddMemAllocNode, cudaGraphAddMemAllocNode, GraphAddMemAllocNode,
    (void **node, void *g, const void *d, size_t n, sim_memory_node *q), (node, q))
API(hipGraphAddMemFreeNode, cudaGraphAddMemFreeNode, GraphAddMemFreeNode,
    (void **node, void *g, const void *d, size_t n, void *p), (node, p))
API(hipDeviceSetGraphMemAttribute, cudaDeviceSetGraphMemAttribute, done, (int device, int a, void *v), ())
API(hipGraphicsMapResources, cudaGraphicsMapResources, done, (int n, void **resources, void *s), ())
API(hipGraphicsUnmapResources, cudaGraphicsUnmapResources, done, (int n, void **resources, void *s), ())
API(hipGraphicsResourceGetMappedPointer, cudaGraphicsResourceGetMappedPointer, GraphicsResourceGetMappedPointer,
    (void **p, size_t *n, void *resource), (p, n, resource))
API(hipDeviceGraphMemTrim, cudaDeviceGraphMemTrim, noted, (int device), ("trim", NULL, SIM_SUCCESS))

// Copies and fills
API(hipMemcpy, cudaMemcpy, Memcpy, (void *to, const void *from, size_t n, int kind), (to, from, n))
API(hipMemcpyAsync, cudaMemcpyAsync, Memcpy, (void *to, const void *from, size_t n, int kind, void *s), (to, from, n))
API(hipMemcpyPeer, cudaMemcpyPeer, Memcpy, (void *to, int td, const void *from, int fd, size_t n), (to, from, n))
API(hipMemcpyPeerAsync, cudaMemcpyPeerAsync, Memcpy,
    (void *to, int td, const void *from, int fd, size_t n, void *s), (to, from, n))
API(hipMemcpy2D, cudaMemcpy2D, Memcpy2D,
    (void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, int kind), (to, tp, from, fp, w, h))
API(hipMemcpy2DAsync, cudaMemcpy2DAsync, Memcpy2D,
    (void *to, size_t tp, const void *from, size_t fp, size_t w, size_t h, int kind, void *s), (to, tp, from, fp, w, h))
API(hipMemcpy3D, cudaMemcpy3D, Memcpy3D, (const sim_copy3d *c), (c))
API(hipMemcpy3DAsync, cudaMemcpy3DAsync, Memcpy3D, (const sim_copy3d *c, void *s), (c))
API(hipMemset, cudaMemset, Memset, (void *to, int value, size_t n), (to, value, n))
API(hipMemsetAsync, cudaMemsetAsync, Memset, (void *to, int value, size_t n, void *s), (to, value, n))
API(hipMemset2D, cudaMemset2D, Memset2D, (void *to, size_t p, int value, size_t w, size_t h), (to, p, value, w, h))
API(hipMemset2DAsync, cudaMemset2DAsync, Memset2D,
    (void *to, size_t p, int value, size_t w, size_t h, void *s), (to, p, value, w, h))
API(hipMemPrefetchAsync, cudaMemPrefetchAsync, MemPrefetch, (const void *p, size_t n, int device, void *s), (p, device))
API(hipMemAdvise, cudaMemAdvise, done, (const void *p, size_t n, int advice, int device), ())

// Launches, streams, events, graphs
API(hipLaunchKernel, cudaLaunchKernel, Launch,
    (const void *f, sim_dim3 grid, sim_dim3 block, void **args, size_t shared, void *s), (f))
API(hipLaunchCooperativeKernel, cudaLaunchCooperativeKernel, Launch,
    (const void *f, sim_dim3 grid, sim_dim3 block, void **args, unsigned shared, void *s), (f))
API(hipDeviceSynchronize, cudaDeviceSynchronize, noted, (void), ("sync", NULL, sim_DeviceSynchronize()))
API(hipStreamCreate, cudaStreamCreate, object_create, (void **s), (s))
API(hipStreamCreateWithFlags, cudaStreamCreateWithFlags, object_create, (void **s, unsigned f), (s))
API(hipStreamCreateWithPriority, cudaStreamCreateWithPriority, object_create, (void **s, unsigned f, int p), (s))
API(hipStreamDestroy, cudaStreamDestroy, object_destroy, (void *s), (s))
API(hipStreamSynchronize, cudaStreamSynchronize, noted, (void *s), ("sync", s, sim_StreamSynchronize()))
API(hipStreamQuery, cudaStreamQuery, done, (void *s), ())
API(hipStreamWaitEvent, cudaStreamWaitEvent, handle_use, (void *s, void *e, unsigned f), (e))
API(hipEventCreate, cudaEventCreate, handle_create, (void **e), (e))
API(hipEventCreateWithFlags, cudaEventCreateWithFlags, handle_create, (void **e, unsigned f), (e))
API(hipEventRecord, cudaEventRecord, handle_use, (void *e, void *s), (e))
API(hipEventSynchronize, cudaEventSynchronize, noted, (void *e), ("sync", e, sim_handle_use(e)))
API(hipEventQuery, cudaEventQuery, handle_use, (void *e), (e))
API(hipEventElapsedTime, cudaEventElapsedTime, EventElapsedTime, (float *ms, void *a, void *b), (ms, a, b))
API(hipEventDestroy, cudaEventDestroy, handle_use, (void *e), (e))
API(hipStreamBeginCapture, cudaStreamBeginCapture, noted, (void *s, int mode),
    ("capture", s, sim_StreamBeginCapture(s, mode)))
API(hipStreamEndCapture, cudaStreamEndCapture, noted, (void *s, void **g), ("capture", s, sim_StreamEndCapture(s, g)))
API(hipStreamIsCapturing, cudaStreamIsCapturing, StreamIsCapturing, (void *s, int *state), (s, state))
API(hipGraphCreate, cudaGraphCreate, handle_create, (void **g, unsigned f), (g))
API(hipGraphInstantiateWithFlags, cudaGraphInstantiateWithFlags, noted_new,
    (void **e, void *g, unsigned long long f), ("graph", e, sim_object_create(e)))
API(hipGraphLaunch, cudaGraphLaunch, handle_use, (void *e, void *s), (e))
API(hipGraphExecDestroy, cudaGraphExecDestroy, noted, (void *e), ("graph", e, sim_object_destroy(e)))
API(hipGraphDestroy, cudaGraphDestroy, noted, (void *g), ("graph", g, sim_handle_use(g)))

// Libraries of kernels
API(hipLibraryLoadData, cudaLibraryLoadData, noted_new,
    (void **m, const void *image, void *o, void **v, unsigned n, void *lo, void **lv, unsigned ln),
    ("module", m, sim_object_create(m)))
API(hipLibraryLoadFromFile, cudaLibraryLoadFromFile, noted_new,
    (void **m, const char *path, void *o, void **v, unsigned n, void *lo, void **lv, unsigned ln),
    ("module", m, sim_object_create(m)))
API(hipLibraryUnload, cudaLibraryUnload, noted, (void *m), ("module", m, sim_object_destroy(m)))

// Devices and versions
API(hipGetDeviceCount, cudaGetDeviceCount, GetDeviceCount, (int *n), (n))
API(hipSetDevice, cudaSetDevice, SetDevice, (int d), (d))
API(hipGetDevice, cudaGetDevice, GetDevice, (int *d), (d))
API(hipDeviceGetAttribute, cudaDeviceGetAttribute, DeviceGetAttribute, (int *v, int a, int d), (v, a, d))
API(hipDeviceGetPCIBusId, cudaDeviceGetPCIBusId, DeviceGetPCIBusId, (char *t, int n, int d), (t, n, d))
API(hipRuntimeGetVersion, cudaRuntimeGetVersion, version, (int *v), (v))
API(hipDriverGetVersion, cudaDriverGetVersion, version, (int *v), (v))
