use super::*;
use crate::conclusion::Summary;
use crate::diagnosis::labelled;
use crate::report::text;
use crate::testing::{GIB, TraceBuilder, summary};

/// A page without its lines' ends, to look for sentences in.
fn in_one_line(page: &str) -> String {
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_is_short(name: &str, summary: &Summary) {
    let page = write(summary, Look::new(WIDTH, false));
    let lines: Vec<&str> = page.lines().collect();
    assert!(lines.len() <= MOST_LINES, "{name}: {} lines\n{page}", lines.len());
    let is_command = |line: &str| line.contains("gpuoom-analyze");
    let wide = lines.iter().find(|line| line.chars().count() > WIDTH && !is_command(line));
    assert_eq!(wide, None, "{name}\n{page}");
    assert!(!page.contains("  \n") && page.ends_with('\n'), "{name}\n{page}");
}

/// All labelled traces: no page is longer than it may be, and none says of why what the full page does not say.
#[test]
fn no_page_is_too_long_or_says_more_than_the_full_one() {
    let mut seen = 0;
    labelled::each(|name, summary| {
        assert_is_short(name, summary);
        let full = in_one_line(&text::write(summary, &[], Look::new(4000, false).full(true))).to_lowercase();
        let page = in_one_line(&write(summary, Look::new(WIDTH, false)));
        let why = page.split_once(" WHY ").map_or("", |(_, rest)| rest.trim_start());
        let why = why.split(" HOLDS ").next().and_then(|text| text.split(" DO ").next()).unwrap_or_default();
        let why = why.split(" MORE ").next().unwrap_or_default();
        // What is only possible stands in the full page with its name first.
        let why = if why.starts_with("Possible: ") { why.split_once(". ").map_or("", |(_, rest)| rest) } else { why };
        for sentence in why.split(". ").map(|text| text.trim_end_matches('.').to_lowercase()) {
            assert!(full.contains(&sentence), "{name}: {sentence}\n{full}");
        }
        seen += 1;
    });
    assert!(seen > 300, "{seen}");
}

#[test]
fn a_program_is_called_by_its_own_name() {
    let of = |command: &[&str]| {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
        trace.process.command_line = command.iter().map(|&word| word.to_owned()).collect();
        headline::program(&summary(&trace).facts.process)
    };
    assert_eq!(of(&["/usr/bin/python3.12", "-u", "-X", "dev", "tools/train.py", "--lr", "1"]), "train.py");
    assert_eq!(of(&["python", "-m", "torch.distributed.run", "x.py"]), "torch.distributed.run");
    assert_eq!(of(&["python3", "-c", "import torch"]), "python3");
    assert_eq!(of(&["./build/llama-cli", "-m", "x.gguf"]), "llama-cli");
}
