//! What to do next: only what the trace shows to be useful, cheapest first.

use serde::Serialize;

use crate::diagnosis::case::Case;
use crate::options::effect::{Effect, judge};
use crate::passes::device::LargeBlock;
use crate::passes::outcomes::count_outcomes;
use crate::passes::summary::Summary;
use crate::passes::verdict::{Verdict, Why, device_of};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The program ignored a failure: look at the result of this function.
    CheckResult {
        /// The function.
        api: String,
    },
    /// Ask for less: no memory that could be freed would be enough.
    AskForLess {
        /// What is asked for beyond the size of the card.
        too_much_bytes: u64,
    },
    /// Set something up before the memory is full.
    SetUpEarlier {
        /// The function.
        api: String,
    },
    /// Give back, or do not take, this much.
    FreeSome {
        /// What is missing.
        missing_bytes: u64,
        /// The largest blocks at the peak.
        largest: Vec<LargeBlock>,
    },
    /// See who else is on the card.
    FindOthers {
        /// What others hold.
        others_bytes: u64,
        /// Runtime of the device.
        runtime: Option<String>,
    },
    /// Measure how much can be had, or how much is free.
    Measure {
        /// The setting of the recorder that does it.
        setting: &'static str,
        /// What it tells.
        tells: &'static str,
    },
    /// Pin less host memory.
    PinLess,
    /// The refusal was asked for.
    StopInjecting,
    /// The trace is not whole: look at its end first.
    RecordAgain,
}

/// A setting in the program's environment that is often copied and does not do what people hope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The variable and its value.
    pub setting: String,
    /// What is wrong with it.
    pub why: String,
}

/// What to do after a verdict.
pub fn advise(summary: &Summary, verdict: Verdict) -> Vec<Advice> {
    let mut advice = Vec::new();
    let Verdict::OutOfMemory { oom, why } = verdict else { return advice };
    let oom = &summary.ooms[oom];
    let device = device_of(summary, oom);
    if count_outcomes(&summary.ooms).dropped > 0 {
        advice.push(Advice::CheckResult { api: oom.api.clone() });
    }
    match why {
        Why::Injected => advice.push(Advice::StopInjecting),
        Why::Host => advice.push(Advice::PinLess),
        Why::LargerThanCard { total_bytes } => {
            advice.push(Advice::AskForLess { too_much_bytes: oom.requested_bytes.saturating_sub(total_bytes) });
        }
        Why::FullOfOwn { .. } if oom.unknown_size => advice.push(Advice::SetUpEarlier { api: oom.api.clone() }),
        Why::FullOfOwn { left_bytes, .. } => {
            let missing_bytes = oom.requested_bytes.saturating_sub(left_bytes);
            let largest = device.map_or(Vec::new(), |device| device.largest_at_peak.clone());
            advice.push(Advice::FreeSome { missing_bytes, largest });
        }
        Why::FullOfOthers { others_bytes, .. } => {
            let runtime = device.and_then(|device| device.runtime.clone());
            advice.push(Advice::FindOthers { others_bytes, runtime });
        }
        Why::FreeWasReported { .. } if oom.largest_allocatable_bytes.is_none() => advice.push(Advice::Measure {
            setting: "GPUOOM_PROBE=first",
            tells: "measures the largest block that can still be had at the failure",
        }),
        Why::FreeWasReported { .. } => {}
        Why::NotMeasured => advice.push(Advice::Measure {
            setting: "GPUOOM_SAMPLE=250ms",
            tells: "reads how much memory is free along the way and at each failure",
        }),
    }
    if !summary.damages.is_empty() || summary.trace.events_lost > 0 {
        advice.push(Advice::RecordAgain);
    }
    advice
}

/// Settings of the recorded environment that deserve a warning. What PyTorch's options do is judged where `doctor` and the
/// rules have it from.
pub fn warn(case: &Case<'_>) -> Vec<Warning> {
    let fixed = case.environment().iter().filter_map(|(name, value)| {
        let why = match name.as_str() {
            "HSA_OVERRIDE_GFX_VERSION" => "changes the instruction set that kernels are chosen for; it frees no memory",
            "HSA_XNACK" if value == "1" => {
                "page migration is not available on consumer cards; it frees no memory there"
            }
            _ => return None,
        };
        Some(Warning { setting: format!("{name}={value}"), why: why.to_owned() })
    });
    fixed.chain(of_allocator(case)).collect()
}

/// Options of PyTorch's allocator that do harm, or nothing.
fn of_allocator(case: &Case<'_>) -> Vec<Warning> {
    let Some(options) = case.allocator_options() else { return Vec::new() };
    let deserves = |effect| matches!(effect, Effect::Harmful | Effect::NoEffect | Effect::Refused);
    let judged = judge(&options.conf, case.allocator_setup()).into_iter().filter(|judged| deserves(judged.effect));
    judged
        .map(|judged| Warning { setting: format!("{}={}", options.chosen.variable, judged.option), why: judged.why })
        .collect()
}
