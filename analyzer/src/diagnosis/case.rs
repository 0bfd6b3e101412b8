//! What rules look at: a trace that was summed up, the state it left, and one failure with its figures.

use std::collections::BTreeMap;

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Kind, Layer, NO_DEVICE};

use crate::evidence::Evidence;
use crate::evidence::kernel_log::KernelEvent;
use crate::evidence::program_log::ProgramLine;
use crate::evidence::runtime_message::RuntimeSays;
use crate::evidence::torch_snapshot::Moment;
use crate::judgement::check::{Holds, Known};
use crate::machine::Machine;
use crate::passes::device::DeviceSummary;
use crate::passes::facts::Facts;
use crate::passes::fragmentation::saturate;
use crate::passes::moved::Moved;
use crate::passes::oom::OomReport;
use crate::passes::shape::Shapes;
use crate::passes::shape::run::DeviceRun;
use crate::passes::shape::tensors::TensorRun;
use crate::replay::Replay;
use crate::replay::failures::{Inside, Oom, RefusedBy};
use crate::replay::readings::Series;
use crate::replay::tracks::around::Around;
use crate::software::Platform;
use crate::software::Versions;
use crate::symbols::FrameKind;
use crate::thresholds::Thresholds;

const KERNEL_LOG: &str = "the kernel's log (--kernel-log)";
const STANDARD_ERROR: &str = "the program's standard error (--log), where the runtime says why it aborts";

/// What rules are asked about: the facts of one run, and where they come from.
pub struct Case<'a> {
    /// The trace.
    pub trace: &'a TraceFile,
    /// The state at its end.
    pub replay: &'a Replay,
    /// What is known of the run.
    pub facts: &'a Facts,
    /// What runs, and in which versions.
    pub versions: &'a Versions,
    /// The machine, as far as it is known.
    pub machine: &'a Machine,
    /// What was given beside the trace.
    pub evidence: &'a Evidence,
    /// The numbers by which rules decide.
    pub thresholds: &'a Thresholds,
    /// Where in a training or in serving the failures came.
    pub shapes: &'a Shapes,
    /// The devices over the whole run.
    pub runs: &'a [DeviceRun],
    /// PyTorch's tensors over the histories of its snapshots, where those have cycles.
    pub tensors: &'a [TensorRun],
    /// The out-of-memory errors in the histories of PyTorch's snapshots, each with the number of its snapshot.
    pub moments: &'a [(usize, Moment)],
}

impl<'a> Case<'a> {
    /// A run by its facts.
    pub fn new(trace: &'a TraceFile, replay: &'a Replay, facts: &'a Facts, evidence: &'a Evidence) -> Self {
        Case {
            trace,
            replay,
            facts,
            versions: &facts.versions,
            machine: &facts.machine,
            evidence,
            thresholds: &facts.thresholds,
            shapes: &facts.shapes,
            runs: &facts.runs,
            tensors: &facts.tensors,
            moments: &facts.moments,
        }
    }

