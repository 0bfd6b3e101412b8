//! C. What the runtime and the kernel report of the same memory, and where they disagree.

use gpuoom_trace::metadata::Quantity;

use super::{Rule, device, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::torch_sums::TorchSums;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::judgement::role::Role;
use crate::machine::kfd::KfdNode;
use crate::passes::device::DeviceSummary;
use crate::software::Platform;
use crate::words::size;

pub(super) const RULES: &[Rule] = &[
    failure("free-overreported-graphics", free_overreported_graphics),
    failure("sysfs-free-overreported", sysfs_free_overreported),
    failure("reading-mismatch-benign", reading_mismatch_benign),
    device("bar-visible-limit", bar_visible_limit),
    failure("bar-visible-limit", window_is_full),
    run("gfx-override-active", gfx_override_active),
];

/// Whether a failure is of a card of AMD's with memory of its own, as far as that is known.
fn is_amd_card(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    is_rocm && failure.is_real_of_device() && case.is_integrated(failure.device).get() != Some(true)
}

/// Whether the failure's card is known to have memory of its own.
fn has_own_memory(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    case.is_integrated(failure.device).is(|is_integrated| !is_integrated)
}

/// HIP's free memory contains what graphics clients hold.
fn free_overreported_graphics(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let (Some(request), Some(runtime), Some(driver)) =
        (failure.request_bytes().get(), failure.runtime_free_bytes().get(), failure.driver_free_bytes().get())
    else {
        return;
    };
    let gap = runtime.saturating_sub(driver);
    check.must(case.is_read_of_card(failure), String::new);
    check.must(has_own_memory(case, failure), String::new);
    // Where both say that there was not enough, only a large gap is worth a word.
    let is_reported = request <= runtime;
    if !check.applies(is_amd_card(case, failure) && (is_reported || gap >= case.thresholds.gap_notable_bytes)) {
        return;
    }
    let noise = case
        .thresholds
        .gap_noise_bytes
        .max((failure.total_bytes().get().unwrap_or(0) as f64 * case.thresholds.gap_noise_share) as u64);
    let both = format!("HIP reported {} free and sysfs {}", size(runtime), size(driver));
    let holds = are_apart(case, failure, gap, noise);
    // Numbers that are not of one moment say nothing of each other.
    if !check.applies(!matches!(holds, Holds::Unknown(_))) {
        return;
    }
    check.decides(
        holds,
        || both.clone(),
        || match runtime < driver {
            true => format!("{both}: HIP does not call more free"),
            false => format!("{both}: they agree within {}", size(noise)),
        },
    );
    check.decides(
        failure.was_free(failure.driver_free_bytes(), |free| request > free),
        || format!("{} was asked for: more than sysfs calls free", size(request)),
        || format!("sysfs, too, called more free than the {} that was asked for", size(request)),
    );
    let beyond = failure.beyond_compute_bytes();
    check.must(beyond.is(|bytes| bytes as f64 >= case.thresholds.explained_share * gap as f64), || {
        format!("{} of the memory in use belong to no compute process", size(beyond.get().unwrap_or(0)))
    });
    held_by_graphics(case, failure, gap, check);
    let first =
        failure.oom.device.and_then(|device| case.replay.tracks.device(device)).and_then(|track| track.reads.first);
    let before = case.around(failure).and_then(|around| around.read_before);
    let others =
        [first, before].into_iter().flatten().filter_map(|read| read.read.others_vram_bytes).max().unwrap_or(0);
    if others > case.thresholds.gap_noise_bytes.max(failure.oom.read.others_vram_bytes.unwrap_or(0)) {
        // What comes and goes may have been on the card at one of the readings, and not at the other.
        check.at_most(Confidence::Possible);
        check.note(true, || format!("other compute processes had held {} before", size(others)));
    }
    if !is_reported {
        let strength = if gap >= case.thresholds.gap_warning_bytes { "a strong warning" } else { "a warning" };
        check.note(true, || {
            format!("{strength}, and not the whole reason: HIP, too, called less free than was asked for")
        });
        check.at_most(Confidence::Possible);
    }
}

/// Who holds it, as far as that may be read: the clients of other users can't be looked into.
fn held_by_graphics(case: &Case<'_>, failure: &Failure<'_>, gap: u64, check: &mut Check) {
    let graphics = failure.oom.read.graphics_vram_bytes.unwrap_or(0);
    let holds = match graphics as f64 >= case.thresholds.explained_share * gap as f64 {
        true => Holds::Yes,
        false => {
            Holds::Unknown("which graphics clients hold it (the report of a user who may look into all processes)")
        }
    };
    check.must(holds, || format!("graphics clients hold {}", size(graphics)));
    let shows = failure.device.and_then(|device| case.card(device)).and_then(|card| card.is_boot_display);
    if graphics == 0 && shows == Some(false) {
        check.at_most(Confidence::Possible);
    }
}

/// Whether two numbers of one reading are at least so far apart, whatever came or went while they were read.
fn are_apart(case: &Case<'_>, failure: &Failure<'_>, gap: u64, least: u64) -> Holds {
    let (by_all, by_own) = (case.read_apart_bytes(failure), case.read_apart_by_own_bytes(failure));
    match by_all.zip(by_own) {
        Some((by_all, _)) if gap.saturating_sub(by_all) >= least => Holds::Yes,
        Some((_, by_own)) if gap.saturating_add(by_own) < least => Holds::No,
        _ => Holds::Unknown("readings during which no memory comes or goes (GPUOOM_SAMPLE)"),
    }
}

/// A setting by which HIP reports less than there is.
fn hidden_by_setting<'a>(case: &Case<'a>) -> Option<(&'static str, &'a str)> {
    const SETTINGS: [&str; 2] = ["HIP_HIDDEN_FREE_MEM", "GPU_MAX_HEAP_SIZE"];
    let is_set = |(_, value): &(&str, &str)| !matches!(value.trim(), "0" | "100");
    SETTINGS.into_iter().filter_map(|name| Some((name, case.variable(name)?))).find(is_set)
}

