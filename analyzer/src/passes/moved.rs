//! What may have come or gone between a refusal and the readings of its moment, which are taken a little later: by other threads, and
//! by other processes as far as somebody read what they hold. A figure is known of the refusal only where nothing did.

use gpuoom_trace::record::NO_DEVICE;

use crate::replay::failures::Oom;
use crate::replay::readings::DeviceReadings;
use crate::replay::tracks::around::Around;
use crate::words::size;

/// Memory that may have come or gone between a refusal and its readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// What the program's other threads were given, in bytes.
    pub given_bytes: u64,
    /// What they gave back.
    pub returned_bytes: u64,
    /// What other processes hold more than at the reading before; 0 where nobody read it.
    pub others_took_bytes: u64,
    /// What they hold less.
    pub others_gave_bytes: u64,
    /// Whether both are known: somebody read what other processes hold before and after.
    pub others_were_read: bool,
    /// Whether it may be more: something was given back of which nobody tells how much.
    pub is_unsized: bool,
}

impl Moved {
    /// Of a failure, by what was around it; `is_integrated`: the host's memory is the device's.
    pub fn of(oom: &Oom, around: Option<&Around>, is_integrated: bool) -> Self {
        let Some((around, read)) = around.and_then(|around| Some((around, around.read_at?))) else {
            // It was read, and nobody knows what came before that.
            let is_of_device = around.is_none_or(|around| around.device != NO_DEVICE);
            return Moved { is_unsized: is_of_device && oom.read != DeviceReadings::default(), ..Moved::default() };
        };
        let done = read.done.since(&around.done);
        let others =
            around.read_before.and_then(|before| before.read.others_vram_bytes).zip(read.read.others_vram_bytes);
        let (before, at) = others.unwrap_or_default();
        let of_host = if is_integrated { done.returned_host_bytes } else { 0 };
        Moved {
            given_bytes: around.until_read.given_bytes,
            returned_bytes: around.until_read.returned_bytes.saturating_add(of_host),
            others_took_bytes: at.saturating_sub(before),
            others_gave_bytes: before.saturating_sub(at),
            others_were_read: others.is_some(),
            is_unsized: around.until_read.is_unsized || done.releases > 0 || done.loads > 0,
        }
    }

    /// Whether nothing is known to have come or gone.
    pub fn is_none(&self) -> bool {
        *self == Moved { others_were_read: self.others_were_read, ..Moved::default() }
    }

    /// The same of the program's own threads alone.
    pub fn by_own_threads(&self) -> Self {
        Moved { others_took_bytes: 0, others_gave_bytes: 0, ..*self }
    }

    /// The least that was free at the refusal, where so much was read.
    pub fn free_at_least(&self, read_bytes: u64) -> u64 {
        let came = self.returned_bytes.saturating_add(self.others_gave_bytes);
        if self.is_unsized { 0 } else { read_bytes.saturating_sub(came) }
    }

    /// The most that was.
    pub fn free_at_most(&self, read_bytes: u64) -> u64 {
        let went = self.given_bytes.saturating_add(self.others_took_bytes);
        if self.is_unsized { u64::MAX } else { read_bytes.saturating_add(went) }
    }

    /// What is to be said of a figure that was read, where it need not be the refusal's.
    pub fn told(&self) -> String {
        let came = self.returned_bytes.saturating_add(self.others_gave_bytes);
        let went = self.given_bytes.saturating_add(self.others_took_bytes);
        match (came, went) {
            _ if self.is_none() => String::new(),
            (0, 0) => " when it was read, and something may have come or gone before".to_owned(),
            (_, 0) => format!(" when it was read; up to {} of it may have come back after the refusal", size(came)),
            (0, _) => format!(" when it was read; up to {} may have gone after the refusal", size(went)),
            _ => {
                let (came, went) = (size(came), size(went));
                format!(
                    " when it was read; up to {came} of it may have come back after the refusal, and up to {went} gone"
                )
            }
        }
    }
}
