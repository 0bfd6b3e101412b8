//! The page of `whatif`.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::Kind;

use crate::evidence::torch_snapshot::{Action, Event, Snapshot};
use crate::report::page::{Look, Page};
use crate::testing::{GIB, MIB, TraceBuilder, gib, open};
use crate::whatif::torch::policy::Policy;
use crate::whatif::torch::told::tests::told as told_history;
use crate::whatif::torch::{KnownCard, TorchQuestion, ask_snapshot, ask_told};
use crate::whatif::{Question, ask};

fn page(trace: &TraceBuilder, question: &Question) -> String {
    let answer = ask(&mut open(trace), question, |_| {});
    let mut page = Page::new(Look::new(100, false));
    super::write_text(&mut page, &answer);
    let text = page.into_text();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "a line is too long:\n{text}");
    text
}

fn full_card() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "AMD Radeon RX 7900 XTX", gib(23.98));
    for number in 0..40u64 {
        trace.alloc(0x7f2a_0000_0000 + number * 600 * MIB, 560 * MIB);
    }
    let seq = trace.refuse(gib(1.41));
    trace.read_at_failure(
        seq,
        &[(Quantity::RuntimeTotal as u16, gib(23.98)), (Quantity::RuntimeFree as u16, gib(0.62))],
    );
    trace.refuse(gib(3.0));
    trace
}

#[test]
fn what_the_model_does_not_explain_is_said() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    trace.refuse(3 * GIB);
    let text = page(&trace, &Question { capacities_bytes: vec![6 * GIB, 10 * GIB], ..Question::default() });
    assert!(text.contains("8.00 GiB   not known"), "{text}");
    assert!(text.contains("3.00 GiB: can't be told: the model has room for it on the recorded card"), "{text}");
}

#[test]
fn several_cards_and_granules() {
    let question = Question {
        capacities_bytes: vec![16 * GIB, 26 * GIB, 32 * GIB],
        granularities_bytes: vec![2 * MIB, 256 * MIB],
        ..Question::default()
    };
    insta::assert_snapshot!(page(&full_card(), &question));
}

/// A larger card is large enough for this run; a program that leaks fills it in a longer one.
#[test]
fn sizes_are_for_a_run_of_this_length() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    for step in 0..30 {
        trace.alloc(0x100_0000_0000 + step * GIB, 64 * MIB);
        trace.alloc(0x20_0000_0000, GIB);
        trace.free(0x20_0000_0000);
    }
    let text = page(&trace, &Question::default()).split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "They hold for this run's length only: where it ends, what stays still grows, by 64 MiB after each step";
    assert!(text.contains(said), "{text}");
    let answer = ask(&mut open(&trace), &Question::default(), |_| {});
    assert_eq!(answer.devices[0].grows_bytes_per_step, Some(64 * MIB));
    let text = page(&full_card(), &Question::default());
    assert!(text.contains("They hold for a run as long as this one."), "{text}");
}

#[test]
fn what_pools_may_keep_is_not_in_the_model() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x1000_0000_0000, 2 * GIB);
    trace.free(0x1000_0000_0000);
    let text = page(&trace, &Question::default());
    assert!(
        text.contains("not known 2.00 GiB went back to pools over the run: nobody knows how much of it they keep"),
        "{text}"
    );
    assert!(!text.contains("may be what they kept then"), "nothing was measured: {text}");
    assert!(!page(&full_card(), &Question::default()).contains("went back to pools"));
}

/// A pool gave 16 GiB and may keep them, and 12 GiB more are refused: what that means on other cards is no certainty where it
/// depends on the pool.
#[test]
fn what_depends_on_pools_is_never_called_certain() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let address = |block: u64| 0x1000_0000_0000 + block * 2 * GIB;
    (0..16).for_each(|block| _ = trace.alloc_kind(Kind::Pool, "hipMallocAsync", address(block), GIB));
    (0..16).for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", address(block)));
    let seq = trace.refuse(12 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 24 * GIB), (Quantity::RuntimeFree as u16, 8 * GIB)]);
    let on = |capacity: u64| page(&trace, &Question { capacities_bytes: vec![capacity], ..Question::default() });
    let certain = "Only the first change is certain";
    assert!(on(32 * GIB).contains(certain) && on(32 * GIB).contains("gone on 32.00 GiB"), "{}", on(32 * GIB));
    let open = on(26 * GIB);
    assert!(!open.contains(certain) && open.contains("the first change may be that failure #1"), "{open}");
    assert!(open.contains("it depends on what pools keep"), "{open}");
}

