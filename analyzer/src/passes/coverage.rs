//! How much of the memory in use the trace accounts for, and whether an interface was bypassed.

use gpuoom_trace::meaning::Codes;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Layer, NO_DEVICE};
use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::ledger::source_name;
use crate::passes::libraries::{Libraries, is_runtime};
use crate::passes::oom::layer_name;
use crate::replay::Replay;
use crate::replay::apis::{Api, Family};
use crate::replay::comparison::Comparison;
use crate::replay::failures::RefusedBy;
use crate::replay::lower::Alone;
use crate::replay::readings::Source;
use crate::thresholds::{Thresholds, share};

const MIB: u64 = 1 << 20;

/// An interface that the trace must have missed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bypass {
    /// The interface.
    pub interface: String,
    /// What shows it.
    pub why: String,
    /// Bytes that are missing, where they are known.
    pub bytes: Option<u64>,
    /// Whether this can be nothing else. Where only upper layers were seen, what the driver counts beyond their calls may be the runtime's
    /// own memory.
    pub certain: bool,
}

/// One device at the moment when most was in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceCoverage {
    /// Device index.
    pub device: Option<u8>,
    /// The moment.
    pub at_ns: u64,
    /// What the calls account for.
    pub accounted_bytes: u64,
    /// What was in use.
    pub in_use_bytes: u64,
    /// Who says so.
    pub by: &'static str,
    /// Whether that is this process's share, and not that of all processes.
    pub of_process: bool,
    /// Managed memory that the program held, and that no layer below was seen to give: it is not in `accounted_bytes`, because its
    /// pages may lie in RAM.
    pub managed_bytes: u64,
}

/// How complete a trace is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// What the calls account for on all devices, each at the moment when most was in use.
    pub accounted_bytes: Option<u64>,
    /// What was in use at these moments; `None` where nobody read it.
    pub in_use_bytes: Option<u64>,
    /// Who says so.
    pub by: Option<&'static str>,
    /// Whether that is this process's share, and not that of all processes.
    pub of_process: bool,
    /// The share that is accounted for, at most 1.
    pub share: Option<f64>,
    /// The lowest layer whose calls are in the trace.
    pub lowest_layer: Option<&'static str>,
    /// Interfaces that were bypassed.
    pub bypassed: Vec<Bypass>,
    /// Whether somebody read how much was in use, if only that it was nothing.
    pub was_read: bool,
    /// Readings that say nothing of the calls, because memory came or went while they were taken.
    pub disturbed_readings: u64,
    /// Interfaces whose libraries are in the process and whose own calls are not recorded: what they refuse without asking a layer
    /// below is not seen.
    pub unrecorded: Vec<&'static str>,
    /// Device by device.
    pub devices: Vec<DeviceCoverage>,
}

/// The loader of OpenCL, through which its calls are recorded (since format 1.7) and by which nobody else's are.
const OPENCL_LOADER: &[&str] = &["libOpenCL"];

/// Interfaces that the recorder may have no hooks for, and how the file names of their loaders and drivers begin.
const UNRECORDED: [(&str, &[&str]); 2] =
    [("OpenCL", &["libOpenCL", "libamdocl", "libRusticlOpenCL", "libnvidia-opencl"]), ("Vulkan", &["libvulkan"])];

/// Judges a trace that was replayed to its end.
pub fn judge(trace: &TraceFile, replay: &Replay, libraries: &Libraries<'_>, thresholds: &Thresholds) -> Coverage {
    let devices = by_device(replay, libraries);
    let sum = |bytes: fn(&DeviceCoverage) -> u64| devices.iter().map(bytes).fold(0, u64::saturating_add);
    let known = |bytes: u64| (!devices.is_empty()).then_some(bytes);
    let (accounted, in_use) = (sum(|device| device.accounted_bytes), sum(|device| device.in_use_bytes));
    let first = devices.first().filter(|first| devices.iter().all(|device| device.by == first.by));
    Coverage {
        accounted_bytes: known(accounted),
        in_use_bytes: known(in_use),
        by: first.map(|first| first.by),
        of_process: devices.iter().all(|device| device.of_process),
        share: (in_use > 0).then(|| share(accounted, in_use).min(1.0)),
        lowest_layer: layer_name(lowest_layer(replay)),
        bypassed: bypassed(trace, replay, libraries, thresholds),
        was_read: replay.comparisons.values().any(|compared| compared.fullest.is_some()),
        disturbed_readings: replay.comparisons.values().map(|compared| compared.disturbed).sum(),
        unrecorded: unrecorded(trace, replay),
        devices,
    }
}

