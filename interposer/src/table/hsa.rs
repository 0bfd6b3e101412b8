//! HSA: `libhsa-runtime64.so.1`, what lies below HIP. Signatures: ROCm/rocm-systems rocr-runtime `inc/hsa.h` and
//! `inc/hsa_ext_amd.h`. Agents, pools, regions, signals and handles are structures of one u64, passed like one.

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::HSA, library: Library::Hsa, layer: Layer::Hsa, meaning: Meaning::new(Codes::Hsa, Family::Pointers);
            recorded {
                hsa_amd_memory_pool_allocate(pool: u64, size: usize, flags: u32, out: Out) => allocation, Alloc, Device,
                    |done| of_pool(pool, block(done, out, size));
                hsa_memory_allocate(region: u64, size: usize, out: Out) => allocation, Alloc, Device,
                    |done| lying_in(region, block(done, out, size));
                hsa_amd_memory_lock(host: Pointer, size: usize, agents: Pointer, count: i32, out: Pointer) => allocation, Pin, Registered,
                    |_done| Described::new(host, size as u64);
                hsa_amd_memory_lock_to_pool(host: Pointer, size: usize, agents: Pointer, count: i32, pool: u64, flags: u32, out: Pointer)
                    => allocation, Pin, Registered, |_done| Described::new(host, size as u64);
                hsa_memory_register(host: Pointer, size: usize) => allocation, Pin, Registered,
                    |_done| Described::new(host, size as u64);
                hsa_amd_vmem_handle_create(pool: u64, size: usize, memory_type: u32, flags: u64, out: Out) => allocation, Alloc, Physical,
                    |done| of_holder(pool, block(done, out, size));
                hsa_amd_vmem_import_shareable_handle(descriptor: i32, out: Out) => allocation, Import, Imported,
                    |done| block(done, out, 0);
                hsa_amd_interop_map_buffer(
                    count: u32, agents: *const u64, handle: Pointer, flags: u32, size: *mut usize, out: Out, metadata_size: Pointer,
                    metadata: Pointer
                ) => allocation, Import, Imported, |done| shared(done, out, size, count, agents);
                hsa_amd_interop_map_buffer_with_size(
                    count: u32, agents: *const u64, handle: Pointer, flags: u32, hint: usize, size: *mut usize, out: Out,
                    metadata_size: Pointer, metadata: Pointer
                ) => allocation, Import, Imported, |done| shared(done, out, size, count, agents);
                hsa_amd_ipc_memory_attach(handle: Pointer, size: usize, count: u32, agents: *const u64, out: Out)
                    => allocation, Import, Imported, |done| of_first(done, count, agents, block(done, out, size));

                hsa_amd_memory_pool_free(pointer: Pointer) => release, Free, Device, |_done| of_unknown_place(pointer);
                hsa_memory_free(pointer: Pointer) => release, Free, Device, |_done| of_unknown_place(pointer);
                hsa_amd_memory_unlock(host: Pointer) => release, Unpin, Registered, |_done| given(host);
                hsa_memory_deregister(host: Pointer, size: usize) => release, Unpin, Registered, |_done| given(host);
                hsa_amd_vmem_handle_release(handle: u64) => release, Free, Physical, |_done| given(handle);
                hsa_amd_vmem_unmap(pointer: Pointer, size: usize) => release, Unmap, Physical,
                    |_done| Described::new(pointer, size as u64);
                hsa_amd_vmem_address_free(pointer: Pointer, size: usize) => release, Free, Reserved,
                    |_done| Described::new(pointer, size as u64);
                hsa_amd_interop_unmap_buffer(pointer: Pointer) => release, Free, Imported, |_done| given(pointer);
                hsa_amd_ipc_memory_detach(pointer: Pointer) => release, Free, Imported, |_done| given(pointer);
                hsa_queue_destroy(queue: Pointer) => release, Free, Queue, |_done| given(queue);
                hsa_executable_destroy(executable: u64) => release, Module, Code, |_done| given(executable), does(UnloadsCode);
                // What a handle stands for is over when HSA is. The memory is not: ROCr gives none of it back (`analyzer` has why).
                hsa_shut_down() => release, Device, None, |_done| { places::forget(); given(0) };

                hsa_amd_vmem_address_reserve(out: Out, size: usize, wanted: u64, flags: u64) => naming, Reserve, Reserved,
                    |done| block(done, out, size);
                hsa_amd_vmem_address_reserve_align(out: Out, size: usize, wanted: u64, alignment: u64, flags: u64)
                    => naming, Reserve, Reserved, |done| block(done, out, size);
                hsa_amd_vmem_map(pointer: Pointer, size: usize, offset: usize, handle: u64, flags: u64) => naming, Map, Physical,
                    |_done| mapping(pointer, size, offset, handle);
                // One more reference to the physical memory that is mapped at the address.
                hsa_amd_vmem_retain_alloc_handle(out: Out, mapped: Pointer) => naming, Import, Physical,
                    |done| retained(done, out, mapped);
                hsa_amd_svm_attributes_set(pointer: Pointer, size: usize, attributes: *const u8, count: usize) => naming, Map, Managed,
                    |done| attributes_of(done, pointer, size, attributes, count);
                hsa_amd_svm_prefetch_async(pointer: Pointer, size: usize, agent: u64, awaited: u32, signals: Pointer, signal: u64)
                    => migration, Map, Managed, |_done| of_holder(agent, Described::new(pointer, size as u64));

                // A queue's ring, its buffers and the code of an executable are memory whose size nobody up here tells.
                hsa_queue_create(
                    agent: u64, packets: u32, queue_type: u32, callback: Pointer, data: Pointer, private: u32, group: u32, out: Out
                ) => creation, Reserve, Queue, |done| of_holder(agent, block(done, out, packets as usize * PACKET_BYTES));
                hsa_code_object_reader_create_from_memory(code: Pointer, size: usize, out: Out) => creation, Module, None,
                    |done| block(done, out, size);
                hsa_code_object_reader_create_from_file(file: i32, out: Out) => creation, Module, None, |done| block(done, out, 0);
                hsa_executable_load_agent_code_object(executable: u64, agent: u64, reader: u64, options: Pointer, loaded: Pointer)
                    => creation, Module, Code, |_done| of_holder(agent, loading(executable, reader)), does(LoadsCode);
                hsa_executable_load_program_code_object(executable: u64, reader: u64, options: Pointer, loaded: Pointer)
                    => creation, Module, Code, |_done| loading(executable, reader), does(LoadsCode);
                hsa_executable_load_code_object(executable: u64, agent: u64, code: u64, options: Pointer) => creation, Module, Code,
                    |_done| of_holder(agent, loading(executable, code)), does(LoadsCode);
                hsa_executable_freeze(executable: u64, options: Pointer) => creation, Module, Code, |_done| given(executable);

                hsa_amd_ipc_memory_create(pointer: Pointer, size: usize, handle: Pointer) => naming, Export, Device,
                    |_done| exported(pointer, size);
                hsa_amd_portable_export_dmabuf(pointer: Pointer, size: usize, out: Pointer, offset: Pointer) => naming, Export, Device,
                    |_done| exported(pointer, size);
                hsa_amd_portable_export_dmabuf_v2(pointer: Pointer, size: usize, out: Pointer, offset: Pointer, flags: u64)
                    => naming, Export, Device, |_done| exported(pointer, size);
                hsa_amd_vmem_export_shareable_handle(out: Pointer, handle: u64, flags: u64) => naming, Export, Physical,
                    |_done| exported(handle, 0);
            }
            watched {
                hsa_status_string => ErrorQuery, [], does(NamesError);
                hsa_memory_copy => GpuWork, [0, 1];
                hsa_amd_memory_fill => GpuWork, [0];
                hsa_amd_memory_async_copy => GpuWork, [0, 2];
                hsa_amd_memory_async_copy_on_engine => GpuWork, [0, 2];
                hsa_amd_memory_async_copy_rect => GpuWork, [];
                hsa_amd_memory_async_batch_copy => GpuWork, [];
            }
            answered {
                hsa_amd_memory_pool_get_info;
                hsa_region_get_info;
                hsa_agent_get_info;
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
