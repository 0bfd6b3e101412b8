//! Functions that hand out functions: `cuGetProcAddress`, `cudaGetDriverEntryPoint`, `hipGetProcAddress` and their kin.
//!
//! They take the name as the source code spells it, with the version whose calling convention is wanted and flags for the
//! default stream. What they answer is replaced by our hook for that very function; everything else passes.

use std::ffi::{CStr, CString, c_char};

use super::dlsym::hook_for;
use crate::base::guard;
use crate::link::{self, names};

/// Bit of the flags by which a twin for the per-thread default stream is asked for (`cuda.h`:
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`; HIP's is the same).
const PER_THREAD_STREAM: u64 = 2;

/// Names that mean different exported symbols by version (NVIDIA `cudaTypedefs.h`): name, first version, symbol. For one
/// name, in the order of the versions.
const VERSIONED: &[(&CStr, i32, &CStr)] = &[
    (c"cuArray3DCreate", 3020, c"cuArray3DCreate_v2"),
    (c"cuArrayCreate", 3020, c"cuArrayCreate_v2"),
    (c"cuCtxCreate", 3020, c"cuCtxCreate_v2"),
    (c"cuCtxCreate", 11040, c"cuCtxCreate_v3"),
    (c"cuCtxCreate", 12050, c"cuCtxCreate_v4"),
    (c"cuCtxDestroy", 4000, c"cuCtxDestroy_v2"),
    (c"cuCtxPopCurrent", 4000, c"cuCtxPopCurrent_v2"),
    (c"cuCtxPushCurrent", 4000, c"cuCtxPushCurrent_v2"),
    (c"cuCtxSynchronize", 13000, c"cuCtxSynchronize_v2"),
    (c"cuDevicePrimaryCtxRelease", 11000, c"cuDevicePrimaryCtxRelease_v2"),
    (c"cuDevicePrimaryCtxReset", 11000, c"cuDevicePrimaryCtxReset_v2"),
    (c"cuDeviceTotalMem", 3020, c"cuDeviceTotalMem_v2"),
    (c"cuGetProcAddress", 12000, c"cuGetProcAddress_v2"),
    (c"cuGraphAddNode", 12030, c"cuGraphAddNode_v2"),
    (c"cuGraphAddNode", 13040, c"cuGraphAddNode_v3"),
    (c"cuGraphInstantiate", 11000, c"cuGraphInstantiate_v2"),
    (c"cuGraphInstantiate", 12000, c"cuGraphInstantiateWithFlags"),
    (c"cuGraphicsResourceGetMappedPointer", 3020, c"cuGraphicsResourceGetMappedPointer_v2"),
    (c"cuIpcOpenMemHandle", 11000, c"cuIpcOpenMemHandle_v2"),
    (c"cuLaunchHostFunc", 13010, c"cuLaunchHostFunc_v2"),
    (c"cuMemAdvise", 12020, c"cuMemAdvise_v2"),
    (c"cuMemAlloc", 3020, c"cuMemAlloc_v2"),
    (c"cuMemAllocHost", 3020, c"cuMemAllocHost_v2"),
    (c"cuMemAllocPitch", 3020, c"cuMemAllocPitch_v2"),
    (c"cuMemFree", 3020, c"cuMemFree_v2"),
    (c"cuMemGetInfo", 3020, c"cuMemGetInfo_v2"),
    (c"cuMemHostRegister", 6050, c"cuMemHostRegister_v2"),
    (c"cuMemPrefetchAsync", 12020, c"cuMemPrefetchAsync_v2"),
    (c"cuMemcpy2D", 3020, c"cuMemcpy2D_v2"),
    (c"cuMemcpy2DAsync", 3020, c"cuMemcpy2DAsync_v2"),
    (c"cuMemcpy2DUnaligned", 3020, c"cuMemcpy2DUnaligned_v2"),
    (c"cuMemcpy3D", 3020, c"cuMemcpy3D_v2"),
    (c"cuMemcpy3DAsync", 3020, c"cuMemcpy3DAsync_v2"),
    (c"cuMemcpy3DBatchAsync", 13000, c"cuMemcpy3DBatchAsync_v2"),
    (c"cuMemcpyAtoA", 3020, c"cuMemcpyAtoA_v2"),
    (c"cuMemcpyAtoD", 3020, c"cuMemcpyAtoD_v2"),
    (c"cuMemcpyAtoH", 3020, c"cuMemcpyAtoH_v2"),
    (c"cuMemcpyAtoHAsync", 3020, c"cuMemcpyAtoHAsync_v2"),
    (c"cuMemcpyBatchAsync", 13000, c"cuMemcpyBatchAsync_v2"),
    (c"cuMemcpyDtoA", 3020, c"cuMemcpyDtoA_v2"),
    (c"cuMemcpyDtoD", 3020, c"cuMemcpyDtoD_v2"),
    (c"cuMemcpyDtoDAsync", 3020, c"cuMemcpyDtoDAsync_v2"),
    (c"cuMemcpyDtoH", 3020, c"cuMemcpyDtoH_v2"),
    (c"cuMemcpyDtoHAsync", 3020, c"cuMemcpyDtoHAsync_v2"),
    (c"cuMemcpyHtoA", 3020, c"cuMemcpyHtoA_v2"),
    (c"cuMemcpyHtoAAsync", 3020, c"cuMemcpyHtoAAsync_v2"),
    (c"cuMemcpyHtoD", 3020, c"cuMemcpyHtoD_v2"),
    (c"cuMemcpyHtoDAsync", 3020, c"cuMemcpyHtoDAsync_v2"),
    (c"cuMemsetD16", 3020, c"cuMemsetD16_v2"),
    (c"cuMemsetD2D16", 3020, c"cuMemsetD2D16_v2"),
    (c"cuMemsetD2D32", 3020, c"cuMemsetD2D32_v2"),
    (c"cuMemsetD2D8", 3020, c"cuMemsetD2D8_v2"),
    (c"cuMemsetD32", 3020, c"cuMemsetD32_v2"),
    (c"cuMemsetD8", 3020, c"cuMemsetD8_v2"),
    (c"cuStreamBeginCapture", 10010, c"cuStreamBeginCapture_v2"),
    // The layout of the structure changed with ROCm 6, which this interface counts as 600.
    (c"hipGetDeviceProperties", 600, c"hipGetDevicePropertiesR0600"),
];

/// What a function without a version parameter asks for: the version that the caller's runtime was built for. Which symbol
/// that is, its address tells; where the driver has no symbol there, the newest is taken.
pub(crate) const NOT_SAID: i32 = i32::MAX;

/// Puts our hook in the place of the function that was just handed out at `out`, if it is one of ours.
///
/// # Safety
/// `symbol` is null or a terminated text, `out` is null or valid, as the vendor's function has just used them.
pub(crate) unsafe fn replace(symbol: *const c_char, out: *mut *const (), version: i32, flags: u64) {
    // SAFETY: promised by the caller.
    let (real, name) = unsafe {
        if symbol.is_null() || out.is_null() || (*out).is_null() {
            return;
        }
        (*out, CStr::from_ptr(symbol))
    };
    let choose = || match version {
        NOT_SAID => symbol_at(name, real).and_then(|symbol| row_of(symbol, flags)),
        _ => None,
    };
    let hook = || choose().or_else(|| row_for(name, version, flags)).map_or(real, |api| hook_for(api, real));
    let ours = guard::cold(real, || guard::without_signals(hook));
    // SAFETY: promised by the caller.
    unsafe { *out = ours };
}

/// Which of the symbols that `name` may mean lies at this address.
fn symbol_at(name: &CStr, address: *const ()) -> Option<&'static CStr> {
    let of_name = VERSIONED.iter().filter(|(base, _, _)| *base == name).map(|(_, _, symbol)| *symbol);
    let symbols: Vec<&CStr> = of_name.collect();
    let object = (!symbols.is_empty()).then(|| link::object_of(address as usize)).flatten()?;
    symbols.into_iter().find(|symbol| object.symbol(symbol) == Some(address))
}

/// The row of the function that is meant.
fn row_for(name: &CStr, version: i32, flags: u64) -> Option<u16> {
    let mut of_name = VERSIONED.iter().filter(|(base, since, _)| *base == name && *since <= version);
    row_of(of_name.next_back().map_or(name, |(_, _, symbol)| *symbol), flags)
}

/// The row of a symbol, or of its twin for the per-thread default stream where that is asked for.
fn row_of(symbol: &CStr, flags: u64) -> Option<u16> {
    if flags & PER_THREAD_STREAM != 0
        && let Some(twin) = ["_ptsz", "_ptds", "_spt"].iter().find_map(|suffix| row_with(symbol, suffix))
    {
        return Some(twin);
    }
    names::row_of(symbol)
}

fn row_with(symbol: &CStr, suffix: &str) -> Option<u16> {
    let name = [symbol.to_bytes(), suffix.as_bytes()].concat();
    names::row_of(&CString::new(name).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn chosen(name: &CStr, version: i32, flags: u64) -> Option<&'static str> {
        row_for(name, version, flags).map(|api| table::row(api).name)
    }

    #[test]
    fn version_and_flags_choose_the_symbol() {
        for (name, version, flags, symbol) in [
            (c"cuMemAlloc", 3020, 0, Some("cuMemAlloc_v2")),
            (c"cuMemAlloc", 12000, 0, Some("cuMemAlloc_v2")),
            (c"cuMemAlloc", 2000, 0, Some("cuMemAlloc")),
            (c"cuMemHostRegister", 4000, 0, Some("cuMemHostRegister")),
            (c"cuMemHostRegister", 6050, 1, Some("cuMemHostRegister_v2")),
            (c"cuMemAllocAsync", 11020, 0, Some("cuMemAllocAsync")),
            (c"cuMemAllocAsync", 11020, 2, Some("cuMemAllocAsync_ptsz")),
            (c"cuMemAlloc", 7000, 2, Some("cuMemAlloc_v2")),
            (c"cuCtxCreate", 11000, 0, Some("cuCtxCreate_v2")),
            (c"cuCtxCreate", NOT_SAID, 0, Some("cuCtxCreate_v4")),
            (c"cuGraphInstantiate", 10000, 0, Some("cuGraphInstantiate")),
            (c"cuGraphInstantiate", 11040, 0, Some("cuGraphInstantiate_v2")),
            (c"cuGraphInstantiate", 12000, 0, Some("cuGraphInstantiateWithFlags")),
            (c"cuStreamBeginCapture", 10000, 0, Some("cuStreamBeginCapture")),
            (c"cuGetProcAddress", 11030, 0, Some("cuGetProcAddress")),
            (c"cuGetProcAddress", 12000, 0, Some("cuGetProcAddress_v2")),
            (c"cuCtxSynchronize", 12090, 0, Some("cuCtxSynchronize")),
            (c"cuCtxSynchronize", 13000, 0, Some("cuCtxSynchronize_v2")),
            (c"cuGraphAddNode", 13030, 0, Some("cuGraphAddNode_v2")),
            (c"cuGraphAddNode", 13040, 0, Some("cuGraphAddNode_v3")),
            (c"cuMemcpyBatchAsync", 12080, 2, Some("cuMemcpyBatchAsync_ptsz")),
            (c"cuMemcpyBatchAsync", 13000, 2, Some("cuMemcpyBatchAsync_v2_ptsz")),
            (c"cuLaunchHostFunc", 13000, 0, Some("cuLaunchHostFunc")),
            (c"cuLaunchHostFunc", 13010, 0, Some("cuLaunchHostFunc_v2")),
            (c"hipMemcpyAsync", 60000, 2, Some("hipMemcpyAsync_spt")),
            (c"hipMalloc", 60000, 2, Some("hipMalloc")),
            (c"", 0, 0, None),
            (c"cuInit", 2000, 0, None),
        ] {
            assert_eq!(chosen(name, version, flags), symbol, "{name:?} {version} {flags}");
        }
    }

    /// A hook with a suffix that nothing leads to would leave its function unseen.
    #[test]
    fn every_suffixed_driver_function_can_be_asked_for() {
        let is_suffixed = |name: &str| name.starts_with("cu") && !name.starts_with("cuda") && name.contains("_v");
        let known = |name: &str| VERSIONED.iter().any(|(_, _, symbol)| symbol.to_str() == Ok(name));
        let handles = |name: &str| name.starts_with("cublas") || name.starts_with("cudnn");
        for row in table::rows().filter(|row| is_suffixed(row.name) && !handles(row.name)) {
            let base = row.name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            assert!(known(base), "{}", row.name);
        }
        for (_, _, symbol) in VERSIONED {
            assert!(names::row_of(symbol).is_some(), "{symbol:?}");
        }
    }
}
