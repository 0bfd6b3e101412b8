//! One run: a program, the machine that it runs on, what was done to it, and what is true of it.

use std::fs;

use gpuoom_tests::Library;

use crate::machine::Machine;
use crate::programs::{Program, Purpose};
use crate::rng::Rng;
use crate::script::{Kind, Model, Op, Part, Refusal, raw};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// What the program asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Hip,
    /// A CUDA runtime alone.
    CudaRuntime,
    /// A CUDA runtime, and the driver below it.
    CudaBoth,
    /// The CUDA driver alone.
    CudaDriver,
}

impl Platform {
    pub(crate) fn is_hip(self) -> bool {
        self == Platform::Hip
    }

    pub(crate) fn player(self) -> (&'static str, Library) {
        match self {
            Platform::Hip => ("scene_hip.c", Library::Hip),
            Platform::CudaRuntime => ("scene_cuda.c", Library::Cuda),
            Platform::CudaBoth => ("scene_cuda13.c", Library::CudaOverDriver),
            Platform::CudaDriver => ("scene_driver.c", Library::CudaDriver),
        }
    }
}

/// What the recorder can read besides the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The machine's files, and readings all the time.
    Full,
    /// The machine's files, and readings when something fails.
    AtFailures,
    /// Nothing of the machine, as in many containers.
    Blind,
}

/// What is true of a run, as it was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// Any of these may stand first. Empty: nothing is wrong, or nobody can know what.
    pub(crate) right: Vec<&'static str>,
    /// True besides.
    pub(crate) also: Vec<&'static str>,
    /// Whether calls and readings of this run are enough to tell.
    pub(crate) is_decidable: bool,
    /// Nothing is wrong with the program or with the machine.
    pub(crate) is_healthy: bool,
    /// Whether a call must be refused; none where it may or may not.
    pub(crate) fails: Option<bool>,
}

/// A run that is being made.
pub(crate) struct Case {
    pub(crate) rng: Rng,
    pub(crate) platform: Platform,
    pub(crate) sight: Sight,
    pub(crate) card_bytes: u64,
    /// What runtime and driver take for themselves on any day.
    pub(crate) context_bytes: u64,
    pub(crate) machine: Machine,
    pub(crate) settings: Vec<(&'static str, String)>,
    pub(crate) hip_version: u64,
    /// NVIDIA's management library is in the process, as it is in PyTorch's.
    pub(crate) has_nvml: bool,
    pub(crate) program: Program,
    /// Before the program's own beginning.
    pub(crate) before: Vec<Op>,
    /// Behind its end.
    pub(crate) after: Vec<Op>,
    pub(crate) sleep_ms: u64,
    pub(crate) truth: Truth,
}

/// A wait in which the recorder reads what is in use, also on a machine that is busy.
pub(crate) const READ_MS: u64 = 40;

/// HIP of ROCm 7.0 and of 6.4, as the runtime tells its version.
pub(crate) const HIP_7: u64 = 70_051_831;
pub(crate) const HIP_6: u64 = 60_443_483;

impl Case {
    /// A program without trouble, on a card that is large enough for it.
    pub(crate) fn random(mut rng: Rng, platform: Platform, purpose: Purpose, needs: &Needs) -> Self {
        let sight = match needs.sight {
            Some(sight) => sight,
            None => rng.pick(&[Sight::Full, Sight::Full, Sight::AtFailures, Sight::Blind]),
        };
        let card_bytes = rng.pick(&[8, 12, 16, 20, 24, 24, 32, 48, 80]) * GIB;
        let context_bytes = rng.pick(&[0, 60, 150, 280, 400]) * MIB;
        let devices = if needs.one_device { 1 } else { rng.pick(&[1, 1, 1, 2, 3]) };
        let can_be_async = !needs.no_async;
        let hip_version = if needs.no_async && rng.chance(0.3) { HIP_6 } else { HIP_7 };
        let program = Program::random(&mut rng, purpose, can_be_async, devices);
        let machine = match (platform, sight) {
            (_, Sight::Blind) => Machine::of(""),
            (Platform::Hip, _) => whole_card_of(card_bytes),
            _ => Machine::of("nvidia"),
        };
        let sleep_ms = match sight {
            Sight::Full => rng.pick(&[1, 2, 3]),
            _ => rng.pick(&[0, 0, 1]),
        };
        let has_nvml = !platform.is_hip() && sight != Sight::Blind && rng.chance(0.5);
        Case {
            rng,
            has_nvml,
            platform,
            sight,
            card_bytes,
            context_bytes,
            machine,
            settings: Vec::new(),
            hip_version,
            program,
            before: Vec::new(),
            after: Vec::new(),
            sleep_ms,
            truth: Truth::default(),
        }
    }

    /// With a setting of the simulator, or a variable of the program.
    pub(crate) fn set(&mut self, name: &'static str, value: impl ToString) {
        self.settings.push((name, value.to_string()));
    }

    /// What of a card the program may have in the end.
    pub(crate) fn usable(&self) -> u64 {
        self.card_bytes - self.context_bytes
    }

