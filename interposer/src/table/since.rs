//! Since which version of the vendor's library each hooked function is there. For the coverage page only; a function that
//! is not here is one whose beginning we do not know.
//!
//! Sources. HIP: the version node that the function has in `hip_hcc.map.in` (ROCm/clr, ROCm/rocm-systems); 4.2 is the
//! first node there is. CUDA driver: the version in the names of the types of NVIDIA `cudaTypedefs.h`, which begin at 2.0.
//! CUDA runtime: the exports of `libcudart` in NVIDIA's wheels of 11.7 to 13.5, a release of each minor version (`nvidia-cuda-runtime`).
//! HSA: the exports of Debian's `libhsa-runtime64-1` 5.2.3, 6.1.2 and 6.4.3. ggml and llama.cpp: the headers in the sources of
//! `llama-cpp-python`, which carries llama.cpp with it: the release that has the function first, where the one before has not (the day
//! is that release's). PyTorch: the exports of the wheels of 2.0 to 2.15, and the sources before. C library: the version of the symbol.
//! hipBLAS, rocBLAS, MIOpen, ROCTX: the headers of ROCm/hipBLAS, rocBLAS, MIOpen and roctracer by their tags, of which the oldest are 2.3
//! and 3.5. NVTX: the header of NVIDIA/NVTX by its tags. Requests to KFD: the list of versions in `kfd_ioctl.h`, and what the copies of that
//! header with the numbers 1.1 and 1.8 have. Requests to NVIDIA's driver: the headers of NVIDIA/open-gpu-kernel-modules by its tags, which
//! begin with 515.43.04. Requests to the DRM have no such number.

