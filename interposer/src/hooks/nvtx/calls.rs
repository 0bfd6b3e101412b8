//! The functions that NVTX calls, and how it comes to know them (`nvtxDetail/nvtxTypes.h`).
//!
//! Ranges of all domains are those of their thread: domains have no names here, because a domain's handle stays null, as it does
//! without a tool. What is not in the lists below NVTX makes a function that does nothing.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::payload::MAX_TEXT_BYTES;
use gpuoom_trace::record::mark;

use super::texts::{self, Attributes, message_of, narrow};
use crate::hooks::marks::{Mark, label};
use crate::table::ranges::Number;

/// What `nvtxRangePush` and `nvtxRangePop` answer where nobody counts levels, as without a tool (`NVTX_NO_PUSH_POP_TRACKING`).
const NO_LEVELS: c_int = -2;

/// Numbers of ranges that may end on another thread. ROCTX begins at 1.
static NEXT_RANGE: AtomicU64 = AtomicU64::new(1 << 32);

fn put(function: Number, what: i32, number: u64, text: &[u8]) {
    Mark { api: function.row(), what, number, text }.put();
}

fn push(function: Number, text: &[u8]) -> c_int {
    put(function, mark::PUSH, 0, text);
    NO_LEVELS
}

fn pop(function: Number) -> c_int {
    put(function, mark::POP, 0, &[]);
    NO_LEVELS
}

fn start(function: Number, text: &[u8]) -> u64 {
    let number = NEXT_RANGE.fetch_add(1, Ordering::Relaxed);
    put(function, mark::START, number, text);
    number
}

const fn room() -> texts::Room {
    [0; MAX_TEXT_BYTES]
}

/// Makes the functions.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $answer:ty)? = $body:expr;)*) => {
        $(unsafe extern "C" fn $name($($argument: $type),*) $(-> $answer)? {
            // SAFETY: NVTX passes on what the program gave it: null, or terminated texts and whole structures.
            #[allow(unused_unsafe)]
            unsafe {
                $body
            }
        })*
    };
}

functions! {
    mark_ex(event: *const Attributes) = put(Number::nvtxMarkEx, mark::LABEL, 0, message_of(event, &mut room()));
    mark_a(message: *const c_char) = put(Number::nvtxMarkA, mark::LABEL, 0, label(message));
    mark_w(message: *const u32) = put(Number::nvtxMarkW, mark::LABEL, 0, narrow(message, &mut room()));
    start_ex(event: *const Attributes) -> u64 = start(Number::nvtxRangeStartEx, message_of(event, &mut room()));
    start_a(message: *const c_char) -> u64 = start(Number::nvtxRangeStartA, label(message));
    start_w(message: *const u32) -> u64 = start(Number::nvtxRangeStartW, narrow(message, &mut room()));
    end(number: u64) = put(Number::nvtxRangeEnd, mark::STOP, number, &[]);
    push_ex(event: *const Attributes) -> c_int = push(Number::nvtxRangePushEx, message_of(event, &mut room()));
    push_a(message: *const c_char) -> c_int = push(Number::nvtxRangePushA, label(message));
    push_w(message: *const u32) -> c_int = push(Number::nvtxRangePushW, narrow(message, &mut room()));
    pop_one() -> c_int = pop(Number::nvtxRangePop);
    domain_mark(_domain: *const c_void, event: *const Attributes) =
        put(Number::nvtxDomainMarkEx, mark::LABEL, 0, message_of(event, &mut room()));
    domain_start(_domain: *const c_void, event: *const Attributes) -> u64 =
        start(Number::nvtxDomainRangeStartEx, message_of(event, &mut room()));
    domain_end(_domain: *const c_void, number: u64) = put(Number::nvtxDomainRangeEnd, mark::STOP, number, &[]);
    domain_push(_domain: *const c_void, event: *const Attributes) -> c_int =
        push(Number::nvtxDomainRangePushEx, message_of(event, &mut room()));
    domain_pop(_domain: *const c_void) -> c_int = pop(Number::nvtxDomainRangePop);
    register_a(_domain: *const c_void, text: *const c_char) -> u64 = texts::register(label(text));
    register_w(_domain: *const c_void, text: *const u32) -> u64 = texts::register(narrow(text, &mut room()));
}

/// `NVTX_CB_MODULE_CORE`, and its functions by their place (`NvtxCallbackIdCore`).
const CORE: (c_uint, [(usize, *const ()); 11]) = (
    1,
    [
        (1, mark_ex as *const ()),
        (2, mark_a as *const ()),
        (3, mark_w as *const ()),
        (4, start_ex as *const ()),
        (5, start_a as *const ()),
        (6, start_w as *const ()),
        (7, end as *const ()),
        (8, push_ex as *const ()),
        (9, push_a as *const ()),
        (10, push_w as *const ()),
        (11, pop_one as *const ()),
    ],
);

/// `NVTX_CB_MODULE_CORE2` (`NvtxCallbackIdCore2`).
const CORE2: (c_uint, [(usize, *const ()); 7]) = (
    5,
    [
        (1, domain_mark as *const ()),
        (2, domain_start as *const ()),
        (3, domain_end as *const ()),
        (4, domain_push as *const ()),
        (5, domain_pop as *const ()),
        (10, register_a as *const ()),
        (11, register_w as *const ()),
    ],
);

/// `NVTX_ETID_CALLBACKS`.
const CALLBACKS: u32 = 1;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_bytes: usize,
    module_table: Option<unsafe extern "C" fn(c_uint, *mut *const *mut *const (), *mut c_uint) -> c_int>,
}

/// NVTX asks the tool to put its functions in. 1: done.
///
/// # Safety
/// As NVTX calls it: with its own function.
#[cfg_attr(not(test), unsafe(export_name = "InitializeInjectionNvtx2"))]
pub(crate) unsafe extern "C" fn initialize(export_table: Option<unsafe extern "C" fn(u32) -> *const c_void>) -> c_int {
    // SAFETY: NVTX's own function; what it answers lives as long as NVTX.
    let callbacks = export_table.and_then(|ask| unsafe { ask(CALLBACKS).cast::<Callbacks>().as_ref() });
    let Some(callbacks) = callbacks.filter(|table| table.struct_bytes >= size_of::<Callbacks>()) else { return 0 };
    let Some(table_of) = callbacks.module_table else { return 0 };
    // SAFETY: as above.
    unsafe { c_int::from(put_in(table_of, CORE.0, &CORE.1) && put_in(table_of, CORE2.0, &CORE2.1)) }
}

/// # Safety
/// `table_of` is NVTX's.
unsafe fn put_in(
    table_of: unsafe extern "C" fn(c_uint, *mut *const *mut *const (), *mut c_uint) -> c_int,
    module: c_uint,
    functions: &[(usize, *const ())],
) -> bool {
    let (mut table, mut size) = (std::ptr::null(), 0);
    // SAFETY: places for the answers, which is a table of so many places, each null or that of a pointer to a function.
    unsafe {
        if table_of(module, &mut table, &mut size) == 0 || table.is_null() {
            return false;
        }
        for (place, function) in functions.iter().filter(|(place, _)| *place < size as usize) {
            let pointer = *table.add(*place);
            if !pointer.is_null() {
                pointer.write(*function);
            }
        }
    }
    true
}
