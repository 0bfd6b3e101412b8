//! `diff --format markdown`: a comment in a pull request, with details folded.

use super::Conditions;
use super::words::{
    SiteWords, amount, folded, is_notable, matched_by, notable, notable_tensors, of_place, of_tensors, place_heading,
    presence, run, share, signed, site, tensor_site, unchanged_places, verdict, whereabouts,
};
use crate::compare::{Difference, KindDifference, Pair, PlaceDifference, SiteDifference};
use crate::passes::profile::{Figure, Run};
use crate::report::check::condition;
use crate::report::markdown::page::{Markdown, code, plain};
use crate::words;

/// A difference as Markdown, with the conditions that hold; of the call sites the first `most`.
pub fn write_markdown(difference: &Difference, conditions: &Conditions, most: usize) -> String {
    let mut page = Markdown::default();
    page.heading(3, &format!("GPU memory: {}", headline(difference)));
    page.paragraph(&plain(&verdict(difference)));
    for judged in &conditions.failed {
        page.paragraph(&format!("**Failed:** {}", plain(&condition(judged))));
    }
    for sentence in &conditions.not_judged {
        page.paragraph(&format!("**Not judged:** {}", plain(sentence)));
    }
    difference.notes.iter().for_each(|note| page.note(&plain(note)));
    if difference.is_notable {
        places(&mut page, difference);
        if let Some(unchanged) = unchanged_places(difference) {
            page.paragraph(&plain(&unchanged));
        }
        sites(&mut page, difference, most);
        tensor_sites(&mut page, difference, most);
    }
    let of = |name: &str, of: &Run| format!("{name}: {} ({})", code(&of.path), plain(&run(of)));
    page.paragraph(&format!("<sub>{} · {}</sub>", of("BASE", &difference.base), of("NEW", &difference.new)));
    page.into_text()
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

fn places(page: &mut Markdown, difference: &Difference) {
    for place in difference.places.iter().filter(|place| is_notable(place)) {
        page.paragraph(&format!("**{}**", plain(&place_heading(place))));
        let mut rows: Vec<Vec<String>> =
            of_place(place).into_iter().map(|figure| row(figure.words(), figure, &place.pair)).collect();
        rows.extend(of_tensors(place).into_iter().map(Vec::from));
        if place.kinds.len() > 1 {
            let changed = place.kinds.iter().filter(|kind| difference.threshold.is_passed(Figure::Peak, &kind.pair));
            let of_kind = |kind: &KindDifference| format!("of the peak: {}", kind.kind.name());
            rows.extend(changed.map(|kind| row(&of_kind(kind), Figure::Peak, &kind.pair)));
        }
        page.table(&["", ">base", ">new", ">change", ">"], &rows);
    }
}

fn row(name: &str, figure: Figure, pair: &Pair) -> Vec<String> {
    let [was, is] = [pair.base[figure], pair.new[figure]].map(|number| amount(figure, number));
    vec![name.to_owned(), was, is, signed(figure, pair.change(figure)), share(pair, figure)]
}

fn sites(page: &mut Markdown, difference: &Difference, most: usize) {
    let notable = notable(difference);
    let changed = words::count(notable.len() as u64, "call site", "call sites");
    page.details(&format!("{changed} changed"), |page| {
        let rows: Vec<Vec<String>> = notable.iter().take(most).map(|listed| one_site(difference, listed)).collect();
        page.table(&[">change", "call site", "where", "details"], &rows);
        if notable.len() > most {
            page.paragraph(&format!("{} more.", words::grouped((notable.len() - most) as u64)));
        }
        let folded = folded(difference);
        if !folded.is_empty() {
            page.paragraph(&plain(&folded));
        }
        page.paragraph(&format!("Call sites are matched {}.", matched_by(difference)));
    });
}

fn tensor_sites(page: &mut Markdown, difference: &Difference, most: usize) {
    let notable = notable_tensors(difference);
    if notable.is_empty() {
        return;
    }
    let changed = words::count(notable.len() as u64, "call site", "call sites");
    page.details(&format!("{changed} of tensors changed"), |page| {
        let row = |listed: &&SiteDifference| say_site(listed, tensor_site(listed), &listed.place.words());
        let rows: Vec<Vec<String>> = notable.iter().take(most).map(row).collect();
        page.table(&[">change", "call site", "where", "details"], &rows);
        if notable.len() > most {
            page.paragraph(&format!("{} more.", words::grouped((notable.len() - most) as u64)));
        }
    });
}

fn one_site(difference: &Difference, of: &SiteDifference) -> Vec<String> {
    say_site(of, site(difference, of), &whereabouts(of))
}

fn say_site(of: &SiteDifference, said: SiteWords, place: &str) -> Vec<String> {
    let state = presence(of.presence);
    let state = if state.is_empty() { String::new() } else { format!("**{state}** ") };
    vec![said.change, format!("{state}{}", code(&of.key)), plain(place), plain(&said.details)]
}