/// HIP, by the version node of ROCm.
const HIP: &[(&str, &str)] = &[
    (
        "≤ 4.2",
        "hipMalloc hipExtMallocWithFlags hipMallocManaged hipMallocPitch hipMemAllocPitch hipMalloc3D hipMallocArray \
         hipMalloc3DArray hipArrayCreate hipArray3DCreate hipMallocMipmappedArray hipMipmappedArrayCreate \
         hipHostMalloc hipHostAlloc hipMallocHost hipMemAllocHost hipHostRegister hipIpcOpenMemHandle hipFree \
         hipHostFree hipFreeHost hipHostUnregister hipFreeArray hipFreeMipmappedArray hipMipmappedArrayDestroy \
         hipIpcCloseMemHandle hipDeviceReset hipDevicePrimaryCtxReset hipDevicePrimaryCtxRetain hipCtxCreate \
         hipCtxGetCurrent hipCtxSetCurrent hipCtxPushCurrent hipSetDevice hipGetLastError hipPeekAtLastError \
         hipGetErrorString hipGetErrorName hipLaunchKernel hipExtLaunchKernel hipModuleLaunchKernel \
         hipExtModuleLaunchKernel \
         _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j \
         _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_ \
         hipLaunchCooperativeKernel hipLaunchCooperativeKernelMultiDevice hipLaunchByPtr \
         hipExtLaunchMultiKernelMultiDevice hipMemcpy hipMemcpyAsync hipMemcpyWithStream hipMemcpyHtoD \
         hipMemcpyHtoDAsync hipMemcpyDtoH hipMemcpyDtoHAsync hipMemcpyDtoD hipMemcpyDtoDAsync hipMemcpyPeer \
         hipMemcpyPeerAsync hipMemcpy2D hipMemcpy2DAsync hipMemcpy2DToArray hipMemcpy2DFromArray \
         hipMemcpy2DFromArrayAsync hipMemcpyToArray hipMemcpyFromArray hipMemcpyAtoH hipMemcpyHtoA hipMemcpyParam2D \
         hipMemcpyParam2DAsync hipMemcpy3D hipMemcpy3DAsync hipDrvMemcpy3D hipDrvMemcpy3DAsync hipMemcpyToSymbol \
         hipMemcpyToSymbolAsync hipMemcpyFromSymbol hipMemcpyFromSymbolAsync hipMemset hipMemsetAsync hipMemsetD8 \
         hipMemsetD8Async hipMemsetD16 hipMemsetD16Async hipMemsetD32 hipMemsetD32Async hipMemset2D hipMemset2DAsync \
         hipMemset3D hipMemset3DAsync hipMemPrefetchAsync hipDeviceSynchronize hipStreamSynchronize \
         hipEventSynchronize hipStreamQuery hipMemGetInfo hipModuleLoad hipModuleLoadData hipModuleLoadDataEx \
         hipModuleUnload hipMemAdvise hipIpcGetMemHandle hipDeviceTotalMem hipGetDeviceProperties hipGetDevicePropertiesR0000 \
         hipDeviceGetAttribute hipDeviceGetLimit",
    ),
    (
        "4.3",
        "hipImportExternalMemory hipArrayDestroy hipDestroyExternalMemory hipExternalMemoryGetMappedBuffer \
         hipStreamBeginCapture hipStreamEndCapture hipGraphLaunch hipMemcpy2DToArrayAsync hipDrvMemcpy2DUnaligned hipGraphicsMapResources \
         hipGraphicsResourceGetMappedPointer hipGraphicsUnmapResources hipGraphInstantiate hipGraphExecDestroy \
         hipGraphDestroy",
    ),
    (
        "4.5",
        "hipDeviceGraphMemTrim hipDeviceGetGraphMemAttribute hipDeviceSetGraphMemAttribute hipGraphInstantiateWithFlags",
    ),
    (
        "5.1",
        "hipMallocAsync hipMallocFromPoolAsync hipMemCreate hipMemPoolImportPointer hipMemImportFromShareableHandle \
         hipMemPoolImportFromShareableHandle hipFreeAsync hipMemRelease hipMemUnmap hipMemAddressFree \
         hipMemPoolDestroy hipMemAddressReserve hipMemMap hipMemPoolCreate hipDeviceGetDefaultMemPool \
         hipDeviceGetMemPool hipDeviceSetMemPool hipMemPoolTrimTo hipMemPoolSetAttribute hipMemPoolGetAttribute \
         hipMemRetainAllocationHandle hipMemExportToShareableHandle hipMemPoolExportToShareableHandle \
         hipMemPoolExportPointer",
    ),
    (
        "5.2",
        "hipLaunchKernel_spt hipLaunchCooperativeKernel_spt hipMemcpy_spt hipMemcpyAsync_spt hipMemcpy2D_spt \
         hipMemcpy2DToArray_spt hipMemcpy2DFromArray_spt hipMemcpy3D_spt hipMemcpyToSymbol_spt \
         hipMemcpyFromSymbol_spt hipMemset_spt hipMemset2D_spt hipMemset3D_spt hipStreamSynchronize_spt \
         hipStreamQuery_spt",
    ),
    (
        "5.3",
        "hipDrvGetErrorString hipDrvGetErrorName hipLaunchHostFunc hipGraphLaunch_spt hipMemcpy2DAsync_spt \
         hipMemcpy2DToArrayAsync_spt hipMemcpy2DFromArrayAsync_spt hipMemcpyFromArray_spt hipMemcpy3DAsync_spt \
         hipMemcpyToSymbolAsync_spt hipMemcpyFromSymbolAsync_spt hipMemsetAsync_spt hipMemset2DAsync_spt \
         hipMemset3DAsync_spt hipDeviceSetLimit hipStreamBeginCapture_spt hipStreamEndCapture_spt \
         hipLaunchHostFunc_spt hipGraphUpload",
    ),
    (
        "5.5",
        "hipModuleLaunchCooperativeKernel hipModuleLaunchCooperativeKernelMultiDevice hipGraphAddMemAllocNode \
         hipGraphAddMemFreeNode hipGraphAddNode",
    ),
    ("6.0", "hipExtGetLastError hipGetDevicePropertiesR0600"),
    ("6.1", "hipGetProcAddress hipStreamBeginCaptureToGraph hipGraphInstantiateWithParams"),
    (
        "6.2",
        "hipDrvGraphAddMemFreeNode hipMemcpyAtoD hipMemcpyDtoA hipMemcpyAtoA hipMemcpyAtoHAsync hipMemcpyHtoAAsync \
         hipMemcpy2DArrayToArray",
    ),
    ("6.5", "hipLaunchKernelExC hipDrvLaunchKernelEx hipMemGetHandleForAddressRange"),
    (
        "7.1",
        "hipModuleLoadFatBinary hipMemcpyBatchAsync hipGetDriverEntryPoint hipGetDriverEntryPoint_spt \
         hipMemPrefetchAsync_v2 hipMemAdvise_v2 hipMemcpy3DPeer hipMemcpy3DPeerAsync hipMemcpy3DBatchAsync \
         hipMemsetD2D8 hipMemsetD2D8Async hipMemsetD2D16 hipMemsetD2D16Async hipMemsetD2D32 hipMemsetD2D32Async",
    ),
    (
        "7.2",
        "hipLibraryLoadData hipLibraryLoadFromFile hipLibraryUnload hipMemGetMemPool hipMemSetMemPool hipMemPrefetchBatchAsync \
         hipGetProcAddress_spt",
    ),
    (
        "7.14",
        "hipMemDiscardBatchAsync hipMemDiscardAndPrefetchBatchAsync hipDrvMemDiscardBatchAsync \
         hipDrvMemDiscardAndPrefetchBatchAsync",
    ),
    ("10.0", "hipMemGetDefaultMemPool"),
];

