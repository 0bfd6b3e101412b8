//! Whether a run keeps a rule, by how much not, and who is behind it.

use serde::{Serialize, Serializer};

use super::growth;
use super::{Limit, Metric, Per, Rule, Unit};
use crate::compare::{Difference, Pair, Presence, SiteDifference};
use crate::passes::profile::{Figure, Figures, Place, Profile};
use gpuoom_trace::record::Kind;

/// Call sites that are named for a rule that does not hold.
pub(super) const MOST_CULPRITS: usize = 3;

/// A run, and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// Both runs side by side; against nothing where there is no base.
    pub difference: &'a Difference,
    /// The run.
    pub new: &'a Profile,
    /// The base run.
    pub base: Option<&'a Profile>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The statement is true.
    True,
    /// The statement is not true.
    False,
    /// The trace does not tell.
    NotJudged,
}

/// Who is behind a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// Call site; of a job, the process.
    pub key: String,
    /// Its part of the number.
    #[serde(serialize_with = "whole")]
    pub value: f64,
    /// Its part in the base run; null without one.
    #[serde(serialize_with = "whole_or_null")]
    pub base: Option<f64>,
}

/// Bytes and counts are whole numbers in JSON; a rate may have a fraction.
fn whole<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match number.fract() == 0.0 && number.abs() < i64::MAX as f64 {
        true => serializer.serialize_i64(*number as i64),
        false => serializer.serialize_f64(*number),
    }
}

fn whole_or_null<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => whole(number, serializer),
        None => serializer.serialize_none(),
    }
}

/// A rule, applied to one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The rule as a statement.
    pub rule: String,
    /// What was measured, in words: `peak of GPU 0`.
    pub subject: String,
    /// What was found.
    #[serde(skip)]
    pub verdict: Verdict,
    /// Why nothing was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_judged_because: Option<String>,
    /// The number.
    #[serde(serialize_with = "whole_or_null")]
    pub value: Option<f64>,
    /// What it is compared with.
    #[serde(serialize_with = "whole_or_null")]
    pub limit: Option<f64>,
    /// The base run's number, where the limit depends on it.
    #[serde(serialize_with = "whole_or_null")]
    pub base: Option<f64>,
    /// What the numbers count.
    pub unit: Unit,
    /// How they are compared: a sign.
    pub comparison: &'static str,
    /// The call sites that have most of it, or that grew most.
    pub culprits: Vec<Culprit>,
    /// Those are call sites by which PyTorch's allocator got segments, and not who keeps what lies in them.
    #[serde(skip)]
    pub of_segments: bool,
    /// Those are the lines whose blocks become more, with what they hold where their growth was judged.
    #[serde(skip)]
    pub of_blocks: bool,
}

/// What a rule is applied to.
pub(super) struct Subject<'a> {
    pub(super) words: String,
    pub(super) value: Result<f64, String>,
    pub(super) base: Result<f64, String>,
    pub(super) sites: Vec<&'a SiteDifference>,
    /// Who is behind it, where no call site tells.
    pub(super) culprits: Vec<Culprit>,
}

/// Applies a rule: to each device where it does not say which, to each call site where it says so.
pub fn judge(rule: &Rule, sides: &Sides<'_>) -> Vec<Judged> {
    let judge = |subject: Subject| {
        let known = subject.culprits.clone();
        let has_segments = |site: &&SiteDifference| {
            let mut places = sides.difference.places.iter();
            places.any(|place| place.place == site.place && place.has_segments())
        };
        let is_bytes = matches!(rule.metric.unit(), Unit::Bytes | Unit::Rate);
        let of_segments = is_bytes && known.is_empty() && subject.sites.iter().any(has_segments);
        let of_blocks = !known.is_empty();
        let culprits = if of_blocks { known } else { culprits(rule, &subject.sites) };
        Judged { of_segments, of_blocks, ..judge_one(rule, subject, culprits) }
    };
    subjects(rule, sides).into_iter().map(judge).collect()
}

pub(super) fn judge_one(rule: &Rule, subject: Subject<'_>, culprits: Vec<Culprit>) -> Judged {
    let base = rule.needs_base().then(|| subject.base.clone());
    let limit = match (rule.limit, &base) {
        (Limit::Fixed(limit), _) => Ok(limit.number()),
        (Limit::OverBase(more), Some(base)) => base.clone().map(|base| match rule.metric.unit() {
            Unit::Rate => more.over(base),
            Unit::Bytes | Unit::Count => more.over(base).round(),
        }),
        (Limit::OverBase(_), None) => Err("there is no base run".to_owned()),
    };
    let judged = subject.value.clone().and_then(|value| Ok((value, limit.clone()?)));
    let verdict = match judged {
        Ok((value, limit)) if rule.comparison.holds(value, limit) => Verdict::True,
        Ok(_) => Verdict::False,
        Err(_) => Verdict::NotJudged,
    };
    Judged {
        rule: rule.to_string(),
        subject: format!("{} {}", rule.metric.words(), subject.words.trim()).trim_end().to_owned(),
        verdict,
        not_judged_because: judged.err(),
        value: subject.value.ok(),
        limit: limit.ok(),
        base: base.and_then(Result::ok),
        unit: rule.metric.unit(),
        comparison: rule.comparison.sign(),
        culprits,
        of_segments: false,
        of_blocks: false,
    }
}

