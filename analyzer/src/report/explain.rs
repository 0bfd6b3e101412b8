//! `explain`: the catalogue as a list, or one entry of it.

use std::io::{self, Write};

use serde::Serialize;

use super::page::{Page, Paint};
use crate::catalogue::claims::Claim;
use crate::catalogue::entry::{Entry, Fix, Tier};
use crate::catalogue::numbers::with_numbers;
use crate::catalogue::search::Found;
use crate::catalogue::{Chapter, chapter_of};
use crate::thresholds::{self, Threshold, Thresholds, Unit};
use crate::words::clean;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.explain/1";

/// All entries, a line each.
pub fn write_list(page: &mut Page, chapters: &[Chapter]) {
    let entries = || chapters.iter().flat_map(|chapter| &chapter.entries);
    let id_width = entries().map(|entry| entry.id.len()).max().unwrap_or(0);
    let platforms_width = entries().map(|entry| entry.platforms.join(", ").len()).max().unwrap_or(0);
    let text =
        "`gpuoom-analyze explain ID` shows one: what proves and refutes it, what to do, where the rule comes from";
    page.headed(&format!("{} DIAGNOSES", entries().count()), Paint::Bold, text);
    for tier in [Tier::T0, Tier::T1, Tier::T2, Tier::T3] {
        page.line(&format!("  {}  takes {}", tier.name(), tier.needs()));
    }
    for chapter in chapters {
        page.gap();
        page.headed(&chapter.letter.to_string(), Paint::Bold, chapter.title);
        for entry in &chapter.entries {
            let platforms = entry.platforms.join(", ");
            let first = format!("  {:<id_width$}  {}  {platforms:<platforms_width$}  ", entry.id, entry.tier.name());
            page.indented(&first, &" ".repeat(first.len()), &entry.title);
        }
    }
}

/// One entry, all of it.
pub fn write_entry(page: &mut Page, entry: &Entry) {
    let entry = &with_numbers(entry, &Thresholds::default());
    page.headed(&entry.id, Paint::Bold, &entry.title);
    let chapter = chapter_of(entry).map_or(String::new(), |chapter| format!("{}, {}; ", chapter.letter, chapter.title));
    let tier = format!("{}, decided by {}", entry.tier.name(), entry.tier.needs());
    page.indented("", "  ", &format!("{chapter}{}; {tier}", entry.platforms.join(", ")));
    page.gap();
    evidence(page, entry);
    page.headed("CONFIDENCE", Paint::Bold, &entry.confidence);
    page.gap();
    what_to_do(page, entry);
    if !entry.note.is_empty() {
        page.headed("NOTE", Paint::Bold, &entry.note);
        page.gap();
    }
    where_to_report(page, entry);
    let thresholds: Vec<String> = thresholds::used_by(&entry.id).map(of_threshold).collect();
    list(page, "THRESHOLDS", "each is an option: report --threshold NAME=VALUE", &thresholds);
    list(page, "SOURCES", sources_are(entry), &entry.sources);
}

/// What the names of sources stand for, where that is not plain.
fn sources_are(entry: &Entry) -> &'static str {
    match entry.sources.iter().any(|source| source.starts_with("user document")) {
        true => "a user document is a user's own write-up that the catalogue began with; it is not published",
        false => "",
    }
}

fn of_threshold(known: &Threshold) -> String {
    format!("{}: {} (default {})", known.name(), known.meaning(), known.unit.shown(known.default_value()))
}

/// All thresholds.
pub fn write_thresholds(page: &mut Page) {
    let text = "the numbers by which diagnoses decide; `gpuoom-analyze report --threshold NAME=VALUE` sets one";
    page.headed(&format!("{} THRESHOLDS", thresholds::all().len()), Paint::Bold, text);
    for known in thresholds::all() {
        page.gap();
        page.headed(&known.name(), Paint::Bold, &known.unit.shown(known.default_value()));
        page.indented("  ", "  ", &format!("{}. Origin: {}.", known.meaning(), known.origin));
        page.indented("  ", "  ", &format!("Takes {}. Used by {}.", known.unit.spelling(), known.used_by.join(", ")));
    }
}

#[derive(Serialize)]
struct ThresholdRow {
    name: String,
    unit: Unit,
    default: f64,
    meaning: &'static str,
    origin: &'static str,
    used_by: &'static [&'static str],
}