/// The CUDA driver.
const DRIVER: &[(&str, &str)] = &[
    (
        "≤ 2.0",
        "cuMemAlloc cuMemAllocHost cuMemFree cuMemFreeHost cuArrayDestroy cuLaunch cuLaunchGrid cuLaunchGridAsync \
         cuCtxSynchronize cuStreamSynchronize cuStreamQuery cuEventSynchronize cuMemGetInfo cuModuleLoad \
         cuModuleLoadData cuModuleLoadFatBinary cuModuleUnload cuMemAllocPitch cuArrayCreate cuArray3DCreate cuCtxCreate cuCtxDestroy \
         cuDeviceTotalMem",
    ),
    ("2.1", "cuModuleLoadDataEx"),
    ("2.2", "cuMemHostAlloc"),
    ("3.0", "cuGraphicsMapResources cuGraphicsUnmapResources"),
    ("3.1", "cuCtxSetLimit"),
    (
        "3.2",
        "cuDeviceTotalMem_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemAllocHost_v2 cuArrayCreate_v2 cuArray3DCreate_v2 cuMemFree_v2 \
         cuCtxCreate_v2 cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyDtoA_v2 cuMemcpyAtoD_v2 \
         cuMemcpyHtoA_v2 cuMemcpyAtoH_v2 cuMemcpyAtoA_v2 cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy3D_v2 \
         cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2 \
         cuMemcpy2DAsync_v2 cuMemcpy3DAsync_v2 cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 \
         cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async \
         cuMemsetD2D16Async cuMemsetD2D32Async cuMemGetInfo_v2 \
         cuGraphicsResourceGetMappedPointer_v2",
    ),
    (
        "4.0",
        "cuMemHostRegister cuMemHostUnregister cuCtxDestroy_v2 cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 \
         cuLaunchKernel cuMemcpy cuMemcpyPeer cuMemcpyAsync cuMemcpyPeerAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync",
    ),
    ("4.1", "cuIpcOpenMemHandle cuIpcCloseMemHandle cuIpcGetMemHandle"),
    ("5.0", "cuMipmappedArrayCreate cuMipmappedArrayDestroy"),
    ("6.0", "cuMemAllocManaged cuGetErrorString cuGetErrorName"),
    ("6.5", "cuMemHostRegister_v2"),
    (
        "7.0",
        "cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuDevicePrimaryCtxRetain cuLaunchKernel_ptsz cuMemcpy_ptds cuMemcpyPeer_ptds \
         cuMemcpyAsync_ptsz cuMemcpyPeerAsync_ptsz cuMemcpyHtoD_v2_ptds cuMemcpyDtoH_v2_ptds cuMemcpyDtoD_v2_ptds \
         cuMemcpyDtoA_v2_ptds cuMemcpyAtoD_v2_ptds cuMemcpyHtoA_v2_ptds cuMemcpyAtoH_v2_ptds cuMemcpyAtoA_v2_ptds \
         cuMemcpy2D_v2_ptds cuMemcpy2DUnaligned_v2_ptds cuMemcpy3D_v2_ptds cuMemcpy3DPeer_ptds \
         cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoDAsync_v2_ptsz cuMemcpyHtoAAsync_v2_ptsz \
         cuMemcpyAtoHAsync_v2_ptsz cuMemcpy2DAsync_v2_ptsz cuMemcpy3DAsync_v2_ptsz cuMemcpy3DPeerAsync_ptsz \
         cuMemsetD8_v2_ptds cuMemsetD16_v2_ptds cuMemsetD32_v2_ptds cuMemsetD2D8_v2_ptds cuMemsetD2D16_v2_ptds \
         cuMemsetD2D32_v2_ptds cuMemsetD8Async_ptsz cuMemsetD16Async_ptsz cuMemsetD32Async_ptsz \
         cuMemsetD2D8Async_ptsz cuMemsetD2D16Async_ptsz cuMemsetD2D32Async_ptsz cuStreamSynchronize_ptsz \
         cuStreamQuery_ptsz cuGraphicsMapResources_ptsz cuGraphicsUnmapResources_ptsz",
    ),
    ("8.0", "cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemAdvise"),
    ("9.0", "cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz cuLaunchCooperativeKernelMultiDevice"),
    (
        "10.0",
        "cuImportExternalMemory cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer cuStreamEndCapture \
         cuStreamEndCapture_ptsz cuLaunchHostFunc cuLaunchHostFunc_ptsz cuGraphLaunch cuGraphLaunch_ptsz \
         cuExternalMemoryGetMappedMipmappedArray cuStreamBeginCapture cuStreamBeginCapture_ptsz cuGraphInstantiate \
         cuGraphExecDestroy cuGraphDestroy",
    ),
    ("10.1", "cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz"),
    (
        "10.2",
        "cuMemCreate cuMemImportFromShareableHandle cuMemRelease cuMemUnmap cuMemAddressFree cuMemAddressReserve \
         cuMemMap cuMemExportToShareableHandle",
    ),
    (
        "11.0",
        "cuIpcOpenMemHandle_v2 cuMemRetainAllocationHandle cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 \
         cuGraphInstantiate_v2",
    ),
    ("11.1", "cuGraphUpload cuGraphUpload_ptsz"),
    (
        "11.2",
        "cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz \
         cuMemPoolExportToShareableHandle cuMemPoolExportPointer \
         cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemFreeAsync cuMemFreeAsync_ptsz \
         cuMemPoolDestroy cuMemPoolCreate cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool \
         cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolGetAttribute",
    ),
    ("11.3", "cuGetProcAddress"),
    (
        "11.4",
        "cuCtxCreate_v3 cuDeviceGraphMemTrim cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphInstantiateWithFlags \
         cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute",
    ),
    ("11.6", "cuLaunchKernelEx cuLaunchKernelEx_ptsz"),
    ("11.7", "cuMemGetHandleForAddressRange"),
    (
        "12.0",
        "cuGetProcAddress_v2 cuGetProcAddress_v2_ptsz cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuGraphInstantiateWithParams \
     cuGraphInstantiateWithParams_ptsz",
    ),
    ("12.1", "cuMulticastCreate"),
    ("12.2", "cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz cuMemAdvise_v2 cuGraphAddNode"),
    ("12.3", "cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuGraphAddNode_v2"),
    ("12.5", "cuCtxCreate_v4"),
    ("12.8", "cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz"),
    (
        "13.0",
        "cuMemGetMemPool cuMemSetMemPool cuMemGetDefaultMemPool cuCtxSynchronize_v2 cuMemcpyBatchAsync_v2 \
         cuMemcpyBatchAsync_v2_ptsz cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz cuMemPrefetchBatchAsync \
         cuMemPrefetchBatchAsync_ptsz cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz \
         cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz",
    ),
    ("13.1", "cuLaunchHostFunc_v2 cuLaunchHostFunc_v2_ptsz"),
    (
        "13.2",
        "cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync_ptsz cuMemcpy3DWithAttributesAsync \
         cuMemcpy3DWithAttributesAsync_ptsz",
    ),
    ("13.3", "cuStreamBeginRecaptureToGraph cuStreamBeginRecaptureToGraph_ptsz"),
    ("13.4", "cuGraphAddNode_v3"),
    ("13.5", "cuFabricCpyBatchAsync cuFabricCpyBatchAsync_ptsz"),
];

