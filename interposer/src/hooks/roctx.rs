//! ROCTX: ranges and marks that a program tells ROCm's profilers (`roctx.h`). The real function is called as ever.

#![allow(non_snake_case)]

use std::ffi::{c_char, c_int};

use gpuoom_trace::record::mark;

use super::around::real_of;
use super::macros::exported;
use super::marks::{Mark, label};
use crate::table::ranges::Number;

/// The real function with the hook's own signature.
macro_rules! real {
    ($name:ident, ($($type:ty),*) $(-> $answer:ty)?) => {
        std::mem::transmute::<*const (), unsafe extern "C-unwind" fn($($type),*) $(-> $answer)?>(real_of(Number::$name.row()))
    };
}

exported! {
    /// # Safety
    /// As the vendor's function.
    roctxMarkA(message: *const c_char) {
        // SAFETY: the vendor's function of this name has this signature, and these are the program's own arguments.
        unsafe {
            let real = real!(roctxMarkA, (*const c_char));
            Mark { api: Number::roctxMarkA.row(), what: mark::LABEL, number: 0, text: label(message) }.put();
            real(message)
        }
    }
}

exported! {
    /// # Safety
    /// As the vendor's function.
    roctxRangePushA(message: *const c_char) -> c_int {
        // SAFETY: as above.
        unsafe {
            let real = real!(roctxRangePushA, (*const c_char) -> c_int);
            Mark { api: Number::roctxRangePushA.row(), what: mark::PUSH, number: 0, text: label(message) }.put();
            real(message)
        }
    }
}

exported! {
    /// # Safety
    /// As the vendor's function.
    roctxRangePop() -> c_int {
        // SAFETY: as above.
        unsafe {
            let real = real!(roctxRangePop, () -> c_int);
            Mark { api: Number::roctxRangePop.row(), what: mark::POP, number: 0, text: &[] }.put();
            real()
        }
    }
}

exported! {
    /// # Safety
    /// As the vendor's function.
    roctxRangeStartA(message: *const c_char) -> u64 {
        // SAFETY: as above.
        unsafe {
            let number = real!(roctxRangeStartA, (*const c_char) -> u64)(message);
            Mark { api: Number::roctxRangeStartA.row(), what: mark::START, number, text: label(message) }.put();
            number
        }
    }
}

exported! {
    /// # Safety
    /// As the vendor's function.
    roctxRangeStop(number: u64) {
        // SAFETY: as above.
        unsafe {
            let real = real!(roctxRangeStop, (u64));
            Mark { api: Number::roctxRangeStop.row(), what: mark::STOP, number, text: &[] }.put();
            real(number)
        }
    }
}
