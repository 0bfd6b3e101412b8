use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// Number, total and use of a card.
type CardFacts = (Option<u64>, Option<u64>, Option<u64>);
/// Card, pid and use of a process.
type ProcessFacts = (Option<u64>, u64, Option<u64>);

fn facts(text: &str) -> (&'static str, Vec<CardFacts>, Vec<ProcessFacts>) {
    let report = read(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let cards = report.cards.iter().map(|card| (card.index, card.total_bytes, card.used_bytes)).collect();
    let processes = report.processes.iter().map(|process| (process.card, process.pid, process.used_bytes)).collect();
    (report.format, cards, processes)
}

#[test]
fn amd_smi_in_json() {
    // As an MI300X was captured: the metric command, with and without the wrapper, and a warning before it.
    let rows = r#"[{"gpu": 0, "usage": {"gfx_activity": {"value": 94, "unit": "%"}, "mm_activity": "N/A"},
        "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 17153, "unit": "MB"}}}]"#;
    let expected = vec![(Some(0), Some(196_592 * MIB), Some(17_153 * MIB))];
    for text in
        [rows.to_owned(), format!("{{\"gpu_data\": {rows}}}"), format!("WARNING: User is missing groups\n{rows}")]
    {
        assert_eq!(facts(&text), ("amd-smi --json", expected.clone(), Vec::new()), "{text}");
    }
    let text = r#"[{"gpu": 0, "process_list": [{"process_info": {"name": "python3", "pid": 41,
        "memory_usage": {"gtt_mem": {"value": 4096, "unit": "B"}, "vram_mem": {"value": 1500000000, "unit": "B"}}}}]},
        {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]}]"#;
    assert_eq!(facts(text).2, [(Some(0), 41, Some(1_500_000_000))]);
    let text = r#"[{"gpu": 0, "asic": {"market_name": "Radeon RX 7900 XTX"}, "vram": {"type": "GDDR6", "size": {"value": 24560, "unit": "MB"}}}]"#;
    assert_eq!(facts(text).1, [(Some(0), Some(24_560 * MIB), None)]);
    assert_eq!(read(text).unwrap().cards[0].name.as_deref(), Some("Radeon RX 7900 XTX"));
}

#[test]
fn amd_smi_as_text() {
    let text = "GPU: 0\n    PROCESS_INFO:\n        NAME: pt_main_thread\n        PID: 207590\n        MEMORY_USAGE:\n            \
                GTT_MEM: 2.0 MB\n            CPU_MEM: 202.0 MB\n            VRAM_MEM: 7.3 GB\n        MEM_USAGE: 7.5 GB\n        \
                USAGE:\n            GFX: 0 ns\n            ENC: 0 ns\n \nGPU: 1\n    PROCESS_INFO:\n        NAME: N/A\n        \
                PID: 207591\n        MEMORY_USAGE:\n            VRAM_MEM: 1.0 GB\n\nGPU: 2\n    PROCESS_INFO: No running \
                processes detected\n";
    let report = read(text).unwrap();
    let found: Vec<_> =
        report.processes.iter().map(|process| (process.card, process.pid, process.name.as_deref())).collect();
    assert_eq!(found, [(Some(0), 207_590, Some("pt_main_thread")), (Some(1), 207_591, None)]);
    assert_eq!(report.processes[1].used_bytes, Some(1 << 30));
    let text =
        "GPU: 0\n    MEM_USAGE:\n        TOTAL_VRAM: 24560 MB\n        USED_VRAM: 28 MB\n        FREE_VRAM: 24532 MB\n";
    assert_eq!(facts(text), ("amd-smi", vec![(Some(0), Some(24_560 * MIB), Some(28 * MIB))], Vec::new()));
}

#[test]
fn rocm_smi() {
    let json = r#"{"card0": {"GPU use (%)": "0", "VRAM Total Memory (B)": "21458059264", "VRAM Total Used Memory (B)": "27856896",
        "Card Series": "Radeon RX 7900 XT"}, "system": {"Driver version": "6.8.5"}}"#;
    let expected = vec![(Some(0), Some(21_458_059_264), Some(27_856_896))];
    assert_eq!(facts(json), ("rocm-smi --json", expected.clone(), Vec::new()));
    assert_eq!(read(json).unwrap().cards[0].free_bytes, Some(21_458_059_264 - 27_856_896));
    let csv = "device,GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,Card Model\n\
               card0,0,21458059264,27856896,Radeon RX 7900 XT,0x744c\n";
    assert_eq!(facts(csv), ("rocm-smi --csv", expected.clone(), Vec::new()));
    let text = "============================= Memory Usage (Bytes) =============================\n\
                GPU[0]\t\t: VRAM Total Memory (B): 21458059264\nGPU[0]\t\t: VRAM Total Used Memory (B): 27856896\n";
    assert_eq!(facts(text), ("rocm-smi --showmeminfo vram", expected, Vec::new()));
}