/// Managed memory that lay on the card by the reading is not nothing.
#[test]
fn managed_memory_is_a_range() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000_0000_0000, 12 * GIB);
    (0..10).for_each(|block| _ = trace.alloc(0x2000_0000_0000 + block * GIB, GIB));
    let seq = trace.refuse(6 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 24 * GIB), (Quantity::RuntimeFree as u16, 2 * GIB)]);
    let text = page(&trace, &Question { capacities_bytes: vec![20 * GIB, 32 * GIB], ..Question::default() });
    assert!(text.contains("measured  12.00 GiB in use beside"), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("of what was measured, up to 12.00 GiB may be part of it"), "{text}");
    assert!(text.contains("16.00 GiB 28.00 GiB"), "{text}");
    assert!(text.contains("how much of what may lie in RAM is on the card, on 20.00 GiB"), "{text}");
    assert!(text.contains("or more"), "{text}");
}

/// Where all may lie in RAM, no card is said to hold it.
#[test]
fn of_a_smaller_card_nothing_is_known_where_all_may_lie_in_ram() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    (0..12)
        .for_each(|block| _ = trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000_0000_0000 + block * GIB, GIB));
    let text = page(&trace, &Question { capacities_bytes: vec![8 * GIB], ..Question::default() });
    assert!(text.contains("nothing changes of what surely lies on the card"), "{text}");
    assert!(!text.contains("every call has the same outcome"), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("8.00 GiB")).expect("a row of the card");
    assert!(row.trim_end().ends_with('?'), "{row}");
}

/// On the narrowest page each number is there: the last column is the one that says what would fail.
#[test]
fn tables_fit_80_columns() {
    let question = Question {
        capacities_bytes: vec![16 * GIB, 1023 * MIB],
        granularities_bytes: vec![256 * MIB],
        ..Question::default()
    };
    let write = |width: usize| {
        let mut page = Page::new(Look::new(width, false));
        super::write_text(&mut page, &ask(&mut open(&full_card()), &question, |_| {}));
        page.into_text()
    };
    let table = |text: &str| {
        let lines = text.lines().skip_while(|line| !line.starts_with("CARDS")).skip(1);
        lines.take_while(|line| !line.starts_with("  -")).map(str::to_owned).collect::<Vec<_>>()
    };
    let narrow = table(&write(80));
    assert!(narrow.len() > 5 && narrow.iter().all(|line| line.chars().count() <= 80), "{narrow:#?}");
    assert_eq!(narrow, table(&write(120)));
}

#[test]
fn no_card_is_asked_for() {
    insta::assert_snapshot!(page(&full_card(), &Question::default()));
}

