// The driver functions that allocate, free, map, copy and fill.
//
// Legacy functions, those without _v2, have 32-bit sizes and device addresses.

// Device memory
CU(cuMemAlloc_v2, cuMemAlloc, 3020, drv_MemAlloc, (void **p, size_t n), (p, n))
CU(cuMemAlloc, cuMemAlloc, 2000, drv_MemAlloc_v1, (unsigned *p, unsigned n), (p, n))
CU(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, drv_MemAllocPitch,
   (void **p, size_t *pitch, size_t w, size_t h, unsigned element), (p, pitch, w, h, element))
CU(cuMemAllocPitch, cuMemAllocPitch, 2000, drv_MemAllocPitch_v1,
   (unsigned *p, unsigned *pitch, unsigned w, unsigned h, unsigned element), (p, pitch, w, h, element))
CU(cuMemAllocManaged, cuMemAllocManaged, 6000, drv_MemAllocManaged, (void **p, size_t n, unsigned f), (p, n, f))
CU(cuMemFree_v2, cuMemFree, 3020, drv_MemFree, (void *p), (p))
CU(cuMemFree, cuMemFree, 2000, drv_MemFree_v1, (unsigned p), (p))
CU(cuMemGetInfo_v2, cuMemGetInfo, 3020, sim_MemGetInfo, (size_t *free, size_t *total), (free, total))
CU(cuMemGetInfo, cuMemGetInfo, 2000, drv_MemGetInfo_v1, (unsigned *free, unsigned *total), (free, total))
CU(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, drv_MemGetAddressRange,
   (void **base, size_t *n, void *p), (base, n, p))
CU(cuMemGetAddressRange, cuMemGetAddressRange, 2000, drv_MemGetAddressRange_v1,
   (unsigned *base, unsigned *n, unsigned p), (base, n, p))

// Arrays
CU(cuArrayCreate_v2, cuArrayCreate, 3020, sim_ArrayCreate, (void **a, const sim_array_shape *s), (a, s))
CU(cuArrayCreate, cuArrayCreate, 2000, drv_ArrayCreate_v1, (void **a, const struct array_shape_v1 *s), (a, s))
CU(cuArray3DCreate_v2, cuArray3DCreate, 3020, sim_Array3DCreate, (void **a, const sim_array3d_shape *s), (a, s))
CU(cuArray3DCreate, cuArray3DCreate, 2000, drv_Array3DCreate_v1, (void **a, const struct array3d_shape_v1 *s), (a, s))
CU(cuArrayDestroy, cuArrayDestroy, 2000, drv_ArrayDestroy, (void *a), (a))
CU(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, sim_MipmappedArrayCreate,
   (void **a, const sim_array3d_shape *s, unsigned levels), (a, s, levels))
CU(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, drv_ArrayDestroy, (void *a), (a))
CU(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, drv_MipmappedArrayGetLevel,
   (void **a, void *mipmapped, unsigned level), (a, mipmapped))

// Host memory
CU(cuMemAllocHost_v2, cuMemAllocHost, 3020, drv_MemHostAlloc, (void **p, size_t n), (p, n))
CU(cuMemAllocHost, cuMemAllocHost, 2000, drv_MemHostAlloc, (void **p, unsigned n), (p, n))
CU(cuMemHostAlloc, cuMemHostAlloc, 2020, drv_MemHostAlloc, (void **p, size_t n, unsigned f), (p, n))
CU(cuMemFreeHost, cuMemFreeHost, 2000, drv_MemFreeHost, (void *p), (p))
CU(cuMemHostRegister_v2, cuMemHostRegister, 6050, sim_HostRegister, (void *p, size_t n, unsigned f), (p, n, f))
CU(cuMemHostRegister, cuMemHostRegister, 4000, sim_HostRegister, (void *p, size_t n, unsigned f), (p, n, f))
CU(cuMemHostUnregister, cuMemHostUnregister, 4000, sim_HostUnregister, (void *p), (p))
CU(cuMemHostGetDevicePointer_v2, cuMemHostGetDevicePointer, 3020, drv_MemHostGetDevicePointer,
   (void **d, void *h, unsigned f), (d, h))
CU(cuMemHostGetFlags, cuMemHostGetFlags, 2030, drv_MemHostGetFlags, (unsigned *f, void *p), (f, p))

