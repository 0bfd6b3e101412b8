//! `COVERAGE.md`, made from the tables of functions: what is hooked, what of it is recorded, what is out of reach.

use std::fmt::Write;
use std::path::Path;

use gpuoom_trace::record::{Event, Kind};

use super::Library;
use super::{Row, rows, since::since};

/// Set to have the page written anew.
const UPDATE: &str = "UPDATE_COVERAGE";

/// A part of the page.
struct Section {
    library: Library,
    title: &'static str,
    /// Which libraries are meant.
    about: &'static str,
    /// Head of the column of versions.
    since: &'static str,
}

const SECTIONS: [Section; 12] = [
    Section {
        library: Library::Hip,
        title: "HIP",
        about: "`libamdhip64.so.5`, `.6`, `.7` (ROCm 5 to 10), under any name that contains",
        since: "since ROCm",
    },
    Section {
        library: Library::CudaRuntime,
        title: "CUDA runtime",
        about: "`libcudart.so.11.0`, `.12`, `.13`, under any name that contains",
        since: "since CUDA",
    },
    Section {
        library: Library::CudaDriver,
        title: "CUDA driver",
        about: "`libcuda.so.1`; any name that contains",
        since: "since CUDA",
    },
    Section {
        library: Library::Hsa,
        title: "HSA",
        about: "`libhsa-runtime64.so.1`, under any name that contains",
        since: "since ROCm",
    },
    Section {
        library: Library::Handles,
        title: "Handles of mathematical libraries",
        about: "hipBLAS, rocBLAS, cuBLAS, cuDNN, MIOpen; names that contain",
        since: "since",
    },
    Section {
        library: Library::OpenCl,
        title: "OpenCL",
        about: "`libOpenCL.so.1`, the loader. What its calls take, the layers below tell. Any name that contains",
        since: "since OpenCL",
    },
    Section {
        library: Library::Kernel,
        title: "Requests to the kernel",
        about: "`ioctl` of the C library, on descriptors of the drivers' device files.",
        since: "since (version of KFD's interface or of NVIDIA's driver)",
    },
    Section {
        library: Library::Torch,
        title: "PyTorch's caching allocator",
        about: "It tells of each block that it gives out or takes back, and of each out-of-memory error that reaches the program. Any \
                name that contains",
        since: "since PyTorch",
    },
    Section {
        library: Library::Ggml,
        title: "ggml and llama.cpp",
        about: "Buffers and what they are for, inside which functions memory is asked for, and what is logged after a failure or said \
                before an abort. The day is that of the first release of llama-cpp-python whose llama.cpp has the function. Any name \
                that contains",
        since: "since llama.cpp of",
    },
    Section {
        library: Library::Roctx,
        title: "ROCTX",
        about: "Ranges and marks. Any name that contains",
        since: "since ROCm",
    },
    Section {
        library: Library::Nvtx,
        title: "NVTX",
        about: "Ranges and marks: NVTX 2 (`libnvToolsExt.so.1`) and 3 (headers, in any object) ask for a tool at their first call, \
                and the recorder is one unless there is another.",
        since: "since NVTX",
    },
    Section {
        library: Library::Cxx,
        title: "Process",
        about: "The C++ runtime, the ways out of a process, and the recorder's own records. The C++ runtime is found under any \
                name that contains",
        since: "since",
    },
];

const HEAD: &str = "\
# What is recorded

Every function that the recorder hooks, by interface. This page is made from the recorder's tables
(`interposer/src/table/`); a test fails when it is out of date and says how to write it anew.

