//! Requests to the kernel's drivers. They have no exported function of their own: all go through `ioctl`.

use std::ffi::CStr;

use gpuoom_trace::record::{Event, Layer};

use super::{Row, no_hook};
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

const fn row((name_c, event): (&'static CStr, Event)) -> Row {
    let name = match name_c.to_str() {
        Ok(name) => name,
        Err(_) => "",
    };
    Row {
        name,
        name_c,
        library: Library::Kernel,
        layer: Layer::Kernel,
        event,
        pointers: 0,
        is_tail_called: false,
        entry: no_hook,
    }
}
