//! What pools of the program's own told that is not counted, and why.

use serde::Serialize;

use super::fragmentation::saturate;
use crate::replay::Replay;
use crate::replay::blocks::{Contradictions, Elsewhere, MOST_NAMES, Pool};
use crate::words::{clean, count, size};

/// A pool of the program's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSummary {
    /// Its name.
    pub pool: String,
    /// Its records.
    pub events: u64,
    /// Whether its blocks are counted: not where what it told can't all be so.
    pub counted: bool,
    /// Blocks that it took back and that the trace does not show it gave.
    pub freed_unknown: u64,
    /// Addresses that it gave out again and had not taken back.
    pub given_twice: u64,
    /// Blocks that overlap another one of its own.
    pub overlapping: u64,
    /// Blocks that reach past the end of the memory in which they begin.
    pub beyond_memory: u64,
    /// Blocks where no recorded call gave memory.
    pub no_memory: Sum,
    /// Blocks in memory of the host.
    pub host_memory: Sum,
    /// Blocks below which the memory was given back, and that it never took back.
    pub freed_memory: Sum,
    /// Blocks whose names were more than are kept: they have one name together.
    pub names_left_out: u64,
}

/// Blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Their number.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl From<Elsewhere> for Sum {
    fn from(all: Elsewhere) -> Self {
        Sum { blocks: all.blocks, bytes: saturate(all.bytes) }
    }
}

/// All pools, in the order in which they came.
pub fn describe(replay: &Replay) -> Vec<PoolSummary> {
    replay.blocks.pools().map(|(name, pool)| PoolSummary::of(name, pool)).collect()
}

impl PoolSummary {
    fn of(name: &str, pool: &Pool) -> Self {
        let Contradictions { freed_unknown, given_twice, overlapping, beyond_memory } = pool.contradictions;
        PoolSummary {
            pool: name.to_owned(),
            events: pool.events,
            counted: !pool.contradictions.are_any(),
            freed_unknown,
            given_twice,
            overlapping,
            beyond_memory,
            no_memory: pool.no_memory.into(),
            host_memory: pool.host_memory.into(),
            freed_memory: pool.freed_memory.into(),
            names_left_out: pool.names_left_out,
        }
    }

    /// What people must be told of it, a sentence each. `is_whole`: no record of the trace is missing.
    pub fn notes(&self, is_whole: bool) -> Vec<String> {
        let pool = if self.pool.is_empty() { "a pool without a name".to_owned() } else { clean(&self.pool) };
        let mut notes: Vec<String> = self.contradictions(&pool, is_whole).into_iter().collect();
        for (sum, what) in [
            (self.no_memory, "where no recorded call gave memory: not counted as on a card"),
            (self.host_memory, "in memory of the host: not counted as on a card"),
            (self.freed_memory, "and had not taken back when the memory below was freed: not counted from then on"),
        ] {
            if sum.blocks > 0 {
                notes.push(format!("{pool} gave out {} ({}) {what}", blocks(sum.blocks), size(sum.bytes)));
            }
        }
        if self.names_left_out > 0 {
            let left_out = blocks(self.names_left_out);
            notes.push(format!(
                "{pool}: {left_out} under \"other names\", because {MOST_NAMES} names are kept of all pools"
            ));
        }
        notes
    }

    fn contradictions(&self, pool: &str, is_whole: bool) -> Option<String> {
        let all = [
            (self.freed_unknown, "taken back and never given out"),
            (self.given_twice, "given out twice and not taken back between"),
            (self.overlapping, "given out over another block"),
            (self.beyond_memory, "past the end of its memory"),
        ];
        let told = all.iter().filter(|(number, _)| *number > 0);
        let told: Vec<String> = told.map(|(number, what)| format!("{} {what}", blocks(*number))).collect();
        let why = if is_whole { "" } else { ", perhaps because records are missing in this trace" };
        let told = told.join(", ");
        (!told.is_empty()).then(|| format!("{pool} contradicts itself{why}, so none of its blocks is counted: {told}"))
    }
}

fn blocks(number: u64) -> String {
    count(number, "block", "blocks")
}