| recorded | means |
| --- | --- |
| always | each call, with size, address, device, thread, time, duration and status |
| status | each call, with its status; what it takes is not told by the interface |
| after a failure | only while some thread has an undecided out-of-memory return: one test and a jump otherwise |
| its answer | only where memory was refused inside the call, or where it says itself that there was none; work also after a failure |
| inside | no event; of a call for memory that is made inside such a function, the trace says so |
| followed | no event; the recorder remembers what it needs (the thread's device) |
| hands out | no event; the functions that it hands out are the hooks of this page |
| virtual card | no event; with `GPUOOM_CAPACITY` the answer is that of the virtual card |

*Since* is the version of the vendor's library in which the function first appears; empty where it is not known. A hook
for a function that the loaded library lacks answers \"not supported\" (801), and look-ups by name find what they would
find without the recorder. Beside these, `dlsym` and `dlvsym` are hooked: a look-up of a name of this page gives the
hook, for the very copy of the library that was asked. `getenv` is hooked for one name, `NVTX_INJECTION64_PATH`, by which
NVTX finds a tool.
";

const OUT_OF_REACH: &str = "
## Out of reach

| what | what is still seen |
| --- | --- |
| CUDA runtime linked statically | its driver calls: each CUDA runtime takes them from `cuGetProcAddress` |
| HIP linked statically | the requests to the kernel |
| libraries loaded with `RTLD_DEEPBIND` | the layers below; the report names the library that was bound past the recorder |
| `dlmopen`: a namespace of its own, where nothing is preloaded | what the program takes from there by `dlsym` |
| system calls made without the C library (`syscall`, inline assembly) | the layers above, if the program goes through them |
| drivers in user space that map the card themselves (over PCI or USB) | nothing |
| functions in private tables (`cuGetExportTable`, `cudaGetExportTable`) | the layers below them |
| calls inside a vendor's library | the layers below it |
| C++ runtime linked statically | everything but exceptions: a failure may then be told by its other signs only |
| programs that ignore preloads: set-user-id, statically linked, another C library than glibc | nothing; `gpuoom-analyze record` says so |
| managed memory that moves by a page fault | its allocation and its prefetches; not where it lies |
| memory without a call of its own: contexts, code loaded late, scratch | requests to the kernel, where they are hooked; else only what the readings show |
";

/// Functions that touch memory and are not hooked, each with the reason. A test fails when one of them has a hook.
const LEFT_OUT: &[(&str, &[&str], &str)] = &[
    (
        "access rights, addresses and sizes that are asked for",
        &[
            "hipMemSetAccess",
            "hipMemGetAccess",
            "hipMemPoolSetAccess",
            "hipMemPoolGetAccess",
            "hipMemGetAddressRange",
            "hipMemPtrGetInfo",
            "cuMemSetAccess",
            "cuMemPoolSetAccess",
            "cudaMemPoolSetAccess",
            "hsa_amd_vmem_set_access",
            "hsa_amd_vmem_get_access",
            "hsa_amd_agents_allow_access",
            "hsa_amd_pointer_info",
            "hsa_amd_svm_attributes_get",
            "hsa_amd_portable_close_dmabuf",
            "AMDKFD_IOC_GET_DMABUF_INFO",
            "DRM_IOCTL_AMDGPU_GEM_VA",
            "DRM_IOCTL_AMDGPU_INFO",
        ],
        "they take and give back no memory; page tables that a mapping needs are told by nobody",
    ),
    (
        "contexts of HIP that go",
        &[
            "hipCtxDestroy",
            "hipCtxPopCurrent",
            "hipDevicePrimaryCtxRelease",
            "hipInitDevice",
            "hipGreenCtxCreate",
            "hipExecutionCtxDestroy",
        ],
        "HIP's contexts are its devices and own nothing; to pop or destroy one leaves the thread's device as it is",
    ),
    (
        "contexts of CUDA in old and new forms",
        &[
            "cuCtxAttach",
            "cuCtxDetach",
            "cuGreenCtxCreate",
            "cuGreenCtxDestroy",
            "cudaGreenCtxCreate",
            "cudaExecutionCtxDestroy",
        ],
        "memory in a context that was not seen stays in the account when it ends, and the report says how much that may be",
    ),
    (
        "sparse arrays and multicast",
        &[
            "cuMemMapArrayAsync",
            "hipMemMapArrayAsync",
            "cuMulticastBindMem",
            "cuMulticastBindMem_v2",
            "cuMulticastBindAddr",
            "cuMulticastBindAddr_v2",
            "cuMulticastAddDevice",
            "cuMulticastUnbind",
        ],
        "physical memory counts from `cuMemCreate` to `cuMemRelease`; a sparse array or a multicast object that still holds it \
         after that is not followed",
    ),
    (
        "what sets up or loads at first use",
        &[
            "hipInit",
            "cuInit",
            "hsa_init",
            "cudaInitDevice",
            "__hipRegisterFatBinary",
            "__cudaRegisterFatBinary",
            "cudaFuncGetAttributes",
            "hipModuleGetFunction",
            "cuLinkComplete",
            "hipLinkComplete",
        ],
        "they make contexts and load code when the runtime likes; what that takes is seen in the layers below and in the \
         readings",
    ),
    (
        "exports by a driver",
        &["AMDKFD_IOC_EXPORT_DMABUF", "AMDKFD_IOC_IPC_EXPORT_HANDLE", "DRM_IOCTL_PRIME_HANDLE_TO_FD"],
        "the runtime exports each piece of virtual memory to map it; memory that only such a descriptor still holds after its \
         free is not followed",
    ),
    (
        "older and rare requests of NVIDIA's driver",
        &[
            "NV_ESC_RM_ALLOC_MEMORY",
            "NV_ESC_RM_ALLOC_OBJECT",
            "NV_ESC_EXPORT_OBJECT_TO_FD",
            "NV_ESC_IMPORT_OBJECT_FROM_FD",
        ],
        "today's libraries allocate by `NV_ESC_RM_ALLOC` and `NV_ESC_RM_VID_HEAP_CONTROL`; objects on their way through a \
         descriptor are not followed",
    ),
    (
        "graphics interfaces in old and rare forms",
        &[
            "cuGraphicsSubResourceGetMappedArray",
            "cuGraphicsResourceGetMappedMipmappedArray",
            "cudaGraphicsResourceGetMappedMipmappedArray",
            "cuGraphicsResourceGetMappedPointer",
            "cudaGLMapBufferObject",
            "cudaGraphicsSubResourceGetMappedArray",
            "hipGraphicsSubResourceGetMappedArray",
            "cudaGraphicsResourceGetMappedEglFrame",
        ],
        "the memory is the graphics driver's; the layers below see it",
    ),
    (
        "memory of other machines",
        &["hsa_amd_vmem_export_fabric_handle", "hsa_amd_vmem_import_fabric_handle", "cuLogicalEndpoint*"],
        "it is another machine's memory; the handle is passed by value, and no header that was read tells its size",
    ),
    (
        "queues and events made by streams",
        &[
            "hipStreamCreate",
            "cudaStreamCreate",
            "cuStreamCreate",
            "hipExtStreamCreateWithCUMask",
            "hsa_soft_queue_create",
            "hsa_amd_counted_queue_acquire",
            "hsa_amd_counted_queue_release",
            "hsa_amd_sdma_queue_create",
            "hsa_amd_sdma_queue_destroy",
            "hsa_signal_create",
        ],
        "what they take is seen in the layers below (`hsa_queue_create`, requests to the kernel)",
    ),
    (
        "what moves or discards memory below HIP",
        &[
            "hsa_amd_svm_discard_batch_async",
            "hsa_amd_memory_migrate",
            "hsa_amd_ais_file_read",
            "hsa_amd_ais_file_write",
        ],
        "they give and take no memory; which part of managed memory is on the card, nobody tells",
    ),
    (
        "images over memory of the program's own",
        &[
            "hsa_ext_image_create",
            "hsa_ext_image_create_v2",
            "hsa_ext_image_create_with_layout",
            "hsa_amd_image_create",
            "hsa_ext_image_destroy",
            "hsa_ext_image_destroy_v2",
        ],
        "an image takes the memory that its caller gives it, which is recorded where it comes from",
    ),
    (
        "calls when memory is freed",
        &["hsa_amd_register_deallocation_callback", "hsa_amd_deregister_deallocation_callback"],
        "they ask for news of a free, which is recorded itself",
    ),
    (
        "handles to events of other processes",
        &[
            "hipIpcGetEventHandle",
            "hipIpcOpenEventHandle",
            "cuIpcGetEventHandle",
            "cuIpcOpenEventHandle",
            "cudaIpcGetEventHandle",
            "cudaIpcOpenEventHandle",
        ],
        "an event holds no memory of a device's",
    ),
];

fn left_out(page: &mut String) {
    page.push_str(
        "\n## Known, and not hooked\n\nFunctions that look as if they belonged here, and why they do not. All others are no \
         memory's.\n\n| functions | why not |\n| --- | --- |\n",
    );
    for (what, names, why) in LEFT_OUT {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {what}: {} | {why} |", names.join(", "));
    }
}

/// How calls of a row are recorded, in the words of the page.
fn recorded(row: &Row) -> &'static str {
    match row.how {
        "watched" | "selection" | "context_selected" => "after a failure",
        "creation" | "context" => "status",
        "context_pushed" | "context_popped" | "hip_context" => "followed",
        "hands_out" => "hands out",
        "answered" => "virtual card",
        "answering" => "its answer",
        "in_registers" | "on_stack" => "inside",
        "allocation" | "release" | "ending" | "context_destroyed" | "naming" | "migration" | "graph_node"
        | "capture_begun" | "capture_ended" | "told" | "buffer" | "" => "always",
        other => panic!("{}: the page has no word for {other}", row.name),
    }
}

