//! Rules about all processes of a job together.

use super::check::is_about;
use super::evaluate::{Subject, judge_one, no_base, number};
use super::{Culprit, Judged, Metric, Per, Rule};
use crate::job::{JobDevice, Member, devices_of};
use crate::passes::profile::{Figure, Figures, Place, Profile};
use crate::words;

/// Processes that are named for a rule that does not hold.
const MOST_CULPRITS: usize = 3;

/// The processes of one job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Together<'a> {
    /// Each process.
    pub profiles: &'a [Profile],
    /// The same processes in the same order, with what they held when.
    pub members: &'a [Member],
}

/// A job, and what it is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jobs<'a> {
    /// The job.
    pub new: Together<'a>,
    /// The base job; without processes where there is none.
    pub base: Together<'a>,
}

/// The processes that a rule is about, with their devices.
struct Selected<'a> {
    profiles: Vec<&'a Profile>,
    devices: Vec<Shared>,
}

/// One physical device.
struct Shared {
    device: JobDevice,
    /// What each process counted there, all places of it together.
    figures: Vec<(usize, Figures)>,
}

impl Jobs<'_> {
    /// Applies a rule to each device that the processes used, or to all of them.
    pub(super) fn judge(&self, rule: &Rule) -> Vec<Judged> {
        let (new, base) = (self.new.selected(rule), self.base.selected(rule));
        if new.profiles.is_empty() {
            return Vec::new();
        }
        let base = (!base.profiles.is_empty()).then_some(base);
        new.subjects(rule, base.as_ref()).into_iter().map(|(subject, by)| judge_one(rule, subject, by)).collect()
    }
}

impl<'a> Together<'a> {
    fn selected(&self, rule: &Rule) -> Selected<'a> {
        let profiles: Vec<&Profile> = self.profiles.iter().filter(|profile| is_about(rule, &profile.run)).collect();
        let pairs = self.members.iter().zip(self.profiles);
        let members: Vec<Member> =
            pairs.filter(|(_, profile)| is_about(rule, &profile.run)).map(|(member, _)| member.clone()).collect();
        let (devices, number_of) = devices_of(&members);
        let shared = |(number, device): (usize, JobDevice)| Shared {
            figures: profiles
                .iter()
                .enumerate()
                .filter_map(|(process, profile)| {
                    let mut sum = None;
                    for known in &profile.places {
                        let index = if let Place::Gpu(index) = known.place { Some(index) } else { None };
                        if number_of(process, index) == Some(number) {
                            sum.get_or_insert_with(Figures::default).add(&known.figures);
                        }
                    }
                    Some((process, sum?))
                })
                .collect(),
            device,
        };
        Selected { devices: devices.into_iter().enumerate().map(shared).collect(), profiles }
    }
}

impl<'a> Selected<'a> {
    fn subjects(&self, rule: &Rule, base: Option<&Selected<'_>>) -> Vec<(Subject<'a>, Vec<Culprit>)> {
        let count = crate::words::count(self.profiles.len() as u64, "process", "processes");
        if rule.metric.per() == Per::Process && rule.scope.device.is_none() {
            let by_process: Vec<f64> = self.profiles.iter().map(|profile| whole(rule.metric, profile)).collect();
            let base = base.map(|base| base.profiles.iter().map(|profile| whole(rule.metric, profile)).sum());
            let words = format!("of {count} together");
            return vec![self.subject(words, by_process.iter().sum(), base, by_process.into_iter().enumerate())];
        }
        let fits = |shared: &&Shared| rule.scope.device.is_none_or(|device| shared.device.index == Some(device));
        let one = |shared: &Shared| {
            let users = crate::words::count(shared.device.users.len() as u64, "process", "processes");
            let limit = if shared.is_upper_limit(rule.metric) { ", at most" } else { "" };
            let words = format!("of {} ({users} together{limit})", shared.name());
            let base = base.and_then(|base| base.same_as(shared)).map(|base| base.value(rule.metric));
            self.subject(words, shared.value(rule.metric), base, shared.by_process(rule.metric).into_iter())
        };
        self.devices.iter().filter(fits).map(one).collect()
    }

