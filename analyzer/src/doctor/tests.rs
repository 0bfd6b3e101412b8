use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use gpuoom_machine::fdinfo::Graphics;

use super::subject::Subject;
use super::*;
use crate::catalogue::find;
use crate::judgement::check::Confidence;

fn root(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/roots").join(name)
}

fn subject(name: &str, environment: &[(&str, &str)]) -> Subject {
    let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Subject::of_root(&root(name), environment.collect())
}

/// Ids and severities of what is found.
fn found(subject: &Subject) -> Vec<(Option<&'static str>, Severity)> {
    examine(subject).findings.iter().map(|finding| (finding.id, finding.severity)).collect()
}

fn finding_of(subject: &Subject, id: &str) -> Finding {
    let findings = examine(subject).findings;
    let found = findings.iter().find(|finding| finding.id == Some(id));
    found.cloned().unwrap_or_else(|| panic!("no {id} in {findings:#?}"))
}

#[test]
fn every_id_is_in_the_catalogue() {
    let environment = [
        ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:256,backend:hipMallocAsync"),
        ("PYTORCH_NO_HIP_MEMORY_CACHING", "1"),
        ("HSA_OVERRIDE_GFX_VERSION", "9.0.0"),
        ("HSA_XNACK", "1"),
        ("GPU_SINGLE_ALLOC_PERCENT", "50"),
    ];
    let mut seen = 0;
    for entry in fs::read_dir(root("")).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        let subject = subject(entry.file_name().to_str().unwrap(), &environment);
        for id in examine(&subject).findings.iter().filter_map(|finding| finding.id) {
            assert!(find(id).is_some(), "{id}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn half_of_the_ram_is_found_with_the_pages_to_set() {
    let finding = finding_of(&subject("strix-halo-before", &[]), "uma-ttm-limit");
    assert_eq!(finding.confidence, Confidence::Proven);
    let evidence = finding.evidence.join("\n");
    assert!(evidence.contains("16 393 924 pages of 4 KiB = 62.54 GiB, 50.0 % of the RAM"), "{evidence}");
    assert!(evidence.contains("RAM/64 - 1.5 GiB = 121.62 GiB"), "{evidence}");
    assert!(finding.fixes[0].text.contains("30 690 696 pages = 117.08 GiB"), "{:?}", finding.fixes);
    assert_eq!(finding.fixes[1].commands[1], "amd-ttm --set 117");
}

#[test]
fn what_the_host_keeps_is_a_warning_below_8_gib_and_a_problem_below_4() {
    let mut subject = subject("strix-halo-after", &[]);
    let finding = finding_of(&subject, "uma-host-pressure");
    assert_eq!(finding.severity, Severity::Notice);
    assert!(finding.title.contains("all but 5.08 GiB"), "{}", finding.title);
    assert!(found(&subject).iter().all(|(id, _)| *id != Some("uma-ttm-limit")));
    subject.machine.ttm.as_mut().unwrap().pages_limit = Some(32_000_000);
    assert_eq!(finding_of(&subject, "uma-host-pressure").severity, Severity::Problem);
    assert!(finding_of(&subject, "kfd-system-memory-limit").title.contains("0.45 GiB"));
    subject.machine.ttm.as_mut().unwrap().pages_limit = Some(30_690_696);
    assert_eq!(found(&subject).iter().filter(|(id, _)| *id == Some("uma-host-pressure")).count(), 0);
}

#[test]
fn one_cause_is_named_for_a_small_total() {
    for (name, cause) in [
        ("strix-halo-before", "uma-ttm-limit"),
        ("strix-halo-carveout-96g", "uma-large-carveout-starves-gtt"),
        ("rembrandt-carveout-only", "uma-carveout-only"),
    ] {
        let causes = ["uma-ttm-limit", "uma-large-carveout-starves-gtt", "uma-carveout-only"];
        let found: Vec<_> =
            found(&subject(name, &[])).into_iter().filter_map(|(id, _)| id).filter(|id| causes.contains(id)).collect();
        assert_eq!(found, [cause], "{name}");
    }
}

#[test]
fn a_runtime_that_offers_the_carve_out_is_not_starved() {
    let mut subject = subject("strix-halo-carveout-96g", &[]);
    subject.machine.nodes[1].banks[0].bytes = 96 << 30;
    assert!(found(&subject).iter().all(|(id, _)| *id != Some("uma-large-carveout-starves-gtt")));
}

/// Where the firmware takes the size from Linux, nobody has to look for a menu of the BIOS.
#[test]
fn a_carve_out_that_linux_can_set_is_set_there() {
    let carved = |subject: &Subject| finding_of(subject, "uma-large-carveout-starves-gtt");
    let mut subject = subject("strix-halo-carveout-from-linux", &[]);
    let finding = carved(&subject);
    assert!(finding.fixes[0].text.starts_with("set the carve-out to 512 MiB"), "{:?}", finding.fixes);
    assert_eq!(finding.fixes[0].commands, ["echo 0 | sudo tee /sys/class/drm/card1/device/uma/carveout"]);
    assert!(!finding.evidence.join("; ").contains("next start"), "{:?}", finding.evidence);
    // It was written, and the machine has not been started again.
    subject.machine.cards[0].carve_out_set = Some(0);
    assert!(carved(&subject).evidence.join("; ").contains("has the carve-out of 512 MiB set for the next start"));
    subject.machine.cards[0].carve_outs.clear();
    let fix = &carved(&subject).fixes[0];
    assert!(fix.commands.is_empty() && fix.text.starts_with("set the carve-out in the BIOS"), "{fix:?}");
}

#[test]
fn unit_and_spelling_of_kernel_parameters() {
    let titles = |name: &str| -> Vec<String> {
        let subject = subject(name, &[]);
        let findings = examine(&subject).findings.into_iter();
        findings.filter(|finding| finding.id == Some("uma-param-mismatch")).map(|finding| finding.title).collect()
    };
    let before = titles("strix-halo-before");
    assert!(before.iter().any(|title| title.contains("wrong unit")), "{before:?}");
    assert!(before.iter().any(|title| title.contains("contradict")), "{before:?}");
    let misspelt = titles("rembrandt-carveout-only");
    assert_eq!(
        misspelt,
        ["amdgpu.gtt_size is no parameter of the kernel", "amdttm.pages_limit has no effect on this kernel"]
    );
    assert_eq!(titles("strix-halo-after"), [""; 0]);
}

#[test]
fn memory_is_shared_out_between_those_who_hold_it() {
    let mut subject = subject("rdna3-16g", &[]);
    let compute = finding_of(&subject, "other-process-on-gpu");
    assert!(compute.title.contains("50.0 %"), "{}", compute.title);
    assert_eq!(compute.evidence[1], "process 4242 (python3 (train)) holds 7.00 GiB");
    let unowned = finding_of(&subject, "zombie-vram");
    assert!(unowned.evidence[0].ends_with("= 2.50 GiB"), "{:?}", unowned.evidence);
    let mut lenient = subject.clone();
    lenient.thresholds.set("unowned=3G").unwrap();
    let more_than_enough = |finding: &Finding| finding.evidence.iter().any(|text| text.ends_with("= 2.50 GiB"));
    assert!(!examine(&lenient).findings.iter().any(more_than_enough), "the user says how much is worth a word");
    // What graphics clients hold is theirs.
    let graphics = subject.graphics.as_mut().unwrap();
    graphics.bytes.insert("0000:0a:00.0".into(), 5 << 29);
    let zombies: Vec<_> = examine(&subject).findings.into_iter().filter(|f| f.id == Some("zombie-vram")).collect();
    assert_eq!(zombies.len(), 1, "{zombies:?}");
    assert!(zombies[0].evidence[0].starts_with("process 4243 (python3) is dead"), "{zombies:?}");
    assert!(finding_of(&subject, "free-overreported-graphics").title.contains("2.50 GiB"));
}

#[test]
fn memory_without_an_owner_is_less_sure_where_not_all_may_be_looked_into() {
    let mut subject = subject("rdna3-16g", &[]);
    assert_eq!(finding_of(&subject, "zombie-vram").confidence, Confidence::Probable);
    subject.owners.clear();
    let none_unseen = subject.graphics.clone().unwrap();
    for unseen in [
        Graphics { closed_processes: 3, ..none_unseen.clone() },
        Graphics { silent_processes: 1, ..none_unseen.clone() },
    ] {
        subject.graphics = Some(unseen);
        let finding = finding_of(&subject, "zombie-vram");
        assert_eq!((finding.confidence, finding.severity), (Confidence::Possible, Severity::Notice));
    }
    let unseen = "what 1 process with a card open holds there: the kernel does not say it";
    assert!(examine(&subject).not_read.iter().any(|sentence| sentence == unseen), "{:?}", examine(&subject).not_read);
}

#[test]
fn an_override_of_the_same_family_is_only_noted() {
    let severity = |value: &str| {
        finding_of(&subject("rdna3-24g", &[("HSA_OVERRIDE_GFX_VERSION", value)]), "gfx-override-active").severity
    };
    assert_eq!((severity("11.0.0"), severity("10.3.0")), (Severity::Notice, Severity::Problem));
    assert_eq!(severity("nonsense"), Severity::Problem);
}

#[test]
fn xnack_is_right_on_instinct() {
    let ids = |name: &str| found(&subject(name, &[("HSA_XNACK", "1")]));
    assert!(ids("rdna3-24g").contains(&(Some("xnack-ineffective"), Severity::Notice)));
    assert!(ids("mi300x").iter().all(|(id, _)| *id != Some("xnack-ineffective")));
}

#[test]
fn names_that_nobody_reads() {
    let titles = |name: &str| -> Vec<String> {
        let subject = subject("nvidia", &[(name, "1")]);
        let findings = examine(&subject).findings.into_iter();
        findings.filter(|finding| finding.title.contains("nobody reads")).map(|finding| finding.title).collect()
    };
    for wrong in ["PYTORCH_HIP_ALLOC_CONFIG", "PYTORCH_CUDA_ALOC_CONF", "HIP_VISIBLE_DEVICE", "HSA_XNAK"] {
        assert_eq!(titles(wrong).len(), 1, "{wrong}");
    }
    for right in
        ["PYTORCH_ALLOC_CONF", "HOSTNAME", "PYTORCH_ROCM_ARCH", "ASCEND_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES"]
    {
        assert_eq!(titles(right), [""; 0], "{right}");
    }
}

#[test]
fn several_versions_of_a_runtime_are_found() {
    let directory = tempfile::tempdir().unwrap();
    for path in ["old/libamdhip64.so.5.7.50700", "new/libamdhip64.so.6.4.60401"] {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
    }
    std::os::unix::fs::symlink("libamdhip64.so.6.4.60401", directory.path().join("new/libamdhip64.so.6")).unwrap();
    let with = |value: &str| {
        let environment = BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), value.to_owned())]);
        Subject::of_root(directory.path(), environment)
    };
    let finding = finding_of(&with("/new:/old:relative"), "version-mismatch");
    assert_eq!(finding.evidence.len(), 3, "{finding:?}");
    assert_eq!(finding.evidence[0], "/new/libamdhip64.so.6.4.60401 (6.4.60401, by LD_LIBRARY_PATH)");
    assert!(examine(&with("/new")).findings.is_empty());
}

