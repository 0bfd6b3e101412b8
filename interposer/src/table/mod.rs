//! The functions that are hooked: one table per vendor interface, as plain data. What becomes of a row, [`crate::hooks`] makes.
//!
//! Two sorts of rows:
//!
//! * **recorded** rows (`allocations`, `frees`, ...) have a signature, because the record is made from arguments and results;
//! * **watched** rows (launches, copies, error queries, ...) have none: their stub tests one flag and jumps to the real
//!   function with all arguments where they were, whatever they are. Only while some thread has an undecided failure does
//!   the stub call `seen` of [`crate::watch`] first.

#[cfg(test)]
mod coverage;
pub(crate) mod cuda_driver;
pub(crate) mod cuda_runtime;
pub(crate) mod cxx;
pub(crate) mod framework;
pub(crate) mod ggml;
pub(crate) mod handles;
pub(crate) mod hip;
pub(crate) mod hsa;
pub(crate) mod kernel;
mod library;
pub(crate) mod macros;
pub(crate) mod opencl;
pub(crate) mod ranges;
#[cfg(test)]
mod since;

use std::ffi::CStr;

use gpuoom_trace::meaning::{Codes, Does, Family, Meaning};
use gpuoom_trace::record::{Event, Kind, Layer};

pub(crate) use library::Library;

/// A row of the table of functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Exported name.
    pub(crate) name: &'static str,
    /// The same, terminated.
    pub(crate) name_c: &'static CStr,
    /// Who has the real function.
    pub(crate) library: Library,
    /// Its layer in reports.
    pub(crate) layer: Layer,
    /// What a call of it is recorded as.
    pub(crate) event: Event,
    /// What kind of memory it is about.
    pub(crate) kind: Kind,
    /// What else it means: the trace carries it.
    pub(crate) meaning: Meaning,
    /// Arguments that are device pointers, by position, a bit each (watched rows).
    pub(crate) pointers: u8,
    /// The stub jumps to the real function through `link::REAL`.
    pub(crate) is_tail_called: bool,
    /// Whether there is an exported function.
    pub(crate) has_hook: bool,
    /// No event: hooked so that the virtual card can answer in the runtime's place (`faults::answers`).
    pub(crate) is_answered: bool,
    /// How it is hooked: the function of `hooks::around` that runs around it, `watched` or `hands_out`.
    #[cfg(test)]
    pub(crate) how: &'static str,
}

impl Row {
    /// A row of which only the name is said.
    const fn named(name_c: &'static CStr) -> Row {
        let name = match name_c.to_str() {
            Ok(name) => name,
            Err(_) => "",
        };
        Row {
            name,
            name_c,
            library: Library::Cxx,
            layer: Layer::Process,
            event: Event::Process,
            kind: Kind::None,
            meaning: Meaning::new(Codes::Nothing, Family::Pointers),
            pointers: 0,
            is_tail_called: false,
            has_hook: false,
            is_answered: false,
            #[cfg(test)]
            how: "",
        }
    }

    /// Whether a status of this function says that there was no memory.
    pub(crate) fn is_out_of_memory(&self, status: i32) -> bool {
        self.meaning.codes.out_of_memory().contains(&status)
    }
}

/// Rows of the recorder itself: readings, marks, the process. They have no real function.
mod own {
    use super::*;

    const NAMES: [(&CStr, Event); 8] = [
        (c"gpuoom_reading", Event::Reading),
        (c"gpuoom_mark", Event::Mark),
        (c"gpuoom_process", Event::Process),
        (c"_exit", Event::Process),
        (c"quick_exit", Event::Process),
        (c"abort", Event::Process),
        (c"gpuoom_pool_alloc", Event::Block),
        (c"gpuoom_pool_free", Event::BlockFree),
    ];

    pub(super) const COUNT: usize = NAMES.len();

    pub(super) const ROWS: [Row; COUNT] = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];

    pub(super) const fn row(index: usize) -> Row {
        let row = Row { event: NAMES[index].1, ..Row::named(NAMES[index].0) };
        match row.event {
            Event::Block | Event::BlockFree => Row {
                layer: Layer::Framework,
                kind: Kind::Tensor,
                meaning: Meaning::new(Codes::Framework, Family::Pointers).does(Does::TellsOfPool),
                ..row
            },
            _ => row,
        }
    }
}

