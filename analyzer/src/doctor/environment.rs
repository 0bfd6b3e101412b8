//! Options in the environment: without effect, misspelt, or harmful.

use super::finding::Finding;
use super::subject::Subject;
use crate::catalogue::distance;
use crate::judgement::check::Confidence;
use crate::machine::Machine;
use crate::options::effect::{Effect, Judgement, judge};
use crate::options::parse::AllocConf;
use crate::options::{Chosen, NO_CACHING, Setup, VARIABLES, choose};
use crate::software::Platform;
use crate::words::clean;

/// Variables about GPU memory that somebody reads: PyTorch, ROCr, the thunk, HIP, CUDA.
const KNOWN: [&str; 36] = [
    "AMD_LOG_LEVEL",
    "AMD_SERIALIZE_COPY",
    "AMD_SERIALIZE_KERNEL",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "GPU_MAX_ALLOC_PERCENT",
    "GPU_MAX_HEAP_SIZE",
    "GPU_MAX_HW_QUEUES",
    "GPU_SINGLE_ALLOC_PERCENT",
    "HIPBLAS_WORKSPACE_CONFIG",
    "HIP_HIDDEN_FREE_MEM",
    "HIP_LAUNCH_BLOCKING",
    "HIP_VISIBLE_DEVICES",
    "HSAKMT_DEBUG_LEVEL",
    "HSA_DISABLE_FRAGMENT_ALLOCATOR",
    "HSA_ENABLE_IPC_MODE_LEGACY",
    "HSA_ENABLE_SCRATCH_ASYNC_RECLAIM",
    "HSA_ENABLE_SDMA",
    "HSA_MAX_VA_ALIGN",
    "HSA_NO_SCRATCH_RECLAIM",
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_SCRATCH_SINGLE_LIMIT",
    "HSA_SCRATCH_SINGLE_LIMIT_ASYNC",
    "HSA_XNACK",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_NO_HIP_MEMORY_CACHING",
    "PYTORCH_ROCM_ARCH",
    "ROCR_VISIBLE_DEVICES",
];
/// Letters that a misspelt name may differ in.
const MISSPELT: usize = 2;
/// Variables that make devices look smaller or cap one allocation (ROCm/clr `rocclr/utils/flags.hpp`), with what leaves
/// everything as it is, and what they do.
const CAPS: [(&str, &str, &str); 4] = [
    ("GPU_MAX_HEAP_SIZE", "100", "HIP offers that share of the memory (per cent)"),
    ("GPU_MAX_ALLOC_PERCENT", "100", "one allocation may take that share of the memory (per cent, OpenCL)"),
    ("GPU_SINGLE_ALLOC_PERCENT", "100", "one allocation may take that share of the memory (per cent)"),
    ("HIP_HIDDEN_FREE_MEM", "0", "HIP reports that many MiB less as free"),
];

/// PyTorch's allocator.
pub(super) fn check_allocator(subject: &Subject, findings: &mut Vec<Finding>) {
    let setup = Setup { platform: platform(&subject.machine), ..Setup::default() };
    if let Some(chosen) = choose(|name| subject.variable(name), setup) {
        findings.extend(ignored(&chosen));
        // Where the version decides which of them counts, each is looked at.
        let others = chosen.ignored.iter().filter(|_| !chosen.is_certain);
        for variable in std::iter::once(&chosen.variable).chain(others) {
            let text = subject.variable(variable).unwrap_or_default();
            let set = format!("{variable}={}", clean(text));
            findings.extend(judge(&AllocConf::parse(text), setup).iter().filter_map(|one| option(one, &set)));
        }
    }
    for name in NO_CACHING {
        // Any value turns the cache off, also 0: PyTorch asks only whether the variable is set.
        if let Some(value) = subject.variable(name) {
            findings.push(
                Finding::notice("caching-disabled", "PyTorch's cache of GPU memory is turned off")
                    .because(format!("{name}={}", clean(value)))
                    .because("each tensor is an allocation of its own: slow, and the allocator's options mean nothing")
                    .type_in("outside of debugging", vec![format!("unset {name}")]),
            );
        }
    }
}

/// What PyTorch would compute on, where that is clear.
fn platform(machine: &Machine) -> Option<Platform> {
    let has_amd = machine.cards.iter().any(|card| card.is_amd()) || machine.nodes.iter().any(|node| node.is_gpu());
    match (has_amd, !machine.nvidia_gpus.is_empty()) {
        (true, false) => Some(Platform::Rocm),
        (false, true) => Some(Platform::Cuda),
        _ => None,
    }
}

fn ignored(chosen: &Chosen) -> Option<Finding> {
    let first = chosen.ignored.first()?;
    let finding = Finding::notice("expandable-ignored", "more than one variable configures PyTorch's allocator")
        .uncatalogued()
        .because(format!("{} and {} are set, and differ", chosen.variable, chosen.ignored.join(", ")))
        .because(format!(
            "they are not merged: {} counts for torch 2.9 and newer, {first} may count for older ones",
            chosen.variable
        ))
        .fix("set one of them, with all options");
    Some(finding)
}