    /// The recorded environment.
    pub fn environment(&self) -> &'a BTreeMap<String, String> {
        &self.facts.process.environment
    }

    /// A variable of the recorded environment that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&'a str> {
        self.environment().get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The share of a card that HIP is told to use, per cent, where that is not all.
    pub fn heap_percent(&self) -> Option<u64> {
        let is_rocm = self.versions.platform == Some(Platform::Rocm);
        let percent = self.variable("GPU_MAX_HEAP_SIZE").filter(|_| is_rocm)?;
        percent.trim().parse().ok().filter(|percent| *percent < 100)
    }

    /// A series of readings that belongs to no device.
    pub fn series(&self, quantity: Quantity) -> Option<&'a Series> {
        self.replay.readings.series(quantity, NO_DEVICE)
    }

    /// The series of a reading of a device.
    pub fn device_series(&self, quantity: Quantity, device: u8) -> Option<&'a Series> {
        self.replay.readings.series(quantity, device)
    }

    /// What was around a failure, where it is described.
    pub fn around(&self, failure: &Failure<'_>) -> Option<&'a Around> {
        self.replay.tracks.around.failure((failure.report.number - 1) as usize)
    }

    /// Whether a device uses the host's memory (an APU).
    pub fn is_integrated(&self, device: Option<&DeviceSummary>) -> Known<bool> {
        let by_machine = device.and_then(|device| self.node(device)?.is_integrated());
        Known::new(by_machine, "whether the GPU shares the host's memory (KFD's topology)")
    }

    /// Major, minor and stepping of a device's target, where KFD's topology tells it.
    pub fn target(&self, device: &DeviceSummary) -> Option<(u64, u64, u64)> {
        self.node(device)?.target()
    }

    /// Whether a device is of the RDNA family, where that is known.
    pub fn is_rdna(&self, device: &DeviceSummary) -> Option<bool> {
        self.node(device)?.is_rdna()
    }

    /// What the given logs of the kernel say.
    pub fn kernel_events(&self) -> impl Iterator<Item = &'a KernelEvent> {
        self.evidence.kernel_logs.iter().flat_map(|log| &log.content)
    }

    /// Whether a log of the kernel says this; not known where none was given.
    pub fn kernel_says(&self, what: impl FnMut(&KernelEvent) -> bool) -> Holds {
        match self.evidence.kernel_logs.is_empty() {
            true => Holds::Unknown(KERNEL_LOG),
            false => self.kernel_events().any(what).into(),
        }
    }

    /// Whether the runtime wrote this to the program's standard error; not known where no log of the program was given.
    pub fn runtime_said(&self, what: &[RuntimeSays]) -> Holds {
        let logs = &self.evidence.runtime_logs;
        match logs.is_empty() {
            true => Holds::Unknown(STANDARD_ERROR),
            false => logs.iter().flat_map(|log| &log.content).any(|message| what.contains(&message.says)).into(),
        }
    }

    /// What llama.cpp and vLLM wrote of memory into the logs that were given, each line with its file.
    pub fn program_lines(&self) -> impl Iterator<Item = (&'a str, &'a ProgramLine)> + use<'a> {
        let logs = self.evidence.program_logs.iter();
        logs.flat_map(|log| log.content.iter().map(|line| (&*log.path, line)))
    }

    /// Until when the process is known to have lived, in nanoseconds since the trace began.
    pub fn last_sign_of_life_ns(&self) -> u64 {
        let clock = &self.replay.clock;
        let marked = self.trace.header.clock_latest().map_or(0, |point| clock.at_ns(point.ticks));
        marked.max(clock.at_ns(self.replay.last_at))
    }

    /// When the program's last call for memory began, in nanoseconds since the trace began.
    pub fn last_call_ns(&self) -> Option<u64> {
        let calls = &self.replay.tracks.calls;
        calls.before(calls.count()).calls.last().map(|call| self.replay.clock.at_ns(call.at))
    }

    /// The least of what the runtime last reported free on any device.
    pub fn least_last_free(&self) -> Known<u64> {
        let last = |device: &DeviceSummary| Some(self.device_series(Quantity::RuntimeFree, device.index?)?.last.1);
        let least = self.facts.devices.iter().filter_map(last).min();
        Known::new(least, "free memory by the runtime before the end (GPUOOM_SAMPLE)")
    }

    /// RAM of the host, without what the firmware keeps.
    pub fn ram_bytes(&self) -> Known<u64> {
        let read = self.series(Quantity::HostTotal).map(|series| series.last.1);
        Known::new(self.machine.memory.total_bytes.or(read), "the host's memory (/proc/meminfo)")
    }

    /// What TTM, the kernel's memory manager for GPUs, gives of the RAM.
    pub fn ttm_limit_bytes(&self) -> Known<u64> {
        let limit = self.machine.ttm.and_then(|ttm| ttm.limit_bytes());
        Known::new(limit, "the TTM limit (/sys/module/ttm/parameters/pages_limit)")
    }

    /// The failures that are looked at, with their figures.
    pub fn failures(&self) -> impl Iterator<Item = Failure<'a>> + '_ {
        let both = self.facts.ooms.iter().zip(&self.replay.failures.listed);
        both.map(|(report, oom)| Failure::new(self, report, oom))
    }
}

