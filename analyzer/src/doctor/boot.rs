//! Parameters of the kernel and of amdgpu: spelling and units.

use super::finding::Finding;
use super::subject::Subject;
use crate::machine::host::Parameter;
use crate::machine::{Machine, PAGE_BYTES};
use crate::options::parse::meant;
use crate::thresholds::Thresholds;

/// Parameters about memory that the modules have (Linux `amdgpu_drv.c`, `ttm_device.c`, `ttm_pool.c`).
const KNOWN: [&str; 14] = [
    "amdgpu.gartsize",
    "amdgpu.gttsize",
    "amdgpu.no_system_mem_limit",
    "amdgpu.noretry",
    "amdgpu.sg_display",
    "amdgpu.vis_vramlimit",
    "amdgpu.vm_block_size",
    "amdgpu.vm_fragment_size",
    "amdgpu.vm_size",
    "amdgpu.vm_update_mode",
    "amdgpu.vramlimit",
    "ttm.dma32_pages_limit",
    "ttm.page_pool_size",
    "ttm.pages_limit",
];
const ID: &str = "uma-param-mismatch";

pub(super) fn check(subject: &Subject, findings: &mut Vec<Finding>) {
    let machine = &subject.machine;
    findings.extend(machine.kernel_parameters.iter().filter_map(|parameter| spelling(machine, parameter)));
    findings.extend(vm_size(machine, &subject.thresholds));
    findings.extend(not_taken(machine));
    findings.extend(deprecated(machine, &subject.thresholds));
}

fn written(parameter: &Parameter) -> String {
    match &parameter.value {
        Some(value) => format!("{}={value}", parameter.name),
        None => parameter.name.clone(),
    }
}

/// A name that no module has, or that belongs to the other build of TTM.
fn spelling(machine: &Machine, parameter: &Parameter) -> Option<Finding> {
    let line = format!("the kernel's command line has {}", written(parameter));
    let module = parameter.name.split('.').next()?;
    let out_of_tree = machine.ttm.map(|ttm| ttm.out_of_tree);
    match (module, out_of_tree) {
        ("amdttm", Some(false)) => {
            let right = written(parameter).replacen("amdttm", "ttm", 1);
            let finding = Finding::problem(ID, format!("{} has no effect on this kernel", parameter.name));
            return Some(
                finding
                    .because(line)
                    .because("the module amdttm is not loaded: it belongs to AMD's out-of-tree driver (DKMS)")
                    .fix(format!("write {right}")),
            );
        }
        ("ttm", Some(true)) => {
            let right = format!("amd{}", written(parameter));
            let finding = Finding::problem(ID, format!("{} does not reach AMD's driver", parameter.name));
            return Some(
                finding.because(line).because("amdgpu uses the module amdttm here").fix(format!("write {right}")),
            );
        }
        _ => {}
    }
    let name = parameter.name.replace('-', "_");
    let known = name.replacen("amdttm.", "ttm.", 1);
    if !["amdgpu.", "ttm."].iter().any(|module| known.starts_with(module)) || KNOWN.contains(&known.as_str()) {
        return None;
    }
    // amdgpu has a hundred other parameters: only what is nearly one of those about memory is a mistake.
    let right = meant(&known, KNOWN).filter(|right| crate::catalogue::distance(&known, right) <= 2)?;
    let finding = Finding::problem(ID, format!("{} is no parameter of the kernel", parameter.name));
    Some(finding.because(line).because("the kernel passes over names that it does not know").fix(match right {
        "amdgpu.gttsize" => instead_of_gttsize(machine, parameter),
        _ => format!("{right} is meant?"),
    }))
}

/// The option that is meant is deprecated: the size of GTT follows the TTM limit, which counts pages.
fn instead_of_gttsize(machine: &Machine, parameter: &Parameter) -> String {
    let mib = parameter.value.as_deref().and_then(|value| value.trim().parse::<u64>().ok()).filter(|mib| *mib > 0);
    let prefix = machine.ttm.map_or("ttm", |ttm| ttm.prefix());
    let pages = mib.map(|mib| mib.saturating_mul(1 << 20) / PAGE_BYTES);
    let instead =
        pages.map_or_else(|| format!("{prefix}.pages_limit"), |pages| format!("{prefix}.pages_limit={pages}"));
    format!(
        "remove it: amdgpu.gttsize, which is meant, is deprecated; GTT follows the TTM limit ({instead} is as much)"
    )
}

fn vm_size(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let gib = machine.amdgpu_parameter("vm_size").filter(|gib| thresholds.is_absurd_vm_size(*gib))?;
    let finding = Finding::problem(ID, "amdgpu.vm_size has the wrong unit");
    Some(
        finding
            .because(format!("amdgpu.vm_size is {gib}; it counts GiB, so that is {} TiB of addresses", gib / 1024))
            .because("it sizes the GPU's address space, not its memory: no limit becomes larger by it")
            .fix("remove it from the kernel's command line and from /etc/modprobe.d: -1 (automatic) is right"),
    )
}

/// A limit on the command line that is not the one that holds.
fn not_taken(machine: &Machine) -> Option<Finding> {
    let ttm = machine.ttm?;
    let name = format!("{}.pages_limit", ttm.prefix());
    let asked = machine.kernel_parameters.iter().rev().find(|parameter| parameter.name == name)?;
    let (asked, holds) = (asked.value.as_deref()?.parse::<u64>().ok()?, ttm.pages_limit?);
    (asked != holds).then(|| {
        Finding::notice(ID, format!("{name} is not what the kernel's command line says"))
            .because(format!("the command line says {asked} pages, the module holds {holds}"))
            .fix("look for another value in /etc/modprobe.d, or for a tool that wrote it after the start")
    })
}

fn deprecated(machine: &Machine, thresholds: &Thresholds) -> Option<Finding> {
    let mib = machine.amdgpu_parameter("gttsize").filter(|mib| *mib > 0)?;
    // Where it contradicts the TTM limit another finding says so.
    let bytes = u64::try_from(mib).ok()?.saturating_mul(1 << 20);
    let agrees = machine.ttm.and_then(|ttm| ttm.limit_bytes()).is_some_and(|limit| thresholds.is_near(limit, bytes));
    agrees.then(|| {
        Finding::notice(ID, "amdgpu.gttsize is deprecated")
            .because(format!("amdgpu.gttsize is {mib} MiB; current kernels warn about it"))
            .fix("remove it: the size of GTT follows the TTM limit")
    })
}
