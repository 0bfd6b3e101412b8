//! Who holds the memory of each device: every byte once, counted from calls, read from the driver, or named as the rest.

use gpuoom_trace::record::{Kind, NO_DEVICE};
use serde::Serialize;

use crate::passes::buffers::{self, Buffers};
use crate::passes::callers::{self, Callers};
use crate::passes::fragmentation::saturate;
use crate::passes::holders::{self, POOLS};
use crate::passes::libraries::Libraries;
use crate::passes::oom::deciding;
use crate::replay::Replay;
use crate::replay::account::Account;
use crate::replay::block::Side;
use crate::replay::census::Census;
use crate::replay::comparison::AtPeak;
use crate::replay::failures::Oom;
use crate::replay::readings::{DeviceReadings, Source, Whole};
use crate::symbols::Stacks;
use crate::words::gpu;

/// Failures of a device that have a ledger beside the one that decides the verdict.
const MOST_FAILURES: usize = 64;

/// Callers that are named of a device's most telling moments.
const MOST_CALLERS: usize = 32;
/// Callers that are named of the other failures.
const FEW_CALLERS: usize = 8;

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Layer that holds it, where it was counted from calls.
    pub layer: Option<&'static str>,
    /// Who holds it.
    pub owner: &'static str,
    /// Kind of memory.
    pub kind: &'static str,
    /// Bytes held.
    pub bytes: u64,
    /// Bytes asked for; more than `bytes` for managed memory, whose pages move: `bytes` then is what surely lies here, and how much more
    /// does is not known.
    pub asked_bytes: u64,
    /// Number of blocks; 0 for what is no block, such as rounding.
    pub blocks: u64,
    /// Function that asked, where one did.
    pub api: Option<String>,
    /// Library that called it, where the trace knows.
    pub library: Option<String>,
    /// How the number came about: `calls`, or the source that was read.
    pub source: &'static str,
}

/// The same number by another source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadingRow {
    /// Who says so.
    pub source: &'static str,
    /// All memory of the device.
    pub total_bytes: Option<u64>,
    /// What is free.
    pub free_bytes: Option<u64>,
    /// What this process holds.
    pub process_bytes: Option<u64>,
}

/// The memory of one device, or of the host, at one moment. Rows, `unattributed_bytes` and `free_bytes` add up to
/// `total_bytes`, less `overattributed_bytes`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceLedger {
    /// Device index, `None` for memory whose device is not known, and for that of the host.
    pub device: Option<u8>,
    /// Whether it is the host's pinned memory.
    #[serde(skip)]
    pub is_host: bool,
    /// The moment: `oom:N`, `peak` or `end`.
    pub moment: String,
    /// The moment.
    pub at_ns: u64,
    /// Who holds what, largest first.
    pub rows: Vec<Row>,
    /// Total memory, where it is known.
    pub total_bytes: Option<u64>,
    /// Free memory as it was read at that moment.
    pub free_bytes: Option<u64>,
    /// Who says so.
    pub free_by: Option<&'static str>,
    /// The remainder: what is neither free nor in a row; `None` where nobody read the free memory at that moment.
    pub unattributed_bytes: Option<u64>,
    /// How much of the remainder the driver says is this process's.
    pub unattributed_in_process_bytes: Option<u64>,
    /// What had gone back to the program's stream-ordered pools by then, all in all: what they kept of it is in the remainder, where no
    /// row has it. `None` where nobody knows how much of it had gone back by then.
    pub returned_to_pools_bytes: Option<u64>,
    /// The most that they can have kept of it, by the calls; `None` where nobody knows.
    #[serde(skip)]
    pub pools_keep_at_most_bytes: Option<u64>,
    /// The remainder the other way: how much more the rows hold than is missing from the free memory.
    pub overattributed_bytes: Option<u64>,
    /// Reserved address ranges at the end of the replay, which hold no memory.
    pub reserved_bytes: u64,
    /// Memory of other processes that was open at the end of the replay.
    pub imported_bytes: u64,
    /// When the readings of a peak were taken: later than the peak, with as much held as then. `None` at other moments, and where
    /// nothing was read.
    pub read_at_ns: Option<u64>,
    /// What each source said at that moment.
    pub readings: Vec<ReadingRow>,
    /// Who asked for what calls account for, by the places in the program.
    pub allocated_by: Callers,
    /// Of that, device memory that functions of ggml or llama.cpp on the way to the call say what it is for.
    #[serde(skip)]
    pub buffers: Vec<Buffers>,
}