    /// The device that is most likely the same in another run: of its index, else the only one.
    fn same_as(&self, other: &Shared) -> Option<&Shared> {
        let of_index = self.devices.iter().find(|shared| shared.name() == other.name());
        of_index.or(self.devices.first().filter(|_| self.devices.len() == 1))
    }

    fn subject(
        &self,
        words: String,
        value: f64,
        base: Option<f64>,
        by_process: impl Iterator<Item = (usize, f64)>,
    ) -> (Subject<'a>, Vec<Culprit>) {
        let mut by_process: Vec<(usize, f64)> = by_process.filter(|(_, value)| *value > 0.0).collect();
        by_process.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        let culprit = |(process, value): (usize, f64)| {
            let run = &self.profiles[process].run;
            let name = run.script.as_ref().unwrap_or(&run.executable);
            Culprit { key: format!("{name}{}, pid {}", words::rank(run.rank), run.pid), value, base: None }
        };
        let culprits = by_process.into_iter().take(MOST_CULPRITS).map(culprit).collect();
        (
            Subject {
                words,
                value: Ok(value),
                base: base.ok_or_else(no_base),
                sites: Vec::new(),
                culprits: Vec::new(),
            },
            culprits,
        )
    }
}

impl Shared {
    fn name(&self) -> String {
        match (self.device.index, &self.device.pci_bus_id) {
            (Some(index), _) => Place::Gpu(index).words(),
            (None, Some(bus)) => format!("the GPU at {bus}"),
            (None, None) => "a GPU that processes number differently".to_owned(),
        }
    }

    /// Whether what is told of the peak is the most that it can have been.
    fn is_upper_limit(&self, metric: Metric) -> bool {
        is_of_peak(metric) && !self.device.peak.exact
    }

    /// What all processes together have of it. The peak is of one moment: the sum of their own peaks may be higher.
    fn value(&self, metric: Metric) -> f64 {
        let peak = &self.device.peak;
        match metric {
            Metric::Peak => peak.requested_bytes as f64,
            Metric::PaddedPeak => peak.padded_bytes as f64,
            Metric::Padding => peak.padded_bytes.saturating_sub(peak.requested_bytes) as f64,
            _ => self.by_process(metric).iter().map(|(_, value)| value).sum(),
        }
    }

    fn by_process(&self, metric: Metric) -> Vec<(usize, f64)> {
        if is_of_peak(metric) {
            let of = |figure: u64, less: u64| figure.saturating_sub(less) as f64;
            let shares = self.device.peak.processes.iter().map(|share| {
                let value = match metric {
                    Metric::Peak => of(share.requested_bytes, 0),
                    Metric::PaddedPeak => of(share.padded_bytes, 0),
                    _ => of(share.padded_bytes, share.requested_bytes),
                };
                (share.process, value)
            });
            return shares.collect();
        }
        let Some(figures) = metric.figures() else { return Vec::new() };
        self.figures.iter().map(|(process, sum)| (*process, number(figures, sum))).collect()
    }
}

fn is_of_peak(metric: Metric) -> bool {
    metric.figures().is_some_and(|(figure, _)| matches!(figure, Figure::Peak | Figure::PaddedPeak))
}

