//! Blocks that live at one moment, grouped by where they come from, and when those that survived were made.

use rustc_hash::FxHashMap;

use crate::replay::block::Block;
use crate::replay::sites::Sites;

/// Groups that are kept, the largest ones.
pub const MAX_GROUPS: usize = 16;
/// Stretches of equal length that the time until the moment is divided into.
pub const STRETCHES: usize = 16;
/// Sizes that are named at most.
const MAX_SIZES: usize = 64;

/// Blocks of one call site, function and size that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Call site, 0 where it is not known: of several ways to the same call, the one that most bytes came by.
    pub site: u32,
    /// Function.
    pub api: u16,
    /// Bytes of each block.
    pub block_bytes: u64,
    /// How many.
    pub blocks: u64,
    /// Ticks when the oldest was given.
    pub first_at: u64,
    /// Ticks when the youngest was given.
    pub last_at: u64,
    /// How many of them were given in each stretch of the time until then.
    pub born: [u32; STRETCHES],
}

impl Group {
    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes)
    }

    fn take_in(&mut self, other: &Group) {
        self.blocks += other.blocks;
        (self.first_at, self.last_at) = (self.first_at.min(other.first_at), self.last_at.max(other.last_at));
        for (born, more) in self.born.iter_mut().zip(other.born) {
            *born = born.saturating_add(more);
        }
    }

    /// Stretches in which at least one block was given that still lives: many for a leak, one or two for what is set up once.
    pub fn stretches(&self) -> usize {
        self.born.iter().filter(|born| **born > 0).count()
    }
}

/// What lives, by origin and by size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// The groups that hold most, largest first; at most [`MAX_GROUPS`].
    pub groups: Vec<Group>,
    /// All groups, kept or not.
    pub group_count: usize,
    /// Distinct sizes.
    pub distinct_sizes: usize,
    /// The fewest sizes that hold 80 % of the bytes, with their numbers of blocks, the one that holds most first. At most 64 are
    /// named, `covering_sizes` counts them.
    pub covering: Vec<(u64, u64)>,
    /// How many sizes hold 80 % of the bytes.
    pub covering_sizes: usize,
    /// All bytes.
    pub bytes: u64,
    /// All blocks.
    pub blocks: u64,
}

impl Survivors {
    /// Groups blocks at the moment `now`, of a trace whose first call came at `first_at`.
    pub fn of<'a>(blocks: impl Iterator<Item = &'a Block>, sites: &Sites, first_at: u64, now: u64) -> Self {
        let width = (now.saturating_sub(first_at) / STRETCHES as u64).saturating_add(1);
        let mut groups: FxHashMap<(u32, u16, u64), Group> = FxHashMap::default();
        for block in blocks {
            let fresh = Group {
                site: block.site,
                api: block.api,
                block_bytes: block.requested_bytes,
                blocks: 0,
                first_at: block.at,
                last_at: block.at,
                born: [0; STRETCHES],
            };
            let group = groups.entry((block.site, block.api, block.requested_bytes)).or_insert(fresh);
            group.blocks += 1;
            (group.first_at, group.last_at) = (group.first_at.min(block.at), group.last_at.max(block.at));
            let stretch = (block.at.saturating_sub(first_at) / width).min(STRETCHES as u64 - 1);
            let born = &mut group.born[stretch as usize];
            *born = born.saturating_add(1);
        }
        Self::sum_up(by_place(groups.into_values().collect(), sites))
    }

    fn sum_up(mut groups: Vec<Group>) -> Self {
        let mut sizes: FxHashMap<u64, u64> = FxHashMap::default();
        groups.iter().for_each(|group| *sizes.entry(group.block_bytes).or_default() += group.blocks);
        let mut sizes: Vec<(u64, u64)> = sizes.into_iter().collect();
        let held = |(bytes, blocks): &(u64, u64)| u128::from(*bytes) * u128::from(*blocks);
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse((held(size), size.0)));
        let all: u128 = sizes.iter().map(held).sum();
        let mut sum = 0;
        let covering = sizes.iter().take_while(|size| {
            let short = sum * 5 < all * 4;
            sum += held(size);
            short
        });
        let covering: Vec<(u64, u64)> = covering.copied().collect();
        groups.sort_unstable_by_key(|group| {
            (std::cmp::Reverse(group.bytes()), group.first_at, group.site, group.api, group.block_bytes)
        });
        let (group_count, blocks) = (groups.len(), groups.iter().map(|group| group.blocks).sum());
        groups.truncate(MAX_GROUPS);
        Survivors {
            groups,
            group_count,
            distinct_sizes: sizes.len(),
            covering_sizes: covering.len(),
            covering: covering.into_iter().take(MAX_SIZES).collect(),
            bytes: u64::try_from(all).unwrap_or(u64::MAX),
            blocks,
        }
    }
}

/// Makes one group of those whose calls have the same return address.
fn by_place(mut fine: Vec<Group>, sites: &Sites) -> Vec<Group> {
    // The largest first: its way stands for all.
    fine.sort_unstable_by_key(|group| (std::cmp::Reverse(group.bytes()), group.first_at, group.site));
    let mut groups: FxHashMap<(u32, u16, u64), Group> = FxHashMap::default();
    for group in fine {
        groups
            .entry((sites.place(group.site), group.api, group.block_bytes))
            .and_modify(|known| known.take_in(&group))
            .or_insert(group);
    }
    groups.into_values().collect()
}