impl DeviceLedger {
    /// Whether it is shown: at a failure also where the program held nothing, if somebody read how much was free.
    pub fn tells(&self) -> bool {
        let is_failure = self.moment.starts_with("oom:");
        self.moment != "end" && (!self.rows.is_empty() || is_failure && self.free_bytes.is_some())
    }

    /// Whether some of what was asked for may lie on the device or not, because its pages move.
    pub fn has_moving_pages(&self) -> bool {
        self.rows.iter().any(|row| row.asked_bytes > row.bytes)
    }

    /// Whether pools of the program may keep some of what is in no row; not known is yes.
    pub fn may_be_kept_by_pools(&self) -> bool {
        let has_row = self.rows.iter().any(|row| row.owner == POOLS);
        !self.is_host && !has_row && self.returned_to_pools_bytes != Some(0)
    }

    /// Whose memory it is, as people read it.
    pub fn place(&self) -> String {
        if self.is_host { "pinned host memory".to_owned() } else { gpu(self.device) }
    }
}

/// A moment whose holders are known.
struct Moment {
    returned_to_pools_bytes: Option<u64>,
    pools_keep_at_most_bytes: Option<u64>,
    /// Callers that are named at most.
    most_callers: usize,
    name: String,
    at: u64,
    /// Ticks of the readings, where they are later than the moment.
    read_at: Option<u64>,
    census: Census,
    read: DeviceReadings,
}

/// The ledgers of a device: at its most telling failure, at its peak and at the end.
pub fn of_device(
    replay: &Replay,
    libraries: &Libraries<'_>,
    stacks: &Stacks<'_>,
    device: u8,
    account: &Account,
) -> Vec<DeviceLedger> {
    let compared = replay.comparisons.get(&device);
    let at_peak = compared.and_then(|compared| compared.at_peak).filter(|peak| peak.position == account.peak.position);
    let at_end = compared.and_then(|compared| compared.last.filter(|(held, _)| *held == account.held));
    let read = (at_peak, at_end.map(|(_, read)| read));
    let moments = moments(replay, Side::Device, device, account, read);
    moments.into_iter().map(|moment| write(replay, libraries, stacks, device, account, moment)).collect()
}

/// The ledgers of pinned host memory: at its peak and at the end.
pub fn of_host(replay: &Replay, libraries: &Libraries<'_>, stacks: &Stacks<'_>) -> Vec<DeviceLedger> {
    let account = &replay.accounts.host;
    let moments = moments(replay, Side::Host, NO_DEVICE, account, (None, None));
    let ledgers = moments.into_iter().map(|moment| {
        let ledger = write(replay, libraries, stacks, NO_DEVICE, account, moment);
        DeviceLedger { is_host: true, ..ledger }
    });
    ledgers.filter(|ledger| !ledger.rows.is_empty()).collect()
}

