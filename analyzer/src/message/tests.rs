use proptest::prelude::*;

use super::*;
use crate::report::message::{write, write_json};
use crate::report::page::{Look, Page};

fn of(text: &str) -> Triage {
    triage(&[Source { name: "log", text }], &Thresholds::default())
}

fn one(text: &str) -> ErrorText {
    let mut found = of(text).errors;
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

/// Numbers decide as far as they were printed: of 2.00 GiB nobody knows the last megabytes.
#[test]
fn rounded_numbers_are_intervals() {
    let message = |unused: &str| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of \
             which 0 bytes is free. Of the allocated memory 21.00 GiB is allocated by PyTorch, and {unused} is reserved by \
             PyTorch but unallocated."
        )
    };
    let excluded =
        |unused: &str| one(&message(unused)).excluded.iter().any(|excluded| excluded.what == "fragmentation");
    assert!(excluded("1.98 GiB"));
    assert!(!excluded("1.99 GiB"), "1.995 GiB of 1.995 GiB");
    let sure = |unused: &str| one(&message(unused)).diagnoses[0].clone();
    assert_eq!((sure("2.00 GiB").id, sure("2.00 GiB").confidence), ("caching-fragmentation", Confidence::Possible));
}

#[test]
fn a_limit_that_cupy_names_is_a_ceiling() {
    // The wording of https://github.com/cupy/cupy/pull/2242.
    let error = one("Out of memory allocating 2,000 bytes (allocated so far: 4,096 bytes, limit set to: 5,000 bytes).");
    assert_eq!((error.limit, error.diagnoses[0].id), (Some(Limit::Fraction), "process-fraction-cap"));
    assert_eq!(error.reasons.len(), 1, "{:?}", error.reasons);
}

/// The statistics behind a refusal of TensorFlow say what its pool held. Without a refusal they are no error.
#[test]
fn a_dump_adds_to_its_error() {
    let dump = "Stats: \nLimit:                      1073741824\nInUse:                      1051624448\n";
    assert_eq!(of(dump).errors, []);
    let error = one(&format!("Allocator (GPU_0_bfc) ran out of memory trying to allocate 55.78MiB\n{dump}"));
    assert_eq!(error.captured.size(Quantity::Allowed).map(|size| size.bytes), Some(1 << 30));
    assert!(error.reasons[0].contains("are allowed"), "{:?}", error.reasons);
}

#[test]
fn lines_far_apart_are_errors_of_their_own() {
    let refused = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 64.00 MiB on device 0: cudaMalloc failed: out of memory\n";
    let cause = "failed to allocate compute buffers\n";
    assert_eq!(one(&format!("{refused}{cause}")).purpose, Some("compute buffers"));
    let far = format!("{refused}{}{cause}", "x\n".repeat(50));
    assert_eq!(of(&far).errors.iter().map(|error| error.purpose).collect::<Vec<_>>(), [None, Some("compute buffers")]);
    let other = format!("{refused}alloc_tensor_range: failed to allocate CUDA0 buffer of size 7\n");
    assert_eq!(of(&other).errors.len(), 2, "another size is another error");
}

#[test]
fn an_xid_is_told_by_its_number() {
    let xid = |code| format!("[1.0] NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, name=x, Ch 00000008");
    let error = one(&xid(31));
    assert!(error.is_memory == Some(false) && error.says.contains("page fault") && error.limit.is_none(), "{error:?}");
    let error = one(&xid(7777));
    assert!(error.is_memory.is_none() && error.says.contains("does not know"), "nothing is ruled out: {error:?}");
}

#[test]
fn words_about_memory_that_are_not_known_are_no_errors() {
    let found = of("fine\nfrobnicator: out of memory\n");
    assert_eq!((found.errors.len(), found.unknown[0].line, found.lines), (0, 2, 2));
    assert_eq!(of("CUDA out of memory errors are caught").errors, []);
}

/// Many errors, and many lines, take neither long nor much.
#[test]
fn a_long_log_is_bounded() {
    let log: String = (0..30_000)
        .map(|number| format!("OOM when allocating tensor with shape[{number}] and type float on\n"))
        .collect();
    let found = of(&log);
    assert_eq!(found.errors.len(), 1000);
    assert_eq!(found.left_off, 29_000);
    let line = "allocating ".repeat(200_000);
    assert_eq!(of(&line).errors, []);
}

/// Pieces of known wordings, and of what stands between.
const PIECES: [&str; 14] = [
    "CUDA out of memory. Tried to allocate ",
    "2.00 GiB",
    " (GPU 0; ",
    "total capacity; ",
    "allocating 1.5 MiB on device 0: cudaMalloc failed: out of memory",
    "failed to allocate ROCm0 buffer of size 99999999999999999999",
    "\n",
    "shape[1,2,,] and type float on ",
    "Limit: 7",
    "NVRM: Xid (PCI:0): 31, ",
    "oom-kill:constraint=CONSTRAINT_MEMCG,task=,pid=1",
    "Free memory on device (1/2 GiB) on startup is less than desired GPU memory utilization (0.9, 3 GiB)",
    "é",
    "Killed",
];

proptest! {
    #[test]
    fn any_text_is_read(text in "\\PC{0,400}", width in 0usize..200) {
        page(&of(&text), width);
    }

    #[test]
    fn any_order_of_known_pieces_is_read(pieces in prop::collection::vec(0..PIECES.len(), 0..40)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        page(&of(&text), 100);
    }
}

fn page(triage: &Triage, width: usize) {
    let mut page = Page::new(Look::new(width, false));
    write(&mut page, triage);
    page.into_text();
    write_json(&mut Vec::new(), triage).unwrap();
}

/// Memory that grew from step to step ends in a full card, too.
#[test]
fn one_message_does_not_prove_that_a_full_card_is_the_cause() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of \
                2.00 GiB of which 48.00 MiB is free. Including non-PyTorch memory, this process has 1.95 GiB memory in use. \
                Of the allocated memory 1.94 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
    let told = one(text).diagnoses.remove(0);
    assert_eq!((told.id, told.confidence), ("true-capacity", Confidence::Probable));
}
