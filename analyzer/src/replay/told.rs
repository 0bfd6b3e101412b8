//! What an allocator above the runtime tells of its failures.

use gpuoom_trace::record::{Layer, Record};

use super::Replay;
use super::arena::Arena;
use super::block::Side;
use super::failures::framework::{Attempt, FrameworkError};
use super::failures::{MAX_LISTED, Oom, RefusedBy};
use super::held::Caller;

impl Replay {
    /// A block was given out, or there was no memory for one.
    #[inline]
    pub(super) fn told_of_block(&mut self, record: &Record) {
        if record.status != 0 {
            self.raised(record);
        } else if self.failures.has_refusals() || self.failures.has_told() {
            self.failures.block_given(record, self.apis.get(record.api).does);
        }
    }

    /// An allocator raised an error. The runtime's refusals that led to it are its attempts; where there are none, the allocator has a
    /// limit of its own.
    #[cold]
    fn raised(&mut self, record: &Record) {
        let api = self.apis.get(record.api);
        let is_error = api.layer == Some(Layer::Framework) && api.is_out_of_memory(record.status);
        let Some(device) = record.device().filter(|_| is_error) else { return };
        match self.failures.raised(record.thread, device, FrameworkError::of(record)) {
            // The last attempt stands for the error.
            Ok(earlier) => {
                earlier.iter().for_each(|attempt| self.no_failure_by_itself(device, attempt));
                if let Some(last) = self.failures.error_at(record.seq()) {
                    self.keep_at(last, record.at, device);
                }
            }
            Err(error) => self.raised_alone(record, device, error),
        }
    }

    /// A refusal that was counted is an attempt of an error, which counts once.
    fn no_failure_by_itself(&mut self, device: u8, attempt: &Attempt) {
        let layer = self.apis.get(attempt.api).layer.unwrap_or(Layer::Process);
        let caller = Caller { layer, kind: attempt.kind, api: attempt.api, site: attempt.site };
        let Some(account) = self.accounts.side_mut(Side::Device, device) else { return };
        account.calls.failures = account.calls.failures.saturating_sub(1);
        if let Some(tally) = &mut account.tally {
            tally.not_refused(caller);
        }
    }

    fn raised_alone(&mut self, record: &Record, device: u8, error: FrameworkError) {
        let caller = Caller { layer: Layer::Framework, kind: record.kind(), api: record.api, site: record.site };
        let census = self.census_at_failure(Side::Device, device);
        let request = self.request_of(record, record.requested);
        let granules = self.granules(record);
        let Some(account) = self.accounts.side_mut(Side::Device, device) else { return };
        account.calls.failures += 1;
        if let Some(tally) = &mut account.tally {
            tally.refused(caller);
        }
        let (held, managed, most) = (account.held, account.managed, account.most);
        let model = account.arena.as_ref().map(Arena::free_space);
        if self.failures.listed.len() < MAX_LISTED {
            let around = self.around_now(record, Side::Device, device, held.requested_bytes, None);
            self.tracks.raised(record, device, around);
        }
        let oom = Oom {
            device: Some(device),
            granules,
            held,
            held_managed_bytes: managed.requested_bytes,
            held_managed_granules: managed.granules,
            held_managed_blocks: managed.blocks,
            held_host_bytes: self.accounts.host.held.requested_bytes,
            most,
            most_host_bytes: self.accounts.host.most.held_bytes,
            census,
            saw_below: self.lower.gave_below_runtime(),
            model,
            error: Some(Box::new(error)),
            // As far as calls were recorded nobody below was asked.
            ..Oom::new(record, self.events, RefusedBy::Layer(None))
        };
        self.failures.begin(oom, request);
    }
}