/// The CUDA runtime.
const RUNTIME: &[(&str, &str)] = &[
    ("11.3", "cudaGetDriverEntryPoint cudaGetDriverEntryPoint_ptsz"),
    (
        "≤ 11.7",
        "cudaMalloc cudaMallocManaged cudaMallocPitch cudaMalloc3D cudaMallocArray cudaMalloc3DArray \
         cudaMallocMipmappedArray cudaMallocHost cudaHostAlloc cudaHostRegister cudaMallocAsync cudaMallocAsync_ptsz \
         cudaMallocFromPoolAsync cudaMallocFromPoolAsync_ptsz cudaIpcOpenMemHandle cudaMemPoolImportPointer \
         cudaImportExternalMemory cudaMemPoolImportFromShareableHandle cudaGraphicsMapResources cudaFree cudaFreeHost \
         cudaHostUnregister cudaFreeArray cudaFreeMipmappedArray cudaFreeAsync cudaFreeAsync_ptsz \
         cudaDestroyExternalMemory cudaIpcCloseMemHandle cudaGraphicsUnmapResources cudaGraphAddMemFreeNode \
         cudaMemPoolDestroy cudaDeviceReset cudaThreadExit cudaMemPoolCreate cudaDeviceGetDefaultMemPool \
         cudaDeviceGetMemPool cudaDeviceSetMemPool cudaExternalMemoryGetMappedBuffer \
         cudaExternalMemoryGetMappedMipmappedArray cudaGraphicsResourceGetMappedPointer cudaGraphAddMemAllocNode \
         cudaMemAdvise cudaMemPrefetchAsync cudaMemPrefetchAsync_ptsz cudaDeviceSetLimit cudaSetDevice \
         cudaStreamBeginCapture cudaStreamBeginCapture_ptsz cudaStreamEndCapture cudaStreamEndCapture_ptsz \
         cudaGraphInstantiate cudaGraphInstantiateWithFlags cudaGraphExecDestroy cudaGraphDestroy cudaIpcGetMemHandle \
         cudaMemPoolExportToShareableHandle cudaMemPoolExportPointer cudaMemPoolTrimTo cudaMemPoolSetAttribute \
         cudaDeviceGraphMemTrim cudaDeviceGetGraphMemAttribute cudaGetLastError cudaPeekAtLastError \
         cudaGetErrorString cudaGetErrorName cudaLaunchKernel cudaLaunchKernel_ptsz cudaLaunchCooperativeKernel \
         cudaLaunchCooperativeKernel_ptsz cudaLaunchCooperativeKernelMultiDevice cudaLaunchHostFunc \
         cudaLaunchHostFunc_ptsz cudaGraphUpload cudaGraphUpload_ptsz cudaGraphLaunch cudaGraphLaunch_ptsz cudaMemcpy \
         cudaMemcpy_ptds cudaMemcpyAsync cudaMemcpyAsync_ptsz cudaMemcpyPeer cudaMemcpyPeerAsync cudaMemcpy2D \
         cudaMemcpy2D_ptds cudaMemcpy2DAsync cudaMemcpy2DAsync_ptsz cudaMemcpy2DToArray cudaMemcpy2DToArray_ptds \
         cudaMemcpy2DToArrayAsync cudaMemcpy2DToArrayAsync_ptsz cudaMemcpy2DFromArray cudaMemcpy2DFromArray_ptds \
         cudaMemcpy2DFromArrayAsync cudaMemcpy2DFromArrayAsync_ptsz cudaMemcpyToArrayAsync \
         cudaMemcpyToArrayAsync_ptsz cudaMemcpyFromArrayAsync cudaMemcpyFromArrayAsync_ptsz cudaMemcpyArrayToArray \
         cudaMemcpyArrayToArray_ptds cudaMemcpy2DArrayToArray cudaMemcpy2DArrayToArray_ptds cudaMemcpyToArray \
         cudaMemcpyToArray_ptds cudaMemcpyFromArray cudaMemcpyFromArray_ptds cudaMemcpy3D cudaMemcpy3D_ptds \
         cudaMemcpy3DAsync cudaMemcpy3DAsync_ptsz cudaMemcpy3DPeer cudaMemcpy3DPeer_ptds cudaMemcpy3DPeerAsync \
         cudaMemcpy3DPeerAsync_ptsz cudaMemcpyToSymbol cudaMemcpyToSymbol_ptds cudaMemcpyToSymbolAsync \
         cudaMemcpyToSymbolAsync_ptsz cudaMemcpyFromSymbol cudaMemcpyFromSymbol_ptds cudaMemcpyFromSymbolAsync \
         cudaMemcpyFromSymbolAsync_ptsz cudaMemset cudaMemset_ptds cudaMemsetAsync cudaMemsetAsync_ptsz cudaMemset2D \
         cudaMemset2D_ptds cudaMemset2DAsync cudaMemset2DAsync_ptsz cudaMemset3D cudaMemset3D_ptds cudaMemset3DAsync \
         cudaMemset3DAsync_ptsz cudaDeviceSynchronize cudaThreadSynchronize \
         cudaStreamSynchronize cudaStreamSynchronize_ptsz cudaEventSynchronize cudaStreamQuery cudaStreamQuery_ptsz \
         cudaDeviceSetGraphMemAttribute cudaMemGetInfo cudaMemPoolGetAttribute cudaGetDeviceProperties",
    ),
    ("11.8", "cudaLaunchKernelExC cudaLaunchKernelExC_ptsz"),
    (
        "12.0",
        "cudaGraphInstantiateWithParams cudaGraphInstantiateWithParams_ptsz __cudaLaunchKernel \
         __cudaLaunchKernel_ptsz cudaGetDeviceProperties_v2",
    ),
    ("12.2", "cudaGraphAddNode cudaMemAdvise_v2 cudaMemPrefetchAsync_v2 cudaMemPrefetchAsync_v2_ptsz"),
    ("12.3", "cudaGraphAddNode_v2 cudaStreamBeginCaptureToGraph cudaStreamBeginCaptureToGraph_ptsz"),
    ("12.5", "cudaGetDriverEntryPointByVersion cudaGetDriverEntryPointByVersion_ptsz"),
    (
        "12.8",
        "cudaLibraryLoadData cudaLibraryLoadFromFile cudaLibraryUnload cudaMemcpy3DBatchAsync \
         cudaMemcpy3DBatchAsync_ptsz cudaMemcpyBatchAsync cudaMemcpyBatchAsync_ptsz",
    ),
    (
        "13",
        "cudaMemGetDefaultMemPool cudaMemSetMemPool cudaMemGetMemPool cudaMemPrefetchBatchAsync \
         cudaMemPrefetchBatchAsync_ptsz cudaMemDiscardBatchAsync cudaMemDiscardBatchAsync_ptsz \
         cudaMemDiscardAndPrefetchBatchAsync cudaMemDiscardAndPrefetchBatchAsync_ptsz",
    ),
    (
        "13.2",
        "cudaLaunchHostFunc_v2 cudaLaunchHostFunc_v2_ptsz cudaMemcpy3DWithAttributesAsync \
         cudaMemcpy3DWithAttributesAsync_ptsz cudaMemcpyWithAttributesAsync cudaMemcpyWithAttributesAsync_ptsz",
    ),
    ("13.3", "cudaStreamBeginRecaptureToGraph cudaStreamBeginRecaptureToGraph_ptsz"),
];

