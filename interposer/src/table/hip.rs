//! HIP: `libamdhip64.so.5` to `.7`. Signatures: ROCm/HIP `include/hip/hip_runtime_api.h`; which version exports which
//! name: ROCm/rocm-systems `projects/clr/hipamd/src/hip_hcc.map.in`.

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::HIP, library: Library::Hip, layer: Layer::Runtime, meaning: Meaning::new(Codes::Hip, Family::Pointers);
            recorded {
                hipMalloc(out: Out, size: usize) => allocation, Alloc, Device, |done| block(done, out, size);
                hipExtMallocWithFlags(out: Out, size: usize, flags: u32) => allocation, Alloc, Device, |done| block(done, out, size);
                hipMallocManaged(out: Out, size: usize, flags: u32) => allocation, Alloc, Managed, |done| block(done, out, size);
                hipMallocPitch(out: Out, pitch: *mut usize, width: usize, height: usize) => allocation, Alloc, Device,
                    |done| pitched(done, out, pitch, width, height);
                hipMemAllocPitch(out: Out, pitch: *mut usize, width: usize, height: usize, element: u32) => allocation, Alloc, Device,
                    |done| pitched(done, out, pitch, width, height);
                hipMalloc3D(out: *mut u8, extent: Extent) => allocation, Alloc, Device, |done| volume(done, out, extent);
                hipMallocArray(out: Out, channels: *const u8, width: usize, height: usize, flags: u32) => allocation, Alloc, Array,
                    |done| array(done, out, channels, Extent { width, height, depth: 0 }, 1);
                hipMalloc3DArray(out: Out, channels: *const u8, extent: Extent, flags: u32) => allocation, Alloc, Array,
                    |done| array(done, out, channels, extent, 1);
                hipArrayCreate(out: Out, descriptor: *const u8) => allocation, Alloc, Array,
                    |done| driver_array(done, out, descriptor, false, 1);
                hipArray3DCreate(out: Out, descriptor: *const u8) => allocation, Alloc, Array,
                    |done| driver_array(done, out, descriptor, true, 1);
                hipMallocMipmappedArray(out: Out, channels: *const u8, extent: Extent, levels: u32, flags: u32) => allocation, Alloc, Array,
                    |done| array(done, out, channels, extent, levels);
                hipMipmappedArrayCreate(out: Out, descriptor: *mut u8, levels: u32) => allocation, Alloc, Array,
                    |done| driver_array(done, out, descriptor, true, levels);
                hipHostMalloc(out: Out, size: usize, flags: u32) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                hipHostAlloc(out: Out, size: usize, flags: u32) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                hipExtHostAlloc(out: Out, size: usize, flags: u32) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                hipMallocHost(out: Out, size: usize) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                hipMemAllocHost(out: Out, size: usize) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                hipHostRegister(host: Pointer, size: usize, flags: u32) => allocation, Pin, Registered,
                    |_done| Described::new(host, size as u64);
                hipMallocAsync(out: Out, size: usize, stream: Pointer) => allocation, Alloc, Pool, |done| ordered(block(done, out, size), stream);
                hipMallocFromPoolAsync(out: Out, size: usize, memory_pool: Pointer, stream: Pointer) => allocation, Alloc, Pool,
                    |done| ordered(from_pool(done, out, size, memory_pool), stream);
                hipMemCreate(out: Out, size: usize, properties: *const u8, flags: u64) => allocation, Alloc, Physical,
                    |done| physical(done, out, size, properties);
                hipIpcOpenMemHandle(out: Out, handle: IpcHandle, flags: u32) => allocation, Import, Imported, |done| block(done, out, 0);
                hipMemPoolImportPointer(out: Out, memory_pool: Pointer, data: Pointer) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                hipMemImportFromShareableHandle(out: Out, handle: Pointer, kind: u32) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                hipImportExternalMemory(out: Out, descriptor: *const u8) => allocation, Import, Imported,
                    |done| external(done, out, descriptor);
                hipMemPoolImportFromShareableHandle(out: Out, handle: Pointer, kind: u32, flags: u32) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                hipGraphicsMapResources(count: i32, handles: *const u64, stream: Pointer) => allocation, Import, Imported,
                    |done| resources(done, count, handles);

                hipFree(pointer: Pointer) => release, Free, Device, |_done| given(pointer);
                hipHostFree(pointer: Pointer) => release, Free, HostPinned, |_done| given(pointer);
                hipFreeHost(pointer: Pointer) => release, Free, HostPinned, |_done| given(pointer);
                hipHostUnregister(pointer: Pointer) => release, Unpin, Registered, |_done| given(pointer);
                hipFreeArray(array: Pointer) => release, Free, Array, |_done| given(array);
                hipArrayDestroy(array: Pointer) => release, Free, Array, |_done| given(array);
                hipFreeMipmappedArray(array: Pointer) => release, Free, Array, |_done| given(array);
                hipMipmappedArrayDestroy(array: Pointer) => release, Free, Array, |_done| given(array);
                hipFreeAsync(pointer: Pointer, stream: Pointer) => release, Free, Pool, |_done| given(pointer);
                hipMemRelease(handle: Pointer) => release, Free, Physical, |_done| given(handle);
                hipMemUnmap(pointer: Pointer, size: usize) => release, Unmap, Physical, |_done| Described::new(pointer, size as u64);
                hipMemAddressFree(pointer: Pointer, size: usize) => release, Free, Reserved,
                    |_done| Described::new(pointer, size as u64);
                hipDestroyExternalMemory(memory: Pointer) => release, Free, Imported, |_done| given(memory);
                hipIpcCloseMemHandle(pointer: Pointer) => release, Free, Imported, |_done| given(pointer);
                hipGraphicsUnmapResources(count: i32, handles: *const u64, stream: Pointer) => release, Free, Imported,
                    |done| resources(done, count, handles);
                hipGraphAddMemFreeNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, pointer: Pointer)
                    => release, Free, Pool, |_done| given(pointer);
                hipDrvGraphAddMemFreeNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, pointer: Pointer)
                    => release, Free, Pool, |_done| given(pointer);
                hipMemPoolDestroy(memory_pool: Pointer) => release, Free, Pool, |_done| given(memory_pool), does(EndsPool);
                hipDeviceReset() => ending, Device, None, |_done| given(0), ends(HipDevice);
                // Does nothing in any HIP whose sources were read (5.6 to 7): the analyzer takes nothing away for it.
                hipDevicePrimaryCtxReset(device: i32) => release, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) };

                hipMemAddressReserve(out: Out, size: usize, alignment: usize, hint: Pointer, flags: u64) => naming, Reserve, Reserved,
                    |done| block(done, out, size);
                hipMemMap(pointer: Pointer, size: usize, offset: usize, handle: Pointer, flags: u64) => naming, Map, Physical,
                    |_done| mapping(pointer, size, offset, handle);
                hipMemPoolCreate(out: Out, properties: *const u8) => naming, Reserve, Pool, |done| pool(done, out, properties), does(MakesPool);
                hipDeviceGetDefaultMemPool(out: Out, device: i32) => naming, Reserve, Pool, |done| of_device(done, out, device), does(NamesPool);
                hipDeviceGetMemPool(out: Out, device: i32) => naming, Reserve, Pool, |done| of_device(done, out, device), does(NamesPool);
                hipDeviceSetMemPool(device: i32, memory_pool: Pointer) => naming, Reserve, Pool, |_done| pool_of(device, memory_pool), does(ChoosesPool);
                hipMemGetMemPool(out: Out, location: *const u8, kind: u32) => naming, Reserve, Pool,
                    |done| pool_at(done, out, location, kind), does(NamesPool);
                hipMemGetDefaultMemPool(out: Out, location: *const u8, kind: u32) => naming, Reserve, Pool,
                    |done| pool_at(done, out, location, kind), does(NamesPool);
                hipMemSetMemPool(location: *const u8, kind: u32, memory_pool: Pointer) => naming, Reserve, Pool,
                    |_done| pool_for(location, memory_pool), does(ChoosesPool);
                hipExternalMemoryGetMappedBuffer(out: Out, memory: Pointer, descriptor: *const u8) => naming, Map, Imported,
                    |done| external_buffer(done, out, memory, descriptor);
                hipExternalMemoryGetMappedMipmappedArray(out: Out, memory: Pointer, descriptor: *const u8) => naming, Map, Imported,
                    |done| external_array(done, out, memory, descriptor);
                hipGraphicsResourceGetMappedPointer(out: Out, size: *mut usize, resource: Pointer) => naming, Map, Imported,
                    |done| resource_memory(done, out, size, resource);
                hipMemRetainAllocationHandle(out: Out, mapped: Pointer) => naming, Import, Physical, |done| retained(done, out, mapped);
                hipGraphAddMemAllocNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, parameters: *mut u8)
                    => naming, Reserve, Pool, |done| graph_memory(done, parameters);
                hipGraphAddNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, parameters: Pointer)
                    => graph_node, Reserve, Pool, |done| graph_node(done, [0, parameters]);
                hipMemAdvise(pointer: Pointer, size: usize, advice: u32, device: i32) => naming, Map, Managed,
                    |_done| advised(pointer, size, advice, device_number(device));
                hipMemAdvise_v2(pointer: Pointer, size: usize, advice: u32, location: u64) => naming, Map, Managed,
                    |_done| advised(pointer, size, advice, place(location));
                hipMemPrefetchAsync(pointer: Pointer, size: usize, device: i32, stream: Pointer) => migration, Map, Managed,
                    |_done| sent(pointer, size, device_number(device));
                hipMemPrefetchAsync_v2(pointer: Pointer, size: usize, location: u64, flags: u32, stream: Pointer)
                    => migration, Map, Managed, |_done| sent(pointer, size, place(location));
                hipDeviceSetLimit(which: u32, value: usize) => creation, Module, None, |_done| limit(which, value);

                hipSetDevice(device: i32) => selection, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) };
                hipCtxCreate(out: Out, flags: u32, device: i32) => hip_context, Device, None, |done| of_device(done, out, device);
                hipDevicePrimaryCtxRetain(out: Out, device: i32) => hip_context, Device, None, |done| of_device(done, out, device);
                hipCtxGetCurrent(out: Out) => hip_context, Device, None, |done| hip_current(done, out);
                hipCtxSetCurrent(handle: Pointer) => selection, Device, None, |_done| of_hip_context(handle);
                hipCtxPushCurrent(handle: Pointer) => selection, Device, None, |_done| of_hip_context(handle);
                hipStreamBeginCapture(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                hipStreamBeginCapture_spt(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                hipStreamBeginCaptureToGraph(
                    stream: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, mode: u32
                ) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                hipStreamEndCapture(stream: Pointer, graph: Out) => capture_ended, Sync, None, |done| captured(done, stream, graph), does(EndsCapture);
                hipStreamEndCapture_spt(stream: Pointer, graph: Out) => capture_ended, Sync, None, |done| captured(done, stream, graph), does(EndsCapture);
                hipGraphInstantiate(out: Out, graph: Pointer, node: Pointer, log: Pointer, size: usize)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                hipGraphInstantiateWithFlags(out: Out, graph: Pointer, flags: u64)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                hipGraphInstantiateWithParams(out: Out, graph: Pointer, parameters: Pointer)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                hipGraphExecDestroy(executable: Pointer) => release, Module, None, |_done| given(executable), does(EndsGraph);
                hipGraphDestroy(graph: Pointer) => release, Module, None, |_done| given(graph), does(DropsGraph);

                hipIpcGetMemHandle(handle: Pointer, pointer: Pointer) => naming, Export, Device, |_done| given(pointer);
                hipMemExportToShareableHandle(out: Pointer, handle: Pointer, kind: u32, flags: u64)
                    => naming, Export, Physical, |_done| given(handle);
                hipMemPoolExportToShareableHandle(out: Pointer, memory_pool: Pointer, kind: u32, flags: u32)
                    => naming, Export, Pool, |_done| given(memory_pool);
                hipMemPoolExportPointer(data: Pointer, pointer: Pointer) => naming, Export, Pool, |_done| given(pointer);

                hipMemGetHandleForAddressRange(handle: Pointer, pointer: Pointer, size: usize, kind: u32, flags: u64)
                    => naming, Export, Device, |_done| Described::new(pointer, size as u64);

                hipModuleLoad(out: Out, path: Pointer) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                hipModuleLoadData(out: Out, image: Pointer) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                hipModuleLoadDataEx(out: Out, image: Pointer, count: u32, options: Pointer, values: Pointer)
                    => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                hipModuleLoadFatBinary(out: Out, image: Pointer) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                hipModuleUnload(code: Pointer) => release, Module, Code, |_done| given(code), does(UnloadsModule);
                hipLibraryLoadData(
                    out: Out, image: Pointer, options: Pointer, values: Pointer, count: u32, more: Pointer, more_values: Pointer,
                    more_count: u32
                ) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                hipLibraryLoadFromFile(
                    out: Out, path: Pointer, options: Pointer, values: Pointer, count: u32, more: Pointer, more_values: Pointer,
                    more_count: u32
                ) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                hipLibraryUnload(code: Pointer) => release, Module, Code, |_done| given(code), does(UnloadsModule);

                hipMemPoolTrimTo(memory_pool: Pointer, keep: usize) => naming, Sync, Pool, |_done| trimmed(memory_pool, keep), does(SetsPool);
                hipMemPoolSetAttribute(memory_pool: Pointer, which: u32, value: *const u8)
                    => naming, Sync, Pool, |done| attribute(done, memory_pool, which, value), does(SetsPool);
                hipDeviceGraphMemTrim(device: i32) => naming, Sync, Pool, |_done| pool_of(device, 0), does(SetsPool);
                hipDeviceGetGraphMemAttribute(device: i32, which: u32, value: *const u8)
                    => naming, Sync, Pool, |done| graph_attribute(done, device, which, value), does(ReadsGraphMemory);
            }
            hands_out {
                hipGetProcAddress(symbol: *const c_char, out: *mut *const (), version: i32, flags: u64, result: Pointer)
                    => (symbol, out, version, flags);
                hipGetProcAddress_spt(symbol: *const c_char, out: *mut *const (), version: i32, flags: u64, result: Pointer)
                    => (symbol, out, version, if flags == 0 { 2 } else { flags });
                hipGetDriverEntryPoint(symbol: *const c_char, out: *mut *const (), flags: u64, result: Pointer)
                    => (symbol, out, NOT_SAID, flags);
                hipGetDriverEntryPoint_spt(symbol: *const c_char, out: *mut *const (), flags: u64, result: Pointer)
                    => (symbol, out, NOT_SAID, if flags == 0 { 2 } else { flags });
            }
            watched {
                hipGetLastError => ErrorQuery, [];
                hipPeekAtLastError => ErrorQuery, [], does(PeeksError);
                hipExtGetLastError => ErrorQuery, [];
                hipGetErrorString => ErrorQuery, [], does(NamesError);
                hipGetErrorName => ErrorQuery, [], does(NamesError);
                hipDrvGetErrorString => ErrorQuery, [], does(NamesError);
                hipDrvGetErrorName => ErrorQuery, [], does(NamesError);

                hipLaunchKernel => GpuWork, [];
                hipLaunchKernel_spt => GpuWork, [];
                hipExtLaunchKernel => GpuWork, [];
                hipModuleLaunchKernel => GpuWork, [];
                hipExtModuleLaunchKernel => GpuWork, [];
                hipHccModuleLaunchKernel => GpuWork, [];
                // C++ programs get these two from hip_ext.h, and the third from old headers, under their mangled names.
                _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j => GpuWork, [];
                _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_ => GpuWork, [];
                _ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv => GpuWork, [];
                hipLaunchCooperativeKernel => GpuWork, [];
                hipLaunchCooperativeKernel_spt => GpuWork, [];
                hipLaunchCooperativeKernelMultiDevice => GpuWork, [];
                hipModuleLaunchCooperativeKernel => GpuWork, [];
                hipModuleLaunchCooperativeKernelMultiDevice => GpuWork, [];
                hipLaunchByPtr => GpuWork, [];
                hipExtLaunchMultiKernelMultiDevice => GpuWork, [];
                hipLaunchKernelExC => GpuWork, [];
                hipDrvLaunchKernelEx => GpuWork, [];
                hipLaunchHostFunc => GpuWork, [];
                hipLaunchHostFunc_spt => GpuWork, [];
                hipGraphUpload => GpuWork, [];
                hipGraphLaunch => GpuWork, [];
                hipGraphLaunch_spt => GpuWork, [];

                hipMemcpy => GpuWork, [0, 1];
                hipMemcpy_spt => GpuWork, [0, 1];
                hipMemcpyAsync => GpuWork, [0, 1];
                hipMemcpyAsync_spt => GpuWork, [0, 1];
                hipMemcpyWithStream => GpuWork, [0, 1];
                hipMemcpyHtoD => GpuWork, [0];
                hipMemcpyHtoDAsync => GpuWork, [0];
                hipMemcpyDtoH => GpuWork, [1];
                hipMemcpyDtoHAsync => GpuWork, [1];
                hipMemcpyDtoD => GpuWork, [0, 1];
                hipMemcpyDtoDAsync => GpuWork, [0, 1];
                hipMemcpyPeer => GpuWork, [0, 2];
                hipMemcpyPeerAsync => GpuWork, [0, 2];
                hipMemcpy2D => GpuWork, [0, 2];
                hipMemcpy2D_spt => GpuWork, [0, 2];
                hipMemcpy2DAsync => GpuWork, [0, 2];
                hipMemcpy2DAsync_spt => GpuWork, [0, 2];
                hipMemcpy2DToArray => GpuWork, [0, 3];
                hipMemcpy2DToArray_spt => GpuWork, [0, 3];
                hipMemcpy2DToArrayAsync => GpuWork, [0, 3];
                hipMemcpy2DToArrayAsync_spt => GpuWork, [0, 3];
                hipMemcpy2DFromArray => GpuWork, [0, 2];
                hipMemcpy2DFromArray_spt => GpuWork, [0, 2];
                hipMemcpy2DFromArrayAsync => GpuWork, [0, 2];
                hipMemcpy2DFromArrayAsync_spt => GpuWork, [0, 2];
                hipMemcpyToArray => GpuWork, [0, 3];
                hipMemcpyFromArray => GpuWork, [0, 1];
                hipMemcpyFromArray_spt => GpuWork, [0, 1];
                hipMemcpyAtoH => GpuWork, [1];
                hipMemcpyHtoA => GpuWork, [0];
                hipMemcpyAtoD => GpuWork, [0, 1];
                hipMemcpyDtoA => GpuWork, [0, 2];
                hipMemcpyAtoA => GpuWork, [0, 2];
                hipMemcpyAtoHAsync => GpuWork, [1];
                hipMemcpyHtoAAsync => GpuWork, [0];
                hipMemcpy2DArrayToArray => GpuWork, [0, 3];
                hipMemcpyParam2D => GpuWork, [];
                hipMemcpyParam2DAsync => GpuWork, [];
                hipMemcpy3D => GpuWork, [];
                hipMemcpy3D_spt => GpuWork, [];
                hipMemcpy3DAsync => GpuWork, [];
                hipMemcpy3DAsync_spt => GpuWork, [];
                hipMemcpy3DPeer => GpuWork, [];
                hipMemcpy3DPeerAsync => GpuWork, [];
                hipMemcpy3DBatchAsync => GpuWork, [];
                hipDrvMemcpy3D => GpuWork, [];
                hipDrvMemcpy3DAsync => GpuWork, [];
                hipDrvMemcpy2DUnaligned => GpuWork, [];
                hipMemcpyToSymbol => GpuWork, [1];
                hipMemcpyToSymbol_spt => GpuWork, [1];
                hipMemcpyToSymbolAsync => GpuWork, [1];
                hipMemcpyToSymbolAsync_spt => GpuWork, [1];
                hipMemcpyFromSymbol => GpuWork, [0];
                hipMemcpyFromSymbol_spt => GpuWork, [0];
                hipMemcpyFromSymbolAsync => GpuWork, [0];
                hipMemcpyFromSymbolAsync_spt => GpuWork, [0];
                hipMemcpyBatchAsync => GpuWork, [];
                hipMemset => GpuWork, [0];
                hipMemset_spt => GpuWork, [0];
                hipMemsetAsync => GpuWork, [0];
                hipMemsetAsync_spt => GpuWork, [0];
                hipMemsetD8 => GpuWork, [0];
                hipMemsetD8Async => GpuWork, [0];
                hipMemsetD16 => GpuWork, [0];
                hipMemsetD16Async => GpuWork, [0];
                hipMemsetD32 => GpuWork, [0];
                hipMemsetD32Async => GpuWork, [0];
                hipMemsetD2D8 => GpuWork, [0];
                hipMemsetD2D8Async => GpuWork, [0];
                hipMemsetD2D16 => GpuWork, [0];
                hipMemsetD2D16Async => GpuWork, [0];
                hipMemsetD2D32 => GpuWork, [0];
                hipMemsetD2D32Async => GpuWork, [0];
                hipMemset2D => GpuWork, [0];
                hipMemset2D_spt => GpuWork, [0];
                hipMemset2DAsync => GpuWork, [0];
                hipMemset2DAsync_spt => GpuWork, [0];
                hipMemset3D => GpuWork, [];
                hipMemset3D_spt => GpuWork, [];
                hipMemset3DAsync => GpuWork, [];
                hipMemset3DAsync_spt => GpuWork, [];
                hipMemPrefetchBatchAsync => GpuWork, [];
                hipMemDiscardBatchAsync => GpuWork, [];
                hipMemDiscardAndPrefetchBatchAsync => GpuWork, [];
                hipDrvMemDiscardBatchAsync => GpuWork, [];
                hipDrvMemDiscardAndPrefetchBatchAsync => GpuWork, [];

                hipDeviceSynchronize => Sync, [], does(WaitsForDevice);
                hipStreamSynchronize => Sync, [], does(WaitsForStream);
                hipStreamSynchronize_spt => Sync, [], does(WaitsForStream);
                hipEventSynchronize => Sync, [], does(WaitsForEvent);
                hipStreamQuery => Sync, [], does(AsksStream);
                hipStreamQuery_spt => Sync, [], does(AsksStream);
                hipDeviceSetGraphMemAttribute => Sync, [], does(SetsPool);

                hipMemGetInfo => Reading, [];
                hipMemPoolGetAttribute => Reading, [];
            }
            answered {
                hipDeviceTotalMem;
                hipGetDeviceProperties;
                hipGetDevicePropertiesR0000;
                hipGetDevicePropertiesR0600;
                hipDeviceGetAttribute;
                hipDeviceGetLimit;
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