/// sysfs shows more free memory than HIP.
fn sysfs_free_overreported(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(is_amd_card(case, failure)) {
        return;
    }
    check.must(case.is_read_of_card(failure), String::new);
    check.must(has_own_memory(case, failure), String::new);
    check.at_most(Confidence::Probable);
    let readings = failure.runtime_free_bytes().zip(failure.driver_free_bytes());
    // Without both there is no difference to speak of.
    let Some((runtime, driver)) = readings.get() else {
        check.applies(false);
        return;
    };
    let gap = driver.saturating_sub(runtime);
    check.must(are_apart(case, failure, gap, case.thresholds.gap_warning_bytes) == Holds::Yes, || {
        format!("sysfs reported {} free and HIP only {}", size(driver), size(runtime))
    });
    if check.is_over() {
        return;
    }
    if !failure.moved.others_were_read {
        check.would_settle("what other processes held right before these readings, and at them (KFD)");
    }
    let setting = hidden_by_setting(case);
    check.unless(setting.is_some(), || {
        let (name, value) = setting.unwrap_or_default();
        if name.is_empty() {
            "a setting hides memory from HIP".to_owned()
        } else {
            format!("{name}={value} hides memory from HIP")
        }
    });
    let request = failure.request_bytes().get().unwrap_or(0);
    let explains = runtime < request && request <= driver;
    if !explains {
        check.plays(Role::Condition);
    }
    what_accounts_for(gap, case, failure, check);
}

/// The known ways by which the kernel's answer to HIP is smaller.
fn what_accounts_for(gap: u64, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let (rounding, swapped) = (case.rounding_bytes(failure), failure.oom.read.gtt_used_bytes.unwrap_or(0));
    let accounts_for = |bytes: u64| bytes as f64 >= case.thresholds.explained_share * gap as f64;
    check.note_by(Basis::Estimated, accounts_for(rounding), || {
        let block = size(case.thresholds.rocr_block_bytes);
        format!(
            "many small blocks: rounded up to {block} they take at least {} more than was asked for",
            size(rounding)
        )
    });
    check.note(accounts_for(swapped), || {
        format!("{} of system memory are mapped for the GPU: buffers may have been evicted there", size(swapped))
    });
    if !accounts_for(rounding) && !accounts_for(swapped) {
        // One comes after the other: what moved in between, and was in no call, is in the one and not in the other.
        check.at_most(Confidence::Possible);
        check.would_settle("the counters of evicted buffers, and what the kernel calls available (rocminfo, debugfs)");
    }
}

