//! What belongs to a failure beside its own record: tries after it, pools, PyTorch's message and its options.

use gpuoom_trace::record::Kind;

use super::case::{Case, Failure};
use super::tensor_leak;
use super::torch_sums::MOST_ADDED_BYTES;
use crate::evidence::torch_message::TorchMessage;
use crate::judgement::check::{Check, Confidence, Holds, Judgement, Known};
use crate::options::parse::AllocConf;
use crate::options::{self, Chosen, NO_CACHING, Setup};
use crate::passes::fragmentation::saturate;
use crate::passes::rise::Rise;
use crate::passes::shape::run::{DeviceRun, leak};
use crate::passes::shape::tensors;
use crate::replay::blocks::Owner;
use crate::replay::tracks::retries::Retry;
use crate::software::{Program, Version};
use crate::words::{clean, size};

/// What would tell whether private pools could have given something up.
const PRIVATE: &str = "whether what private pools hold in no tensor is needed, as by a captured graph when it runs";

/// What would tell what PyTorch's allocator holds unused.
const TORCH_NUMBERS: &str =
    "what PyTorch's allocator holds unused: its out-of-memory message (--log) or a memory snapshot (--torch-snapshot)";

/// The same, where the driver's pools are its cache.
const POOL_NUMBERS: &str =
    "what the driver's pool, which is PyTorch's cache here, holds unused (cudaMemPoolGetAttribute: reserved and used)";

/// The same, where the message was recorded and does not tell.
const TORCH_SNAPSHOT: &str =
    "what PyTorch's allocator holds unused, which its message does not tell: a memory snapshot (--torch-snapshot)";

/// Where records are missing, nobody tells what PyTorch gave back between the refusal and its error.
const HALF_MADE: &str = "what PyTorch had taken in pieces for the block: a trace in which no event was lost";

/// First torch in which only the value 1 turns the cache off.
const ONLY_ONE_TURNS_CACHING_OFF: Version = Version::new(2, 7);

/// PyTorch's allocator options as the environment has them.
pub struct AllocatorOptions {
    /// The variable that counts.
    pub chosen: Chosen,
    /// What it says.
    pub conf: AllocConf,
}

impl<'a> Case<'a> {
    /// A device over the whole run.
    pub fn run_of(&self, device: Option<u8>) -> Option<&DeviceRun> {
        self.runs.iter().find(|run| Some(run.device) == device)
    }

    /// How surely what stays on a device rises from cycle to cycle: then a full card is only the end of it.
    pub fn leaks(&self, device: Option<u8>) -> Option<Confidence> {
        let mut check = Check::default();
        self.judge_leak(device, &mut check);
        match check.judgement() {
            Judgement::Found(confidence) => Some(confidence),
            _ => None,
        }
    }

    /// Puts a leak to the test: by the blocks that the trace tells of, by tensors where PyTorch's snapshot has a history with cycles, else
    /// by what the driver gave.
    pub fn judge_leak(&self, device: Option<u8>, check: &mut Check) {
        match (self.tensor_growth(device), self.run_of(device)) {
            (Some(growth), _) if growth.significant => return tensor_leak::leak(growth, false, self.thresholds, check),
            (Some(growth), Some(run)) => {
                leak(run.rise.as_ref(), run.are_segments, &run.thresholds, check);
                let held = self.facts.devices.iter().find(|known| known.index == device);
                let held_bytes = held.map_or(0, |known| known.account.peak.requested_bytes);
                let outside = self.outside_bytes(device, "peak", held_bytes);
                return tensor_leak::unless_flat(growth, (run.rise.as_ref(), outside), self.thresholds, check);
            }
            _ => {}
        }
        let tensors = self.tensors.iter().find(|run| Some(run.device) == device);
        match (tensors, self.run_of(device)) {
            (Some(tensors), _) if tensors.rises() => {
                tensors::leak(tensors, &self.evidence.torch_snapshots[tensors.snapshot].content, check);
            }
            // What another library leaks is in no segment.
            (Some(tensors), Some(run)) if run.are_segments => {
                leak(run.rise.as_ref(), run.are_segments, &run.thresholds, check);
                check.unless(true, || tensors.stays());
            }
            (_, Some(run)) => {
                leak(run.rise.as_ref(), run.are_segments, &run.thresholds, check);
                self.name_the_path(device, run.rise.as_ref(), check);
            }
            (_, None) => _ = check.applies(false),
        }
    }

