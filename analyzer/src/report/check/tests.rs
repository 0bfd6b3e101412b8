//! What people, and what runs their checks, read.

use gpuoom_trace::record::{Event, Kind, Record};

use super::{write_github, write_json, write_junit, write_markdown, write_text};
use crate::passes::profile::Profile;
use crate::policy::{Checked, Jobs, check, parse_policy};
use crate::report::page::{Look, Page};
use crate::testing::{GIB, MIB, TraceBuilder, profile};

const POLICY: &str = r#"
[[budget]]
name = "the card of our users"
peak = { max = "12G", max_growth = "5%" }
dropped = 0

[[budget]]
growth_per_mark = "1M"
pinned = "64M"

[[budget]]
rank = 7
peak = "1G"
"#;

fn run(scale: u64) -> Profile {
    let mut trace = TraceBuilder::default()
        .device(0, "AMD Radeon RX 7900 XTX", 24 * GIB)
        .library("/opt/app/libweights.so.1", 0x10_0000, 1)
        .library("/opt/app/libcache.so.1", 0x20_0000, 2);
    for (site, address, bytes) in [(1, 1, 8 * GIB), (2, 2, 3 * GIB * scale)] {
        let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
        let granules = bytes.div_ceil(256 * MIB) as u32;
        trace.push(Record { site, address: address << 36, requested: bytes, padded_granules: granules, ..record }, &[]);
    }
    profile(&trace)
}

fn checked(scale: u64) -> Checked {
    let (base, new) = (run(1), run(scale));
    check("gpuoom.toml", &parse_policy(POLICY).unwrap(), &[(&new, Some(&base))], Jobs::default())
}

#[test]
fn exceeded_as_text() {
    let mut page = Page::new(Look::new(80, false));
    write_text(&mut page, &checked(2));
    let text = page.into_text();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn kept_as_text() {
    let mut page = Page::new(Look::new(80, false));
    write_text(&mut page, &checked(1));
    insta::assert_snapshot!(page.into_text());
}

#[test]
fn exceeded_as_markdown() {
    insta::assert_snapshot!(write_markdown(&checked(2)));
}

#[test]
fn exceeded_as_json() {
    let mut out = Vec::new();
    write_json(&mut out, &checked(2)).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn exceeded_as_junit() {
    let mut out = Vec::new();
    write_junit(&mut out, &checked(2)).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn exceeded_as_annotations() {
    let mut out = Vec::new();
    write_github(&mut out, &checked(2)).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

/// A budget that nobody can judge, one of a device that nobody used, one of a call site that is not there.
fn not_judged(unjudged: &str) -> Checked {
    let policy = format!(
        "unjudged = \"{unjudged}\"\n[[budget]]\nname = \"steady\"\ngrowth_per_mark = \"1M\"\n\
         [[budget]]\ndevice = 3\npeak = \"1G\"\n[[budget]]\neach_site = \"*attention*\"\npeak = \"1G\"\n"
    );
    let new = run(1);
    check("gpuoom.toml", &parse_policy(&policy).unwrap(), &[(&new, None)], Jobs::default())
}

fn all_forms(checked: &Checked) -> String {
    let mut page = Page::new(Look::new(100, false));
    write_text(&mut page, checked);
    let mut out = page.into_text().into_bytes();
    out.extend(b"\n--- markdown\n");
    out.extend(write_markdown(checked).as_bytes());
    out.extend(b"\n--- annotations\n");
    write_github(&mut out, checked).unwrap();
    out.extend(b"\n--- JUnit\n");
    write_junit(&mut out, checked).unwrap();
    String::from_utf8(out).unwrap()
}

/// A budget that wants something to be there is broken where it is not.
#[test]
fn what_must_be_there_is_missed() {
    let policy = "[[budget]]\ndevice = 3\npeak = { min = \"1G\", max = \"2G\" }\n";
    let new = run(1);
    let checked = check("gpuoom.toml", &parse_policy(policy).unwrap(), &[(&new, None)], Jobs::default());
    assert!(!checked.is_kept() && checked.not_judged() == 1, "{checked:#?}");
    assert_eq!(checked.runs[0].findings.len(), 1, "the other limit is about nothing");
}

#[test]
fn what_is_not_judged_is_loud() {
    let checked = not_judged("warn");
    assert!(checked.is_kept() && checked.not_judged() == 3, "{checked:#?}");
    insta::assert_snapshot!(all_forms(&checked));
}

#[test]
fn what_is_not_judged_fails_where_the_policy_demands_it() {
    let checked = not_judged("fail");
    assert!(!checked.is_kept());
    insta::assert_snapshot!(all_forms(&checked));
}

#[test]
fn many_annotations_say_that_there_are_more() {
    let budgets = "[[budget]]\npeak = 1\n".repeat(25);
    let new = run(1);
    let checked = check("gpuoom.toml", &parse_policy(&budgets).unwrap(), &[(&new, None)], Jobs::default());
    let mut out = Vec::new();
    write_github(&mut out, &checked).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.matches("::error").count(), 10);
    assert!(out.contains("16 more budgets are exceeded"), "{out}");
}

/// PyTorch's cache grows from mark to mark, and no line's tensors do: the call site of a segment is not who keeps what lies in it.
#[test]
fn a_rate_of_segments_says_whose_call_sites_it_lists() {
    let mut trace = TraceBuilder::default()
        .device(0, "AMD Radeon RX 7900 XTX", 24 * GIB)
        .library("/opt/app/libweights.so.1", 0x10_0000, 1)
        .library("/opt/app/libcache.so.1", 0x20_0000, 2);
    for step in 0..40 {
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, &format!("step {step}"));
        trace.site = 2;
        let segment = (step + 1) << 36;
        trace.segment(segment, 32 * MIB);
        trace.site = 1;
        trace.tensor(0, segment, 20 * MIB);
        trace.free_tensor(segment);
    }
    let policy = parse_policy("[[budget]]\ngrowth_per_mark = \"1M\"\n").unwrap();
    let checked = check("gpuoom.toml", &policy, &[(&profile(&trace), None)], Jobs::default());
    assert!(!checked.is_kept());
    let text = all_forms(&checked).replace("\n        ", " ");
    let said = "most live at the end (a segment of PyTorch's counts for the place that needed it first";
    assert!(text.contains(said) && text.contains("libcache.so"), "{text}");
}