/// First rows of the tables.
pub(crate) const HIP: usize = 0;
/// See [`HIP`].
pub(crate) const CUDA_RUNTIME: usize = HIP + hip::COUNT;
/// See [`HIP`].
pub(crate) const CUDA_DRIVER: usize = CUDA_RUNTIME + cuda_runtime::COUNT;
/// See [`HIP`].
pub(crate) const HSA: usize = CUDA_DRIVER + cuda_driver::COUNT;
/// See [`HIP`].
pub(crate) const HANDLES: usize = HSA + hsa::COUNT;
/// See [`HIP`].
pub(crate) const KERNEL: usize = HANDLES + handles::COUNT;
/// See [`HIP`].
pub(crate) const CXX: usize = KERNEL + kernel::COUNT;
/// See [`HIP`].
pub(crate) const FRAMEWORK: usize = CXX + cxx::COUNT;
/// See [`HIP`].
pub(crate) const GGML: usize = FRAMEWORK + framework::COUNT;
/// See [`HIP`].
pub(crate) const RANGES: usize = GGML + ggml::COUNT;
/// See [`HIP`].
pub(crate) const OPENCL: usize = RANGES + ranges::COUNT;
const OWN: usize = OPENCL + opencl::COUNT;
/// Rows of all tables.
pub(crate) const COUNT: usize = OWN + own::COUNT;

/// Number of the recorder's own readings.
pub(crate) const READING: u16 = OWN as u16;
/// Number of `gpuoom_mark`.
pub(crate) const MARK: u16 = OWN as u16 + 1;
/// Number of the process's begin and `exit`.
pub(crate) const PROCESS: u16 = OWN as u16 + 2;
/// Number of `_exit` and `_Exit`.
pub(crate) const UNDERSCORE_EXIT: u16 = OWN as u16 + 3;
/// Number of `quick_exit`.
pub(crate) const QUICK_EXIT: u16 = OWN as u16 + 4;
/// Number of `abort`.
pub(crate) const ABORT: u16 = OWN as u16 + 5;
/// Number of `gpuoom_pool_alloc`.
pub(crate) const POOL_ALLOC: u16 = OWN as u16 + 6;
/// Number of `gpuoom_pool_free`.
pub(crate) const POOL_FREE: u16 = OWN as u16 + 7;

/// All tables, one behind the other.
pub(crate) static ROWS: [Row; COUNT] = {
    let mut all = [own::row(0); COUNT];
    let tables: [&[Row]; 12] = [
        &hip::ROWS,
        &cuda_runtime::ROWS,
        &cuda_driver::ROWS,
        &hsa::ROWS,
        &handles::ROWS,
        &kernel::ROWS,
        &cxx::ROWS,
        &framework::ROWS,
        &ggml::ROWS,
        &ranges::ROWS,
        &opencl::ROWS,
        &own::ROWS,
    ];
    let (mut number, mut table) = (0, 0);
    while table < tables.len() {
        let mut index = 0;
        while index < tables[table].len() {
            all[number] = tables[table][index];
            (number, index) = (number + 1, index + 1);
        }
        table += 1;
    }
    all
};

/// The row with this number; the last one for a number out of range.
pub(crate) fn row(number: u16) -> &'static Row {
    &ROWS[usize::from(number).min(COUNT - 1)]
}

/// The number of the row with this name. Compares names: not for the hot path.
pub(crate) fn number_of(name: &str) -> Option<u16> {
    rows().position(|row| row.name == name).map(|number| number as u16)
}

/// All rows in the order of their numbers.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_is_hooked_twice() {
        let mut names: Vec<&str> = rows().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count < usize::from(u16::MAX));
    }

    #[test]
    fn numbers_lead_to_their_rows() {
        assert_eq!(row(HIP as u16).name, "hipMalloc");
        assert_eq!(row(CUDA_RUNTIME as u16).name, "cudaMalloc");
        assert_eq!(row(CUDA_DRIVER as u16).name, "cuMemAlloc_v2");
        assert_eq!(row(KERNEL as u16).name, "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU");
        assert_eq!(row(MARK).name, "gpuoom_mark");
        assert_eq!(row(ABORT).name, "abort");
        assert_eq!(row(POOL_FREE).name, "gpuoom_pool_free");
        assert_eq!(row(u16::MAX).name, "gpuoom_pool_free");
    }
}
