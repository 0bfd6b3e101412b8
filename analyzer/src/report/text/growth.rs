//! Memory that grows from cycle to cycle: one paragraph, and only where it is significant.

use crate::conclusion::Summary;
use crate::passes::growth::{Growth, RunsOut, Suspect};
use crate::passes::tensor_growth::TensorGrowth;
use crate::report::apart::way_behind;
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gpu, moment, size, span};

pub(in crate::report) fn write(page: &mut Page, summary: &Summary) {
    let facts = &summary.facts;
    let significant: Vec<&Growth> = facts.growth.iter().filter(|growth| growth.significant).collect();
    let of_blocks: Vec<&TensorGrowth> = facts.tensor_growth.iter().filter(|growth| growth.significant).collect();
    if significant.is_empty() && of_blocks.is_empty() {
        return;
    }
    page.headed("GROWTH", Paint::Bold, "what stays from step to step, judged where it ends");
    for growth in significant {
        let ran_out = facts.ooms.iter().any(|oom| oom.device == growth.device);
        let blocks = facts.tensor_growth.iter().find(|known| known.device == growth.device);
        let flat = blocks
            .filter(|blocks| !blocks.significant)
            .map_or_else(String::new, |blocks| format!("; what {} hold does not rise with it", blocks.blocks()));
        page.indented("  ", "  ", &format!("{}{flat}", describe(growth, ran_out)));
    }
    for growth in of_blocks {
        page.indented("  ", "  ", &describe_blocks(growth));
        for line in &growth.lines {
            page.indented("    ", "      ", &line.told(growth.blocks(), growth.by.step()));
        }
        for line in &growth.larger {
            page.indented("    ", "      ", &line.told(growth.blocks(), &growth.stretch_told()));
        }
        if growth.lines.is_empty() && growth.larger.is_empty() {
            let text = format!("no line holds more {} all along: which ones grow is not known", growth.blocks());
            page.indented("    ", "      ", &text);
        }
    }
    page.gap();
}

/// What blocks of an allocator above the runtime hold; the lines follow.
fn describe_blocks(growth: &TensorGrowth) -> String {
    format!(
        "{}, {}: {} more after each {} ({}){}{}{}",
        gpu(growth.device),
        growth.blocks(),
        size(growth.per_step.bytes.max(0.0) as u64),
        growth.by.step(),
        growth.range(),
        growth.course.told(),
        if growth.lines.is_empty() { "; no line keeps more and more of them" } else { "" },
        if growth.few_points { "; that rests on few" } else { "" },
    )
}

fn describe(growth: &Growth, ran_out: bool) -> String {
    let rate = &growth.per_cycle;
    let bytes = |rate: f64| size(rate.max(0.0) as u64);
    let step = growth.by.step();
    let mut text = format!(
        "{}: {} more after each {step} (95 %: {} to {}, over the last {}), {} since the first of {}",
        gpu(growth.device),
        bytes(rate.bytes),
        bytes(rate.low),
        bytes(rate.high),
        growth.stretch,
        size(growth.total_bytes.unsigned_abs()),
        growth.earlier.first_of(growth.cycles, growth.by),
    );
    text.push_str(growth.course.told());
    if let Some(runs_out) = growth.runs_out.as_ref().filter(|_| !ran_out) {
        text.push_str(&describe_end(runs_out, step));
    }
    if growth.managed_bytes > 0 {
        text.push_str(&format!(
            "; {} of what stayed over these is managed memory, which may lie in RAM: when the card would be full is not foretold",
            size(growth.managed_bytes)
        ));
    }
    if growth.few_points {
        text.push_str("; that rests on few");
    }
    if let Some(suspect) = growth.suspects.first() {
        text.push_str(&format!(
            "; of what came all along and {}, the largest part is {} of {} by {}{}",
            if ran_out { "lived at the last failure" } else { "lives at the end" },
            count(suspect.blocks, "block", "blocks"),
            size(suspect.block_bytes),
            clean(&suspect.api),
            caller(suspect),
        ));
    } else if let Some((most, caller)) = growth.most_by.as_ref().and_then(|most| Some((most, most.caller.as_ref()?))) {
        text.push_str(&format!(
            "; over the last {}, {} ({}) came to stay by {}",
            count(most.steps as u64, step, &format!("{step}s")),
            count(most.blocks, "block", "blocks"),
            size(most.bytes),
            clean(caller),
        ));
    }
    text
}

/// The function that asked, where it has a name, else the address. A function by which others get memory, too, is only a wrapper: what
/// called it stands behind it.
fn caller(suspect: &Suspect) -> String {
    match (&suspect.caller, &suspect.site) {
        (Some(caller), _) => {
            let (function, place) = caller
                .split_once(" (")
                .map_or((&caller[..], String::new()), |(function, place)| (function, format!(" ({place}")));
            let way = way_behind(function, &suspect.key, suspect.ways.iter().map(String::as_str));
            format!(" for {}{way}{}", clean(function), clean(&place))
        }
        (None, Some(site)) => format!(" called at {site}"),
        (None, None) => String::new(),
    }
}

