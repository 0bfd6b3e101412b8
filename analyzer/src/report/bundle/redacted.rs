//! `REDACTED.md`: what was replaced and what is missing, without the thing itself.

use crate::bundle::redact::Log;
use crate::report::markdown::page::{Markdown, code, plain};
use crate::words::grouped;

/// What there is to say.
#[derive(Clone, Copy, Debug)]
pub struct Redacted<'a> {
    /// What was replaced.
    pub log: &'a Log,
    /// What was kept on request, by the words of `--keep`.
    pub kept: &'a [&'static str],
    /// Parts of the original traces that could not be read, so that they are in no copy.
    pub unreadable: &'a [String],
}

/// The page.
pub fn write(redacted: &Redacted<'_>) -> String {
    let mut page = Markdown::default();
    page.heading(1, "What was redacted");
    page.paragraph(
        "Before this bundle was written, what is nobody's business was replaced, in the traces as well as in every text. \
         Events, sizes, addresses, times and numbers of processes and threads are as they were recorded. The same stand-in \
         always means the same thing.",
    );
    if redacted.log.is_empty() {
        page.paragraph("Nothing had to be replaced.");
    }
    let rows: Vec<Vec<String>> = redacted
        .log
        .rows()
        .map(|(sort, place, count)| {
            let line = sort.line();
            let keep = if line.keep.is_empty() { "always".to_owned() } else { code(&format!("--keep {}", line.keep)) };
            vec![line.name.to_owned(), plain(place), grouped(count), line.stand_in.to_owned(), keep]
        })
        .collect();
    page.table(&["what", "where", ">times", "now there", "left as it is with"], &rows);
    if !redacted.kept.is_empty() {
        let words: Vec<String> = redacted.kept.iter().map(|word| code(word)).collect();
        page.paragraph(&format!("**Left as it is, on request**: {}.", words.join(", ")));
    }
    if !redacted.unreadable.is_empty() {
        page.paragraph("Parts of the recorded traces could not be read. They are missing here too:");
        let items: Vec<String> = redacted.unreadable.iter().map(|text| plain(text)).collect();
        page.list(false, &items);
    }
    page.paragraph(
        "Names of Python functions are in the trace, because the recorder writes them down: the table counts those that were replaced. Names of native functions are in no trace: \
         a report takes them from the files of the program. Where those files' paths are replaced, the reports here have library and \
         offset in the place of the names.",
    );
    page.heading(2, "What is still there");
    page.list(
        false,
        &[
            "names of options, names of variables, and the values that decide how much memory is needed".to_owned(),
            "paths of the system, of vendors' libraries and of well-known packages; build ids of all libraries"
                .to_owned(),
            "models of cards, versions, limits and parameters of the kernel, places on the PCI bus".to_owned(),
            "when the program ran, and for how long".to_owned(),
        ],
    );
    page.paragraph(
        "No list of names is complete: look at `report.md`, `issue.md` and `evidence/` before you send them.",
    );
    page.into_text()
}
