//! Statements, and runs that keep them or not.

use gpuoom_trace::record::{Event, Kind, Record};
use proptest::prelude::*;

use super::{Judged, Sides, Verdict, judge, parse_expression};
use crate::compare::{Threshold, compare};
use crate::passes::profile::Profile;
use crate::testing::{GIB, MIB, TraceBuilder, profile};

fn builder() -> TraceBuilder {
    TraceBuilder::default().device(0, "card", 16 * GIB).library("/lib/libalpha.so.1", 0x10_0000, 1).library(
        "/lib/libbeta.so.1",
        0x20_0000,
        2,
    )
}

fn alloc(trace: &mut TraceBuilder, site: u32, kind: Kind, device: u8, address: u64, bytes: u64) {
    let record = trace.record(Event::Alloc, kind, "hipMalloc");
    let granules = bytes.div_ceil(256 * MIB) as u32;
    trace.push(Record { site, device, address, requested: bytes, padded_granules: granules, ..record }, &[]);
}

/// 3 GiB at the peak, of which alpha has 2 and keeps 1; 1 MiB pinned; a failure that is dropped.
fn run() -> Profile {
    let mut trace = builder();
    alloc(&mut trace, 1, Kind::Device, 0, 1 << 36, GIB);
    alloc(&mut trace, 1, Kind::Device, 0, 2 << 36, GIB);
    alloc(&mut trace, 2, Kind::Pool, 0, 3 << 36, GIB);
    alloc(&mut trace, 2, Kind::HostPinned, 0, 4 << 36, MIB);
    trace.free(2 << 36);
    trace.free(3 << 36);
    trace.refuse(99 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    profile(&trace)
}

fn verdicts(statement: &str, new: &Profile, base: Option<&Profile>) -> Vec<(String, Verdict)> {
    let nothing = Profile {
        run: new.run.clone(),
        places: Vec::new(),
        sites: Vec::new(),
        tensors: Vec::new(),
        block_growth: Vec::new(),
        label_growth: Vec::new(),
    };
    let difference = compare(base.unwrap_or(&nothing), new, Threshold::NONE);
    let rule = parse_expression(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    let judged = judge(&rule, &Sides { difference: &difference, new, base });
    judged.into_iter().map(|judged| (judged.subject, judged.verdict)).collect()
}

fn is_true(statement: &str, new: &Profile, base: Option<&Profile>) -> bool {
    let verdicts = verdicts(statement, new, base);
    assert!(!verdicts.is_empty() && verdicts.iter().all(|(_, verdict)| *verdict != Verdict::NotJudged), "{verdicts:?}");
    verdicts.iter().all(|(_, verdict)| *verdict == Verdict::True)
}

#[test]
fn numbers_of_a_run() {
    let run = run();
    for statement in [
        "peak == 3G",
        "peak <= 3G",
        "peak < 3073M",
        "peak != 2G",
        "peak >= 1.5G",
        "peak[device=0] == 3G",
        "peak[device=5] == 0",
        "peak[kind=pool] == 1G",
        "peak[site=*alpha*] == 2G",
        "peak[site=nobody] == 0",
        "padding == 0",
        "pinned == 1M",
        "peak[host] == 1M",
        "live_at_end == 1G",
        "live_at_end[host] == 1M",
        "blocks_at_end == 1",
        "allocations == 4",
        "allocations[device=0] == 3",
        "allocated == 3073M",
        "ooms == 1",
        "dropped == 1",
        "recovered == 0",
        "events_lost == 0",
    ] {
        assert!(is_true(statement, &run, None), "{statement}");
    }
    for statement in ["peak > 3G", "peak == 2G", "dropped == 0", "dropped[host] > 0"] {
        assert!(!is_true(statement, &run, None), "{statement}");
    }
}

#[test]
fn each_device_and_each_call_site_is_judged_by_itself() {
    let mut trace = builder();
    alloc(&mut trace, 1, Kind::Device, 0, 1 << 36, GIB);
    alloc(&mut trace, 2, Kind::Device, 1, 2 << 36, 2 * GIB);
    let run = profile(&trace);
    let of = |statement| verdicts(statement, &run, None);
    assert_eq!(
        of("peak <= 1G"),
        [("peak of GPU 0".to_owned(), Verdict::True), ("peak of GPU 1".to_owned(), Verdict::False)]
    );
    assert_eq!(
        of("allocated[each_site=hip*] <= 1G"),
        [
            ("sum of all allocations by hipMalloc in libbeta.so".to_owned(), Verdict::False),
            ("sum of all allocations by hipMalloc in libalpha.so".to_owned(), Verdict::True),
        ]
    );
}

#[test]
fn growth_over_a_base_run() {
    let mut base = builder();
    alloc(&mut base, 1, Kind::Device, 0, 1 << 36, 1000 * MIB);
    let mut new = base.clone();
    alloc(&mut new, 2, Kind::Device, 0, 2 << 36, 40 * MIB);
    let (base, new) = (profile(&base), profile(&new));
    for (statement, holds) in [
        ("peak <= base + 4%", true),
        ("peak <= base + 3.9%", false),
        ("peak <= base + 40M", true),
        ("peak <= base + 39M", false),
        ("peak > base", true),
        ("peak[site=*beta*] <= base + 5%", false),
        ("peak[each_site=*] <= base + 40M", true),
        ("allocations <= base + 1", true),
        ("allocations <= base", false),
    ] {
        assert_eq!(is_true(statement, &new, Some(&base)), holds, "{statement}");
        assert!(is_true("peak == base", &new, Some(&new)));
    }
    assert_eq!(verdicts("peak <= base", &new, None)[0].1, Verdict::NotJudged);
}

#[test]
fn those_behind_it_are_named() {
    let run = run();
    let nothing = Profile {
        run: run.run.clone(),
        places: Vec::new(),
        sites: Vec::new(),
        tensors: Vec::new(),
        block_growth: Vec::new(),
        label_growth: Vec::new(),
    };
    let difference = compare(&nothing, &run, Threshold::NONE);
    let judged =
        judge(&parse_expression("peak <= 1G").unwrap(), &Sides { difference: &difference, new: &run, base: None });
    let culprits: Vec<_> = judged[0].culprits.iter().map(|culprit| (&culprit.key[..], culprit.value)).collect();
    let gib = GIB as f64;
    assert_eq!(culprits, [("hipMalloc in libalpha.so", 2.0 * gib), ("hipMalloc in libbeta.so", gib)]);
}

fn with_marks(steps: u64, leak_bytes: u64) -> Profile {
    let mut trace = builder();
    alloc(&mut trace, 1, Kind::Device, 0, 1 << 36, GIB);
    for step in 0..steps {
        if leak_bytes > 0 {
            alloc(&mut trace, 2, Kind::Device, 0, (step + 2) << 36, leak_bytes);
        }
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, if step % 2 == 0 { "even" } else { "odd" });
    }
    profile(&trace)
}

#[test]
fn growth_from_mark_to_mark() {
    assert!(is_true("growth_per_mark == 1M", &with_marks(20, MIB), None));
    assert!(is_true("growth_per_mark[mark=even] == 2M", &with_marks(20, MIB), None));
    assert!(is_true("growth_per_mark == 0", &with_marks(20, 0), None));
    for (few, statement) in
        [(5, "growth_per_mark <= 1M"), (0, "growth_per_mark <= 1M"), (20, "growth_per_mark[mark=x] <= 0")]
    {
        assert_eq!(verdicts(statement, &with_marks(few, MIB), None)[0].1, Verdict::NotJudged, "{few}");
    }
    assert_eq!(verdicts("growth_per_second <= 1M", &with_marks(3, MIB), None)[0].1, Verdict::NotJudged);
}

#[test]
fn what_is_no_statement_is_said() {
    for (text, says) in [
        ("", "compares nothing"),
        ("peak", "compares nothing"),
        ("peak 12G", "compares nothing"),
        ("peek <= 12G", "do you mean 'peak'?"),
        ("peak <= ", "invalid size '': expected bytes"),
        ("peak <= -1", "invalid size '-1'"),
        ("peak <= NaN", "invalid size 'NaN'"),
        ("peak <= 5%", "base + 5%"),
        ("peak <= base * 2", "behind 'base'"),
        ("peak <= base + x%", "no share"),
        ("peak = 12G", "compares nothing"),
        ("peak[device=0 <= 12G", "no closing bracket"),
        ("peak[devise=0] <= 12G", "unknown scope 'devise': do you mean 'device'?"),
        ("peak[device] <= 12G", "'device' needs a value"),
        ("peak[device=999] <= 12G", "device is the number of a device"),
        ("peak[rank=-1] <= 12G", "rank is a whole number"),
        ("peak[kind=devic] <= 1", "do you mean 'device'?"),
        ("peak[site=] <= 1", "an empty pattern"),
        ("peak[site=a,each_site=b] <= 1", "can't stand together"),
        ("dropped == 0.5", "no count"),
        ("pinned[device=1] <= 1", "no device has it"),
        ("growth_per_mark[site=x] <= 1", "devices only"),
    ] {
        let error = parse_expression(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
    assert!(parse_expression(&"x".repeat(10_000)).is_err());
}

proptest! {
    #[test]
    fn any_text_is_a_statement_or_a_sentence(text in "\\PC{0,60}") {
        if let Err(error) = parse_expression(&text) {
            prop_assert!(!error.is_empty() && error.len() < 1000);
        }
    }

    #[test]
    fn a_statement_is_read_as_it_is_written(
        metric in prop::sample::select(super::Metric::names().collect::<Vec<_>>()),
        sign in prop::sample::select(vec!["<=", "<", ">=", ">", "==", "!="]),
        limit in prop::sample::select(vec!["0", "17", "base", "base + 5%", "base + 3"]),
        scope in prop::sample::select(vec!["", "[process=train*]", "[rank=3]"]),
    ) {
        let text = format!("{metric}{scope} {sign} {limit}");
        let rule = parse_expression(&text).unwrap();
        prop_assert_eq!(rule.to_string(), text);
    }
}

/// 3 GiB in two segments, 2.5 GiB of it in tensors of two places at the most; 1 GiB at the end.
fn with_tensors() -> TraceBuilder {
    let mut trace = builder();
    let (one, two) = (0x7f00_0000_0000, 0x7f10_0000_0000);
    trace.segment(one, 2 * GIB);
    trace.segment(two, GIB);
    for (site, at, bytes) in [(1, one, GIB), (1, one + GIB, GIB / 2), (2, two, GIB)] {
        trace.site = site;
        trace.tensor(0, at, bytes);
    }
    trace.site = 0;
    trace.free_tensor(one + GIB);
    trace.free_tensor(two);
    trace
}

#[test]
fn tensors_are_judged_by_device_and_by_call_site() {
    let run = profile(&with_tensors());
    for (statement, subject, verdict) in [
        ("tensors == 2560M", "most in tensors of GPU 0", Verdict::True),
        ("tensors <= 2G", "most in tensors of GPU 0", Verdict::False),
        ("reserved == 3G", "most reserved for tensors of GPU 0", Verdict::True),
        ("unused[device=0] == 512M", "memory reserved for tensors and unused of GPU 0", Verdict::True),
        ("tensors[site=*alpha*] == 1536M", "most in tensors of GPU 0 by call sites that fit '*alpha*'", Verdict::True),
    ] {
        assert_eq!(verdicts(statement, &run, None), [(subject.to_owned(), verdict)], "{statement}");
    }
    let each = verdicts("tensors[each_site=*] <= 1G", &run, None);
    let of = |name: &str| format!("most in tensors of GPU 0 by tensors in {name}");
    assert_eq!(each, [(of("libalpha.so"), Verdict::False), (of("libbeta.so"), Verdict::True)]);
}

/// Steps that each keep a tensor, in one segment: what the program asked the runtime for does not grow.
fn leak_in_a_cache(steps: u64, kept_bytes: u64) -> Profile {
    let mut trace = builder();
    let segment = 0x7f00_0000_0000;
    trace.segment(segment, 8 * GIB);
    for step in 0..steps {
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, &format!("step {step}"));
        trace.site = 2;
        trace.tensor(0, segment + step * 64 * MIB, kept_bytes);
        trace.site = 0;
        trace.tensor(0, segment + 7 * GIB, 32 * MIB);
        trace.free_tensor(segment + 7 * GIB);
        if kept_bytes == MIB {
            trace.free_tensor(segment + step * 64 * MIB);
        }
    }
    profile(&trace)
}

/// What a rule says of a run, against one that holds nothing.
fn found(statement: &str, run: &Profile) -> Judged {
    let nothing = Profile { run: run.run.clone(), ..leak_in_a_cache(0, 0) };
    let difference = compare(&nothing, run, Threshold::NONE);
    judge(&parse_expression(statement).unwrap(), &Sides { difference: &difference, new: run, base: None }).remove(0)
}

/// A training whose steps keep nothing, and behind them something that fills the card: of that its steps say nothing.
#[test]
fn growth_is_not_judged_by_steps_that_came_before_what_fills_the_card() {
    let mut trace = builder();
    let segment = 0x7f00_0000_0000;
    trace.segment(segment, 8 * GIB);
    for step in 0..10 {
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, &format!("step {step}"));
        trace.tensor(0, segment + 7 * GIB, 32 * MIB);
        trace.free_tensor(segment + 7 * GIB);
    }
    (0..40).for_each(|block| _ = trace.tensor(0, segment + block * 128 * MIB, 128 * MIB));
    trace.refuse(16 * GIB);
    let judged = found("growth_per_second <= 1M", &profile(&trace));
    assert_eq!(judged.verdict, Verdict::NotJudged, "{judged:?}");
    assert!(format!("{judged:?}").contains("the steps say nothing of it"), "{judged:?}");
}

/// Ten great cycles, and behind them so many small ones, each of which keeps something, until a request is refused; then the great ones again.
fn leak_behind_cycles(steps: u64, goes_on: bool) -> Profile {
    let mut trace = builder();
    let cycles = |trace: &mut TraceBuilder, times: u64| {
        for _ in 0..times {
            alloc(trace, 1, Kind::Device, 0, 1 << 36, 2 * GIB);
            trace.free(1 << 36);
            trace.now_ns += 1_000_000;
        }
    };
    cycles(&mut trace, 10);
    (0..steps).for_each(|step| alloc(&mut trace, 2, Kind::Device, 0, (step + 2) << 36, 32 * MIB));
    trace.refuse_on(77, 15 * GIB);
    if goes_on {
        cycles(&mut trace, 20);
    }
    profile(&trace)
}

#[test]
fn level_cycles_say_nothing_of_what_came_behind_them_or_before_memory_ran_out() {
    let judged = |run: &Profile| found("growth_per_second <= 0", run);
    let behind = judged(&leak_behind_cycles(100, false));
    assert_eq!(behind.verdict, Verdict::NotJudged, "{behind:?}");
    assert!(behind.not_judged_because.unwrap().contains("than any cycle took"));
    let before = judged(&leak_behind_cycles(100, true));
    assert_eq!(before.verdict, Verdict::NotJudged, "{before:?}");
    assert!(before.not_judged_because.unwrap().contains("came after memory had run out"));
    assert_eq!(judged(&leak_behind_cycles(2, false)).verdict, Verdict::True, "a step that was under way");
}

#[test]
fn growth_of_tensors_is_judged_where_the_cache_does_not_grow() {
    let leak = leak_in_a_cache(40, 8 * MIB);
    let judged = found("growth_per_second <= 0", &leak);
    assert_eq!((judged.verdict, &judged.subject[..]), (Verdict::False, "growth per second of tensors on GPU 0"));
    assert!(judged.value.is_some_and(|rate| rate > 0.0), "{judged:?}");
    let [culprit] = &judged.culprits[..] else { panic!("{:?}", judged.culprits) };
    assert!(culprit.key.contains("libbeta.so") && culprit.value == (39 * 8 * MIB) as f64, "{culprit:?}");
    assert_eq!(found("growth_per_second <= 0", &leak_in_a_cache(40, MIB)).verdict, Verdict::True);
    let judged = found("growth_per_mark <= 1M", &leak);
    assert_eq!((judged.verdict, judged.value), (Verdict::False, Some((8 * MIB) as f64)), "{judged:?}");
    assert!(judged.culprits[0].key.contains("libbeta.so"), "{judged:?}");
    assert_eq!(found("growth_per_mark[mark=step*] <= 1M", &leak).verdict, Verdict::False);
    assert_eq!(found("growth_per_mark <= 0", &leak_in_a_cache(40, MIB)).verdict, Verdict::True);
    assert_eq!(found("growth_per_second <= 0", &leak_in_a_cache(3, 8 * MIB)).verdict, Verdict::NotJudged);
    // Marks that a budget chooses and that are not there: the message says what judges.
    let because = found("growth_per_mark[mark=epoch*] <= 0", &leak).not_judged_because.unwrap();
    assert!(because.ends_with("growth_per_second judges the tensors of the run by 39 labels"), "{because}");
}

/// A budget about other labels than those by which the report has its steps is judged by what tensors hold at these.
#[test]
fn growth_of_tensors_is_judged_at_the_labels_that_a_budget_names() {
    let mut trace = builder();
    let segment = 0x7f00_0000_0000;
    trace.segment(segment, 8 * GIB);
    let mark = |trace: &mut TraceBuilder, label: String| {
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, &label);
    };
    for step in 0..40 {
        if step % 4 == 0 {
            mark(&mut trace, format!("epoch {}", step / 4));
        }
        if step >= 36 {
            mark(&mut trace, format!("late {step}"));
        }
        mark(&mut trace, format!("step {step}"));
        trace.tensor(0, segment + step * 64 * MIB, 8 * MIB);
        trace.tensor(0, segment + 7 * GIB, 32 * MIB);
        trace.free_tensor(segment + 7 * GIB);
    }
    let run = profile(&trace);
    let judged = |statement: &str| {
        let judged = found(statement, &run);
        (judged.verdict, judged.value)
    };
    assert_eq!(judged("growth_per_mark[mark=step*] <= 1M"), (Verdict::False, Some((8 * MIB) as f64)));
    assert_eq!(judged("growth_per_mark[mark=epoch*] <= 1M"), (Verdict::False, Some((32 * MIB) as f64)));
    assert_eq!(judged("growth_per_mark[mark=epoch*] <= 40M").0, Verdict::True);
    // Of four labels nobody can tell: the cache does not grow, and its tensors do.
    assert_eq!(judged("growth_per_mark[mark=late*] <= 1M").0, Verdict::NotJudged);
}

