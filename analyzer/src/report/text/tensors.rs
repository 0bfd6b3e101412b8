//! Tensors among the rows of a ledger: what fills the segments that the program's calls gave.

use gpuoom_trace::record::Kind;

use crate::conclusion::Summary;
use crate::passes::holders::PROGRAM;
use crate::passes::ledger::{DeviceLedger, Row};
use crate::passes::tensors::{TensorMoment, TensorRow, Tensors};
use crate::replay::blocks::Owner;
use crate::software::Program;
use crate::symbols::own::behind;
use crate::words::{clean, count, moment, percent, size};

/// Places of the program that are named in a ledger.
const MOST_PLACES: usize = 5;
/// Other allocators that are named.
const MOST_OTHERS: usize = 4;
/// A share that rounds to all.
const NEARLY_ALL: f64 = 0.9995;
/// A moment that is so much later than the ledger's is said to be another, in nanoseconds.
const LATER_NS: u64 = 10_000_000;

/// What is said of buffers that nobody told of.
const BY_CALL_PATHS: &str =
    "what ggml's memory is for, the functions on the way to its calls say: nothing was told of its buffers here";

/// One line of what fills an allocator's segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct TakenLine {
    /// All of it.
    pub text: String,
    /// The part of the text that names the package's function that asked; empty where the program itself did.
    pub behind: String,
    /// The part that names the phase they came in.
    phase: String,
    /// Its bytes.
    pub bytes: u64,
}

impl TakenLine {
    fn new(text: String, bytes: u64) -> Self {
        TakenLine { text, bytes, ..TakenLine::default() }
    }

    /// The text, and where it is wider than this, what stands below it: the program's line is never the part that is left out.
    pub(super) fn folded(&self, wide: usize) -> (String, Option<String>) {
        let (mut text, mut below) = (self.text.clone(), Vec::new());
        for part in [&self.behind, &self.phase] {
            if !part.is_empty() && text.chars().count() > wide {
                text = text.replacen(part.as_str(), "", 1);
                below.push(part.trim_start_matches([',', ' ']).to_owned());
            }
        }
        (text, (!below.is_empty()).then(|| below.join(", ")))
    }
}

/// A ledger's rows with the segments of an allocator taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Apart {
    /// What its blocks are, and what of its memory is in none.
    pub lines: Vec<TakenLine>,
    /// The other rows. All together are what the ledger's rows were.
    pub rows: Vec<Row>,
}

/// What is known of tensors at the moment of a ledger.
pub(in crate::report) fn of<'a>(
    summary: &'a Summary,
    ledger: &DeviceLedger,
) -> Option<(&'a Tensors, &'a TensorMoment)> {
    let devices = summary.facts.devices.iter().filter(|_| !ledger.is_host);
    let device = devices.into_iter().find(|device| device.index == ledger.device)?;
    let tensors = device.tensors.as_ref()?;
    Some((tensors, tensors.moment(&ledger.moment)?))
}

/// Takes the segments out of the rows of the program's own calls; `None` where it is not known which of them they are.
pub(in crate::report) fn take_apart(ledger: &DeviceLedger, tensors: &Tensors, at: &TensorMoment) -> Option<Apart> {
    let unused = at.unused_bytes.zip(at.largest_unused_bytes).zip(at.unused_pieces);
    let ((unused, largest), pieces) = unused.filter(|_| !at.segments.is_empty())?;
    let mut rows = ledger.rows.clone();
    for (kind, bytes, number) in &at.segments {
        rows = without(rows, *kind, *bytes, *number)?;
    }
    let (owner, holder) = match tensors.owner {
        Owner::Torch => ("tensors", "PyTorch's cache"),
        Owner::Ggml => ("ggml", "ggml"),
        Owner::Pool(_) => ("pool", "pool"),
    };
    let of_pool = match &tensors.owner {
        Owner::Pool(name) => format!("{}: ", clean(name)),
        _ => String::new(),
    };
    let blocks = |number: u64| match tensors.owner {
        Owner::Torch => count(number, "tensor", "tensors"),
        Owner::Ggml => count(number, "buffer", "buffers"),
        Owner::Pool(_) => count(number, "block", "blocks"),
    };
    let (named, (rest, rest_blocks)) = at.named(MOST_PLACES);
    let named = named.iter().map(|row| {
        let place = clean(&row.label);
        // Where nobody knows the place, the name stands for it.
        let name = row.name.as_deref().map(clean).filter(|name| *name != place);
        let name = name.map(|name| format!("{name}, ")).unwrap_or_default();
        let phase = in_phase(row);
        let text = format!("{owner:<16} {of_pool}{name}{place}, {}{phase}", blocks(row.blocks));
        TakenLine { text, behind: clean(&behind(row.asked_by.as_ref(), true)), phase, bytes: row.bytes }
    });
    let mut lines: Vec<TakenLine> = named.collect();
    if rest > 0 {
        let others = if lines.is_empty() { "" } else { "of other places, " };
        lines.push(TakenLine::new(format!("{owner:<16} {of_pool}{others}{}", blocks(rest_blocks)), rest));
    }
    if unused > 0 {
        let pieces = count(pieces, "piece", "pieces");
        let or_graphs = if tensors.has_captured { " or kept by captured graphs" } else { "" };
        let text = format!("{holder:<16} {of_pool}unused{or_graphs}, in {pieces}, largest {}", size(largest));
        lines.push(TakenLine::new(text, unused));
    }
    Some(Apart { lines, rows })
}

