//! The lists of loaded libraries of one trace: the last one, and what earlier ones had that is gone from it.

use std::collections::HashSet;

use crate::metadata::{Module, Modules};

/// Libraries that are kept of all lists together; a file that has more is not one of ours.
const MAX_MODULES: usize = 1 << 16;

/// Lists as they come.
#[derive(Debug, Default)]
pub(super) struct ModuleLists {
    /// Each without what an earlier one has.
    lists: Vec<Modules>,
    known: HashSet<Module>,
}

impl ModuleLists {
    /// Takes the next list.
    pub(super) fn take(&mut self, list: &Modules) {
        let room = MAX_MODULES.saturating_sub(self.known.len());
        let fresh = list.modules.iter().filter(|module| !self.known.contains(*module)).take(room);
        let fresh: Vec<Module> = fresh.cloned().collect();
        self.known.extend(fresh.iter().cloned());
        if !fresh.is_empty() {
            self.lists.push(Modules { modules: fresh });
        }
    }

    /// All lists, if a library of an earlier one is not in the last; none otherwise: then the last one says it all.
    pub(super) fn finish(self, last: &Modules) -> Vec<Modules> {
        let still: HashSet<&Module> = last.modules.iter().collect();
        let has_gone = self.known.iter().any(|module| !still.contains(module));
        if has_gone { self.lists } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Modules {
        let module =
            |name: &&str| Module { path: (*name).into(), build_id: String::new(), start: 1, end: 2, vendor: false };
        Modules { modules: names.iter().map(module).collect() }
    }

    fn finish(lists: &[Modules]) -> Vec<Modules> {
        let mut all = ModuleLists::default();
        lists.iter().for_each(|list| all.take(list));
        all.finish(lists.last().unwrap())
    }

    #[test]
    fn lists_that_only_grow_are_the_last_one() {
        assert_eq!(finish(&[list(&["a"]), list(&["a", "b"])]), []);
    }

    #[test]
    fn what_is_gone_stays_in_its_list() {
        let lists = [list(&["a", "b"]), list(&["a", "c"]), list(&["a", "b"])];
        assert_eq!(finish(&lists), [list(&["a", "b"]), list(&["c"])]);
        assert_eq!(finish(&lists[..2]), [list(&["a", "b"]), list(&["c"])]);
    }
}