/// HSA, by ROCm. "≤": a release that has it, where the one before was not looked at.
const HSA: &[(&str, &str)] = &[
    (
        "≤ 5.2",
        "hsa_amd_memory_pool_allocate hsa_memory_allocate hsa_amd_memory_lock hsa_amd_memory_lock_to_pool \
         hsa_memory_register hsa_amd_interop_map_buffer hsa_amd_ipc_memory_attach hsa_amd_memory_pool_free \
         hsa_memory_free hsa_amd_memory_unlock hsa_memory_deregister hsa_amd_interop_unmap_buffer \
         hsa_amd_ipc_memory_detach hsa_queue_destroy hsa_executable_destroy hsa_shut_down \
         hsa_amd_svm_attributes_set hsa_amd_svm_prefetch_async hsa_queue_create \
         hsa_code_object_reader_create_from_memory hsa_code_object_reader_create_from_file \
         hsa_executable_load_agent_code_object hsa_executable_load_program_code_object \
         hsa_executable_load_code_object hsa_executable_freeze hsa_amd_ipc_memory_create hsa_status_string \
         hsa_memory_copy hsa_amd_memory_fill hsa_amd_memory_async_copy hsa_amd_memory_async_copy_rect \
         hsa_amd_memory_pool_get_info hsa_region_get_info hsa_agent_get_info",
    ),
    (
        "≤ 6.1",
        "hsa_amd_vmem_handle_create hsa_amd_vmem_import_shareable_handle hsa_amd_vmem_handle_release \
         hsa_amd_vmem_unmap hsa_amd_vmem_address_free hsa_amd_vmem_address_reserve hsa_amd_vmem_map \
         hsa_amd_vmem_retain_alloc_handle hsa_amd_portable_export_dmabuf hsa_amd_vmem_export_shareable_handle \
         hsa_amd_memory_async_copy_on_engine",
    ),
    ("≤ 6.4", "hsa_amd_vmem_address_reserve_align"),
];

