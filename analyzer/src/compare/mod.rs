//! Two runs set beside each other: a pure function of two profiles.

mod names;
mod notes;
mod tensors;
#[cfg(test)]
mod tests;
mod threshold;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuoom_trace::record::Kind;
use serde::{Serialize, Serializer};

use names::Agreed;

use crate::passes::profile::{Figure, Figures, InUse, KnownBy, Place, PlaceProfile, Profile, Run, SiteProfile};
use crate::passes::tensors::PYTORCH;
pub use tensors::TensorDifference;
pub use threshold::Threshold;

/// In which of the two runs something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// In both.
    Both,
    /// In the new run only.
    New,
    /// In the base run only.
    Gone,
}

/// Numbers of the same thing in both runs; zeros where it is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// In the base run.
    pub base: Figures,
    /// In the new run.
    pub new: Figures,
}

impl Pair {
    /// New less base.
    pub fn change(&self, figure: Figure) -> i128 {
        i128::from(self.new[figure]) - i128::from(self.base[figure])
    }

    /// Whether every number is the same.
    pub fn is_equal(&self) -> bool {
        self.base == self.new
    }
}

/// A kind of memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindDifference {
    /// Kind of memory.
    #[serde(serialize_with = "kind_name")]
    pub kind: Kind,
    /// Its numbers.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether a number differs by more than the threshold.
    pub is_notable: bool,
}

/// A device, or the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceDifference {
    /// Which.
    pub place: Place,
    /// Name of the device in the new run, else in the base run.
    pub name: Option<String>,
    /// In which runs it was used.
    pub presence: Presence,
    /// Its numbers.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether a number differs by more than the threshold.
    pub is_notable: bool,
    /// The same by kind of memory.
    pub kinds: Vec<KindDifference>,
    /// The most that was in use by readings of the base run and the new one, whoever used it; null where one of them has none, or they
    /// are of different sources.
    pub most_in_use: Option<[InUse; 2]>,
    /// What an allocator above the runtime gave out and held there; null where neither trace has any blocks.
    pub tensors: Option<TensorDifference>,
}

impl PlaceDifference {
    /// Whether PyTorch's allocator got segments there, which it gives out in pieces.
    pub fn has_segments(&self) -> bool {
        self.tensors.as_ref().is_some_and(|tensors| tensors.framework == PYTORCH)
    }
}

/// A call site on one device, for one kind of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteDifference {
    /// What names it in every run and build.
    pub key: String,
    /// Which device, or the host.
    pub place: Place,
    /// Kind of memory.
    #[serde(serialize_with = "kind_name")]
    pub kind: Kind,
    /// In which runs it asked for memory.
    pub presence: Presence,
    /// Its numbers.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether a number differs by more than the threshold.
    pub is_notable: bool,
}

/// What changed between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The base run.
    pub base: Run,
    /// The new run.
    pub new: Run,
    /// What differs by no more than this is noise.
    pub threshold: Threshold,
    /// How call sites were matched.
    pub matched_by: KnownBy,
    /// Whether every number is the same.
    pub is_equal: bool,
    /// Whether any number differs by more than the threshold.
    pub is_notable: bool,
    /// What must be known before the numbers are believed, a sentence each.
    pub notes: Vec<String>,
    /// Devices and host.
    pub places: Vec<PlaceDifference>,
    /// Call sites: those that grew most at the peak first, then at the end, in bytes, in calls.
    pub sites: Vec<SiteDifference>,
    /// Who had asked for blocks of an allocator above the runtime when most was in them, growth first: parts of what calls gave. Only
    /// of devices where both traces tell it.
    #[serde(serialize_with = "tensors::serialize_sites")]
    pub tensor_sites: Vec<SiteDifference>,
}

fn kind_name<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// Sets two runs beside each other.
pub fn compare(base: &Profile, new: &Profile, threshold: Threshold) -> Difference {
    let matched_by = matched_by(base, new);
    let agreed = Agreed::between(base, new, matched_by);
    let sites = sites([&base.sites, &new.sites], matched_by, &agreed, &threshold);
    let tensor_sites = tensors::sites(base, new, &agreed, &threshold);
    let places = places(base, new, &sites, &threshold);
    let is_equal = places.iter().all(|place| place.pair.is_equal() && place.presence == Presence::Both)
        && places.iter().all(|place| place.tensors.as_ref().is_none_or(|known| known.base == known.new))
        && sites.iter().chain(&tensor_sites).all(|site| site.pair.is_equal() && site.presence == Presence::Both);
    let is_notable = places.iter().any(|place| place.is_notable || place.kinds.iter().any(|kind| kind.is_notable))
        || sites.iter().chain(&tensor_sites).any(|site| site.is_notable);
    Difference {
        base: base.run.clone(),
        new: new.run.clone(),
        threshold,
        matched_by,
        is_equal,
        is_notable,
        notes: notes::notes(base, new, &agreed),
        places,
        sites,
        tensor_sites,
    }
}

