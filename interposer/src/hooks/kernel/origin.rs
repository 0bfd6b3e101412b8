//! Who makes a request: the program, a vendor's runtime, or a library that passes requests on for others.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::guard;
use crate::link;

/// Runtimes that reach their driver through `ioctl`, by the beginning of their file name.
const RUNTIMES: [&str; 6] =
    ["libhsakmt", "libhsa-runtime64", "libamdhip64", "libcuda.so", "libcudart", "libnvidia-ptxjit"];
/// Libraries that runtimes and programs share: whoever is inside a recorded call made the request.
const HELPERS: [&str; 1] = ["libdrm"];

/// Call sites that are remembered: a process has a handful. A power of two.
const SITES: usize = 64;
/// Return addresses; the lowest bit of a shifted one says "helper".
static JUDGED: [AtomicUsize; SITES] = [const { AtomicUsize::new(0) }; SITES];

/// Whether a request from this call site is part of the call under way, whoever that belongs to. A vendor's runtime that
/// is met here for the first time is made known as one.
pub(super) fn passes_on(caller: usize) -> bool {
    let start = (caller as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> (usize::BITS - 6);
    for step in 0..SITES {
        let place = &JUDGED[(start + step) % SITES];
        // Relaxed: the word says everything.
        let known = place.load(Ordering::Relaxed);
        if known >> 1 == caller {
            return known & 1 != 0;
        }
        if known == 0 {
            let helps = judge(caller);
            place.store(caller << 1 | usize::from(helps), Ordering::Relaxed);
            return helps;
        }
    }
    judge(caller)
}

#[cold]
fn judge(caller: usize) -> bool {
    guard::cold(false, || {
        guard::without_signals(|| {
            let Some(object) = link::object_of(caller) else { return false };
            let file_name = object.path.rsplit('/').next().unwrap_or_default();
            if RUNTIMES.iter().any(|name| file_name.starts_with(name)) {
                link::add_runtime_code(&object);
            }
            HELPERS.iter().any(|name| file_name.starts_with(name))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_judged_once() {
        let here = a_site_is_judged_once as *const () as usize;
        assert!(!passes_on(here) && !passes_on(here));
        let known = JUDGED.iter().filter(|place| place.load(Ordering::Relaxed) >> 1 == here).count();
        assert_eq!(known, 1);
    }
}
