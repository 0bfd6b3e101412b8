//! Who allocated what lives at one moment: call sites by their bytes.

use gpuoom_trace::record::Kind;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::replay::block::Side;
use crate::replay::census::Census;
use crate::symbols::{CallSite, Frame, Stacks};

/// Call sites that are named for one moment, those with most bytes; there are a few hundred in most programs.
const MOST_NAMED: usize = 4096;

/// Blocks and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Bytes held.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of managed memory, which may lie in RAM: they are not in `bytes`.
    pub managed_bytes: u64,
    /// Its blocks.
    pub managed_blocks: u64,
}

impl Amount {
    /// What calls of one kind gave; of managed memory apart.
    fn of(kind: Kind, bytes: u128, blocks: u64) -> Self {
        match kind {
            Kind::Managed => Amount { managed_bytes: saturate(bytes), managed_blocks: blocks, ..Amount::default() },
            _ => Amount { bytes: saturate(bytes), blocks, ..Amount::default() },
        }
    }

    /// All of it, wherever it lies.
    fn all_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.managed_bytes)
    }

    /// Adds another amount.
    pub fn add(&mut self, other: Amount) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.managed_bytes = self.managed_bytes.saturating_add(other.managed_bytes);
        self.managed_blocks = self.managed_blocks.saturating_add(other.managed_blocks);
    }
}

/// One who allocated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallerRow {
    /// Bytes held.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of managed memory, which may lie in RAM: they are not in `bytes`.
    pub managed_bytes: u64,
    /// Its blocks.
    pub managed_blocks: u64,
    /// What other runs and builds of the program call the same place.
    pub key: String,
    /// For people: function and library, or function and Python file; of a program's function also that of the package that asked.
    pub label: String,
    /// The program's own frame that is nearest; where none is known, the first one outside of allocators and dispatchers. Without a line
    /// where the ways lead through several lines of it.
    pub frame: Frame,
    /// The frame of an installed package or of generated code that asked, where `frame` is the program's and called it; else null.
    /// Without a line where the ways lead through several lines of it.
    pub asked_by: Option<Frame>,
    /// How many different ways led there.
    pub ways: u64,
    /// The way that most bytes came by.
    pub stack: Vec<Frame>,
    /// Whether frames are missing at its outer end.
    pub stack_is_cut: bool,
    /// Whether frames of any of the ways were inferred from frame pointers, where unwind tables are missing.
    pub stack_is_inferred: bool,
}

/// All who allocated what lives.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Callers {
    /// Those with most bytes, the largest first.
    pub rows: Vec<CallerRow>,
    /// Those that are not listed.
    pub left_out: LeftOut,
    /// What came by calls whose place the trace does not tell.
    pub unknown: Amount,
}

/// Who is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// How many.
    pub callers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Bytes of managed memory, which may lie in RAM: they are not in `bytes`.
    pub managed_bytes: u64,
    /// Its blocks.
    pub managed_blocks: u64,
}

/// One caller while sums are made; the first site has most bytes.
struct Group {
    site: u32,
    amount: Amount,
    ways: u64,
    is_inferred: bool,
    has_one_line: bool,
    has_one_asking_line: bool,
}

/// What tells groups apart. Functions that a compiler merged into one have one key: what each took is told apart by its label. Blocks
/// that a package asked for count for the program's line.
type Name = (String, String, Option<u32>);

fn name_of(site: &CallSite) -> Name {
    (site.key.clone(), site.label.clone(), site.asked_by.as_ref().and(site.who.line))
}

fn asking_line(site: &CallSite) -> Option<u32> {
    site.asked_by.as_ref().and_then(|frame| frame.line)
}

