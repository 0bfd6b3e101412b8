use proptest::prelude::*;

use super::*;
use crate::catalogue;
use crate::thresholds::Thresholds;

fn one(log: &str) -> TorchMessage {
    let mut found = find_all(log);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

fn bytes(size: Option<Printed>) -> Option<u64> {
    size.map(|size| size.bytes)
}

fn gib(number: f64) -> Option<u64> {
    Some((number * 1_073_741_824.0) as u64)
}

fn mib(number: f64) -> Option<u64> {
    Some((number * 1_048_576.0) as u64)
}

/// The message of a user guide, with its line ends.
const STRIX_HALO: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.99 GiB.
GPU 0 has a total capacity of 62.54 GiB of which 668.07 MiB is free.
Of the allocated memory 59.55 GiB is allocated by PyTorch, and 2.08 GiB
is reserved by PyTorch but unallocated.";

#[test]
fn the_newest_wording() {
    let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 MiB. GPU 3 has a total capacity of 94.96 GiB \
               of which 59.69 MiB is free. Process 502587 has 1.78 GiB memory in use. Process 745081 has 86.44 GiB memory in \
               use. Including non-PyTorch memory, this process has 6.62 GiB memory in use. 7.00 GiB allowed; Of the allocated \
               memory 5.97 GiB is allocated by PyTorch, with 17.00 MiB allocated in private pools (e.g., CUDA Graphs), and \
               116.33 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
               PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
               Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)";
    let message = one(log);
    assert_eq!(message.spelling, Spelling::TotalCapacity);
    assert_eq!(message.backend, Some(Backend::Cuda));
    assert_eq!(message.exception, Some("torch.OutOfMemoryError"));
    assert_eq!((message.device, message.offset_bytes, message.line), (Some(3), 24, 1));
    assert_eq!((bytes(message.tried), bytes(message.total)), (mib(130.0), gib(94.96)));
    assert_eq!((bytes(message.free), bytes(message.allocated)), (mib(59.69), gib(5.97)));
    assert_eq!((bytes(message.unallocated), bytes(message.private_pools)), (mib(116.33), mib(17.0)));
    assert_eq!((bytes(message.this_process), bytes(message.allowed)), (gib(6.62), gib(7.0)));
    let others: Vec<_> = message.other_processes.iter().map(|other| (other.pid, Some(other.in_use.bytes))).collect();
    assert_eq!(others, [(502_587, gib(1.78)), (745_081, gib(86.44))]);
    assert_eq!(message.advised_variable, Some("PYTORCH_CUDA_ALLOC_CONF"));
    assert_eq!(message.advised_option, Some("expandable_segments"));
    assert_eq!(message.reserved, None);
}

#[test]
fn the_wording_of_two_one_lacks_a_letter() {
    let message = one(
        "CUDA out of memory. Tried to allocate 2.09 GiB. GPU 0 has a total capacty of 23.69 GiB of which 541.00 MiB is free. \
         Process 2006998 has 256.00 MiB memory in use. Including non-PyTorch memory, this process has 22.89 GiB memory in \
         use. Of the allocated memory 21.48 GiB is allocated by PyTorch, and 1.11 GiB is reserved by PyTorch but \
         unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  \
         See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
    );
    assert_eq!(message.spelling.versions(), Some("2.1"));
    assert_eq!((bytes(message.total), bytes(message.unallocated)), (gib(23.69), gib(1.11)));
    assert_eq!(message.advised_option, Some("max_split_size_mb"));
    assert_eq!(message.exception, None);
}

#[test]
fn the_wordings_in_brackets() {
    let message = one(
        "RuntimeError: CUDA out of memory. Tried to allocate 37.25 GiB (GPU 1; 23.68 GiB total capacity; 192.29 MiB already \
         allocated; 15.79 GiB free; 2.37 GiB allowed; 5.05 GiB reserved in total by PyTorch) If reserved memory is >> \
         allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management \
         and PYTORCH_CUDA_ALLOC_CONF",
    );
    assert_eq!((message.spelling, message.device), (Spelling::ReservedInTotal, Some(1)));
    assert_eq!((bytes(message.tried), bytes(message.total)), (gib(37.25), gib(23.68)));
    assert_eq!((bytes(message.allocated), bytes(message.free)), (mib(192.29), gib(15.79)));
    assert_eq!((bytes(message.allowed), bytes(message.reserved)), (gib(2.37), gib(5.05)));
    let unallocated = message.unallocated().unwrap();
    assert_eq!(unallocated.bytes, gib(5.05).unwrap() - mib(192.29).unwrap());
    assert_eq!(unallocated.rounding_bytes, 5_368_710 + 5243);

    // `cached` is what the allocator holds beside the tensors.
    let message = one(
        "RuntimeError: CUDA out of memory. Tried to allocate 6.61 GiB (GPU 1; 10.76 GiB total capacity; 1.25 GiB already \
         allocated; 0 bytes free; 6.38 GiB cached)",
    );
    assert_eq!(message.spelling, Spelling::Cached);
    assert_eq!((bytes(message.free), bytes(message.unallocated())), (Some(0), gib(6.38)));
    assert_eq!((message.reserved, message.advised_variable), (None, None));
}

