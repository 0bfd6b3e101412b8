//! Statements on one line: `peak <= 12G`, `peak[device=0] > base + 5%`, `dropped == 0`.

use gpuoom_trace::record::Kind;

use super::metric::{Unit, unknown};
use super::{COMPARISONS, Glob, Limit, Metric, Quantity, Rule, Scope};
use crate::words;

/// Longest statement.
const MAX_BYTES: usize = 8192;
/// Words in square brackets.
pub(super) const SCOPES: [&str; 9] = ["device", "host", "kind", "site", "each_site", "process", "rank", "mark", "job"];

/// Reads a statement.
///
/// # Errors
/// A sentence that says what is wrong and what is expected.
pub fn parse(text: &str) -> Result<Rule, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("a statement of {} bytes is too long: at most {MAX_BYTES}", text.len()));
    }
    let shown = || words::shorten(&words::clean(text), 60);
    if text.contains('[') && !text.contains(']') {
        return Err(format!("'{}' has no closing bracket", shown()));
    }
    // The first sign behind the scope, whose patterns may have any character.
    let behind_scope = text.rfind(']').map_or(0, |at| at + 1);
    let found = text[behind_scope..].find(['<', '>', '=', '!']).map(|at| at + behind_scope);
    let found = found.and_then(|at| {
        let sign = COMPARISONS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
        Some((&text[..at], sign.1, &text[at + sign.0.len()..]))
    });
    let Some((left, comparison, right)) = found else {
        return Err(format!(
            "'{}' compares nothing: write a metric, <=, <, >=, >, == or !=, and a limit, such as peak <= 12G",
            shown()
        ));
    };
    let (metric, scope) = subject(left.trim())?;
    let limit = limit(right.trim(), metric.unit())?;
    let rule = Rule { metric, scope, comparison, limit };
    check(&rule)?;
    Ok(rule)
}

fn subject(text: &str) -> Result<(Metric, Scope), String> {
    let Some((name, scope)) = text.split_once('[') else { return Ok((Metric::named(text)?, Scope::default())) };
    let Some(scope) = scope.strip_suffix(']') else {
        return Err(format!(
            "'{}': the scope in brackets ends before the sign",
            words::shorten(&words::clean(text), 60)
        ));
    };
    let metric = Metric::named(name.trim())?;
    let mut parsed = Scope::default();
    for part in scope.split(',') {
        let (key, value) = part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value.trim())));
        set(&mut parsed, key.trim(), value)?;
    }
    Ok((metric, parsed))
}

/// Sets one part of a scope.
pub(super) fn set(scope: &mut Scope, key: &str, value: Option<&str>) -> Result<(), String> {
    let needed = || value.ok_or_else(|| format!("'{key}' needs a value: {key}=..."));
    match key {
        "device" => {
            let device = needed()?.parse().ok().filter(|device| *device != u8::MAX);
            scope.device = Some(device.ok_or("device is the number of a device: 0, 1, ...")?);
        }
        "host" => scope.host = switch(key, value)?,
        "job" => scope.job = switch(key, value)?,
        "kind" => scope.kind = Some(kind(needed()?)?),
        "site" => scope.site = Some(Glob::new(needed()?)?),
        "each_site" => scope.each_site = Some(Glob::new(needed()?)?),
        "process" => scope.process = Some(Glob::new(needed()?)?),
        "rank" => scope.rank = Some(needed()?.parse().map_err(|_| "rank is a whole number: 0, 1, ...")?),
        "mark" => scope.mark = Some(Glob::new(needed()?)?),
        _ => return Err(unknown("scope", key, SCOPES.into_iter())),
    }
    Ok(())
}

/// A word that stands by itself, or with `true` or `false`.
fn switch(key: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(format!("{key} stands by itself, or with true or false")),
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    // A block of an allocator above the runtime is a part of what calls gave.
    let kinds = Kind::ALL.iter().filter(|kind| !matches!(kind, Kind::None | Kind::Tensor));
    let known = kinds.clone().find(|kind| kind.name() == name);
    known.copied().ok_or_else(|| unknown("kind of memory", name, kinds.map(|kind| kind.name())))
}

/// A number, or what is more than the base.
fn limit(text: &str, unit: Unit) -> Result<Limit, String> {
    let Some(more) = text.strip_prefix("base") else { return Quantity::parse(text, unit).map(Limit::Fixed) };
    let more = more.trim();
    if more.is_empty() {
        return Ok(Limit::OverBase(Quantity::Share(0.0)));
    }
    let Some(more) = more.strip_prefix('+') else {
        return Err("behind 'base' comes nothing, or + and how much more: base + 5%, base + 64M".to_owned());
    };
    Quantity::parse_growth(more, unit).map(Limit::OverBase)
}

/// What makes no sense together.
pub(super) fn check(rule: &Rule) -> Result<(), String> {
    let Rule { metric, scope, .. } = rule;
    let name = metric.name();
    let growth = matches!(metric, Metric::GrowthPerMark | Metric::GrowthPerSecond);
    let sentence = match metric {
        _ if scope.site.is_some() && scope.each_site.is_some() => "site and each_site can't stand together".to_owned(),
        _ if scope.host && scope.device.is_some() => "host and device can't stand together".to_owned(),
        _ if metric.of_tensors().is_some() && (scope.job || scope.host || scope.kind.is_some()) => {
            format!("{name} is known of each process's devices: leave out job, host and kind")
        }
        Metric::Reserved | Metric::Unused if scope.is_of_sites() => {
            format!("{name} is known of devices only: tensors is known of call sites")
        }
        _ if scope.job && (scope.is_of_sites() || scope.host) => {
            "a job is of whole processes: device, process and rank can narrow it".to_owned()
        }
        Metric::Pinned if scope.job => format!("{name} is known of each process only: leave out job"),
        _ if growth && scope.job => format!("{name} is known of each process only: leave out job"),
        Metric::EventsLost if scope.device.is_some() || scope.host || scope.is_of_sites() => {
            format!("{name} is a number of the whole process: only process and rank can narrow it")
        }
        Metric::Pinned if scope.device.is_some() => format!("{name} is host memory: no device has it"),
        _ if growth && (scope.is_of_sites() || scope.host) => {
            format!("{name} is known of devices only: device, process and rank can narrow it")
        }
        _ if scope.mark.is_some() && *metric != Metric::GrowthPerMark => {
            format!("mark belongs to growth_per_mark, not to {name}")
        }
        _ => return Ok(()),
    };
    Err(sentence)
}