impl ThresholdRow {
    fn of(known: &'static Threshold) -> Self {
        ThresholdRow {
            name: known.name(),
            unit: known.unit,
            default: known.default_value(),
            meaning: known.meaning(),
            origin: known.origin,
            used_by: known.used_by,
        }
    }
}

#[derive(Serialize)]
struct ThresholdList {
    schema: &'static str,
    thresholds: Vec<ThresholdRow>,
}

/// All thresholds, for programs.
pub fn write_thresholds_json(out: &mut dyn Write) -> io::Result<()> {
    let thresholds = thresholds::all().iter().map(ThresholdRow::of).collect();
    serde_json::to_writer_pretty(&mut *out, &ThresholdList { schema: SCHEMA, thresholds })?;
    writeln!(out)
}

fn evidence(page: &mut Page, entry: &Entry) {
    match entry.proves.is_empty() {
        true => list(page, "PROVEN BY", "one of these", &entry.any_proves),
        false => {
            list(page, "PROVEN BY", "each of these", &entry.proves);
            list(page, "AND", "one of these", &entry.any_proves);
        }
    }
    list(page, "REFUTED BY", "any of these", &entry.refutes);
}

fn list(page: &mut Page, heading: &str, text: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    page.headed(heading, Paint::Bold, text);
    for item in items {
        page.indented("  -  ", "     ", item);
    }
    page.gap();
}

fn what_to_do(page: &mut Page, entry: &Entry) {
    if entry.fixes.is_empty() {
        page.headed("WHAT TO DO", Paint::Bold, "nothing by itself");
    } else {
        page.headed("WHAT TO DO", Paint::Bold, "what fits the platform and the versions");
    }
    for (number, fix) in (1..).zip(&entry.fixes) {
        page.indented(&format!("{number:>3}  "), "     ", &describe(fix));
    }
    page.gap();
    if !entry.cost.is_empty() {
        page.headed("COST", Paint::Bold, &entry.cost);
        page.gap();
    }
}

fn describe(fix: &Fix) -> String {
    let mut text = String::new();
    let condition = fix.condition();
    if !condition.is_empty() {
        text.push_str(&format!("[{condition}] "));
    }
    if !fix.command.is_empty() {
        text.push_str(&format!("{}: ", fix.command));
    }
    text + &fix.text
}

fn where_to_report(page: &mut Page, entry: &Entry) {
    if entry.file.is_empty() {
        return;
    }
    page.headed("WHERE TO REPORT", Paint::Bold, "");
    for filing in &entry.file {
        let with = filing.needs_in_words().map_or(String::new(), |needs| format!(", with {needs}"));
        page.indented("  -  ", "     ", &format!("{}{with}", filing.place_in_words()));
    }
    page.gap();
}

#[derive(Serialize)]
struct List<'a> {
    schema: &'static str,
    chapters: Vec<ListedChapter<'a>>,
}

#[derive(Serialize)]
struct ListedChapter<'a> {
    letter: char,
    title: &'a str,
    entries: Vec<Listed<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    title: &'a str,
    tier: Tier,
    platforms: &'a [String],
}

/// What was found for words: claims with what is true of them, and the diagnoses that mention them.
pub fn write_found(page: &mut Page, asked: &str, found: &Found) {
    for claim in &found.claims {
        page.headed("CLAIM", Paint::Bold, &format!("\"{}\"", claim.title));
        page.indented("  ", "  ", &format!("{}. {}", claim.verdict.words(), claim.truth));
        if !claim.instead.is_empty() {
            page.indented("  instead:    ", "              ", &claim.instead);
        }
        page.indented("  diagnoses:  ", "              ", &claim.see.join(", "));
        page.indented("  sources:    ", "              ", &claim.sources.join("; "));
        page.gap();
    }
    if !found.entries.is_empty() {
        page.headed("DIAGNOSES", Paint::Bold, &format!("that mention '{}'", clean(asked)));
        let width = found.entries.iter().map(|entry| entry.id.len()).max().unwrap_or(0);
        for entry in &found.entries {
            let first = format!("  {:<width$}  ", entry.id);
            page.indented(&first, &" ".repeat(first.len()), &entry.title);
        }
        page.gap();
    }
    page.line("`gpuoom-analyze explain ID` shows what proves and refutes a diagnosis, and what to do.");
}

