//! A. Ceilings that a runtime, a framework or a user has set below what the device has.

use super::own_limit::allocators_own_limit;
use super::{Rule, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::exceeded::{needs_probe, unless_exceeded};
use crate::diagnosis::since_refusal::AT_REFUSAL;
use crate::evidence::program_log::{ProgramLine, ProgramSays};
use crate::evidence::torch_message::{TorchMessage, judge};
use crate::evidence::torch_snapshot::Moment;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::passes::device::DeviceSummary;
use crate::replay::failures::RefusedBy;
use crate::software::{Platform, Program};
use crate::thresholds::MIB;
use crate::words::size;
use gpuoom_trace::record::Layer;

pub(super) const RULES: &[Rule] = &[
    failure("single-alloc-cap", single_alloc_cap),
    failure("process-fraction-cap", process_fraction_cap),
    run("process-fraction-cap", fraction_cap_by_message),
];

const MPS_SERVER: &str =
    "whether the program runs under an MPS server (nvidia-cuda-mps-control): without one the limit has no effect";
const BESIDE_REQUESTS: &str =
    "what rounding and the runtime itself add to the requests: it counts toward the limit, too";
/// Pool size up to which HIP gives a single block at most three quarters. (ROCm/clr rocdevice.cpp)
const SMALL_POOL_BYTES: u64 = 512 * MIB;

/// What would tell whether that variable limits the sum of what a process holds.
const HEAP_IS_SUM: &str = "the same run without GPU_MAX_HEAP_SIZE: HIP 6.4.3 gave more than that in several blocks when it was tried, and 5.7.1 ignored it";

/// The runtime refuses one large allocation by policy.
fn single_alloc_cap(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let both = failure.request_bytes().zip(failure.total_bytes());
    let Some((request, total)) = both.get() else { return };
    if is_rocm && failure.is_real_of_card() && above_heap(case, failure, request, total, check) {
        return;
    }
    if !check.applies(is_rocm && failure.is_real_of_card() && request <= total) {
        return;
    }
    let percent = single_alloc_percent(case, failure, total);
    let cap = (u128::from(total) * u128::from(percent) / 100) as u64;
    let ram = failure.oom.process.host_total_bytes.or(case.machine.memory.total_bytes);
    let over_cap = request > cap;
    check.must(over_cap || ram.is_some_and(|ram| request > ram), || match over_cap {
        true => format!(
            "{} was asked for at once, and a block may have {percent} % of {}: {}",
            size(request),
            size(total),
            size(cap)
        ),
        false => format!(
            "{} was asked for at once, which is more than the machine's {} of memory",
            size(request),
            size(ram.unwrap_or(0))
        ),
    });
    check.part(if over_cap { "percentage" } else { "physical memory" });
    if failure.is_integrated {
        check.part("an APU");
    }
    given_in_one_block(failure, if over_cap { cap } else { ram.unwrap_or(u64::MAX) }, check);
    refused_by_policy(case, failure, request, check);
}

/// Enough was free, a smaller block was given, and nothing below the runtime was asked.
fn refused_by_policy(case: &Case<'_>, failure: &Failure<'_>, request: u64, check: &mut Check) {
    check.unless(failure.was_free(failure.free_bytes(), |free| free < request), || {
        "less was free than was asked for, whatever the policy".to_owned()
    });
    check.decides(
        smaller_succeeded(case, failure, request),
        || "a smaller block could be had right after".to_owned(),
        || "smaller requests failed too".to_owned(),
    );
    let by_runtime = failure.oom.refused_by == RefusedBy::Layer(Some(Layer::Runtime));
    let below = match failure.oom.saw_below {
        true => Holds::from(!by_runtime),
        false => Holds::Unknown("calls below the runtime (HSA or KFD): whether it asked for the memory at all"),
    };
    check.unless(below, || "a layer below the runtime refused it, so it is no policy of the runtime".to_owned());
}

/// `GPU_MAX_HEAP_SIZE` leaves HIP a share of the card, and no block may be larger; HIP 6.4 gives more than that in several. Whether it was
/// so. (tried on 6.4.3)
fn above_heap(case: &Case<'_>, failure: &Failure<'_>, request: u64, total: u64, check: &mut Check) -> bool {
    let percent = case.heap_percent();
    let card = failure.card_bytes().get().unwrap_or(0);
    let (Some(percent), true) = (percent, total < request && request <= card) else { return false };
    check.must(true, || {
        format!(
            "{} was asked for at once; GPU_MAX_HEAP_SIZE={percent} leaves HIP {} of the card's {}, and a block may have no more",
            size(request),
            size(total),
            size(card)
        )
    });
    check.part("heap size");
    given_in_one_block(failure, total, check);
    refused_by_policy(case, failure, request, check);
    true
}

/// A cap on one block is none where a larger one was given before, or to the recorder's probe.
fn given_in_one_block(failure: &Failure<'_>, cap: u64, check: &mut Check) {
    let given = failure.oom.most.block_bytes;
    check.unless(given > cap, || match given > cap {
        true => format!("a block of {} had been given before", size(given)),
        false => format!("a block of more than {} had been given before", size(cap)),
    });
    if let Some(probed) = failure.oom.read.largest_allocatable_bytes {
        check.unless(probed > cap, || match probed > cap {
            true => format!("a block of {} could be allocated right after the failure", size(probed)),
            false => format!("a block of more than {} could be allocated right after the failure", size(cap)),
        });
        // The probe finds the largest block that is given: it would have come close to a cap that is all that refuses.
        let reached =
            probed.saturating_add(failure.moved.given_bytes).saturating_add(failure.thresholds.free_margin_bytes);
        check.unless(reached < cap, || {
            format!(
                "no block above {} was given right after the failure, and the policy allows {}",
                size(probed),
                size(cap)
            )
        });
    }
    needs_probe(failure, check);
}

/// `GPU_SINGLE_ALLOC_PERCENT`, or what HIP takes for it. (ROCm/clr flags.hpp, rocdevice.cpp)
fn single_alloc_percent(case: &Case<'_>, failure: &Failure<'_>, total: u64) -> u64 {
    let set = case.variable("GPU_SINGLE_ALLOC_PERCENT").and_then(|text| text.trim().parse().ok());
    let card = failure.device.and_then(|device| case.card(device));
    let is_gfx94 = card.and_then(|card| case.machine.node_of(card)).and_then(|node| node.target());
    let is_mi300a = is_gfx94.is_some_and(|(major, minor, _)| (major, minor) == (9, 4))
        && case.is_integrated(failure.device).get() == Some(true);
    let is_alone = case.machine.nodes.iter().filter(|node| node.is_gpu()).count() == 1;
    set.unwrap_or(match total {
        ..=SMALL_POOL_BYTES => 75,
        _ if is_mi300a && is_alone => 60,
        _ => 100,
    })
}

fn smaller_succeeded(case: &Case<'_>, failure: &Failure<'_>, request: u64) -> Holds {
    if let Some(largest) = failure.oom.read.largest_allocatable_bytes.filter(|largest| *largest < request) {
        let shows_nothing = failure.allocated_beyond_free().is_some();
        return if shows_nothing { Holds::Unknown(AT_REFUSAL) } else { (largest > 0).into() };
    }
    let next = case.around(failure).and_then(|around| around.next);
    match next.filter(|next| next.requested_bytes > 0 && next.requested_bytes < request) {
        Some(next) => next.succeeded.into(),
        None => Holds::Unknown("a smaller request right after it, or the probe (GPUOOM_PROBE)"),
    }
}

/// A setting of the runtime or of the driver keeps the process below what the card has.
fn process_fraction_cap(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if failure.is_of_allocator_alone() {
        return allocators_own_limit(case, failure, check);
    }
    if !check.applies(failure.is_real_of_card()) {
        return;
    }
    let Some(ceiling) = ceiling(case, failure) else { return };
    let Some(request) = failure.request_bytes().get() else { return };
    if ceiling.is_heap {
        // HIP 6.4.3 refuses one block above it, which is another diagnosis, and gives more than that in several; 5.7.1 does not look at it.
        if !check.applies(ceiling.limit_bytes.is_none_or(|limit| request <= limit)) {
            return;
        }
        check.at_most(Confidence::Possible);
        check.would_settle(HEAP_IS_SUM);
    }
    check.part("a setting of the runtime");
    check.must(true, || ceiling.text.clone());
    ceiling.missing.into_iter().for_each(|reading| check.must(Holds::Unknown(reading), String::new));
    // What the runtime reports may be lowered by the ceiling itself, and may count what others hold as free: only the driver's
    // counters say what the card had.
    let enough = |free: Known<u64>| failure.was_enough(free);
    let (by_driver, by_runtime) = (failure.driver_free_bytes(), failure.runtime_free_bytes());
    if by_driver.get().is_none() && enough(by_runtime) == Holds::Yes {
        check.at_most(Confidence::Probable);
        check.would_settle(by_driver.reading());
        let shown = size(by_runtime.get().unwrap_or(0));
        check.must(true, || format!("{shown} was free by the runtime, and {} refused", size(request)));
    } else {
        let shown = size(by_driver.get().unwrap_or(0));
        check.decides(
            enough(by_driver),
            || format!("{shown} was free by the driver's counters, and {} refused", size(request)),
            || format!("only {shown} was free by the driver's counters, whatever is set"),
        );
    }
    let wanted = failure.own_bytes().saturating_add(request);
    if let Some(reading) = ceiling.share_of_unknown {
        check.must(Holds::Unknown(reading), String::new);
        return;
    }
    let Some(limit) = ceiling.limit_bytes else {
        // What is hidden is only not reported.
        check.at_most(Confidence::Possible);
        return;
    };
    // What other threads gave back before the block was tried made room for it under the ceiling, too.
    let own = failure.own_bytes().saturating_sub(failure.moved.returned_bytes);
    let tried = failure.oom.read.largest_allocatable_bytes.filter(|_| !failure.moved.is_unsized);
    let tried = tried.map(|bytes| own.saturating_add(bytes));
    unless_exceeded(case, failure, limit, check);
    // The probe finds the largest block that is given: under this ceiling it would have come close to it.
    let usual = failure.total_bytes().get().map_or(0, |total| failure.thresholds.usual_overhead_bytes(total));
    let slack = usual.saturating_add(failure.moved.given_bytes).saturating_add(failure.moved.returned_bytes);
    check.unless(tried.is_some_and(|tried| tried.saturating_add(slack) < limit), || {
        "smaller blocks that the ceiling allows were refused, too".to_owned()
    });
    check.decides(
        exceeds(failure, wanted, limit),
        || format!("with the request the process would hold {}, and {} are allowed", size(wanted), size(limit)),
        || format!("the process would hold {}, and {} are allowed", size(wanted), size(limit)),
    );
}

/// Whether the program's own requests exceed the limit. What its runtime takes for it, and what requests are rounded to, counts toward
/// the limit, too: just below it nobody knows.
fn exceeds(failure: &Failure<'_>, wanted_bytes: u64, limit_bytes: u64) -> Holds {
    let usual = failure.total_bytes().get().map_or(0, |total| failure.thresholds.usual_overhead_bytes(total));
    match wanted_bytes {
        _ if wanted_bytes > limit_bytes => Holds::Yes,
        _ if wanted_bytes.saturating_add(usual) > limit_bytes => Holds::Unknown(BESIDE_REQUESTS),
        _ => Holds::No,
    }
}

struct Ceiling {
    /// It is `GPU_MAX_HEAP_SIZE`.
    is_heap: bool,
    text: String,
    limit_bytes: Option<u64>,
    /// Without what the ceiling has no effect, where that is not known.
    missing: Option<&'static str>,
    /// It is a share of something whose size is not known.
    share_of_unknown: Option<&'static str>,
}

/// A ceiling in the environment that the runtime or the driver keeps; one of another vendor's says nothing.
fn ceiling(case: &Case<'_>, failure: &Failure<'_>) -> Option<Ceiling> {
    match case.versions.platform? {
        Platform::Rocm => heap_ceiling(case, failure).or_else(|| hidden_free(case)),
        Platform::Cuda => mps_ceiling(case, failure.oom.device?),
    }
}

fn heap_ceiling(case: &Case<'_>, failure: &Failure<'_>) -> Option<Ceiling> {
    let percent = case.heap_percent()?;
    let all = failure.oom.read.vram_total_bytes;
    let limit_bytes = all.map(|all| (u128::from(all) * u128::from(percent) / 100) as u64);
    Some(Ceiling {
        is_heap: true,
        text: format!("GPU_MAX_HEAP_SIZE={percent} is set (per cent)"),
        limit_bytes,
        missing: None,
        share_of_unknown: limit_bytes.is_none().then_some("the memory of the whole card (mem_info_vram_total)"),
    })
}

/// What is hidden is only not reported: a program may keep to it, the runtime does not.
fn hidden_free(case: &Case<'_>) -> Option<Ceiling> {
    let hidden = number(case, "HIP_HIDDEN_FREE_MEM").filter(|mib| *mib > 0)?;
    let text = format!("HIP_HIDDEN_FREE_MEM={hidden} is set (MiB)");
    Some(Ceiling { is_heap: false, text, limit_bytes: None, missing: None, share_of_unknown: None })
}

/// A limit for another device is none.
fn mps_ceiling(case: &Case<'_>, device: u8) -> Option<Ceiling> {
    let text = case.variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")?;
    let limit_bytes = Some(mps_limit(text, device)?);
    let text = format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={text} is set");
    Some(Ceiling { is_heap: false, text, limit_bytes, missing: Some(MPS_SERVER), share_of_unknown: None })
}

fn number(case: &Case<'_>, name: &str) -> Option<u64> {
    case.variable(name)?.trim().parse().ok()
}

/// The limit of one device in `0=1G,1=512M`. (NVIDIA's documentation of MPS)
fn mps_limit(text: &str, device: u8) -> Option<u64> {
    let of_device = |part: &str| {
        let (index, size) = part.split_once('=')?;
        (index.trim().parse() == Ok(device)).then(|| size.trim().to_owned())
    };
    let size = text.split(',').find_map(of_device)?;
    // The documentation has a unit behind each number; what a number alone means is not said.
    size.ends_with(['G', 'M', 'g', 'm']).then(|| gpuoom_units::size(&size).ok())?
}

/// PyTorch compares with its own limit before it asks the driver: no call fails, and only its message tells.
fn fraction_cap_by_message(case: &Case<'_>, check: &mut Check) {
    let by_fraction = |message: &&TorchMessage| {
        judge(message, case.thresholds).findings.first().is_some_and(|first| first.id == "process-fraction-cap")
    };
    let Some(message) = case.messages().find(by_fraction) else { return fraction_by_snapshot(case, check) };
    check.part("an allocator's own limit");
    let shown = |printed: Option<crate::evidence::torch_message::Printed>| {
        printed.map_or("an unknown amount".to_owned(), |printed| size(printed.bytes))
    };
    check.must_by(Basis::Given, true, || {
        let (tried, allowed) = (shown(message.tried), shown(message.allowed));
        format!("PyTorch's message: {tried} was asked for, and {allowed} are allowed")
    });
    if !judge(message, case.thresholds).findings[0].certain {
        check.at_most(Confidence::Probable);
    }
    let of_failure = case.failure_of(message).and_then(|number| case.failures().nth((number - 1) as usize));
    // Then it is a matter of that very failure.
    if !check.applies(!of_failure.is_some_and(|failure| failure.is_of_allocator_alone())) {
        return;
    }
    check.unless(of_failure.is_some(), || "a device call of that size failed: the driver refused it".to_owned());
}

/// The same by a snapshot: its history has an error, and no device call failed.
fn fraction_by_snapshot(case: &Case<'_>, check: &mut Check) {
    let below = case.failures().filter(|failure| !failure.is_of_allocator_alone());
    let refused: Vec<&Moment> = below.filter_map(|failure| Some(case.moment(&failure)?.1)).collect();
    let all = case.moments.iter();
    let alone = all.filter(|(_, moment)| !refused.iter().any(|known| std::ptr::eq(*known, moment)));
    let had_room = |moment: &Moment| case.thresholds.is_enough(moment.driver_free_bytes, moment.requested_bytes);
    let Some((file, moment)) = alone.into_iter().find(|(_, moment)| had_room(moment)) else {
        return fraction_of_a_framework(case, check);
    };
    let (asked, free) = (size(moment.requested_bytes), size(moment.driver_free_bytes));
    check.part("an allocator's own limit");
    check.must_by(Basis::Given, true, || {
        format!("PyTorch's snapshot: it refused {asked} with {free} free, and no device call of that size failed then")
    });
    let wanted = moment.reserved_bytes.saturating_add(moment.requested_bytes);
    match allowed_by_torch(case, *file, moment.device) {
        Some((name, fraction, allowed)) => check.decides(
            wanted > allowed,
            || {
                let (wanted, allowed) = (size(wanted), size(allowed));
                format!("{name} {fraction} allows {allowed}, and with the request it would have reserved {wanted}")
            },
            || format!("{name} {fraction} allows {}, and it had reserved less", size(allowed)),
        ),
        None => check.must(
            Holds::Unknown(
                "the fraction that is set (torch.cuda.set_per_process_memory_fraction), or PyTorch's message (--log)",
            ),
            String::new,
        ),
    }
}

/// What PyTorch's allocator may hold of a device by its options: who says so, the fraction, and its bytes. A fraction that the
/// program sets by a call is in no option.
fn allowed_by_torch(case: &Case<'_>, snapshot: usize, device: u32) -> Option<(String, f64, u64)> {
    const OPTION: &str = "per_process_memory_fraction";
    let of_device = |summary: &&DeviceSummary| summary.index.map(u32::from) == Some(device);
    let total = case.facts.devices.iter().find(of_device)?.runtime_total_bytes()?;
    let settings = &case.evidence.torch_snapshots.get(snapshot)?.content.allocator_settings;
    let told = settings.iter().find(|(name, _)| name == OPTION).and_then(|(_, value)| value.trim().parse().ok());
    let by_options = || Some((case.allocator_options()?, OPTION));
    let set = || by_options().and_then(|(options, name)| options.conf.number(name));
    let fraction: f64 = told.or_else(set).filter(|fraction: &f64| (0.0..1.0).contains(fraction))?;
    Some((OPTION.to_owned(), fraction, (total as f64 * fraction) as u64))
}

/// Servers and frameworks that keep to a share of the card which the command line or the environment gives them: what says so,
/// and of which program.
const SHARES: [(&str, Option<Program>); 4] = [
    ("XLA_PYTHON_CLIENT_MEM_FRACTION", Some(Program::Jax)),
    ("--gpu-memory-utilization", None),
    ("--mem-fraction-static", None),
    ("--cuda-memory-fraction", None),
];

/// The value of an option on the command line: `--name value` or `--name=value`.
fn argument<'a>(case: &Case<'a>, name: &str) -> Option<&'a str> {
    let arguments = &case.facts.process.command_line;
    let value = |(place, argument): (usize, &'a String)| match argument.strip_prefix(name) {
        Some("") => arguments.get(place + 1).map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    };
    arguments.iter().enumerate().find_map(value)
}

