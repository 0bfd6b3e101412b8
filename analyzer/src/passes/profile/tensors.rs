//! What allocators above the runtime gave out and held at most, as numbers that can be set beside those of another run.

use std::collections::BTreeMap;

use gpuoom_trace::record::Kind;
use serde::{Serialize, Serializer};

use super::figures::{Figure, Figures};
use super::sites::Sites;
use super::{Place, SiteName, SiteProfile};
use crate::passes::fragmentation::saturate;
use crate::passes::tensors::name_of;
use crate::replay::Replay;
use crate::replay::blocks::{Device, Owner, Row, Told};
use crate::words::clean;

/// A number of an allocator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorFigure {
    /// The most that was in blocks.
    Tensors,
    /// The most that it held.
    Reserved,
    /// What of that was in no block, when most of it was.
    Unused,
}

impl TensorFigure {
    /// All, in the order of tables.
    pub const ALL: [TensorFigure; 3] = [TensorFigure::Tensors, TensorFigure::Reserved, TensorFigure::Unused];

    /// Its name for people.
    pub fn words(self) -> &'static str {
        match self {
            TensorFigure::Tensors => "most in tensors",
            TensorFigure::Reserved => "most reserved for tensors",
            TensorFigure::Unused => "unused of that",
        }
    }
}

/// Why a number is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Records are missing in the trace.
    RecordsMissing,
    /// The allocator's own total is another number than the sum of its blocks.
    TotalsDiffer,
    /// The allocator tells of its blocks, and not of what it holds.
    NoTotals,
    /// A pool told what can't all be so.
    Contradicts,
}

impl Unknown {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Unknown::RecordsMissing => "records of its blocks are missing",
            Unknown::TotalsDiffer => "its own total is another number than the sum of its blocks",
            Unknown::Contradicts => "what it told of its blocks can't all be so",
            Unknown::NoTotals => "it tells of its blocks, and not of what it holds",
        }
    }
}

/// The numbers of one allocator on one device; in JSON null where one is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TensorFigures {
    /// The most that was in blocks, in bytes.
    #[serde(serialize_with = "or_null")]
    pub tensors_bytes: Result<u64, Unknown>,
    /// The most that it held.
    #[serde(serialize_with = "or_null")]
    pub reserved_bytes: Result<u64, Unknown>,
    /// What of that was in no block, when most of it was.
    #[serde(serialize_with = "or_null")]
    pub unused_bytes: Result<u64, Unknown>,
}

fn or_null<S: Serializer>(number: &Result<u64, Unknown>, serializer: S) -> Result<S::Ok, S::Error> {
    number.ok().serialize(serializer)
}

impl TensorFigures {
    /// One of the numbers.
    pub fn get(&self, figure: TensorFigure) -> Result<u64, Unknown> {
        match figure {
            TensorFigure::Tensors => self.tensors_bytes,
            TensorFigure::Reserved => self.reserved_bytes,
            TensorFigure::Unused => self.unused_bytes,
        }
    }

    fn of(told: &Told, owner: &Owner, may_be_so: bool, is_whole: bool) -> Self {
        let tensors_bytes = match told {
            _ if !is_whole => Err(Unknown::RecordsMissing),
            _ if !may_be_so => Err(Unknown::Contradicts),
            _ if told.mismatches > 0 => Err(Unknown::TotalsDiffer),
            _ => Ok(saturate(told.most_bytes)),
        };
        let held = match tensors_bytes {
            Err(unknown) => Err(unknown),
            Ok(_) if *owner != Owner::Torch || told.lacks_totals => Err(Unknown::NoTotals),
            Ok(_) => Ok(told.most_held),
        };
        TensorFigures {
            tensors_bytes,
            reserved_bytes: held.map(|held| held.reserved_bytes),
            unused_bytes: held
                .and_then(|held| held.reserved_bytes.checked_sub(held.allocated_bytes).ok_or(Unknown::TotalsDiffer)),
        }
    }
}

/// An allocator above the runtime on one device: PyTorch's, else that which gave most out. What others gave may lie in its blocks, so
/// they are not added.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorProfile {
    /// Which device.
    pub place: Place,
    /// `pytorch`, `ggml`, or the pool's name.
    pub framework: String,
    /// Its numbers.
    pub figures: TensorFigures,
    /// Who had asked for its blocks when most was in them: [`Figure::Peak`] and [`Figure::PeakBlocks`], and no other number. Empty where
    /// that is not known. They add up to the most.
    pub sites: Vec<SiteProfile>,
}

/// Of each device on which an allocator told of blocks.
pub(super) fn tensors(replay: &Replay, sites: &Sites<'_>, is_whole: bool) -> Vec<TensorProfile> {
    let places = replay.blocks.devices().filter_map(|device| profile(replay, sites, device, is_whole));
    let mut places: Vec<TensorProfile> = places.collect();
    places.sort_by_key(|known| known.place);
    places
}

fn profile(replay: &Replay, sites: &Sites<'_>, device: &Device, is_whole: bool) -> Option<TensorProfile> {
    let torch = replay.blocks.of_torch(device.index);
    let told =
        torch.or_else(|| device.all().max_by_key(|told| (told.most_bytes, std::cmp::Reverse(told.allocator))))?;
    let place = Place::of_device(device.index);
    let owner = replay.blocks.owner(told.allocator)?;
    let what = match owner {
        Owner::Torch => "tensors".to_owned(),
        Owner::Ggml => "buffers of ggml".to_owned(),
        Owner::Pool(name) => format!("blocks of {}", clean(name)),
    };
    let figures = TensorFigures::of(told, owner, replay.blocks.may_be_so(told.allocator), is_whole);
    let mut rows: BTreeMap<SiteName, Figures> = BTreeMap::new();
    if figures.tensors_bytes.is_ok() {
        for Row { site, purpose, name, bytes, blocks, .. } in replay.blocks.when_most(told.allocator, device.index) {
            // What a buffer is for, or is called, names it better than that it is one.
            let called = replay.blocks.name(name).map(|name| format!("{} of {}", clean(name), clean(name_of(owner))));
            let what = purpose.name().or(called.as_deref()).unwrap_or(&what);
            let row = rows.entry(sites.name_of(what, site)).or_default();
            row[Figure::Peak] = row[Figure::Peak].saturating_add(saturate(bytes));
            row[Figure::PeakBlocks] = row[Figure::PeakBlocks].saturating_add(blocks);
        }
    }
    let site = |(name, figures)| SiteProfile { place, kind: Kind::Tensor, name, figures };
    Some(TensorProfile {
        place,
        framework: name_of(owner).to_owned(),
        figures,
        sites: rows.into_iter().map(site).collect(),
    })
}
