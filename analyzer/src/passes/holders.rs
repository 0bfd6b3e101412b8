//! What calls account for, as rows of a ledger: each byte once.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Kind, Layer};

use crate::passes::fragmentation::saturate;
use crate::passes::ledger::Row;
use crate::passes::libraries::{Libraries, is_runtime};
use crate::passes::oom::layer_name;
use crate::replay::Replay;
use crate::replay::balance::{Balance, Overhead, counted_bytes};
use crate::replay::block::Side;
use crate::replay::census::Census;
use crate::replay::held::{Caller, Held};
use crate::replay::lower::{Cause, Class};

/// The program's own calls.
pub const PROGRAM: &str = "program";
/// Libraries above the runtime, for themselves.
const VENDOR: &str = "vendor libraries";
/// The runtime, for itself.
const RUNTIME: &str = "runtime";
/// What stream-ordered pools hold beyond what was handed out.
pub const POOLS: &str = "runtime pools and caches";
/// What lower layers hold beyond what was asked for.
const ROUNDING: &str = "rounding";
/// Host memory that a layer below has pinned beyond what the program has registered: HIP keeps what it registered twice.
pub const STILL_PINNED: &str = "still pinned";
/// What is taken while a context, a library's handle or a queue is set up.
const SET_UP: &str = "contexts and library handles";

/// What rows have in common that become one.
type Label<'a> = (&'static str, Option<Layer>, &'static str, Option<u16>, Option<&'a str>);

#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    bytes: u128,
    asked: u128,
    blocks: u64,
}

/// The rows of a census.
pub fn of_calls(replay: &Replay, libraries: &Libraries<'_>, census: &Census) -> Vec<Row> {
    let mut rows = BTreeMap::<Label<'_>, Amount>::new();
    let mut balance = Balance::default();
    for (caller, held) in &census.own {
        let Caller { layer, kind, api, site } = *caller;
        let Held { blocks, requested_bytes, .. } = *held;
        balance.add_own(layer, kind, requested_bytes);
        let label = (PROGRAM, Some(layer), kind.name(), Some(api), libraries.of_site(site));
        let bytes = counted_bytes(kind, requested_bytes);
        add(&mut rows, label, Amount { bytes, asked: requested_bytes, blocks });
    }
    for (class, sum) in &census.lower {
        balance.add_lower(class, sum);
        if class.cause.backs(Side::of(class.kind)).is_none() {
            let bytes = counted_bytes(class.kind, sum.bytes);
            add(&mut rows, label_of(libraries, class), Amount { bytes, asked: sum.bytes, blocks: sum.blocks });
        }
    }
    for Overhead { asking, layer, bytes } in balance.overheads() {
        let (owner, kind) = match asking.kind {
            Kind::Pool => (POOLS, Kind::Pool),
            Kind::Managed => (PROGRAM, Kind::Managed),
            Kind::Registered => (STILL_PINNED, Kind::Registered),
            kind => (ROUNDING, kind),
        };
        add(&mut rows, (owner, Some(layer), kind.name(), None, None), Amount { bytes, asked: bytes, blocks: 0 });
    }
    rows.into_iter().map(|(label, amount)| row(replay, label, amount)).collect()
}

fn add<'a>(rows: &mut BTreeMap<Label<'a>, Amount>, label: Label<'a>, more: Amount) {
    let amount = rows.entry(label).or_default();
    amount.bytes += more.bytes;
    amount.asked += more.asked;
    amount.blocks += more.blocks;
}

/// Whose memory it is that no call above asked for.
fn label_of<'a>(libraries: &'a Libraries<'_>, class: &Class) -> Label<'a> {
    let library = class.caller.and_then(|(_, site)| libraries.of_site(site));
    let (owner, kind) = match class.cause {
        Cause::SetUp => (SET_UP, class.kind),
        // HIP 6.4.3 takes it from pinned memory where the kernel driver moves no pages.
        Cause::Call { kind: Kind::Managed, own: true, .. } => (PROGRAM, Kind::Managed),
        Cause::Call { kind: kind @ (Kind::Code | Kind::Queue | Kind::Scratch), .. } => (RUNTIME, kind),
        _ if library.is_some_and(|library| !is_runtime(library)) => (VENDOR, class.kind),
        Cause::Itself if class.layer == Layer::Runtime => (VENDOR, class.kind),
        _ => (RUNTIME, class.kind),
    };
    (owner, Some(class.layer), kind.name(), class.caller.map(|(api, _)| api), library)
}

fn row(replay: &Replay, label: Label<'_>, amount: Amount) -> Row {
    let (owner, layer, kind, api, library) = label;
    Row {
        layer: layer_name(layer),
        owner,
        kind,
        bytes: saturate(amount.bytes),
        asked_bytes: saturate(amount.asked),
        blocks: amount.blocks,
        api: api.map(|api| replay.apis.get(api).name.clone()),
        library: library.map(str::to_owned),
        source: "calls",
    }
}