fn option(judgement: &Judgement, set: &str) -> Option<Finding> {
    let option = clean(&judgement.option);
    let finding = match judgement.effect {
        Effect::Works => return None,
        // The version of PyTorch decides, and only a run knows it.
        Effect::Harmful => Finding::problem("expandable-with-max-split", format!("{option} is harmful here"))
            .with_confidence(Confidence::Probable),
        // A newer PyTorch may know more.
        Effect::Refused => Finding::problem("expandable-ignored", format!("PyTorch refuses {option} and stops"))
            .with_confidence(Confidence::Probable),
        Effect::NoEffect => Finding::notice("expandable-ignored", format!("{option} has no effect")),
        Effect::DependsOnVersion => {
            Finding::notice("expandable-ignored", format!("{option} has an effect in some versions only"))
                .with_confidence(Confidence::Possible)
        }
    };
    let key = option.split(':').next().unwrap_or_default().to_owned();
    let finding = Finding { id: judgement.diagnosis, ..finding }.because(set).because(clean(&judgement.why));
    Some(match judgement.effect {
        Effect::DependsOnVersion => finding.type_in(
            "see what PyTorch took",
            vec!["python3 -c 'import torch; print(torch.cuda.memory._snapshot()[\"allocator_settings\"])'".into()],
        ),
        _ => finding.fix(format!("take {key} out of the variable")),
    })
}

/// The runtimes' variables, and names that nobody knows.
pub(super) fn check_runtime(subject: &Subject, findings: &mut Vec<Finding>) {
    for (name, value) in &subject.environment {
        let found = match name.as_str() {
            "HSA_XNACK" if value == "1" => xnack(&subject.machine),
            _ if overrides(name) => gfx_override(&subject.machine, name, value),
            _ => cap(name, value).or_else(|| misspelt(name)),
        };
        findings.extend(found);
    }
}

/// `HSA_OVERRIDE_GFX_VERSION`, also `HSA_OVERRIDE_GFX_VERSION_1` for one node.
fn overrides(name: &str) -> bool {
    name.strip_prefix("HSA_OVERRIDE_GFX_VERSION")
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('_').is_some_and(|node| node.parse::<u32>().is_ok()))
}

fn gfx_override(machine: &Machine, name: &str, value: &str) -> Option<Finding> {
    let asked: Option<u64> = value.split('.').next().and_then(|major| major.trim().parse().ok());
    let of_node: Option<u64> = name.rsplit('_').next().and_then(|node| node.parse().ok());
    let gpus = machine.nodes.iter().filter(|node| node.is_gpu());
    // A variable for one node names it by KFD's number (libhsakmt `topology.c`).
    let meant = gpus.filter(|node| of_node.is_none_or(|number| node.number == number));
    let other: Vec<String> = meant
        .filter(|node| node.target().is_some_and(|(major, ..)| Some(major) != asked))
        .filter_map(|node| node.target_name())
        .collect();
    let set = format!("{name}={}", clean(value));
    let finding = match other.is_empty() {
        false => Finding::problem("gfx-override-active", "programs are told a GPU of another family")
            .because(format!("{set}, and the GPU is {}", other.join(", "))),
        true => Finding::notice("gfx-override-active", "programs are told another GPU").because(set),
    };
    Some(
        finding
            .because("it changes the instruction set that kernels are chosen for, not how much memory there is")
            .type_in("on a GPU that ROCm supports", vec![format!("unset {name}")])
            .fix("on one that it does not: choose the same family, such as 11.0.0 for RDNA3"),
    )
}

fn xnack(machine: &Machine) -> Option<Finding> {
    let rdna = machine.nodes.iter().find(|node| node.is_gpu() && node.is_rdna() == Some(true))?;
    Some(
        Finding::notice("xnack-ineffective", "XNACK is asked for, and the GPU does not have it")
            .because(format!("HSA_XNACK=1, and the GPU is {}", rdna.target_name()?))
            .because("only Instinct GPUs fetch memory on demand: nothing will be oversubscribed here")
            .type_in("it does nothing", vec!["unset HSA_XNACK".into()]),
    )
}

fn cap(name: &str, value: &str) -> Option<Finding> {
    let (_, neutral, does) = CAPS.iter().find(|(known, ..)| *known == name)?;
    (value.trim() != *neutral).then(|| {
        Finding::notice("single-alloc-cap", format!("{name} makes the GPU look smaller"))
            .because(format!("{name}={}: {does}", clean(value)))
            .type_in("if that is not wanted", vec![format!("unset {name}")])
    })
}

fn misspelt(name: &str) -> Option<Finding> {
    let is_known = KNOWN.contains(&name) || VARIABLES.contains(&name);
    if is_known || name.len() < 8 || name.len() > 64 {
        return None;
    }
    let (apart, meant) = KNOWN.iter().map(|known| (distance(name, known), *known)).min()?;
    (apart <= MISSPELT).then(|| {
        Finding::problem("expandable-ignored", format!("{} is a name that nobody reads", clean(name)))
            .uncatalogued()
            .with_confidence(Confidence::Probable)
            .because(format!("{} is set; the nearest name that means something is {meant}", clean(name)))
            .fix(format!("write {meant}"))
    })
}
