//! Where the names of functions are looked for.

use std::path::PathBuf;

use clap::Args;

use super::output::complain;
use crate::symbols::SymbolPlaces;

/// Directories with libraries and debug files, for the commands that name functions.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct SymbolArgs {
    /// Directory with the recorded libraries or their debug files, searched before this machine's; may be given several
    /// times
    #[arg(long = "symbols", value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Take names only from the directories of --symbols, not from files of this machine: the same output everywhere
    #[arg(long)]
    no_local_symbols: bool,
}

impl SymbolArgs {
    /// Whether directories are named.
    pub(super) fn is_given(&self) -> bool {
        !self.directories.is_empty()
    }

    /// The places, and whether all that were named are there. What is not there is said.
    pub(super) fn places(&self) -> (SymbolPlaces, bool) {
        let (there, missing): (Vec<_>, Vec<_>) = self.directories.iter().cloned().partition(|given| given.exists());
        for path in &missing {
            complain(&format!("{}: no such directory; no names come from there", path.display()));
        }
        (SymbolPlaces { this_machine: !self.no_local_symbols, directories: there }, missing.is_empty())
    }
}