// Stream-ordered memory
CU_PTSZ(cuMemAllocAsync, cuMemAllocAsync, 11020, 11020, drv_MemAllocAsync, (void **p, size_t n, void *s), (p, n, s))
CU_PTSZ(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 11020, drv_MemAllocFromPoolAsync,
        (void **p, size_t n, void *pool, void *s), (p, n, pool, s))
CU_PTSZ(cuMemFreeAsync, cuMemFreeAsync, 11020, 11020, drv_MemFreeAsync, (void *p, void *s), (p, s))
CU_ANY(cuMemPoolCreate, cuMemPoolCreate, 11020, sim_MemPoolCreate, (void **p, const sim_pool_properties *q), (p, q))
CU_ANY(cuMemPoolDestroy, cuMemPoolDestroy, 11020, sim_MemPoolDestroy, (void *p), (p))
CU_ANY(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, sim_noted, (void *p, size_t keep),
       ("trim", p, sim_MemPoolTrimTo(p, keep)))
CU_ANY(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, sim_noted,
       (void *p, int a, void *v), ("attribute", p, sim_MemPoolSetAttribute(p, a, v)))
CU_ANY(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, sim_MemPoolGetAttribute,
       (void *p, int a, void *v), (p, a, v))
CU_ANY(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, sim_done, (void *p, const void *d, size_t n), ())
CU_ANY(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, drv_MemPoolGetAccess,
       (int *flags, void *p, const sim_location *l), (flags, p, l))
CU_ANY(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, sim_noted,
       (void *h, void *p, int type, unsigned long long f), ("export", p, sim_MemPoolExportToShareableHandle(h, p, type)))
CU_ANY(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, sim_unsupported,
       (void **p, void *h, int type, unsigned long long f), ())
CU_ANY(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, sim_noted, (void *data, void *p),
       ("export", p, sim_MemPoolExportPointer(data, p)))
CU_ANY(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, sim_unsupported, (void **p, void *pool, void *data), ())
CU_ANY(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, sim_DeviceGetDefaultMemPool,
       (void **p, int d), (p, d))
CU_ANY(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, sim_DeviceGetMemPool, (void **p, int d), (p, d))
CU_ANY(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, sim_DeviceSetMemPool, (int d, void *p), (d, p))
CU_ANY(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, drv_MemGetDefaultMemPool,
       (void **p, const sim_location *l, int type), (p, l))
CU_ANY(cuMemGetMemPool, cuMemGetMemPool, 13000, drv_MemGetMemPool, (void **p, const sim_location *l, int type), (p, l))
CU_ANY(cuMemSetMemPool, cuMemSetMemPool, 13000, drv_MemSetMemPool, (const sim_location *l, int type, void *p), (l, p))

// Virtual memory management
CU_ANY(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, sim_MemGetAllocationGranularity,
       (size_t *n, const sim_allocation_properties *q, int option), (n, q, option))
CU_ANY(cuMemAddressReserve, cuMemAddressReserve, 10020, sim_MemAddressReserve,
       (void **p, size_t n, size_t alignment, void *hint, unsigned long long f), (p, n, alignment, hint, f))
CU_ANY(cuMemAddressFree, cuMemAddressFree, 10020, sim_MemAddressFree, (void *p, size_t n), (p, n))
CU_ANY(cuMemCreate, cuMemCreate, 10020, sim_MemCreate,
       (void **h, size_t n, const sim_allocation_properties *q, unsigned long long f), (h, n, q, f))
CU_ANY(cuMemRelease, cuMemRelease, 10020, sim_MemRelease, (void *h), (h))
CU_ANY(cuMemMap, cuMemMap, 10020, sim_MemMap, (void *p, size_t n, size_t offset, void *h, unsigned long long f),
       (p, n, offset, h, f))
CU_ANY(cuMemUnmap, cuMemUnmap, 10020, sim_MemUnmap, (void *p, size_t n), (p, n))
CU_ANY(cuMemSetAccess, cuMemSetAccess, 10020, sim_MemSetAccess, (void *p, size_t n, const void *d, size_t count),
       (p, n, d, count))
CU_ANY(cuMemGetAccess, cuMemGetAccess, 10020, drv_MemGetAccess,
       (unsigned long long *flags, const sim_location *l, void *p), (flags, l, p))
CU_ANY(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, sim_MemRetainAllocationHandle,
       (void **h, void *p), (h, p))