/// A number of a whole process.
fn whole(metric: Metric, profile: &Profile) -> f64 {
    match metric.figures() {
        Some(figures) => profile.places.iter().map(|place| number(figures, &place.figures)).sum(),
        // Nobody knows how many events a damaged part had: it counts as one.
        None => profile.run.events_lost.saturating_add(profile.run.damages as u64) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Verdict, parse_expression};
    use crate::testing::{GIB, MIB, TraceBuilder, member, profile};

    const SECOND: u64 = 1_000_000_000;

    fn process(pid: u32, rank: u32, script: &str) -> TraceBuilder {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
        (trace.header.pid, trace.process.pid, trace.process.rank) = (pid, pid, rank);
        trace.process.executable = "/usr/bin/python3".into();
        trace.process.command_line = vec!["python3".into(), script.into()];
        trace.process.environment = vec![("RANK".into(), rank.to_string())];
        trace
    }

    /// One holds 6 GiB from 1 s on; the other 5 GiB for a moment before that, and 300 MiB from 2 s on, which it keeps.
    fn two() -> Vec<TraceBuilder> {
        let mut one = process(10, 0, "/home/me/train.py");
        one.now_ns = SECOND;
        one.alloc(0x1000, 6 * GIB);
        one.now_ns = 4 * SECOND;
        one.free(0x1000);
        let mut other = process(11, 1, "/home/me/loader.py");
        other.alloc(0x1000, 5 * GIB);
        other.free(0x1000);
        other.now_ns = 2 * SECOND;
        other.alloc(0x1000, 300 * MIB);
        other.refuse(99 * GIB);
        vec![one, other]
    }

    fn judged(statement: &str, new: &[TraceBuilder], base: &[TraceBuilder]) -> Vec<Judged> {
        let of = |traces: &[TraceBuilder]| -> (Vec<Profile>, Vec<Member>) {
            (traces.iter().map(profile).collect(), traces.iter().map(member).collect())
        };
        let (new, base) = (of(new), of(base));
        let jobs = Jobs {
            new: Together { profiles: &new.0, members: &new.1 },
            base: Together { profiles: &base.0, members: &base.1 },
        };
        jobs.judge(&parse_expression(statement).unwrap())
    }

    #[test]
    fn processes_together_are_judged_at_one_moment() {
        for statement in [
            "peak[job] == 6444M",
            "peak[job,device=0] == 6444M",
            "peak_padded[job] == 6.5G",
            "padding[job] == 212M",
            "peak[job,rank=1] == 5G",
            "peak[job,process=train*] == 6G",
            "live_at_end[job] == 300M",
            "blocks_at_end[job] == 1",
            "allocations[job] == 3",
            "allocations[job,device=0] == 3",
            "ooms[job] == 1",
            "events_lost[job] == 0",
        ] {
            let found = judged(statement, &two(), &[]);
            assert_eq!(found.len(), 1, "{statement}");
            assert_eq!(found[0].verdict, Verdict::True, "{found:#?}");
        }
        // Their own peaks add up to 11 GiB.
        let found = &judged("peak[job] <= 6G", &two(), &[])[0];
        assert_eq!((found.verdict, &found.subject[..]), (Verdict::False, "peak of GPU 0 (2 processes together)"));
        let culprits: Vec<_> = found.culprits.iter().map(|who| (&who.key[..], who.value)).collect();
        let (most, less) = (6 * GIB, 300 * MIB);
        assert_eq!(culprits, [("train.py, rank 0, pid 10", most as f64), ("loader.py, rank 1, pid 11", less as f64)]);
    }

    /// 0 stands in the file where no rank was set, too.
    #[test]
    fn an_unknown_rank_is_not_told() {
        let mut traces = two();
        traces.iter_mut().for_each(|trace| trace.process.environment.clear());
        traces[1].process.rank = 0;
        assert_eq!(traces.iter().map(|trace| profile(trace).run.rank).collect::<Vec<_>>(), [None, None]);
        let found = &judged("peak[job] <= 6G", &traces, &[])[0];
        let culprits: Vec<_> = found.culprits.iter().map(|who| &who.key[..]).collect();
        assert_eq!(culprits, ["train.py, pid 10", "loader.py, pid 11"]);
        assert!(!judged("peak[job,rank=0] == 6444M", &traces, &[]).is_empty(), "one without a rank is like the first");
    }

    #[test]
    fn a_job_is_compared_with_a_job() {
        let smaller = vec![two().remove(0)];
        assert_eq!(judged("peak[job] <= base + 5%", &two(), &smaller)[0].verdict, Verdict::True);
        assert_eq!(judged("peak[job] <= base + 100M", &two(), &smaller)[0].verdict, Verdict::False);
        assert_eq!(judged("peak[job] <= base", &two(), &[])[0].verdict, Verdict::NotJudged);
        assert!(judged("peak[job,rank=7] <= 1", &two(), &[]).is_empty(), "nobody has this rank");
    }

    #[test]
    fn what_fell_together_is_an_upper_limit() {
        let mut many = process(10, 0, "train.py");
        for round in 0..20_000u64 {
            many.alloc(0x1000, MIB * (1 + round % 7));
            many.free(0x1000);
        }
        let mut other = process(11, 1, "train.py");
        other.alloc(0x1000, MIB);
        let found = &judged("peak[job] <= 1G", &[many, other], &[])[0];
        assert_eq!(found.subject, "peak of GPU 0 (2 processes together, at most)");
    }
}
