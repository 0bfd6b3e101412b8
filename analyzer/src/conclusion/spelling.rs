//! How a fix is spelled on what runs, and whether it would do anything there.
//!
//! Options of PyTorch's allocator do nothing where its cache is off, or where another allocator does the work (PyTorch's
//! docs/source/notes/hip.rst). Parameters of the kernel's memory manager begin with `amdttm.` in AMD's out-of-tree driver.

use crate::catalogue::entry::{Fix, Spelling};
use crate::diagnosis::case::Case;
use crate::machine::uma::recommended_pages;
use crate::options::parse::AllocConf;
use crate::options::{VARIABLES, variable_to_set};
use crate::software::Platform;

/// How parameters of the kernel's memory manager for GPUs begin.
const TTM: &str = "ttm.";
/// The number that is to be filled in.
const PAGES: &str = "<pages>";

/// What a reading is called where both platforms have it: in general, on ROCm, on CUDA. A longer text stands before one that it contains.
const READINGS: &[[&str; 3]] = &[
    ["KFD's list of processes, nvidia-smi", "amd-smi process, rocm-smi --showpids", "nvidia-smi"],
    ["nvidia-smi, amd-smi process, rocm-smi --showpids", "amd-smi process, rocm-smi --showpids", "nvidia-smi"],
    ["KFD's list of processes", "KFD's list of processes", "nvidia-smi's list of processes"],
    ["KFD's list of them", "KFD's list of them", "nvidia-smi's list of them"],
    ["KFD or NVML", "KFD", "NVML"],
    ["KFD, NVML", "KFD", "NVML"],
    ["sysfs or NVML", "sysfs", "NVML"],
    ["sysfs, NVML or the runtime", "sysfs or the runtime", "NVML or the runtime"],
    ["amdgpu.vm_size, ulimit -v", "amdgpu.vm_size, ulimit -v", "ulimit -v"],
    ["HSA or KFD", "HSA or KFD", "the CUDA driver"],
    [" (KFD's topology)", " (KFD's topology)", ""],
    ["amdgpu's mem_info files, or NVML", "amdgpu's mem_info files", "NVML"],
    ["(KFD)", "(KFD)", "(NVML)"],
    ["fuser -v /dev/kfd /dev/dri/renderD*", "fuser -v /dev/kfd /dev/dri/renderD*", "fuser -v /dev/nvidia*"],
];

/// A reading that is missing, by what there is on this platform.
pub(super) fn reading(text: &str, platform: Option<Platform>) -> String {
    let column = match platform {
        Some(Platform::Rocm) => 1,
        Some(Platform::Cuda) => 2,
        _ => return text.to_owned(),
    };
    let row = READINGS.iter().find(|row| text.contains(row[0]));
    row.map_or_else(|| text.to_owned(), |row| text.replace(row[0], row[column]))
}

/// Whether a command is known to change nothing here.
pub(super) fn is_moot(command: &str, case: &Case<'_>) -> bool {
    options_are_moot(command, case) || is_the_only_device(command, case)
}

/// The allocator options that a command sets; `None` for another command.
fn allocator_options(command: &str) -> Option<AllocConf> {
    let (variable, text) = command.split_once('=')?;
    VARIABLES.contains(&variable).then(|| AllocConf::parse(text))
}

fn options_are_moot(command: &str, case: &Case<'_>) -> bool {
    let Some(wanted) = allocator_options(command) else { return false };
    if case.is_caching_off() {
        return true;
    }
    let Some(set) = case.allocator_options().filter(|options| options.chosen.is_certain) else { return false };
    let has = |key: &str, value: &str| set.conf.get(key) == Some(value);
    let is_set = !wanted.settings.is_empty() && wanted.settings.iter().all(|option| has(&option.key, &option.value));
    is_set || (set.conf.is_async() && wanted.get("backend").is_none())
}

/// A command that sets allocator options, by the variable that counts in this program.
fn with_variable(command: &str, case: &Case<'_>) -> String {
    let chosen = case.allocator_options().map(|options| options.chosen);
    match (allocator_options(command), command.split_once('=')) {
        (Some(_), Some((_, text))) => format!("{}={text}", variable_to_set(chosen.as_ref(), case.allocator_setup())),
        _ => command.to_owned(),
    }
}

/// Whether another device is asked for, and the machine has one GPU of AMD's.
fn is_the_only_device(command: &str, case: &Case<'_>) -> bool {
    let gpus = case.machine.nodes.iter().filter(|node| node.is_gpu()).count();
    command.starts_with("ROCR_VISIBLE_DEVICES=") && gpus == 1
}

/// Whether the machine tells how a command is spelled there.
pub(super) fn is_known(spelling: Spelling, case: &Case<'_>) -> bool {
    match spelling {
        Spelling::Ttm => case.machine.ttm.is_some(),
    }
}

/// The variables of `unset` that are set, where any of them is.
fn of_set_variables(command: String, case: &Case<'_>) -> String {
    let Some(names) = command.strip_prefix("unset ") else { return command };
    let is_set = |name: &&str| case.variable(name).is_some_and(|value| !value.is_empty());
    let set: Vec<&str> = names.split(' ').filter(is_set).collect();
    if set.is_empty() { command } else { format!("unset {}", set.join(" ")) }
}

/// A fix's command as this program and this machine's driver understand it, with the number of pages where it follows from the machine's memory.
pub(super) fn spelled(fix: &Fix, case: &Case<'_>) -> String {
    let mut command = of_set_variables(with_variable(&fix.command, case), case);
    if fix.spelling != Some(Spelling::Ttm) {
        return command;
    }
    if case.machine.ttm.is_some_and(|ttm| ttm.out_of_tree) {
        command = command.replace(TTM, &format!("amd{TTM}"));
    }
    let integrated = case.machine.cards.iter().any(|card| case.machine.is_integrated(card) == Some(true));
    match case.ram_bytes().get().filter(|_| integrated) {
        Some(ram) => command.replace(PAGES, &recommended_pages(ram, case.thresholds.host_keeps()).to_string()),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_parameters_of_the_memory_manager_say_so() {
        let fixes = || crate::catalogue::entries().flat_map(|entry| &entry.fixes);
        assert!(fixes().filter(|fix| fix.spelling == Some(Spelling::Ttm)).count() > 3);
        for fix in fixes() {
            let has_parameter = fix.command.contains(TTM) || fix.command.contains(PAGES);
            assert_eq!(fix.spelling == Some(Spelling::Ttm), has_parameter, "{}", fix.command);
        }
    }

    #[test]
    fn commands_that_set_allocator_options_are_known() {
        let fixes = crate::catalogue::entries().flat_map(|entry| &entry.fixes);
        for fix in fixes.filter(|fix| fix.command.contains("ALLOC_CONF=")) {
            let conf = allocator_options(&fix.command).unwrap_or_else(|| panic!("{}", fix.command));
            assert_eq!((conf.settings.len(), conf.malformed.len()), (1, 0), "{}", fix.command);
        }
    }
}
