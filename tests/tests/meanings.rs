//! What the recorder's tables say of their functions, as a trace carries it.

use std::collections::BTreeSet;
use std::path::Path;

use gpuoom_analyze::replay::apis::{Apis, by_name};
use gpuoom_tests::{Client, program};
use gpuoom_trace::meaning::Codes;
use gpuoom_trace::metadata::ApiMeanings;
use gpuoom_trace::reader::{Metadata, TraceFile};
use gpuoom_trace::record::{Kind, Layer};

fn metadata() -> Metadata {
    let run = Client::new(program("tour.c")).run_recorded();
    TraceFile::open(&run.only_trace().path).expect("a trace").metadata
}

/// Rows that are right where their names tell nothing: C++'s names, and those of the C library's sort. Whose codes they return
/// matters little, for they take no memory.
const ONLY_THE_ROW_TELLS: &[&str] = &[
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j",
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_",
    "_ZN8hip_impl22hipLaunchKernelGGLImplEmRK4dim3S2_jP12ihipStream_tPPv",
    "__cudaLaunchKernel",
    "__cudaLaunchKernel_ptsz",
];

/// The functions of the recorder before 1.6. What came later is in no trace that is read by names.
fn older() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/format-1.5/hip-plugins-replaced.trace.bin");
    let trace = TraceFile::open(Path::new(path)).expect("a trace of 1.5");
    trace.metadata.apis.rows.into_iter().map(|row| row.name).collect()
}

/// Traces before 1.6 are read by the names of their functions. For every row that they may have, that must come to what the row says.
#[test]
fn every_row_means_what_its_name_says() {
    let metadata = metadata();
    let (rows, meanings) = (&metadata.apis.rows, &metadata.meanings);
    assert!(rows.len() > 600 && rows.len() == meanings.rows.len(), "{} {}", rows.len(), meanings.rows.len());
    let said = Apis::new(&metadata.apis, meanings);
    let named = Apis::new(&metadata.apis, &ApiMeanings::default());
    let others = (0..rows.len() as u16).filter(|api| {
        let (said, named) = (said.get(*api), named.get(*api));
        said.meaning() != named.meaning() || said.is_out_of_memory(2) != named.is_out_of_memory(2)
    });
    let older = older();
    let others = others.filter(|api| older.contains(&said.get(*api).name));
    let others: Vec<_> = others.map(|api| (said.get(api).name.as_str(), said.get(api).meaning())).collect();
    assert!(older.len() > 600);
    let names: Vec<_> = others.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ONLY_THE_ROW_TELLS, "{others:?}");
}

/// The kind of memory is the row's alone; a name tells only that it is the host's, and what a plain allocation is.
#[test]
fn what_a_name_tells_of_memory_is_so() {
    let metadata = metadata();
    for (row, said) in metadata.apis.rows.iter().zip(&metadata.meanings.rows) {
        let (by_name, said) = (by_name::kind(&row.name), Kind::from_number(said.kind).expect("a kind"));
        let is_host = matches!(said, Kind::HostPinned | Kind::Registered);
        match by_name {
            Kind::HostPinned => assert!(is_host || said == Kind::None, "{}: {said:?}", row.name),
            Kind::Device => assert_eq!(said, Kind::Device, "{}", row.name),
            _ => {}
        }
    }
}

/// A trace says the codes of each interface that its rows name, and no row is without.
#[test]
fn every_row_has_codes_that_the_trace_explains() {
    let metadata = metadata();
    for (row, said) in metadata.apis.rows.iter().zip(&metadata.meanings.rows) {
        let codes = Codes::from_number(said.codes).expect("a number of this version");
        assert_ne!(codes, Codes::Unknown, "{}", row.name);
        let status = metadata.meanings.statuses.iter().find(|status| status.codes == said.codes).expect("its codes");
        assert_eq!(status.out_of_memory, codes.out_of_memory(), "{}", row.name);
        // ggml's functions answer with a buffer, or with none.
        let of_ggml = ["ggml_", "llama_", "_Z18llama_"].iter().any(|begin| row.name.starts_with(begin));
        let of_process = Layer::from_number(row.layer) == Some(Layer::Process);
        assert_eq!(codes == Codes::Nothing, of_process || of_ggml, "{}", row.name);
    }
}
