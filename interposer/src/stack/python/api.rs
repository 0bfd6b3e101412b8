//! Python's public C API, found in the process by name. Nothing is loaded, and no header or version is assumed.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::link;

/// A thread state, a frame, a code object, or any other object of Python's.
pub(super) type Object = *mut c_void;

/// `PyMethodDef`: a function in C that Python can call.
#[repr(C)]
pub(super) struct Method {
    pub(super) name: *const c_char,
    pub(super) function: unsafe extern "C" fn(Object, Object) -> Object,
    pub(super) flags: c_int,
    pub(super) doc: *const c_char,
}

// SAFETY: constant names and a function.
unsafe impl Sync for Method {}

macro_rules! api {
    (
        needed { $($field:ident: $signature:ty = $name:literal;)* }
        optional { $($option:ident: $option_signature:ty = $option_name:literal;)* }
    ) => {
        /// The functions that are used. Signatures: CPython's C API reference, 3.9 to 3.14.
        #[derive(Clone)]
        pub(super) struct Api {
            /// Minor version of Python 3.
            pub(super) minor: u32,
            /// Addresses of the library, or program, that runs Python's code.
            pub(super) library: Range<u64>,
            $(pub(super) $field: $signature,)*
            $(pub(super) $option: Option<$option_signature>,)*
        }

        impl Api {
            fn find(minor: u32, look_up: &dyn Fn(&CStr) -> *mut c_void) -> Option<Api> {
                $(let $field = look_up(c_name!($name));
                if $field.is_null() {
                    return None;
                })*
                // SAFETY: Python's functions of these names have these signatures in all versions that have them.
                unsafe {
                    Some(Api {
                        minor,
                        library: library_around(look_up(c"Py_IsInitialized") as usize),
                        $($field: std::mem::transmute::<*mut c_void, $signature>($field),)*
                        $($option: std::mem::transmute::<*mut c_void, Option<$option_signature>>(look_up(c_name!($option_name))),)*
                    })
                }
            }
        }
    };
}

macro_rules! c_name {
    ($name:literal) => {
        const {
            match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }
    };
}

api! {
    needed {
        is_initialized: unsafe extern "C" fn() -> c_int = "Py_IsInitialized";
        this_state: unsafe extern "C" fn() -> Object = "PyGILState_GetThisThreadState";
        ensure: unsafe extern "C-unwind" fn() -> c_int = "PyGILState_Ensure";
        release: unsafe extern "C-unwind" fn(c_int) = "PyGILState_Release";
        state_number: unsafe extern "C" fn(Object) -> u64 = "PyThreadState_GetID";
        interpreter: unsafe extern "C" fn(Object) -> Object = "PyThreadState_GetInterpreter";
        main_interpreter: unsafe extern "C" fn() -> Object = "PyInterpreterState_Main";
        frame: unsafe extern "C-unwind" fn(Object) -> Object = "PyThreadState_GetFrame";
        back: unsafe extern "C-unwind" fn(Object) -> Object = "PyFrame_GetBack";
        code: unsafe extern "C-unwind" fn(Object) -> Object = "PyFrame_GetCode";
        line: unsafe extern "C-unwind" fn(Object) -> c_int = "PyFrame_GetLineNumber";
        hold: unsafe extern "C" fn(Object) = "Py_IncRef";
        drop: unsafe extern "C-unwind" fn(Object) = "Py_DecRef";
        attribute: unsafe extern "C-unwind" fn(Object, *const c_char) -> Object = "PyObject_GetAttrString";
        utf8: unsafe extern "C-unwind" fn(Object, *mut isize) -> *const c_char = "PyUnicode_AsUTF8AndSize";
        integer: unsafe extern "C-unwind" fn(Object) -> c_long = "PyLong_AsLong";
        fetch_error: unsafe extern "C-unwind" fn(*mut Object, *mut Object, *mut Object) = "PyErr_Fetch";
        restore_error: unsafe extern "C-unwind" fn(Object, Object, Object) = "PyErr_Restore";
    }
    optional {
        last_instruction: unsafe extern "C-unwind" fn(Object) -> c_int = "PyFrame_GetLasti";
        current_before_13: unsafe extern "C" fn() -> Object = "_PyThreadState_UncheckedGet";
        current_from_13: unsafe extern "C" fn() -> Object = "PyThreadState_GetUnchecked";
        is_finalizing_before_13: unsafe extern "C" fn() -> c_int = "_Py_IsFinalizing";
        is_finalizing_from_13: unsafe extern "C" fn() -> c_int = "Py_IsFinalizing";
        take_raised: unsafe extern "C-unwind" fn() -> Object = "PyErr_GetRaisedException";
        set_raised: unsafe extern "C-unwind" fn(Object) = "PyErr_SetRaisedException";
        stop_collecting: unsafe extern "C" fn() -> c_int = "PyGC_Disable";
        collect_again: unsafe extern "C" fn() -> c_int = "PyGC_Enable";
        modules: unsafe extern "C-unwind" fn() -> Object = "PyImport_GetModuleDict";
        item: unsafe extern "C-unwind" fn(Object, *const c_char) -> Object = "PyMapping_GetItemString";
        capsule: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, unsafe extern "C" fn(Object)) -> Object = "PyCapsule_New";
        function: unsafe extern "C-unwind" fn(*const Method, Object, Object) -> Object = "PyCFunction_NewEx";
        call: unsafe extern "C-unwind" fn(Object, ...) -> Object = "PyObject_CallFunctionObjArgs";
        number: unsafe extern "C-unwind" fn(c_long) -> Object = "PyLong_FromLong";
        clear_error: unsafe extern "C-unwind" fn() = "PyErr_Clear";
    }
}