/// PyTorch raises an error by a limit of its own, by a C++ function whose name is no text.
#[test]
fn a_limit_of_pytorch() {
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", GIB);
    trace.segment(0x7f00_0000_0000, 200 * MIB);
    trace.tensor(0, 0x7f00_0000_0000, 200 * MIB);
    trace.no_tensor(0, 120 * MIB);
    let page = page(&trace, &Question { capacities_bytes: vec![320 * MIB], ..Question::default() });
    assert!(!page.contains("_ZN") && !page.contains("gone on"), "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn nothing_is_known_of_the_card() {
    let mut trace = TraceBuilder::default();
    trace.alloc(0x1000_0000_0000, GIB);
    insta::assert_snapshot!(page(&trace, &Question::default()));
}

#[test]
fn no_device_memory() {
    let mut trace = TraceBuilder::default();
    trace.alloc_kind(gpuoom_trace::record::Kind::HostPinned, "hipHostMalloc", 0x1000, GIB);
    insta::assert_snapshot!(page(&trace, &Question::default()));
}

/// Four blocks of 9 MiB in two segments, every second one freed, and 30 MiB asked for in vain.
fn torch_history() -> Snapshot {
    let (one, two) = (0x7f00_0000_0000, 0x7f00_1000_0000);
    let event = |action, address: u64, mib: u64| Event {
        action,
        address_or_free_bytes: address,
        size_bytes: mib * MIB,
        stream: 0,
        time_us: 0,
        pool: (0, 0),
        stack: 0,
    };
    let mut events = Vec::new();
    for segment in [one, two] {
        events.push(event(Action::SegmentAlloc, segment, 20));
        events.push(event(Action::Alloc, segment, 9));
        events.push(event(Action::Alloc, segment + 9 * MIB, 9));
    }
    for segment in [one, two] {
        events.push(event(Action::FreeRequested, segment, 9));
        events.push(event(Action::FreeCompleted, segment, 9));
    }
    events.push(event(Action::Oom, 14 * MIB, 30));
    let settings = vec![("PYTORCH_CUDA_ALLOC_CONF".to_owned(), "max_split_size_mb:128".to_owned())];
    Snapshot { device_traces: vec![events], allocator_settings: settings, ..Snapshot::default() }
}

#[test]
fn the_caching_allocator_under_other_settings() {
    let policies = [
        "expandable_segments:True",
        "garbage_collection_threshold:0.8",
        "expandable_segments:True,max_split_size_mb:64",
    ];
    let question = TorchQuestion {
        policies: policies.map(|text| Policy::parse(text).unwrap()).into(),
        capacities_bytes: vec![100 * MIB],
    };
    let card = KnownCard { total_bytes: Some(64 * MIB), overhead_bytes: None, virtual_bytes: None };
    let torch = ask_snapshot("run.pickle", &torch_history(), &question, |_| card).unwrap();
    let mut page = Page::new(Look::new(100, false));
    torch.iter().for_each(|answer| super::torch::write(&mut page, answer));
    insta::assert_snapshot!(page.into_text());
}

fn told_page(trace: &TraceBuilder) -> String {
    let policy = Policy::default();
    let policies = vec![Policy::parse("expandable_segments:True").unwrap()];
    let question = TorchQuestion { policies, capacities_bytes: vec![64 * MIB] };
    let card = KnownCard { total_bytes: Some(16 * GIB), overhead_bytes: Some(GIB), virtual_bytes: None };
    let answers = ask_told(&told_history(trace, &policy), &policy, &question, |_| card);
    let mut page = Page::new(Look::new(100, false));
    answers.iter().for_each(|answer| super::torch::write(&mut page, answer));
    page.into_text()
}

/// The blocks in the trace, of which one may have been asked for with less, and its whole run explained.
#[test]
fn the_caching_allocator_by_its_own_blocks() {
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
    let at = |number: u64| 0x7f00_0000_0000 + number * GIB;
    for number in 0..3 {
        trace.segment(at(number), 20 * MIB);
        trace.tensor(0, at(number), 9 * MIB);
        trace.tensor(0, at(number) + 9 * MIB, 9 * MIB);
    }
    for number in 0..3 {
        trace.free_tensor(at(number));
    }
    trace.segment(at(4), 26 * MIB);
    trace.tensor(0, at(4), 26 * MIB);
    insta::assert_snapshot!(told_page(&trace));
}

/// Several streams, by what they leave: a cached block that fits is not taken.
#[test]
fn the_caching_allocator_where_the_model_differs() {
    let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
    for number in 0..4 {
        let at = 0x7f00_0000_0000 + number * GIB;
        trace.segment(at, 12 * MIB);
        trace.tensor(0, at, 12 * MIB);
        if number > 0 {
            trace.free_tensor(at);
        }
    }
    insta::assert_snapshot!(told_page(&trace));
}
