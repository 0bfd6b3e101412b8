//! What is long or drawn, folded away; and how complete the trace is.

use super::page::{Markdown, plain};
use crate::conclusion::Summary;
use crate::passes::map::DeviceMap;
use crate::report::page::{Look, Page};
use crate::report::text::coverage::sentences;
use crate::report::text::job::verdict::capital;
use crate::report::text::{evidence, fragmentation, growth};

/// Width of what is drawn.
const WIDTH: usize = 110;

/// A section of the text report.
type Section<'a> = &'a dyn Fn(&mut Page);

pub(super) fn write(page: &mut Markdown, summary: &Summary, maps: &[DeviceMap], level: usize) {
    let sections: [(&str, Section<'_>); 3] = [
        ("Growth from cycle to cycle", &|page| growth::write(page, summary)),
        ("Padding (modelled) and fragmentation", &|page| fragmentation::write(page, summary, maps)),
        ("Other evidence: what files beside the trace say", &|page| evidence::write(page, summary)),
    ];
    for (title, write) in sections {
        let mut drawn = Page::new(Look::new(WIDTH, false));
        write(&mut drawn);
        let drawn = drawn.into_text();
        if !drawn.trim().is_empty() {
            page.folded(title, &drawn);
        }
    }
    page.heading(level, "Coverage");
    page.paragraph(&plain(&capital(&sentences(summary).join(" "))));
    let notes: Vec<String> =
        summary.facts.process.notes.iter().map(|note| format!("recorder: {}", plain(note))).collect();
    page.list(false, &notes);
}