/// ggml and llama.cpp, by the day of a release of `llama-cpp-python`.
const GGML: &[(&str, &str)] = &[
    ("2023-06-26", "llama_load_model_from_file llama_new_context_with_model"),
    ("2023-09-30", "llama_decode"),
    ("2023-11-01", "ggml_backend_buffer_free"),
    ("2023-11-14", "ggml_gallocr_alloc_graph"),
    ("2023-12-11", "ggml_backend_buft_alloc_buffer ggml_backend_alloc_ctx_tensors_from_buft"),
    ("2024-01-15", "ggml_backend_buffer_set_usage"),
    ("2024-02-13", "ggml_gallocr_reserve ggml_gallocr_reserve_n ggml_backend_sched_reserve"),
    ("2024-03-18", "ggml_backend_sched_alloc_graph"),
    ("2024-07-09", "llama_encode"),
    ("2024-07-28", "ggml_abort _Z18llama_log_internal14ggml_log_levelPKcz"),
    ("2024-11-16", "ggml_log_internal"),
    ("2025-01-08", "llama_model_load_from_file"),
    ("2025-01-29", "llama_model_load_from_splits llama_init_from_model"),
];

/// PyTorch. "≤": the oldest that was looked at.
const TORCH: &[(&str, &str)] = &[
    ("1.10 (to 1.13)", "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"),
    (
        "≤ 2.0",
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    ),
];

