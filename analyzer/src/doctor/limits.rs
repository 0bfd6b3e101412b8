//! Limits of the process, of the kernel and of the container.

use super::finding::Finding;
use super::subject::Subject;
use crate::judgement::check::Confidence;
use crate::machine::Machine;
use crate::machine::cgroup::{CgroupLevel, DeviceMemory};
use crate::thresholds::{Thresholds, share};
use crate::words::{clean, count, gib, grouped, percent, size};

/// A limit of mappings or descriptors that is certainly enough, for the command that sets it.
const TO_SET: u64 = 1_048_576;

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    let (machine, thresholds) = (&subject.machine, &subject.thresholds);
    let has_amd = machine.nodes.iter().any(|node| node.is_gpu()) || machine.cards.iter().any(|card| card.is_amd());
    let has_gpu = has_amd || !machine.nvidia_gpus.is_empty() || !machine.cards.is_empty();
    if has_gpu {
        findings.extend(address_space(machine, thresholds));
        findings.extend(locked(machine, thresholds));
    }
    if has_amd {
        findings.extend(descriptors(machine, thresholds));
        findings.extend(mappings(machine, thresholds));
    }
    findings.extend(machine.cgroup_limit().and_then(|level| container(machine, level, thresholds)));
    findings.extend(machine.device_memory.iter().filter_map(|limit| device_memory(limit, thresholds)));
}

fn descriptors(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let limit = machine.limits.open_files?;
    let soft = limit.soft.filter(|soft| *soft < thresholds.good_descriptors)?;
    let to_set = limit.hard.map_or(TO_SET, |hard| hard.min(TO_SET));
    let higher = (to_set > soft).then(|| vec![format!("ulimit -n {to_set}")]);
    let finding = Finding::notice("vmm-fd-exhaustion", format!("a process may open {} files only", grouped(soft)))
        .with_confidence(Confidence::Possible)
        .because(format!("open files: soft limit {}, hard limit {}", grouped(soft), bound(limit.hard)))
        .because(
            "on ROCm 7.14 each handle of HIP's virtual memory (expandable segments too) holds a file: at the limit hipMemCreate \
             fails with much memory free",
        );
    Some(match higher {
        Some(commands) => finding.type_in("raise it before the start of the program", commands),
        None => finding.fix("raise the hard limit: LimitNOFILE= of the service, or /etc/security/limits.conf"),
    })
}

fn mappings(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let limit = machine.virtual_memory.max_map_count.filter(|limit| *limit < thresholds.good_mappings)?;
    Some(
        Finding::notice("map-count-exhaustion", format!("a process may have {} memory mappings only", grouped(limit)))
            .with_confidence(Confidence::Possible)
            .because(format!("vm.max_map_count is {}", grouped(limit)))
            .because(format!(
                "with ROCm an allocation takes about two: near {} live ones the next fails with much memory free",
                grouped(limit / 2)
            ))
            .type_in(
                "raise it, now and for good",
                vec![
                    format!("sudo sysctl -w vm.max_map_count={TO_SET}"),
                    format!("echo vm.max_map_count={TO_SET} | sudo tee /etc/sysctl.d/60-map-count.conf"),
                ],
            ),
    )
}

fn locked(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let limit = machine.limits.locked_bytes?;
    let soft = limit.soft.filter(|soft| *soft < thresholds.good_locked_bytes)?;
    Some(
        Finding::notice("pinned-host-exhaustion", format!("a process may lock {} only", size(soft)))
            .with_confidence(Confidence::Possible)
            .because(format!(
                "locked memory: soft limit {}, hard limit {}",
                size(soft),
                limit.hard.map_or("none".into(), size)
            ))
            .because("pinned buffers of some libraries count against it (RDMA, registered host memory)")
            .type_in("raise it before the start of the program", vec!["ulimit -l unlimited".into()]),
    )
}

fn address_space(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let soft = machine.limits.address_space_bytes?.soft.filter(|soft| *soft < thresholds.good_address_space_bytes)?;
    Some(
        Finding::problem("gpu-va-limit", format!("a process may use {} of addresses only", size(soft)))
            .with_confidence(Confidence::Probable)
            .because(format!("address space (ulimit -v): {}", size(soft)))
            .because("HIP and CUDA reserve addresses for the memory of all GPUs and of the host at their start")
            .type_in("take the limit away before the start of the program", vec!["ulimit -v unlimited".into()]),
    )
}

fn bound(limit: Option<u64>) -> String {
    limit.map_or("none".to_owned(), grouped)
}

/// A limit of the container's host memory.
fn container(machine: &Machine, level: &CgroupLevel, thresholds: &Thresholds) -> Option<Finding> {
    let limit = level.limit_bytes?;
    if machine.memory.total_bytes.is_some_and(|total| limit >= total) {
        return None;
    }
    let (hits, kills) = (level.limit_hits.unwrap_or(0), level.kills.unwrap_or(0));
    let used = level.used_bytes;
    let is_full = used.is_some_and(|used| share(used, limit) >= thresholds.count_share);
    let title = format!("this container may use {} of host memory", gib(limit));
    let finding = match is_full || kills > 0 {
        true => Finding::problem("cgroup-memory-limit", title),
        false => Finding::notice("cgroup-memory-limit", title),
    };
    let killed = (hits > 0 || kills > 0).then(|| {
        format!(
            "the limit was met {}, and the kernel killed {}",
            count(hits, "time", "times"),
            count(kills, "process", "processes")
        )
    });
    Some(
        finding
            .because(format!("{}: {}", clean(&level.path), gib(limit)))
            .because_of(machine.memory.total_bytes.map(|total| format!("the host has {}", gib(total))))
            .because_of(
                used.map(|used| format!("in use: {} ({})", gib(used), percent(used as f64 / limit.max(1) as f64))),
            )
            .because_of(killed)
            .because("loading a model takes host memory, and pinned memory counts too; video memory does not")
            .type_in(
                "give the container more, or none at all: a limit applies from its start on",
                vec!["docker run --memory 64g --shm-size 16g ...   # or without --memory".into()],
            ),
    )
}

/// A limit of device memory.
fn device_memory(limit: &DeviceMemory, thresholds: &Thresholds) -> Option<Finding> {
    let used = limit.used_bytes.unwrap_or(0);
    if limit.capacity_bytes.is_some_and(|capacity| limit.limit_bytes >= capacity) {
        return None;
    }
    let of = limit.pci_bus_id().unwrap_or(&limit.region);
    let title = format!("this container may use {} of the memory of {}", gib(limit.limit_bytes), clean(of));
    let is_full = share(used, limit.limit_bytes) >= thresholds.count_share;
    let finding = match is_full {
        true => Finding::problem("device-cgroup-limit", title),
        false => Finding::notice("device-cgroup-limit", title),
    };
    Some(
        finding
            .because(format!("{}/dmem.max: {} {}", clean(&limit.path), clean(&limit.region), gib(limit.limit_bytes)))
            .because_of(limit.used_bytes.map(|used| format!("in use: {}", size(used))))
            .because_of(limit.capacity_bytes.map(|capacity| format!("the device has {}", gib(capacity))))
            .type_in(
                "raise it",
                vec![format!("echo '{} max' | sudo tee {}/dmem.max", clean(&limit.region), clean(&limit.path))],
            ),
    )
}