/// vLLM ends without a failing call where its share of the card is not free, or leaves too little for its cache: its log says so.
fn share_by_log(case: &Case<'_>, (file, line): (&str, &ProgramLine), check: &mut Check) {
    let (part, text) = match &line.says {
        ProgramSays::LessFreeThanItsShare { free, total, share, wanted } => {
            let [free, total, wanted] = [free, total, wanted].map(|printed| size(printed.bytes));
            let text = format!("{free} of {total} was free when it started, and its share of {share} is {wanted}");
            ("a share that is not free", text)
        }
        ProgramSays::CacheTooSmall { needed, available } => {
            let [needed, available] = [needed, available].map(|printed| size(printed.bytes));
            let text = format!("one request needs {needed} of KV cache, and its share of the card leaves {available}");
            ("a share that leaves too little", text)
        }
        _ => ("a share that leaves too little", "its share of the card leaves nothing for the KV cache".to_owned()),
    };
    if !check.applies(case.facts.ooms.is_empty()) {
        return;
    }
    check.part(part);
    check.must_by(Basis::Given, true, || format!("vLLM's log ({file}, line {}): {text}", line.line));
    // The log may be of another start.
    check.must(case.replay.end.is_failure(), || "the program failed although no device call did".to_owned());
    check.at_most(Confidence::Probable);
    check.would_settle("whether that log is of this run");
}

