//! Which library an address lies in, by the lists of a trace and by what it says where libraries changed places.

use std::sync::Arc;

use gpuoom_trace::header::Header;
use gpuoom_trace::metadata::Module;
use gpuoom_trace::reader::Metadata;

use super::file_name;
use crate::replay::places::{Place, Places};

/// From this minor version of the format on, a trace says where a library came to the place of another.
const SAYS_CHANGES: u16 = 5;

/// The libraries of one trace.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    /// The lists in their order, each by address; those of one list that overlap are as the trace says.
    lists: Vec<Vec<Arc<Module>>>,
    says_changes: bool,
}

impl Modules {
    /// Of a trace.
    pub fn new(header: &Header, metadata: &Metadata) -> Self {
        let last = std::slice::from_ref(&metadata.modules);
        let lists = if metadata.module_lists.is_empty() { last } else { &metadata.module_lists };
        let lists = lists.iter().map(|list| {
            let mut modules: Vec<Arc<Module>> = list.modules.iter().cloned().map(Arc::new).collect();
            modules.sort_by_key(|module| module.start);
            modules
        });
        Modules { lists: lists.collect(), says_changes: header.minor >= SAYS_CHANGES }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Module> {
        self.lists.iter().flatten().map(|module| &**module)
    }

    /// The library that an address lies in, where `place` is what the trace says about it; `None` where there is none, or
    /// where it can't be told.
    pub fn at<'a>(&'a self, address: u64, place: Place, places: &'a Places) -> Option<&'a Arc<Module>> {
        match place {
            Place::NotSaid => self.first_at(address),
            Place::NoLibrary => None,
            Place::Library(number) => places.get(number).map(|said| self.listed(said).unwrap_or(said)),
        }
    }

    /// The library that was first there. Before 1.5 nothing says when another came to its place: then nobody knows.
    fn first_at(&self, address: u64) -> Option<&Arc<Module>> {
        let mut found = self.lists.iter().filter_map(|list| within(list, address));
        let first = found.next()?;
        (self.says_changes || found.all(|other| other == first)).then_some(first)
    }

    /// The same library as a list has it, with its links resolved.
    fn listed(&self, said: &Module) -> Option<&Arc<Module>> {
        // A list has the first byte of the first segment, what is said the page that it lies in.
        let near = |one: u64, other: u64| one.abs_diff(other) < 4096;
        let is_same = |listed: &&Arc<Module>| {
            near(listed.start, said.start)
                && near(listed.end, said.end)
                && listed.build_id == said.build_id
                && (said.path.is_empty() && !said.build_id.is_empty()
                    || file_name(&listed.path) == file_name(&said.path))
        };
        self.lists.iter().rev().filter_map(|list| within(list, said.start.saturating_add(4095))).find(is_same)
    }
}

fn within(list: &[Arc<Module>], address: u64) -> Option<&Arc<Module>> {
    let index = list.partition_point(|module| module.start <= address).checked_sub(1)?;
    list.get(index).filter(|module| address < module.end)
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::metadata::Modules as List;
    use gpuoom_trace::payload;
    use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};

    use super::*;

    fn module(path: &str, build_id: &str, start: u64) -> Module {
        Module { path: path.into(), build_id: build_id.into(), start, end: start + 0x1000, vendor: false }
    }

    fn modules(minor: u16, lists: &[&[Module]]) -> Modules {
        let mut header = Header::new(1 << 10, 1, 1);
        header.minor = minor;
        let module_lists = lists.iter().map(|list| List { modules: list.to_vec() }).collect();
        Modules::new(&header, &Metadata { module_lists, ..Metadata::default() })
    }

    #[test]
    fn where_libraries_changed_places_the_first_one_has_what_nothing_is_said_about() {
        let lists: [&[Module]; 2] =
            [&[module("/a.so", "aa", 0x1000), module("/c.so", "cc", 0x9000)], &[module("/b.so", "bb", 0x1800)]];
        let at = |minor: u16, address: u64| {
            let modules = modules(minor, &lists);
            modules.at(address, Place::NotSaid, &Places::default()).map(|module| module.path.clone())
        };
        let named = |path: &str| Some(path.to_owned());
        assert_eq!(
            [0x1100, 0x1900, 0x2100, 0x9000].map(|address| at(5, address)),
            [named("/a.so"), named("/a.so"), named("/b.so"), named("/c.so")]
        );
        // An older trace does not tell which of both it was: no name is better than a wrong one.
        assert_eq!(
            [0x1100, 0x1900, 0x2100, 0x9000].map(|address| at(4, address)),
            [named("/a.so"), None, named("/b.so"), named("/c.so")]
        );
    }

    #[test]
    fn what_is_said_counts_and_has_the_path_of_the_list() {
        let modules = modules(5, &[&[module("/a.so", "aa", 0x1000)], &[module("/real/b.so", "bb", 0x1000)]]);
        let mut places = Places::default();
        let mut at = |build_id: u8, path: &str| {
            let mut out = [0; MAX_PAYLOAD_BYTES];
            let record = Record { address: 0x1000, requested: 0x1000, ..Record::new(Event::Library, Kind::None) };
            places.note(&record, payload::library(&[build_id], path.as_bytes(), &mut out));
            modules.at(0x1100, places.of_return(0x1100), &places).map(|module| module.path.clone())
        };
        assert_eq!(at(0xbb, "./b.so").as_deref(), Some("/real/b.so"));
        assert_eq!(at(0xbb, "").as_deref(), Some("/real/b.so"));
        assert_eq!(at(0xbb, "/other.so").as_deref(), Some("/other.so"));
        assert_eq!(at(0xdd, "b.so").as_deref(), Some("b.so"));
        assert_eq!(modules.at(0x1100, Place::NoLibrary, &places), None);
    }
}