/// The C library and the C++ runtime, by the version that the symbol has.
const PROCESS: &[(&str, &str)] =
    &[("GLIBC_2.2.5", "_exit abort"), ("GLIBC_2.10", "quick_exit"), ("CXXABI_1.3", "__cxa_throw")];

/// Libraries' handles. "≤": the oldest tag.
const HANDLES: &[(&str, &str)] =
    &[("≤ ROCm 2.3", "hipblasCreate rocblas_create_handle"), ("≤ ROCm 3.5", "miopenCreate")];

/// Requests to the kernel. "≤": the oldest header that has it, of those that were read.
const KERNEL: &[(&str, &str)] = &[
    ("KFD 1.1", "AMDKFD_IOC_CREATE_QUEUE AMDKFD_IOC_DESTROY_QUEUE AMDKFD_IOC_SET_SCRATCH_BACKING_VA"),
    (
        "≤ KFD 1.8",
        "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU AMDKFD_IOC_FREE_MEMORY_OF_GPU AMDKFD_IOC_MAP_MEMORY_TO_GPU \
         AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU AMDKFD_IOC_IMPORT_DMABUF",
    ),
    ("KFD 1.5", "AMDKFD_IOC_SVM"),
    ("KFD 1.9", "AMDKFD_IOC_AVAILABLE_MEMORY"),
    (
        "≤ 515.43.04",
        "NV_ESC_RM_ALLOC NV_ESC_RM_VID_HEAP_CONTROL NV_ESC_RM_FREE NV_ESC_RM_DUP_OBJECT UVM_CREATE_EXTERNAL_RANGE \
         UVM_MAP_DYNAMIC_PARALLELISM_REGION UVM_FREE UVM_MAP_EXTERNAL_ALLOCATION UVM_UNMAP_EXTERNAL \
         UVM_ALLOC_SEMAPHORE_POOL UVM_SET_PREFERRED_LOCATION UVM_MIGRATE UVM_MIGRATE_RANGE_GROUP",
    ),
    ("565.57.01", "UVM_ALLOC_DEVICE_P2P"),
];

