//! The functions that are hooked: one table per vendor interface. The macros here turn each row into an exported symbol.
//!
//! Two sorts of rows:
//!
//! * **recorded** rows (`allocations`, `frees`, ...) have a signature, because the record is made from arguments and results;
//! * **watched** rows (launches, copies, error queries, ...) have none: their stub tests one flag and jumps to the real
//!   function with all arguments where they were, whatever they are. Only while some thread has an undecided failure does
//!   the stub call `seen` of [`crate::watch`] first.

mod around;
mod contexts;
#[cfg(test)]
mod coverage;
mod cuda_driver;
mod cuda_runtime;
mod cxx;
mod describe;
mod handles;
mod hip;
mod hsa;
mod kernel;
mod legacy;
mod macros;
#[cfg(test)]
mod since;

use std::ffi::CStr;

use gpuoom_trace::record::{Event, Layer};

use crate::link::Library;

pub(crate) use kernel::gpus;

pub(crate) use around::allocate;
pub(crate) use contexts::{context_on, current_context};
pub(crate) use hsa::device_of_holder;

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
    /// What a call of it means.
    pub(crate) event: Event,
    /// Arguments that are device pointers, by position, a bit each (watched rows).
    pub(crate) pointers: u8,
    /// The stub jumps to the real function through [`crate::link::REAL`].
    pub(crate) is_tail_called: bool,
    /// Whether there is an exported function.
    pub(crate) has_hook: bool,
    /// No event: hooked so that the virtual card can answer in the runtime's place (`faults::answers`).
    pub(crate) is_answered: bool,
    /// What kind of memory it is about.
    #[cfg(test)]
    pub(crate) kind: gpuoom_trace::record::Kind,
    /// How it is hooked: the function of [`describe`] that runs around it, `watched` or `hands_out`.
    #[cfg(test)]
    pub(crate) how: &'static str,
}

impl Row {
    /// A row that no exported function belongs to.
    const fn without_hook(name_c: &'static CStr, event: Event, library: Library, layer: Layer) -> Row {
        let name = match name_c.to_str() {
            Ok(name) => name,
            Err(_) => "",
        };
        Row {
            name,
            name_c,
            library,
            layer,
            event,
            pointers: 0,
            is_tail_called: false,
            has_hook: false,
            is_answered: false,
            #[cfg(test)]
            kind: gpuoom_trace::record::Kind::None,
            #[cfg(test)]
            how: "",
        }
    }
}

/// Rows of the recorder itself: readings, marks, the process. They have no real function.
mod own {
    use super::*;

    const NAMES: [(&CStr, Event); 6] = [
        (c"gpuoom_reading", Event::Reading),
        (c"gpuoom_mark", Event::Mark),
        (c"gpuoom_process", Event::Process),
        (c"_exit", Event::Process),
        (c"quick_exit", Event::Process),
        (c"abort", Event::Process),
    ];

    pub(super) const COUNT: usize = NAMES.len();

    pub(super) const ROWS: [Row; COUNT] = [row(0), row(1), row(2), row(3), row(4), row(5)];

    pub(super) const fn row(index: usize) -> Row {
        Row::without_hook(NAMES[index].0, NAMES[index].1, Library::Cxx, Layer::Process)
    }
}

const HIP: usize = 0;
const CUDA_RUNTIME: usize = HIP + hip::COUNT;
const CUDA_DRIVER: usize = CUDA_RUNTIME + cuda_runtime::COUNT;
const HSA: usize = CUDA_DRIVER + cuda_driver::COUNT;
const HANDLES: usize = HSA + hsa::COUNT;
const KERNEL: usize = HANDLES + handles::COUNT;
const CXX: usize = KERNEL + kernel::COUNT;
const OWN: usize = CXX + cxx::COUNT;
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

/// All tables, one behind the other.
pub(crate) static ROWS: [Row; COUNT] = {
    let mut all = [own::row(0); COUNT];
    let tables: [&[Row]; 8] = [
        &hip::ROWS,
        &cuda_runtime::ROWS,
        &cuda_driver::ROWS,
        &hsa::ROWS,
        &handles::ROWS,
        &kernel::ROWS,
        &cxx::ROWS,
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
        assert_eq!(row(u16::MAX).name, "abort");
    }
}