/// What both runs know their call sites by. A run without any has nothing against the other's names.
fn matched_by(base: &Profile, new: &Profile) -> KnownBy {
    match (base.sites.is_empty(), new.sites.is_empty()) {
        (true, _) => new.run.sites_known_by,
        (_, true) => base.run.sites_known_by,
        _ => base.run.sites_known_by.min(new.run.sites_known_by),
    }
}

/// Call sites of the base run and of the new one, matched by name.
fn sites(
    [base, new]: [&[SiteProfile]; 2],
    matched_by: KnownBy,
    agreed: &Agreed,
    threshold: &Threshold,
) -> Vec<SiteDifference> {
    let mut pairs: BTreeMap<(Place, Kind, String), (Pair, bool, bool)> = BTreeMap::new();
    let key =
        |site: &SiteProfile, is_base| (site.place, site.kind, agreed.name(site.name.at_most(matched_by), is_base));
    // What is in the base run only keeps the names that it has there.
    let mut names_there = BTreeMap::new();
    for site in base {
        let key = key(site, true);
        names_there.entry(key.clone()).or_insert_with(|| agreed.name_there(site.name.at_most(matched_by)));
        let (pair, in_base, _) = pairs.entry(key).or_default();
        pair.base.add(&site.figures);
        *in_base = true;
    }
    for site in new {
        let (pair, _, in_new) = pairs.entry(key(site, false)).or_default();
        pair.new.add(&site.figures);
        *in_new = true;
    }
    let of_pair = |(key, (pair, in_base, in_new)): ((Place, Kind, String), (Pair, bool, bool))| {
        let presence = presence(in_base, in_new);
        let there = names_there.remove(&key).filter(|_| presence == Presence::Gone);
        let (place, kind, name) = key;
        let key = there.unwrap_or(name);
        let is_notable = presence != Presence::Both || threshold.is_passed_by(&pair);
        SiteDifference { key, place, kind, presence, pair, is_notable }
    };
    let mut sites: Vec<SiteDifference> = pairs.into_iter().map(of_pair).collect();
    // What is equal in all of these stays in the order of the names.
    let by = [Figure::Peak, Figure::End, Figure::Allocated, Figure::Allocations, Figure::Failures];
    sites.sort_by_key(|site| by.map(|figure| Reverse(site.pair.change(figure))));
    sites
}

fn presence(in_base: bool, in_new: bool) -> Presence {
    match (in_base, in_new) {
        (true, true) => Presence::Both,
        (false, _) => Presence::New,
        (true, false) => Presence::Gone,
    }
}

fn places(base: &Profile, new: &Profile, sites: &[SiteDifference], threshold: &Threshold) -> Vec<PlaceDifference> {
    let mut all: Vec<Place> = base.places.iter().chain(&new.places).map(|profile| profile.place).collect();
    all.sort_unstable();
    all.dedup();
    let (base_run, new_run) = (base, new);
    let of = |profile: &'_ Profile, place| profile.places.iter().find(|known| known.place == place).cloned();
    let difference = |place| {
        let (base, new) = (of(base, place), of(new, place));
        let figures =
            |profile: &Option<PlaceProfile>| profile.as_ref().map_or(Figures::default(), |known| known.figures);
        let presence = presence(base.is_some(), new.is_some());
        let pair = Pair { base: figures(&base), new: figures(&new) };
        let tensors = tensors::of_place(base_run, new_run, place, threshold);
        let in_use = |profile: &Option<PlaceProfile>| profile.as_ref().and_then(|known| known.most_in_use);
        let most_in_use = in_use(&base).zip(in_use(&new)).map(<[InUse; 2]>::from);
        let of_tensors = tensors.as_ref().is_some_and(|known| known.is_notable);
        PlaceDifference {
            place,
            presence,
            is_notable: presence != Presence::Both || threshold.is_passed_by(&pair) || of_tensors,
            pair,
            most_in_use: most_in_use.filter(|[base, new]| (base.by, base.of_process) == (new.by, new.of_process)),
            tensors,
            name: new.and_then(|known| known.name).or(base.and_then(|known| known.name)),
            kinds: kinds(sites.iter().filter(|site| site.place == place), threshold),
        }
    };
    all.into_iter().map(difference).collect()
}

fn kinds<'a>(sites: impl Iterator<Item = &'a SiteDifference>, threshold: &Threshold) -> Vec<KindDifference> {
    let mut kinds: BTreeMap<Kind, Pair> = BTreeMap::new();
    for site in sites {
        let pair = kinds.entry(site.kind).or_default();
        pair.base.add(&site.pair.base);
        pair.new.add(&site.pair.new);
    }
    let of_pair = |(kind, pair)| KindDifference { kind, pair, is_notable: threshold.is_passed_by(&pair) };
    kinds.into_iter().map(of_pair).collect()
}