    /// So much of what may be had.
    pub(crate) fn share(&mut self, low: f64, high: f64) -> u64 {
        (self.usable() as f64 * self.rng.between(low, high)) as u64
    }

    /// Whether somebody tells what this process holds of the first card, and what others do. NVIDIA's library names processes
    /// by numbers that a container does not know.
    pub(crate) fn sees_processes(&self) -> bool {
        match self.platform {
            Platform::Hip => self.sight != Sight::Blind,
            _ => self.has_nvml && is_outside_of_containers(),
        }
    }

    /// Everything that the program does, in order, without waits.
    pub(crate) fn ops(&self) -> Vec<Op> {
        [self.before.clone(), self.program.ops(), self.after.clone()].concat()
    }

    /// The first request that is refused, where the cards give so much to all processes together.
    pub(crate) fn refusal(&self, limit_bytes: u64) -> Option<Refusal> {
        Model::of(&self.ops(), Some(limit_bytes)).refusal
    }

    /// The whole script.
    pub(crate) fn script(&self) -> Vec<Op> {
        let waits = self.program.steps.len().div_ceil(30).max(1);
        let mut ops = [self.before.clone(), self.program.setup.clone()].concat();
        ops.push(Op::Sleep(self.sleep_ms));
        for (number, step) in self.program.steps.iter().enumerate() {
            ops.extend(step.clone());
            if self.sleep_ms > 0 && number % waits == 0 {
                ops.push(Op::Sleep(self.sleep_ms));
            }
        }
        ops.extend(self.program.end.clone());
        ops.extend(self.after.clone());
        ops
    }

    /// Makes sure that there are so many steps: the last ones come again.
    pub(crate) fn at_least_steps(&mut self, count: usize) {
        let steps = &mut self.program.steps;
        let repeated = steps.last().cloned().filter(|step| keeps_nothing(step));
        while steps.len() < count {
            steps
                .push(repeated.clone().unwrap_or_else(|| vec![Op::Part(Part::Work), Op::At("step", vec![Op::Launch])]));
        }
    }

    /// What the program does with a refused call, in words of its own: it tells and ends, or tries again before it does.
    pub(crate) fn may_try_again(&mut self) {
        if self.rng.chance(0.2) {
            self.before.insert(0, raw("failures retry"));
        }
    }

    /// The names that are true of a refusal by what the program was doing.
    pub(crate) fn shapes(&self, refusal: &Refusal) -> Vec<&'static str> {
        let is_largest = refusal.bytes > refusal.largest_before;
        match (self.program.purpose, refusal.part) {
            (Purpose::Training, Part::Load) => vec!["oom-model-load", "training-state-exceeds-card"],
            (Purpose::Training, Part::FirstForward) => vec!["oom-first-forward", "fixed-vs-activation"],
            (Purpose::Training, Part::FirstBackward) => vec!["oom-first-backward", "fixed-vs-activation"],
            (Purpose::Training, Part::Optimizer) => vec!["oom-optimizer-step", "training-state-exceeds-card"],
            (Purpose::Training, Part::Work) if is_largest => vec!["oom-longest-batch", "fixed-vs-activation"],
            (Purpose::Training, Part::Work) => vec!["fixed-vs-activation", "oom-longest-batch", "oom-optimizer-step"],
            (Purpose::Llama, Part::Load) => vec!["oom-model-load"],
            (Purpose::Llama, Part::KvCache) => vec!["kv-cache-prealloc"],
            (_, Part::Work) if self.program.has_varying_temporaries => vec!["repeated-large-temporaries"],
            _ => Vec::new(),
        }
    }

    /// What is true of the software whatever happens.
    pub(crate) fn conditions(&self) -> Vec<&'static str> {
        let mut uses_new_calls = false;
        let mut ops = self.ops();
        crate::script::each(&mut ops, &mut |op| {
            uses_new_calls |= matches!(op, Op::Alloc { kind: Kind::Async | Kind::Virtual, .. });
        });
        let is_listed = self.platform.is_hip() && self.hip_version == HIP_6 && uses_new_calls;
        if is_listed { vec!["known-bad-version"] } else { Vec::new() }
    }
}

/// What a cause needs of the rest.
#[derive(Clone, Copy, Default)]
pub(crate) struct Needs {
    pub(crate) sight: Option<Sight>,
    pub(crate) one_device: bool,
    pub(crate) no_async: bool,
}

/// The number that Linux gives to the first namespace of processes.
fn is_outside_of_containers() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.to_string_lossy() == "pid:[4026531836]")
}

fn keeps_nothing(step: &[Op]) -> bool {
    let model = Model::of(step, None);
    (0..16).all(|device| model.held(device) == 0)
}

/// A card of that size: whatever tells its size agrees.
pub(crate) fn whole_card_of(bytes: u64) -> Machine {
    Machine::card()
        .with("sys/class/drm/card1/device/mem_info_vram_total", bytes)
        .with("sys/class/drm/card1/device/mem_info_vis_vram_total", bytes)
        .with(
            "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
            format!("heap_type 1\nsize_in_bytes {bytes}\nflags 0\nwidth 256\nmem_clk_max 1249"),
        )
}