/// One out-of-memory return with the figures of its moment. Short names of the catalogue are given in
/// brackets.
#[derive(Clone, Copy)]
pub struct Failure<'a> {
    /// As it is reported.
    pub report: &'a OomReport,
    /// As it was replayed.
    pub oom: &'a Oom,
    /// Its device.
    pub device: Option<&'a DeviceSummary>,
    /// What may have come or gone between the refusal and what was read of its moment.
    pub moved: Moved,
    /// Whether the GPU is known to share the host's memory.
    pub is_integrated: bool,
    /// Whether HIP is told to use a share of the card only.
    is_heap_limited: bool,
    /// The numbers by which rules decide.
    pub thresholds: &'a Thresholds,
}

impl<'a> Failure<'a> {
    fn new(case: &Case<'a>, report: &'a OomReport, oom: &'a Oom) -> Self {
        let device = case.facts.devices.iter().find(|device| device.index == report.device);
        let around = case.replay.tracks.around.failure((report.number - 1) as usize);
        let is_integrated = case.is_integrated(device).get() == Some(true);
        let moved = Moved::of(oom, around, is_integrated);
        let is_heap_limited = case.heap_percent().is_some();
        Failure { report, oom, device, moved, is_integrated, is_heap_limited, thresholds: case.thresholds }
    }

    /// Whether memory of the device itself was asked for.
    pub fn is_of_device(&self) -> bool {
        let is_device =
            matches!(self.oom.kind, Kind::Device | Kind::Managed | Kind::Array | Kind::Physical | Kind::Pool);
        // Physical memory and pools can lie in RAM. Where no device is known, nothing is said of a card.
        is_device && (!matches!(self.oom.kind, Kind::Physical | Kind::Pool) || self.oom.device.is_some())
    }

    /// Whether pinned or registered host memory was asked for.
    pub fn is_of_host(&self) -> bool {
        matches!(self.oom.kind, Kind::HostPinned | Kind::Registered)
    }

    /// Whether requests to the kernel's driver were recorded, and none of them was seen to be refused: then something above it refused.
    pub fn is_refused_above_kernel(&self) -> bool {
        self.oom.kernel_host_bytes > 0 && self.oom.refused_by != RefusedBy::Layer(Some(Layer::Kernel))
    }

    /// Whether the kernel's driver refused host memory for what is no memory of the card, such as managed memory and queues.
    pub fn is_of_host_below(&self) -> bool {
        let is_host = |inside: &Inside| {
            inside.layer == Layer::Kernel && matches!(inside.kind, Kind::HostPinned | Kind::Registered)
        };
        (self.oom.kind == Kind::Managed || self.oom.unknown_size) && self.oom.inside.as_ref().is_some_and(is_host)
    }

    /// Whether a buffer of the DRM was asked for on the card: the kernel may put it into GTT as well.
    pub fn is_of_drm(&self) -> bool {
        self.oom.kind == Kind::Managed && self.report.api.starts_with("DRM_")
    }

    /// Whether a buffer of the DRM was asked for in GTT: host memory for a card, which the kernel need not keep pinned.
    pub fn is_of_gtt(&self) -> bool {
        self.oom.kind == Kind::HostPinned && self.report.api.starts_with("DRM_")
    }

    /// Whether device memory was asked for and really refused.
    pub fn is_real_of_device(&self) -> bool {
        self.is_of_device() && !self.is_injected()
    }

    /// Whether the recorder refused it on request.
    pub fn is_injected(&self) -> bool {
        self.report.refused_by == Some("injected")
    }

    /// Whether an allocator above the runtime raised it by itself, as far as calls were recorded: nobody below refused anything.
    pub fn is_of_allocator_alone(&self) -> bool {
        self.oom.is_of_allocator_alone()
    }

