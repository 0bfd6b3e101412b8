//! The functions of a trace by number: name, layer, and what they mean.

pub mod by_name;
mod statuses;
#[cfg(test)]
mod tests;

use gpuoom_trace::meaning::{Codes, Meaning, says};
use gpuoom_trace::metadata::{ApiMeaning, ApiMeanings, ApiRow, ApiTable};
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};

use crate::symbols::function_name;

pub use gpuoom_trace::meaning::{Does, Ends, Family};

/// One function.
#[derive(Clone, Debug)]
pub struct Api {
    /// Exported name.
    pub name: String,
    /// Its interface; `None` where the file does not say.
    pub layer: Option<Layer>,
    /// What of a device or context it ends.
    pub ends: Ends,
    /// What it does that is no allocation.
    pub does: Does,
    /// Whether it retains the primary context of a device.
    pub retains_primary: bool,
    /// Whether it is one of CUDA's functions.
    pub is_cuda: bool,
    /// What its addresses are.
    pub family: Family,
    /// The sort of memory that it is about, where its arguments do not say otherwise.
    kind: Kind,
    codes: Codes,
    flags: u8,
    /// The codes that mean that memory ran out.
    out_of_memory: Vec<i32>,
}

impl Api {
    /// Whether it gives handles of physical memory, wherever that lies.
    pub fn gives_handles(&self) -> bool {
        self.kind == Kind::Physical
    }

    fn new(row: &ApiRow, kind: Kind, meaning: Meaning, out_of_memory: Vec<i32>) -> Self {
        Api {
            name: row.name.clone(),
            layer: Layer::from_number(row.layer),
            ends: meaning.ends,
            does: meaning.does,
            retains_primary: meaning.flags & says::RETAINS_PRIMARY != 0,
            is_cuda: matches!(meaning.codes, Codes::CudaRuntime | Codes::CudaDriver),
            family: meaning.family,
            kind,
            codes: meaning.codes,
            flags: meaning.flags,
            out_of_memory,
        }
    }

    /// A function of a trace that does not say what its functions mean.
    fn by_name(row: &ApiRow) -> Self {
        let meaning = by_name::meaning(&row.name, Layer::from_number(row.layer));
        Api::new(row, by_name::kind(&row.name), meaning, meaning.codes.out_of_memory().to_vec())
    }

    /// A function as its trace has it. What a later version says in numbers that this one does not know counts as not said.
    fn of(row: &ApiRow, said: &ApiMeaning, meanings: &ApiMeanings) -> Self {
        let meaning = Meaning {
            codes: Codes::from_number(said.codes).unwrap_or(Codes::Unknown),
            family: Family::from_number(said.family).unwrap_or_default(),
            ends: Ends::from_number(said.ends).unwrap_or(Ends::Nothing),
            does: Does::from_number(said.does).unwrap_or(Does::Else),
            flags: said.flags,
        };
        let of_file = meanings.statuses.iter().find(|status| status.codes == said.codes);
        let codes =
            of_file.map_or_else(|| meaning.codes.out_of_memory().to_vec(), |status| status.out_of_memory.clone());
        Api::new(row, Kind::from_number(said.kind).unwrap_or(Kind::None), meaning, codes)
    }

    /// Whether a record says that this function set something up whose memory has no known size, or failed to. The recorder
    /// watches the same calls (its `creation`); others that load code are recorded before they are made, and say nothing.
    pub fn is_set_up(&self, record: &Record) -> bool {
        let sort =
            matches!((record.event(), record.kind()), (Some(Event::Module), _) | (Some(Event::Reserve), Kind::Queue));
        sort && self.flags & says::SETS_UP != 0 && !record.has(flag::CORRECTION)
    }

    /// Whether a record of this function is one of the program's out-of-memory returns that a report counts.
    pub fn is_own_out_of_memory(&self, record: &Record) -> bool {
        let asks = matches!(record.event(), Some(Event::Alloc | Event::Pin)) || self.is_set_up(record);
        asks && record.is_programs_own() && record.status != 0 && self.is_out_of_memory(record.status)
    }

    /// Its name as the report writes it: allocators above the runtime tell by C++ functions, whose names are no text.
    pub fn readable_name(&self) -> String {
        if self.name.starts_with("_Z") { function_name(&self.name) } else { self.name.clone() }
    }

