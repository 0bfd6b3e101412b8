//! What a thrown object says of itself, without running code of the program's.
//!
//! Only classes that derive from `std::exception` say anything. Whether one does, its type information tells (Itanium C++ ABI,
//! 2.9): it is walked from class to base, and all of it is read as memory that may not be there. Then one of two is known to be
//! safe:
//!
//! * PyTorch's `c10::Error`: its `what()` collects a backtrace when it is first called, and what a derived class makes of
//!   `what_without_backtrace()` (virtual since 2.2) may do the same. Its message is its first member, a string of libstdc++ in the
//!   new or the old form; both begin with a pointer to a terminated text. So nothing is called.
//! * A `what()` that is the C++ library's own (`std::runtime_error`, `std::bad_alloc`, what derives from them and leaves it as it
//!   is): such a function hands out a text that it has. In a program that is not position-independent its address may be the
//!   program's own entry for it, so the common ones are also known by their names.
//!
//! Any other `what()` is the program's code: it would run at a moment at which the program does not call it. Nothing is read then.

use std::ffi::CStr;

use crate::base::program_memory::{self, word};
use crate::link;

const EXCEPTION: &[u8] = b"St9exception";
const TORCH_ERROR: &[u8] = b"N3c105ErrorE";
/// What the type information of a class is itself, by its bases: one at the same address, or any others.
const ONE_BASE: &[u8] = b"N10__cxxabiv120__si_class_type_infoE";
const SEVERAL_BASES: &[u8] = b"N10__cxxabiv121__vmi_class_type_infoE";
/// No program has more; a walk through nonsense ends here.
const MAX_CLASSES: u32 = 64;
const MAX_BASES: u64 = 16;
/// Longer names than those above are none of them.
const NAME_BYTES: usize = 40;
/// Places in a table of virtual functions, in words: both destructors come first.
const WHAT: u64 = 2;

/// The parts of a thrown object that say something.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    exception: Option<u64>,
    torch_error: Option<u64>,
}

/// Reads what the object says into `out`; 0: nothing, or nobody may ask. `real`: the function that throws.
pub(super) fn text(object: u64, type_info: u64, real: *const (), out: &mut [u8]) -> usize {
    let mut parts = Parts::default();
    parts_of(object, type_info, &mut 0, &mut parts);
    match parts {
        Parts { torch_error: Some(error), .. } => word(error + 8).map_or(0, |text| program_memory::text(text, out)),
        Parts { exception: Some(exception), .. } => what(exception, real, out),
        _ => 0,
    }
}

/// `what()` of the classes that most others derive from.
const COMMON: [&CStr; 4] = [
    c"_ZNKSt13runtime_error4whatEv",
    c"_ZNKSt11logic_error4whatEv",
    c"_ZNKSt9exception4whatEv",
    c"_ZNKSt9bad_alloc4whatEv",
];

/// Calls `what()` if it is the C++ library's.
fn what(exception: u64, real: *const (), out: &mut [u8]) -> usize {
    let function = word(exception).and_then(|functions| word(functions.wrapping_add(8 * WHAT)));
    let is_librarys = |function: &u64| {
        let function = *function as usize;
        link::is_beside(function, real as usize) || link::is_named(function, &COMMON)
    };
    let Some(function) = function.filter(is_librarys) else { return 0 };
    // SAFETY: the C++ library's `what()` of an object that is whole: it is about to be thrown. Such a function changes nothing.
    let text = unsafe { std::mem::transmute::<u64, unsafe extern "C" fn(u64) -> u64>(function)(exception) };
    program_memory::text(text, out)
}

/// Looks through a class and its bases; `object` is where the part of that class lies.
fn parts_of(object: u64, type_info: u64, seen: &mut u32, parts: &mut Parts) {
    *seen += 1;
    if *seen > MAX_CLASSES || object == 0 {
        return;
    }
    let mut name = [0; NAME_BYTES];
    match name_of(type_info, &mut name) {
        EXCEPTION => return parts.exception = parts.exception.or(Some(object)),
        TORCH_ERROR => parts.torch_error = parts.torch_error.or(Some(object)),
        _ => {}
    }
    // The type information of the type information lies right before the functions of a class.
    let own_class = word(type_info).and_then(|functions| word(functions.wrapping_sub(8)));
    match own_class.map_or(&[][..], |own_class| name_of(own_class, &mut name)) {
        ONE_BASE => {
            let base = word(type_info.wrapping_add(16)).unwrap_or(0);
            parts_of(object, base, seen, parts);
        }
        SEVERAL_BASES => each_base(object, type_info, |object, base| parts_of(object, base, seen, parts)),
        _ => {}
    }
}