fn event(row: &Row) -> &'static str {
    match recorded(row) {
        "followed" | "hands out" | "virtual card" | "inside" => "",
        _ => row.event.name(),
    }
}

fn kind(row: &Row) -> &'static str {
    if row.kind == Kind::None { "" } else { row.kind.name() }
}

fn section(page: &mut String, section: &Section) {
    let of_section: Vec<&Row> = rows().filter(|row| row.library == section.library).collect();
    let parts: Vec<String> = section.library.path_parts().iter().map(|part| format!("`{part}`")).collect();
    let about = match parts.len() {
        0 => section.about.to_owned(),
        _ => format!("{} {}.", section.about, parts.join(", ")),
    };
    let functions = if of_section.len() == 1 { "function" } else { "functions" };
    let _ = write!(page, "\n## {}\n\n{about} {} {functions}.\n\n", section.title, of_section.len());
    let has_kinds = of_section.iter().any(|row| row.kind != Kind::None);
    let mut columns = vec!["function", "recorded", "event"];
    columns.extend(has_kinds.then_some("kind"));
    columns.push(section.since);
    line(page, &columns);
    line(page, &vec!["---"; columns.len()]);
    for row in of_section {
        let name = format!("`{}`", row.name);
        let mut cells = vec![name.as_str(), recorded(row), event(row)];
        cells.extend(has_kinds.then_some(kind(row)));
        cells.push(since(row.name));
        line(page, &cells);
    }
}

fn line(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    SECTIONS.iter().for_each(|one| section(&mut page, one));
    left_out(&mut page);
    page.push_str(OUT_OF_REACH);
    page
}

#[test]
fn the_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("COVERAGE.md");
    let page = page();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, page).expect("the page");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        there == page,
        "interposer/COVERAGE.md is out of date ({differs:?}); write it anew with: {UPDATE}=1 cargo test -p gpuoom coverage"
    );
}

#[test]
fn what_is_left_out_has_no_hook_and_is_named_once() {
    let mut names: Vec<&str> = LEFT_OUT.iter().flat_map(|(_, names, _)| names.iter().copied()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for name in names {
        assert!(rows().all(|row| row.name != name), "{name} has a hook");
    }
}

#[test]
fn every_row_is_in_one_section_and_its_memory_has_a_kind() {
    let in_sections: usize =
        SECTIONS.iter().map(|section| rows().filter(|row| row.library == section.library).count()).sum();
    assert_eq!(in_sections, rows().count());
    for row in rows().filter(|row| row.has_hook && row.event == Event::Alloc) {
        assert!(row.kind != Kind::None, "{} takes memory of no kind", row.name);
    }
}