#[test]
fn the_asynchronous_allocator() {
    let limit = |limit: &str| {
        one(&format!(
            "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n\
             Currently allocated     : 300.00 MiB\nRequested               : 300.00 MiB\n\
             Device limit            : 1024.00 MiB\nFree (according to CUDA): 724.00 MiB\n\
             PyTorch limit (set by user-supplied memory fraction)\n                        : {limit}\n"
        ))
    };
    let message = limit("512.00 MiB");
    assert_eq!((message.spelling, message.backend, message.device), (Spelling::MallocAsync, None, Some(0)));
    assert_eq!((bytes(message.allocated), bytes(message.tried)), (mib(300.0), mib(300.0)));
    assert_eq!((bytes(message.total), bytes(message.free)), (mib(1024.0), mib(724.0)));
    assert_eq!(bytes(message.allowed), mib(512.0));
    assert_eq!(
        judge(&message, &Thresholds::default()).findings,
        [Finding { id: "process-fraction-cap", certain: true }]
    );
    assert_eq!(limit("17179869184.00 GiB").allowed, None, "2^64 is no limit");
}

#[test]
fn wordings_without_numbers() {
    let message = one("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.");
    assert_eq!(message.spelling, Spelling::MoreThanAnExabyte);
    assert_eq!(judge(&message, &Thresholds::default()).findings[0].id, "request-exceeds-device");
    let message = one(
        "torch.OutOfMemoryError: CUDA out of memory. Allocation was preemptively rejected because it would exceed \
         per_process_memory_fraction limit. Requested size: 300.00 MiB",
    );
    assert_eq!((message.spelling, bytes(message.tried)), (Spelling::Preempted, mib(300.0)));
    assert_eq!(judge(&message, &Thresholds::default()).findings[0].id, "process-fraction-cap");
    for log in [
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "torch.AcceleratorError: CUDA error: out of memory",
        "RuntimeError: HIP error: out of memory",
        "THCudaCheck FAIL\nRuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58",
    ] {
        let message = one(log);
        assert_eq!(message.spelling, Spelling::RuntimeError, "{log}");
        assert!(!message.has_numbers());
        assert_eq!(judge(&message, &Thresholds::default()).findings, []);
    }
}

/// A log can end anywhere; what is there counts.
#[test]
fn a_message_that_was_cut_off() {
    let message =
        one("torch.OutOfMemoryError: CUDA out of memory.\nGPU 0 has a total capacity of 39.49 GiB of which 47 MiB is");
    assert_eq!((bytes(message.total), message.tried, message.free), (gib(39.49), None, None));
    assert_eq!(judge(&message, &Thresholds::default()).findings, []);
    assert_eq!(one("torch.OutOfMemoryError: CUDA out of memory.").spelling, Spelling::Cut);
}

#[test]
fn what_others_print_is_not_pytorchs() {
    for log in [
        "ggml_cuda_device_malloc: cudaMalloc failed: out of memory",
        "CUDA error: out of memory",
        "Out of memory: Killed process 4711 (python3)",
        "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 29.50 GiB total capacity; 25.00 GiB already allocated)",
        "CUDA out of memory. Retrying with a smaller batch.",
        "we catch CUDA out of memory errors",
        "MPS backend out of memory (MPS allocated: 9.05 GB). Tried to allocate 25.00 MB on private pool.",
    ] {
        assert_eq!(find_all(log), [], "{log}");
    }
}

#[test]
fn messages_of_many_ranks_are_told_apart() {
    let message = |rank: u32, tried: u32| {
        STRIX_HALO
            .lines()
            .map(|line| format!("2025-03-0{}T10:0{rank}:01.7Z [rank{rank}]: {line}\n", rank + 1))
            .collect::<String>()
            .replace("3.99", &format!("{tried}.00"))
            .replace("GPU 0", &format!("GPU {rank}"))
    };
    let mut lines: Vec<String> = Vec::new();
    let (one, other) = (message(0, 4), message(1, 5));
    for (one, other) in one.lines().zip(other.lines()) {
        lines.extend([one.to_owned(), other.to_owned()]);
    }
    for log in [format!("{one}{other}"), lines.join("\n")] {
        let found = find_all(&log);
        let facts: Vec<_> =
            found.iter().map(|found| (found.device, bytes(found.tried), bytes(found.unallocated))).collect();
        assert_eq!(facts, [(Some(0), gib(4.0), gib(2.08)), (Some(1), gib(5.0), gib(2.08))], "{log}");
    }
    assert_eq!(find_all(&format!("{one}{other}"))[1].line, 5);
}