fn unrecorded(trace: &TraceFile, replay: &Replay) -> Vec<&'static str> {
    let files: Vec<&str> = trace.metadata.modules.modules.iter().map(|module| file_name(&module.path)).collect();
    let is_loaded = |names: &[&str]| files.iter().any(|file| names.iter().any(|name| file.starts_with(name)));
    let is_recorded = |interface: &str| {
        interface == Codes::OpenCl.name() && replay.apis.has_codes(Codes::OpenCl) && is_loaded(OPENCL_LOADER)
    };
    let unrecorded = UNRECORDED.iter().filter(|(interface, names)| is_loaded(names) && !is_recorded(interface));
    unrecorded.map(|(interface, _)| *interface).collect()
}

fn by_device(replay: &Replay, libraries: &Libraries<'_>) -> Vec<DeviceCoverage> {
    let fullest = replay.comparisons.iter().filter_map(|(device, compared)| Some((*device, compared.fullest?)));
    // Of a card that the program does not use, only its own share would mean something.
    let used = |device: &u8, comparison: &Comparison| {
        comparison.in_use.of_process || replay.accounts.device(*device).is_some()
    };
    fullest
        .filter(|(device, comparison)| used(device, comparison) && comparison.in_use.bytes > 0)
        .map(|(device, comparison)| DeviceCoverage {
            device: (device != NO_DEVICE).then_some(device),
            at_ns: replay.clock.at_ns(comparison.at),
            accounted_bytes: saturate(comparison.accounted_bytes),
            in_use_bytes: comparison.in_use.bytes,
            by: source_name(libraries, device, comparison.in_use.source),
            of_process: comparison.in_use.of_process,
            managed_bytes: match comparison.lowest {
                None | Some(Layer::Runtime) => saturate(comparison.managed_bytes),
                Some(_) => 0,
            },
        })
        .collect()
}

fn lowest_layer(replay: &Replay) -> Option<Layer> {
    let of_device = |device: u8| {
        let own = replay.accounts.device(device).into_iter().flat_map(|account| account.layers());
        own.chain(replay.lower.lowest(device)).max()
    };
    // A layer that only refused was seen, too.
    let refused = replay.failures.listed.iter().filter_map(|oom| match oom.refused_by {
        RefusedBy::Layer(layer) => layer.filter(|layer| *layer != Layer::Framework),
        RefusedBy::Injected => None,
    });
    replay.accounts.devices().filter_map(|(device, _)| of_device(device)).chain(refused).max()
}

