//! The recorder's last words on stderr: what became of the failures of a process, in one line.

use std::fmt::{self, Display, Formatter};

use gpuoom_trace::record::{Layer, NO_DEVICE};

use crate::table;

/// The failures of this process, counted.
pub(super) struct Account {
    pub(super) failures: u32,
    pub(super) errors: u32,
    pub(super) own: u32,
    pub(super) dropped: u32,
    pub(super) propagated: u32,
    pub(super) recovered: u32,
    /// Of those, by memory of another device.
    pub(super) elsewhere: u32,
    pub(super) other_device: u32,
    /// Of those recovered, by what time alone ties to them.
    pub(super) by_time_alone: u32,
    /// Of those dropped, with memory for such a request after the work.
    pub(super) given_after_work: u32,
    pub(super) unresolved: u32,
    pub(super) api: u16,
    pub(super) device: u8,
    pub(super) requested: Size,
}

impl Account {
    /// Failures of which it is not known what became of them.
    pub(super) fn undecided(&self) -> u32 {
        self.failures.saturating_sub(self.dropped + self.propagated + self.recovered + self.unresolved)
    }

    /// What failed, counted: where an allocator above the runtime told of errors, these reached the program.
    fn fmt_count(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, errors, own, .. } = *self;
        let many = |count: u32| if count == 1 { "" } else { "s" };
        match (errors, failures.saturating_sub(own)) {
            (0, _) => write!(out, "{failures} out-of-memory return{}, ", many(failures)),
            (_, 0) => write!(out, "{errors} out-of-memory error{} of {ALLOCATOR}, ", many(errors)),
            (_, refused) => {
                write!(out, "{errors} out-of-memory error{} of {ALLOCATOR}, {refused} refused call", many(errors))?;
                write!(out, "{} below, ", many(refused))
            }
        }
    }
}

impl Account {
    /// Each failure was made up for. Memory of another device need not be in the place of what was refused.
    fn fmt_recovered(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.elsewhere {
            0 if self.by_time_alone >= self.recovered => {
                return write!(
                    out,
                    "recovered as far as its calls show: another request soon after was given memory, {UNSHOWN}"
                );
            }
            0 => write!(out, "recovered: a later request was given memory")?,
            all if all >= self.recovered => {
                write!(out, "recovered: fell back to GPU {}, as far as its calls show", self.other_device)?;
            }
            some => write!(
                out,
                "recovered: a later request was given memory; {some} fell back to another device (the first: GPU {}), as far as \
                 its calls show",
                self.other_device
            )?,
        }
        match self.by_time_alone {
            0 => Ok(()),
            all if all >= self.recovered => write!(out, ", {UNSHOWN}"),
            some => write!(out, "; of {some} only another request soon after was, {UNSHOWN}"),
        }
    }

    /// Some or all were dropped.
    fn fmt_dropped(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, dropped, given_after_work, .. } = *self;
        if dropped != failures {
            write!(out, "{dropped} of them ")?;
        }
        write!(out, "DROPPED as far as its calls show: GPU work went on")?;
        match given_after_work {
            0 => Ok(()),
            all if all >= dropped => write!(out, "; a request like it was given memory later"),
            some => write!(out, "; after {some} of these a request like it was given memory later"),
        }
    }
}

/// What is to be said where time alone ties the memory that came to a failure.
const UNSHOWN: &str = "and nothing shows that the failure was noticed";

/// The only allocator above the runtime that tells of errors.
const ALLOCATOR: &str = "PyTorch's allocator";

impl Display for Account {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, dropped, propagated, recovered, unresolved, .. } = *self;
        let undecided = self.undecided();
        self.fmt_count(out)?;
        match dropped {
            0 if recovered == failures => self.fmt_recovered(out)?,
            0 if propagated == failures => write!(
                out,
                "propagated: the program read or reported the error, threw an exception or ended with a failure"
            )?,
            // Nobody reacted before the process ended well.
            0 if undecided == failures => write!(out, "unresolved when the process ended")?,
            0 if unresolved == failures => write!(out, "whose error was read before GPU work went on")?,
            0 => {
                let of_calls = if self.errors > 0 { "of those " } else { "" };
                write!(out, "{of_calls}{recovered} recovered")?;
                if self.by_time_alone > 0 {
                    write!(out, " (of {} nothing shows that the failure was noticed)", self.by_time_alone)?;
                }
                write!(out, ", {propagated} propagated")?;
                // What was read and what was still open when the process ended: of neither it is known what became of it.
                if unresolved + undecided > 0 {
                    write!(out, ", {} unresolved", unresolved + undecided)?;
                }
            }
            _ => self.fmt_dropped(out)?,
        }
        // Of several, what became of this one is not said here.
        let told = if self.errors > 0 { self.errors } else { failures };
        let first = if told == 1 { "" } else { "the first: " };
        let row = table::row(self.api);
        match self.device {
            // Whose memory the pool has that the program chose, this call does not say.
            _ if row.name.contains("FromPool") => write!(out, " ({first}")?,
            NO_DEVICE => write!(out, " ({first}host, ")?,
            device => write!(out, " ({first}GPU {device}, ")?,
        }
        // Its own function has a name for linkers, not for people.
        let name = if row.layer == Layer::Framework { ALLOCATOR } else { row.name };
        match &self.requested {
            // A library's handle: nobody tells how much it takes.
            Size(u64::MAX) => write!(out, "{name})"),
            size => write!(out, "{name} {size})"),
        }
    }
}

/// Bytes as people read them.
pub(super) struct Size(pub(super) u64);

