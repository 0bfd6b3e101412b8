//! Requests to the kernel's drivers. They have no exported function of their own: all go through `ioctl`.

use std::ffi::CStr;

use gpuoom_trace::record::{Event, Layer};

use super::Row;
use crate::link::Library;

/// Names and meanings, in the order of their numbers.
const REQUESTS: [(&CStr, Event); 2] =
    [(c"AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", Event::Alloc), (c"AMDKFD_IOC_FREE_MEMORY_OF_GPU", Event::Free)];

/// Rows of this table.
pub(super) const COUNT: usize = REQUESTS.len();

/// The table.
pub(super) const ROWS: [Row; COUNT] = {
    let mut rows = [row(REQUESTS[0]); COUNT];
    let mut index = 0;
    while index < COUNT {
        rows[index] = row(REQUESTS[index]);
        index += 1;
    }
    rows
};

const fn row((name, event): (&'static CStr, Event)) -> Row {
    Row::without_hook(name, event, Library::Kernel, Layer::Kernel)
}