fn moments(
    replay: &Replay,
    side: Side,
    device: u8,
    account: &Account,
    (at_peak, at_end): (Option<AtPeak>, Option<DeviceReadings>),
) -> Vec<Moment> {
    let mut moments = Vec::new();
    let to_pools = (side == Side::Device).then(|| replay.tracks.device(device)).flatten();
    let to_pools = to_pools.map_or(0, |track| track.done.returned_to_pools_bytes);
    let at_failure = |(number, oom): Numbered<'_>, most_callers: usize| {
        let around = replay.tracks.around.failure(number as usize - 1).filter(|around| around.device == device);
        let by_then = around.map(|around| around.done.returned_to_pools_bytes).or((to_pools == 0).then_some(0));
        let total = oom.read.runtime_total_bytes.or(replay.accounts.total_bytes(device));
        let of_card = DeviceReadings { runtime_total_bytes: total, ..oom.read };
        let kept = around.and_then(|around| around.pooled).map(|pooled| pooled.all.at_most_bytes);
        let (read, returned_to_pools_bytes, pools_keep_at_most_bytes) = match side {
            // What was read at the failure is of a card, and nothing of that is the host's.
            Side::Host => (DeviceReadings::default(), Some(0), None),
            _ => (of_card, by_then, kept),
        };
        Moment {
            most_callers,
            name: format!("oom:{number}"),
            at: oom.at,
            read_at: None,
            census: oom.census.as_deref().cloned().unwrap_or_default(),
            read,
            returned_to_pools_bytes,
            pools_keep_at_most_bytes,
        }
    };
    let (telling, others) = failures(replay, side, device);
    moments.extend(telling.map(|failure| at_failure(failure, MOST_CALLERS)));
    if account.peak.held.blocks > 0 {
        let own = account.blocks_at_peak(replay.blocks_of(side, device));
        let census = Census::of_blocks(own.iter(), account.lower_at_peak(replay.lower.blocks(side, device)));
        let read = at_peak.map(|peak| peak.read).unwrap_or_default();
        let read_at = at_peak.map(|peak| peak.at);
        let name = "peak".to_owned();
        let by_then = (to_pools == 0).then_some(0);
        let moment = Moment {
            most_callers: MOST_CALLERS,
            name,
            at: account.peak.at,
            read_at,
            census,
            read,
            returned_to_pools_bytes: by_then,
            pools_keep_at_most_bytes: None,
        };
        moments.push(moment);
    }
    let (census, read) = (replay.census(side, device), at_end.unwrap_or_default());
    let name = "end".to_owned();
    let by_then = Some(to_pools);
    let moment = Moment {
        most_callers: MOST_CALLERS,
        name,
        at: replay.last_at,
        read_at: None,
        census,
        read,
        returned_to_pools_bytes: by_then,
        pools_keep_at_most_bytes: None,
    };
    moments.push(moment);
    moments.extend(others.into_iter().map(|failure| at_failure(failure, FEW_CALLERS)));
    moments
}

fn write(
    replay: &Replay,
    libraries: &Libraries<'_>,
    stacks: &Stacks<'_>,
    device: u8,
    account: &Account,
    moment: Moment,
) -> DeviceLedger {
    let mut rows = holders::of_calls(replay, libraries, &moment.census);
    rows.extend(others(&moment.read));
    let held = held(&rows);
    let whole = basis(&moment.read, held);
    if whole.is_some_and(|whole| whole.source == Source::Nvml) {
        rows.extend(nvidia_reserve(&moment.read));
    }
    rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.asked_bytes)));
    let held = self::held(&rows);
    let missing = whole.map(|whole| whole.total_bytes - whole.free_bytes);
    let unattributed_bytes = missing.map(|missing| missing.saturating_sub(held));
    DeviceLedger {
        device: (device != NO_DEVICE).then_some(device),
        is_host: false,
        moment: moment.name,
        at_ns: replay.clock.at_ns(moment.at),
        total_bytes: whole.map(|whole| whole.total_bytes).or(replay.accounts.total_bytes(device)),
        free_bytes: whole.map(|whole| whole.free_bytes),
        free_by: whole.map(|whole| source_name(libraries, device, whole.source)),
        unattributed_bytes,
        unattributed_in_process_bytes: unattributed_bytes.and_then(|rest| in_process(&rows, &moment.read, rest)),
        returned_to_pools_bytes: moment.returned_to_pools_bytes,
        pools_keep_at_most_bytes: moment.pools_keep_at_most_bytes,
        overattributed_bytes: missing.map(|missing| held.saturating_sub(missing)).filter(|more| *more > 0),
        reserved_bytes: saturate(account.reserved_bytes),
        imported_bytes: saturate(account.imported_bytes),
        read_at_ns: moment.read_at.map(|at| replay.clock.at_ns(at)),
        readings: readings(libraries, device, &moment.read),
        allocated_by: callers::of_census(stacks, &moment.census, moment.most_callers),
        buffers: buffers::of_census(stacks, &moment.census),
        rows,
    }
}

fn held(rows: &[Row]) -> u64 {
    rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes))
}

/// The source whose total the ledger adds up to: the first that does not contradict the calls.
fn basis(read: &DeviceReadings, held: u64) -> Option<Whole> {
    let wholes = read.wholes();
    let fits = wholes.iter().find(|whole| held <= whole.total_bytes - whole.free_bytes);
    fits.or(wholes.first()).copied()
}