/// OpenCL, by the version node that the function has in ocl-icd's `libOpenCL.so.1` (2.3.3).
const OPENCL: &[(&str, &str)] = &[
    (
        "1.0",
        "clCreateContext clCreateContextFromType clCreateCommandQueue clCreateBuffer clCreateImage2D clCreateImage3D clBuildProgram clFlush \
         clFinish clEnqueueMapBuffer clEnqueueMapImage clEnqueueUnmapMemObject clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueCopyBuffer \
         clEnqueueReadImage clEnqueueWriteImage clEnqueueCopyImage clEnqueueCopyImageToBuffer clEnqueueCopyBufferToImage clEnqueueNDRangeKernel \
         clEnqueueTask",
    ),
    ("1.1", "clCreateSubBuffer clEnqueueReadBufferRect clEnqueueWriteBufferRect clEnqueueCopyBufferRect"),
    ("1.2", "clCreateImage clEnqueueFillBuffer clEnqueueFillImage clEnqueueMigrateMemObjects"),
    (
        "2.0",
        "clCreateCommandQueueWithProperties clCreatePipe clSVMAlloc clEnqueueSVMMemcpy clEnqueueSVMMemFill clEnqueueSVMMap clEnqueueSVMUnmap",
    ),
    ("2.1", "clEnqueueSVMMigrateMem"),
    ("3.0", "clCreateBufferWithProperties clCreateImageWithProperties"),
];

/// ROCTX, by ROCm. "≤": the oldest tag.
const ROCTX: &[(&str, &str)] =
    &[("≤ 3.5", "roctxMarkA roctxRangePushA roctxRangePop"), ("3.8", "roctxRangeStartA roctxRangeStop")];

/// NVTX. "≤": the oldest tag.
const NVTX: &[(&str, &str)] = &[(
    "≤ 3.0.1",
    "nvtxMarkEx nvtxMarkA nvtxMarkW nvtxRangeStartEx nvtxRangeStartA nvtxRangeStartW nvtxRangeEnd nvtxRangePushEx nvtxRangePushA \
     nvtxRangePushW nvtxRangePop nvtxDomainMarkEx nvtxDomainRangeStartEx nvtxDomainRangeEnd nvtxDomainRangePushEx \
     nvtxDomainRangePop",
)];

/// The version of a function, empty where it is not known.
pub(super) fn since(name: &str) -> &'static str {
    let known = all().find(|(_, known)| *known == name);
    known.map_or("", |(version, _)| version)
}

/// Version and name of every function that is listed.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tables = [HIP, DRIVER, RUNTIME, HSA, HANDLES, KERNEL, TORCH, GGML, ROCTX, NVTX, OPENCL, PROCESS];
    tables.into_iter().flatten().flat_map(|(version, names)| names.split_whitespace().map(move |name| (*version, name)))
}

#[test]
fn what_is_listed_is_hooked_and_listed_once() {
    let hooked: std::collections::HashSet<&str> = super::rows().map(|row| row.name).collect();
    let mut seen = std::collections::HashSet::new();
    for (version, name) in all() {
        assert!(hooked.contains(name), "{name} ({version}) is not hooked");
        assert!(seen.insert(name), "{name} is listed twice");
    }
}