fn subjects<'a>(rule: &Rule, sides: &Sides<'a>) -> Vec<Subject<'a>> {
    let (metric, scope) = (rule.metric, &rule.scope);
    if metric == Metric::EventsLost {
        // Nobody knows how many events a damaged part had: it counts as one.
        let lost = |profile: &Profile| profile.run.events_lost.saturating_add(profile.run.damages as u64) as f64;
        let base = sides.base.map(lost).ok_or_else(no_base);
        return vec![Subject {
            words: String::new(),
            value: Ok(lost(sides.new)),
            base,
            sites: Vec::new(),
            culprits: Vec::new(),
        }];
    }
    let whole = scope.device.is_none() && !scope.host;
    let per = if scope.host { Per::Host } else { metric.per() };
    let places: Vec<Place> = match (scope.device, per) {
        (Some(device), _) => vec![Place::Gpu(device)],
        (None, Per::Host) => vec![Place::Host],
        (None, Per::Process) => Vec::new(),
        (None, Per::Device) => devices(sides.new),
    };
    if whole && per == Per::Process {
        return of_figures(rule, sides, None);
    }
    places.into_iter().flat_map(|place| of_place(rule, sides, place)).collect()
}

fn devices(profile: &Profile) -> Vec<Place> {
    let devices: Vec<Place> =
        profile.places.iter().map(|known| known.place).filter(|place| *place != Place::Host).collect();
    // A run that used no device is judged all the same: it held nothing.
    if devices.is_empty() { vec![Place::Gpu(0)] } else { devices }
}

fn of_place<'a>(rule: &Rule, sides: &Sides<'a>, place: Place) -> Vec<Subject<'a>> {
    if let Some(figure) = rule.metric.of_tensors() {
        return super::tensors::subjects(rule, sides, place, figure);
    }
    match rule.metric {
        Metric::GrowthPerSecond | Metric::GrowthPerMark => vec![growth::subject(rule, sides, place)],
        _ => of_figures(rule, sides, Some(place)),
    }
}

/// Numbers that add up over call sites.
fn of_figures<'a>(rule: &Rule, sides: &Sides<'a>, place: Option<Place>) -> Vec<Subject<'a>> {
    let Some(figures) = rule.metric.figures() else { return Vec::new() };
    let scope = &rule.scope;
    let glob = scope.site.as_ref().or(scope.each_site.as_ref());
    let fits = |site: &&SiteDifference| {
        place.is_none_or(|place| place == site.place)
            && scope.kind.is_none_or(|kind| kind == site.kind)
            && glob.is_none_or(|glob| glob.fits(&site.key))
    };
    let sites: Vec<&SiteDifference> = sides.difference.sites.iter().filter(fits).collect();
    let subject = |sites: Vec<&'a SiteDifference>, whose: String| {
        let mut pair = Pair::default();
        for site in &sites {
            pair.base.add(&site.pair.base);
            pair.new.add(&site.pair.new);
        }
        let base = sides.base.map(|_| number(figures, &pair.base)).ok_or_else(no_base);
        Subject { words: whose, value: Ok(number(figures, &pair.new)), base, sites, culprits: Vec::new() }
    };
    let at = match place {
        Some(Place::Host) if rule.metric == Metric::Pinned => String::new(),
        Some(Place::Host) => "of pinned memory".to_owned(),
        Some(device) => format!("of {}", device.words()),
        None => String::new(),
    };
    if scope.each_site.is_some() {
        let there = sites.into_iter().filter(|site| site.presence != Presence::Gone);
        return there.map(|site| subject(vec![site], format!("{at} by {}", site.key))).collect();
    }
    let kind = scope.kind.map_or(String::new(), |kind| format!(" in {} memory", kind.name()));
    let glob = scope.site.as_ref().map_or(String::new(), |glob| format!(" by call sites that fit '{glob}'"));
    let managed = managed_among_it(rule, &sites);
    vec![subject(sites, format!("{at}{kind}{glob}{managed}"))]
}

/// Says where managed memory is among it: reports tell that apart, because it may lie in RAM. Without its size, so that one check
/// has one name in all runs.
fn managed_among_it(rule: &Rule, sites: &[&SiteDifference]) -> &'static str {
    let figures = rule.metric.figures().filter(|_| rule.metric.unit() == Unit::Bytes && rule.scope.kind.is_none());
    let has = |site: &&SiteDifference| figures.is_some_and(|figures| number(figures, &site.pair.new) > 0.0);
    let is_managed = |site: &&SiteDifference| site.kind == Kind::Managed;
    let is_mixed = sites.iter().any(|site| has(site) && is_managed(site))
        && sites.iter().any(|site| has(site) && !is_managed(site));
    if is_mixed { " with what may lie in RAM" } else { "" }
}

pub(super) fn no_base() -> String {
    "there is no base run".to_owned()
}

pub(super) fn number((of, less): (Figure, Option<Figure>), figures: &Figures) -> f64 {
    figures[of].saturating_sub(less.map_or(0, |less| figures[less])) as f64
}

/// The call sites behind a number: those that grew most where growth is judged, else those with most.
fn culprits(rule: &Rule, sites: &[&SiteDifference]) -> Vec<Culprit> {
    // What grows is what lives on.
    let figures = rule.metric.figures().unwrap_or((Figure::End, None));
    let weight = |site: &SiteDifference| {
        let value = number(figures, &site.pair.new);
        if rule.needs_base() { value - number(figures, &site.pair.base) } else { value }
    };
    let mut sites: Vec<&&SiteDifference> = sites.iter().filter(|site| weight(site) > 0.0).collect();
    sites.sort_by(|one, other| weight(other).total_cmp(&weight(one)).then_with(|| one.key.cmp(&other.key)));
    let culprit = |site: &&SiteDifference| Culprit {
        key: site.key.clone(),
        value: number(figures, &site.pair.new),
        base: rule.needs_base().then(|| number(figures, &site.pair.base)),
    };
    sites.into_iter().take(MOST_CULPRITS).map(culprit).collect()
}