fn bypassed(trace: &TraceFile, replay: &Replay, libraries: &Libraries<'_>, thresholds: &Thresholds) -> Vec<Bypass> {
    let mut found: Vec<Bypass> = past_the_hooks(trace, replay).collect();
    // Where records are missing, a free without its allocation proves nothing.
    if trace.header.events_lost == 0 && trace.header.torn == 0 && trace.damages().is_empty() {
        found.extend(unknown_frees(replay));
    }
    found.extend(requests_unseen(trace, replay));
    found.extend(unexplained(replay, libraries, thresholds));
    found.extend(replay.comparisons.iter().filter_map(|(device, compared)| {
        let gap = compared.lasting_gap.filter(|gap| gap.in_use.of_process)?;
        beyond_calls(libraries, *device, &gap, thresholds)
    }));
    found
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Another library has `ioctl` before the recorder, a device gave memory, and no request to a driver came through. Such a library may
/// answer requests itself; whether the vendor's libraries made any, nobody saw.
fn requests_unseen(trace: &TraceFile, replay: &Replay) -> Option<Bypass> {
    let first = trace.metadata.bypasses.bypasses.iter().find(|bypass| bypass.caller.is_empty())?;
    let devices = || replay.accounts.devices();
    let of_kernel = |layer| layer == Layer::Kernel;
    let came_through = replay.lower.gave_any(Layer::Kernel)
        || devices().any(|(_, account)| account.layers().any(of_kernel))
        || replay.accounts.host.layers().any(of_kernel);
    let has_given =
        devices().any(|(device, account)| account.calls.allocations > 0 || replay.lower.lowest(device).is_some());
    (has_given && !came_through).then(|| Bypass {
        interface: "the kernel's requests".to_owned(),
        why: format!(
            "{} leads to {} before it leads to the recorder, and no request for memory came through",
            first.function,
            file_name(&first.target)
        ),
        bytes: None,
        certain: false,
    })
}

/// The recorder saw references of a library that lead past its hooks.
fn past_the_hooks<'a>(trace: &'a TraceFile, replay: &'a Replay) -> impl Iterator<Item = Bypass> + 'a {
    let all = trace.metadata.bypasses.bypasses.iter().filter(|bypass| !bypass.caller.is_empty());
    all.map(move |bypass| Bypass {
        interface: replay.apis.named(&bypass.function).map_or("an interface", Api::interface).to_owned(),
        why: format!(
            "{} of the references of {} ({} among them) lead past the recorder to {}, as with RTLD_DEEPBIND",
            bypass.functions,
            file_name(&bypass.caller),
            bypass.function,
            file_name(&bypass.target),
        ),
        bytes: None,
        certain: true,
    })
}

/// Memory is given back that no recorded call gave.
fn unknown_frees(replay: &Replay) -> impl Iterator<Item = Bypass> {
    let own = replay.unmatched_by.iter().map(|(api, count)| (*api, *count));
    own.chain(replay.lower.unmatched()).filter(|(_, count)| *count > 0).map(|(api, count)| {
        let Api { name, .. } = replay.apis.get(api);
        let (frees, addresses) = if count == 1 { ("free", "an address") } else { ("frees", "addresses") };
        Bypass {
            interface: replay.apis.get(api).interface().to_owned(),
            why: format!("{count} {frees} ({name}) of {addresses} that no recorded call gave"),
            bytes: None,
            certain: true,
        }
    })
}

/// A runtime asks the layer below for much more than it needs for itself, and no call of the program explains it: the
/// program's calls did not pass the recorder.
fn unexplained(replay: &Replay, libraries: &Libraries<'_>, thresholds: &Thresholds) -> Vec<Bypass> {
    let rows: Vec<Alone> = replay.lower.taken_alone();
    let above_kernel = |layer: Layer| matches!(layer, Layer::Driver | Layer::Hsa);
    // Where the layer between was recorded, the program's own calls or those of a runtime, the kernel's calls outside of it are the
    // runtime's: scratch, queues, the local memory of kernels (a launch takes that: 4 GiB on an H200 for 16 KiB a thread).
    let between = |layer: Layer| matches!(layer, Layer::Driver | Layer::Hsa);
    let calls_it = |device: u8| replay.accounts.device(device).is_some_and(|account| account.layers().any(between));
    let gave = |device: u8| replay.lower.gave(device, Layer::Driver) || replay.lower.gave(device, Layer::Hsa);
    let has_between = |device: u8| gave(device) || calls_it(device);
    let of_runtime = |site: u32| libraries.of_site(site).is_none_or(is_runtime);
    let counts = |row: &&Alone| above_kernel(row.layer) || (row.layer == Layer::Kernel && !has_between(row.device));
    let mut sums = std::collections::BTreeMap::<(u8, Layer), (u128, u16)>::new();
    for row in rows.iter().filter(counts).filter(|row| of_runtime(row.site)) {
        let sum = sums.entry((row.device, row.layer)).or_insert((0, row.api));
        sum.0 += row.most_bytes;
    }
    let limit = u128::from(thresholds.hidden_bytes) + replay.graph_bytes();
    let large = sums.into_iter().filter(|(_, (bytes, _))| *bytes > limit);
    large
        .map(|((_, layer), (bytes, api))| {
            let name = &replay.apis.get(api).name;
            let mib = bytes / u128::from(MIB);
            Bypass {
                interface: above(layer, replay.apis.family(api)).to_owned(),
                why: format!(
                    "{mib} MiB were taken by {name} from inside the runtime, in no recorded call of the program"
                ),
                bytes: Some(saturate(bytes)),
                certain: true,
            }
        })
        .collect()
}

/// The driver counts more for this process than the calls of the lowest layer.
fn beyond_calls(libraries: &Libraries<'_>, device: u8, gap: &Comparison, thresholds: &Thresholds) -> Option<Bypass> {
    let by_kernel = gap.lowest == Some(Layer::Kernel) && gap.in_use.source == Source::Kfd;
    let (bytes, part) = match by_kernel {
        true => (thresholds.kernel_gap_bytes, thresholds.kernel_gap_share),
        false => (thresholds.upper_gap_bytes, thresholds.upper_gap_share),
    };
    // Nobody told where managed memory lay: all of it may be on the card.
    let managed = if by_kernel { 0 } else { saturate(gap.managed_bytes) };
    let tolerated = bytes.max((part * gap.in_use.bytes as f64) as u64).saturating_add(managed);
    let missing = gap.gap_bytes();
    (missing > tolerated).then(|| Bypass {
        interface: match gap.lowest {
            Some(Layer::Kernel) => "the kernel's requests".to_owned(),
            Some(layer) => format!("an interface beside or below {}", layer.name()),
            None => "all recorded interfaces".to_owned(),
        },
        why: format!(
            "{} counts {} MiB more for this process than its calls (tolerated: {} MiB)",
            source_name(libraries, device, gap.in_use.source),
            missing / MIB,
            tolerated / MIB
        ),
        bytes: Some(missing),
        certain: gap.lowest == Some(Layer::Kernel),
    })
}

/// The interface above a layer whose function was called.
fn above(layer: Layer, family: Family) -> &'static str {
    match layer {
        Layer::Hsa => "HIP",
        Layer::Driver => "the CUDA runtime",
        _ if family == Family::Nvidia => "CUDA",
        _ => "HIP or HSA",
    }
}
