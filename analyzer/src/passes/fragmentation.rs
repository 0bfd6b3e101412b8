//! Padding and fragmentation at the peak of a device: in the model, and with the granularity that was observed.

use gpuoom_trace::record::Kind;
use serde::Serialize;

use crate::replay::Replay;
use crate::replay::account::{Account, has_no_room, place};
use crate::replay::arena::{Arena, FreeSpace};
use crate::replay::block::Block;

/// Fragmentation in the model arena at the peak. Fields that need the size of the card are empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fragmentation {
    /// What the blocks of the peak take in the model, managed memory left out.
    pub padded_bytes: u64,
    /// (padded - requested) / requested at the peak; empty where nothing was requested.
    pub effective_loss: Option<f64>,
    /// Free model bytes outside the largest free block.
    pub stranded_bytes: Option<u64>,
    /// Largest free block of the model.
    pub largest_free_block_bytes: Option<u64>,
    /// 1 - largest free block / total free; 0 where nothing is free.
    pub external: Option<f64>,
    /// Size of the modelled card, in whole granules.
    pub capacity_bytes: Option<u64>,
    /// Free bytes of the model.
    pub free_bytes: Option<u64>,
    /// Blocks that lived at the peak and that the model could not place.
    pub overflow_blocks: Option<u64>,
    /// Their padded bytes.
    pub overflow_bytes: Option<u64>,
    /// These numbers are of the model, not of the machine.
    pub modelled: bool,
}

/// What the same blocks take with the granularity that the addresses show.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Observed {
    /// Inferred granularity.
    pub granularity_bytes: u64,
    /// Bytes asked for at the peak, without those of `shared_bytes`.
    pub requested_bytes: u64,
    /// Bytes of smaller blocks, which may share pieces that the driver took: what they take is not told by their addresses.
    pub shared_bytes: u64,
    /// How many such blocks.
    pub shared_blocks: u64,
    /// The same, each block rounded up to the observed granularity.
    pub held_bytes: u64,
    /// (held - requested) / requested.
    pub effective_loss: Option<f64>,
    /// Inferred from addresses, not measured.
    pub inferred: bool,
}

/// A sum that was kept wide, as it is printed.
pub fn saturate(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// (padded - requested) / requested.
pub fn loss(requested_bytes: u64, padded_bytes: u64) -> Option<f64> {
    (requested_bytes > 0).then(|| padded_bytes.saturating_sub(requested_bytes) as f64 / requested_bytes as f64)
}

/// Fragmentation of a device at its peak.
pub fn at_peak(replay: &Replay, account: &Account, blocks: &[Block]) -> Fragmentation {
    let granularity = replay.granularity_bytes;
    let peak = &account.peak.held;
    let managed = &account.peak.managed;
    let requested = saturate(peak.requested_bytes.saturating_sub(managed.requested_bytes));
    let padded = peak.granules.saturating_sub(managed.granules).saturating_mul(granularity);
    let mut result = Fragmentation {
        effective_loss: loss(requested, padded),
        padded_bytes: padded,
        modelled: true,
        ..Fragmentation::default()
    };
    let Some((arena, blocks)) = arena_at_peak(account, blocks) else { return result };
    let FreeSpace { total_granules, largest_granules } = arena.free_space();
    let bytes = |granules: u64| granules.saturating_mul(granularity);
    let overflow = blocks.iter().filter(|block| has_no_room(block));
    result.stranded_bytes = Some(bytes(total_granules - largest_granules));
    result.largest_free_block_bytes = Some(bytes(largest_granules));
    result.external = Some(external(total_granules, largest_granules));
    result.capacity_bytes = Some(bytes(arena.granules()));
    result.free_bytes = Some(bytes(total_granules));
    result.overflow_blocks = Some(overflow.clone().count() as u64);
    result.overflow_bytes =
        Some(overflow.fold(0, |sum: u64, block| sum.saturating_add(bytes(u64::from(block.granules)))));
    result
}

/// 1 - largest free block / total free.
pub fn external(total: u64, largest: u64) -> f64 {
    if total == 0 { 0.0 } else { 1.0 - largest as f64 / total as f64 }
}

/// The model arena with the blocks that lived at the peak, and their places in it.
pub fn arena_at_peak(account: &Account, blocks: &[Block]) -> Option<(Arena, Vec<Block>)> {
    let now = account.arena.as_ref()?;
    let mut arena = Arena::new(now.granules())?;
    let mut blocks = blocks.to_vec();
    if account.arena_since > account.peak.position {
        // The size of the card became known after the peak: the model can only place the blocks in their order.
        blocks.sort_by_key(|block| block.entered);
        for block in &mut blocks {
            block.place = place(&mut arena, block);
        }
    } else {
        blocks.iter().for_each(|block| arena.occupy(block.place, block.granules));
    }
    Some((arena, blocks))
}

/// What the blocks of the peak take with the observed granularity.
pub fn observed(account: &Account, blocks: &[Block]) -> Option<Observed> {
    let granularity_bytes = account.spacing.granularity_bytes()?;
    // Where managed pages lie nobody tells.
    let may_share = |block: &&Block| account.spacing.may_share(block.requested_bytes);
    let all = || blocks.iter().filter(|block| block.kind != Kind::Managed);
    let on_card = || all().filter(|block| !may_share(block));
    let shared = || all().filter(may_share);
    let held = on_card().fold(0u128, |sum, block| {
        sum + u128::from(block.requested_bytes.div_ceil(granularity_bytes)) * u128::from(granularity_bytes)
    });
    let requested = on_card().fold(0u128, |sum, block| sum + u128::from(block.requested_bytes));
    let (requested_bytes, held_bytes) = (saturate(requested), saturate(held));
    Some(Observed {
        granularity_bytes,
        requested_bytes,
        shared_bytes: saturate(shared().map(|block| u128::from(block.requested_bytes)).sum()),
        shared_blocks: shared().count() as u64,
        held_bytes,
        effective_loss: loss(requested_bytes, held_bytes),
        inferred: true,
    })
}
