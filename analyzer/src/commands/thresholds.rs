//! The option `--threshold`, and the thresholds that a bundle was made with.

use std::path::Path;

use anyhow::bail;
use clap::Args;

use super::output::complain;
use crate::thresholds::{Change, Thresholds};

/// Numbers by which rules decide, for the commands that say why memory ran out.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ThresholdArgs {
    /// Decide by another number than the default, such as gap-warning=2G; `explain --thresholds` lists all (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    threshold: Vec<String>,
}

/// What a bundle was made with.
#[derive(Debug)]
pub(super) struct OfBundle {
    bundle: String,
    thresholds: Thresholds,
}

impl OfBundle {
    /// Reads the texts of a bundle, and says whether all can be used; what can't is said, and left out.
    pub(super) fn read(bundle: &Path, texts: &[String]) -> (Self, bool) {
        let bundle = bundle.display().to_string();
        let (mut thresholds, mut whole) = (Thresholds::default(), true);
        for text in texts {
            if let Err(error) = thresholds.set(text) {
                complain(&format!("{bundle}: it was made with a threshold that can't be used: {error}"));
                whole = false;
            }
        }
        (OfBundle { bundle, thresholds }, whole)
    }
}

impl ThresholdArgs {
    /// The defaults, changed as the options say.
    pub(super) fn values(&self) -> anyhow::Result<Thresholds> {
        self.over(&[])
    }

    /// The defaults, changed as bundles were made, and then as the options say.
    pub(super) fn over(&self, bundles: &[OfBundle]) -> anyhow::Result<Thresholds> {
        let mut given = Thresholds::default();
        self.threshold.iter().try_for_each(|text| given.set(text))?;
        let given_names: Vec<String> = given.changes().into_iter().map(|change| change.name).collect();
        let mut thresholds = Thresholds::default();
        let mut known: Vec<(&OfBundle, Change)> = Vec::new();
        for of_bundle in bundles {
            for change in of_bundle.thresholds.changes() {
                let other = known.iter().find(|(_, other)| other.name == change.name && other.value != change.value);
                if let Some((earlier, other)) = other.filter(|(_, other)| !given_names.contains(&other.name)) {
                    bail!(
                        "{} was made with {}, and {} with {}: give --threshold {}=VALUE to say which counts",
                        earlier.bundle,
                        other.words(),
                        of_bundle.bundle,
                        change.words(),
                        change.name
                    );
                }
                known.push((of_bundle, change));
            }
            of_bundle.thresholds.texts().iter().try_for_each(|text| thresholds.set(text))?;
        }
        self.threshold.iter().try_for_each(|text| thresholds.set(text))?;
        Ok(thresholds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bundle: &str, texts: &[&str]) -> OfBundle {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        OfBundle::read(Path::new(bundle), &texts).0
    }

    fn given(texts: &[&str]) -> ThresholdArgs {
        ThresholdArgs { threshold: texts.iter().map(|text| (*text).to_owned()).collect() }
    }

    #[test]
    fn what_is_given_counts_before_what_bundles_carry() {
        let bundles = [of("a", &["hang=90000000000ns", "swaps=4"]), of("b", &["swaps=4"])];
        let thresholds = given(&["swaps=7"]).over(&bundles).unwrap();
        assert_eq!((thresholds.hang_ns, thresholds.swaps), (90_000_000_000, 7));
        assert_eq!(given(&[]).over(&bundles).unwrap().swaps, 4);
        assert_eq!(given(&[]).values().unwrap(), Thresholds::default());
    }

    #[test]
    fn bundles_that_disagree_are_said() {
        let bundles = [of("a", &["swaps=4"]), of("b", &["swaps=5"])];
        let error = given(&[]).over(&bundles).unwrap_err().to_string();
        assert_eq!(
            error,
            "a was made with swaps=4 (default 3), and b with swaps=5 (default 3): give --threshold swaps=VALUE to say which counts"
        );
        assert_eq!(given(&["swaps=6"]).over(&bundles).unwrap().swaps, 6);
    }

    #[test]
    fn what_a_newer_version_has_is_said_and_left_out() {
        let texts = ["no-such-number=4".to_owned(), "swaps=4".to_owned()];
        let (read, whole) = OfBundle::read(Path::new("a"), &texts);
        assert_eq!((read.thresholds.swaps, whole), (4, false));
    }
}
