//! Who holds video memory now.

use super::finding::Finding;
use super::subject::{Owner, Subject};
use crate::judgement::check::Confidence;
use crate::machine::card::Card;
use crate::machine::kfd::KfdNode;
use crate::thresholds::share;
use crate::words::{clean, percent, size};

/// Processes that are named.
const NAMED: usize = 8;

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    for card in &subject.machine.cards {
        let Some(node) = subject.machine.node_of(card) else { continue };
        findings.extend(compute(subject, card, node));
        // An APU's carve-out is small, and its programs' memory is not in it.
        if node.is_integrated() != Some(true) {
            findings.extend(graphics(subject, card));
            findings.extend(unowned(subject, card, node));
        }
    }
    findings.extend(stuck(subject));
}

fn compute_bytes(subject: &Subject, node: &KfdNode) -> u64 {
    node.gpu_id.map_or(0, |gpu_id| subject.machine.kfd_bytes(gpu_id))
}

fn graphics_bytes(subject: &Subject, card: &Card) -> Option<u64> {
    let sums = subject.graphics.as_ref()?;
    Some(card.pci_bus_id.as_ref().and_then(|address| sums.bytes.get(address)).copied().unwrap_or(0))
}

/// Other processes that compute on the card.
fn compute(subject: &Subject, card: &Card, node: &KfdNode) -> Option<Finding> {
    let held = compute_bytes(subject, node);
    let total = node.local_bytes().max(card.vram_total_bytes.unwrap_or(0));
    if total == 0 || share(held, total) < subject.thresholds.others_share {
        return None;
    }
    let gpu_id = node.gpu_id?;
    let mut holders: Vec<(u64, u64)> =
        subject.machine.kfd_processes.iter().map(|process| (process.bytes_of(gpu_id), process.pid)).collect();
    holders.sort_unstable_by(|left, right| right.cmp(left));
    let named = holders.iter().filter(|(bytes, _)| *bytes > 0).take(NAMED);
    let rows = named.map(|(bytes, pid)| format!("{} holds {}", describe(subject, *pid), size(*bytes)));
    let part = percent(share(held, total));
    let mut finding = Finding::problem(
        "other-process-on-gpu",
        format!("other processes compute on {} and hold {part} of it", card.label()),
    )
    .because(format!("KFD: {} of {} are held", size(held), size(total)));
    for row in rows {
        finding = finding.because(row);
    }
    Some(finding.because("the numbers of processes are the host's; in a container they are others").fix(
        "end what is not needed, or choose another GPU: ROCR_VISIBLE_DEVICES (all programs) or HIP_VISIBLE_DEVICES",
    ))
}

fn describe(subject: &Subject, pid: u64) -> String {
    let name = subject.owners.iter().find(|owner| owner.pid == pid).and_then(|owner| owner.name.as_deref());
    name.map_or_else(|| format!("process {pid}"), |name| format!("process {pid} ({})", clean(name)))
}

/// Graphics clients, which HIP counts as free memory.
fn graphics(subject: &Subject, card: &Card) -> Option<Finding> {
    let bytes = graphics_bytes(subject, card).filter(|bytes| *bytes >= subject.thresholds.gap_notable_bytes)?;
    let closed = subject.graphics.as_ref().map_or(0, |graphics| graphics.closed_processes);
    let more = (closed > 0).then(|| "processes of other users could not be looked into: it may be more".to_owned());
    Some(
        Finding::notice(
            "free-overreported-graphics",
            format!("graphics clients hold {} of {}", size(bytes), card.label()),
        )
        .because(format!("fdinfo of their processes: {}", size(bytes)))
        .because("HIP counts this memory as free, so plan with that much less than hipMemGetInfo says")
        .because_of(more)
        .fix("close what is not needed (browser, games, video), or let another GPU drive the display"),
    )
}

/// Memory that is in use, and that nobody owns who could be found.
fn unowned(subject: &Subject, card: &Card, node: &KfdNode) -> Option<Finding> {
    if subject.machine.cut {
        // Not all holders were read: what seems to be nobody's may be theirs.
        return None;
    }
    let (used, total) = (card.vram_used_bytes?, card.vram_total_bytes?);
    let (compute, graphics) = (compute_bytes(subject, node), graphics_bytes(subject, card)?);
    let left = used.saturating_sub(compute).saturating_sub(graphics);
    if left < subject.thresholds.unowned_bytes {
        return None;
    }
    let (closed, silent) =
        subject.graphics.as_ref().map_or((0, 0), |graphics| (graphics.closed_processes, graphics.silent_processes));
    let title = format!("{} of {} are in use, and no process could be found that holds them", size(left), card.label());
    let finding = match closed + silent {
        0 => Finding::problem("zombie-vram", title).with_confidence(Confidence::Probable),
        _ => Finding::notice("zombie-vram", title).with_confidence(Confidence::Possible),
    };
    let who = (closed > 0).then(|| {
        format!(
            "{closed} processes of other users could not be looked into, the display's may be among them: try as root"
        )
    });
    let commands = vec![
        "sudo fuser -v /dev/kfd /dev/dri/renderD*".into(),
        "sudo kill PID          # then, if it stays: sudo kill -9 PID".into(),
    ];
    Some(
        finding
            .because(format!(
                "in use {} of {} (sysfs) - compute {} (KFD) - graphics {} (fdinfo) = {}",
                size(used),
                size(total),
                size(compute),
                size(graphics),
                size(left)
            ))
            .because_of(who)
            .type_in("see who has the card open, and end it by its number", commands)
            .fix("reap dead children of a container: start it with --init, stop it with SIGTERM first")
            .type_in(
                "when no process uses the card: reset it",
                vec![format!("sudo amd-smi reset -g {} -G", gpu_position(subject, card))],
            ),
    )
}

/// The number that AMD's tools give a card: its place among AMD's cards.
fn gpu_position(subject: &Subject, card: &Card) -> usize {
    let amd = subject.machine.cards.iter().filter(|other| other.is_amd());
    amd.take_while(|other| other.number != card.number).count()
}

/// Owners that are dead or stuck.
fn stuck(subject: &Subject) -> Option<Finding> {
    let state = |owner: &Owner| match owner.state {
        Some('Z') => Some("is dead, and its parent has not asked for its end (state Z)"),
        Some('D') => Some("waits inside the kernel and takes no signal (state D)"),
        Some('X') => Some("is dead (state X)"),
        _ => None,
    };
    let stuck: Vec<String> = subject
        .owners
        .iter()
        .filter_map(|owner| Some(format!("{} {}", describe(subject, owner.pid), state(owner)?)))
        .take(NAMED)
        .collect();
    let mut finding = (!stuck.is_empty())
        .then(|| Finding::problem("zombie-vram", "processes that hold GPU memory are dead or stuck"))?
        .with_confidence(Confidence::Probable);
    finding.evidence = stuck;
    Some(finding.fix("end the parent of a dead one; one that is stuck goes with a reset of the card, or a reboot"))
}
