use super::*;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn says(log: &str) -> Vec<(u64, ProgramSays)> {
    find_all(log).into_iter().map(|line| (line.line, line.says)).collect()
}

/// A load whose cache does not fit.
const LLAMA: &str = "\
llama_params_fit_impl: projected to use 7168 MiB of device memory vs. 6144 MiB of free device memory
load_tensors:        ROCm0 model buffer size =  3577.56 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate ROCm0 buffer of size 4294967296
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
";

#[test]
fn llama_cpps_lines_say_what_a_buffer_was_for() {
    let known = says(LLAMA);
    let lines: Vec<u64> = known.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 4]);
    let ProgramSays::Projected { needed, free } = known[0].1 else { panic!("{:?}", known[0]) };
    assert_eq!((needed.bytes, free.bytes), (7 * GIB, 6 * GIB));
    assert!(needed.rounding_bytes >= MIB / 2);
    let ProgramSays::Buffer { buffer, purpose, size } = &known[1].1 else { panic!("{:?}", known[1]) };
    assert_eq!((&**buffer, *purpose, size.bytes >> 20), ("ROCm0", "weights", 3577));
    let refused = find_all(LLAMA).remove(2);
    assert_eq!(refused.refused_for(4 * GIB), Some(Purpose::KvCache));
    assert_eq!(refused.refused_for(4 * GIB + 1), None);
}

#[test]
fn a_refused_buffer_is_for_what_the_lines_behind_it_say() {
    let refused = |log: &str| find_all(log)[0].refused_for(GIB);
    let line = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 1073741824\n";
    assert_eq!(refused(line), None);
    assert_eq!(
        refused(&format!("{line}llama_model_load: error loading model: unable to allocate CUDA0 buffer\n")),
        Some(Purpose::Weights)
    );
    assert_eq!(
        refused("ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 1073741824\n"),
        Some(Purpose::Compute)
    );
    let far = "another line\n".repeat(20);
    assert_eq!(refused(&format!("{line}{far}failed to allocate buffer for kv cache\n")), None);
}

#[test]
fn vllms_errors_are_read_in_every_wording() {
    let log = "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, \
        19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n\
        ValueError: Free memory on device (3.27/15.98 GiB) on startup is less than desired GPU memory utilization (0.9, 14.39 GiB)\n\
        ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n\
        ValueError: To serve at least one request with the models's max seq len (32768), (2.50 GiB KV cache is needed, which is larger \
        than the available KV cache memory (1.20 GiB).\n";
    let known = find_all(log);
    assert!(known.len() == 4 && known.iter().all(ProgramLine::is_a_share_that_ended_it), "{known:?}");
    let ProgramSays::LessFreeThanItsShare { free, share, wanted, .. } = &known[0].says else { panic!("{known:?}") };
    assert!(free.most() < wanted.least() && share == "0.9", "{known:?}");
    let ProgramSays::CacheTooSmall { needed, available } = known[3].says else { panic!("{known:?}") };
    assert_eq!(needed.bytes, GIB / 2 * 5);
    assert!(available.bytes < needed.bytes);
}

#[test]
fn what_a_server_says_again_and_again_is_kept_once() {
    let log = "ValueError: No available memory for the cache blocks.\n".repeat(3);
    assert_eq!(says(&log), [(3, ProgramSays::NoRoomForTheCache)]);
    assert_eq!(says("nothing of memory: buffer of size\nprojected to use 3 MiB of disk\n"), []);
}