/// The numbers of a public report, in the wording of its time.
struct Vector {
    source: &'static str,
    text: &'static str,
    finding: &'static str,
    certain: bool,
    look_at: &'static str,
}

const VECTORS: [Vector; 11] = [
    Vector {
        source: "Strix Halo, TTM limit at half of the RAM",
        text: STRIX_HALO,
        finding: "true-capacity",
        certain: true,
        look_at: "uma-ttm-limit",
    },
    Vector {
        source: "ROCm/TheRock#2844",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of 15.92 GiB of \
               which 0 bytes is free. Of the allocated memory 3.97 GiB is allocated by PyTorch, and 9.27 GiB is reserved by \
               PyTorch but unallocated.",
        finding: "caching-fragmentation",
        certain: true,
        look_at: "expandable-ignored",
    },
    Vector {
        source: "pytorch/pytorch#175431",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 287.98 GiB of \
               which 203.49 GiB is free. Of the allocated memory 68.63 GiB is allocated by PyTorch, and 14.93 GiB is reserved \
               by PyTorch but unallocated.",
        finding: "phantom-free",
        certain: true,
        look_at: "map-count-exhaustion",
    },
    Vector {
        source: "ROCm/TheRock#2118",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 GiB of \
               which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.00 MiB is allocated by PyTorch, with \
               17.00 MiB allocated in private pools (e.g., CUDA Graphs), and 55.00 MiB is reserved by PyTorch but unallocated.",
        finding: "process-fraction-cap",
        // 1074 MiB with the request, 1075.2 MiB allowed as printed: only what was rounded away decides.
        certain: false,
        look_at: "",
    },
    Vector {
        source: "ROCm/ROCm#5519",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 77.52 GiB. GPU 0 has a total capacity of 23.98 GiB of \
               which 6.71 GiB is free. Of the allocated memory 16.43 GiB is allocated by PyTorch, and 0.34 GiB is reserved by \
               PyTorch but unallocated.",
        finding: "request-exceeds-device",
        certain: true,
        look_at: "attention-quadratic",
    },
    Vector {
        source: "ROCm/TheRock#1054",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 15.24 GiB of \
               which 15.09 GiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by \
               PyTorch but unallocated.",
        finding: "request-exceeds-device",
        certain: true,
        look_at: "uma-large-carveout-starves-gtt",
    },
    Vector {
        source: "ROCm/TheRock#4598",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 15.49 GiB of \
               which 84.98 GiB is free. Of the allocated memory 1.67 GiB is allocated by PyTorch, and 8.08 GiB is reserved by \
               PyTorch but unallocated.",
        finding: "apu-reporting-inconsistent",
        certain: true,
        look_at: "",
    },
    Vector {
        source: "ROCm/ROCm#4358",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.50 GiB. GPU 0 has a total capacity of 15.98 GiB of \
               which 1.40 GiB is free. Of the allocated memory 1.26 GiB is allocated by PyTorch, and 0.15 GiB is reserved by \
               PyTorch but unallocated.",
        finding: "other-process-on-gpu",
        certain: false,
        look_at: "hidden-runtime-memory",
    },
    Vector {
        source: "ComfyUI#13112",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total capacity of 15.92 GiB of \
               which 13.60 GiB is free. Of the allocated memory 1.72 GiB is allocated by PyTorch, and 0.03 GiB is reserved by \
               PyTorch but unallocated.",
        finding: "phantom-free",
        certain: true,
        look_at: "vmm-fd-exhaustion",
    },
    Vector {
        source: "ROCm/TheRock#2396",
        text: "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 76.00 MiB. GPU 0 has a total capacity of 287.98 GiB of \
               which 0 bytes is free. Of the allocated memory 8.51 GiB is allocated by PyTorch, and 2.00 MiB is reserved by \
               PyTorch but unallocated.",
        finding: "other-process-on-gpu",
        certain: false,
        look_at: "hidden-runtime-memory",
    },
    Vector {
        source: "ROCm/ROCm#2014",
        text: "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB (GPU 0; 512.00 MiB total capacity; \
               150.00 MiB already allocated; 312.00 MiB free; 168.00 MiB reserved in total by PyTorch) If reserved memory is \
               >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory \
               Management and PYTORCH_HIP_ALLOC_CONF",
        finding: "phantom-free",
        certain: true,
        look_at: "uma-carveout-only",
    },
];

