//! Names of call sites that two builds agree on, where one of them has symbols that the other lacks.

use std::collections::{BTreeMap, BTreeSet};

use crate::passes::profile::{KnownBy, Profile};

/// Between the parts of a name: `hipMalloc < libfoo.so!load < program!main`.
const BETWEEN: &str = " < ";
/// The function of a part that has no name.
const NAMELESS: &str = "?";

/// How the names of two runs are made comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Libraries whose functions have names in one run only: they count as nameless in both.
    nameless: BTreeSet<String>,
    /// The same as they lack names in the base run (`true`) or in the new one.
    pub(super) lacking: Vec<(bool, String)>,
    /// The executable of the base run, and of the new one, where these differ.
    renamed: Option<(String, String)>,
}

impl Agreed {
    /// For two runs whose call sites are matched so.
    pub(super) fn between(base: &Profile, new: &Profile, matched_by: KnownBy) -> Self {
        let renamed = (base.run.executable != new.run.executable)
            .then(|| (base.run.executable.clone(), new.run.executable.clone()));
        let mut agreed = Agreed { renamed, ..Agreed::default() };
        if matched_by < KnownBy::Caller {
            return agreed;
        }
        let (of_base, of_new) = (agreed.libraries(base, matched_by, true), agreed.libraries(new, matched_by, false));
        for (library, named) in of_base {
            let Some(other) = of_new.get(&library).filter(|other| **other != named) else { continue };
            agreed.lacking.push((*other, library.clone()));
            agreed.nameless.insert(library);
        }
        agreed
    }

    /// The libraries in the names of a run, and whether any of their functions has a name.
    fn libraries(&self, profile: &Profile, matched_by: KnownBy, is_base: bool) -> BTreeMap<String, bool> {
        let mut libraries = BTreeMap::new();
        for site in &profile.sites {
            for (library, function) in
                site.name.at_most(matched_by).split(BETWEEN).filter_map(|part| part.split_once('!'))
            {
                *libraries.entry(self.library(library, is_base).to_owned()).or_default() |= function != NAMELESS;
            }
        }
        libraries
    }

    fn library<'a>(&'a self, library: &'a str, is_base: bool) -> &'a str {
        match &self.renamed {
            Some((was, is)) if is_base && was == library => is,
            _ => library,
        }
    }

    /// A name as both runs have it.
    pub(super) fn name(&self, name: &str, is_base: bool) -> String {
        self.told(name, is_base, false)
    }

    /// A name of the base run with its own executable: for what the new run does not have.
    pub(super) fn name_there(&self, name: &str) -> String {
        self.told(name, true, true)
    }

    fn told(&self, name: &str, is_base: bool, as_there: bool) -> String {
        if self.nameless.is_empty() && self.renamed.is_none() {
            return name.to_owned();
        }
        let mut parts: Vec<String> = Vec::new();
        for part in name.split(BETWEEN) {
            let part = match part.split_once('!') {
                Some((library, function)) => {
                    let is_nameless = self.nameless.contains(self.library(library, is_base));
                    let function = if is_nameless { NAMELESS } else { function };
                    let library = if as_there { library } else { self.library(library, is_base) };
                    format!("{library}!{function}")
                }
                None => part.to_owned(),
            };
            if parts.last() != Some(&part) {
                parts.push(part);
            }
        }
        parts.join(BETWEEN)
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::Kind;

    use super::*;
    use crate::passes::profile::{Figures, Place, SiteName, SiteProfile};
    use crate::testing::{TraceBuilder, profile};

    fn run(executable: &str, names: &[&str]) -> Profile {
        let mut run = profile(&TraceBuilder::default());
        run.run.executable = executable.to_owned();
        let site = |name: &&str| SiteProfile {
            place: Place::Gpu(0),
            kind: Kind::Device,
            name: SiteName { by_stack: Some((*name).to_owned()), ..SiteName::default() },
            figures: Figures::default(),
        };
        run.sites = names.iter().map(site).collect();
        run
    }

    #[test]
    fn a_library_that_lost_its_symbols_is_one_place_in_both() {
        let base = run("app", &["hipMalloc < app!?", "hipMalloc < app!? < train.py!step"]);
        let new = run("app", &["hipMalloc < app!load < app!main", "hipMalloc < app!load < train.py!step"]);
        let agreed = Agreed::between(&base, &new, KnownBy::Stack);
        assert_eq!(agreed.lacking, [(true, "app".to_owned())]);
        assert_eq!(agreed.name("hipMalloc < app!load < app!main", false), "hipMalloc < app!?");
        assert_eq!(agreed.name("hipMalloc < app!load < train.py!step", false), "hipMalloc < app!? < train.py!step");
        // What lacks names in both is as it is.
        let agreed = Agreed::between(&base, &base, KnownBy::Stack);
        assert_eq!((agreed.lacking.len(), agreed.name("hipMalloc < app!?", true)), (0, "hipMalloc < app!?".to_owned()));
    }

    #[test]
    fn a_program_with_another_name_is_the_same_program() {
        let (base, new) = (run("app-v1", &["hipMalloc < app-v1!main"]), run("app-v2", &["hipMalloc < app-v2!main"]));
        let agreed = Agreed::between(&base, &new, KnownBy::Stack);
        assert_eq!(agreed.name("hipMalloc < app-v1!main", true), "hipMalloc < app-v2!main");
        assert_eq!(agreed.name("hipMalloc < app-v1!main", false), "hipMalloc < app-v1!main");
        assert_eq!(agreed.name_there("hipMalloc < app-v1!main"), "hipMalloc < app-v1!main");
    }
}
