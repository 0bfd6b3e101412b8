//! Ranges and marks of profilers' interfaces: ROCTX (`roctx.h`), whose functions are hooked, and NVTX (`nvToolsExt.h`), whose
//! functions call those that a tool has put into a table ([`crate::hooks`] has them).

use gpuoom_trace::record::Event;

use super::macros::terminated;
use super::{Library, Row};

/// Makes the rows: the function, and who has it.
macro_rules! rows {
    ($($library:ident, has_hook: $has_hook:literal { $($name:ident),* })*) => {
        /// The rows by their names.
        #[allow(non_camel_case_types)]
        #[repr(u16)]
        #[derive(Clone, Copy)]
        pub(crate) enum Number { $($($name,)*)* End }

        /// The table.
        pub(super) const ROWS: [Row; COUNT] = [$($(
            Row { library: Library::$library, event: Event::Mark, has_hook: $has_hook, ..Row::named(terminated!($name)) },
        )*)*];
    };
}

/// Rows of this table.
pub(super) const COUNT: usize = Number::End as usize;

impl Number {
    /// Its place among the rows of all tables.
    pub(crate) const fn row(self) -> u16 {
        super::RANGES as u16 + self as u16
    }
}

rows! {
    Roctx, has_hook: true {
        roctxMarkA, roctxRangePushA, roctxRangePop, roctxRangeStartA, roctxRangeStop
    }
    Nvtx, has_hook: false {
        nvtxMarkEx, nvtxMarkA, nvtxMarkW, nvtxRangeStartEx, nvtxRangeStartA, nvtxRangeStartW, nvtxRangeEnd, nvtxRangePushEx,
        nvtxRangePushA, nvtxRangePushW, nvtxRangePop, nvtxDomainMarkEx, nvtxDomainRangeStartEx, nvtxDomainRangeEnd,
        nvtxDomainRangePushEx, nvtxDomainRangePop
    }
}