#[test]
fn worked_vectors() {
    for Vector { source, text, finding, certain, look_at } in VECTORS {
        let judgement = judge(&one(text), &Thresholds::default());
        assert_eq!(judgement.findings, [Finding { id: finding, certain }], "{source}");
        assert!(look_at.is_empty() || judgement.look_at.contains(&look_at), "{source}: {:?}", judgement.look_at);
        for id in judgement.look_at.iter().chain([&finding]) {
            assert!(catalogue::find(id).is_some(), "{id} is not in the catalogue");
        }
    }
}

#[test]
fn the_numbers_behind_the_vectors() {
    let numbers = |index: usize| judge(&one(VECTORS[index].text), &Thresholds::default()).numbers;
    let in_gib = |size: Option<Printed>| format!("{:.2}", size.unwrap().bytes as f64 / 1_073_741_824.0);
    let first = numbers(0);
    assert_eq!(in_gib(first.free_and_unallocated), "2.73");
    assert_eq!(in_gib(first.outside), "0.26");
    assert_eq!(in_gib(numbers(7).outside), "13.17");
    assert_eq!(in_gib(numbers(9).outside), "279.47");
    assert_eq!(numbers(10).unallocated.unwrap().bytes, 18 << 20);
}

#[test]
fn what_the_driver_says_about_processes_decides_whose_the_rest_is() {
    let message = |this: &str| {
        one(&format!(
            "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. \
             Including non-PyTorch memory, this process has {this} memory in use. Of the allocated memory 6.00 GiB is \
             allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
        ))
    };
    assert_eq!(
        judge(&message("7.40 GiB"), &Thresholds::default()).findings,
        [Finding { id: "other-process-on-gpu", certain: true }]
    );
    assert_eq!(
        judge(&message("22.90 GiB"), &Thresholds::default()).findings,
        [Finding { id: "hidden-runtime-memory", certain: true }]
    );
    let unknown = judge(&message("17179869184.00 GiB"), &Thresholds::default());
    assert_eq!(unknown.findings, [Finding { id: "other-process-on-gpu", certain: false }]);
}

#[test]
fn graphs_that_keep_what_was_missing() {
    let message = one(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free. Of \
         the allocated memory 21.00 GiB is allocated by PyTorch, with 3.00 GiB allocated in private pools (e.g., CUDA Graphs), \
         and 1.50 GiB is reserved by PyTorch but unallocated.",
    );
    let ids: Vec<_> = judge(&message, &Thresholds::default()).findings.iter().map(|finding| finding.id).collect();
    assert_eq!(ids, ["true-capacity", "graph-private-pool"]);
    assert!(catalogue::find("graph-private-pool").is_some());
}

/// A log that is nothing but anchors does not take more than a moment.
#[test]
fn a_log_of_nothing_but_anchors() {
    let log = "Tried to allocate 1 out of memory CUDA ".repeat(50_000);
    assert_eq!(find_all(&log), []);
}

#[test]
fn blanks_of_several_bytes_before_the_message_are_no_trouble() {
    let message = one("\u{a0}RuntimeError: CUDA out of memory. Tried to allocate 3.99 GiB");
    assert_eq!(bytes(message.tried), gib(3.99));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(parts in prop::collection::vec(prop_oneof![
        Just("CUDA out of memory. "), Just("Tried to allocate "), Just("3.99 GiB"), Just("out of memory"), Just("(GPU 0; "),
        Just(" total capacity; "), Just("Allocation on device "), Just(" would exceed allowed memory"), Just("\n"), Just("\\n"),
        Just("[rank0]: "), Just("é…"), Just("RuntimeError: "), Just(" is free"), Just("cached)"), Just("Process "), Just("7"),
    ], 0..60), noise in ".{0,40}") {
        let log = parts.concat() + &noise + &parts.concat();
        for message in find_all(&log) {
            judge(&message, &Thresholds::default());
            prop_assert!(log.is_char_boundary(message.offset_bytes as usize));
        }
    }

    /// However a terminal wraps a message, it reads the same.
    #[test]
    fn wrapping_changes_nothing(width in 40usize..200) {
        let text = VECTORS[3].text;
        let wrapped: Vec<String> =
            text.as_bytes().chunks(width).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        let (mut plain, mut other) = (one(text), find_all(&wrapped.join("\n")));
        prop_assert_eq!(other.len(), 1);
        let other = other.remove(0);
        plain.offset_bytes = other.offset_bytes;
        plain.backend = plain.backend.filter(|_| other.backend.is_some());
        plain.exception = plain.exception.filter(|_| other.exception.is_some());
        plain.line = other.line;
        prop_assert_eq!(plain, other);
    }
}

/// From 2.13 on each attempt that may still be saved writes a line of its own. It is not a failure: the program may get its memory.
#[test]
fn a_line_about_an_attempt_is_not_a_message() {
    let log = "[W1124 22:40:03.1 CUDACachingAllocator.cpp:1] memory allocation failed with OOM on device 0 while trying to allocate \
               1073741824 bytes\n";
    assert_eq!(find_all(log), []);
}
