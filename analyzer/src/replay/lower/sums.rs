//! What lives below the program's own calls, summed up by what a row of the ledger has in common.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Kind, Layer, NO_DEVICE};

use super::book::LowerBlock;
use super::cause::Cause;
use crate::replay::block::Side;

/// Classes that are told apart by function and call site; beyond that they are summed up.
const MAX_CLASSES: usize = 4096;

/// What blocks of a row of the ledger have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// Device number, [`NO_DEVICE`] for memory of the host.
    pub device: u8,
    /// Layer that was asked.
    pub layer: Layer,
    /// Kind of memory.
    pub kind: Kind,
    /// Why it exists.
    pub cause: Cause,
    /// Function and call site of an outermost call.
    pub caller: Option<(u16, u32)>,
}

impl Class {
    /// The class of a block.
    pub fn of(block: &LowerBlock) -> Self {
        let on_device = block.side() == Side::Device;
        Class {
            device: if on_device { block.device } else { NO_DEVICE },
            layer: block.layer,
            kind: block.kind,
            cause: block.cause,
            caller: block.is_outermost.then_some((block.api, block.site)),
        }
    }
}

/// Blocks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes asked for. Wide enough that no file can make it overflow.
    pub bytes: u128,
}

/// Sums by class; classes without blocks are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<Class, Sum>);

impl Sums {
    fn key(&self, block: &LowerBlock) -> Class {
        let class = Class::of(block);
        match self.0.len() >= MAX_CLASSES && !self.0.contains_key(&class) {
            true => Class { caller: None, ..class },
            false => class,
        }
    }

    /// Counts a block.
    pub fn add(&mut self, block: &LowerBlock) {
        if block.side() == Side::Neither {
            return;
        }
        let sum = self.0.entry(self.key(block)).or_default();
        sum.blocks += 1;
        sum.bytes += u128::from(block.bytes);
    }

    pub(super) fn remove(&mut self, block: &LowerBlock) {
        let class = Class::of(block);
        let summed_up = Class { caller: None, ..class };
        for class in [class, summed_up] {
            let Some(sum) = self.0.get_mut(&class).filter(|sum| sum.bytes >= u128::from(block.bytes)) else { continue };
            sum.blocks -= 1;
            sum.bytes -= u128::from(block.bytes);
            if sum.blocks == 0 {
                self.0.remove(&class);
            }
            return;
        }
    }

    /// All classes with what they hold, in a fixed order.
    pub fn rows(&self) -> impl Iterator<Item = (Class, Sum)> {
        self.0.iter().map(|(class, sum)| (*class, *sum))
    }

    /// The classes of one device, or those of the host.
    pub fn of(&self, side: Side, device: u8) -> Vec<(Class, Sum)> {
        let here = |class: &Class| Side::of(class.kind) == side && (side == Side::Host || class.device == device);
        self.rows().filter(|(class, _)| here(class)).collect()
    }
}
