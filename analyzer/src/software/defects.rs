//! Listed defects of releases of ROCm. Sources: those of the catalogue's entry `known-bad-version` and of the entry that a
//! defect names.

use super::{Release, Version};
use crate::judgement::check::Holds;

/// What a defect has to do with: it matters only to programs that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerns {
    /// Modules of code that are loaded and unloaded.
    Modules,
    /// IPC handles of other processes that are closed.
    ClosedImports,
    /// Memory that is handed to other processes by IPC.
    Exports,
    /// Memory of other processes.
    Imports,
    /// Virtual memory (`hipMemCreate`, `hipMemMap`).
    VirtualMemory,
    /// Both expandable segments and `max_split_size_mb`.
    SplitExpandable,
    /// Stream-ordered allocation (`hipMallocAsync`).
    StreamOrdered,
}

/// A defect of a range of releases: from the first up to, and without, the second.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    /// First release that has it.
    pub from: Release,
    /// First release without it; `None` where no fix is known.
    pub to: Option<Release>,
    /// Whether the releases between are known to have it.
    pub is_known: bool,
    /// What a program must use to meet it.
    pub concerns: Concerns,
    /// Its fixes in the catalogue are of this part.
    pub part: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// The entry that explains it.
    pub entry: &'static str,
    /// Diagnoses that are its sign in a run; empty where no rule can see one.
    pub shown_by: &'static [&'static str],
}

const fn release(major: u32, minor: u32, patch: u32) -> Release {
    Release { version: Version { major, minor }, patch: Some(patch) }
}

/// All of them, the oldest first.
pub const DEFECTS: [Defect; 9] = [
    Defect {
        from: release(5, 6, 0),
        to: Some(release(5, 6, 1)),
        is_known: true,
        concerns: Concerns::Modules,
        part: "leak of modules",
        what: "the runtime leaks memory with each module (fixed in 5.6.1)",
        entry: "model-swap-residual",
        shown_by: &["hidden-runtime-memory", "model-swap-residual"],
    },
    Defect {
        from: release(0, 0, 0),
        to: Some(release(6, 2, 1)),
        is_known: true,
        concerns: Concerns::ClosedImports,
        part: "closed imports",
        what: "memory leaks when an IPC handle is closed (fixed in 6.2.1)",
        entry: "ipc-export-pin",
        shown_by: &[],
    },
    Defect {
        from: release(6, 4, 0),
        to: Some(release(6, 4, 2)),
        is_known: true,
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 6.4",
        what: "virtual memory is not given back on release (fixed in 6.4.2)",
        entry: "vmm-release-ineffective",
        shown_by: &["vmm-release-ineffective"],
    },
    Defect {
        from: release(0, 0, 0),
        to: Some(release(7, 0, 0)),
        is_known: true,
        concerns: Concerns::StreamOrdered,
        part: "stream-ordered allocation",
        what: "stream-ordered allocation can run out of memory where hipMalloc would not (fixed in 7.0)",
        entry: "mallocasync-oom",
        shown_by: &["mallocasync-oom", "pool-failure-leak"],
    },
    Defect {
        from: release(7, 0, 0),
        to: None,
        is_known: true,
        concerns: Concerns::Exports,
        part: "exports of 7.0",
        what: "buffers that were exported by IPC stay pinned after their free",
        entry: "ipc-export-pin",
        shown_by: &["ipc-export-pin"],
    },
    Defect {
        from: release(7, 1, 0),
        to: Some(release(7, 2, 0)),
        is_known: true,
        concerns: Concerns::VirtualMemory,
        part: "virtual memory of 7.1",
        what: "access to virtual memory is set wrongly in some cases",
        entry: "expandable-hazard",
        shown_by: &[],
    },
    Defect {
        from: release(7, 14, 0),
        to: Some(release(10, 0, 0)),
        is_known: true,
        concerns: Concerns::VirtualMemory,
        part: "descriptors of 7.14",
        what: "each handle of virtual memory takes a descriptor (fixed in 10.0)",
        entry: "vmm-fd-exhaustion",
        shown_by: &["vmm-fd-exhaustion"],
    },
    Defect {
        from: release(7, 14, 0),
        to: Some(release(10, 0, 0)),
        is_known: true,
        concerns: Concerns::SplitExpandable,
        part: "split segments of 7.14",
        what: "live memory was seen to read back zeros with expandable segments and max_split_size_mb",
        entry: "expandable-with-max-split",
        shown_by: &[],
    },
    Defect {
        from: release(10, 0, 0),
        to: Some(release(10, 1, 0)),
        is_known: false,
        concerns: Concerns::Imports,
        part: "imports of 10.0",
        what: "access to imported memory was refused in builds before 10.0; whether 10.0 has the fix is not known",
        entry: "expandable-hazard",
        shown_by: &[],
    },
];

impl Defect {
    /// Whether a release has it.
    pub fn is_in(&self, release: Release) -> Holds {
        let reached = match release.is_at_least(self.from) {
            Holds::Yes if !self.is_known => Holds::Unknown("whether this release has the fix"),
            reached => reached,
        };
        match self.to.map(|to| release.is_at_least(to)) {
            None => reached,
            Some(Holds::Yes) => Holds::No,
            Some(Holds::No) => reached,
            Some(unknown) => reached.and(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_begins_and_ends_where_it_says() {
        for defect in &DEFECTS {
            assert_eq!(defect.is_in(defect.from) == Holds::Yes, defect.is_known, "{}", defect.part);
            if let Some(to) = defect.to {
                assert_eq!(defect.is_in(to), Holds::No, "{}", defect.part);
            }
            assert!(crate::catalogue::find(defect.entry).is_some(), "{}", defect.entry);
        }
    }

    #[test]
    fn rocm_10_has_what_was_not_fixed_and_no_more() {
        let parts = |release| {
            let listed = DEFECTS.iter().filter(move |defect| defect.is_in(release) == Holds::Yes);
            listed.map(|defect| defect.part).collect::<Vec<_>>()
        };
        assert_eq!(parts(release(10, 0, 0)), ["exports of 7.0"], "nobody knows of imports");
        assert_eq!(parts(release(10, 1, 0)), ["exports of 7.0"]);
        assert_eq!(parts(release(7, 14, 1)), ["exports of 7.0", "descriptors of 7.14", "split segments of 7.14"]);
    }
}
