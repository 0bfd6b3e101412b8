//! Memory that grows from cycle to cycle: one paragraph, and only where it is significant.

use crate::conclusion::Summary;
use crate::passes::growth::{Growth, OfPlace, RunsOut, Suspect};
use crate::passes::rise::By;
use crate::passes::shape::run::in_place_of_others;
use crate::passes::tensor_growth::{Cut, TensorGrowth};
use crate::replay::blocks::Owner;
use crate::report::apart::way_behind;
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gpu, moment, size, span};

const STEPS: &str = "what stays from step to step, judged where it ends";
/// Whom the rows of a device name where PyTorch's segments are among its blocks.
const OF_SEGMENTS: &str = "a segment of PyTorch's counts for the place that needed it first; whose tensors grow stands below, where that is known";
/// Nobody but the recorder says what a cycle is to the program.
const CYCLES: &str = "what stays from step to step, judged where it ends; a cycle is one rise and fall: a step, a part of one, or several";

pub(in crate::report) fn write(page: &mut Page, summary: &Summary) {
    let facts = &summary.facts;
    let significant: Vec<&Growth> = facts.growth.iter().filter(|growth| growth.significant).collect();
    let of_blocks: Vec<&TensorGrowth> = facts.tensor_growth.iter().filter(|growth| growth.significant).collect();
    let in_stairs = || facts.tensor_growth.iter().filter(|growth| growth.is_in_stairs(&facts.thresholds));
    let slight = || facts.tensor_growth.iter().filter(|growth| growth.is_slight());
    let other = in_stairs().chain(slight()).next();
    if significant.is_empty() && of_blocks.is_empty() && other.is_none() {
        return;
    }
    let by_cycles = significant.iter().any(|growth| growth.by == By::Cycles)
        || of_blocks.iter().any(|growth| growth.by == Cut::Cycles);
    page.headed("GROWTH", Paint::Bold, if by_cycles { CYCLES } else { STEPS });
    let names_segments = significant.iter().any(|growth| names_who_asked(growth) && has_torch(summary, growth));
    for growth in significant {
        let ran_out = facts.ooms.iter().any(|oom| oom.device == growth.device);
        let blocks = facts.tensor_growth.iter().find(|known| known.device == growth.device);
        let flat = blocks
            .filter(|blocks| !blocks.significant && blocks.does_not_rise())
            .map_or_else(String::new, |blocks| format!("; what {} hold does not rise with it", blocks.blocks()));
        page.indented("  ", "  ", &format!("{}{flat}", describe(growth, ran_out)));
    }
    if names_segments {
        page.indented("    ", "      ", OF_SEGMENTS);
    }
    for growth in of_blocks {
        page.indented("  ", "  ", &describe_blocks(growth));
        for line in growth.all_lines() {
            page.indented("    ", "      ", &line.told(growth.blocks(), growth.by.step()));
        }
        for line in &growth.larger {
            page.indented("    ", "      ", &line.told(growth.blocks(), &growth.stretch_told()));
        }
        if growth.all_lines().next().is_none() && growth.larger.is_empty() {
            let text = format!("which lines' {} grow is not known", growth.blocks());
            page.indented("    ", "      ", &text);
        }
    }
    for growth in in_stairs() {
        page.indented("  ", "  ", &describe_stairs(growth));
    }
    for growth in slight() {
        let least = size(facts.thresholds.leak_total_bytes);
        let text = format!("{}; less than {least} in all, from which on a rise is judged", describe_blocks(growth));
        page.indented("  ", "  ", &text);
        for line in growth.lines.iter().take(1) {
            page.indented("    ", "      ", &line.told(growth.blocks(), growth.by.step()));
        }
    }
    page.gap();
}

/// Whether its row says who asked for what stays.
fn names_who_asked(growth: &Growth) -> bool {
    !growth.suspects.is_empty() || growth.most_by.as_ref().is_some_and(|most| most.caller.is_some())
}

