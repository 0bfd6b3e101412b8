//! `diff --format text`.

use super::Conditions;
use super::words::{
    SiteWords, amount, folded, is_notable, matched_by, notable, notable_tensors, of_place, of_tensors, place_heading,
    presence, run, share, signed, site, tensor_site, unchanged_places, verdict, whereabouts,
};
use crate::compare::{Difference, PlaceDifference, SiteDifference};
use crate::passes::profile::{Figure, Run};
use crate::report::check::condition;
use crate::report::page::{Page, Paint};
use crate::words;

/// Width of the columns with numbers.
const NUMBER: usize = 12;
/// Width of the column with shares.
const SHARE: usize = 10;
/// Width of the first column of the list of call sites.
const CHANGE: usize = 13;

/// Writes a difference, with the conditions that hold; of the call sites the first `most`.
pub fn write_text(page: &mut Page, difference: &Difference, conditions: &Conditions, most: usize) {
    head(page, "BASE", &difference.base);
    head(page, "NEW", &difference.new);
    page.gap();
    page.headed("VERDICT", Paint::Bold, &verdict(difference));
    for judged in &conditions.failed {
        page.painted("", "FAILED", Paint::Dropped, &format!("  {}", condition(judged)));
    }
    for sentence in &conditions.not_judged {
        page.painted("", "NOT JUDGED", Paint::Dropped, &format!("  {sentence}"));
    }
    for note in &difference.notes {
        page.indented("  note: ", "        ", note);
    }
    if !difference.is_notable {
        return;
    }
    for of in difference.places.iter().filter(|place| is_notable(place)) {
        page.gap();
        place(page, difference, of);
    }
    page.gap();
    if let Some(unchanged) = unchanged_places(difference) {
        page.indented("", "  ", &unchanged);
        page.gap();
    }
    sites(page, difference, most);
    tensor_sites(page, difference, most);
}

fn tensor_sites(page: &mut Page, difference: &Difference, most: usize) {
    let notable = notable_tensors(difference);
    if notable.is_empty() {
        return;
    }
    page.gap();
    page.headed(
        "TENSORS",
        Paint::Bold,
        "who had asked for them when most was in tensors; parts of the above, growth first",
    );
    for listed in notable.iter().take(most) {
        say_site(page, listed, &tensor_site(listed), &listed.place.words());
    }
    if notable.len() > most {
        let more = words::count((notable.len() - most) as u64, "more call site", "more call sites");
        page.indented("  ", "  ", &format!("{more} changed: --sites N lists as many as you want."));
    }
}

fn head(page: &mut Page, name: &str, of: &Run) {
    page.two_sides(&format!("{name:<5} {}", words::clean(&of.path)), &run(of));
}

fn place(page: &mut Page, difference: &Difference, place: &PlaceDifference) {
    let room = page.look.width.min(90).saturating_sub(3 * NUMBER + SHARE);
    let heading = words::shorten(&place_heading(place), room - 1);
    let heading = page.paint(&format!("{heading:<room$}"), Paint::Bold);
    page.line(&format!("{heading}{:>NUMBER$}{:>NUMBER$}{:>NUMBER$}", "BASE", "NEW", "CHANGE"));
    for figure in of_place(place) {
        let name = format!("  {}", figure.words());
        row(page, room, &name, figure, &place.pair);
    }
    for [name, was, is, change, share] in of_tensors(place) {
        let name = words::shorten(&format!("  {name}"), room - 1);
        page.line(&format!("{name:<room$}{was:>NUMBER$}{is:>NUMBER$}{change:>NUMBER$}{share:>SHARE$}"));
    }
    let changed = place.kinds.iter().filter(|kind| difference.threshold.is_passed(Figure::Peak, &kind.pair));
    if place.kinds.len() > 1 {
        for kind in changed {
            row(page, room, &format!("  of the peak: {}", kind.kind.name()), Figure::Peak, &kind.pair);
        }
    }
}

fn row(page: &mut Page, room: usize, name: &str, figure: Figure, pair: &crate::compare::Pair) {
    let name = words::shorten(name, room - 1);
    let [was, is] = [pair.base[figure], pair.new[figure]].map(|number| amount(figure, number));
    let (change, share) = (signed(figure, pair.change(figure)), share(pair, figure));
    page.line(&format!("{name:<room$}{was:>NUMBER$}{is:>NUMBER$}{change:>NUMBER$}{share:>SHARE$}"));
}

fn sites(page: &mut Page, difference: &Difference, most: usize) {
    page.headed("CALL SITES", Paint::Bold, &format!("growth first; matched {}", matched_by(difference)));
    let notable = notable(difference);
    for listed in notable.iter().take(most) {
        one_site(page, difference, listed);
    }
    if notable.len() > most {
        let more = words::count((notable.len() - most) as u64, "more call site", "more call sites");
        page.indented("  ", "  ", &format!("{more} changed: --sites N lists as many as you want."));
    }
    let folded = folded(difference);
    if !folded.is_empty() {
        page.indented("  ", "  ", &folded);
    }
}

fn one_site(page: &mut Page, difference: &Difference, of: &SiteDifference) {
    say_site(page, of, &site(difference, of), &whereabouts(of));
}

fn say_site(page: &mut Page, of: &SiteDifference, said: &SiteWords, place: &str) {
    let change = format!("  {:>width$}  ", said.change, width = CHANGE - 2);
    let indent = " ".repeat(change.chars().count());
    let state = presence(of.presence);
    let state = if state.is_empty() { String::new() } else { format!("{state}: ") };
    page.indented(&change, &indent, &format!("{state}{} ({place})", words::clean(&of.key)));
    page.indented(&indent, &indent, &said.details);
}