/// Two tools disagree because they count different things.
fn reading_mismatch_benign(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    match cached_by_torch(case, failure) {
        Some(cached) => by_cache(&cached, failure, check),
        None if case.is_read_of_card(failure) == Holds::Yes && case.read_apart_bytes(failure) == Some(0) => {
            by_readings(failure, check);
        }
        None => _ = check.applies(false),
    }
}

/// What PyTorch holds and uses for no tensor, beside what is in use in all.
struct Cached<'a> {
    sums: TorchSums<'a>,
    in_use: u64,
    tensors: u64,
}

/// What the process has in use beyond its tensors, where PyTorch's cache explains it. Enough for the request is no harmless
/// difference: see caching-fragmentation.
fn cached_by_torch<'c>(case: &'c Case<'_>, failure: &Failure<'_>) -> Option<Cached<'c>> {
    let sums = case.torch_sums(failure).filter(|sums| sums.unused.most() < sums.tried.least())?;
    // What private pools keep in no tensor is neither.
    let (in_use, allocated) = (failure.process_bytes().get()?, sums.allocated?.bytes);
    let tensors = allocated.saturating_sub(sums.idle_private.map_or(0, |idle| idle.bytes));
    let beyond = in_use.saturating_sub(tensors);
    let explains = sums.unused.bytes as f64 >= failure.thresholds.explained_share * beyond as f64;
    (beyond >= failure.thresholds.gap_noise_bytes && explains).then_some(Cached { sums, in_use, tensors })
}

fn by_cache(cached: &Cached<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Cached { sums, in_use, tensors } = cached;
    let unexplained = in_use.saturating_sub(*tensors).saturating_sub(sums.unused.bytes);
    check.must_by(sums.basis(), true, || {
        let (by, tensors, in_use) = (sums.told.by(), size(*tensors), size(*in_use));
        let rest = match unexplained < failure.thresholds.gap_unseen_bytes {
            true => String::new(),
            false => format!(", all but {}", size(unexplained)),
        };
        let cached = size(sums.unused.bytes);
        format!(
            "{by}: tensors hold {tensors} of the {in_use} that the driver counts for this process; the rest is PyTorch's cache ({cached}){rest}"
        )
    });
    if !sums.is_certain() {
        check.at_most(Confidence::Probable);
        check.would_settle("PyTorch's message (--log), or a snapshot whose history has the failure");
    }
    let request = failure.request_bytes().get().unwrap_or(0);
    check.note(true, || format!("{} was asked for, which is more than the cache had", size(request)));
}

/// The two readings differ by what they count, and by no more.
fn by_readings(failure: &Failure<'_>, check: &mut Check) {
    let Some(gap) = failure.gap_bytes().get() else { return };
    let gap = u64::try_from(gap.unsigned_abs()).unwrap_or(u64::MAX);
    check.must((failure.thresholds.gap_unseen_bytes..failure.thresholds.gap_noise_bytes).contains(&gap), || {
        format!(
            "the runtime reported {} free and the driver {}: {} apart, which is accounting",
            size(failure.runtime_free_bytes().get().unwrap_or(0)),
            size(failure.driver_free_bytes().get().unwrap_or(0)),
            size(gap)
        )
    });
    let request = failure.request_bytes().zip(failure.runtime_free_bytes().zip(failure.driver_free_bytes()));
    check.unless(
        request.get().is_some_and(|(request, (runtime, driver))| {
            let between = runtime.min(driver) < request && request <= runtime.max(driver);
            between || failure.thresholds.is_enough(runtime, request) != failure.thresholds.is_enough(driver, request)
        }),
        || "the request lies between the two readings".to_owned(),
    );
}

