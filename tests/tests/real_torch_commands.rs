//! What the commands say of tensors, beside PyTorch's own account of them.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use gpuoom_tests::{Finished, analyzer, torch_client};
use serde_json::Value;

const NATIVE: &str = "backend:native";
const EXPANDABLE: &str = "expandable_segments:True";

fn output(run: &Finished, arguments: &[&str]) -> Output {
    let output = run.only_trace().analyze_anyway(arguments);
    assert!(output.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn printed(run: &Finished, name: &str) -> u64 {
    let line = run.stdout.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in {}", run.stdout))
}

/// A program of every sort, with PyTorch's own account at its end.
fn blocks(setting: &str) -> Option<(Finished, Value)> {
    let client = torch_client("blocks.py")?.arg("all").arg("account.json").env("PYTORCH_CUDA_ALLOC_CONF", setting);
    let run = client.env("SIM_CAPACITY", "4G").env("SIM_DEVICES", "2").env("GPUOOM_PROBE", "off").run_recorded();
    assert_eq!(run.exit_code(), 0, "{setting}: {}", run.stderr);
    let text = std::fs::read_to_string(run.cwd().join("account.json")).expect("PyTorch's account");
    let account = serde_json::from_str(&text).expect("JSON");
    Some((run, account))
}

/// Bytes, bytes in blocks, and pieces in none, by device and address.
type Segments = BTreeMap<(u64, u64), [u64; 3]>;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn drawn(map: &Value) -> Segments {
    let mut segments = Segments::new();
    for device in map["devices"].as_array().expect("devices") {
        for segment in device["allocators"][0]["segments"].as_array().expect("segments that are known") {
            let address = segment["address"].as_str().and_then(|text| text.strip_prefix("0x")).expect("an address");
            let address = u64::from_str_radix(address, 16).expect("hexadecimal");
            let sizes = ["bytes", "allocated_bytes", "unused_pieces"].map(|field| number(&segment[field]));
            segments.insert((number(&device["device"]), address), sizes);
        }
    }
    segments
}

/// Segment by segment: the map at the end is `torch.cuda.memory_snapshot()`.
#[test]
fn the_map_is_pytorchs_own() {
    for setting in [NATIVE, EXPANDABLE] {
        let Some((run, account)) = blocks(setting) else { return };
        let own = account["segments"].as_array().expect("segments").iter().map(|segment| {
            let key = (number(&segment["device"]), number(&segment["address"]));
            (key, ["bytes", "allocated", "pieces"].map(|field| number(&segment[field])))
        });
        let own: Segments = own.collect();
        assert!(own.len() > 3, "{setting}");
        assert_eq!(drawn(&json(&output(&run, &["map", "--at", "end", "--format", "json"]))), own, "{setting}");
        let text = String::from_utf8(output(&run, &["map", "--at", "end"]).stdout).expect("UTF-8");
        assert!(text.contains("Segments of PyTorch's allocator") && text.contains("unused in"), "{text}");
    }
}

/// At an error, after the cache was given back: what PyTorch's message says of it is the map's sum.
#[test]
fn the_map_at_an_error_is_what_its_message_says() {
    let Some(client) = torch_client("churn.py") else { return };
    let run = client.arg("-").env("SIM_CAPACITY", "280M").env("GPUOOM_PROBE", "off").run_recorded();
    let report = run.only_trace().report();
    let ooms = report.value("/ooms").as_array().expect("failures").clone();
    let (index, error) = ooms.iter().enumerate().find(|(_, oom)| oom["layer"] == "framework").expect("an error");
    let message = error["message"].as_str().expect("its text");
    let at = format!("oom:{}", index + 1);
    let map = json(&output(&run, &["map", "--at", &at, "--format", "json"]));
    let sum = |place: usize| drawn(&map).values().map(|sizes| sizes[place]).sum::<u64>() as f64 / f64::from(1 << 20);
    let said = |before: &str| -> f64 {
        let text = message.split(before).nth(1).unwrap_or_else(|| panic!("no {before:?} in {message}"));
        text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number of MiB")
    };
    let (allocated, unused) = (said("Of the allocated memory "), said("allocated by PyTorch, and "));
    assert!((sum(1) - allocated).abs() < 0.01, "{} {message}", sum(1));
    assert!((sum(0) - sum(1) - unused).abs() < 0.01, "{} {message}", sum(0) - sum(1));
}

/// The most in tensors, and the most reserved, are PyTorch's own peaks.
#[test]
fn metrics_are_pytorchs_own_peaks() {
    for setting in ["", EXPANDABLE] {
        let Some(client) = torch_client("churn.py") else { return };
        let client = client.arg("-").arg("1").arg("one").env("SIM_CAPACITY", "16G").env("GPUOOM_PROBE", "off");
        let run = client.env("PYTORCH_ALLOC_CONF", if setting.is_empty() { NATIVE } else { setting }).run_recorded();
        let most = printed(&run, "allocated_bytes.all.peak");
        let reserved = printed(&run, "reserved_bytes.all.peak");
        let policy = format!(
            "[[budget]]\ntensors = {{ min = {most}, max = {most} }}\nreserved = {{ min = {reserved}, max = {reserved} }}\n\
             [[budget]]\nsite = \"*churn.py!take*\"\ntensors = {{ min = {most} }}\n\
             [[budget]]\nunused = {}\n",
            reserved - most
        );
        let path = run.cwd().join("policy.toml");
        std::fs::write(&path, policy).expect("a policy");
        let checked =
            run.only_trace().analyze_anyway(&["check", "--format", "json", "--policy", path.to_str().expect("plain")]);
        let checked = json(&checked);
        let findings = checked["runs"][0]["findings"].as_array().expect("findings");
        let outcomes: Vec<&str> = findings.iter().filter_map(|finding| finding["outcome"].as_str()).collect();
        assert_eq!(outcomes[..5], ["kept"; 5], "{checked:#}");
        // No less can be unused when most was reserved than what the two peaks leave.
        assert!(number(&findings[5]["value"]) >= reserved - most, "{checked:#}");
    }
}

/// The same program with twice the batch: the line that grew is named, in all formats, and a run without the layer is none without tensors.
#[test]
fn a_difference_names_the_line() {
    let run = |settings: &str, framework: &str| {
        let client = torch_client("churn.py")?.arg("-").arg("1").arg("one").env("SIM_CAPACITY", "16G");
        let client = client.env("PYTORCH_ALLOC_CONF", settings).env("GPUOOM_FRAMEWORK", framework);
        Some(client.env("GPUOOM_PROBE", "off").run_recorded())
    };
    let (Some(base), Some(new), Some(blind)) =
        (run(NATIVE, "on"), run("max_split_size_mb:30", "on"), run(NATIVE, "off"))
    else {
        return;
    };
    let diff = |base: &Finished, format: &str| {
        let paths = [&base.only_trace().path, &new.only_trace().path].map(|path| path.clone());
        let output =
            Command::new(analyzer()).args(["diff", "--format", format]).args(paths).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    let found = json(&diff(&base, "json"));
    let tensors = &found["places"][0]["tensors"];
    for (side, run) in [("base", &base), ("new", &new)] {
        assert_eq!(number(&tensors[side]["tensors_bytes"]), printed(run, "allocated_bytes.all.peak"));
        assert_eq!(number(&tensors[side]["reserved_bytes"]), printed(run, "reserved_bytes.all.peak"));
    }
    let sites = found["tensor_sites"].as_array().expect("lines");
    let key = sites[0]["key"].as_str().expect("a name");
    assert!(key.starts_with("tensors < churn.py!take"), "{key}");
    for format in ["text", "markdown"] {
        let text = String::from_utf8(diff(&base, format).stdout).expect("UTF-8");
        assert!(text.contains("most in tensors") && text.contains("churn.py!take"), "{text}");
    }
    let found = json(&diff(&blind, "json"));
    assert!(found["places"][0]["tensors"]["base"].is_null() && !found["places"][0]["tensors"]["new"].is_null());
    assert_eq!(found["tensor_sites"], serde_json::json!([]));
}

/// Each block is in the list of events, in each format, under a name that people can read.
#[test]
fn events_have_the_blocks() {
    let Some(client) = torch_client("churn.py") else { return };
    let run = client.arg("-").arg("1").arg("one").env("SIM_CAPACITY", "16G").env("GPUOOM_PROBE", "off").run_recorded();
    let lines = |format: &str| {
        let text = String::from_utf8(output(&run, &["events", "--format", format]).stdout).expect("UTF-8");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let json: Vec<Value> = lines("json").iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told = json.iter().filter(|event| event["layer"] == "framework" && event["kind"] == "tensor").count();
    assert!(told > 500, "{told}");
    let in_csv = lines("csv").iter().filter(|line| line.contains(",framework,") && line.contains(",tensor,")).count();
    let in_text = lines("text").iter().filter(|line| line.contains("c10::reportMemoryUsageToProfiler")).count();
    assert_eq!((in_csv, in_text), (told, told));
}
