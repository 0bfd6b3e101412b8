//! J. The hardware: looked at only after everything else.

use super::{Rule, device};
use crate::diagnosis::case::Case;
use crate::evidence::kernel_log::{KernelEvent, KernelEventKind};
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::passes::device::DeviceSummary;
use crate::thresholds::share;
use crate::words::{count, gib, percent};

pub(super) const RULES: &[Rule] =
    &[device("retired-pages", retired_pages), device("suspect-hardware", suspect_hardware)];

/// Xid errors of the memory itself. (NVIDIA's list of Xid errors)
const MEMORY_XIDS: [u64; 6] = [48, 63, 64, 92, 94, 95];

/// The driver took bad pages out of use.
fn retired_pages(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let told = case.told_of(device).and_then(|card| card.retired_pages);
    let logged = case.kernel_says_of(device, |event| event.kind == KernelEventKind::BadPages);
    let holds = match told {
        Some(pages) => Holds::from(pages > 0).or(logged),
        None if logged == Holds::Yes => Holds::Yes,
        None => Holds::Unknown("bad pages (amd-smi bad-pages) or the kernel's log"),
    };
    if !check.applies(holds == Holds::Yes) {
        return;
    }
    check.must_by(Basis::Given, holds, || match told.filter(|pages| *pages > 0) {
        Some(pages) => format!("{} out of use", count(pages, "page is", "pages are")),
        None => "the kernel's log tells of bad pages".to_owned(),
    });
    let total = Known::new(device.runtime_total_bytes(), "the size of the device").zip(nominal(case, device));
    check.must(total.is(|(total, nominal)| total < nominal), || {
        let (total, nominal) = total.get().unwrap_or((0, 0));
        format!("the runtime offers {} of {}", gib(total), gib(nominal))
    });
}

/// What the board has: as the kernel found it, else as sysfs or a tool says.
fn nominal(case: &Case<'_>, device: &DeviceSummary) -> Known<u64> {
    let is_of_device = |event: &&KernelEvent| case.is_logged_of(device, event) == Some(true);
    let found = case.kernel_events().filter(|event| event.kind == KernelEventKind::VramAndBar).filter(is_of_device);
    let sizes = found.flat_map(|event| &event.sizes).filter(|(name, _)| *name == "vram");
    let logged = sizes.map(|(_, bytes)| *bytes).max();
    let of_card = case.card(device).and_then(|card| card.vram_total_bytes);
    let told = case.told_of(device).and_then(|card| card.total_bytes);
    Known::new(logged.max(of_card).max(told), "the size of the board (mem_info_vram_total)")
}

/// Errors of the memory itself.
fn memory_errors(case: &Case<'_>, device: &DeviceSummary) -> Holds {
    let told = case.told_of(device).and_then(|card| card.uncorrected_errors).map(|errors| Holds::from(errors > 0));
    let logged = case.kernel_says_of(device, |event| match event.kind {
        KernelEventKind::Xid => event.code.is_some_and(|code| MEMORY_XIDS.contains(&code)),
        kind => kind == KernelEventKind::BadPages,
    });
    told.unwrap_or(Holds::No).or(logged)
}

/// Last resort. That nothing else explains the failures is seen to by `diagnosis::last_resort`.
fn suspect_hardware(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let failures =
        case.failures().filter(|failure| failure.report.device == device.index && failure.is_real_of_device());
    let most = failures.map(|failure| failure.process_or_own_bytes()).max();
    let Some((most, total)) = most.zip(device.runtime_total_bytes()).filter(|(_, total)| *total > 0) else {
        check.applies(false);
        return;
    };
    check.at_most(Confidence::Possible);
    check.must(share(most, total) < case.thresholds.low_use_share, || {
        format!("memory was refused at {} of {} ({})", gib(most), gib(total), percent(share(most, total)))
    });
    let errors = memory_errors(case, device);
    let sizes = nominal(case, device).is(|nominal| !case.thresholds.is_near(nominal, total));
    let integrated = case.is_integrated(Some(device)).get() == Some(true);
    let sign = errors.or(if integrated { Holds::No } else { sizes });
    // Without any sign it is not even suspected.
    if !check.applies(sign == Holds::Yes) {
        return;
    }
    check.must(true, || match errors {
        Holds::Yes => "errors of the memory itself were reported (ECC, RAS)".to_owned(),
        _ => {
            let nominal = nominal(case, device).get().unwrap_or(0);
            format!("the runtime offers {} of a board of {}", gib(total), gib(nominal))
        }
    });
    check.would_settle("the same failure with another software stack, and on another machine");
}