/// The phase that a row's blocks came in.
fn in_phase(row: &TensorRow) -> String {
    row.phase.map(|phase| format!(" {}", phase.of_it())).unwrap_or_default()
}

/// Takes so many bytes of a kind out of the rows of the program's calls. Where several rows have that kind, nobody says of which they
/// are, and they become one.
fn without(rows: Vec<Row>, kind: Kind, bytes: u64, number: u64) -> Option<Vec<Row>> {
    let is_of = |row: &Row| row.owner == PROGRAM && row.source == "calls" && row.kind == kind.name();
    let place = rows.iter().position(is_of)?;
    let (of_kind, mut others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_of);
    // Of pages that move nobody told how many lie here.
    if of_kind.iter().any(|row| row.asked_bytes != row.bytes) {
        return None;
    }
    let mut sum = of_kind[0].clone();
    for row in &of_kind[1..] {
        sum.bytes = sum.bytes.checked_add(row.bytes)?;
        sum.blocks = sum.blocks.checked_add(row.blocks)?;
        (sum.api, sum.library) = (None, None);
    }
    sum.bytes = sum.bytes.checked_sub(bytes)?;
    // A mapped piece is not always a block of its own.
    sum.blocks = sum.blocks.saturating_sub(number);
    sum.asked_bytes = sum.bytes;
    if sum.bytes > 0 {
        others.insert(place.min(others.len()), sum);
    }
    Some(others)
}

/// What must be said of tensors beside the rows.
pub(in crate::report) fn note(summary: &Summary, ledger: &DeviceLedger) -> Option<String> {
    if ledger.is_host || ledger.device.is_none() {
        return None;
    }
    let Some((tensors, at)) = of(summary, ledger) else {
        let told = summary.facts.devices.iter().any(|device| device.tensors.is_some());
        let is_silent = !told && summary.facts.versions.programs.contains(&Program::Torch);
        // With `backend:cudaMallocAsync` each tensor is a block of the runtime's pool, and a row of its own.
        let holds = ledger.rows.iter().any(|row| row.owner == PROGRAM && row.kind != Kind::Pool.name());
        return (is_silent && holds).then(|| "segments only: which tensors fill them is not known".to_owned());
    };
    if take_apart(ledger, tensors, at).is_none() {
        let whose = whose_blocks(&tensors.owner);
        let known = "which of the rows above they fill is not known";
        return (at.allocated_bytes > 0).then(|| format!("{whose} {} then; {known}", size(at.allocated_bytes)));
    }
    if tensors.by_call_paths {
        return (at.allocated_bytes > 0).then(|| BY_CALL_PATHS.to_owned());
    }
    let is_later = at.at_ns.saturating_sub(ledger.at_ns) >= LATER_NS;
    is_later.then(|| {
        format!(
            "what fills the segments is of {}, when most of them was in use with as much held as at the peak",
            moment(at.at_ns)
        )
    })
}

/// What other allocators gave out of the same memory: a pool may lie in another one's blocks. It is in the rows already, so it has none.
pub(in crate::report) fn others(summary: &Summary, ledger: &DeviceLedger) -> Vec<String> {
    let device = summary.facts.devices.iter().find(|device| !ledger.is_host && device.index == ledger.device);
    let others = device.and_then(|device| device.tensors.as_ref()).map_or(&[][..], |tensors| &tensors.others);
    let at = others.iter().filter_map(|other| Some((other, other.moment(&ledger.moment)?)));
    let told: Vec<_> = at.filter(|(_, at)| at.allocated_bytes > 0).collect();
    let mut lines: Vec<String> = told.iter().take(MOST_OTHERS).map(|(other, at)| of_other(other, at)).collect();
    let more = (told.len() - lines.len()) as u64;
    lines.extend((more > 0).then(|| format!("and blocks of {}", count(more, "more allocator", "more allocators"))));
    lines
}