/// A row for a number that was read.
fn read_row(owner: &'static str, source: &'static str, bytes: u64) -> Row {
    Row {
        layer: None,
        owner,
        kind: Kind::Device.name(),
        bytes,
        asked_bytes: bytes,
        blocks: 0,
        api: None,
        library: None,
        source,
    }
}

/// What others hold, as far as somebody counts it. In no process's account of NVML are the driver's own memory, page tables and
/// pages of managed memory, this process's among them.
fn others(read: &DeviceReadings) -> Vec<Row> {
    let beyond = read.nvml_beyond_process_bytes();
    let listed = read.nvml_others_bytes.map(|others| beyond.map_or(others, |beyond| others.min(beyond)));
    let rest = beyond.map(|beyond| beyond.saturating_sub(listed.unwrap_or(0)));
    let rest_owner = if listed.is_some() { "in no process" } else { "not this process" };
    let rows = [
        read.others_vram_bytes.map(|bytes| read_row("other processes", "KFD", bytes)),
        read.graphics_vram_bytes.map(|bytes| read_row("graphics clients", "fdinfo", bytes)),
        listed.map(|bytes| read_row("other processes", "NVML", bytes)),
        rest.map(|bytes| read_row(rest_owner, "NVML", bytes)),
    ];
    rows.into_iter().flatten().filter(|row| row.bytes > 0).collect()
}

fn nvidia_reserve(read: &DeviceReadings) -> Option<Row> {
    read.nvml_reserved_bytes.filter(|bytes| *bytes > 0).map(|bytes| read_row("driver reserve", "NVML", bytes))
}

/// How much of the remainder is this process's: what the driver counts for it beyond the calls.
fn in_process(rows: &[Row], read: &DeviceReadings, rest: u64) -> Option<u64> {
    let process = read.in_use().filter(|in_use| in_use.of_process)?.bytes;
    let of_calls = rows.iter().filter(|row| row.source == "calls").fold(0u64, |sum, row| sum.saturating_add(row.bytes));
    Some(process.saturating_sub(of_calls).min(rest))
}

fn readings(libraries: &Libraries<'_>, device: u8, read: &DeviceReadings) -> Vec<ReadingRow> {
    let mut rows: Vec<ReadingRow> = read
        .wholes()
        .into_iter()
        .map(|whole| ReadingRow {
            source: source_name(libraries, device, whole.source),
            total_bytes: Some(whole.total_bytes),
            free_bytes: Some(whole.free_bytes),
            process_bytes: read.nvml_process_bytes.filter(|_| whole.source == Source::Nvml),
        })
        .collect();
    if read.process_vram_bytes.is_some() || read.kfd_available_bytes.is_some() {
        rows.push(ReadingRow {
            source: "KFD",
            total_bytes: None,
            free_bytes: read.kfd_available_bytes,
            process_bytes: read.process_vram_bytes,
        });
    }
    rows
}

/// The people's name of a source.
pub fn source_name(libraries: &Libraries<'_>, device: u8, source: Source) -> &'static str {
    match source {
        Source::Sysfs => "sysfs",
        Source::Kfd => "KFD",
        Source::Nvml => "NVML",
        Source::Runtime => match libraries.runtime_of(device) {
            Some("hip") => "hipMemGetInfo",
            Some("cuda") => "cudaMemGetInfo",
            _ => "the runtime",
        },
    }
}

/// A failure and its number, counted from 1.
type Numbered<'a> = (u64, &'a Oom);

/// The failures of a device whose holders were counted: the one that decides the verdict, if one does, and the others.
fn failures(replay: &Replay, side: Side, device: u8) -> (Option<Numbered<'_>>, Vec<Numbered<'_>>) {
    let here = |oom: &Oom| match side {
        Side::Host => Side::of(oom.kind) == Side::Host,
        _ => Side::of(oom.kind) != Side::Host && oom.device == Some(device),
    };
    let listed = (1..).zip(&replay.failures.listed);
    let mut of_device: Vec<Numbered<'_>> = listed.filter(|(_, oom)| here(oom) && oom.census.is_some()).collect();
    let telling = deciding(of_device.iter().map(|(_, oom)| oom.outcome)).map(|index| of_device.remove(index));
    of_device.truncate(MOST_FAILURES);
    (telling, of_device)
}