fn describe_end(runs_out: &RunsOut, step: &str) -> String {
    let latest = match runs_out.latest_ns {
        Some(latest) => format!("{} to {}", span(runs_out.soonest_ns), span(latest)),
        None => format!("{} at the earliest", span(runs_out.soonest_ns)),
    };
    let by = match runs_out.room_read_at_ns {
        Some(at) => format!("by what was free when it was last read, at {}", moment(at)),
        None => "by the card's size, others not counted".to_owned(),
    };
    format!(
        "; at this rate the {} that are left ({by}) last {} ({latest}), or about {}",
        size(runs_out.room_bytes),
        span(runs_out.in_ns),
        count(runs_out.in_cycles as u64, step, &format!("{step}s")),
    )
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

    use super::*;
    use crate::report::page::Look;
    use crate::testing::{GIB, MIB, TraceBuilder, summary};

    /// A training whose steps leave something behind; each takes 2 ms.
    fn steps(count: u64, leaving_bytes: u64, refused: bool) -> String {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x10_0000_0000, GIB);
        for step in 0..count {
            trace.alloc(0x100_0000_0000 + step * GIB, leaving_bytes + step % 3 * 20 * MIB);
            trace.alloc(0x20_0000_0000, 4 * GIB);
            trace.free(0x20_0000_0000);
        }
        if refused {
            trace.refuse(20 * GIB);
        }
        let mut page = Page::new(Look::new(100, false));
        write(&mut page, &summary(&trace));
        page.into_text()
    }

    #[test]
    fn growth_is_one_paragraph_with_its_uncertainty() {
        insta::assert_snapshot!(steps(20, 300 * MIB, false));
    }

    #[test]
    fn after_a_failure_nothing_is_foretold() {
        insta::assert_snapshot!(steps(20, 300 * MIB, true));
    }

    #[test]
    fn few_cycles_are_said_to_be_few() {
        insta::assert_snapshot!(steps(7, 300 * MIB, false));
    }

    fn text(trace: &TraceBuilder) -> String {
        let mut page = Page::new(Look::new(4000, false));
        write(&mut page, &summary(trace));
        page.into_text().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn long(count: u64, labelled: bool, kind: Kind) -> TraceBuilder {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        for step in 0..count {
            if labelled {
                let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
                trace.with_text(Record { device: NO_DEVICE, ..mark }, &format!("step {step}"));
            }
            trace.alloc(0x20_0000_0000, 64 * MIB);
            trace.alloc_kind(kind, "hipMallocManaged", 0x100_0000_0000 + step * GIB, 4 * MIB);
            trace.free(0x20_0000_0000);
        }
        trace
    }

    #[test]
    fn a_run_that_is_too_long_to_keep_is_judged_by_its_last_steps() {
        for steps in [2048, 2049, 9000] {
            let text = text(&long(steps, false, Kind::Device));
            assert!(text.contains("4 MiB more after each cycle"), "{steps}: {text}");
            assert_eq!(text.contains("too many to keep those before"), steps > 2048, "{text}");
        }
        let text = text(&long(4500, true, Kind::Device));
        assert!(text.contains("since the first of the last 2047 of 4500 labels"), "{text}");
    }

    #[test]
    fn nothing_is_foretold_of_managed_memory() {
        let managed = text(&long(60, false, Kind::Managed));
        assert!(
            managed.contains("managed memory, which may lie in RAM") && !managed.contains("at this rate"),
            "{managed}"
        );
        let device = text(&long(60, false, Kind::Device));
        assert!(!device.contains("managed") && device.contains("at this rate"), "{device}");
    }

    /// Where all memory comes through one function, its name says nothing: who called it does.
    #[test]
    fn a_common_wrapper_has_its_caller_behind_it() {
        let suspect = Suspect {
            api: "hipMalloc".into(),
            site: Some("0x10".into()),
            caller: Some("xmalloc (app)".into()),
            key: "app!xmalloc < app!load < app!main".into(),
            ways: vec!["app!xmalloc < app!load < app!main".into(), "app!xmalloc < app!work < app!main".into()],
            site_number: 1,
            block_bytes: MIB,
            blocks: 9,
            bytes: 9 * MIB,
            bytes_per_cycle: MIB,
        };
        assert_eq!(caller(&suspect), " for xmalloc < load (app)");
        let alone = Suspect { ways: vec!["app!xmalloc < app!load < app!main".into()], ..suspect };
        assert_eq!(caller(&alone), " for xmalloc (app)");
        assert_eq!(caller(&Suspect { caller: None, ..alone }), " called at 0x10");
    }

    #[test]
    fn what_is_not_significant_is_not_there() {
        assert_eq!(steps(4, 300 * MIB, false), "");
    }
}
