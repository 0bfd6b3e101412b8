//! `gpuoom-analyze doctor` on the machines in `tests/roots`: what it says, and its exit status. They were written after
//! the kernel's formats and public reports, see their list in `roots/README.md`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn doctor(root: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/roots"));
    command.args(["doctor", "--sysroot", root]).args(arguments).env_clear();
    command.envs(environment.iter().copied()).output().expect("the analyzer starts")
}

fn text(root: &str, environment: &[(&str, &str)], wrong: bool) -> String {
    let output = doctor(root, environment, &[]);
    let said = String::from_utf8(output.stdout).expect("the analyzer writes UTF-8");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(i32::from(wrong)), "{said}");
    said
}

macro_rules! machines {
    ($($name:ident: $root:literal, $wrong:literal;)+) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(text($root, &[], $wrong));
        }
    )+};
}

machines! {
    a_24_gib_card_in_good_order: "rdna3-24g", false;
    a_16_gib_card_that_others_use: "rdna3-16g", true;
    strix_halo_before: "strix-halo-before", true;
    strix_halo_after: "strix-halo-after", false;
    strix_halo_with_a_large_carve_out: "strix-halo-carveout-96g", true;
    an_old_kernel_offers_the_carve_out_alone: "rembrandt-carveout-only", true;
    mi300x_whole_and_in_partitions: "mi300x", false;
    an_nvidia_card: "nvidia", false;
    a_container_with_limits: "container", true;
}

#[test]
fn options_in_the_environment() {
    let environment = [
        ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:256"),
        ("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8,max_split_size:64"),
        ("PYTORCH_HIP_ALLOC_CONFIG", "backend:native"),
        ("PYTORCH_NO_HIP_MEMORY_CACHING", "1"),
        ("HSA_OVERRIDE_GFX_VERSION", "10.3.0"),
        ("HSA_XNACK", "1"),
        ("GPU_MAX_HEAP_SIZE", "90"),
        ("HIP_VISIBLE_DEVICES", "0"),
    ];
    insta::assert_snapshot!(text("rdna3-24g", &environment, true));
}

#[test]
fn programs_get_the_same_as_people() {
    let output = doctor("strix-halo-before", &[], &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["schema"], "gpuoom.doctor/1");
    let findings = json["findings"].as_array().expect("a list");
    assert_eq!(json["problems"], findings.iter().filter(|finding| finding["severity"] == "problem").count());
    let limit = &findings[0];
    assert_eq!((&limit["id"], &limit["confidence"]), (&"uma-ttm-limit".into(), &"proven".into()));
    let command = &limit["fixes"][0]["commands"][0];
    let expected = "sudo grubby --update-kernel=ALL --args=\"ttm.pages_limit=30690696 ttm.page_pool_size=30690696\"";
    assert_eq!(command, expected);
    assert_eq!(json["machine"]["memory"]["total_bytes"], 131_151_392u64 << 10);
    assert_eq!(json["machine"]["ttm"]["pages_limit"], 16_393_924);
}

#[test]
fn wrong_usage_has_a_status_of_its_own() {
    let output = doctor("no-such-machine", &[], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such directory"));
    assert_eq!(doctor(".", &[], &["--format", "xml"]).status.code(), Some(2));
}

/// A directory with nothing in it is a machine of which nothing is known: no panic, nothing wrong, and it says so.
#[test]
fn an_empty_machine() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let said = text(directory.path().to_str().expect("UTF-8"), &[], false);
    assert!(said.contains("NOT READ") && said.contains("no GPU"), "{said}");
}

#[test]
fn this_machine() {
    let output = doctor("/", &[], &["--format", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["origin"]["is_this_machine"], true);
    assert!(json["machine"]["memory"]["total_bytes"].as_u64() > Some(0));
}

/// Below an empty directory nothing is known: that nothing is wrong would be a lie.
#[test]
fn a_root_without_a_machine_is_said() {
    let empty = tempfile::tempdir().unwrap();
    let said = text(empty.path().to_str().unwrap(), &[], false);
    assert!(said.starts_with("DOCTOR  nothing could be checked of the machine\n"), "{said}");
    assert!(said.contains("/proc/meminfo"), "{said}");
}
