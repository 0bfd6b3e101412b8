//! The functions that are hooked: one table per vendor interface. The macros here turn each row into an exported symbol.
//!
//! Two sorts of rows:
//!
//! * **recorded** rows (`allocations`, `frees`, ...) have a signature, because the record is made from arguments and results;
//! * **watched** rows (launches, copies, error queries, ...) have none: their stub tests one flag and jumps to the real
//!   function with all arguments where they were, whatever they are. Only while some thread has an undecided failure does
//!   the stub call `seen` of [`crate::watch`] first.

mod cuda_driver;
mod cuda_runtime;
mod cxx;
mod describe;
mod handles;
mod hip;
mod hsa;
mod kernel;
mod macros;

use std::ffi::CStr;

use gpuoom_trace::record::{Event, Layer};

use crate::link::Library;

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
    /// The hook; [`no_hook`] where there is no exported function.
    pub(crate) entry: unsafe extern "C" fn(),
}

/// Stands for the hook in rows that have none.
pub(crate) unsafe extern "C" fn no_hook() {}

/// Rows of the recorder itself: readings, marks, the process. They have no real function.
mod own {
    use super::*;

    pub(super) const NAMES: [&CStr; 6] =
        [c"gpuoom_reading", c"gpuoom_mark", c"gpuoom_process", c"_exit", c"quick_exit", c"abort"];

    pub(super) fn row(index: usize) -> Row {
        let events = [Event::Reading, Event::Mark, Event::Process, Event::Process, Event::Process, Event::Process];
        let name_c = NAMES[index];
        let name = name_c.to_str().unwrap_or_default();
        Row {
            name,
            name_c,
            library: Library::Cxx,
            layer: Layer::Process,
            event: events[index],
            pointers: 0,
            is_tail_called: false,
            entry: no_hook,
        }
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
pub(crate) const COUNT: usize = OWN + own::NAMES.len();

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

/// The row with this number; the last one for a number out of range.
pub(crate) fn row(number: u16) -> Row {
    let number = usize::from(number);
    match number {
        _ if number < CUDA_RUNTIME => hip::ROWS[number],
        _ if number < CUDA_DRIVER => cuda_runtime::ROWS[number - CUDA_RUNTIME],
        _ if number < HSA => cuda_driver::ROWS[number - CUDA_DRIVER],
        _ if number < HANDLES => hsa::ROWS[number - HSA],
        _ if number < KERNEL => handles::ROWS[number - HANDLES],
        _ if number < CXX => kernel::ROWS[number - KERNEL],
        _ if number < OWN => cxx::ROWS[number - CXX],
        _ => own::row((number - OWN).min(own::NAMES.len() - 1)),
    }
}

/// All rows in the order of their numbers.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    (0..COUNT as u16).map(row)
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