#[test]
fn nvidia_smi_in_xml() {
    let text = "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n\
        <attached_gpus>1</attached_gpus>\n<gpu id=\"00000000:01:00.0\">\n<product_name>Tesla V100</product_name>\n\
        <gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>\n\
        <fb_memory_usage>\n<total>11264 MiB</total>\n<reserved>201 MiB</reserved>\n<used>3379 MiB</used>\n<free>7885 MiB</free>\n\
        </fb_memory_usage>\n<bar1_memory_usage><total>256 MiB</total><used>5 MiB</used></bar1_memory_usage>\n\
        <ecc_errors><volatile><dram_uncorrectable>9</dram_uncorrectable></volatile>\
        <aggregate><dram_uncorrectable>2</dram_uncorrectable></aggregate></ecc_errors>\n\
        <retired_pages><multiple_single_bit_retirement><retired_count>1</retired_count></multiple_single_bit_retirement>\
        <double_bit_retirement><retired_count>3</retired_count></double_bit_retirement></retired_pages>\n\
        <processes><process_info><pid>408</pid><type>C</type><process_name>/usr/bin/python</process_name>\
        <used_memory>1849 MiB</used_memory></process_info></processes>\n</gpu>\n</nvidia_smi_log>\n";
    assert_eq!(
        facts(text),
        (
            "nvidia-smi -q -x",
            vec![(Some(0), Some(11_264 * MIB), Some(3379 * MIB))],
            vec![(Some(0), 408, Some(1849 * MIB))]
        )
    );
    let card = &read(text).unwrap().cards[0];
    assert_eq!((card.retired_pages, card.uncorrected_errors), (Some(4), Some(2)));
    let cut = read(&text[..400]).unwrap_err().to_string();
    assert_eq!(cut, "offset 400: the file ends in the middle: </nvidia_smi_log> is missing");
}

#[test]
fn nvidia_smi_in_csv() {
    let text = "index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB]\n\
                0, NVIDIA GeForce RTX 4090, 24564 MiB, 564 MiB, 24000 MiB\n1, NVIDIA GeForce RTX 4090, 24564 MiB, 0 MiB, 24564 MiB\n";
    let cards = vec![(Some(0), Some(24_564 * MIB), Some(564 * MIB)), (Some(1), Some(24_564 * MIB), Some(0))];
    assert_eq!(facts(text), ("nvidia-smi --format=csv", cards, Vec::new()));
    let text = "pid, process_name, used_gpu_memory [MiB]\n4711, python3, 1849 MiB\n4712, python3, [N/A]\n";
    assert_eq!(facts(text).2, [(None, 4711, Some(1849 * MIB)), (None, 4712, None)]);
}

#[test]
fn nvidia_smi_as_a_table() {
    let text = "\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   33C    P0             61W /  400W |    1853MiB /  40960MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|    0   N/A  N/A      4711      C   /usr/bin/python3                             1844MiB |
+-----------------------------------------------------------------------------------------+
";
    assert_eq!(
        facts(text),
        ("nvidia-smi", vec![(Some(0), Some(40_960 * MIB), Some(1853 * MIB))], vec![(Some(0), 4711, Some(1844 * MIB))])
    );
    assert_eq!(read(text).unwrap().cards[0].name.as_deref(), Some("NVIDIA A100-SXM4-40GB"));
}

#[test]
fn what_is_not_known_says_what_was_expected() {
    assert_eq!(read("hello\n"), Err(SmiError::Unknown));
    assert_eq!(read(""), Err(SmiError::Unknown));
    assert_eq!(read("{\"a\": 1}"), Err(SmiError::Unknown));
    assert!(SmiError::Unknown.to_string().contains("nvidia-smi -q -x"));
    assert!(matches!(read("[{\"gpu\": 0, \"mem_usage\": {\"total"), Err(SmiError::Damaged { .. })));
    let nothing = read("[{\"gpu\": 0, \"usage\": {}}]").unwrap_err().to_string();
    assert_eq!(
        nothing,
        "amd-smi --json with nothing about memory; run amd-smi metric --json or amd-smi process --json"
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(parts in prop::collection::vec(prop_oneof![
        Just("<nvidia_smi_log>"), Just("</nvidia_smi_log>"), Just("<gpu "), Just(">"), Just("</gpu>"), Just("<pid>"), Just("</pid>"),
        Just("NVIDIA-SMI "), Just("Processes:"), Just("| 0 "), Just("MiB / "), Just(" C "), Just("GPU: "), Just("GPU["), Just("]"),
        Just("VRAM Total"), Just(":"), Just("PID: 7"), Just("\n"), Just("memory.total, pid"), Just("used_memory"), Just(","), Just("é"),
        Just("{\"gpu_data\":["), Just("[{\"gpu\":0,"), Just("}]"), Just("\"card0\":{"), Just("1e400"), Just("9999999999999999999999"),
    ], 0..30)) {
        let _ = read(&parts.concat());
    }
}
