//! The rules: a file per chapter of the catalogue, a function per entry.
//!
//! A rule says with [`Check`] what must hold and what refutes it, always with the numbers. It decides no confidence by
//! itself: that follows from what held and what is missing.

mod allocator_options;
mod attention;
mod capacity;
mod ceilings;
mod counts;
mod errors;
mod exports;
mod forks;
mod fragmentation;
mod gtt;
mod hardware;
mod host;
mod installed;
mod leaks;
mod llama;
mod log;
mod model;
mod own_limit;
mod pending;
mod phantom_free;
mod platform;
mod pools;
mod releases;
mod reported;
mod retention;
mod rounding;
mod shapes;
mod training_state;
mod uma;
mod uses;

use super::case::{Case, Failure};
use crate::judgement::check::Check;
use crate::passes::device::DeviceSummary;

/// What a rule is asked about.
#[derive(Clone, Copy)]
pub enum Ask {
    /// Each out-of-memory return.
    Failure(fn(&Case<'_>, &Failure<'_>, &mut Check)),
    /// Each device.
    Device(fn(&Case<'_>, &DeviceSummary, &mut Check)),
    /// The run, once.
    Run(fn(&Case<'_>, &mut Check)),
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Id of its entry in the catalogue.
    pub id: &'static str,
    /// What it is asked about.
    pub ask: Ask,
}

/// A rule about a failure.
const fn failure(id: &'static str, ask: fn(&Case<'_>, &Failure<'_>, &mut Check)) -> Rule {
    Rule { id, ask: Ask::Failure(ask) }
}

/// A rule about the run.
const fn run(id: &'static str, ask: fn(&Case<'_>, &mut Check)) -> Rule {
    Rule { id, ask: Ask::Run(ask) }
}

/// A rule about a device.
const fn device(id: &'static str, ask: fn(&Case<'_>, &DeviceSummary, &mut Check)) -> Rule {
    Rule { id, ask: Ask::Device(ask) }
}

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        capacity::RULES,
        ceilings::RULES,
        uses::RULES,
        fragmentation::RULES,
        rounding::RULES,
        counts::RULES,
        phantom_free::RULES,
        pending::RULES,
        reported::RULES,
        exports::RULES,
        retention::RULES,
        pools::RULES,
        releases::RULES,
        allocator_options::RULES,
        leaks::RULES,
        errors::RULES,
        forks::RULES,
        installed::RULES,
        platform::RULES,
        gtt::RULES,
        uma::RULES,
        shapes::RULES,
        host::RULES,
        hardware::RULES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_about_entries_of_the_catalogue_and_each_has_one() {
        let mut seen = std::collections::HashSet::new();
        for rule in all() {
            assert!(crate::catalogue::find(rule.id).is_some(), "{}", rule.id);
            // One entry may have a rule about failures and one about the run.
            let about = std::mem::discriminant(&rule.ask);
            assert!(seen.insert((rule.id, about)), "{}: two rules", rule.id);
        }
    }
}
