//! `diff --format markdown`: a comment in a pull request, with details folded.

use std::fmt::Write;

use super::words::{
    amount, folded, is_notable, matched_by, notable, of_place, place_heading, presence, run, share, signed, site,
    unchanged_places, verdict, whereabouts,
};
use crate::compare::{Difference, Pair, PlaceDifference};
use crate::passes::profile::Figure;
use crate::policy::Judged;
use crate::report::check::condition;
use crate::words;

/// A difference as Markdown, with the conditions that hold; of the call sites the first `most`.
pub fn write_markdown(difference: &Difference, failed: &[Judged], most: usize) -> String {
    let mut out = format!("### GPU memory: {}\n\n{}\n", headline(difference), escape(&verdict(difference)));
    for judged in failed {
        let _ = write!(out, "\n**Failed:** {}\n", escape(&condition(judged)));
    }
    for note in &difference.notes {
        let _ = write!(out, "\n> **Note:** {}\n", escape(note));
    }
    if difference.is_notable {
        places(&mut out, difference);
        if let Some(unchanged) = unchanged_places(difference) {
            let _ = write!(out, "\n{}\n", escape(&unchanged));
        }
        sites(&mut out, difference, most);
    }
    let _ = write!(
        out,
        "\n<sub>BASE: `{}` ({}) · NEW: `{}` ({})</sub>\n",
        code(&difference.base.path),
        escape(&run(&difference.base)),
        code(&difference.new.path),
        escape(&run(&difference.new))
    );
    out
}

/// The change of the peaks in a few words.
fn headline(difference: &Difference) -> String {
    if !difference.is_notable {
        return "no change".to_owned();
    }
    let passed = |place: &&PlaceDifference| difference.threshold.is_passed(Figure::Peak, &place.pair);
    let changes: Vec<String> = difference
        .places
        .iter()
        .filter(passed)
        .map(|place| format!("{} peak {}", place.place.words(), signed(Figure::Peak, place.pair.change(Figure::Peak))))
        .collect();
    if changes.is_empty() { "same peak".to_owned() } else { changes.join(", ") }
}

fn places(out: &mut String, difference: &Difference) {
    for place in difference.places.iter().filter(|place| is_notable(place)) {
        let _ = write!(out, "\n**{}**\n\n", escape(&place_heading(place)));
        out.push_str("| | base | new | change | |\n|---|---:|---:|---:|---:|\n");
        for figure in of_place(place) {
            row(out, figure.words(), figure, &place.pair);
        }
        if place.kinds.len() > 1 {
            for kind in place.kinds.iter().filter(|kind| difference.threshold.is_passed(Figure::Peak, &kind.pair)) {
                row(out, &format!("of the peak: {}", kind.kind.name()), Figure::Peak, &kind.pair);
            }
        }
    }
}

fn row(out: &mut String, name: &str, figure: Figure, pair: &Pair) {
    let [was, is] = [pair.base[figure], pair.new[figure]].map(|number| amount(figure, number));
    let _ =
        writeln!(out, "| {name} | {was} | {is} | {} | {} |", signed(figure, pair.change(figure)), share(pair, figure));
}

fn sites(out: &mut String, difference: &Difference, most: usize) {
    let notable = notable(difference);
    let changed = words::count(notable.len() as u64, "call site", "call sites");
    let _ = write!(out, "\n<details><summary>{changed} changed</summary>\n\n");
    if !notable.is_empty() {
        out.push_str("| change | call site | where | details |\n|---:|---|---|---|\n");
    }
    for listed in notable.iter().take(most) {
        let said = site(difference, listed);
        let state = presence(listed.presence);
        let state = if state.is_empty() { String::new() } else { format!("**{state}** ") };
        let place = whereabouts(listed);
        let _ = writeln!(
            out,
            "| {} | {state}`{}` | {} | {} |",
            said.change,
            code(&listed.key),
            escape(&place),
            escape(&said.details)
        );
    }
    if notable.len() > most {
        let _ = write!(out, "\n{} more.\n", words::grouped((notable.len() - most) as u64));
    }
    let folded = folded(difference);
    if !folded.is_empty() {
        let _ = write!(out, "\n{}\n", escape(&folded));
    }
    let _ = write!(out, "\nCall sites are matched {}.\n\n</details>\n", matched_by(difference));
}

/// Text from a file as plain text in Markdown, also inside a table: nothing of it is markup, a link or a mention.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in words::clean(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '@' => escaped.push_str("&#64;"),
            '#' => escaped.push_str("&#35;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Text inside backticks, also in a table: a backtick would end it, and a bar the cell.
pub(in crate::report) fn code(text: &str) -> String {
    words::clean(text).replace('`', "'").replace('|', "\\|")
}