/// The bases of a class that has several, or one elsewhere than at its beginning.
fn each_base(object: u64, type_info: u64, mut visit: impl FnMut(u64, u64)) {
    // Flags, then the number of bases: 32 bits each.
    let count = word(type_info.wrapping_add(16)).unwrap_or(0) >> 32;
    for entry in (0..count.min(MAX_BASES)).map(|number| type_info.wrapping_add(24 + 16 * number)) {
        let (Some(base), Some(place)) = (word(entry), word(entry.wrapping_add(8))) else { return };
        let is_virtual = place & 1 != 0;
        let offset = (place as i64 >> 8) as u64;
        // Where a virtual base lies stands in the table of functions.
        let offset = match is_virtual {
            false => Some(offset),
            true => word(object).and_then(|functions| word(functions.wrapping_add(offset))),
        };
        if let Some(offset) = offset {
            visit(object.wrapping_add(offset), base);
        }
    }
}

/// The mangled name in a type's information.
fn name_of(type_info: u64, out: &mut [u8; NAME_BYTES]) -> &[u8] {
    let name = word(type_info.wrapping_add(8)).unwrap_or(0);
    let length = program_memory::text(name, out);
    &out[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information as compilers lay it out, of classes whose names are these.
    struct Types {
        kinds: [[u64; 3]; 2],
    }

    fn address<T: ?Sized>(of: &T) -> u64 {
        std::ptr::from_ref(of).cast::<u8>() as u64
    }

    /// Leaks: addresses must stay.
    fn kept(words: Vec<u64>) -> u64 {
        address(Vec::leak(words))
    }

    impl Types {
        fn new() -> Types {
            let kind = |name: &'static std::ffi::CStr| {
                let own = kept(vec![0, name.as_ptr() as u64]);
                // The word before the functions.
                [own, 0, 0]
            };
            Types {
                kinds: [kind(c"N10__cxxabiv120__si_class_type_infoE"), kind(c"N10__cxxabiv121__vmi_class_type_infoE")],
            }
        }

        fn class(&self, kind: usize, name: &'static std::ffi::CStr, rest: &[u64]) -> u64 {
            let functions = address(&self.kinds[kind]) + 8;
            kept([&[functions, name.as_ptr() as u64], rest].concat())
        }
    }

    fn found(object: u64, type_info: u64) -> Parts {
        let mut parts = Parts::default();
        parts_of(object, type_info, &mut 0, &mut parts);
        parts
    }

    #[test]
    fn bases_are_found_wherever_they_lie() {
        let types = Types::new();
        let exception = kept(vec![0, c"St9exception".as_ptr() as u64]);
        let other = kept(vec![0, c"5Other".as_ptr() as u64]);
        let one = types.class(0, c"3One", &[exception]);
        assert_eq!(found(4096, one).exception, Some(4096));
        let two = types.class(1, c"3Two", &[2 << 32, other, 2, one, 24 << 8 | 2]);
        assert_eq!(found(4096, two), Parts { exception: Some(4096 + 24), torch_error: None });
        let functions = kept(vec![40, 0, 0, 7]);
        let object = kept(vec![functions + 24]);
        let by_virtual = types.class(1, c"3Far", &[1 << 32, one, (-24i64 as u64) << 8 | 3]);
        assert_eq!(found(object, by_virtual).exception, Some(object + 40));
        let torch = types.class(0, c"N3c105ErrorE", &[exception]);
        let memory = types.class(0, c"N3c1016OutOfMemoryErrorE", &[torch]);
        assert_eq!(found(4096, memory), Parts { exception: Some(4096), torch_error: Some(4096) });
    }

    #[test]
    fn nonsense_is_nothing() {
        let types = Types::new();
        let endless = Box::leak(Box::new([address(&types.kinds[0]) + 8, c"4Loop".as_ptr() as u64, 0]));
        let type_info = address(endless);
        endless[2] = type_info;
        for type_info in [0, 8, u64::MAX - 3, type_info, kept(vec![1, 2, 3, 4])] {
            assert_eq!(found(4096, type_info), Parts::default());
            assert_eq!(text(4096, type_info, std::ptr::null(), &mut [0; 64]), 0);
        }
        assert_eq!(found(0, kept(vec![0, c"St9exception".as_ptr() as u64])), Parts::default(), "a thrown null");
    }
}