impl Display for Size {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        // As the report has them: no memory is as large as an EiB, and in GiB nobody can read what asks for one.
        const UNITS: [(&str, u32); 5] = [("EiB", 60), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("bytes", 0)];
        let (unit, shift) = UNITS.into_iter().find(|(_, shift)| self.0 >> shift != 0).unwrap_or(("bytes", 0));
        let decimals = if self.0 & ((1 << shift) - 1) == 0 { 0 } else { 2 };
        write!(out, "{:.decimals$} {unit}", self.0 as f64 / (1u64 << shift) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(Size(512 << 20).to_string(), "512 MiB");
        assert_eq!(Size(1_514_000_000).to_string(), "1.41 GiB");
        assert_eq!(Size(7).to_string(), "7 bytes");
        assert_eq!((Size(1 << 62).to_string(), Size(1 << 43).to_string()), ("4 EiB".to_owned(), "8192 GiB".to_owned()));
        assert_eq!(Size(0).to_string(), "0 bytes");
        for bytes in [0, 7, 4096, 512 << 20, 3 << 29] {
            assert_eq!(gpuoom_units::size(&Size(bytes).to_string()), Ok(bytes), "what is printed is read");
        }
    }

    #[test]
    fn the_account_reads_well() {
        let account = |failures, dropped, propagated, recovered| {
            let (device, requested) = (0, Size(512 << 20));
            Account {
                failures,
                errors: 0,
                own: 0,
                dropped,
                propagated,
                recovered,
                elsewhere: 0,
                other_device: 0,
                by_time_alone: 0,
                given_after_work: 0,
                unresolved: 0,
                api: 0,
                device,
                requested,
            }
        };
        let cleared = Account { unresolved: 1, ..account(1, 0, 0, 0) }.to_string();
        assert!(
            cleared.contains("1 out-of-memory return, whose error was read before GPU work went on (GPU"),
            "{cleared}"
        );
        let mixed = Account { unresolved: 1, ..account(3, 0, 1, 0) }.to_string();
        assert!(mixed.contains("0 recovered, 1 propagated, 2 unresolved (the first: GPU"), "{mixed}");
        let elsewhere = Account { elsewhere: 2, other_device: 1, ..account(2, 0, 0, 2) }.to_string();
        assert!(
            elsewhere.contains("recovered: fell back to GPU 1, as far as its calls show (the first: GPU 0"),
            "{elsewhere}"
        );
        let one_of_two = Account { elsewhere: 1, other_device: 1, ..account(2, 0, 0, 2) }.to_string();
        assert!(
            one_of_two.contains("given memory; 1 fell back to another device (the first: GPU 1), as far"),
            "{one_of_two}"
        );
        let by_time = Account { by_time_alone: 1, ..account(1, 0, 0, 1) }.to_string();
        assert!(
            by_time.contains(
                "recovered as far as its calls show: another request soon after was given memory, and nothing shows that the \
                 failure was noticed (GPU"
            ),
            "{by_time}"
        );
        let one_by_time = Account { by_time_alone: 1, ..account(2, 0, 0, 2) }.to_string();
        assert!(one_by_time.contains("; of 1 only another request soon after was, and nothing shows"), "{one_by_time}");
        let beside = Account { by_time_alone: 1, ..account(2, 0, 1, 1) }.to_string();
        assert!(beside.contains("1 recovered (of 1 nothing shows that the failure was noticed), 1 prop"), "{beside}");
        let given = Account { given_after_work: 1, ..account(1, 1, 0, 0) }.to_string();
        assert!(given.contains("GPU work went on; a request like it was given memory later (GPU"), "{given}");
        let told = Account { errors: 3, ..account(6, 0, 6, 0) }.to_string();
        assert!(
            told.starts_with("3 out-of-memory errors of PyTorch's allocator, 6 refused calls below, propagated: "),
            "{told}"
        );
        let got_over = Account { errors: 1, ..account(3, 0, 2, 1) }.to_string();
        assert!(
            got_over.starts_with(
                "1 out-of-memory error of PyTorch's allocator, 3 refused calls below, of those 1 recovered, 2"
            ),
            "{got_over}"
        );
        let limit = Account { errors: 2, own: 1, api: table::FRAMEWORK as u16, ..account(1, 0, 1, 0) }.to_string();
        assert!(limit.starts_with("2 out-of-memory errors of PyTorch's allocator, propagated: "), "{limit}");
        assert!(limit.ends_with("(the first: GPU 0, PyTorch's allocator 512 MiB)"), "{limit}");
        let account =
            |failures, dropped, propagated, recovered| account(failures, dropped, propagated, recovered).to_string();
        assert_eq!(
            account(1, 1, 0, 0),
            "1 out-of-memory return, DROPPED as far as its calls show: GPU work went on (GPU 0, hipMalloc 512 MiB)"
        );
        assert!(
            account(3, 1, 1, 1)
                .starts_with("3 out-of-memory returns, 1 of them DROPPED as far as its calls show: GPU work went on")
        );
        assert!(account(2, 0, 2, 0).contains(
            "propagated: the program read or reported the error, threw an exception or ended with a failure"
        ));
        assert!(account(3, 0, 1, 2).contains("2 recovered, 1 propagated (the first: GPU"));
        assert!(account(1, 0, 0, 0).contains("1 out-of-memory return, unresolved when the process ended"));
        assert!(account(3, 0, 1, 1).contains("1 recovered, 1 propagated, 1 unresolved (the first: GPU"));
    }
}