    /// Says who asked for the blocks by one call path that stay, where that path has a name.
    pub fn name_the_path(&self, device: Option<u8>, rise: Option<&Rise>, check: &mut Check) {
        let site = rise.and_then(|rise| rise.kept.as_ref()).map_or(0, |kept| kept.path.site);
        let growth = self.facts.growth.iter().find(|growth| growth.device == device);
        let caller = growth.and_then(|growth| growth.most_by.as_ref()?.caller_of(site));
        check.note(caller.is_some(), || format!("that path leads through {}", clean(caller.unwrap_or_default())));
    }

    /// PyTorch's tensors on a device over the history of a snapshot, where that has cycles.
    pub fn tensors_of(&self, device: Option<u8>) -> Option<&tensors::TensorRun> {
        self.tensors.iter().find(|run| Some(run.device) == device)
    }

    /// What the thread did about a failure.
    pub fn retry(&self, failure: &Failure<'_>) -> Option<&'a Retry> {
        self.replay.tracks.retries.of_failure((failure.report.number - 1) as usize)
    }

    /// What the program held at a failure of one kind, in bytes.
    pub fn held_of_kind(&self, failure: &Failure<'_>, kind: Kind) -> u64 {
        let rows = failure.oom.census.iter().flat_map(|census| &census.own);
        let of_kind = rows.filter(|(caller, _)| caller.kind == kind);
        of_kind.fold(0, |sum: u64, (_, held)| sum.saturating_add(saturate(held.requested_bytes)))
    }

    /// All messages of PyTorch that were given beside the trace.
    pub fn messages(&self) -> impl Iterator<Item = &'a TorchMessage> + use<'a> {
        self.evidence.torch_logs.iter().flat_map(|log| &log.content)
    }

    /// PyTorch's message about a failure: what was recorded with this very error, else one of a log.
    pub fn message(&self, failure: &Failure<'_>) -> Option<&'a TorchMessage> {
        self.recorded_message(failure).or_else(|| self.message_of_log(failure))
    }

    /// What to ask for: nobody is asked for a message that the trace has.
    pub fn unless_told(
        &self,
        failure: &Failure<'_>,
        with_message: &'static str,
        else_for: &'static str,
    ) -> &'static str {
        if failure.report.message.is_some() { else_for } else { with_message }
    }

    /// PyTorch's message as it was recorded with the error, whatever a log says.
    pub fn recorded_message(&self, failure: &Failure<'_>) -> Option<&'a TorchMessage> {
        self.facts.ooms.get((failure.report.number - 1) as usize)?.torch.as_ref()
    }

    /// A message of a log of the same size, on the same device. With expandable segments the driver is asked for pieces of it.
    fn message_of_log(&self, failure: &Failure<'_>) -> Option<&'a TorchMessage> {
        // Where the libraries are known and PyTorch is none of them, the log is of another run.
        if !self.versions.has(Program::Torch) && !self.trace.metadata.modules.modules.is_empty() {
            return None;
        }
        let asked = failure.request_bytes().get()?;
        let device = failure.oom.device.map(u32::from);
        self.messages().find(|message| {
            let same_size = message.tried.is_some_and(|tried| match failure.oom.kind {
                // The message has the segment that the allocator would have asked for.
                Kind::Tensor => asked <= tried.most() && tried.least() <= asked.saturating_add(MOST_ADDED_BYTES),
                Kind::Physical => asked <= tried.most(),
                _ => (tried.least()..=tried.most()).contains(&asked),
            });
            let total = failure.total_bytes().get();
            let same_card =
                message.total.zip(total).is_none_or(|(told, total)| self.thresholds.is_near(told.bytes, total));
            same_size && same_card && (message.device.is_none() || device.is_none() || message.device == device)
        })
    }

    /// The first failure that a message is about.
    pub fn failure_of(&self, message: &TorchMessage) -> Option<u64> {
        let mut failures = self.failures();
        let about = |failure: &Failure<'_>| match self.recorded_message(failure) {
            // The log has what was recorded, too.
            Some(own) => own.says_the_same(message),
            None => self.message_of_log(failure).is_some_and(|other| std::ptr::eq(other, message)),
        };
        failures.find(about).map(|failure| failure.report.number)
    }

    /// Whether PyTorch's allocator held at least the request in unused blocks.
    pub fn torch_holds_enough(&self, failure: &Failure<'_>) -> Holds {
        // Of an expandable segment a piece was refused, and the block that was asked for is larger.
        let asked = self.asked_of_allocator(failure).unwrap_or(u64::MAX);
        let missing = failure.shortfall_bytes().unwrap_or(asked).max(1);
        match self.torch_sums(failure) {
            Some(sums) if sums.is_certain() && sums.unused.least() >= asked => Holds::Yes,
            Some(sums) if sums.idle_private.or(sums.private).is_some_and(|idle| idle.most() >= missing) => {
                Holds::Unknown(PRIVATE)
            }
            Some(sums) if sums.is_certain() && sums.unused.most() < asked => Holds::No,
            None if !self.versions.has(Program::Torch) || self.is_caching_off() => Holds::No,
            None if self.leaves_caching_to_pools() => match self.pools_keep_missing(failure) {
                Holds::Unknown(_) => Holds::Unknown(POOL_NUMBERS),
                told => told,
            },
            _ => Holds::Unknown(self.unless_told(failure, TORCH_NUMBERS, TORCH_SNAPSHOT)),
        }
    }

    /// What was asked of the allocator above the runtime, or of the runtime where none is known.
    pub fn asked_of_allocator(&self, failure: &Failure<'_>) -> Option<u64> {
        let of_error = failure.oom.error.as_ref().map(|error| error.requested_bytes);
        of_error.max(failure.request_bytes().get())
    }

    /// What PyTorch had taken for an expandable segment that this very request needed, when its last piece was refused: it gave that back
    /// before it threw, and so it was free for the request.
    fn half_made_bytes(&self, failure: &Failure<'_>) -> Known<u64> {
        Known::new(failure.oom.error.as_ref().map_or(Some(0), |error| error.half_made_bytes), HALF_MADE)
    }

    /// What was free for the request: beside what was free on the card, [`Case::half_made_bytes`].
    pub fn free_for_request(&self, failure: &Failure<'_>) -> Known<u64> {
        let both = failure.free_bytes().zip(self.half_made_bytes(failure));
        both.map(|(free, half_made)| free.saturating_add(half_made))
    }

    /// What of free memory could serve a request: all of it, or whole pieces where physical memory of an expandable segment was refused,
    /// which PyTorch makes in pieces of one size.
    pub fn free_in_pieces(failure: &Failure<'_>, free_bytes: u64) -> u64 {
        let piece = failure.request_bytes().get().filter(|piece| *piece > 0 && failure.oom.kind == Kind::Physical);
        piece.map_or(free_bytes, |piece| free_bytes / piece * piece)
    }

    /// What was free, as [`Case::free_for_request`] counts it, in words: `4 MiB was free`, `284 MiB was free, but for …`.
    pub fn free_told(&self, failure: &Failure<'_>, free_bytes: u64, place: &str) -> String {
        let but = match self.half_made_bytes(failure).get() {
            None | Some(0) => "",
            _ => ", but for what it had taken for this very request",
        };
        format!("{} was free{place}{but}", size(free_bytes))
    }

    /// What PyTorch's cache held unused at a refusal that no error followed, before any of it was given back; `None` where its blocks do
    /// not tell.
    pub fn cache_at_refusal(&self, failure: &Failure<'_>) -> Option<u64> {
        let tensors = failure.device?.tensors.as_ref().filter(|tensors| tensors.owner == Owner::Torch)?;
        let is_open = failure.oom.error.is_none();
        tensors.moment(&format!("oom:{}", failure.report.number)).filter(|_| is_open)?.unused_bytes
    }

    /// Whether the tensors that live and the request are more than the card, whatever PyTorch's cache holds besides.
    pub fn tensors_exceed(&self, failure: &Failure<'_>) -> bool {
        let sums = self.torch_sums(failure).filter(|sums| sums.is_certain());
        // What private pools hold in no tensor counts as allocated.
        let tensors = sums.and_then(|sums| {
            Some(sums.allocated?.least().saturating_sub(sums.idle_private.map_or(0, |idle| idle.most())))
        });
        // Of a small block the segment may be larger than what is needed.
        let block = failure.oom.error.as_ref().map(|error| error.requested_bytes);
        let asked = block.or(failure.request_bytes().get());
        let needed = tensors.zip(asked).map(|(held, asked)| held.saturating_add(asked));
        needed.zip(failure.total_bytes().get()).is_some_and(|(needed, total)| needed > total)
    }

    /// What pools of the program's own held at a failure, at least, that was in none of the blocks they tell of. `None` where no pool told
    /// anything, or one of them does not say.
    pub fn unused_in_own_pools(&self, failure: &Failure<'_>) -> Option<u64> {
        let first = failure.device?.tensors.as_ref()?;
        let pools = || [first].into_iter().chain(&first.others).filter(|pool| matches!(pool.owner, Owner::Pool(_)));
        pools().next()?;
        let at = format!("oom:{}", failure.report.number);
        let unused: Vec<u64> = pools().map(|pool| pool.moment(&at)?.unused_bytes).collect::<Option<_>>()?;
        let reserved = pools().filter_map(|pool| pool.moment(&at)?.reserved_bytes).fold(0, u64::saturating_add);
        // A pool may lie in another one's block: then both tell of the same memory.
        match reserved <= failure.own_bytes() {
            true => Some(unused.into_iter().fold(0, u64::saturating_add)),
            false => unused.into_iter().max(),
        }
    }

    /// Whether PyTorch's cache is surely turned off.
    pub fn is_caching_off(&self) -> bool {
        let values = NO_CACHING.into_iter().filter_map(|name| self.variable(name));
        self.versions.has(Program::Torch) && values.into_iter().any(|value| self.turns_caching_off(value) == Holds::Yes)
    }

    /// Whether PyTorch leaves caching to the driver's pools, of which no snapshot of its has the history.
    pub fn leaves_caching_to_pools(&self) -> bool {
        self.allocator_options().is_some_and(|options| options.conf.is_async())
    }

    /// Whether this value of [`NO_CACHING`] turns PyTorch's cache off: any did before 2.7, since then 1 does
    /// (pytorch/pytorch PR 145905).
    pub fn turns_caching_off(&self, value: &str) -> Holds {
        match self.versions.torch {
            _ if value == "1" => Holds::Yes,
            Some(torch) => (torch < ONLY_ONE_TURNS_CACHING_OFF).into(),
            None => Holds::Unknown("the version of PyTorch"),
        }
    }

    /// Whether the memory of a failure's device is mapped physical memory, for the most part: expandable segments at work.
    pub fn uses_virtual_memory(&self, failure: &Failure<'_>) -> bool {
        self.held_of_kind(failure, Kind::Physical) > failure.own_bytes() / 2
    }

    /// For what PyTorch's allocator options are judged.
    pub fn allocator_setup(&self) -> Setup {
        let versions = &self.versions;
        Setup { platform: versions.platform, torch: versions.torch, rocm: versions.rocm }
    }

    /// PyTorch's allocator options, where some are set.
    pub fn allocator_options(&self) -> Option<AllocatorOptions> {
        let chosen = options::choose(|name| self.variable(name), self.allocator_setup())?;
        let conf = AllocConf::parse(&chosen.text);
        Some(AllocatorOptions { chosen, conf })
    }
}
