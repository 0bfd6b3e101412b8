//! The CUDA runtime: `libcudart.so.11` to `.13`. Signatures: NVIDIA `cuda_runtime_api.h`. Functions that take a stream
//! have twins for the per-thread default stream (`_ptsz`; synchronous copies and memsets: `_ptds`).

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::CUDA_RUNTIME, library: Library::CudaRuntime, layer: Layer::Runtime, meaning: Meaning::new(Codes::CudaRuntime, Family::Pointers);
            recorded {
                cudaMalloc(out: Out, size: usize) => allocation, Alloc, Device, |done| block(done, out, size);
                cudaMallocManaged(out: Out, size: usize, flags: u32) => allocation, Alloc, Managed, |done| block(done, out, size);
                cudaMallocPitch(out: Out, pitch: *mut usize, width: usize, height: usize) => allocation, Alloc, Device,
                    |done| pitched(done, out, pitch, width, height);
                cudaMalloc3D(out: *mut u8, extent: Extent) => allocation, Alloc, Device, |done| volume(done, out, extent);
                cudaMallocArray(out: Out, channels: *const u8, width: usize, height: usize, flags: u32) => allocation, Alloc, Array,
                    |done| array(done, out, channels, Extent { width, height, depth: 0 }, 1);
                cudaMalloc3DArray(out: Out, channels: *const u8, extent: Extent, flags: u32) => allocation, Alloc, Array,
                    |done| array(done, out, channels, extent, 1);
                cudaMallocMipmappedArray(out: Out, channels: *const u8, extent: Extent, levels: u32, flags: u32) => allocation, Alloc, Array,
                    |done| array(done, out, channels, extent, levels);
                cudaMallocHost(out: Out, size: usize) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                cudaHostAlloc(out: Out, size: usize, flags: u32) => allocation, Alloc, HostPinned, |done| block(done, out, size);
                cudaHostRegister(host: Pointer, size: usize, flags: u32) => allocation, Pin, Registered,
                    |_done| Described::new(host, size as u64);
                cudaMallocAsync(out: Out, size: usize, stream: Pointer) => allocation, Alloc, Pool, |done| ordered(block(done, out, size), stream);
                cudaMallocAsync_ptsz(out: Out, size: usize, stream: Pointer) => allocation, Alloc, Pool, |done| ordered(block(done, out, size), stream);
                cudaMallocFromPoolAsync(out: Out, size: usize, memory_pool: Pointer, stream: Pointer) => allocation, Alloc, Pool,
                    |done| ordered(from_pool(done, out, size, memory_pool), stream);
                cudaMallocFromPoolAsync_ptsz(out: Out, size: usize, memory_pool: Pointer, stream: Pointer) => allocation, Alloc, Pool,
                    |done| ordered(from_pool(done, out, size, memory_pool), stream);
                cudaIpcOpenMemHandle(out: Out, handle: IpcHandle, flags: u32) => allocation, Import, Imported, |done| block(done, out, 0);
                cudaMemPoolImportPointer(out: Out, memory_pool: Pointer, data: Pointer) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                cudaImportExternalMemory(out: Out, descriptor: *const u8) => allocation, Import, Imported,
                    |done| external(done, out, descriptor);
                cudaMemPoolImportFromShareableHandle(out: Out, handle: Pointer, kind: u32, flags: u32) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                cudaGraphicsMapResources(count: i32, handles: *const u64, stream: Pointer) => allocation, Import, Imported,
                    |done| resources(done, count, handles);

                cudaFree(pointer: Pointer) => release, Free, Device, |_done| given(pointer);
                cudaFreeHost(pointer: Pointer) => release, Free, HostPinned, |_done| given(pointer);
                cudaHostUnregister(pointer: Pointer) => release, Unpin, Registered, |_done| given(pointer);
                cudaFreeArray(array: Pointer) => release, Free, Array, |_done| given(array);
                cudaFreeMipmappedArray(array: Pointer) => release, Free, Array, |_done| given(array);
                cudaFreeAsync(pointer: Pointer, stream: Pointer) => release, Free, Pool, |_done| given(pointer);
                cudaFreeAsync_ptsz(pointer: Pointer, stream: Pointer) => release, Free, Pool, |_done| given(pointer);
                cudaDestroyExternalMemory(memory: Pointer) => release, Free, Imported, |_done| given(memory);
                cudaIpcCloseMemHandle(pointer: Pointer) => release, Free, Imported, |_done| given(pointer);
                cudaGraphicsUnmapResources(count: i32, handles: *const u64, stream: Pointer) => release, Free, Imported,
                    |done| resources(done, count, handles);
                cudaGraphAddMemFreeNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, pointer: Pointer)
                    => release, Free, Pool, |_done| given(pointer);
                cudaMemPoolDestroy(memory_pool: Pointer) => release, Free, Pool, |_done| given(memory_pool), does(EndsPool);
                cudaDeviceReset() => ending, Device, None, |_done| given(0), ends(CudaDevice);
                cudaThreadExit() => ending, Device, None, |_done| given(0), ends(CudaDevice);

                cudaMemPoolCreate(out: Out, properties: *const u8) => naming, Reserve, Pool, |done| pool(done, out, properties), does(MakesPool);
                cudaDeviceGetDefaultMemPool(out: Out, device: i32) => naming, Reserve, Pool, |done| of_device(done, out, device), does(NamesPool);
                cudaDeviceGetMemPool(out: Out, device: i32) => naming, Reserve, Pool, |done| of_device(done, out, device), does(NamesPool);
                cudaDeviceSetMemPool(device: i32, memory_pool: Pointer) => naming, Reserve, Pool, |_done| pool_of(device, memory_pool), does(ChoosesPool);
                cudaExternalMemoryGetMappedBuffer(out: Out, memory: Pointer, descriptor: *const u8) => naming, Map, Imported,
                    |done| external_buffer(done, out, memory, descriptor);
                cudaExternalMemoryGetMappedMipmappedArray(out: Out, memory: Pointer, descriptor: *const u8) => naming, Map, Imported,
                    |done| external_array(done, out, memory, descriptor);
                cudaGraphicsResourceGetMappedPointer(out: Out, size: *mut usize, resource: Pointer) => naming, Map, Imported,
                    |done| resource_memory(done, out, size, resource);
                cudaGraphAddMemAllocNode(node: Pointer, graph: Pointer, after: Pointer, count: usize, parameters: *mut u8)
                    => naming, Reserve, Pool, |done| graph_memory(done, parameters);
                // Up to 12 a device number and a stream; from 13 on a location, flags and a stream.
                cudaGraphAddNode(node: Pointer, graph: Pointer, after: Pointer, fourth: Pointer, fifth: Pointer, sixth: Pointer)
                    => graph_node, Reserve, Pool, |done| graph_node(done, [fifth, sixth]);
                cudaGraphAddNode_v2(node: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, parameters: Pointer)
                    => graph_node, Reserve, Pool, |done| graph_node(done, [0, parameters]);
                cudaMemAdvise(pointer: Pointer, size: usize, advice: u32, target: u64) => naming, Map, Managed,
                    |_done| advised(pointer, size, advice, device_or_place(target));
                cudaMemPrefetchAsync(pointer: Pointer, size: usize, target: u64, fourth: u64, fifth: u64) => migration, Map, Managed,
                    |_done| sent(pointer, size, device_or_place(target));
                cudaMemPrefetchAsync_ptsz(pointer: Pointer, size: usize, target: u64, fourth: u64, fifth: u64) => migration, Map, Managed,
                    |_done| sent(pointer, size, device_or_place(target));
                cudaMemAdvise_v2(pointer: Pointer, size: usize, advice: u32, location: u64) => naming, Map, Managed,
                    |_done| advised(pointer, size, advice, place(location));
                cudaMemPrefetchAsync_v2(pointer: Pointer, size: usize, location: u64, flags: u32, stream: Pointer)
                    => migration, Map, Managed, |_done| sent(pointer, size, place(location));
                cudaMemPrefetchAsync_v2_ptsz(pointer: Pointer, size: usize, location: u64, flags: u32, stream: Pointer)
                    => migration, Map, Managed, |_done| sent(pointer, size, place(location));
                cudaDeviceSetLimit(which: u32, value: usize) => creation, Module, None, |_done| limit(which, value);

                cudaMemGetDefaultMemPool(out: Out, location: *const u8, kind: u32) => naming, Reserve, Pool,
                    |done| pool_at(done, out, location, kind), does(NamesPool);
                cudaMemSetMemPool(location: *const u8, kind: u32, memory_pool: Pointer) => naming, Reserve, Pool,
                    |_done| pool_for(location, memory_pool), does(ChoosesPool);
                cudaMemGetMemPool(out: Out, location: *const u8, kind: u32) => naming, Reserve, Pool,
                    |done| pool_at(done, out, location, kind), does(NamesPool);

                cudaSetDevice(device: i32) => selection, Device, None,
                    |_done| Described { device: Some(device_number(device)), ..given(0) };
                cudaStreamBeginCapture(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cudaStreamBeginCapture_ptsz(stream: Pointer, mode: u32) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cudaStreamBeginCaptureToGraph(
                    stream: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, mode: u32
                ) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cudaStreamBeginCaptureToGraph_ptsz(
                    stream: Pointer, graph: Pointer, after: Pointer, edges: Pointer, count: usize, mode: u32
                ) => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cudaStreamBeginRecaptureToGraph(stream: Pointer, mode: u32, graph: Pointer, callback: Pointer, user: Pointer)
                    => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cudaStreamBeginRecaptureToGraph_ptsz(stream: Pointer, mode: u32, graph: Pointer, callback: Pointer, user: Pointer)
                    => capture_begun, Sync, None, |_done| given(stream), does(BeginsCapture);
                cudaStreamEndCapture(stream: Pointer, graph: Out) => capture_ended, Sync, None, |done| captured(done, stream, graph), does(EndsCapture);
                cudaStreamEndCapture_ptsz(stream: Pointer, graph: Out)
                    => capture_ended, Sync, None, |done| captured(done, stream, graph), does(EndsCapture);
                // Five parameters before CUDA 12, three since: all of them in registers.
                cudaGraphInstantiate(out: Out, graph: Pointer, third: u64, fourth: u64, fifth: u64)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cudaGraphInstantiateWithFlags(out: Out, graph: Pointer, flags: u64)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cudaGraphInstantiateWithParams(out: Out, graph: Pointer, parameters: Pointer)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cudaGraphInstantiateWithParams_ptsz(out: Out, graph: Pointer, parameters: Pointer)
                    => naming, Module, None, |done| instantiated(done, out, graph), does(MakesGraph);
                cudaGraphExecDestroy(executable: Pointer) => release, Module, None, |_done| given(executable), does(EndsGraph);
                cudaGraphDestroy(graph: Pointer) => release, Module, None, |_done| given(graph), does(DropsGraph);

                cudaIpcGetMemHandle(handle: Pointer, pointer: Pointer) => naming, Export, Device, |_done| given(pointer);
                cudaMemPoolExportToShareableHandle(out: Pointer, memory_pool: Pointer, kind: u32, flags: u32)
                    => naming, Export, Pool, |_done| given(memory_pool);
                cudaMemPoolExportPointer(data: Pointer, pointer: Pointer) => naming, Export, Pool, |_done| given(pointer);

                cudaLibraryLoadData(
                    out: Out, image: Pointer, options: Pointer, values: Pointer, count: u32, more: Pointer, more_values: Pointer,
                    more_count: u32
                ) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cudaLibraryLoadFromFile(
                    out: Out, path: Pointer, options: Pointer, values: Pointer, count: u32, more: Pointer, more_values: Pointer,
                    more_count: u32
                ) => naming, Module, Code, |done| block(done, out, 0), does(LoadsModule);
                cudaLibraryUnload(code: Pointer) => release, Module, Code, |_done| given(code), does(UnloadsModule);

                cudaMemPoolTrimTo(memory_pool: Pointer, keep: usize) => naming, Sync, Pool, |_done| trimmed(memory_pool, keep), does(SetsPool);
                cudaMemPoolSetAttribute(memory_pool: Pointer, which: u32, value: *const u8)
                    => naming, Sync, Pool, |done| attribute(done, memory_pool, which, value), does(SetsPool);
                cudaDeviceGraphMemTrim(device: i32) => naming, Sync, Pool, |_done| pool_of(device, 0), does(SetsPool);
                cudaDeviceGetGraphMemAttribute(device: i32, which: u32, value: *const u8)
                    => naming, Sync, Pool, |done| graph_attribute(done, device, which, value), does(ReadsGraphMemory);
            }
            hands_out {
                cudaGetDriverEntryPoint(symbol: *const c_char, out: *mut *const (), flags: u64, result: Pointer)
                    => (symbol, out, NOT_SAID, flags);
                cudaGetDriverEntryPoint_ptsz(symbol: *const c_char, out: *mut *const (), flags: u64, result: Pointer)
                    => (symbol, out, NOT_SAID, if flags == 0 { 2 } else { flags });
                cudaGetDriverEntryPointByVersion(symbol: *const c_char, out: *mut *const (), version: u32, flags: u64, result: Pointer)
                    => (symbol, out, i32::try_from(version).unwrap_or(NOT_SAID), flags);
                cudaGetDriverEntryPointByVersion_ptsz(symbol: *const c_char, out: *mut *const (), version: u32, flags: u64, result: Pointer)
                    => (symbol, out, i32::try_from(version).unwrap_or(NOT_SAID), if flags == 0 { 2 } else { flags });
            }
            watched {
                cudaGetLastError => ErrorQuery, [];
                cudaPeekAtLastError => ErrorQuery, [], does(PeeksError);
                cudaGetErrorString => ErrorQuery, [], does(NamesError);
                cudaGetErrorName => ErrorQuery, [], does(NamesError);

                cudaLaunchKernel => GpuWork, [];
                cudaLaunchKernel_ptsz => GpuWork, [];
                cudaLaunchKernelExC => GpuWork, [];
                cudaLaunchKernelExC_ptsz => GpuWork, [];
                cudaLaunchCooperativeKernel => GpuWork, [];
                cudaLaunchCooperativeKernel_ptsz => GpuWork, [];
                cudaLaunchCooperativeKernelMultiDevice => GpuWork, [];
                __cudaLaunchKernel => GpuWork, [];
                __cudaLaunchKernel_ptsz => GpuWork, [];
                cudaLaunchHostFunc => GpuWork, [];
                cudaLaunchHostFunc_ptsz => GpuWork, [];
                cudaLaunchHostFunc_v2 => GpuWork, [];
                cudaLaunchHostFunc_v2_ptsz => GpuWork, [];
                cudaGraphUpload => GpuWork, [];
                cudaGraphUpload_ptsz => GpuWork, [];
                cudaGraphLaunch => GpuWork, [];
                cudaGraphLaunch_ptsz => GpuWork, [];

                cudaMemcpy => GpuWork, [0, 1];
                cudaMemcpy_ptds => GpuWork, [0, 1];
                cudaMemcpyAsync => GpuWork, [0, 1];
                cudaMemcpyAsync_ptsz => GpuWork, [0, 1];
                cudaMemcpyPeer => GpuWork, [0, 2];
                cudaMemcpyPeerAsync => GpuWork, [0, 2];
                cudaMemcpy2D => GpuWork, [0, 2];
                cudaMemcpy2D_ptds => GpuWork, [0, 2];
                cudaMemcpy2DAsync => GpuWork, [0, 2];
                cudaMemcpy2DAsync_ptsz => GpuWork, [0, 2];
                cudaMemcpy2DToArray => GpuWork, [0, 3];
                cudaMemcpy2DToArray_ptds => GpuWork, [0, 3];
                cudaMemcpy2DToArrayAsync => GpuWork, [0, 3];
                cudaMemcpy2DToArrayAsync_ptsz => GpuWork, [0, 3];
                cudaMemcpy2DFromArray => GpuWork, [0, 2];
                cudaMemcpy2DFromArray_ptds => GpuWork, [0, 2];
                cudaMemcpy2DFromArrayAsync => GpuWork, [0, 2];
                cudaMemcpy2DFromArrayAsync_ptsz => GpuWork, [0, 2];
                cudaMemcpyToArrayAsync => GpuWork, [0, 3];
                cudaMemcpyToArrayAsync_ptsz => GpuWork, [0, 3];
                cudaMemcpyFromArrayAsync => GpuWork, [0, 1];
                cudaMemcpyFromArrayAsync_ptsz => GpuWork, [0, 1];
                cudaMemcpyArrayToArray => GpuWork, [0, 3];
                cudaMemcpyArrayToArray_ptds => GpuWork, [0, 3];
                cudaMemcpy2DArrayToArray => GpuWork, [0, 3];
                cudaMemcpy2DArrayToArray_ptds => GpuWork, [0, 3];
                cudaMemcpyToArray => GpuWork, [0, 3];
                cudaMemcpyToArray_ptds => GpuWork, [0, 3];
                cudaMemcpyFromArray => GpuWork, [0, 1];
                cudaMemcpyFromArray_ptds => GpuWork, [0, 1];
                cudaMemcpy3D => GpuWork, [];
                cudaMemcpy3D_ptds => GpuWork, [];
                cudaMemcpy3DAsync => GpuWork, [];
                cudaMemcpy3DAsync_ptsz => GpuWork, [];
                cudaMemcpy3DPeer => GpuWork, [];
                cudaMemcpy3DPeer_ptds => GpuWork, [];
                cudaMemcpy3DPeerAsync => GpuWork, [];
                cudaMemcpy3DPeerAsync_ptsz => GpuWork, [];
                cudaMemcpy3DBatchAsync => GpuWork, [];
                cudaMemcpy3DBatchAsync_ptsz => GpuWork, [];
                cudaMemcpy3DWithAttributesAsync => GpuWork, [];
                cudaMemcpy3DWithAttributesAsync_ptsz => GpuWork, [];
                cudaMemcpyWithAttributesAsync => GpuWork, [0, 1];
                cudaMemcpyWithAttributesAsync_ptsz => GpuWork, [0, 1];
                cudaMemcpyToSymbol => GpuWork, [1];
                cudaMemcpyToSymbol_ptds => GpuWork, [1];
                cudaMemcpyToSymbolAsync => GpuWork, [1];
                cudaMemcpyToSymbolAsync_ptsz => GpuWork, [1];
                cudaMemcpyFromSymbol => GpuWork, [0];
                cudaMemcpyFromSymbol_ptds => GpuWork, [0];
                cudaMemcpyFromSymbolAsync => GpuWork, [0];
                cudaMemcpyFromSymbolAsync_ptsz => GpuWork, [0];
                cudaMemcpyBatchAsync => GpuWork, [];
                cudaMemcpyBatchAsync_ptsz => GpuWork, [];
                cudaMemset => GpuWork, [0];
                cudaMemset_ptds => GpuWork, [0];
                cudaMemsetAsync => GpuWork, [0];
                cudaMemsetAsync_ptsz => GpuWork, [0];
                cudaMemset2D => GpuWork, [0];
                cudaMemset2D_ptds => GpuWork, [0];
                cudaMemset2DAsync => GpuWork, [0];
                cudaMemset2DAsync_ptsz => GpuWork, [0];
                cudaMemset3D => GpuWork, [];
                cudaMemset3D_ptds => GpuWork, [];
                cudaMemset3DAsync => GpuWork, [];
                cudaMemset3DAsync_ptsz => GpuWork, [];
                cudaMemPrefetchBatchAsync => GpuWork, [];
                cudaMemPrefetchBatchAsync_ptsz => GpuWork, [];
                cudaMemDiscardBatchAsync => GpuWork, [];
                cudaMemDiscardBatchAsync_ptsz => GpuWork, [];
                cudaMemDiscardAndPrefetchBatchAsync => GpuWork, [];
                cudaMemDiscardAndPrefetchBatchAsync_ptsz => GpuWork, [];

                cudaDeviceSynchronize => Sync, [], does(WaitsForDevice);
                cudaThreadSynchronize => Sync, [], does(WaitsForDevice);
                cudaStreamSynchronize => Sync, [], does(WaitsForStream);
                cudaStreamSynchronize_ptsz => Sync, [], does(WaitsForStream);
                cudaEventSynchronize => Sync, [], does(WaitsForEvent);
                cudaStreamQuery => Sync, [], does(AsksStream);
                cudaStreamQuery_ptsz => Sync, [], does(AsksStream);
                cudaDeviceSetGraphMemAttribute => Sync, [], does(SetsPool);

                cudaMemGetInfo => Reading, [];
                cudaMemPoolGetAttribute => Reading, [];
            }
            answered {
                cudaGetDeviceProperties;
                cudaGetDeviceProperties_v2;
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