/// A framework keeps to its share without a failing call: JAX, and servers such as vLLM and SGLang.
fn fraction_of_a_framework(case: &Case<'_>, check: &mut Check) {
    if let Some(said) = case.program_lines().find(|(_, line)| line.is_a_share_that_ended_it()) {
        return share_by_log(case, said, check);
    }
    let ends_badly = case.facts.ooms.is_empty() && case.replay.end.is_failure();
    let is_share = |text: &str| text.trim().parse::<f64>().is_ok_and(|share| (0.0..1.0).contains(&share));
    let set = SHARES.iter().filter(|(_, program)| program.is_none_or(|program| case.versions.has(program)));
    let set = set.filter_map(|(name, _)| Some((*name, case.variable(name).or_else(|| argument(case, name))?)));
    let Some((name, value)) = set.into_iter().find(|(_, value)| is_share(value)) else { return };
    if check.applies(ends_badly) {
        check.part("a setting of the runtime");
        check.at_most(Confidence::Possible);
        check.must(true, || format!("{name}={value} is set, and the program failed although no device call did"));
        check.would_settle("the program's own message");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn limits_of_mps_are_read_by_device() {
        assert_eq!(super::mps_limit("0=2G,1=512M", 1), Some(512 << 20));
        assert_eq!(super::mps_limit("0=2G", 0), Some(2 << 30));
        assert_eq!(super::mps_limit("0=2", 0), None);
        assert_eq!(super::mps_limit("", 0), None);
    }
}
