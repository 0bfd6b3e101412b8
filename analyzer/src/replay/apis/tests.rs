use super::*;
use gpuoom_trace::metadata::StatusCodes;

fn row(name: &str, layer: Layer) -> ApiRow {
    ApiRow { name: name.to_owned(), layer: layer as u8 }
}

#[test]
fn each_layer_has_its_own_code_for_no_memory() {
    for (name, layer, status, name_of_status) in [
        ("hipMalloc", Layer::Runtime, 2, "hipErrorOutOfMemory"),
        ("cudaMalloc", Layer::Runtime, 2, "cudaErrorMemoryAllocation"),
        ("cuMemAlloc_v2", Layer::Driver, 2, "CUDA_ERROR_OUT_OF_MEMORY"),
        ("hsa_amd_memory_lock", Layer::Hsa, 0x1008, "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
        ("ioctl", Layer::Kernel, -12, "ENOMEM"),
        ("ioctl", Layer::Kernel, 12, "ENOMEM"),
        ("NV_ESC_RM_ALLOC", Layer::Kernel, 0x51, "out of memory"),
        ("cublasCreate_v2", Layer::Runtime, 3, "an allocation failed"),
    ] {
        let api = Api::by_name(&row(name, layer));
        assert!(api.is_out_of_memory(status), "{name}");
        assert!(!api.is_out_of_memory(1), "{name}");
        assert_eq!(api.status_name(status), Some(name_of_status));
        assert_eq!(api.status_name(i32::MIN), None);
    }
}

#[test]
fn a_number_without_a_row_has_a_name_too() {
    let apis = Apis::new(&ApiTable::default(), &ApiMeanings::default());
    assert_eq!(apis.get(9).layer, None);
    assert!(apis.get(9).is_out_of_memory(2));
}

#[test]
fn what_a_trace_says_counts_before_a_name() {
    let table = ApiTable { rows: vec![row("hipMalloc", Layer::Runtime), row("hipFree", Layer::Runtime)] };
    let said = Meaning::new(Codes::CuBlas, Family::Kfd).ends(Ends::Context).says(says::LIBRARY_HANDLE);
    let meanings = ApiMeanings::of([(Kind::HostPinned, said)].into_iter());
    let apis = Apis::new(&table, &meanings);
    let first = apis.get(0);
    assert_eq!((first.meaning(), first.is_of_host(), first.is_library()), (said, true, true));
    assert_eq!(apis.family(0), Family::Kfd);
    // A block that has fewer rows than the table: the rest is told by the names.
    assert_eq!(apis.get(1).meaning(), by_name::meaning("hipFree", Some(Layer::Runtime)));
}

#[test]
fn a_later_version_may_say_what_this_one_does_not_know() {
    let table = ApiTable { rows: vec![row("newCreate", Layer::Runtime)] };
    let said = ApiMeaning { kind: 200, codes: 201, family: 202, ends: 203, does: 204, flags: says::LIBRARY_HANDLE };
    let status = StatusCodes { codes: 201, interface: "a new library".into(), out_of_memory: vec![77] };
    let apis = Apis::new(&table, &ApiMeanings { rows: vec![said], statuses: vec![status] });
    let api = apis.get(0);
    assert_eq!((api.family, api.ends, api.does), (Family::Pointers, Ends::Nothing, Does::Else));
    assert!(api.is_out_of_memory(77) && !api.is_out_of_memory(2) && api.is_library());
    assert_eq!(api.status_name(77), Some("an allocation failed"));
}
