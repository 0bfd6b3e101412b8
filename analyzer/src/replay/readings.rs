//! What the recorder read along the way: free and total memory, limits.

use gpuoom_trace::metadata::{Quantity, Reading};
use rustc_hash::FxHashMap;

use super::failures::ReadAtFailure;

/// Largest number of a quantity that this version knows.
const LAST_QUANTITY: u16 = Quantity::KfdAvailable as u16;

/// One series of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Ticks and value of the first reading.
    pub first: (u64, u64),
    /// Ticks and value of the last reading.
    pub last: (u64, u64),
    /// Ticks and value of the smallest.
    pub least: (u64, u64),
    /// Ticks and value of the greatest.
    pub most: (u64, u64),
    /// Number of readings.
    pub count: u64,
}

/// All series, by quantity and device.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    series: FxHashMap<(u16, u8), Series>,
}

impl Readings {
    /// Takes one reading.
    pub fn take(&mut self, reading: &Reading, at: u64) {
        if reading.quantity == 0 || reading.quantity > LAST_QUANTITY {
            return;
        }
        let now = (at, reading.value);
        let fresh = Series { first: now, last: now, least: now, most: now, count: 0 };
        let series = self.series.entry((reading.quantity, reading.device)).or_insert(fresh);
        series.last = now;
        series.count += 1;
        if now.1 < series.least.1 {
            series.least = now;
        }
        if now.1 > series.most.1 {
            series.most = now;
        }
    }

    /// The series of a quantity on a device.
    pub fn series(&self, quantity: Quantity, device: u8) -> Option<&Series> {
        self.series.get(&(quantity as u16, device))
    }
}

impl ReadAtFailure {
    /// Takes a reading that was made because of the failure.
    pub fn take(&mut self, reading: &Reading) {
        let field = match reading.quantity {
            q if q == Quantity::RuntimeFree as u16 => &mut self.runtime_free_bytes,
            q if q == Quantity::RuntimeTotal as u16 => &mut self.runtime_total_bytes,
            q if q == Quantity::VramTotal as u16 => &mut self.vram_total_bytes,
            q if q == Quantity::VramUsed as u16 => &mut self.vram_used_bytes,
            q if q == Quantity::KfdProcessVram as u16 => &mut self.process_vram_bytes,
            q if q == Quantity::LargestAllocatable as u16 => &mut self.largest_allocatable_bytes,
            q if q == Quantity::ProbeSkipped as u16 => &mut self.probe_skipped,
            _ => return,
        };
        *field = Some(reading.value);
    }
}