/// Who allocated what a census counts, at most `most` of them by name.
pub fn of_census(stacks: &Stacks<'_>, census: &Census, most: usize) -> Callers {
    let mut sites: Vec<(u32, Amount)> = by_site(census).into_iter().collect();
    sites.sort_unstable_by_key(|(site, amount)| (std::cmp::Reverse((amount.bytes, amount.all_bytes())), *site));
    let mut callers = Callers::default();
    let mut groups: FxHashMap<Name, Group> = FxHashMap::default();
    let mut named = 0;
    for (site, amount) in sites {
        if named == MOST_NAMED {
            callers.left_out.add(amount);
            continue;
        }
        let Some(known) = stacks.call_site(site) else {
            callers.unknown.add(amount);
            continue;
        };
        named += 1;
        let fresh = || Group::new(site);
        let group = groups.entry(name_of(&known)).or_insert_with(fresh);
        let first = stacks.call_site(group.site);
        group.has_one_line &= first.as_ref().is_some_and(|first| first.who.line == known.who.line);
        group.has_one_asking_line &= first.is_some_and(|first| asking_line(&first) == asking_line(&known));
        group.amount.add(amount);
        group.ways += 1;
        group.is_inferred |= stacks.is_inferred(site);
    }
    let mut groups: Vec<(Name, Group)> = groups.into_iter().collect();
    groups.sort_unstable_by(|(one, first), (other, second)| {
        let bytes = |group: &Group| (group.amount.bytes, group.amount.managed_bytes);
        // By names last: these are others in a redacted trace.
        bytes(second).cmp(&bytes(first)).then(first.site.cmp(&second.site)).then_with(|| one.cmp(other))
    });
    let rest = groups.split_off(groups.len().min(most));
    rest.iter().for_each(|(_, group)| callers.left_out.add(group.amount));
    callers.rows = groups.into_iter().filter_map(|((key, ..), group)| row(stacks, key, &group)).collect();
    callers
}

impl Group {
    fn new(site: u32) -> Self {
        let (has_one_line, has_one_asking_line) = (true, true);
        Group { site, amount: Amount::default(), ways: 0, is_inferred: false, has_one_line, has_one_asking_line }
    }
}

impl LeftOut {
    fn add(&mut self, amount: Amount) {
        self.callers += 1;
        self.bytes = self.bytes.saturating_add(amount.bytes);
        self.blocks = self.blocks.saturating_add(amount.blocks);
        self.managed_bytes = self.managed_bytes.saturating_add(amount.managed_bytes);
        self.managed_blocks = self.managed_blocks.saturating_add(amount.managed_blocks);
    }
}

/// The program's own calls, and those that libraries made for themselves: each byte once.
fn by_site(census: &Census) -> FxHashMap<u32, Amount> {
    let mut sites: FxHashMap<u32, Amount> = FxHashMap::default();
    for (caller, held) in &census.own {
        sites.entry(caller.site).or_default().add(Amount::of(caller.kind, held.requested_bytes, held.blocks));
    }
    for (class, sum) in &census.lower {
        let Some((_, site)) = class.caller.filter(|_| class.cause.backs(Side::of(class.kind)).is_none()) else {
            continue;
        };
        sites.entry(site).or_default().add(Amount::of(class.kind, sum.bytes, sum.blocks));
    }
    sites
}

fn row(stacks: &Stacks<'_>, key: String, group: &Group) -> Option<CallerRow> {
    let site = stacks.call_site(group.site)?;
    let stack = stacks.of(group.site);
    Some(CallerRow {
        bytes: group.amount.bytes,
        blocks: group.amount.blocks,
        managed_bytes: group.amount.managed_bytes,
        managed_blocks: group.amount.managed_blocks,
        key,
        label: site.label.clone(),
        frame: Frame { line: site.who.line.filter(|_| group.has_one_line), ..site.who.clone() },
        asked_by: site
            .asked_by
            .as_ref()
            .map(|frame| Frame { line: frame.line.filter(|_| group.has_one_asking_line), ..frame.clone() }),
        ways: group.ways,
        stack_is_cut: stack.native_is_cut || stack.python_is_cut,
        stack_is_inferred: group.is_inferred,
        stack: stack.frames,
    })
}
