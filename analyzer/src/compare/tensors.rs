//! What allocators above the runtime gave out and held, of two runs.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::names::Agreed;
use super::{Presence, SiteDifference, Threshold};
use crate::passes::profile::{
    Figure, Figures, Place, Profile, SiteProfile, TensorFigure, TensorFigures, TensorProfile,
};

/// An allocator on one device. A number is null where it is not known, and a run where the trace has no blocks there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorDifference {
    /// `pytorch`, or the pool's name; of the new run where it has one.
    pub framework: String,
    /// In the base run.
    pub base: Option<TensorFigures>,
    /// In the new run.
    pub new: Option<TensorFigures>,
    /// Whether a number that is known of both runs differs by more than the threshold.
    pub is_notable: bool,
}

impl TensorDifference {
    /// A number of both runs; `None` where it is not known.
    pub fn pair(&self, figure: TensorFigure) -> [Option<u64>; 2] {
        [&self.base, &self.new].map(|side| side.as_ref().and_then(|figures| figures.get(figure).ok()))
    }

    /// Whether a number differs by more than this.
    pub fn is_passed(&self, figure: TensorFigure, threshold: &Threshold) -> bool {
        match self.pair(figure) {
            [Some(base), Some(new)] => threshold.is_passed_by_bytes(base, new),
            // What is not known is no change; a note says so.
            _ => false,
        }
    }
}

/// What both runs have of a device; `None` where neither has any blocks there.
pub(super) fn of_place(base: &Profile, new: &Profile, place: Place, threshold: &Threshold) -> Option<TensorDifference> {
    let of = |profile: &'_ Profile| profile.tensors.iter().find(|known| known.place == place).cloned();
    let (base, new): (Option<TensorProfile>, Option<TensorProfile>) = (of(base), of(new));
    let framework = new.as_ref().or(base.as_ref())?.framework.clone();
    let [base, new] = [base, new].map(|side| side.map(|known| known.figures));
    let difference = TensorDifference { framework, base, new, is_notable: false };
    let is_notable = TensorFigure::ALL.iter().any(|figure| difference.is_passed(*figure, threshold));
    Some(TensorDifference { is_notable, ..difference })
}

/// Who had asked for blocks, of the devices where both runs tell it. Against nothing everything is new.
pub(super) fn sites(base: &Profile, new: &Profile, agreed: &Agreed, threshold: &Threshold) -> Vec<SiteDifference> {
    let of = |profile: &Profile, other: &Profile| -> Vec<SiteProfile> {
        let tells =
            |place| other.tensors.iter().any(|known| known.place == place && known.figures.tensors_bytes.is_ok());
        let tensors = profile.tensors.iter().filter(|known| other.places.is_empty() || tells(known.place));
        tensors.flat_map(|known| known.sites.clone()).collect()
    };
    let (in_base, in_new) = (of(base, new), of(new, base));
    let known_by = |sites: &[SiteProfile]| sites.iter().map(|site| site.name.known_by()).max();
    let matched_by = known_by(&in_base).into_iter().chain(known_by(&in_new)).min().unwrap_or_default();
    let mut sites = super::sites([&in_base, &in_new], matched_by, agreed, threshold);
    // Other numbers of blocks hold no memory by themselves, and a place that is new may hold next to nothing.
    sites.iter_mut().for_each(|site| site.is_notable = threshold.is_passed(Figure::Peak, &site.pair));
    sites
}

/// Sentences about what can't be compared.
pub(super) fn notes(base: &Profile, new: &Profile) -> Vec<String> {
    let lacks = |profile: &Profile, other: &Profile| profile.tensors.is_empty() && !other.tensors.is_empty();
    let mut notes = Vec::new();
    for (name, is_lacking) in [("BASE", lacks(base, new)), ("NEW", lacks(new, base))] {
        if is_lacking {
            notes.push(format!("{name} has no blocks of an allocator above the runtime: tensors can't be compared."));
        }
    }
    let frameworks = |profile: &Profile| -> Vec<(Place, String)> {
        profile.tensors.iter().map(|known| (known.place, known.framework.clone())).collect()
    };
    for (place, was) in frameworks(base) {
        let other = frameworks(new).into_iter().find(|(other, is)| *other == place && *is != was);
        if let Some((_, is)) = other {
            let [was, is] = [was, is].map(|name| crate::words::clean(&name));
            notes.push(format!("The blocks of {} are those of {was} in BASE and of {is} in NEW.", place.words()));
        }
    }
    for (name, profile) in [("BASE", base), ("NEW", new)] {
        for known in &profile.tensors {
            if let Err(unknown) = known.figures.reserved_bytes {
                notes.push(format!(
                    "{name}: of the blocks of {} not all is known: {}.",
                    known.place.words(),
                    unknown.words()
                ));
            }
        }
    }
    notes
}

/// Call sites of blocks have two numbers, and not those of calls.
pub(super) fn serialize_sites<S: Serializer>(sites: &[SiteDifference], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Side {
        tensors_bytes: u64,
        blocks: u64,
    }
    #[derive(Serialize)]
    struct Site<'a> {
        key: &'a str,
        place: Place,
        presence: Presence,
        base: Side,
        new: Side,
        is_notable: bool,
    }
    let side = |figures: &Figures| Side { tensors_bytes: figures[Figure::Peak], blocks: figures[Figure::PeakBlocks] };
    let mut all = serializer.serialize_seq(Some(sites.len()))?;
    for SiteDifference { key, place, presence, pair, is_notable, .. } in sites {
        let (base, new) = (side(&pair.base), side(&pair.new));
        all.serialize_element(&Site { key, place: *place, presence: *presence, base, new, is_notable: *is_notable })?;
    }
    all.end()
}
