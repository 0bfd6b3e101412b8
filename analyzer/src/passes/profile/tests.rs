//! Profiles of traces that were built: what adds up, and what it adds up to.

use gpuoom_trace::record::{Event, Kind, Record, flag};
use proptest::prelude::*;

use super::{Figure, Figures, KnownBy, Place, Profile};
use crate::testing::{GIB, MIB, TraceBuilder, profile, summary};

fn figures(profile: &Profile, place: Place) -> Figures {
    profile.places.iter().find(|known| known.place == place).expect("a place that was used").figures
}

/// The names of the call sites and their bytes at the peak, at the end and in all.
fn bytes(profile: &Profile) -> Vec<(&str, [u64; 3])> {
    let of = |figures: &Figures| [figures[Figure::Peak], figures[Figure::End], figures[Figure::Allocated]];
    profile.sites.iter().map(|site| (site.name.at_most(KnownBy::Stack), of(&site.figures))).collect()
}

#[test]
fn call_sites_are_named_by_the_library_that_called() {
    let mut trace = TraceBuilder::default().library("/usr/lib/libtorch_hip.so.2.7", 0x10_0000, 1).library(
        "/home/someone/build/llama-cli",
        0x20_0000,
        2,
    );
    for (site, address, bytes) in [(1, 0x1000, 3), (1, 0x2000, 4), (2, 0x3000, 5), (0, 0x4000, 6)] {
        let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
        trace.push(Record { site, address, requested: bytes * MIB, padded_granules: 1, ..record }, &[]);
    }
    trace.free(0x1000);
    let profile = profile(&trace);
    assert_eq!(
        bytes(&profile),
        [
            ("hipMalloc", [6 * MIB, 6 * MIB, 6 * MIB]),
            ("hipMalloc in libtorch_hip.so", [7 * MIB, 4 * MIB, 7 * MIB]),
            ("hipMalloc in the program", [5 * MIB, 5 * MIB, 5 * MIB]),
        ]
    );
    assert_eq!(profile.run.sites_known_by, KnownBy::Library);
    let torch = &profile.sites[1].figures;
    assert_eq!([torch[Figure::Allocations], torch[Figure::Frees], torch[Figure::EndBlocks]], [2, 1, 1]);
}

#[test]
fn failures_belong_to_the_call_site_that_asked() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.refuse(17 * GIB);
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    trace.alloc(0x1000, GIB);
    let other = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { status: 1, requested: 0, ..other }, &[]);
    let pinned = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    trace.push(Record { status: 2, requested: GIB, ..pinned }, &[]);
    trace.after(Event::ErrorQuery, "hipGetErrorString", 2, flag::ERROR_TEXT);
    let profile = profile(&trace);
    let of = |place| {
        let figures = figures(&profile, place);
        [Figure::Failures, Figure::Ooms, Figure::Dropped, Figure::Propagated].map(|figure| figures[figure])
    };
    assert_eq!((of(Place::Gpu(0)), of(Place::Host)), ([2, 1, 1, 0], [1, 1, 0, 1]));
}

#[test]
fn a_failure_without_an_account_is_not_lost() {
    let mut trace = TraceBuilder::default();
    let import = trace.record(Event::Alloc, Kind::Imported, "hipIpcOpenMemHandle");
    trace.push(Record { status: 2, ..import }, &[]);
    let profile = profile(&trace);
    assert_eq!(figures(&profile, Place::Gpu(0))[Figure::Ooms], 1);
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Alloc { slot: u64, kind: Kind, size_bytes: u64, site: u32 },
    Free { slot: u64, fails: bool },
    Refuse { size_bytes: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let kinds = prop::sample::select(vec![Kind::Device, Kind::Managed, Kind::Pool, Kind::HostPinned]);
    prop_oneof![
        4 => (0u64..12, kinds, 1u64..GIB, 0u32..4)
            .prop_map(|(slot, kind, size_bytes, site)| Action::Alloc { slot, kind, size_bytes, site }),
        3 => (0u64..12, any::<bool>()).prop_map(|(slot, fails)| Action::Free { slot, fails }),
        1 => (1u64..GIB).prop_map(|size_bytes| Action::Refuse { size_bytes }),
    ]
}

fn build(actions: &[Action]) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 64 * GIB);
    for action in actions {
        match *action {
            Action::Alloc { slot, kind, size_bytes, site } => {
                let record = trace.record(Event::Alloc, kind, "hipMalloc");
                let address = (slot + 1) << 32;
                trace.push(Record { site, address, requested: size_bytes, padded_granules: 4, ..record }, &[]);
            }
            Action::Free { slot, fails } => {
                trace.free((slot + 1) << 32);
                if fails {
                    trace.last_call_failed(1);
                }
            }
            Action::Refuse { size_bytes } => drop(trace.refuse(size_bytes)),
        }
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What the call sites of a device have together is what the report says of the device.
    #[test]
    fn sums_of_call_sites_are_the_report(actions in prop::collection::vec(action(), 1..120)) {
        let trace = build(&actions);
        let (profile, summary) = (profile(&trace), summary(&trace));
        let reported = summary.facts.devices.iter().filter_map(|device| Some((Place::Gpu(device.index?), device.account)));
        for (place, account) in reported.chain([(Place::Host, summary.facts.host)]) {
            let Some(known) = profile.places.iter().find(|known| known.place == place) else {
                prop_assert_eq!(account.allocations + account.failures, 0);
                continue;
            };
            let of = |figure| known.figures[figure];
            prop_assert_eq!(of(Figure::Peak), account.peak.requested_bytes);
            prop_assert_eq!(of(Figure::PaddedPeak), account.peak.padded_bytes);
            prop_assert_eq!(of(Figure::PeakBlocks), account.peak.live_allocations);
            prop_assert_eq!(of(Figure::End), account.end.requested_bytes);
            prop_assert_eq!(of(Figure::PaddedEnd), account.end.padded_bytes);
            prop_assert_eq!(of(Figure::EndBlocks), account.end.live_allocations);
            prop_assert_eq!(of(Figure::Allocations), account.allocations);
            prop_assert_eq!(of(Figure::Frees), account.allocations - account.end.live_allocations);
            prop_assert_eq!(of(Figure::Failures), account.failures);
        }
        let ooms: u64 = profile.places.iter().map(|place| place.figures[Figure::Ooms]).sum();
        prop_assert_eq!(ooms, summary.facts.oom_count);
    }
}