/// Whether PyTorch's allocator keeps segments on the device: who asked for one is not who keeps what lies in it.
fn has_torch(summary: &Summary, growth: &Growth) -> bool {
    let device = summary.facts.devices.iter().find(|device| device.index == growth.device);
    device.and_then(|device| device.tensors.as_ref()).is_some_and(|tensors| tensors.owner == Owner::Torch)
}

/// What comes to stay now and then.
fn describe_stairs(growth: &TensorGrowth) -> String {
    format!(
        "{}, {}: {} more in {}, in stairs with level stretches between them, as where something comes to stay now and then; whether \
         another follows, the run does not show",
        gpu(growth.device),
        growth.blocks(),
        size(growth.total_bytes.unsigned_abs()),
        count(growth.steps, growth.by.step(), growth.by.steps()),
    )
}

/// What blocks of an allocator above the runtime hold; the lines follow.
fn describe_blocks(growth: &TensorGrowth) -> String {
    // A program may have labels of several sorts.
    let which = growth.label.as_ref().map_or_else(String::new, |label| format!(" like \"{}\"", clean(label)));
    format!(
        "{}, {}: {} more after each {}{which} ({}){}{}{}",
        gpu(growth.device),
        growth.blocks(),
        size(growth.per_step.bytes.max(0.0) as u64),
        growth.by.step(),
        growth.range(),
        growth.course.told(),
        match (growth.lines.is_empty(), growth.turning.is_empty()) {
            (true, true) if growth.larger.is_empty() => "; no line was seen to keep them",
            (true, false) => "; older ones are replaced, and there are more and more of them",
            _ => "",
        },
        if growth.few_points { "; that rests on few" } else { "" },
    )
}

fn describe(growth: &Growth, ran_out: bool) -> String {
    let rate = &growth.per_cycle;
    let bytes = |rate: f64| size(rate.max(0.0) as u64);
    let step = growth.by.step();
    let mut text = format!(
        "{}: {} more after each {} (95 %: {} to {}, over the last {}), {} since the first of {}",
        gpu(growth.device),
        bytes(rate.bytes),
        growth.by.step_of(growth.sorts),
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
            "; {} of what stayed over these may lie in RAM: when the card would be full is not foretold",
            size(growth.managed_bytes)
        ));
    }
    if growth.few_points {
        text.push_str("; that rests on few");
    }
    if let Some(suspect) = growth.suspects.first() {
        text.push_str(&format!(
            "; of what came all along and {}, the largest part{} is {} of {} by {}{}{}",
            if ran_out { "lived at the last failure" } else { "lives at the end" },
            if suspect.of_place.is_some() { " of one size" } else { "" },
            count(suspect.blocks, "block", "blocks"),
            size(suspect.block_bytes),
            clean(&suspect.api),
            caller(suspect),
            suspect.of_place.map(of_place).unwrap_or_default(),
        ));
    } else if let Some((most, caller)) = growth.most_by.as_ref().and_then(|most| Some((most, most.caller.as_ref()?))) {
        text.push_str(&format!(
            "; of what came over the last {}, {} ({}) by {} lived at the last of them{}",
            count(most.steps as u64, step, &format!("{step}s")),
            count(most.blocks, "block", "blocks"),
            size(most.bytes),
            clean(caller),
            in_place_of_others(most.replacing_blocks),
        ));
    }
    text
}