    /// (`R`) What the runtime was asked for: of an error of PyTorch's a segment, by its last attempt.
    pub fn request_bytes(&self) -> Known<u64> {
        let inside = self.oom.inside.map(|inside| inside.requested_bytes).filter(|bytes| *bytes > 0);
        if self.report.pads_rows {
            return Known::new(inside, "what the rows take with their padding, which only a success tells");
        }
        Known::new(
            if self.report.unknown_size { inside } else { Some(self.oom.requested_bytes) },
            "the size of what was set up, which no interface tells",
        )
    }

    /// (`R`) At least: where rows are padded, what was asked for without that.
    pub fn least_request_bytes(&self) -> Known<u64> {
        match self.request_bytes().get() {
            None if self.report.pads_rows => Known::new(Some(self.oom.requested_bytes), "the size of the request"),
            _ => self.request_bytes(),
        }
    }

    /// (`T`) The device's memory as its runtime reports it, else as the driver does.
    pub fn total_bytes(&self) -> Known<u64> {
        let read = &self.oom.read;
        let total = read.runtime_total_bytes.or(self.device.and_then(|device| device.runtime_total_bytes()));
        Known::new(
            total.or(read.vram_total_bytes).or(read.nvml_total_bytes).filter(|total| *total > 0),
            "the size of the device",
        )
    }

    /// Whether `GPU_MAX_HEAP_SIZE` leaves HIP a share of the card.
    pub fn is_heap_limited(&self) -> bool {
        self.is_heap_limited
    }

    /// What the card itself has: `GPU_MAX_HEAP_SIZE` leaves HIP less of it.
    pub fn card_bytes(&self) -> Known<u64> {
        match self.oom.read.vram_total_bytes {
            None if self.is_heap_limited => Known::new(None, "the memory of the whole card (mem_info_vram_total)"),
            by_driver => self.total_bytes().map(|total| total.max(by_driver.unwrap_or(0))),
        }
    }

    /// (`F`) Free memory as the runtime reported it at the failure.
    pub fn runtime_free_bytes(&self) -> Known<u64> {
        Known::new(self.oom.read.runtime_free_bytes, "free memory by the runtime at the failure (GPUOOM_SAMPLE)")
    }

    /// (`F_sys`) Free memory as sysfs, or NVML, reported it at the failure.
    pub fn driver_free_bytes(&self) -> Known<u64> {
        let read = &self.oom.read;
        let free = |total: Option<u64>, used: Option<u64>| Some(total?.saturating_sub(used?));
        let free =
            free(read.vram_total_bytes, read.vram_used_bytes).or(free(read.nvml_total_bytes, read.nvml_used_bytes));
        Known::new(free, "used memory by the driver at the failure (sysfs or NVML)")
    }

    /// The smaller of the two: sizes are judged by it. Of a GPU that shares the host's memory the driver counts the carve-out alone.
    pub fn free_bytes(&self) -> Known<u64> {
        let (runtime, driver) = (self.runtime_free_bytes(), self.driver_free_bytes());
        if self.is_integrated && runtime.get().is_some() {
            return runtime;
        }
        runtime.zip(driver).map(|(runtime, driver)| runtime.min(driver)).or(runtime).or(driver)
    }

    /// (`L_dev + L_vmm`) What the program's own live blocks hold on the device. Managed memory is left out: its pages may lie in
    /// RAM.
    pub fn own_bytes(&self) -> u64 {
        saturate(self.oom.held.requested_bytes.saturating_sub(self.oom.held_managed_bytes))
    }

    /// What layers below hold of what the program's own calls for one kind of memory took, beyond what of it lives: rounding, and what was
    /// given back and kept. 0 also where no such layer was recorded, or nobody counted: then nothing is shown by it.
    pub fn kept_below_bytes(&self, kind: Kind) -> u64 {
        self.oom.census.as_ref().map_or(0, |census| saturate(census.beyond_own(kind)))
    }

