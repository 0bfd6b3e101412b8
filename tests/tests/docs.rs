//! The README and the book: links lead somewhere, each page is in the table of contents, and the commands that they show exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuoom_tests::analyzer;

/// Lines of a README that a first reader reads.
const MOST_LINES: usize = 200;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn of_book() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    pages.sort();
    pages
}

fn pages() -> Vec<PathBuf> {
    let own = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    own.into_iter().chain(of_book()).collect()
}

/// The targets of a page's links, without code.
fn links(text: &str) -> Vec<String> {
    let outside: Vec<&str> = text.split("```").step_by(2).collect();
    let after = |part: &str| part.split("](").skip(1).map(str::to_owned).collect::<Vec<_>>();
    let parts = outside.iter().flat_map(|part| after(part));
    parts.filter_map(|part| Some(part.split_once(')')?.0.to_owned())).collect()
}

#[test]
fn each_link_leads_to_a_file() {
    let mut seen = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            if link.starts_with("http") || link.starts_with('#') || link.starts_with("mailto:") {
                continue;
            }
            let file = link.split('#').next().expect("a part");
            let target = page.parent().expect("a folder").join(file);
            assert!(target.exists(), "{}: {link}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn each_page_is_in_the_table_of_contents_once() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let told = links(&summary);
    let all: Vec<String> = of_book()
        .iter()
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .filter(|name| name != "SUMMARY.md")
        .collect();
    assert_eq!(told.iter().collect::<BTreeSet<_>>(), all.iter().collect::<BTreeSet<_>>());
    assert_eq!(told.len(), all.len());
}

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= MOST_LINES, "{lines}");
}

/// Words behind the analyzer's name that are commands, and not files, options or places for them.
fn commands(text: &str) -> BTreeSet<String> {
    let behind = text.split("gpuoom-analyze ").skip(1).filter_map(|rest| rest.split([' ', '`', '\n']).next());
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|letter| letter.is_ascii_lowercase());
    behind.filter(is_word).map(str::to_owned).collect()
}

#[test]
fn each_command_that_is_shown_exists() {
    let mut all = BTreeSet::new();
    for page in pages() {
        let is_code = |(place, part): (usize, &str)| (place % 2 == 1).then(|| part.to_owned());
        let code: Vec<String> = read(&page).split('`').enumerate().filter_map(is_code).collect();
        all.extend(commands(&code.join("\n")));
    }
    assert!(all.len() >= 9, "{all:?}");
    for command in &all {
        let output = Command::new(analyzer()).args([command, "--help"]).output().expect("the analyzer starts");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