/// What lives from there in all sizes.
fn of_place(all: OfPlace) -> String {
    let least = if all.is_at_least { "at least " } else { "" };
    format!("; from there {least}{} of all sizes live, {}", count(all.blocks, "block", "blocks"), size(all.bytes))
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

    /// A block that is copied into a larger one needs room for both: the rate of what stays is not that of what is needed.
    #[test]
    fn steps_that_rise_higher_and_higher_foretell_nothing() {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x10_0000_0000, GIB);
        let place = |step: u64| 0x100_0000_0000 + step * 16 * GIB;
        for step in 0..30 {
            trace.alloc(place(step), (step + 1) * 96 * MIB);
            if step > 0 {
                trace.free(place(step - 1));
            }
        }
        let text = text(&trace);
        assert!(text.contains("GROWTH") && !text.contains("at this rate"), "{text}");
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

    /// CUB's ranges lie within each step of a program that has labels of its own, or none.
    #[test]
    fn ranges_of_libraries_are_no_steps() {
        let with_ranges = |of_program: &str| {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            for step in 0..30 {
                for label in [&format!("{of_program} {step}"), "cub::DeviceRadixSort", "cub::DeviceScan::ExclusiveScan"]
                {
                    let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
                    trace.with_text(Record { device: NO_DEVICE, ..mark }, label);
                    trace.alloc(0x20_0000_0000, 64 * MIB);
                    trace.free(0x20_0000_0000);
                }
                trace.alloc(0x100_0000_0000 + step * GIB, 4 * MIB);
            }
            text(&trace)
        };
        let page = with_ranges("step");
        assert!(page.contains("4 MiB more after each label") && !page.contains("any sort"), "{page}");
        assert!(!with_ranges("cub::DeviceSelect").contains("label"), "{page}");
    }

    /// Blocks of five sizes stay, all from one place.
    fn of_sizes(count: u64) -> TraceBuilder {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        for step in 0..count {
            trace.site = 7;
            trace.alloc(0x20_0000_0000, 64 * MIB);
            trace.site = 8;
            trace.alloc(0x100_0000_0000 + step * GIB, (4 + step % 5) * MIB);
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
            managed.contains("of what stayed over these may lie in RAM") && !managed.contains("at this rate"),
            "{managed}"
        );
        let device = text(&long(60, false, Kind::Device));
        assert!(!device.contains("managed") && device.contains("at this rate"), "{device}");
    }

    /// The blocks' growth is told by one sort of them, and two rates by "label" would contradict each other.
    #[test]
    fn labels_of_several_sorts_are_told_as_such() {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        for step in 0..40 {
            for label in ["forward", "backward"] {
                let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
                trace.with_text(Record { device: NO_DEVICE, ..mark }, &format!("{label} {step}"));
                trace.alloc(0x20_0000_0000, 64 * MIB);
                trace.free(0x20_0000_0000);
            }
            trace.alloc(0x100_0000_0000 + step * GIB, 8 * MIB);
        }
        let text = text(&trace);
        assert!(text.contains("4 MiB more after each label of any sort ("), "{text}");
    }

    /// What is set up once and given back at the end is no part of a step.
    #[test]
    fn what_is_given_back_at_the_end_takes_no_room_of_a_step() {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.alloc(0x30_0000_0000, 8 * GIB);
        for step in 0..40 {
            let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
            trace.with_text(Record { device: NO_DEVICE, ..mark }, &format!("image {step}"));
            trace.alloc(0x20_0000_0000, 64 * MIB);
            trace.alloc(0x100_0000_0000 + step * GIB, 32 * MIB);
            trace.free(0x20_0000_0000);
        }
        trace.free(0x30_0000_0000);
        let text = text(&trace);
        // 24 GiB less 8 GiB, 39 blocks that stay, and the temporary one.
        assert!(text.contains("at this rate the 14.72 GiB that are left"), "{text}");
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
            of_place: None,
            bytes_per_cycle: MIB,
        };
        assert_eq!(caller(&suspect), " for xmalloc < load (app)");
        let alone = Suspect { ways: vec!["app!xmalloc < app!load < app!main".into()], ..suspect };
        assert_eq!(caller(&alone), " for xmalloc (app)");
        assert_eq!(caller(&Suspect { caller: None, ..alone }), " called at 0x10");
    }

    /// The largest group of one size is not all that a place holds.
    #[test]
    fn a_place_with_blocks_of_several_sizes_is_told_whole() {
        let all = OfPlace { blocks: 115, bytes: 686 * MIB, is_at_least: false };
        assert_eq!(of_place(all), "; from there 115 blocks of all sizes live, 686 MiB");
        let some = OfPlace { is_at_least: true, ..all };
        assert_eq!(of_place(some), "; from there at least 115 blocks of all sizes live, 686 MiB");
        let text = text(&of_sizes(60));
        assert!(
            text.contains("the largest part of one size is") && text.contains("blocks of all sizes live"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_significant_is_not_there() {
        assert_eq!(steps(4, 300 * MIB, false), "");
    }
}
