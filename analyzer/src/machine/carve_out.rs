//! Sizes of an APU's carve-out that the firmware lets Linux choose from.
//!
//! Source: Linux, Documentation/gpu/amdgpu/driver-misc.rst, "UMA Carveout" (`uma/carveout_options`, `uma/carveout`). Where the firmware has no
//! such choice, there are no such files.

use gpuoom_units as units;
use serde::Serialize;

/// Most sizes that are kept.
const MOST: usize = 64;

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CarveOut {
    /// The number to write for it.
    pub index: u64,
    /// Its size.
    pub size_bytes: u64,
}

/// The lines of `uma/carveout_options`: `0: Minimum (512 MB)`. The driver's units are of 1024.
pub(super) fn options(text: &str) -> Vec<CarveOut> {
    let option = |line: &str| {
        let (index, rest) = line.split_once(':')?;
        let (_, size) = rest.trim().strip_suffix(')')?.rsplit_once('(')?;
        Some(CarveOut { index: index.trim().parse().ok()?, size_bytes: units::size_in(size, 1).ok()? })
    };
    text.lines().filter_map(option).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_the_kernel_writes_them() {
        let text = "  0: Minimum (512 MB)\n  1:  (1 GB)\n  7: Medium (16 GB)\n  9: High (32 GB)\n  10: Auto\nnothing\n";
        let read: Vec<_> = options(text).into_iter().map(|option| (option.index, option.size_bytes >> 20)).collect();
        assert_eq!(read, [(0, 512), (1, 1024), (7, 16 << 10), (9, 32 << 10)]);
        assert_eq!(options(""), []);
    }
}