#[test]
fn listed_defects_go_by_the_version() {
    let mut subject = subject("rdna3-24g", &[]);
    subject.machine.rocm[0].version = "5.6.0-67".into();
    let finding = finding_of(&subject, "known-bad-version");
    assert!(finding.evidence[0].contains("model-swap-residual"), "{finding:?}");
    subject.machine.rocm[0].version = "nonsense".into();
    assert!(found(&subject).iter().all(|(id, _)| *id != Some("known-bad-version")));
}

proptest! {
    /// Any environment is judged, whatever the machine.
    #[test]
    fn any_environment_does_no_harm(
        values in proptest::collection::vec("(?s).{0,40}|[0-9.]{0,8}|[a-z_:,0-9]{0,40}", 7),
        machine in proptest::sample::select(vec!["rdna3-24g", "strix-halo-before", "mi300x", "nvidia", ""]),
    ) {
        let names = [
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_CUDA_ALLOC_CONF",
            "HSA_OVERRIDE_GFX_VERSION",
            "HSA_OVERRIDE_GFX_VERSION_1",
            "HSA_XNACK",
            "GPU_MAX_HEAP_SIZE",
            "é",
        ];
        let mut subject = Subject { machine: Machine::of_root(&root(machine)), ..Subject::default() };
        subject.environment = names.iter().map(|name| (*name).to_owned()).zip(values).collect();
        let examination = examine(&subject);
        prop_assert!(examination.findings.iter().all(|finding| !finding.title.is_empty()));
    }
}
