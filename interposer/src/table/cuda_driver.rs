//! The CUDA driver: `libcuda.so.1`. Signatures: NVIDIA `cuda.h`; the names are those of the exported symbols: a function
//! whose calling convention changed has a suffix (`_v2`), its twin for the per-thread default stream `_ptsz`.
//!
//! The CUDA runtime, static or not, takes all of them from `cuGetProcAddress`: `link::entry_points` sees to that.

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::CUDA_DRIVER, library: Library::CudaDriver, layer: Layer::Driver, meaning: Meaning::new(Codes::CudaDriver, Family::Pointers);
            recorded {
                cuMemAlloc_v2(out: Out, size: usize) => allocation, Alloc, Device, |done| block(done, out, size);
                cuMemAlloc(out: *mut u32, size: u32) => allocation, Alloc, Device, |done| small_block(done, out, size);
                cuMemAllocPitch_v2(out: Out, pitch: *mut usize, width: usize, height: usize, element: u32) => allocation, Alloc, Device,
                    |done| pitched(done, out, pitch, width, height);
                cuMemAllocPitch(out: *mut u32, pitch: *mut u32, width: u32, height: u32, element: u32) => allocation, Alloc, Device,
                    |done| small_pitched(done, out, pitch, width, height);
                cuMemAllocManaged(out: Out, size: usize, flags: u32) => allocation, Alloc, Managed, |done| block(done, out, size);
                cuMemAllocHost_v2(out: Out, size: usize) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                cuMemAllocHost(out: Out, size: u32) => allocation, Alloc, HostPinned, |done| block(done, out, size as usize);
                cuMemHostAlloc(out: Out, size: usize, flags: u32) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                cuMemHostRegister_v2(host: Pointer, size: usize, flags: u32) => allocation, Pin, Registered,
                    |_done| Described::new(host, size as u64);
                cuMemHostRegister(host: Pointer, size: usize, flags: u32) => allocation, Pin, Registered,
                    |_done| Described::new(host, size as u64);
                cuArrayCreate_v2(out: Out, descriptor: *const u8) => allocation, Alloc, Array,
                    |done| driver_array(done, out, descriptor, false, 1);
                cuArray3DCreate_v2(out: Out, descriptor: *const u8) => allocation, Alloc, Array,
                    |done| driver_array(done, out, descriptor, true, 1);
                cuArrayCreate(out: Out, descriptor: *const u8) => allocation, Alloc, Array,
                    |done| small_array(done, out, descriptor, false);
                cuArray3DCreate(out: Out, descriptor: *const u8) => allocation, Alloc, Array,
                    |done| small_array(done, out, descriptor, true);
                cuMipmappedArrayCreate(out: Out, descriptor: *const u8, levels: u32) => allocation, Alloc, Array,
                    |done| driver_array(done, out, descriptor, true, levels);
                cuMemAllocAsync(out: Out, size: usize, stream: Pointer) => allocation, Alloc, Pool, |done| ordered(block(done, out, size), stream);
                cuMemAllocAsync_ptsz(out: Out, size: usize, stream: Pointer) => allocation, Alloc, Pool, |done| ordered(block(done, out, size), stream);
                cuMemAllocFromPoolAsync(out: Out, size: usize, memory_pool: Pointer, stream: Pointer) => allocation, Alloc, Pool,
                    |done| ordered(from_pool(done, out, size, memory_pool), stream);
                cuMemAllocFromPoolAsync_ptsz(out: Out, size: usize, memory_pool: Pointer, stream: Pointer) => allocation, Alloc, Pool,
                    |done| ordered(from_pool(done, out, size, memory_pool), stream);
                cuMemCreate(out: Out, size: usize, properties: *const u8, flags: u64) => allocation, Alloc, Physical,
                    |done| physical(done, out, size, properties);
                cuMulticastCreate(out: Out, properties: *const u8) => naming, Reserve, Reserved, |done| block(done, out, 0);
                cuIpcOpenMemHandle_v2(out: Out, handle: IpcHandle, flags: u32) => allocation, Import, Imported, |done| block(done, out, 0);
                cuIpcOpenMemHandle(out: Out, handle: IpcHandle, flags: u32) => allocation, Import, Imported, |done| block(done, out, 0);
                cuImportExternalMemory(out: Out, descriptor: *const u8) => allocation, Import, Imported,
                    |done| external(done, out, descriptor);
                cuMemImportFromShareableHandle(out: Out, handle: Pointer, kind: u32) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                cuMemPoolImportFromShareableHandle(out: Out, handle: Pointer, kind: u32, flags: u64) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                cuMemPoolImportPointer(out: Out, memory_pool: Pointer, data: Pointer) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                cuMemRetainAllocationHandle(out: Out, address: Pointer) => naming, Import, Physical,
                    |done| retained(done, out, address);
                cuGraphicsMapResources(count: u32, handles: *const u64, stream: Pointer) => allocation, Import, Imported,
                    |done| resources(done, count.cast_signed(), handles);
                cuGraphicsMapResources_ptsz(count: u32, handles: *const u64, stream: Pointer) => allocation, Import, Imported,
                    |done| resources(done, count.cast_signed(), handles);

                cuMemFree_v2(pointer: Pointer) => release, Free, Device, |_done| given(pointer);
                cuMemFree(pointer: u32) => release, Free, Device, |_done| given(Pointer::from(pointer));
                cuMemFreeHost(pointer: Pointer) => release, Free, HostPinned, |_done| given(pointer);
                cuMemHostUnregister(pointer: Pointer) => release, Unpin, Registered, |_done| given(pointer);
                cuArrayDestroy(array: Pointer) => release, Free, Array, |_done| given(array);
                cuMipmappedArrayDestroy(array: Pointer) => release, Free, Array, |_done| given(array);
                cuMemFreeAsync(pointer: Pointer, stream: Pointer) => release, Free, Pool, |_done| given(pointer);
                cuMemFreeAsync_ptsz(pointer: Pointer, stream: Pointer) => release, Free, Pool, |_done| given(pointer);
                cuMemRelease(handle: Pointer) => release, Free, Physical, |_done| given(handle);
                cuMemUnmap(pointer: Pointer, size: usize) => release, Unmap, Physical, |_done| Described::new(pointer, size as u64);
                cuMemAddressFree(pointer: Pointer, size: usize) => release, Free, Reserved,
                    |_done| Described::new(pointer, size as u64);
                cuDestroyExternalMemory(memory: Pointer) => release, Free, Imported, |_done| given(memory);
                cuIpcCloseMemHandle(pointer: Pointer) => release, Free, Imported, |_done| given(pointer);
                cuGraphicsUnmapResources(count: u32, handles: *const u64, stream: Pointer) => release, Free, Imported,
                    |done| resources(done, count.cast_signed(), handles);
                cuGraphicsUnmapResources_ptsz(count: u32, handles: *const u64, stream: Pointer) => release, Free, Imported,
                    |done| resources(done, count.cast_signed(), handles);
                cuGraphAddMemFreeNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, pointer: Pointer)
                    => release, Free, Pool, |_done| given(pointer);
                cuMemPoolDestroy(memory_pool: Pointer) => release, Free, Pool, |_done| given(memory_pool), does(EndsPool);
                cuDevicePrimaryCtxReset_v2(device: i32) => ending, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) }, ends(Primary);
                cuDevicePrimaryCtxReset(device: i32) => ending, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) }, ends(Primary);
                cuDevicePrimaryCtxRelease_v2(device: i32) => ending, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) }, ends(Reference);
                cuDevicePrimaryCtxRelease(device: i32) => ending, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) }, ends(Reference);

                cuMemAddressReserve(out: Out, size: usize, alignment: usize, hint: Pointer, flags: u64) => naming, Reserve, Reserved,
                    |done| block(done, out, size);
                cuMemMap(pointer: Pointer, size: usize, offset: usize, handle: Pointer, flags: u64) => naming, Map, Physical,
                    |_done| mapping(pointer, size, offset, handle);
                cuMemPoolCreate(out: Out, properties: *const u8) => naming, Reserve, Pool, |done| pool(done, out, properties), does(MakesPool);
                cuDeviceGetDefaultMemPool(out: Out, device: i32) => naming, Reserve, Pool, |done| of_device(done, out, device), does(NamesPool);
                cuDeviceGetMemPool(out: Out, device: i32) => naming, Reserve, Pool, |done| of_device(done, out, device), does(NamesPool);
                cuMemGetDefaultMemPool(out: Out, location: *const u8, kind: u32) => naming, Reserve, Pool,
                    |done| pool_at(done, out, location, kind), does(NamesPool);
                cuMemGetMemPool(out: Out, location: *const u8, kind: u32) => naming, Reserve, Pool, |done| pool_at(done, out, location, kind), does(NamesPool);
                cuMemSetMemPool(location: *const u8, kind: u32, memory_pool: Pointer) => naming, Reserve, Pool,
                    |_done| pool_for(location, memory_pool), does(ChoosesPool);
                cuDeviceSetMemPool(device: i32, memory_pool: Pointer) => naming, Reserve, Pool, |_done| pool_of(device, memory_pool), does(ChoosesPool);
                cuExternalMemoryGetMappedBuffer(out: Out, memory: Pointer, descriptor: *const u8) => naming, Map, Imported,
                    |done| external_buffer(done, out, memory, descriptor);
                cuExternalMemoryGetMappedMipmappedArray(out: Out, memory: Pointer, descriptor: *const u8) => naming, Map, Imported,
                    |done| external_array(done, out, memory, descriptor);
                cuGraphicsResourceGetMappedPointer_v2(out: Out, size: *mut usize, resource: Pointer) => naming, Map, Imported,
                    |done| resource_memory(done, out, size, resource);
                cuGraphAddMemAllocNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, parameters: *mut u8)
                    => naming, Reserve, Pool, |done| graph_memory(done, parameters);
                cuGraphAddNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, parameters: Pointer)
                    => graph_node, Reserve, Pool, |done| graph_node(done, [0, parameters]);
                cuGraphAddNode_v2(node: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, parameters: Pointer)
                    => graph_node, Reserve, Pool, |done| graph_node(done, [0, parameters]);
                cuGraphAddNode_v3(node: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, parameters: Pointer)
                    => graph_node, Reserve, Pool, |done| graph_node(done, [0, parameters]);
                cuMemAdvise(pointer: Pointer, size: usize, advice: u32, device: i32) => naming, Map, Managed,
                    |_done| advised(pointer, size, advice, device_number(device));
                cuMemAdvise_v2(pointer: Pointer, size: usize, advice: u32, location: u64) => naming, Map, Managed,
                    |_done| advised(pointer, size, advice, place(location));
                cuMemPrefetchAsync(pointer: Pointer, size: usize, device: i32, stream: Pointer) => migration, Map, Managed,
                    |_done| sent(pointer, size, device_number(device));
                cuMemPrefetchAsync_ptsz(pointer: Pointer, size: usize, device: i32, stream: Pointer) => migration, Map, Managed,
                    |_done| sent(pointer, size, device_number(device));
                cuMemPrefetchAsync_v2(pointer: Pointer, size: usize, location: u64, flags: u32, stream: Pointer)
                    => migration, Map, Managed, |_done| sent(pointer, size, place(location));
                cuMemPrefetchAsync_v2_ptsz(pointer: Pointer, size: usize, location: u64, flags: u32, stream: Pointer)
                    => migration, Map, Managed, |_done| sent(pointer, size, place(location));
                cuCtxSetLimit(which: u32, value: usize) => creation, Module, None, |_done| limit(which, value);

                cuCtxCreate(out: Out, flags: u32, device: i32) => context, Module, None, |done| context_of(done, out, device, true);
                cuCtxCreate_v2(out: Out, flags: u32, device: i32) => context, Module, None, |done| context_of(done, out, device, true);
                cuCtxCreate_v3(out: Out, affinity: Pointer, count: i32, flags: u32, device: i32) => context, Module, None,
                    |done| context_of(done, out, device, true);
                cuCtxCreate_v4(out: Out, parameters: Pointer, flags: u32, device: i32) => context, Module, None,
                    |done| context_of(done, out, device, true);
                cuDevicePrimaryCtxRetain(out: Out, device: i32) => context, Module, None, |done| context_of(done, out, device, false), says(RETAINS_PRIMARY);
                cuCtxDestroy(handle: Pointer) => context_destroyed, Device, None, |_done| of_context(handle), ends(Context);
                cuCtxDestroy_v2(handle: Pointer) => context_destroyed, Device, None, |_done| of_context(handle), ends(Context);
                cuCtxSetCurrent(handle: Pointer) => context_selected, Device, None, |_done| of_context(handle);
                cuCtxPushCurrent_v2(handle: Pointer) => context_pushed, Device, None, |_done| of_context(handle);
                cuCtxPopCurrent_v2(out: Out) => context_popped, Device, None, |_done| given(0);
                // The first form has no mode; its register is passed on as it is.
                cuStreamBeginCapture(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginCapture_ptsz(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginCapture_v2(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginCapture_v2_ptsz(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginCaptureToGraph(
                    stream: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, mode: u32
                ) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginCaptureToGraph_ptsz(
                    stream: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, mode: u32
                ) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginRecaptureToGraph(stream: Pointer, mode: u32, graph: Pointer, callback: Pointer, user: Pointer)
                    => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamBeginRecaptureToGraph_ptsz(stream: Pointer, mode: u32, graph: Pointer, callback: Pointer, user: Pointer)
                    => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cuStreamEndCapture(stream: Pointer, graph: Out) => capture_ended, Sync, None, |done| captured(done, stream, graph), does(EndsCapture);
                cuStreamEndCapture_ptsz(stream: Pointer, graph: Out) => capture_ended, Sync, None, |done| captured(done, stream, graph), does(EndsCapture);
                // The same name stands for five parameters, and since CUDA 12 for three: all of them in registers.
                cuGraphInstantiate(out: Out, graph: Pointer, node: Pointer, log: Pointer, size: usize)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cuGraphInstantiate_v2(out: Out, graph: Pointer, node: Pointer, log: Pointer, size: usize)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cuGraphInstantiateWithFlags(out: Out, graph: Pointer, third: u64, fourth: u64, fifth: u64)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cuGraphInstantiateWithParams(out: Out, graph: Pointer, parameters: Pointer)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cuGraphInstantiateWithParams_ptsz(out: Out, graph: Pointer, parameters: Pointer)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cuGraphExecDestroy(executable: Pointer) => release, Module, None, |_done| given(executable), does(EndsGraph);
                cuGraphDestroy(graph: Pointer) => release, Module, None, |_done| given(graph), does(DropsGraph);

                cuIpcGetMemHandle(handle: Pointer, pointer: Pointer) => naming, Export, Device, |_done| given(pointer);
                cuMemExportToShareableHandle(out: Pointer, handle: Pointer, kind: u32, flags: u64)
                    => naming, Export, Physical, |_done| given(handle);
                cuMemPoolExportToShareableHandle(out: Pointer, memory_pool: Pointer, kind: u32, flags: u64)
                    => naming, Export, Pool, |_done| given(memory_pool);
                cuMemPoolExportPointer(data: Pointer, pointer: Pointer) => naming, Export, Pool, |_done| given(pointer);

                cuMemGetHandleForAddressRange(handle: Pointer, pointer: Pointer, size: usize, kind: u32, flags: u64)
                    => naming, Export, Device, |_done| Described::new(pointer, size as u64);

                cuModuleLoad(out: Out, path: Pointer) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cuModuleLoadData(out: Out, image: Pointer) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cuModuleLoadFatBinary(out: Out, image: Pointer) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cuModuleLoadDataEx(out: Out, image: Pointer, count: u32, options: Pointer, values: Pointer)
                    => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cuModuleUnload(code: Pointer) => release, Module, Code, |_done| given(code), does(UnloadsModule);
                cuLibraryLoadData(
                    out: Out, image: Pointer, options: Pointer, values: Pointer, count: u32, more: Pointer, more_values: Pointer,
                    more_count: u32
                ) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cuLibraryLoadFromFile(
                    out: Out, path: Pointer, options: Pointer, values: Pointer, count: u32, more: Pointer, more_values: Pointer,
                    more_count: u32
                ) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cuLibraryUnload(code: Pointer) => release, Module, Code, |_done| given(code), does(UnloadsModule);

                cuMemPoolTrimTo(memory_pool: Pointer, keep: usize) => naming, Sync, Pool, |_done| trimmed(memory_pool, keep), does(SetsPool);
                cuMemPoolSetAttribute(memory_pool: Pointer, which: u32, value: *const u8)
                    => naming, Sync, Pool, |done| attribute(done, memory_pool, which, value), does(SetsPool);
                cuDeviceGraphMemTrim(device: i32) => naming, Sync, Pool, |_done| pool_of(device, 0), does(SetsPool);
                cuDeviceGetGraphMemAttribute(device: i32, which: u32, value: *const u8)
                    => naming, Sync, Pool, |done| graph_attribute(done, device, which, value), does(ReadsGraphMemory);
            }
            hands_out {
                cuGetProcAddress(symbol: *const c_char, out: *mut *const (), version: i32, flags: u64) => (symbol, out, version, flags);
                cuGetProcAddress_v2(symbol: *const c_char, out: *mut *const (), version: i32, flags: u64, result: Pointer)
                    => (symbol, out, version, flags);
                cuGetProcAddress_v2_ptsz(symbol: *const c_char, out: *mut *const (), version: i32, flags: u64, result: Pointer)
                    => (symbol, out, version, if flags == 0 { 2 } else { flags });
            }
            watched {
                cuGetErrorString => ErrorQuery, [], does(NamesError);
                cuGetErrorName => ErrorQuery, [], does(NamesError);

                cuLaunchKernel => GpuWork, [];
                cuLaunchKernel_ptsz => GpuWork, [];
                cuLaunchKernelEx => GpuWork, [];
                cuLaunchKernelEx_ptsz => GpuWork, [];
                cuLaunchCooperativeKernel => GpuWork, [];
                cuLaunchCooperativeKernel_ptsz => GpuWork, [];
                cuLaunchCooperativeKernelMultiDevice => GpuWork, [];
                cuLaunch => GpuWork, [];
                cuLaunchGrid => GpuWork, [];
                cuLaunchGridAsync => GpuWork, [];
                cuLaunchHostFunc => GpuWork, [];
                cuLaunchHostFunc_ptsz => GpuWork, [];
                cuLaunchHostFunc_v2 => GpuWork, [];
                cuLaunchHostFunc_v2_ptsz => GpuWork, [];
                cuGraphLaunch => GpuWork, [];
                cuGraphLaunch_ptsz => GpuWork, [];
                cuGraphUpload => GpuWork, [];
                cuGraphUpload_ptsz => GpuWork, [];

                cuMemcpy => GpuWork, [0, 1];
                cuMemcpy_ptds => GpuWork, [0, 1];
                cuMemcpyPeer => GpuWork, [0, 2];
                cuMemcpyPeer_ptds => GpuWork, [0, 2];
                cuMemcpyAsync => GpuWork, [0, 1];
                cuMemcpyAsync_ptsz => GpuWork, [0, 1];
                cuMemcpyPeerAsync => GpuWork, [0, 2];
                cuMemcpyPeerAsync_ptsz => GpuWork, [0, 2];
                cuMemcpyHtoD_v2 => GpuWork, [0];
                cuMemcpyHtoD_v2_ptds => GpuWork, [0];
                cuMemcpyDtoH_v2 => GpuWork, [1];
                cuMemcpyDtoH_v2_ptds => GpuWork, [1];
                cuMemcpyDtoD_v2 => GpuWork, [0, 1];
                cuMemcpyDtoD_v2_ptds => GpuWork, [0, 1];
                cuMemcpyDtoA_v2 => GpuWork, [2];
                cuMemcpyDtoA_v2_ptds => GpuWork, [2];
                cuMemcpyAtoD_v2 => GpuWork, [0];
                cuMemcpyAtoD_v2_ptds => GpuWork, [0];
                cuMemcpyHtoA_v2 => GpuWork, [];
                cuMemcpyHtoA_v2_ptds => GpuWork, [];
                cuMemcpyAtoH_v2 => GpuWork, [];
                cuMemcpyAtoH_v2_ptds => GpuWork, [];
                cuMemcpyAtoA_v2 => GpuWork, [];
                cuMemcpyAtoA_v2_ptds => GpuWork, [];
                cuMemcpy2D_v2 => GpuWork, [];
                cuMemcpy2D_v2_ptds => GpuWork, [];
                cuMemcpy2DUnaligned_v2 => GpuWork, [];
                cuMemcpy2DUnaligned_v2_ptds => GpuWork, [];
                cuMemcpy3D_v2 => GpuWork, [];
                cuMemcpy3D_v2_ptds => GpuWork, [];
                cuMemcpy3DPeer => GpuWork, [];
                cuMemcpy3DPeer_ptds => GpuWork, [];
                cuMemcpyHtoDAsync_v2 => GpuWork, [0];
                cuMemcpyHtoDAsync_v2_ptsz => GpuWork, [0];
                cuMemcpyDtoHAsync_v2 => GpuWork, [1];
                cuMemcpyDtoHAsync_v2_ptsz => GpuWork, [1];
                cuMemcpyDtoDAsync_v2 => GpuWork, [0, 1];
                cuMemcpyDtoDAsync_v2_ptsz => GpuWork, [0, 1];
                cuMemcpyHtoAAsync_v2 => GpuWork, [];
                cuMemcpyHtoAAsync_v2_ptsz => GpuWork, [];
                cuMemcpyAtoHAsync_v2 => GpuWork, [];
                cuMemcpyAtoHAsync_v2_ptsz => GpuWork, [];
                cuMemcpy2DAsync_v2 => GpuWork, [];
                cuMemcpy2DAsync_v2_ptsz => GpuWork, [];
                cuMemcpy3DAsync_v2 => GpuWork, [];
                cuMemcpy3DAsync_v2_ptsz => GpuWork, [];
                cuMemcpy3DPeerAsync => GpuWork, [];
                cuMemcpy3DPeerAsync_ptsz => GpuWork, [];
                cuMemcpyBatchAsync => GpuWork, [];
                cuMemcpyBatchAsync_ptsz => GpuWork, [];
                cuMemcpy3DBatchAsync => GpuWork, [];
                cuMemcpy3DBatchAsync_ptsz => GpuWork, [];
                cuMemcpyBatchAsync_v2 => GpuWork, [];
                cuMemcpyBatchAsync_v2_ptsz => GpuWork, [];
                cuMemcpy3DBatchAsync_v2 => GpuWork, [];
                cuMemcpy3DBatchAsync_v2_ptsz => GpuWork, [];
                cuMemcpyWithAttributesAsync => GpuWork, [0, 1];
                cuMemcpyWithAttributesAsync_ptsz => GpuWork, [0, 1];
                cuMemcpy3DWithAttributesAsync => GpuWork, [];
                cuMemcpy3DWithAttributesAsync_ptsz => GpuWork, [];
                cuFabricCpyBatchAsync => GpuWork, [];
                cuFabricCpyBatchAsync_ptsz => GpuWork, [];
                cuMemPrefetchBatchAsync => GpuWork, [];
                cuMemPrefetchBatchAsync_ptsz => GpuWork, [];
                cuMemDiscardBatchAsync => GpuWork, [];
                cuMemDiscardBatchAsync_ptsz => GpuWork, [];
                cuMemDiscardAndPrefetchBatchAsync => GpuWork, [];
                cuMemDiscardAndPrefetchBatchAsync_ptsz => GpuWork, [];
                cuMemsetD8_v2 => GpuWork, [0];
                cuMemsetD8_v2_ptds => GpuWork, [0];
                cuMemsetD16_v2 => GpuWork, [0];
                cuMemsetD16_v2_ptds => GpuWork, [0];
                cuMemsetD32_v2 => GpuWork, [0];
                cuMemsetD32_v2_ptds => GpuWork, [0];
                cuMemsetD2D8_v2 => GpuWork, [0];
                cuMemsetD2D8_v2_ptds => GpuWork, [0];
                cuMemsetD2D16_v2 => GpuWork, [0];
                cuMemsetD2D16_v2_ptds => GpuWork, [0];
                cuMemsetD2D32_v2 => GpuWork, [0];
                cuMemsetD2D32_v2_ptds => GpuWork, [0];
                cuMemsetD8Async => GpuWork, [0];
                cuMemsetD8Async_ptsz => GpuWork, [0];
                cuMemsetD16Async => GpuWork, [0];
                cuMemsetD16Async_ptsz => GpuWork, [0];
                cuMemsetD32Async => GpuWork, [0];
                cuMemsetD32Async_ptsz => GpuWork, [0];
                cuMemsetD2D8Async => GpuWork, [0];
                cuMemsetD2D8Async_ptsz => GpuWork, [0];
                cuMemsetD2D16Async => GpuWork, [0];
                cuMemsetD2D16Async_ptsz => GpuWork, [0];
                cuMemsetD2D32Async => GpuWork, [0];
                cuMemsetD2D32Async_ptsz => GpuWork, [0];

                cuCtxSynchronize => Sync, [], does(WaitsForDevice);
                // Of a context that the caller names: which device it is of, is not looked up.
                cuCtxSynchronize_v2 => Sync, [];
                cuStreamSynchronize => Sync, [], does(WaitsForStream);
                cuStreamSynchronize_ptsz => Sync, [], does(WaitsForStream);
                cuStreamQuery => Sync, [], does(AsksStream);
                cuStreamQuery_ptsz => Sync, [], does(AsksStream);
                cuEventSynchronize => Sync, [], does(WaitsForEvent);

                cuMemGetInfo_v2 => Reading, [];
                cuMemGetInfo => Reading, [];
                cuMemPoolGetAttribute => Reading, [];
                cuDeviceSetGraphMemAttribute => Sync, [], does(SetsPool);
            }
            answered {
                cuDeviceTotalMem_v2;
                cuDeviceTotalMem;
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
