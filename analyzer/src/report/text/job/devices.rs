//! A row for each physical device: what its processes held together.

use super::{MOST_IN_FULL, has_ranks, host};
use crate::job::{Job, JobDevice, JobPeak, JoinedBy, Share};
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gib_number, moment, percent, size, span};

/// Processes that are named with their share.
const MOST_SHARES: usize = 4;

pub(super) fn write(page: &mut Page, job: &Job) {
    if job.devices.is_empty() {
        return;
    }
    let text = "the most that all processes held together at one moment (not the sum of their own peaks)";
    page.headed("DEVICES", Paint::Bold, text);
    let shown = shown(job);
    for index in &shown {
        write_one(page, job, &job.devices[*index]);
    }
    let rest =
        || (0..job.devices.len()).filter(|index| shown.binary_search(index).is_err()).map(|index| &job.devices[index]);
    let peaks = || rest().map(|device| device.peak.requested_bytes);
    if let (Some(least), Some(most)) = (peaks().min(), peaks().max()) {
        let devices = count(rest().count() as u64, "more device", "more devices");
        let refused = match rest().map(|device| device.failures).fold(0, u64::saturating_add) {
            0 => "nothing refused".to_owned(),
            number => count(number, "request was refused", "requests were refused"),
        };
        let text = format!("{devices}: peaks {} to {} GiB asked, {refused}", gib_number(least), gib_number(most));
        page.indented("  ", "    ", &text);
    }
    if job.devices.iter().any(|device| device.joined_by == JoinedBy::Index && device.users.len() > 1) {
        let text = "Processes that did not learn a bus id are joined by index, where they have the same host and the same \
                    *_VISIBLE_DEVICES.";
        page.indented("  ", "  ", text);
    }
    page.gap();
}

/// The devices that have a row: of many, those that refused, and the fullest.
fn shown(job: &Job) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..job.devices.len()).collect();
    if shown.len() > MOST_IN_FULL {
        let key = |index: &usize| {
            let device = &job.devices[*index];
            (std::cmp::Reverse((device.failures, device.peak.requested_bytes)), *index)
        };
        shown.sort_by_key(key);
        let refused = shown.iter().filter(|index| job.devices[**index].failures > 0).count();
        shown.truncate(refused.clamp(MOST_SHARES, MOST_IN_FULL));
        shown.sort_unstable();
    }
    shown
}

/// What a device is called.
pub(super) fn title(job: &Job, device: &JobDevice) -> String {
    let on = if job.clocks.len() > 1 { format!(" on {}", host(&device.hostname)) } else { String::new() };
    match (device.index, device.pci_bus_id.as_deref().map(clean)) {
        (Some(index), Some(bus)) => format!("GPU {index}{on} ({bus})"),
        (Some(index), None) => format!("GPU {index}{on}"),
        (None, Some(bus)) => format!("the GPU at {bus}{on}"),
        (None, None) => format!("a GPU{on}"),
    }
}

pub(super) fn at_most(peak: &JobPeak) -> &'static str {
    if peak.exact { "" } else { "at most " }
}

fn write_one(page: &mut Page, job: &Job, device: &JobDevice) {
    let peak = &device.peak;
    let of_card = device.total_bytes.filter(|total| *total > 0).map_or(String::new(), |total| {
        format!(" of {} ({})", size(total), percent(peak.requested_bytes as f64 / total as f64))
    });
    let users = count(device.users.len() as u64, "process", "processes");
    let mut text = match peak.requested_bytes {
        0 => format!("nothing was held; {users} used it"),
        bytes => format!("{}{} asked{of_card} at {}", at_most(peak), size(bytes), moment(peak.at_ns)),
    };
    if device.users.len() > 1 && peak.requested_bytes > 0 {
        text.push_str(&format!(", by {} of {users}: {}", peak.processes.len(), shares(job, &peak.processes)));
    }
    if device.failures > 0 {
        text.push_str(&format!("; {}", count(device.failures, "request was refused", "requests were refused")));
    }
    if !peak.exact {
        text.push_str(&format!("; changes within {} count as one", span(peak.resolution_ns)));
    }
    let title = title(job, device);
    let indent = " ".repeat(8);
    page.indented(&format!("  {title}  "), &indent, &text);
}

fn shares(job: &Job, shares: &[Share]) -> String {
    let one = |share: &Share| {
        let process = &job.processes[share.process];
        let rank = process.rank.filter(|_| has_ranks(job));
        let who = rank.map_or_else(|| format!("pid {}", process.pid), |rank| format!("rank {rank}"));
        format!("{who} {}", size(share.requested_bytes))
    };
    let mut parts: Vec<String> = shares.iter().take(MOST_SHARES).map(one).collect();
    if shares.len() > MOST_SHARES {
        let rest = shares[MOST_SHARES..].iter().fold(0u64, |sum, share| sum.saturating_add(share.requested_bytes));
        parts.push(format!("{} others {}", shares.len() - MOST_SHARES, size(rest)));
    }
    parts.join(", ")
}
