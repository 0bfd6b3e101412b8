//! What people, and what runs their checks, read.

use gpuoom_trace::record::{Event, Kind, Record};

use super::{write_github, write_json, write_junit, write_markdown, write_text};
use crate::passes::profile::Profile;
use crate::policy::{Checked, check, parse_policy};
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
    check("gpuoom.toml", &parse_policy(POLICY).unwrap().budgets, &[(&new, Some(&base))])
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

#[test]
fn many_annotations_say_that_there_are_more() {
    let budgets = "[[budget]]\npeak = 1\n".repeat(25);
    let new = run(1);
    let checked = check("gpuoom.toml", &parse_policy(&budgets).unwrap().budgets, &[(&new, None)]);
    let mut out = Vec::new();
    write_github(&mut out, &checked).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.matches("::error").count(), 10);
    assert!(out.contains("16 more budgets are exceeded"), "{out}");
}