/// What is not known is neither kept nor exceeded, and no zero.
#[test]
fn tensors_that_are_not_known_are_not_judged() {
    let without = run();
    let mut differing = with_tensors();
    differing.hostile_tensor(false, 0, 0x7f00_8000_0000, GIB, Some([GIB, GIB]));
    let mut lost = with_tensors();
    lost.header.events_lost = 1;
    let mut pool = builder();
    pool.alloc(0x7f00_0000_0000, GIB);
    pool.pool_alloc("arena", "", 0x7f00_0000_0000, MIB);
    for statement in ["tensors >= 0", "tensors <= 99G", "reserved == 0", "unused <= 1", "tensors[each_site=*] <= 1G"] {
        for run in [&without, &profile(&differing), &profile(&lost)] {
            let found = verdicts(statement, run, None);
            assert!(
                found.iter().all(|(_, verdict)| *verdict == Verdict::NotJudged) && !found.is_empty(),
                "{statement}"
            );
        }
    }
    // A pool has no totals, and its blocks are known.
    let of = |statement: &str| verdicts(statement, &profile(&pool), None)[0].1;
    assert_eq!(
        [of("tensors == 1M"), of("reserved >= 0"), of("unused >= 0")],
        [Verdict::True, Verdict::NotJudged, Verdict::NotJudged]
    );
    // Nor is anything said against a base run that does not tell.
    let new = profile(&with_tensors());
    assert_eq!(verdicts("tensors <= base + 5%", &new, Some(&without))[0].1, Verdict::NotJudged);
    assert_eq!(verdicts("tensors <= base", &new, Some(&new))[0].1, Verdict::True);
}

#[test]
fn what_tensors_can_be_narrowed_by() {
    for (statement, says) in [
        ("tensors[kind=device] <= 1", "leave out job, host and kind"),
        ("reserved[job] <= 1", "leave out job, host and kind"),
        ("unused[host] <= 1", "leave out job, host and kind"),
        ("reserved[site=*] <= 1", "tensors is known of call sites"),
    ] {
        let error = parse_expression(statement).unwrap_err();
        assert!(error.contains(says), "{statement}: {error}");
    }
}
