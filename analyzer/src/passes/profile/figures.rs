//! The numbers by which two runs are compared. All of them add up: over call sites to kinds of memory, over kinds to a device.

use std::ops::{Index, IndexMut};

use serde::ser::{Serialize, SerializeMap, Serializer};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Calls, blocks.
    Count,
}

/// One sort of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// Bytes asked for that live when the device's program holds most.
    Peak,
    /// The same, each block padded to the granule.
    PaddedPeak,
    /// Blocks that live then.
    PeakBlocks,
    /// Bytes asked for that were never given back.
    End,
    /// The same, each block padded to the granule.
    PaddedEnd,
    /// Blocks that were never given back.
    EndBlocks,
    /// Calls that gave memory.
    Allocations,
    /// Of the blocks that these gave, those that are gone by the end.
    Frees,
    /// Bytes that all calls together asked for.
    Allocated,
    /// Calls that were refused, for whatever reason.
    Failures,
    /// Calls that ran out of memory.
    Ooms,
    /// Of these, made up for by a later call.
    Recovered,
    /// Of these, let out by the program.
    Propagated,
    /// Of these, followed by GPU work without a sign that the program had noticed.
    Dropped,
    /// Of these, not decided when the trace ends.
    Unresolved,
}

/// Figure, name in JSON, unit, words for a table.
const TABLE: [(Figure, &str, Unit, &str); 15] = [
    (Figure::Peak, "peak_bytes", Unit::Bytes, "peak"),
    (Figure::PaddedPeak, "peak_padded_bytes", Unit::Bytes, "peak, padded"),
    (Figure::PeakBlocks, "peak_allocations", Unit::Count, "blocks at the peak"),
    (Figure::End, "end_bytes", Unit::Bytes, "live at the end"),
    (Figure::PaddedEnd, "end_padded_bytes", Unit::Bytes, "live at the end, padded"),
    (Figure::EndBlocks, "end_allocations", Unit::Count, "blocks at the end"),
    (Figure::Allocations, "allocations", Unit::Count, "allocations"),
    (Figure::Frees, "frees", Unit::Count, "frees"),
    (Figure::Allocated, "allocated_bytes", Unit::Bytes, "allocated in all"),
    (Figure::Failures, "failures", Unit::Count, "refused requests"),
    (Figure::Ooms, "ooms", Unit::Count, "out of memory"),
    (Figure::Recovered, "recovered", Unit::Count, "recovered"),
    (Figure::Propagated, "propagated", Unit::Count, "propagated"),
    (Figure::Dropped, "dropped", Unit::Count, "dropped"),
    (Figure::Unresolved, "unresolved", Unit::Count, "unresolved"),
];

impl Figure {
    /// All, in the order of tables.
    pub fn all() -> impl Iterator<Item = Figure> {
        TABLE.iter().map(|row| row.0)
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// What it counts.
    pub fn unit(self) -> Unit {
        TABLE[self as usize].2
    }

    /// Its name for people.
    pub fn words(self) -> &'static str {
        TABLE[self as usize].3
    }

    /// Whether it counts calls that failed, where each one matters.
    pub fn is_failure(self) -> bool {
        self as usize >= Figure::Failures as usize
    }
}

/// All numbers of one thing: a device, a kind of memory on it, a call site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures([u64; TABLE.len()]);

impl Figures {
    /// Adds the numbers of a part.
    pub fn add(&mut self, part: &Figures) {
        for (sum, number) in self.0.iter_mut().zip(part.0) {
            *sum = sum.saturating_add(number);
        }
    }
}

impl Index<Figure> for Figures {
    type Output = u64;

    fn index(&self, figure: Figure) -> &u64 {
        &self.0[figure as usize]
    }
}

impl IndexMut<Figure> for Figures {
    fn index_mut(&mut self, figure: Figure) -> &mut u64 {
        &mut self.0[figure as usize]
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(TABLE.len()))?;
        for figure in Figure::all() {
            map.serialize_entry(figure.name(), &self[figure])?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_figures() {
        for (place, (figure, ..)) in TABLE.iter().enumerate() {
            assert_eq!(*figure as usize, place, "{figure:?}");
        }
    }
}