fn of_other(other: &Tensors, at: &TensorMoment) -> String {
    let (_, (_, blocks)) = at.named(0);
    let (one, several, whose) = match &other.owner {
        Owner::Torch => ("tensor", "tensors", "PyTorch".to_owned()),
        Owner::Ggml => ("buffer", "buffers", "ggml".to_owned()),
        Owner::Pool(name) => ("block", "blocks", format!("the pool {}", clean(name))),
    };
    let is_most = |row: &&TensorRow| row.bytes > at.allocated_bytes / 2 && (row.key.is_some() || row.name.is_some());
    let most = at.named(1).0.first().filter(is_most);
    let most = most.map(|row| {
        let what = row.name.as_ref().map_or_else(|| format!("by {}", clean(&row.label)), |name| clean(name));
        format!(", most of it {what} ({})", size(row.bytes))
    });
    let blocks = count(blocks, one, several);
    format!("in the memory above lie {blocks} of {whose}, {}{}", size(at.allocated_bytes), most.unwrap_or_default())
}

/// Of what share of the bytes frames of Python were looked for, where that is not all: the others are named by native functions.
pub(super) fn share_with_python(summary: &Summary, ledger: &DeviceLedger) -> Option<String> {
    let (tensors, _) = of(summary, ledger)?;
    let share = tensors.with_python_share.filter(|share| *share < 1.0)?;
    // What is nearly all is not told as all.
    let share = if share > NEARLY_ALL { format!("less than {}", percent(1.0)) } else { percent(share) };
    Some(format!(
        "lines of Python were looked for on {share} of the bytes that came in blocks; the others have native names only"
    ))
}

fn whose_blocks(owner: &Owner) -> String {
    match owner {
        Owner::Torch => "PyTorch's tensors were".to_owned(),
        Owner::Ggml => "ggml's buffers were".to_owned(),
        Owner::Pool(name) => format!("the blocks of the pool {} were", clean(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{GIB, MIB, TraceBuilder, gib, summary};

    const SEGMENT: u64 = 0x7f00_0000_0000;

    fn sums(trace: &TraceBuilder, name: &str) -> (u64, Option<u64>, Apart) {
        let summary = summary(trace);
        let mut ledgers = summary.facts.ledger.iter();
        let ledger = ledgers.find(|ledger| ledger.moment == name && ledger.device == Some(0)).unwrap();
        let before = ledger.rows.iter().map(|row| row.bytes).sum();
        let apart = of(&summary, ledger).and_then(|(all, at)| take_apart(ledger, all, at));
        let after = apart
            .as_ref()
            .map(|apart| apart.rows.iter().map(|row| row.bytes).chain(apart.lines.iter().map(|line| line.bytes)).sum());
        (before, after, apart.unwrap_or(Apart { lines: Vec::new(), rows: Vec::new() }))
    }

    fn trace() -> TraceBuilder {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
        trace.segment(SEGMENT, 2 * GIB);
        trace.tensor(0, SEGMENT, gib(0.5));
        trace.tensor(0, SEGMENT + GIB, gib(0.25));
        trace
    }

    #[test]
    fn rows_add_up_to_what_they_did() {
        let mut trace = trace();
        let (before, after, apart) = sums(&trace, "end");
        assert_eq!((before, after), (2 * GIB, Some(2 * GIB)));
        assert!(apart.rows.is_empty(), "all of it is PyTorch's");
        // Memory of the program's own beside it, of the same function and of others.
        trace.alloc(SEGMENT + 8 * GIB, GIB);
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", SEGMENT + 12 * GIB, GIB);
        trace.refuse(64 * GIB);
        trace.free_tensor(SEGMENT + GIB);
        for name in ["oom:1", "peak", "end"] {
            let (before, after, apart) = sums(&trace, name);
            assert_eq!((before, after), (4 * GIB, Some(4 * GIB)), "{name}");
            assert_eq!(
                apart.rows.iter().map(|row| (row.kind, row.blocks)).collect::<Vec<_>>(),
                [("device", 1), ("pool", 1)]
            );
        }
        // Expandable segments.
        trace.create_and_map(7, SEGMENT + 16 * GIB, GIB);
        trace.reserved(0, 3 * GIB);
        trace.tensor(0, SEGMENT + 16 * GIB, GIB);
        let (before, after, apart) = sums(&trace, "end");
        assert_eq!((before, after, apart.rows.len()), (5 * GIB, Some(5 * GIB), 2));
    }

    #[test]
    fn what_does_not_agree_is_not_taken_apart() {
        let mut trace = trace();
        trace.reserved(0, 3 * GIB).tensor(0, SEGMENT + gib(1.5), MIB);
        let (_, after, _) = sums(&trace, "end");
        assert_eq!(after, None);
    }
}