/// The API of the Python in this process; null until one is found.
static API: AtomicPtr<Api> = AtomicPtr::new(std::ptr::null_mut());

/// The API of the Python in this process.
#[inline(always)]
pub(super) fn get() -> Option<&'static Api> {
    // SAFETY: made by `look` and never freed. Acquire: whoever sees the pointer sees the table.
    unsafe { API.load(Ordering::Acquire).as_ref() }
}

/// Looks for a Python that is loaded. Uses the heap and the loader's lock.
pub(super) fn look() {
    if get().is_some() {
        return;
    }
    let found = find();
    // Failed look-ups leave a message that the program could take for its own.
    // SAFETY: reads and clears the thread's message.
    unsafe { libc::dlerror() };
    if let Some(found) = found {
        // Release: see `get`. Two threads find the same.
        API.store(Box::into_raw(Box::new(found)), Ordering::Release);
    }
}

fn find() -> Option<Api> {
    let globally = |name: &CStr| link::next::global(name);
    if !globally(c"Py_GetVersion").is_null() {
        return Api::find(minor_version(globally(c"Py_GetVersion"))?, &globally);
    }
    let is_library = |path: &str| path.rsplit('/').next().is_some_and(|name| name.starts_with("libpython3"));
    let library = link::loaded_objects().into_iter().find(|object| is_library(&object.path))?;
    let inside = |name: &CStr| library.symbol(name).map_or(std::ptr::null_mut(), |found| found.cast_mut().cast());
    let api = Api::find(minor_version(inside(c"Py_GetVersion"))?, &inside)?;
    // Its functions are called from now on.
    library.hold();
    Some(api)
}

/// The library, or program, around a function of Python's; everything where it is not known.
fn library_around(function: usize) -> Range<u64> {
    link::object_of(function).map_or(0..u64::MAX, |object| object.start as u64..object.end as u64)
}

/// The minor version, if frames can be read in it: 3.9 to 3.14, with one lock for the whole interpreter.
fn minor_version(get_version: *mut c_void) -> Option<u32> {
    if get_version.is_null() {
        return None;
    }
    // SAFETY: Python's function of this name returns a constant text, and may be called at any time.
    let version = unsafe {
        let get_version = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(get_version);
        CStr::from_ptr(get_version())
    };
    readable_minor(version.to_str().ok()?)
}

/// See [`minor_version`]; a text such as `3.11.7 (main, ...) [GCC ...]`.
fn readable_minor(version: &str) -> Option<u32> {
    let minor = version.strip_prefix("3.")?.split('.').next()?.parse().ok()?;
    let has_threads_without_lock = version.contains("free-threading");
    ((9..=14).contains(&minor) && !has_threads_without_lock).then_some(minor)
}

impl Api {
    /// The state of the thread that holds the interpreter, as far as this version can tell without a check: from 3.12 on
    /// this thread's own, before that whoever holds it.
    pub(super) fn current(&self) -> Object {
        // SAFETY: may be called without the interpreter; reads one word.
        self.current_from_13.or(self.current_before_13).map_or(std::ptr::null_mut(), |current| unsafe { current() })
    }

    /// Whether Python is there, and not about to go.
    pub(super) fn is_up(&self) -> bool {
        let is_finalizing = self.is_finalizing_from_13.or(self.is_finalizing_before_13);
        // SAFETY: both may be called at any time.
        unsafe { (self.is_initialized)() != 0 && is_finalizing.is_some_and(|is_finalizing| is_finalizing() == 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_frames_that_can_be_read() {
        assert_eq!(readable_minor("3.11.7 (main, Dec  5 2023) [GCC 12.2.0]"), Some(11));
        assert_eq!(readable_minor("3.9.18 (default)"), Some(9));
        assert_eq!(readable_minor("3.14.0a1+ (main)"), Some(14));
        for other in ["3.8.18 (default)", "3.15.0 (main)", "2.7.18", "3.13.0 experimental free-threading build (main)"]
        {
            assert_eq!(readable_minor(other), None, "{other}");
        }
    }
}
