//! Device memory that vendor libraries took outside any recorded call.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Kind, Layer};

use super::book::LowerBlock;

/// Rows that are kept.
const MAX_ROWS: usize = 4096;

/// What one call site took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Device number.
    pub device: u8,
    /// Layer that was asked.
    pub layer: Layer,
    /// Function that was called.
    pub api: u16,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Number of calls.
    pub calls: u64,
    /// Most bytes that were held at once.
    pub most_bytes: u128,
}

#[derive(Clone, Debug, Default)]
struct Held {
    calls: u64,
    bytes: u128,
    most: u128,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct TakenAlone {
    rows: BTreeMap<(u8, Layer, u16, u32), Held>,
}

impl TakenAlone {
    fn row(&mut self, block: &LowerBlock) -> Option<&mut Held> {
        let key = (block.device, block.layer, block.api, block.site);
        let counts = block.is_outermost && block.kind != Kind::Managed;
        let known = counts && (self.rows.len() < MAX_ROWS || self.rows.contains_key(&key));
        known.then(|| self.rows.entry(key).or_default())
    }

    pub(super) fn add(&mut self, block: &LowerBlock) {
        if let Some(row) = self.row(block) {
            row.calls += 1;
            row.bytes += u128::from(block.bytes);
            row.most = row.most.max(row.bytes);
        }
    }

    pub(super) fn remove(&mut self, block: &LowerBlock) {
        if let Some(row) = self.row(block) {
            row.bytes = row.bytes.saturating_sub(u128::from(block.bytes));
        }
    }

    pub(super) fn rows(&self) -> Vec<Alone> {
        let rows = self.rows.iter().map(|((device, layer, api, site), held)| Alone {
            device: *device,
            layer: *layer,
            api: *api,
            site: *site,
            calls: held.calls,
            most_bytes: held.most,
        });
        rows.collect()
    }
}