CU_ANY(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020,
       sim_MemGetAllocationPropertiesFromHandle, (sim_allocation_properties *q, void *h), (q, h))
CU_ANY(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, sim_noted,
       (void *out, void *h, int type, unsigned long long f),
       ("export", h, sim_MemExportToShareableHandle(out, h, type)))
CU_ANY(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, sim_MemImportFromShareableHandle,
       (void **h, void *os, int type), (h, os, type))
CU_PTSZ(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, 11010, sim_unsupported, (void *list, unsigned n, void *s), ())
CU_ANY(cuMulticastCreate, cuMulticastCreate, 12010, sim_unsupported, (void **h, const void *q), ())

// Memory of other processes and other interfaces
CU(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, sim_noted, (sim_ipc_handle *h, void *p),
   ("export", p, sim_IpcGetMemHandle(h, p)))
CU(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, sim_IpcOpenMemHandle,
   (void **p, sim_ipc_handle h, unsigned f), (p, &h))
CU(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, sim_IpcOpenMemHandle, (void **p, sim_ipc_handle h, unsigned f),
   (p, &h))
CU(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, sim_IpcCloseMemHandle, (void *p), (p))
// Work is done when it is asked for, and so is every event of another process.
CU(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, drv_IpcGetEventHandle, (sim_ipc_handle *h, void *e), (h, e))
CU(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, drv_EventCreate, (void **e, sim_ipc_handle h), (e))
CU(cuImportExternalMemory, cuImportExternalMemory, 10000, sim_ImportExternalMemory,
   (void **m, const struct external_memory_description *d), (m, d))
CU(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000, sim_ExternalMemoryGetMappedBuffer,
   (void **p, void *m, const struct external_buffer_description *d), (p, m, d))
CU(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000, sim_unsupported,
   (void **a, void *m, const void *d), ())
CU(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, sim_DestroyExternalMemory, (void *m), (m))
CU_PTSZ(cuGraphicsMapResources, cuGraphicsMapResources, 3000, 7000, sim_unsupported,
        (unsigned n, void **resources, void *s), ())
CU_PTSZ(cuGraphicsUnmapResources, cuGraphicsUnmapResources, 3000, 7000, sim_unsupported,
        (unsigned n, void **resources, void *s), ())
CU(cuGraphicsResourceGetMappedPointer_v2, cuGraphicsResourceGetMappedPointer, 3020, sim_unsupported,
   (void **p, size_t *n, void *resource), ())

// Copies
CU_PTDS(cuMemcpy, cuMemcpy, 4000, 7000, sim_Memcpy, (void *to, const void *from, size_t n), (to, from, n))
CU_PTSZ(cuMemcpyAsync, cuMemcpyAsync, 4000, 7000, drv_MemcpyAsync,
        (void *to, const void *from, size_t n, void *s), (to, from, n, s))
CU_PTDS(cuMemcpyHtoD_v2, cuMemcpyHtoD, 3020, 7000, sim_Memcpy, (void *to, const void *from, size_t n), (to, from, n))
CU_PTDS(cuMemcpyDtoH_v2, cuMemcpyDtoH, 3020, 7000, sim_Memcpy, (void *to, const void *from, size_t n), (to, from, n))
CU_PTDS(cuMemcpyDtoD_v2, cuMemcpyDtoD, 3020, 7000, sim_Memcpy, (void *to, const void *from, size_t n), (to, from, n))
CU(cuMemcpyHtoD, cuMemcpyHtoD, 2000, sim_Memcpy, (unsigned to, const void *from, unsigned n), (LOW(to), from, n))
CU(cuMemcpyDtoH, cuMemcpyDtoH, 2000, sim_Memcpy, (void *to, unsigned from, unsigned n), (to, LOW(from), n))
CU(cuMemcpyDtoD, cuMemcpyDtoD, 2000, sim_Memcpy, (unsigned to, unsigned from, unsigned n), (LOW(to), LOW(from), n))
CU_PTSZ(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync, 3020, 7000, drv_MemcpyAsync,
        (void *to, const void *from, size_t n, void *s), (to, from, n, s))
CU_PTSZ(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync, 3020, 7000, drv_MemcpyAsync,
        (void *to, const void *from, size_t n, void *s), (to, from, n, s))
