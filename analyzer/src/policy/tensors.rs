//! Rules about what an allocator above the runtime gave out and held.

use super::Rule;
use super::evaluate::{Sides, Subject, no_base};
use crate::compare::{Presence, SiteDifference};
use crate::passes::profile::{Figure, Place, Profile, TensorFigure};
use crate::passes::tensors::PYTORCH;

/// What a rule is applied to on one device.
pub(super) fn subjects<'a>(rule: &Rule, sides: &Sides<'a>, place: Place, figure: TensorFigure) -> Vec<Subject<'a>> {
    let scope = &rule.scope;
    let of = |profile: &Profile| number(profile, place, figure);
    let base = || sides.base.map_or_else(|| Err(no_base()), of);
    let glob = scope.site.as_ref().or(scope.each_site.as_ref());
    let fits = |site: &&SiteDifference| site.place == place && glob.is_none_or(|glob| glob.fits(&site.key));
    let sites: Vec<&SiteDifference> = sides.difference.tensor_sites.iter().filter(fits).collect();
    let at = format!("of {}", place.words());
    if figure != TensorFigure::Tensors || glob.is_none() {
        // Who reserved is no line of the program's: what is told of lines is who has the tensors.
        return vec![Subject { words: at, value: of(sides.new), base: base(), sites, culprits: Vec::new() }];
    }
    let subject = |sites: Vec<&'a SiteDifference>, words: String| {
        let sum =
            |of: fn(&SiteDifference) -> u64| sites.iter().map(|site| of(site)).fold(0, u64::saturating_add) as f64;
        // Where the whole is not known, no part is.
        let value = of(sides.new).map(|_| sum(|site| site.pair.new[Figure::Peak]));
        let base = base().map(|_| sum(|site| site.pair.base[Figure::Peak]));
        Subject { words, value, base, sites, culprits: Vec::new() }
    };
    if scope.each_site.is_some() && of(sides.new).is_ok() {
        let there = sites.into_iter().filter(|site| site.presence != Presence::Gone);
        return there.map(|site| subject(vec![site], format!("{at} by {}", site.key))).collect();
    }
    let which = glob.map_or(String::new(), |glob| format!(" by call sites that fit '{glob}'"));
    vec![subject(sites, format!("{at}{which}"))]
}

fn number(profile: &Profile, place: Place, figure: TensorFigure) -> Result<f64, String> {
    let Some(tensors) = profile.tensors.iter().find(|known| known.place == place) else {
        return Err("the trace has no blocks of an allocator above the runtime there".to_owned());
    };
    tensors.figures.get(figure).map(|bytes| bytes as f64).map_err(|unknown| {
        let whose = match tensors.framework.as_str() {
            PYTORCH => "PyTorch's allocator".to_owned(),
            other => crate::words::clean(other),
        };
        format!("of {whose} that is not known: {}", unknown.words())
    })
}