/// The processor reaches only a part of the card's memory.
fn bar_visible_limit(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let Some(index) = device.index else { return };
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let is_other = !case.machine.cards.is_empty() && case.card(device).is_none();
    if !check.applies(is_rocm && !is_other && case.is_integrated(Some(device)).get() != Some(true)) {
        return;
    }
    // The window explains no failure by itself.
    check.plays(Role::Condition);
    let read = |quantity| case.device_series(quantity, index).map(|series| series.last.1);
    let card = case.card(device);
    let total = read(Quantity::VramTotal).or(card.and_then(|card| card.vram_total_bytes));
    let visible = read(Quantity::VisibleVramTotal).or(card.and_then(|card| card.visible_vram_total_bytes));
    let (Some(total), Some(visible)) = (total, visible) else { return };
    check.must(case.is_integrated(Some(device)).is(|is_integrated| !is_integrated), String::new);
    check.must(visible > 0 && visible < total.saturating_sub(case.thresholds.visible_slack_bytes), || {
        format!("the processor sees {} of {} of video memory", size(visible), size(total))
    });
}

/// The call that failed may have asked for memory that the processor reaches, and the window has too little left.
fn window_is_full(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    const MAY_ASK: &str = "hipExtMallocWithFlags";
    let Some(device) = failure.device.filter(|_| is_amd_card(case, failure)) else { return };
    let read = |quantity| case.device_series(quantity, device.index?).map(|series| series.last.1);
    let card = case.card(device);
    let total = read(Quantity::VramTotal).or(card.and_then(|card| card.vram_total_bytes));
    let visible = read(Quantity::VisibleVramTotal).or(card.and_then(|card| card.visible_vram_total_bytes));
    let Some((total, visible)) = total.zip(visible) else { return };
    let is_small = visible > 0 && visible < total.saturating_sub(case.thresholds.visible_slack_bytes);
    if !check.applies(is_small && failure.report.call() == MAY_ASK) {
        return;
    }
    let used = Known::new(read(Quantity::VisibleVramUsed), "what is in use of the window (mem_info_vis_vram_used)");
    let left = used.map(|used| visible.saturating_sub(used));
    let both = failure.request_bytes().zip(left);
    check.decides(
        both.is(|(request, left)| request > left),
        || {
            let (request, left) = both.get().unwrap_or((0, 0));
            format!("{} was asked for, and {} of the window of {} were left", size(request), size(left), size(visible))
        },
        || format!("{} of the window were left, which is enough", size(left.get().unwrap_or(0))),
    );
    check.must(
        Holds::Unknown("the flags of the call: fine-grained memory is what the processor must reach"),
        String::new,
    );
    let enough = failure.request_bytes().zip(failure.runtime_free_bytes());
    check.must(enough.is(|(request, free)| request <= free), || {
        format!("the card as a whole had {} free", size(failure.runtime_free_bytes().get().unwrap_or(0)))
    });
}

/// The environment says that the GPU is another one than it is.
fn gfx_override_active(case: &Case<'_>, check: &mut Check) {
    const NAME: &str = "HSA_OVERRIDE_GFX_VERSION";
    if !check.applies(case.versions.platform == Some(Platform::Rocm)) {
        return;
    }
    // ROCr reads the variable of the node first (libhsakmt topology.c). That of a node which is no GPU here sets nothing.
    let of_node = |name: &str| name.strip_prefix(NAME)?.strip_prefix('_')?.parse::<u64>().ok();
    let gpus = || case.machine.nodes.iter().filter(|node| node.is_gpu());
    let is_gpu = |number: u64| gpus().any(|node| node.number == number);
    let sets = |name: &str| match of_node(name) {
        Some(number) if gpus().next().is_some() => is_gpu(number).into(),
        Some(_) => Holds::Unknown("the nodes of the machine (KFD's topology)"),
        None => Holds::from(name == NAME),
    };
    let mut set = case.environment().iter().filter(|(name, value)| sets(name) != Holds::No && !value.is_empty());
    let Some((name, value)) = set.next() else { return };
    check.must(true, || format!("{name}={value} is in the environment"));
    check.must(sets(name), String::new);
    let major: Option<u64> = value.split('.').next().and_then(|major| major.trim().parse().ok());
    let concerns = |node: &&KfdNode| of_node(name).is_none_or(|number| node.number == number);
    let differs = |node: &&KfdNode| node.target().is_some_and(|(own, ..)| Some(own) != major);
    let other = gpus().filter(concerns).find(differs);
    check.note(other.is_some(), || {
        let target = other.and_then(KfdNode::target_name).unwrap_or_default();
        format!("serious: the machine has a {target}, which is of another family; wrong instructions, faults and resets follow")
    });
    check.would_settle("two runs, with and without it: total and free memory at idle");
}