CU_PTSZ(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync, 3020, 7000, drv_MemcpyAsync,
        (void *to, const void *from, size_t n, void *s), (to, from, n, s))
CU_PTDS(cuMemcpyPeer, cuMemcpyPeer, 4000, 7000, sim_Memcpy,
        (void *to, void *to_context, const void *from, void *from_context, size_t n), (to, from, n))
CU_PTSZ(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, 7000, drv_MemcpyAsync,
        (void *to, void *to_context, const void *from, void *from_context, size_t n, void *s), (to, from, n, s))
CU_PTDS(cuMemcpy2D_v2, cuMemcpy2D, 3020, 7000, drv_Memcpy2D, (const struct copy2d *c), (c))
CU_PTDS(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned, 3020, 7000, drv_Memcpy2D, (const struct copy2d *c), (c))
CU_PTSZ(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, 7000, drv_Memcpy2DAsync, (const struct copy2d *c, void *s), (c, s))
CU_PTDS(cuMemcpy3D_v2, cuMemcpy3D, 3020, 7000, drv_Memcpy3D, (const struct copy3d *c), (c))
CU_PTSZ(cuMemcpy3DAsync_v2, cuMemcpy3DAsync, 3020, 7000, drv_Memcpy3DAsync, (const struct copy3d *c, void *s), (c, s))

// Fills
CU_PTDS(cuMemsetD8_v2, cuMemsetD8, 3020, 7000, sim_Memset, (void *to, unsigned char v, size_t n), (to, v, n))
CU(cuMemsetD8, cuMemsetD8, 2000, sim_Memset, (unsigned to, unsigned char v, unsigned n), (LOW(to), v, n))
CU_PTSZ(cuMemsetD8Async, cuMemsetD8Async, 3020, 7000, drv_MemsetAsync,
        (void *to, unsigned char v, size_t n, void *s), (to, v, sizeof v, n, s))
CU_PTDS(cuMemsetD16_v2, cuMemsetD16, 3020, 7000, sim_MemsetPattern,
        (void *to, unsigned short v, size_t n), (to, &v, sizeof v, n))
CU_PTSZ(cuMemsetD16Async, cuMemsetD16Async, 3020, 7000, drv_MemsetAsync,
        (void *to, unsigned short v, size_t n, void *s), (to, v, sizeof v, n, s))
CU_PTDS(cuMemsetD32_v2, cuMemsetD32, 3020, 7000, sim_MemsetPattern,
        (void *to, unsigned v, size_t n), (to, &v, sizeof v, n))
CU_PTSZ(cuMemsetD32Async, cuMemsetD32Async, 3020, 7000, drv_MemsetAsync,
        (void *to, unsigned v, size_t n, void *s), (to, v, sizeof v, n, s))
CU_PTDS(cuMemsetD2D8_v2, cuMemsetD2D8, 3020, 7000, sim_Memset2D,
        (void *to, size_t pitch, unsigned char v, size_t w, size_t h), (to, pitch, v, w, h))
CU_PTSZ(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, 7000, sim_Memset2D,
        (void *to, size_t pitch, unsigned char v, size_t w, size_t h, void *s), (to, pitch, v, w, h))
CU_PTSZ(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, 8000, sim_MemPrefetch,
        (const void *p, size_t n, int device, void *s), (p, device))
CU_PTSZ(cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020, 12020, drv_MemPrefetch,
        (const void *p, size_t n, sim_location l, unsigned f, void *s), (p, l))
CU(cuMemAdvise, cuMemAdvise, 8000, sim_done, (const void *p, size_t n, int advice, int device), ())
CU(cuMemAdvise_v2, cuMemAdvise, 12020, sim_done, (const void *p, size_t n, int advice, sim_location l), ())
CU(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000, sim_unsupported,
   (void *data, size_t size, int attribute, const void *p, size_t n), ())
CU_ANY(cuPointerGetAttribute, cuPointerGetAttribute, 4000, drv_PointerGetAttribute,
       (void *data, int attribute, void *p), (data, attribute, p))
CU_ANY(cuPointerGetAttributes, cuPointerGetAttributes, 7000, drv_PointerGetAttributes,
       (unsigned n, int *attributes, void **data, void *p), (n, attributes, data, p))
CU_ANY(cuPointerSetAttribute, cuPointerSetAttribute, 6000, sim_done, (const void *v, int attribute, void *p), ())