    /// (`K_self`) This process's memory as the driver counts it (KFD, else NVML).
    pub fn process_bytes(&self) -> Known<u64> {
        let read = &self.oom.read;
        let counted = read.process_vram_bytes.filter(|bytes| *bytes > 0);
        Known::new(
            counted.or(read.nvml_process_bytes.filter(|bytes| *bytes > 0)),
            "this process's memory by the driver (KFD or NVML)",
        )
    }

    /// Whether Python code asked for it.
    pub fn is_called_from_python(&self) -> bool {
        self.report.stack.iter().any(|frame| frame.kind == FrameKind::Python)
    }

    /// (`hidden`) What the driver counts for this process beyond its own blocks. Managed memory may be among what it counts.
    pub fn hidden_bytes(&self) -> Known<u64> {
        // What other threads were given before it was read is asked for, too, and what they had begun to give back may have been there
        // still.
        let meanwhile = self.moved.given_bytes.saturating_add(self.moved.returned_bytes);
        let own = saturate(self.oom.held.requested_bytes).saturating_add(meanwhile);
        self.process_bytes().map(|process| process.saturating_sub(own))
    }

    /// What this process holds: its blocks, and what the driver counts beyond them where it does.
    pub fn process_or_own_bytes(&self) -> u64 {
        self.process_bytes().get().map_or(self.own_bytes(), |process| process.max(self.own_bytes()))
    }

    /// The same as far as it is of the refusal: what other threads were given since is in the driver's count, and in no block that
    /// lived then.
    pub fn process_or_own_bytes_at_refusal(&self) -> u64 {
        let own = self.own_bytes();
        self.process_bytes().get().map_or(own, |process| process.saturating_sub(self.moved.given_bytes).max(own))
    }

    /// (`U_sys`) Memory of the device in use by all, as the driver reports it.
    pub fn used_bytes(&self) -> Known<u64> {
        let read = &self.oom.read;
        Known::new(read.vram_used_bytes.or(read.nvml_used_bytes), "used memory by the driver (sysfs or NVML)")
    }

    /// (`other_compute`) Memory of other compute processes.
    pub fn other_compute_bytes(&self) -> Known<u64> {
        let read = &self.oom.read;
        // Recorders up to format 1.7 did not read whom NVML lists; what the driver has for itself is among the rest.
        let by_nvml = || read.nvml_others_bytes.or_else(|| read.nvml_beyond_process_bytes());
        Known::new(read.others_vram_bytes.or_else(by_nvml), "memory of other compute processes (KFD or NVML)")
    }

    /// [U_sys − K_all] Memory in use that no compute process holds.
    pub fn beyond_compute_bytes(&self) -> Known<u64> {
        let compute = self.process_bytes().zip(self.other_compute_bytes());
        let both = self.used_bytes().zip(compute);
        both.map(|(used, (process, others))| used.saturating_sub(process).saturating_sub(others))
    }

    /// (`external`) Memory in use that is not this process's.
    pub fn external_bytes(&self) -> Known<u64> {
        let beyond = self.used_bytes().zip(self.process_bytes()).map(|(used, process)| used.saturating_sub(process));
        match self.oom.read.nvml_others_bytes {
            Some(listed) => beyond.map(|beyond| beyond.min(listed)),
            None => beyond,
        }
    }

    /// The most that can be in use by others: all that is in use, or all that there is, but for what this process is known
    /// to hold.
    pub fn external_at_most_bytes(&self) -> Known<u64> {
        let beside_own = |bytes: u64| bytes.saturating_sub(self.process_or_own_bytes());
        let (used, total) = (self.used_bytes().map(beside_own), self.total_bytes().map(beside_own));
        used.zip(total).map(|(used, total)| used.min(total)).or(used).or(total)
    }

    /// (`gap_api`) Free memory by the runtime less free memory by sysfs: positive where the runtime is too optimistic.
    pub fn gap_bytes(&self) -> Known<i128> {
        let both = self.runtime_free_bytes().zip(self.driver_free_bytes());
        both.map(|(runtime, driver)| i128::from(runtime) - i128::from(driver))
    }
}
