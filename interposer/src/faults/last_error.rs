//! The runtime's last error after a failure on request, of which the runtime knows nothing.
//!
//! What the last error is depends on the version: in CUDA and since ROCm 7 the last call that failed; up to ROCm 6 the last
//! call, whatever it returned, and also calls that nobody hooks. So we do not follow it but let the runtime do so: a call
//! that fails for another reason is made in the refused one's place (a device is chosen that no machine has). As long as
//! the runtime answers with *that* failure, no other call came after it, and the program is told "out of memory". Whatever
//! else it answers is the truth.

use crate::base::guard;
use crate::base::thread::{self, Refused};
use crate::link;
use crate::table;
use crate::table::Library;

/// No machine has so many devices.
const NO_SUCH_DEVICE: i32 = i32::MAX;

/// Lets the runtime note a failure for the one that the program is told of.
pub(super) fn leave(library: Library, status: i32, caller: usize) {
    let choose = match library {
        Library::Hip => "hipSetDevice",
        Library::CudaRuntime => "cudaSetDevice",
        // The others have no last error.
        _ => return,
    };
    guard::cold((), || {
        let Some(choose) = table::number_of(choose) else { return };
        let choose = link::real(choose, caller);
        // SAFETY: hipSetDevice and cudaSetDevice take an int and return a status. A device that is not there is refused
        // without any effect but the last error.
        let stand_in = unsafe { std::mem::transmute::<*const (), extern "C" fn(i32) -> i32>(choose)(NO_SUCH_DEVICE) };
        thread::current().refused.set(Refused { status, stand_in, library: library as u8 + 1 });
    });
}

/// The last error, as the program is to see it, from what the runtime says.
pub(super) fn translate(library: Library, told: i32) -> i32 {
    let refused = thread::current().refused.get();
    let is_stand_in = told != 0 && told == refused.stand_in && refused.library == library as u8 + 1;
    if is_stand_in { refused.status } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stand_in_of_the_same_runtime_is_translated() {
        let set = |refused| thread::current().refused.set(refused);
        set(Refused { status: 2, stand_in: 101, library: Library::Hip as u8 + 1 });
        let hip = |told| translate(Library::Hip, told);
        assert_eq!((hip(101), hip(0), hip(1)), (2, 0, 1));
        assert_eq!(translate(Library::CudaRuntime, 101), 101);
        set(Refused { status: 0, stand_in: 0, library: 0 });
        assert_eq!((hip(101), hip(0)), (101, 0));
    }
}
