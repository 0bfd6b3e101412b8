//! Settings of the recorded environment that do not do what people hope.

use serde::Serialize;

use crate::diagnosis::case::Case;
use crate::options::effect::{Effect, judge};

/// A setting in the program's environment that is often copied and does not do what people hope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The variable and its value.
    pub setting: String,
    /// What is wrong with it.
    pub why: String,
}

/// Settings of the recorded environment that deserve a warning. What PyTorch's options do is judged where `doctor` and the
/// rules have it from.
pub(super) fn warn(case: &Case<'_>) -> Vec<Warning> {
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