#[derive(Serialize)]
struct FoundFor<'a> {
    schema: &'static str,
    query: &'a str,
    claims: &'a [&'static Claim],
    diagnoses: Vec<Listed<'a>>,
}

/// What was found for words, for programs.
pub fn write_found_json(out: &mut dyn Write, asked: &str, found: &Found) -> io::Result<()> {
    let diagnoses = found.entries.iter().map(|entry| Listed::of(entry)).collect();
    let document = FoundFor { schema: SCHEMA, query: asked, claims: &found.claims, diagnoses };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// All entries, for programs.
pub fn write_list_json(out: &mut dyn Write, chapters: &[Chapter]) -> io::Result<()> {
    let chapters = chapters.iter().map(|chapter| ListedChapter {
        letter: chapter.letter,
        title: chapter.title,
        entries: chapter.entries.iter().map(Listed::of).collect(),
    });
    serde_json::to_writer_pretty(&mut *out, &List { schema: SCHEMA, chapters: chapters.collect() })?;
    writeln!(out)
}

impl<'a> Listed<'a> {
    fn of(entry: &'a Entry) -> Self {
        Listed { id: &entry.id, title: &entry.title, tier: entry.tier, platforms: &entry.platforms }
    }
}

#[derive(Serialize)]
struct One<'a> {
    schema: &'static str,
    chapter: Option<char>,
    #[serde(flatten)]
    entry: &'a Entry,
    thresholds: Vec<ThresholdRow>,
}

/// One entry, for programs.
pub fn write_entry_json(out: &mut dyn Write, entry: &Entry) -> io::Result<()> {
    let entry = &with_numbers(entry, &Thresholds::default());
    let chapter = chapter_of(entry).map(|chapter| chapter.letter);
    let thresholds = thresholds::used_by(&entry.id).map(ThresholdRow::of).collect();
    serde_json::to_writer_pretty(&mut *out, &One { schema: SCHEMA, chapter, entry, thresholds })?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{chapters, entries, find};
    use crate::report::page::Look;

    fn text(width: usize, write: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::new(Look::new(width, false));
        write(&mut page);
        page.into_text()
    }

    #[test]
    fn one_entry_is_a_page() {
        insta::assert_snapshot!(text(100, |page| write_entry(page, find("process-fraction-cap").unwrap())));
    }

    #[test]
    fn a_claim_is_answered_with_its_reason() {
        let found = crate::catalogue::search::search("HSA_OVERRIDE_GFX_VERSION");
        insta::assert_snapshot!(text(100, |page| write_found(page, "HSA_OVERRIDE_GFX_VERSION", &found)));
    }

    #[test]
    fn each_threshold_has_its_lines() {
        let list = text(100, write_thresholds);
        let head: Vec<&str> = list.lines().take(8).collect();
        insta::assert_snapshot!(head.join("\n"));
        assert!(thresholds::all().iter().all(|known| list.contains(&known.name())));
    }

    #[test]
    fn the_list_begins_with_the_tiers() {
        let list = text(110, |page| write_list(page, &chapters()[..1]));
        insta::assert_snapshot!(list);
    }

    #[test]
    fn everything_that_an_entry_says_is_on_its_page() {
        for entry in entries().map(|entry| with_numbers(entry, &Thresholds::default())) {
            let page = text(80, |page| write_entry(page, &entry));
            assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
            let page: Vec<&str> = page.split_whitespace().collect();
            let page = page.join(" ");
            let lists = [&entry.proves, &entry.any_proves, &entry.refutes, &entry.sources];
            let fixes = entry.fixes.iter().flat_map(|fix| [&fix.command, &fix.text, &fix.when]);
            let filings = entry.file.iter().map(|filing| &filing.place);
            let rest = [&entry.title, &entry.confidence, &entry.cost, &entry.note];
            for said in lists.into_iter().flatten().chain(fixes).chain(filings).chain(rest) {
                assert!(page.contains(said.as_str()), "{}: {said}\n{page}", entry.id);
            }
        }
    }

    #[test]
    fn the_list_has_a_row_for_each() {
        let list = text(80, |page| write_list(page, chapters()));
        for entry in entries() {
            let rows = list.lines().filter(|line| line.split_whitespace().next() == Some(&entry.id)).count();
            assert_eq!(rows, 1, "{}", entry.id);
        }
    }
}