    /// Whether it makes the handle of a mathematical library.
    pub fn is_library(&self) -> bool {
        self.flags & says::LIBRARY_HANDLE != 0
    }

    /// Whether it is about the host's memory, pinned or registered.
    pub fn is_of_host(&self) -> bool {
        matches!(self.kind, Kind::HostPinned | Kind::Registered)
    }

    /// Whether it hands out device memory by its address, and not through a pool: `hipMalloc` and what stands for it.
    pub fn is_plain_allocation(&self) -> bool {
        self.kind == Kind::Device && self.family == Family::Pointers && self.layer == Some(Layer::Runtime)
    }

    /// Whether a failing call with this status means that memory ran out.
    pub fn is_out_of_memory(&self, status: i32) -> bool {
        self.out_of_memory.contains(&status)
    }

    /// The vendor's name of a status code, where this version knows it.
    pub fn status_name(&self, status: i32) -> Option<&'static str> {
        let without_names = !matches!(
            self.codes,
            Codes::Hip
                | Codes::CudaRuntime
                | Codes::CudaDriver
                | Codes::Hsa
                | Codes::OpenCl
                | Codes::Errno
                | Codes::Nothing
        );
        let ran_out = without_names && self.is_out_of_memory(status);
        // A library says that one of its allocations failed, whatever the reason.
        let words = if self.is_library() { "an allocation failed" } else { "out of memory" };
        statuses::name(self.codes, status).or(ran_out.then_some(words))
    }

    /// The interface that it belongs to, for texts.
    pub fn interface(&self) -> &'static str {
        match self.codes {
            Codes::Hip | Codes::CudaRuntime | Codes::CudaDriver | Codes::Hsa | Codes::OpenCl => self.codes.name(),
            _ => "an interface",
        }
    }

    /// What the function means, as this version reads it.
    pub fn meaning(&self) -> Meaning {
        Meaning { codes: self.codes, family: self.family, ends: self.ends, does: self.does, flags: self.flags }
    }
}

/// All functions of a trace.
#[derive(Clone, Debug)]
pub struct Apis {
    rows: Vec<Api>,
    unknown: Api,
    /// The families by themselves: looked up for every free.
    families: Vec<Family>,
    /// Whether a function of the DRM is among them.
    has_drm: bool,
}

impl Apis {
    /// The functions of a trace. What it does not say of them, their names do.
    pub fn new(table: &ApiTable, meanings: &ApiMeanings) -> Self {
        let api = |(index, row): (usize, &ApiRow)| match meanings.rows.get(index) {
            Some(said) => Api::of(row, said, meanings),
            None => Api::by_name(row),
        };
        let rows: Vec<Api> = table.rows.iter().enumerate().map(api).collect();
        let families: Vec<Family> = rows.iter().map(|api| api.family).collect();
        let has_drm = families.contains(&Family::Drm);
        let nameless = ApiRow { name: "(unnamed function)".to_owned(), layer: u8::MAX };
        Apis { rows, unknown: Api::by_name(&nameless), families, has_drm }
    }

    /// Whether it is a buffer that the DRM was asked for on the card: the kernel may put it into the host's memory, at once or later,
    /// as it may the pages of managed memory. Source: Linux `amdgpu_object.c` (`allowed_domains`), `amdgpu_gem.c`.
    #[inline]
    pub fn moves(&self, record: &Record) -> bool {
        self.has_drm && record.kind() == Kind::Device && self.family(record.api) == Family::Drm
    }

    /// What the addresses of the function with this number are.
    #[inline]
    pub fn family(&self, api: u16) -> Family {
        self.families.get(usize::from(api)).copied().unwrap_or_default()
    }

    /// The function with this number; a nameless one where the file has no such row.
    #[inline]
    pub fn get(&self, api: u16) -> &Api {
        self.rows.get(usize::from(api)).unwrap_or(&self.unknown)
    }

    /// Whether the recorder had hooks for functions that return such codes.
    pub fn has_codes(&self, codes: Codes) -> bool {
        self.rows.iter().any(|api| api.codes == codes)
    }

    /// The function of this name.
    pub fn named(&self, name: &str) -> Option<&Api> {
        self.rows.iter().find(|api| api.name == name)
    }
}
